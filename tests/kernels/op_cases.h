/* Every op in every mode of its attributes: one row an op names what varies, and the cases are all
 * that can be combined from it, in three shapes.
 *
 * Written from op_list.h, not from the op table: which bytes of an operand an op touches, where a
 * row range or a position leaves some of them alone, and which of those it reads.
 */
#ifndef SL_TESTS_OP_CASES_H
#define SL_TESTS_OP_CASES_H

#include <stdio.h>
#include <string.h>

#include "program/build.h"
#include "program_walk.h"

/* What varies in an op; choice 0 is the plainest. */
typedef enum op_axis {
    AXIS_SHAPE,         /* even, odd and long ones */
    AXIS_ADDS_OUTPUT,   /* mode ADD: writes, adds */
    AXIS_ADDS_GRADIENT, /* mode GRADIENT: writes, adds */
    AXIS_GRAD,          /* gradients in fp32, of the compute type */
    AXIS_WITHOUT_1,     /* operand 1 is there, absent */
    AXIS_WITHOUT_2,     /* of a weight's gradient: operand 0 too, and attrs.in is 0 */
    AXIS_WITHOUT_3,
    AXIS_WITHOUT_4,
    AXIS_WITHOUT_5,
    AXIS_WITHOUT_6,
    AXIS_ROWS,     /* all rows, the first group, one in the middle */
    AXIS_PANEL,    /* the first panel, another */
    AXIS_VALID,    /* all ids of the panel exist, the last do not, none does */
    AXIS_POSITION, /* at the start, behind others, with room left behind */
    AXIS_SKIP,     /* the step is taken, skipped */
    AXIS_FINITE,   /* the norm is finite, is not */
    AXIS_BLOCK,    /* the first chunk's flags, another's */
    AXIS_RANK,     /* rank 0, another, which leaves out bias and residual */
    AXIS_DROPOUT,  /* nothing is dropped, some elements are */
    AXIS_SEPARATE, /* q, k and v of equally many heads in one operand; of grouped heads in three */
    AXIS_NEGATES,  /* rotary forward, backward */
    AXIS_GELU,     /* gate of a sigmoid, of GELU */
    AXIS_OFFSET,   /* gamma as it is, 1 + gamma */
    AXIS_FROZEN,   /* stored in bf16, in codes of 8 bits */
    AXIS_COUNT
} op_axis;

static const uint32_t axis_choices[AXIS_COUNT] = {3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2,
                                                  3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};

#define ON(axis) (1u << AXIS_##axis)

