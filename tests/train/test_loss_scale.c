/* What could be wrong here: a scale that grows too early, never comes down, falls below its minimum
 * without a word, forgives too much, or that a resumed run starts over; a schedule that runs on
 * while steps are skipped. The rules are walked step by step and compared with numbers that were
 * counted by hand, and with those that three runs of Megatron's recipe printed. */
#define _GNU_SOURCE /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scratch_dir.h"
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

static void set(fixture *self, const char *setting)
{
    assert_int_equal(sl_config_assign(&self->config, SL_CONFIG_TRAIN, setting), SL_OK);
}

static void start(fixture *self, const char *scale)
{
    char setting[64];
    snprintf(setting, sizeof setting, "loss-scale=%s", scale);
    set(self, setting);
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

static void dynamic_when_it_starts_above_the_maximum_then_may_come_back(void **state)
{
    fixture *self = *state;
    set(self, "loss-scale-start=4294967296");
    set(self, "loss-scale-window=10");
    start(self, "dynamic");
    assert_true(self->state.loss_scale == 0x1p32);
    settle(self, 100, true);
    assert_true(self->state.loss_scale == 0x1p32);
    settle(self, 3, false);
    assert_true(self->state.loss_scale == 0x1p29);
    settle(self, 10, true);
    assert_true(self->state.loss_scale == 0x1p30);
    settle(self, 90, true);
    assert_true(self->state.loss_scale == 0x1p32);
}

/* The first two overflows are forgiven, wherever they are; each later one halves, until ten good
 * steps in a row double the scale: then two are forgiven again. */
static void dynamic_when_hysteresis_is_three_then_two_overflows_are_forgiven(void **state)
{
    fixture *self = *state;
    set(self, "loss-scale-window=10");
    set(self, "loss-scale-hysteresis=3");
    start(self, "dynamic");
    settle(self, 1, false);
    settle(self, 9, true);
    settle(self, 1, false);
    assert_true(self->state.loss_scale == 65536);
    settle(self, 5, true);
    settle(self, 1, false);
    assert_true(self->state.loss_scale == 32768);
    settle(self, 1, false);
    settle(self, 9, true); /* nothing is forgiven for these */
    settle(self, 1, false);
    assert_true(self->state.loss_scale == 8192);
    settle(self, 10, true);
    assert_true(self->state.loss_scale == 16384);
    settle(self, 2, false);
    assert_true(self->state.loss_scale == 16384);
    settle(self, 1, false);
    assert_true(self->state.loss_scale == 8192);
}

static void dynamic_when_at_a_higher_minimum_then_forgives_and_ends_there(void **state)
{
    fixture *self = *state;
    set(self, "loss-scale-start=4096");
    set(self, "loss-scale-min=1536");
    set(self, "loss-scale-hysteresis=2");
    set(self, "loss-scale-window=3");
    start(self, "dynamic");
    settle(self, 2, false);
    assert_true(self->state.loss_scale == 2048);
    settle(self, 1, false);
    assert_true(self->state.loss_scale == 1536);
    settle(self, 3, true);
    assert_true(self->state.loss_scale == 3072);
    settle(self, 2, false);
    assert_true(self->state.loss_scale == 1536);
    assert_int_equal(sl_schedule_update_loss_scale(&self->config, false, &self->state),
                     SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), "loss scale 1536, the lowest"));
}

/* ---- runs that are known ---- */

/* Three runs of a 345M GPT-2 in fp16: peak 1.5e-4, warm-up of 1 % of the iterations, a scale from
 * 2^32 with hysteresis 2. What their logs printed at steps 100, 200, ... and at the end. */
typedef struct known_run {
    uint64_t iterations, skips;
    double scale;
    const char *rates[6];
} known_run;

static const known_run known_runs[] = {
    {320000, 16, 131072, {"3.937E-06", "8.625E-06"}},
    {300, 18, 32768, {"1.258E-04", "5.257E-05", "1.806E-06"}},
    {600, 20, 8192, {"1.444E-04", "1.210E-04", "8.518E-05", "4.666E-05", "1.574E-05", "6.939E-07"}},
};

