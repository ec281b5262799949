/* The tensor-parallel linear, that of Megatron-LM (Shoeybi et al. 2019).
 *
 * Forward, a column-parallel linear needs no exchange, and a row-parallel one sums terms over the
 * ranks. Backward it is the other way round; automatic differentiation knows from the weight's
 * split that dx is a term of a sum. All ranks emit the same ops, so that the gradient rules hold on
 * every rank. In a row-parallel linear only rank 0 adds the bias (attrs.rank_index), so that the
 * sum contains it once. The residual is added to the sum: in a term it would lose bits, because
 * terms are rounded before they are sent.
 *
 * Adapters (lora.h) are two linears more: dropout(x) A, whose few features are scaled, and the
 * product of those with B, which adds the base layer's product as its residual. B is split as W's
 * columns are, A as W's rows; the other one is whole on each rank, and its gradient is a sum over
 * the ranks. In a row-parallel layer each rank adds its term of x A B to its term of x W, so no
 * more is exchanged than without adapters.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/sized.h"
#include "base/status.h"
#include "build.h"

/* Old programs pass 32 bytes, of which those behind `deviation` are padding. */
_Static_assert(offsetof(sl_linear_spec, no_bias) == 32, "no_bias lies behind the old sizeof");

/* A linear on this rank. */
typedef struct local_linear {
    const char *name;
    const sl_linear_spec *spec;
    uint64_t in, out;            /* of this rank */
    uint64_t whole_in;           /* of all ranks together */
    uint64_t split_whole;        /* of the split axis, on all ranks; QKV: of q, k and v each */
    uint32_t replicas;           /* ranks that compute the same features of y; 0: one */
    bool is_summed, is_gathered; /* y is a term of a sum over the ranks; y is gathered from them */
    sl_split split;
    const sl_lora *lora;   /* its adapters; NULL: none */
    uint32_t dropout_site; /* of them */
} local_linear;

static sl_split find_split(sl_parallel parallel)
{
    static const sl_split splits[] = {[SL_COLUMNS] = SL_SPLIT_COLUMNS,
                                      [SL_QKV] = SL_SPLIT_QKV,
                                      [SL_ROWS] = SL_SPLIT_ROWS,
                                      [SL_GATHERED] = SL_SPLIT_COLUMNS};
    return splits[parallel];
}

/* With fewer heads than ranks, each head is on equally many consecutive ranks. */
static sl_status share_heads(const sl_model *model, const char *name, const sl_linear_spec *spec,
                             local_linear *out)
{
    const uint32_t tp_size = model->options->tp_size;
    if (!spec->shares_heads || spec->column_heads == 0 || spec->column_heads >= tp_size)
        return SL_OK;
    if (tp_size % spec->column_heads != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: %u tensor-parallel ranks cannot share %llu heads: their number has to be a "
                "multiple of the heads",
                name, tp_size, (unsigned long long)spec->column_heads);
    out->replicas = tp_size / (uint32_t)spec->column_heads;
    return SL_OK;
}

