/* The simulator: what could be wrong is a command that starts too early or too late, sharing that
 * loses or invents work, stalls put on the wrong lane, or time that depends on anything but the
 * plan. Small plans with times in whole seconds are checked by hand; random ones against a
 * recurrence that needs no events: without sharing, a command starts at the latest of what it waits
 * for. Loops, of which the simulator passes over most repetitions, are checked against the same
 * plan with every repetition written out: step, work and waits of each lane, by what they are
 * charged to, and what the observer is told of each command; random plans, and the planner's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simulate_scene.h"

static const sl_lane copy_lanes[] = {SL_LANE_H2D, SL_LANE_D2H, SL_LANE_READ, SL_LANE_WRITE};

static void ops_of_one_lane_take_the_sum_of_their_times(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    add_run(&s, SL_LANE_COMPUTE, 1);
    add_run(&s, SL_LANE_COMPUTE, 2);
    add_run(&s, SL_LANE_COMPUTE, 3);
    s.machine.op_seconds = 0.5;
    sl_simulation found = play(&s);
    assert_seconds(found.step_seconds, 7.5);
    assert_seconds(found.busy_seconds[SL_LANE_COMPUTE], 7.5);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        assert_seconds(found.stall_seconds[lane], 0);
}

static void matrix_products_take_arithmetic_and_traffic(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    add_run(&s, SL_LANE_COMPUTE, 1);
    s.ops[0] = (sl_op){.kind = SL_OP_LINEAR, .attrs = {.row_count = 8, .in = 16, .out = 32}};
    sl_op_rate *rate = &s.machine.op[SL_OP_LINEAR][SL_TYPE_FP32];
    *rate = (sl_op_rate){.flop_rate = 2 * 8 * 16 * 32 / 5.0}; /* five seconds of multiply-adds */
    assert_seconds(play(&s).step_seconds, 5);
    rate->byte_rate = (double)sl_op_traffic_bytes(SL_OP_LINEAR, &s.ops[0].attrs) / 9.0;
    assert_seconds(play(&s).step_seconds, 14);
}

static void ops_that_add_to_what_is_there_have_rates_of_their_own(void **state)
{
    (void)state;
    static const sl_op_kind kind = SL_OP_LINEAR_WEIGHT_BACKWARD;
    scene s;
    open_scene(&s);
    add_run(&s, SL_LANE_COMPUTE, 1);
    s.ops[0] = (sl_op){.kind = kind, .attrs = {.row_count = 8, .in = 16, .out = 32}};
    s.machine.op[kind][SL_TYPE_FP32] = (sl_op_rate){.seconds = 3};
    s.machine.adding_op[kind].rate[SL_TYPE_FP32] = (sl_op_rate){.seconds = 7};
    s.ops[0].attrs.adds_gradient = 1;
    assert_seconds(play(&s).step_seconds, 3); /* none were measured */
    s.machine.adding_op[kind].is_measured = true;
    assert_seconds(play(&s).step_seconds, 7);
    s.ops[0].attrs.adds_gradient = 0;
    assert_seconds(play(&s).step_seconds, 3);
}

static void copy_into_the_only_slot_is_waited_for(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    uint32_t fetch = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, 4);
    add_wait(&s, 1, 0); /* the slot is free when the op of the iteration before is done */
    add_run(&s, SL_LANE_COMPUTE, 1);
    add_wait(&s, fetch, 0);
    s.machine.copy_seconds[SL_LANE_H2D] = 0.25;
    sl_simulation found = play(&s);
    assert_seconds(found.step_seconds, 5.25);
    assert_seconds(found.stall_seconds[SL_LANE_H2D], 4.25);
    assert_seconds(found.busy_seconds[SL_LANE_H2D], 4.25);
    assert_seconds(found.busy_seconds[SL_LANE_COMPUTE], 1);
}

