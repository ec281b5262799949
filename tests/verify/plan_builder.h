/* Builds plans by hand, for tests: commands, waits and allocations are appended one by one, and
 * places follow from where the test says that each chunk and value is. Decides nothing by itself.
 */
#ifndef SL_TESTS_PLAN_BUILDER_H
#define SL_TESTS_PLAN_BUILDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/plan.h"

/* A plan whose arrays have room; all of it is freed by plan_close. */
typedef struct plan_builder {
    const sl_plan_request *request;
    sl_plan plan;
    uint32_t prologue_room, body_room, section_room, place_room, wait_room, allocation_room;
    sl_place *value_at;                 /* [SL_TIER_COUNT][value_count] */
    sl_place *chunk_at[SL_GROUP_COUNT]; /* [SL_TIER_COUNT][chunk_count] */
} plan_builder;

static inline void *plan_grow(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 16;
    array = realloc(array, *room * bytes);
    if (!array) {
        fprintf(stderr, "no memory\n");
        abort();
    }
    return array;
}

static inline sl_place *plan_chunk_at(plan_builder *builder, sl_tier tier, sl_group group,
                                      uint32_t chunk)
{
    return &builder
                ->chunk_at[group][(uint32_t)tier * builder->request->layout->chunk_count + chunk];
}

static inline sl_place *plan_value_at(plan_builder *builder, sl_tier tier, uint32_t value)
{
    return &builder->value_at[(uint32_t)tier * builder->request->program->value_count + value];
}

static inline sl_place plan_home(const sl_plan_request *request, sl_group group, uint32_t chunk)
{
    sl_place home = {(sl_tier)request->homes->tier[group][chunk],
                     request->homes->offset[group][chunk],
                     sl_layout_chunk_bytes(request->layout, group, chunk)};
    return home;
}

/* Starts with every chunk at its home and no value anywhere. */
static inline void plan_begin(plan_builder *builder, const sl_plan_request *request)
{
    *builder = (plan_builder){.request = request};
    uint32_t chunks = request->layout->chunk_count;
    builder->value_at = calloc((size_t)SL_TIER_COUNT * request->program->value_count + 1,
                               sizeof *builder->value_at);
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        builder->chunk_at[group] = calloc((size_t)SL_TIER_COUNT * chunks + 1, sizeof(sl_place));
        for (uint32_t i = 0; request->homes->tier[group] && i < chunks; i++) {
            sl_place home = plan_home(request, (sl_group)group, i);
            *plan_chunk_at(builder, home.tier, (sl_group)group, i) = home;
        }
    }
}

/* Frees what the building took and hands out the plan. */
static inline sl_plan plan_end(plan_builder *builder)
{
    free(builder->value_at);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        free(builder->chunk_at[group]);
    return builder->plan;
}

static inline void plan_close(sl_plan *plan)
{
    free(plan->prologue);
    free(plan->body);
    free(plan->sections);
    free(plan->places);
    free(plan->waits);
    free(plan->allocations);
    *plan = (sl_plan){0};
}

static inline uint32_t plan_add_command(plan_builder *builder, const sl_command *command)
{
    sl_plan *plan = &builder->plan;
    plan->body = plan_grow(plan->body, plan->body_count, &builder->body_room, sizeof *plan->body);
    plan->body[plan->body_count] = *command;
    plan->body[plan->body_count].first_wait = plan->wait_count;
    if (command->kind == SL_COMMAND_COPY)
        plan->moved_bytes[command->lane] += command->from.bytes;
    return plan->body_count++;
}

/* The last command added waits for `command`. */
static inline void plan_add_wait(plan_builder *builder, uint32_t command, uint32_t age)
{
    sl_plan *plan = &builder->plan;
    plan->waits =
        plan_grow(plan->waits, plan->wait_count, &builder->wait_room, sizeof *plan->waits);
    plan->waits[plan->wait_count++] = (sl_wait){command, age};
    plan->body[plan->body_count - 1].wait_count++;
}

/* The commands added since the last section was closed are those of the program's next one. */
static inline void plan_close_section(plan_builder *builder)
{
    sl_plan *plan = &builder->plan;
    sl_section section = sl_program_section(builder->request->program, plan->section_count);
    const sl_section *before =
        plan->section_count ? &plan->sections[plan->section_count - 1] : NULL;
    section.first = before ? before->first + before->count : 0;
    section.count = plan->body_count - section.first;
    plan->sections = plan_grow(plan->sections, plan->section_count, &builder->section_room,
                               sizeof *plan->sections);
    plan->sections[plan->section_count++] = section;
}

