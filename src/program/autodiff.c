/* Writes the tape of a forward program. First the segments that do not end in the loss run forward;
 * then each segment that ends in the loss runs forward and at once backward; then the other
 * segments run backward, from the last op to the first.
 *
 * A parameter, an input, an output and a persistent value have one counterpart on the tape; an
 * activation has one for each time that the tape computes the activation.
 */
#include "autodiff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- ops and values ---- */

sl_status sl_autodiff_emit(sl_autodiff *diff, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands)
{
    sl_op op = {.kind = kind, .attrs = *attrs, .segment = diff->segment, .phase = diff->phase};
    const uint32_t operand_count = sl_op_info_of(kind)->operand_count;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        op.operand[i] = i < operand_count ? operands[i] : SL_NONE;
    return sl_build_append_op(diff->tape->program, &op);
}

sl_status sl_autodiff_add(sl_autodiff *diff, const char *prefix, const char *name, uint64_t bytes,
                          sl_type type, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .bytes = bytes, .type = type};
    snprintf(value.name, sizeof value.name, "%s%s", prefix, name);
    return sl_program_add_value(diff->tape->program, &value, out_value);
}

static uint32_t *locate_counterpart(sl_autodiff *diff, uint32_t forward_value)
{
    const sl_value *value = &diff->forward->values[forward_value];
    return value->kind == SL_VALUE_TENSOR ? &diff->params[value->index]
                                          : &diff->values[forward_value].counterpart;
}

static sl_status add_counterpart(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value)
{
    const sl_value *value = &diff->forward->values[forward_value];
    if (value->kind == SL_VALUE_CHUNK || value->kind == SL_VALUE_PART)
        SL_FAIL(SL_ERROR_INTERNAL, "forward value %s is a chunk or a part of one", value->name);
    if (value->kind == SL_VALUE_INPUT && value->index >= SL_INPUT_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "input slot %u: a step has tokens, targets and positions only",
                value->index);
    return sl_program_add_value(diff->tape->program, value, out_value);
}

/* True for every value but activations: its counterpart is added where an op first names the value,
 * even if that op reads the value. */
static bool is_from_outside(const sl_autodiff *diff, uint32_t forward_value)
{
    return diff->forward->values[forward_value].kind != SL_VALUE_ACTIVATION;
}

sl_status sl_autodiff_find(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value)
{
    uint32_t *counterpart = locate_counterpart(diff, forward_value);
    if (*counterpart == SL_NONE && is_from_outside(diff, forward_value))
        SL_TRY(add_counterpart(diff, forward_value, counterpart));
    if (*counterpart == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is read before it is made",
                diff->forward->values[forward_value].name);
    *out_value = *counterpart;
    return SL_OK;
}

sl_status sl_autodiff_find_grad(sl_autodiff *diff, uint32_t forward_value, bool is_partial,
                                uint32_t *out_grad)
{
    *out_grad = SL_NONE;
    if (forward_value == SL_NONE)
        return SL_OK;
    const sl_value *value = &diff->forward->values[forward_value];
    if (value->kind != SL_VALUE_TENSOR)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is not a parameter", value->name);
    if (!sl_program_trains(diff->forward, value->index))
        return SL_OK;
    bool *known = &diff->tape->is_partial[value->index], *has_use = &diff->has_use[value->index];
    if (*has_use && *known != is_partial)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is used by both split and replicated ops", value->name);
    *known = is_partial;
    *has_use = true;
    *out_grad = diff->grads[value->index];
    return SL_OK;
}

sl_status sl_autodiff_emit_op(sl_autodiff *diff, const sl_op *forward_op)
{
    uint32_t operands[SL_OPERAND_MAX] = {0};
    const uint32_t operand_count = sl_op_info_of(forward_op->kind)->operand_count;
    for (uint32_t i = 0; i < operand_count; i++) {
        const uint32_t v = forward_op->operand[i];
        operands[i] = SL_NONE;
        if (v == SL_NONE)
            continue;
        uint32_t *counterpart = locate_counterpart(diff, v);
        if (*counterpart == SL_NONE && !sl_op_reads(forward_op, i))
            SL_TRY(add_counterpart(diff, v, counterpart));
        SL_TRY(sl_autodiff_find(diff, v, &operands[i]));
    }
    return sl_autodiff_emit(diff, forward_op->kind, &forward_op->attrs, operands);
}

/* ---- the order ---- */

static sl_status emit_forward(sl_autodiff *diff, uint32_t segment_index)
{
    const sl_segment *segment = &diff->forward->segments[segment_index];
    const sl_program *tape = diff->tape->program;
    sl_tape_run *run = NULL;
    diff->phase = SL_PHASE_FORWARD;
    diff->segment = segment_index;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        run = &diff->tape->forward[o];
        run->first = tape->op_count;
        SL_TRY(sl_autodiff_emit_op(diff, &diff->forward->ops[o]));
        run->count = tape->op_count - run->first;
    }
    SL_TRY(sl_recompute_forget(diff, segment_index));
    if (run != NULL)
        run->count = tape->op_count - run->first; /* with the ops that keep parts */
    return SL_OK;
}

