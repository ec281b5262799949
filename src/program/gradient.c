/* The way of a gradient, from the op that makes it to AdamW.
 *
 * 1. Made: a rule of backward.c takes the finished gradient of what its op wrote and emits backward
 *    ops, which contribute to the gradients of what the op read.
 * 2. Of an activation: one value a turn. The first contribution writes it, later ones add. It is
 *    complete when the rule of its maker takes it, for all its readers stand after the maker and
 *    their rules have been emitted; then it is rounded and summed over ranks, where that is due:
 * what ranks exchange has the compute type, however it was stored.
 * 3. Of a parameter: each use by a forward op gives a part, in each turn. Parts of uses at the
 *    tensor's last site add up in the grad group, cleared before. A use at another site adds up in
 *    an accumulator of its own, which is added once, in the last turn. So additions come in the
 *    same order in every schedule.
 * 4. Rounded: a grad group in half precision cannot hold sums, so an fp32 sum of each tensor takes
 *    its place in 3 and is rounded into it behind the last part. A gradient that is one part needs
 *    no sum: its op rounds it into the grad group.
 * 5. Cleared: a chunk of the grad group, whole, right before its first write, for there is padding
 *    between tensors.
 *    Of a tied tensor two stages of a pipeline have a sum each. They are exchanged behind all else,
 *    when neither stage waits for the other, and added as one rank adds its deferred uses: in fp32.
 * 6. Consumed: a chunk is complete when all parts of all its tensors are in. Then it is summed over
 * data-parallel ranks, each of which has that of its own rows, and its norm is added, which no
 * order can change. AdamW of all chunks follows when the norm of all of them is known, or, with
 * update_early, each chunk's at once.
 */
#include "base/status.h"
#include "step.h"

/* An op on the whole of step value `value`, of its type. */
static sl_op_attrs whole_attrs(const sl_step *step, uint32_t value)
{
    const sl_value *whole = &step->program->values[value];
    return (sl_op_attrs){.element_count = whole->bytes / sl_type_bytes(whole->type),
                         .type = (uint16_t)whole->type};
}

static sl_status clear_value(sl_step *step, uint32_t value)
{
    const sl_op_attrs attrs = whole_attrs(step, value);
    return sl_instance_emit(step, SL_OP_CLEAR, &attrs, &value);
}

static sl_status add_value(sl_step *step, uint32_t term, uint32_t sum)
{
    const sl_op_attrs attrs = whole_attrs(step, term);
    return sl_instance_emit(step, SL_OP_ADD, &attrs, (uint32_t[]){term, sum});
}

static sl_status round_value(sl_step *step, uint32_t sum, uint32_t rounded)
{
    const sl_op_attrs attrs = whole_attrs(step, rounded);
    return sl_instance_emit(step, SL_OP_ROUND, &attrs, (uint32_t[]){sum, rounded});
}

/* ---- activations ---- */

static sl_status start_gradient(sl_step *step, uint32_t forward_value,
                                const sl_contribution *contribution)
{
    const sl_value *value = &step->forward->values[forward_value];
    sl_turn_value *it = sl_instance_of(step, forward_value);
    uint64_t elements = value->bytes / sl_type_bytes(value->type);
    it->gradient_is_partial = contribution->is_partial;
    return sl_instance_add_activation(step, contribution->type == value->type ? "d " : "d+ ",
                                      value->name, elements * sl_type_bytes(contribution->type),
                                      contribution->type, &it->gradient);
}

/* Goes on with a gradient that was summed in fp32 in the type of its forward value. */
static sl_status round_gradient(sl_step *step, uint32_t forward_value)
{
    const sl_value *value = &step->forward->values[forward_value];
    sl_turn_value *it = sl_instance_of(step, forward_value);
    uint32_t rounded;
    if (it->gradient == SL_NONE || step->program->values[it->gradient].type == value->type)
        return SL_OK;
    SL_TRY(
        sl_instance_add_activation(step, "d ", value->name, value->bytes, value->type, &rounded));
    SL_TRY(round_value(step, it->gradient, rounded));
    it->gradient = rounded;
    return SL_OK;
}

