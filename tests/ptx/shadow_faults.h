/* Every kind of mistake that the watcher is to find, as the shortest launch that makes it. A row's
 * steps that are PLANTED are the mistake, those that are MENDED stand in its place where it is
 * mended: then the launch is clean. The check that is meant for it must find it, and no other. */
#ifndef PTX_SHADOW_FAULTS_H
#define PTX_SHADOW_FAULTS_H

#include "shadow_scene.h"

enum { FAULT_STEPS = 14 };

typedef struct planted_fault {
    const char *name, *says; /* how the refusal begins */
    bool is_empty;           /* nothing of global memory was written before */
    step steps[FAULT_STEPS];
} planted_fault;

#define ALL UINT32_MAX
#define LANE(index) (1u << (index))

/* clang-format off */
#define SHARED(when, verb, block, warp, lanes, at, stride, bytes) \
    {STEP_##verb, PTX_SHARED, block, warp, lanes, at, stride, 0, bytes, when}
#define GLOBAL(when, verb, block, warp, lanes, at, stride, bytes) \
    {STEP_##verb, PTX_GLOBAL, block, warp, lanes, at, stride, 0, bytes, when}
#define LOCAL(when, verb, warp, lanes, at, bytes) \
    {STEP_##verb, PTX_LOCAL, 0, warp, lanes, at, 0, 0, bytes, when}
#define COPY(when, warp, lanes, at, to, stride, bytes) \
    {STEP_COPY, PTX_GLOBAL, 0, warp, lanes, at, stride, to, bytes, when}
#define COPY_ZERO(when, warp, lanes, to, stride, bytes) \
    {STEP_COPY_ZERO, PTX_SHARED, 0, warp, lanes, 0, stride, to, bytes, when}
#define WAIT(when, warp, lanes) {STEP_WAIT, PTX_SHARED, 0, warp, lanes, 0, 0, 0, 0, when}
#define JOIN(when, warp) {STEP_JOIN_WARP, PTX_SHARED, 0, warp, ALL, 0, 0, 0, 0, when}
#define BARRIER(when) {STEP_BARRIER, PTX_SHARED, 0, 0, ALL, 0, 0, 0, 0, when}
#define RANGE(when, verb, at, to, bytes) {STEP_##verb, PTX_GLOBAL, 0, 0, 0, at, 0, to, bytes, when}
#define BLOCK(when, verb, block) {STEP_##verb, PTX_SHARED, block, 0, 0, 0, 0, 0, 0, when}

static const planted_fault PLANTED_FAULTS[] = {
    /* ---- bounds of global memory ---- */
    {"the last lane reads one element too far", "out of bounds: reads 4", false, {
        GLOBAL(PLANTED, READ, 0, 0, ALL, SCENE_RANGE_BYTES - 124, 4, 4),
        GLOBAL(MENDED, READ, 0, 0, ALL, SCENE_RANGE_BYTES - 128, 4, 4)}},
    {"a write one element too far", "out of bounds: writes 2", false, {
        GLOBAL(PLANTED, WRITE, 0, 0, LANE(0), SCENE_RANGE_BYTES, 2, 2),
        GLOBAL(MENDED, WRITE, 0, 0, LANE(0), SCENE_RANGE_BYTES - 2, 2, 2)}},
    {"a read one element before the start", "out of bounds: reads 4", false, {
        GLOBAL(PLANTED, READ, 0, 0, LANE(5), (uint64_t)-24, 4, 4),
        GLOBAL(MENDED, READ, 0, 0, LANE(6), (uint64_t)-24, 4, 4)}},
    {"a vector that begins inside and ends outside", "out of bounds: reads 16", false, {
        RANGE(ALWAYS, OPEN, 8192, 0, 8), RANGE(ALWAYS, HOST_WRITES, 8192, 0, 8),
        GLOBAL(PLANTED, READ, 0, 0, LANE(0), 8192, 0, 16),
        GLOBAL(MENDED, READ, 0, 0, LANE(0), 8192, 0, 8)}},
    {"a read between two ranges", "out of bounds: reads 4", false, {
        RANGE(ALWAYS, OPEN, 8192, 0, 64), RANGE(ALWAYS, HOST_WRITES, 8192, 0, 64),
        GLOBAL(PLANTED, READ, 0, 0, LANE(0), 8188, 0, 4),
        GLOBAL(MENDED, READ, 0, 0, LANE(0), 8192, 0, 4)}},
    {"a null pointer", "out of bounds: writes 4", false, {
        GLOBAL(PLANTED, WRITE, 0, 0, LANE(0), 0 - SCENE_GLOBAL, 0, 4),
        GLOBAL(MENDED, WRITE, 0, 0, LANE(0), 0, 0, 4)}},
    {"memory that was given back", "out of bounds: reads 4", false, {
        RANGE(ALWAYS, OPEN, 8192, 0, 64), RANGE(ALWAYS, HOST_WRITES, 8192, 0, 64),
        RANGE(PLANTED, CLOSE, 8192, 0, 0),
        GLOBAL(ALWAYS, READ, 0, 0, LANE(0), 8192, 0, 4)}},
    {"an atomic operation outside", "out of bounds: changes 4", false, {
        GLOBAL(PLANTED, ATOMIC, 0, 0, LANE(0), SCENE_RANGE_BYTES, 0, 4),
        GLOBAL(MENDED, ATOMIC, 0, 0, LANE(0), 0, 0, 4)}},
    {"a copy whose last row lies outside", "out of bounds: reads 16", false, {
        COPY(PLANTED, 0, ALL, SCENE_RANGE_BYTES - 31 * 16, 0, 16, 16),
        COPY(MENDED, 0, ALL, SCENE_RANGE_BYTES - 32 * 16, 0, 16, 16),
        WAIT(ALWAYS, 0, ALL)}},

    /* ---- values ---- */
    {"global memory that nobody wrote", "no value: reads global", true, {
        GLOBAL(MENDED, WRITE, 0, 0, LANE(0), 64, 0, 4),
        GLOBAL(ALWAYS, READ, 0, 0, LANE(0), 64, 0, 4)}},
    {"a vector whose last element nobody wrote", "no value: reads global", true, {
        GLOBAL(PLANTED, WRITE, 0, 0, LANE(0) | LANE(1) | LANE(2), 64, 4, 4),
        RANGE(MENDED, HOST_WRITES, 64, 0, 16), BARRIER(ALWAYS),
        GLOBAL(ALWAYS, READ, 0, 0, LANE(0), 64, 0, 16)}},
    {"a copy on the device of memory without values", "no value: reads global", true, {
        RANGE(ALWAYS, HOST_WRITES, 64, 0, 64), RANGE(MENDED, HOST_WRITES, 128, 0, 64),
        RANGE(ALWAYS, DEVICE_COPIES, 128, 64, 32),
        GLOBAL(ALWAYS, READ, 0, 0, LANE(0), 64, 0, 4)}},
    {"new memory at an old address", "no value: reads global", false, {
        RANGE(ALWAYS, OPEN, 8192, 0, 64), RANGE(ALWAYS, HOST_WRITES, 8192, 0, 64),
        RANGE(PLANTED, CLOSE, 8192, 0, 0), RANGE(PLANTED, OPEN, 8192, 0, 64),
        GLOBAL(ALWAYS, READ, 0, 0, LANE(0), 8192, 0, 4)}},
    {"the read-only path to what nobody wrote", "no value: reads global", true, {
        RANGE(MENDED, HOST_WRITES, 64, 0, 4),
        GLOBAL(ALWAYS, CONSTANT, 0, 0, LANE(0), 64, 0, 4)}},
    {"shared memory that nobody wrote", "no value: reads shared", false, {
        SHARED(MENDED, WRITE, 0, 0, LANE(0), 0, 0, 4),
        SHARED(ALWAYS, READ, 0, 0, LANE(0), 0, 0, 4)}},
    {"shared memory of the block before", "no value: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BLOCK(ALWAYS, NEXT_BLOCK, 0),
        SHARED(MENDED, WRITE, 2, 0, LANE(0), 0, 0, 4),
        SHARED(ALWAYS, READ, 2, 0, LANE(0), 0, 0, 4)}},
    {"shared memory of the block beside", "no value: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4),
        SHARED(PLANTED, READ, 1, 0, LANE(0), 0, 0, 4),
        SHARED(MENDED, READ, 0, 0, LANE(0), 0, 0, 4)}},
    {"a row of a matrix that was not filled", "no value: reads shared", false, {
        SHARED(PLANTED, WRITE, 0, 0, ALL & ~LANE(31), 0, 16, 16),
        SHARED(MENDED, WRITE, 0, 0, ALL, 0, 16, 16), JOIN(ALWAYS, 0),
        SHARED(ALWAYS, MATRIX, 0, 0, ALL, 0, 16, 16)}},
    {"a counter without a first value", "no value: reads shared", false, {
        SHARED(MENDED, WRITE, 0, 0, LANE(0), 0, 0, 4), JOIN(MENDED, 0),
        SHARED(ALWAYS, ATOMIC, 0, 0, ALL, 0, 0, 4)}},
    {"a copy from memory without values", "no value: reads global", true, {
        RANGE(MENDED, HOST_WRITES, 0, 0, 512), COPY(ALWAYS, 0, ALL, 0, 0, 16, 16),
        WAIT(ALWAYS, 0, ALL)}},
    {"local memory that its thread did not write", "no value: reads local", false, {
        LOCAL(PLANTED, WRITE, 0, ALL & ~LANE(7), 16, 8), LOCAL(MENDED, WRITE, 0, ALL, 16, 8),
        LOCAL(ALWAYS, READ, 0, ALL, 16, 8)}},
    {"local memory of the block before", "no value: reads local", false, {
        LOCAL(ALWAYS, WRITE, 0, ALL, 0, 4), BLOCK(PLANTED, NEXT_BLOCK, 0),
        {STEP_READ, PTX_LOCAL, 2, 0, ALL, 0, 0, 0, 4, PLANTED}, LOCAL(MENDED, READ, 0, ALL, 0, 4)}},
    {"local memory of the other warp", "no value: reads local", false, {
        LOCAL(ALWAYS, WRITE, 0, ALL, 0, 4), LOCAL(MENDED, WRITE, 1, ALL, 0, 4),
        LOCAL(ALWAYS, READ, 1, ALL, 0, 4)}},

    /* ---- order in a warp ---- */
    {"a lane reads what another wrote, without a join", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(3), 0, 0, 4), JOIN(MENDED, 0),
        SHARED(ALWAYS, READ, 0, 0, LANE(4), 0, 0, 4)}},
    {"a join of another warp", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(3), 0, 0, 4), JOIN(MENDED, 0), JOIN(PLANTED, 1),
        SHARED(ALWAYS, READ, 0, 0, LANE(4), 0, 0, 4)}},
    {"all lanes read what one of them wrote", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(3), 0, 0, 4), JOIN(MENDED, 0),
        SHARED(ALWAYS, READ, 0, 0, ALL, 0, 0, 4)}},
    {"a matrix of rows that the lanes wrote just now", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 16, 16), JOIN(MENDED, 0),
        SHARED(ALWAYS, MATRIX, 0, 0, ALL, 0, 16, 16)}},
    {"a row of a matrix is overwritten by the lane that pointed at it",
     "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 16, 16), JOIN(ALWAYS, 0),
        SHARED(ALWAYS, MATRIX, 0, 0, ALL, 0, 16, 16), JOIN(MENDED, 0),
        SHARED(ALWAYS, WRITE, 0, 0, LANE(9), 0, 16, 16)}},
    {"two lanes write one word at once", "not ordered: writes shared", false, {
        SHARED(PLANTED, WRITE, 0, 0, LANE(0) | LANE(1), 0, 0, 4),
        SHARED(MENDED, WRITE, 0, 0, LANE(0) | LANE(1), 0, 4, 4)}},
    {"a word is read whole, half of it written by another lane", "not ordered: reads shared",
     false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), JOIN(ALWAYS, 0),
        SHARED(ALWAYS, WRITE, 0, 0, LANE(1), 0, 2, 2), JOIN(MENDED, 0),
        SHARED(ALWAYS, READ, 0, 0, LANE(0), 0, 0, 4)}},
    {"two lanes read and the last one writes", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 0, LANE(1), 0, 0, 4), SHARED(ALWAYS, READ, 0, 0, LANE(2), 0, 0, 4),
        JOIN(MENDED, 0), SHARED(ALWAYS, WRITE, 0, 0, LANE(2), 0, 0, 4)}},

    {"two lanes read, the last one twice, and it writes", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 0, LANE(1), 0, 0, 4), SHARED(ALWAYS, READ, 0, 0, LANE(2), 0, 0, 4),
        SHARED(ALWAYS, READ, 0, 0, LANE(2), 0, 0, 4), JOIN(MENDED, 0),
        SHARED(ALWAYS, WRITE, 0, 0, LANE(2), 0, 0, 4)}},
    {"no join between a lane that reads and one that updates", "not ordered: writes shared", false,
     {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 0, LANE(1), 0, 0, 4), JOIN(MENDED, 0),
        SHARED(ALWAYS, READ, 0, 0, LANE(2), 0, 0, 4),
        SHARED(ALWAYS, WRITE, 0, 0, LANE(2), 0, 0, 4)}},

    /* ---- order in a block ---- */
    {"a warp reads what another wrote, without a barrier", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), BARRIER(MENDED), JOIN(PLANTED, 0),
        JOIN(PLANTED, 1), SHARED(ALWAYS, READ, 0, 1, ALL, 0, 4, 4)}},
    {"a tile is filled anew while another warp may read it", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 1, ALL, 0, 4, 4), BARRIER(MENDED),
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4)}},
    {"several warps read, then one of them writes", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 1, ALL, 0, 0, 4), SHARED(ALWAYS, READ, 0, 2, ALL, 0, 0, 4),
        JOIN(ALWAYS, 2), SHARED(ALWAYS, READ, 0, 2, LANE(0), 0, 0, 4), BARRIER(MENDED),
        SHARED(ALWAYS, WRITE, 0, 2, LANE(0), 0, 0, 4)}},
    {"two warps write one word", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(MENDED),
        SHARED(ALWAYS, WRITE, 0, 1, LANE(0), 0, 0, 4)}},
    {"vectors of two warps overlap by one element", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 16),
        SHARED(PLANTED, WRITE, 0, 1, LANE(0), 14, 0, 2),
        SHARED(MENDED, WRITE, 0, 1, LANE(0), 16, 0, 2)}},
    {"a counter is set while others count", "not ordered: changes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(MENDED),
        SHARED(ALWAYS, ATOMIC, 0, 1, ALL, 0, 0, 4)}},
    {"a counter is set and counted up by one, counted up by another", "not ordered: changes shared",
     false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(MENDED),
        SHARED(ALWAYS, ATOMIC, 0, 0, LANE(0), 0, 0, 4),
        SHARED(ALWAYS, ATOMIC, 0, 1, LANE(0), 0, 0, 4)}},
    {"a counter is read while others count", "not ordered: reads shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, ATOMIC, 0, 1, ALL, 0, 0, 4), SHARED(ALWAYS, ATOMIC, 0, 2, ALL, 0, 0, 4),
        BARRIER(MENDED), SHARED(ALWAYS, READ, 0, 2, LANE(31), 0, 0, 4)}},
    {"a counter is counted up while it is read", "not ordered: changes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 2, LANE(31), 0, 0, 4), BARRIER(MENDED),
        SHARED(ALWAYS, ATOMIC, 0, 1, ALL, 0, 0, 4)}},
    {"global memory handed on in a block without a barrier", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), BARRIER(MENDED),
        GLOBAL(ALWAYS, READ, 0, 1, ALL, 0, 4, 4)}},
    {"a row is updated in place while its neighbours read it", "not ordered: writes global", false,
     {
        GLOBAL(ALWAYS, READ, 0, 0, ALL, 4, 4, 4), JOIN(MENDED, 0),
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4)}},

    {"a thread reads what it did not write, where a page of cells ends",
     "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 960, 4, 4),
        GLOBAL(PLANTED, READ, 0, 0, LANE(16), 964, 4, 4),
        GLOBAL(MENDED, READ, 0, 0, LANE(16), 960, 4, 4)}},

    /* ---- blocks ---- */
    {"a block reads what another writes", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), BARRIER(ALWAYS),
        GLOBAL(PLANTED, READ, 1, 0, ALL, 124, 4, 4), GLOBAL(MENDED, READ, 1, 0, ALL, 128, 4, 4)}},
    {"a block reads what only an earlier launch may write", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), RANGE(MENDED, OPEN, 8192, 0, 64),
        GLOBAL(ALWAYS, READ, 1, 0, ALL, 0, 4, 4)}},
    {"a block writes what another has read", "not ordered: writes global", false, {
        GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 4, 4),
        GLOBAL(PLANTED, WRITE, 1, 0, LANE(0), 64, 0, 2),
        GLOBAL(MENDED, WRITE, 1, 0, LANE(0), 128, 0, 2)}},
    {"a block writes what several have read, itself too", "not ordered: writes global", false, {
        GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 4, 4), GLOBAL(ALWAYS, READ, 1, 0, ALL, 0, 4, 4),
        GLOBAL(PLANTED, WRITE, 1, 0, LANE(0), 0, 0, 4)}},
    {"two blocks write the same tail", "not ordered: writes global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 8, 8),
        GLOBAL(PLANTED, WRITE, 1, 0, ALL, 252, 8, 8), GLOBAL(MENDED, WRITE, 1, 0, ALL, 256, 8, 8)}},
    {"a block that runs after another reads its result", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BLOCK(ALWAYS, NEXT_BLOCK, 0),
        GLOBAL(PLANTED, READ, 2, 0, LANE(0), 0, 0, 4),
        GLOBAL(MENDED, READ, 2, 0, LANE(0), 4, 0, 4)}},
    {"a block reads a counter that others count up", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, ATOMIC, 0, 0, ALL, 0, 0, 4),
        GLOBAL(ALWAYS, ATOMIC, 1, 0, LANE(31), 0, 0, 4),
        GLOBAL(PLANTED, READ, 1, 0, LANE(31), 0, 0, 4),
        GLOBAL(MENDED, ATOMIC, 1, 0, LANE(31), 0, 0, 4)}},

    /* ---- the read-only path ---- */
    {"the read-only path to what the thread wrote itself", "not ordered: reads as constant", false,
     {
        GLOBAL(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        GLOBAL(PLANTED, CONSTANT, 0, 0, LANE(0), 0, 0, 4),
        GLOBAL(MENDED, READ, 0, 0, LANE(0), 0, 0, 4)}},
    {"a write to what came by the read-only path", "not ordered: writes global", false, {
        GLOBAL(PLANTED, CONSTANT, 0, 0, LANE(0), 0, 0, 4),
        GLOBAL(MENDED, READ, 0, 0, LANE(0), 0, 0, 4), BARRIER(ALWAYS),
        GLOBAL(ALWAYS, WRITE, 0, 0, LANE(0), 0, 0, 4)}},

    /* ---- asynchronous copies ---- */
    {"a thread reads its copy without having waited", "not ordered: reads shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(MENDED, 0, ALL),
        SHARED(ALWAYS, READ, 0, 0, LANE(4), 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a barrier in place of a wait", "not ordered: reads shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(MENDED, 0, ALL), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 1, ALL, 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a wait without a barrier", "not ordered: reads shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(ALWAYS, 0, ALL), BARRIER(MENDED),
        SHARED(ALWAYS, READ, 0, 1, ALL, 0, 16, 16)}},
    {"some lanes do not wait for their copies", "not ordered: reads shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(PLANTED, 0, ALL & ~LANE(30)),
        WAIT(MENDED, 0, ALL), BARRIER(ALWAYS), SHARED(ALWAYS, MATRIX, 0, 1, ALL, 0, 16, 16)}},
    {"zeros in flight are read", "not ordered: reads shared", false, {
        COPY_ZERO(ALWAYS, 0, ALL, 0, 16, 16), WAIT(MENDED, 0, ALL),
        SHARED(ALWAYS, READ, 0, 0, ALL, 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a copy's target is written while it flies", "not ordered: writes shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(MENDED, 0, ALL),
        SHARED(ALWAYS, WRITE, 0, 0, LANE(4), 0, 16, 4), WAIT(ALWAYS, 0, ALL)}},
    {"two copies fly to one target", "not ordered: writes shared", false, {
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(MENDED, 0, ALL),
        COPY(ALWAYS, 0, ALL, 512, 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a copy begins while its target may be read", "not ordered: writes shared", false, {
        SHARED(ALWAYS, WRITE, 0, 1, ALL, 0, 16, 16), BARRIER(ALWAYS),
        SHARED(ALWAYS, READ, 0, 1, ALL, 0, 16, 16), BARRIER(MENDED),
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a copy's source is written by its own thread", "not ordered: writes global", false, {
        COPY(ALWAYS, 0, LANE(2), 0, 0, 16, 16), WAIT(MENDED, 0, ALL),
        GLOBAL(ALWAYS, WRITE, 0, 0, LANE(2), 0, 16, 4), WAIT(ALWAYS, 0, ALL)}},
    {"the first of two copies' sources is written", "not ordered: writes global", false, {
        COPY(ALWAYS, 0, LANE(2), 1024, 0, 16, 16), COPY(ALWAYS, 0, LANE(3), 0, 0, 16, 16),
        WAIT(MENDED, 0, ALL), GLOBAL(ALWAYS, WRITE, 0, 0, LANE(2), 1024, 16, 4),
        WAIT(ALWAYS, 0, ALL)}},
    {"a copy's source is written after a barrier, before its wait", "not ordered: writes global",
     false, {
        COPY(ALWAYS, 0, LANE(2), 0, 0, 16, 16), WAIT(MENDED, 0, ALL), BARRIER(ALWAYS),
        GLOBAL(ALWAYS, WRITE, 0, 1, LANE(2), 0, 16, 4), WAIT(ALWAYS, 0, ALL)}},
    {"a copy's source is written after its wait, without a barrier", "not ordered: writes global",
     false, {
        COPY(ALWAYS, 0, LANE(2), 0, 0, 16, 16), BARRIER(ALWAYS), WAIT(ALWAYS, 0, ALL),
        BARRIER(MENDED), GLOBAL(ALWAYS, WRITE, 0, 1, LANE(2), 0, 16, 4)}},
    {"a copy of what another warp just wrote", "not ordered: reads global", false, {
        GLOBAL(ALWAYS, WRITE, 0, 1, ALL, 0, 16, 16), BARRIER(MENDED),
        COPY(ALWAYS, 0, ALL, 0, 0, 16, 16), WAIT(ALWAYS, 0, ALL)}},
    {"a block ends while copies fly", "the block ends while 1 ", false, {
        COPY(ALWAYS, 0, LANE(2) | LANE(3), 0, 0, 16, 16), WAIT(ALWAYS, 0, LANE(3)),
        WAIT(MENDED, 0, LANE(2)), BLOCK(ALWAYS, END_BLOCK, 0)}},

    /* ---- what is refused because nothing is known of it ---- */
    {"a barrier of some warps", "a barrier or join of some", false, {
        {STEP_BARRIER_PART, PTX_SHARED, 0, 0, ALL, 0, 0, 0, 0, PLANTED}, BARRIER(MENDED),
        SHARED(ALWAYS, WRITE, 0, 1, ALL, 0, 4, 4)}},
    {"a join of some lanes", "a barrier or join of some", false, {
        {STEP_JOIN_WARP, PTX_SHARED, 0, 0, 0xffff, 0, 0, 0, 0, PLANTED}, JOIN(MENDED, 0),
        SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4)}},
    {"lanes that were missing come to the next join", "a join of some lanes", false, {
        {STEP_JOIN_WARP, PTX_SHARED, 0, 0, 0xffff, 0, 0, 0, 0, PLANTED}, JOIN(ALWAYS, 0),
        BLOCK(ALWAYS, END_BLOCK, 0)}},
    {"a write of one byte", "order is kept of two bytes", false, {
        SHARED(PLANTED, WRITE, 0, 0, ALL, 0, 1, 1), SHARED(MENDED, WRITE, 0, 0, ALL, 0, 2, 2)}},
};
/* clang-format on */

enum { PLANTED_FAULT_COUNT = sizeof PLANTED_FAULTS / sizeof PLANTED_FAULTS[0] };

#endif
