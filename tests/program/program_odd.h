/* A model that GPT-2 is not: whatever the passes promise beyond what GPT-2 needs.
 *
 * One value is the residual of two linears and the input of two ops; one qkv feeds two attentions;
 * a linear's weight is used in two segments, another twice in one, once with a bias; a value is
 * added in place; the head is tied; the loss does not depend on one parameter. */
#ifndef SL_TESTS_PROGRAM_ODD_H
#define SL_TESTS_PROGRAM_ODD_H

#include <stdio.h>

#include "program_run.h"

enum { ODD_IDS = 24 };

typedef struct odd {
    sl_program *program;
    uint64_t batch, seq, width;
} odd;

static inline uint32_t odd_value(odd *o, sl_value_kind kind, uint32_t slot, uint64_t elements)
{
    bool is_typed = kind == SL_VALUE_ACTIVATION;
    sl_value value = {.kind = kind, .index = slot, .name = "odd"};
    value.type = is_typed ? o->program->type : SL_TYPE_FP32;
    value.bytes = elements * sl_type_bytes(value.type);
    uint32_t index;
    assert_int_equal(sl_program_add_value(o->program, &value, &index), SL_OK);
    return index;
}

/* `features` a row. */
static inline uint32_t odd_rows(odd *o, uint64_t features)
{
    return odd_value(o, SL_VALUE_ACTIVATION, 0, o->batch * o->seq * features);
}

/* Statistics: fp32 whatever the type. */
static inline uint32_t odd_statistics(odd *o, uint64_t numbers)
{
    sl_type type = o->program->type;
    o->program->type = SL_TYPE_FP32;
    uint32_t value = odd_rows(o, numbers);
    o->program->type = type;
    return value;
}

static inline uint32_t odd_tensor(odd *o, const char *name, uint64_t rows, uint64_t columns)
{
    sl_tensor_spec spec = {.dim_count = columns > 1 ? 2 : 1,
                           .shape = {rows, columns},
                           .valid_rows = rows,
                           .whole_shape = {rows, columns},
                           .element_count = rows * columns};
    uint32_t index;
    snprintf(spec.name, sizeof spec.name, "%s", name);
    assert_int_equal(sl_program_add_tensor(o->program, &spec, &index), SL_OK);
    return index;
}

static inline void odd_segment(odd *o, bool is_block, bool is_terminal)
{
    sl_segment segment = {
        .site = o->program->segment_count, .is_block = is_block, .is_terminal = is_terminal};
    assert_int_equal(sl_program_add_segment(o->program, &segment), SL_OK);
}

