/* What layers add to a program: parameters, activations, ops, and the exchanges of rows and columns
 * between tensor-parallel ranks.
 *
 * Features that do not divide by the ranks are padded: every rank has equally many, and those
 * beyond the whole tensor are zero. They stay zero because their gradients are: a head of zeros has
 * zero values, so its output is zero, and so is the gradient of the rows of the next linear that
 * the output multiplies.
 */
#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"
#include "build.h"

/* ---- tensors of layers ---- */

sl_model_tensor sl_layer_describe(const char *name, uint64_t features)
{
    sl_model_tensor made = {.value = SL_NONE, .features = features, .local = features};
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

sl_status sl_layer_check_whole(const char *name, const sl_model_tensor *x)
{
    if (x->local != x->features)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: each rank has only some features of %s; a linear split by rows comes between",
                name, x->name);
    return SL_OK;
}

sl_status sl_layer_check_alike(const sl_model *model, const char *name, const sl_model_tensor *x,
                               const sl_model_tensor *z)
{
    const bool is_alike = x->features == z->features && x->local == z->local;
    if (!is_alike ||
        (sl_model_is_here(model) && sl_layer_count_rows(model, x) != sl_layer_count_rows(model, z)))
        SL_FAIL(SL_ERROR_USAGE, "%s: %s has %llu features and %s %llu, or other rows", name,
                x->name, (unsigned long long)x->features, z->name, (unsigned long long)z->features);
    return SL_OK;
}

/* ---- parameters ---- */

/* Sets this rank's range of the split axis, without the padding at its end. */
static void set_local_range(const sl_model *model, const sl_layer_tensor *tensor,
                            sl_tensor_spec *spec)
{
    const bool is_matrix = tensor->columns != 0;
    uint64_t local_features =
        is_matrix && spec->split != SL_SPLIT_ROWS ? tensor->columns : tensor->rows;
    if (spec->split == SL_SPLIT_QKV)
        local_features /= 3;
    const uint32_t part = model->options->tp_rank / (uint32_t)sl_bits_max(tensor->replicas, 1);
    const uint64_t first = sl_bits_min(part * local_features, tensor->split_whole);
    const uint64_t valid = sl_bits_min(local_features, tensor->split_whole - first);
    if (spec->split == SL_SPLIT_ROWS) {
        spec->first_row = first;
        spec->valid_rows = valid;
    } else {
        spec->first_column = first;
        spec->valid_columns = valid;
    }
}

/* SL_ERROR_USAGE: a name that would be cut. */
static sl_status write_name(size_t capacity, char *out_name, const char *prefix, const char *layer,
                            const char *note)
{
    const int length = snprintf(out_name, capacity, "%s%s%s", prefix, layer, note);
    if (length < 0 || (size_t)length >= capacity)
        SL_FAIL(SL_ERROR_USAGE, "the name %s%s%s has more than %zu characters", prefix, layer, note,
                capacity - 1);
    return SL_OK;
}

sl_status sl_layer_add_tensor(sl_model *model, const sl_layer_tensor *tensor, uint32_t *out_value)
{
    const bool is_matrix = tensor->columns != 0;
    const uint64_t columns = is_matrix ? tensor->columns : 1;
    sl_tensor_spec spec = {
        .dim_count = is_matrix ? 2 : 1,
        .shape = {tensor->rows, columns},
        .valid_rows = tensor->rows,
        .whole_shape = {tensor->whole_rows ? tensor->whole_rows : tensor->rows,
                        tensor->whole_columns ? tensor->whole_columns : columns},
        .split = model->options->tp_size > 1 ? tensor->split : SL_SPLIT_NONE,
        .decay = is_matrix,
        .init_mean = tensor->mean,
        .init_deviation = tensor->deviation,
        .init_bound = tensor->bound,
        .is_adapter = tensor->is_adapter,
    };
    char name[sizeof spec.name];
    if (spec.split != SL_SPLIT_NONE)
        set_local_range(model, tensor, &spec);
    if (tensor->replicas > 1) {
        spec.replica_count = tensor->replicas;
        spec.replica_index = model->options->tp_rank % tensor->replicas;
    }
    SL_TRY(write_name(sizeof name, name, tensor->layer, ".", tensor->name));
    SL_TRY(write_name(sizeof spec.name, spec.name, model->prefix, name, ""));
    SL_TRY(sl_bits_multiply(tensor->rows, columns, spec.name, &spec.element_count));
    return sl_program_add_tensor(model->program, &spec, out_value);
}

/* ---- activations and ops ---- */

sl_status sl_layer_add_rows(sl_model *model, sl_value *value, uint64_t rows, uint64_t columns,
                            uint32_t *out_value)
{
    SL_TRY(sl_bits_multiply(rows, columns, value->name, &value->bytes));
    SL_TRY(sl_bits_multiply(value->bytes, sl_type_bytes(value->type), value->name, &value->bytes));
    return sl_program_add_value(model->program, value, out_value);
}

