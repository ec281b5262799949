/* Fixtures of a test with a directory of its own: `*state` is its path, or it is the present
 * directory; and what the library logged meanwhile. */
#ifndef SL_TESTS_SCRATCH_CASE_H
#define SL_TESTS_SCRATCH_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "scratch_dir.h"
#include "sluice/log.h"

static inline int open_scratch(void **state)
{
    static scratch_path directory;
    directory = scratch_open();
    *state = &directory;
    return 0;
}

static inline int close_scratch(void **state)
{
    scratch_close(*state);
    return 0;
}

static inline int enter_scratch(void **state)
{
    open_scratch(state);
    return chdir(((scratch_path *)*state)->text) != 0;
}

static inline int leave_scratch(void **state)
{
    int result = chdir("/");
    close_scratch(state);
    return result;
}

static char remarks[8192]; /* a line each */

static inline void keep_remark(void *user, sl_log_level level, const char *line)
{
    size_t used = strlen(remarks);
    (void)level, (void)user;
    snprintf(remarks + used, sizeof remarks - used, "%s\n", line);
}

static inline int open_scratch_and_log(void **state)
{
    remarks[0] = '\0';
    sl_log_set_callback(keep_remark, NULL);
    return open_scratch(state);
}

static inline int close_scratch_and_log(void **state)
{
    sl_log_set_callback(NULL, NULL);
    return close_scratch(state);
}

static inline void must(sl_status status)
{
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
}

/* The status, a piece of the message, and nothing in it that a terminal would obey. */
static inline void must_fail(const char *what, sl_status status, sl_status expected,
                             const char *fragment)
{
    if (status != expected || !strstr(sl_status_message(), fragment))
        fail_msg("%s: status %d, message \"%s\", expected \"%s\"", what, status,
                 status ? sl_status_message() : "", fragment);
    for (const char *byte = sl_status_message(); *byte; byte++)
        if ((unsigned char)*byte < 0x20 || (unsigned char)*byte > 0x7e)
            fail_msg("%s: the message holds byte %02x", what, (unsigned char)*byte);
}

#endif
