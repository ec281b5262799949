/* The world of engine_world.h with a third tier: chunk 0 lives on disk in all four groups and
 * visits the host, where it is updated, and the device; and what the forward pass leaves for the
 * backward pass goes to the disk and back. Numbers come out as in that world.
 */
#ifndef TESTS_ENGINE_DISK_WORLD_H
#define TESTS_ENGINE_DISK_WORLD_H

#include <stdio.h>
#include <stdlib.h>

#include "engine_steps.h"

enum {
    SPILL_BYTES = 4096,
    HOST_SPILL = (HOST_PEAK + 4095) / 4096 * 4096,
    HOST_BACK = HOST_SPILL + SPILL_BYTES,
    HOST_HOP = HOST_BACK + SPILL_BYTES,
    HOST_BOUNCE = HOST_HOP + CHUNK_BYTES,
    DISK_HOST_PEAK = HOST_BOUNCE + SL_BOUNCE_BYTES,
    DEVICE_SPILL = (DEVICE_PEAK + 4095) / 4096 * 4096,
    DEVICE_BACK = DEVICE_SPILL + SPILL_BYTES,
    DISK_DEVICE_PEAK = DEVICE_BACK + SPILL_BYTES,
    DISK_HOME = SL_PIECE_BYTES - SL_DISK_ALIGNMENT, /* + group slot * SL_DISK_ALIGNMENT */
    DISK_FIXED = DISK_HOME + 4 * SL_DISK_ALIGNMENT,
    DISK_SPILL = DISK_FIXED,
    DISK_PEAK = DISK_SPILL + SPILL_BYTES,
    DISK_COMMANDS = 20,
    DISK_WAITS = 48,
    /* Bytes of one training step. */
    DISK_READ_BYTES = 3 * CHUNK_BYTES + SPILL_BYTES,
    DISK_WRITTEN_BYTES = 4 * CHUNK_BYTES + SPILL_BYTES
};

typedef struct disk_world {
    world w;
    sl_command body[DISK_COMMANDS], prologue[2];
    sl_wait waits[DISK_WAITS];
    uint32_t body_count, wait_count;
    const char *directories[3];
} disk_world;

static inline sl_place disk_place(sl_tier tier, uint64_t offset, uint64_t bytes)
{
    return (sl_place){tier, offset, bytes};
}

/* Appends a command of the training plan that waits for `count` others. */
static inline void disk_add(disk_world *d, sl_command command, uint32_t count, const sl_wait *waits)
{
    command.first_wait = d->wait_count;
    command.wait_count = count;
    for (uint32_t i = 0; i < count; i++)
        d->waits[d->wait_count++] = waits[i];
    d->body[d->body_count++] = command;
}

static inline sl_command disk_copy(sl_lane lane, uint32_t value, sl_group group, sl_place from,
                                   sl_place to)
{
    return (sl_command){.kind = SL_COMMAND_COPY,
                        .lane = lane,
                        .value = value,
                        .chunk_index = value == SL_NONE ? 0 : SL_NONE,
                        .group = group,
                        .from = from,
                        .to = to};
}

static inline sl_place disk_chunk(uint32_t slot)
{
    return disk_place(SL_TIER_DISK, DISK_HOME + slot * SL_DISK_ALIGNMENT, CHUNK_BYTES);
}

static inline sl_place host_chunk(uint32_t slot)
{
    return disk_place(SL_TIER_HOST, HOST_HOME + slot * CHUNK_BYTES, CHUNK_BYTES);
}

/* Commands between host and disk of a chunk in slot PARAM, GRAD, STATE1, STATE2 as 0..3. */
static inline sl_command disk_fetch(sl_group group, uint32_t slot)
{
    return disk_copy(SL_LANE_READ, SL_NONE, group, disk_chunk(slot), host_chunk(slot));
}

static inline sl_command disk_keep(sl_group group, uint32_t slot)
{
    return disk_copy(SL_LANE_WRITE, SL_NONE, group, host_chunk(slot), disk_chunk(slot));
}

