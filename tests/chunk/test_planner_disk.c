/* Plans whose slowest resource is the disk.
 *
 * What could be wrong: the lanes of the disk take turns instead of running beside each other, since
 * nothing is fetched ahead, or what is fetched ahead is not what is needed next, or memory is given
 * to the next one while its content is still on its way; a model far larger than memory does not
 * fit although a few chunks of staging would do, or takes long to plan. The simulator plays the
 * plans on a made-up machine on which nothing but the disk takes time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "plan_cases.h"

static void assert_ok(sl_status status)
{
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
}

/* Micro-batches of a model, layer by layer, everything recomputed; states on disk, and with `all`
 * parameters and gradients too. */
static void open_case(const sl_model_shape *shape, uint32_t seq, sl_type type, bool all,
                      uint32_t micro_batches, plan_case *c)
{
    *c = (plan_case){.shape = *shape};
    c->emit = (sl_model_options){.batch = 1,
                                 .seq = seq,
                                 .tp_size = 1,
                                 .mode = SL_MODEL_LOSS,
                                 .type = type,
                                 .grad_type = type};
    c->step = (sl_step_options){.micro_batch_count = micro_batches,
                                .accumulation = SL_ACCUMULATE_LAYER,
                                .recompute = SL_RECOMPUTE_FULL};
    c->policy.policy = SL_POLICY_NVME;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        c->policy.disk_fraction[group] = group >= SL_GROUP_MASTER || all ? 1.0 : 0.0;
    c->request.prefetch = SL_PREFETCH_AUTO;
    assert_ok(plan_case_build(c));
}

/* 1 GB/s each way, side by side; the rest a thousand times as fast as a small machine. */
static void make_disk_slow(plan_case *c)
{
    c->machine = sl_machine_default(4);
    c->machine.shares_cores = false;
    c->machine.op_seconds = 1e-9;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            c->machine.op[kind][type] = (sl_op_rate){4e14, 1e14};
        c->machine.host_update[type] = (sl_op_rate){4e14, 1e14};
    }
    c->machine.copy_rate[SL_LANE_H2D] = c->machine.copy_rate[SL_LANE_D2H] = 1e12;
    c->machine.copy_rate[SL_LANE_READ] = c->machine.copy_rate[SL_LANE_WRITE] = 1e9;
    c->machine.mixed_disk_rate = 2e9;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        c->machine.copy_seconds[lane] = 1e-9;
}

/* How much of a step the busier lane of the disk needs. */
static double busy_share(plan_case *c)
{
    sl_plan *plan = NULL;
    sl_shortage shortage;
    sl_simulation simulation;
    assert_ok(sl_plan_build(&c->request, &plan, &shortage));
    assert_ok(sl_plan_verify(&c->request, plan));
    assert_ok(sl_plan_simulate(c->program, plan, &c->machine, &simulation));
    uint64_t reads = plan->moved_bytes[SL_LANE_READ], writes = plan->moved_bytes[SL_LANE_WRITE];
    if (getenv("SL_TEST_VERBOSE"))
        printf("%llu read, %llu written, %g s\n", (unsigned long long)reads,
               (unsigned long long)writes, simulation.step_seconds);
    double bound = (double)(reads > writes ? reads : writes) / 1e9;
    sl_plan_close(plan);
    return bound / simulation.step_seconds;
}

/* A few chunks of room: what one AdamW needs (at most 5 chunks), three times, and then more. */
static void nvme_plan_when_the_disk_is_slowest_then_its_lanes_are_always_busy(void **state)
{
    (void)state;
    static const sl_model_shape small = {6, 256, 4, 64, 4000};
    for (int type = SL_TYPE_FP32; type <= SL_TYPE_BF16; type++)
        for (uint64_t room = 3; room <= 8; room++) {
            plan_case c;
            open_case(&small, 32, (sl_type)type, false, 1, &c);
            make_disk_slow(&c);
            uint32_t states = type == SL_TYPE_FP32 ? 2 : 3;
            uint64_t chunk_bytes = sl_layout_chunk_bytes(c.layout, SL_GROUP_STATE1, 0);
            assert_true(c.layout->chunk_count >= 8);
            c.request.budget_bytes[SL_TIER_HOST] =
                c.homes->fixed_bytes[SL_TIER_HOST] + (1 << 18) + room * states * chunk_bytes;
            double share = busy_share(&c);
            if (share < 0.95)
                fail_msg("type %d, room for %llu chunks of %u: busy for %g of a step", type,
                         (unsigned long long)room, c.layout->chunk_count, share);
            plan_case_close(&c);
        }
}