/* Ops without a row here have no case, and the test fails. */
static const uint32_t op_axes[SL_OP_COUNT] = {
    [SL_OP_EMBED_POSITION] = ON(SHAPE) | ON(POSITION),
    [SL_OP_EMBED_TOKENS] = ON(SHAPE) | ON(PANEL),
    [SL_OP_LAYERNORM] = ON(SHAPE),
    [SL_OP_RMSNORM] = ON(SHAPE) | ON(OFFSET),
    [SL_OP_LINEAR] = ON(SHAPE) | ON(WITHOUT_2) | ON(WITHOUT_3) | ON(RANK),
    [SL_OP_ATTENTION] = ON(SHAPE) | ON(WITHOUT_3) | ON(DROPOUT) | ON(SEPARATE),
    [SL_OP_ROTARY] = ON(SHAPE) | ON(WITHOUT_3) | ON(POSITION) | ON(NEGATES),
    [SL_OP_GELU] = ON(SHAPE),
    [SL_OP_SWIGLU] = ON(SHAPE) | ON(GELU),
    [SL_OP_SCALE] = ON(SHAPE),
    [SL_OP_DROPOUT] = ON(SHAPE) | ON(WITHOUT_1) | ON(DROPOUT),
    [SL_OP_HEAD_LOGITS] = ON(SHAPE) | ON(ROWS),
    [SL_OP_HEAD_STATS] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(ROWS) | ON(PANEL) | ON(VALID),
    [SL_OP_HEAD_LOSS] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(WITHOUT_2),
    [SL_OP_HEAD_LOGITS_BACKWARD] = ON(SHAPE) | ON(ROWS) | ON(PANEL) | ON(VALID),
    [SL_OP_HEAD_INPUT_BACKWARD] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(ROWS),
    [SL_OP_HEAD_WEIGHT_BACKWARD] = ON(SHAPE) | ON(ADDS_GRADIENT) | ON(GRAD) | ON(ROWS),
    [SL_OP_LINEAR_INPUT_BACKWARD] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(WITHOUT_3),
    [SL_OP_LINEAR_WEIGHT_BACKWARD] =
        ON(SHAPE) | ON(ADDS_GRADIENT) | ON(GRAD) | ON(WITHOUT_2) | ON(WITHOUT_3),
    [SL_OP_GELU_BACKWARD] = ON(SHAPE),
    [SL_OP_SWIGLU_BACKWARD] = ON(SHAPE) | ON(GELU),
    [SL_OP_ATTENTION_BACKWARD] = ON(SHAPE) | ON(WITHOUT_5) | ON(DROPOUT) | ON(SEPARATE),
    [SL_OP_LAYERNORM_BACKWARD] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(ADDS_GRADIENT) | ON(GRAD) |
                                 ON(WITHOUT_4) | ON(WITHOUT_5) | ON(WITHOUT_6),
    [SL_OP_RMSNORM_BACKWARD] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(ADDS_GRADIENT) | ON(GRAD) |
                               ON(WITHOUT_4) | ON(WITHOUT_5) | ON(OFFSET),
    [SL_OP_EMBED_TOKENS_BACKWARD] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(PANEL),
    [SL_OP_EMBED_POSITION_BACKWARD] = ON(SHAPE) | ON(POSITION),
    [SL_OP_ADD] = ON(SHAPE),
    [SL_OP_CLEAR] = ON(SHAPE),
    [SL_OP_CLEAR_PADDING] = ON(SHAPE),
    [SL_OP_ROUND] = ON(SHAPE),
    [SL_OP_DEQUANTIZE] = ON(SHAPE) | ON(FROZEN),
    [SL_OP_BLOCK_NORM] = ON(SHAPE) | ON(ADDS_OUTPUT) | ON(GRAD),
    [SL_OP_NORM_FINISH] = ON(SHAPE) | ON(FINITE) | ON(WITHOUT_2),
    [SL_OP_ADAMW] = ON(SHAPE) | ON(GRAD) | ON(SKIP) | ON(BLOCK),
    [SL_OP_SGD] = ON(SHAPE) | ON(GRAD) | ON(SKIP) | ON(BLOCK) | ON(WITHOUT_2),
    [SL_OP_LION] = ON(SHAPE) | ON(GRAD) | ON(SKIP) | ON(BLOCK),
    [SL_OP_MOMENTUM] = ON(SHAPE) | ON(GRAD) | ON(SKIP),
    [SL_OP_ORTHOGONALISE] = ON(SHAPE) | ON(GRAD),
    [SL_OP_APPLY] = ON(SHAPE) | ON(GRAD) | ON(SKIP) | ON(BLOCK),
    [SL_OP_ATTENTION_CACHED] = ON(SHAPE) | ON(POSITION) | ON(SEPARATE),
    [SL_OP_CUSTOM] = ON(SHAPE) | ON(WITHOUT_1) | ON(WITHOUT_2),
    [SL_OP_CUSTOM_BACKWARD] = ON(SHAPE) | ON(ADDS_GRADIENT) | ON(GRAD) | ON(WITHOUT_1) |
                              ON(WITHOUT_2) | ON(WITHOUT_4) | ON(WITHOUT_5) | ON(WITHOUT_6),
};

#undef ON

/* Operands that op_list.h calls OPTIONAL, IF_NEEDED, SEPARATE or MASTER: those of AXIS_WITHOUT and
 * of AXIS_SEPARATE, and the master copy. */
