/* Does a plan's list of allocations say where its commands really are? No lane reads the list and
 * the verifier does not compare the two (docs/decisions/0089), but reports are drawn from it. Every
 * place of a command is looked for in the whole list: slow, and plain.
 */
#ifndef SL_TESTS_PLAN_LISTING_H
#define SL_TESTS_PLAN_LISTING_H

#include "plan_builder.h"
#include "plan_faults.h"

/* What a command uses at a place. */
typedef struct listed_use {
    sl_place place;
    uint32_t value, chunk_index; /* as in sl_allocation; both SL_NONE: workspace */
    sl_group group;
} listed_use;

static inline bool listing_is_of(const sl_allocation *it, const listed_use *use)
{
    if (it->chunk_index != use->chunk_index || it->value != use->value)
        return false;
    if (use->chunk_index != SL_NONE)
        return it->group == use->group;
    return use->value != SL_NONE || it->kind == SL_MEMORY_WORKSPACE;
}

/* A place with slots is an allocation's, slot by slot. */
static inline bool listing_holds(const sl_place *outer, const sl_place *inner)
{
    if (outer->tier != inner->tier)
        return false;
    if (outer->slots > 1 || inner->slots > 1)
        return outer->offset == inner->offset && outer->slots == inner->slots &&
               outer->stride == inner->stride && inner->bytes <= outer->bytes;
    return outer->offset <= inner->offset &&
           inner->offset + inner->bytes <= outer->offset + outer->bytes;
}

/* Does an allocation of what is used live there at `tick`, or at the tick before? */
static inline bool listing_has(const sl_plan *plan, const listed_use *use, uint32_t tick,
                               bool or_before)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (!listing_is_of(it, use) || !listing_holds(&it->place, &use->place))
            continue;
        if (plan_lives_at(it, tick) || (or_before && tick > 0 && plan_lives_at(it, tick - 1)))
            return true;
    }
    return false;
}

/* A chunk passes through the host on the prologue's way from disk to device. */
static inline bool listing_has_hop(const sl_plan *plan, const sl_place *place)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->kind == SL_MEMORY_STAGING && !it->is_permanent && it->value == SL_NONE &&
            it->chunk_index == SL_NONE && plan_lives_at(it, 0) && listing_holds(&it->place, place))
            return true;
    }
    return false;
}

static inline listed_use listing_of_value(const sl_plan_request *request, uint32_t v,
                                          const sl_place *place)
{
    const uint32_t whole = sl_program_whole(request->program, v);
    const sl_value *value = &request->program->values[whole];
    listed_use use = {.place = *place, .value = whole, .chunk_index = SL_NONE};
    if (value->kind != SL_VALUE_CHUNK && value->kind != SL_VALUE_TENSOR)
        return use;
    use.value = SL_NONE;
    use.group = value->group;
    use.chunk_index = value->kind == SL_VALUE_CHUNK
                          ? value->index
                          : request->layout->chunk_of_tensor[value->index];
    return use;
}

static inline bool listing_has_run(const sl_plan_request *request, const sl_plan *plan,
                                   const sl_command *command)
{
    const sl_op *op = &request->program->ops[command->tick];
    const sl_place *places = &plan->places[command->first_place];
    for (uint32_t i = 0; i + 1 < command->place_count; i++) {
        uint32_t v = op->operand[i];
        if (v == SL_NONE || request->program->values[v].kind == SL_VALUE_PERSISTENT)
            continue;
        const listed_use use = listing_of_value(request, v, &places[i]);
        if (!listing_has(plan, &use, command->tick, false))
            return false;
    }
    const listed_use workspace = {
        .place = places[command->place_count - 1], .value = SL_NONE, .chunk_index = SL_NONE};
    return workspace.place.bytes == 0 || listing_has(plan, &workspace, command->tick, false);
}

/* A copy stands before an op: what ends with the op before may still be there. */
static inline bool listing_has_copy(const sl_plan *plan, const sl_command *command,
                                    bool is_prologue)
{
    const sl_place *places[] = {&command->from, &command->to};
    bool is_there = true;
    for (int i = 0; i < 2; i++) {
        const listed_use use = {.place = *places[i],
                                .value = command->value,
                                .chunk_index = command->chunk_index,
                                .group = command->group};
        is_there = is_there && (listing_has(plan, &use, is_prologue ? 0 : command->tick, true) ||
                                (is_prologue && listing_has_hop(plan, places[i])));
    }
    return is_there;
}

static inline bool listing_has_permanent(const sl_plan *plan, sl_tier tier, uint64_t offset,
                                         uint64_t bytes)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->is_permanent && it->place.tier == tier && it->place.offset == offset &&
            it->place.bytes == bytes)
            return true;
    }
    return bytes == 0;
}

static inline bool listing_has_homes(const sl_plan_request *request, const sl_plan *plan)
{
    const sl_homes *homes = request->homes;
    bool is_there =
        listing_has_permanent(plan, SL_TIER_DEVICE, homes->counted_offset, homes->counted_bytes) &&
        listing_has_permanent(plan, SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; homes->tier[group] && c < homes->chunk_count; c++)
            is_there =
                is_there &&
                listing_has_permanent(plan, (sl_tier)homes->tier[group][c], homes->offset[group][c],
                                      sl_layout_chunk_bytes(request->layout, (sl_group)group, c));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        is_there = is_there && listing_has_permanent(plan, (sl_tier)tier, homes->flags_offset[tier],
                                                     homes->flags_bytes[tier]);
    for (uint32_t i = 0; i < homes->persistent_count; i++)
        is_there =
            is_there && listing_has_permanent(plan, SL_TIER_DEVICE, homes->persistent_offset[i],
                                              homes->persistent_bytes[i]);
    return is_there;
}

static inline bool listing_is_true(const sl_plan_request *request, const sl_plan *plan)
{
    if (!listing_has_homes(request, plan))
        return false;
    for (uint32_t i = 0; i < plan->prologue_count; i++)
        if (!listing_has_copy(plan, &plan->prologue[i], true))
            return false;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        const sl_command *command = &plan->body[i];
        if (command->kind == SL_COMMAND_COPY ? !listing_has_copy(plan, command, false)
                                             : !listing_has_run(request, plan, command))
            return false;
    }
    return true;
}

/* Plants each fault of a list that has a place in the plan; returns how many. */
static inline uint32_t plant_listing_faults(const sl_plan_request *request, const sl_plan *plan)
{
    uint32_t planted = 0;
    for (uint32_t i = 0; i < LISTING_FAULT_COUNT; i++) {
        sl_plan copy = edit_copy(plan);
        bool is_planted = listing_faults[i].plant(request, &copy);
        if (is_planted && listing_is_true(request, &copy))
            fail_msg("%s was not seen", listing_faults[i].name);
        planted += is_planted;
        edit_close(&copy);
    }
    return planted;
}

#endif
