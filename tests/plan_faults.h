/* Faults of plans. Each row plants one fault in a copy of a right plan, where it is truly wrong,
 * and names a piece of the message with which the verifier must reject it.
 *
 * A row whose fault has no place in a plan says so (false) and leaves the plan as it was: a plan
 * without visits cannot lack a fetch. Sites are searched by what commands touch, never by index, so
 * the table serves any plan. Over 500 lines because it is one list of faults.
 */
#ifndef SL_TESTS_PLAN_FAULTS_H
#define SL_TESTS_PLAN_FAULTS_H

#include "plan_edit.h"

typedef struct plan_fault {
    const char *name;
    bool (*plant)(const sl_plan_request *request, sl_plan *plan);
    const char *message;
} plan_fault;

/* ---- searching ---- */

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

/* ---- shape ---- */

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

/* The first wait of the plan with this delta; NULL if there is none. */
static inline sl_wait *fault_find_wait(sl_plan *plan, uint32_t delta, uint32_t *out_index)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            *out_index = i;
            if (plan->waits[plan->body[i].first_wait + w].delta == delta)
                return &plan->waits[plan->body[i].first_wait + w];
        }
    return NULL;
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

static inline bool fault_wait_for_itself(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index;
    sl_wait *wait = fault_find_wait(plan, 0, &index);
    (void)request;
    if (wait)
        wait->command = index;
    return wait != NULL;
}

static inline bool fault_wait_two_back(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index;
    sl_wait *wait = fault_find_wait(plan, 1, &index);
    (void)request;
    if (wait)
        wait->delta = 2;
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

static inline bool fault_input_from_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    (void)request;
    if (!fault_find_copy(plan, SL_LANE_H2D, false, &index) || plan->body[index].from.offset < 256)
        return false;
    plan->body[index].from.offset -= 256;
    return true;
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

/* ---- memory ---- */

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
        if (plan->allocations[i].kind == SL_MEMORY_ACTIVATION) {
            edit_remove_allocation(plan, i);
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
            (!is_carried || it->first_tick > it->last_tick))
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

static inline bool fault_slot_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->chunk_index == SL_NONE && it->value != SL_NONE && it->place.tier == SL_TIER_HOST &&
            request->program->values[it->value].kind == SL_VALUE_INPUT) {
            edit_remove_allocation(plan, i);
            return true;
        }
    }
    return false;
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

/* ---- data ---- */

/* A fetch whose bytes are read, and hold something else without it. */
static inline bool fault_find_fetch(const sl_plan_request *request, const sl_plan *plan,
                                    bool is_carried, uint32_t *index, uint32_t *out_reader)
{
    for (; fault_find_copy(plan, SL_LANE_H2D, true, index); ++*index) {
        bool wraps;
        *out_reader = touch_consumer(request, plan, *index, &wraps);
        if (*out_reader != SL_NONE && wraps == is_carried &&
            touch_is_needed(request, plan, *index, *out_reader))
            return true;
    }
    return false;
}

static inline bool fault_fetch_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_fetch(request, plan, false, &index, &reader))
        return false;
    edit_remove(plan, index);
    return true;
}

static inline bool fault_fetch_too_late(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_fetch(request, plan, false, &index, &reader))
        return false;
    edit_move(request, plan, index, reader);
    return true;
}

static inline bool fault_carried_fetch_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_fetch(request, plan, true, &index, &reader))
        return false;
    edit_remove(plan, index);
    return true;
}

static inline bool fault_prologue_fetch_missing(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->prologue_count; i++)
        for (uint32_t j = 0; j < plan->body_count; j++) {
            if (touch_place(request, plan, j, &plan->prologue[i].to, false)) {
                plan->prologue_count--;
                memmove(plan->prologue + i, plan->prologue + i + 1,
                        (plan->prologue_count - i) * sizeof *plan->prologue);
                return true;
            }
            if (touch_place(request, plan, j, &plan->prologue[i].to, true))
                break;
        }
    return false;
}

/* A fetch is issued before the update that it should bring; its memory was free by then. */
static inline bool fault_fetch_before_update(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    for (bool is_carried = false;; is_carried = true, index = 0) {
        for (; fault_find_fetch(request, plan, is_carried, &index, &reader); index++) {
            uint32_t object = touch_copied(request, &plan->body[index]);
            for (uint32_t i = index; i > 0; i--) {
                if (touch_place(request, plan, i - 1, &plan->body[index].to, false) ||
                    touch_place(request, plan, i - 1, &plan->body[index].to, true))
                    break;
                if (touch_updates(request, plan, i - 1, object)) {
                    edit_move(request, plan, index, i - 1);
                    return true;
                }
            }
        }
        if (is_carried)
            return false;
    }
}