static void copies_into_two_slots_overlap_with_compute(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    uint32_t first = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, 2);
    add_wait(&s, 2, 0);
    uint32_t second = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, 2);
    add_wait(&s, 3, 0);
    add_run(&s, SL_LANE_COMPUTE, 3);
    add_wait(&s, first, 0);
    add_run(&s, SL_LANE_COMPUTE, 3);
    add_wait(&s, second, 0);
    sl_simulation found = play(&s);
    /* first fetch waits for op 2 and is used 3 s later: 2 s of it hide behind op 3 */
    assert_seconds(found.step_seconds, 6);
    assert_seconds(found.stall_seconds[SL_LANE_H2D], 0);
    assert_seconds(found.busy_seconds[SL_LANE_H2D], 4);
}

static void compute_and_host_share_the_cores_where_the_machine_says_so(void **state)
{
    (void)state;
    for (uint64_t host_seconds = 1; host_seconds <= 5; host_seconds++) {
        scene s;
        open_scene(&s);
        uint32_t run = add_run(&s, SL_LANE_COMPUTE, 3);
        add_wait(&s, 1, 0); /* an update that overlaps the next forward pass ends before the next */
        add_run(&s, SL_LANE_HOST, host_seconds);
        add_wait(&s, run, 1);
        double longer = host_seconds > 3 ? (double)host_seconds : 3;
        assert_seconds(play(&s).step_seconds, longer);
        s.machine.shares_cores = true;
        sl_simulation found = play(&s);
        assert_seconds(found.step_seconds, 3 + (double)host_seconds);
        /* side by side each takes twice the shorter one's time, then the longer one runs alone */
        double shorter = host_seconds < 3 ? (double)host_seconds : 3;
        double alone = host_seconds > 3 ? (double)host_seconds - 3 : 0;
        assert_seconds(found.busy_seconds[SL_LANE_HOST], 2 * shorter + alone);
        assert_seconds(found.stall_seconds[SL_LANE_HOST], alone);
    }
}

/* Updates that run beside the next iteration: what is measured has that one beside it, too. */
static void work_left_for_the_next_iteration_takes_its_turns_with_it(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    uint32_t run = add_run(&s, SL_LANE_COMPUTE, 3);
    add_wait(&s, run + 1, 1); /* the update of two iterations ago is over */
    add_run(&s, SL_LANE_HOST, 2);
    add_wait(&s, run, 0);
    s.machine.shares_cores = true;
    assert_seconds(play(&s).step_seconds, 5);
}

/* A run, a host op and a copy that start together; each iteration waits for all of the last. */
static sl_simulation play_together(scene *s, uint64_t run, uint64_t host, uint64_t copy)
{
    add_run(s, SL_LANE_COMPUTE, run);
    add_run(s, SL_LANE_HOST, host);
    add_copy(s, SL_LANE_H2D, VALUE_CHUNK, copy);
    for (uint32_t i = 0; i < 3; i++) {
        s->body[i].first_wait = s->plan.wait_count;
        s->body[i].wait_count = 3;
        for (uint32_t other = 0; other < 3; other++)
            s->waits[s->plan.wait_count++] = (sl_wait){other, 1};
    }
    return play(s);
}

static void copies_take_cores_from_the_pool_as_a_fair_scheduler_has_it(void **state)
{
    (void)state;
    static const struct {
        double core_count, copy_cores;
        uint64_t run, host, copy;
        double step_seconds;
    } cases[] = {
        {2, 0, 6, 0, 6, 6},
        {2, 1, 6, 0, 6, 9},     /* three threads on two cores: 2/3 each, both to the end */
        {2, 1, 6, 0, 3, 7.5},   /* 4.5 s together make 3 and 3; then 3 alone */
        {2, 0.5, 6, 0, 6, 7.5}, /* wants less than 2/3 and gets it: the pool makes 4.5 in 6 s */
        {4, 1, 6, 0, 6, 7.5},   /* five threads on four cores: 4/5 each */
        {2, 1, 6, 3, 3, 10.5},  /* the pool counts once: (2 * (6 + 3) + 3) / 2 */
        {0, 1, 6, 0, 6, 6},     /* cores without number */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s;
        open_scene(&s);
        s.machine.shares_cores = true;
        s.machine.core_count = cases[i].core_count;
        s.machine.copy_cores[SL_LANE_H2D] = cases[i].copy_cores;
        sl_simulation found = play_together(&s, cases[i].run, cases[i].host, cases[i].copy);
        assert_seconds(found.step_seconds, cases[i].step_seconds);
    }
}

