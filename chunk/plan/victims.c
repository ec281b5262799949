/* Binary heaps with the heap index of each object, so an object is removed or moved in O(log n). */
#include "victims.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

void sl_victims_close(sl_victims *victims)
{
    for (uint32_t c = 0; c < SL_VICTIM_CLASSES; c++)
        free(victims->heap[c]);
    free(victims->need);
    free(victims->heap_index);
    free(victims->victim_class);
    *victims = (sl_victims){0};
}

sl_status sl_victims_open(uint32_t object_count, sl_victims *out_victims)
{
    uint64_t count = (uint64_t)object_count + 1;
    sl_victims victims = {.object_count = object_count};
    bool is_there = true;
    for (uint32_t c = 0; c < SL_VICTIM_CLASSES; c++) {
        victims.heap[c] = calloc(count, sizeof *victims.heap[c]);
        is_there = is_there && victims.heap[c];
    }
    victims.need = calloc(count, sizeof *victims.need);
    victims.heap_index = calloc(count, sizeof *victims.heap_index);
    victims.victim_class = calloc(count, sizeof *victims.victim_class);
    if (!is_there || !victims.need || !victims.heap_index || !victims.victim_class) {
        sl_victims_close(&victims);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u chunks", object_count);
    }
    for (uint32_t o = 0; o < object_count; o++)
        victims.victim_class[o] = SL_VICTIM_CLASSES;
    *out_victims = victims;
    return SL_OK;
}

void sl_victims_clear(sl_victims *victims)
{
    for (uint32_t c = 0; c < SL_VICTIM_CLASSES; c++) {
        for (uint32_t n = 0; n < victims->count[c]; n++)
            victims->victim_class[victims->heap[c][n]] = SL_VICTIM_CLASSES;
        victims->count[c] = 0;
    }
}

static bool is_before(const sl_victims *victims, uint32_t a, uint32_t b)
{
    if (victims->need[a] != victims->need[b])
        return victims->need[a] > victims->need[b];
    return a < b;
}

static void place_in_heap(sl_victims *victims, uint32_t victim_class, uint32_t index,
                          uint32_t object)
{
    victims->heap[victim_class][index] = object;
    victims->heap_index[object] = index;
}

/* Puts `object` at `index` and moves it up or down to its place in the heap. */
static void sift_in_heap(sl_victims *victims, uint32_t victim_class, uint32_t index,
                         uint32_t object)
{
    uint32_t *heap = victims->heap[victim_class], count = victims->count[victim_class];
    for (; index > 0 && is_before(victims, object, heap[(index - 1) / 2]); index = (index - 1) / 2)
        place_in_heap(victims, victim_class, index, heap[(index - 1) / 2]);
    for (uint32_t child = 2 * index + 1; child < count; child = 2 * index + 1) {
        if (child + 1 < count && is_before(victims, heap[child + 1], heap[child]))
            child++;
        if (!is_before(victims, heap[child], object))
            break;
        place_in_heap(victims, victim_class, index, heap[child]);
        index = child;
    }
    place_in_heap(victims, victim_class, index, object);
    assert(index == 0 || !is_before(victims, object, heap[(index - 1) / 2]));
}

void sl_victims_remove(sl_victims *victims, uint32_t object)
{
    uint32_t victim_class = victims->victim_class[object];
    if (victim_class == SL_VICTIM_CLASSES)
        return;
    victims->victim_class[object] = SL_VICTIM_CLASSES;
    uint32_t last = victims->heap[victim_class][--victims->count[victim_class]];
    if (last != object)
        sift_in_heap(victims, victim_class, victims->heap_index[object], last);
}

void sl_victims_put(sl_victims *victims, uint32_t object, uint32_t victim_class, uint64_t need)
{
    sl_victims_remove(victims, object);
    victims->need[object] = need;
    victims->victim_class[object] = (uint8_t)victim_class;
    uint32_t index = victims->count[victim_class]++;
    sift_in_heap(victims, victim_class, index, object);
}

uint32_t sl_victims_top(const sl_victims *victims, uint32_t victim_class)
{
    return victims->count[victim_class] ? victims->heap[victim_class][0] : UINT32_MAX;
}

/* The score of a class's top: the candidate with the largest score is evicted. */
static double find_score(const sl_victims *victims, sl_weighting weighting, uint32_t victim_class,
                         uint64_t behind_loop, uint32_t tick)
{
    uint32_t object = sl_victims_top(victims, victim_class);
    bool is_dearer = victim_class == SL_VICTIM_DIRTY || victim_class == SL_VICTIM_LOOP_DIRTY;
    bool passes =
        behind_loop > 0 && (victim_class == SL_VICTIM_CLEAN || victim_class == SL_VICTIM_DIRTY);
    if (victim_class == SL_VICTIM_FREE)
        return 1e30;
    if (victim_class == SL_VICTIM_STRANDED)
        return 0.0;
    double distance = (double)(victims->need[object] + (passes ? behind_loop : 0) - tick);
    switch (weighting) {
    case SL_WEIGH_RATIO:
        return is_dearer ? distance / 2 : distance;
    case SL_WEIGH_COST:
        return distance + (is_dearer ? 0.0 : 1e12) + (passes ? 1e13 : 0.0);
    default:
        return distance;
    }
}

uint32_t sl_victims_choose(const sl_victims *victims, sl_weighting weighting, uint32_t tick,
                           uint64_t behind_loop)
{
    uint32_t victim = UINT32_MAX;
    double best = -1.0;
    for (uint32_t victim_class = 0; victim_class < SL_VICTIM_CLASSES; victim_class++) {
        uint32_t object = sl_victims_top(victims, victim_class);
        if (object == UINT32_MAX)
            continue;
        double score = find_score(victims, weighting, victim_class, behind_loop, tick);
        if (score > best || (score == best && object < victim)) {
            best = score;
            victim = object;
        }
    }
    return victim;
}
