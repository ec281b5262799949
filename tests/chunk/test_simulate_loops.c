/* Loops in the simulator, which passes over most of their repetitions: what could be wrong is time
 * that is lost or invented there, waits of lanes that have nothing to do in the loop most of all.
 * Each plan is compared with the same one with every repetition written out: the step, work and
 * waits of each lane by what they are charged to, and what the observer is told of each command;
 * random plans, and the planner's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "simulate_scene.h"

/* Three sections, the middle one repeated. */
static void cut_at_random(scene *s, uint64_t *random, uint32_t repeat)
{
    uint32_t count = s->plan.body_count;
    uint32_t first = (uint32_t)spec_random(random, count);
    uint32_t last = first + 1 + (uint32_t)spec_random(random, count - first);
    s->plan.section_count = 3;
    s->sections[0] = (sl_section){0, first, 0, 1};
    s->sections[1] = (sl_section){first, last - first, 1, repeat};
    s->sections[2] = (sl_section){last, count - last, repeat + 1, 1};
}

/* The same plan with every repetition a section of its own. */
typedef struct unrolled {
    sl_plan plan;
    uint32_t *origin; /* [body_count] the command that it is a repetition of */
} unrolled;

static void *new_array(uint64_t count, size_t element_bytes)
{
    void *array = calloc(count + 1, element_bytes);
    assert_non_null(array);
    return array;
}

static void close_unrolled(unrolled *flat)
{
    free(flat->plan.body);
    free(flat->plan.waits);
    free(flat->plan.sections);
    free(flat->origin);
}

static uint32_t find_section(const sl_plan *plan, uint32_t command)
{
    uint32_t s = 0;
    while (command >= plan->sections[s].first + plan->sections[s].count)
        s++;
    return s;
}

/* Where repetition r of a command stands. */
static uint32_t find_unrolled(const sl_plan *plan, uint32_t command, uint32_t r)
{
    const sl_section *section = plan->sections;
    uint32_t first = 0;
    for (; command >= section->first + section->count; section++)
        first += section->repeat * section->count;
    return first + r * section->count + command - section->first;
}

static sl_wait unroll_wait(const sl_plan *plan, uint32_t waiter, uint32_t r, sl_wait wait)
{
    const uint32_t section = find_section(plan, waiter), other = find_section(plan, wait.command);
    const int64_t issues = plan->sections[other].repeat;
    int64_t latest = other < section ? issues - 1 : -1;
    if (other == section)
        latest = (int64_t)r - (wait.command >= waiter);
    latest -= wait.age;
    uint32_t back = 0;
    for (; latest < 0; latest += issues)
        back++; /* iterations */
    const uint32_t target = find_unrolled(plan, wait.command, (uint32_t)latest);
    return (sl_wait){target, target < find_unrolled(plan, waiter, r) ? back : back - 1};
}

static void unroll_command(const sl_plan *plan, uint32_t command, uint32_t r, unrolled *out)
{
    sl_plan *flat = &out->plan;
    sl_command *copy = &flat->body[flat->body_count];
    out->origin[flat->body_count++] = command;
    *copy = plan->body[command];
    copy->first_wait = flat->wait_count;
    for (uint32_t w = 0; w < copy->wait_count; w++)
        flat->waits[flat->wait_count++] =
            unroll_wait(plan, command, r, plan->waits[plan->body[command].first_wait + w]);
}

static void unroll(const sl_plan *plan, unrolled *out)
{
    uint64_t bodies = 0, waits = 0, sections = 0;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        sections += section->repeat;
        bodies += (uint64_t)section->repeat * section->count;
        for (uint32_t c = section->first; c < section->first + section->count; c++)
            waits += (uint64_t)section->repeat * plan->body[c].wait_count;
    }
    *out = (unrolled){.plan = {.body = new_array(bodies, sizeof(sl_command)),
                               .waits = new_array(waits, sizeof(sl_wait)),
                               .sections = new_array(sections, sizeof(sl_section))},
                      .origin = new_array(bodies, sizeof(uint32_t))};
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t r = 0; r < section->repeat; r++) {
            out->plan.sections[out->plan.section_count++] =
                (sl_section){out->plan.body_count, section->count, 0, 1};
            for (uint32_t c = section->first; c < section->first + section->count; c++)
                unroll_command(plan, c, r, out);
        }
    }
}

