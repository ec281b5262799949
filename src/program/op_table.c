/* What is known of every op: its name, operands, sizes and costs, one row an op.
 *
 * Sizes are products of factors that are read from sl_op_attrs; they saturate at UINT64_MAX, which
 * no value has, so an overflow is found where operands are checked.
 */
#include "op_shape.h"

#include <stddef.h>

/* A factor of a size: a field of sl_op_attrs, or a small constant. */
typedef enum factor {
    F_END,
    F_BATCH,
    F_SEQ,
    F_IN,
    F_OUT,
    F_HEADS,
    F_ROWS,
    F_IDS,
    F_ELEMENTS,
    F_CACHE,
    F_TWO,
    F_THREE,
    F_FOUR
} factor;

enum { FACTOR_MAX = 5, F32 = 4, F64 = 8 };

typedef struct size {
    uint32_t unit; /* bytes or FLOPs a product of the factors */
    uint8_t factor[FACTOR_MAX];
    bool is_open;                /* a lower bound, not the size */
    uint8_t touched[FACTOR_MAX]; /* elements used where that is not the whole operand */
} size;

typedef struct row {
    sl_op_info info;
    size operand[SL_OPERAND_MAX];
    size flops; /* unit 0: none */
} row;

#define R SL_MODE_READ
#define W SL_MODE_WRITE
#define U SL_MODE_UPDATE
#define A SL_MODE_ACCUMULATE

/* Sizes that several ops share. All float32 or int32 but for the loss and two structs. */
#define TOKENS                                                                                     \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_BATCH, F_SEQ                                                                         \
        }                                                                                          \
    }
#define STREAM                                                                                     \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_BATCH, F_SEQ, F_IN                                                                   \
        }                                                                                          \
    }
#define QKV                                                                                        \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_BATCH, F_SEQ, F_THREE, F_IN                                                          \
        }                                                                                          \
    }
#define LSE                                                                                        \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_BATCH, F_HEADS, F_SEQ                                                                \
        }                                                                                          \
    }
#define PANEL                                                                                      \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_IDS, F_IN                                                                            \
        }                                                                                          \
    }
#define LOGITS                                                                                     \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ROWS, F_IDS                                                                          \
        }                                                                                          \
    }
#define HEAD_STREAM                                                                                \
    {                                                                                              \
        F32, {F_BATCH, F_SEQ, F_IN}, false,                                                        \
        {                                                                                          \
            F_ROWS, F_IN                                                                           \
        }                                                                                          \
    }
#define HEAD_TARGETS                                                                               \
    {                                                                                              \
        F32, {F_BATCH, F_SEQ}, false,                                                              \
        {                                                                                          \
            F_ROWS                                                                                 \
        }                                                                                          \
    }
#define STATS                                                                                      \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ROWS, F_FOUR                                                                         \
        }                                                                                          \
    }
#define ROWS_IN                                                                                    \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ROWS, F_IN                                                                           \
        }                                                                                          \
    }
#define ROWS_OUT                                                                                   \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ROWS, F_OUT                                                                          \
        }                                                                                          \
    }
#define MATRIX                                                                                     \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_IN, F_OUT                                                                            \
        }                                                                                          \
    }
#define VECTOR_IN                                                                                  \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_IN                                                                                   \
        }                                                                                          \
    }
#define VECTOR_OUT                                                                                 \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_OUT                                                                                  \
        }                                                                                          \
    }
#define MOMENTS                                                                                    \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ROWS, F_TWO                                                                          \
        }                                                                                          \
    }
#define ELEMENTS                                                                                   \
    {                                                                                              \
        F32,                                                                                       \
        {                                                                                          \
            F_ELEMENTS                                                                             \
        }                                                                                          \
    }
#define ONE_DOUBLE                                                                                 \
    {                                                                                              \
        F64,                                                                                       \
        {                                                                                          \
            F_END                                                                                  \
        }                                                                                          \
    }
#define NORM_SUM                                                                                   \
    {                                                                                              \
        sizeof(sl_norm_sum),                                                                       \
        {                                                                                          \
            F_END                                                                                  \
        }                                                                                          \
    }
#define CONTROL                                                                                    \
    {                                                                                              \
        sizeof(sl_step_control),                                                                   \
        {                                                                                          \
            F_END                                                                                  \
        }                                                                                          \
    }
#define MATRIX_FLOPS                                                                               \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            F_ROWS, F_IN, F_OUT                                                                    \
        }                                                                                          \
    }
#define HEAD_FLOPS                                                                                 \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            F_ROWS, F_IDS, F_IN                                                                    \
        }                                                                                          \
    }

