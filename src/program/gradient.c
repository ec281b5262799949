/* Where gradients are gathered: one value for each activation and turn, one accumulator for
 * each parameter and site.
 *
 * Invariants: additions into one accumulator come in the same order in every schedule. A tensor
 * that several sites use gathers the uses of its last site in the grad group; each other use has an
 * accumulator of its own, added once, after the last micro-batch. A chunk of the grad group is
 * cleared right before its first write, for there is padding between tensors. Where the grad group
 * is in half precision, an fp32 sum of each tensor takes its place in all of this, from the first
 * addition to the last, and is rounded into it; a gradient that one op computes whole needs no sum,
 * and is rounded by that op.
 */
#include "base/status.h"
#include "step.h"

static bool is_parameter(const sl_step *step, uint32_t forward_value)
{
    return forward_value != SL_NONE && step->forward->values[forward_value].kind == SL_VALUE_TENSOR;
}

/* A use of a tensor at another site than its last. */
static bool is_deferred(const sl_step *step, const sl_op *op, uint32_t tensor)
{
    return step->forward->segments[op->segment].site != step->last_site[tensor];
}

/* The grad group cannot hold sums: a tensor's is gathered beside it and rounded into it once. */
static bool is_gathered_apart(const sl_step *step)
{
    return step->program->grad_type != SL_TYPE_FP32;
}

static void note_last_sites(sl_step *step)
{
    const sl_program *forward = step->forward;
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            if (is_parameter(step, op->operand[i]))
                step->last_site[forward->values[op->operand[i]].index] =
                    forward->segments[op->segment].site;
    }
}

sl_status sl_gradient_open(sl_step *step)
{
    const sl_program *forward = step->forward;
    note_last_sites(step);
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            if (!is_parameter(step, op->operand[i]))
                continue;
            if (sl_op_writes(op, i))
                SL_FAIL(SL_ERROR_INTERNAL, "%s writes parameter %s", sl_op_info_of(op->kind)->name,
                        forward->values[op->operand[i]].name);
            uint32_t tensor = forward->values[op->operand[i]].index;
            step->open_parts[tensor] +=
                is_deferred(step, op, tensor) ? 1 : sl_step_turn_count(step);
        }
    }
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        step->open_writes[step->chunks->chunk_of_tensor[t]] +=
            is_gathered_apart(step) ? step->open_parts[t] > 0 : step->open_parts[t];
    return SL_OK;
}

static bool op_uses_tensor(const sl_step *step, const sl_op *op, uint32_t tensor)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (is_parameter(step, op->operand[i]) &&
            step->forward->values[op->operand[i]].index == tensor)
            return true;
    return false;
}

/* True if an op of the segment before `op_index` uses the tensor. */
static bool is_used_before(const sl_step *step, const sl_segment *segment, uint32_t op_index,
                           uint32_t tensor)
{
    for (uint32_t o = segment->first_op; o < op_index; o++)
        if (op_uses_tensor(step, &step->forward->ops[o], tensor))
            return true;
    return false;
}

/* Elements of the largest activation that the segment touches, of all micro-batches. */
static double count_elements(const sl_step *step, const sl_segment *segment)
{
    double most = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            uint32_t v = step->forward->ops[o].operand[i];
            if (v == SL_NONE || step->forward->values[v].kind != SL_VALUE_ACTIVATION)
                continue;
            const sl_value *value = &step->forward->values[v];
            double elements = (double)value->bytes / (double)sl_type_bytes(value->type);
            most = elements > most ? elements : most;
        }
    return most * step->options->micro_batch_count;
}

bool sl_gradient_may_go_by_op(const sl_step *step, uint32_t segment_index)
{
    const sl_program *forward = step->forward;
    const sl_segment *segment = &forward->segments[segment_index];
    double deferred_elements = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            if (!is_parameter(step, op->operand[i]))
                continue;
            uint32_t tensor = forward->values[op->operand[i]].index;
            if (is_deferred(step, op, tensor))
                deferred_elements += (double)forward->tensors[tensor].element_count;
            else if (is_used_before(step, segment, o, tensor))
                return false;
        }
    }
    return deferred_elements >= count_elements(step, segment) && deferred_elements > 0;
}

/* ---- of activations ---- */

