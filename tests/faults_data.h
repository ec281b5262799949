/* Faults of what memory holds: copies that are missing, untimely or of something else. See
 * plan_faults.h. */
#ifndef SL_TESTS_FAULTS_DATA_H
#define SL_TESTS_FAULTS_DATA_H

#include "fault_sites.h"

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

#endif