sl_status sl_gradient_contribute(sl_step *step, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_adds)
{
    const sl_value *value = &step->forward->values[forward_value];
    sl_turn_value *it = sl_instance_of(step, forward_value);
    if (it->gradient == SL_NONE)
        SL_TRY(start_gradient(step, forward_value, contribution));
    if (it->gradient_is_partial != contribution->is_partial)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is read by both split and replicated ops", value->name);
    if (contribution->type == value->type)
        SL_TRY(round_gradient(step, forward_value));
    if (step->program->values[it->gradient].type != contribution->type)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is read by the head and by ops before it", value->name);
    *out_gradient = it->gradient;
    *out_adds = contribution->first_row < it->gradient_rows;
    if (contribution->end_row > it->gradient_rows)
        it->gradient_rows = contribution->end_row;
    return SL_OK;
}

sl_status sl_gradient_add(sl_step *step, uint32_t forward_value, uint32_t term, bool may_alias)
{
    if (may_alias && sl_instance_of(step, forward_value)->gradient == SL_NONE) {
        sl_gradient_set(step, forward_value, term);
        return SL_OK;
    }
    uint32_t gradient = SL_NONE, adds = 0;
    const sl_contribution whole = {0, UINT64_MAX, step->program->values[term].type, false};
    SL_TRY(sl_gradient_contribute(step, forward_value, &whole, &gradient, &adds));
    if (!adds)
        SL_TRY(clear_value(step, gradient));
    return add_value(step, term, gradient);
}

void sl_gradient_set(sl_step *step, uint32_t forward_value, uint32_t gradient)
{
    sl_turn_value *it = sl_instance_of(step, forward_value);
    it->gradient = gradient;
    it->gradient_rows = UINT64_MAX;
    it->gradient_is_partial = false;
}

sl_status sl_gradient_take(sl_step *step, uint32_t forward_value, uint32_t *out_gradient)
{
    sl_turn_value *it = sl_instance_of(step, forward_value);
    SL_TRY(round_gradient(step, forward_value));
    if (it->gradient != SL_NONE && it->gradient_is_partial) {
        const sl_op_attrs attrs = whole_attrs(step, it->gradient);
        SL_TRY(sl_instance_emit(step, SL_OP_ALL_REDUCE, &attrs, &it->gradient));
        it->gradient_is_partial = false;
    }
    *out_gradient = it->gradient;
    return SL_OK;
}

sl_status sl_gradient_take_terms(sl_step *step, uint32_t forward_value, uint32_t *out_terms)
{
    sl_turn_value *it = sl_instance_of(step, forward_value);
    SL_TRY(round_gradient(step, forward_value));
    if (it->gradient != SL_NONE && !it->gradient_is_partial)
        SL_FAIL(SL_ERROR_INTERNAL, "the gradient of %s is no sum over ranks",
                step->forward->values[forward_value].name);
    *out_terms = it->gradient;
    return SL_OK;
}

/* ---- parameters: which parts there will be ---- */

static bool is_parameter(const sl_step *step, uint32_t forward_value)
{
    return forward_value != SL_NONE && step->forward->values[forward_value].kind == SL_VALUE_TENSOR;
}

bool sl_gradient_is_deferred(const sl_step *step, const sl_op *forward_op, uint32_t tensor)
{
    return step->forward->segments[forward_op->segment].site != step->tensors[tensor].last_site;
}

/* The grad group is too narrow for sums: they stand beside it. */
static bool sums_stand_apart(const sl_step *step)
{
    return step->program->grad_type != SL_TYPE_FP32;
}

static void find_last_sites(sl_step *step)
{
    const sl_program *forward = step->forward;
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            if (is_parameter(step, op->operand[i]))
                step->tensors[forward->values[op->operand[i]].index].last_site =
                    forward->segments[op->segment].site;
    }
}