static sl_status emit_backward(sl_autodiff *diff, uint32_t segment_index)
{
    const sl_segment *segment = &diff->forward->segments[segment_index];
    const sl_program *tape = diff->tape->program;
    diff->phase = SL_PHASE_BACKWARD;
    diff->segment = segment_index;
    for (uint32_t o = segment->first_op + segment->op_count; o-- > segment->first_op;) {
        sl_tape_run *run = &diff->tape->backward[o];
        run->first = tape->op_count;
        SL_TRY(sl_backward_emit(diff, o));
        run->count = tape->op_count - run->first;
    }
    return SL_OK;
}

static sl_status emit_all(sl_autodiff *diff)
{
    const sl_segment *segments = diff->forward->segments;
    const uint32_t count = diff->forward->segment_count;
    for (uint32_t s = 0; s < count; s++)
        if (!segments[s].is_terminal)
            SL_TRY(emit_forward(diff, s));
    for (uint32_t s = 0; s < count; s++)
        if (segments[s].is_terminal) {
            SL_TRY(emit_forward(diff, s));
            SL_TRY(emit_backward(diff, s));
        }
    for (uint32_t s = count; s-- > 0;)
        if (!segments[s].is_terminal)
            SL_TRY(emit_backward(diff, s));
    return SL_OK;
}

/* ---- opening ---- */

static sl_status find_last_sites(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = op->operand[i];
            if (v == SL_NONE || forward->values[v].kind != SL_VALUE_TENSOR)
                continue;
            if (sl_op_writes(op, i))
                SL_FAIL(SL_ERROR_INTERNAL, "%s writes parameter %s", sl_op_info_of(op->kind)->name,
                        forward->values[v].name);
            diff->tape->last_site[forward->values[v].index] = forward->segments[op->segment].site;
        }
    }
    return SL_OK;
}

static sl_status add_tensors(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        sl_value value = {.kind = SL_VALUE_TENSOR, .index = t, .type = forward->type};
        value.bytes = forward->tensors[t].element_count * sl_type_bytes(forward->type);
        snprintf(value.name, sizeof value.name, "%.36s", forward->tensors[t].name);
        SL_TRY(sl_program_add_value(diff->tape->program, &value, &diff->params[t]));
        value.group = SL_GROUP_GRAD;
        value.bytes = forward->tensors[t].element_count * sizeof(float);
        value.type = SL_TYPE_FP32;
        SL_TRY(sl_program_add_value(diff->tape->program, &value, &diff->grads[t]));
    }
    return SL_OK;
}

static sl_status allocate_tape(const sl_program *forward, sl_tape *tape)
{
    const uint64_t ops = (uint64_t)forward->op_count + 1, tensors = forward->tensor_count + 1ull;
    tape->forward = calloc(ops, sizeof *tape->forward);
    tape->backward = calloc(ops, sizeof *tape->backward);
    tape->last_site = calloc(tensors, sizeof *tape->last_site);
    tape->is_partial = calloc(tensors, sizeof *tape->is_partial);
    if (tape->forward == NULL || tape->backward == NULL || tape->last_site == NULL ||
        tape->is_partial == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to differentiate %u ops", forward->op_count);
    memset(tape->last_site, 0xFF, tensors * sizeof *tape->last_site); /* SL_NONE */
    return sl_program_open(&tape->program);
}

static sl_status allocate_values(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    diff->values = calloc((uint64_t)forward->value_count + 1, sizeof *diff->values);
    diff->params = calloc(2ull * forward->tensor_count + 1, sizeof *diff->params);
    diff->has_use = calloc((uint64_t)forward->tensor_count + 1, sizeof *diff->has_use);
    if (diff->values == NULL || diff->params == NULL || diff->has_use == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to differentiate %u ops", forward->op_count);
    diff->grads = diff->params + forward->tensor_count;
    for (uint32_t v = 0; v < forward->value_count; v++)
        diff->values[v].counterpart = diff->values[v].part = diff->values[v].gradient = SL_NONE;
    return SL_OK;
}

static sl_status differentiate(sl_autodiff *diff)
{
    SL_TRY(allocate_tape(diff->forward, diff->tape));
    SL_TRY(allocate_values(diff));
    diff->tape->program->type = diff->forward->type;
    sl_program_copy_lists(diff->forward, diff->tape->program);
    SL_TRY(find_last_sites(diff));
    SL_TRY(add_tensors(diff));
    sl_backward_open(diff);
    SL_TRY(sl_recompute_open(diff));
    return emit_all(diff);
}

sl_status sl_tape_open(const sl_program *forward, const sl_step_options *options,
                       sl_tape **out_tape)
{
    sl_autodiff diff = {.forward = forward, .options = options};
    diff.tape = calloc(1, sizeof *diff.tape);
    if (diff.tape == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to differentiate %u ops", forward->op_count);
    sl_status status = differentiate(&diff);
    free(diff.values);
    free(diff.params);
    free(diff.has_use);
    if (status != SL_OK)
        sl_tape_close(diff.tape);
    else
        *out_tape = diff.tape;
    return status;
}

void sl_tape_close(sl_tape *tape)
{
    if (tape == NULL)
        return;
    sl_program_close(tape->program);
    free(tape->forward);
    free(tape->backward);
    free(tape->last_site);
    free(tape->is_partial);
    free(tape);
}
