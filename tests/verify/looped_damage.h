/* Damages plans with repeated sections at random: waits, places, slots, commands. What a damaged
 * plan says can still be unrolled: its indices exist. */
#ifndef SL_TESTS_LOOPED_DAMAGE_H
#define SL_TESTS_LOOPED_DAMAGE_H

#include "looped_plans.h"

typedef struct looped_damage {
    const looped_case *of;
    sl_plan *plan; /* a copy of its plan */
    uint64_t seed, draws;
} looped_damage;

static inline uint32_t damage_draw(looped_damage *it, uint32_t bound)
{
    return bound == 0 ? 0 : (uint32_t)sl_rng_below(it->seed, 53, it->draws++, bound);
}

/* ---- waits ---- */

static inline sl_wait *damage_find_wait(looped_damage *it, uint32_t *out_index, uint32_t *out_wait)
{
    uint32_t start = damage_draw(it, it->plan->body_count);
    for (uint32_t i = 0; i < it->plan->body_count; i++) {
        *out_index = (start + i) % it->plan->body_count;
        const sl_command *command = &it->plan->body[*out_index];
        *out_wait = damage_draw(it, command->wait_count);
        if (command->wait_count > 0)
            return &it->plan->waits[command->first_wait + *out_wait];
    }
    return NULL;
}

static inline bool damage_drop_wait(looped_damage *it)
{
    uint32_t index, wait;
    if (!damage_find_wait(it, &index, &wait))
        return false;
    edit_drop_wait(it->plan, index, wait);
    return true;
}

static inline bool damage_turn_age(looped_damage *it)
{
    uint32_t index, wait;
    sl_wait *found = damage_find_wait(it, &index, &wait);
    if (found)
        found->age = 1 - found->age;
    return found != NULL;
}

static inline bool damage_turn_wait(looped_damage *it)
{
    uint32_t index, wait;
    sl_wait *found = damage_find_wait(it, &index, &wait);
    if (found)
        found->command = damage_draw(it, it->plan->body_count);
    return found != NULL;
}

/* ---- places ---- */

/* A place of a random command, with bytes; NULL if none was drawn. */
static inline sl_place *damage_find_place(looped_damage *it)
{
    sl_command *command = &it->plan->body[damage_draw(it, it->plan->body_count)];
    if (command->kind == SL_COMMAND_COPY)
        return damage_draw(it, 2) ? &command->from : &command->to;
    sl_place *place =
        &it->plan->places[command->first_place + damage_draw(it, command->place_count)];
    return place->bytes > 0 ? place : NULL;
}

static inline bool damage_shift_place(looped_damage *it)
{
    sl_place *place = damage_find_place(it);
    if (!place)
        return false;
    uint64_t step = damage_draw(it, 2) ? 4096 : 256;
    bool is_up = damage_draw(it, 2) || place->offset < step;
    place->offset = is_up ? place->offset + step : place->offset - step;
    return true;
}

static inline bool damage_slots(looped_damage *it)
{
    sl_place *place = damage_find_place(it);
    if (!place || place->slots < 2)
        return false;
    place->slots = place->slots > 2 ? 2 : 0;
    place->stride = place->slots ? place->stride : 0;
    return true;
}

static inline bool damage_stride(looped_damage *it)
{
    sl_place *place = damage_find_place(it);
    if (!place || place->slots < 2)
        return false;
    place->stride = damage_draw(it, 2) ? place->stride + 4096 : place->stride - 256;
    return true;
}

static inline bool damage_is_of(const looped_damage *it, const touch *what,
                                const sl_allocation *allocation)
{
    uint32_t object =
        allocation->chunk_index == SL_NONE
            ? allocation->value
            : touch_chunk(&it->of->request, allocation->group, allocation->chunk_index);
    return what->object == object && places_overlap(&what->place, &allocation->place);
}

/* Every place in the allocation becomes as `turn` makes it, and the allocation, too. */
static inline void damage_all_places(looped_damage *it, uint32_t index, const sl_place *turned)
{
    sl_allocation *allocation = &it->plan->allocations[index];
    for (uint32_t c = 0; c < it->plan->body_count; c++) {
        sl_command *command = &it->plan->body[c];
        sl_place *places[TOUCH_MAX];
        touch touches[TOUCH_MAX];
        uint32_t count = touch_list(&it->of->request, it->plan, command, touches), next = 0;
        if (command->kind == SL_COMMAND_COPY) {
            places[0] = &command->from;
            places[1] = &command->to;
        } else {
            for (uint32_t i = 0; i < command->place_count; i++)
                if (it->plan->places[command->first_place + i].bytes > 0)
                    places[next++] = &it->plan->places[command->first_place + i];
        }
        for (uint32_t i = 0; i < count; i++)
            if (damage_is_of(it, &touches[i], allocation))
                *places[i] = *turned;
    }
    allocation->place = *turned;
}

