/* Faults of the third tier that one command or the allocations show: directions, alignment, the hop
 * of the prologue, items of what is away. See plan_faults.h. */
#ifndef SL_TESTS_FAULTS_TIERS_H
#define SL_TESTS_FAULTS_TIERS_H

#include "fault_sites.h"

static inline sl_command *fault_disk_copy(sl_plan *plan, sl_lane lane)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        if (plan->body[i].kind == SL_COMMAND_COPY && plan->body[i].lane == lane)
            return &plan->body[i];
    return NULL;
}

static inline bool fault_read_on_fetch_lane(const sl_plan_request *request, sl_plan *plan)
{
    sl_command *copy = fault_disk_copy(plan, SL_LANE_READ);
    (void)request;
    if (copy)
        copy->lane = SL_LANE_H2D;
    return copy != NULL;
}

static inline bool fault_write_on_read_lane(const sl_plan_request *request, sl_plan *plan)
{
    sl_command *copy = fault_disk_copy(plan, SL_LANE_WRITE);
    (void)request;
    if (copy)
        copy->lane = SL_LANE_READ;
    return copy != NULL;
}

/* The read lane writes what it should read. */
static inline bool fault_read_backwards(const sl_plan_request *request, sl_plan *plan)
{
    sl_command *copy = fault_disk_copy(plan, SL_LANE_READ);
    (void)request;
    if (!copy)
        return false;
    sl_place from = copy->from;
    copy->from = copy->to;
    copy->to = from;
    return true;
}

/* A copy on a lane of the disk, with the host's end on the device. */
static inline sl_place *fault_host_end(sl_command *copy)
{
    return copy->from.tier == SL_TIER_HOST ? &copy->from : &copy->to;
}

static inline bool fault_skip_host(sl_plan *plan, sl_lane lane)
{
    sl_command *copy = fault_disk_copy(plan, lane);
    if (!copy || plan->peak_bytes[SL_TIER_DEVICE] < copy->to.bytes)
        return false;
    *fault_host_end(copy) = (sl_place){
        SL_TIER_DEVICE, (plan->peak_bytes[SL_TIER_DEVICE] - copy->to.bytes) / 4096 * 4096,
        copy->to.bytes};
    return true;
}

/* Homes are on the device: it only looks for its place among what is no home. */
static inline bool fault_read_to_device(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    return fault_skip_host(plan, SL_LANE_READ);
}

static inline bool fault_write_from_device(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    return fault_skip_host(plan, SL_LANE_WRITE);
}

static inline bool fault_stage_misaligned(const sl_plan_request *request, sl_plan *plan)
{
    sl_command *copy = fault_disk_copy(plan, SL_LANE_READ);
    (void)request;
    if (copy)
        fault_host_end(copy)->offset -= 256;
    return copy != NULL;
}

/* An activation's item on disk starts within what has one checksum. */
static inline bool fault_disk_misaligned(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; fault_find_copy(plan, SL_LANE_WRITE, false, &i); i++) {
        sl_place *to = &plan->body[i].to;
        if (to->offset < request->homes->fixed_bytes[SL_TIER_DISK] + SL_DIRECT_ALIGNMENT)
            continue;
        to->offset -= SL_DIRECT_ALIGNMENT;
        return true;
    }
    return false;
}

static inline bool fault_disk_copy_partial(const sl_plan_request *request, sl_plan *plan)
{
    sl_command *copy = fault_disk_copy(plan, SL_LANE_WRITE);
    (void)request;
    if (!copy || copy->from.bytes <= SL_DIRECT_ALIGNMENT)
        return false;
    copy->from.bytes -= SL_DIRECT_ALIGNMENT;
    copy->to.bytes -= SL_DIRECT_ALIGNMENT;
    return true;
}

static inline bool fault_disk_over_budget(const sl_plan_request *request, sl_plan *plan)
{
    if (request->budget_bytes[SL_TIER_DISK] == UINT64_MAX || plan->peak_bytes[SL_TIER_DISK] == 0)
        return false;
    plan->peak_bytes[SL_TIER_DISK] = request->budget_bytes[SL_TIER_DISK] + 1;
    return true;
}