static const uint16_t op_optional[SL_OP_COUNT] = {
    [SL_OP_LINEAR] = 1 << 2 | 1 << 3,
    [SL_OP_ATTENTION] = 1 << 3 | 3 << 4,
    [SL_OP_ROTARY] = 1 << 3,
    [SL_OP_ATTENTION_CACHED] = 3 << 3,
    [SL_OP_DROPOUT] = 1 << 1,
    [SL_OP_ATTENTION_BACKWARD] = 1 << 5 | 15 << 6,
    [SL_OP_HEAD_LOSS] = 1 << 2,
    [SL_OP_NORM_FINISH] = 1 << 2,
    [SL_OP_LINEAR_INPUT_BACKWARD] = 1 << 3,
    [SL_OP_LINEAR_WEIGHT_BACKWARD] = 1 << 0 | 1 << 2 | 1 << 3,
    [SL_OP_LAYERNORM_BACKWARD] = 1 << 4 | 1 << 5 | 1 << 6,
    [SL_OP_RMSNORM_BACKWARD] = 1 << 4 | 1 << 5,
    [SL_OP_ADAMW] = 1 << 5,
    [SL_OP_SGD] = 1 << 2 | 1 << 4,
    [SL_OP_LION] = 1 << 4,
    [SL_OP_APPLY] = 1 << 3,
    [SL_OP_CUSTOM] = 1 << 1 | 1 << 2,
    [SL_OP_CUSTOM_BACKWARD] = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6,
    [SL_OP_ALL_REDUCE_NORM] = 1 << 1 | 1 << 2,
    [SL_OP_EXCHANGE] = 1 << 0 | 1 << 1,
};

/* Of these, k and v, and their gradients. */
static const uint16_t op_separate[SL_OP_COUNT] = {
    [SL_OP_ATTENTION] = 3 << 4,
    [SL_OP_ATTENTION_BACKWARD] = 15 << 6,
    [SL_OP_ATTENTION_CACHED] = 3 << 3,
};

typedef struct op_shape {
    uint64_t batch, seq, heads, in, out, ids, elements, blocks;
} op_shape;

/* Operands of whole pages or at least whole alignments; odd ones; ones of several tiles. */
static const op_shape op_shapes[3] = {{2, 64, 2, 128, 256, 128, 32768 + 512, 2},
                                      {3, 7, 3, 15, 13, 11, 1021, 1},
                                      {1, 150, 2, 34, 70, 300, 40009, 65}};

typedef struct op_case {
    sl_op op; /* operands: 0 where there, SL_NONE where absent */
    sl_step_scalars scalars;
    uint32_t choice[AXIS_COUNT];
    uint64_t position;  /* scalars.position */
    uint64_t rows_left; /* of positions or of the cache, behind those that are used */
    sl_padding padding; /* of CLEAR_PADDING */
} op_case;

static inline bool case_has(const op_case *c, uint32_t operand)
{
    return c->op.operand[operand] != SL_NONE;
}

static inline bool case_is_half(const op_case *c)
{
    return c->op.attrs.type != SL_TYPE_FP32;
}

/* A gradient is of an input that is there. */
static inline bool case_custom_exists(const op_case *c)
{
    const int gradients = case_has(c, 4) + case_has(c, 5) + case_has(c, 6);
    const bool is_chosen = gradients == 1 || (case_has(c, 1) && case_has(c, 2)); /* of many */
    return gradients > 0 && is_chosen && (case_has(c, 1) || !case_has(c, 5)) &&
           (case_has(c, 2) || !case_has(c, 6));
}

/* Combinations that op_list.h rules out, and those that are another one again. */
static inline bool case_exists(const op_case *c)
{
    const sl_op_attrs *attrs = &c->op.attrs;
    const bool passes_gelu =
        c->op.kind == SL_OP_LINEAR_INPUT_BACKWARD && c->choice[AXIS_WITHOUT_3] == 0;
    if (passes_gelu && attrs->adds_output)
        return false;
    if (c->op.kind == SL_OP_LINEAR_WEIGHT_BACKWARD && !case_has(c, 2) && !case_has(c, 3))
        return false;
    if (c->op.kind == SL_OP_LAYERNORM_BACKWARD && !case_has(c, 4) && !case_has(c, 5) &&
        !case_has(c, 6))
        return false;
    if (c->op.kind == SL_OP_RMSNORM_BACKWARD && !case_has(c, 4) && !case_has(c, 5))
        return false;
    if (c->op.kind == SL_OP_CUSTOM_BACKWARD && !case_custom_exists(c))
        return false;
    if (attrs->adds_gradient && attrs->grad_type != SL_TYPE_FP32)
        return false;
    if (c->choice[AXIS_GRAD] && !case_is_half(c))
        return false;
    return c->op.kind != SL_OP_EMBED_POSITION_BACKWARD || c->choice[AXIS_POSITION] != 1;
}