/* An op on the whole of step value `value`, of its type. */
static sl_op_attrs whole_attrs(const sl_step *step, uint32_t value)
{
    const sl_value *whole = &step->program->values[value];
    return (sl_op_attrs){.element_count = whole->bytes / sl_type_bytes(whole->type),
                         .type = (uint16_t)whole->type};
}

/* Goes on with a gradient that was gathered in fp32 in the type of its forward value. */
static sl_status round_gradient(sl_step *step, uint32_t forward_value)
{
    const sl_value *value = &step->forward->values[forward_value];
    uint64_t index = sl_instance_index(step, forward_value);
    uint32_t sum = step->gradient[index], rounded;
    if (sum == SL_NONE || step->program->values[sum].type == value->type)
        return SL_OK;
    SL_TRY(
        sl_instance_add_activation(step, "d ", value->name, value->bytes, value->type, &rounded));
    sl_op_attrs attrs = whole_attrs(step, rounded);
    SL_TRY(sl_instance_emit(step, SL_OP_ROUND, &attrs, (uint32_t[]){sum, rounded}));
    step->gradient[index] = rounded;
    return SL_OK;
}

sl_status sl_gradient_take(sl_step *step, uint32_t forward_value, uint32_t *out_gradient)
{
    uint64_t index = sl_instance_index(step, forward_value);
    uint32_t gradient = step->gradient[index];
    if (gradient != SL_NONE && step->gradient_partial[index] == SL_PARTIAL_YES) {
        sl_op_attrs attrs = whole_attrs(step, gradient);
        SL_TRY(sl_instance_emit(step, SL_OP_ALL_REDUCE, &attrs, &gradient));
        step->gradient_partial[index] = SL_PARTIAL_NO;
    }
    SL_TRY(round_gradient(step, forward_value));
    *out_gradient = step->gradient[index];
    return SL_OK;
}

void sl_gradient_set(sl_step *step, uint32_t forward_value, uint32_t gradient)
{
    uint64_t index = sl_instance_index(step, forward_value);
    step->gradient[index] = gradient;
    step->gradient_rows[index] = UINT64_MAX;
    step->gradient_partial[index] = SL_PARTIAL_NO;
}

static sl_status start_gradient(sl_step *step, uint32_t forward_value,
                                const sl_contribution *contribution)
{
    const sl_value *value = &step->forward->values[forward_value];
    uint64_t index = sl_instance_index(step, forward_value);
    uint64_t elements = value->bytes / sl_type_bytes(value->type);
    step->gradient_partial[index] = (uint8_t)contribution->partial;
    return sl_instance_add_activation(step, contribution->type == value->type ? "d " : "d+ ",
                                      value->name, elements * sl_type_bytes(contribution->type),
                                      contribution->type, &step->gradient[index]);
}

sl_status sl_gradient_contribute(sl_step *step, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_accumulate)
{
    const sl_value *value = &step->forward->values[forward_value];
    uint64_t index = sl_instance_index(step, forward_value);
    if (step->gradient[index] == SL_NONE)
        SL_TRY(start_gradient(step, forward_value, contribution));
    if (step->gradient_partial[index] != contribution->partial)
        SL_FAIL(SL_ERROR_INTERNAL, "%s feeds both split and replicated ops", value->name);
    if (contribution->type == value->type)
        SL_TRY(round_gradient(step, forward_value));
    *out_gradient = step->gradient[index];
    if (step->program->values[*out_gradient].type != contribution->type)
        SL_FAIL(SL_ERROR_INTERNAL, "%s feeds the head after other ops", value->name);
    *out_accumulate = contribution->first_row < step->gradient_rows[index];
    if (contribution->end_row > step->gradient_rows[index])
        step->gradient_rows[index] = contribution->end_row;
    return SL_OK;
}

sl_status sl_gradient_add(sl_step *step, uint32_t forward_value, uint32_t part, bool may_alias)
{
    uint64_t index = sl_instance_index(step, forward_value);
    if (may_alias && step->gradient[index] == SL_NONE) {
        sl_gradient_set(step, forward_value, part);
        return SL_OK;
    }
    uint32_t gradient = SL_NONE, adds = 0;
    sl_op_attrs attrs = whole_attrs(step, part);
    const sl_contribution whole = {0, UINT64_MAX, (sl_type)attrs.type, SL_PARTIAL_NO};
    SL_TRY(sl_gradient_contribute(step, forward_value, &whole, &gradient, &adds));
    if (!adds)
        SL_TRY(sl_instance_emit(step, SL_OP_CLEAR, &attrs, &gradient));
    return sl_instance_emit(step, SL_OP_ADD, &attrs, (uint32_t[]){part, gradient});
}

