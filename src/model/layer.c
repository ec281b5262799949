/* Linear, norm, attention and GELU as forward ops, with their parameters and activations.
 *
 * The tensor-parallel linear is that of Megatron-LM (Shoeybi et al. 2019): forward, a
 * column-parallel linear needs no exchange, and a row-parallel one sums terms over the ranks.
 * Backward it is the other way round; automatic differentiation knows from the weight's split that
 * dx is a term of a sum. All ranks emit the same ops, so that the gradient rules hold on every
 * rank. In a row-parallel linear only rank 0 adds the bias (attrs.rank_index), so that the sum
 * contains it once. The residual is added to the sum: in a term it would lose bits, because terms
 * are rounded before they are sent.
 *
 * Features that do not divide by the ranks are padded: every rank has equally many, and those
 * beyond the whole tensor are zero. They stay zero because their gradients are: a head of zeros has
 * zero values, so its output is zero, and so is the gradient of the rows of the next linear that
 * the output multiplies.
 */
#include "layer.h"

#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"

enum { NAME_BYTES = 32 };

/* ---- what a program is given ---- */

/* Names of tensors and values are short, and layers have at most 5 digits: no name is cut. */
static void write_name(const sl_emit *emit, const char *name, size_t bytes, char *out_name)
{
    if (emit->layer == SL_NONE)
        snprintf(out_name, bytes, "%s", name);
    else
        snprintf(out_name, bytes, "h.%u.%s", emit->layer, name);
}

/* Sets this rank's range of the split axis, without the padding at its end. */
static void set_local_range(const sl_emit *emit, const sl_layer_tensor *tensor,
                            sl_tensor_spec *spec)
{
    const bool is_matrix = tensor->columns != 0;
    uint64_t local_features =
        is_matrix && spec->split != SL_SPLIT_ROWS ? tensor->columns : tensor->rows;
    if (spec->split == SL_SPLIT_QKV)
        local_features /= 3;
    const uint64_t first =
        sl_bits_min(emit->options->tp_rank * local_features, tensor->split_whole);
    const uint64_t valid = sl_bits_min(local_features, tensor->split_whole - first);
    if (spec->split == SL_SPLIT_ROWS) {
        spec->first_row = first;
        spec->valid_rows = valid;
    } else {
        spec->first_column = first;
        spec->valid_columns = valid;
    }
}

sl_status sl_layer_add_tensor(sl_emit *emit, const sl_layer_tensor *tensor, uint32_t *out_value)
{
    bool is_matrix = tensor->columns != 0;
    uint64_t columns = is_matrix ? tensor->columns : 1;
    bool is_split = emit->options->tp_size > 1;
    sl_tensor_spec spec = {
        .dim_count = is_matrix ? 2 : 1,
        .shape = {tensor->rows, columns},
        .valid_rows = tensor->rows,
        .whole_shape = {tensor->whole_rows ? tensor->whole_rows : tensor->rows,
                        tensor->whole_columns ? tensor->whole_columns : columns},
        .split = is_split ? tensor->split : SL_SPLIT_NONE,
        .decay = is_matrix,
        .init_mean = tensor->mean,
        .init_deviation = tensor->deviation,
    };
    if (spec.split != SL_SPLIT_NONE)
        set_local_range(emit, tensor, &spec);
    write_name(emit, tensor->name, sizeof spec.name, spec.name);
    SL_TRY(sl_bits_multiply(tensor->rows, columns, spec.name, &spec.element_count));
    return sl_program_add_tensor(emit->program, &spec, out_value);
}

sl_status sl_layer_add_rows(sl_emit *emit, sl_value *value, uint64_t rows, uint64_t columns,
                            uint32_t *out_value)
{
    SL_TRY(sl_bits_multiply(rows, columns, value->name, &value->bytes));
    SL_TRY(sl_bits_multiply(value->bytes, sl_type_bytes(value->type), value->name, &value->bytes));
    return sl_program_add_value(emit->program, value, out_value);
}

static sl_status add_activation(sl_emit *emit, const char *name, sl_value value, uint64_t rows,
                                uint64_t elements, uint32_t *out_value)
{
    write_name(emit, name, sizeof value.name, value.name);
    return sl_layer_add_rows(emit, &value, rows, elements, out_value);
}

sl_status sl_layer_add_activation(sl_emit *emit, const char *name, sl_type type, uint64_t elements,
                                  uint32_t *out_value)
{
    const sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = type};
    return add_activation(emit, name, value, emit->rows, elements, out_value);
}

