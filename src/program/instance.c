/* Counterparts of forward values and ops in the step, one set a turn. Parameters and outputs are
 * shared by all turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "step.h"

/* What a step keeps for each parameter: a master copy only where parameters are rounded. */
static bool group_is_used(const sl_step *step, sl_group group)
{
    return group != SL_GROUP_MASTER || step->program->type != SL_TYPE_FP32;
}

static sl_status add_tensor_values(sl_step *step, sl_group group)
{
    const sl_program *forward = step->forward;
    sl_type type = sl_program_group_type(step->program, group);
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        sl_value value = {.kind = SL_VALUE_TENSOR,
                          .group = group,
                          .index = t,
                          .bytes = forward->tensors[t].element_count * sl_type_bytes(type),
                          .type = type};
        snprintf(value.name, sizeof value.name, "%s%.36s", group == SL_GROUP_GRAD ? "d " : "",
                 forward->tensors[t].name);
        SL_TRY(sl_program_add_value(step->program, &value,
                                    group == SL_GROUP_GRAD ? &step->tensors[t].grad
                                                           : &step->tensors[t].param));
    }
    return SL_OK;
}

/* Where ranks keep shards of gradients, those of tensors are parts of whole chunks that live for a
 * time. */
static sl_status add_whole_gradients(sl_step *step)
{
    sl_program *program = step->program;
    const sl_type type = program->grad_type;
    char name[sizeof program->values->name];
    uint64_t bytes;
    SL_TRY(sl_bits_multiply(step->map->chunk_elements, sl_type_bytes(type), "chunk", &bytes));
    for (uint32_t c = 0; c < step->map->chunk_count; c++) {
        snprintf(name, sizeof name, "gradient of chunk %u", c);
        SL_TRY(sl_instance_add_shared(step, "", name, bytes, type, &step->chunks[c].gradient));
    }
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        sl_value *gradient = &program->values[step->tensors[t].grad];
        gradient->kind = SL_VALUE_PART;
        gradient->whole = step->chunks[step->map->chunk_of_tensor[t]].gradient;
    }
    return SL_OK;
}

static sl_status add_chunk_values(sl_step *step, sl_group group)
{
    uint64_t bytes;
    sl_type type = sl_program_group_type(step->program, group);
    SL_TRY(
        sl_bits_multiply(sl_program_group_elements(step->program, group, step->map->chunk_elements),
                         sl_type_bytes(type), "chunk", &bytes));
    for (uint32_t c = 0; c < step->map->chunk_count; c++) {
        sl_value value = {
            .kind = SL_VALUE_CHUNK, .group = group, .index = c, .bytes = bytes, .type = type};
        snprintf(value.name, sizeof value.name, "%s chunk %u", sl_group_name(group), c);
        SL_TRY(sl_program_add_value(step->program, &value, &step->chunks[c].value[group]));
    }
    return SL_OK;
}

sl_status sl_instance_open(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        SL_TRY(sl_build_append_tensor(step->program, &step->forward->tensors[t]));
    for (uint32_t s = 0; s < step->forward->segment_count; s++)
        SL_TRY(sl_build_append_segment(step->program, &step->forward->segments[s]));
    SL_TRY(add_tensor_values(step, SL_GROUP_PARAM));
    SL_TRY(add_tensor_values(step, SL_GROUP_GRAD));
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        bool is_used = group_is_used(step, (sl_group)group);
        step->program->has_state[group] = is_used;
        if (is_used)
            SL_TRY(add_chunk_values(step, (sl_group)group));
    }
    for (uint32_t c = 0; c < step->map->chunk_count; c++)
        step->chunks[c].gradient = step->chunks[c].value[SL_GROUP_GRAD];
    return sl_program_shards_group(step->program, SL_GROUP_GRAD) ? add_whole_gradients(step)
                                                                 : SL_OK;
}