/* A ring becomes one slot, or a home a ring; with everything that uses it. */
static inline bool damage_all_slots(looped_damage *it)
{
    uint32_t index = damage_draw(it, it->plan->allocation_count);
    sl_place place = it->plan->allocations[index].place;
    if (place.slots < 2)
        return false;
    place.slots = place.slots > 2 && damage_draw(it, 3) ? 2 : 0;
    place.stride = place.slots ? place.stride : 0;
    damage_all_places(it, index, &place);
    return true;
}

/* A place for one becomes a ring: wrong only if the bytes behind it are needed. */
static inline bool damage_more_slots(looped_damage *it)
{
    uint32_t index = damage_draw(it, it->plan->allocation_count);
    const sl_allocation *allocation = &it->plan->allocations[index];
    sl_place place = allocation->place;
    bool is_family = allocation->chunk_index == SL_NONE && allocation->value != SL_NONE &&
                     it->of->program.values[allocation->value].instances > 1;
    if (!is_family || place.slots > 1)
        return false;
    place.slots = 2;
    place.stride = 4096;
    damage_all_places(it, index, &place);
    return true;
}

/* Over something else, or where nothing is. */
static inline bool damage_move_allocation(looped_damage *it)
{
    uint32_t index = damage_draw(it, it->plan->allocation_count);
    const sl_allocation *allocation = &it->plan->allocations[index];
    sl_place place = allocation->place;
    uint64_t low = it->of->homes.fixed_bytes[place.tier], high = it->plan->peak_bytes[place.tier];
    if (allocation->is_permanent || high < low + sl_place_extent(&place))
        return false;
    uint64_t steps = (high - low - sl_place_extent(&place)) / 4096;
    place.offset = (low + 4095) / 4096 * 4096 + 4096 * damage_draw(it, (uint32_t)steps + 1);
    damage_all_places(it, index, &place);
    return true;
}

/* ---- commands ---- */

static inline uint32_t damage_find_copy(looped_damage *it)
{
    uint32_t start = damage_draw(it, it->plan->body_count);
    for (uint32_t i = 0; i < it->plan->body_count; i++) {
        uint32_t index = (start + i) % it->plan->body_count;
        if (it->plan->body[index].kind == SL_COMMAND_COPY)
            return index;
    }
    return SL_NONE;
}

static inline void damage_swap_waits(sl_plan *plan, uint32_t index)
{
    for (uint32_t i = 0; i < plan->wait_count; i++) {
        uint32_t *command = &plan->waits[i].command;
        *command = *command == index ? index + 1 : *command == index + 1 ? index : *command;
    }
}

/* A copy and its neighbour, in one section, change places. */
static inline bool damage_swap(looped_damage *it)
{
    uint32_t index = damage_find_copy(it);
    if (index == SL_NONE || index + 1 >= it->plan->body_count)
        return false;
    for (uint32_t s = 0; s < it->plan->section_count; s++)
        if (index + 1 == it->plan->sections[s].first)
            return false;
    sl_command *body = it->plan->body, copy = body[index];
    if (body[index + 1].kind == SL_COMMAND_RUN)
        copy.tick = body[index + 1].tick + 1;
    body[index] = body[index + 1];
    body[index + 1] = copy;
    damage_swap_waits(it->plan, index);
    return true;
}

static inline bool damage_drop_copy(looped_damage *it)
{
    uint32_t index = damage_find_copy(it);
    if (index != SL_NONE)
        edit_remove(it->plan, index);
    return index != SL_NONE;
}

/* A copy of another loop's: its lane and object stay, its end is another's. */
static inline bool damage_redirect(looped_damage *it)
{
    uint32_t index = damage_find_copy(it), other = damage_find_copy(it);
    sl_command *copy = index == SL_NONE ? NULL : &it->plan->body[index];
    if (!copy || copy->lane != it->plan->body[other].lane || index == other)
        return false;
    sl_command turned = it->plan->body[other];
    turned.tick = copy->tick;
    turned.first_wait = copy->first_wait;
    turned.wait_count = copy->wait_count;
    *copy = turned;
    return true;
}

typedef struct damage_kind {
    const char *name;
    bool (*apply)(looped_damage *it);
} damage_kind;

static const damage_kind damage_kinds[] = {
    {"a wait dropped", damage_drop_wait},
    {"a wait of another age", damage_turn_age},
    {"a wait for another", damage_turn_wait},
    {"a place shifted", damage_shift_place},
    {"a place with other slots", damage_slots},
    {"a place with another stride", damage_stride},
    {"fewer slots", damage_all_slots},
    {"more slots", damage_more_slots},
    {"an allocation moved", damage_move_allocation},
    {"two commands swapped", damage_swap},
    {"a copy dropped", damage_drop_copy},
    {"a copy of something else", damage_redirect},
};

enum { DAMAGE_KIND_COUNT = sizeof damage_kinds / sizeof *damage_kinds };

/* The sums that follow, so that no damage is found by them. */
static inline void damage_resum(looped_damage *it)
{
    plan_builder sums = {.request = &it->of->request, .plan = *it->plan};
    plan_sum(&sums);
    *it->plan = sums.plan;
    edit_recount(it->plan);
}

#endif
