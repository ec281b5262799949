/* Homes: what could be wrong is a chunk on the wrong tier, two permanent things at one address, a
 * misaligned or unstaggered slot, AdamW without its flags or on disk, a disk without its bounce
 * piece, parameters that move when the optimizer
 * states are not there, or a total that overflows. Every build is walked: all ranges are
 * collected and checked against each other, whatever rule made them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "chunk/chunk.h"
#include "spec_programs.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RANGES_MAX = 8192 };

typedef struct range {
    uint64_t offset, bytes;
} range;

static const spec_shape gpt2_124m = {"gpt2", 12, 768, 1024, 50257};
static const spec_shape tiny = {"tiny", 2, 64, 32, 257};

static void set_training(sl_program *program, bool is_training)
{
    program->has_state[SL_GROUP_PARAM] = true;
    program->has_state[SL_GROUP_GRAD] = is_training;
    program->has_state[SL_GROUP_STATE1] = is_training;
    program->has_state[SL_GROUP_STATE2] = is_training;
}

static int compare_ranges(const void *a, const void *b)
{
    uint64_t left = ((const range *)a)->offset, right = ((const range *)b)->offset;
    return left < right ? -1 : left > right;
}

static uint32_t collect_ranges(const sl_layout *layout, const sl_homes *homes, sl_tier tier,
                               range *out_ranges)
{
    uint32_t count = 0;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] != NULL && chunk < homes->chunk_count; chunk++)
            if (homes->tier[group][chunk] == tier)
                out_ranges[count++] =
                    (range){homes->offset[group][chunk],
                            sl_layout_chunk_bytes(layout, (sl_group)group, chunk)};
    if (tier == SL_TIER_HOST && homes->bounce_bytes != 0)
        out_ranges[count++] = (range){homes->bounce_offset, homes->bounce_bytes};
    if (homes->flags_bytes[tier] != 0)
        out_ranges[count++] = (range){homes->flags_offset[tier], homes->flags_bytes[tier]};
    for (uint32_t slot = 0; tier == SL_TIER_DEVICE && slot < homes->persistent_count; slot++)
        if (homes->persistent_bytes[slot] != 0)
            out_ranges[count++] =
                (range){homes->persistent_offset[slot], homes->persistent_bytes[slot]};
    return count;
}

/* No two ranges overlap, all are aligned, all end below fixed_bytes, and what is not used is at
 * most one stagger gap a group, on disk less than its alignment a home. */
static void assert_homes_hold(const sl_layout *layout, const sl_homes *homes)
{
    static range ranges[RANGES_MAX];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint32_t count = collect_ranges(layout, homes, (sl_tier)tier, ranges);
        qsort(ranges, count, sizeof *ranges, compare_ranges);
        uint64_t end = 0, used = 0;
        for (uint32_t i = 0; i < count; i++) {
            assert_true(ranges[i].offset >= end);
            assert_int_equal(ranges[i].offset % 256, 0);
            end = ranges[i].offset + ranges[i].bytes;
            used += ranges[i].bytes;
        }
        assert_true(homes->fixed_bytes[tier] >= end);
        assert_true(homes->fixed_bytes[tier] - end < 256);
        uint64_t gap = used >= 8 * MIB ? MIB : 4 * KIB;
        uint64_t gaps =
            tier == SL_TIER_DISK ? (uint64_t)count * SL_DISK_ALIGNMENT : SL_GROUP_COUNT * gap;
        assert_true(homes->fixed_bytes[tier] <= used + gaps + 256 * (homes->persistent_count + 2));
    }
}

static void build(const sl_program *program, const sl_policy_options *options,
                  sl_layout **out_layout, sl_homes **out_homes)
{
    assert_int_equal(sl_layout_build(program, 0, out_layout), SL_OK);
    assert_int_equal(sl_homes_build(program, *out_layout, options, out_homes), SL_OK);
    assert_homes_hold(*out_layout, *out_homes);
}

static void close_all(sl_program *program, sl_layout *layout, sl_homes *homes)
{
    sl_homes_close(homes);
    sl_layout_close(layout);
    spec_program_close(program);
}