sl_status sl_instance_emit(sl_step *step, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands)
{
    sl_op op = {.kind = kind,
                .attrs = *attrs,
                .segment = step->segment,
                .micro_batch = step->micro_batch,
                .phase = step->phase};
    uint32_t operand_count = sl_op_info_of(kind)->operand_count;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        op.operand[i] = i < operand_count ? operands[i] : SL_NONE;
    return sl_build_append_op(step->program, &op);
}

sl_status sl_instance_add_activation(sl_step *step, const char *prefix, const char *name,
                                     uint64_t bytes, sl_type type, uint32_t *out_value)
{
    SL_TRY(sl_instance_add_shared(step, prefix, name, bytes, type, out_value));
    sl_value *value = &step->program->values[*out_value];
    value->micro_batch = step->micro_batch;
    value->instances = step->instances;
    return SL_OK;
}

sl_status sl_instance_add_shared(sl_step *step, const char *prefix, const char *name,
                                 uint64_t bytes, sl_type type, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .bytes = bytes, .type = type};
    snprintf(value.name, sizeof value.name, "%s%s", prefix, name);
    return sl_program_add_value(step->program, &value, out_value);
}

static sl_turn_value *find_turn_value(const sl_step *step, uint32_t turn, uint32_t forward_value)
{
    return &step->turn_values[(uint64_t)turn * step->forward->value_count + forward_value];
}

sl_turn_value *sl_instance_of(const sl_step *step, uint32_t forward_value)
{
    return find_turn_value(step, step->turn, forward_value);
}

/* Parameters, outputs and caches have one counterpart for all turns. */
static uint32_t *locate_counterpart(sl_step *step, uint32_t forward_value)
{
    const sl_value *value = &step->forward->values[forward_value];
    switch (value->kind) {
    case SL_VALUE_TENSOR:
        return &step->tensors[value->index].param;
    case SL_VALUE_OUTPUT:
    case SL_VALUE_PERSISTENT:
        return &find_turn_value(step, 0, forward_value)->counterpart;
    case SL_VALUE_ACTIVATION:
    case SL_VALUE_INPUT:
    case SL_VALUE_CHUNK:
    case SL_VALUE_PART:
        break;
    }
    return &sl_instance_of(step, forward_value)->counterpart;
}

static sl_status add_counterpart(sl_step *step, uint32_t forward_value, uint32_t *out_value)
{
    sl_value value = step->forward->values[forward_value];
    if (value.kind == SL_VALUE_CHUNK || value.kind == SL_VALUE_PART)
        SL_FAIL(SL_ERROR_INTERNAL, "forward value %s is a chunk or a part of one", value.name);
    if (value.kind == SL_VALUE_INPUT && value.index >= SL_INPUT_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "input slot %u: a step has tokens, targets and positions only",
                value.index);
    if (value.kind == SL_VALUE_INPUT || value.kind == SL_VALUE_ACTIVATION)
        value.micro_batch = step->micro_batch;
    if (value.kind == SL_VALUE_ACTIVATION)
        value.instances = step->instances;
    return sl_program_add_value(step->program, &value, out_value);
}

sl_status sl_instance_make(sl_step *step, uint32_t forward_value, uint32_t *out_value)
{
    SL_TRY(add_counterpart(step, forward_value, out_value));
    sl_instance_of(step, forward_value)->counterpart = *out_value;
    return SL_OK;
}

/* In every section that reads it: one that was filled for all of them would be as many values. */
static sl_status fill_input(sl_step *step, uint32_t forward_value, uint32_t *counterpart)
{
    uint32_t *filled = &step->values[forward_value].filled[step->phase != SL_PHASE_FORWARD];
    if (*filled == SL_NONE)
        SL_TRY(add_counterpart(step, forward_value, filled));
    *counterpart = *filled;
    if (!step->refills_inputs)
        *filled = SL_NONE;
    sl_op_attrs attrs = {.element_count =
                             step->forward->values[forward_value].bytes / sizeof(int32_t)};
    return sl_instance_emit(step, SL_OP_INPUT, &attrs, counterpart);
}

