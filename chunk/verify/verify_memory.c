/* Checks the list of allocations: one by one, as what must be permanent, against the commands
 * (every place of a command lies in one that lives), at the seams of repeated sections, and all
 * together, tick by tick: no two overlap, and the plan's sums are theirs. Knows nothing of content
 * and waits.
 */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

enum { UNNAMED = SL_NONE - 1 }; /* the object of permanent things that are none: the flags */

/* What an allocation is for; SL_NONE: workspace, UNNAMED: what is no object. */
static uint32_t object_of_allocation(const sl_verify *verify, const sl_allocation *it)
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

/* Activations are counted as such wherever they are; so are inputs and outputs off their slots.
 * What holds a chunk for a time is counted as the chunk's group. */
static sl_status check_value_kind(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if (it->value == SL_NONE)
        return SL_OK;
    sl_value_kind kind = verify->program->values[it->value].kind;
    bool is_slot =
        it->place.tier == SL_TIER_HOST && (kind == SL_VALUE_INPUT || kind == SL_VALUE_OUTPUT);
    const sl_verify_value *value = &verify->values[it->value];
    sl_memory_kind other =
        value->chunk_index != SL_NONE ? (sl_memory_kind)value->group : SL_MEMORY_ACTIVATION;
    if (it->kind != (is_slot ? SL_MEMORY_STAGING : other))
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

/* A family's has one slot, two, or one for each instance, each with room for what it says. */
static sl_status check_slots(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    const sl_place *place = &it->place;
    if (place->slots <= 1)
        return place->stride == 0 ? SL_OK : reject_allocation(verify, index, "has a stride alone");
    if (it->chunk_index != SL_NONE || it->value >= verify->program->value_count ||
        sl_verify_instances(&verify->program->values[it->value]) == 1)
        return reject_allocation(verify, index, "has slots, but is of no family");
    uint32_t instances = verify->program->values[it->value].instances;
    if (place->slots != 2 && place->slots != instances)
        return reject_allocation(verify, index, "has neither two slots nor one an instance");
    if (place->stride < place->bytes)
        return reject_allocation(verify, index, "has slots that overlap");
    if (place->bytes == 0 || place->stride > (UINT64_MAX - place->bytes) / (place->slots - 1))
        return reject_allocation(verify, index, "has slots without end");
    return SL_OK;
}

static sl_status check_allocation(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    if ((unsigned)it->place.tier >= SL_TIER_COUNT)
        return reject_allocation(verify, index, "is in a tier that does not exist");
    SL_TRY(check_slots(verify, index));
    uint64_t peak = verify->plan->peak_bytes[it->place.tier], extent = sl_place_extent(&it->place);
    if (extent > peak || it->place.offset > peak - extent)
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

/* ---- what is permanent, or the caller's between two iterations ---- */

/* A place, and whose it is. */
typedef struct holding {
    sl_place place;
    uint32_t object, index; /* of the allocation */
    uint64_t reach;         /* buffers: the farthest end, up to this one */
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

static sl_status check_other_homes(const sl_verify *verify, const holding_list *permanent)
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
    sl_place counted = {SL_TIER_DEVICE, homes->counted_offset, homes->counted_bytes};
    if (!is_held(permanent, &counted, SL_NONE))
        return sl_verify_reject(verify, "no permanent allocation holds the flags of the norm");
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

/* Lists the buffers, with how far those before each reach. */
static void list_buffers(const sl_verify *verify, holding_list *buffers)
{
    buffers->count = 0;
    for (uint32_t value = 0; value < verify->program->value_count; value++)
        if (verify->values[value].buffer.bytes > 0)
            buffers->holdings[buffers->count++] =
                (holding){.place = verify->values[value].buffer, .object = value};
    qsort(buffers->holdings, buffers->count, sizeof *buffers->holdings, compare_holdings);
    for (uint32_t i = 0; i < buffers->count; i++) {
        holding *it = &buffers->holdings[i];
        uint64_t before = i > 0 ? it[-1].reach : 0, end = it->place.offset + it->place.bytes;
        it->reach = before > end ? before : end;
    }
}

/* Buffers belong to the caller then, while the last commands may still run. */
static sl_status check_buffers(const sl_verify *verify, const holding_list *buffers, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    bool wraps = it->first_tick > it->last_tick;
    if (it->place.tier != SL_TIER_HOST || (!wraps && it->last_tick < op_count))
        return SL_OK;
    uint64_t end = it->place.offset + sl_place_extent(&it->place);
    holding key = {.place = {.tier = SL_TIER_HOST, .offset = end}};
    for (uint32_t i = find_holding(buffers, &key); i > 0; i--) {
        const holding *buffer = &buffers->holdings[i - 1];
        if (buffer->reach <= it->place.offset)
            break;
        if (object_of_allocation(verify, it) != buffer->object &&
            sl_verify_places_overlap(&it->place, &buffer->place))
            return reject_allocation(verify, index, "takes a buffer between two iterations");
    }
    return SL_OK;
}

static void list_permanent(const sl_verify *verify, holding_list *permanent)
{
    for (uint32_t i = 0; i < verify->plan->allocation_count; i++) {
        const sl_allocation *it = &verify->plan->allocations[i];
        if (it->is_permanent)
            permanent->holdings[permanent->count++] = (holding){
                .place = it->place, .object = object_of_allocation(verify, it), .index = i};
    }
    qsort(permanent->holdings, permanent->count, sizeof *permanent->holdings, compare_holdings);
}

static sl_status check_holdings(const sl_verify *verify, holding_list *list)
{
    list_permanent(verify, list);
    SL_TRY(check_homes(verify, list));
    SL_TRY(check_other_homes(verify, list));
    list_buffers(verify, list);
    for (uint32_t i = 0; i < verify->plan->allocation_count; i++)
        SL_TRY(check_buffers(verify, list, i));
    return SL_OK;
}

static sl_status check_permanent(const sl_verify *verify)
{
    size_t allocations = verify->plan->allocation_count, values = verify->program->value_count;
    holding_list list = {calloc(allocations + values + 1, sizeof *list.holdings), 0};
    if (!list.holdings)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %zu allocations", allocations);
    sl_status status = check_holdings(verify, &list);
    free(list.holdings);
    return status;
}

/* ---- allocations of an object ---- */

/* A range of an allocation's ticks, under the key by which commands look for it. One that wraps
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
    return object != SL_NONE && object >= sl_verify_persistent_object(verify, 0);
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
        const uint64_t end = whole->offset + sl_place_extent(whole);
        return sl_verify_reject(
            verify, "uses %s at %s bytes [%llu, %llu), where no allocation of it lives at tick %u",
            sl_verify_name_object(verify, accesses[i].object, name), sl_tier_name(whole->tier),
            (unsigned long long)whole->offset, (unsigned long long)end,
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

/* The section whose ops include the one at `tick`. */
static uint32_t section_of_tick(const sl_verify *verify, uint32_t tick)
{
    uint32_t low = 0, high = sl_program_section_count(verify->program);
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (verify->program->sections[middle].first <= tick)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* What lives from before a repeated section into it, but not through it, must be there at its end
 * too, for the next repetition; and what lives from within to behind it, at its start. */
static sl_status check_seam(const entry_list *list, uint32_t index, uint32_t tick, bool is_start)
{
    const sl_verify *verify = list->verify;
    const sl_allocation *it = &verify->plan->allocations[index];
    if (tick == verify->program->op_count)
        return SL_OK;
    const sl_section section = sl_program_section(verify->program, section_of_tick(verify, tick));
    uint32_t first = section.first, last = section.first + section.count - 1;
    const wanted what = {object_of_allocation(verify, it), &it->place, true};
    bool is_inside = it->first_tick <= it->last_tick &&
                     (is_start ? it->last_tick <= last : it->first_tick >= first);
    if (section.repeat == 1 || is_inside || has_allocation(list, &what, is_start ? first : last))
        return SL_OK;
    return reject_allocation(verify, index,
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

static void add_entry(entry_list *list, uint32_t index, uint32_t first_tick, uint32_t last_tick)
{
    const sl_allocation *it = &list->verify->plan->allocations[index];
    list->entries[list->count++] = (entry){.tier = it->place.tier,
                                           .object = object_of_allocation(list->verify, it),
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

static sl_status check_allocations(entry_list *list)
{
    sl_verify *verify = list->verify;
    const sl_plan *plan = verify->plan;
    const sl_section prologue = {0, plan->prologue_count, 0, 1};
    uint32_t section_count = sl_program_section_count(verify->program);
    SL_TRY(sort_allocations(list));
    SL_TRY(check_permanent(verify));
    SL_TRY(check_seams(list));
    verify->is_prologue = true;
    SL_TRY(check_commands(list, plan->prologue, prologue));
    verify->is_prologue = false;
    for (verify->section_index = 0; verify->section_index < section_count; verify->section_index++)
        SL_TRY(check_commands(list, plan->body, sl_verify_section(verify, verify->section_index)));
    verify->section_index = 0;
    return SL_OK;
}

/* ---- tick by tick ---- */

/* Ticks in which an allocation lives. */
typedef struct interval {
    uint32_t index, first_tick, last_tick;
} interval;

typedef struct sweep {
    const sl_verify *verify;
    interval *starts, *ends; /* [interval_count], sorted by first and by last tick */
    uint32_t interval_count;
    uint32_t *live[SL_TIER_COUNT]; /* allocations that live at one tick, by offset; disjoint */
    uint32_t live_count[SL_TIER_COUNT];
    uint64_t live_bytes[SL_TIER_COUNT], peak_bytes[SL_TIER_COUNT];
    uint64_t kind_bytes[SL_TIER_COUNT][SL_MEMORY_KIND_COUNT]; /* now */
    bool matches[SL_TIER_COUNT]; /* at a tick of the peak the kinds were as the plan says */
} sweep;

static int compare_starts(const void *a, const void *b)
{
    const interval *left = a, *right = b;
    return (left->first_tick > right->first_tick) - (left->first_tick < right->first_tick);
}

static int compare_ends(const void *a, const void *b)
{
    const interval *left = a, *right = b;
    return (left->last_tick > right->last_tick) - (left->last_tick < right->last_tick);
}

/* Where `offset` is or would be in the live list of a tier. */
static uint32_t find_live(const sweep *state, sl_tier tier, uint64_t offset)
{
    const sl_allocation *allocations = state->verify->plan->allocations;
    uint32_t low = 0, high = state->live_count[tier];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (allocations[state->live[tier][middle]].place.offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_live(sweep *state, uint32_t index)
{
    const sl_allocation *it = &state->verify->plan->allocations[index];
    sl_tier tier = it->place.tier;
    uint32_t at = find_live(state, tier, it->place.offset);
    uint32_t *live = state->live[tier];
    state->live_count[tier]--;
    memmove(live + at, live + at + 1, (state->live_count[tier] - at) * sizeof *live);
    state->live_bytes[tier] -= sl_place_extent(&it->place);
    state->kind_bytes[tier][it->kind] -= sl_place_extent(&it->place);
}

static sl_status insert_live(sweep *state, uint32_t index)
{
    const sl_allocation *allocations = state->verify->plan->allocations;
    const sl_allocation *it = &allocations[index];
    sl_tier tier = it->place.tier;
    uint32_t at = find_live(state, tier, it->place.offset);
    uint32_t *live = state->live[tier];
    uint32_t other = SL_NONE;
    if (at > 0 && sl_verify_places_overlap(&allocations[live[at - 1]].place, &it->place))
        other = live[at - 1];
    if (at < state->live_count[tier] &&
        sl_verify_places_overlap(&allocations[live[at]].place, &it->place))
        other = live[at];
    if (other != SL_NONE)
        return sl_verify_reject(
            state->verify,
            "its allocations %u and %u, %llu and %llu bytes, overlap at %s byte %llu", other, index,
            (unsigned long long)sl_place_extent(&allocations[other].place),
            (unsigned long long)sl_place_extent(&it->place), sl_tier_name(tier),
            (unsigned long long)it->place.offset);
    memmove(live + at + 1, live + at, (state->live_count[tier] - at) * sizeof *live);
    live[at] = index;
    state->live_count[tier]++;
    state->live_bytes[tier] += sl_place_extent(&it->place);
    state->kind_bytes[tier][it->kind] += sl_place_extent(&it->place);
    return SL_OK;
}

static void record_peaks(sweep *state)
{
    const sl_plan *plan = state->verify->plan;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        bool is_equal = memcmp(state->kind_bytes[tier], plan->kind_bytes[tier],
                               sizeof state->kind_bytes[tier]) == 0;
        if (state->live_bytes[tier] > state->peak_bytes[tier]) {
            state->peak_bytes[tier] = state->live_bytes[tier];
            state->matches[tier] = false;
        }
        if (state->live_bytes[tier] == state->peak_bytes[tier])
            state->matches[tier] = state->matches[tier] || is_equal;
    }
}

static sl_status check_sums(const sweep *state)
{
    const sl_verify *verify = state->verify;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (state->peak_bytes[tier] != verify->plan->live_peak_bytes[tier])
            return sl_verify_reject(verify, "its %s live peak is %llu bytes and not %llu",
                                    sl_tier_name((sl_tier)tier),
                                    (unsigned long long)state->peak_bytes[tier],
                                    (unsigned long long)verify->plan->live_peak_bytes[tier]);
        if (!state->matches[tier])
            return sl_verify_reject(verify, "its %s bytes by kind are of no tick of the live peak",
                                    sl_tier_name((sl_tier)tier));
    }
    return SL_OK;
}

static sl_status run_sweep(sweep *state)
{
    uint32_t started = 0, ended = 0;
    record_peaks(state);
    while (started < state->interval_count) {
        uint32_t tick = state->starts[started].first_tick;
        for (; ended < state->interval_count && state->ends[ended].last_tick < tick; ended++)
            remove_live(state, state->ends[ended].index);
        for (; started < state->interval_count && state->starts[started].first_tick == tick;
             started++)
            SL_TRY(insert_live(state, state->starts[started].index));
        record_peaks(state);
    }
    return check_sums(state);
}

static void add_intervals(sweep *state, uint32_t index)
{
    const sl_allocation *it = &state->verify->plan->allocations[index];
    uint32_t op_count = state->verify->program->op_count;
    interval *next = state->starts + state->interval_count;
    if (it->place.bytes == 0)
        return;
    if (it->first_tick <= it->last_tick) {
        next[0] = (interval){index, it->first_tick, it->last_tick};
        state->interval_count += 1;
    } else {
        next[0] = (interval){index, it->first_tick, op_count};
        next[1] = (interval){index, 0, it->last_tick};
        state->interval_count += 2;
    }
}

static sl_status open_sweep(sweep *state)
{
    const sl_plan *plan = state->verify->plan;
    size_t count = (size_t)plan->allocation_count + 1;
    bool is_open = true;
    state->starts = calloc(2 * count, sizeof *state->starts);
    state->ends = calloc(2 * count, sizeof *state->ends);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        state->live[tier] = calloc(count, sizeof *state->live[tier]);
        is_open = is_open && state->live[tier];
    }
    if (!is_open || !state->starts || !state->ends)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %u allocations", plan->allocation_count);
    return SL_OK;
}

static void close_sweep(sweep *state)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(state->live[tier]);
    free(state->ends);
    free(state->starts);
}

static void sort_intervals(sweep *state)
{
    for (uint32_t i = 0; i < state->verify->plan->allocation_count; i++)
        add_intervals(state, i);
    memcpy(state->ends, state->starts, state->interval_count * sizeof *state->ends);
    qsort(state->starts, state->interval_count, sizeof *state->starts, compare_starts);
    qsort(state->ends, state->interval_count, sizeof *state->ends, compare_ends);
}

/* Adds what the copies of a section move in all repetitions. */
static sl_status sum_moved(const sl_verify *verify, uint32_t section_index,
                           uint64_t moved[SL_LANE_COUNT])
{
    const sl_section section = sl_verify_section(verify, section_index);
    for (uint32_t i = section.first; i < section.first + section.count; i++) {
        const sl_command *command = &verify->plan->body[i];
        uint64_t bytes;
        if (command->kind == SL_COMMAND_COPY &&
            (__builtin_mul_overflow(command->from.bytes, section.repeat, &bytes) ||
             __builtin_add_overflow(moved[command->lane], bytes, &moved[command->lane])))
            return sl_verify_reject(verify, "it moves more bytes than can be counted");
    }
    return SL_OK;
}

static sl_status check_moved(const sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    uint64_t moved[SL_LANE_COUNT] = {0};
    for (uint32_t s = 0; s < sl_program_section_count(verify->program); s++)
        SL_TRY(sum_moved(verify, s, moved));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (moved[lane] != plan->moved_bytes[lane])
            return sl_verify_reject(verify, "it moves %llu bytes on lane %d and says %llu",
                                    (unsigned long long)moved[lane], lane,
                                    (unsigned long long)plan->moved_bytes[lane]);
    return SL_OK;
}

static sl_status check_ticks(const sl_verify *verify)
{
    sweep state = {.verify = verify};
    sl_status status;
    SL_TRY_GOTO(status, open_sweep(&state), close);
    sort_intervals(&state);
    SL_TRY_GOTO(status, run_sweep(&state), close);
    SL_TRY_GOTO(status, check_moved(verify), close);
close:
    close_sweep(&state);
    return status;
}

/* ---- all of it ---- */

sl_status sl_verify_memory(sl_verify *verify)
{
    entry_list list = {.verify = verify};
    sl_status status = check_allocations(&list);
    free(list.entries);
    return status == SL_OK ? check_ticks(verify) : status;
}
