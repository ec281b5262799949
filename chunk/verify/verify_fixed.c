/* Checks what must be permanent, or the caller's between two iterations: homes, block flags, bounce
 * pieces, persistent slots; the slots of inputs and outputs. Allocations are checked one by one
 * before. */
#include <stdlib.h>

#include "verify.h"

/* A place, and whose it is. */
typedef struct holding {
    sl_place place;
    uint32_t object, index; /* of the allocation */
    uint64_t reach;         /* slots: the farthest end, up to this one */
} holding;

typedef struct holding_list {
    holding *holdings; /* [count], sorted */
    uint32_t count;
} holding_list;

static int compare_holdings(const void *a, const void *b)
{
    const holding *left = a, *right = b;
    const sl_place *x = &left->place, *y = &right->place;
    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (left->object > right->object) - (left->object < right->object);
}

/* The first that is not before `key`; the list's count if there is none. */
static uint32_t find_holding(const holding_list *list, const holding *key)
{
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_holdings(&list->holdings[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Is the place held, by `object` or, SL_NONE, by anybody? */
static bool is_held(const holding_list *list, const sl_place *place, uint32_t object)
{
    holding key = {.place = *place, .object = object == SL_NONE ? 0 : object};
    uint32_t found = find_holding(list, &key);
    return place->bytes == 0 ||
           (found < list->count && sl_verify_places_equal(&list->holdings[found].place, place) &&
            (object == SL_NONE || list->holdings[found].object == object));
}

/* ---- what is permanent ---- */

static sl_status check_homes(const sl_verify *verify, const holding_list *permanent)
{
    char name[SL_VERIFY_NAME_BYTES];
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; chunk < verify->homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (!is_held(permanent, &home, object))
                return sl_verify_reject(verify, "no permanent allocation holds the home of %s",
                                        sl_verify_name_object(verify, object, name));
        }
    return SL_OK;
}

static sl_status check_others(const sl_verify *verify, const holding_list *permanent)
{
    const sl_homes *homes = verify->homes;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sl_place flags = {.tier = (sl_tier)tier,
                          .offset = homes->flags_offset[tier],
                          .bytes = homes->flags_bytes[tier]};
        if (!is_held(permanent, &flags, SL_NONE))
            return sl_verify_reject(verify,
                                    "no permanent allocation holds the block flags of tier "
                                    "%s",
                                    sl_tier_name((sl_tier)tier));
    }
    sl_place bounce = {
        .tier = SL_TIER_HOST, .offset = homes->bounce_offset, .bytes = homes->bounce_bytes};
    if (!is_held(permanent, &bounce, SL_NONE))
        return sl_verify_reject(verify, "no permanent allocation holds the bounce pieces");
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place place = {.tier = SL_TIER_DEVICE,
                          .offset = homes->persistent_offset[i],
                          .bytes = homes->persistent_bytes[i]};
        if (!is_held(permanent, &place, SL_NONE))
            return sl_verify_reject(verify, "no permanent allocation holds persistent slot %u", i);
    }
    return SL_OK;
}

/* ---- between iterations ---- */

/* Lists the slots, with how far those before each reach. */
static void list_slots(const sl_verify *verify, holding_list *slots)
{
    slots->count = 0;
    for (uint32_t value = 0; value < verify->program->value_count; value++)
        if (verify->values[value].slot.bytes > 0)
            slots->holdings[slots->count++] =
                (holding){.place = verify->values[value].slot, .object = value};
    qsort(slots->holdings, slots->count, sizeof *slots->holdings, compare_holdings);
    for (uint32_t i = 0; i < slots->count; i++) {
        holding *it = &slots->holdings[i];
        uint64_t before = i > 0 ? it[-1].reach : 0, end = it->place.offset + it->place.bytes;
        it->reach = before > end ? before : end;
    }
}

/* Slots belong to the caller then, while the last commands may still run. */
static sl_status check_slots(const sl_verify *verify, const holding_list *slots, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    bool wraps = it->first_tick > it->last_tick;
    if (it->place.tier != SL_TIER_HOST || (!wraps && it->last_tick < op_count))
        return SL_OK;
    uint64_t end = it->place.offset + sl_place_extent(&it->place);
    holding key = {.place = {.tier = SL_TIER_HOST, .offset = end}};
    for (uint32_t i = find_holding(slots, &key); i > 0; i--) {
        const holding *slot = &slots->holdings[i - 1];
        if (slot->reach <= it->place.offset)
            break;
        if (sl_verify_allocation_object(verify, it) != slot->object &&
            sl_verify_places_overlap(&it->place, &slot->place))
            return sl_verify_reject_allocation(verify, index,
                                               "takes a slot between two iterations");
    }
    return SL_OK;
}

/* ---- all of it ---- */

static void list_permanent(const sl_verify *verify, holding_list *permanent)
{
    for (uint32_t i = 0; i < verify->plan->allocation_count; i++) {
        const sl_allocation *it = &verify->plan->allocations[i];
        if (it->is_permanent)
            permanent->holdings[permanent->count++] = (holding){
                .place = it->place, .object = sl_verify_allocation_object(verify, it), .index = i};
    }
    qsort(permanent->holdings, permanent->count, sizeof *permanent->holdings, compare_holdings);
}

static sl_status check_list(const sl_verify *verify, holding_list *list)
{
    list_permanent(verify, list);
    SL_TRY(check_homes(verify, list));
    SL_TRY(check_others(verify, list));
    list_slots(verify, list);
    for (uint32_t i = 0; i < verify->plan->allocation_count; i++)
        SL_TRY(check_slots(verify, list, i));
    return SL_OK;
}

sl_status sl_verify_fixed(const sl_verify *verify)
{
    size_t allocations = verify->plan->allocation_count, values = verify->program->value_count;
    holding_list list = {calloc(allocations + values + 1, sizeof *list.holdings), 0};
    if (!list.holdings)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %zu allocations", allocations);
    sl_status status = check_list(verify, &list);
    free(list.holdings);
    return status;
}