/* Another chunk than the one that the next op wants. */
static inline bool fault_fetch_of_other_chunk(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    for (; fault_find_fetch(request, plan, false, &index, &reader); index++) {
        sl_command *copy = &plan->body[index];
        for (uint32_t chunk = 0; chunk < request->layout->chunk_count; chunk++) {
            if (chunk == copy->chunk_index || copy->group == SL_GROUP_GRAD ||
                !fault_is_at_home(request, copy->group, chunk, SL_TIER_HOST))
                continue;
            copy->chunk_index = chunk;
            copy->from.offset = request->homes->offset[copy->group][chunk];
            return true;
        }
    }
    return false;
}

static inline bool fault_fetch_to_elsewhere(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_fetch(request, plan, false, &index, &reader) ||
        plan->body[index].to.offset < request->homes->fixed_bytes[SL_TIER_DEVICE] + 256)
        return false;
    plan->body[index].to.offset -= 256;
    return true;
}

/* A chunk's way home that somebody relies on: a later command of the iteration, or the boundary. */
static inline bool fault_find_write_back(const sl_plan_request *request, const sl_plan *plan,
                                         uint32_t *index)
{
    for (; fault_find_copy(plan, SL_LANE_D2H, true, index); ++*index) {
        bool wraps = false;
        const sl_command *copy = &plan->body[*index];
        uint32_t reader = touch_consumer(request, plan, *index, &wraps);
        if (!fault_is_at_home(request, copy->group, copy->chunk_index, SL_TIER_HOST))
            continue;
        if (copy->group != SL_GROUP_GRAD || (reader != SL_NONE && !wraps))
            return true;
    }
    return false;
}

static inline bool fault_write_back_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    if (!fault_find_write_back(request, plan, &index))
        return false;
    edit_remove(plan, index);
    return true;
}

/* The last op that writes a copy's source stands behind the copy. */
static inline bool fault_move_before_writer(const sl_plan_request *request, sl_plan *plan,
                                            uint32_t index)
{
    for (uint32_t i = index; i > 0; i--)
        if (touch_place(request, plan, i - 1, &plan->body[index].from, true)) {
            edit_move(request, plan, index, i - 1);
            return true;
        }
    return false;
}

static inline bool fault_write_back_too_early(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    for (; fault_find_write_back(request, plan, &index); index++)
        if (fault_move_before_writer(request, plan, index))
            return true;
    return false;
}

/* The copy of an output that no op of the host reads there. */
static inline bool fault_find_output(const sl_plan_request *request, const sl_plan *plan,
                                     uint32_t *index)
{
    for (; fault_find_copy(plan, SL_LANE_D2H, false, index); ++*index) {
        bool wraps;
        const sl_command *copy = &plan->body[*index];
        if (request->program->values[copy->value].kind == SL_VALUE_OUTPUT &&
            touch_consumer(request, plan, *index, &wraps) == SL_NONE)
            return true;
    }
    return false;
}

static inline bool fault_output_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    if (!fault_find_output(request, plan, &index))
        return false;
    edit_remove(plan, index);
    return true;
}

static inline bool fault_output_too_early(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0;
    return fault_find_output(request, plan, &index) &&
           fault_move_before_writer(request, plan, index);
}

static inline bool fault_input_missing(const sl_plan_request *request, sl_plan *plan)
{
    bool wraps;
    for (uint32_t index = 0; fault_find_copy(plan, SL_LANE_H2D, false, &index); index++)
        if (touch_consumer(request, plan, index, &wraps) != SL_NONE && !wraps) {
            edit_remove(plan, index);
            return true;
        }
    return false;
}

static inline bool fault_input_too_late(const sl_plan_request *request, sl_plan *plan)
{
    bool wraps;
    for (uint32_t index = 0; fault_find_copy(plan, SL_LANE_H2D, false, &index); index++) {
        uint32_t reader = touch_consumer(request, plan, index, &wraps);
        if (reader == SL_NONE || wraps)
            continue;
        edit_move(request, plan, index, reader);
        return true;
    }
    return false;
}

