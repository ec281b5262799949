/* The work of one thread on one tile, compiled once for each instruction set.
 *
 * The ops (linear.c, attention.c, ...) cut their work into tiles; a tile's inner loops are the
 * functions of this table. They touch only what they are given, need no alignment, and know nothing
 * of ops, tiles or threads. widen, round, add, dropout, dequantize, the updates and block_norm give
 * the same bits in every table, the others agree to rounding. `type` is the type of all void
 * pointers; sums are fp32.
 */
#ifndef SL_KERNELS_CPU_SIMD_H
#define SL_KERNELS_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "attention_room.h"
#include "kernels/dropout.h"
#include "kernels/rates.h"
#include "micro_kernel.h"
#include "program/op_list.h"

/* Rows of a normalisation; `width` features each. */
typedef struct sl_layernorm_rows {
    const void *x, *gamma, *beta;
    void *y;
    float *stats; /* [rows, 2]: mean, 1 / deviation; written forward, read backward */
    const void *dy;
    void *dx;              /* NULL: not computed; then dgamma and dbeta are there */
    float *dgamma, *dbeta; /* [width], added to; both NULL: not computed */
    uint64_t row_count, width;
    sl_type type;
    bool add; /* to dx, else overwrite it */
} sl_layernorm_rows;

/* Rows of a normalisation by the root of the mean square. */
typedef struct sl_rmsnorm_rows {
    const void *x, *gamma;
    void *y;
    float *stats; /* [rows]: 1 / root; written forward, read backward */
    const void *dy;
    void *dx;      /* NULL: not computed; then dgamma is there */
    float *dgamma; /* [width], added to; NULL: not computed */
    uint64_t row_count, width;
    float epsilon, gamma_offset;
    sl_type type;
    bool add; /* to dx, else overwrite it */
} sl_rmsnorm_rows;

/* The heads of one token, turned by the angles of its position. */
typedef struct sl_rotary_heads {
    const void *x;
    void *y;
    const float *cosines, *sines; /* [width / 2] */
    uint64_t heads, width;        /* width: of a head; even */
    sl_type type;
    bool negates; /* the angles */
} sl_rotary_heads;

/* Elements of a gated unit. Backward d is the gradient of y and becomes that of up. */
typedef struct sl_swiglu_span {
    const void *gate, *up;
    void *y;         /* forward */
    void *d, *dgate; /* backward */
    uint64_t count;
    sl_type type;
    bool is_gelu; /* of the gate; else gate / (1 + exp(-gate)) */
} sl_swiglu_span;

/* Rows of logits of one panel; the columns from valid_count on are padding. */
typedef struct sl_head_rows {
    void *logits; /* [row_count, column_count] */
    const int32_t *targets;
    float *stats; /* [row_count, 4] */
    uint64_t row_count, column_count, valid_count, first_id;
    float scale;
    sl_type type;
    bool add; /* to stats */
} sl_head_rows;

/* What takes part in one head of one row, beside causality. */
typedef struct sl_attention_mask {
    const int32_t *positions; /* [seq]: of each token in its document; NULL: all are of one */
    sl_dropout dropout;       /* its stream is the row's */
    uint32_t head;            /* among those of all ranks */
    float *factors;           /* room: [SL_ATTENTION_KEYS, SL_ATTENTION_QUERIES] */
} sl_attention_mask;

/* Up to SL_ATTENTION_BLOCK queries of one head; query i sees the keys 0 .. first_query + i, but for
 * those that `mask` takes away: then first_query is a multiple of SL_ATTENTION_QUERIES. */
typedef struct sl_attention_block {
    const void *q, *k, *v; /* rows of shape.width elements, q_row and key_row elements apart */
    uint64_t q_row, key_row;
    void *y;
    uint64_t y_row;
    sl_attention_shape shape;
    float *lse; /* [query_count]; may be NULL */
    uint64_t query_count, first_query;
    const sl_attention_mask *mask; /* NULL: none */
    uint32_t *scratch;             /* sl_attention_room_of(shape, query_count).end words */
} sl_attention_block;

/* Queries of all query heads of a key head: query_count * query_heads <= SL_ATTENTION_FEW. Query i
 * sees the keys 0 .. first_query + i. */
