/* Faults of waits: two commands race. See plan_faults.h. */
#ifndef SL_TESTS_FAULTS_ORDER_H
#define SL_TESTS_FAULTS_ORDER_H

#include "fault_sites.h"

/* Takes a wait on `target` away from a command of `lane`, one without which it races. */
static inline bool fault_drop_wait(const sl_plan_request *request, sl_plan *plan, sl_lane lane,
                                   sl_lane target, uint32_t back)
{
    if (edit_has_loops(plan)) /* a wait may be another repetition's; see test_verify_unrolled.c */
        return false;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        sl_command *command = &plan->body[i];
        for (uint32_t w = 0; command->lane == lane && w < command->wait_count; w++) {
            sl_wait *wait = &plan->waits[command->first_wait + w];
            if (wait_back(wait, i) != back || plan->body[wait->command].lane != target)
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

#define FAULT_DROP_WAIT(name, lane, target, back)                                                  \
    static inline bool name(const sl_plan_request *request, sl_plan *plan)                         \
    {                                                                                              \
        return fault_drop_wait(request, plan, SL_LANE_##lane, SL_LANE_##target, back);             \
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
FAULT_DROP_WAIT(fault_collective_before_op, COMM, COMPUTE, 0)
FAULT_DROP_WAIT(fault_use_before_collective, COMPUTE, COMM, 0)
FAULT_DROP_WAIT(fault_fetch_before_read, H2D, READ, 0)
FAULT_DROP_WAIT(fault_update_before_read, HOST, READ, 0)
FAULT_DROP_WAIT(fault_write_before_arrival, WRITE, D2H, 0)
FAULT_DROP_WAIT(fault_write_before_update, WRITE, HOST, 0)
FAULT_DROP_WAIT(fault_read_over_write, READ, WRITE, 0)
FAULT_DROP_WAIT(fault_read_over_last_write, READ, WRITE, 1)
FAULT_DROP_WAIT(fault_read_over_fetch, READ, H2D, 0)
FAULT_DROP_WAIT(fault_read_over_last_fetch, READ, H2D, 1)
FAULT_DROP_WAIT(fault_read_over_update, READ, HOST, 0)
FAULT_DROP_WAIT(fault_read_over_last_update, READ, HOST, 1)
FAULT_DROP_WAIT(fault_eviction_over_write, D2H, WRITE, 0)
FAULT_DROP_WAIT(fault_eviction_over_last_write, D2H, WRITE, 1)
FAULT_DROP_WAIT(fault_eviction_over_fetch, D2H, H2D, 0)
#undef FAULT_DROP_WAIT

/* A command waits for itself instead: for its last issue, which the lane does anyway. */
static inline bool fault_wait_for_itself(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            sl_wait *wait = &plan->waits[plan->body[i].first_wait + w], it = *wait;
            *wait = (sl_wait){i, 0};
            if (has_race_at(request, plan, i))
                return true;
            *wait = it;
        }
    return false;
}

/* A wait on this iteration becomes one on the previous. */
static inline bool fault_wait_on_previous(const sl_plan_request *request, sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            sl_wait *wait = &plan->waits[plan->body[i].first_wait + w];
            if (wait_back(wait, i) != 0)
                continue;
            wait->age = 1;
            if (has_race_at(request, plan, i))
                return true;
            wait->age = 0;
        }
    return false;
}

/* A wait on the previous iteration, of any lane on any other, is gone. */
static inline bool fault_wait_on_previous_missing(const sl_plan_request *request, sl_plan *plan)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        for (int target = 0; target < SL_LANE_COUNT; target++)
            if (fault_drop_wait(request, plan, (sl_lane)lane, (sl_lane)target, 1))
                return true;
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

#endif
