/* Optimizer states in codes of 8 bits (base/dynamic_codes.h), read and written as numbers. A block
 * that is written in part is decoded and encoded again. */
#ifndef SL_SESSION_STATE_CODES_H
#define SL_SESSION_STATE_CODES_H

#include "engine/engine.h"

/* Blocks that are moved at once, through a buffer of SL_STATE_CODES_BYTES. */
enum { SL_STATE_CODES_BLOCKS = 256, SL_STATE_CODES_BYTES = SL_STATE_CODES_BLOCKS * 2080 };

/* Elements [first, first + count) of what this rank stores of a chunk. */
typedef struct sl_state_run {
    sl_engine *engine;
    sl_group group; /* STATE1 has a sign, STATE2 has none */
    uint32_t chunk_index;
    uint64_t first, count;
    void *buffer; /* scratch */
} sl_state_run;

sl_status sl_state_codes_read(const sl_state_run *run, float *data);
sl_status sl_state_codes_write(const sl_state_run *run, const float *data);

#endif