sl_status sl_layer_add_activation(sl_model *model, const char *name, const char *note, sl_type type,
                                  uint64_t elements, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = type};
    SL_TRY(write_name(sizeof value.name, value.name, model->prefix, name, note));
    return sl_layer_add_rows(model, &value, model->rows, elements, out_value);
}

sl_status sl_layer_add_hidden(sl_model *model, const char *name, const char *note, sl_type type,
                              uint64_t elements, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = type};
    SL_TRY(write_name(sizeof value.name, value.name, model->prefix, name, note));
    return sl_layer_add_rows(model, &value, model->hidden_rows, elements, out_value);
}

sl_status sl_layer_add_op(sl_model *model, sl_op_kind kind, const sl_op_attrs *attrs,
                          const uint32_t *operands, uint32_t operand_count)
{
    sl_op_attrs typed = *attrs;
    typed.type = (uint16_t)model->program->type;
    return sl_program_add_op(model->program, kind, &typed, operands, operand_count);
}

/* ---- rows and columns of all ranks ---- */

static sl_op_attrs rows_attrs(const sl_model *model, uint64_t features)
{
    return (sl_op_attrs){.batch = model->options->batch,
                         .seq = model->options->seq,
                         .in = features,
                         .row_count = model->hidden_rows};
}

sl_status sl_layer_gather_rows(sl_model *model, const char *name, uint32_t x, uint64_t features,
                               uint32_t *out_y)
{
    const sl_op_attrs attrs = rows_attrs(model, features);
    *out_y = x;
    if (!sl_model_splits_rows(model))
        return SL_OK;
    SL_TRY(sl_layer_add_activation(model, name, ".all", model->program->type, features, out_y));
    return sl_layer_add_op(model, SL_OP_GATHER_ROWS, &attrs, (uint32_t[]){x, *out_y}, 2);
}

uint64_t sl_layer_count_rows(const sl_model *model, const sl_model_tensor *x)
{
    const uint64_t row_bytes = x->local * sl_type_bytes(model->program->type);
    return x->value == SL_NONE ? 0 : model->program->values[x->value].bytes / row_bytes;
}

sl_status sl_layer_add_alike(sl_model *model, const sl_model_tensor *x, const char *name,
                             const char *note, uint64_t elements, uint32_t *out_value)
{
    const bool has_all = sl_layer_count_rows(model, x) == model->rows;
    return (has_all ? sl_layer_add_activation : sl_layer_add_hidden)(
        model, name, note, model->program->type, elements, out_value);
}

/* Of `tensor`, which the handle stands for. */
static sl_status take_all_rows(sl_model *model, sl_tensor handle, sl_model_tensor *tensor)
{
    if (!sl_model_is_here(model) || sl_layer_count_rows(model, tensor) == model->rows)
        return SL_OK;
    SL_TRY(sl_model_open_segment(model));
    sl_model_tensor *kept = &model->tensors[handle.index];
    if (kept->gathered == SL_NONE)
        SL_TRY(
            sl_layer_gather_rows(model, kept->name, kept->value, kept->features, &kept->gathered));
    tensor->value = kept->gathered;
    return SL_OK;
}

sl_status sl_layer_use_rows(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor)
{
    SL_TRY(sl_model_use(model, handle, out_tensor));
    return take_all_rows(model, handle, out_tensor);
}

sl_status sl_layer_use_head_rows(sl_model *model, sl_tensor handle, sl_model_tensor *out_tensor)
{
    SL_TRY(sl_model_use_heads(model, handle, out_tensor));
    return take_all_rows(model, handle, out_tensor);
}

sl_status sl_layer_scatter_rows(sl_model *model, const char *name, uint32_t terms,
                                uint64_t features, uint32_t *out_y)
{
    const sl_op_attrs attrs = rows_attrs(model, features);
    uint32_t y;
    SL_TRY(sl_layer_add_hidden(model, name, "", model->program->type, features, &y));
    SL_TRY(sl_layer_add_op(model, SL_OP_SCATTER_ROWS, &attrs, (uint32_t[]){terms, y}, 2));
    *out_y = y;
    return SL_OK;
}

sl_status sl_layer_gather_columns(sl_model *model, const sl_model_tensor *x, const char *note,
                                  uint32_t *out_y)
{
    const sl_op_attrs attrs = {.row_count = model->rows, .in = x->features, .out = x->local};
    uint32_t y;
    SL_TRY(sl_layer_add_activation(model, x->name, note, model->program->type, x->features, &y));
    SL_TRY(sl_layer_add_op(model, SL_OP_GATHER_COLUMNS, &attrs, (uint32_t[]){x->value, y}, 2));
    *out_y = y;
    return SL_OK;
}
