/* A flag that asks a thread to stop: set by a signal handler or by another thread. */
#ifndef SL_BASE_STOP_H
#define SL_BASE_STOP_H

#include <signal.h>
#include <stdbool.h>

static inline bool sl_stop_is_set(const volatile sig_atomic_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

static inline void sl_stop_set(volatile sig_atomic_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
}

#endif