static void copies_slow_nobody_where_cores_are_left_over(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    s.machine.shares_cores = true;
    s.machine.core_count = 2;
    s.machine.worker_count = 1;
    s.machine.copy_cores[SL_LANE_H2D] = 1;
    assert_seconds(play_together(&s, 6, 0, 6).step_seconds, 6);
    open_scene(&s);
    s.machine.shares_cores = true;
    s.machine.core_count = 3;
    s.machine.worker_count = 3;
    s.machine.copy_cores[SL_LANE_H2D] = 1;
    assert_seconds(play_together(&s, 6, 0, 6).step_seconds, 8); /* four threads on three cores */
}

static void copies_take_cores_from_host_alone_where_compute_has_a_device(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    s.machine.core_count = 2;
    s.machine.copy_cores[SL_LANE_H2D] = 1;
    sl_simulation found = play_together(&s, 6, 6, 6);
    assert_seconds(found.step_seconds, 9);
    assert_seconds(found.busy_seconds[SL_LANE_COMPUTE], 6);
}

/* Who waits for another rank, or for the next rows, computes nothing. */
static void lanes_that_wait_for_others_take_no_cores(void **state)
{
    (void)state;
    static const sl_lane lanes[] = {SL_LANE_COMM, SL_LANE_INPUT};
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        scene s;
        open_scene(&s);
        s.machine.shares_cores = true;
        s.machine.core_count = 2;
        add_run(&s, SL_LANE_COMPUTE, 6);
        add_run(&s, lanes[i], 6);
        add_wait(&s, 0, 1);
        assert_seconds(play(&s).step_seconds, 6);
    }
}

static void reads_and_writes_share_the_disk_up_to_its_mixed_rate(void **state)
{
    (void)state;
    static const struct {
        double mixed, step_seconds; /* of 4 s of reading beside 2 s of writing */
    } cases[] = {
        {0, 4},                    /* not known: no limit */
        {2 * UNIT, 4},             /* as much as both */
        {UNIT, 6},                 /* half each for 4 s, then 2 s of reading */
        {1.5 * UNIT, 8 / 3.0 + 2}, /* 3/4 each until 2 s are written */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s;
        open_scene(&s);
        s.machine.mixed_disk_rate = cases[i].mixed;
        uint32_t read = add_copy(&s, SL_LANE_READ, VALUE_CHUNK, 4);
        add_wait(&s, 1, 0);
        add_copy(&s, SL_LANE_WRITE, VALUE_CHUNK, 2);
        add_wait(&s, read, 1);
        assert_seconds(play(&s).step_seconds, cases[i].step_seconds);
    }
}

/* Updates and copies alone, so ops of the compute lane are not slowed. */
static void updates_and_copies_share_the_rate_of_host_memory(void **state)
{
    (void)state;
    const sl_op_attrs one_second = {.element_count = UNIT};
    const double update = (double)sl_op_traffic_bytes(SL_OP_CLEAR, &one_second), copy = UNIT;
    const struct {
        sl_lane beside;
        double rate, step_seconds; /* of a copy of 4 s beside 2 s of another lane */
    } cases[] = {
        {SL_LANE_HOST, 0, 4},                   /* no limit */
        {SL_LANE_HOST, update + copy, 4},       /* as much as both */
        {SL_LANE_HOST, (update + copy) / 2, 6}, /* half each for 4 s, then 2 s of copying */
        {SL_LANE_D2H, copy, 6},                 /* likewise */
        {SL_LANE_READ, copy, 6},                /* likewise */
        {SL_LANE_COMPUTE, copy, 4},             /* the copy alone uses that memory */
        {SL_LANE_COMPUTE, copy / 2, 8},         /* the copy alone is slower */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool runs = cases[i].beside == SL_LANE_HOST || cases[i].beside == SL_LANE_COMPUTE;
        scene s;
        open_scene(&s);
        s.machine.host_memory_rate = cases[i].rate;
        uint32_t fetch = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, 4);
        add_wait(&s, 1, 0);
        if (runs)
            add_run(&s, cases[i].beside, 2);
        else
            add_copy(&s, cases[i].beside, VALUE_CHUNK, 2);
        add_wait(&s, fetch, 1);
        assert_seconds(play(&s).step_seconds, cases[i].step_seconds);
    }
}

