/* Fibers: stacks that one thread switches between. On x86-64 by a dozen instructions, elsewhere by
 * ucontext, which asks the system for the signal mask at every switch.
 *
 * All fibers run one function, again and again: it returns when its turn is over for good, and is
 * called anew when the fiber is resumed after that. */
#ifndef SL_TESTS_CUDA_SHIM_FIBER_H
#define SL_TESTS_CUDA_SHIM_FIBER_H

#include <stddef.h>
#include <stdint.h>

#include "shim_order.h"

/* Makes the stacks, each with an inaccessible page below it; false where memory is refused. */
bool shim_fiber_open(void (*run)(void));

/* Continues fiber `index` until it pauses or its function returns. From outside of fibers. */
void shim_fiber_resume(uint32_t index);

/* Back to who resumed this fiber. From inside. */
void shim_fiber_pause(void);

/* Forgets where the fibers stood. From outside. */
void shim_fiber_reset(void);

#endif
