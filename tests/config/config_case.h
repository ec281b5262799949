/* A configuration that tests set and check. */
#ifndef SL_TESTS_CONFIG_CASE_H
#define SL_TESTS_CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"

static inline void assert_message_has(const char *part)
{
    if (!strstr(sl_status_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, sl_status_message());
}

typedef struct fixture {
    sl_config config;
} fixture;

static inline int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    *state = self;
    return sl_config_init(&self->config);
}

static inline int tear_down(void **state)
{
    fixture *self = *state;
    sl_config_clear(&self->config);
    free(self);
    return 0;
}

static inline sl_status assign(fixture *self, const char *assignment)
{
    return sl_config_assign(&self->config, SL_CONFIG_TRAIN, assignment);
}

#endif