static void homes_of_device_policy_are_all_on_the_device(void **state)
{
    (void)state;
    sl_program *program = spec_program_gpt2(&gpt2_124m);
    set_training(program, true);
    sl_policy_options options = {.policy = SL_POLICY_DEVICE};
    sl_layout *layout;
    sl_homes *homes;
    build(program, &options, &layout, &homes);
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        assert_int_equal(homes->tier[SL_GROUP_PARAM][chunk], SL_TIER_DEVICE);
        assert_int_equal(homes->tier[SL_GROUP_STATE2][chunk], SL_TIER_DEVICE);
        assert_int_equal(homes->update_tier[chunk], SL_TIER_DEVICE);
    }
    assert_null(homes->tier[SL_GROUP_MASTER]);
    assert_int_equal(homes->fixed_bytes[SL_TIER_HOST], 0);
    assert_int_equal(homes->flags_bytes[SL_TIER_HOST], 0);
    assert_int_equal(homes->flags_bytes[SL_TIER_DEVICE], layout->block_count);
    /* 16 bytes a parameter are 0.97 of it at least: the rest is padding and stagger. */
    double share = 16.0 * 124439808 / (double)homes->fixed_bytes[SL_TIER_DEVICE];
    assert_true(share >= 0.97);
    close_all(program, layout, homes);
}

static void homes_of_host_policy_are_all_on_the_host_whatever_runs_adam(void **state)
{
    (void)state;
    for (int adam = SL_UPDATE_AUTO; adam <= SL_UPDATE_HOST; adam++) {
        sl_program *program = spec_program_gpt2(&gpt2_124m);
        set_training(program, true);
        sl_policy_options options = {.policy = SL_POLICY_HOST, .update = (sl_update_place)adam};
        sl_layout *layout;
        sl_homes *homes;
        build(program, &options, &layout, &homes);
        sl_tier expected = adam == SL_UPDATE_DEVICE ? SL_TIER_DEVICE : SL_TIER_HOST;
        for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
            for (int group = 0; group < SL_GROUP_COUNT; group++)
                if (homes->tier[group] != NULL)
                    assert_int_equal(homes->tier[group][chunk], SL_TIER_HOST);
            assert_int_equal(homes->update_tier[chunk], expected);
        }
        /* the device holds nothing but flags, and those only where AdamW runs there */
        assert_int_equal(homes->flags_bytes[SL_TIER_DEVICE] != 0, adam == SL_UPDATE_DEVICE);
        assert_true(homes->fixed_bytes[SL_TIER_DEVICE] - homes->flags_bytes[SL_TIER_DEVICE] < 256);
        assert_int_equal(homes->flags_bytes[SL_TIER_HOST] != 0, adam != SL_UPDATE_DEVICE);
        close_all(program, layout, homes);
    }
}

static uint32_t count_on(const sl_homes *homes, sl_group group, sl_tier tier)
{
    uint32_t count = 0;
    for (uint32_t chunk = 0; chunk < homes->chunk_count; chunk++)
        count += homes->tier[group][chunk] == tier;
    return count;
}

static uint32_t count_on_host(const sl_homes *homes, sl_group group)
{
    return count_on(homes, group, SL_TIER_HOST);
}

/* 100 tensors of 100 blocks, one a chunk: shares are easy to count by hand. */
static sl_program *open_hundred(void)
{
    sl_program *program = spec_program_open();
    for (int t = 0; t < 100; t++)
        spec_program_add(program, "t", 100 * SL_BLOCK_ELEMENTS, 1);
    set_training(program, true);
    return program;
}

static void homes_of_static_policy_take_shares_from_the_last_chunk_down(void **state)
{
    (void)state;
    static const struct {
        double fraction;
        uint32_t host_count;
    } cases[] = {{0, 0},    {1, 100},    {0.07, 7},  {0.29, 29}, {0.57, 57},
                 {0.5, 50}, {0.501, 51}, {0.001, 1}, {0.58, 58}, {0.999, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_program *program = open_hundred();
        sl_policy_options options = {.policy = SL_POLICY_STATIC};
        options.host_fraction[SL_GROUP_STATE1] = cases[i].fraction;
        options.host_fraction[SL_GROUP_PARAM] = 0.25;
        sl_layout *layout;
        sl_homes *homes;
        assert_int_equal(sl_layout_build(program, 100 * SL_BLOCK_ELEMENTS, &layout), SL_OK);
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_OK);
        assert_homes_hold(layout, homes);
        assert_int_equal(homes->chunk_count, 100);
        assert_int_equal(count_on_host(homes, SL_GROUP_STATE1), cases[i].host_count);
        assert_int_equal(count_on_host(homes, SL_GROUP_PARAM), 25);
        assert_int_equal(count_on_host(homes, SL_GROUP_GRAD), 0);
        for (uint32_t chunk = 0; chunk < 100; chunk++) {
            sl_tier expected = chunk >= 100 - cases[i].host_count ? SL_TIER_HOST : SL_TIER_DEVICE;
            assert_int_equal(homes->tier[SL_GROUP_STATE1][chunk], expected);
            assert_int_equal(homes->update_tier[chunk], expected); /* beside its moments */
        }
        close_all(program, layout, homes);
    }
}

