/* Checks the list of allocations, one by one and against the commands: every place of a command
 * lies in one that lives, and lives agree at the seams of repeated sections. Knows nothing of
 * content and waits. */
#include <stdlib.h>

#include "verify.h"

enum { UNNAMED = SL_NONE - 1 }; /* the key of permanent things that are no object: the flags */

/* A stretch of an allocation's life, under the key by which commands look for it. A life that wraps
 * has two. */
typedef struct entry {
    sl_tier tier;
    uint32_t object, first_tick, last_tick, index;
    uint32_t reach; /* the largest last_tick of the object in the tier, up to this entry */
} entry;

typedef struct entry_list {
    sl_verify *verify;
    entry *entries; /* [count], sorted */
    uint32_t count;
} entry_list;

/* A place with slots lies in an allocation with the same slots, any other in one without. */
static bool contains(const sl_place *outer, const sl_place *inner)
{
    if (outer->slots > 1 || inner->slots > 1)
        return outer->tier == inner->tier && outer->offset == inner->offset &&
               outer->slots == inner->slots && outer->stride == inner->stride &&
               inner->bytes <= outer->bytes;
    return outer->tier == inner->tier && outer->offset <= inner->offset &&
           inner->offset + inner->bytes <= outer->offset + outer->bytes;
}

uint32_t sl_verify_allocation_object(const sl_verify *verify, const sl_allocation *it)
{
    if (it->chunk_index != SL_NONE)
        return sl_verify_chunk_object(verify, it->group, it->chunk_index);
    if (it->value != SL_NONE)
        return it->value;
    return it->kind == SL_MEMORY_WORKSPACE ? SL_NONE : UNNAMED;
}

/* ---- one allocation ---- */

sl_status sl_verify_reject_allocation(const sl_verify *verify, uint32_t index, const char *what)
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
        return sl_verify_reject_allocation(verify, index, "is of another kind than its value");
    return SL_OK;
}

static sl_status check_identity(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if ((unsigned)it->kind >= SL_MEMORY_KIND_COUNT)
        return sl_verify_reject_allocation(verify, index, "is of no kind");
    if (it->chunk_index == SL_NONE && it->value != SL_NONE &&
        it->value >= verify->program->value_count)
        return sl_verify_reject_allocation(verify, index, "is for a value that does not exist");
    if (it->chunk_index == SL_NONE)
        return check_value_kind(verify, index);
    if (it->chunk_index >= verify->layout->chunk_count || (unsigned)it->group >= SL_GROUP_COUNT)
        return sl_verify_reject_allocation(verify, index, "is for a chunk that does not exist");
    if ((unsigned)it->kind != (unsigned)it->group)
        return sl_verify_reject_allocation(verify, index, "is of another kind than its chunk");
    sl_place home = sl_verify_home(verify, it->group, it->chunk_index);
    if (it->is_permanent && !sl_verify_places_equal(&home, &it->place))
        return sl_verify_reject_allocation(verify, index, "is permanent, but not its chunk's home");
    if (!it->is_permanent && it->place.tier == SL_TIER_DISK)
        return sl_verify_reject_allocation(verify, index,
                                           "is of a chunk on disk, but not its home");
    return SL_OK;
}

/* A family's has one slot, two, or one for each instance, each with room for what it says. */
static sl_status check_slots_of(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    const sl_place *place = &it->place;
    if (place->slots <= 1)
        return place->stride == 0
                   ? SL_OK
                   : sl_verify_reject_allocation(verify, index, "has a stride alone");
    if (it->chunk_index != SL_NONE || it->value >= verify->program->value_count ||
        sl_verify_instances(&verify->program->values[it->value]) == 1)
        return sl_verify_reject_allocation(verify, index, "has slots, but is of no family");
    uint32_t instances = verify->program->values[it->value].instances;
    if (place->slots != 2 && place->slots != instances)
        return sl_verify_reject_allocation(verify, index,
                                           "has neither two slots nor one an instance");
    if (place->stride < place->bytes)
        return sl_verify_reject_allocation(verify, index, "has slots that overlap");
    if (place->bytes == 0 || place->stride > (UINT64_MAX - place->bytes) / (place->slots - 1))
        return sl_verify_reject_allocation(verify, index, "has slots without end");
    return SL_OK;
}

