/* A launch without a kernel, for tests of the watcher: its accesses and joins are steps that a test
 * writes down. Memory is a range of addresses that nobody reads or writes. */
#ifndef PTX_SHADOW_SCENE_H
#define PTX_SHADOW_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shadow.h"

enum {
    SCENE_SLOTS = 2,
    SCENE_WARPS = 3,
    SCENE_SHARED_BYTES = 1024,
    SCENE_LOCAL_BYTES = 64,
    SCENE_RANGE_BYTES = 4096,
};

/* The scene's global memory begins here; one range of SCENE_RANGE_BYTES. */
#define SCENE_GLOBAL UINT64_C(0x10000000)

typedef enum step_verb {
    STEP_END, /* of the list */
    STEP_READ,
    STEP_WRITE,
    STEP_ATOMIC,
    STEP_MATRIX,
    STEP_CONSTANT,
    STEP_COPY,      /* from global `at` to shared `to` */
    STEP_COPY_ZERO, /* writes zeros to shared `to` */
    STEP_WAIT,      /* the lanes wait for every copy of their warp */
    STEP_JOIN_WARP,
    STEP_BARRIER,      /* all lanes of the block */
    STEP_BARRIER_PART, /* `lanes` of one warp alone */
    STEP_END_BLOCK,
    STEP_NEXT_BLOCK, /* ends the block and begins the one SCENE_SLOTS after it */
    STEP_OPEN,       /* a new launch, and a range of `bytes` at global `at`, nothing written */
    STEP_CLOSE,      /* a new launch, without that range */
    STEP_HOST_WRITES,
    STEP_DEVICE_COPIES, /* `bytes` from global `at` to global `to` */
} step_verb;

typedef enum step_when { ALWAYS, PLANTED, MENDED } step_when;

/* Lane i of `lanes` accesses `bytes` bytes at `at` + i * `stride`. */
typedef struct step {
    step_verb verb;
    ptx_space space;
    uint32_t block, warp, lanes;
    uint64_t at, stride, to;
    uint32_t bytes;
    step_when when;
} step;

typedef struct scene {
    ptx_shadow *shadow;
    const ptx_watch *watch;
    void *run;
    uint64_t tickets;
    uint64_t flying[SCENE_SLOTS][SCENE_WARPS][64]; /* tickets of copies */
    uint32_t flying_lanes[SCENE_SLOTS][SCENE_WARPS][64];
    uint32_t flying_count[SCENE_SLOTS][SCENE_WARPS];
    ptx_fault fault;
} scene;

static inline void scene_open(scene *s, const ptx_shadow_options *options, bool is_written)
{
    memset(s, 0, sizeof *s);
    s->shadow = ptx_shadow_open(options);
    assert_non_null(s->shadow);
    s->watch = ptx_shadow_watch(s->shadow);
    assert_true(ptx_shadow_open_range(s->shadow, (const void *)SCENE_GLOBAL, SCENE_RANGE_BYTES,
                                      is_written));
}

/* Blocks 0 .. SCENE_SLOTS - 1 are under way. */
static inline void scene_begin(scene *s)
{
    const ptx_launch_shape shape = {.block_count = 1000,
                                    .slot_count = SCENE_SLOTS,
                                    .warps_per_block = SCENE_WARPS,
                                    .threads_per_block = SCENE_WARPS * PTX_LANES,
                                    .shared_bytes = SCENE_SHARED_BYTES,
                                    .local_bytes = SCENE_LOCAL_BYTES};
    assert_true(s->watch->launch_begin(s->watch->watcher, &shape, &s->run, &s->fault));
    for (uint32_t slot = 0; slot < SCENE_SLOTS; slot++) {
        const ptx_place place = {.block = slot, .slot = slot};
        assert_true(s->watch->block_begin(s->run, &place, &s->fault));
    }
}

/* False, and s->fault: the end of the launch was refused. */
static inline bool scene_end(scene *s)
{
    const bool is_fine = s->watch->launch_end(s->run, &s->fault);
    s->run = NULL;
    return is_fine;
}

static inline void scene_close(scene *s)
{
    if (s->run)
        (void)s->watch->launch_end(s->run, &s->fault);
    ptx_shadow_close(s->shadow);
}

static inline ptx_place scene_place(const step *p)
{
    return (ptx_place){.block = p->block, .slot = p->block % SCENE_SLOTS, .warp = p->warp};
}

/* `address`[32] is filled; global memory is counted from where the scene's begins. */
static inline ptx_access scene_access(const step *p, ptx_access_kind kind, ptx_space space,
                                      uint64_t start, uint64_t *address)
{
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        address[lane] = start + (space == PTX_GLOBAL ? SCENE_GLOBAL : 0) + lane * p->stride;
    return (ptx_access){.place = scene_place(p),
                        .space = space,
                        .kind = kind,
                        .lanes = p->lanes,
                        .bytes = p->bytes,
                        .address = address};
}

