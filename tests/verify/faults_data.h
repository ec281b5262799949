/* Faults of what memory holds: copies that are missing, untimely or of something else. See
 * plan_faults.h. */
#ifndef SL_TESTS_FAULTS_DATA_H
#define SL_TESTS_FAULTS_DATA_H

#include "fault_sites.h"

/* Which copies are meant: over a lane, of chunks or of activations; and whether they are for the
 * next iteration. */
typedef struct fault_copies {
    sl_lane lane;
    bool is_chunk, is_carried;
} fault_copies;

static inline bool fault_is_meant(const sl_plan_request *request, const sl_command *copy)
{
    return copy->chunk_index != SL_NONE ||
           request->program->values[copy->value].kind == SL_VALUE_ACTIVATION;
}

/* A copy whose bytes are read, and hold something else without it. */
static inline bool fault_find_arrival(const sl_plan_request *request, const sl_plan *plan,
                                      fault_copies copies, uint32_t *index, uint32_t *out_reader)
{
    for (; fault_find_copy(plan, copies.lane, copies.is_chunk, index); ++*index) {
        bool wraps;
        *out_reader = touch_consumer(request, plan, *index, &wraps);
        if (fault_is_meant(request, &plan->body[*index]) && *out_reader != SL_NONE &&
            wraps == copies.is_carried && touch_is_needed(request, plan, *index, *out_reader))
            return true;
    }
    return false;
}

static inline bool fault_drop_arrival(const sl_plan_request *request, sl_plan *plan,
                                      fault_copies copies)
{
    uint32_t index = 0, reader;
    if (!fault_find_arrival(request, plan, copies, &index, &reader))
        return false;
    edit_remove(plan, index);
    return true;
}

static inline bool fault_delay_arrival(const sl_plan_request *request, sl_plan *plan,
                                       fault_copies copies)
{
    for (uint32_t index = 0, reader; fault_find_arrival(request, plan, copies, &index, &reader);
         index++) {
        if (!edit_is_one_section(plan, index, reader))
            continue; /* a command in another section is another fault */
        edit_move(request, plan, index, reader);
        return true;
    }
    return false;
}

