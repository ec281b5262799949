/* Plans without budgets take what is free: one at a time in a process, from the measurement of what
 * is free until the memory is taken. So no two plan the same bytes. Between processes the claim of
 * the engine refuses (device/host.c).
 */
#ifndef SL_SEARCH_FREE_MEMORY_H
#define SL_SEARCH_FREE_MEMORY_H

#include "config/config.h"

/* Waits until no other thread plans with what is free, and keeps others from it until
 * sl_free_memory_end. Returns false, and does nothing, if both budgets are set. */
bool sl_free_memory_begin(const sl_config *config);

/* By the same thread. */
void sl_free_memory_end(void);

#endif
