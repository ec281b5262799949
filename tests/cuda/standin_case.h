/* What the tests of the cuda device over the stand-in share: a fresh machine before each, nothing
 * left and nothing wrongly used after it, and an alarm that ends the program where it hangs. */
#ifndef SL_TESTS_CUDA_STANDIN_CASE_H
#define SL_TESTS_CUDA_STANDIN_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "device/cuda.h"
#include "standin.h"

enum { HANG_S = 250 };

static const sl_device_ops *ops;

static standin_machine plain_machine(void)
{
    standin_machine machine = standin_default();
    machine.delay_us = 0;
    return machine;
}

static int reset(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    standin_reset(&machine);
    ops = sl_cuda_ops();
    alarm(HANG_S);
    return 0;
}

/* Nothing is left, and nothing was done that CUDA does not allow. */
static void check_nothing_left(void)
{
    const char *first;
    standin_counts live = standin_live();
    if (standin_faults(&first) > 0)
        fail_msg("after %s: %s", standin_failed_call(), first);
    if (live.allocations + live.streams + live.events + live.registrations > 0)
        fail_msg("after %s: %d allocations, %d streams, %d events, %d registrations are left",
                 standin_failed_call(), (int)live.allocations, (int)live.streams, (int)live.events,
                 (int)live.registrations);
}

static int check_end(void **state)
{
    (void)state;
    check_nothing_left();
    return 0;
}

#endif
