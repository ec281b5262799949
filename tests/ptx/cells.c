#include "cells.h"

#include <string.h>

/* Loops over cells, compiled for wide vectors too where the machine may have them. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline))

/* ---- one cell ---- */

/* No branches: bits, so that it becomes a vector. */
INLINE uint32_t is_ordered(uint32_t epoch, uint32_t mine, const ptx_agent *a)
{
    const uint32_t differs = epoch ^ mine;
    const uint32_t is_same_warp = ((differs & PTX_EPOCH_WARP) | (epoch & PTX_EPOCH_WARPS)) == 0;
    const uint32_t is_same_thread =
        ((differs & PTX_EPOCH_THREAD) | ((epoch | mine) & PTX_EPOCH_SEVERAL)) == 0;
    return (uint32_t)(epoch < a->base) | (is_same_warp & (uint32_t)(epoch < a->warp_base)) |
           (is_same_thread & (uint32_t)(epoch < PTX_EPOCH_IN_FLIGHT));
}

INLINE uint32_t is_ordered_between(uint32_t epoch, uint32_t block, uint32_t mine,
                                   const ptx_agent *a)
{
    return (uint32_t)(block == 0) | ((uint32_t)(block == a->block) & is_ordered(epoch, mine, a));
}

/* What a cell of readers (or of atomic operations) becomes when one more comes. */
INLINE uint32_t add_epoch(uint32_t epoch, uint32_t mine, const ptx_agent *a)
{
    const uint32_t differs = epoch ^ mine;
    const uint32_t is_other = (differs & PTX_EPOCH_THREAD) != 0;
    const uint32_t lanes = mine | (epoch & PTX_EPOCH_LANES) | is_other * PTX_EPOCH_LANES;
    const uint32_t same_warp = epoch < a->warp_base ? mine : lanes;
    const uint32_t others = (differs & PTX_EPOCH_WARP) == 0 ? same_warp : mine | PTX_EPOCH_WARPS;
    const uint32_t since = (epoch & PTX_EPOCH_WARPS) != 0 ? epoch : others;
    return epoch < a->base ? mine : since;
}

INLINE uint32_t mine_at(const ptx_piece *p, uint32_t cell)
{
    return p->epoch + (cell >> p->lane_shift);
}

/* ---- loops ---- */

INLINE uint32_t find_most(const uint32_t *word, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = word[i] > most ? word[i] : most;
    return most;
}

/* Most accesses follow a barrier: one comparison a cell shows it. */
INLINE bool follows(const uint32_t *epoch, const uint32_t *block, uint32_t count,
                    const ptx_piece *p, const ptx_agent *a)
{
    if (block ? find_most(block, count) == 0 : find_most(epoch, count) < a->base)
        return true;
    uint32_t is_bad = 0;
    for (uint32_t i = 0; i < count; i++)
        is_bad |= 1 ^ (block ? is_ordered_between(epoch[i], block[i], mine_at(p, i), a)
                             : is_ordered(epoch[i], mine_at(p, i), a));
    return is_bad == 0;
}

INLINE void fill(uint32_t *epoch, uint32_t *block, uint32_t count, const ptx_piece *p,
                 const ptx_agent *a)
{
    for (uint32_t i = 0; i < count; i++)
        epoch[i] = mine_at(p, i);
    for (uint32_t i = 0; block && i < count; i++)
        block[i] = a->block;
}

INLINE void add_reads(uint32_t *epoch, uint32_t *block, uint32_t count, const ptx_piece *p,
                      const ptx_agent *a)
{
    if (block ? find_most(block, count) == 0 : find_most(epoch, count) < a->base) {
        fill(epoch, block, count, p, a);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t mine = mine_at(p, i), added = add_epoch(epoch[i], mine, a);
        epoch[i] = !block || block[i] == a->block ? added : mine;
    }
    for (uint32_t i = 0; block && i < count; i++)
        block[i] = block[i] == 0 || block[i] == a->block ? a->block : PTX_BLOCKS_SEVERAL;
}

/* ---- pieces ---- */

