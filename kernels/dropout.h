/* Which elements dropout drops, the same on every device.
 *
 * Each element has a word of Philox4x32-10 that is a function of
 *
 *   seed     scalars.dropout_seed
 *   stream   the site in the model (attrs.dropout_site) and the row of the batch, numbered over all
 *            rows, micro-batches and steps of the run
 *   index    the element's position in its row
 *
 * and of nothing else; an element is dropped if its word is below the threshold. So a mask is never
 * stored: forward, recomputation and backward draw it again. One draw gives four words. In a row
 * [T, I] they are for four consecutive elements. In attention's weights they are for two queries
 * and two keys that differ in bit 3 (the fourth) of their positions: in a fragment of a tensor
 * core, whether its rows are queries or keys, one thread holds these four.
 */
#ifndef SL_KERNELS_DROPOUT_H
#define SL_KERNELS_DROPOUT_H

#include "base/philox.h"
#include "kernels/kernels.h"

typedef struct sl_dropout {
    uint64_t seed;
    uint64_t stream;    /* of row 0 of the call's batch; row b has stream + b */
    uint32_t threshold; /* 0: nothing is dropped */
    float scale;        /* factor of kept elements */
} sl_dropout;

enum {
    SL_DROPOUT_WORDS = 4,     /* of a draw */
    SL_DROPOUT_APART = 8,     /* distance of a draw's two queries, and of its two keys */
    SL_DROPOUT_ROW_BITS = 40, /* low bits of a stream: the row; above them the site */
    SL_DROPOUT_QUERY_BITS = 20
};

static inline sl_dropout sl_dropout_of(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t rows = attrs->row_count ? attrs->row_count : attrs->batch;
    const uint64_t row = call->scalars.first_row + (uint64_t)call->micro_batch * rows +
                         (attrs->row_count ? attrs->first_row : 0);
    const uint64_t row_mask = ((uint64_t)1 << SL_DROPOUT_ROW_BITS) - 1;
    sl_dropout dropout;
    dropout.seed = call->scalars.dropout_seed;
    dropout.stream = (uint64_t)1 << 63 | (uint64_t)attrs->dropout_site << SL_DROPOUT_ROW_BITS |
                     (row & row_mask); /* the highest bit, which no other stream has */
    dropout.threshold = (uint32_t)((double)attrs->dropout * 0x1p32);
    dropout.scale = 1.0f / (1.0f - attrs->dropout);
    return dropout;
}

/* The factor of an element with this word. */
SL_PHILOX_INLINE float sl_dropout_factor(uint32_t word, uint32_t threshold, float scale)
{
    return word < threshold ? 0.0f : scale;
}

/* The index of the draw for queries `query`, query + 8 and keys `key`, key + 8; `head` counts the
 * heads of all ranks. Word 0 is for (query, key), 1 for the later key, 2 for the later query, 3 for
 * both. */
SL_PHILOX_INLINE uint64_t sl_dropout_index(uint32_t head, uint32_t query, uint32_t key)
{
    return (uint64_t)(head << SL_DROPOUT_QUERY_BITS | query) << 32 | key;
}

#endif
