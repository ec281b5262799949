/* An index above 2^31: a table of embeddings so large that its last rows lie beyond what 32 bits
 * with a sign count. Private to the room. */
#ifndef SL_SELFTEST_REACH_H
#define SL_SELFTEST_REACH_H

#include "lockstep.h"

/* Bytes of device memory that a table of `elements` takes. */
uint64_t sl_reach_bytes(uint64_t elements);

/* Looks up the last rows of a table of at least so many elements in bf16, all others of which are
 * zero. */
sl_status sl_reach_prove(sl_timed_device *device, uint64_t elements, sl_fault *out_fault);

#endif