#define WAITS(...)                                                                                 \
    (sizeof((sl_wait[]){__VA_ARGS__}) / sizeof(sl_wait)), (sl_wait[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static inline void fill_disk_train(disk_world *d)
{
    const sl_command *old = d->w.train_body;
    const sl_group group = SL_GROUP_PARAM;
    sl_place spill = disk_place(SL_TIER_DEVICE, DEVICE_SPILL, SPILL_BYTES);
    sl_place host_spill = disk_place(SL_TIER_HOST, HOST_SPILL, SPILL_BYTES);
    sl_place disk_spill = disk_place(SL_TIER_DISK, DISK_SPILL, SPILL_BYTES);
    sl_place host_back = disk_place(SL_TIER_HOST, HOST_BACK, SPILL_BYTES);
    sl_place back = disk_place(SL_TIER_DEVICE, DEVICE_BACK, SPILL_BYTES);
    uint32_t act = VALUE_ACTIVATION;
    disk_add(d, old[0], WAITS({3, 0}));                                /* 0: input in */
    disk_add(d, disk_fetch(SL_GROUP_PARAM, 0), WAITS({16, 0}));        /* 1 */
    disk_add(d, old[1], WAITS({1, 0}, {3, 0}));                        /* 2: param in */
    disk_add(d, old[2], WAITS({0, 0}, {2, 0}, {4, 0}));                /* 3: forward */
    disk_add(d, disk_copy(SL_LANE_D2H, act, group, spill, host_spill), /* 4 */
             WAITS({3, 0}, {5, 0}));
    disk_add(d, disk_copy(SL_LANE_WRITE, act, group, host_spill, disk_spill), /* 5 */
             WAITS({4, 0}, {6, 0}));
    disk_add(d, disk_copy(SL_LANE_READ, act, group, disk_spill, host_back), /* 6 */
             WAITS({5, 0}, {7, 0}));
    disk_add(d, disk_copy(SL_LANE_H2D, act, group, host_back, back), /* 7 */
             WAITS({6, 0}, {8, 0}, {10, 0}));
    disk_add(d, old[3], WAITS({7, 0}, {9, 0}));                  /* 8: backward */
    disk_add(d, old[4], WAITS({8, 0}, {11, 0}, {15, 0}));        /* 9: gradient out */
    disk_add(d, old[5], WAITS({12, 0}));                         /* 10: finish */
    disk_add(d, disk_keep(SL_GROUP_GRAD, 1), WAITS({9, 0}));     /* 11 */
    disk_add(d, old[6], WAITS({10, 0}, {15, 0}));                /* 12: control out */
    disk_add(d, disk_fetch(SL_GROUP_STATE1, 2), WAITS({17, 0})); /* 13 */
    disk_add(d, disk_fetch(SL_GROUP_STATE2, 3), WAITS({18, 0})); /* 14 */
    disk_add(d, old[7],                                          /* 15: update on the host */
             WAITS({2, 0}, {9, 0}, {12, 0}, {13, 0}, {14, 0}));
    disk_add(d, disk_keep(SL_GROUP_PARAM, 0), WAITS({15, 0}));  /* 16 */
    disk_add(d, disk_keep(SL_GROUP_STATE1, 2), WAITS({15, 0})); /* 17 */
    disk_add(d, disk_keep(SL_GROUP_STATE2, 3), WAITS({15, 0})); /* 18 */
    disk_add(d, old[8], 0, NULL);                               /* 19: update of chunk 1 */
    d->w.train.body = d->body;
    d->w.train.body_count = d->body_count;
    d->w.train_section.count = d->body_count;
    d->w.train.waits = d->waits;
    d->w.train.wait_count = d->wait_count;
}

/* The parameter comes to the device in two hops. */
static inline void fill_disk_eval(disk_world *d)
{
    sl_place hop = disk_place(SL_TIER_HOST, HOST_HOP, CHUNK_BYTES);
    d->prologue[0] = disk_copy(SL_LANE_READ, SL_NONE, SL_GROUP_PARAM, disk_chunk(0), hop);
    d->prologue[1] = disk_copy(SL_LANE_H2D, SL_NONE, SL_GROUP_PARAM, hop, param_on_device);
    d->w.eval.prologue = d->prologue;
    d->w.eval.prologue_count = 2;
    d->w.eval_body[2].from = disk_place(SL_TIER_DEVICE, DEVICE_SPILL, 8);
}

static inline void fill_disk_homes(disk_world *d)
{
    static const sl_group groups[4] = {SL_GROUP_PARAM, SL_GROUP_GRAD, SL_GROUP_STATE1,
                                       SL_GROUP_STATE2};
    for (uint32_t i = 0; i < 4; i++) {
        d->w.tier[groups[i]][0] = SL_TIER_DISK;
        d->w.offset[groups[i]][0] = DISK_HOME + i * SL_DISK_ALIGNMENT;
    }
    d->w.homes.fixed_bytes[SL_TIER_DISK] = DISK_FIXED;
    d->w.homes.bounce_offset = HOST_BOUNCE;
    d->w.homes.bounce_bytes = SL_BOUNCE_BYTES;
}

/* `transport` NULL: the store's own choice, in `directory`. The world must not move afterwards. */
static inline void disk_world_init(disk_world *d, const char *directory,
                                   const struct sl_transport_ops *transport)
{
    memset(d, 0, sizeof *d);
    world *w = &d->w;
    world_init(w);
    snprintf(w->values[VALUE_ACTIVATION].name, sizeof w->values[0].name, "h.0.spill");
    fill_disk_homes(d);
    w->places[4] = disk_place(SL_TIER_DEVICE, DEVICE_SPILL, 8); /* forward writes */
    w->places[6] = disk_place(SL_TIER_DEVICE, DEVICE_BACK, 8);  /* backward reads */
    w->places[7] = w->places[11] = w->places[6];                /* and finish */
    fill_disk_train(d);
    fill_disk_eval(d);
    for (int i = 0; i < 2; i++) {
        sl_plan *plan = i == 0 ? &w->train : &w->eval;
        plan->peak_bytes[SL_TIER_DEVICE] = DISK_DEVICE_PEAK;
        plan->peak_bytes[SL_TIER_HOST] = DISK_HOST_PEAK;
        plan->peak_bytes[SL_TIER_DISK] = DISK_PEAK;
    }
    d->directories[0] = directory;
    w->options.disk_directories = d->directories;
    w->options.disk_directory_count = 1;
    w->parts.transport = transport;
}

#endif
