/* Two more plans of small_plan.h's program, by hand, over three tiers, and no wait too many.
 *
 * In the first, parameters and moments of chunk 0 live on disk: they visit the host while AdamW
 * runs there; the parameters go on to the device from the host, and in the prologue through a hop.
 * In the second, x leaves the device between its two uses, for the host or on to the disk. */
#ifndef SL_TESTS_SMALL_TIERS_H
#define SL_TESTS_SMALL_TIERS_H

#include "small_plan.h"

static const sl_tier small_write[2] = {SL_TIER_HOST, SL_TIER_DISK};
static const sl_tier small_read[2] = {SL_TIER_DISK, SL_TIER_HOST};

/* ---- homes on disk ---- */

enum {
    BOUNCE = 20480,
    DISK_HOST_FIXED = BOUNCE + SL_BOUNCE_BYTES,
    STAGE = DISK_HOST_FIXED + 4096, /* visits on the host; slots are below */
    DISK_READ_COUNT = 3
};

static const sl_group small_disk_groups[DISK_READ_COUNT] = {SL_GROUP_PARAM, SL_GROUP_STATE1,
                                                            SL_GROUP_STATE2};
static uint8_t small_disk_tier[] = {SL_TIER_DISK, SL_TIER_DEVICE};
static uint64_t small_disk_offset[4][2] = {
    {0, 0}, {0, 32768}, {SL_DISK_ALIGNMENT, 65536}, {2 * SL_DISK_ALIGNMENT, 98304}};
static sl_homes small_disk_homes = {
    .chunk_count = 2,
    .tier = {small_disk_tier, small_tier, NULL, small_disk_tier, small_disk_tier},
    .offset = {small_disk_offset[0], small_disk_offset[1], NULL, small_disk_offset[2],
               small_disk_offset[3]},
    .update_tier = small_tier,
    .flags_offset = {131072, 16384, 0},
    .flags_bytes = {4, 4, 0},
    .bounce_offset = BOUNCE,
    .bounce_bytes = SL_BOUNCE_BYTES,
    .fixed_bytes = {131328, DISK_HOST_FIXED, 2 * SL_DISK_ALIGNMENT + CHUNK_BYTES}};

static const sl_plan_request small_disk_request = {
    .program = &small_program,
    .layout = &small_layout,
    .homes = &small_disk_homes,
    .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
    .workspace = small_workspace};

/* The device is as in the small plan; slots on the host are above the bounce pieces. */
static inline void place_disk_plan(plan_builder *builder)
{
    place_values(builder);
    for (uint32_t value = 0; value < VALUE_COUNT; value++)
        plan_value_at(builder, SL_TIER_HOST, value)->offset += DISK_HOST_FIXED - 131328;
    for (uint32_t i = 0; i < DISK_READ_COUNT; i++)
        *plan_chunk_at(builder, SL_TIER_HOST, small_disk_groups[i], 0) =
            (sl_place){SL_TIER_HOST, STAGE + i * CHUNK_BYTES, CHUNK_BYTES};
}

/* The hop has the bytes of the parameters' later visit on the host. */
static inline void allocate_disk_plan(plan_builder *builder)
{
    static const uint32_t update[2] = {13, 13}, param[2] = {13, 14};
    allocate_small(builder);
    for (uint32_t i = 0; i < DISK_READ_COUNT; i++)
        plan_allocate_visit(builder, SL_TIER_HOST, small_disk_groups[i], 0, i ? update : param);
    sl_allocation hop = {.kind = SL_MEMORY_STAGING,
                         .place = {SL_TIER_HOST, STAGE, CHUNK_BYTES},
                         .value = SL_NONE,
                         .chunk_index = SL_NONE};
    plan_add_allocation(builder, &hop);
}

static inline void add_disk_prologue(plan_builder *builder)
{
    sl_command read = plan_chunk_move(builder, 0, small_read, SL_GROUP_PARAM, 0);
    sl_command fetch = plan_chunk_copy(builder, 0, SL_TIER_DEVICE, SL_GROUP_PARAM, 0);
    plan_add_prologue(builder, &read);
    plan_add_prologue(builder, &fetch);
}

/* Reads for the update at tick 13; the last write and the fetch of the iteration before must be
 * done with the bytes on the host. */
