/* Chunks in codes of 8 bits, read and written as numbers: optimizer states (base/dynamic_codes.h)
 * and frozen matrices (base/q8.h). A block that is written in part is decoded and encoded again. */
#ifndef SL_SESSION_CODES_H
#define SL_SESSION_CODES_H

#include "engine/engine.h"

/* Blocks that are moved at once, through a buffer of SL_CODES_BATCH_BYTES. */
enum { SL_CODES_BATCH_BLOCKS = 256, SL_CODES_BATCH_BYTES = SL_CODES_BATCH_BLOCKS * 2176 };

/* Elements [first, first + count) of what this rank stores of a chunk. */
typedef struct sl_codes_run {
    sl_engine *engine;
    sl_group group; /* PARAM: a frozen matrix. STATE1 has a sign, STATE2 has none */
    uint32_t chunk_index;
    uint64_t first, count;
    void *buffer; /* scratch */
} sl_codes_run;

sl_status sl_codes_read(const sl_codes_run *run, float *data);

/* SL_ERROR_DATA: a frozen matrix has a number that codes do not have; the message goes on behind
 * the name of the tensor. */
sl_status sl_codes_write(const sl_codes_run *run, const float *data);

#endif
