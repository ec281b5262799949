/* Faults of the list of allocations and of the plan's sums. See plan_faults.h. */
#ifndef SL_TESTS_FAULTS_MEMORY_H
#define SL_TESTS_FAULTS_MEMORY_H

#include "fault_sites.h"

/* An allocation grows until it reaches into the next one that lives with it. */
static inline bool fault_allocations_overlap(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        for (uint32_t j = 0; j < plan->allocation_count; j++) {
            sl_allocation *low = &plan->allocations[i];
            const sl_allocation *high = &plan->allocations[j];
            if (low->place.tier != high->place.tier || low->place.offset >= high->place.offset ||
                low->is_permanent || high->is_permanent || low->first_tick > low->last_tick ||
                high->first_tick > high->last_tick || low->first_tick > high->last_tick ||
                high->first_tick > low->last_tick)
                continue;
            low->place.bytes = high->place.offset - low->place.offset + 1;
            return true;
        }
    return false;
}

/* An activation's memory is given back a tick before its last use. */
static inline bool fault_life_too_short(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        sl_allocation *it = &plan->allocations[i];
        if (it->kind != SL_MEMORY_ACTIVATION || it->first_tick >= it->last_tick ||
            it->last_tick >= request->program->op_count || it->place.tier != SL_TIER_DEVICE)
            continue;
        const sl_op *op = &request->program->ops[it->last_tick];
        for (uint32_t j = 0; j < sl_op_info_of(op->kind)->operand_count; j++)
            if (op->operand[j] != SL_NONE && op->operand[j] == it->value) {
                it->last_tick--;
                return true;
            }
    }
    return false;
}

static inline bool fault_activation_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].kind == SL_MEMORY_ACTIVATION &&
            !plan->allocations[i].is_permanent) {
            edit_remove_allocation(plan, i);
            return true;
        }
    return false;
}

/* Does the prologue load the visit? Others that wrap are only written back. */
static inline bool is_loaded(const sl_plan *plan, const sl_allocation *visit)
{
    for (uint32_t i = 0; i < plan->prologue_count; i++) {
        const sl_command *copy = &plan->prologue[i];
        if (copy->chunk_index == visit->chunk_index && copy->group == visit->group &&
            copy->to.tier == visit->place.tier && copy->to.offset == visit->place.offset)
            return true;
    }
    return false;
}

/* The allocation of a visit: of a chunk, and not permanent. */
static inline sl_allocation *fault_visit(sl_plan *plan, bool is_carried)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        sl_allocation *it = &plan->allocations[i];
        if (it->chunk_index != SL_NONE && !it->is_permanent &&
            (!is_carried || (it->first_tick > it->last_tick && is_loaded(plan, it))))
            return it;
    }
    return NULL;
}

static inline bool fault_visit_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_visit(plan, false);
    (void)request;
    if (it)
        edit_remove_allocation(plan, (uint32_t)(it - plan->allocations));
    return it != NULL;
}

static inline bool fault_carried_visit_cut(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_visit(plan, true);
    if (it)
        it->last_tick = request->program->op_count;
    return it != NULL;
}

static inline bool fault_visit_of_other_kind(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_visit(plan, false);
    (void)request;
    if (it)
        it->kind = SL_MEMORY_WORKSPACE;
    return it != NULL;
}

static inline sl_allocation *fault_home(sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].chunk_index != SL_NONE && plan->allocations[i].is_permanent)
            return &plan->allocations[i];
    return NULL;
}

static inline bool fault_home_lent(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_home(plan);
    (void)request;
    if (it)
        it->is_permanent = false;
    return it != NULL;
}

static inline bool fault_home_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_home(plan);
    (void)request;
    if (it)
        edit_remove_allocation(plan, (uint32_t)(it - plan->allocations));
    return it != NULL;
}

static inline bool fault_home_moved(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_home(plan);
    if (!it || it->place.offset + it->place.bytes + 256 > plan->peak_bytes[it->place.tier])
        return false;
    it->place.offset += 256;
    (void)request;
    return true;
}

static inline bool fault_flags_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->is_permanent && it->chunk_index == SL_NONE && it->value == SL_NONE &&
            it->place.bytes == request->homes->flags_bytes[it->place.tier]) {
            edit_remove_allocation(plan, i);
            return true;
        }
    }
    return false;
}

static inline bool fault_remove_slot(const sl_plan_request *request, sl_plan *plan,
                                     sl_value_kind kind)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->chunk_index == SL_NONE && it->value != SL_NONE && it->place.tier == SL_TIER_HOST &&
            request->program->values[it->value].kind == kind &&
            (kind == SL_VALUE_OUTPUT || fault_is_filled(request->program, it->value))) {
            edit_remove_allocation(plan, i);
            return true;
        }
    }
    return false;
}

static inline bool fault_slot_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    return fault_remove_slot(request, plan, SL_VALUE_OUTPUT);
}

static inline bool fault_filled_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    return fault_remove_slot(request, plan, SL_VALUE_INPUT);
}

static inline bool fault_life_beyond_end(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (!plan->allocations[i].is_permanent) {
            plan->allocations[i].last_tick = request->program->op_count + 1;
            return true;
        }
    return false;
}

static inline bool fault_live_peak_off(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    plan->live_peak_bytes[SL_TIER_DEVICE] -= 4;
    return true;
}

static inline bool fault_kinds_off(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    plan->kind_bytes[SL_TIER_DEVICE][SL_MEMORY_ACTIVATION] += 4;
    plan->kind_bytes[SL_TIER_DEVICE][SL_MEMORY_WORKSPACE] -= 4;
    return true;
}

static inline bool fault_moved_off(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    plan->moved_bytes[SL_LANE_H2D] += 4;
    return true;
}

#endif