static inline void plan_add_place(plan_builder *builder, sl_place place)
{
    sl_plan *plan = &builder->plan;
    plan->places =
        plan_grow(plan->places, plan->place_count, &builder->place_room, sizeof *plan->places);
    plan->places[plan->place_count++] = place;
}

static inline sl_place plan_operand_place(plan_builder *builder, sl_tier tier, uint32_t index)
{
    if (index == SL_NONE)
        return (sl_place){tier, 0, 0};
    const sl_value *value = &builder->request->program->values[index];
    if (value->kind == SL_VALUE_CHUNK)
        return *plan_chunk_at(builder, tier, value->group, value->index);
    if (value->kind != SL_VALUE_TENSOR)
        return *plan_value_at(builder, tier, index);
    const sl_layout *layout = builder->request->layout;
    uint32_t chunk_index = layout->chunk_of_tensor[value->index];
    sl_place place = *plan_chunk_at(builder, tier, value->group, chunk_index);
    place.offset +=
        layout->first_element[value->index] * sl_type_bytes(layout->group_type[value->group]);
    place.bytes = value->bytes;
    return place;
}

static inline uint32_t plan_add_run(plan_builder *builder, uint32_t tick, sl_lane lane,
                                    sl_place workspace)
{
    const sl_op *op = &builder->request->program->ops[tick];
    uint32_t operand_count = sl_op_info_of(op->kind)->operand_count;
    bool is_on_host = lane == SL_LANE_HOST || lane == SL_LANE_INPUT;
    sl_tier tier = is_on_host ? SL_TIER_HOST : SL_TIER_DEVICE;
    sl_command command = {.kind = SL_COMMAND_RUN, .lane = lane, .tick = tick};
    command.first_place = builder->plan.place_count;
    command.place_count = operand_count + 1;
    command.value = command.chunk_index = SL_NONE;
    for (uint32_t i = 0; i < operand_count; i++)
        plan_add_place(builder, plan_operand_place(builder, tier, op->operand[i]));
    plan_add_place(builder, workspace);
    return plan_add_command(builder, &command);
}

static inline sl_command plan_make_copy(uint32_t tick, sl_place from, sl_place to)
{
    sl_command command = {.kind = SL_COMMAND_COPY, .tick = tick, .from = from, .to = to};
    if (to.tier == SL_TIER_HOST)
        command.lane = from.tier == SL_TIER_DISK ? SL_LANE_READ : SL_LANE_D2H;
    else
        command.lane = to.tier == SL_TIER_DISK ? SL_LANE_WRITE : SL_LANE_H2D;
    command.value = command.chunk_index = SL_NONE;
    return command;
}

/* Copies a chunk between the places where it is in two tiers. */
static inline sl_command plan_chunk_move(plan_builder *builder, uint32_t tick,
                                         const sl_tier tiers[2], sl_group group, uint32_t chunk)
{
    sl_tier from = tiers[0], to = tiers[1];
    sl_command command = plan_make_copy(tick, *plan_chunk_at(builder, from, group, chunk),
                                        *plan_chunk_at(builder, to, group, chunk));
    command.group = group;
    command.chunk_index = chunk;
    return command;
}

/* ... or where it is on the host and on the device. */
static inline sl_command plan_chunk_copy(plan_builder *builder, uint32_t tick, sl_tier to,
                                         sl_group group, uint32_t chunk)
{
    const sl_tier tiers[2] = {to == SL_TIER_HOST ? SL_TIER_DEVICE : SL_TIER_HOST, to};
    return plan_chunk_move(builder, tick, tiers, group, chunk);
}

static inline uint32_t plan_add_chunk_move(plan_builder *builder, uint32_t tick,
                                           const sl_tier tiers[2], sl_group group, uint32_t chunk)
{
    sl_command command = plan_chunk_move(builder, tick, tiers, group, chunk);
    return plan_add_command(builder, &command);
}

static inline uint32_t plan_add_chunk_copy(plan_builder *builder, uint32_t tick, sl_tier to,
                                           sl_group group, uint32_t chunk)
{
    sl_command command = plan_chunk_copy(builder, tick, to, group, chunk);
    return plan_add_command(builder, &command);
}

static inline uint32_t plan_add_value_move(plan_builder *builder, uint32_t tick,
                                           const sl_tier tiers[2], uint32_t value)
{
    sl_command command = plan_make_copy(tick, *plan_value_at(builder, tiers[0], value),
                                        *plan_value_at(builder, tiers[1], value));
    command.value = value;
    return plan_add_command(builder, &command);
}

