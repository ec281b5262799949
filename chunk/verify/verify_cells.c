/* The bytes that a command touches, and the cells that record the last commands at these bytes.
 *
 * Accesses follow from the program, the layout and the homes. Each tier is divided at every edge of
 * every access, home and buffer, so that an access is a run of whole ranges. Knows no versions and
 * no clocks.
 *
 * A place with more than SL_VERIFY_REPLAYS slots, one for each instance of a family, is *shrunk*.
 * It has edges only at the start and end of its extent, and where other places have edges inside.
 * Each of its ranges has a cell for each instance that is replayed, and two shrunk places that are
 * equal use the same cells. A range has an owner: the shrunk place that wrote there last. When some
 * other place writes there, it overwrites the cells of all instances, and so does a shrunk place
 * that is not the owner: the bytes of a family are reused as a whole, whichever instance is there.
 */
#include "verify.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"

/* ---- accesses ---- */

uint32_t sl_verify_chunk_object(const sl_verify *verify, sl_group group, uint32_t chunk_index)
{
    return verify->program->value_count + (uint32_t)group * verify->layout->chunk_count +
           chunk_index;
}

uint32_t sl_verify_persistent_object(const sl_verify *verify, uint32_t slot)
{
    return sl_verify_chunk_object(verify, SL_GROUP_COUNT, slot);
}

uint32_t sl_verify_value_object(const sl_verify *verify, uint32_t value)
{
    value = sl_program_whole(verify->program, value);
    const sl_value *it = &verify->program->values[value];
    if (it->kind == SL_VALUE_CHUNK)
        return sl_verify_chunk_object(verify, it->group, it->index);
    if (it->kind == SL_VALUE_TENSOR)
        return sl_verify_chunk_object(verify, it->group,
                                      verify->layout->chunk_of_tensor[it->index]);
    if (it->kind == SL_VALUE_PERSISTENT)
        return sl_verify_persistent_object(verify, it->index);
    return value;
}

uint32_t sl_verify_copy_object(const sl_verify *verify, const sl_command *command)
{
    if (command->chunk_index == SL_NONE)
        return command->value;
    return sl_verify_chunk_object(verify, command->group, command->chunk_index);
}

uint32_t sl_verify_instance(const sl_verify *verify, uint32_t object)
{
    bool is_first = verify->repetition == SL_NONE || verify->repetition == 0;
    if (is_first || object >= verify->program->value_count ||
        sl_verify_instances(&verify->program->values[object]) == 1)
        return object;
    return verify->values[object].second_object + verify->repetition - 1;
}

uint64_t sl_verify_tensor_offset(const sl_verify *verify, const sl_value *value)
{
    return verify->layout->first_element[value->index] *
           sl_type_bytes(verify->layout->group_type[value->group]);
}

sl_place sl_verify_home(const sl_verify *verify, sl_group group, uint32_t chunk_index)
{
    const sl_homes *homes = verify->homes;
    sl_place home = {.tier = SL_TIER_DEVICE};
    if (!homes->tier[group])
        return home;
    home.tier = (sl_tier)homes->tier[group][chunk_index];
    home.offset = homes->offset[group][chunk_index];
    home.bytes = sl_layout_chunk_bytes(verify->layout, group, chunk_index);
    return home;
}

/* An op that makes new rows needs the rows before them, which earlier ops have written. Every other
 * access, also one that adds to rows, needs its own rows too. */
static void find_rows(const sl_op *op, uint32_t operand_index, sl_verify_access *access)
{
    const sl_mode mode = sl_op_info_of(op->kind)->operand[operand_index].mode;
    uint64_t first;
    sl_op_find_rows(op, operand_index, &first, &access->end_row);
    const bool makes_rows = mode == SL_MODE_ADD && !op->attrs.adds_output;
    access->needed_rows = makes_rows ? first : access->end_row;
}