/* What the observer was told of a command, all its repetitions together. */
typedef struct command_record {
    uint64_t run_count;
    double run_seconds, wait_seconds;
    double latest_run[2], latest_wait[2]; /* of the latest run and the one before */
} command_record;

typedef struct recorder {
    command_record *records;
    const uint32_t *origin; /* NULL: each command is its own */
    uint64_t passed_count;  /* repetitions that were passed over */
} recorder;

static void record_run(void *user, const sl_simulated_run *run)
{
    recorder *self = user;
    command_record *it = &self->records[self->origin ? self->origin[run->command] : run->command];
    it->latest_run[1] = it->latest_run[0];
    it->latest_wait[1] = it->latest_wait[0];
    it->latest_run[0] = run->end - run->start;
    it->latest_wait[0] = run->waited_seconds;
    it->run_count++;
    it->run_seconds += it->latest_run[0];
    it->wait_seconds += it->latest_wait[0];
}

static void record_passed(void *user, uint32_t command, uint32_t period, uint32_t times)
{
    recorder *self = user;
    command_record *it = &self->records[command];
    self->passed_count += (uint64_t)period * times;
    it->run_count += (uint64_t)period * times;
    for (uint32_t i = 0; i < period; i++) {
        it->run_seconds += times * it->latest_run[i];
        it->wait_seconds += times * it->latest_wait[i];
    }
}

static sl_simulation play_recorded(const sl_program *program, const sl_plan *plan,
                                   const sl_machine *machine, recorder *self)
{
    sl_simulation simulation;
    const sl_simulation_observer observer = {record_run, record_passed, self};
    assert_int_equal(sl_plan_simulate_observed(program, plan, machine, &observer, &simulation),
                     SL_OK);
    return simulation;
}

static void assert_near(double found, double expected, double tolerance, const char *what,
                        uint32_t index)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s of %u: %.12f s instead of %.12f s", what, index, found, expected);
}

/* Of one lane: its work, and its waits, together and by what they are charged to. */
static void compare_lane(const sl_simulation *found, const sl_simulation *expected, int lane,
                         double tolerance)
{
    double waited = 0, should_wait = 0;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        waited += found->wait_seconds[lane][cause];
        should_wait += expected->wait_seconds[lane][cause];
    }
    assert_near(found->busy_seconds[lane], expected->busy_seconds[lane], tolerance, "work",
                (uint32_t)lane);
    assert_near(waited, should_wait, tolerance, "waits", (uint32_t)lane);
    for (int cause = 0; cause < SL_LANE_COUNT; cause++)
        assert_near(found->wait_seconds[lane][cause], expected->wait_seconds[lane][cause],
                    tolerance, sl_lane_name((sl_lane)cause), (uint32_t)lane);
}

static void compare_command(const command_record *found, const command_record *expected,
                            uint32_t command, double tolerance)
{
    assert_int_equal(found->run_count, expected->run_count);
    assert_near(found->run_seconds, expected->run_seconds, tolerance, "runs of command", command);
    assert_near(found->wait_seconds, expected->wait_seconds, tolerance, "waits of command",
                command);
}

/* Returns how many repetitions of commands were passed over. */
static uint64_t compare_with_unrolled(const sl_program *program, const sl_plan *plan,
                                      const sl_machine *machine, double tolerance)
{
    unrolled flat;
    unroll(plan, &flat);
    recorder folded = {.records = new_array(plan->body_count, sizeof(command_record))};
    recorder written_out = {.records = new_array(plan->body_count, sizeof(command_record)),
                            .origin = flat.origin};
    const sl_simulation found = play_recorded(program, plan, machine, &folded);
    const sl_simulation expected = play_recorded(program, &flat.plan, machine, &written_out);
    assert_int_equal(written_out.passed_count, 0);
    tolerance *= expected.step_seconds > 1 ? 1 : expected.step_seconds;
    assert_near(found.step_seconds, expected.step_seconds, tolerance, "step", 0);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        compare_lane(&found, &expected, lane, tolerance);
        assert_true(found.stall_seconds[lane] == found.wait_seconds[SL_LANE_COMPUTE][lane]);
    }
    for (uint32_t c = 0; c < plan->body_count; c++)
        compare_command(&folded.records[c], &written_out.records[c], c, tolerance);
    free(folded.records);
    free(written_out.records);
    close_unrolled(&flat);
    return folded.passed_count;
}

