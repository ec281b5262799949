/* Runs of ranks that have a device each, over the stand-ins of CUDA and NCCL: the threads of ranks
 * with their devices and order of events, and what stands before and behind a test. Whoever
 * includes it has defined _GNU_SOURCE, and how many layers and ranks there are (rank_runs.h). */
#ifndef SL_TESTS_GPU_RANKS_CASE_H
#define SL_TESTS_GPU_RANKS_CASE_H

#include "nccl_standin.h"
#include "ranks/rank_runs.h"
#include "runtime.h"
#include "shim_control.h"
#include "standin_case.h"
#include "stream_order.h"

/* ---- threads of ranks: each has a device, and what one did comes before the next does ---- */

static order_clock *start_clock, *end_clocks[RANKS_MAX];

static inline order_clock *take_clock(void)
{
    pthread_mutex_lock(&standin.lock);
    order_clock *clock = order_clock_take(order_agent_of_thread());
    pthread_mutex_unlock(&standin.lock);
    return clock;
}

static inline void join_clock(const order_clock *clock)
{
    pthread_mutex_lock(&standin.lock);
    order_clock_join(order_agent_of_thread(), clock, STANDIN_EDGE_COUNT);
    pthread_mutex_unlock(&standin.lock);
}

static inline void drop_clock(order_clock *clock)
{
    pthread_mutex_lock(&standin.lock);
    order_clock_drop(clock);
    pthread_mutex_unlock(&standin.lock);
}

static inline void start_threads(void)
{
    start_clock = take_clock();
}

static inline void enter_rank(uint32_t rank)
{
    join_clock(start_clock);
    assert_int_equal(cudaSetDevice((int)rank), cudaSuccess);
}

static inline void leave_rank(uint32_t rank)
{
    end_clocks[rank] = take_clock();
}

static inline void join_threads(void)
{
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        join_clock(end_clocks[rank]);
        drop_clock(end_clocks[rank]);
        end_clocks[rank] = NULL;
    }
    drop_clock(start_clock);
}

static const rank_hooks gpu_hooks = {start_threads, enter_rank, leave_rank, join_threads};

static inline void start_machine(int device_count, uint32_t delay_us, const nccl_standin *nccl)
{
    standin_machine machine = standin_default();
    machine.device_count = device_count;
    machine.device_bytes = 256 << 20;
    machine.delay_us = delay_us;
    machine.has_one_kind = 1;
    standin_reset(&machine);
    nccl_standin_reset(nccl);
}

static inline void choose_device(bool is_gpu)
{
    run_device = is_gpu ? "device=cuda" : "device=cpu";
    run_hooks = &gpu_hooks;
}

static inline int begin(void **state)
{
    (void)reset(state);
    alarm(is_full() ? 3000 : 240);
    start_machine(RANKS_MAX, 50, &(nccl_standin){.seed = 7, .delay_us = 50});
    choose_device(true);
    return 0;
}

static inline int end(void **state)
{
    assert_int_equal(nccl_standin_open_count(), 0);
    assert_int_equal(sl_shim_unloaded_count(), 0);
    return check_end(state);
}

#endif