static sl_status find_local_linear(const sl_model *model, const char *name,
                                   const sl_linear_spec *spec, const sl_model_tensor *x,
                                   local_linear *out)
{
    const uint32_t tp_size = model->options->tp_size;
    *out = (local_linear){.name = name,
                          .spec = spec,
                          .in = x->local,
                          .out = spec->out,
                          .whole_in = x->features,
                          .split_whole = spec->out,
                          .split = find_split(spec->parallel)};
    if (spec->out == 0 || (unsigned)spec->parallel > SL_GATHERED)
        SL_FAIL(SL_ERROR_USAGE, "%s: a linear of %llu features, parallel %d", name,
                (unsigned long long)spec->out, (int)spec->parallel);
    if (spec->parallel == SL_COLUMNS && spec->column_heads > 0 &&
        spec->out % spec->column_heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu features are not whole heads, %llu of them", name,
                (unsigned long long)spec->out, (unsigned long long)spec->column_heads);
    switch (spec->parallel) {
    case SL_QKV:
        if (spec->heads == 0 || spec->out % (3 * spec->heads) != 0)
            SL_FAIL(SL_ERROR_USAGE, "%s: %llu features are not q, k and v of %llu heads", name,
                    (unsigned long long)spec->out, (unsigned long long)spec->heads);
        out->split_whole = spec->out / 3;
        out->out = 3 * sl_bits_divide_up(spec->heads, tp_size) * (out->split_whole / spec->heads);
        break;
    case SL_ROWS:
        out->split_whole = x->features;
        out->is_summed = tp_size > 1;
        break;
    case SL_GATHERED:
        out->is_gathered = tp_size > 1;
        out->out = sl_model_share(model, spec->out);
        break;
    case SL_COLUMNS:
        out->out = spec->column_heads == 0 ? sl_model_share(model, spec->out)
                                           : sl_bits_divide_up(spec->column_heads, tp_size) *
                                                 (spec->out / spec->column_heads);
        return share_heads(model, name, spec, out);
    }
    return SL_OK;
}

static sl_status add_linear_parameters(sl_model *model, const local_linear *it,
                                       uint32_t *out_weight, uint32_t *out_bias)
{
    const sl_layer_tensor weight = {it->name,
                                    "weight",
                                    .rows = it->in,
                                    .columns = it->out,
                                    .whole_rows = it->whole_in,
                                    .whole_columns = it->spec->out,
                                    .split = it->split,
                                    .split_whole = it->split_whole,
                                    .replicas = it->replicas,
                                    .deviation = sl_model_deviation(it->spec->deviation)};
    /* A vector's only axis is its last one, so it is split by columns. */
    const sl_layer_tensor bias = {it->name,
                                  "bias",
                                  .rows = it->out,
                                  .whole_rows = it->spec->out,
                                  .split = it->split == SL_SPLIT_ROWS ? SL_SPLIT_NONE : it->split,
                                  .split_whole = it->split_whole,
                                  .replicas = it->replicas};
    *out_bias = SL_NONE;
    SL_TRY(sl_layer_add_tensor(model, &weight, out_weight));
    return it->spec->no_bias ? SL_OK : sl_layer_add_tensor(model, &bias, out_bias);
}

/* Sums the terms y over the ranks: in place, or this rank's rows into a new value. */
static sl_status sum_over_ranks(sl_model *model, const local_linear *it, uint32_t *y)
{
    const sl_op_attrs attrs = {.element_count = model->hidden_rows * it->out};
    if (sl_model_splits_rows(model))
        return sl_layer_scatter_rows(model, it->name, *y, it->out, y);
    return sl_layer_add_op(model, SL_OP_ALL_REDUCE, &attrs, y, 1);
}

/* What stands behind the name of the product, if the sum or the gathered columns have the linear's
 * name. */
static const char *find_note(const sl_model *model, const local_linear *it)
{
    if (it->is_summed && sl_model_splits_rows(model))
        return ".terms";
    return it->is_gathered ? ".part" : "";
}

/* Combines the ranks' results. */
static sl_status join_ranks(sl_model *model, const local_linear *it, uint32_t *y)
{
    if (it->is_summed)
        SL_TRY(sum_over_ranks(model, it, y));
    if (!it->is_gathered)
        return SL_OK;
    sl_model_tensor part = sl_layer_describe(it->name, it->spec->out);
    part.value = *y;
    part.local = it->out;
    return sl_layer_gather_columns(model, &part, "", y);
}

/* ---- adapters ---- */

/* The adapters of the layer, by its whole name, and the places where their elements are dropped: a
 * row-parallel layer has one on each rank, whose features are others. */