static inline bool case_is_attention(sl_op_kind kind)
{
    return kind == SL_OP_ATTENTION || kind == SL_OP_ATTENTION_BACKWARD ||
           kind == SL_OP_ATTENTION_CACHED;
}

/* Where k and v are operands of their own, all query heads share one key head. */
static inline void case_set_heads(op_case *c, const op_shape *shape)
{
    sl_op_attrs *attrs = &c->op.attrs;
    if (c->op.kind == SL_OP_ROTARY) {
        attrs->out = 2 * (shape->in / shape->heads / 2);
        attrs->in = shape->heads * attrs->out;
        attrs->negates = c->choice[AXIS_NEGATES];
    }
    if (!case_is_attention(c->op.kind))
        return;
    attrs->is_separate = c->choice[AXIS_SEPARATE];
    attrs->out = attrs->is_separate ? shape->in / shape->heads : shape->in;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (!attrs->is_separate && (op_separate[c->op.kind] >> i & 1))
            c->op.operand[i] = SL_NONE;
}

static inline void case_set_sizes(op_case *c)
{
    enum { POSITION = 5, LEFT = 3, FIRST_ID = 1000, MISSING_IDS = 3, FIRST_BLOCK = 3 };
    enum { CUSTOM_SHARE = 64 };
    const op_shape *shape = &op_shapes[c->choice[AXIS_SHAPE]];
    const uint64_t rows = shape->batch * shape->seq;
    const uint32_t group = c->choice[AXIS_ROWS];
    const bool is_chunk = c->op.kind == SL_OP_BLOCK_NORM || c->op.kind == SL_OP_DEQUANTIZE ||
                          sl_op_info_of(c->op.kind)->updates_chunk;
    sl_op_attrs *attrs = &c->op.attrs;
    attrs->batch = shape->batch;
    attrs->seq = shape->seq;
    attrs->in = shape->in;
    attrs->out = shape->out;
    attrs->heads = shape->heads;
    case_set_heads(c, shape);
    attrs->first_row = group == 2 ? rows / 4 : 0;
    if (c->op.kind == SL_OP_CLEAR_PADDING) /* all is padding: then it is written whole */
        c->padding = (sl_padding){0, shape->elements};
    attrs->row_count = group == 0 ? rows : rows / (group == 1 ? 4 : 2);
    attrs->first_id = c->choice[AXIS_PANEL] ? FIRST_ID : 0;
    attrs->id_count = shape->ids;
    attrs->valid_id_count = attrs->first_id + shape->ids;
    if (c->choice[AXIS_VALID] > 0)
        attrs->valid_id_count -= c->choice[AXIS_VALID] == 1 ? MISSING_IDS : shape->ids;
    attrs->element_count = is_chunk ? shape->blocks * SL_BLOCK_ELEMENTS : shape->elements;
    if (sl_op_is_custom(c->op.kind)) /* each row reads all of the weight */
        attrs->element_count /= CUSTOM_SHARE;
    attrs->first_block = c->choice[AXIS_BLOCK] ? FIRST_BLOCK : 0;
    c->position =
        c->choice[AXIS_POSITION] && c->op.kind != SL_OP_EMBED_POSITION_BACKWARD ? POSITION : 0;
    c->rows_left = c->choice[AXIS_POSITION] == 2 ? LEFT : 0;
    if (c->op.kind == SL_OP_ROTARY && !c->choice[AXIS_WITHOUT_3])
        c->rows_left = LEFT; /* a position that is none is read as the last: no document has it */
    attrs->cache_rows = c->position + shape->seq + c->rows_left;
}

