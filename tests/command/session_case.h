/* What tests of the library's sessions share: tiny options, and calls that must succeed. */
#ifndef SL_TESTS_SESSION_CASE_H
#define SL_TESTS_SESSION_CASE_H

#include "command_run.h"

#include "sluice/session.h"

enum { STEPS = 4, SEQ = 32, BATCH = 2, VOCAB = 257, LOSSES_MAX = 16 };

/* The options of TINY, one behind the other: name, value. */
static const char *const tiny[] = {
    "layers",      "2", "width",   "32", "heads",         "2",   "context",     "32",
    "micro-batch", "2", "threads", "1",  "device-memory", "64M", "host-memory", "64M",
    "steps",       "4", NULL};

static inline void must(sl_status status)
{
    if (status != SL_OK)
        fail_msg("status %d: %s", (int)status, sl_status_message());
}

static inline void assert_refused(sl_status status, sl_status expected, const char *part)
{
    assert_int_equal(status, expected);
    assert_has(sl_status_message(), part);
}

static inline sl_options *tiny_options(const char *data)
{
    sl_options *options = NULL;
    must(sl_options_open(&options));
    must(sl_options_set_all(options, tiny));
    if (data)
        must(sl_options_set(options, "data", data));
    return options;
}

static inline void train(sl_session *session, uint32_t steps, double *out_losses)
{
    sl_step_result step = {.size = sizeof step};
    for (uint32_t i = 0; i < steps; i++) {
        must(sl_session_step(session, &step));
        out_losses[i] = step.loss;
    }
}

#endif