static sl_status find_adapters(sl_model *model, local_linear *it)
{
    char whole_name[(size_t)2 * SL_MODEL_NAME_BYTES + sizeof(((sl_tensor_spec *)NULL)->name)];
    const sl_lora *lora = model->options->lora;
    snprintf(whole_name, sizeof whole_name, "%s%s", model->prefix, it->name);
    if (lora == NULL || !sl_lora_adapts(lora, whole_name))
        return SL_OK;
    const uint32_t sites = it->is_summed ? model->options->tp_size : 1;
    it->lora = lora;
    it->dropout_site = sl_model_number_site(model) + model->options->tp_rank % sites;
    for (uint32_t i = 1; i < sites; i++)
        sl_model_number_site(model);
    return SL_OK;
}

static sl_status add_adapter_a(sl_model *model, const local_linear *it, uint32_t *out_a)
{
    const bool is_by_rows = it->split == SL_SPLIT_ROWS;
    const sl_layer_tensor a = {it->name,
                               SL_LORA_A,
                               .rows = it->in,
                               .columns = it->lora->rank,
                               .whole_rows = it->whole_in,
                               .split = is_by_rows ? SL_SPLIT_ROWS : SL_SPLIT_NONE,
                               .split_whole = it->split_whole,
                               .bound = (float)(1 / sqrt((double)it->whole_in)),
                               .is_adapter = true};
    return sl_layer_add_tensor(model, &a, out_a);
}

static sl_status add_adapter_b(sl_model *model, const local_linear *it, uint32_t *out_b)
{
    const sl_layer_tensor b = {it->name,
                               SL_LORA_B,
                               .rows = it->lora->rank,
                               .columns = it->out,
                               .whole_columns = it->spec->out,
                               .split = it->split == SL_SPLIT_ROWS ? SL_SPLIT_NONE : it->split,
                               .split_whole = it->split_whole,
                               .replicas = it->replicas,
                               .is_adapter = true};
    return sl_layer_add_tensor(model, &b, out_b);
}

static sl_status drop_input(sl_model *model, const local_linear *it, uint32_t *x)
{
    const sl_model_options *options = model->options;
    const sl_op_attrs attrs = {.batch = options->batch,
                               .seq = options->seq,
                               .in = it->in,
                               .row_count = options->batch,
                               .dropout = options->lora_dropout,
                               .dropout_site = it->dropout_site};
    uint32_t y;
    if (options->lora_dropout == 0)
        return SL_OK;
    SL_TRY(sl_layer_add_activation(model, it->name, ".lora_dropout", model->program->type, it->in,
                                   &y));
    SL_TRY(sl_layer_add_op(model, SL_OP_DROPOUT, &attrs, (uint32_t[]){*x, SL_NONE, y}, 3));
    *x = y;
    return SL_OK;
}

static sl_status scale_hidden(sl_model *model, const local_linear *it, uint32_t *hidden)
{
    const sl_op_attrs attrs = {.element_count = model->rows * it->lora->rank,
                               .scale = (float)(it->lora->alpha / it->lora->rank)};
    uint32_t y;
    if (attrs.scale == 1)
        return SL_OK;
    SL_TRY(sl_layer_add_activation(model, it->name, ".lora_scaled", model->program->type,
                                   it->lora->rank, &y));
    SL_TRY(sl_layer_add_op(model, SL_OP_SCALE, &attrs, (uint32_t[]){*hidden, y}, 2));
    *hidden = y;
    return SL_OK;
}

/* alpha / rank * dropout(x) A. */
static sl_status emit_adapter_a(sl_model *model, const local_linear *it, uint32_t x,
                                uint32_t *out_hidden)
{
    const sl_op_attrs attrs = {.row_count = model->rows, .in = it->in, .out = it->lora->rank};
    uint32_t a;
    SL_TRY(drop_input(model, it, &x));
    SL_TRY(add_adapter_a(model, it, &a));
    SL_TRY(sl_layer_add_activation(model, it->name, ".lora", model->program->type, it->lora->rank,
                                   out_hidden));
    const uint32_t operands[] = {x, a, SL_NONE, SL_NONE, *out_hidden};
    SL_TRY(sl_layer_add_op(model, SL_OP_LINEAR, &attrs, operands, 5));
    return scale_hidden(model, it, out_hidden);
}