static sl_status check_allocation(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    if ((unsigned)it->place.tier >= SL_TIER_COUNT)
        return sl_verify_reject_allocation(verify, index, "is in a tier that does not exist");
    SL_TRY(check_slots_of(verify, index));
    uint64_t peak = verify->plan->peak_bytes[it->place.tier], extent = sl_place_extent(&it->place);
    if (extent > peak || it->place.offset > peak - extent)
        return sl_verify_reject_allocation(verify, index, "is outside the peak");
    if (it->first_tick > op_count || it->last_tick > op_count)
        return sl_verify_reject_allocation(verify, index, "lives at ticks that do not exist");
    if (it->is_permanent && (it->first_tick != 0 || it->last_tick != op_count))
        return sl_verify_reject_allocation(verify, index,
                                           "is permanent, but does not live at all ticks");
    if (!it->is_permanent && it->place.bytes > 0 &&
        it->place.offset < verify->homes->fixed_bytes[it->place.tier])
        return sl_verify_reject_allocation(verify, index, "is among what outlives the plan");
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
    entry key = {.tier = tier, .object = object, .first_tick = tick, .index = UINT32_MAX};
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

/* What is looked for: an allocation of an object that holds a place, or is at it. */
typedef struct wanted {
    uint32_t object;
    const sl_place *place;
    bool is_exact;
} wanted;

/* Those that start last are tried first. */
static bool has_allocation(const entry_list *list, const wanted *what, uint32_t tick)
{
    const sl_allocation *allocations = list->verify->plan->allocations;
    sl_tier tier = what->place->tier;
    for (uint32_t i = count_up_to(list, tier, what->object, tick); i > 0; i--) {
        const entry *it = &list->entries[i - 1];
        if (it->tier != tier || it->object != what->object || it->reach < tick)
            break;
        const sl_place *place = &allocations[it->index].place;
        bool is_there = what->is_exact ? sl_verify_places_equal(place, what->place)
                                       : contains(place, what->place);
        if (it->last_tick >= tick && is_there)
            return true;
    }
    return false;
}

/* A chunk may pass through the host on the prologue's way from disk to device. */
static bool has_hop(const entry_list *list, const sl_verify_access *access)
{
    const sl_verify *verify = list->verify;
    for (uint32_t i = count_up_to(list, SL_TIER_HOST, UNNAMED, 0); verify->is_prologue && i > 0;
         i--) {
        const entry *found = &list->entries[i - 1];
        const sl_allocation *it = &verify->plan->allocations[found->index];
        if (found->tier != SL_TIER_HOST || found->object != UNNAMED)
            break;
        if (it->kind == SL_MEMORY_STAGING && !it->is_permanent &&
            contains(&it->place, &access->whole))
            return true;
    }
    return false;
}

static bool is_persistent(const sl_verify *verify, uint32_t object)
{
    return object != SL_NONE && object >= sl_verify_slot_object(verify, 0);
}

/* Is the object's memory another value's in each repetition? */
static bool is_of_repetition(const sl_verify *verify, const wanted *what)
{
    if (what->object >= verify->program->value_count)
        return false;
    const sl_value *value = &verify->program->values[what->object];
    return sl_verify_instances(value) > 1 ? what->place->slots != value->instances
                                          : verify->values[what->object].is_local;
}

/* A copy before an op may belong to a life that ends with the op before. Before the first op of a
 * repetition that is the last one of the repetition before, too; behind the last op, the op that
 * follows is the section's first, too: neither is the same repetition's. */
static bool is_allocated(const entry_list *list, const sl_command *command, const wanted *what)
{
    const sl_verify *verify = list->verify;
    const sl_section section = verify->is_prologue
                                   ? (sl_section){.repeat = 1}
                                   : sl_program_section(verify->program, verify->section_index);
    uint32_t tick = verify->is_prologue ? 0 : command->tick, end = section.first + section.count;
    bool is_repeated = section.repeat > 1, is_here = has_allocation(list, what, tick);
    if (command->kind == SL_COMMAND_RUN || tick == 0)
        return is_here;
    bool is_before = has_allocation(list, what, tick - 1);
    bool is_own = is_repeated && is_of_repetition(verify, what);
    if (is_repeated && tick == section.first)
        return is_here || (!is_own && is_before && has_allocation(list, what, end - 1));
    if (is_repeated && tick == end)
        return is_before || (!is_own && is_here && has_allocation(list, what, section.first));
    return is_here || is_before;
}

static sl_status check_command(const entry_list *list, const sl_command *command)
{
    char name[SL_VERIFY_NAME_BYTES];
    const sl_verify *verify = list->verify;
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++) {
        const sl_place *whole = &accesses[i].whole;
        const wanted what = {accesses[i].object, whole, false};
        if (is_persistent(verify, accesses[i].object) || is_allocated(list, command, &what) ||
            has_hop(list, &accesses[i]))
            continue;
        return sl_verify_reject(
            verify, "uses %s at %s bytes [%llu, %llu), where no allocation of it lives at tick %u",
            sl_verify_name_object(verify, accesses[i].object, name), sl_tier_name(whole->tier),
            (unsigned long long)whole->offset,
            (unsigned long long)(whole->offset + sl_place_extent(whole)),
            verify->is_prologue ? 0 : command->tick);
    }
    return SL_OK;
}

