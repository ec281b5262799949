/* Norm, linear, attention, GELU and dropout as forward ops, with their parameters and activations.
 *
 * The tensor-parallel linear is that of Megatron-LM (Shoeybi et al. 2019): forward, a
 * column-parallel linear needs no exchange, and a row-parallel one sums terms over the ranks.
 * Backward it is the other way round; automatic differentiation knows from the weight's split that
 * dx is a term of a sum. All ranks emit the same ops, so that the gradient rules hold on every
 * rank. In a row-parallel linear only rank 0 adds the bias (attrs.rank_index), so that the sum
 * contains it once. The residual is added to the sum: in a term it would lose bits, because terms
 * are rounded before they are sent.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/sized.h"
#include "base/status.h"
#include "build.h"

/* A tensor made by layer `name`, with all features on each rank; its value is not made yet. */
static sl_model_tensor describe(const char *name, uint64_t features)
{
    sl_model_tensor made = {.value = SL_NONE, .features = features, .local = features};
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

/* A layer over all features: a rank that has some of them cannot compute it. */
static sl_status check_whole(const char *name, const sl_model_tensor *x)
{
    if (x->local != x->features)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: each rank has only some features of %s; a linear split by rows comes between",
                name, x->name);
    return SL_OK;
}

/* ---- norm ---- */

static sl_status emit_norm(sl_model *model, const char *name, const sl_model_tensor *x,
                           sl_model_tensor *made)
{
    enum { MOMENTS_A_ROW = 2 };
    const uint64_t width = x->features;
    const sl_layer_tensor gamma_tensor = {name, "weight", .rows = width, .mean = 1.0f};
    const sl_layer_tensor beta_tensor = {name, "bias", .rows = width};
    const sl_op_attrs attrs = {.batch = model->options->batch,
                               .seq = model->options->seq,
                               .in = width,
                               .row_count = sl_layer_count_rows(model, x)};
    uint32_t gamma, beta, y, stats;
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_layer_add_tensor(model, &gamma_tensor, &gamma));
    SL_TRY(sl_layer_add_tensor(model, &beta_tensor, &beta));
    SL_TRY(sl_layer_add_alike(model, x, name, "", width, &y));
    SL_TRY((attrs.row_count == model->rows ? sl_layer_add_activation : sl_layer_add_hidden)(
        model, name, ".stats", SL_TYPE_FP32, MOMENTS_A_ROW, &stats));
    const uint32_t operands[] = {x->value, gamma, beta, y, stats};
    made->value = y;
    return sl_layer_add_op(model, SL_OP_LAYERNORM, &attrs, operands, 5);
}

static sl_status make_norm(sl_model *model, const char *name, sl_tensor x, sl_model_tensor *made)
{
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    SL_TRY(check_whole(name, &from));
    *made = describe(name, from.features);
    return sl_model_is_here(model) ? emit_norm(model, name, &from, made) : SL_OK;
}

sl_tensor sl_norm(sl_model *model, const char *name, sl_tensor x)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_norm(model, name, x, &made);
    return sl_model_return(model, status, &made);
}

/* ---- linear ---- */

/* A linear on this rank. */
typedef struct local_linear {
    const char *name;
    const sl_linear_spec *spec;
    uint64_t in, out;            /* of this rank */
    uint64_t whole_in;           /* of all ranks together */
    uint64_t split_whole;        /* of the split axis, on all ranks; QKV: of q, k and v each */
    bool is_summed, is_gathered; /* y is a term of a sum over the ranks; y is gathered from them */
    sl_split split;
} local_linear;

static sl_split find_split(sl_parallel parallel)
{
    static const sl_split splits[] = {[SL_COLUMNS] = SL_SPLIT_COLUMNS,
                                      [SL_QKV] = SL_SPLIT_QKV,
                                      [SL_ROWS] = SL_SPLIT_ROWS,
                                      [SL_GATHERED] = SL_SPLIT_COLUMNS};
    return splits[parallel];
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
        out->out = sl_model_share(model, spec->out);
        break;
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
                                    .deviation = sl_model_deviation(it->spec->deviation)};
    /* A vector's only axis is its last one, so it is split by columns. */
    const sl_layer_tensor bias = {it->name,
                                  "bias",
                                  .rows = it->out,
                                  .whole_rows = it->spec->out,
                                  .split = it->split == SL_SPLIT_ROWS ? SL_SPLIT_NONE : it->split,
                                  .split_whole = it->split_whole};
    SL_TRY(sl_layer_add_tensor(model, &weight, out_weight));
    return sl_layer_add_tensor(model, &bias, out_bias);
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
    sl_model_tensor part = describe(it->name, it->spec->out);
    part.value = *y;
    part.local = it->out;
    return sl_layer_gather_columns(model, &part, "", y);
}

