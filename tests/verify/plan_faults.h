/* Faults of plans. Each row plants one fault in a copy of a right plan, where it is truly wrong,
 * and names a piece of the message with which the verifier must reject it.
 *
 * A row whose fault has no place in a plan says so (false) and leaves the plan as it was: a plan
 * without visits cannot lack a fetch. Sites are searched by what commands touch, never by index, so
 * the table serves any plan.
 */
#ifndef SL_TESTS_PLAN_FAULTS_H
#define SL_TESTS_PLAN_FAULTS_H

#include "faults_data.h"
#include "faults_memory.h"
#include "faults_order.h"
#include "faults_shape.h"
#include "faults_tiers.h"

typedef struct plan_fault {
    const char *name;
    bool (*plant)(const sl_plan_request *request, sl_plan *plan);
    const char *message;
} plan_fault;

/* clang-format off */
#define FAULT(name, message) {#name, fault_##name, message}
/* clang-format on */

static const plan_fault plan_faults[] = {
    FAULT(op_missing, "it runs"),
    FAULT(op_repeated, "is next"),
    FAULT(ops_swapped, "is next"),
    FAULT(op_on_comm, "where its op does not belong"),
    FAULT(op_on_host, "where its op does not belong"),
    FAULT(adamw_elsewhere, "where its op does not belong"),
    FAULT(copy_on_other_lane, "copies from host to device on lane"),
    FAULT(wait_for_nobody, "which does not exist"),
    FAULT(wait_two_back, "issues back"),
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
    FAULT(workspace_over_flags, "among what outlives the plan"),
    FAULT(home_beside, "but its home is at"),
    FAULT(chunk_beside_home, "but its home is at"),
    FAULT(input_from_elsewhere, "not at the value's buffer"),
    FAULT(filled_from_elsewhere, "which hold"),
    FAULT(output_to_elsewhere, "not at the value's buffer"),
    FAULT(cache_elsewhere, "not where it persists"),
    FAULT(copy_shrunk, "bytes for its source"),
    FAULT(copy_untimely, "says that it is issued"),
    FAULT(op_in_prologue, "of a kind that has no place here"),
    FAULT(wait_in_prologue, "has waits"),
    FAULT(peak_too_small, "outside the peak"),
    FAULT(peak_over_budget, "over the budget"),

    FAULT(allocations_overlap, "overlap at"),
    FAULT(visit_of_other_kind, "is of another kind than its chunk"),
    FAULT(home_lent, "is among what outlives the plan"),
    FAULT(home_moved, "is permanent, but not its chunk's home"),
    FAULT(slot_unallocated, "not at the value's buffer"),
    FAULT(life_beyond_end, "lives at ticks that do not exist"),
    FAULT(live_peak_off, "live peak is"),
    FAULT(kinds_off, "bytes by kind"),
    FAULT(moved_off, "it moves"),

    FAULT(fetch_missing, "which hold"),
    FAULT(fetch_too_late, "which hold"),
    FAULT(fetch_before_update, "which hold"),
    FAULT(fetch_of_other_chunk, "which hold"),
    FAULT(fetch_to_elsewhere, "which hold"),
    FAULT(carried_fetch_missing, "which hold"),
    FAULT(prologue_fetch_missing, "which hold nothing"),
    FAULT(write_back_missing, "which hold"),
    FAULT(write_back_too_early, "which hold"),
    FAULT(output_missing, "the end of an iteration needs value"),
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
    FAULT(collective_before_op, "without waiting for"),
    FAULT(use_before_collective, "without waiting for"),
    FAULT(wait_for_itself, "without waiting for"),
    FAULT(wait_on_previous, "without waiting for"),
    FAULT(wait_on_previous_missing, "without waiting for"),
    FAULT(no_waits, "without waiting for"),

    FAULT(read_on_fetch_lane, "copies from disk to host on lane"),
    FAULT(write_on_read_lane, "copies from host to disk on lane"),
    FAULT(read_backwards, "copies from host to disk on lane"),
    FAULT(read_to_device, "copies from disk to device, which no lane does"),
    FAULT(write_from_device, "copies from device to disk, which no lane does"),
    FAULT(stage_misaligned, "not aligned"),
    FAULT(disk_misaligned, "not aligned"),
    FAULT(disk_copy_partial, "bytes for its source"),
    FAULT(disk_over_budget, "its disk peak"),
    FAULT(hop_over_slot, "overlap at host"),
    FAULT(hop_read_missing, "which hold"),
    FAULT(hop_backwards, "which hold"),
    FAULT(stages_overlap, "overlap at host"),
    FAULT(disk_home_lent, "is among what outlives the plan"),

    FAULT(read_missing, "which hold"),
    FAULT(read_too_late, "which hold"),
    FAULT(carried_read_missing, "which hold"),
    FAULT(read_before_write, "which hold"),
    FAULT(half_write_back_missing, "which hold"),
    FAULT(half_write_back_too_early, "which hold"),
    FAULT(write_missing, "which hold"),
    FAULT(write_too_early, "which hold"),
    FAULT(activation_fetch_missing, "needs value"),
    FAULT(activation_fetch_too_late, "needs value"),
    FAULT(activation_read_missing, "needs value"),
    FAULT(activation_read_too_late, "needs value"),
    FAULT(activation_eviction_missing, "needs value"),
    FAULT(activation_write_missing, "needs value"),
    FAULT(activation_evicted_early, "needs value"),
    FAULT(activation_written_early, "needs value"),

    FAULT(fetch_before_read, "without waiting for"),
    FAULT(update_before_read, "without waiting for"),
    FAULT(write_before_arrival, "without waiting for"),
    FAULT(write_before_update, "without waiting for"),
    FAULT(read_over_write, "without waiting for"),
    FAULT(read_over_last_write, "without waiting for"),
    FAULT(read_over_fetch, "without waiting for"),
    FAULT(read_over_last_fetch, "without waiting for"),
    FAULT(read_over_update, "without waiting for"),
    FAULT(read_over_last_update, "without waiting for"),
    FAULT(eviction_over_write, "without waiting for"),
    FAULT(eviction_over_last_write, "without waiting for"),
    FAULT(eviction_over_fetch, "without waiting for"),
};

enum { PLAN_FAULT_COUNT = sizeof plan_faults / sizeof *plan_faults };

/* Faults of the list of allocations that no command shows: plan_listing.h sees them. */
static const plan_fault listing_faults[] = {
    FAULT(life_too_short, NULL),        FAULT(activation_unallocated, NULL),
    FAULT(visit_unallocated, NULL),     FAULT(carried_visit_cut, NULL),
    FAULT(home_unallocated, NULL),      FAULT(flags_unallocated, NULL),
    FAULT(filled_unallocated, NULL),    FAULT(hop_unallocated, NULL),
    FAULT(hop_too_late, NULL),          FAULT(hop_too_small, NULL),
    FAULT(bounce_unallocated, NULL),    FAULT(disk_item_unallocated, NULL),
    FAULT(host_item_unallocated, NULL), FAULT(disk_item_cut, NULL),
};

#undef FAULT

enum { LISTING_FAULT_COUNT = sizeof listing_faults / sizeof *listing_faults };

#endif