sl_status sl_layer_add_hidden(sl_emit *emit, const char *name, sl_type type, uint64_t elements,
                              uint32_t *out_value)
{
    const sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = type};
    return add_activation(emit, name, value, emit->hidden_rows, elements, out_value);
}

sl_status sl_layer_add_op(sl_emit *emit, sl_op_kind kind, const sl_op_attrs *attrs,
                          const uint32_t *operands, uint32_t operand_count)
{
    sl_op_attrs typed = *attrs;
    typed.type = (uint16_t)emit->program->type;
    return sl_program_add_op(emit->program, kind, &typed, operands, operand_count);
}

/* ---- rows of all ranks ---- */

static sl_op_attrs rows_attrs(const sl_emit *emit)
{
    return (sl_op_attrs){.batch = emit->options->batch,
                         .seq = emit->options->seq,
                         .in = emit->width,
                         .row_count = emit->hidden_rows};
}

/* Gathers the rows of all ranks; y is x if x has all rows. */
static sl_status gather_rows(sl_emit *emit, const char *name, uint32_t x, uint32_t *out_y)
{
    const sl_op_attrs attrs = rows_attrs(emit);
    uint32_t y = x;
    if (sl_layer_splits_rows(emit)) {
        SL_TRY(sl_layer_add_activation(emit, name, emit->program->type, emit->width, &y));
        SL_TRY(sl_layer_add_op(emit, SL_OP_GATHER_ROWS, &attrs, (uint32_t[]){x, y}, 2));
    }
    *out_y = y;
    return SL_OK;
}

sl_status sl_layer_scatter_rows(sl_emit *emit, const char *name, uint32_t terms, uint32_t *out_y)
{
    const sl_op_attrs attrs = rows_attrs(emit);
    SL_TRY(sl_layer_add_hidden(emit, name, emit->program->type, emit->width, out_y));
    return sl_layer_add_op(emit, SL_OP_SCATTER_ROWS, &attrs, (uint32_t[]){terms, *out_y}, 2);
}

/* ---- columns of all ranks ---- */

sl_status sl_layer_gather_columns(sl_emit *emit, const char *name, uint32_t x,
                                  uint64_t local_columns, uint32_t *out_y)
{
    const sl_op_attrs attrs = {.row_count = emit->rows, .in = emit->width, .out = local_columns};
    SL_TRY(sl_layer_add_activation(emit, name, emit->program->type, emit->width, out_y));
    return sl_layer_add_op(emit, SL_OP_GATHER_COLUMNS, &attrs, (uint32_t[]){x, *out_y}, 2);
}

/* ---- norm ---- */

sl_status sl_layer_norm(sl_emit *emit, const char *name, uint32_t *out_y)
{
    enum { MOMENTS_A_ROW = 2 };
    char weight[NAME_BYTES], bias[NAME_BYTES], moments[NAME_BYTES], all[NAME_BYTES];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    snprintf(moments, sizeof moments, "%s.stats", name);
    snprintf(all, sizeof all, "%s.all", name);
    const sl_layer_tensor gamma_tensor = {.name = weight, .rows = emit->width, .mean = 1.0f};
    const sl_layer_tensor beta_tensor = {.name = bias, .rows = emit->width};
    uint32_t gamma, beta, y, stats;
    SL_TRY(sl_layer_add_tensor(emit, &gamma_tensor, &gamma));
    SL_TRY(sl_layer_add_tensor(emit, &beta_tensor, &beta));
    SL_TRY(sl_layer_add_hidden(emit, name, emit->program->type, emit->width, &y));
    SL_TRY(sl_layer_add_hidden(emit, moments, SL_TYPE_FP32, MOMENTS_A_ROW, &stats));
    const sl_op_attrs attrs = rows_attrs(emit);
    const uint32_t operands[] = {emit->hidden, gamma, beta, y, stats};
    SL_TRY(sl_layer_add_op(emit, SL_OP_LAYERNORM, &attrs, operands, 5));
    return gather_rows(emit, all, y, out_y);
}

/* ---- linear ---- */

/* The sizes of a linear on this rank. */
typedef struct local_linear {
    uint64_t in, out;
    bool is_summed;   /* y is a term of a sum over the ranks */
    bool is_gathered; /* y is gathered from the ranks */
} local_linear;

static local_linear find_local_linear(const sl_emit *emit, const sl_linear_args *args)
{
    bool splits_rows = args->split == SL_SPLIT_ROWS;
    uint64_t columns =
        args->split == SL_SPLIT_QKV ? 3 * args->local_features : args->local_features;
    local_linear local = {.in = splits_rows ? args->local_features : args->in,
                          .out = splits_rows ? args->out : columns,
                          .is_summed = splits_rows && emit->options->tp_size > 1,
                          .is_gathered = args->is_gathered && emit->options->tp_size > 1};
    return local;
}

