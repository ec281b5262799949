/* One number for each tick. A range of ticks is changed in O(log n) steps; the first or last tick
 * with a small number is found in O(log^2 n) steps.
 */
#ifndef SL_CHUNK_PLAN_TICK_TREE_H
#define SL_CHUNK_PLAN_TICK_TREE_H

#include <stdint.h>

#include "base/status.h"

#define SL_NO_TICK UINT32_MAX

typedef struct sl_tick_tree {
    uint32_t leaf_count; /* a power of two */
    int64_t *least;      /* [2 leaf_count]: the least number below the node, see `added` */
    int64_t *added;      /* [2 leaf_count]: added to all numbers below the node; `least` has the
                          * node's own `added`, but not those of its ancestors */
} sl_tick_tree;

/* Makes a tree of the numbers values[0 .. tick_count). */
sl_status sl_tick_tree_open(const int64_t *values, uint32_t tick_count, sl_tick_tree *out_tree);
void sl_tick_tree_close(sl_tick_tree *tree);

/* Adds `added` to the numbers of ticks [first, end). */
void sl_tick_tree_add(sl_tick_tree *tree, uint32_t first, uint32_t end, int64_t added);

/* The first and the last tick of [first, end) whose number is below `bound`, or SL_NO_TICK. */
uint32_t sl_tick_tree_find_first(const sl_tick_tree *tree, uint32_t first, uint32_t end,
                                 int64_t bound);
uint32_t sl_tick_tree_find_last(const sl_tick_tree *tree, uint32_t first, uint32_t end,
                                int64_t bound);

#endif
