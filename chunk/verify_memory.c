/* Checks the list of allocations: what is permanent is where the homes say, no two that live at the
 * same tick overlap, every place of a command lies in one that lives, and the plan's sums are
 * theirs. Knows nothing of content and waits. */
#include <stdlib.h>

#include "verify.h"

enum { UNNAMED = SL_NONE - 1 }; /* the key of permanent things that are no object: the flags */

/* An allocation under the key by which commands look for it. */
typedef struct entry {
    sl_tier tier;
    uint32_t object, first_tick, index;
} entry;

typedef struct entry_list {
    sl_verify *verify;
    entry *entries; /* [count], sorted */
    uint32_t count;
} entry_list;

static bool is_alive(const sl_allocation *it, uint32_t tick)
{
    if (it->first_tick <= it->last_tick)
        return it->first_tick <= tick && tick <= it->last_tick;
    return it->first_tick <= tick || tick <= it->last_tick;
}

static bool contains(const sl_place *outer, const sl_place *inner)
{
    return outer->tier == inner->tier && outer->offset <= inner->offset &&
           inner->offset + inner->bytes <= outer->offset + outer->bytes;
}

static uint32_t object_of(const sl_verify *verify, const sl_allocation *it)
{
    if (it->chunk_index != SL_NONE)
        return sl_verify_chunk_object(verify, it->group, it->chunk_index);
    if (it->value != SL_NONE)
        return it->value;
    return it->kind == SL_MEMORY_WORKSPACE ? SL_NONE : UNNAMED;
}

/* ---- one allocation ---- */

static sl_status reject_allocation(const sl_verify *verify, uint32_t index, const char *what)
{
    const sl_place *place = &verify->plan->allocations[index].place;
    return sl_verify_reject(verify, "its allocation %u, %llu bytes at byte %llu of tier %d, %s",
                            index, (unsigned long long)place->bytes,
                            (unsigned long long)place->offset, (int)place->tier, what);
}

/* Activations are counted as such wherever they are; so are inputs and outputs off their slots. */
static sl_status check_value_kind(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if (it->value == SL_NONE)
        return SL_OK;
    sl_value_kind kind = verify->program->values[it->value].kind;
    bool is_slot =
        it->place.tier == SL_TIER_HOST && (kind == SL_VALUE_INPUT || kind == SL_VALUE_OUTPUT);
    if (it->kind != (is_slot ? SL_MEMORY_STAGING : SL_MEMORY_ACTIVATION))
        return reject_allocation(verify, index, "is of another kind than its value");
    return SL_OK;
}

static sl_status check_identity(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if ((unsigned)it->kind >= SL_MEMORY_KIND_COUNT)
        return reject_allocation(verify, index, "is of no kind");
    if (it->chunk_index == SL_NONE && it->value != SL_NONE &&
        it->value >= verify->program->value_count)
        return reject_allocation(verify, index, "is for a value that does not exist");
    if (it->chunk_index == SL_NONE)
        return check_value_kind(verify, index);
    if (it->chunk_index >= verify->layout->chunk_count || (unsigned)it->group >= SL_GROUP_COUNT)
        return reject_allocation(verify, index, "is for a chunk that does not exist");
    if ((unsigned)it->kind != (unsigned)it->group)
        return reject_allocation(verify, index, "is of another kind than its chunk");
    sl_place home = sl_verify_home(verify, it->group, it->chunk_index);
    if (it->is_permanent && !sl_verify_places_equal(&home, &it->place))
        return reject_allocation(verify, index, "is permanent, but not its chunk's home");
    if (!it->is_permanent && it->place.tier == SL_TIER_DISK)
        return reject_allocation(verify, index, "is of a chunk on disk, but not its home");
    return SL_OK;
}

