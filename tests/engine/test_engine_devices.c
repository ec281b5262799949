/* What could be wrong with loops on a device that is only told what to do: an event is recorded
 * again before who waits for it has passed it, so that an age reaches the wrong issue; the control
 * thread runs ahead; a failure of a lane of the host hangs the streams, or they compute on.
 *
 * One body over the devices; engine_devices.h has the plan.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_devices.h"

enum { WATCHDOG_SECONDS = 120 };

static void choose_way(int way)
{
#ifdef SL_TEST_STANDIN
    standin_machine machine = standin_default();
    machine.has_wait_value = way == 0;
    standin_reset(&machine);
#else
    (void)way;
#endif
}

/* ---- tests ---- */

static void run_and_compare(uint32_t repeat, uint32_t steps)
{
    static float host_sum[ELEMENTS];
    made_plan p;
    make_plan(&p, repeat);
    memset(host_sum, 0, sizeof host_sum);
    sl_engine *engine = open_engine(&p);
    const float *host = sl_engine_arena(engine, SL_TIER_HOST);
    for (p.made.step = 0; p.made.step < steps; p.made.step++) {
        const sl_step_scalars scalars = {0};
        if (sl_engine_step(engine, 0, &scalars) != SL_OK)
            fail_msg("%s", sl_status_message());
        const float *out = sl_engine_output(engine, 0, SL_OUTPUT_CONTROL);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            float sum = 0;
            for (uint32_t m = 0; m < repeat; m++)
                sum += token(p.made.step, m, i);
            host_sum[i] += sum;
            assert_true(out[i] == sum);
            assert_true(host[HOST_SUM * ELEMENTS + i] == host_sum[i]);
        }
    }
    sl_engine_close(engine);
}

static void loops_when_run_give_exact_sums(void **state)
{
    (void)state;
    static const uint32_t repeats[] = {1, 2, 3, 5, 300};
    for (int way = 0; way < WAYS; way++) {
        choose_way(way);
        for (size_t i = 0; i < sizeof repeats / sizeof repeats[0]; i++)
            run_and_compare(repeats[i], repeats[i] > 100 ? 2 : 10);
    }
}

static void step_when_the_source_fails_ends_soon_and_does_not_hang(void **state)
{
    (void)state;
    enum { REPEAT = 100 };
    for (int k = 0; k < 4 * WAYS; k++) {
        made_plan p;
        const sl_step_scalars scalars = {0};
        choose_way(k % WAYS);
        make_plan(&p, REPEAT);
        p.made.fail_micro_batch = 13 * (k / WAYS);
        sl_engine *engine = open_engine(&p);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sl_engine_step(engine, 0, &scalars), SL_ERROR_IO);
            assert_non_null(strstr(sl_status_message(), "nothing is left (input "));
        }
        /* The section before, the repetition that failed and at most one more. */
        assert_true(p.made.done <= 1 + p.made.fail_micro_batch + 2);
        assert_int_equal(sl_engine_drain(engine), SL_ERROR_IO);
        sl_engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_when_run_give_exact_sums),
        cmocka_unit_test(step_when_the_source_fails_ends_soon_and_does_not_hang),
    };
    alarm(WATCHDOG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
