/* Gradients of parameters: where the copies of a tape op leave their contributions.
 *
 * A forward op that uses a tensor gives one contribution to its gradient for each micro-batch.
 * Contributions of uses at the tensor's last site add up in the grad group. Contributions of a use
 * at another site add up in a separate accumulator, which is added once, after all others. So
 * additions have the same order in every schedule. With one micro-batch the use at the other site
 * has one op, which comes last anyway and adds each sum once, so there is no
 * accumulator; the bits are the same as with one.
 *
 * Rounding: a grad group in half precision cannot hold sums. An fp32 sum of each tensor takes its
 * place, and is rounded into the grad group behind the last contribution. A contribution that is
 * the only one to its tensor needs no sum: its op rounds it into the grad group.
 *
 * Padding: the elements of a chunk that belong to no tensor are cleared right before the first
 * write to the chunk, because norms and updates read them. A tensor is cleared only if its first
 * contribution is added, or if it has none; else the first contribution writes it.
 *
 * A chunk is complete after the last contribution to its last tensor (update.c goes on).
 *
 * Two stages of a pipeline each have a sum of a tied tensor. They are exchanged after all other
 * ops, when neither stage waits for the other, and added in fp32, as one rank adds deferred uses.
 */
#include <assert.h>

#include "base/status.h"
#include "step.h"

/* ---- which contributions there will be ---- */

/* A contribution of an op: operand `operand_index` goes to the gradient of `tensor`. */
typedef struct contribution {
    uint32_t operand_index, tensor;
    bool is_deferred;
    uint32_t *accumulator; /* of a deferred use; SL_NONE in it: not made yet */
} contribution;

/* The contributions of an op of the tape. */
typedef struct contribution_list {
    contribution items[SL_OPERAND_MAX];
    uint32_t count;
    sl_mode mode; /* of all these operands (is_of_one_mode) */
} contribution_list;

bool sl_sums_is_contribution(const sl_tape *tape, const sl_op *tape_op, uint32_t operand_index)
{
    const uint32_t v = tape_op->operand[operand_index];
    return v != SL_NONE && tape->program->values[v].kind == SL_VALUE_TENSOR &&
           tape->program->values[v].group == SL_GROUP_GRAD;
}

/* Of one micro-batch all schedules have the tape's order, so nothing is deferred. */
static bool is_deferred(const sl_step *step, const sl_segment *segment, uint32_t tensor)
{
    return step->options->micro_batch_count > 1 && sl_tape_is_deferred(step->tape, segment, tensor);
}

static contribution_list list_contributions(const sl_step *step, uint32_t index)
{
    const sl_tape *tape = step->tape;
    const sl_op *op = &tape->program->ops[index];
    const sl_segment *segment = &step->forward->segments[op->segment];
    contribution_list list = {.count = 0};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (!sl_sums_is_contribution(tape, op, i))
            continue;
        const uint32_t tensor = tape->program->values[op->operand[i]].index;
        list.mode = sl_op_info_of(op->kind)->operand[i].mode;
        list.items[list.count++] =
            (contribution){i, tensor, is_deferred(step, segment, tensor),
                           &step->deferred[(uint64_t)index * SL_OPERAND_MAX + i]};
    }
    return list;
}

/* The grad group is too narrow for sums: they stand beside it. */
static bool sums_stand_apart(const sl_step *step)
{
    return step->program->grad_type != SL_TYPE_FP32;
}

/* Another stage contributes to its gradient, too. */
static bool is_tied(const sl_step *step, uint32_t tensor)
{
    return step->forward->stage_count > 1 && step->forward->tensors[tensor].is_tied &&
           sl_program_trains(step->forward, tensor);
}

#ifndef NDEBUG
/* One flag of an op says for all its contributions whether they are written or added, so the table
 * gives all operands of a backward op that are gradients of parameters the same mode. */