/* A tensor is read from its neighbour's place in the same chunk. */
static inline bool fault_tensor_shifted(const sl_plan_request *request, sl_plan *plan)
{
    const uint64_t block = SL_BLOCK_ELEMENTS * sizeof(float);
    uint32_t operand;
    for (uint32_t i = 0; fault_find_operand(request, plan, SL_VALUE_TENSOR, &i, &operand); i++) {
        const sl_value *value = fault_operand(request, &plan->body[i], operand);
        const sl_tensor_place *tensor = &request->layout->tensors[value->index];
        sl_place *place = fault_place(plan, i, operand);
        if (fault_is_at_home(request, value->group, tensor->chunk_index, place->tier) ||
            place->offset <
                request->homes->fixed_bytes[place->tier] + tensor->first_element * 4 + block)
            continue;
        place->offset -= block;
        if (!touch_is_mixed(request, plan, i))
            return true;
        place->offset += block;
    }
    return false;
}

/* ---- order ---- */

/* Takes a wait on `target` away from a command of `lane`, one without which it races. */
static inline bool fault_drop_wait(const sl_plan_request *request, sl_plan *plan, sl_lane lane,
                                   sl_lane target, uint32_t delta)
{
    for (uint32_t i = 0; i < plan->body_count; i++) {
        sl_command *command = &plan->body[i];
        for (uint32_t w = 0; command->lane == lane && w < command->wait_count; w++) {
            sl_wait *wait = &plan->waits[command->first_wait + w];
            if (wait->delta != delta || plan->body[wait->command].lane != target)
                continue;
            sl_wait last = plan->waits[command->first_wait + command->wait_count - 1], it = *wait;
            *wait = last;
            command->wait_count--;
            if (has_race_at(request, plan, i))
                return true;
            command->wait_count++;
            *wait = it;
        }
    }
    return false;
}

#define FAULT_DROP_WAIT(name, lane, target, delta)                                                 \
    static inline bool name(const sl_plan_request *request, sl_plan *plan)                         \
    {                                                                                              \
        return fault_drop_wait(request, plan, SL_LANE_##lane, SL_LANE_##target, delta);            \
    }

FAULT_DROP_WAIT(fault_use_before_fetch, COMPUTE, H2D, 0)
FAULT_DROP_WAIT(fault_use_before_carried_fetch, COMPUTE, H2D, 1)
FAULT_DROP_WAIT(fault_write_back_before_op, D2H, COMPUTE, 0)
FAULT_DROP_WAIT(fault_write_before_write_back, COMPUTE, D2H, 0)
FAULT_DROP_WAIT(fault_write_before_last_write_back, COMPUTE, D2H, 1)
FAULT_DROP_WAIT(fault_fetch_over_reader, H2D, COMPUTE, 0)
FAULT_DROP_WAIT(fault_fetch_over_last_reader, H2D, COMPUTE, 1)
FAULT_DROP_WAIT(fault_fetch_over_write_back, H2D, D2H, 0)
FAULT_DROP_WAIT(fault_fetch_over_last_write_back, H2D, D2H, 1)
FAULT_DROP_WAIT(fault_update_before_arrival, HOST, D2H, 0)
FAULT_DROP_WAIT(fault_fetch_before_host_update, H2D, HOST, 0)
FAULT_DROP_WAIT(fault_fetch_before_last_update, H2D, HOST, 1)
FAULT_DROP_WAIT(fault_arrival_over_last_update, D2H, HOST, 1)
#undef FAULT_DROP_WAIT

/* A wait on this iteration becomes one on the previous. */
static inline bool fault_wait_on_previous(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            sl_wait *wait = &plan->waits[plan->body[i].first_wait + w];
            if (wait->delta != 0)
                continue;
            wait->delta = 1;
            if (has_race_at(request, plan, i))
                return true;
            wait->delta = 0;
        }
    return false;
}

static inline bool fault_no_waits(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t had = 0, index;
    if (!fault_find_wait(plan, 0, &index))
        return false;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        had += plan->body[i].wait_count;
        plan->body[i].wait_count = 0;
    }
    (void)request;
    return had > 0;
}

/* ---- the table ---- */

#define FAULT(name, message)                                                                       \
    {                                                                                              \
#name, fault_##name, message                                                               \
    }