static inline op_case case_make(sl_op_kind kind, sl_type type, const uint32_t *choice)
{
    op_case c = {.op = {.kind = kind}};
    memcpy(c.choice, choice, sizeof c.choice);
    sl_op_attrs *attrs = &c.op.attrs;
    attrs->type = (uint16_t)type;
    attrs->grad_type = (uint16_t)(choice[AXIS_GRAD] ? type : SL_TYPE_FP32);
    attrs->adds_output = choice[AXIS_ADDS_OUTPUT];
    attrs->adds_gradient = (uint16_t)choice[AXIS_ADDS_GRADIENT];
    attrs->rank_index = (uint16_t)choice[AXIS_RANK];
    const bool is_gated = kind == SL_OP_SWIGLU || kind == SL_OP_SWIGLU_BACKWARD;
    if (is_gated)
        attrs->is_gelu = choice[AXIS_GELU];
    else if (!case_is_attention(kind) &&
             kind != SL_OP_ROTARY) /* the same word tells them other things */
        attrs->scale = 0.25f;
    attrs->dropout = choice[AXIS_DROPOUT] ? 0.25f : 0.0f;
    if (choice[AXIS_OFFSET])
        attrs->gamma_offset = 1.0f;
    attrs->dropout_site = choice[AXIS_DROPOUT] ? 5 : 0;
    if (kind == SL_OP_DEQUANTIZE)
        attrs->frozen_type = choice[AXIS_FROZEN] ? SL_FROZEN_INT8 : SL_FROZEN_BF16;
    case_set_sizes(&c);
    static const struct {
        op_axis axis;
        uint32_t operand;
    } absent[] = {{AXIS_WITHOUT_1, 1}, {AXIS_WITHOUT_2, 2}, {AXIS_WITHOUT_3, 3},
                  {AXIS_WITHOUT_4, 4}, {AXIS_WITHOUT_5, 5}, {AXIS_WITHOUT_6, 6}};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (choice[absent[i].axis])
            c.op.operand[absent[i].operand] = SL_NONE;
    if (kind == SL_OP_LINEAR_WEIGHT_BACKWARD && choice[AXIS_WITHOUT_2]) {
        c.op.operand[0] = SL_NONE;
        attrs->in = 0;
    }
    const uint32_t last = sl_op_info_of(kind)->operand_count - 1;
    if (!strcmp(sl_op_info_of(kind)->operand[last].name, "master") && type == SL_TYPE_FP32)
        c.op.operand[last] = SL_NONE;
    c.scalars = (sl_step_scalars){.learning_rate = 3e-2f,
                                  .weight_decay = 0.1f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .epsilon = 1e-8f,
                                  .bias1 = 0.271f,
                                  .bias2_root = 0.3776f,
                                  .lion_beta1 = 0.9f,
                                  .lion_beta2 = 0.99f,
                                  .momentum = 0.8f,
                                  .muon_momentum = 0.9f,
                                  .is_nesterov = 1,
                                  .clip = 1.0f,
                                  .loss_scale = 8.0f,
                                  .position = (uint32_t)c.position,
                                  .dropout_seed = 77,
                                  .first_row = 12};
    return c;
}

/* Counts through all combinations; false behind the last. */
static inline bool case_next_choice(sl_op_kind kind, uint32_t *choice)
{
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (!(op_axes[kind] >> axis & 1))
            continue;
        if (++choice[axis] < axis_choices[axis])
            return true;
        choice[axis] = 0;
    }
    return false;
}

typedef bool (*op_case_visit)(const op_case *c, void *context);

/* Calls `visit` with every case of an op and a type until it says false; returns how many. */
static inline uint32_t case_visit_all(sl_op_kind kind, sl_type type, op_case_visit visit,
                                      void *context)
{
    uint32_t choice[AXIS_COUNT] = {0}, count = 0;
    do {
        const op_case c = case_make(kind, type, choice);
        if (!case_exists(&c))
            continue;
        count++;
        if (!visit(&c, context))
            break;
    } while (case_next_choice(kind, choice));
    return count;
}

