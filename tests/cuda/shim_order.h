/* Who runs next: the threads of a block that are ready, in the order that was chosen. */
#ifndef SL_TESTS_CUDA_SHIM_ORDER_H
#define SL_TESTS_CUDA_SHIM_ORDER_H

#include <stdint.h>

#include "shim_control.h"

enum { SHIM_THREADS_MOST = 1024 };

/* Starts a grid: from here on the seed alone decides. */
void shim_order_open(void);

/* Block `step` of `count`: each comes once. */
uint64_t shim_order_block(uint64_t step, uint64_t count);

/* All threads of a block are ready: its start, or a barrier. Draws a new order. */
void shim_order_release(uint32_t thread_count);

/* A thread is ready again. */
void shim_order_ready(uint32_t thread);

/* Takes the next one; false if nobody is ready. */
bool shim_order_next(uint32_t *out_thread);

#endif