typedef struct sl_attention_few {
    const void *q, *k,
        *v; /* as in sl_attention_block; a head is shape.width elements behind another */
    uint64_t q_row, key_row;
    void *y;
    uint64_t y_row;
    sl_attention_shape shape;
    uint64_t query_count, query_heads, first_query;
    uint32_t *scratch; /* sl_attention_few_room_of(shape).end words */
} sl_attention_few;

/* The query heads of one key head of one row of the batch, backwards; each begins shape.width
 * elements behind the one before, in lse and for the mask one row or head behind. */
typedef struct sl_attention_head {
    const void *q, *k, *v, *y, *dy;
    const float *lse; /* [query_heads, seq] */
    void *dq, *dk, *dv;
    uint64_t q_row, key_row, y_row; /* elements: q and dq; k, v and their gradients; y and dy */
    sl_attention_shape shape;
    uint64_t seq, query_heads;
    const sl_attention_mask *mask; /* of the first query head; NULL: none */
    uint32_t *scratch;             /* sl_attention_backward_room_of(shape, seq).end words */
} sl_attention_head;

/* Elements first .. first + count of a row of the batch, `first` a multiple of SL_DROPOUT_WORDS. */
typedef struct sl_dropout_span {
    const void *x, *residual; /* of element `first`; residual may be NULL */
    void *y;
    uint64_t first, count;
    sl_type type;
    sl_dropout dropout; /* its stream is the row's */
} sl_dropout_span;

/* Whole blocks of a gradient chunk; each element counts as rounded to `type`. */
typedef struct sl_gradient_blocks {
    const void *elements;
    sl_type stored_type; /* fp32 or `type` */
    sl_type type;
} sl_gradient_blocks;

/* Whole blocks of a chunk. The step's constants are worked out once, in update.c. */
typedef struct sl_update_blocks {
    sl_gradient_blocks gradient;
    void *state[2];               /* of the rule, by `states`; NULL where it has fewer */
    float *weights;               /* what is updated: parameters in fp32, or their master copy;
                                     NULL: that is `param` and `low` together */
    void *param;                  /* the parameters in half precision; NULL in fp32 */
    uint16_t *low;                /* their low halves (base/low_half.h); NULL: `weights` is there */
    const uint8_t *rate_of_block; /* into `rates` */
    sl_states states;             /* how states are stored */
    const float *shares[2];       /* INT8: of the codes of each state, [256]; the second state has
                                     no sign */
    const uint64_t *keys;         /* BF16: by which each block draws */
    uint64_t step;                /* BF16: of the run */
    const sl_block_rate *rates;   /* ADAMW: step is lr / (1 - beta1^t); ADAMW, LION: decay is 1 - lr
                                   * weight decay; SGD: as they are */
    uint64_t block_count;
    float clip_scale;
    float beta1, beta2, rest1, rest2; /* ADAMW, LION; rest: 1 - beta */
    float inverse_root;               /* ADAMW: 1 / sqrt(1 - beta2^t) */
    float epsilon;                    /* ADAMW */
    float momentum;                   /* SGD */
    bool is_nesterov;
} sl_update_blocks;

/* Whole blocks of a gradient that becomes a direction in its place; see MOMENTUM. */
typedef struct sl_momentum_blocks {
    sl_gradient_blocks gradient;
    void *direction; /* the gradient's elements */
    float *mean;
    uint64_t block_count;
    float clip_scale, momentum, rest; /* rest: 1 - momentum */
    float loss_scale;
} sl_momentum_blocks;

/* Elements x, each rounded to `type` and multiplied by `factor`; they become y, which may be x
 * where both are stored alike. */
typedef struct sl_factor_span {
    const void *x;
    void *y;
    sl_type x_type, type, y_type; /* x and y are stored as fp32 or `type` */
    uint64_t count;
    float factor;
} sl_factor_span;

/* Rows of `width` elements, `stride` elements apart. */
typedef struct sl_strided_rows {
    const void *x;
    sl_type type;
    uint64_t row_count, width, stride;
} sl_strided_rows;

