/* Which elements dropout drops, written down once more from kernels/dropout.h's words, by the
 * generator that draws everything else. */
#ifndef SL_TESTS_DROPOUT_REFERENCE_H
#define SL_TESTS_DROPOUT_REFERENCE_H

#include <stdint.h>

#include "base/rng.h"
#include "program/op_list.h"

typedef struct drop_call {
    const sl_op_attrs *attrs;
    const sl_step_scalars *scalars;
    uint32_t micro_batch;
} drop_call;

/* The factor of the element whose word is number `word` of draw `index`, in row `row` of the batch.
 */
static inline double drop_factor(const drop_call *call, uint64_t row, uint64_t index, uint32_t word)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t rows = attrs->row_count ? attrs->row_count : attrs->batch;
    const uint64_t global = call->scalars->first_row + call->micro_batch * rows +
                            (attrs->row_count ? attrs->first_row : 0) + row;
    const uint64_t stream =
        UINT64_C(0x8000000000000000) + ((uint64_t)call->attrs->dropout_site << 40) + global;
    const double p = (double)call->attrs->dropout;
    const double drawn = sl_rng_draw(call->scalars->dropout_seed, stream, index).word[word];
    if (p == 0)
        return 1;
    return drawn < (double)(uint32_t)(p * 4294967296.0) ? 0
                                                        : 1 / (double)(1.0f - call->attrs->dropout);
}

/* Of element e of a row [T, I]. */
static inline double drop_element_factor(const drop_call *call, uint64_t row, uint64_t e)
{
    return drop_factor(call, row, e / 4, (uint32_t)(e % 4));
}

/* Of the weight of one query and key; `head` of this rank. */
static inline double drop_weight_factor(const drop_call *call, uint64_t row, uint64_t head,
                                        uint64_t query, uint64_t key)
{
    const uint64_t whole_head = call->attrs->rank_index * call->attrs->heads + head;
    const uint64_t index = (whole_head << 52) + ((query - (query & 8)) << 32) + (key - (key & 8));
    return drop_factor(call, row, index, (uint32_t)((query & 8) / 4 + (key & 8) / 8));
}

#endif
