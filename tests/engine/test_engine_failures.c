/* What could be wrong when things go wrong: a failure of a lane is lost, loses its message, comes
 * back as a success later, or hangs the engine; a plan that would make the engine leave its memory
 * is not refused; refusing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_steps.h"

static void expect_dead(sl_engine *engine, const char *message)
{
    uint64_t output, data;
    assert_int_equal(step(engine, TRAIN_PLAN, 1, 0, &output), SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
    assert_int_equal(sl_engine_drain(engine), SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 0, 8, &data),
                     SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
}

static void step_when_a_kernel_fails_returns_its_message_for_good(void **state)
{
    (void)state;
    static const sl_op_kind kinds[] = {SL_OP_LINEAR, SL_OP_LINEAR_WEIGHT_BACKWARD,
                                       SL_OP_NORM_FINISH};
    for (int k = 0; k < 3; k++) {
        world w;
        char message[64];
        uint64_t output = 0;
        world_init(&w);
        sl_engine *engine = open_world(&w);
        fakes.fail_kind = kinds[k];
        fakes.fail_position = 6;
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
        output = 0x1234;
        assert_int_equal(step(engine, TRAIN_PLAN, 6, 6, &output), SL_ERROR_NONFINITE);
        assert_int_equal(output, 0x1234);
        snprintf(message, sizeof message, "kernel %d fails at 6", (int)kinds[k]);
        assert_non_null(strstr(sl_status_message(), message));
        assert_non_null(strstr(sl_status_message(), "compute lane"));
        expect_dead(engine, message);
        sl_engine_close(engine);
    }
}

/* The step itself does not wait for the host lane, so its failure may come one call later. */
static void host_lane_when_it_fails_comes_back_from_drain_or_the_next_step(void **state)
{
    (void)state;
    world w;
    uint64_t output;
    world_init(&w);
    update_on_host_only(&w);
    sl_engine *engine = open_world(&w);
    fakes.fail_kind = SL_OP_ADAMW;
    fakes.fail_position = 2;
    fakes.sleep_us[SL_OP_ADAMW] = 3000;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    sl_status status = step(engine, TRAIN_PLAN, 2, 2, &output);
    if (status == SL_OK) /* on a machine that does not stop for 3 ms */
        status = sl_engine_drain(engine);
    assert_int_equal(status, SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), "op 3 (adamw) on the host lane: kernel"));
    expect_dead(engine, "fails at 2");
    sl_engine_close(engine);
}

/* Nor for an update on the device: command 8, behind the copy of the control. */
static void update_on_the_device_when_it_fails_late_comes_back_from_the_next_call(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        world w;
        uint64_t output, data;
        sl_status status;
        world_init(&w);
        w.train_body[7] = w.train_body[5];
        sl_engine *engine = open_world(&w);
        fakes.fail_kind = SL_OP_ADAMW;
        fakes.fail_position = 2;
        fakes.sleep_us[SL_OP_ADAMW] = 20000;
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
        status = step(engine, TRAIN_PLAN, 2, 2, &output);
        if (status == SL_OK) /* on a machine that does not stop for 20 ms */
            status = way == 0   ? step(engine, EVAL_PLAN, 3, 3, &output)
                     : way == 1 ? sl_engine_drain(engine)
                                : sl_engine_read_chunk(engine, SL_GROUP_PARAM, 1, 0, 8, &data);
        assert_int_equal(status, SL_ERROR_NONFINITE);
        assert_non_null(strstr(sl_status_message(), "op 4 (adamw) on the compute lane: kernel"));
        expect_dead(engine, "fails at 2");
        sl_engine_close(engine);
    }
}

/* ---- plans that must be refused ---- */

