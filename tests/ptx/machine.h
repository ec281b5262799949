/* What runs: a launch, its blocks under way, their warps. */
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H

#include "kernel.h"

/* Copies that a warp's lanes began with one instruction; `lanes` did not wait for theirs yet. */
typedef struct ptx_copy {
    uint64_t ticket;
    uint32_t lanes, reads; /* the others of `lanes` write zeros */
    uint32_t bytes;
    uint8_t *to[PTX_LANES];
    const uint8_t *from[PTX_LANES];
} ptx_copy;

typedef struct ptx_warp {
    uint8_t *base[2]; /* its file; the kernel's constants */
    struct ptx_block *block;
    ptx_place place;
    uint32_t pc[PTX_LANES];
    uint32_t live;      /* lanes that exist and did not end */
    uint32_t parked;    /* of them, those that wait for others, at their pc */
    bool is_at_barrier; /* all live lanes wait there, for the other warps */
    PTX_LIST(ptx_copy) copies;
} ptx_warp;

typedef struct ptx_block {
    bool is_running;
    uint64_t index;
    uint32_t coordinates[3];
    uint8_t *shared, *local; /* local: local_bytes for each thread */
    ptx_warp *warps;         /* [warp_count] of the run */
} ptx_block;

typedef struct ptx_run {
    const ptx_launch_args *args;
    ptx_kernel *kernel;
    const ptx_watch *watch; /* never NULL */
    void *watch_run;
    ptx_arithmetic_mode mode;
    uint8_t *params;
    uint32_t warp_count, thread_count, shared_bytes, slot_count;
    ptx_block *blocks;                              /* [slot_count] */
    uint64_t blocks_begun, block_count, block_step; /* the order of blocks: index * step + first */
    uint64_t random;
    uint64_t stretch_left;      /* instructions until another warp's turn */
    uint64_t instructions_left; /* until a fault */
    uint64_t *groups, *lanes;   /* by instruction */
    ptx_launch_counts counts;
    uint64_t ticket;
    ptx_fault *fault;
} ptx_run;

/* The operand at that place, for all lanes. */
static inline void *ptx_at(const ptx_warp *warp, uint32_t operand)
{
    return warp->base[operand >> 31] + (operand & ~PTX_IS_CONSTANT);
}

static inline uint32_t ptx_first_lane(uint32_t lanes)
{
    return (uint32_t)__builtin_ctz(lanes);
}

/* The next of the launch's random numbers. */
uint64_t ptx_draw(ptx_run *run);

/* Fills the launch's fault: place, instruction, reason; returns false. */
bool ptx_stop(ptx_run *run, const ptx_warp *warp, uint32_t pc, uint32_t lanes, const char *format,
              ...) __attribute__((format(printf, 5, 6)));

/* Writes lanes of a result from what was computed for all of them. */
void ptx_blend(void *to, const void *from, char letter, uint32_t lanes);

/* run.c: runs a warp until it ends, waits at a barrier or its stretch is over. */
bool ptx_warp_run(ptx_run *run, ptx_warp *warp);

/* memory.c: loads, stores, atomics, matrices and asynchronous copies, by those lanes. */
bool ptx_memory_run(ptx_run *run, ptx_warp *warp, uint32_t pc, uint32_t lanes);

/* The lanes wait for their copies, or end without. */
void ptx_memory_land(ptx_run *run, ptx_warp *warp, uint32_t lanes, bool waits);

#endif