static void configure(fixture *self, const known_run *run)
{
    char warmup[64], decay[64];
    snprintf(warmup, sizeof warmup, "warmup=%llu", (unsigned long long)run->iterations / 100);
    snprintf(decay, sizeof decay, "lr-decay-steps=%llu",
             (unsigned long long)(run->iterations + run->iterations / 100));
    set(self, warmup);
    set(self, decay);
    set(self, "lr=1.5e-4");
    set(self, "min-lr=0");
    set(self, "loss-scale-start=4294967296");
    set(self, "loss-scale-hysteresis=2");
    self->state = (sl_checkpoint_state){0};
    start(self, "dynamic");
}

/* One step as the loop takes it; an overflow leaves the schedule where it is. */
static float take_step(fixture *self, bool is_overflow)
{
    float rate = sl_schedule_scalars(&self->config, &self->state).learning_rate;
    self->state.step++;
    self->state.skipped_steps += is_overflow;
    settle(self, 1, !is_overflow);
    return rate;
}

/* The steps among the first 99 that overflow, drawn. */
static void draw_overflows(uint64_t *random, uint64_t count, bool is_overflow[100])
{
    memset(is_overflow, 0, 100 * sizeof *is_overflow);
    while (count > 0) {
        uint64_t step = 1 + scratch_below(random, 99);
        count -= !is_overflow[step];
        is_overflow[step] = true;
    }
}

static void follow(fixture *self, const known_run *run, const bool is_overflow[100])
{
    for (uint64_t step = 1; step <= run->iterations; step++) {
        float rate = take_step(self, step < 100 && is_overflow[step]);
        const char *expected = step % 100 == 0 ? run->rates[step / 100 - 1] : "";
        char text[32];
        snprintf(text, sizeof text, "%.3E", (double)rate);
        if (!expected)
            return; /* nothing more is known */
        if (*expected && strcmp(text, expected) != 0)
            fail_msg("%llu iterations: the rate of step %llu is %s, not %s",
                     (unsigned long long)run->iterations, (unsigned long long)step, text, expected);
        if (*expected && self->state.loss_scale != run->scale)
            fail_msg("%llu iterations: the scale at step %llu is %g, not %g",
                     (unsigned long long)run->iterations, (unsigned long long)step,
                     self->state.loss_scale, run->scale);
    }
}

static void known_runs_when_their_overflows_are_injected_then_print_the_same(void **state)
{
    fixture *self = *state;
    uint64_t random = scratch_seed("overflows", 1) * 2685821657736338717ull + 1;
    const uint64_t draws = scratch_count(20, 2000);
    for (uint64_t draw = 0; draw < draws; draw++)
        for (size_t i = 0; i < sizeof known_runs / sizeof known_runs[0]; i++) {
            bool is_overflow[100];
            draw_overflows(&random, known_runs[i].skips, is_overflow);
            configure(self, &known_runs[i]);
            follow(self, &known_runs[i], is_overflow);
        }
}

int main(void)
{
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(fixed_when_steps_fail_then_stays),
        WITH_CONFIG(dynamic_when_a_thousand_steps_are_finite_then_doubles),
        WITH_CONFIG(dynamic_when_always_finite_then_ends_at_its_maximum),
        WITH_CONFIG(dynamic_when_steps_go_on_failing_then_ends_at_one_with_an_error),
        WITH_CONFIG(dynamic_when_it_starts_above_the_maximum_then_may_come_back),
        WITH_CONFIG(dynamic_when_hysteresis_is_three_then_two_overflows_are_forgiven),
        WITH_CONFIG(dynamic_when_at_a_higher_minimum_then_forgives_and_ends_there),
        WITH_CONFIG(known_runs_when_their_overflows_are_injected_then_print_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