static const row table[SL_OP_COUNT] = {
    [SL_OP_EMBED_POSITION] = {{"embed_position", 2, {"wpe", "x"}, {R, W}},
                              {{F32, {F_SEQ, F_IN}, true, {F_SEQ, F_IN}}, STREAM}},
    [SL_OP_EMBED_TOKENS] = {{"embed_tokens", 3, {"tokens", "panel", "x"}, {R, R, U}},
                            {TOKENS, PANEL, STREAM}},
    [SL_OP_LAYERNORM] =
        {{"layernorm", 5, {"x", "gamma", "beta", "y", "stats"}, {R, R, R, W, W}, .is_cheap = true},
         {ROWS_IN, VECTOR_IN, VECTOR_IN, ROWS_IN, MOMENTS}},
    [SL_OP_LINEAR] = {{"linear",
                       5,
                       {"x", "weight", "bias", "residual", "y"},
                       {R, R, R, R, W},
                       {false, false, true, true, false}},
                      {ROWS_IN, MATRIX, VECTOR_OUT, ROWS_OUT, ROWS_OUT},
                      MATRIX_FLOPS},
    [SL_OP_ATTENTION] = {{"attention", 3, {"qkv", "y", "lse"}, {R, W, W}, .is_cheap = true},
                         {QKV, STREAM, LSE},
                         {2, {F_BATCH, F_SEQ, F_SEQ, F_IN}}},
    [SL_OP_GELU] = {{"gelu", 2, {"x", "y"}, {R, W}, .is_cheap = true}, {ELEMENTS, ELEMENTS}},
    [SL_OP_HEAD_LOGITS] =
        {{"head_logits", 3, {"x", "panel", "logits"}, {R, R, W}, .is_cheap = true},
         {HEAD_STREAM, PANEL, LOGITS},
         HEAD_FLOPS},
    [SL_OP_HEAD_STATS] = {{"head_stats", 3, {"logits", "targets", "stats"}, {R, R, A}},
                          {LOGITS, HEAD_TARGETS, STATS}},
    [SL_OP_HEAD_LOSS] = {{"head_loss", 2, {"stats", "loss"}, {R, A}}, {STATS, ONE_DOUBLE}},
    [SL_OP_HEAD_LOGITS_BACKWARD] =
        {{"head_logits_backward", 3, {"targets", "stats", "logits"}, {R, R, U}},
         {HEAD_TARGETS, STATS, LOGITS}},
    [SL_OP_HEAD_INPUT_BACKWARD] =
        {{"head_input_backward", 3, {"dlogits", "panel", "dx"}, {R, R, A}},
         {LOGITS, PANEL, HEAD_STREAM},
         HEAD_FLOPS},
    [SL_OP_HEAD_WEIGHT_BACKWARD] =
        {{"head_weight_backward", 3, {"x", "dlogits", "dpanel"}, {R, R, U}},
         {HEAD_STREAM, LOGITS, PANEL},
         HEAD_FLOPS},
    [SL_OP_LINEAR_INPUT_BACKWARD] =
        {{"linear_input_backward", 3, {"dy", "weight", "dx"}, {R, R, A}},
         {ROWS_OUT, MATRIX, ROWS_IN},
         MATRIX_FLOPS},
    [SL_OP_LINEAR_WEIGHT_BACKWARD] = {{"linear_weight_backward",
                                       4,
                                       {"x", "dy", "dweight", "dbias"},
                                       {R, R, U, U},
                                       {false, false, false, true}},
                                      {ROWS_IN, ROWS_OUT, MATRIX, VECTOR_OUT},
                                      MATRIX_FLOPS},
    [SL_OP_GELU_BACKWARD] = {{"gelu_backward", 2, {"x", "d"}, {R, U}}, {ELEMENTS, ELEMENTS}},
    [SL_OP_ATTENTION_BACKWARD] =
        {{"attention_backward", 5, {"qkv", "y", "lse", "dy", "dqkv"}, {R, R, R, R, W}},
         {QKV, STREAM, LSE, STREAM, QKV},
         {5, {F_BATCH, F_SEQ, F_SEQ, F_IN}}},
    [SL_OP_LAYERNORM_BACKWARD] = {{"layernorm_backward",
                                   7,
                                   {"x", "gamma", "stats", "dy", "dx", "dgamma", "dbeta"},
                                   {R, R, R, R, A, U, U}},
                                  {ROWS_IN, VECTOR_IN, MOMENTS, ROWS_IN, ROWS_IN, VECTOR_IN,
                                   VECTOR_IN}},
    [SL_OP_EMBED_TOKENS_BACKWARD] =
        {{"embed_tokens_backward", 3, {"tokens", "dx", "dpanel"}, {R, R, A}},
         {TOKENS, STREAM, PANEL}},
    [SL_OP_EMBED_POSITION_BACKWARD] = {{"embed_position_backward", 2, {"dx", "dwpe"}, {R, U}},
                                       {STREAM, {F32, {F_SEQ, F_IN}, true, {F_SEQ, F_IN}}}},
    [SL_OP_ADD] = {{"add", 2, {"x", "y"}, {R, U}}, {ELEMENTS, ELEMENTS}},
    [SL_OP_CLEAR] = {{"clear", 1, {"y"}, {W}}, {ELEMENTS}},
    [SL_OP_BLOCK_NORM] = {{"block_norm", 2, {"gradient", "norm"}, {R, A}}, {ELEMENTS, NORM_SUM}},
    [SL_OP_NORM_FINISH] = {{"norm_finish", 2, {"norm", "control"}, {R, W}}, {NORM_SUM, CONTROL}},
    [SL_OP_ADAMW] = {{"adamw",
                      5,
                      {"control", "gradient", "moment1", "moment2", "param"},
                      {R, R, U, U, U},
                      .runs_on_host = true},
                     {CONTROL, ELEMENTS, ELEMENTS, ELEMENTS, ELEMENTS}},
    [SL_OP_ATTENTION_CACHED] = {{"attention_cached", 3, {"qkv", "cache", "y"}, {R, U, W}},
                                {QKV, {F32, {F_TWO, F_BATCH, F_CACHE, F_IN}}, STREAM},
                                {4, {F_BATCH, F_SEQ, F_CACHE, F_IN}}},
    [SL_OP_ALL_REDUCE] = {{"all_reduce", 1, {"x"}, {U}, .is_collective = true}, {ELEMENTS}},
};