static sl_status emit_linear(sl_model *model, const local_linear *it, uint32_t x,
                             sl_model_tensor *made)
{
    uint32_t weight, bias;
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(add_linear_parameters(model, it, &weight, &bias));
    SL_TRY(sl_layer_add_activation(model, it->name, find_note(model, it), model->program->type,
                                   it->out, &made->value));
    const sl_op_attrs attrs = {.row_count = model->rows,
                               .in = it->in,
                               .out = it->out,
                               .rank_index = it->is_summed ? (uint16_t)model->options->tp_rank : 0};
    const uint32_t operands[] = {x, weight, bias, SL_NONE, made->value};
    SL_TRY(sl_layer_add_op(model, SL_OP_LINEAR, &attrs, operands, 5));
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
    *made = describe(name, spec->out);
    made->is_product = true;
    if (!it.is_gathered)
        made->local = it.out;
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

/* ---- attention ---- */

/* Limits of the counters that number dropout's random draws (kernels/dropout.h). */
enum { DROPOUT_SEQ_MAX = 1 << 20, DROPOUT_HEADS_MAX = 1 << 12 };

static sl_status add_cache(sl_model *model, uint32_t index, uint64_t local_width,
                           uint32_t *out_cache)
{
    sl_value cache = {.kind = SL_VALUE_PERSISTENT, .index = index, .type = model->program->type};
    uint64_t rows = 2ull * model->options->batch; /* keys and values */
    snprintf(cache.name, sizeof cache.name, "%.20scache", model->prefix);
    SL_TRY(sl_bits_multiply(rows, model->cache_rows, cache.name, &rows));
    return sl_layer_add_rows(model, &cache, rows, local_width, out_cache);
}

/* Each rank draws for its own heads: the first one is number tp_rank * heads. */
static sl_status set_dropout(const sl_model *model, uint32_t site, sl_op_attrs *attrs)
{
    attrs->dropout = model->options->dropout;
    if (attrs->dropout == 0)
        return SL_OK;
    if (attrs->seq > DROPOUT_SEQ_MAX || attrs->heads * model->options->tp_size > DROPOUT_HEADS_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "dropout takes rows of at most %u tokens and %u heads, not %llu and %llu",
                DROPOUT_SEQ_MAX, DROPOUT_HEADS_MAX, (unsigned long long)attrs->seq,
                (unsigned long long)(attrs->heads * model->options->tp_size));
    attrs->dropout_site = site;
    attrs->rank_index = (uint16_t)model->options->tp_rank;
    return SL_OK;
}

static sl_status emit_cached_attention(sl_model *model, const char *name, sl_op_attrs attrs,
                                       uint32_t index, const sl_model_tensor *qkv,
                                       sl_model_tensor *made)
{
    uint32_t cache;
    attrs.cache_rows = model->cache_rows;
    SL_TRY(add_cache(model, index, attrs.in, &cache));
    SL_TRY(sl_layer_add_activation(model, name, "", model->program->type, attrs.in, &made->value));
    const uint32_t operands[] = {qkv->value, cache, made->value};
    return sl_layer_add_op(model, SL_OP_ATTENTION_CACHED, &attrs, operands, 3);
}

static sl_status emit_attention(sl_model *model, const char *name, sl_op_attrs attrs, uint32_t site,
                                const sl_model_tensor *qkv, sl_model_tensor *made)
{
    uint32_t lse;
    SL_TRY(sl_layer_add_activation(model, name, "", model->program->type, attrs.in, &made->value));
    SL_TRY(sl_layer_add_activation(model, name, ".lse", SL_TYPE_FP32, attrs.heads, &lse));
    SL_TRY(set_dropout(model, site, &attrs));
    const uint32_t operands[] = {qkv->value, made->value, lse, model->positions};
    return sl_layer_add_op(model, SL_OP_ATTENTION, &attrs, operands, 4);
}

static sl_status make_attention(sl_model *model, const char *name, sl_tensor x, uint64_t heads,
                                sl_model_tensor *made)
{
    const uint32_t site = sl_model_number_site(model), index = model->attention_count++;
    sl_model_tensor qkv;
    SL_TRY(sl_model_use(model, x, &qkv));
    if (heads == 0 || qkv.features % (3 * heads) != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu features are not q, k and v of %llu heads", name,
                (unsigned long long)qkv.features, (unsigned long long)heads);
    *made = describe(name, qkv.features / 3);
    made->local = qkv.local / 3;
    if (!sl_model_is_here(model))
        return SL_OK;
    const sl_op_attrs attrs = {.batch = model->options->batch,
                               .seq = model->options->seq,
                               .in = made->local,
                               .out = made->local, /* as many key heads as query heads */
                               .heads = made->local / (made->features / heads)};
    SL_TRY(sl_model_open_segment(model));
    return model->options->mode == SL_MODEL_CACHED
               ? emit_cached_attention(model, name, attrs, index, &qkv, made)
               : emit_attention(model, name, attrs, site, &qkv, made);
}

sl_tensor sl_attention(sl_model *model, const char *name, sl_tensor qkv, uint64_t heads)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_attention(model, name, qkv, heads, &made);
    return sl_model_return(model, status, &made);
}

