/* What could be wrong in the engine: a command gets the wrong address, attributes, flags or
 * scalars; a wait is lost, or one of the previous iteration is taken from the wrong one; a step
 * returns before its outputs are there; a prologue is forgotten or run too often; a failure of a
 * lane is lost, loses its message or hangs; numbers in the statistics are invented; a bad plan is
 * not refused.
 *
 * engine/engine_world.h has two plans written by hand and kernels that compute with whole numbers,
 * so that one stale word anywhere changes the result; the oracle is the same arithmetic in a loop.
 * Over 500 lines because the plans that must be refused stand here, one fault each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine_steps.h"

/* Makes one lane the slow one, differently in each round. */
static void slow_down(uint32_t round)
{
    static const sl_op_kind kinds[] = {SL_OP_LINEAR, SL_OP_LINEAR_WEIGHT_BACKWARD,
                                       SL_OP_NORM_FINISH, SL_OP_ADAMW};
    memset(fakes.sleep_us, 0, sizeof fakes.sleep_us);
    fakes.sleep_us[kinds[round % 4]] = round % 5 == 4 ? 0 : 300;
}

/* ---- numbers ---- */

static void steps_when_repeated_give_the_numbers_of_a_plain_loop(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    for (uint32_t round = 0; round < rounds(5); round++) {
        world_init(&w);
        w.options.guard_arenas = round % 2;
        sl_engine *engine = open_world(&w);
        slow_down(round);
        start_numbers(engine, &numbers);
        for (uint32_t i = 0; i < 200; i++)
            step_and_check(engine, TRAIN_PLAN, &numbers, sl_rng_below(round, 0, i, 1000));
        check_numbers(engine, &numbers);
        assert_int_equal(fakes.run_count, 200 * 5);
        sl_engine_close(engine);
    }
}

enum { PROLOGUE_COPIES = 300 };

/* A prologue that takes its time, in a lane whose order does not cover for the engine: wrong chunks
 * first, the right one last. */
static void lengthen_prologue(world *w, sl_command *prologue)
{
    for (uint32_t i = 0; i < PROLOGUE_COPIES; i++) {
        prologue[i] = w->eval_prologue[0];
        prologue[i].lane = SL_LANE_D2H;
        if (i + 1 < PROLOGUE_COPIES)
            prologue[i].from.offset = HOST_HOME + 2 * CHUNK_BYTES;
    }
    w->eval.prologue = prologue;
    w->eval.prologue_count = PROLOGUE_COPIES;
}