static sl_verify_access make_operand_access(const sl_verify *verify, const sl_op *op,
                                            uint32_t operand_index, const sl_place *place)
{
    const sl_value *value = &verify->program->values[op->operand[operand_index]];
    sl_verify_access access = {.place = *place, .whole = *place};
    access.object = sl_verify_value_object(verify, op->operand[operand_index]);
    access.reads = sl_op_reads(op, operand_index);
    access.writes = sl_op_writes(op, operand_index);
    find_rows(op, operand_index, &access);
    if (value->kind == SL_VALUE_TENSOR) {
        access.whole.offset -= sl_verify_tensor_offset(verify, value);
        access.whole.bytes = sl_layout_chunk_bytes(verify->layout, value->group,
                                                   verify->layout->chunk_of_tensor[value->index]);
    }
    if (value->kind == SL_VALUE_PART) {
        access.whole.offset -= sl_verify_tensor_offset(verify, value);
        access.whole.bytes = verify->program->values[value->whole].bytes;
    }
    if (value->kind == SL_VALUE_PERSISTENT)
        access.whole.bytes = verify->homes->persistent_bytes[value->index];
    access.defines = access.writes && !access.reads && access.place.bytes == access.whole.bytes;
    return access;
}

static uint32_t list_run(const sl_verify *verify, const sl_command *command,
                         sl_verify_access *out_accesses)
{
    const sl_op *op = &verify->program->ops[command->tick];
    const sl_place *places = verify->plan->places + command->first_place;
    uint32_t operand_count = command->place_count - 1;
    uint32_t count = 0;
    for (uint32_t i = 0; i < operand_count; i++)
        if (op->operand[i] != SL_NONE)
            out_accesses[count++] = make_operand_access(verify, op, i, &places[i]);
    const sl_place *workspace = &places[operand_count];
    if (workspace->bytes > 0)
        out_accesses[count++] = (sl_verify_access){
            .place = *workspace, .whole = *workspace, .object = SL_NONE, .writes = true};
    return count;
}

/* A copy needs no rows to be written: it moves the rows that exist. */
uint32_t sl_verify_list_accesses(const sl_verify *verify, const sl_command *command,
                                 sl_verify_access out_accesses[SL_VERIFY_ACCESS_MAX])
{
    if (command->kind == SL_COMMAND_RUN)
        return list_run(verify, command, out_accesses);
    uint32_t object = sl_verify_copy_object(verify, command);
    out_accesses[0] = (sl_verify_access){
        .place = command->from, .whole = command->from, .object = object, .reads = true};
    out_accesses[1] = (sl_verify_access){.place = command->to,
                                         .whole = command->to,
                                         .object = object,
                                         .writes = true,
                                         .defines = true};
    return 2;
}

/* ---- ranges and cells ---- */

/* The edges of one tier, before they are sorted. */
typedef struct edge_list {
    uint64_t *edges;
    uint64_t count;
    uint32_t capacity;
} edge_list;

static bool add_edge(edge_list *list, uint64_t edge)
{
    if (SL_ARRAY_GROW(list->edges, list->count, list->capacity, "the verifier") != SL_OK)
        return false;
    list->edges[list->count++] = edge;
    return true;
}

static bool add_range(edge_list *list, uint64_t offset, uint64_t bytes)
{
    return add_edge(list, offset) && add_edge(list, offset + bytes);
}

/* Adds the edges of each slot; of a shrunk place, only those of its extent. */
static bool add_place(edge_list lists[SL_TIER_COUNT], const sl_place *place)
{
    edge_list *list = &lists[place->tier];
    if (place->bytes == 0)
        return true;
    if (sl_verify_is_shrunk(place))
        return add_range(list, place->offset, sl_place_extent(place));
    uint32_t slots = place->slots > 1 ? place->slots : 1;
    for (uint32_t slot = 0; slot < slots; slot++)
        if (!add_range(list, sl_place_offset(place, slot), place->bytes))
            return false;
    return true;
}

static bool add_commands(const sl_verify *verify, const sl_command *commands, uint32_t count,
                         edge_list lists[SL_TIER_COUNT])
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    for (uint32_t c = 0; c < count; c++) {
        uint32_t access_count = sl_verify_list_accesses(verify, &commands[c], accesses);
        for (uint32_t i = 0; i < access_count; i++)
            if (!add_place(lists, &accesses[i].place) || !add_place(lists, &accesses[i].whole))
                return false;
    }
    return true;
}