/* ---- of parameters ---- */

static sl_status clear_value(sl_step *step, uint32_t value)
{
    sl_op_attrs attrs = whole_attrs(step, value);
    return sl_instance_emit(step, SL_OP_CLEAR, &attrs, &value);
}

static sl_status clear_chunk_once(sl_step *step, uint32_t tensor)
{
    uint32_t chunk_index = step->chunks->chunk_of_tensor[tensor];
    if (step->is_cleared[chunk_index])
        return SL_OK;
    step->is_cleared[chunk_index] = true;
    return clear_value(step, step->chunk_value[SL_GROUP_GRAD][chunk_index]);
}

static sl_status add_accumulator(sl_step *step, const char *prefix, uint32_t tensor,
                                 uint32_t *out_accumulator)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    return sl_instance_add_shared(step, prefix, spec->name, spec->element_count * sizeof(float),
                                  SL_TYPE_FP32, out_accumulator);
}

/* Where a use of a tensor leaves its part of the gradient. */
typedef struct part {
    uint32_t gradient; /* SL_NONE: the op has no such operand */
    bool is_first;     /* nothing was added to it yet */
    bool is_zero;      /* and it was cleared */
} part;

/* Where the uses at the tensor's last site add up. */
static sl_status open_sum(sl_step *step, uint32_t tensor, part *out)
{
    uint32_t *sum = &step->tensor_sum[tensor];
    const bool is_first = *sum == SL_NONE, is_apart = is_gathered_apart(step);
    if (is_first && is_apart)
        SL_TRY(add_accumulator(step, "d+ ", tensor, sum));
    if (is_first && !is_apart) {
        SL_TRY(clear_chunk_once(step, tensor));
        *sum = step->grad_of_tensor[tensor];
    }
    *out = (part){*sum, is_first, is_first && !is_apart};
    return SL_OK;
}

/* An accumulator of a deferred use is made by the first micro-batch. */
static sl_status open_deferred(sl_step *step, uint32_t tensor, uint32_t *accumulator, part *out)
{
    const bool is_first = *accumulator == SL_NONE;
    if (is_first)
        SL_TRY(add_accumulator(step, "d' ", tensor, accumulator));
    *out = (part){*accumulator, is_first, false};
    return SL_OK;
}

static sl_status find_tensor(const sl_step *step, const sl_op *op, uint32_t operand_index,
                             uint32_t *out_tensor)
{
    uint32_t forward_value = op->operand[operand_index];
    if (!is_parameter(step, forward_value))
        SL_FAIL(SL_ERROR_INTERNAL, "%s: %s is not a parameter", sl_op_info_of(op->kind)->name,
                step->forward->values[forward_value].name);
    *out_tensor = step->forward->values[forward_value].index;
    return SL_OK;
}

static sl_status open_part(sl_step *step, uint32_t op_index, uint32_t operand_index, part *out)
{
    const sl_op *op = &step->forward->ops[op_index];
    uint32_t tensor;
    *out = (part){SL_NONE, true, true};
    if (op->operand[operand_index] == SL_NONE)
        return SL_OK;
    SL_TRY(find_tensor(step, op, operand_index, &tensor));
    if (!is_deferred(step, op, tensor))
        return open_sum(step, tensor, out);
    return open_deferred(step, tensor,
                         &step->accumulator[op_index * SL_OPERAND_MAX + operand_index], out);
}

static sl_status clear_part(sl_step *step, const part *opened)
{
    return opened->is_first && !opened->is_zero ? clear_value(step, opened->gradient) : SL_OK;
}

sl_status sl_gradient_begin(sl_step *step, uint32_t op_index, uint32_t operand_index,
                            uint32_t *out_gradient, uint32_t *out_accumulate)
{
    part opened;
    SL_TRY(open_part(step, op_index, operand_index, &opened));
    if (out_accumulate != NULL)
        *out_accumulate = !opened.is_first;
    else
        SL_TRY(clear_part(step, &opened));
    *out_gradient = opened.gradient;
    return SL_OK;
}

/* True if the op's part is the whole gradient of the tensor, so that it needs no sum. A deferred
 * use never is: those at the last site come before it, and have made a sum. */
