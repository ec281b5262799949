/* Promise 2: the plan is the run.
 *
 * What could be wrong: a kernel or copy that touches a byte outside its places, a peak that is not
 * the peak, planned bytes that nothing uses, memory taken behind the plan's back. Random plans over
 * three tiers and in three types (60, full 500) are run twice:
 *
 *   - one command at a time in the test's own memory (serial_walk.h): all but the command's places
 *     poisoned under ASan, last bytes of whatever must be written watched;
 *   - by the engine, in arenas mapped at exactly the planned peaks between guard pages, with every
 *     allocation of the process counted after two warm-up steps.
 *
 * Both must end with the same losses and norms, bit for bit.
 */
#define _GNU_SOURCE /* nftw */

#include "allocation_counter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sanitizer_share.h"
#include "serial_walk.h"
#include "skip.h"

enum { STEPS = 4, WARM_UP_STEPS = 2, WORKERS = 2 };

static const sl_engine_target target = {.worker_count = WORKERS};

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 271828;
}

static uint64_t plan_count(void)
{
    return getenv("SL_TEST_FULL") ? 500 : 60 / SANITIZER_SHARE;
}

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* A random case, two in three over three tiers, within budgets between the least and the most. */
static sl_plan *open_random_plan(uint64_t seed, plan_case *c)
{
    sl_plan *plan = NULL;
    *c = seed % 3 == 0 ? plan_case_choose(seed) : tiered_case_choose(seed);
    c->mixes_rules = seed % 4 == 1;
    c->has_muon = seed % 5 == 2;
    c->states = seed % 5 == 3 ? SL_STATES_INT8 : SL_STATES_FP32;
    c->master = (sl_master)(seed / 2 % 2);
    c->request.workspace = sl_engine_workspace_bytes;
    c->request.workspace_context = &target;
    assert_ok(plan_case_build(c), seed);
    assert_ok(plan_case_plan_tightly(c, seed, &plan), seed);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    return plan;
}

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
} outcome;

/* ---- one command at a time ---- */

static void initialise_walk(serial_walk *walk)
{
    const sl_program *program = walk->c->program;
    float *data = calloc(training_run_largest(program), sizeof *data);
    assert_non_null(data);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        for (uint64_t i = 0; i < program->tensors[t].element_count; i++)
            data[i] = training_run_initial(&program->tensors[t], t, i);
        serial_walk_set_tensor(walk, SL_GROUP_PARAM, t, data);
        training_run_keep_master(program, data, program->tensors[t].element_count);
        if (program->has_state[SL_GROUP_MASTER])
            serial_walk_set_tensor(walk, SL_GROUP_MASTER, t, data);
    }
    free(data);
}

static void take_walk_outputs(serial_walk *walk, double *out_loss, float *out_norm)
{
    const sl_place *loss = serial_walk_slot(walk, SL_OUTPUT_LOSS);
    const sl_place *control = serial_walk_slot(walk, SL_OUTPUT_CONTROL);
    serial_walk_open_place(walk, loss);
    serial_walk_open_place(walk, control);
    memcpy(out_loss, serial_walk_at(walk, loss), sizeof *out_loss);
    memcpy(out_norm, serial_walk_at(walk, control), sizeof *out_norm);
    serial_walk_shut_place(walk, loss);
    serial_walk_shut_place(walk, control);
}

static outcome walk_serially(const plan_case *c, const sl_plan *plan, uint64_t seed)
{
    outcome result;
    serial_walk walk;
    assert_ok(serial_walk_open(c, plan, &walk), seed);
    initialise_walk(&walk);
    sl_step_scalars none = {0};
    assert_ok(serial_walk_commands(&walk, plan->prologue, plan->prologue_count, &none), seed);
    for (uint32_t step = 1; step <= STEPS; step++) {
        sl_step_scalars scalars = training_run_scalars(c->step.update_early ? 0.0f : 1.0f, step);
        walk.step = step;
        assert_ok(serial_walk_body(&walk, &scalars), seed);
        take_walk_outputs(&walk, &result.loss[step - 1], &result.norm[step - 1]);
    }
    assert_true(walk.checked_places > 0);
    if (walk.untouched_places)
        fail_msg("seed %llu: the last bytes of %llu of %llu written places were left alone",
                 (unsigned long long)seed, (unsigned long long)walk.untouched_places,
                 (unsigned long long)walk.checked_places);
    serial_walk_close(&walk);
    return result;
}