static bool add_homes(const sl_verify *verify, edge_list lists[SL_TIER_COUNT])
{
    const sl_homes *homes = verify->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            if (!add_place(lists, &home))
                return false;
        }
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place place = {.tier = SL_TIER_DEVICE,
                          .offset = homes->persistent_offset[i],
                          .bytes = homes->persistent_bytes[i]};
        if (!add_place(lists, &place))
            return false;
    }
    for (uint32_t i = 0; i < verify->program->value_count; i++)
        if (!add_place(lists, &verify->values[i].buffer))
            return false;
    return true;
}

static int compare_edges(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Turns the edges of a tier into ranges, without cells yet. */
static bool make_ranges(sl_verify_tier *tier, edge_list *list)
{
    if (list->count == 0)
        return true;
    qsort(list->edges, list->count, sizeof *list->edges, compare_edges);
    uint64_t kept = 1;
    for (uint64_t i = 1; i < list->count; i++)
        if (list->edges[i] != list->edges[kept - 1])
            list->edges[kept++] = list->edges[i];
    tier->ranges = calloc(kept, sizeof *tier->ranges);
    if (!tier->ranges || kept > UINT32_MAX / SL_VERIFY_REPLAYS)
        return false;
    for (uint64_t i = 0; i < kept; i++)
        tier->ranges[i].first_byte = list->edges[i];
    tier->range_count = (uint32_t)(kept - 1);
    return true;
}

/* Finds the range that starts at `edge`, which is an edge of the tier at or after the start of
 * range `low`. The search widens step by step, so an edge near to `low` is found fast. */
static uint32_t find_edge(const sl_verify_tier *tier, uint32_t low, uint64_t edge)
{
    uint32_t high = low, step = 1;
    while (high < tier->range_count && tier->ranges[high].first_byte < edge) {
        low = high + 1;
        high = step < tier->range_count - high ? high + step : tier->range_count;
        step = step < tier->range_count ? 2 * step : step;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tier->ranges[middle].first_byte < edge)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* In `depth`, adds 1 at the range where the extent of a shrunk place starts and subtracts 1 at the
 * one where it ends: the sum of depth[0..i] is the number of such places over range i. */
static void count_shrunk(const sl_verify *verify, int32_t *depth[SL_TIER_COUNT])
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    for (uint32_t c = 0; c < verify->plan->body_count; c++) {
        uint32_t count = sl_verify_list_accesses(verify, &verify->plan->body[c], accesses);
        for (uint32_t i = 0; i < count; i++) {
            const sl_place *place = &accesses[i].place;
            const sl_verify_tier *tier = &verify->tiers[place->tier];
            if (place->bytes == 0 || !sl_verify_is_shrunk(place))
                continue;
            depth[place->tier][find_edge(tier, 0, place->offset)]++;
            depth[place->tier][find_edge(tier, 0, place->offset + sl_place_extent(place))]--;
        }
    }
}

/* Gives each range its cells, which hold no object yet. */
static bool make_cells(sl_verify_tier *tier, const int32_t *depth)
{
    int32_t homes = 0;
    for (uint32_t i = 0; i < tier->range_count; i++) {
        homes += depth[i];
        tier->ranges[i].first_cell = tier->cell_count;
        tier->cell_count += homes > 0 ? SL_VERIFY_REPLAYS : 1;
    }
    if (tier->range_count > 0)
        tier->ranges[tier->range_count].first_cell = tier->cell_count;
    tier->cells = calloc((size_t)tier->cell_count + 1, sizeof *tier->cells);
    if (tier->cell_count > tier->range_count) {
        tier->owners = calloc((size_t)tier->range_count + 1, sizeof *tier->owners);
        if (!tier->owners)
            return false;
    }
    for (uint32_t i = 0; tier->cells && i < tier->cell_count; i++)
        tier->cells[i].object = SL_NONE;
    return tier->cells != NULL;
}

static bool fill_tiers(sl_verify *verify)
{
    int32_t *depth[SL_TIER_COUNT] = {0};
    bool is_done = true;
    for (int i = 0; i < SL_TIER_COUNT; i++) {
        depth[i] = calloc((size_t)verify->tiers[i].range_count + 1, sizeof *depth[i]);
        is_done = is_done && depth[i];
    }
    if (is_done)
        count_shrunk(verify, depth);
    for (int i = 0; i < SL_TIER_COUNT; i++) {
        is_done = is_done && make_cells(&verify->tiers[i], depth[i]);
        free(depth[i]);
    }
    return is_done;
}

sl_status sl_verify_cells_open(sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    edge_list lists[SL_TIER_COUNT] = {{0}};
    bool is_done = add_commands(verify, plan->prologue, plan->prologue_count, lists) &&
                   add_commands(verify, plan->body, plan->body_count, lists) &&
                   add_homes(verify, lists);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        is_done = is_done && make_ranges(&verify->tiers[tier], &lists[tier]);
        free(lists[tier].edges);
    } /* all of them: NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    if (!is_done || !fill_tiers(verify))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify a plan of %u commands", plan->body_count);
    return SL_OK;
}

void sl_verify_cells_close(sl_verify *verify)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        free(verify->tiers[tier].owners);
        free(verify->tiers[tier].cells);
        free(verify->tiers[tier].ranges);
    }
}

/* ---- walking over cells ---- */

sl_verify_walk sl_verify_walk_start(sl_verify *verify, const sl_place *place)
{
    sl_verify_walk walk = {.tier = &verify->tiers[place->tier], .place = place};
    walk.instance = verify->repetition == SL_NONE ? 0 : verify->repetition;
    if (place->bytes == 0)
        return walk;
    bool is_shrunk = sl_verify_is_shrunk(place);
    uint64_t first = is_shrunk ? place->offset : sl_place_offset(place, walk.instance);
    uint64_t bytes = is_shrunk ? sl_place_extent(place) : place->bytes;
    walk.next_range = find_edge(walk.tier, 0, first);
    walk.end_range = find_edge(walk.tier, walk.next_range, first + bytes);
    assert(walk.tier->ranges[walk.next_range].first_byte == first);
    assert(walk.tier->ranges[walk.end_range].first_byte == first + bytes);
    return walk;
}

/* One run for a plain place, and one for each range of a shrunk home. */
bool sl_verify_walk_next(sl_verify_walk *walk)
{
    if (walk->next_range >= walk->end_range)
        return false;
    sl_verify_tier *tier = walk->tier;
    bool is_shrunk = sl_verify_is_shrunk(walk->place);
    walk->range = walk->next_range;
    walk->next_range = is_shrunk ? walk->range + 1 : walk->end_range;
    walk->taken = &tier->cells[tier->ranges[walk->range].first_cell];
    walk->taken_end = &tier->cells[tier->ranges[walk->next_range].first_cell];
    walk->cell = walk->taken;
    walk->end = walk->taken_end;
    walk->is_foreign = false;
    if (!is_shrunk)
        return true;
    walk->is_foreign = !sl_verify_places_equal(&tier->owners[walk->range], walk->place);
    walk->cell = walk->taken + walk->instance;
    walk->end = walk->cell + 1;
    if (!walk->is_foreign) {
        walk->taken = walk->cell;
        walk->taken_end = walk->end;
    }
    return true;
}

void sl_verify_walk_own(const sl_verify_walk *walk)
{
    const sl_verify_tier *tier = walk->tier;
    static const sl_place nobody = {.slots = 0};
    const sl_place *owner = sl_verify_is_shrunk(walk->place) ? walk->place : &nobody;
    for (uint32_t i = walk->range; tier->owners && i < walk->next_range; i++)
        tier->owners[i] = *owner;
}

void sl_verify_cell_bytes(const sl_verify_tier *tier, const sl_verify_cell *cell,
                          uint64_t *out_first, uint64_t *out_end)
{
    uint32_t index = (uint32_t)(cell - tier->cells), low = 0, high = tier->range_count;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tier->ranges[middle].first_cell <= index)
            low = middle;
        else
            high = middle;
    }
    *out_first = tier->ranges[low].first_byte;
    *out_end = tier->ranges[low + 1].first_byte;
}

/* Called between the data replay and the order replay. */
void sl_verify_cells_disown(sl_verify *verify)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        for (uint32_t i = 0; verify->tiers[tier].owners && i < verify->tiers[tier].range_count; i++)
            verify->tiers[tier].owners[i].slots = 0;
}
