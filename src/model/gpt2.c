/* GPT-2 as a forward program: embedding, blocks, last norm, head; segments in that order. */
#include "sluice/gpt2.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "emit.h"

enum { PANEL_UNIT = 128 };

static sl_status check_options(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options)
{
    SL_TRY(sl_gpt2_check(shape, options->tp_size));
    if (options->tp_rank >= options->tp_size)
        SL_FAIL(SL_ERROR_USAGE, "rank %u of %u tensor-parallel ranks", options->tp_rank,
                options->tp_size);
    if (options->batch == 0 || options->seq == 0 || options->seq > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "%u rows of %u tokens: rows must be positive, tokens 1 to %u",
                options->batch, options->seq, shape->context);
    if (options->type >= SL_TYPE_COUNT ||
        (options->grad_type != SL_TYPE_FP32 && options->grad_type != options->type))
        SL_FAIL(SL_ERROR_USAGE, "gradients of type %d with compute type %d: fp32 or the same",
                (int)options->grad_type, (int)options->type);
    if (options->mode == SL_GPT2_CACHED && options->batch != 1)
        SL_FAIL(SL_ERROR_USAGE, "decoding takes one row, not %u", options->batch);
    return SL_OK;
}

/* 4 * width / tp_size rows of wte are as large as the largest matrix of a block. */
static void fill_sizes(sl_emit *emit)
{
    const sl_gpt2_shape *shape = emit->shape;
    uint32_t tp_size = emit->options->tp_size;
    emit->rows = (uint64_t)emit->options->batch * emit->options->seq;
    emit->width = shape->width;
    emit->local_width = shape->width / tp_size;
    emit->padded_vocab = sl_gpt2_padded_vocab(shape, tp_size);
    emit->local_vocab = emit->padded_vocab / tp_size;
    emit->panel_rows = sl_bits_round_up(4 * emit->local_width, PANEL_UNIT);
    emit->panel_count = (uint32_t)sl_bits_divide_up(emit->local_vocab, emit->panel_rows);
}

static sl_status add_input(sl_emit *emit, uint32_t slot, const char *name, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_INPUT, .index = slot};
    for (size_t i = 0; name[i] != '\0'; i++)
        value.name[i] = name[i];
    SL_TRY(sl_bits_multiply(emit->rows, sizeof(int32_t), name, &value.bytes));
    return sl_program_add_value(emit->program, &value, out_value);
}

static sl_op_attrs stream_attrs(const sl_emit *emit)
{
    sl_op_attrs attrs = {
        .batch = emit->options->batch, .seq = emit->options->seq, .in = emit->width};
    return attrs;
}

static sl_status emit_position(sl_emit *emit, uint32_t wpe, uint32_t x)
{
    sl_op_attrs attrs = stream_attrs(emit);
    uint32_t operands[] = {wpe, x};
    return sl_emit_add_op(emit, SL_OP_EMBED_POSITION, &attrs, operands, 2);
}

static sl_status emit_panels(sl_emit *emit, uint32_t x)
{
    for (uint32_t p = 0; p < emit->panel_count; p++) {
        sl_op_attrs attrs = stream_attrs(emit);
        attrs.first_id = sl_head_panel_first_id(emit, p);
        attrs.id_count = sl_head_panel_ids(emit, p);
        uint32_t operands[] = {emit->tokens, emit->panels[p], x};
        SL_TRY(sl_emit_add_op(emit, SL_OP_EMBED_TOKENS, &attrs, operands, 3));
    }
    return SL_OK;
}

/* Each rank holds some ids: tokens are summed over the ranks, positions added once, afterwards. */
static sl_status emit_split_embedding(sl_emit *emit, uint32_t wpe, uint32_t x)
{
    sl_op_attrs whole = {.element_count = emit->rows * emit->width};
    uint32_t position;
    SL_TRY(sl_emit_add_activation(emit, "position", false, emit->width, &position));
    SL_TRY(emit_position(emit, wpe, position));
    SL_TRY(sl_emit_add_op(emit, SL_OP_CLEAR, &whole, &x, 1));
    SL_TRY(emit_panels(emit, x));
    SL_TRY(sl_emit_add_op(emit, SL_OP_ALL_REDUCE, &whole, &x, 1));
    uint32_t operands[] = {position, x};
    return sl_emit_add_op(emit, SL_OP_ADD, &whole, operands, 2);
}

static sl_status emit_embedding(sl_emit *emit)
{
    sl_segment segment = {.site = emit->program->segment_count};
    sl_emit_tensor wpe_tensor = {.name = "wpe.weight",
                                 .rows = emit->shape->context,
                                 .columns = emit->width,
                                 .init = {0.0f, 0.02f}};
    uint32_t wpe;
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    SL_TRY(sl_head_add_panels(emit)); /* before wpe: its low last panel then shares wpe's chunk */
    SL_TRY(sl_emit_add_tensor(emit, &wpe_tensor, false, &wpe));
    SL_TRY(sl_emit_add_activation(emit, "embedding", false, emit->width, &emit->stream));
    if (emit->options->tp_size > 1)
        return emit_split_embedding(emit, wpe, emit->stream);
    SL_TRY(emit_position(emit, wpe, emit->stream));
    return emit_panels(emit, emit->stream);
}

static sl_status emit_last_norm(sl_emit *emit, uint32_t *out_x)
{
    sl_segment segment = {.site = emit->program->segment_count};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    return sl_block_emit_norm(emit, "ln_f", false, out_x);
}

static sl_status emit_model(sl_emit *emit)
{
    bool has_loss = emit->options->mode == SL_GPT2_LOSS;
    uint32_t x;
    SL_TRY(add_input(emit, 0, "tokens", &emit->tokens));
    if (has_loss)
        SL_TRY(add_input(emit, 1, "targets", &emit->targets));
    SL_TRY(emit_embedding(emit));
    for (emit->layer = 0; emit->layer < emit->shape->layers; emit->layer++)
        SL_TRY(sl_block_emit(emit));
    SL_TRY(emit_last_norm(emit, &x));
    return has_loss ? sl_head_emit_loss(emit, x) : sl_head_emit_last_logits(emit, x);
}

sl_status sl_gpt2_emit(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options,
                       sl_program **out_forward)
{
    SL_TRY(check_options(shape, options));
    sl_emit emit = {.shape = shape, .options = options};
    fill_sizes(&emit);
    emit.panels = malloc(emit.panel_count * sizeof *emit.panels);
    if (emit.panels == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u panels", emit.panel_count);
    sl_status status;
    SL_TRY_GOTO(status, sl_program_open(&emit.program), free_panels);
    emit.program->type = options->type;
    emit.program->grad_type = options->grad_type;
    SL_TRY_GOTO(status, emit_model(&emit), close_program);
    *out_forward = emit.program;
    free(emit.panels);
    return SL_OK;
close_program:
    sl_program_close(emit.program);
free_panels:
    free(emit.panels);
    return status;
}
