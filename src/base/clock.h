/* The monotonic clock. Header only. */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC now, in nanoseconds. */
static inline uint64_t sl_clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC `ns` from now: for pthread_cond_timedwait (sl_queue_init_condition). */
static inline struct timespec sl_clock_time_in(uint64_t ns)
{
    const uint64_t end_ns = sl_clock_now_ns() + ns;
    return (struct timespec){(time_t)(end_ns / 1000000000u), (long)(end_ns % 1000000000u)};
}

#endif