/* X(name, arguments) */
#define SL_SIMD_LIST(X)                                                                            \
    X(exp, (const float *x, float *y, uint64_t count))                                             \
    X(widen, (const void *x, sl_type type, float *y, uint64_t count))                              \
    X(round, (const void *x, void *y, sl_type type, uint64_t count))                               \
    X(add, (const void *x, void *y, sl_type type, uint64_t count))                                 \
    X(add_to_float, (const void *x, sl_type type, float *y, uint64_t count))                       \
    X(add_strided, (const sl_strided_rows *rows, float *sums))                                     \
    X(scale, (const void *x, void *y, sl_type type, uint64_t count, float factor))                 \
    X(gelu, (const void *x, void *y, sl_type type, uint64_t count))                                \
    X(gelu_backward, (const void *x, void *d, sl_type type, uint64_t count))                       \
    X(column_sums, (const void *x, sl_type type, uint64_t row_count, uint64_t width, float *sums)) \
    X(layernorm_forward, (const sl_layernorm_rows *rows))                                          \
    X(layernorm_backward, (const sl_layernorm_rows *rows))                                         \
    X(rmsnorm_forward, (const sl_rmsnorm_rows *rows))                                              \
    X(rmsnorm_backward, (const sl_rmsnorm_rows *rows))                                             \
    X(rotary, (const sl_rotary_heads *heads))                                                      \
    X(swiglu, (const sl_swiglu_span *span))                                                        \
    X(swiglu_backward, (const sl_swiglu_span *span))                                               \
    X(head_stats, (const sl_head_rows *rows))                                                      \
    X(head_backward, (const sl_head_rows *rows))                                                   \
    X(attention_forward, (const sl_attention_block *block))                                        \
    X(attention_few, (const sl_attention_few *few))                                                \
    X(attention_backward, (const sl_attention_head *head))                                         \
    X(dropout, (const sl_dropout_span *span))                                                      \
    X(block_norm, (const sl_gradient_blocks *gradient, uint64_t block_count, float *sums))         \
    X(load_states, (const void *stored, sl_states states, const float *shares, float *values))     \
    X(store_states,                                                                                \
      (const sl_update_blocks *blocks, uint64_t index, float values[2][SL_BLOCK_ELEMENTS]))        \
    X(dequantize,                                                                                  \
      (const void *stored, sl_frozen frozen, void *y, sl_type type, uint64_t block_count))         \
    X(adamw, (const sl_update_blocks *blocks))                                                     \
    X(sgd, (const sl_update_blocks *blocks))                                                       \
    X(lion, (const sl_update_blocks *blocks))                                                      \
    X(apply, (const sl_update_blocks *blocks))                                                     \
    X(momentum, (const sl_momentum_blocks *blocks))                                                \
    X(squares, (const void *x, sl_type stored_type, sl_type type, uint64_t count, float *sum))     \
    X(factor, (const sl_factor_span *span))                                                        \
    X(quadratic, (void *x, sl_type type, const float *square, uint64_t count, float factor,        \
                  float square_factor))

/* Independent multiply-adds from registers alone. `numbers`: a float below 1, an ordinary one, and
 * room for a third, which is written so that the loop has a result. */
typedef struct sl_register_loop {
    void (*run)(uint64_t count, float *numbers);
    uint64_t flops; /* of one pass of `count` */
} sl_register_loop;

typedef struct sl_simd {
    const char *isa;
    const sl_micro_kernel *micro_kernel[SL_TYPE_COUNT];   /* by the operands' type */
    const sl_register_loop *register_loop[SL_TYPE_COUNT]; /* of the micro-kernel's instruction */
#define X(name, arguments) void(*name) arguments;
    SL_SIMD_LIST(X)
#undef X
} sl_simd;

/* The widest first; tables that this processor cannot run are left out. */
uint32_t sl_simd_usable_count(void);
const sl_simd *sl_simd_usable(uint32_t index);

/* The table in use: the widest, unless sl_simd_choose was called. */
const sl_simd *sl_simd_current(void);

/* For tests: takes a table of sl_simd_usable. No kernel may be running. This choice is the one
 * mutable global of the room, beside what sl_simd_current found once. */
void sl_simd_choose(const sl_simd *table);

/* The blocks from element `first` on. */
static inline sl_gradient_blocks sl_simd_gradient_from(const sl_gradient_blocks *gradient,
                                                       uint64_t first)
{
    sl_gradient_blocks rest = *gradient;
    rest.elements = (const char *)rest.elements + first * sl_type_bytes(rest.stored_type);
    return rest;
}

#endif
