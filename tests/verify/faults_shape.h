/* Faults that one command, or the order of the ops, shows by itself. See plan_faults.h. */
#ifndef SL_TESTS_FAULTS_SHAPE_H
#define SL_TESTS_FAULTS_SHAPE_H

#include "fault_sites.h"

static inline bool fault_op_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = plan->body_count;
    while (index > 0 && plan->body[index - 1].kind != SL_COMMAND_RUN)
        index--;
    if (index == 0)
        return false;
    uint32_t tick = plan->body[index - 1].tick;
    edit_remove(plan, index - 1);
    for (uint32_t i = index - 1; i < plan->body_count; i++)
        plan->body[i].tick = tick;
    (void)request;
    return true;
}

static inline bool fault_op_repeated(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index))
        return false;
    edit_repeat(plan, index);
    return true;
}

static inline bool fault_ops_swapped(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    for (uint32_t i = 0; i + 1 < plan->body_count; i++) {
        sl_command first = plan->body[i], second = plan->body[i + 1];
        if (first.kind != SL_COMMAND_RUN || second.kind != SL_COMMAND_RUN || second.wait_count > 0)
            continue;
        plan->body[i] = second;
        plan->body[i + 1] = first;
        return true;
    }
    return false;
}

static inline bool fault_op_on_comm(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index))
        return false;
    plan->body[index].lane = SL_LANE_COMM;
    return true;
}

static inline bool fault_op_on_host(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index) ||
        sl_op_info_of(fault_op(request, &plan->body[index])->kind)->updates_chunk)
        return false;
    plan->body[index].lane = SL_LANE_HOST;
    return true;
}

/* On the lane that this chunk's AdamW does not belong on. */
static inline bool fault_adamw_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++) {
        sl_command *command = &plan->body[i];
        if (command->kind != SL_COMMAND_RUN || fault_op(request, command)->kind != SL_OP_ADAMW)
            continue;
        command->lane = command->lane == SL_LANE_HOST ? SL_LANE_COMPUTE : SL_LANE_HOST;
        return true;
    }
    return false;
}

static inline bool fault_copy_on_other_lane(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_copy(plan, SL_LANE_H2D, false, &index))
        return false;
    plan->body[index].lane = SL_LANE_D2H;
    return true;
}

static inline bool fault_wait_for_nobody(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index;
    sl_wait *wait = fault_find_wait(plan, 0, &index);
    (void)request;
    if (wait)
        wait->command = plan->body_count;
    return wait != NULL;
}

static inline bool fault_wait_two_back(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index;
    sl_wait *wait = fault_find_wait(plan, 0, &index);
    (void)request;
    if (wait)
        wait->age = 2;
    return wait != NULL;
}

static inline bool fault_waits_behind_last(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    plan->body[0].first_wait = plan->wait_count;
    plan->body[0].wait_count = 1;
    return true;
}

static inline bool fault_place_too_few(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index))
        return false;
    plan->body[index].place_count--;
    return true;
}

static inline bool fault_places_behind_last(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index))
        return false;
    plan->body[index].first_place = plan->place_count;
    return true;
}

static inline sl_place *fault_activation(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, operand;
    if (!fault_find_operand(request, plan, SL_VALUE_ACTIVATION, &index, &operand))
        return NULL;
    return fault_place(plan, index, operand);
}

static inline bool fault_operand_misaligned(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_activation(request, plan);
    if (place)
        place->offset += 64;
    return place != NULL;
}

static inline bool fault_operand_outside(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_activation(request, plan);
    if (place)
        place->offset = (plan->peak_bytes[place->tier] + 255) / 256 * 256;
    return place != NULL;
}

static inline bool fault_operand_shrunk(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_activation(request, plan);
    if (place)
        place->bytes -= 4;
    return place != NULL;
}

static inline bool fault_operand_on_other_tier(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_activation(request, plan);
    if (!place || plan->peak_bytes[!place->tier] < place->bytes)
        return false;
    place->tier = place->tier == SL_TIER_HOST ? SL_TIER_DEVICE : SL_TIER_HOST;
    place->offset = 0;
    return true;
}

static inline bool fault_operand_uninvited(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t j = 0;
             plan->body[i].kind == SL_COMMAND_RUN && j + 1 < plan->body[i].place_count; j++)
            if (!fault_operand(request, &plan->body[i], j)) {
                fault_place(plan, i, j)->bytes = 4;
                return true;
            }
    return false;
}

/* Two operands of an op, one of them written, in the same bytes. */
static inline bool fault_operands_together(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++) {
        touch touches[TOUCH_MAX];
        const sl_command *command = &plan->body[i];
        uint32_t count = touch_list(request, plan, command, touches);
        if (command->kind != SL_COMMAND_RUN || count < 2 || command->place_count < 3)
            continue;
        uint32_t last = command->place_count - 2;
        const sl_value *read = fault_operand(request, command, 0);
        const sl_value *written = fault_operand(request, command, last);
        if (!read || !written || read == written || read->kind != SL_VALUE_ACTIVATION ||
            written->kind != SL_VALUE_ACTIVATION || written->bytes > read->bytes ||
            !sl_op_writes(fault_op(request, command), last))
            continue;
        fault_place(plan, i, last)->offset = fault_place(plan, i, 0)->offset;
        return true;
    }
    return false;
}