static sl_status check_commands(const entry_list *list, const sl_command *commands,
                                sl_section section)
{
    for (uint32_t i = section.first; i < section.first + section.count; i++) {
        list->verify->command_index = i;
        SL_TRY(check_command(list, &commands[i]));
    }
    list->verify->command_index = SL_NONE;
    return SL_OK;
}

/* ---- the seams ---- */

/* What lives from before a repeated section into it, but not through it, must be there at its end
 * too, for the next repetition; and what lives from within to behind it, at its start. */
static sl_status check_seam(const entry_list *list, uint32_t index, uint32_t tick, bool is_start)
{
    const sl_verify *verify = list->verify;
    const sl_allocation *it = &verify->plan->allocations[index];
    if (tick == verify->program->op_count)
        return SL_OK;
    const sl_section section =
        sl_program_section(verify->program, sl_verify_section_of_tick(verify, tick));
    uint32_t first = section.first, last = section.first + section.count - 1;
    const wanted what = {sl_verify_allocation_object(verify, it), &it->place, true};
    bool is_inside = it->first_tick <= it->last_tick &&
                     (is_start ? it->last_tick <= last : it->first_tick >= first);
    if (section.repeat == 1 || is_inside || has_allocation(list, &what, is_start ? first : last))
        return SL_OK;
    return sl_verify_reject_allocation(
        verify, index,
        is_start ? "lives on behind a section without being at its start"
                 : "lives from before a section without being at its end");
}

/* An end of a life at an edge of its section crosses none. */
static sl_status check_seams(const entry_list *list)
{
    const sl_plan *plan = list->verify->plan;
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        SL_TRY(check_seam(list, i, it->first_tick, true));
        SL_TRY(check_seam(list, i, it->last_tick, false));
    }
    return SL_OK;
}

/* ---- all of it ---- */

static void add_entry(entry_list *list, uint32_t index, uint32_t first_tick, uint32_t last_tick)
{
    const sl_allocation *it = &list->verify->plan->allocations[index];
    list->entries[list->count++] = (entry){.tier = it->place.tier,
                                           .object = sl_verify_allocation_object(list->verify, it),
                                           .first_tick = first_tick,
                                           .last_tick = last_tick,
                                           .index = index};
}

static void reach_forward(entry_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        entry *it = &list->entries[i];
        const entry *before = i > 0 ? it - 1 : NULL;
        bool is_same = before && before->tier == it->tier && before->object == it->object;
        it->reach = is_same && before->reach > it->last_tick ? before->reach : it->last_tick;
    }
}

static sl_status sort_allocations(entry_list *list)
{
    const sl_plan *plan = list->verify->plan;
    uint32_t op_count = list->verify->program->op_count;
    list->entries = calloc(2 * (size_t)plan->allocation_count + 1, sizeof *list->entries);
    if (!list->entries)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %u allocations", plan->allocation_count);
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        SL_TRY(check_allocation(list->verify, i));
        bool wraps = it->first_tick > it->last_tick;
        add_entry(list, i, it->first_tick, wraps ? op_count : it->last_tick);
        if (wraps)
            add_entry(list, i, 0, it->last_tick);
    }
    qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
    reach_forward(list);
    return SL_OK;
}

static sl_status check_list(entry_list *list)
{
    sl_verify *verify = list->verify;
    const sl_plan *plan = verify->plan;
    const sl_section prologue = {0, plan->prologue_count, 0, 1};
    uint32_t section_count = sl_program_section_count(verify->program);
    SL_TRY(sort_allocations(list));
    SL_TRY(sl_verify_fixed(verify));
    SL_TRY(check_seams(list));
    verify->is_prologue = true;
    SL_TRY(check_commands(list, plan->prologue, prologue));
    verify->is_prologue = false;
    for (verify->section_index = 0; verify->section_index < section_count; verify->section_index++)
        SL_TRY(check_commands(list, plan->body, sl_verify_section(verify, verify->section_index)));
    verify->section_index = 0;
    return SL_OK;
}

sl_status sl_verify_memory(sl_verify *verify)
{
    entry_list list = {.verify = verify};
    sl_status status = check_list(&list);
    free(list.entries);
    return status;
}
