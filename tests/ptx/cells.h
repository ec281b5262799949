/* Who touched two bytes of memory last, in one launch: a cell. What orders two accesses is
 * races.c's matter; this is the arithmetic on cells, in loops that compilers make vectors of.
 *
 * An epoch is one word: when (the block's time, which counts joins), who, and how.
 *
 *     bits 13..30  time, from 1; all ones: an asynchronous copy in flight
 *     bit  12      ATOMIC
 *     bit  11      WARPS: threads of several warps
 *     bit  10      LANES: several lanes of a warp
 *     bits 0..9    thread of the block: the last one
 *
 * A cell has the epoch of its last write and the epoch of its last reads; atomic operations that
 * follow each other are kept as reads are. Of several readers one word is enough. All threads join
 * at a barrier, all lanes of a warp at bar.warp.sync, so a reader is ordered before a later access
 * if it read before the block's last barrier, or in the same warp before the warp's last join; and
 * of two readers of one warp the later one decides. Only readers since these joins are "several":
 * a read after one begins anew. Two warps that read since the last barrier: nobody may write before
 * the next, so who they are does not matter. */
#ifndef PTX_CELLS_H
#define PTX_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PTX_EPOCH_ATOMIC = 1 << 12,
    PTX_EPOCH_WARPS = 1 << 11,
    PTX_EPOCH_LANES = 1 << 10,
    PTX_EPOCH_SEVERAL = PTX_EPOCH_WARPS | PTX_EPOCH_LANES,
    PTX_EPOCH_THREAD = 1023,
    PTX_EPOCH_WARP = 1023 & ~31,
    PTX_EPOCH_TIME = 1 << 13, /* one step of time */
};

#define PTX_EPOCH_IN_FLIGHT (UINT32_C(0x7fffffff) / PTX_EPOCH_TIME * PTX_EPOCH_TIME)
#define PTX_BLOCKS_SEVERAL UINT32_MAX /* in place of a block: several, or the read-only path */

/* Cells side by side; cell i is bytes 2i and 2i + 1. Block: 1 + index in the grid, 0: nobody yet;
 * NULL where all cells are one block's own, which is shared memory. */
typedef struct ptx_cells {
    uint32_t *write, *read;
    uint32_t *write_block, *read_block;
} ptx_cells;

/* Who accesses: what all lanes of one instruction share. */
typedef struct ptx_agent {
    uint32_t base;      /* what is below is ordered before: the block's last barrier */
    uint32_t warp_base; /* the same in the own warp */
    uint32_t block;     /* 1 + its index */
} ptx_agent;

/* Cells side by side that one instruction touches. Cell i is the thread's at epoch + (i >>
 * lane_shift); LANES: all cells are touched by several lanes, `epoch` is one of them. */
typedef struct ptx_piece {
    ptx_cells cells;
    uint64_t address; /* of the first */
    uint32_t count, lane_shift;
    uint32_t epoch;
} ptx_piece;

static inline ptx_cells ptx_cells_from(ptx_cells cells, uint64_t first)
{
    return (ptx_cells){cells.write + first, cells.read + first,
                       cells.write_block ? cells.write_block + first : NULL,
                       cells.read_block ? cells.read_block + first : NULL};
}

/* What stands against an access: a cell of a piece, and whether its last write does or its reads.
 */
typedef struct ptx_conflict {
    uint32_t piece, cell;
    bool is_write;
} ptx_conflict;

/* Notes an access to `count` pieces, one after another. False, and *out: it is not ordered after
 * all that has to be before it.
 *
 *   read      after the writes
 *   constant  nobody wrote, and nobody shall: as if several blocks had read. Global memory only
 *   write     after writes and reads
 *   change    an atomic operation: after writes and reads, but other atomic operations */
bool ptx_cells_read(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                    ptx_conflict *out);
bool ptx_cells_read_constant(const ptx_piece *piece, uint32_t count, ptx_conflict *out);
bool ptx_cells_write(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                     ptx_conflict *out);
bool ptx_cells_change(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                      ptx_conflict *out);

/* Notes without a question: reads; writes, of one block's own memory. */
void ptx_cells_note_reads(const ptx_piece *piece, const ptx_agent *agent);
void ptx_cells_note_writes(const ptx_piece *piece);

#endif