/* Arrays of one AdamW loop must keep away from equal offsets modulo powers of two (homes.c); any
 * two groups' slots of one chunk on one tier are 68 KiB or more apart modulo 1 MiB. */
static void assert_staggered(const sl_homes *homes)
{
    for (uint32_t chunk = 0; chunk < homes->chunk_count; chunk++)
        for (int g = 0; g < SL_GROUP_COUNT; g++)
            for (int h = 0; h < g; h++) {
                if (homes->tier[g] == NULL || homes->tier[h] == NULL ||
                    homes->tier[g][chunk] != homes->tier[h][chunk])
                    continue;
                uint64_t gap = (homes->offset[g][chunk] - homes->offset[h][chunk]) % MIB;
                gap = gap < MIB - gap ? gap : MIB - gap;
                assert_true(gap >= 68 * KIB);
            }
}

static void homes_of_large_groups_are_staggered_for_any_shares(void **state)
{
    (void)state;
    uint64_t random = spec_seed(4);
    for (uint32_t round = 0; round < spec_count(100, 2000); round++) {
        sl_program *program = spec_program_gpt2(&gpt2_124m);
        set_training(program, true);
        sl_policy_options options = {.policy = (sl_policy)spec_random(&random, 3)};
        for (int group = 0; group < SL_GROUP_COUNT; group++)
            options.host_fraction[group] = 0.2 + 0.1 * (double)spec_random(&random, 7);
        sl_layout *layout;
        sl_homes *homes;
        uint64_t chunk_elements = 2400000 + spec_random(&random, 1000000);
        assert_int_equal(sl_layout_build(program, chunk_elements, &layout), SL_OK);
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_OK);
        assert_homes_hold(layout, homes);
        assert_staggered(homes);
        for (int group = 0; group < SL_GROUP_COUNT; group++)
            for (uint32_t chunk = 0; homes->offset[group] && chunk < homes->chunk_count; chunk++)
                assert_int_equal(homes->offset[group][chunk] % 4096, 0); /* for direct I/O */
        close_all(program, layout, homes);
    }
}

static void homes_of_a_small_model_waste_no_stagger(void **state)
{
    (void)state;
    sl_program *program = spec_program_gpt2(&tiny);
    set_training(program, true);
    sl_policy_options options = {.policy = SL_POLICY_HOST};
    sl_layout *layout;
    sl_homes *homes;
    build(program, &options, &layout, &homes);
    uint64_t groups_bytes = 4 * layout->block_count * SL_BLOCK_ELEMENTS * 4;
    assert_true(homes->fixed_bytes[SL_TIER_HOST] <=
                groups_bytes + 4 * 4096 + homes->flags_bytes[SL_TIER_HOST] + 512);
    close_all(program, layout, homes);
}

/* Plans of a run share homes; an evaluation program alone must come to the same parameters. */
static void homes_without_states_put_parameters_at_the_same_places(void **state)
{
    (void)state;
    for (int policy = SL_POLICY_DEVICE; policy <= SL_POLICY_STATIC; policy++) {
        sl_program *program = spec_program_gpt2(&gpt2_124m);
        sl_policy_options options = {.policy = (sl_policy)policy};
        options.host_fraction[SL_GROUP_PARAM] = 0.4;
        options.host_fraction[SL_GROUP_STATE1] = 0.9;
        sl_layout *layout;
        sl_homes *training, *evaluation;
        set_training(program, true);
        build(program, &options, &layout, &training);
        set_training(program, false);
        assert_int_equal(sl_homes_build(program, layout, &options, &evaluation), SL_OK);
        assert_homes_hold(layout, evaluation);
        assert_null(evaluation->tier[SL_GROUP_GRAD]);
        assert_null(evaluation->offset[SL_GROUP_STATE1]);
        uint32_t count = layout->chunk_count;
        assert_memory_equal(training->tier[SL_GROUP_PARAM], evaluation->tier[SL_GROUP_PARAM],
                            count);
        assert_memory_equal(training->offset[SL_GROUP_PARAM], evaluation->offset[SL_GROUP_PARAM],
                            count * sizeof(uint64_t));
        assert_int_equal(evaluation->flags_bytes[SL_TIER_DEVICE], 0);
        assert_int_equal(evaluation->flags_bytes[SL_TIER_HOST], 0);
        sl_homes_close(evaluation);
        close_all(program, layout, training);
    }
}

