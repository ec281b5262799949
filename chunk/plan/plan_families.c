/* Families: values with an instance for each repetition of the loops that use them.
 *
 * A family has one home, where all its instances lie one after the other. If that is not the
 * device, a loop sees it through a ring of two: while one instance is computed on, the lanes write
 * the one before home and fetch the next one, as far as they get; hazards know which slot is whose.
 * So a loop's plan is the same for any number of instances.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "planner.h"

enum { RING_SLOTS = 2 };

static bool is_family(const sl_planner *planner, uint32_t v)
{
    const sl_value *value = &planner->program->values[v];
    return value->kind == SL_VALUE_ACTIVATION && value->instances > 1;
}

static uint8_t home_of(const sl_planner *planner, uint32_t v)
{
    return planner->home_tier[planner->first_activation + v];
}

/* ---- homes ---- */

sl_status sl_plan_families_leave(sl_planner *planner)
{
    const sl_program *program = planner->program;
    bool *is_seen = calloc((uint64_t)program->value_count + 1, sizeof *is_seen);
    if (!is_seen)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u values", program->value_count);
    planner->family_count = 0;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            uint32_t v = program->ops[tick].operand[i];
            if (v == SL_NONE || is_seen[v] || !is_family(planner, v) ||
                home_of(planner, v) != SL_TIER_DEVICE)
                continue;
            is_seen[v] = true;
            if (planner->family_count++ < planner->leaving_count)
                planner->home_tier[planner->first_activation + v] = SL_TIER_HOST;
        }
    }
    free(is_seen);
    return SL_OK;
}

/* ---- items ---- */

sl_status sl_plan_families_make_item(const sl_planner *planner, sl_tier tier, uint32_t value,
                                     uint32_t slots, sl_address_item *item, sl_item_source *source)
{
    const sl_value *made = &planner->program->values[value];
    uint64_t alignment = planner->tier[tier].alignment, before;
    uint64_t stride = sl_bits_round_up(made->bytes, alignment);
    source->slots = slots;
    source->slot_bytes = made->bytes;
    source->stride = slots > 1 ? stride : 0;
    item->bytes = made->bytes;
    if (slots <= 1)
        return SL_OK;
    SL_TRY(sl_bits_multiply(stride, slots - 1, made->name, &before));
    return sl_bits_add(before, made->bytes, made->name, &item->bytes);
}

static sl_status add_ring(sl_planner *planner, sl_tier tier, sl_family_pass *pass)
{
    sl_address_item item = {.first_tick = pass->first_tick, .last_tick = pass->last_tick};
    sl_item_source source = {.kind = SL_MEMORY_ACTIVATION, .value = pass->value, .object = SL_NONE};
    SL_TRY(sl_plan_families_make_item(planner, tier, pass->value, RING_SLOTS, &item, &source));
    return sl_plan_lives_add_item(&planner->tier[tier], &item, &source, &pass->item[tier]);
}

/* ---- passes ---- */

static sl_status add_pass(sl_planner *planner, const sl_family_pass *pass)
{
    if (planner->pass_count == planner->pass_capacity) {
        uint32_t capacity = planner->pass_capacity ? 2 * planner->pass_capacity : 64;
        sl_family_pass *passes = realloc(planner->passes, (uint64_t)capacity * sizeof *passes);
        if (!passes)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u families", capacity);
        planner->passes = passes;
        planner->pass_capacity = capacity;
    }
    planner->first_pass[pass->value] = planner->pass_count;
    planner->passes[planner->pass_count++] = *pass;
    return SL_OK;
}

static sl_status see_operand(sl_planner *planner, const sl_residency_loop *loop, uint32_t tick,
                             uint32_t operand_index)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[operand_index];
    if (v == SL_NONE || !is_family(planner, v) || home_of(planner, v) == SL_TIER_DEVICE)
        return SL_OK;
    uint32_t latest = planner->first_pass[v];
    bool is_new = latest == SL_NONE || planner->passes[latest].first_tick != loop->first_tick;
    const sl_family_pass pass = {.value = v,
                                 .first_tick = loop->first_tick,
                                 .last_tick = loop->end_tick - 1,
                                 .is_fetched = sl_op_reads(op, operand_index),
                                 .last_write = SL_NONE,
                                 .item = {SL_NONE, SL_NONE, SL_NONE},
                                 .next = latest};
    if (is_new)
        SL_TRY(add_pass(planner, &pass));
    if (sl_op_writes(op, operand_index))
        planner->passes[planner->first_pass[v]].last_write = tick;
    return SL_OK;
}

sl_status sl_plan_families_find_passes(sl_planner *planner)
{
    planner->pass_count = 0;
    memset(planner->first_pass, 0xFF, planner->program->value_count * sizeof(uint32_t));
    for (uint32_t l = 0; l < planner->loop_count; l++) {
        const sl_residency_loop *loop = &planner->loops[l];
        for (uint32_t tick = loop->first_tick; tick < loop->end_tick; tick++)
            for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
                SL_TRY(see_operand(planner, loop, tick, i));
    }
    for (uint32_t p = 0; p < planner->pass_count; p++) {
        sl_family_pass *pass = &planner->passes[p];
        SL_TRY(add_ring(planner, SL_TIER_DEVICE, pass));
        if (home_of(planner, pass->value) == SL_TIER_DISK)
            SL_TRY(add_ring(planner, SL_TIER_HOST, pass));
    }
    return SL_OK;
}

const sl_family_pass *sl_plan_families_pass_at(const sl_planner *planner, uint32_t value,
                                               uint32_t tick)
{
    for (uint32_t p = planner->first_pass[value]; p != SL_NONE; p = planner->passes[p].next) {
        const sl_family_pass *pass = &planner->passes[p];
        if (pass->first_tick <= tick && tick <= pass->last_tick)
            return pass;
    }
    return NULL;
}
