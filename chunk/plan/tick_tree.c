/* A segment tree in an array: node 1 is the root, node n has the children 2n and 2n + 1, the leaves
 * begin at leaf_count. A number that is added to a range is stored at the highest nodes that the
 * range covers.
 */
#include "tick_tree.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MOST_LEVELS = 32 };

static void refresh_node(sl_tick_tree *tree, uint32_t node)
{
    const size_t child = 2 * (size_t)node;
    int64_t left = tree->least[child], right = tree->least[child + 1];
    tree->least[node] = (left < right ? left : right) + tree->added[node];
}

void sl_tick_tree_close(sl_tick_tree *tree)
{
    free(tree->least);
    free(tree->added);
    *tree = (sl_tick_tree){0};
}

sl_status sl_tick_tree_open(const int64_t *values, uint32_t tick_count, sl_tick_tree *out_tree)
{
    if (tick_count > UINT32_MAX / 4)
        SL_FAIL(SL_ERROR_SYSTEM, "a step of %u ops is too long to plan", tick_count);
    sl_tick_tree tree = {.leaf_count = 1};
    while (tree.leaf_count < tick_count)
        tree.leaf_count *= 2;
    tree.least = calloc(2 * (uint64_t)tree.leaf_count, sizeof *tree.least);
    tree.added = calloc(2 * (uint64_t)tree.leaf_count, sizeof *tree.added);
    if (!tree.least || !tree.added) {
        sl_tick_tree_close(&tree);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ticks", tick_count);
    }
    for (uint32_t tick = 0; tick < tree.leaf_count; tick++)
        tree.least[tree.leaf_count + tick] = tick < tick_count ? values[tick] : INT64_MAX / 2;
    for (uint32_t node = tree.leaf_count - 1; node > 0; node--)
        refresh_node(&tree, node);
    *out_tree = tree;
    return SL_OK;
}

/* Writes the nodes that cover [first, end) exactly, from left to right; returns their number. */
static int cover_range(const sl_tick_tree *tree, uint32_t first, uint32_t end,
                       uint32_t nodes[2 * MOST_LEVELS])
{
    uint32_t right[MOST_LEVELS];
    int count = 0, right_count = 0;
    uint32_t a = first + tree->leaf_count, b = end + tree->leaf_count;
    for (; a < b; a /= 2, b /= 2) {
        if (a % 2)
            nodes[count++] = a++;
        if (b % 2)
            right[right_count++] = --b;
    }
    while (right_count > 0)
        nodes[count++] = right[--right_count];
    return count;
}

void sl_tick_tree_add(sl_tick_tree *tree, uint32_t first, uint32_t end, int64_t added)
{
    if (first >= end)
        return;
    uint32_t nodes[2 * MOST_LEVELS];
    for (int n = cover_range(tree, first, end, nodes); n-- > 0;) {
        tree->least[nodes[n]] += added;
        tree->added[nodes[n]] += added;
    }
    for (uint32_t node = (first + tree->leaf_count) / 2; node > 0; node /= 2)
        refresh_node(tree, node);
    for (uint32_t node = (end - 1 + tree->leaf_count) / 2; node > 0; node /= 2)
        refresh_node(tree, node);
}

/* The leftmost or rightmost tick below `node` whose number is below `bound`; SL_NO_TICK: none. */
static uint32_t find_below(const sl_tick_tree *tree, uint32_t node, int64_t bound, bool is_first)
{
    int64_t above = 0;
    for (uint32_t ancestor = node / 2; ancestor > 0; ancestor /= 2)
        above += tree->added[ancestor];
    if (tree->least[node] + above >= bound)
        return SL_NO_TICK;
    while (node < tree->leaf_count) {
        above += tree->added[node];
        uint32_t nearer = 2 * node + (is_first ? 0 : 1);
        node = tree->least[nearer] + above < bound ? nearer : nearer ^ 1;
    }
    return node - tree->leaf_count;
}

uint32_t sl_tick_tree_find_first(const sl_tick_tree *tree, uint32_t first, uint32_t end,
                                 int64_t bound)
{
    uint32_t nodes[2 * MOST_LEVELS], found = SL_NO_TICK;
    int count = first < end ? cover_range(tree, first, end, nodes) : 0;
    for (int n = 0; n < count && found == SL_NO_TICK; n++)
        found = find_below(tree, nodes[n], bound, true);
    return found;
}

uint32_t sl_tick_tree_find_last(const sl_tick_tree *tree, uint32_t first, uint32_t end,
                                int64_t bound)
{
    uint32_t nodes[2 * MOST_LEVELS], found = SL_NO_TICK;
    int count = first < end ? cover_range(tree, first, end, nodes) : 0;
    for (int n = count; n-- > 0 && found == SL_NO_TICK;)
        found = find_below(tree, nodes[n], bound, false);
    return found;
}