static void machines_without_sense_are_refused(void **state)
{
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        scene s;
        sl_simulation found;
        open_scene(&s);
        add_run(&s, SL_LANE_COMPUTE, 1);
        double *broken[] = {&s.machine.copy_cores[SL_LANE_READ],
                            &s.machine.core_count,
                            &s.machine.mixed_disk_rate,
                            &s.machine.op_seconds,
                            &s.machine.worker_count,
                            &s.machine.host_memory_rate};
        *broken[fault] = -1;
        assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_USAGE);
        *broken[fault] = fault == 0 ? 1.5 : (double)NAN; /* a copy has one thread */
        assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_USAGE);
    }
}

static void iteration_starts_when_the_outputs_of_the_last_have_arrived(void **state)
{
    (void)state;
    for (int is_output = 0; is_output < 2; is_output++) {
        scene s;
        open_scene(&s);
        uint32_t run = add_run(&s, SL_LANE_COMPUTE, 3);
        add_copy(&s, SL_LANE_D2H, is_output ? VALUE_OUTPUT : VALUE_CHUNK, 1);
        add_wait(&s, run, 0);
        sl_simulation found = play(&s);
        assert_seconds(found.step_seconds, is_output ? 4 : 3);
        assert_seconds(found.stall_seconds[SL_LANE_D2H], is_output ? 1 : 0);
    }
}

static void stall_belongs_to_the_wait_that_is_over_last(void **state)
{
    (void)state;
    for (uint64_t host_seconds = 1; host_seconds <= 4; host_seconds += 3) {
        scene s;
        open_scene(&s);
        uint32_t fetch = add_copy(&s, SL_LANE_H2D, VALUE_CHUNK, 2);
        add_wait(&s, 2, 0);
        uint32_t update = add_run(&s, SL_LANE_HOST, host_seconds);
        add_wait(&s, 2, 0);
        add_run(&s, SL_LANE_COMPUTE, 1);
        add_wait(&s, update, 0);
        add_wait(&s, fetch, 0);
        sl_simulation found = play(&s);
        sl_lane last = host_seconds > 2 ? SL_LANE_HOST : SL_LANE_H2D;
        double waited = host_seconds > 2 ? 4 : 2;
        assert_seconds(found.stall_seconds[last], waited);
        assert_seconds(found.step_seconds, 1 + waited);
    }
}

static void plans_that_name_what_is_not_there_are_refused(void **state)
{
    (void)state;
    scene s;
    sl_simulation untouched = {.step_seconds = -7}, found = untouched;
    open_scene(&s);
    add_run(&s, SL_LANE_COMPUTE, 1);
    add_wait(&s, 2, 0);
    add_run(&s, SL_LANE_HOST, 1);
    add_wait(&s, 0, 0);
    s.plan.section_count = 1;
    s.sections[0] = (sl_section){0, 2, 0, 1};
    assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_INTERNAL);
    s.waits[0] = (sl_wait){1, 0};
    s.sections[0].count = 1;
    assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_INTERNAL);
    s.sections[0].count = 2;
    s.body[0].tick = 2;
    assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_INTERNAL);
    s.body[0].tick = 0;
    s.machine.copy_rate[SL_LANE_D2H] = 0;
    assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_USAGE);
    s.machine.copy_rate[SL_LANE_D2H] = (double)NAN;
    assert_int_equal(sl_plan_simulate(&s.program, &s.plan, &s.machine, &found), SL_ERROR_USAGE);
    assert_memory_equal(&found, &untouched, sizeof found);
}

/* ---- random plans ---- */

static double duration_of(const scene *s, const sl_command *command)
{
    uint64_t units = command->kind == SL_COMMAND_COPY ? command->from.bytes
                                                      : s->ops[command->tick].attrs.element_count;
    return (double)(units / UNIT);
}

