/* Order within one launch: two accesses to the same bytes, one of them a write, that nothing orders
 * are refused when the second one comes. That does not depend on the schedule: what orders them is
 * in the program, not in the times at which they happened to run.
 *
 * Two accesses are ordered
 *   - by the program, in one thread;
 *   - by a barrier of the block (bar.sync, bar.red) or a join of the warp (bar.warp.sync) that came
 *     between them. Shuffles, votes and matrix instructions order nothing (PTX ISA);
 *   - atomic operations among themselves, which order nothing else: only relaxed ones are known.
 * Nothing orders blocks, so a byte that one block writes may not be touched by another.
 *
 * A load of matrices reads each row for all lanes. An asynchronous copy is an agent of its own: it
 * comes after what its thread did before, and before what that thread does once it has waited for
 * it; until then nobody may touch its target or write its source. A load by the read-only path may
 * read nothing that the launch writes, before or after it.
 *
 * Kept of two bytes (cells.h). So accesses of one byte may read global memory and do nothing else;
 * barriers are the whole block's and joins the whole warp's, where threads that have ended count as
 * having come. What is not so is refused as not handled. */
#ifndef PTX_RACES_H
#define PTX_RACES_H

#include "pages.h"
#include "shadow.h"
#include "stretch.h"

typedef struct ptx_races ptx_races; /* of one launch */

/* NULL: no memory, and out_fault says so. `pool` outlives it. */
ptx_races *ptx_races_open(const ptx_launch_shape *shape, ptx_page_pool *pool, ptx_fault *out_fault);
void ptx_races_close(ptx_races *races);

bool ptx_races_begin_block(ptx_races *races, const ptx_place *place, ptx_fault *out_fault);
bool ptx_races_end_block(ptx_races *races, const ptx_place *place, ptx_fault *out_fault);

/* An access, cut into its stretches, that lies inside its memory. */
bool ptx_races_access(ptx_races *races, const ptx_access *access, const ptx_stretch *stretch,
                      uint32_t stretch_count, ptx_fault *out_fault);

/* As those of ptx_watch. What they have to refuse is refused by the next call that can. */
void ptx_races_join_warp(ptx_races *races, const ptx_place *place, uint32_t lanes);
void ptx_races_join_block(ptx_races *races, const ptx_place *place, const uint32_t *lanes);

/* As copy_begin and copy_end of ptx_watch, whose tickets grow. */
bool ptx_races_begin_copy(ptx_races *races, uint64_t ticket, const ptx_access *from,
                          const ptx_access *to, ptx_fault *out_fault);
void ptx_races_end_copy(ptx_races *races, const ptx_place *place, uint64_t ticket, uint32_t lanes);

/* Tells of all global memory that was touched so far. */
bool ptx_races_tell_touched(ptx_races *races, ptx_shadow_touch touch, void *context);

#endif
