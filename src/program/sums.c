/* Gradients of parameters: where the copies of a tape op leave their parts.
 *
 * 1. Each use of a tensor by a forward op gives a part, for each micro-batch. Parts of uses at the
 *    tensor's last site add up in the grad group. Parts of a use at another site add up in a
 *    separate accumulator, which is added once, after all others. So additions come in the same
 *    order in every schedule.
 * 2. Rounded: a grad group in half precision cannot hold sums, so an fp32 sum of each tensor takes
 *    its place in 1 and is rounded into it behind the last part. A gradient that is one part needs
 *    no sum: its op rounds it into the grad group.
 * 3. Padding: the elements of a chunk that belong to no tensor are cleared right before the first
 *    write to the chunk, because norms and updates read them. A tensor is not cleared: its first
 *    part writes it, or is added after a CLEAR of this tensor.
 * 4. Complete: a chunk, when all parts of all its tensors are in (update.c goes on).
 *
 * Two stages of a pipeline each have a sum of a tied tensor. They are exchanged after all other
 * ops, when neither stage waits for the other, and added in fp32, as one rank adds deferred uses.
 */
#include <assert.h>

#include "base/status.h"
#include "step.h"

/* ---- which parts there will be ---- */

/* A part that an op gives: operand `operand_index` goes to the gradient of `tensor`. */
typedef struct part {
    uint32_t operand_index, tensor;
    bool is_deferred;
    uint32_t *accumulator; /* of a deferred use; SL_NONE in it: not made yet */
} part;

/* The parts that an op of the tape gives. */
typedef struct part_list {
    part items[SL_OPERAND_MAX];
    uint32_t count;
    sl_mode mode; /* of all these operands (check_modes) */
} part_list;

bool sl_sums_is_part(const sl_tape *tape, const sl_op *tape_op, uint32_t operand_index)
{
    const uint32_t v = tape_op->operand[operand_index];
    return v != SL_NONE && tape->program->values[v].kind == SL_VALUE_TENSOR &&
           tape->program->values[v].group == SL_GROUP_GRAD;
}

static part_list list_parts(const sl_step *step, uint32_t index)
{
    const sl_tape *tape = step->tape;
    const sl_op *op = &tape->program->ops[index];
    const sl_segment *segment = &step->forward->segments[op->segment];
    part_list list = {.count = 0};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (!sl_sums_is_part(tape, op, i))
            continue;
        const uint32_t tensor = tape->program->values[op->operand[i]].index;
        list.mode = sl_op_info_of(op->kind)->operand[i].mode;
        list.items[list.count++] = (part){i, tensor, sl_tape_is_deferred(tape, segment, tensor),
                                          &step->deferred[(uint64_t)index * SL_OPERAND_MAX + i]};
    }
    return list;
}

/* The grad group is too narrow for sums: they stand beside it. */
static bool sums_stand_apart(const sl_step *step)
{
    return step->program->grad_type != SL_TYPE_FP32;
}

/* Another stage has a part of its gradient, too. */
static bool is_tied(const sl_step *step, uint32_t tensor)
{
    return step->forward->stage_count > 1 && step->forward->tensors[tensor].is_tied;
}

/* One flag of an op says for all its parts whether they are written or added. */
static sl_status check_modes(const sl_step *step, uint32_t index, const part_list *parts)
{
    const sl_op_info *info = sl_op_info_of(step->tape->program->ops[index].kind);
    for (uint32_t p = 0; p < parts->count; p++)
        if (info->operand[parts->items[p].operand_index].mode != parts->mode ||
            parts->mode == SL_MODE_READ)
            SL_FAIL(SL_ERROR_INTERNAL, "%s writes one gradient and adds to another", info->name);
    return SL_OK;
}

sl_status sl_sums_count(sl_step *step, uint32_t index)
{
    const part_list parts = list_parts(step, index);
    SL_TRY(check_modes(step, index, &parts));
    for (uint32_t p = 0; p < parts.count; p++)
        if (step->copies[index] == 1 || !parts.items[p].is_deferred)
            step->tensors[parts.items[p].tensor].open_parts++;
    return SL_OK;
}

void sl_sums_open(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        const uint32_t parts = step->tensors[t].open_parts;
        sl_step_chunk *chunk = &step->chunks[step->map->chunk_of_tensor[t]];
        step->tensors[t].has_parts = parts > 0;
        chunk->open_writes += sums_stand_apart(step) ? parts > 0 : parts;
        chunk->open_writes += is_tied(step, t);
    }
}

/* ---- where a part goes ---- */

/* An accumulator that a part goes to. */
typedef struct target {
    uint32_t value;
    bool is_first; /* nothing has been written or added to it */
} target;

static sl_status clear_value(sl_step *step, uint32_t value)
{
    return sl_step_emit_whole(step, SL_OP_CLEAR, value, &value);
}