#define FAULT_COPY(name, deed, lane, is_chunk, is_carried)                                         \
    static inline bool name(const sl_plan_request *request, sl_plan *plan)                         \
    {                                                                                              \
        return deed(request, plan, (fault_copies){SL_LANE_##lane, is_chunk, is_carried});          \
    }

FAULT_COPY(fault_fetch_missing, fault_drop_arrival, H2D, true, false)
FAULT_COPY(fault_fetch_too_late, fault_delay_arrival, H2D, true, false)
FAULT_COPY(fault_carried_fetch_missing, fault_drop_arrival, H2D, true, true)
FAULT_COPY(fault_read_missing, fault_drop_arrival, READ, true, false)
FAULT_COPY(fault_read_too_late, fault_delay_arrival, READ, true, false)
FAULT_COPY(fault_carried_read_missing, fault_drop_arrival, READ, true, true)
FAULT_COPY(fault_activation_fetch_missing, fault_drop_arrival, H2D, false, false)
FAULT_COPY(fault_activation_fetch_too_late, fault_delay_arrival, H2D, false, false)
FAULT_COPY(fault_activation_read_missing, fault_drop_arrival, READ, false, false)
FAULT_COPY(fault_activation_read_too_late, fault_delay_arrival, READ, false, false)
FAULT_COPY(fault_activation_eviction_missing, fault_drop_arrival, D2H, false, false)
FAULT_COPY(fault_activation_write_missing, fault_drop_arrival, WRITE, false, false)

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

/* A copy is issued before the update that it should bring; its memory was free by then. */
static inline bool fault_hurry_arrival(const sl_plan_request *request, sl_plan *plan,
                                       fault_copies copies)
{
    uint32_t index = 0, reader;
    for (; fault_find_arrival(request, plan, copies, &index, &reader); index++) {
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
    return false;
}

static inline bool fault_fetch_before_update(const sl_plan_request *request, sl_plan *plan)
{
    fault_copies copies = {SL_LANE_H2D, true, false}, carried = {SL_LANE_H2D, true, true};
    return fault_hurry_arrival(request, plan, copies) ||
           fault_hurry_arrival(request, plan, carried);
}

/* The disk is read for a chunk before the write that brings its update home. */
static inline bool fault_read_before_write(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t read = 0; fault_find_copy(plan, SL_LANE_READ, true, &read); read++)
        for (uint32_t i = read; i > 0; i--) {
            const sl_command *copy = &plan->body[read], *other = &plan->body[i - 1];
            if (touch_place(request, plan, i - 1, &copy->to, false) ||
                touch_place(request, plan, i - 1, &copy->to, true) ||
                !edit_is_one_section(plan, i - 1, read))
                break;
            if (other->kind != SL_COMMAND_COPY || other->lane != SL_LANE_WRITE ||
                touch_copied(request, other) != touch_copied(request, copy))
                continue;
            edit_move(request, plan, read, i - 1);
            return true;
        }
    return false;
}

/* Another chunk than the one that the next op wants, as long as that one. */
static inline bool fault_fetch_of_other_chunk(const sl_plan_request *request, sl_plan *plan)
{
    const fault_copies fetches = {SL_LANE_H2D, true, false};
    uint32_t index = 0, reader;
    for (; fault_find_arrival(request, plan, fetches, &index, &reader); index++) {
        sl_command *copy = &plan->body[index];
        for (uint32_t chunk = 0; chunk < request->layout->chunk_count; chunk++) {
            if (chunk == copy->chunk_index || copy->group == SL_GROUP_GRAD ||
                !fault_is_at_home(request, copy->group, chunk, SL_TIER_HOST) ||
                sl_layout_chunk_bytes(request->layout, copy->group, chunk) !=
                    sl_layout_chunk_bytes(request->layout, copy->group, copy->chunk_index))
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
    const fault_copies fetches = {SL_LANE_H2D, true, false};
    uint32_t index = 0, reader;
    if (!fault_find_arrival(request, plan, fetches, &index, &reader) ||
        plan->body[index].to.offset < request->homes->fixed_bytes[SL_TIER_DEVICE] + 256)
        return false;
    plan->body[index].to.offset -= 256;
    return true;
}

/* A chunk's way home, or the first half of it, that somebody relies on: a later command of the
 * iteration, or the boundary. */
static inline bool fault_find_write_back(const sl_plan_request *request, const sl_plan *plan,
                                         fault_copies copies, uint32_t *index)
{
    for (; fault_find_copy(plan, copies.lane, true, index); ++*index) {
        bool wraps = false;
        const sl_command *copy = &plan->body[*index];
        uint32_t reader = touch_consumer(request, plan, *index, &wraps);
        sl_tier home = copies.is_carried ? SL_TIER_DISK : copy->to.tier;
        if (!fault_is_at_home(request, copy->group, copy->chunk_index, home))
            continue;
        if (copy->group != SL_GROUP_GRAD || (reader != SL_NONE && !wraps))
            return true;
    }
    return false;
}

static inline bool fault_drop_write_back(const sl_plan_request *request, sl_plan *plan,
                                         fault_copies copies)
{
    uint32_t index = 0;
    if (!fault_find_write_back(request, plan, copies, &index))
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

static inline bool fault_hurry_write_back(const sl_plan_request *request, sl_plan *plan,
                                          fault_copies copies)
{
    uint32_t index = 0;
    for (; fault_find_write_back(request, plan, copies, &index); index++)
        if (fault_move_before_writer(request, plan, index))
            return true;
    return false;
}

/* `is_carried` here: on the host only on its way to disk. */
FAULT_COPY(fault_write_back_missing, fault_drop_write_back, D2H, true, false)
FAULT_COPY(fault_write_back_too_early, fault_hurry_write_back, D2H, true, false)
FAULT_COPY(fault_half_write_back_missing, fault_drop_write_back, D2H, true, true)
FAULT_COPY(fault_half_write_back_too_early, fault_hurry_write_back, D2H, true, true)
FAULT_COPY(fault_write_missing, fault_drop_write_back, WRITE, true, false)
FAULT_COPY(fault_write_too_early, fault_hurry_write_back, WRITE, true, false)

/* An activation leaves before an op has written it for the last time, or has arrived whole. */
static inline bool fault_hurry_departure(const sl_plan_request *request, sl_plan *plan,
                                         fault_copies copies)
{
    uint32_t index = 0, reader;
    for (; fault_find_arrival(request, plan, copies, &index, &reader); index++)
        if (fault_move_before_writer(request, plan, index))
            return true;
    return false;
}

FAULT_COPY(fault_activation_evicted_early, fault_hurry_departure, D2H, false, false)
FAULT_COPY(fault_activation_written_early, fault_hurry_departure, WRITE, false, false)
#undef FAULT_COPY

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

static inline bool fault_find_used_input(const sl_plan_request *request, const sl_plan *plan,
                                         uint32_t *index, uint32_t *out_reader)
{
    bool wraps;
    for (; fault_find_any_input(request, plan, index); ++*index) {
        *out_reader = touch_consumer(request, plan, *index, &wraps);
        if (*out_reader != SL_NONE && !wraps)
            return true;
    }
    return false;
}

static inline bool fault_input_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_used_input(request, plan, &index, &reader))
        return false;
    edit_remove(plan, index);
    return true;
}

static inline bool fault_input_too_late(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t index = 0, reader;
    if (!fault_find_used_input(request, plan, &index, &reader) ||
        !edit_is_one_section(plan, index, reader))
        return false;
    edit_move(request, plan, index, reader);
    return true;
}

/* A tensor is read from its neighbour's place in the same chunk. */
static inline bool fault_tensor_shifted(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t operand;
    for (uint32_t i = 0; fault_find_operand(request, plan, SL_VALUE_TENSOR, &i, &operand); i++) {
        const sl_value *value = fault_operand(request, &plan->body[i], operand);
        uint32_t chunk_index = request->layout->chunk_of_tensor[value->index];
        uint64_t first = request->layout->first_element[value->index];
        sl_place *place = fault_place(plan, i, operand);
        uint64_t bytes = sl_type_bytes(value->type), block = SL_BLOCK_ELEMENTS * bytes;
        if (fault_is_at_home(request, value->group, chunk_index, place->tier) ||
            place->offset < request->homes->fixed_bytes[place->tier] + first * bytes + block)
            continue;
        place->offset -= block;
        if (!touch_is_mixed(request, plan, i))
            return true;
        place->offset += block;
    }
    return false;
}

#endif