static inline void odd_op(odd *o, sl_op_kind kind, sl_op_attrs attrs, const uint32_t *operands)
{
    uint32_t count = sl_op_info_of(kind)->operand_count;
    attrs.type = (uint16_t)o->program->type;
    if (sl_program_add_op(o->program, kind, &attrs, operands, count) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static inline uint32_t odd_biased(odd *o, uint32_t x, uint32_t weight, uint32_t bias, uint64_t out,
                                  uint32_t residual)
{
    uint32_t y = odd_rows(o, out);
    odd_op(o, SL_OP_LINEAR,
           (sl_op_attrs){.row_count = o->batch * o->seq, .in = o->width, .out = out},
           (uint32_t[]){x, weight, bias, residual, y});
    return y;
}

static inline uint32_t odd_linear(odd *o, uint32_t x, uint32_t weight, uint64_t out,
                                  uint32_t residual)
{
    return odd_biased(o, x, weight, SL_NONE, out, residual);
}

static inline uint32_t odd_gelu(odd *o, uint32_t x)
{
    uint32_t y = odd_rows(o, o->width);
    odd_op(o, SL_OP_GELU, (sl_op_attrs){.element_count = o->batch * o->seq * o->width},
           (uint32_t[]){x, y});
    return y;
}

static inline uint32_t odd_attention(odd *o, uint32_t qkv, uint64_t heads)
{
    uint32_t y = odd_rows(o, o->width), lse = odd_statistics(o, heads);
    sl_op_attrs attrs = {
        .batch = o->batch, .seq = o->seq, .in = o->width, .out = o->width, .heads = heads};
    odd_op(o, SL_OP_ATTENTION, attrs, (uint32_t[]){qkv, y, lse, SL_NONE, SL_NONE, SL_NONE});
    return y;
}

static inline uint32_t odd_custom(odd *o, uint32_t x, uint32_t z, uint32_t weight, uint64_t count)
{
    const uint32_t y = odd_rows(o, o->width);
    odd_op(o, SL_OP_CUSTOM,
           (sl_op_attrs){.batch = o->batch,
                         .seq = o->seq,
                         .row_count = o->batch * o->seq,
                         .in = o->width,
                         .out = o->width,
                         .element_count = count},
           (uint32_t[]){x, z, weight, y});
    return y;
}

static inline void odd_add(odd *o, uint32_t x, uint32_t y)
{
    odd_op(o, SL_OP_ADD, (sl_op_attrs){.element_count = o->batch * o->seq * o->width},
           (uint32_t[]){x, y});
}

/* `count` rows of the head, from `first` on. */
static inline void odd_head_rows(odd *o, uint32_t x, uint32_t table, uint32_t targets,
                                 uint32_t loss, uint64_t first, uint64_t count)
{
    const uint32_t logits = odd_value(o, SL_VALUE_ACTIVATION, 0, count * ODD_IDS);
    const uint32_t stats = odd_statistics(o, 4);
    o->program->values[stats].bytes = count * 4 * sizeof(float);
    sl_op_attrs attrs = {.batch = o->batch,
                         .seq = o->seq,
                         .in = o->width,
                         .first_row = first,
                         .row_count = count,
                         .id_count = ODD_IDS,
                         .valid_id_count = ODD_IDS};
    odd_segment(o, false, true);
    odd_op(o, SL_OP_HEAD_LOGITS, attrs, (uint32_t[]){x, table, logits});
    odd_op(o, SL_OP_HEAD_STATS, attrs, (uint32_t[]){logits, targets, stats});
    odd_op(o, SL_OP_HEAD_LOSS, (sl_op_attrs){.row_count = count, .adds_output = first > 0},
           (uint32_t[]){stats, loss, SL_NONE});
}

static inline void odd_head(odd *o, uint32_t x, uint32_t table, uint32_t targets)
{
    const uint32_t loss = odd_value(o, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS, 2);
    odd_head_rows(o, x, table, targets, loss, 0, o->batch * o->seq);
}

static inline sl_program *odd_emit(const run_options *options)
{
    odd o = {.batch = options->batch, .seq = options->seq, .width = options->shape.width};
    assert_int_equal(sl_program_open(&o.program), SL_OK);
    o.program->type = options->type;
    o.program->grad_type = options->grad_type;
    uint64_t rows = o.batch * o.seq, C = o.width;
    uint32_t tokens = odd_value(&o, SL_VALUE_INPUT, 0, rows);
    uint32_t targets = odd_value(&o, SL_VALUE_INPUT, 1, rows);
    uint32_t wpe = odd_tensor(&o, "wpe", o.seq + 2, C), table = odd_tensor(&o, "wte", ODD_IDS, C);
    uint32_t w1 = odd_tensor(&o, "w1", C, C), w2 = odd_tensor(&o, "w2", C, C);
    uint32_t b2 = odd_tensor(&o, "b2", C, 1);       /* of one use of w2 */
    uint32_t spare = odd_tensor(&o, "spare", C, C); /* in one chunk with b2 */
    uint32_t w3 = odd_tensor(&o, "w3", C, 3 * C), x = odd_rows(&o, C);
    uint32_t w4 = odd_tensor(&o, "w4", 5, 1); /* of a custom op */
    sl_op_attrs stream = {.batch = o.batch, .seq = o.seq, .in = C, .id_count = ODD_IDS};
    odd_segment(&o, false, false);
    odd_op(&o, SL_OP_EMBED_POSITION, stream, (uint32_t[]){wpe, x});
    odd_op(&o, SL_OP_EMBED_TOKENS, stream, (uint32_t[]){tokens, table, x});
    odd_segment(&o, true, false);
    uint32_t a = odd_linear(&o, x, w1, C, x);
    uint32_t b = odd_biased(&o, odd_gelu(&o, a), w2, b2, C, a);
    uint32_t c = odd_linear(&o, odd_gelu(&o, a), w2, C, a);
    odd_add(&o, x, c);
    odd_add(&o, b, c);
    odd_segment(&o, true, false);
    odd_linear(&o, c, spare, C, SL_NONE);
    uint32_t qkv = odd_linear(&o, c, w3, 3 * C, SL_NONE);
    uint32_t d = odd_attention(&o, qkv, 3), e = odd_attention(&o, qkv, 2);
    d = odd_custom(&o, odd_custom(&o, d, SL_NONE, SL_NONE, 0), e, w4, 5);
    uint32_t f = odd_linear(&o, d, w1, C, e); /* w1 again, in another segment */
    odd_add(&o, c, f);
    odd_head(&o, f, table, targets);
    return o.program;
}

#endif
