/* What could be wrong here: a scale that grows too early, never comes down, falls below its minimum
 * without a word, or that a resumed run starts over. The rules are walked step by step and compared
 * with numbers that were counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/schedule.h"

typedef struct fixture {
    sl_config config;
    sl_checkpoint_state state;
} fixture;

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    *state = self;
    return self && sl_config_init(&self->config) == SL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    sl_config_clear(&self->config);
    free(self);
    return 0;
}

static void start(fixture *self, const char *scale)
{
    char setting[64];
    snprintf(setting, sizeof setting, "loss-scale=%s", scale);
    assert_int_equal(sl_config_assign(&self->config, SL_CONFIG_TRAIN, setting), SL_OK);
    assert_int_equal(sl_schedule_start_loss_scale(&self->config, NULL, &self->state), SL_OK);
}

static void settle(fixture *self, uint32_t steps, bool is_finite)
{
    for (uint32_t i = 0; i < steps; i++)
        assert_int_equal(sl_schedule_update_loss_scale(&self->config, is_finite, &self->state),
                         SL_OK);
}

static void fixed_when_steps_fail_then_stays(void **state)
{
    fixture *self = *state;
    start(self, "12.5");
    settle(self, 2500, true);
    settle(self, 100, false);
    assert_true(self->state.loss_scale == 12.5);
}

static void dynamic_when_a_thousand_steps_are_finite_then_doubles(void **state)
{
    fixture *self = *state;
    start(self, "dynamic");
    assert_true(self->state.loss_scale == 65536);
    settle(self, 999, true);
    assert_true(self->state.loss_scale == 65536);
    settle(self, 1, true);
    assert_true(self->state.loss_scale == 131072);
    settle(self, 999, true);
    settle(self, 1, false); /* the count starts anew */
    assert_true(self->state.loss_scale == 65536);
    settle(self, 999, true);
    assert_true(self->state.loss_scale == 65536);
    settle(self, 1, true);
    assert_true(self->state.loss_scale == 131072);
}

static void dynamic_when_always_finite_then_ends_at_its_maximum(void **state)
{
    fixture *self = *state;
    start(self, "dynamic");
    settle(self, 20000, true);
    assert_true(self->state.loss_scale == 16777216);
}

/* 2^16 is halved 16 times to 1; the failure after that is the last one. */
static void dynamic_when_steps_go_on_failing_then_ends_at_one_with_an_error(void **state)
{
    fixture *self = *state;
    start(self, "dynamic");
    for (double scale = 32768; scale >= 1; scale /= 2) {
        settle(self, 1, false);
        assert_true(self->state.loss_scale == scale);
    }
    assert_int_equal(sl_schedule_update_loss_scale(&self->config, false, &self->state),
                     SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), "--lr"));
    assert_true(self->state.loss_scale == 1);
}

int main(void)
{
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(fixed_when_steps_fail_then_stays),
        WITH_CONFIG(dynamic_when_a_thousand_steps_are_finite_then_doubles),
        WITH_CONFIG(dynamic_when_always_finite_then_ends_at_its_maximum),
        WITH_CONFIG(dynamic_when_steps_go_on_failing_then_ends_at_one_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
