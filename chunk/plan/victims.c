/* Binary heaps that know where each object lies, so that an object leaves or moves in O(log n). */
#include "victims.h"

#include <stdbool.h>
#include <stdlib.h>

void sl_victims_close(sl_victims *victims)
{
    for (uint32_t c = 0; c < SL_VICTIM_CLASSES; c++)
        free(victims->heap[c]);
    free(victims->need);
    free(victims->slot);
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
    victims.slot = calloc(count, sizeof *victims.slot);
    victims.victim_class = calloc(count, sizeof *victims.victim_class);
    if (!is_there || !victims.need || !victims.slot || !victims.victim_class) {
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

static void set(sl_victims *victims, uint32_t victim_class, uint32_t slot, uint32_t object)
{
    victims->heap[victim_class][slot] = object;
    victims->slot[object] = slot;
}

/* Finds the place of `object` from `slot` on, towards the top and then away from it. */
static void sift(sl_victims *victims, uint32_t victim_class, uint32_t slot, uint32_t object)
{
    uint32_t *heap = victims->heap[victim_class], count = victims->count[victim_class];
    for (; slot > 0 && is_before(victims, object, heap[(slot - 1) / 2]); slot = (slot - 1) / 2)
        set(victims, victim_class, slot, heap[(slot - 1) / 2]);
    for (uint32_t child = 2 * slot + 1; child < count; child = 2 * slot + 1) {
        if (child + 1 < count && is_before(victims, heap[child + 1], heap[child]))
            child++;
        if (!is_before(victims, heap[child], object))
            break;
        set(victims, victim_class, slot, heap[child]);
        slot = child;
    }
    set(victims, victim_class, slot, object);
}

void sl_victims_remove(sl_victims *victims, uint32_t object)
{
    uint32_t victim_class = victims->victim_class[object];
    if (victim_class == SL_VICTIM_CLASSES)
        return;
    victims->victim_class[object] = SL_VICTIM_CLASSES;
    uint32_t last = victims->heap[victim_class][--victims->count[victim_class]];
    if (last != object)
        sift(victims, victim_class, victims->slot[object], last);
}

void sl_victims_put(sl_victims *victims, uint32_t object, uint32_t victim_class, uint64_t need)
{
    sl_victims_remove(victims, object);
    victims->need[object] = need;
    victims->victim_class[object] = (uint8_t)victim_class;
    uint32_t slot = victims->count[victim_class]++;
    sift(victims, victim_class, slot, object);
}

uint32_t sl_victims_top(const sl_victims *victims, uint32_t victim_class)
{
    return victims->count[victim_class] ? victims->heap[victim_class][0] : UINT32_MAX;
}
