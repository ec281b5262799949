/* Building of programs: growing arrays. Knows the op table, and nothing of models or passes.
 *
 * Invariant: every op that stands in a program has the operands that the table demands, each with
 * the bytes that the op's shapes give.
 */
#include "build.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "base/status.h"

sl_status sl_program_open(sl_program **out_program)
{
    sl_program *program = calloc(1, sizeof *program);
    if (program == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a program");
    program->micro_batch_count = 1;
    *out_program = program;
    return SL_OK;
}

void sl_program_close(sl_program *program)
{
    if (program == NULL)
        return;
    free(program->values);
    free(program->ops);
    free(program->tensors);
    free(program->segments);
    free(program->sections);
    free(program);
}

sl_status sl_program_add_value(sl_program *program, const sl_value *value, uint32_t *out_value)
{
    SL_TRY(
        SL_ARRAY_GROW(program->values, program->value_count, program->value_capacity, "a program"));
    *out_value = program->value_count;
    program->values[program->value_count] = *value;
    if (value->instances == 0)
        program->values[program->value_count].instances = 1;
    program->value_count++;
    return SL_OK;
}

sl_status sl_build_append_tensor(sl_program *program, const sl_tensor_spec *spec)
{
    uint64_t element_count, bytes;
    SL_TRY(sl_bits_multiply(spec->shape[0], spec->shape[1], spec->name, &element_count));
    SL_TRY(sl_bits_multiply(element_count, sizeof(float), spec->name, &bytes));
    if (element_count == 0 || element_count != spec->element_count)
        SL_FAIL(SL_ERROR_INTERNAL, "tensor %s: %llu elements do not make its shape", spec->name,
                (unsigned long long)spec->element_count);
    SL_TRY(SL_ARRAY_GROW(program->tensors, program->tensor_count, program->tensor_capacity,
                         "a program"));
    program->tensors[program->tensor_count++] = *spec;
    program->has_state[SL_GROUP_PARAM] = true;
    return SL_OK;
}

sl_status sl_program_add_tensor(sl_program *program, const sl_tensor_spec *spec,
                                uint32_t *out_value)
{
    SL_TRY(sl_build_append_tensor(program, spec));
    sl_value value = {.kind = SL_VALUE_TENSOR,
                      .group = SL_GROUP_PARAM,
                      .index = program->tensor_count - 1,
                      .bytes = spec->element_count * sl_type_bytes(program->type),
                      .type = program->type};
    memcpy(value.name, spec->name, sizeof value.name - 1);
    return sl_program_add_value(program, &value, out_value);
}

sl_op_attrs sl_build_elementwise_attrs(const sl_value *value)
{
    return (sl_op_attrs){.element_count = value->bytes / sl_type_bytes(value->type),
                         .type = (uint16_t)value->type};
}

sl_status sl_build_append_segment(sl_program *program, const sl_segment *segment)
{
    SL_TRY(SL_ARRAY_GROW(program->segments, program->segment_count, program->segment_capacity,
                         "a program"));
    program->segments[program->segment_count++] = *segment;
    return SL_OK;
}

sl_status sl_build_append_section(sl_program *program, const sl_section *section)
{
    SL_TRY(SL_ARRAY_GROW(program->sections, program->section_count, program->section_capacity,
                         "a program"));
    program->sections[program->section_count++] = *section;
    return SL_OK;
}

sl_status sl_program_add_segment(sl_program *program, const sl_segment *segment)
{
    sl_segment fresh = *segment;
    fresh.first_op = program->op_count;
    fresh.op_count = 0;
    return sl_build_append_segment(program, &fresh);
}

sl_status sl_program_add_custom(sl_program *program, const sl_custom_op *op, uint64_t *out_index)
{
    for (uint32_t i = 0; i < program->custom_count; i++) {
        if (strcmp(program->customs[i].name, op->name) != 0)
            continue;
        *out_index = i;
        if (program->customs[i].forward == op->forward &&
            program->customs[i].backward == op->backward && program->customs[i].user == op->user)
            return SL_OK;
        SL_FAIL(SL_ERROR_USAGE, "two custom ops have the name %s", op->name);
    }
    if (program->custom_count == SL_CUSTOMS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%s: a model has at most %d custom ops", op->name, SL_CUSTOMS_MAX);
    *out_index = program->custom_count;
    program->customs[program->custom_count++] = *op;
    return SL_OK;
}

sl_status sl_program_add_constant(sl_program *program, const sl_constant *constant)
{
    if (program->constant_count == SL_CONSTANTS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "a model has at most %d tables of rotary positions",
                SL_CONSTANTS_MAX);
    program->constants[program->constant_count++] = *constant;
    return SL_OK;
}

void sl_program_copy_lists(const sl_program *from, sl_program *to)
{
    memcpy(to->customs, from->customs, sizeof to->customs);
    to->custom_count = from->custom_count;
    memcpy(to->constants, from->constants, sizeof to->constants);
    to->constant_count = from->constant_count;
}

static sl_status check_operand(const sl_program *program, const sl_op *op, uint32_t operand_index)
{
    const sl_op_info *info = sl_op_info_of(op->kind);
    const char *operand_name = info->operand[operand_index].name;
    uint32_t value_index = op->operand[operand_index];
    if (value_index == SL_NONE && info->operand[operand_index].is_optional &&
        !sl_op_has(op, operand_index))
        return SL_OK;
    if (value_index >= program->value_count)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: operand %s is missing", info->name, operand_name);
    const sl_value *value = &program->values[value_index];
    uint64_t least = sl_op_least_bytes(op->kind, &op->attrs, operand_index);
    bool is_exact = sl_op_operand_bytes(op->kind, &op->attrs, operand_index) != 0;
    if (least == 0 || value->bytes < least || (is_exact && value->bytes != least))
        SL_FAIL(SL_ERROR_INTERNAL, "%s: operand %s takes %llu bytes, value %s has %llu", info->name,
                operand_name, (unsigned long long)least, value->name,
                (unsigned long long)value->bytes);
    return SL_OK;
}

/* A row range lies within the rows of its operand. */
static sl_status check_rows(const sl_op *op, uint32_t operand_index)
{
    const sl_op_info *info = sl_op_info_of(op->kind);
    const uint64_t all = op->attrs.batch * op->attrs.seq; /* its bytes were checked */
    uint64_t first, end;
    sl_op_find_rows(op, operand_index, &first, &end);
    if (first > all || (end != UINT64_MAX && (end < first || end > all)))
        SL_FAIL(SL_ERROR_INTERNAL, "%s: operand %s has %llu rows, not %llu from row %llu on",
                info->name, info->operand[operand_index].name, (unsigned long long)all,
                (unsigned long long)op->attrs.row_count, (unsigned long long)first);
    return SL_OK;
}

sl_status sl_build_append_op(sl_program *program, const sl_op *op)
{
    uint32_t operand_count = sl_op_info_of(op->kind)->operand_count;
    for (uint32_t i = 0; i < operand_count; i++) {
        SL_TRY(check_operand(program, op, i));
        SL_TRY(check_rows(op, i));
    }
    SL_TRY(SL_ARRAY_GROW(program->ops, program->op_count, program->op_capacity, "a program"));
    program->ops[program->op_count++] = *op;
    return SL_OK;
}

sl_status sl_program_add_op(sl_program *program, sl_op_kind kind, const sl_op_attrs *attrs,
                            const uint32_t *operands, uint32_t operand_count)
{
    if ((uint32_t)kind >= SL_OP_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "no op has number %d", (int)kind);
    const sl_op_info *info = sl_op_info_of(kind);
    if (operand_count > info->operand_count)
        SL_FAIL(SL_ERROR_INTERNAL, "%s takes %u operands, not %u", info->name, info->operand_count,
                operand_count);
    bool has_segment = program->segment_count > 0;
    sl_op op = {.kind = kind,
                .attrs = *attrs,
                .segment = has_segment ? program->segment_count - 1 : SL_NONE,
                .phase = SL_PHASE_FORWARD};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        op.operand[i] = i < operand_count ? operands[i] : SL_NONE;
    SL_TRY(sl_build_append_op(program, &op));
    if (has_segment)
        program->segments[program->segment_count - 1].op_count++;
    return SL_OK;
}

/* ---- the table of tokens ---- */

/* Whether an op of another kind reads a tensor or a panel of that name. */
static bool is_read_by_others(const sl_program *program, const char *name, sl_op_kind kind)
{
    for (uint32_t o = 0; o < program->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const sl_op *op = &program->ops[o];
            const sl_value *value =
                op->operand[i] == SL_NONE ? NULL : &program->values[op->operand[i]];
            if (op->kind != kind && value != NULL && value->kind == SL_VALUE_TENSOR &&
                strcmp(program->tensors[value->index].name, name) == 0)
                return true;
        }
    return false;
}

const char *sl_program_lookup_table(const sl_program *program)
{
    enum { PANEL = 1 };
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op *op = &program->ops[o];
        if (op->kind != SL_OP_EMBED_TOKENS)
            continue;
        const char *name = program->tensors[program->values[op->operand[PANEL]].index].name;
        return is_read_by_others(program, name, SL_OP_EMBED_TOKENS) ? "" : name;
    }
    return "";
}

/* ---- names, in messages, files and options ---- */

const char *sl_type_name(sl_type type)
{
    static const char *const names[SL_TYPE_COUNT] = {
        [SL_TYPE_FP32] = "fp32", [SL_TYPE_BF16] = "bf16", [SL_TYPE_FP16] = "fp16"};
    return names[type];
}