static bool is_of_one_mode(const sl_step *step, uint32_t index,
                           const contribution_list *contributions)
{
    const sl_op_info *info = sl_op_info_of(step->tape->program->ops[index].kind);
    for (uint32_t p = 0; p < contributions->count; p++)
        if (info->operand[contributions->items[p].operand_index].mode != contributions->mode)
            return false;
    return contributions->count == 0 || contributions->mode != SL_MODE_READ;
}
#endif

void sl_sums_count(sl_step *step, uint32_t index)
{
    const contribution_list contributions = list_contributions(step, index);
    assert(is_of_one_mode(step, index, &contributions));
    for (uint32_t p = 0; p < contributions.count; p++)
        if (step->copies[index] == 1 || !contributions.items[p].is_deferred)
            step->tensors[contributions.items[p].tensor].open_contributions++;
}

void sl_sums_open(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        const uint32_t contributions = step->tensors[t].open_contributions;
        sl_step_chunk *chunk = &step->chunks[step->map->chunk_of_tensor[t]];
        step->tensors[t].has_contributions = contributions > 0;
        chunk->open_writes += sums_stand_apart(step) ? contributions > 0 : contributions;
        chunk->open_writes += is_tied(step, t);
    }
}

/* ---- where a contribution goes ---- */

/* An accumulator that a contribution goes to. */
typedef struct target {
    uint32_t value;
    bool is_first; /* nothing has been written or added to it */
} target;

static sl_status clear_value(sl_step *step, uint32_t value)
{
    return sl_step_emit_elementwise(step, SL_OP_CLEAR, value, &value);
}

static uint64_t count_padding(const sl_step *step, uint32_t chunk_index)
{
    uint64_t padding = step->map->chunks[chunk_index].elements;
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        if (step->map->chunk_of_tensor[t] == chunk_index)
            padding -= step->forward->tensors[t].element_count;
    return padding;
}