/* "linear of bf16, axes 1000..." */
static inline void case_describe(const op_case *c, char *out_text, size_t bytes)
{
    char choices[AXIS_COUNT + 1] = {0};
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        choices[axis] = (char)('0' + c->choice[axis]);
    snprintf(out_text, bytes, "%s of %s, choices %s", sl_op_info_of(c->op.kind)->name,
             sl_type_name((sl_type)c->op.attrs.type), choices);
}

/* ---- what op_list.h says of the bytes of an operand ---- */

typedef struct op_span {
    uint64_t front, back; /* bytes before and behind what is touched at all */
    uint64_t unread;      /* the last of what is touched, not read */
} op_span;

static inline bool case_is_stored(const op_case *c, uint32_t i)
{
    return c->op.kind == SL_OP_DEQUANTIZE && i == 0;
}

/* Of a frozen matrix the last that is touched is a bf16, or a scale. */
static inline uint64_t case_element_bytes(const op_case *c, uint32_t i)
{
    if (case_is_stored(c, i))
        return sizeof(uint16_t);
    return sl_type_bytes(walk_type_of(&c->op, i));
}

/* Of B*T rows, those of the row range. */
static inline op_span case_row_span(const op_case *c, uint64_t row_bytes)
{
    const sl_op_attrs *attrs = &c->op.attrs;
    const uint64_t behind = attrs->batch * attrs->seq - attrs->first_row - attrs->row_count;
    return (op_span){attrs->first_row * row_bytes, behind * row_bytes, 0};
}

static inline uint64_t case_padding_ids(const op_case *c)
{
    return c->op.attrs.first_id + c->op.attrs.id_count - c->op.attrs.valid_id_count;
}

static inline op_span case_head_span(const op_case *c, uint32_t i)
{
    const uint64_t element = case_element_bytes(c, i), padding = case_padding_ids(c) * element;
    const uint64_t row = c->op.attrs.in * element;
    switch ((int)c->op.kind) {
    case SL_OP_HEAD_LOGITS:
    case SL_OP_HEAD_WEIGHT_BACKWARD:
        return i == 0 ? case_row_span(c, row) : (op_span){0};
    case SL_OP_HEAD_INPUT_BACKWARD:
        return i == 2 ? case_row_span(c, row) : (op_span){0};
    case SL_OP_HEAD_STATS: /* of stats, the last is written and not read */
        if (i == 1)
            return case_row_span(c, sizeof(int32_t));
        return (op_span){.unread = i == 0 ? padding : sizeof(float)};
    case SL_OP_HEAD_LOSS:
        return (op_span){0};
    case SL_OP_HEAD_LOGITS_BACKWARD:
        if (i == 0)
            return case_row_span(c, sizeof(int32_t));
        return (op_span){.unread = i == 1 ? 2 * sizeof(float) : padding};
    default:
        return (op_span){0};
    }
}

/* Positions of documents begin at 0 and are at most 28 (op_proof.h). */
static inline op_span case_table_span(const op_case *c)
{
    enum { DOCUMENT = 29 };
    const uint64_t row = c->op.attrs.out * sizeof(float), seq = c->op.attrs.seq;
    const uint64_t touched = seq < DOCUMENT ? seq : DOCUMENT;
    if (!case_has(c, 3))
        return (op_span){c->position * row, c->rows_left * row, 0};
    return (op_span){.back = (c->op.attrs.cache_rows - touched) * row};
}

/* What blocks leave of a multiple of 4096 bytes. */
static inline op_span case_stored_span(const op_case *c)
{
    const uint64_t block_bytes = c->op.attrs.frozen_type == SL_FROZEN_INT8 ? 2176 : 4096;
    const uint64_t touched = c->op.attrs.element_count / SL_BLOCK_ELEMENTS * block_bytes;
    return (op_span){.back = (touched + 4095) / 4096 * 4096 - touched};
}