/* End of iteration 4 and 5 of 0 .. 5, without sharing: waits name earlier issues, so one pass in
 * issue order knows every start. */
static double step_by_recurrence(const scene *s, double *out_compute_seconds)
{
    double end[3][COMMANDS_MAX] = {{0}}, lane_end[SL_LANE_COUNT] = {0};
    double gate = 0, iteration_end[6] = {0}, compute_end[6] = {0};
    for (uint32_t iteration = 0; iteration < 6; iteration++) {
        double next_gate = gate;
        for (uint32_t c = 0; c < s->plan.body_count; c++) {
            const sl_command *command = &s->body[c];
            double start = fmax(lane_end[command->lane], gate);
            if (iteration >= 2) /* no more than two are under way */
                start = fmax(start, compute_end[iteration - 2]);
            for (uint32_t w = 0; w < command->wait_count; w++) {
                sl_wait wait = s->waits[command->first_wait + w];
                uint32_t back = wait.age + (wait.command >= c);
                start = fmax(start, end[(iteration + 3 - back) % 3][wait.command]);
            }
            double ended = start + duration_of(s, command);
            end[iteration % 3][c] = lane_end[command->lane] = ended;
            iteration_end[iteration] = fmax(iteration_end[iteration], ended);
            if (command->kind == SL_COMMAND_COPY && command->value == VALUE_OUTPUT)
                next_gate = fmax(next_gate, ended);
        }
        gate = next_gate;
        compute_end[iteration] = lane_end[SL_LANE_COMPUTE];
    }
    *out_compute_seconds = compute_end[5] - compute_end[4];
    return iteration_end[5] - iteration_end[4];
}

static void random_plans_take_what_the_recurrence_says(void **state)
{
    (void)state;
    uint64_t random = spec_seed(5);
    for (uint32_t round = 0; round < spec_count(3000, 100000); round++) {
        scene s;
        open_scene(&s);
        fill_at_random(&s, &random);
        sl_simulation found = play(&s);
        double compute_seconds, stalled = 0, busy[SL_LANE_COUNT] = {0};
        assert_seconds(found.step_seconds, step_by_recurrence(&s, &compute_seconds));
        for (uint32_t c = 0; c < s.plan.body_count; c++)
            busy[s.body[c].lane] += duration_of(&s, &s.body[c]);
        for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
            assert_seconds(found.busy_seconds[lane], busy[lane]);
            stalled += found.stall_seconds[lane];
        }
        assert_seconds(found.busy_seconds[SL_LANE_COMPUTE] + stalled, compute_seconds);

        s.machine.shares_cores = true;
        sl_simulation shared = play(&s), again = play(&s);
        assert_memory_equal(&shared, &again, sizeof shared);
        double longest = 0;
        for (uint32_t c = 0; c < s.plan.body_count; c++)
            longest += 2 * duration_of(&s, &s.body[c]);
        assert_true(shared.step_seconds <= longest + 1e-9);
        assert_true(shared.busy_seconds[SL_LANE_HOST] >= busy[SL_LANE_HOST] - 1e-9);
        assert_true(shared.busy_seconds[SL_LANE_HOST] <= 2 * busy[SL_LANE_HOST] + 1e-9);

        s.machine.core_count = 2;
        s.machine.mixed_disk_rate = UNIT;
        s.machine.host_memory_rate = 4 * UNIT;
        for (int n = 0; n < 4; n++)
            s.machine.copy_cores[copy_lanes[n]] = 0.3 * n;
        shared = play(&s), again = play(&s);
        assert_memory_equal(&shared, &again, sizeof shared);
        assert_true(shared.step_seconds <= 2 * longest + 1e-9);
        for (int lane = 0; lane < SL_LANE_COUNT; lane++)
            assert_true(shared.busy_seconds[lane] >= busy[lane] - 1e-9);
    }
}