void sl_instance_forget_inputs(sl_step *step)
{
    const sl_program *forward = step->forward;
    for (uint32_t v = 0; v < forward->value_count; v++)
        if (forward->values[v].kind == SL_VALUE_INPUT)
            for (uint32_t turn = 0; turn < step->turn_count; turn++)
                find_turn_value(step, turn, v)->counterpart = SL_NONE;
}

sl_status sl_instance_find(sl_step *step, uint32_t forward_value, uint32_t *out_value)
{
    uint32_t *counterpart = locate_counterpart(step, forward_value);
    bool is_input = step->forward->values[forward_value].kind == SL_VALUE_INPUT;
    if (*counterpart == SL_NONE && is_input)
        SL_TRY(fill_input(step, forward_value, counterpart));
    uint32_t found = *counterpart;
    if (found == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is read before it is made",
                step->forward->values[forward_value].name);
    *out_value = found;
    return SL_OK;
}

/* Values from outside are made where they are first used, others where they are first written. */
static sl_status map_operand(sl_step *step, const sl_op *op, uint32_t operand_index,
                             uint32_t *out_value)
{
    uint32_t forward_value = op->operand[operand_index];
    *out_value = SL_NONE;
    if (forward_value == SL_NONE)
        return SL_OK;
    uint32_t *counterpart = locate_counterpart(step, forward_value);
    sl_value_kind kind = step->forward->values[forward_value].kind;
    bool may_make =
        kind == SL_VALUE_ACTIVATION ? !sl_op_reads(op, operand_index) : kind != SL_VALUE_INPUT;
    if (*counterpart == SL_NONE && may_make)
        SL_TRY(add_counterpart(step, forward_value, counterpart));
    return sl_instance_find(step, forward_value, out_value);
}

sl_status sl_instance_emit_op(sl_step *step, const sl_op *forward_op)
{
    uint32_t operands[SL_OPERAND_MAX] = {0};
    uint32_t operand_count = sl_op_info_of(forward_op->kind)->operand_count;
    for (uint32_t i = 0; i < operand_count; i++)
        SL_TRY(map_operand(step, forward_op, i, &operands[i]));
    sl_op_attrs attrs = forward_op->attrs;
    if (forward_op->kind == SL_OP_HEAD_LOSS && !step->is_first)
        attrs.adds_output = 1; /* one loss for all micro-batches */
    return sl_instance_emit(step, forward_op->kind, &attrs, operands);
}

/* ---- families ----
 *
 * user: the repeated section that uses a value, SL_NONE for none; is_shared: there are several. */

static void record_user(uint32_t *user, bool *is_shared, uint32_t value, uint32_t section_index)
{
    if (user[value] == SL_NONE)
        user[value] = section_index;
    is_shared[value] = is_shared[value] || user[value] != section_index;
}

static void record_users(const sl_program *program, uint32_t section_index, uint32_t *user,
                         bool *is_shared)
{
    const sl_section *section = &program->sections[section_index];
    for (uint32_t o = section->first; o < section->first + section->count; o++) {
        const sl_op *op = &program->ops[o];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] != SL_NONE)
                record_user(user, is_shared, op->operand[i], section_index);
    }
}

sl_status sl_instance_settle_families(sl_step *step)
{
    sl_program *program = step->program;
    uint32_t *user = malloc(program->value_count * sizeof *user + 1);
    bool *is_shared = calloc((uint64_t)program->value_count + 1, sizeof *is_shared);
    sl_status status = SL_OK;
    if (user == NULL || is_shared == NULL) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a program");
        goto free_both;
    }
    memset(user, 0xFF, program->value_count * sizeof *user);
    for (uint32_t s = 0; s < program->section_count; s++)
        if (program->sections[s].repeat > 1)
            record_users(program, s, user, is_shared);
    for (uint32_t v = 0; v < program->value_count; v++)
        if (!is_shared[v])
            program->values[v].instances = 1;
free_both:
    free(user);
    free(is_shared);
    return status;
}