/* All words of an even count are the same: what one lane or one instruction of a warp touches
 * mostly was touched as one before. */
INLINE bool is_uniform(const uint32_t *word, uint32_t count)
{
    uint64_t first, pair, differs;
    memcpy(&first, word, sizeof first);
    differs = first ^ (first << 32 | first >> 32);
    for (uint32_t i = 2; i < count; i += 2) {
        memcpy(&pair, &word[i], sizeof pair);
        differs |= pair ^ first;
    }
    return differs == 0;
}

/* What one thread, or a warp as one, does to few cells of its block's own memory. */
INLINE bool is_small(const ptx_piece *p)
{
    return !p->cells.write_block && p->lane_shift == 31 && p->count % 2 == 0;
}

INLINE bool follows_small(const uint32_t *epoch, const ptx_piece *p, const ptx_agent *a)
{
    return is_uniform(epoch, p->count) ? is_ordered(epoch[0], p->epoch, a) != 0
                                       : follows(epoch, NULL, p->count, p, a);
}

INLINE void fill_small(uint32_t *epoch, uint32_t count, uint32_t mine)
{
    const uint64_t pair = (uint64_t)mine << 32 | mine;
    for (uint32_t i = 0; i < count; i += 2)
        memcpy(&epoch[i], &pair, sizeof pair);
}

INLINE bool read_small(const ptx_piece *p, const ptx_agent *a)
{
    if (!follows_small(p->cells.write, p, a))
        return false;
    uint32_t *read = p->cells.read;
    if (!is_uniform(read, p->count)) {
        add_reads(read, NULL, p->count, p, a);
        return true;
    }
    const uint32_t added = add_epoch(read[0], p->epoch, a);
    if (added != read[0])
        fill_small(read, p->count, added);
    return true;
}

INLINE bool write_small(const ptx_piece *p, const ptx_agent *a)
{
    if (!follows_small(p->cells.write, p, a) || !follows_small(p->cells.read, p, a))
        return false;
    fill_small(p->cells.write, p->count, p->epoch);
    return true;
}

INLINE bool read_piece(const ptx_piece *piece, bool is_global, const ptx_agent *a)
{
    const ptx_piece own = *piece, *p = &own; /* which no cell can be part of */
    uint32_t *write_block = is_global ? p->cells.write_block : NULL;
    uint32_t *read_block = is_global ? p->cells.read_block : NULL;
    if (!follows(p->cells.write, write_block, p->count, p, a))
        return false;
    add_reads(p->cells.read, read_block, p->count, p, a);
    return true;
}

INLINE bool write_piece(const ptx_piece *piece, bool is_global, const ptx_agent *a)
{
    const ptx_piece own = *piece, *p = &own; /* which no cell can be part of */
    uint32_t *write_block = is_global ? p->cells.write_block : NULL;
    uint32_t *read_block = is_global ? p->cells.read_block : NULL;
    if (!follows(p->cells.write, write_block, p->count, p, a) ||
        !follows(p->cells.read, read_block, p->count, p, a))
        return false;
    fill(p->cells.write, write_block, p->count, p, a);
    return true;
}

/* The first cell of a piece that is not ordered, if its last write is in question or its reads. */
static uint32_t find_first(const ptx_piece *p, bool is_write, const ptx_agent *a)
{
    const uint32_t *epoch = is_write ? p->cells.write : p->cells.read;
    const uint32_t *block = is_write ? p->cells.write_block : p->cells.read_block;
    uint32_t i = 0;
    while (i < p->count &&
           is_ordered_between(epoch[i], block ? block[i] : a->block, mine_at(p, i), a))
        i++;
    return i;
}

static bool report(const ptx_piece *piece, uint32_t index, const ptx_agent *a, ptx_conflict *out)
{
    const uint32_t cell = find_first(&piece[index], true, a);
    out->piece = index;
    out->is_write = cell < piece[index].count;
    out->cell = out->is_write ? cell : find_first(&piece[index], false, a);
    return false;
}