static const plan_fault plan_faults[] = {
    FAULT(op_missing, "it runs"),
    FAULT(op_repeated, "is next"),
    FAULT(ops_swapped, "is next"),
    FAULT(op_on_comm, "where its op does not belong"),
    FAULT(adamw_elsewhere, "where its op does not belong"),
    FAULT(copy_on_other_lane, "copies from host to device on lane"),
    FAULT(wait_for_nobody, "which does not exist"),
    FAULT(wait_for_itself, "which is not issued yet"),
    FAULT(wait_two_back, "iterations back"),
    FAULT(waits_behind_last, "has waits from"),
    FAULT(place_too_few, "operands and a workspace"),
    FAULT(places_behind_last, "has places from"),
    FAULT(operand_misaligned, "is not aligned"),
    FAULT(operand_outside, "outside the peak"),
    FAULT(operand_shrunk, "which has"),
    FAULT(operand_on_other_tier, "out of its lane's reach"),
    FAULT(operand_uninvited, "which is absent"),
    FAULT(operands_together, "in the same device bytes"),
    FAULT(workspace_shrunk, "bytes of workspace"),
    FAULT(workspace_over_flags, "over the block flags"),
    FAULT(home_beside, "but its home is at"),
    FAULT(chunk_beside_home, "but its home is at"),
    FAULT(input_from_elsewhere, "not at the value's slot"),
    FAULT(copy_shrunk, "bytes for its source"),
    FAULT(copy_untimely, "says that it is issued"),
    FAULT(op_in_prologue, "of a kind that has no place here"),
    FAULT(wait_in_prologue, "has waits"),
    FAULT(peak_too_small, "outside the peak"),
    FAULT(peak_over_budget, "over the budget"),

    FAULT(allocations_overlap, "overlap at"),
    FAULT(life_too_short, "where no allocation of it lives"),
    FAULT(activation_unallocated, "where no allocation of it lives"),
    FAULT(visit_unallocated, "where no allocation of it lives"),
    FAULT(carried_visit_cut, "where no allocation of it lives at tick 0"),
    FAULT(visit_of_other_kind, "is of another kind than its chunk"),
    FAULT(home_lent, "is among what outlives the plan"),
    FAULT(home_unallocated, "no permanent allocation holds the home of"),
    FAULT(home_moved, "is permanent, but not its chunk's home"),
    FAULT(flags_unallocated, "no permanent allocation holds the block flags"),
    FAULT(slot_unallocated, "not at the value's slot"),
    FAULT(life_beyond_end, "lives at ticks that do not exist"),
    FAULT(live_peak_off, "live peak is"),
    FAULT(kinds_off, "bytes by kind"),
    FAULT(moved_off, "it moves"),

    FAULT(fetch_missing, "which hold"),
    FAULT(fetch_too_late, "which hold"),
    FAULT(fetch_before_update, "which hold a stale version"),
    FAULT(fetch_of_other_chunk, "which hold"),
    FAULT(fetch_to_elsewhere, "which hold"),
    FAULT(carried_fetch_missing, "which hold"),
    FAULT(prologue_fetch_missing, "which hold nothing"),
    FAULT(write_back_missing, "which hold"),
    FAULT(write_back_too_early, "which hold"),
    FAULT(output_missing, "an output is not on the host"),
    FAULT(output_too_early, "needs value"),
    FAULT(input_missing, "which hold"),
    FAULT(input_too_late, "which hold"),
    FAULT(tensor_shifted, "which hold"),

    FAULT(use_before_fetch, "without waiting for"),
    FAULT(use_before_carried_fetch, "without waiting for"),
    FAULT(write_back_before_op, "without waiting for"),
    FAULT(write_before_write_back, "without waiting for"),
    FAULT(write_before_last_write_back, "without waiting for"),
    FAULT(fetch_over_reader, "without waiting for"),
    FAULT(fetch_over_last_reader, "without waiting for"),
    FAULT(fetch_over_write_back, "without waiting for"),
    FAULT(fetch_over_last_write_back, "without waiting for"),
    FAULT(update_before_arrival, "without waiting for"),
    FAULT(fetch_before_host_update, "without waiting for"),
    FAULT(fetch_before_last_update, "without waiting for"),
    FAULT(arrival_over_last_update, "without waiting for"),
    FAULT(wait_on_previous, "without waiting for"),
    FAULT(no_waits, "without waiting for"),
};

#undef FAULT

enum { PLAN_FAULT_COUNT = sizeof plan_faults / sizeof *plan_faults };

#endif