static void default_machine_is_usable_and_grows_with_workers(void **state)
{
    (void)state;
    sl_machine one = sl_machine_default(1), many = sl_machine_default(16);
    sl_op_attrs attrs = {.row_count = 64, .in = 64, .out = 64};
    for (int n = 0; n < 4; n++)
        assert_true(one.copy_rate[copy_lanes[n]] > 0);
    assert_true(sl_machine_op_seconds(&one, SL_OP_LINEAR, &attrs, false) >
                sl_machine_op_seconds(&many, SL_OP_LINEAR, &attrs, false));
    assert_true(one.shares_cores);
    assert_int_not_equal(one.name[0], 0);
    assert_true(sl_machine_default(0).op[SL_OP_LINEAR][SL_TYPE_FP32].flop_rate > 0);
}

/* What our kernels of attention are compiled to is far from the rate of a library's product. */
/* What a rank takes of its own memory costs no exchange, whatever exchanges cost. */
static void parts_that_a_rank_takes_cost_a_copy(void **state)
{
    (void)state;
    static const sl_op_kind takes[] = {SL_OP_TAKE_ROWS, SL_OP_TAKE_COLUMNS};
    sl_machine machines[] = {sl_machine_default(2), sl_machine_default_gpu(132, 2)};
    for (size_t m = 0; m < 2; m++)
        for (size_t i = 0; i < 2; i++) {
            const sl_op_rate local = machines[m].op[SL_OP_CLEAR][SL_TYPE_FP32];
            sl_machine_set_exchanges(&machines[m], SL_TYPE_FP32, (sl_op_rate){0, 1e6, 1});
            const sl_op_rate rate = machines[m].op[takes[i]][SL_TYPE_FP32];
            assert_true(rate.byte_rate == local.byte_rate && rate.seconds == local.seconds);
            assert_true(machines[m].op[SL_OP_ALL_REDUCE][SL_TYPE_FP32].seconds == 1);
        }
}

static void default_gpu_rates_attention_below_products_and_grows_with_multiprocessors(void **state)
{
    (void)state;
    sl_machine whole = sl_machine_default_gpu(132, 8), half = sl_machine_default_gpu(66, 8);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        double product = whole.op[SL_OP_LINEAR][type].flop_rate;
        double forward = whole.op[SL_OP_ATTENTION][type].flop_rate;
        double backward = whole.op[SL_OP_ATTENTION_BACKWARD][type].flop_rate;
        assert_true(forward > 0 && forward < product / 2);
        assert_true(backward > 0 && backward < forward);
        assert_true(half.op[SL_OP_ATTENTION][type].flop_rate == forward / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_of_one_lane_take_the_sum_of_their_times),
        cmocka_unit_test(matrix_products_take_arithmetic_and_traffic),
        cmocka_unit_test(ops_that_add_to_what_is_there_have_rates_of_their_own),
        cmocka_unit_test(copy_into_the_only_slot_is_waited_for),
        cmocka_unit_test(copies_into_two_slots_overlap_with_compute),
        cmocka_unit_test(compute_and_host_share_the_cores_where_the_machine_says_so),
        cmocka_unit_test(work_left_for_the_next_iteration_takes_its_turns_with_it),
        cmocka_unit_test(copies_take_cores_from_the_pool_as_a_fair_scheduler_has_it),
        cmocka_unit_test(copies_slow_nobody_where_cores_are_left_over),
        cmocka_unit_test(copies_take_cores_from_host_alone_where_compute_has_a_device),
        cmocka_unit_test(lanes_that_wait_for_others_take_no_cores),
        cmocka_unit_test(reads_and_writes_share_the_disk_up_to_its_mixed_rate),
        cmocka_unit_test(updates_and_copies_share_the_rate_of_host_memory),
        cmocka_unit_test(machines_without_sense_are_refused),
        cmocka_unit_test(iteration_starts_when_the_outputs_of_the_last_have_arrived),
        cmocka_unit_test(stall_belongs_to_the_wait_that_is_over_last),
        cmocka_unit_test(plans_that_name_what_is_not_there_are_refused),
        cmocka_unit_test(random_plans_take_what_the_recurrence_says),
        cmocka_unit_test(default_machine_is_usable_and_grows_with_workers),
        cmocka_unit_test(parts_that_a_rank_takes_cost_a_copy),
        cmocka_unit_test(default_gpu_rates_attention_below_products_and_grows_with_multiprocessors),
    };
    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}