static bool shares_bytes(const sl_allocation *a, const sl_allocation *b)
{
    return a->place.tier == b->place.tier &&
           a->place.offset < b->place.offset + sl_place_extent(&b->place) &&
           b->place.offset < a->place.offset + sl_place_extent(&a->place);
}

/* Else the next step's inputs, and its forward pass, would wait for this step's last update. */
static void check_inputs(uint32_t micro_batches, uint32_t least_inputs)
{
    static const sl_model_shape small = {6, 256, 4, 64, 4000};
    plan_case c;
    open_case(&small, 32, SL_TYPE_BF16, false, micro_batches, &c);
    uint64_t chunk_bytes = sl_layout_chunk_bytes(c.layout, SL_GROUP_STATE1, 0);
    c.request.budget_bytes[SL_TIER_HOST] =
        c.homes->fixed_bytes[SL_TIER_HOST] + (1 << 20) + 9 * chunk_bytes;
    sl_plan *plan = NULL;
    sl_shortage shortage;
    assert_ok(sl_plan_build(&c.request, &plan, &shortage));
    uint32_t inputs = 0;
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        const sl_allocation *input = &plan->allocations[a];
        if (input->value == SL_NONE || c.program->values[input->value].kind != SL_VALUE_INPUT)
            continue;
        inputs++;
        for (uint32_t b = 0; b < plan->allocation_count; b++)
            if (a != b && shares_bytes(input, &plan->allocations[b]))
                fail_msg("%s shares bytes of tier %d with allocation %u",
                         c.program->values[input->value].name, (int)input->place.tier, b);
    }
    assert_true(inputs >= least_inputs);
    sl_plan_close(plan);
    plan_case_close(&c);
}

/* Tokens and targets, on the host and on the device; with several micro-batches once a section. */
static void inputs_when_memory_is_short_then_share_their_bytes_with_nothing(void **state)
{
    (void)state;
    check_inputs(1, 4);
    check_inputs(5, 12);
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* GPT-2 XL in bf16: 16 bytes a parameter of 1.56 billion are on disk, 3 GiB of memory on either
 * side. Planning takes well below a second here; the bound is for slow and sanitized builds. */
static void xl_plan_when_memory_is_small_then_fits_and_is_made_in_seconds(void **state)
{
    (void)state;
    static const sl_model_shape xl = {48, 1600, 25, 1024, 50257};
    plan_case c;
    sl_plan *plan = NULL;
    sl_shortage shortage;
    open_case(&xl, 256, SL_TYPE_BF16, true, 1, &c);
    c.request.budget_bytes[SL_TIER_DEVICE] = c.request.budget_bytes[SL_TIER_HOST] = 3ull << 30;
    double start = cpu_seconds();
    assert_ok(sl_plan_build(&c.request, &plan, &shortage));
    double seconds = cpu_seconds() - start;
    printf("%u ops, %u chunks, %u commands: %.2f s\n", c.program->op_count, c.layout->chunk_count,
           plan->body_count, seconds);
    assert_true(seconds < 20.0);
    assert_true(plan->peak_bytes[SL_TIER_DISK] > 16ull * 1557611200);
    assert_ok(sl_plan_verify(&c.request, plan));
    sl_plan_close(plan);
    c.request.budget_bytes[SL_TIER_HOST] = 192ull << 20; /* 5 chunks of one AdamW are 164 MB */
    assert_ok(sl_plan_build(&c.request, &plan, &shortage));
    sl_plan_close(plan);
    plan_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvme_plan_when_the_disk_is_slowest_then_its_lanes_are_always_busy),
        cmocka_unit_test(inputs_when_memory_is_short_then_share_their_bytes_with_nothing),
        cmocka_unit_test(xl_plan_when_memory_is_small_then_fits_and_is_made_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