static uint64_t count_padding(const sl_step *step, uint32_t chunk_index)
{
    uint64_t padding = step->map->chunk_elements;
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        if (step->map->chunk_of_tensor[t] == chunk_index)
            padding -= step->forward->tensors[t].element_count;
    return padding;
}

/* The gradient of a tensor without a part is zero. */
static sl_status clear_unused_tensors(sl_step *step, uint32_t chunk_index)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        if (step->map->chunk_of_tensor[t] == chunk_index && !step->tensors[t].has_parts)
            SL_TRY(clear_value(step, step->tensors[t].grad));
    return SL_OK;
}

/* Before the first write to the chunk of the tensor. */
static sl_status open_chunk(sl_step *step, uint32_t tensor)
{
    const uint32_t chunk_index = step->map->chunk_of_tensor[tensor];
    sl_step_chunk *chunk = &step->chunks[chunk_index];
    if (chunk->is_open)
        return SL_OK;
    chunk->is_open = true;
    const sl_op_attrs attrs = {.element_count = step->map->chunk_elements,
                               .row_count = count_padding(step, chunk_index),
                               .first_block =
                                   chunk_index * (step->map->chunk_elements / SL_BLOCK_ELEMENTS),
                               .type = (uint16_t)step->program->grad_type};
    SL_TRY(sl_step_emit(step, SL_OP_CLEAR_PADDING, &attrs, &chunk->gradient));
    return clear_unused_tensors(step, chunk_index);
}

static sl_status add_accumulator(sl_step *step, const char *prefix, uint32_t tensor,
                                 uint32_t *out_accumulator)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    return sl_step_add_value(step, prefix, spec->name, spec->element_count * sizeof(float),
                             SL_TYPE_FP32, out_accumulator);
}

/* Where the parts of the tensor's last site add up. */
static sl_status open_sum(sl_step *step, uint32_t tensor, target *out)
{
    uint32_t *sum = &step->tensors[tensor].sum;
    const bool is_first = *sum == SL_NONE, is_apart = sums_stand_apart(step);
    if (is_first && is_apart)
        SL_TRY(add_accumulator(step, "d+ ", tensor, sum));
    if (is_first && !is_apart) {
        SL_TRY(open_chunk(step, tensor));
        *sum = step->tensors[tensor].grad;
    }
    *out = (target){*sum, is_first};
    return SL_OK;
}

/* The accumulator of a deferred use is made for its first copy. */
static sl_status open_deferred(sl_step *step, uint32_t tensor, uint32_t *accumulator, target *out)
{
    const bool is_first = *accumulator == SL_NONE;
    if (is_first)
        SL_TRY(add_accumulator(step, "d' ", tensor, accumulator));
    *out = (target){*accumulator, is_first};
    return SL_OK;
}

/* Before an op that adds. */
static sl_status clear_target(sl_step *step, const target *it)
{
    return it->is_first ? clear_value(step, it->value) : SL_OK;
}

/* True if each part is the whole gradient of its tensor, so that no sum is needed. That of a
 * deferred use never is: those of the last site come before it, and have made a sum. */
static bool are_whole_gradients(const sl_step *step, const part_list *parts)
{
    for (uint32_t p = 0; p < parts->count; p++) {
        const sl_step_tensor *it = &step->tensors[parts->items[p].tensor];
        if (!sums_stand_apart(step) || it->open_parts != 1 || it->sum != SL_NONE)
            return false;
    }
    return parts->mode == SL_MODE_GRADIENT;
}

/* Straight into the grad group. */
static sl_status open_whole_gradients(sl_step *step, const part_list *parts, sl_op *op)
{
    for (uint32_t p = 0; p < parts->count; p++) {
        SL_TRY(open_chunk(step, parts->items[p].tensor));
        op->operand[parts->items[p].operand_index] = step->tensors[parts->items[p].tensor].grad;
    }
    op->attrs.adds_gradient = 0;
    op->attrs.grad_type = (uint16_t)step->program->grad_type;
    return SL_OK;
}

/* What one op leaves is all written or all added. */
static sl_status open_sums(sl_step *step, const part_list *parts, sl_op *op)
{
    target targets[SL_OPERAND_MAX];
    bool adds = parts->mode == SL_MODE_UPDATE;
    for (uint32_t p = 0; p < parts->count; p++) {
        const part *it = &parts->items[p];
        SL_TRY(it->is_deferred ? open_deferred(step, it->tensor, it->accumulator, &targets[p])
                               : open_sum(step, it->tensor, &targets[p]));
        op->operand[it->operand_index] = targets[p].value;
        adds = adds || !targets[p].is_first;
    }
    for (uint32_t p = 0; p < parts->count && adds; p++)
        SL_TRY(clear_target(step, &targets[p]));
    op->attrs.grad_type = SL_TYPE_FP32;
    if (parts->mode == SL_MODE_GRADIENT)
        op->attrs.adds_gradient = adds;
    if (parts->mode == SL_MODE_ADD)
        op->attrs.adds_output = adds;
    return SL_OK;
}