WIDE bool ptx_cells_read(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                         ptx_conflict *out)
{
    const ptx_agent a = *agent;
    for (uint32_t i = 0; i < count; i++) {
        const ptx_piece *p = &piece[i];
        const bool is_fine = is_small(p)                    ? read_small(p, &a)
                             : p->cells.write_block != NULL ? read_piece(p, true, &a)
                                                            : read_piece(p, false, &a);
        if (!is_fine)
            return report(piece, i, agent, out);
    }
    return true;
}

WIDE bool ptx_cells_write(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                          ptx_conflict *out)
{
    const ptx_agent a = *agent;
    for (uint32_t i = 0; i < count; i++) {
        const ptx_piece *p = &piece[i];
        const bool is_fine = is_small(p)                    ? write_small(p, &a)
                             : p->cells.write_block != NULL ? write_piece(p, true, &a)
                                                            : write_piece(p, false, &a);
        if (!is_fine)
            return report(piece, i, agent, out);
    }
    return true;
}

bool ptx_cells_read_constant(const ptx_piece *piece, uint32_t count, ptx_conflict *out)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t cell = 0; cell < piece[i].count; cell++) {
            if (piece[i].cells.write_block[cell] != 0) {
                *out = (ptx_conflict){.piece = i, .cell = cell, .is_write = true};
                return false;
            }
            piece[i].cells.read_block[cell] = PTX_BLOCKS_SEVERAL;
        }
    return true;
}

WIDE void ptx_cells_note_reads(const ptx_piece *piece, const ptx_agent *agent)
{
    add_reads(piece->cells.read, piece->cells.read_block, piece->count, piece, agent);
}

WIDE void ptx_cells_note_writes(const ptx_piece *piece)
{
    fill(piece->cells.write, NULL, piece->count, piece, NULL);
}

/* ---- atomic operations ---- */

/* What a plain write was that an atomic operation follows: the operations that come need not follow
 * that one, but all of them this write. So it is kept among the reads, unless one came since, which
 * is ordered after it. */
static void keep_plain_write(ptx_cells cells, const ptx_agent *a)
{
    const uint32_t write = *cells.write, time = write / PTX_EPOCH_TIME;
    const bool is_own = !cells.write_block || *cells.write_block == a->block;
    if (!is_own || (write & PTX_EPOCH_ATOMIC) || write < a->base)
        return;
    if (cells.read_block && *cells.read_block == 0)
        *cells.read_block = a->block;
    else if (*cells.read / PTX_EPOCH_TIME > time)
        return;
    *cells.read = write;
}

/* Like a write that is ordered with the other atomic operations. */
static bool change_cell(ptx_cells cells, uint32_t epoch, const ptx_agent *a)
{
    const uint32_t mine = epoch | PTX_EPOCH_ATOMIC, last = *cells.write;
    uint32_t own_block = a->block, *block = cells.write_block ? cells.write_block : &own_block;
    const uint32_t read_block = cells.read_block ? *cells.read_block : a->block;
    const bool follows_atomic = *block != 0 && (last & PTX_EPOCH_ATOMIC) != 0;
    if (!is_ordered_between(*cells.read, read_block, epoch, a) ||
        (!follows_atomic && !is_ordered_between(last, *block, epoch, a)))
        return false;
    const bool is_own = *block == a->block;
    keep_plain_write(cells, a);
    *cells.write = follows_atomic && is_own ? add_epoch(last, mine, a) : mine;
    *block = follows_atomic && !is_own ? PTX_BLOCKS_SEVERAL : a->block;
    return true;
}

bool ptx_cells_change(const ptx_piece *piece, uint32_t count, const ptx_agent *agent,
                      ptx_conflict *out)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t cell = 0; cell < piece[i].count; cell++) {
            const ptx_piece one = {.cells = ptx_cells_from(piece[i].cells, cell),
                                   .count = 1,
                                   .epoch = mine_at(&piece[i], cell)};
            if (change_cell(one.cells, one.epoch, agent))
                continue;
            const bool is_read = find_first(&one, false, agent) == 0;
            *out = (ptx_conflict){.piece = i, .cell = cell, .is_write = !is_read};
            return false;
        }
    return true;
}
