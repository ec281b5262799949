/* A custom op as a layer: its weight, its output, its place in the program. Rows and features are
 * those that x has on this rank; ops on some rows of a micro-batch have gradients of their weight
 * that are terms of a sum (attrs.row_count), as a norm has. */
#include <math.h>
#include <stdio.h>

#include "base/sized.h"
#include "base/status.h"
#include "build.h"
#include "custom.h"

enum { INPUTS_MAX = 2 };

static sl_status check_op(const char *name, const sl_custom_op *op)
{
    const char *kind = op->name ? op->name : "";
    if (kind[0] == '\0' || op->forward == NULL || op->backward == NULL)
        SL_FAIL(SL_ERROR_USAGE, "%s: a custom op has a name, forward and backward", name);
    if (op->weight[0] == 0 && op->weight[1] != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: a weight of 0 rows", name);
    if (!isfinite(op->mean) || !isfinite(op->deviation) || !isfinite(op->seconds) ||
        op->deviation < 0 || op->seconds < 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: mean %g, deviation %g, seconds %g", name, (double)op->mean,
                (double)op->deviation, op->seconds);
    return SL_OK;
}

sl_status sl_custom_check_features(const char *name, const sl_custom_op *op, uint64_t features)
{
    const bool is_vector = op->weight[0] == features && op->weight[1] == 0;
    if (op->is_elementwise && op->out != 0 && op->out != features)
        SL_FAIL(SL_ERROR_USAGE, "%s: an elementwise op of %llu features gives %llu", name,
                (unsigned long long)features, (unsigned long long)op->out);
    if (op->is_elementwise && op->weight[0] != 0 && !is_vector)
        SL_FAIL(
            SL_ERROR_USAGE,
            "%s: the weight of an elementwise op of %llu features is {%llu, 0}, not {%llu, %llu}",
            name, (unsigned long long)features, (unsigned long long)features,
            (unsigned long long)op->weight[0], (unsigned long long)op->weight[1]);
    return SL_OK;
}

sl_status sl_custom_read(const char *name, const sl_custom_op *op, size_t bytes,
                         sl_custom_op *out_op)
{
    SL_TRY(sl_sized_take("sl_custom_op", op, bytes, out_op, sizeof *out_op));
    return check_op(name, out_op);
}

/* The op on this rank: what it is given. */
typedef struct local_custom {
    const char *name;
    const sl_custom_op *op;
    uint32_t inputs[INPUTS_MAX]; /* SL_NONE: absent */
    uint64_t features, in, out;  /* of x on all ranks together; of x and y on this one */
    uint64_t rows;               /* of x on this rank */
} local_custom;

static sl_status check_divided(const char *name, const sl_model_tensor *x, const sl_custom_op *op)
{
    if (x->local == x->features)
        return SL_OK;
    if (!op->is_elementwise)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: each rank has only some features of %s; a linear split by rows comes between, "
                "or the op is elementwise",
                name, x->name);
    if (x->features % x->local != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: the ranks do not divide the %llu features of %s", name,
                (unsigned long long)x->features, x->name);
    return SL_OK;
}

static sl_status add_weight(sl_model *model, const local_custom *it, uint32_t *out_weight)
{
    const sl_custom_op *op = it->op;
    const bool is_divided = it->in != it->features;
    const sl_layer_tensor weight = {it->name,
                                    "weight",
                                    .rows = is_divided ? it->in : op->weight[0],
                                    .columns = op->weight[1],
                                    .whole_rows = op->weight[0],
                                    .whole_columns = op->weight[1],
                                    .split = is_divided ? SL_SPLIT_COLUMNS : SL_SPLIT_NONE,
                                    .split_whole = it->features,
                                    .mean = op->mean,
                                    .deviation = op->deviation};
    *out_weight = SL_NONE;
    return op->weight[0] == 0 ? SL_OK : sl_layer_add_tensor(model, &weight, out_weight);
}

static sl_status emit_custom(sl_model *model, const local_custom *it, const sl_model_tensor *x,
                             uint32_t *out_y)
{
    uint32_t weight;
    sl_op_attrs attrs = {.batch = model->options->batch,
                         .seq = model->options->seq,
                         .in = it->in,
                         .out = it->out,
                         .row_count = it->rows,
                         .row_flops = it->op->flops,
                         .row_seconds = (float)it->op->seconds};
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_program_add_custom(model->program, it->op, &attrs.custom));
    SL_TRY(add_weight(model, it, &weight));
    SL_TRY(sl_layer_add_alike(model, x, it->name, "", it->out, out_y));
    if (weight != SL_NONE)
        attrs.element_count =
            model->program->tensors[model->program->values[weight].index].element_count;
    const uint32_t operands[] = {it->inputs[0], it->inputs[1], weight, *out_y};
    return sl_layer_add_op(model, SL_OP_CUSTOM, &attrs, operands, 4);
}

static sl_status make_custom(sl_model *model, local_custom *it, const sl_tensor *inputs,
                             uint32_t input_count, sl_model_tensor *made)
{
    sl_model_tensor from[INPUTS_MAX];
    if (input_count < 1 || input_count > INPUTS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%s: %u inputs; a custom op has 1 or 2", it->name, input_count);
    for (uint32_t i = 0; i < input_count; i++)
        SL_TRY(sl_model_use(model, inputs[i], &from[i]));
    SL_TRY(sl_custom_check_features(it->name, it->op, from[0].features));
    SL_TRY(check_divided(it->name, &from[0], it->op));
    if (input_count == 2)
        SL_TRY(sl_layer_check_alike(model, it->name, &from[0], &from[1]));
    *made =
        (sl_model_tensor){.value = SL_NONE, .features = from[0].features, .local = from[0].local};
    if (it->op->out != 0 && !it->op->is_elementwise)
        made->features = made->local = it->op->out;
    snprintf(made->name, sizeof made->name, "%s", it->name);
    if (!sl_model_is_here(model))
        return SL_OK;
    it->inputs[0] = from[0].value;
    it->inputs[1] = input_count == 2 ? from[1].value : SL_NONE;
    it->features = from[0].features;
    it->in = from[0].local;
    it->out = made->local;
    it->rows = sl_layer_count_rows(model, &from[0]);
    return emit_custom(model, it, &from[0], &made->value);
}

sl_tensor sl_custom_sized(sl_model *model, const char *name, const sl_custom_op *op, size_t bytes,
                          const sl_tensor *inputs, uint32_t input_count)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_custom_op read;
    local_custom it = {.name = name, .op = &read};
    sl_status status = sl_custom_read(name, op, bytes, &read);
    if (status == SL_OK)
        status = make_custom(model, &it, inputs, input_count, &made);
    return sl_model_return(model, status, &made);
}
