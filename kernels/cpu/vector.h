/* What one thread does with one tile, compiled once for each instruction set.
 *
 * The ops (linear.c, attention.c, ...) cut their work into tiles; a tile's inner loops are the
 * functions of this table. They touch only what they are given, need no alignment, and know nothing
 * of ops, tiles or threads. adamw and block_norm give the same bits in every table, the others
 * agree to rounding.
 */
#ifndef SL_KERNELS_CPU_VECTOR_H
#define SL_KERNELS_CPU_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "gemm_micro.h"

/* Rows of a normalisation; `width` features each. */
typedef struct sl_norm_rows {
    const float *x, *gamma, *beta;
    float *y;
    float *stats; /* [rows, 2]: mean, 1 / deviation; written forward, read backward */
    const float *dy;
    float *dx;
    float *dgamma, *dbeta; /* [width], added to */
    uint64_t row_count, width;
    bool add; /* to dx, else overwrite it */
} sl_norm_rows;

/* Rows of logits of one panel; the columns from valid_count on are padding. */
typedef struct sl_head_rows {
    float *logits; /* [row_count, column_count] */
    const int32_t *targets;
    float *stats; /* [row_count, 4] */
    uint64_t row_count, column_count, valid_count, first_id;
    float scale;
    bool add; /* to stats */
} sl_head_rows;

enum { SL_ATTENTION_QUERIES = 64, SL_ATTENTION_KEYS = 64 }; /* of one tile of scores */

/* Up to SL_ATTENTION_QUERIES queries of one head; query i sees the keys 0 .. first_query + i. */
typedef struct sl_attention_tile {
    const float *q, *k, *v; /* rows of head_width floats, q_row and key_row floats apart */
    uint64_t q_row, key_row;
    float *y;
    uint64_t y_row;
    float *lse; /* [query_count]; may be NULL */
    uint64_t query_count, first_query, head_width;
    float *scratch; /* sl_vector_attention_floats(head_width) */
} sl_attention_tile;

/* One head of one row of the batch, backwards. */
typedef struct sl_attention_head {
    const float *q, *k, *v, *y, *dy, *lse;
    float *dq, *dk, *dv;
    uint64_t qkv_row, y_row; /* q, k, v and their gradients; y and dy */
    uint64_t seq, head_width;
    float *scratch; /* sl_vector_attention_backward_floats(head_width) */
} sl_attention_head;

/* Whole blocks of a chunk. The step's constants are worked out once, in adamw.c. */
typedef struct sl_adamw_blocks {
    const float *gradient;
    float *moment1, *moment2, *param;
    const uint8_t *decay_flags; /* one a block */
    uint64_t block_count;
    float clip_scale, decay;          /* decay: 1 - lr * weight decay */
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    float step;                       /* lr / (1 - beta1^t) */
    float inverse_root;               /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
} sl_adamw_blocks;

/* X(name, arguments) */
#define SL_VECTOR_LIST(X)                                                                          \
    X(exp, (const float *x, float *y, uint64_t count))                                             \
    X(add, (const float *x, float *y, uint64_t count))                                             \
    X(gelu, (const float *x, float *y, uint64_t count))                                            \
    X(gelu_backward, (const float *x, float *d, uint64_t count))                                   \
    X(column_sums, (const void *x, sl_type type, uint64_t row_count, uint64_t width, float *sums)) \
    X(norm_forward, (const sl_norm_rows *rows))                                                    \
    X(norm_backward, (const sl_norm_rows *rows))                                                   \
    X(head_stats, (const sl_head_rows *rows))                                                      \
    X(head_backward, (const sl_head_rows *rows))                                                   \
    X(attention_forward, (const sl_attention_tile *tile))                                          \
    X(attention_backward, (const sl_attention_head *head))                                         \
    X(block_norm, (const float *gradient, uint64_t block_count, float *sums))                      \
    X(adamw, (const sl_adamw_blocks *blocks))

typedef struct sl_vector {
    const char *isa;
    const sl_gemm_micro *gemm[SL_TYPE_COUNT]; /* by the operands' type */
#define X(name, arguments) void(*name) arguments;
    SL_VECTOR_LIST(X)
#undef X
} sl_vector;

/* The widest first; tables that this processor cannot run are left out. */
uint32_t sl_vector_usable_count(void);
const sl_vector *sl_vector_usable(uint32_t index);

/* The table in use: the widest, unless sl_vector_choose was called. */
const sl_vector *sl_vector_current(void);

/* For tests: takes a table of sl_vector_usable. No kernel may be running. This choice is the one
 * mutable global of the room. */
void sl_vector_choose(const sl_vector *table);

/* floats of scratch of one attention tile, forward and backward */
static inline uint64_t sl_vector_attention_floats(uint64_t head_width)
{
    const uint64_t queries = SL_ATTENTION_QUERIES;
    return 2 * queries * head_width + SL_ATTENTION_KEYS * queries + 3 * queries;
}

static inline uint64_t sl_vector_attention_backward_floats(uint64_t head_width)
{
    const uint64_t queries = SL_ATTENTION_QUERIES;
    return 4 * queries * head_width + 2 * SL_ATTENTION_KEYS * queries + 2 * queries;
}

#endif