static void break_place(world *w)
{
    w->places[4].offset = DEVICE_PEAK - 7;
}
static void break_tier(world *w)
{
    w->places[4].tier = SL_TIER_DISK;
}
static void break_workspace(world *w)
{
    w->places[5].bytes = UINT64_MAX;
}
static void break_copy(world *w)
{
    w->train_body[4].to.bytes--;
}
static void break_lane(world *w)
{
    w->train_body[4].lane = SL_LANE_WRITE;
}
static void break_tick(world *w)
{
    w->train_body[2].tick = 5;
}
static void break_op(world *w)
{
    w->ops[2].kind = SL_OP_ALL_REDUCE; /* has no fake kernel */
}
static void break_wait(world *w)
{
    w->waits[3].command = 9;
}
static void break_wait_age(world *w)
{
    w->waits[3].age = 2;
}
static void break_section_start(world *w)
{
    w->train_section.first = 1;
}
static void break_section_end(world *w)
{
    w->train_section.count--;
}
static void break_section_count(world *w)
{
    w->train.section_count = 0;
}
static void break_repeat(world *w)
{
    w->train_section.repeat = 0;
}
static void set_slots(sl_place *place, uint32_t slots, uint64_t stride)
{
    place->slots = slots;
    place->stride = stride;
}
static void break_slots(world *w)
{
    set_slots(&w->places[4], 3 + (DEVICE_PEAK - DEVICE_ACTIVATION) / 256, 256);
}
static void break_slots_overflow(world *w)
{
    set_slots(&w->places[4], 3, UINT64_C(1) << 63);
}
static void break_stride_alignment(world *w)
{
    set_slots(&w->places[4], 2, 128);
}
static void break_stride(world *w)
{
    w->places[5].bytes = 512;
    set_slots(&w->places[5], 2, 256);
    w->train.peak_bytes[SL_TIER_DEVICE] += 4096;
}
static void break_copy_slots(world *w)
{
    set_slots(&w->train_body[4].to, 2, HOST_PEAK / 256 * 256);
}
static void break_wait_range(world *w)
{
    w->train_body[2].first_wait = WAIT_COUNT - 1;
}
static void break_place_range(world *w)
{
    w->train_body[8].first_place = PLACE_COUNT - 5;
}
static void break_flags(world *w)
{
    w->homes.flags_bytes[SL_TIER_HOST] = 0;
}
static void break_home(world *w)
{
    w->homes.fixed_bytes[SL_TIER_DISK] = 1;
}
static void break_slot(world *w)
{
    w->train_body[6].to.tier = SL_TIER_DEVICE;
}
static void break_prologue(world *w)
{
    w->eval_prologue[0].kind = SL_COMMAND_RUN;
}
static void break_workers(world *w)
{
    w->options.target.worker_count = 0;
}
static void break_plans(world *w)
{
    w->options.plan_count = 0;
}

static void open_when_a_plan_is_broken_fails_and_frees(void **state)
{
    (void)state;
    void (*const breaks[])(world *) = {
        break_place,       break_tier,           break_workspace,
        break_copy,        break_lane,           break_tick,
        break_op,          break_wait,           break_wait_range,
        break_flags,       break_home,           break_slot,
        break_plans,       break_place_range,    break_prologue,
        break_workers,     break_wait_age,       break_section_start,
        break_section_end, break_section_count,  break_repeat,
        break_slots,       break_slots_overflow, break_stride_alignment,
        break_stride,      break_copy_slots,
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        world w;
        sl_engine *engine = NULL;
        world_init(&w);
        breaks[i](&w);
        (void)sl_status_fail(SL_ERROR_USAGE, "%s", "");
        sl_status status = sl_engine_open_with(&w.options, &w.parts, &engine);
        if (status == SL_OK || engine || sl_status_message()[0] == '\0')
            fail_msg("break %zu was accepted", i);
    }
    sl_engine_close(NULL);
}

static void step_when_there_is_no_such_plan_fails(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    sl_step_scalars scalars = {.learning_rate = 0.5f};
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    assert_int_equal(sl_engine_step(engine, 2, &scalars), SL_ERROR_INTERNAL);
    step_and_check(engine, TRAIN_PLAN, &numbers, 3); /* and nothing is broken by it */
    sl_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_a_kernel_fails_returns_its_message_for_good),
        cmocka_unit_test(host_lane_when_it_fails_comes_back_from_drain_or_the_next_step),
        cmocka_unit_test(update_on_the_device_when_it_fails_late_comes_back_from_the_next_call),
        cmocka_unit_test(open_when_a_plan_is_broken_fails_and_frees),
        cmocka_unit_test(step_when_there_is_no_such_plan_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