/* ---- the hop of the prologue ---- */

static inline sl_allocation *fault_hop(sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        sl_allocation *it = &plan->allocations[i];
        if (it->kind == SL_MEMORY_STAGING && !it->is_permanent && it->value == SL_NONE &&
            it->chunk_index == SL_NONE)
            return it;
    }
    return NULL;
}

static inline bool fault_hop_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_hop(plan);
    (void)request;
    if (it)
        edit_remove_allocation(plan, (uint32_t)(it - plan->allocations));
    return it != NULL;
}

static inline bool fault_hop_too_late(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_hop(plan);
    (void)request;
    if (it)
        it->first_tick = it->last_tick = 1;
    return it != NULL;
}

static inline bool fault_hop_too_small(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *it = fault_hop(plan);
    (void)request;
    if (it)
        it->place.bytes -= SL_DIRECT_ALIGNMENT;
    return it != NULL;
}

/* The hop grows until it has a slot in it: an input is there before the prologue runs. */
static inline bool fault_hop_over_slot(const sl_plan_request *request, sl_plan *plan)
{
    sl_allocation *hop = fault_hop(plan);
    (void)request;
    for (uint32_t i = 0; hop && i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->place.tier != SL_TIER_HOST || it->value == SL_NONE ||
            it->kind != SL_MEMORY_STAGING || !it->is_permanent)
            continue;
        sl_place *at = &hop->place;
        uint64_t end = at->offset + at->bytes, slot_end = it->place.offset + it->place.bytes;
        at->offset = it->place.offset < at->offset ? it->place.offset : at->offset;
        at->bytes = (slot_end > end ? slot_end : end) - at->offset;
        return true;
    }
    return false;
}

/* The first command of a hop: it reads the disk for the device's sake. */
static inline uint32_t fault_find_hop(const sl_plan *plan)
{
    for (uint32_t i = 0; i + 1 < plan->prologue_count; i++)
        if (plan->prologue[i].lane == SL_LANE_READ && plan->prologue[i + 1].lane == SL_LANE_H2D &&
            plan->prologue[i].to.offset == plan->prologue[i + 1].from.offset)
            return i;
    return SL_NONE;
}

/* The hop passes through the buffer of an input, which the caller has filled by then. */
static inline bool fault_hop_in_buffer(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t hop = fault_find_hop(plan), index = 0;
    if (hop == SL_NONE || !fault_find_input(request, plan, false, &index))
        return false;
    uint64_t offset = plan->body[index].from.offset / SL_DIRECT_ALIGNMENT * SL_DIRECT_ALIGNMENT;
    if (offset < request->homes->fixed_bytes[SL_TIER_HOST] ||
        offset + plan->prologue[hop].to.bytes > plan->peak_bytes[SL_TIER_HOST])
        return false;
    plan->prologue[hop].to.offset = plan->prologue[hop + 1].from.offset = offset;
    return true;
}

/* The buffer of an input is where an activation will be away, once the input has been read. */
static inline bool fault_buffer_where_away(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t evicted = 0, input = 0;
    for (; fault_find_copy(plan, SL_LANE_D2H, false, &evicted); evicted++)
        if (request->program->values[plan->body[evicted].value].kind == SL_VALUE_ACTIVATION)
            break;
    if (evicted == plan->body_count || !fault_find_input(request, plan, false, &input))
        return false;
    const uint64_t offset = plan->body[evicted].to.offset;
    plan->body[input].from.offset = offset;
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].place.tier == SL_TIER_HOST &&
            plan->allocations[i].value == plan->body[input].value)
            plan->allocations[i].place.offset = offset;
    return true;
}

static inline bool fault_hop_read_missing(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t i = fault_find_hop(plan);
    (void)request;
    if (i == SL_NONE)
        return false;
    plan->prologue_count--;
    memmove(plan->prologue + i, plan->prologue + i + 1,
            (plan->prologue_count - i) * sizeof *plan->prologue);
    return true;
}