static void plans_when_switched_at_random_see_each_others_results(void **state)
{
    (void)state;
    static sl_command prologue[PROLOGUE_COPIES];
    world w;
    world_numbers numbers;
    world_init(&w);
    lengthen_prologue(&w, prologue);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    fakes.sleep_us[SL_OP_ADAMW] = 300; /* the host lane is still at work when a plan changes */
    for (uint32_t i = 0; i < rounds(300); i++) {
        uint64_t draw = sl_rng_below(7, 1, i, 10);
        step_and_check(engine, draw < 6 ? TRAIN_PLAN : EVAL_PLAN, &numbers, i);
        if (draw == 9)
            assert_int_equal(sl_engine_drain(engine), SL_OK);
        if (draw == 8)
            assert_int_equal(read_number(engine, SL_GROUP_PARAM, 0), numbers.param[0]);
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

static void write_chunk_when_between_iterations_is_seen_by_the_next(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    for (uint64_t i = 0; i < 20; i++) {
        step_and_check(engine, EVAL_PLAN, &numbers, i);
        numbers.param[i % 2] = 1000 + i;
        write_numbers(engine, SL_GROUP_PARAM, i % 2, 1000 + i);
        step_and_check(engine, EVAL_PLAN, &numbers, i);
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

/* ---- when a step returns ---- */

/* Nothing that a step promises follows the update on the device: the next may be issued meanwhile,
 * and still sees its numbers. */
static void step_when_it_returns_has_not_waited_for_the_last_update(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    uint32_t late = 0;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    fakes.sleep_us[SL_OP_ADAMW] = 20000;
    for (uint32_t i = 0; i < 10; i++) {
        step_and_check(engine, TRAIN_PLAN, &numbers, i);
        late += fakes.updates[1] < i + 1;
    }
    assert_true(late > 0); /* on a machine that does not stop for 20 ms each time */
    check_numbers(engine, &numbers);
    assert_int_equal(fakes.updates[1], 10);
    sl_engine_close(engine);
}

/* Command 0 is made a slow update on the host, command 1 an input that comes in after it and that
 * nothing reads: the caller may still overwrite the slot as soon as the step returns. */
static void step_when_it_returns_has_read_all_inputs(void **state)
{
    (void)state;
    world w;
    sl_step_scalars scalars = {.learning_rate = 0.5f};
    world_init(&w);
    fakes.sleep_us[SL_OP_ADAMW] = 3000;
    w.train_body[1] = w.train_body[0];
    w.train_body[0] = w.train_body[7];
    w.train_body[0].wait_count = 0;
    w.train_body[1].first_wait = 3; /* command 0 */
    w.train.body_count = w.train_section.count = 2;
    w.options.plan_count = 1;
    sl_engine *engine = open_world(&w);
    const char *device = sl_engine_arena(engine, SL_TIER_DEVICE);
    for (uint64_t i = 1; i < 10; i++) {
        *find_input(engine) = i;
        assert_int_equal(sl_engine_step(engine, 0, &scalars), SL_OK);
        *find_input(engine) = 99;
        assert_int_equal(*(const uint64_t *)(device + DEVICE_INPUT), i);
    }
    sl_engine_close(engine);
}

/* The evaluation's input lies where the update on the host still reads the training's output. */
static void input_when_of_another_plan_waits_for_the_one_that_runs(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    sl_step_scalars scalars = {.learning_rate = 0.5f};
    world_init(&w);
    w.eval_body[0].from = output_on_host;
    w.eval_body[2].to = input_on_host;
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    fakes.sleep_us[SL_OP_ADAMW] = 3000;
    for (uint64_t i = 0; i < 10; i++) {
        step_and_check(engine, TRAIN_PLAN, &numbers, i);
        *(uint64_t *)sl_engine_input(engine, EVAL_PLAN, 0) = i;
        assert_int_equal(sl_engine_step(engine, EVAL_PLAN, &scalars), SL_OK);
        const uint64_t *output = sl_engine_output(engine, EVAL_PLAN, SL_OUTPUT_CONTROL);
        assert_int_equal(*output, expect_forward(&numbers, i));
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

/* ---- memory ---- */

static int holds_only(const unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (memory[i] != value)
            return 0;
    }
    return 1;
}

static void open_when_guarded_clears_homes_and_nothing_else(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    w.options.guard_arenas = true;
    sl_engine *engine = open_world(&w);
    const unsigned char *device = sl_engine_arena(engine, SL_TIER_DEVICE);
    const unsigned char *host = sl_engine_arena(engine, SL_TIER_HOST);
    assert_int_equal((uintptr_t)device % 256, 0);
    assert_int_equal((uintptr_t)host % 256, 0);
    assert_true(holds_only(device, 4 * CHUNK_BYTES, 0));
    assert_true(holds_only(host, 4 * CHUNK_BYTES, 0));
    assert_memory_equal(device + DEVICE_FLAGS, fakes.flags, 2);
    assert_memory_equal(host + HOST_FLAGS, fakes.flags, 2);
    assert_true(holds_only(device + DEVICE_FLAGS + 2, CELL_BYTES - 2, 0xA5));
    assert_true(holds_only(device + DEVICE_CACHE, CACHE_BYTES, 0));
    assert_true(holds_only(device + DEVICE_FIXED, DEVICE_PEAK - DEVICE_FIXED, 0xA5));
    assert_true(holds_only(host + HOST_FIXED, HOST_PEAK - HOST_FIXED, 0xA5));
    assert_null(sl_engine_arena(engine, SL_TIER_DISK));
    sl_engine_close(engine);
}

static void open_when_plans_differ_in_a_constant_then_fails(void **state)
{
    (void)state;
    world w;
    sl_engine *engine = NULL;
    world_init(&w);
    w.program.constants[0] = (sl_constant){.positions = 1, .width = 2, .base = 100};
    w.eval_program.constants[0] = w.program.constants[0];
    w.program.constant_count = w.eval_program.constant_count = 1;
    sl_engine_close(open_world(&w));
    w.eval_program.constants[0].base = 101;
    assert_int_equal(sl_engine_open_with(&w.options, &w.parts, &engine), SL_ERROR_INTERNAL);
    assert_null(engine);
}

static void clear_persistent_when_called_zeroes_the_slots_alone(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    unsigned char *device = (unsigned char *)(uintptr_t)sl_engine_arena(engine, SL_TIER_DEVICE);
    memset(device + DEVICE_FLAGS, 9, DEVICE_PEAK - DEVICE_FLAGS);
    assert_int_equal(sl_engine_clear_persistent(engine), SL_OK);
    assert_true(holds_only(device + DEVICE_CACHE, CACHE_BYTES, 0));
    assert_true(holds_only(device + DEVICE_FLAGS, CELL_BYTES, 9));
    assert_true(holds_only(device + DEVICE_FIXED, DEVICE_PEAK - DEVICE_FIXED, 9));
    sl_engine_close(engine);
}

static void slots_when_asked_for_are_the_plans_places(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    const char *host = sl_engine_arena(engine, SL_TIER_HOST);
    assert_ptr_equal(sl_engine_input(engine, TRAIN_PLAN, 0), host + HOST_INPUT);
    assert_ptr_equal(sl_engine_output(engine, EVAL_PLAN, SL_OUTPUT_CONTROL), host + HOST_OUTPUT);
    assert_null(sl_engine_input(engine, TRAIN_PLAN, 1));
    assert_null(sl_engine_input(engine, 2, 0));
    assert_null(sl_engine_output(engine, TRAIN_PLAN, SL_OUTPUT_LOSS)); /* nobody writes it */
    assert_null(sl_engine_output(engine, TRAIN_PLAN, 2));
    sl_engine_close(engine);
}

static void prepare_when_opening_covers_each_op_once(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    /* forward (in two plans, once), backward, finish, and the one update that runs on the device */
    assert_int_equal(fakes.prepare_count, 4);
    assert_int_equal(fakes.wrong, 0);
    sl_engine_close(engine);
}

static void chunk_access_when_outside_is_refused(void **state)
{
    (void)state;
    world w;
    char data[16];
    world_init(&w);
    sl_engine *engine = open_world(&w);
    const uint64_t too_far[][2] = {
        {CHUNK_BYTES - 15, 16}, {CHUNK_BYTES + 1, 0}, {UINT64_MAX, 16}, {0, UINT64_MAX}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            sl_engine_read_chunk(engine, SL_GROUP_PARAM, 1, too_far[i][0], too_far[i][1], data),
            SL_ERROR_INTERNAL);
        assert_int_equal(
            sl_engine_write_chunk(engine, SL_GROUP_PARAM, 0, too_far[i][0], too_far[i][1], data),
            SL_ERROR_INTERNAL);
    }
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 2, 0, 16, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_MASTER, 0, 0, 16, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_COUNT, 0, 0, 16, data),
                     SL_ERROR_INTERNAL);
    sl_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_repeated_give_the_numbers_of_a_plain_loop),
        cmocka_unit_test(plans_when_switched_at_random_see_each_others_results),
        cmocka_unit_test(write_chunk_when_between_iterations_is_seen_by_the_next),
        cmocka_unit_test(step_when_it_returns_has_not_waited_for_the_last_update),
        cmocka_unit_test(step_when_it_returns_has_read_all_inputs),
        cmocka_unit_test(input_when_of_another_plan_waits_for_the_one_that_runs),
        cmocka_unit_test(open_when_guarded_clears_homes_and_nothing_else),
        cmocka_unit_test(open_when_plans_differ_in_a_constant_then_fails),
        cmocka_unit_test(clear_persistent_when_called_zeroes_the_slots_alone),
        cmocka_unit_test(slots_when_asked_for_are_the_plans_places),
        cmocka_unit_test(prepare_when_opening_covers_each_op_once),
        cmocka_unit_test(chunk_access_when_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