static bool is_whole(const sl_step *step, const sl_op *op, uint32_t operand_index)
{
    if (!is_parameter(step, op->operand[operand_index]))
        return op->operand[operand_index] == SL_NONE;
    uint32_t tensor = step->forward->values[op->operand[operand_index]].index;
    return is_gathered_apart(step) && step->open_parts[tensor] == 1 &&
           step->tensor_sum[tensor] == SL_NONE;
}

/* Straight into the grad group. */
static sl_status begin_whole(sl_step *step, const sl_op *op, const sl_gathering *gathering,
                             uint32_t *out_gradients)
{
    for (uint32_t i = 0; i < gathering->count; i++) {
        uint32_t tensor, operand_index = gathering->operand[i];
        out_gradients[i] = SL_NONE;
        if (op->operand[operand_index] == SL_NONE)
            continue;
        SL_TRY(find_tensor(step, op, operand_index, &tensor));
        SL_TRY(clear_chunk_once(step, tensor));
        out_gradients[i] = step->grad_of_tensor[tensor];
    }
    return SL_OK;
}

sl_status sl_gradient_gather(sl_step *step, uint32_t op_index, const sl_gathering *gathering,
                             sl_op_attrs *attrs, uint32_t *out_gradients)
{
    const sl_op *op = &step->forward->ops[op_index];
    part opened[SL_GATHERED_MAX];
    bool all_whole = true, all_first = true;
    for (uint32_t i = 0; i < gathering->count; i++)
        all_whole = all_whole && is_whole(step, op, gathering->operand[i]);
    attrs->adds_gradient = 0;
    attrs->grad_type = (uint16_t)(all_whole ? step->program->grad_type : SL_TYPE_FP32);
    if (all_whole)
        return begin_whole(step, op, gathering, out_gradients);
    for (uint32_t i = 0; i < gathering->count; i++) {
        SL_TRY(open_part(step, op_index, gathering->operand[i], &opened[i]));
        out_gradients[i] = opened[i].gradient;
        all_first = all_first && opened[i].is_first;
    }
    attrs->adds_gradient = !all_first;
    for (uint32_t i = 0; i < gathering->count && !all_first; i++)
        SL_TRY(clear_part(step, &opened[i]));
    return SL_OK;
}

/* After the last addition to a sum that is gathered apart; a whole gradient has none. */
static sl_status round_sum(sl_step *step, uint32_t tensor)
{
    if (step->tensor_sum[tensor] == SL_NONE)
        return SL_OK;
    SL_TRY(clear_chunk_once(step, tensor));
    uint32_t operands[] = {step->tensor_sum[tensor], step->grad_of_tensor[tensor]};
    sl_op_attrs attrs = whole_attrs(step, operands[1]);
    return sl_instance_emit(step, SL_OP_ROUND, &attrs, operands);
}

static sl_status close_part(sl_step *step, uint32_t tensor)
{
    bool is_last = --step->open_parts[tensor] == 0;
    if (is_gathered_apart(step) && !is_last)
        return SL_OK;
    if (is_gathered_apart(step))
        SL_TRY(round_sum(step, tensor));
    uint32_t chunk_index = step->chunks->chunk_of_tensor[tensor];
    if (--step->open_writes[chunk_index] == 0)
        step->complete[step->complete_count++] = chunk_index;
    return SL_OK;
}

static sl_status end_deferred(sl_step *step, uint32_t tensor, uint32_t accumulator)
{
    if (step->turn + 1 < sl_step_turn_count(step))
        return SL_OK;
    part sum;
    SL_TRY(open_sum(step, tensor, &sum));
    SL_TRY(clear_part(step, &sum));
    sl_op_attrs attrs = whole_attrs(step, accumulator);
    SL_TRY(sl_instance_emit(step, SL_OP_ADD, &attrs, (uint32_t[]){accumulator, sum.gradient}));
    return close_part(step, tensor);
}

sl_status sl_gradient_end(sl_step *step, uint32_t op_index, uint32_t operand_index)
{
    const sl_op *op = &step->forward->ops[op_index];
    uint32_t forward_value = op->operand[operand_index];
    if (forward_value == SL_NONE)
        return SL_OK;
    uint32_t tensor = step->forward->values[forward_value].index;
    if (is_deferred(step, op, tensor))
        return end_deferred(step, tensor,
                            step->accumulator[op_index * SL_OPERAND_MAX + operand_index]);
    return close_part(step, tensor);
}