/* Another stage has a part of its gradient, too. */
static bool is_tied(const sl_step *step, uint32_t tensor)
{
    return step->forward->stage_count > 1 && step->forward->tensors[tensor].is_tied;
}

sl_status sl_gradient_open(sl_step *step)
{
    const sl_program *forward = step->forward;
    find_last_sites(step);
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            if (!is_parameter(step, op->operand[i]))
                continue;
            if (sl_op_writes(op, i))
                SL_FAIL(SL_ERROR_INTERNAL, "%s writes parameter %s", sl_op_info_of(op->kind)->name,
                        forward->values[op->operand[i]].name);
            uint32_t tensor = forward->values[op->operand[i]].index;
            step->tensors[tensor].open_parts +=
                sl_gradient_is_deferred(step, op, tensor) ? 1 : step->pass_count;
        }
    }
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        uint32_t parts = step->tensors[t].open_parts;
        step->chunks[step->map->chunk_of_tensor[t]].open_writes +=
            sums_stand_apart(step) ? parts > 0 : parts;
        if (is_tied(step, t))
            step->chunks[step->map->chunk_of_tensor[t]].open_writes++;
    }
    return SL_OK;
}

/* ---- parameters: where a part goes ---- */

/* An accumulator that a part goes to. */
typedef struct target {
    uint32_t value; /* SL_NONE: the op has no such operand */
    bool is_first;  /* nothing was added to it yet */
    bool is_zero;   /* and it was cleared */
} target;

static sl_status clear_chunk_once(sl_step *step, uint32_t tensor)
{
    sl_step_chunk *chunk = &step->chunks[step->map->chunk_of_tensor[tensor]];
    if (chunk->is_cleared)
        return SL_OK;
    chunk->is_cleared = true;
    return clear_value(step, chunk->gradient);
}

static sl_status add_accumulator(sl_step *step, const char *prefix, uint32_t tensor,
                                 uint32_t *out_accumulator)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    return sl_instance_add_shared(step, prefix, spec->name, spec->element_count * sizeof(float),
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
        SL_TRY(clear_chunk_once(step, tensor));
        *sum = step->tensors[tensor].grad;
    }
    *out = (target){*sum, is_first, is_first && !is_apart};
    return SL_OK;
}

/* The accumulator of a deferred use is made by the first turn. */
static sl_status open_deferred(sl_step *step, uint32_t tensor, uint32_t *accumulator, target *out)
{
    const bool is_first = *accumulator == SL_NONE;
    if (is_first)
        SL_TRY(add_accumulator(step, "d' ", tensor, accumulator));
    *out = (target){*accumulator, is_first, false};
    return SL_OK;
}