/* The layer's product and hidden B; each rank adds its own term. */
static sl_status emit_adapter_b(sl_model *model, const local_linear *it, uint32_t hidden,
                                uint32_t *y)
{
    const sl_op_attrs attrs = {.row_count = model->rows, .in = it->lora->rank, .out = it->out};
    uint32_t b, sum;
    SL_TRY(add_adapter_b(model, it, &b));
    SL_TRY(sl_layer_add_activation(model, it->name, find_note(model, it), model->program->type,
                                   it->out, &sum));
    const uint32_t operands[] = {hidden, b, SL_NONE, *y, sum};
    SL_TRY(sl_layer_add_op(model, SL_OP_LINEAR, &attrs, operands, 5));
    *y = sum;
    return SL_OK;
}

/* ---- the layer ---- */

static sl_status emit_product(sl_model *model, const local_linear *it, uint32_t x, uint32_t *out_y)
{
    const char *note = it->lora ? ".base" : find_note(model, it);
    uint32_t weight, bias;
    SL_TRY(add_linear_parameters(model, it, &weight, &bias));
    SL_TRY(sl_layer_add_activation(model, it->name, note, model->program->type, it->out, out_y));
    const sl_op_attrs attrs = {.row_count = model->rows,
                               .in = it->in,
                               .out = it->out,
                               .rank_index = it->is_summed ? (uint16_t)model->options->tp_rank : 0};
    const uint32_t operands[] = {x, weight, bias, SL_NONE, *out_y};
    return sl_layer_add_op(model, SL_OP_LINEAR, &attrs, operands, 5);
}

/* A before the product: then, backward, the product's gradient of x comes before that of A. */
static sl_status emit_linear(sl_model *model, const local_linear *it, uint32_t x,
                             sl_model_tensor *made)
{
    uint32_t hidden = SL_NONE;
    SL_TRY(sl_model_open_segment(model));
    if (it->lora)
        SL_TRY(emit_adapter_a(model, it, x, &hidden));
    SL_TRY(emit_product(model, it, x, &made->value));
    if (it->lora)
        SL_TRY(emit_adapter_b(model, it, hidden, &made->value));
    return join_ranks(model, it, &made->value);
}

/* Only a linear that is split by rows takes features as they are divided. */
static sl_status gather_features(sl_model *model, sl_model_tensor *x)
{
    if (x->local == x->features || !sl_model_is_here(model))
        return SL_OK;
    SL_TRY(sl_layer_gather_columns(model, x, ".all", &x->value));
    x->local = x->features;
    return SL_OK;
}

static sl_status make_linear(sl_model *model, const char *name, sl_tensor x,
                             const sl_linear_spec *spec, sl_model_tensor *made)
{
    sl_model_tensor from;
    local_linear it;
    SL_TRY(sl_layer_use_rows(model, x, &from));
    if (spec->parallel != SL_ROWS)
        SL_TRY(gather_features(model, &from));
    SL_TRY(find_local_linear(model, name, spec, &from, &it));
    SL_TRY(find_adapters(model, &it));
    *made = sl_layer_describe(name, spec->out);
    made->may_take = true;
    if (!it.is_gathered)
        made->local = it.out;
    made->is_shared = it.replicas > 1;
    return sl_model_is_here(model) ? emit_linear(model, &it, from.value, made) : SL_OK;
}

sl_tensor sl_linear_sized(sl_model *model, const char *name, sl_tensor x,
                          const sl_linear_spec *spec, size_t bytes)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_linear_spec known;
    sl_status status = sl_sized_take("sl_linear_spec", spec, bytes, &known, sizeof known);
    if (status == SL_OK)
        status = make_linear(model, name, x, &known, &made);
    return sl_model_return(model, status, &made);
}
