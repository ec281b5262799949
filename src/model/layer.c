/* GELU, gated units, factors, dropout and the residual as forward ops, with their activations. */
#include <math.h>

#include "base/status.h"
#include "build.h"

/* ---- GELU ---- */

static sl_status make_gelu(sl_model *model, const char *name, sl_tensor x, sl_model_tensor *made)
{
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    *made = sl_layer_describe(name, from.features);
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

/* ---- SwiGLU and GeGLU ---- */

static sl_status make_gated(sl_model *model, const char *name, const sl_tensor inputs[2],
                            bool is_gelu, sl_model_tensor *made)
{
    sl_model_tensor gate, up;
    SL_TRY(sl_model_use(model, inputs[0], &gate));
    SL_TRY(sl_model_use(model, inputs[1], &up));
    SL_TRY(sl_layer_check_alike(model, name, &gate, &up));
    *made = sl_layer_describe(name, gate.features);
    made->local = gate.local;
    if (!sl_model_is_here(model))
        return SL_OK;
    const sl_op_attrs attrs = {.element_count = sl_layer_count_rows(model, &gate) * gate.local,
                               .is_gelu = is_gelu};
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_layer_add_alike(model, &gate, name, "", gate.local, &made->value));
    return sl_layer_add_op(model, SL_OP_SWIGLU, &attrs,
                           (uint32_t[]){gate.value, up.value, made->value}, 3);
}

static sl_tensor add_gated(sl_model *model, const char *name, sl_tensor gate, sl_tensor up,
                           bool is_gelu)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_gated(model, name, (const sl_tensor[]){gate, up}, is_gelu, &made);
    return sl_model_return(model, status, &made);
}

sl_tensor sl_swiglu(sl_model *model, const char *name, sl_tensor gate, sl_tensor up)
{
    return add_gated(model, name, gate, up, false);
}

sl_tensor sl_geglu(sl_model *model, const char *name, sl_tensor gate, sl_tensor up)
{
    return add_gated(model, name, gate, up, true);
}

/* ---- a factor ---- */

static sl_status make_scale(sl_model *model, const char *name, sl_tensor x, float factor,
                            sl_model_tensor *made)
{
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    if (!isfinite(factor) || factor == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: a factor of %g: it must be finite, and not 0", name,
                (double)factor);
    *made = sl_layer_describe(name, from.features);
    made->local = from.local;
    if (!sl_model_is_here(model))
        return SL_OK;
    const sl_op_attrs attrs = {.element_count = sl_layer_count_rows(model, &from) * from.local,
                               .scale = factor};
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_layer_add_alike(model, &from, name, "", from.local, &made->value));
    return sl_layer_add_op(model, SL_OP_SCALE, &attrs, (uint32_t[]){from.value, made->value}, 2);
}

sl_tensor sl_scale(sl_model *model, const char *name, sl_tensor x, float factor)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_scale(model, name, x, factor, &made);
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

/* With sequence parallelism, hidden states have the rows of this rank. */
static sl_status check_hidden(const sl_model *model, const char *name, const sl_model_tensor *x)
{
    if (sl_layer_count_rows(model, x) != model->hidden_rows)
        SL_FAIL(
            SL_ERROR_USAGE,
            "%s: %s has the rows of all ranks, and with sequence parallelism a rank has its own "
            "alone: a linear split by rows (SL_ROWS) makes them",
            name, x->name);
    return SL_OK;
}

static sl_status make_dropout(sl_model *model, const char *name, sl_tensor x, sl_model_tensor *made)
{
    const uint32_t site = sl_model_number_site(model);
    sl_model_tensor from;
    SL_TRY(sl_model_use(model, x, &from));
    SL_TRY(sl_layer_check_whole(name, &from));
    *made = sl_layer_describe(name, from.features);
    made->value = from.value;
    if (!sl_model_is_here(model) || model->options->dropout == 0)
        return SL_OK;
    SL_TRY(check_hidden(model, name, &from));
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
static sl_status take_memory(sl_model *model, const char *name, sl_tensor x,
                             const sl_model_tensor *before)
{
    if (!before->may_take)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: %s is made by neither sl_linear nor a norm: the sum takes its memory (are the "
                "two inputs swapped?)",
                name, before->name);
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
    SL_TRY(sl_layer_check_whole(name, &from));
    SL_TRY(sl_layer_check_whole(name, &beside));
    if (from.features != beside.features)
        SL_FAIL(SL_ERROR_USAGE, "%s: %s has %llu features, the residual %llu", name, from.name,
                (unsigned long long)from.features, (unsigned long long)beside.features);
    SL_TRY(take_memory(model, name, x, &from));
    if (x.index == residual.index)
        SL_FAIL(SL_ERROR_USAGE, "%s: %s is added to itself", name, from.name);
    *made = sl_layer_describe(name, from.features);
    made->value = from.value;
    if (!sl_model_is_here(model))
        return SL_OK;
    SL_TRY(check_hidden(model, name, &from));
    SL_TRY(check_hidden(model, name, &beside));
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