static inline bool scene_copy(scene *s, const step *p)
{
    uint64_t from_address[PTX_LANES], to_address[PTX_LANES];
    const ptx_access from = scene_access(p, PTX_READ, PTX_GLOBAL, p->at, from_address);
    const ptx_access to = scene_access(p, PTX_WRITE, PTX_SHARED, p->to, to_address);
    const uint32_t slot = p->block % SCENE_SLOTS, at = s->flying_count[slot][p->warp]++;
    assert_true(at < 64);
    s->flying[slot][p->warp][at] = ++s->tickets;
    s->flying_lanes[slot][p->warp][at] = p->lanes;
    return s->watch->copy_begin(s->run, s->tickets, p->verb == STEP_COPY ? &from : NULL, &to,
                                &s->fault);
}

static inline void scene_wait(scene *s, const step *p)
{
    const uint32_t slot = p->block % SCENE_SLOTS;
    const ptx_place place = scene_place(p);
    for (uint32_t i = 0; i < s->flying_count[slot][p->warp]; i++) {
        const uint32_t lanes = s->flying_lanes[slot][p->warp][i] & p->lanes;
        if (lanes)
            s->watch->copy_end(s->run, &place, s->flying[slot][p->warp][i], lanes);
        s->flying_lanes[slot][p->warp][i] &= ~lanes;
    }
}

static inline bool scene_touch(scene *s, const step *p)
{
    static const ptx_access_kind kinds[] = {[STEP_READ] = PTX_READ,
                                            [STEP_WRITE] = PTX_WRITE,
                                            [STEP_ATOMIC] = PTX_ATOMIC,
                                            [STEP_MATRIX] = PTX_READ_MATRIX,
                                            [STEP_CONSTANT] = PTX_READ_CONSTANT};
    uint64_t address[PTX_LANES];
    const ptx_access access = scene_access(p, kinds[p->verb], p->space, p->at, address);
    return s->watch->access(s->run, &access, &s->fault);
}

static inline void scene_barrier(scene *s, const step *p)
{
    uint32_t lanes[SCENE_WARPS];
    for (uint32_t warp = 0; warp < SCENE_WARPS; warp++)
        lanes[warp] = p->verb == STEP_BARRIER ? UINT32_MAX : warp == p->warp ? p->lanes : 0;
    const ptx_place place = scene_place(p);
    s->watch->block_join(s->run, &place, lanes);
}

static inline bool scene_end_block(scene *s, const step *p)
{
    const ptx_place place = scene_place(p);
    if (!s->watch->block_end(s->run, &place, &s->fault))
        return false;
    const ptx_place next = {.block = p->block + SCENE_SLOTS, .slot = place.slot};
    return p->verb == STEP_END_BLOCK || s->watch->block_begin(s->run, &next, &s->fault);
}

/* Between two launches. */
static inline bool scene_change_ranges(scene *s, const step *p, const void *at)
{
    const bool is_fine =
        scene_end(s) &&
        (p->verb == STEP_CLOSE ? ptx_shadow_close_range(s->shadow, at)
                               : ptx_shadow_open_range(s->shadow, at, p->bytes, false));
    scene_begin(s);
    return is_fine;
}

/* False, and s->fault: refused. */
static inline bool scene_step(scene *s, const step *p)
{
    const void *at = (const void *)(uintptr_t)(SCENE_GLOBAL + p->at);
    const ptx_place place = scene_place(p);
    switch (p->verb) {
    case STEP_COPY:
    case STEP_COPY_ZERO:
        return scene_copy(s, p);
    case STEP_WAIT:
        return scene_wait(s, p), true;
    case STEP_JOIN_WARP:
        return s->watch->warp_join(s->run, &place, p->lanes), true;
    case STEP_BARRIER:
    case STEP_BARRIER_PART:
        return scene_barrier(s, p), true;
    case STEP_END_BLOCK:
    case STEP_NEXT_BLOCK:
        return scene_end_block(s, p);
    case STEP_OPEN:
    case STEP_CLOSE:
        return scene_change_ranges(s, p, at);
    case STEP_HOST_WRITES:
        return ptx_shadow_written(s->shadow, at, p->bytes), true;
    case STEP_DEVICE_COPIES:
        return ptx_shadow_copied(s->shadow, (const void *)(uintptr_t)(SCENE_GLOBAL + p->to), at,
                                 p->bytes),
               true;
    default:
        return scene_touch(s, p);
    }
}

#endif
