/* Parameters, activations and ops of an emission: their specs, names, types and bytes. */
#include "emit.h"

#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"

/* Names of tensors and values are short, so cutting them cannot happen; layers have 5 digits. */
static void write_name(const sl_emit *emit, const char *name, bool is_inner, size_t bytes,
                       char *out_name)
{
    if (is_inner)
        snprintf(out_name, bytes, "h.%u.%s", emit->layer, name);
    else
        snprintf(out_name, bytes, "%s", name);
}

sl_status sl_emit_add_tensor(sl_emit *emit, const sl_emit_tensor *tensor, bool is_inner,
                             uint32_t *out_value)
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
        .init_mean = tensor->init.mean,
        .init_deviation = tensor->init.deviation,
    };
    if (spec.split == SL_SPLIT_ROWS)
        spec.first_row = emit->options->tp_rank * tensor->rows;
    write_name(emit, tensor->name, is_inner, sizeof spec.name, spec.name);
    SL_TRY(sl_bits_multiply(tensor->rows, columns, spec.name, &spec.element_count));
    return sl_program_add_tensor(emit->program, &spec, out_value);
}

static sl_status add_rows(sl_emit *emit, sl_value *value, uint64_t elements, uint32_t *out_value)
{
    SL_TRY(sl_bits_multiply(emit->rows, elements, value->name, &value->bytes));
    SL_TRY(sl_bits_multiply(value->bytes, sl_type_bytes(value->type), value->name, &value->bytes));
    return sl_program_add_value(emit->program, value, out_value);
}

sl_status sl_emit_add_activation(sl_emit *emit, const char *name, bool is_inner, uint64_t elements,
                                 uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = emit->program->type};
    write_name(emit, name, is_inner, sizeof value.name, value.name);
    return add_rows(emit, &value, elements, out_value);
}

sl_status sl_emit_add_statistics(sl_emit *emit, const char *name, bool is_inner, uint64_t elements,
                                 uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .type = SL_TYPE_FP32};
    write_name(emit, name, is_inner, sizeof value.name, value.name);
    return add_rows(emit, &value, elements, out_value);
}

sl_status sl_emit_add_op(sl_emit *emit, sl_op_kind kind, const sl_op_attrs *attrs,
                         const uint32_t *operands, uint32_t operand_count)
{
    sl_op_attrs typed = *attrs;
    typed.type = (uint16_t)emit->program->type;
    return sl_program_add_op(emit->program, kind, &typed, operands, operand_count);
}
