/* One transformer block: x + attention(norm(x)), then x + mlp(norm(x)). */
#include <math.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"
#include "emit.h"

static const float weight_deviation = 0.02f;

/* 2 * layers residual branches add up, so each starts that much smaller (GPT-2, Radford 2019). */
static float residual_deviation(const sl_emit *emit)
{
    return (float)(0.02 / sqrt(2.0 * emit->shape->layers));
}

static sl_status add_norm_parameters(sl_emit *emit, const char *name, bool is_inner,
                                     uint32_t *out_gamma, uint32_t *out_beta)
{
    char full[32];
    sl_emit_tensor tensor = {.name = full, .rows = emit->width, .init = {1.0f, 0.0f}};
    snprintf(full, sizeof full, "%s.weight", name);
    SL_TRY(sl_emit_add_tensor(emit, &tensor, is_inner, out_gamma));
    tensor.init.mean = 0.0f;
    snprintf(full, sizeof full, "%s.bias", name);
    return sl_emit_add_tensor(emit, &tensor, is_inner, out_beta);
}

sl_status sl_block_emit_norm(sl_emit *emit, const char *name, bool is_inner, uint32_t *out_y)
{
    enum { MOMENTS_A_ROW = 2 };
    char moments[32];
    snprintf(moments, sizeof moments, "%s.stats", name);
    uint32_t gamma, beta, y, stats;
    SL_TRY(add_norm_parameters(emit, name, is_inner, &gamma, &beta));
    SL_TRY(sl_emit_add_activation(emit, name, is_inner, emit->width, &y));
    SL_TRY(sl_emit_add_statistics(emit, moments, is_inner, MOMENTS_A_ROW, &stats));
    sl_op_attrs attrs = {.row_count = emit->rows, .in = emit->width};
    uint32_t operands[] = {emit->stream, gamma, beta, y, stats};
    SL_TRY(sl_emit_add_op(emit, SL_OP_LAYERNORM, &attrs, operands, 5));
    *out_y = y;
    return SL_OK;
}

static sl_op_attrs attention_attrs(const sl_emit *emit)
{
    sl_op_attrs attrs = {.batch = emit->options->batch,
                         .seq = emit->options->seq,
                         .in = emit->local_width,
                         .heads = emit->shape->heads / emit->options->tp_size};
    return attrs;
}

static sl_status emit_attention(sl_emit *emit, uint32_t qkv, uint32_t *out_y)
{
    uint32_t y, lse;
    SL_TRY(sl_emit_add_activation(emit, "attn", true, emit->local_width, &y));
    sl_op_attrs attrs = attention_attrs(emit);
    SL_TRY(sl_emit_add_statistics(emit, "attn.lse", true, attrs.heads, &lse));
    uint32_t operands[] = {qkv, y, lse};
    SL_TRY(sl_emit_add_op(emit, SL_OP_ATTENTION, &attrs, operands, 3));
    *out_y = y;
    return SL_OK;
}

static sl_status add_cache(sl_emit *emit, uint32_t *out_cache)
{
    sl_value cache = {
        .kind = SL_VALUE_PERSISTENT, .index = emit->layer, .type = emit->program->type};
    uint64_t rows = 2ull * emit->options->batch;
    snprintf(cache.name, sizeof cache.name, "h.%u.cache", emit->layer);
    SL_TRY(sl_bits_multiply(rows, emit->shape->context, cache.name, &rows));
    uint64_t row_bytes = emit->local_width * sl_type_bytes(cache.type);
    SL_TRY(sl_bits_multiply(rows, row_bytes, cache.name, &cache.bytes));
    return sl_program_add_value(emit->program, &cache, out_cache);
}

static sl_status emit_cached_attention(sl_emit *emit, uint32_t qkv, uint32_t *out_y)
{
    uint32_t cache, y;
    SL_TRY(add_cache(emit, &cache));
    SL_TRY(sl_emit_add_activation(emit, "attn", true, emit->local_width, &y));
    sl_op_attrs attrs = attention_attrs(emit);
    attrs.cache_rows = emit->shape->context;
    uint32_t operands[] = {qkv, cache, y};
    SL_TRY(sl_emit_add_op(emit, SL_OP_ATTENTION_CACHED, &attrs, operands, 3));
    *out_y = y;
    return SL_OK;
}

static sl_status emit_attention_half(sl_emit *emit)
{
    uint32_t x, qkv, mixed;
    SL_TRY(sl_block_emit_norm(emit, "ln_1", true, &x));
    sl_linear_args enter = {.name = "attn.c_attn",
                            .in = emit->width,
                            .out = 3 * emit->width,
                            .split = SL_SPLIT_QKV,
                            .deviation = weight_deviation,
                            .x = x,
                            .residual = SL_NONE};
    SL_TRY(sl_linear_emit(emit, &enter, &qkv));
    if (emit->options->mode == SL_GPT2_CACHED)
        SL_TRY(emit_cached_attention(emit, qkv, &mixed));
    else
        SL_TRY(emit_attention(emit, qkv, &mixed));
    sl_linear_args leave = {.name = "attn.c_proj",
                            .in = emit->width,
                            .out = emit->width,
                            .split = SL_SPLIT_ROWS,
                            .deviation = residual_deviation(emit),
                            .x = mixed,
                            .residual = emit->stream};
    return sl_linear_emit(emit, &leave, &emit->stream);
}

static sl_status emit_gelu(sl_emit *emit, uint32_t x, uint64_t features, uint32_t *out_y)
{
    SL_TRY(sl_emit_add_activation(emit, "mlp.gelu", true, features, out_y));
    sl_op_attrs attrs = {.element_count = emit->rows * features};
    uint32_t operands[] = {x, *out_y};
    return sl_emit_add_op(emit, SL_OP_GELU, &attrs, operands, 2);
}

static sl_status emit_mlp_half(sl_emit *emit)
{
    uint32_t x, wide, active;
    SL_TRY(sl_block_emit_norm(emit, "ln_2", true, &x));
    sl_linear_args enter = {.name = "mlp.c_fc",
                            .in = emit->width,
                            .out = 4 * emit->width,
                            .split = SL_SPLIT_COLUMNS,
                            .deviation = weight_deviation,
                            .x = x,
                            .residual = SL_NONE};
    SL_TRY(sl_linear_emit(emit, &enter, &wide));
    SL_TRY(emit_gelu(emit, wide, 4 * emit->local_width, &active));
    sl_linear_args leave = {.name = "mlp.c_proj",
                            .in = 4 * emit->width,
                            .out = emit->width,
                            .split = SL_SPLIT_ROWS,
                            .deviation = residual_deviation(emit),
                            .x = active,
                            .residual = emit->stream};
    return sl_linear_emit(emit, &leave, &emit->stream);
}

sl_status sl_block_emit(sl_emit *emit)
{
    sl_segment segment = {.site = emit->program->segment_count, .is_block = true};
    SL_TRY(sl_program_add_segment(emit->program, &segment));
    SL_TRY(emit_attention_half(emit));
    return emit_mlp_half(emit);
}
