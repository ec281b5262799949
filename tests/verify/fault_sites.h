/* Looks for places in a plan where a fault can be planted. */
#ifndef SL_TESTS_FAULT_SITES_H
#define SL_TESTS_FAULT_SITES_H

#include "plan_edit.h"

static inline const sl_op *fault_op(const sl_plan_request *request, const sl_command *command)
{
    return &request->program->ops[command->tick];
}

static inline const sl_value *fault_operand(const sl_plan_request *request,
                                            const sl_command *command, uint32_t i)
{
    uint32_t value = fault_op(request, command)->operand[i];
    return value == SL_NONE ? NULL : &request->program->values[value];
}

/* The next RUN from `*index` on with an operand of `kind`; writes both indices. */
static inline bool fault_find_operand(const sl_plan_request *request, const sl_plan *plan,
                                      sl_value_kind kind, uint32_t *index, uint32_t *out_operand)
{
    for (; *index < plan->body_count; ++*index) {
        const sl_command *command = &plan->body[*index];
        if (command->kind != SL_COMMAND_RUN)
            continue;
        for (uint32_t i = 0; i + 1 < command->place_count; i++) {
            const sl_value *value = fault_operand(request, command, i);
            *out_operand = i;
            if (value && value->kind == kind)
                return true;
        }
    }
    return false;
}

static inline sl_place *fault_place(sl_plan *plan, uint32_t index, uint32_t operand)
{
    return &plan->places[plan->body[index].first_place + operand];
}

/* The next copy from `*index` on over `lane`, of chunks or of values. */
static inline bool fault_find_copy(const sl_plan *plan, sl_lane lane, bool is_chunk,
                                   uint32_t *index)
{
    for (; *index < plan->body_count; ++*index) {
        const sl_command *command = &plan->body[*index];
        if (command->kind == SL_COMMAND_COPY && command->lane == lane &&
            (command->chunk_index != SL_NONE) == is_chunk)
            return true;
    }
    return false;
}

/* The next copy from `*index` on of an input. */
static inline bool fault_is_filled(const sl_program *program, uint32_t value)
{
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        if (program->ops[tick].kind == SL_OP_INPUT && program->ops[tick].operand[0] == value)
            return true;
    return false;
}

static inline bool fault_find_any_input(const sl_plan_request *request, const sl_plan *plan,
                                        uint32_t *index)
{
    for (; fault_find_copy(plan, SL_LANE_H2D, false, index); ++*index)
        if (request->program->values[plan->body[*index].value].kind == SL_VALUE_INPUT)
            return true;
    return false;
}

/* The copy of an input that an op fills, or of one that the caller fills. */
static inline bool fault_find_input(const sl_plan_request *request, const sl_plan *plan,
                                    bool is_filled, uint32_t *index)
{
    for (; fault_find_copy(plan, SL_LANE_H2D, false, index); ++*index) {
        uint32_t value = plan->body[*index].value;
        if (request->program->values[value].kind == SL_VALUE_INPUT &&
            fault_is_filled(request->program, value) == is_filled)
            return true;
    }
    return false;
}

static inline bool fault_find_run(const sl_plan *plan, sl_lane lane, uint32_t *index)
{
    for (; *index < plan->body_count; ++*index)
        if (plan->body[*index].kind == SL_COMMAND_RUN && plan->body[*index].lane == lane)
            return true;
    return false;
}

static inline bool fault_is_at_home(const sl_plan_request *request, sl_group group, uint32_t chunk,
                                    sl_tier tier)
{
    return request->homes->tier[group] && request->homes->tier[group][chunk] == tier;
}

/* The first wait of the plan on a command so many iterations back; NULL if there is none. */
static inline sl_wait *fault_find_wait(sl_plan *plan, uint32_t back, uint32_t *out_index)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            *out_index = i;
            if (wait_back(&plan->waits[plan->body[i].first_wait + w], i) == back)
                return &plan->waits[plan->body[i].first_wait + w];
        }
    return NULL;
}

#endif