static void homes_with_persistent_values_give_each_slot_its_largest_size(void **state)
{
    (void)state;
    sl_program *program = spec_program_gpt2(&tiny);
    set_training(program, false);
    program->values = calloc(4, sizeof *program->values);
    program->value_count = 4;
    program->values[0] = (sl_value){.kind = SL_VALUE_PERSISTENT, .index = 2, .bytes = 1000};
    program->values[1] = (sl_value){.kind = SL_VALUE_ACTIVATION, .index = 9, .bytes = 77};
    program->values[2] = (sl_value){.kind = SL_VALUE_PERSISTENT, .index = 0, .bytes = 4096};
    program->values[3] = (sl_value){.kind = SL_VALUE_PERSISTENT, .index = 2, .bytes = 5000};
    sl_policy_options options = {.policy = SL_POLICY_HOST};
    sl_layout *layout;
    sl_homes *homes;
    build(program, &options, &layout, &homes);
    assert_int_equal(homes->persistent_count, 3);
    assert_int_equal(homes->persistent_bytes[0], 4096);
    assert_int_equal(homes->persistent_bytes[1], 0);
    assert_int_equal(homes->persistent_bytes[2], 5000);
    assert_int_equal(homes->fixed_bytes[SL_TIER_DEVICE], 4096 + 5120);

    sl_homes *refused = NULL;
    program->values[3].index = 4; /* of a program of 4 values */
    assert_int_equal(sl_homes_build(program, layout, &options, &refused), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "persistent slot 4"));
    program->values[3].index = SL_NONE;
    assert_int_equal(sl_homes_build(program, layout, &options, &refused), SL_ERROR_USAGE);
    program->values[3].index = 1;
    program->values[3].bytes = UINT64_MAX - 1000;
    assert_int_equal(sl_homes_build(program, layout, &options, &refused), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "overflows"));
    assert_null(refused);
    close_all(program, layout, homes);
}

/* A slot a layer, and no limit but the number of layers. */
static void homes_with_two_thousand_slots_give_each_its_own_place(void **state)
{
    (void)state;
    enum { SLOTS = 2000 };
    sl_program *program = spec_program_gpt2(&tiny);
    set_training(program, false);
    program->values = calloc(SLOTS, sizeof *program->values);
    program->value_count = SLOTS;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        program->values[slot] =
            (sl_value){.kind = SL_VALUE_PERSISTENT, .index = SLOTS - 1 - slot, .bytes = 100 + slot};
    sl_policy_options options = {.policy = SL_POLICY_HOST};
    sl_layout *layout;
    sl_homes *homes;
    build(program, &options, &layout, &homes);
    assert_int_equal(homes->persistent_count, SLOTS);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        assert_int_equal(homes->persistent_bytes[slot], 100 + SLOTS - 1 - slot);
    close_all(program, layout, homes);
}

/* Slots on disk follow each other from its first byte, a group after the other, each from the next
 * multiple of the alignment on. */
static void assert_disk_is_dense(const sl_layout *layout, const sl_homes *homes)
{
    uint64_t end = 0;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            if (homes->tier[group][chunk] != SL_TIER_DISK)
                continue;
            end = (end + SL_DISK_ALIGNMENT - 1) / SL_DISK_ALIGNMENT * SL_DISK_ALIGNMENT;
            assert_int_equal(homes->offset[group][chunk], end);
            end += sl_layout_chunk_bytes(layout, (sl_group)group, chunk);
        }
    assert_int_equal(homes->fixed_bytes[SL_TIER_DISK], end);
    assert_int_equal(homes->bounce_bytes, end > 0 ? SL_BOUNCE_BYTES : 0);
    assert_int_equal(homes->bounce_offset % SL_DIRECT_ALIGNMENT, 0);
}