static inline op_span case_span(const op_case *c, uint32_t i)
{
    const bool is_cache = c->op.kind == SL_OP_ATTENTION_CACHED && i == 1;
    const uint64_t features = is_cache ? c->op.attrs.out : c->op.attrs.in;
    const uint64_t row = features * case_element_bytes(c, i);
    const uint64_t norm_rest = sizeof(sl_norm_sum) - offsetof(sl_norm_sum, reserved);
    const op_span norm = {.back = norm_rest};
    switch ((int)c->op.kind) {
    case SL_OP_EMBED_POSITION:
        return i == 0 ? (op_span){c->position * row, c->rows_left * row, 0} : (op_span){0};
    case SL_OP_EMBED_POSITION_BACKWARD:
        return i == 1 ? (op_span){.back = c->rows_left * row} : (op_span){0};
    case SL_OP_ROTARY:
        return i == 1 ? case_table_span(c) : (op_span){0};
    case SL_OP_DEQUANTIZE:
        return i == 0 ? case_stored_span(c) : (op_span){0};
    case SL_OP_ATTENTION_CACHED: /* the new rows are written before they are read */
        return i == 1 ? (op_span){0, c->rows_left * row, c->op.attrs.seq * row} : (op_span){0};
    case SL_OP_BLOCK_NORM:
        return i == 1 && c->op.attrs.adds_output ? norm : (op_span){0};
    case SL_OP_NORM_FINISH:
        return i == 0 ? norm : (op_span){0};
    case SL_OP_ADAMW:
    case SL_OP_SGD:
    case SL_OP_LION: /* of the control, clip_scale and skip */
    case SL_OP_MOMENTUM:
        return i == 0 ? (op_span){.front = 4, .back = 4} : (op_span){0};
    case SL_OP_APPLY: /* skip alone */
        return i == 0 ? (op_span){.front = 8, .back = 4} : (op_span){0};
    default:
        return case_head_span(c, i);
    }
}

/* Row ranges write dx in row order: the first one makes it, the others keep it. */
static inline bool case_is_row_range(const op_case *c, uint32_t i)
{
    return c->op.kind == SL_OP_HEAD_INPUT_BACKWARD && i == 2 && !c->op.attrs.adds_output;
}

/* dx depends on all that is read, dgamma on all but gamma, dbeta on dy alone. */
static inline bool case_norm_shows(const op_case *c, uint32_t i)
{
    const bool is_of_dgamma = i != 1 && case_has(c, 5);
    return i >= 3 || case_has(c, 4) || is_of_dgamma;
}

/* dx depends on x, z and dy, dz on x and dy, dweight on weight and dy. */
static inline bool case_custom_shows(const op_case *c, uint32_t i)
{
    const bool of_inputs = case_has(c, 4) || (i == 0 && case_has(c, 5));
    return i >= 3 || (i == 2 ? case_has(c, 6) : of_inputs);
}

/* Whether what is read there can be seen in the result at all. */
static inline bool case_shows_reads(const op_case *c, uint32_t i)
{
    if (c->op.kind == SL_OP_LAYERNORM_BACKWARD && !case_norm_shows(c, i))
        return false;
    if (c->op.kind == SL_OP_RMSNORM_BACKWARD && i == 1 && !case_has(c, 4))
        return false; /* dgamma depends on all but gamma */
    if (c->op.kind == SL_OP_CUSTOM_BACKWARD && !case_custom_shows(c, i))
        return false;
    const bool has_no_ids = c->choice[AXIS_VALID] == 2;
    const bool leaves_out = c->op.kind == SL_OP_LINEAR && c->op.attrs.rank_index > 0;
    if (c->choice[AXIS_SKIP] || c->choice[AXIS_FINITE] || has_no_ids)
        return false;
    const bool keeps = case_is_row_range(c, i) && c->op.attrs.first_row > 0;
    const bool is_new = c->op.kind == SL_OP_ATTENTION_CACHED && i == 1 && c->position == 0;
    return !keeps && !is_new && !(leaves_out && (i == 2 || i == 3));
}

#endif
