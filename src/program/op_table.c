/* What is known of every op: its name, operands, sizes and costs, one row an op.
 *
 * Sizes are products of factors that are read from sl_op_attrs; they saturate at UINT64_MAX, which
 * no value has, so an overflow is found where operands are checked.
 */
#include "op_shape.h"

#include <stddef.h>

/* A factor of a size: a field of sl_op_attrs. */
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
    F_CACHE
} factor;

enum { FACTOR_MAX = 4, TYPED = 0, STORED = UINT16_MAX, F32 = 4, F64 = 8 };

/* A product of elements of some bytes (TYPED: by the op's compute type; STORED: by how it stores
 * gradients), or of FLOPs, a count and factors. */
typedef struct size {
    uint64_t element_bytes, count;
    uint8_t factor[FACTOR_MAX];
} size;

/* The sizes of all operands and all matrix products. */
typedef enum shape {
    NOTHING,
    TOKENS,
    STREAM, /* the residual stream, and whatever has its shape */
    POSITIONS,
    QKV,
    LSE,
    CACHE,
    PANEL,
    LOGITS,
    STATS,
    HEAD_STREAM,  /* of the stream, the rows of one group */
    HEAD_TARGETS, /* of the targets, likewise */
    ROWS_IN,
    ROWS_OUT,
    MATRIX,
    VECTOR_IN,
    VECTOR_OUT,
    MOMENTS,
    ELEMENTS,
    LOSS,
    NORM_SUM,
    CONTROL,
    HEAD_STREAM_F, /* with F: in fp32 whatever the compute type */
    PANEL_F,
    POSITIONS_F,
    ELEMENTS_F,
    PANEL_G, /* with G: a gradient, as it is stored */
    MATRIX_G,
    VECTOR_IN_G,
    VECTOR_OUT_G,
    ELEMENTS_G,
    MATRIX_FLOPS,
    HEAD_FLOPS,
    ATTENTION_FLOPS,          /* two products, half of each masked */
    ATTENTION_BACKWARD_FLOPS, /* five */
    ATTENTION_CACHED_FLOPS    /* two, with the cache full */
} shape;

static const size sizes[] = {
    [TOKENS] = {F32, 1, {F_BATCH, F_SEQ}},
    [STREAM] = {TYPED, 1, {F_BATCH, F_SEQ, F_IN}},
    [POSITIONS] = {TYPED, 1, {F_SEQ, F_IN}},
    [QKV] = {TYPED, 3, {F_BATCH, F_SEQ, F_IN}},
    [LSE] = {F32, 1, {F_BATCH, F_HEADS, F_SEQ}},
    [CACHE] = {TYPED, 2, {F_BATCH, F_CACHE, F_IN}},
    [PANEL] = {TYPED, 1, {F_IDS, F_IN}},
    [LOGITS] = {TYPED, 1, {F_ROWS, F_IDS}},
    [STATS] = {F32, 4, {F_ROWS}},
    [HEAD_STREAM] = {TYPED, 1, {F_BATCH, F_SEQ, F_IN}},
    [HEAD_TARGETS] = {F32, 1, {F_BATCH, F_SEQ}},
    [ROWS_IN] = {TYPED, 1, {F_ROWS, F_IN}},
    [ROWS_OUT] = {TYPED, 1, {F_ROWS, F_OUT}},
    [MATRIX] = {TYPED, 1, {F_IN, F_OUT}},
    [VECTOR_IN] = {TYPED, 1, {F_IN}},
    [VECTOR_OUT] = {TYPED, 1, {F_OUT}},
    [MOMENTS] = {F32, 2, {F_ROWS}},
    [ELEMENTS] = {TYPED, 1, {F_ELEMENTS}},
    [LOSS] = {F64, 1, {F_END}},
    [NORM_SUM] = {sizeof(sl_norm_sum), 1, {F_END}},
    [CONTROL] = {sizeof(sl_step_control), 1, {F_END}},
    [HEAD_STREAM_F] = {F32, 1, {F_BATCH, F_SEQ, F_IN}},
    [PANEL_F] = {F32, 1, {F_IDS, F_IN}},
    [POSITIONS_F] = {F32, 1, {F_SEQ, F_IN}},
    [ELEMENTS_F] = {F32, 1, {F_ELEMENTS}},
    [PANEL_G] = {STORED, 1, {F_IDS, F_IN}},
    [MATRIX_G] = {STORED, 1, {F_IN, F_OUT}},
    [VECTOR_IN_G] = {STORED, 1, {F_IN}},
    [VECTOR_OUT_G] = {STORED, 1, {F_OUT}},
    [ELEMENTS_G] = {STORED, 1, {F_ELEMENTS}},
    [MATRIX_FLOPS] = {1, 2, {F_ROWS, F_IN, F_OUT}},
    [HEAD_FLOPS] = {1, 2, {F_ROWS, F_IDS, F_IN}},
    [ATTENTION_FLOPS] = {1, 2, {F_BATCH, F_SEQ, F_SEQ, F_IN}},
    [ATTENTION_BACKWARD_FLOPS] = {1, 5, {F_BATCH, F_SEQ, F_SEQ, F_IN}},
    [ATTENTION_CACHED_FLOPS] = {1, 4, {F_BATCH, F_SEQ, F_CACHE, F_IN}},
};