static uint32_t *locate_deferred(const sl_step *step, uint32_t op_index, uint32_t operand_index)
{
    return &step->deferred[op_index * SL_OPERAND_MAX + operand_index];
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

static sl_status open_part(sl_step *step, uint32_t op_index, uint32_t operand_index, target *out)
{
    const sl_op *op = &step->forward->ops[op_index];
    uint32_t tensor;
    *out = (target){SL_NONE, true, true};
    if (op->operand[operand_index] == SL_NONE)
        return SL_OK;
    SL_TRY(find_tensor(step, op, operand_index, &tensor));
    if (!sl_gradient_is_deferred(step, op, tensor))
        return open_sum(step, tensor, out);
    return open_deferred(step, tensor, locate_deferred(step, op_index, operand_index), out);
}

/* Before an op that adds. */
static sl_status clear_target(sl_step *step, const target *it)
{
    return it->is_first && !it->is_zero ? clear_value(step, it->value) : SL_OK;
}

/* True if the part is the whole gradient of the tensor, so that it needs no sum. That of a deferred
 * use never is: those of the last site come before it, and have made a sum. */
static bool is_whole_gradient(const sl_step *step, uint32_t forward_value)
{
    if (!is_parameter(step, forward_value))
        return forward_value == SL_NONE;
    const sl_step_tensor *tensor = &step->tensors[step->forward->values[forward_value].index];
    return sums_stand_apart(step) && tensor->open_parts == 1 && tensor->sum == SL_NONE;
}

/* One for all parts of an op. */
static sl_mode part_mode(const sl_backward_op *op)
{
    return sl_op_info_of(op->kind)->operand[op->part[0].gradient].mode;
}

static bool are_whole_gradients(const sl_step *step, const sl_backward_op *op)
{
    const sl_op *forward_op = &step->forward->ops[op->forward_op];
    if (part_mode(op) != SL_MODE_GRADIENT)
        return false;
    for (uint32_t p = 0; p < op->part_count; p++)
        if (!is_whole_gradient(step, forward_op->operand[op->part[p].parameter]))
            return false;
    return true;
}

/* Straight into the grad group. */
static sl_status open_whole_gradients(sl_step *step, sl_backward_op *op)
{
    const sl_op *forward_op = &step->forward->ops[op->forward_op];
    for (uint32_t p = 0; p < op->part_count; p++) {
        uint32_t tensor, parameter = op->part[p].parameter;
        op->operand[op->part[p].gradient] = SL_NONE;
        if (forward_op->operand[parameter] == SL_NONE)
            continue;
        SL_TRY(find_tensor(step, forward_op, parameter, &tensor));
        SL_TRY(clear_chunk_once(step, tensor));
        op->operand[op->part[p].gradient] = step->tensors[tensor].grad;
    }
    op->attrs.adds_gradient = 0;
    op->attrs.grad_type = (uint16_t)step->program->grad_type;
    return SL_OK;
}

/* What one op leaves is all written or all added. */
static void set_adds(sl_backward_op *op, bool adds)
{
    const sl_mode mode = part_mode(op);
    op->attrs.grad_type = SL_TYPE_FP32;
    if (mode == SL_MODE_GRADIENT)
        op->attrs.adds_gradient = adds;
    if (mode == SL_MODE_ADD)
        op->attrs.adds_output = adds;
}

sl_status sl_gradient_open_parts(sl_step *step, sl_backward_op *op)
{
    if (are_whole_gradients(step, op))
        return open_whole_gradients(step, op);
    target targets[SL_PARTS_MAX];
    bool adds = part_mode(op) == SL_MODE_UPDATE;
    for (uint32_t p = 0; p < op->part_count; p++) {
        SL_TRY(open_part(step, op->forward_op, op->part[p].parameter, &targets[p]));
        op->operand[op->part[p].gradient] = targets[p].value;
        adds = adds || !targets[p].is_first;
    }
    for (uint32_t p = 0; p < op->part_count && adds; p++)
        SL_TRY(clear_target(step, &targets[p]));
    set_adds(op, adds);
    return SL_OK;
}

/* ---- parameters: after a part ---- */

/* Behind the last part of a sum that stands apart; a whole gradient has none. */
static sl_status round_sum(sl_step *step, uint32_t tensor)
{
    const sl_step_tensor *it = &step->tensors[tensor];
    if (it->sum == SL_NONE)
        return SL_OK;
    SL_TRY(clear_chunk_once(step, tensor));
    return round_value(step, it->sum, it->grad);
}

static sl_status sum_over_ranks(sl_step *step, uint32_t tensor)
{
    const sl_op_attrs attrs = {.element_count = step->forward->tensors[tensor].element_count,
                               .type = (uint16_t)step->program->type,
                               .grad_type = (uint16_t)step->program->grad_type};
    return sl_instance_emit(step, SL_OP_ALL_REDUCE_TENSOR, &attrs, &step->tensors[tensor].grad);
}

static sl_status close_part(sl_step *step, uint32_t tensor)
{
    const uint32_t chunk_index = step->map->chunk_of_tensor[tensor];
    const bool is_last = --step->tensors[tensor].open_parts == 0;
    if (sums_stand_apart(step) && !is_last)
        return SL_OK;
    if (sums_stand_apart(step))
        SL_TRY(round_sum(step, tensor));
    if (is_last && step->tensors[tensor].is_partial)
        SL_TRY(sum_over_ranks(step, tensor));
    if (--step->chunks[chunk_index].open_writes == 0)
        step->complete[step->complete_count++] = chunk_index;
    return SL_OK;
}

static sl_status close_deferred(sl_step *step, uint32_t tensor, uint32_t accumulator)
{
    if (!step->is_last)
        return SL_OK;
    target sum;
    SL_TRY(open_sum(step, tensor, &sum));
    SL_TRY(clear_target(step, &sum));
    SL_TRY(add_value(step, accumulator, sum.value));
    return close_part(step, tensor);
}

sl_status sl_gradient_close_parts(sl_step *step, const sl_backward_op *op)
{
    const sl_op *forward_op = &step->forward->ops[op->forward_op];
    SL_TRY(sl_instance_emit(step, op->kind, &op->attrs, op->operand));
    for (uint32_t p = 0; p < op->part_count; p++) {
        const uint32_t parameter = op->part[p].parameter;
        if (forward_op->operand[parameter] == SL_NONE)
            continue;
        const uint32_t tensor = step->forward->values[forward_op->operand[parameter]].index;
        step->tensors[tensor].is_partial = op->is_partial;
        if (sl_gradient_is_deferred(step, forward_op, tensor))
            SL_TRY(close_deferred(step, tensor, *locate_deferred(step, op->forward_op, parameter)));
        else
            SL_TRY(close_part(step, tensor));
    }
    return SL_OK;
}

/* ---- chunks: norm and update ---- */

static sl_op_attrs chunk_attrs(const sl_step *step)
{
    return (sl_op_attrs){.element_count = step->map->chunk_elements,
                         .type = (uint16_t)step->program->type,
                         .grad_type = (uint16_t)step->program->grad_type};
}

static bool counts_blocks(const sl_step *step)
{
    return sl_program_counts_blocks(step->program);
}

static bool has_shards(const sl_step *step)
{
    return sl_program_has_shards(step->program);
}

static bool has_gradient_shards(const sl_step *step)
{
    return sl_program_shards_group(step->program, SL_GROUP_GRAD);
}

static bool has_replicas(const sl_step *step)
{
    return step->program->dp_size > 1;
}

static uint64_t find_first_block(const sl_step *step, uint32_t chunk_index)
{
    return chunk_index * (step->map->chunk_elements / SL_BLOCK_ELEMENTS);
}

static sl_status add_norm_value(sl_step *step, const char *name, uint32_t *out_norm)
{
    return sl_instance_add_shared(step, name, "", sizeof(sl_norm_sum), SL_TYPE_FP32, out_norm);
}

static sl_status emit_block_norm(sl_step *step, uint32_t chunk_index, uint32_t norm, bool adds)
{
    sl_op_attrs attrs = chunk_attrs(step);
    attrs.adds_output = adds;
    if (counts_blocks(step))
        attrs.first_block = find_first_block(step, chunk_index);
    if (has_gradient_shards(step)) {
        attrs.element_count /= step->program->dp_size;
        attrs.first_block += step->program->dp_rank * (attrs.element_count / SL_BLOCK_ELEMENTS);
    }
    const uint32_t operands[] = {step->chunks[chunk_index].value[SL_GROUP_GRAD], norm};
    return sl_instance_emit(step, SL_OP_BLOCK_NORM, &attrs, operands);
}

/* The gradient of this rank's rows becomes that of all rows, in its shard or everywhere. */
static sl_status emit_replica_sum(sl_step *step, uint32_t chunk_index)
{
    sl_op_attrs attrs = chunk_attrs(step);
    const sl_step_chunk *chunk = &step->chunks[chunk_index];
    const uint32_t operands[] = {chunk->gradient, chunk->value[SL_GROUP_GRAD]};
    if (!has_replicas(step))
        return SL_OK;
    if (!has_gradient_shards(step))
        return sl_instance_emit(
            step, has_shards(step) ? SL_OP_REDUCE_SCATTER_GRADIENT : SL_OP_ALL_REDUCE_GRADIENT,
            &attrs, operands);
    attrs.row_count = attrs.element_count / step->program->dp_size;
    return sl_instance_emit(step, SL_OP_REDUCE_SCATTER_SHARD, &attrs, operands);
}

/* Ranks have parts of it, or none. */
static bool is_told_loss(const sl_step *step)
{
    return has_replicas(step) || step->program->stage_count > 1;
}

/* SL_NONE: the step has none. */
static uint32_t find_loss(const sl_step *step)
{
    const sl_program *program = step->program;
    for (uint32_t v = 0; v < program->value_count; v++)
        if (program->values[v].kind == SL_VALUE_OUTPUT &&
            program->values[v].index == SL_OUTPUT_LOSS)
            return v;
    return SL_NONE;
}

/* The norm of this rank's blocks becomes that of all ranks, and the loss that of all rows. */
static sl_status emit_norm_merge(sl_step *step, uint32_t norm)
{
    const sl_op_attrs attrs = {.type = (uint16_t)step->program->type};
    const uint32_t operands[] = {norm, is_told_loss(step) ? find_loss(step) : SL_NONE};
    return counts_blocks(step) ? sl_instance_emit(step, SL_OP_ALL_REDUCE_NORM, &attrs, operands)
                               : SL_OK;
}

static sl_status emit_norm_finish(sl_step *step, uint32_t norm, uint32_t control)
{
    const sl_op_attrs attrs = {.type = (uint16_t)step->program->type};
    return sl_instance_emit(step, SL_OP_NORM_FINISH, &attrs, (uint32_t[]){norm, control});
}

/* What the rank that owns a shard updated reaches the others, at once where they keep it. */
static sl_status emit_gather(sl_step *step, uint32_t chunk_index)
{
    const sl_op_attrs attrs = chunk_attrs(step);
    const uint32_t param = step->chunks[chunk_index].value[SL_GROUP_PARAM];
    const bool stays = sl_program_shards_group(step->program, SL_GROUP_PARAM);
    return has_shards(step) && !stays
               ? sl_instance_emit(step, SL_OP_ALL_GATHER_CHUNK, &attrs, &param)
               : SL_OK;
}

static void cut_shard(const sl_step *step, sl_op_attrs *attrs)
{
    const sl_program *program = step->program;
    attrs->element_count =
        sl_program_group_elements(program, SL_GROUP_MOMENT1, attrs->element_count);
    if (has_shards(step))
        attrs->first_element = program->dp_rank * attrs->element_count;
    attrs->first_block += attrs->first_element / SL_BLOCK_ELEMENTS;
}

static sl_status emit_adamw(sl_step *step, uint32_t chunk_index, uint32_t control)
{
    sl_op_attrs attrs = chunk_attrs(step);
    attrs.first_block = find_first_block(step, chunk_index);
    cut_shard(step, &attrs);
    const uint32_t *value = step->chunks[chunk_index].value;
    const uint32_t operands[] = {control,
                                 value[SL_GROUP_GRAD],
                                 value[SL_GROUP_MOMENT1],
                                 value[SL_GROUP_MOMENT2],
                                 value[SL_GROUP_PARAM],
                                 value[SL_GROUP_MASTER]};
    SL_TRY(sl_instance_emit(step, SL_OP_ADAMW, &attrs, operands));
    return emit_gather(step, chunk_index);
}

static sl_status add_to_norm(sl_step *step, uint32_t chunk_index)
{
    bool is_first = step->norm == SL_NONE;
    if (is_first)
        SL_TRY(add_norm_value(step, "norm", &step->norm));
    return emit_block_norm(step, chunk_index, step->norm, !is_first);
}

/* Without clipping the control of a chunk says only whether its own gradient is finite. */
static sl_status update_chunk_early(sl_step *step, uint32_t chunk_index)
{
    uint32_t norm, control;
    SL_TRY(add_norm_value(step, "chunk norm", &norm));
    SL_TRY(sl_instance_add_shared(step, "chunk control", "", sizeof(sl_step_control), SL_TYPE_FP32,
                                  &control));
    SL_TRY(emit_block_norm(step, chunk_index, norm, false));
    SL_TRY(emit_norm_finish(step, norm, control));
    return emit_adamw(step, chunk_index, control);
}

static void enter_update(sl_step *step)
{
    step->phase = SL_PHASE_UPDATE;
    step->segment = SL_NONE;
}

/* Chunks wait for the end of a rule, because its later ops may still read their parameters. */
sl_status sl_gradient_consume_complete(sl_step *step)
{
    enter_update(step);
    for (uint32_t i = 0; i < step->complete_count; i++) {
        SL_TRY(emit_replica_sum(step, step->complete[i]));
        SL_TRY(add_to_norm(step, step->complete[i]));
        if (step->options->update_early)
            SL_TRY(update_chunk_early(step, step->complete[i]));
    }
    step->complete_count = 0;
    return SL_OK;
}

static sl_status sum_tied(sl_step *step, uint32_t tensor)
{
    const sl_tensor_spec *spec = &step->forward->tensors[tensor];
    const uint32_t stages = step->forward->stage_count, grad = step->tensors[tensor].grad;
    const uint32_t other = step->forward->stage_index == 0 ? stages - 1 : 0;
    const sl_op_attrs attrs = {.row_count = spec->shape[0],
                               .in = spec->shape[1],
                               .type = SL_TYPE_FP32,
                               .rank_index = (uint16_t)other};
    const uint32_t chunk_index = step->map->chunk_of_tensor[tensor];
    uint32_t term;
    if (sums_stand_apart(step))
        SL_FAIL(SL_ERROR_INTERNAL, "stages add up gradients in fp32");
    SL_TRY(add_accumulator(step, "d* ", tensor, &term));
    SL_TRY(sl_instance_emit(step, SL_OP_EXCHANGE, &attrs, (uint32_t[]){grad, term}));
    SL_TRY(add_value(step, term, grad));
    if (--step->chunks[chunk_index].open_writes == 0)
        step->complete[step->complete_count++] = chunk_index;
    return SL_OK;
}

/* In the order of the tensors, which both stages have alike. */
static sl_status sum_all_tied(sl_step *step)
{
    for (uint32_t t = 0; t < step->forward->tensor_count; t++)
        if (is_tied(step, t))
            SL_TRY(sum_tied(step, t));
    return sl_gradient_consume_complete(step);
}

sl_status sl_gradient_finish(sl_step *step)
{
    enter_update(step);
    SL_TRY(sum_all_tied(step));
    for (uint32_t c = 0; c < step->map->chunk_count; c++)
        if (step->chunks[c].open_writes > 0 || !step->chunks[c].is_cleared)
            SL_FAIL(SL_ERROR_INTERNAL, "the gradient of chunk %u lacks %u writes", c,
                    step->chunks[c].open_writes);
    if (step->norm == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "a step without parameters");
    const sl_value value = {.kind = SL_VALUE_OUTPUT,
                            .index = SL_OUTPUT_CONTROL,
                            .bytes = sizeof(sl_step_control),
                            .name = "control"};
    uint32_t control;
    SL_TRY(sl_program_add_value(step->program, &value, &control));
    SL_TRY(emit_norm_merge(step, step->norm));
    SL_TRY(emit_norm_finish(step, step->norm, control));
    if (step->options->update_early)
        return SL_OK;
    /* The next iteration's forward needs chunk 0 first. */
    for (uint32_t c = 0; c < step->map->chunk_count; c++)
        SL_TRY(emit_adamw(step, c, control));
    return SL_OK;
}