/* Times of a scene are sums of some ten thousand whole seconds: all but exact. */
static uint64_t compare_scene(scene *s)
{
    return compare_with_unrolled(&s->program, &s->plan, &s->machine, 1e-9);
}

/* A lane works before and behind a loop of 100 repetitions and not in it. */
static void waits_of_a_lane_outside_a_loop_last_as_long_as_the_loop(void **state)
{
    (void)state;
    for (uint64_t fetch_seconds = 0; fetch_seconds <= 2; fetch_seconds++) {
        scene s;
        open_scene(&s);
        add_run(&s, SL_LANE_HOST, 1);
        uint32_t fetch = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, fetch_seconds);
        add_wait(&s, 2, 0); /* one slot: the op of the repetition before is over */
        uint32_t run = add_run(&s, SL_LANE_COMPUTE, 1);
        add_wait(&s, fetch, 0);
        add_run(&s, SL_LANE_HOST, 1);
        add_wait(&s, run, 0);
        s.plan.section_count = 3;
        s.sections[0] = (sl_section){0, 1, 0, 1};
        s.sections[1] = (sl_section){1, 2, 1, 100};
        s.sections[2] = (sl_section){3, 1, 101, 1};
        assert_true(compare_scene(&s) > 0);
        sl_simulation found = play(&s);
        const double waits = 100.0 * (double)(1 + fetch_seconds) - 2;
        double waited = 0;
        for (int cause = 0; cause < SL_LANE_COUNT; cause++)
            waited += found.wait_seconds[SL_LANE_HOST][cause];
        assert_seconds(waited, waits);
        assert_seconds(found.step_seconds, waits + 2);
    }
}

static void few_repetitions_take_what_they_take_unrolled(void **state)
{
    (void)state;
    uint64_t random = spec_seed(6);
    for (uint32_t round = 0; round < spec_count(1000, 30000); round++) {
        scene s;
        open_scene(&s);
        fill_at_random(&s, &random);
        cut_at_random(&s, &random, 1 + (uint32_t)spec_random(&random, 9));
        compare_scene(&s);
    }
}

static void many_repetitions_take_what_they_take_unrolled(void **state)
{
    (void)state;
    uint64_t random = spec_seed(7), passed = 0;
    const uint32_t rounds = spec_count(300, 10000);
    for (uint32_t round = 0; round < rounds; round++) {
        scene s;
        open_scene(&s);
        fill_at_random(&s, &random);
        cut_at_random(&s, &random, 20 + (uint32_t)spec_random(&random, 480));
        passed += compare_scene(&s) > 0;
    }
    assert_true(passed > rounds / 4);
}

/* Plans of training steps, on three tiers, whose loops are long enough to be passed over. Of times
 * that are no whole numbers sums differ by rounding, in the order of 1e-12 of the step. */
static void loops_of_planned_steps_take_what_they_take_unrolled(void **state)
{
    (void)state;
    const uint32_t rounds = spec_count(24, 400);
    uint64_t passed = 0, planned = 0;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        plan_case c = seed % 2 ? tiered_case_choose(seed) : plan_case_choose(seed);
        sl_plan *plan = NULL;
        c.step.micro_batch_count = 40 + (uint32_t)(7 * seed % 100);
        c.emit.grad_type = SL_TYPE_FP32;
        assert_int_equal(plan_case_build(&c), SL_OK);
        if (plan_case_plan_tightly(&c, seed, &plan) == SL_OK) {
            passed += compare_with_unrolled(c.program, plan, &c.machine, 1e-9) > 0;
            planned++;
        }
        sl_plan_close(plan);
        plan_case_close(&c);
    }
    assert_true(planned > rounds / 2);
    assert_true(passed > rounds / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_of_a_lane_outside_a_loop_last_as_long_as_the_loop),
        cmocka_unit_test(few_repetitions_take_what_they_take_unrolled),
        cmocka_unit_test(many_repetitions_take_what_they_take_unrolled),
        cmocka_unit_test(loops_of_planned_steps_take_what_they_take_unrolled),
    };
    return cmocka_run_group_tests_name("simulate loops", tests, NULL, NULL);
}