sl_status sl_sums_open_parts(sl_step *step, uint32_t index, sl_op *op)
{
    const part_list parts = list_parts(step, index);
    if (parts.count == 0)
        return SL_OK;
    return are_whole_gradients(step, &parts) ? open_whole_gradients(step, &parts, op)
                                             : open_sums(step, &parts, op);
}

/* ---- after a part ---- */

/* Behind the last part of a sum that stands apart; a whole gradient has none. */
static sl_status round_sum(sl_step *step, uint32_t tensor)
{
    const sl_step_tensor *it = &step->tensors[tensor];
    if (it->sum == SL_NONE)
        return SL_OK;
    SL_TRY(open_chunk(step, tensor));
    return sl_step_emit_whole(step, SL_OP_ROUND, it->grad, (uint32_t[]){it->sum, it->grad});
}

static sl_status sum_over_ranks(sl_step *step, uint32_t tensor)
{
    const sl_op_attrs attrs = {.element_count = step->forward->tensors[tensor].element_count,
                               .type = (uint16_t)step->program->type,
                               .grad_type = (uint16_t)step->program->grad_type};
    return sl_step_emit(step, SL_OP_ALL_REDUCE_TENSOR, &attrs, &step->tensors[tensor].grad);
}

/* One write to the gradient of the tensor's chunk is done. */
static void close_write(sl_step *step, uint32_t tensor)
{
    const uint32_t chunk_index = step->map->chunk_of_tensor[tensor];
    assert(step->chunks[chunk_index].is_open && step->chunks[chunk_index].open_writes > 0);
    if (--step->chunks[chunk_index].open_writes == 0)
        step->complete[step->complete_count++] = chunk_index;
}

static sl_status close_part(sl_step *step, uint32_t tensor)
{
    assert(step->tensors[tensor].open_parts > 0);
    const bool is_last = --step->tensors[tensor].open_parts == 0;
    if (sums_stand_apart(step) && !is_last)
        return SL_OK;
    if (sums_stand_apart(step))
        SL_TRY(round_sum(step, tensor));
    if (is_last && step->tape->is_partial[tensor])
        SL_TRY(sum_over_ranks(step, tensor));
    close_write(step, tensor);
    return SL_OK;
}

static sl_status close_deferred(sl_step *step, const part *it)
{
    const uint32_t accumulator = *it->accumulator;
    target sum;
    SL_TRY(open_sum(step, it->tensor, &sum));
    SL_TRY(clear_target(step, &sum));
    SL_TRY(sl_step_emit_whole(step, SL_OP_ADD, accumulator, (uint32_t[]){accumulator, sum.value}));
    return close_part(step, it->tensor);
}

sl_status sl_sums_close_parts(sl_step *step, uint32_t index)
{
    const part_list parts = list_parts(step, index);
    const bool is_last_copy = step->copied[index] == step->copies[index];
    for (uint32_t p = 0; p < parts.count; p++) {
        if (!parts.items[p].is_deferred)
            SL_TRY(close_part(step, parts.items[p].tensor));
        else if (is_last_copy)
            SL_TRY(close_deferred(step, &parts.items[p]));
    }
    return SL_OK;
}

/* ---- tied tensors ---- */

static sl_status sum_tied(sl_step *step, uint32_t tensor)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    const uint32_t stages = step->forward->stage_count, grad = step->tensors[tensor].grad;
    const uint32_t other = step->forward->stage_index == 0 ? stages - 1 : 0;
    const sl_op_attrs attrs = {.row_count = spec->shape[0],
                               .in = spec->shape[1],
                               .type = SL_TYPE_FP32,
                               .rank_index = (uint16_t)other};
    uint32_t term;
    if (sums_stand_apart(step))
        SL_FAIL(SL_ERROR_INTERNAL, "stages add up gradients in fp32");
    SL_TRY(add_accumulator(step, "d* ", tensor, &term));
    SL_TRY(sl_step_emit(step, SL_OP_EXCHANGE, &attrs, (uint32_t[]){grad, term}));
    SL_TRY(sl_step_emit_whole(step, SL_OP_ADD, term, (uint32_t[]){term, grad}));
    close_write(step, tensor);
    return SL_OK;
}

/* In the order of the tensors, which both stages have alike. */
sl_status sl_sums_close(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        assert(step->tensors[t].open_parts == 0);
        if (is_tied(step, t))
            SL_TRY(sum_tied(step, t));
    }
    return SL_OK;
}