/* ---- the engine ---- */

static void check_measured_peaks(const training_run *run, uint64_t seed)
{
    sl_engine_statistics statistics;
    sl_engine_take_statistics(run->engine, &statistics);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (statistics.measured_peak_bytes[tier] != run->plan->peak_bytes[tier] ||
            statistics.arena_bytes[tier] < run->plan->peak_bytes[tier] ||
            statistics.arena_bytes[tier] > run->plan->peak_bytes[tier] + 63)
            fail_msg("seed %llu: tier %d: planned %llu, touched %llu, mapped %llu",
                     (unsigned long long)seed, tier,
                     (unsigned long long)run->plan->peak_bytes[tier],
                     (unsigned long long)statistics.measured_peak_bytes[tier],
                     (unsigned long long)statistics.arena_bytes[tier]);
    }
}

static outcome run_engine(plan_case *c, sl_plan *plan, uint64_t seed)
{
    outcome result;
    training_run run;
    assert_ok(training_run_open(c, plan, WORKERS, true, &run), seed);
    for (uint32_t step = 1; step <= STEPS; step++) {
        sl_step_scalars scalars = training_run_scalars(run.clip, step);
        run.step = step;
        if (step == WARM_UP_STEPS + 1)
            allocation_counter_start();
        assert_ok(sl_engine_step(run.engine, 0, &scalars), seed);
        const sl_step_control *control = sl_engine_output(run.engine, 0, SL_OUTPUT_CONTROL);
        result.loss[step - 1] = *(const double *)sl_engine_output(run.engine, 0, SL_OUTPUT_LOSS);
        result.norm[step - 1] = control->grad_norm;
    }
    assert_ok(sl_engine_drain(run.engine), seed);
    allocation_counter_stop();
    if (allocation_counter_calls)
        fail_msg("seed %llu: %llu allocations of %llu bytes in the step loop",
                 (unsigned long long)seed, (unsigned long long)allocation_counter_calls,
                 (unsigned long long)allocation_counter_bytes);
    check_measured_peaks(&run, seed);
    training_run_close(&run);
    return result;
}

static void run_when_plans_are_random_then_touches_what_is_planned(void **state)
{
    (void)state;
    printf("seed %llu, %llu plans; allocations %s counted\n", (unsigned long long)base_seed(),
           (unsigned long long)plan_count(), SL_ALLOCATIONS_ARE_COUNTED ? "are" : "are not");
    for (uint64_t n = 0; n < plan_count(); n++) {
        plan_case c;
        uint64_t seed = base_seed() + n;
        sl_plan *plan = open_random_plan(seed, &c);
        outcome walked = walk_serially(&c, plan, seed);
        outcome ran = run_engine(&c, plan, seed);
        assert_memory_equal(walked.loss, ran.loss, sizeof ran.loss);
        assert_memory_equal(walked.norm, ran.norm, sizeof ran.norm);
        plan_case_close(&c);
    }
}

/* The counter must see what it is there for. */
static void counter_when_something_allocates_then_counts(void **state)
{
    (void)state;
    if (!SL_ALLOCATIONS_ARE_COUNTED)
        skip_because("a sanitizer counts no allocations");
    allocation_counter_start();
    void *volatile memory = malloc(1000);
    free(memory);
    allocation_counter_stop();
    assert_int_equal(allocation_counter_calls, 1);
    assert_int_equal(allocation_counter_bytes, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_when_plans_are_random_then_touches_what_is_planned),
        cmocka_unit_test(counter_when_something_allocates_then_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
