/* Cuts each tier at every edge of every access, home and slot, so that an access is a run of cells.
 * Knows no versions and no clocks. */
#include <stdlib.h>

#include "verify.h"

/* The edges of one tier, before they are sorted. */
typedef struct edge_list {
    uint64_t *edges;
    uint64_t count, capacity;
} edge_list;

static bool add_edge(edge_list *list, uint64_t edge)
{
    if (list->count == list->capacity) {
        uint64_t capacity = list->capacity ? 2 * list->capacity : 1024;
        uint64_t *edges = realloc(list->edges, capacity * sizeof *edges);
        if (!edges)
            return false;
        list->edges = edges;
        list->capacity = capacity;
    }
    list->edges[list->count++] = edge;
    return true;
}

static bool add_place(edge_list lists[SL_TIER_COUNT], const sl_place *place)
{
    if (place->bytes == 0)
        return true;
    return add_edge(&lists[place->tier], place->offset) &&
           add_edge(&lists[place->tier], place->offset + place->bytes);
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
        sl_place place = {SL_TIER_DEVICE, homes->persistent_offset[i], homes->persistent_bytes[i]};
        if (!add_place(lists, &place))
            return false;
    }
    for (uint32_t i = 0; i < verify->program->value_count; i++)
        if (!add_place(lists, &verify->slot[i]))
            return false;
    return true;
}

static int compare_edges(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Turns the edges of a tier into cells that hold nothing. */
static bool make_cells(sl_verify *verify, sl_tier tier, edge_list *list)
{
    if (list->count == 0)
        return true;
    qsort(list->edges, list->count, sizeof *list->edges, compare_edges);
    uint64_t kept = 1;
    for (uint64_t i = 1; i < list->count; i++)
        if (list->edges[i] != list->edges[kept - 1])
            list->edges[kept++] = list->edges[i];
    sl_verify_cell *cells = calloc(kept, sizeof *cells);
    if (!cells)
        return false;
    for (uint64_t i = 0; i < kept; i++) {
        cells[i].first_byte = list->edges[i];
        cells[i].object = SL_NONE;
    }
    verify->cells[tier] = cells;
    verify->cell_count[tier] = (uint32_t)(kept - 1);
    return true;
}

sl_status sl_verify_cells_open(sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    edge_list lists[SL_TIER_COUNT] = {{0}};
    bool is_done = add_commands(verify, plan->prologue, plan->prologue_count, lists) &&
                   add_commands(verify, plan->body, plan->body_count, lists) &&
                   add_homes(verify, lists);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        is_done = is_done && make_cells(verify, (sl_tier)tier, &lists[tier]);
        free(lists[tier].edges);
    }
    if (!is_done)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify a plan of %u commands", plan->body_count);
    return SL_OK;
}

void sl_verify_cells_close(sl_verify *verify)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(verify->cells[tier]);
}

/* The cell that starts at `edge`, which is an edge of the tier. */
static sl_verify_cell *find_edge(sl_verify *verify, sl_tier tier, uint64_t edge)
{
    sl_verify_cell *cells = verify->cells[tier];
    uint32_t low = 0, high = verify->cell_count[tier];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cells[middle].first_byte < edge)
            low = middle + 1;
        else
            high = middle;
    }
    return &cells[low];
}

void sl_verify_cells_find(sl_verify *verify, const sl_place *place, sl_verify_cell **out_first,
                          sl_verify_cell **out_end)
{
    *out_first = find_edge(verify, place->tier, place->offset);
    *out_end = find_edge(verify, place->tier, place->offset + place->bytes);
}
