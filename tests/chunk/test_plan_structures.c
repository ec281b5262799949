/* The two structures that planning finds victims and room with, against plain scans.
 *
 * What could be wrong: a search that misses a tick or names the wrong one, a range that is one
 * short, a heap whose top is not needed last or that keeps an object that left. Random operations
 * are done on both sides and every answer is compared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chunk/plan/tick_tree.h"
#include "chunk/plan/victims.h"

enum { MOST = 70, STEPS = 300 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 161803;
}

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t bound)
{
    return (uint32_t)sl_rng_below(seed, 29, (*counter)++, bound);
}

static void compare_searches(const sl_tick_tree *tree, const int64_t *values, uint32_t first,
                             uint32_t end, int64_t bound)
{
    uint32_t lowest = SL_NO_TICK, highest = SL_NO_TICK;
    for (uint32_t tick = first; tick < end; tick++) {
        if (values[tick] >= bound)
            continue;
        lowest = lowest == SL_NO_TICK ? tick : lowest;
        highest = tick;
    }
    assert_int_equal(sl_tick_tree_find_first(tree, first, end, bound), lowest);
    assert_int_equal(sl_tick_tree_find_last(tree, first, end, bound), highest);
}

static void tree_when_ranges_change_then_finds_what_a_scan_finds(void **state)
{
    (void)state;
    printf("seed %llu\n", (unsigned long long)base_seed());
    for (uint64_t seed = base_seed(); seed < base_seed() + 200; seed++) {
        uint64_t n = 0;
        uint32_t count = 1 + draw(seed, &n, MOST);
        int64_t values[MOST];
        sl_tick_tree tree;
        for (uint32_t tick = 0; tick < count; tick++)
            values[tick] = draw(seed, &n, 10);
        assert_int_equal(sl_tick_tree_open(values, count, &tree), SL_OK);
        for (int k = 0; k < STEPS; k++) {
            uint32_t first = draw(seed, &n, count), end = first + draw(seed, &n, count - first + 1);
            int64_t added = (int64_t)draw(seed, &n, 9) - 4;
            sl_tick_tree_add(&tree, first, end, added);
            for (uint32_t tick = first; tick < end; tick++)
                values[tick] += added;
            first = draw(seed, &n, count);
            end = first + draw(seed, &n, count - first + 1);
            compare_searches(&tree, values, first, end, (int64_t)draw(seed, &n, 20) - 5);
        }
        sl_tick_tree_close(&tree);
    }
}

typedef struct candidate {
    uint32_t victim_class; /* SL_VICTIM_CLASSES: none */
    uint64_t need;
} candidate;

static uint32_t scan_top(const candidate *candidates, uint32_t count, uint32_t victim_class)
{
    uint32_t top = UINT32_MAX;
    for (uint32_t o = 0; o < count; o++)
        if (candidates[o].victim_class == victim_class &&
            (top == UINT32_MAX || candidates[o].need > candidates[top].need))
            top = o;
    return top;
}

static void victims_when_put_and_removed_then_the_top_is_needed_last(void **state)
{
    (void)state;
    for (uint64_t seed = base_seed(); seed < base_seed() + 200; seed++) {
        uint64_t n = 0;
        uint32_t count = 1 + draw(seed, &n, MOST);
        candidate candidates[MOST];
        sl_victims victims;
        assert_int_equal(sl_victims_open(count, &victims), SL_OK);
        for (uint32_t o = 0; o < count; o++)
            candidates[o].victim_class = SL_VICTIM_CLASSES;
        for (int k = 0; k < STEPS; k++) {
            uint32_t o = draw(seed, &n, count), deed = draw(seed, &n, 100);
            candidate drawn = {draw(seed, &n, SL_VICTIM_CLASSES), draw(seed, &n, 40)};
            if (deed < 70) {
                sl_victims_put(&victims, o, drawn.victim_class, drawn.need);
                candidates[o] = drawn;
            } else if (deed < 99) {
                sl_victims_remove(&victims, o);
                candidates[o].victim_class = SL_VICTIM_CLASSES;
            } else {
                sl_victims_clear(&victims);
                for (uint32_t c = 0; c < count; c++)
                    candidates[c].victim_class = SL_VICTIM_CLASSES;
            }
            for (uint32_t c = 0; c < SL_VICTIM_CLASSES; c++)
                assert_int_equal(sl_victims_top(&victims, c), scan_top(candidates, count, c));
        }
        sl_victims_close(&victims);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_when_ranges_change_then_finds_what_a_scan_finds),
        cmocka_unit_test(victims_when_put_and_removed_then_the_top_is_needed_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