/* What is not on disk: on the device under static but for the host's share, on the host under nvme.
 * AdamW of chunks whose moments are on disk runs on the host. */
static void homes_with_disk_shares_take_the_disk_from_the_last_chunk_down(void **state)
{
    (void)state;
    static const struct {
        sl_policy policy;
        double disk, host;
        uint32_t disk_count, host_count;
    } cases[] = {
        {SL_POLICY_NVME, 0, 0, 0, 100},         {SL_POLICY_NVME, 1, 0, 100, 0},
        {SL_POLICY_NVME, 0.07, 0, 7, 93},       {SL_POLICY_NVME, 0.3, 0.9, 30, 70},
        {SL_POLICY_STATIC, 0.3, 0.7, 30, 70},   {SL_POLICY_STATIC, 0.3, 0.07, 30, 7},
        {SL_POLICY_STATIC, 0.29, 0.29, 29, 29}, {SL_POLICY_STATIC, 0.001, 0.001, 1, 0},
        {SL_POLICY_STATIC, 1, 0, 100, 0},       {SL_POLICY_HOST, 0.5, 0.2, 0, 100},
        {SL_POLICY_DEVICE, 0.5, 0.2, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_program *program = open_hundred();
        program->type = i % 2 ? SL_TYPE_BF16 : SL_TYPE_FP32;
        program->has_state[SL_GROUP_MASTER] = i % 2;
        sl_policy_options options = {.policy = cases[i].policy};
        options.disk_fraction[SL_GROUP_STATE1] = cases[i].disk;
        options.host_fraction[SL_GROUP_STATE1] = cases[i].host;
        sl_layout *layout;
        sl_homes *homes;
        assert_int_equal(sl_layout_build(program, 100 * SL_BLOCK_ELEMENTS, &layout), SL_OK);
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_OK);
        assert_homes_hold(layout, homes);
        assert_disk_is_dense(layout, homes);
        uint32_t disk = cases[i].disk_count, host = cases[i].host_count;
        assert_int_equal(count_on(homes, SL_GROUP_STATE1, SL_TIER_DISK), disk);
        assert_int_equal(count_on(homes, SL_GROUP_STATE1, SL_TIER_HOST), host);
        assert_int_equal(count_on(homes, SL_GROUP_PARAM, SL_TIER_DISK), 0);
        for (uint32_t chunk = 0; chunk < 100; chunk++) {
            sl_tier expected = chunk >= 100 - disk          ? SL_TIER_DISK
                               : chunk >= 100 - disk - host ? SL_TIER_HOST
                                                            : SL_TIER_DEVICE;
            assert_int_equal(homes->tier[SL_GROUP_STATE1][chunk], expected);
            assert_int_equal(homes->update_tier[chunk],
                             expected == SL_TIER_DEVICE ? SL_TIER_DEVICE : SL_TIER_HOST);
        }
        close_all(program, layout, homes);
    }
}

/* Chunks are equal here, so shares of elements are shares of chunks. The last ones of those whose
 * states live off the device are the host's. */
