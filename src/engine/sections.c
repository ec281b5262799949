/* The sections of a plan's body, and where its commands' places are in each of their repetitions.
 * Knows nothing of lanes.
 *
 * A command is bound where it is in repetition 0. Of its places only those that move are noted; so
 * a command that has none costs nothing more for being repeated.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>

enum { FIRST_STRIDES = 64 };

sl_status sl_sections_check(sl_bound_plan *bound)
{
    const sl_plan *plan = bound->plan;
    uint64_t next = 0, repetitions = 0;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        if (section->first != next || section->repeat == 0 || section->repeat > SL_TAG_REPETITIONS)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "section %u is run %u times from command %u on, behind command %" PRIu64, s,
                    section->repeat, section->first, next);
        next += section->count;
        repetitions += section->repeat;
    }
    if (next != plan->body_count || repetitions > UINT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL,
                "%u sections of %" PRIu64 " commands, run %" PRIu64 " times, for a body of %u",
                plan->section_count, next, repetitions, plan->body_count);
    bound->repetition_count = (uint32_t)repetitions;
    bound->repetitions_ahead = sl_plan_repetitions_ahead(bound->plan);
    return SL_OK;
}

sl_status sl_sections_check_slots(const sl_place *place, uint64_t alignment)
{
    uint64_t extent;
    if (place->slots <= 1 || place->bytes == 0)
        return SL_OK;
    bool overflows = __builtin_mul_overflow(place->slots - 1, place->stride, &extent) ||
                     __builtin_add_overflow(extent, place->bytes, &extent);
    if (overflows || place->stride < place->bytes || place->stride % alignment != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "%u slots of %" PRIu64 " bytes, %" PRIu64 " bytes apart",
                place->slots, place->bytes, place->stride);
    return SL_OK;
}

/* ---- strides ---- */

static sl_status make_room(sl_bound_plan *bound)
{
    if (bound->stride_count < bound->stride_capacity)
        return SL_OK;
    uint64_t capacity =
        bound->stride_capacity ? UINT64_C(2) * bound->stride_capacity : (uint64_t)FIRST_STRIDES;
    sl_bound_stride *strides =
        capacity > UINT32_MAX ? NULL : realloc(bound->strides, capacity * sizeof *strides);
    if (!strides)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " strides", capacity);
    bound->strides = strides;
    bound->stride_capacity = (uint32_t)capacity;
    return SL_OK;
}

sl_status sl_sections_add_stride(sl_bound_plan *bound, sl_bound_command *command, uint32_t which,
                                 const sl_place *place)
{
    if (place->slots <= 1 || place->bytes == 0)
        return SL_OK;
    SL_TRY(make_room(bound));
    if (command->stride_count == 0)
        command->first_stride = bound->stride_count;
    bound->strides[bound->stride_count++] =
        (sl_bound_stride){.place = which, .slots = place->slots, .stride = place->stride};
    command->stride_count++;
    return SL_OK;
}

static uint64_t distance(const sl_bound_stride *stride, uint32_t repetition)
{
    return repetition % stride->slots * stride->stride;
}

void sl_sections_move_call(const sl_bound_plan *bound, const sl_bound_command *command,
                           uint32_t repetition, sl_kernel_call *call)
{
    call->micro_batch += repetition;
    for (uint32_t i = 0; i < command->stride_count; i++) {
        const sl_bound_stride *stride = &bound->strides[command->first_stride + i];
        void **address =
            stride->place == SL_BOUND_WORKSPACE ? &call->workspace : &call->operand[stride->place];
        *address = (unsigned char *)*address + distance(stride, repetition);
    }
}

/* The end that has no memory is the one on disk. */
void sl_sections_move_ends(const sl_bound_plan *bound, const sl_bound_command *command,
                           uint32_t repetition, sl_bound_ends *ends)
{
    for (uint32_t i = 0; i < command->stride_count; i++) {
        const sl_bound_stride *stride = &bound->strides[command->first_stride + i];
        uint64_t bytes = distance(stride, repetition);
        if (stride->place == SL_BOUND_TO && ends->to)
            ends->to = (unsigned char *)ends->to + bytes;
        else if (stride->place == SL_BOUND_FROM && ends->from)
            ends->from = (const unsigned char *)ends->from + bytes;
        else
            ends->disk_offset += bytes;
    }
}