static inline bool fault_hop_backwards(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t i = fault_find_hop(plan);
    (void)request;
    if (i == SL_NONE)
        return false;
    sl_command read = plan->prologue[i];
    plan->prologue[i] = plan->prologue[i + 1];
    plan->prologue[i + 1] = read;
    return true;
}

/* ---- allocations ---- */

static inline bool fault_bounce_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->is_permanent && it->place.tier == SL_TIER_HOST && it->place.bytes > 0 &&
            it->place.bytes == request->homes->bounce_bytes &&
            it->place.offset == request->homes->bounce_offset) {
            edit_remove_allocation(plan, i);
            return true;
        }
    }
    return false;
}

/* Does a copy reach the item? Homes of activations that never leave the device are not used. */
static inline bool fault_is_item_used(const sl_plan *plan, const sl_allocation *item)
{
    for (uint32_t i = 0; i < plan->body_count; i++) {
        const sl_command *copy = &plan->body[i];
        if (copy->kind == SL_COMMAND_COPY && copy->chunk_index == SL_NONE &&
            copy->value == item->value &&
            (places_overlap(&copy->from, &item->place) || places_overlap(&copy->to, &item->place)))
            return true;
    }
    return false;
}

/* What is away on the host or on disk has no memory there. */
static inline bool fault_away_unallocated(const sl_plan_request *request, sl_plan *plan,
                                          sl_tier tier)
{
    (void)request;
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].kind == SL_MEMORY_ACTIVATION &&
            plan->allocations[i].place.tier == tier &&
            fault_is_item_used(plan, &plan->allocations[i])) {
            edit_remove_allocation(plan, i);
            return true;
        }
    return false;
}

static inline bool fault_disk_item_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    return fault_away_unallocated(request, plan, SL_TIER_DISK);
}

static inline bool fault_host_item_unallocated(const sl_plan_request *request, sl_plan *plan)
{
    return fault_away_unallocated(request, plan, SL_TIER_HOST);
}

/* The item on disk is given back when the activation has left for it. */
static inline bool fault_disk_item_cut(const sl_plan_request *request, sl_plan *plan)
{
    (void)request;
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        sl_allocation *it = &plan->allocations[i];
        if (it->kind != SL_MEMORY_ACTIVATION || it->place.tier != SL_TIER_DISK)
            continue;
        it->last_tick = it->first_tick;
        for (uint32_t c = 0; fault_find_copy(plan, SL_LANE_READ, false, &c); c++)
            if (plan->body[c].value == it->value && plan->body[c].tick > it->last_tick + 1)
                return true;
    }
    return false;
}

/* Two visits on the host share bytes at a tick. */
static inline bool fault_stages_overlap(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        for (uint32_t j = 0; j < plan->allocation_count; j++) {
            sl_allocation *low = &plan->allocations[i];
            const sl_allocation *high = &plan->allocations[j];
            if (low->place.tier != SL_TIER_HOST || high->place.tier != SL_TIER_HOST ||
                low->is_permanent || high->is_permanent || low->chunk_index == SL_NONE ||
                high->chunk_index == SL_NONE || low->place.offset >= high->place.offset ||
                low->first_tick > high->first_tick || high->first_tick > low->last_tick)
                continue;
            low->place.bytes = high->place.offset - low->place.offset + SL_DIRECT_ALIGNMENT;
            (void)request;
            return true;
        }
    return false;
}

/* Bytes of a chunk's home on disk, lent to an activation. */
static inline bool fault_disk_home_lent(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        sl_allocation *it = &plan->allocations[i];
        if (it->kind != SL_MEMORY_ACTIVATION || it->place.slots > 1 ||
            it->place.tier != SL_TIER_DISK || request->homes->fixed_bytes[SL_TIER_DISK] == 0)
            continue;
        it->place.bytes += it->place.offset;
        it->place.offset = 0;
        return true;
    }
    return false;
}

#endif
