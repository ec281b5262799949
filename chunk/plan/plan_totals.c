/* What a plan adds up to: its allocations, the most bytes alive at once, bytes by kind and lane. */
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "planner.h"

typedef struct totals {
    const sl_planner *planner;
    sl_plan *plan;
} totals;

static sl_allocation *append(totals *t)
{
    return &t->plan->allocations[t->plan->allocation_count++];
}

static void append_permanent(totals *t, sl_memory_kind kind, sl_tier tier, uint64_t offset,
                             uint64_t bytes)
{
    if (!bytes)
        return;
    *append(t) = (sl_allocation){.kind = kind,
                                 .place = {tier, offset, bytes},
                                 .first_tick = 0,
                                 .last_tick = t->planner->program->op_count,
                                 .is_permanent = true,
                                 .value = SL_NONE,
                                 .chunk_index = SL_NONE};
}

static void append_homes(totals *t)
{
    const sl_homes *homes = t->planner->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t c = 0; homes->tier[group] && c < homes->chunk_count; c++) {
            append_permanent(t, (sl_memory_kind)group, (sl_tier)homes->tier[group][c],
                             homes->offset[group][c],
                             sl_layout_chunk_bytes(t->planner->layout, (sl_group)group));
            sl_allocation *last = &t->plan->allocations[t->plan->allocation_count - 1];
            last->group = (sl_group)group;
            last->chunk_index = c;
        }
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        append_permanent(t, SL_MEMORY_STAGING, (sl_tier)tier, homes->flags_offset[tier],
                         homes->flags_bytes[tier]);
    append_permanent(t, SL_MEMORY_STAGING, SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes);
    for (uint32_t slot = 0; slot < homes->persistent_count; slot++)
        append_permanent(t, SL_MEMORY_ACTIVATION, SL_TIER_DEVICE, homes->persistent_offset[slot],
                         homes->persistent_bytes[slot]);
}

static sl_place place_of(const sl_address_item *item, const sl_item_source *source, sl_tier tier)
{
    bool is_family = source->slots > 1;
    return (sl_place){.tier = tier,
                      .offset = item->offset,
                      .bytes = is_family ? source->slot_bytes : item->bytes,
                      .stride = is_family ? source->stride : 0,
                      .slots = is_family ? source->slots : 0};
}

static void append_items(totals *t, sl_tier tier)
{
    const sl_planner *planner = t->planner;
    const sl_tier_state *state = &planner->tier[tier];
    for (uint32_t i = 0; i < state->item_count; i++) {
        const sl_address_item *item = &state->items[i];
        const sl_item_source *source = &state->sources[i];
        if (item->bytes == 0) /* the home of an activation that stays on the device */
            continue;
        sl_allocation *allocation = append(t);
        *allocation = (sl_allocation){.kind = source->kind,
                                      .place = place_of(item, source, tier),
                                      .first_tick = item->first_tick,
                                      .last_tick = item->last_tick,
                                      .value = source->value,
                                      .chunk_index = SL_NONE};
        bool is_slot = source->kind == SL_MEMORY_STAGING && source->value != SL_NONE &&
                       !sl_planner_is_filled(planner, source->value);
        if (is_slot) { /* slots belong to the caller between iterations */
            allocation->is_permanent = true;
            allocation->last_tick = planner->program->op_count;
        }
        if (source->object == SL_NONE)
            continue;
        allocation->group = (sl_group)(source->object / planner->chunk_count);
        allocation->chunk_index = source->object % planner->chunk_count;
    }
}

/* Adds `bytes` over a life to a difference array of op_count + 1 ticks. */
static void add_life(int64_t *difference, const sl_allocation *allocation, uint32_t op_count)
{
    int64_t bytes = (int64_t)sl_place_extent(&allocation->place);
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent || first > last)
        difference[0] += bytes;
    if (allocation->is_permanent)
        return;
    if (first > last) {
        difference[last + 1] -= bytes;
        difference[first] += bytes;
        return;
    }
    difference[first] += bytes;
    if (last + 1 <= op_count)
        difference[last + 1] -= bytes;
}

static bool is_alive(const sl_allocation *allocation, uint32_t tick)
{
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent)
        return true;
    return first > last ? tick >= first || tick <= last : tick >= first && tick <= last;
}

static void find_peak(totals *t, sl_tier tier, int64_t *difference)
{
    uint32_t op_count = t->planner->program->op_count;
    const sl_plan *plan = t->plan;
    for (uint32_t tick = 0; tick <= op_count; tick++)
        difference[tick] = 0;
    for (uint32_t a = 0; a < plan->allocation_count; a++)
        if (plan->allocations[a].place.tier == tier)
            add_life(difference, &plan->allocations[a], op_count);
    int64_t live = 0, peak = -1;
    uint32_t peak_tick = 0;
    for (uint32_t tick = 0; tick < op_count; tick++) {
        live += difference[tick];
        if (live > peak) {
            peak = live;
            peak_tick = tick;
        }
    }
    t->plan->live_peak_bytes[tier] = (uint64_t)(peak < 0 ? 0 : peak);
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        const sl_allocation *allocation = &plan->allocations[a];
        if (allocation->place.tier == tier && is_alive(allocation, peak_tick))
            t->plan->kind_bytes[tier][allocation->kind] += sl_place_extent(&allocation->place);
    }
}

/* Each copy as often as its section is run. */
static sl_status add_moves(sl_plan *plan)
{
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t c = section->first; c < section->first + section->count; c++) {
            const sl_command *command = &plan->body[c];
            uint64_t bytes, *moved = &plan->moved_bytes[command->lane];
            if (command->kind != SL_COMMAND_COPY)
                continue;
            SL_TRY(sl_bits_multiply(command->to.bytes, section->repeat, "the moves", &bytes));
            SL_TRY(sl_bits_add(*moved, bytes, "the moves", moved));
        }
    }
    return SL_OK;
}

sl_status sl_plan_totals_fill(const sl_planner *planner, sl_plan *plan)
{
    const sl_homes *homes = planner->homes;
    uint64_t capacity =
        (uint64_t)SL_GROUP_COUNT * homes->chunk_count + SL_TIER_COUNT + homes->persistent_count + 2;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        capacity += planner->tier[tier].item_count;
    int64_t *difference = calloc((uint64_t)planner->program->op_count + 2, sizeof *difference);
    plan->allocations = calloc(capacity, sizeof *plan->allocations);
    if (!difference || !plan->allocations) {
        free(difference);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to add up a plan");
    }
    totals t = {.planner = planner, .plan = plan};
    append_homes(&t);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        append_items(&t, (sl_tier)tier);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        find_peak(&t, (sl_tier)tier, difference);
        plan->peak_bytes[tier] = planner->tier[tier].peak_bytes;
    }
    free(difference);
    return add_moves(plan);
}