/* The gradient of a tensor without a contribution is zero. */
static sl_status clear_unused_tensors(sl_step *step, uint32_t chunk_index)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        if (step->map->chunk_of_tensor[t] == chunk_index && !step->tensors[t].has_contributions)
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
    const sl_op_attrs attrs = {.element_count = step->map->chunks[chunk_index].elements,
                               .row_count = count_padding(step, chunk_index),
                               .first_block = step->map->chunks[chunk_index].first_block,
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

/* Where the contributions of the tensor's last site add up. */
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

/* True if each contribution is the only one to its tensor, so that no sum is needed. A contribution
 * of a deferred use is never the only one: contributions of the last site come before it. */
static bool are_alone(const sl_step *step, const contribution_list *contributions)
{
    for (uint32_t p = 0; p < contributions->count; p++) {
        const sl_step_tensor *it = &step->tensors[contributions->items[p].tensor];
        if (!sums_stand_apart(step) || it->open_contributions != 1 || it->sum != SL_NONE)
            return false;
    }
    return contributions->mode == SL_MODE_GRADIENT;
}

/* The op writes the gradients into the grad group. */
static sl_status open_alone(sl_step *step, const contribution_list *contributions, sl_op *op)
{
    for (uint32_t p = 0; p < contributions->count; p++) {
        SL_TRY(open_chunk(step, contributions->items[p].tensor));
        op->operand[contributions->items[p].operand_index] =
            step->tensors[contributions->items[p].tensor].grad;
    }
    op->attrs.adds_gradient = 0;
    op->attrs.grad_type = (uint16_t)step->program->grad_type;
    return SL_OK;
}

/* An op writes all its contributions, or adds all of them. */
static sl_status open_sums(sl_step *step, const contribution_list *contributions, sl_op *op)
{
    target targets[SL_OPERAND_MAX];
    bool adds = contributions->mode == SL_MODE_UPDATE;
    for (uint32_t p = 0; p < contributions->count; p++) {
        const contribution *it = &contributions->items[p];
        SL_TRY(it->is_deferred ? open_deferred(step, it->tensor, it->accumulator, &targets[p])
                               : open_sum(step, it->tensor, &targets[p]));
        op->operand[it->operand_index] = targets[p].value;
        adds = adds || !targets[p].is_first;
    }
    for (uint32_t p = 0; p < contributions->count && adds; p++)
        SL_TRY(clear_target(step, &targets[p]));
    op->attrs.grad_type = SL_TYPE_FP32;
    if (contributions->mode == SL_MODE_GRADIENT)
        op->attrs.adds_gradient = adds;
    if (contributions->mode == SL_MODE_ADD)
        op->attrs.adds_output = adds;
    return SL_OK;
}

sl_status sl_sums_open_contributions(sl_step *step, uint32_t index, sl_op *op)
{
    const contribution_list contributions = list_contributions(step, index);
    if (contributions.count == 0)
        return SL_OK;
    return are_alone(step, &contributions) ? open_alone(step, &contributions, op)
                                           : open_sums(step, &contributions, op);
}

/* ---- after a contribution ---- */

/* Behind the last contribution to a sum that stands apart; one that is alone has no sum. */
static sl_status round_sum(sl_step *step, uint32_t tensor)
{
    const sl_step_tensor *it = &step->tensors[tensor];
    if (it->sum == SL_NONE)
        return SL_OK;
    SL_TRY(open_chunk(step, tensor));
    return sl_step_emit_elementwise(step, SL_OP_ROUND, it->grad, (uint32_t[]){it->sum, it->grad});
}

/* Over all tensor-parallel ranks, or those that store the same part of the tensor. */
static sl_status sum_over_ranks(sl_step *step, uint32_t tensor)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    const uint32_t replicas = spec->replica_count;
    const sl_op_attrs attrs = {.batch = replicas,
                               .heads = replicas ? step->forward->tp_size / replicas : 0,
                               .rank_index = (uint16_t)spec->replica_index,
                               .element_count = spec->element_count,
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

static sl_status close_contribution(sl_step *step, uint32_t tensor)
{
    assert(step->tensors[tensor].open_contributions > 0);
    const bool is_last = --step->tensors[tensor].open_contributions == 0;
    if (sums_stand_apart(step) && !is_last)
        return SL_OK;
    if (sums_stand_apart(step))
        SL_TRY(round_sum(step, tensor));
    if (is_last && step->tape->is_partial[tensor])
        SL_TRY(sum_over_ranks(step, tensor));
    close_write(step, tensor);
    return SL_OK;
}

static sl_status close_deferred(sl_step *step, const contribution *it)
{
    const uint32_t accumulator = *it->accumulator;
    target sum;
    SL_TRY(open_sum(step, it->tensor, &sum));
    SL_TRY(clear_target(step, &sum));
    SL_TRY(sl_step_emit_elementwise(step, SL_OP_ADD, accumulator,
                                    (uint32_t[]){accumulator, sum.value}));
    return close_contribution(step, it->tensor);
}

sl_status sl_sums_close_contributions(sl_step *step, uint32_t index)
{
    const contribution_list contributions = list_contributions(step, index);
    const bool is_last_copy = step->copied[index] == step->copies[index];
    for (uint32_t p = 0; p < contributions.count; p++) {
        if (!contributions.items[p].is_deferred)
            SL_TRY(close_contribution(step, contributions.items[p].tensor));
        else if (is_last_copy)
            SL_TRY(close_deferred(step, &contributions.items[p]));
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
    SL_TRY(sl_step_emit_elementwise(step, SL_OP_ADD, term, (uint32_t[]){term, grad}));
    close_write(step, tensor);
    return SL_OK;
}

/* In the order of the tensors, which both stages have alike. */
sl_status sl_sums_close(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        assert(step->tensors[t].open_contributions == 0);
        if (is_tied(step, t))
            SL_TRY(sum_tied(step, t));
    }
    return SL_OK;
}