typedef struct row {
    sl_op_info info;
    uint8_t operand[SL_OPERAND_MAX]; /* a shape each */
    uint8_t flops;
} row;

#define R SL_MODE_READ
#define W SL_MODE_WRITE
#define U SL_MODE_UPDATE
#define A SL_MODE_ADD
#define G SL_MODE_GRADIENT

/* One row an op; a line each for names and modes, sizes, and products. */
/* clang-format off */
static const row table[SL_OP_COUNT] = {
    [SL_OP_EMBED_POSITION] = {
        .info = {"embed_position", 2, {"wpe", "x"}, {R, W}},
        .operand = {POSITIONS, STREAM},
    },
    [SL_OP_EMBED_TOKENS] = {
        .info = {"embed_tokens", 3, {"tokens", "panel", "x"}, {R, R, U}},
        .operand = {TOKENS, PANEL, STREAM},
    },
    [SL_OP_LAYERNORM] = {
        .info = {"layernorm", 5, {"x", "gamma", "beta", "y", "stats"},
                 {R, R, R, W, W}, .is_cheap = true},
        .operand = {ROWS_IN, VECTOR_IN, VECTOR_IN, ROWS_IN, MOMENTS},
    },
    [SL_OP_LINEAR] = {
        .info = {"linear", 5, {"x", "weight", "bias", "residual", "y"},
                 {R, R, R, R, W}, .operand_optional = {[2] = true, [3] = true}},
        .operand = {ROWS_IN, MATRIX, VECTOR_OUT, ROWS_OUT, ROWS_OUT},
        .flops = MATRIX_FLOPS,
    },
    [SL_OP_ATTENTION] = {
        .info = {"attention", 3, {"qkv", "y", "lse"}, {R, W, W}, .is_cheap = true},
        .operand = {QKV, STREAM, LSE},
        .flops = ATTENTION_FLOPS,
    },
    [SL_OP_GELU] = {
        .info = {"gelu", 2, {"x", "y"}, {R, W}, .is_cheap = true},
        .operand = {ELEMENTS, ELEMENTS},
    },
    [SL_OP_HEAD_LOGITS] = {
        .info = {"head_logits", 3, {"x", "panel", "logits"}, {R, R, W}},
        .operand = {HEAD_STREAM, PANEL, LOGITS},
        .flops = HEAD_FLOPS,
    },
    [SL_OP_HEAD_STATS] = {
        .info = {"head_stats", 3, {"logits", "targets", "stats"}, {R, R, A}},
        .operand = {LOGITS, HEAD_TARGETS, STATS},
    },
    [SL_OP_HEAD_LOSS] = {
        .info = {"head_loss", 2, {"stats", "loss"}, {R, A}},
        .operand = {STATS, LOSS},
    },
    [SL_OP_HEAD_LOGITS_BACKWARD] = {
        .info = {"head_logits_backward", 3, {"targets", "stats", "logits"}, {R, R, U}},
        .operand = {HEAD_TARGETS, STATS, LOGITS},
    },
    [SL_OP_HEAD_INPUT_BACKWARD] = {
        .info = {"head_input_backward", 3, {"dlogits", "panel", "dx"}, {R, R, A}},
        .operand = {LOGITS, PANEL, HEAD_STREAM_F},
        .flops = HEAD_FLOPS,
    },
    [SL_OP_HEAD_WEIGHT_BACKWARD] = {
        .info = {"head_weight_backward", 3, {"x", "dlogits", "dpanel"}, {R, R, G}},
        .operand = {HEAD_STREAM, LOGITS, PANEL_G},
        .flops = HEAD_FLOPS,
    },
    [SL_OP_LINEAR_INPUT_BACKWARD] = {
        .info = {"linear_input_backward", 4, {"dy", "weight", "dx", "gelu_x"},
                 {R, R, A, R}, .operand_optional = {[3] = true}},
        .operand = {ROWS_OUT, MATRIX, ROWS_IN, ROWS_IN},
        .flops = MATRIX_FLOPS,
    },
    [SL_OP_LINEAR_WEIGHT_BACKWARD] = {
        .info = {"linear_weight_backward", 4, {"x", "dy", "dweight", "dbias"},
                 {R, R, G, G}, .operand_optional = {[3] = true}},
        .operand = {ROWS_IN, ROWS_OUT, MATRIX_G, VECTOR_OUT_G},
        .flops = MATRIX_FLOPS,
    },
    [SL_OP_GELU_BACKWARD] = {
        .info = {"gelu_backward", 2, {"x", "d"}, {R, U}},
        .operand = {ELEMENTS, ELEMENTS},
    },
    [SL_OP_ATTENTION_BACKWARD] = {
        .info = {"attention_backward", 5, {"qkv", "y", "lse", "dy", "dqkv"}, {R, R, R, R, W}},
        .operand = {QKV, STREAM, LSE, STREAM, QKV},
        .flops = ATTENTION_BACKWARD_FLOPS,
    },
    [SL_OP_LAYERNORM_BACKWARD] = {
        .info = {"layernorm_backward", 7, {"x", "gamma", "stats", "dy", "dx", "dgamma", "dbeta"},
                 {R, R, R, R, A, G, G}},
        .operand = {ROWS_IN, VECTOR_IN, MOMENTS, ROWS_IN, ROWS_IN, VECTOR_IN_G, VECTOR_IN_G},
    },
    [SL_OP_EMBED_TOKENS_BACKWARD] = {
        .info = {"embed_tokens_backward", 3, {"tokens", "dx", "dpanel"}, {R, R, A}},
        .operand = {TOKENS, STREAM, PANEL_F},
    },
    [SL_OP_EMBED_POSITION_BACKWARD] = {
        .info = {"embed_position_backward", 2, {"dx", "dwpe"}, {R, U}},
        .operand = {STREAM, POSITIONS_F},
    },
    [SL_OP_ADD] = {
        .info = {"add", 2, {"x", "y"}, {R, U}},
        .operand = {ELEMENTS, ELEMENTS},
    },
    [SL_OP_CLEAR] = {
        .info = {"clear", 1, {"y"}, {W}},
        .operand = {ELEMENTS},
    },
    [SL_OP_ROUND] = {
        .info = {"round", 2, {"x", "y"}, {R, W}},
        .operand = {ELEMENTS_F, ELEMENTS},
    },
    [SL_OP_BLOCK_NORM] = {
        .info = {"block_norm", 2, {"gradient", "norm"}, {R, A}},
        .operand = {ELEMENTS_G, NORM_SUM},
    },
    [SL_OP_NORM_FINISH] = {
        .info = {"norm_finish", 2, {"norm", "control"}, {R, W}},
        .operand = {NORM_SUM, CONTROL},
    },
    [SL_OP_ADAMW] = {
        .info = {"adamw", 6, {"control", "gradient", "moment1", "moment2", "param", "master"},
                 {R, R, U, U, U, U}, .operand_optional = {[5] = true}, .runs_on_host = true},
        .operand = {CONTROL, ELEMENTS_G, ELEMENTS_F, ELEMENTS_F, ELEMENTS, ELEMENTS_F},
    },
    [SL_OP_ATTENTION_CACHED] = {
        .info = {"attention_cached", 3, {"qkv", "cache", "y"}, {R, U, W}},
        .operand = {QKV, CACHE, STREAM},
        .flops = ATTENTION_CACHED_FLOPS,
    },
    [SL_OP_ALL_REDUCE] = {
        .info = {"all_reduce", 1, {"x"}, {U}, .is_collective = true},
        .operand = {ELEMENTS},
    },
    [SL_OP_INPUT] = {
        .info = {"input", 1, {"value"}, {W}, .is_input = true},
        .operand = {ELEMENTS_F},
    },
};
/* clang-format on */