static inline uint32_t plan_add_value_copy(plan_builder *builder, uint32_t tick, sl_tier to,
                                           uint32_t value)
{
    const sl_tier tiers[2] = {to == SL_TIER_HOST ? SL_TIER_DEVICE : SL_TIER_HOST, to};
    return plan_add_value_move(builder, tick, tiers, value);
}

static inline void plan_add_prologue(plan_builder *builder, const sl_command *command)
{
    sl_plan *plan = &builder->plan;
    plan->prologue = plan_grow(plan->prologue, plan->prologue_count, &builder->prologue_room,
                               sizeof *plan->prologue);
    plan->prologue[plan->prologue_count++] = *command;
}

static inline void plan_add_allocation(plan_builder *builder, const sl_allocation *allocation)
{
    sl_plan *plan = &builder->plan;
    plan->allocations = plan_grow(plan->allocations, plan->allocation_count,
                                  &builder->allocation_room, sizeof *plan->allocations);
    plan->allocations[plan->allocation_count++] = *allocation;
    uint64_t end = allocation->place.offset + sl_place_extent(&allocation->place);
    if (plan->peak_bytes[allocation->place.tier] < end)
        plan->peak_bytes[allocation->place.tier] = end;
}

static inline void plan_allocate_value(plan_builder *builder, sl_memory_kind kind, sl_tier tier,
                                       uint32_t value, const uint32_t ticks[2])
{
    sl_allocation it = {.kind = kind, .first_tick = ticks[0], .last_tick = ticks[1]};
    it.place = *plan_value_at(builder, tier, value);
    it.is_permanent = kind == SL_MEMORY_STAGING;
    it.value = value;
    it.chunk_index = SL_NONE;
    plan_add_allocation(builder, &it);
}

static inline void plan_allocate_visit(plan_builder *builder, sl_tier tier, sl_group group,
                                       uint32_t chunk, const uint32_t ticks[2])
{
    sl_allocation it = {.kind = (sl_memory_kind)group, .value = SL_NONE, .chunk_index = chunk};
    it.place = *plan_chunk_at(builder, tier, group, chunk);
    it.group = group;
    it.first_tick = ticks[0];
    it.last_tick = ticks[1];
    plan_add_allocation(builder, &it);
}

/* The permanent ones: homes and block flags. */
static inline void plan_allocate_homes(plan_builder *builder)
{
    const sl_homes *homes = builder->request->homes;
    uint32_t op_count = builder->request->program->op_count;
    sl_allocation it = {.last_tick = op_count, .is_permanent = true, .value = SL_NONE};
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            it.kind = (sl_memory_kind)group;
            it.group = (sl_group)group;
            it.chunk_index = i;
            it.place = plan_home(builder->request, (sl_group)group, i);
            plan_add_allocation(builder, &it);
        }
    it.kind = SL_MEMORY_STAGING;
    it.chunk_index = SL_NONE;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        it.place = (sl_place){(sl_tier)tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
        if (it.place.bytes > 0)
            plan_add_allocation(builder, &it);
    }
    it.place = (sl_place){SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes};
    if (it.place.bytes > 0)
        plan_add_allocation(builder, &it);
}

/* ---- sums ---- */

static inline bool plan_lives_at(const sl_allocation *it, uint32_t tick)
{
    bool is_late = it->first_tick <= tick, is_early = tick <= it->last_tick;
    return it->first_tick <= it->last_tick ? is_late && is_early : is_late || is_early;
}

/* Live peaks and the kinds at the first tick of each, tick by tick. */
static inline void plan_sum(plan_builder *builder)
{
    sl_plan *plan = &builder->plan;
    memset(plan->live_peak_bytes, 0, sizeof plan->live_peak_bytes);
    memset(plan->kind_bytes, 0, sizeof plan->kind_bytes);
    for (uint32_t tick = 0; tick <= builder->request->program->op_count; tick++) {
        uint64_t kinds[SL_TIER_COUNT][SL_MEMORY_KIND_COUNT] = {{0}}, live[SL_TIER_COUNT] = {0};
        for (uint32_t i = 0; i < plan->allocation_count; i++) {
            const sl_allocation *it = &plan->allocations[i];
            if (!plan_lives_at(it, tick))
                continue;
            kinds[it->place.tier][it->kind] += sl_place_extent(&it->place);
            live[it->place.tier] += sl_place_extent(&it->place);
        }
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            if (live[tier] <= plan->live_peak_bytes[tier])
                continue;
            plan->live_peak_bytes[tier] = live[tier];
            memcpy(plan->kind_bytes[tier], kinds[tier], sizeof kinds[tier]);
        }
    }
}

#endif