static void updates_that_are_shared_have_the_last_chunks_on_the_host(void **state)
{
    (void)state;
    static const struct {
        uint32_t disk, host, of_host; /* chunks of 100: homes of states, and updates on the host */
        double share;
    } cases[] = {{0, 100, 0, 0},     {0, 100, 100, 1},   {0, 100, 7, 0.07}, {0, 80, 40, 0.5},
                 {20, 60, 20, 0.25}, {20, 60, 21, 0.26}, {0, 0, 0, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_program *program = open_hundred();
        sl_policy_options options = {
            .policy = SL_POLICY_STATIC, .update = SL_UPDATE_SHARED, .host_updates = cases[i].share};
        for (int group = SL_GROUP_MASTER; group <= SL_GROUP_STATE2; group++) {
            options.disk_fraction[group] = cases[i].disk / 100.0;
            options.host_fraction[group] = cases[i].host / 100.0;
        }
        sl_layout *layout;
        sl_homes *homes;
        build(program, &options, &layout, &homes);
        assert_int_equal(layout->chunk_count, 100);
        for (uint32_t chunk = 0; chunk < 100; chunk++)
            assert_int_equal(homes->update_tier[chunk],
                             chunk >= 100 - cases[i].of_host ? SL_TIER_HOST : SL_TIER_DEVICE);
        close_all(program, layout, homes);
    }
}

static void homes_with_wrong_options_are_refused(void **state)
{
    (void)state;
    static const double wrong[] = {-0.01, 1.01, (double)NAN, (double)INFINITY};
    sl_program *program = open_hundred();
    sl_layout *layout;
    sl_homes *homes = NULL;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        sl_policy_options options = {.policy = SL_POLICY_STATIC};
        options.host_fraction[SL_GROUP_GRAD] = wrong[i];
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_ERROR_USAGE);
        options = (sl_policy_options){.policy = SL_POLICY_NVME};
        options.disk_fraction[SL_GROUP_GRAD] = wrong[i];
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_ERROR_USAGE);
        options = (sl_policy_options){
            .policy = SL_POLICY_HOST, .update = SL_UPDATE_SHARED, .host_updates = wrong[i]};
        assert_int_equal(sl_homes_build(program, layout, &options, &homes), SL_ERROR_USAGE);
    }
    sl_policy_options both = {.policy = SL_POLICY_STATIC};
    both.disk_fraction[SL_GROUP_PARAM] = 0.6;
    both.host_fraction[SL_GROUP_PARAM] = 0.5;
    assert_int_equal(sl_homes_build(program, layout, &both, &homes), SL_ERROR_USAGE);
    sl_policy_options unknown = {.policy = (sl_policy)17};
    assert_int_equal(sl_homes_build(program, layout, &unknown, &homes), SL_ERROR_USAGE);
    sl_policy_options plain = {.policy = SL_POLICY_DEVICE};
    program->tensor_count--;
    assert_int_equal(sl_homes_build(program, layout, &plain, &homes), SL_ERROR_INTERNAL);
    assert_null(homes);
    sl_homes_close(NULL);
    close_all(program, layout, NULL);
}

static void lanes_that_copy_join_the_host_with_each_other_tier_both_ways(void **state)
{
    (void)state;
    static const sl_lane between[SL_TIER_COUNT][SL_TIER_COUNT] = {
        {SL_LANE_COUNT, SL_LANE_D2H, SL_LANE_COUNT},
        {SL_LANE_H2D, SL_LANE_COUNT, SL_LANE_WRITE},
        {SL_LANE_COUNT, SL_LANE_READ, SL_LANE_COUNT},
    };
    int found[SL_LANE_COUNT] = {0};
    for (int from = 0; from < SL_TIER_COUNT; from++)
        for (int to = 0; to < SL_TIER_COUNT; to++) {
            sl_lane lane = sl_lane_between((sl_tier)from, (sl_tier)to);
            assert_int_equal(lane, between[from][to]);
            if (lane != SL_LANE_COUNT)
                found[lane]++;
        }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        assert_int_equal(found[lane], sl_lane_copies((sl_lane)lane));
    assert_string_equal(sl_lane_name(SL_LANE_H2D), "h2d");
    assert_string_equal(sl_lane_name(SL_LANE_INPUT), "input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(homes_of_device_policy_are_all_on_the_device),
        cmocka_unit_test(homes_of_host_policy_are_all_on_the_host_whatever_runs_adam),
        cmocka_unit_test(homes_of_static_policy_take_shares_from_the_last_chunk_down),
        cmocka_unit_test(homes_of_large_groups_are_staggered_for_any_shares),
        cmocka_unit_test(homes_of_a_small_model_waste_no_stagger),
        cmocka_unit_test(homes_without_states_put_parameters_at_the_same_places),
        cmocka_unit_test(homes_with_persistent_values_give_each_slot_its_largest_size),
        cmocka_unit_test(homes_with_two_thousand_slots_give_each_its_own_place),
        cmocka_unit_test(homes_with_disk_shares_take_the_disk_from_the_last_chunk_down),
        cmocka_unit_test(updates_that_are_shared_have_the_last_chunks_on_the_host),
        cmocka_unit_test(homes_with_wrong_options_are_refused),
        cmocka_unit_test(lanes_that_copy_join_the_host_with_each_other_tier_both_ways),
    };
    return cmocka_run_group_tests_name("homes", tests, NULL, NULL);
}