static inline sl_place *fault_workspace(sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        if (plan->body[i].kind == SL_COMMAND_RUN &&
            fault_place(plan, i, plan->body[i].place_count - 1)->bytes > 0)
            return fault_place(plan, i, plan->body[i].place_count - 1);
    return NULL;
}

static inline bool fault_workspace_shrunk(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_workspace(plan);
    (void)request;
    if (place)
        place->bytes -= 4;
    return place != NULL;
}

static inline bool fault_workspace_over_flags(const sl_plan_request *request, sl_plan *plan)
{
    sl_place *place = fault_workspace(plan);
    if (!place || request->homes->flags_bytes[place->tier] == 0 ||
        request->homes->flags_offset[place->tier] + place->bytes > plan->peak_bytes[place->tier])
        return false;
    place->offset = request->homes->flags_offset[place->tier];
    return true;
}

static inline bool fault_home_beside(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; fault_find_copy(plan, SL_LANE_D2H, true, &i); i++) {
        sl_command *copy = &plan->body[i];
        if (!fault_is_at_home(request, copy->group, copy->chunk_index, SL_TIER_HOST) ||
            copy->to.offset + copy->to.bytes + 256 > plan->peak_bytes[SL_TIER_HOST])
            continue;
        copy->to.offset += 256;
        return true;
    }
    return false;
}

/* An op works on a chunk at home, but not where its home is. */
static inline bool fault_chunk_beside_home(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t operand;
    for (uint32_t i = 0; fault_find_operand(request, plan, SL_VALUE_CHUNK, &i, &operand); i++) {
        const sl_value *value = fault_operand(request, &plan->body[i], operand);
        sl_place *place = fault_place(plan, i, operand);
        if (!fault_is_at_home(request, value->group, value->index, place->tier) ||
            place->offset + place->bytes + 256 > plan->peak_bytes[place->tier])
            continue;
        place->offset += 256;
        return true;
    }
    return false;
}

static inline bool fault_move_input(const sl_plan_request *request, sl_plan *plan, bool is_filled)
{
    uint32_t index = 0;
    if (!fault_find_input(request, plan, is_filled, &index) || plan->body[index].from.offset < 256)
        return false;
    plan->body[index].from.offset -= 256;
    return true;
}

static inline bool fault_input_from_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    return fault_move_input(request, plan, false);
}

static inline bool fault_filled_from_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    return fault_move_input(request, plan, true);
}

static inline bool fault_output_to_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t index = 0; fault_find_copy(plan, SL_LANE_D2H, false, &index); index++) {
        sl_command *command = &plan->body[index];
        if (request->program->values[command->value].kind != SL_VALUE_OUTPUT ||
            command->to.offset < 256)
            continue;
        command->to.offset -= 256;
        return true;
    }
    return false;
}

/* A cache that is not where it persists would be lost between two plans. */
static inline bool fault_cache_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, operand;
    if (!fault_find_operand(request, plan, SL_VALUE_PERSISTENT, &index, &operand))
        return false;
    sl_place *place = fault_place(plan, index, operand);
    place->offset += 256;
    return place->offset + place->bytes <= plan->peak_bytes[place->tier];
}

static inline bool fault_copy_shrunk(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    for (uint32_t i = 0; i < plan->body_count; i++)
        if (plan->body[i].kind == SL_COMMAND_COPY) {
            plan->body[i].from.bytes -= 4;
            return true;
        }
    return false;
}

static inline bool fault_copy_untimely(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        if (plan->body[i].kind == SL_COMMAND_COPY) {
            plan->body[i].tick = plan->body[i].tick == 0 ? request->program->op_count : 0;
            return true;
        }
    return false;
}

static inline bool fault_op_in_prologue(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_run(plan, SL_LANE_COMPUTE, &index))
        return false;
    plan->prologue[plan->prologue_count] = plan->body[index];
    plan->prologue[plan->prologue_count++].wait_count = 0;
    return true;
}

static inline bool fault_wait_in_prologue(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    if (plan->prologue_count == 0 || plan->wait_count == 0)
        return false;
    plan->prologue[0].first_wait = 0;
    plan->prologue[0].wait_count = 1;
    return true;
}

static inline bool fault_peak_too_small(const sl_plan_request *request, sl_plan *plan)
{
    if (plan->peak_bytes[SL_TIER_DEVICE] <= request->homes->fixed_bytes[SL_TIER_DEVICE])
        return false;
    plan->peak_bytes[SL_TIER_DEVICE]--;
    return true;
}

static inline bool fault_peak_over_budget(const sl_plan_request *request, sl_plan *plan)
{
    if (request->budget_bytes[SL_TIER_HOST] == UINT64_MAX)
        return false;
    plan->peak_bytes[SL_TIER_HOST] = request->budget_bytes[SL_TIER_HOST] + 1;
    return true;
}

#endif