static sl_status add_linear_parameters(sl_emit *emit, const sl_linear_args *args,
                                       const local_linear *local, uint32_t *out_weight,
                                       uint32_t *out_bias)
{
    char name[NAME_BYTES];
    const uint64_t split_whole = args->split == SL_SPLIT_ROWS  ? args->in
                                 : args->split == SL_SPLIT_QKV ? args->out / 3
                                                               : args->out;
    snprintf(name, sizeof name, "%s.weight", args->name);
    const sl_layer_tensor weight = {.name = name,
                                    .rows = local->in,
                                    .columns = local->out,
                                    .whole_rows = args->in,
                                    .whole_columns = args->out,
                                    .split = args->split,
                                    .split_whole = split_whole,
                                    .deviation = args->deviation};
    SL_TRY(sl_layer_add_tensor(emit, &weight, out_weight));
    snprintf(name, sizeof name, "%s.bias", args->name);
    /* A vector's only axis is its last one, so it is split by columns. */
    const sl_layer_tensor bias = {.name = name,
                                  .rows = local->out,
                                  .whole_rows = args->out,
                                  .split =
                                      args->split == SL_SPLIT_ROWS ? SL_SPLIT_NONE : args->split,
                                  .split_whole = split_whole};
    return sl_layer_add_tensor(emit, &bias, out_bias);
}

static sl_status add_residual(sl_emit *emit, const sl_linear_args *args, uint32_t y)
{
    const sl_op_attrs attrs = {.element_count = emit->hidden_rows * args->out};
    const uint32_t operands[] = {args->residual, y};
    return args->residual == SL_NONE ? SL_OK
                                     : sl_layer_add_op(emit, SL_OP_ADD, &attrs, operands, 2);
}

/* Sums the terms y over the ranks: in place, or this rank's rows into a new value. */
static sl_status sum_over_ranks(sl_emit *emit, const sl_linear_args *args, uint32_t *y)
{
    const sl_op_attrs attrs = {.element_count = emit->hidden_rows * args->out};
    if (sl_layer_splits_rows(emit))
        return sl_layer_scatter_rows(emit, args->name, *y, y);
    return sl_layer_add_op(emit, SL_OP_ALL_REDUCE, &attrs, y, 1);
}

/* The name of the product, if the sum or the gathered columns have the linear's name. */
static void name_product(const sl_emit *emit, const sl_linear_args *args, const local_linear *local,
                         char out_name[NAME_BYTES])
{
    const char *note = "";
    if (local->is_summed && sl_layer_splits_rows(emit))
        note = ".terms";
    if (local->is_gathered)
        note = ".part";
    snprintf(out_name, NAME_BYTES, "%s%s", args->name, note);
}

/* Combines the ranks' results, then adds the residual. */
static sl_status join_ranks(sl_emit *emit, const sl_linear_args *args, const local_linear *local,
                            uint32_t *y)
{
    if (local->is_summed)
        SL_TRY(sum_over_ranks(emit, args, y));
    if (local->is_gathered)
        SL_TRY(sl_layer_gather_columns(emit, args->name, *y, local->out, y));
    return local->is_summed || local->is_gathered ? add_residual(emit, args, *y) : SL_OK;
}

sl_status sl_layer_linear(sl_emit *emit, const sl_linear_args *args, uint32_t *out_y)
{
    const local_linear local = find_local_linear(emit, args);
    const bool is_whole = !local.is_summed && !local.is_gathered;
    char product[NAME_BYTES];
    uint32_t weight, bias, y;
    name_product(emit, args, &local, product);
    SL_TRY(add_linear_parameters(emit, args, &local, &weight, &bias));
    SL_TRY(sl_layer_add_activation(emit, product, emit->program->type, local.out, &y));
    const sl_op_attrs attrs = {.row_count = emit->rows,
                               .in = local.in,
                               .out = local.out,
                               .rank_index =
                                   local.is_summed ? (uint16_t)emit->options->tp_rank : 0};
    const uint32_t operands[] = {args->x, weight, bias, is_whole ? args->residual : SL_NONE, y};
    SL_TRY(sl_layer_add_op(emit, SL_OP_LINEAR, &attrs, operands, 5));
    SL_TRY(join_ranks(emit, args, &local, &y));
    *out_y = y;
    return SL_OK;
}

/* ---- attention ---- */

static uint32_t count_cache_rows(const sl_emit *emit)
{
    return emit->options->cache_rows ? emit->options->cache_rows : emit->shape->context;
}

