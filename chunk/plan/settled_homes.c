/* Homes for chunks that are never fetched in the body although they live on the host.
 *
 * A plan with room for them loads such chunks once, in its prologue. A chunk that is written in
 * each iteration would still be written back in each, because every chunk is current at its home at
 * the end of the body. With a home on the device nothing moves, and the host needs no bytes for it.
 *
 * Most of these chunks are on the device through all of the body. Others are not there between
 * their last read and the op that writes them whole: parameters that are updated from a master. A
 * home on the device takes their bytes then too.
 *
 * Knows a plan's allocations and copies; sl_homes_place gives the new homes their
 * offsets.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "chunk/plan.h"
#include "chunk/policy/homes.h"

/* What the body does with a chunk of a group. */
enum {
    CARRIED = 1,      /* it is on the device at the start */
    ALWAYS_THERE = 2, /* its visit of the device lasts through all of the body */
    FETCHED = 4,      /* it is copied to the device */
    WRITTEN_BACK = 8, /* it is copied from the device */
};

static uint8_t *find_mark(const sl_homes *homes, uint8_t *marks, sl_group group, uint32_t chunk)
{
    return &marks[(uint64_t)group * homes->chunk_count + chunk];
}

static void mark_visits(const sl_plan_request *request, const sl_plan *plan, uint8_t *marks)
{
    const uint32_t last_tick = request->program->op_count - 1;
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        const sl_allocation *visit = &plan->allocations[a];
        if (visit->chunk_index == SL_NONE || visit->is_permanent ||
            visit->place.tier != SL_TIER_DEVICE)
            continue;
        if (visit->first_tick == 0 && visit->last_tick == last_tick)
            *find_mark(request->homes, marks, visit->group, visit->chunk_index) |= ALWAYS_THERE;
    }
}

/* Marks the chunks that are copied to and from the device. */
static void mark_copies(const sl_homes *homes, const sl_command *commands, uint32_t count,
                        uint8_t to_device, uint8_t from_device, uint8_t *marks)
{
    for (uint32_t c = 0; c < count; c++) {
        const sl_command *copy = &commands[c];
        if (copy->kind != SL_COMMAND_COPY || copy->chunk_index == SL_NONE)
            continue;
        uint8_t *mark = find_mark(homes, marks, copy->group, copy->chunk_index);
        *mark |= copy->lane == SL_LANE_H2D ? to_device : 0;
        *mark |= copy->lane == SL_LANE_D2H ? from_device : 0;
    }
}

static uint8_t *make_marks(const sl_plan_request *request, const sl_plan *plan)
{
    const sl_homes *homes = request->homes;
    uint8_t *marks = calloc((uint64_t)SL_GROUP_COUNT * homes->chunk_count + 1, sizeof *marks);
    if (!marks)
        return NULL;
    mark_visits(request, plan, marks);
    mark_copies(homes, plan->prologue, plan->prologue_count, CARRIED, 0, marks);
    mark_copies(homes, plan->body, plan->body_count, FETCHED, WRITTEN_BACK, marks);
    return marks;
}

/* The marks of a chunk that is to live on the device. */
static bool is_settled(uint8_t marks, bool is_always_there)
{
    const uint8_t relevant =
        CARRIED | FETCHED | WRITTEN_BACK | (is_always_there ? ALWAYS_THERE : 0);
    return (marks & relevant) == (relevant & (uint8_t)~FETCHED);
}

/* Copies the tiers, and moves marked chunks from the host to the device; false: there are none. */
static bool move_to_device(const sl_homes *from, uint8_t *marks, bool is_always_there, sl_homes *to)
{
    bool is_other = false;
    memcpy(to->update_tier, from->update_tier, from->chunk_count);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; from->tier[group] && c < from->chunk_count; c++) {
            const bool moves =
                from->tier[group][c] == SL_TIER_HOST &&
                is_settled(*find_mark(from, marks, (sl_group)group, c), is_always_there);
            to->tier[group][c] = moves ? SL_TIER_DEVICE : from->tier[group][c];
            is_other = is_other || moves;
        }
    return is_other;
}

sl_status sl_homes_settle(const sl_plan_request *request, const sl_plan *plan, bool is_always_there,
                          sl_homes **out_homes)
{
    const sl_homes *from = request->homes;
    sl_homes *to = NULL;
    uint8_t *marks = make_marks(request, plan);
    if (!marks)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to settle %u chunks", from->chunk_count);
    sl_status status = sl_homes_open(request->program, from->chunk_count, &to);
    const bool is_other = status == SL_OK && move_to_device(from, marks, is_always_there, to);
    if (is_other)
        status = sl_homes_place(request->program, request->layout, to);
    free(marks);
    if (status == SL_OK && is_other) {
        *out_homes = to;
        return SL_OK;
    }
    sl_homes_close(to);
    if (status == SL_OK)
        *out_homes = NULL;
    return status;
}