static sl_status check_allocation(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    if ((unsigned)it->place.tier >= SL_TIER_COUNT)
        return reject_allocation(verify, index, "is in a tier that does not exist");
    uint64_t peak = verify->plan->peak_bytes[it->place.tier];
    if (it->place.bytes > peak || it->place.offset > peak - it->place.bytes)
        return reject_allocation(verify, index, "is outside the peak");
    if (it->first_tick > op_count || it->last_tick > op_count)
        return reject_allocation(verify, index, "lives at ticks that do not exist");
    if (it->is_permanent && (it->first_tick != 0 || it->last_tick != op_count))
        return reject_allocation(verify, index, "is permanent, but does not live at all ticks");
    if (!it->is_permanent && it->place.bytes > 0 &&
        it->place.offset < verify->homes->fixed_bytes[it->place.tier])
        return reject_allocation(verify, index, "is among what outlives the plan");
    return check_identity(verify, index);
}

/* ---- looking for allocations ---- */

static int compare_entries(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    if (left->tier != right->tier)
        return left->tier < right->tier ? -1 : 1;
    if (left->object != right->object)
        return left->object < right->object ? -1 : 1;
    if (left->first_tick != right->first_tick)
        return left->first_tick < right->first_tick ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

/* How many entries are not behind (tier, object, tick). */
static uint32_t count_up_to(const entry_list *list, sl_tier tier, uint32_t object, uint32_t tick)
{
    entry key = {tier, object, tick, UINT32_MAX};
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_entries(&list->entries[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* An allocation of `object` that holds `place` at `tick`; those that start last are tried first,
 * and lives that wrap start behind `tick`. */
static bool has_allocation(const entry_list *list, uint32_t object, const sl_place *place,
                           uint32_t tick)
{
    const sl_allocation *allocations = list->verify->plan->allocations;
    uint32_t ends[2] = {count_up_to(list, place->tier, object, tick),
                        count_up_to(list, place->tier, object, UINT32_MAX)};
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = ends[pass]; i > (pass == 0 ? 0 : ends[0]); i--) {
            const entry *it = &list->entries[i - 1];
            if (it->tier != place->tier || it->object != object)
                break;
            if (is_alive(&allocations[it->index], tick) &&
                contains(&allocations[it->index].place, place))
                return true;
        }
    return false;
}

/* A chunk may pass through the host on the prologue's way from disk to device. */
static bool has_hop(const sl_verify *verify, const sl_verify_access *access)
{
    const sl_plan *plan = verify->plan;
    for (uint32_t i = 0; verify->is_prologue && i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->kind == SL_MEMORY_STAGING && !it->is_permanent && it->place.tier == SL_TIER_HOST &&
            object_of(verify, it) == UNNAMED && is_alive(it, 0) &&
            contains(&it->place, &access->whole))
            return true;
    }
    return false;
}

static bool is_persistent(const sl_verify *verify, uint32_t object)
{
    return object != SL_NONE && object >= sl_verify_slot_object(verify, 0);
}

/* A copy before an op may belong to a life that ends with the op before. */
static sl_status check_command(const entry_list *list, const sl_command *command)
{
    char name[SL_VERIFY_NAME_BYTES];
    const sl_verify *verify = list->verify;
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    uint32_t tick = verify->is_prologue ? 0 : command->tick;
    uint32_t before = command->kind == SL_COMMAND_COPY && tick > 0 ? tick - 1 : tick;
    for (uint32_t i = 0; i < count; i++) {
        const sl_place *whole = &accesses[i].whole;
        if (is_persistent(verify, accesses[i].object) ||
            has_allocation(list, accesses[i].object, whole, tick) ||
            has_allocation(list, accesses[i].object, whole, before) ||
            has_hop(verify, &accesses[i]))
            continue;
        return sl_verify_reject(
            verify, "uses %s at %s bytes [%llu, %llu), where no allocation of it lives at tick %u",
            sl_verify_name_object(verify, accesses[i].object, name), sl_tier_name(whole->tier),
            (unsigned long long)whole->offset, (unsigned long long)(whole->offset + whole->bytes),
            tick);
    }
    return SL_OK;
}

static sl_status check_commands(const entry_list *list, const sl_command *commands, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        list->verify->command_index = i;
        SL_TRY(check_command(list, &commands[i]));
    }
    list->verify->command_index = SL_NONE;
    return SL_OK;
}

/* ---- what must be permanent ---- */

static bool has_permanent(const sl_plan *plan, const sl_place *place)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].is_permanent &&
            sl_verify_places_equal(&plan->allocations[i].place, place))
            return true;
    return false;
}

