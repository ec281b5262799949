/* Bytes in use at each tick, by kind: first the change at each tick, modulo 2^64, then the sums of
 * these changes. */
#include <string.h>

#include "chunk/plan.h"

static const char *const kind_names[SL_MEMORY_KIND_COUNT] = {
    "param", "grad", "master", "moment1", "moment2", "activation", "workspace", "staging"};

const char *sl_memory_kind_name(sl_memory_kind kind)
{
    return kind_names[kind];
}

/* Adds `bytes` from tick `first` up to, but not including, tick `end`; to the last tick if `end` is
 * beyond it. */
static void add_between(uint64_t *kind_bytes, uint32_t op_count, uint32_t first, uint32_t end,
                        uint64_t bytes)
{
    if (first < op_count)
        kind_bytes[(uint64_t)first * SL_MEMORY_KIND_COUNT] += bytes;
    if (first < op_count && end < op_count)
        kind_bytes[(uint64_t)end * SL_MEMORY_KIND_COUNT] -= bytes;
}

static void add_allocation(const sl_allocation *allocation, uint32_t op_count, uint64_t *out_bytes)
{
    uint64_t bytes = sl_place_extent(&allocation->place);
    uint64_t *kind_bytes = out_bytes + allocation->kind;
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent) {
        add_between(kind_bytes, op_count, 0, op_count, bytes);
        return;
    }
    if (first > last) {
        add_between(kind_bytes, op_count, 0, last + 1, bytes);
        last = op_count;
    }
    add_between(kind_bytes, op_count, first, last + 1, bytes);
}

void sl_plan_live_bytes(const sl_plan *plan, sl_tier tier, uint32_t op_count, uint64_t *out_bytes)
{
    uint64_t cell_count = (uint64_t)op_count * SL_MEMORY_KIND_COUNT;
    memset(out_bytes, 0, cell_count * sizeof *out_bytes);
    for (uint32_t a = 0; a < plan->allocation_count; a++)
        if (plan->allocations[a].place.tier == tier)
            add_allocation(&plan->allocations[a], op_count, out_bytes);
    for (uint64_t i = SL_MEMORY_KIND_COUNT; i < cell_count; i++)
        out_bytes[i] += out_bytes[i - SL_MEMORY_KIND_COUNT];
}
