/* Rotary positions as a forward op, and the tables of its cosines and sines. Layers that turn by
 * the same angles share one table, whatever number of heads they have.
 */
#include <math.h>
#include <stdio.h>

#include "base/sized.h"
#include "base/status.h"
#include "build.h"

/* A base and a factor of at least 1 keep every angle finite. */
static sl_status check_angles(const char *name, const sl_rotary_spec *spec)
{
    const bool is_scaled = spec->scaling != SL_ROTARY_PLAIN;
    const bool has_bands = spec->scaling == SL_ROTARY_LLAMA3;
    if (spec->scaling > SL_ROTARY_LLAMA3 || !(spec->base >= 1) || !isfinite(spec->base))
        SL_FAIL(SL_ERROR_USAGE, "%s: rotary of base %g, scaling %u", name, spec->base,
                spec->scaling);
    if (is_scaled && (!(spec->factor >= 1) || !isfinite(spec->factor)))
        SL_FAIL(SL_ERROR_USAGE, "%s: rotary scaled by %g, which is below 1 or not finite", name,
                spec->factor);
    if (has_bands && (spec->original_context == 0 || !(spec->low_frequency_factor > 0) ||
                      !(spec->high_frequency_factor > spec->low_frequency_factor) ||
                      !isfinite(spec->high_frequency_factor)))
        SL_FAIL(SL_ERROR_USAGE, "%s: frequency factors of %g and %g, an original context of %llu",
                name, spec->low_frequency_factor, spec->high_frequency_factor,
                (unsigned long long)spec->original_context);
    return SL_OK;
}

/* Positions that tokens of this run can have. */
static uint64_t count_positions(const sl_model *model)
{
    return model->options->mode == SL_MODEL_CACHED ? model->cache_rows : model->options->seq;
}

static sl_status check_positions(const sl_model *model, const char *name,
                                 const sl_rotary_spec *spec)
{
    const uint64_t needed = count_positions(model);
    if (spec->context < needed || spec->context > INT32_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%s: rotary has %llu positions, the run asks for %llu", name,
                (unsigned long long)spec->context, (unsigned long long)needed);
    return SL_OK;
}

static sl_status check_heads(const char *name, const sl_rotary_spec *spec, const sl_model_tensor *x)
{
    const uint64_t width = spec->heads ? x->features / spec->heads : 0;
    if (spec->heads == 0 || x->features % spec->heads != 0 || width % 2 != 0 || width == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu features are not %llu heads of an even width", name,
                (unsigned long long)x->features, (unsigned long long)spec->heads);
    if (x->local % width != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: the tensor-parallel ranks do not divide %s by whole heads",
                name, x->name);
    return SL_OK;
}

/* Fields that a scaling does not read are 0, so that equal angles are equal constants. */
static sl_constant describe_table(const sl_rotary_spec *spec, uint64_t width, uint64_t positions)
{
    static const uint32_t scalings[] = {[SL_ROTARY_PLAIN] = SL_ANGLES_PLAIN,
                                        [SL_ROTARY_LINEAR] = SL_ANGLES_LINEAR,
                                        [SL_ROTARY_LLAMA3] = SL_ANGLES_BANDS};
    sl_constant table = {.positions = positions,
                         .width = width,
                         .base = spec->base,
                         .scaling = scalings[spec->scaling]};
    if (spec->scaling != SL_ROTARY_PLAIN)
        table.factor = spec->factor;
    if (spec->scaling == SL_ROTARY_LLAMA3) {
        table.low_frequency_factor = spec->low_frequency_factor;
        table.high_frequency_factor = spec->high_frequency_factor;
        table.original_context = spec->original_context;
    }
    return table;
}

static sl_status find_table(sl_model *model, const sl_constant *wanted, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_PERSISTENT, .name = "rotary table"};
    sl_constant table = *wanted;
    for (uint32_t i = 0; i < model->program->constant_count; i++)
        if (sl_constant_is_same(&model->program->constants[i], wanted)) {
            *out_value = model->constant_values[i];
            return SL_OK;
        }
    table.slot = value.index = sl_model_number_slot(model);
    SL_TRY(sl_layer_add_rows(model, &value, table.positions, table.width, out_value));
    SL_TRY(sl_program_add_constant(model->program, &table));
    model->constant_values[model->program->constant_count - 1] = *out_value;
    return SL_OK;
}

static sl_status emit_rotary(sl_model *model, const char *name, const sl_rotary_spec *spec,
                             const sl_model_tensor *x, sl_model_tensor *made)
{
    const uint64_t width = x->features / spec->heads;
    const sl_constant wanted = describe_table(spec, width, count_positions(model));
    const sl_op_attrs attrs = {.batch = model->options->batch,
                               .seq = model->options->seq,
                               .in = x->local,
                               .out = width,
                               .heads = x->local / width,
                               .cache_rows = wanted.positions};
    uint32_t table;
    SL_TRY(sl_model_open_segment(model));
    SL_TRY(find_table(model, &wanted, &table));
    SL_TRY(sl_layer_add_activation(model, name, "", model->program->type, x->local, &made->value));
    const uint32_t operands[] = {x->value, table, made->value, model->positions};
    return sl_layer_add_op(model, SL_OP_ROTARY, &attrs, operands, 4);
}

static sl_status make_rotary(sl_model *model, const char *name, sl_tensor x,
                             const sl_rotary_spec *spec, sl_model_tensor *made)
{
    sl_model_tensor from;
    SL_TRY(sl_layer_use_head_rows(model, x, &from));
    SL_TRY(check_angles(name, spec));
    SL_TRY(check_positions(model, name, spec));
    SL_TRY(check_heads(name, spec, &from));
    *made = sl_layer_describe(name, from.features);
    made->local = from.local;
    made->is_shared = from.is_shared;
    return sl_model_is_here(model) ? emit_rotary(model, name, spec, &from, made) : SL_OK;
}

sl_tensor sl_rotary_sized(sl_model *model, const char *name, sl_tensor x,
                          const sl_rotary_spec *spec, size_t bytes)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_rotary_spec known;
    sl_status status = sl_sized_take("sl_rotary_spec", spec, bytes, &known, sizeof known);
    if (status == SL_OK)
        status = make_rotary(model, name, x, &known, &made);
    return sl_model_return(model, status, &made);
}