#undef R
#undef W
#undef U
#undef A

static uint64_t factor_value(factor name, const sl_op_attrs *attrs)
{
    switch (name) {
    case F_BATCH:
        return attrs->batch;
    case F_SEQ:
        return attrs->seq;
    case F_IN:
        return attrs->in;
    case F_OUT:
        return attrs->out;
    case F_HEADS:
        return attrs->heads;
    case F_ROWS:
        return attrs->row_count;
    case F_IDS:
        return attrs->id_count;
    case F_ELEMENTS:
        return attrs->element_count;
    case F_CACHE:
        return attrs->cache_rows;
    case F_TWO:
        return 2;
    case F_THREE:
        return 3;
    case F_FOUR:
        return 4;
    case F_END:
        break;
    }
    return 1;
}

static uint64_t multiply_saturated(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t multiply_factors(uint64_t unit, const uint8_t *factors, const sl_op_attrs *attrs)
{
    uint64_t product = unit;
    for (int i = 0; i < FACTOR_MAX && factors[i] != F_END; i++)
        product = multiply_saturated(product, factor_value((factor)factors[i], attrs));
    return product;
}

const sl_op_info *sl_op_info_of(sl_op_kind kind)
{
    return &table[kind].info;
}

bool sl_op_reads(const sl_op *op, uint32_t operand_index)
{
    switch (table[op->kind].info.operand_mode[operand_index]) {
    case SL_MODE_READ:
    case SL_MODE_UPDATE:
        return true;
    case SL_MODE_WRITE:
        return false;
    case SL_MODE_ACCUMULATE:
        break;
    }
    /* Row groups of the head write dx piece by piece, in row order: the pieces before must last. */
    bool is_later_piece = op->kind == SL_OP_HEAD_INPUT_BACKWARD && op->attrs.first_row > 0;
    return op->attrs.accumulate || is_later_piece;
}

bool sl_op_writes(const sl_op *op, uint32_t operand_index)
{
    return table[op->kind].info.operand_mode[operand_index] != SL_MODE_READ;
}

uint64_t sl_op_shape_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    const size *operand = &table[kind].operand[operand_index];
    return multiply_factors(operand->unit, operand->factor, attrs);
}

uint64_t sl_op_operand_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    if (table[kind].operand[operand_index].is_open)
        return 0;
    return sl_op_shape_least_bytes(kind, attrs, operand_index);
}

uint64_t sl_op_flops(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const size *flops = &table[kind].flops;
    return flops->unit ? multiply_factors(flops->unit, flops->factor, attrs) : 0;
}

/* Bytes of operand i that the op uses at least once. A row of an embedding panel is used at most
 * once a token. */
static uint64_t count_touched_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t i)
{
    const size *operand = &table[kind].operand[i];
    if (operand->touched[0] != F_END)
        return multiply_factors(operand->unit, operand->touched, attrs);
    uint64_t bytes = multiply_factors(operand->unit, operand->factor, attrs);
    bool is_embedding = kind == SL_OP_EMBED_TOKENS && i > 0;
    if (!is_embedding)
        return bytes;
    uint64_t other = sl_op_shape_least_bytes(kind, attrs, i == 1 ? 2 : 1);
    return bytes < other ? bytes : other;
}

uint64_t sl_op_traffic_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_op_info *info = &table[kind].info;
    sl_op op = {.kind = kind, .attrs = *attrs};
    uint64_t total = 0;
    for (uint32_t i = 0; i < info->operand_count; i++) {
        if (info->operand_optional[i])
            continue;
        uint64_t bytes = count_touched_bytes(kind, attrs, i);
        if (sl_op_reads(&op, i))
            total = add_saturated(total, bytes);
        if (sl_op_writes(&op, i))
            total = add_saturated(total, bytes);
    }
    return total;
}