static sl_status add_cache(sl_emit *emit, uint32_t *out_cache)
{
    sl_value cache = {
        .kind = SL_VALUE_PERSISTENT, .index = emit->layer, .type = emit->program->type};
    uint64_t rows = 2ull * emit->options->batch; /* keys and values */
    write_name(emit, "cache", sizeof cache.name, cache.name);
    SL_TRY(sl_bits_multiply(rows, count_cache_rows(emit), cache.name, &rows));
    return sl_layer_add_rows(emit, &cache, rows, emit->local_width, out_cache);
}

static sl_status add_cached_attention(sl_emit *emit, const sl_op_attrs *attrs, uint32_t qkv,
                                      uint32_t *out_y)
{
    uint32_t cache, y;
    SL_TRY(add_cache(emit, &cache));
    SL_TRY(sl_layer_add_activation(emit, "attn", emit->program->type, emit->local_width, &y));
    const uint32_t operands[] = {qkv, cache, y};
    SL_TRY(sl_layer_add_op(emit, SL_OP_ATTENTION_CACHED, attrs, operands, 3));
    *out_y = y;
    return SL_OK;
}

/* A number that no other site of the model has. */
static uint32_t number_site(const sl_emit *emit, sl_layer_site site)
{
    return emit->layer == SL_NONE ? site : emit->layer * SL_LAYER_SITE_MLP + site;
}

/* Each rank draws for its own heads: the first one is number tp_rank * heads. */
static void set_dropout(const sl_emit *emit, sl_op_attrs *attrs)
{
    attrs->dropout = emit->options->dropout;
    if (attrs->dropout == 0)
        return;
    attrs->dropout_site = number_site(emit, SL_LAYER_SITE_WEIGHTS);
    attrs->rank_index = (uint16_t)emit->options->tp_rank;
}

sl_status sl_layer_attention(sl_emit *emit, uint32_t qkv, uint32_t *out_y)
{
    sl_op_attrs attrs = {.batch = emit->options->batch,
                         .seq = emit->options->seq,
                         .in = emit->local_width,
                         .heads = emit->local_heads};
    if (emit->options->mode == SL_GPT2_CACHED) {
        attrs.cache_rows = count_cache_rows(emit);
        return add_cached_attention(emit, &attrs, qkv, out_y);
    }
    uint32_t y, lse;
    SL_TRY(sl_layer_add_activation(emit, "attn", emit->program->type, emit->local_width, &y));
    SL_TRY(sl_layer_add_activation(emit, "attn.lse", SL_TYPE_FP32, attrs.heads, &lse));
    set_dropout(emit, &attrs);
    const uint32_t operands[] = {qkv, y, lse, emit->positions};
    SL_TRY(sl_layer_add_op(emit, SL_OP_ATTENTION, &attrs, operands, 4));
    *out_y = y;
    return SL_OK;
}

/* ---- dropout ---- */

sl_status sl_layer_dropout(sl_emit *emit, sl_layer_site site, uint32_t x, bool adds_hidden,
                           uint32_t *out_y)
{
    static const char *const names[] = {[SL_LAYER_SITE_EMBEDDING] = "embedding.dropout",
                                        [SL_LAYER_SITE_ATTENTION] = "attn.dropout",
                                        [SL_LAYER_SITE_MLP] = "mlp.dropout"};
    const uint64_t batch = emit->hidden_rows / emit->options->seq;
    const sl_op_attrs attrs = {.batch = batch,
                               .seq = emit->options->seq,
                               .in = emit->width,
                               .first_row = emit->options->tp_rank * batch % emit->options->batch,
                               .row_count = emit->options->batch,
                               .dropout = emit->options->dropout,
                               .dropout_site = number_site(emit, site)};
    uint32_t y = x;
    if (attrs.dropout > 0) {
        SL_TRY(sl_layer_add_hidden(emit, names[site], emit->program->type, emit->width, &y));
        const uint32_t operands[] = {x, adds_hidden ? emit->hidden : SL_NONE, y};
        SL_TRY(sl_layer_add_op(emit, SL_OP_DROPOUT, &attrs, operands, 3));
    }
    *out_y = y;
    return SL_OK;
}

/* ---- GELU ---- */

sl_status sl_layer_gelu(sl_emit *emit, uint32_t x, uint64_t features, uint32_t *out_y)
{
    SL_TRY(sl_layer_add_activation(emit, "mlp.gelu", emit->program->type, features, out_y));
    const sl_op_attrs attrs = {.element_count = emit->rows * features};
    const uint32_t operands[] = {x, *out_y};
    return sl_layer_add_op(emit, SL_OP_GELU, &attrs, operands, 2);
}
