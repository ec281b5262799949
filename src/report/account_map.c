/* Where things are: the address map of each tier, and the tiers of each chunk. */
#include "account_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"

/* ---- addresses ---- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Those that may be merged stand side by side, by address. */
static int by_life(const void *left, const void *right)
{
    const sl_account_object *a = &((const sl_account_region *)left)->object;
    const sl_account_object *b = &((const sl_account_region *)right)->object;
    int order = (int)a->is_permanent - (int)b->is_permanent;
    if (!order)
        order = compare_u64(a->first_tick, b->first_tick);
    if (!order)
        order = compare_u64(a->last_tick, b->last_tick);
    if (!order)
        order = (int)a->kind - (int)b->kind;
    return order ? order : compare_u64(a->offset, b->offset);
}

static bool follows(const sl_account_object *a, const sl_account_object *b)
{
    return a->is_permanent == b->is_permanent && a->first_tick == b->first_tick &&
           a->last_tick == b->last_tick && a->kind == b->kind && a->offset + a->bytes == b->offset;
}

static uint32_t merge_regions(sl_account_region *regions, uint32_t count)
{
    uint32_t merged = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (merged > 0 && follows(&regions[merged - 1].object, &regions[i].object)) {
            regions[merged - 1].object.bytes += regions[i].object.bytes;
            regions[merged - 1].count++;
        } else {
            regions[merged++] = regions[i];
        }
    }
    return merged;
}

/* Of its rectangle, in bytes times ticks; one that wraps counts as whole. */
static double measure_area(const sl_account_region *region)
{
    const sl_account_object *object = &region->object;
    double ticks = object->last_tick >= object->first_tick
                       ? (double)(object->last_tick - object->first_tick) + 1
                       : 1e9;
    return (double)object->bytes * ticks;
}

static int by_area(const void *left, const void *right)
{
    double a = measure_area(left), b = measure_area(right);
    int order = (b > a) - (b < a);
    return order ? order : by_life(left, right);
}

sl_status sl_account_fill_regions(sl_account *account, sl_tier index)
{
    const sl_plan *plan = account->request.plan;
    sl_account_tier *tier = &account->tier[index];
    uint32_t count = 0;
    sl_account_region *regions = calloc((uint64_t)plan->allocation_count + 1, sizeof *regions);
    if (!regions)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to map %u objects", plan->allocation_count);
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        if (plan->allocations[a].place.tier != index)
            continue;
        sl_account_describe(&account->request, &plan->allocations[a], &regions[count].object);
        regions[count++].count = 1;
    }
    qsort(regions, count, sizeof *regions, by_life);
    tier->all_regions = merge_regions(regions, count);
    qsort(regions, tier->all_regions, sizeof *regions, by_area);
    tier->region_count =
        tier->all_regions < SL_ACCOUNT_REGIONS ? tier->all_regions : SL_ACCOUNT_REGIONS;
    tier->regions = regions;
    return SL_OK;
}

/* ---- residency ---- */

/* The column that a tick is in; the tick behind the last is in the last. */
static uint32_t find_column(const sl_account *account, uint32_t tick)
{
    if (tick >= account->op_count)
        return account->column_count - 1;
    uint32_t column = (uint32_t)((uint64_t)tick * account->column_count / account->op_count);
    while (sl_account_column_tick(account, column + 1) <= tick)
        column++;
    return column;
}

static void mark(sl_account_residency *rows, const sl_account *account,
                 const sl_allocation *allocation)
{
    uint32_t columns = account->column_count;
    uint8_t *row = rows->cells + (uint64_t)(allocation->chunk_index / rows->chunks_a_row) * columns;
    uint32_t first = find_column(account, allocation->first_tick);
    uint32_t last = find_column(account, allocation->last_tick);
    bool wraps = allocation->first_tick > allocation->last_tick;
    if (allocation->is_permanent) {
        first = 0;
        last = columns - 1;
    }
    for (uint32_t c = 0; c < columns; c++)
        if (wraps ? c >= first || c <= last : c >= first && c <= last)
            row[c] |= (uint8_t)(1u << allocation->place.tier);
}

static sl_status open_rows(sl_account *account, sl_group group)
{
    uint32_t chunks = account->request.layout->chunk_count;
    sl_account_residency *rows = &account->residency[group];
    rows->group = group;
    if (!account->request.homes->tier[group] || chunks == 0)
        return SL_OK;
    rows->chunks_a_row = (uint32_t)sl_bits_divide_up(chunks, SL_ACCOUNT_ROWS);
    rows->row_count = (uint32_t)sl_bits_divide_up(chunks, rows->chunks_a_row);
    rows->cells = calloc((uint64_t)rows->row_count * account->column_count, 1);
    if (!rows->cells)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a map of %u chunks", chunks);
    return SL_OK;
}

sl_status sl_account_fill_residency(sl_account *account)
{
    const sl_plan *plan = account->request.plan;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        SL_TRY(open_rows(account, (sl_group)group));
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        const sl_allocation *allocation = &plan->allocations[a];
        if (allocation->chunk_index != SL_NONE && account->residency[allocation->group].cells)
            mark(&account->residency[allocation->group], account, allocation);
    }
    return SL_OK;
}
