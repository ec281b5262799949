/* Plans without budgets take what is free: one at a time in a process, from the measurement of what
 * is free until the memory is taken. So no two plan the same bytes. Between processes the claim of
 * the engine refuses (device/host.c).
 */
#ifndef SL_SEARCH_FREE_MEMORY_H
#define SL_SEARCH_FREE_MEMORY_H

#include "config/config.h"

/* Waits until no other thread plans with what is free, and keeps others from it until
 * sl_free_memory_end. *out_holds is false, and nothing is done, if both budgets are set. Fails with
 * the status of the thread's listener alone (base/heartbeat.h), which hears of the waiting. */
sl_status sl_free_memory_begin(const sl_config *config, bool *out_holds);

/* By the same thread, if it holds. */
void sl_free_memory_end(void);

#endif