/* ---- GELU ---- */

static sl_status make_gelu(sl_model *model, const char *name, sl_tensor x, sl_model_tensor *made)
{
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    *made = describe(name, from.features);
    made->local = from.local;
    if (!sl_model_is_here(model))
        return SL_OK;
    const sl_op_attrs attrs = {.element_count = sl_layer_count_rows(model, &from) * from.local};
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_layer_add_alike(model, &from, name, "", from.local, &made->value));
    return sl_layer_add_op(model, SL_OP_GELU, &attrs, (uint32_t[]){from.value, made->value}, 2);
}

sl_tensor sl_gelu(sl_model *model, const char *name, sl_tensor x)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_gelu(model, name, x, &made);
    return sl_model_return(model, status, &made);
}

/* ---- dropout, and the residual ---- */

static sl_status emit_dropout(sl_model *model, const char *name, uint32_t x, uint32_t residual,
                              uint32_t site, sl_model_tensor *made)
{
    const uint64_t batch = model->hidden_rows / model->options->seq;
    const sl_op_attrs attrs = {.batch = batch,
                               .seq = model->options->seq,
                               .in = made->features,
                               .first_row = model->options->tp_rank * batch % model->options->batch,
                               .row_count = model->options->batch,
                               .dropout = model->options->dropout,
                               .dropout_site = site};
    SL_TRY(
        sl_layer_add_hidden(model, name, "", model->program->type, made->features, &made->value));
    return sl_layer_add_op(model, SL_OP_DROPOUT, &attrs, (uint32_t[]){x, residual, made->value}, 3);
}

/* A linear adds the residual itself, if its product is y as it is. */
static sl_status add_residual(sl_model *model, uint32_t y, uint32_t residual, uint64_t features)
{
    enum { RESIDUAL = 3, Y = 4 };
    sl_op *last = &model->program->ops[model->program->op_count - 1];
    const sl_op_attrs attrs = {.element_count = model->hidden_rows * features};
    if (last->kind == SL_OP_LINEAR && last->operand[Y] == y && last->operand[RESIDUAL] == SL_NONE) {
        last->operand[RESIDUAL] = residual;
        return SL_OK;
    }
    return sl_layer_add_op(model, SL_OP_ADD, &attrs, (uint32_t[]){residual, y}, 2);
}

static sl_status make_dropout(sl_model *model, const char *name, sl_tensor x, sl_model_tensor *made)
{
    const uint32_t site = sl_model_number_site(model);
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    SL_TRY(check_whole(name, &from));
    *made = describe(name, from.features);
    made->value = from.value;
    if (!sl_model_is_here(model) || model->options->dropout == 0)
        return SL_OK;
    SL_TRY(sl_model_open_segment(model));
    return emit_dropout(model, name, from.value, SL_NONE, site, made);
}

sl_tensor sl_drop(sl_model *model, const char *name, sl_tensor x)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_dropout(model, name, x, &made);
    return sl_model_return(model, status, &made);
}

/* The sum takes the memory of x, as it was before this layer read it. */
static sl_status take_product(sl_model *model, const char *name, sl_tensor x,
                              const sl_model_tensor *before)
{
    if (!before->is_product)
        SL_FAIL(SL_ERROR_USAGE, "%s: %s is not made by sl_linear: the sum takes its memory", name,
                before->name);
    if (before->is_read)
        SL_FAIL(SL_ERROR_USAGE, "%s: another layer reads %s, whose memory the sum takes", name,
                before->name);
    model->tensors[x.index].is_taken = true;
    return SL_OK;
}

static sl_status make_drop_add(sl_model *model, const char *name, sl_tensor x, sl_tensor residual,
                               sl_model_tensor *made)
{
    const uint32_t site = sl_model_number_site(model);
    sl_model_tensor from, beside;
    SL_TRY(sl_model_use(model, x, &from));
    SL_TRY(sl_model_use(model, residual, &beside));
    SL_TRY(check_whole(name, &from));
    SL_TRY(check_whole(name, &beside));
    if (from.features != beside.features)
        SL_FAIL(SL_ERROR_USAGE, "%s: %s has %llu features, the residual %llu", name, from.name,
                (unsigned long long)from.features, (unsigned long long)beside.features);
    SL_TRY(take_product(model, name, x, &from));
    if (x.index == residual.index)
        SL_FAIL(SL_ERROR_USAGE, "%s: %s is added to itself", name, from.name);
    *made = describe(name, from.features);
    made->value = from.value;
    if (!sl_model_is_here(model))
        return SL_OK;
    SL_TRY(sl_model_open_segment(model));
    if (model->options->dropout > 0)
        return emit_dropout(model, name, from.value, beside.value, site, made);
    return add_residual(model, from.value, beside.value, made->features);
}

sl_tensor sl_drop_add(sl_model *model, const char *name, sl_tensor x, sl_tensor residual)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_drop_add(model, name, x, residual, &made);
    return sl_model_return(model, status, &made);
}