static inline uint32_t add_disk_reads(plan_builder *builder)
{
    enum { LAST_WRITE = 23, FETCH = 25 };
    uint32_t read = 0;
    for (uint32_t i = 0; i < DISK_READ_COUNT; i++) {
        read = plan_add_chunk_move(builder, 13, small_read, small_disk_groups[i], 0);
        if (i > 0)
            continue;
        plan_add_wait(builder, LAST_WRITE, 0);
        plan_add_wait(builder, FETCH, 0);
    }
    return read;
}

static inline void add_disk_writes(plan_builder *builder, uint32_t update)
{
    for (uint32_t i = 0; i < DISK_READ_COUNT; i++) {
        plan_add_chunk_move(builder, 14, small_write, small_disk_groups[i], 0);
        if (i == 0)
            plan_add_wait(builder, update, 0);
    }
}

/* Up to op 12 as in the small plan. */
static inline void add_disk_body(plan_builder *builder)
{
    enum { FETCH = 25 };
    add_small_start(builder, FETCH, SL_TIER_DEVICE);
    uint32_t finish = builder->plan.body_count - 1;
    uint32_t control = plan_add_value_copy(builder, 13, SL_TIER_HOST, CONTROL);
    plan_add_wait(builder, finish, 0);
    uint32_t read = add_disk_reads(builder);
    uint32_t update = add_small_run(builder, 13);
    plan_add_wait(builder, control, 0);
    plan_add_wait(builder, read, 0);
    add_disk_writes(builder, update);
    add_small_run(builder, 14);
    plan_add_chunk_copy(builder, SMALL_OP_COUNT, SL_TIER_DEVICE, SL_GROUP_PARAM, 0);
    plan_add_wait(builder, update, 0);
}

static inline sl_plan make_disk_plan(void)
{
    plan_builder builder;
    plan_begin(&builder, &small_disk_request);
    place_disk_plan(&builder);
    add_disk_prologue(&builder);
    add_disk_body(&builder);
    allocate_disk_plan(&builder);
    plan_sum(&builder);
    return plan_end(&builder);
}

/* ---- an activation away ---- */

enum { X_BYTES = 4096, X_PLACE = 212992, X_STAGE = 135168 };

static sl_value small_away_values[VALUE_COUNT];
static sl_program small_away_program;
static sl_plan_request small_away_request;

/* The small program with a larger x. */
static inline void open_away_request(void)
{
    memcpy(small_away_values, small_values, sizeof small_values);
    small_away_values[X].bytes = X_BYTES;
    small_away_program = small_program;
    small_away_program.values = small_away_values;
    small_away_request = small_request;
    small_away_request.program = &small_away_program;
}

static inline void allocate_away_x(plan_builder *builder, sl_tier away)
{
    static const uint32_t made[2] = {0, 2}, used[2] = {6, 6}, all[2] = {3, 6}, out[2] = {3, 3};
    for (uint32_t i = 0; i < builder->plan.allocation_count; i++)
        if (builder->plan.allocations[i].value == X) {
            builder->plan.allocations[i].first_tick = made[0];
            builder->plan.allocations[i].last_tick = made[1];
        }
    plan_allocate_value(builder, SL_MEMORY_ACTIVATION, SL_TIER_DEVICE, X, used);
    plan_allocate_value(builder, SL_MEMORY_ACTIVATION, away, X, all);
    if (away == SL_TIER_HOST)
        return;
    plan_allocate_value(builder, SL_MEMORY_ACTIVATION, SL_TIER_HOST, X, out);
    plan_allocate_value(builder, SL_MEMORY_ACTIVATION, SL_TIER_HOST, X, used);
}

static inline sl_plan make_away_plan(sl_tier away)
{
    plan_builder builder;
    open_away_request();
    plan_begin(&builder, &small_away_request);
    place_values(&builder);
    *plan_value_at(&builder, SL_TIER_DEVICE, X) = (sl_place){SL_TIER_DEVICE, X_PLACE, X_BYTES};
    *plan_value_at(&builder, SL_TIER_HOST, X) = (sl_place){SL_TIER_HOST, X_STAGE, X_BYTES};
    *plan_value_at(&builder, SL_TIER_DISK, X) = (sl_place){SL_TIER_DISK, 0, X_BYTES};
    sl_command fetch = plan_chunk_copy(&builder, 0, SL_TIER_DEVICE, SL_GROUP_PARAM, 0);
    plan_add_prologue(&builder, &fetch);
    add_small_start(&builder, away == SL_TIER_DISK ? 23 : 21, away);
    add_small_end(&builder);
    allocate_small(&builder);
    allocate_away_x(&builder, away);
    plan_sum(&builder);
    return plan_end(&builder);
}

#endif