static sl_status check_fixed(const sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sl_place flags = {(sl_tier)tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
        if (flags.bytes > 0 && !has_permanent(verify->plan, &flags))
            return sl_verify_reject(verify,
                                    "no permanent allocation holds the block flags of tier "
                                    "%s",
                                    sl_tier_name((sl_tier)tier));
    }
    sl_place bounce = {SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes};
    if (bounce.bytes > 0 && !has_permanent(verify->plan, &bounce))
        return sl_verify_reject(verify, "no permanent allocation holds the bounce pieces");
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place place = {SL_TIER_DEVICE, homes->persistent_offset[i], homes->persistent_bytes[i]};
        if (place.bytes > 0 && !has_permanent(verify->plan, &place))
            return sl_verify_reject(verify, "no permanent allocation holds persistent slot %u", i);
    }
    return SL_OK;
}

/* Between iterations slots belong to the caller, while the last commands may still run. */
static sl_status check_slots(const sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    uint32_t op_count = verify->program->op_count;
    for (uint32_t value = 0; value < verify->program->value_count; value++) {
        const sl_place *slot = &verify->slot[value];
        for (uint32_t i = 0; slot->bytes > 0 && i < plan->allocation_count; i++) {
            const sl_allocation *it = &plan->allocations[i];
            if (object_of(verify, it) != value && is_alive(it, op_count) &&
                sl_verify_places_overlap(&it->place, slot))
                return reject_allocation(verify, i, "takes a slot between two iterations");
        }
    }
    return SL_OK;
}

static sl_status check_homes(const entry_list *list)
{
    const sl_verify *verify = list->verify;
    char name[SL_VERIFY_NAME_BYTES];
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; chunk < verify->homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            uint32_t end = count_up_to(list, home.tier, object, 0);
            const sl_allocation *it =
                end == 0 ? NULL : &verify->plan->allocations[list->entries[end - 1].index];
            bool is_there = it && it->is_permanent && object_of(verify, it) == object &&
                            sl_verify_places_equal(&it->place, &home);
            if (home.bytes > 0 && !is_there)
                return sl_verify_reject(verify, "no permanent allocation holds the home of %s",
                                        sl_verify_name_object(verify, object, name));
        }
    return check_fixed(verify);
}

/* ---- all of it ---- */

static sl_status sort_allocations(entry_list *list)
{
    const sl_plan *plan = list->verify->plan;
    list->entries = calloc((size_t)plan->allocation_count + 1, sizeof *list->entries);
    if (!list->entries)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %u allocations", plan->allocation_count);
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        SL_TRY(check_allocation(list->verify, i));
        list->entries[list->count++] =
            (entry){it->place.tier, object_of(list->verify, it), it->first_tick, i};
    }
    qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
    return SL_OK;
}

static sl_status check_list(entry_list *list)
{
    sl_verify *verify = list->verify;
    SL_TRY(sort_allocations(list));
    SL_TRY(check_homes(list));
    SL_TRY(check_slots(verify));
    verify->is_prologue = true;
    SL_TRY(check_commands(list, verify->plan->prologue, verify->plan->prologue_count));
    verify->is_prologue = false;
    return check_commands(list, verify->plan->body, verify->plan->body_count);
}

sl_status sl_verify_memory(sl_verify *verify)
{
    entry_list list = {.verify = verify};
    sl_status status = check_list(&list);
    free(list.entries);
    return status;
}