#undef R
#undef W
#undef U
#undef A
#undef G

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

static uint64_t find_element_bytes(shape shape_name, const sl_op_attrs *attrs)
{
    const uint64_t bytes = sizes[shape_name].element_bytes;
    if (bytes != TYPED && bytes != STORED)
        return bytes;
    return sl_type_bytes((sl_type)(bytes == STORED ? attrs->grad_type : attrs->type));
}

static uint64_t compute_size(shape shape_name, const sl_op_attrs *attrs)
{
    const size *wanted = &sizes[shape_name];
    uint64_t product = find_element_bytes(shape_name, attrs) * wanted->count;
    for (int i = 0; i < FACTOR_MAX && wanted->factor[i] != F_END; i++)
        product = multiply_saturated(product, factor_value((factor)wanted->factor[i], attrs));
    return product;
}

const sl_op_info *sl_op_info_of(sl_op_kind kind)
{
    return &table[kind].info;
}

bool sl_op_reads(const sl_op *op, uint32_t operand_index)
{
    enum { ADAMW_PARAM = 4 };
    if (op->kind == SL_OP_ADAMW && operand_index == ADAMW_PARAM)
        return op->attrs.type == SL_TYPE_FP32; /* else made from master */
    switch (table[op->kind].info.operand_mode[operand_index]) {
    case SL_MODE_READ:
    case SL_MODE_UPDATE:
        return true;
    case SL_MODE_WRITE:
        return false;
    case SL_MODE_GRADIENT:
        return op->attrs.adds_gradient;
    case SL_MODE_ADD:
        break;
    }
    /* Row groups of the head write dx piece by piece, in row order: the pieces before must last. */
    bool is_later_piece = op->kind == SL_OP_HEAD_INPUT_BACKWARD && op->attrs.first_row > 0;
    return op->attrs.adds_output || is_later_piece;
}

