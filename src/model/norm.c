/* Normalisations as forward ops, with their parameters.
 *
 * The gradient of gamma is a sum over rows. Where a rank has only some rows, or other heads than
 * the other ranks, it has one term of that sum: automatic differentiation knows from row_count,
 * which is then less than batch * seq.
 */
#include <math.h>

#include "base/sized.h"
#include "base/status.h"
#include "build.h"

/* ---- of mean and variance ---- */

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
    SL_TRY(sl_layer_check_whole(name, &from));
    *made = sl_layer_describe(name, from.features);
    made->may_take = true;
    return sl_model_is_here(model) ? emit_norm(model, name, &from, made) : SL_OK;
}

sl_tensor sl_norm(sl_model *model, const char *name, sl_tensor x)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_norm(model, name, x, &made);
    return sl_model_return(model, status, &made);
}

/* ---- of the mean square ---- */

/* The rows of a normalisation: tokens, or heads of tokens. */
typedef struct norm_rows {
    uint64_t width;      /* features of a row */
    uint64_t here;       /* rows a token on this rank */
    uint64_t everywhere; /* rows a token on all ranks, padding included */
    float epsilon, offset;
} norm_rows;

static sl_status find_rows(const sl_model *model, const char *name, const sl_rms_spec *spec,
                           const sl_model_tensor *x, norm_rows *out)
{
    const bool is_divided = x->local != x->features || x->is_shared;
    if (!(spec->epsilon > 0) || !isfinite(spec->epsilon))
        SL_FAIL(SL_ERROR_USAGE, "%s: an epsilon of %g: it must be positive", name,
                (double)spec->epsilon);
    if (!isfinite(spec->weight_offset))
        SL_FAIL(SL_ERROR_USAGE, "%s: a weight_offset of %g: it must be finite", name,
                (double)spec->weight_offset);
    if (spec->head == 0)
        SL_TRY(sl_layer_check_whole(name, x));
    else if (x->features % spec->head != 0 || x->local % spec->head != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: the features of %s, %llu and %llu on this rank, are not whole heads of %llu",
                name, x->name, (unsigned long long)x->features, (unsigned long long)x->local,
                (unsigned long long)spec->head);
    out->width = spec->head ? spec->head : x->features;
    out->here = x->local / out->width;
    out->everywhere = is_divided ? out->here * model->options->tp_size : out->here;
    out->epsilon = spec->epsilon;
    out->offset = spec->weight_offset;
    return SL_OK;
}

static sl_status emit_rms_norm(sl_model *model, const char *name, const norm_rows *rows,
                               const sl_model_tensor *x, sl_model_tensor *made)
{
    const uint64_t tokens = sl_layer_count_rows(model, x);
    const sl_layer_tensor gamma_tensor = {name, "weight", .rows = rows->width,
                                          .mean = 1.0f - rows->offset};
    const sl_op_attrs attrs = {.batch = model->options->batch * rows->everywhere,
                               .seq = model->options->seq,
                               .in = rows->width,
                               .row_count = tokens * rows->here,
                               .epsilon = rows->epsilon,
                               .gamma_offset = rows->offset};
    uint32_t gamma, stats;
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(sl_layer_add_tensor(model, &gamma_tensor, &gamma));
    SL_TRY(sl_layer_add_alike(model, x, name, "", x->local, &made->value));
    SL_TRY((tokens == model->rows ? sl_layer_add_activation : sl_layer_add_hidden)(
        model, name, ".stats", SL_TYPE_FP32, rows->here, &stats));
    const uint32_t operands[] = {x->value, gamma, made->value, stats};
    return sl_layer_add_op(model, SL_OP_RMSNORM, &attrs, operands, 4);
}

static sl_status make_rms_norm(sl_model *model, const char *name, sl_tensor x,
                               const sl_rms_spec *spec, sl_model_tensor *made)
{
    sl_model_tensor from;
    norm_rows rows;
    SL_TRY((spec->head ? sl_model_use_heads : sl_model_use)(model, x, &from));
    SL_TRY(find_rows(model, name, spec, &from, &rows));
    *made = sl_layer_describe(name, from.features);
    made->may_take = true;
    made->local = from.local;
    made->is_shared = from.is_shared;
    return sl_model_is_here(model) ? emit_rms_norm(model, name, &rows, &from, made) : SL_OK;
}

sl_tensor sl_rms_norm_sized(sl_model *model, const char *name, sl_tensor x, const sl_rms_spec *spec,
                            size_t bytes)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_rms_spec known;
    sl_status status = sl_sized_take("sl_rms_spec", spec, bytes, &known, sizeof known);
    if (status == SL_OK)
        status = make_rms_norm(model, name, x, &known, &made);
    return sl_model_return(model, status, &made);
}
