/* What a launch does to memory: a watcher of ptx.h that refuses wrong accesses and counts traffic.
 *
 *   ranges.c   which global memory there is, and which of its bytes were ever written
 *   races.c    what orders two accesses to the same bytes: a pair that nothing orders is refused
 *   traffic.c  how many sectors and shared-memory wavefronts each instruction takes
 *   stretch.c  one instruction's 32 addresses as stretches of memory, for all three
 *
 * A launch is refused when it
 *   - touches global memory outside of every range, or over the end of one;
 *   - reads a byte that nobody wrote, in global, shared or local memory;
 *   - makes two accesses to the same bytes of shared or global memory, one of them a write, that
 *     nothing orders: whatever the schedule was that it ran under (races.h states what orders);
 *   - reads through the read-only path (ld.global.nc) what the launch writes;
 *   - ends a block while a copy is in flight.
 * Alignment and the bounds of shared and local memory are the interpreter's.
 *
 * Any number of launches and calls may run at once. A launch reads the list of ranges from begin to
 * end, so ptx_shadow_open_range and ptx_shadow_close_range wait until those that run have ended;
 * what a launch calls must not wait for them. */
#ifndef PTX_SHADOW_H
#define PTX_SHADOW_H

#include "ptx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ptx_shadow ptx_shadow;

/* Tells of global memory that one launch touched, in ascending order; pieces that meet are one, and
 * begin and end at even addresses. */
typedef void (*ptx_shadow_touch)(void *context, uint64_t start, uint64_t bytes, bool is_write);

/* All zero: every check and no counts. */
typedef struct ptx_shadow_options {
    bool skips_values; /* which bytes were written is kept, but reads are not checked */
    bool skips_order;
    bool counts_traffic;
    /* Called when a launch ended, in its thread, first for what was read, then for what was
     * written; an atomic operation writes. It may wait for calls of this file. NULL: nobody asks.
     * Needs order. */
    ptx_shadow_touch touch;
    void *touch_context;
} ptx_shadow_options;

/* NULL: no memory. */
ptx_shadow *ptx_shadow_open(const ptx_shadow_options *options);
void ptx_shadow_close(ptx_shadow *shadow);

/* To be given to launches; valid until the shadow closes. */
const ptx_watch *ptx_shadow_watch(ptx_shadow *shadow);

/* ---- global memory ---- */

/* From now on launches may touch these bytes; is_written: all have a value, as far as anyone knows.
 * Ranges may meet but not overlap: false then, or without memory. */
bool ptx_shadow_open_range(ptx_shadow *shadow, const void *start, uint64_t bytes, bool is_written);

/* False: no range starts there. */
bool ptx_shadow_close_range(ptx_shadow *shadow, const void *start);

/* Somebody else wrote these bytes: a copy from the host, a set. Bytes outside of ranges are left
 * out, in both calls. */
void ptx_shadow_written(ptx_shadow *shadow, const void *start, uint64_t bytes);

/* Device memory was copied: bytes have a value where their source has one, or is no range. */
void ptx_shadow_copied(ptx_shadow *shadow, const void *to, const void *from, uint64_t bytes);

/* ---- traffic ---- */

/* Of one instruction over all launches that ended. A request is one group of lanes.
 *
 * global_...  those of global memory: an asynchronous copy is a request there and one of shared
 *             memory
 * sectors     global memory: different 32-byte sectors that a request touches
 * wavefronts  shared memory: passes that a request takes. 32 banks of 4 bytes; 8 bytes a lane go as
 *             two halves of a warp, 16 as four quarters; lanes that read one word share it. What a
 *             GPU adds or saves beyond this rule is not known here.
 * least       the passes if no two words shared a bank: wavefronts - least are conflicts */
typedef struct ptx_traffic {
    uint64_t requests, lanes, bytes;
    uint64_t global_requests, global_bytes, sectors;
    uint64_t wavefronts, least;
} ptx_traffic;

/* All zero for an instruction that touched nothing, or without counts_traffic. */
ptx_traffic ptx_shadow_traffic(ptx_shadow *shadow, const ptx_kernel *kernel, uint32_t instruction);

#ifdef __cplusplus
}
#endif
#endif