bool sl_op_writes(const sl_op *op, uint32_t operand_index)
{
    return table[op->kind].info.operand_mode[operand_index] != SL_MODE_READ;
}

uint64_t sl_op_shape_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    return compute_size((shape)table[kind].operand[operand_index], attrs);
}

uint64_t sl_op_operand_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    shape operand = (shape)table[kind].operand[operand_index];
    if (operand == POSITIONS || operand == POSITIONS_F)
        return 0; /* there may be more positions than tokens in a row */
    return sl_op_shape_least_bytes(kind, attrs, operand_index);
}

uint64_t sl_op_flops(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return compute_size((shape)table[kind].flops, attrs);
}

/* Bytes of operand i that the op uses: all, but for row groups of the head, and for the embedding,
 * where a row of the panel is used at most once a token. */
static uint64_t count_touched_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t i)
{
    shape operand = (shape)table[kind].operand[i];
    if (operand == HEAD_STREAM)
        return compute_size(ROWS_IN, attrs);
    if (operand == HEAD_STREAM_F)
        return compute_size(ROWS_IN, attrs) / sl_type_bytes((sl_type)attrs->type) * F32;
    if (operand == HEAD_TARGETS)
        return multiply_saturated(F32, attrs->row_count);
    uint64_t bytes = compute_size(operand, attrs);
    if (kind != SL_OP_EMBED_TOKENS || operand == TOKENS)
        return bytes;
    uint64_t other = compute_size(operand == PANEL ? STREAM : PANEL, attrs);
    return bytes < other ? bytes : other;
}

uint64_t sl_op_traffic_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_op_info *info = &table[kind].info;
    sl_op op = {.kind = kind, .attrs = *attrs};
    uint64_t total = 0;
    for (uint32_t i = 0; i < info->operand_count; i++) {
        bool is_master = kind == SL_OP_ADAMW && attrs->type != SL_TYPE_FP32;
        if (info->operand_optional[i] && !is_master)
            continue;
        uint64_t bytes = count_touched_bytes(kind, attrs, i);
        if (sl_op_reads(&op, i))
            total = add_saturated(total, bytes);
        if (sl_op_writes(&op, i))
            total = add_saturated(total, bytes);
    }
    return total;
}
