/* The optimizer's end of a step: what happens to a chunk whose gradient is complete.
 *
 * The gradient is summed over the data-parallel ranks, because each rank has only the gradient of
 * its own rows. Then the squares of the chunk are added to the norm; the sum is exact, so its bits
 * do not depend on the order of chunks. When the norm of all chunks is known, each chunk is
 * updated by its rule.
 *
 * With update_early, each chunk is updated at once, with the norm of the chunks so far. This
 * needs a run without clipping: then the norm says only whether gradients are finite, and a run
 * with update_early stops at a step with a gradient that is not finite.
 *
 * With masks gradients are those of the mean over all rows of the step. How many rows count is
 * known when the last micro-batch had its loss, and the updates scale by all rows / rows that
 * count.
 */
#include "base/status.h"
#include "step.h"

static sl_op_attrs chunk_attrs(const sl_step *step, uint32_t chunk_index)
{
    return (sl_op_attrs){.element_count = step->map->chunks[chunk_index].elements,
                         .type = (uint16_t)step->program->type,
                         .grad_type = (uint16_t)step->program->grad_type};
}

/* The first chunk writes the norm; later chunks add to it. */
static sl_status add_to_norm(sl_step *step, uint32_t chunk_index)
{
    sl_op_attrs attrs = chunk_attrs(step, chunk_index);
    attrs.adds_output = step->norm != SL_NONE;
    if (step->norm == SL_NONE)
        SL_TRY(sl_step_add_value(step, "norm", "", sizeof(sl_norm_sum), SL_TYPE_FP32, &step->norm));
    if (sl_program_counts_blocks(step->program))
        attrs.first_block = step->map->chunks[chunk_index].first_block;
    if (sl_program_shards_group(step->program, SL_GROUP_GRAD)) {
        attrs.element_count /= step->program->dp_size;
        attrs.first_block += step->program->dp_rank * (attrs.element_count / SL_BLOCK_ELEMENTS);
    }
    const uint32_t operands[] = {step->chunks[chunk_index].value[SL_GROUP_GRAD], step->norm};
    return sl_step_emit(step, SL_OP_BLOCK_NORM, &attrs, operands);
}

/* Sums the gradient over the data-parallel ranks: only this rank's shard of the chunk, or, where
 * ranks have no shards, the whole chunk. */
static sl_status emit_replica_sum(sl_step *step, uint32_t chunk_index)
{
    sl_op_attrs attrs = chunk_attrs(step, chunk_index);
    const sl_step_chunk *chunk = &step->chunks[chunk_index];
    const uint32_t operands[] = {chunk->gradient, chunk->value[SL_GROUP_GRAD]};
    if (step->program->dp_size <= 1)
        return SL_OK;
    if (!sl_program_shards_group(step->program, SL_GROUP_GRAD))
        return sl_step_emit(step,
                            sl_program_has_shards(step->program) ? SL_OP_REDUCE_SCATTER_GRADIENT
                                                                 : SL_OP_ALL_REDUCE_GRADIENT,
                            &attrs, operands);
    attrs.row_count = attrs.element_count / step->program->dp_size;
    return sl_step_emit(step, SL_OP_REDUCE_SCATTER_SHARD, &attrs, operands);
}

/* A data-parallel rank has the loss of its own rows; the loss of a stage before the last is 0. */
static bool merges_loss(const sl_step *step)
{
    return step->program->dp_size > 1 || step->program->stage_count > 1;
}

/* The step's loss or its counted rows; SL_NONE: there is none. */
static uint32_t find_output(const sl_step *step, uint32_t index)
{
    const sl_program *program = step->program;
    for (uint32_t v = 0; v < program->value_count; v++)
        if (program->values[v].kind == SL_VALUE_OUTPUT && program->values[v].index == index)
            return v;
    return SL_NONE;
}

/* Adds up the norms of all ranks, and the losses and counted rows of data-parallel ranks and
 * stages.
 */
static sl_status emit_norm_merge(sl_step *step)
{
    const sl_op_attrs attrs = {.type = (uint16_t)step->program->type};
    uint32_t operands[] = {step->norm, SL_NONE, SL_NONE};
    if (merges_loss(step)) {
        operands[1] = find_output(step, SL_OUTPUT_LOSS);
        operands[2] = find_output(step, SL_OUTPUT_COUNTED);
    }
    return sl_program_counts_blocks(step->program)
               ? sl_step_emit(step, SL_OP_ALL_REDUCE_NORM, &attrs, operands)
               : SL_OK;
}

static sl_status emit_norm_finish(sl_step *step, uint32_t control)
{
    const sl_program *program = step->program;
    const uint32_t ranks = program->dp_size > 1 ? program->dp_size : 1;
    const sl_op_attrs attrs = {.row_count = program->mask_rows * program->micro_batch_count * ranks,
                               .type = (uint16_t)program->type};
    const uint32_t operands[] = {step->norm, control, find_output(step, SL_OUTPUT_COUNTED)};
    return sl_step_emit(step, SL_OP_NORM_FINISH, &attrs, operands);
}

/* Gathers the updated shards of a chunk, if each rank stores the whole chunk of parameters. */
static sl_status emit_gather(sl_step *step, uint32_t chunk_index)
{
    const sl_op_attrs attrs = chunk_attrs(step, chunk_index);
    const uint32_t param = step->chunks[chunk_index].value[SL_GROUP_PARAM];
    const bool stays = sl_program_shards_group(step->program, SL_GROUP_PARAM);
    return sl_program_has_shards(step->program) && !stays
               ? sl_step_emit(step, SL_OP_ALL_GATHER_CHUNK, &attrs, &param)
               : SL_OK;
}

static void cut_shard(const sl_step *step, sl_op_attrs *attrs)
{
    const sl_program *program = step->program;
    if (!sl_program_has_shards(program))
        return;
    attrs->element_count /= program->dp_size;
    attrs->first_element = program->dp_rank * attrs->element_count;
    attrs->first_block += attrs->first_element / SL_BLOCK_ELEMENTS;
}

void sl_update_list_operands(const uint8_t rule_operand[SL_OPERAND_MAX], const sl_step_chunk *chunk,
                             uint32_t control, uint32_t operands[SL_OPERAND_MAX])
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint32_t operand = rule_operand[i];
        operands[i] = operand == SL_RULE_CONTROL ? control : SL_NONE;
        if (operand >= SL_RULE_GROUP)
            operands[i] = chunk->value[operand - SL_RULE_GROUP];
    }
}

/* The ops of the chunk's rule; a frozen chunk has none. */
static sl_status emit_update(sl_step *step, uint32_t chunk_index, uint32_t control)
{
    const sl_chunk *chunk = &step->map->chunks[chunk_index];
    const sl_rule *rule = sl_rule_of(chunk->rule);
    sl_op_attrs attrs = chunk_attrs(step, chunk_index);
    uint32_t operands[SL_OPERAND_MAX];
    if (rule->update == SL_OP_COUNT)
        return SL_OK;
    attrs.first_block = chunk->first_block;
    if (sl_rule_stores(chunk->rule, SL_GROUP_STATE1))
        attrs.state_type = step->program->states;
    cut_shard(step, &attrs);
    if (sl_rule_direction_of(chunk->rule) != NULL)
        SL_TRY(sl_direction_emit(step, chunk_index, control, &attrs));
    attrs.master_type = step->program->master;
    sl_update_list_operands(rule->operand, &step->chunks[chunk_index], control, operands);
    SL_TRY(sl_step_emit(step, rule->update, &attrs, operands));
    return emit_gather(step, chunk_index);
}

static sl_status update_chunk_early(sl_step *step, uint32_t chunk_index)
{
    uint32_t control;
    SL_TRY(sl_step_add_value(step, "chunk control", "", sizeof(sl_step_control), SL_TYPE_FP32,
                             &control));
    SL_TRY(emit_norm_finish(step, control));
    return emit_update(step, chunk_index, control);
}

/* Of a stage whose tensors are all frozen: the other stages' norms are added to zero. */
static sl_status clear_norm(sl_step *step)
{
    SL_TRY(sl_step_add_value(step, "norm", "", sizeof(sl_norm_sum), SL_TYPE_FP32, &step->norm));
    return sl_step_emit_elementwise(step, SL_OP_CLEAR, step->norm, &step->norm);
}

static void enter_update(sl_step *step)
{
    step->phase = SL_PHASE_UPDATE;
    step->segment = SL_NONE;
}

/* Runs after all backward ops of one forward op, not after the op that completes a chunk: later
 * ones may still read the chunk's parameters. */
sl_status sl_update_consume_complete(sl_step *step)
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

sl_status sl_update_finish(sl_step *step)
{
    enter_update(step);
    SL_TRY(sl_sums_close(step));
    SL_TRY(sl_update_consume_complete(step));
    for (uint32_t c = 0; c < step->map->chunk_count; c++) {
        if (step->chunks[c].value[SL_GROUP_GRAD] == SL_NONE)
            continue;
        if (!step->chunks[c].is_open)
            SL_FAIL(SL_ERROR_INTERNAL, "no op writes the gradient of chunk %u", c);
        if (step->chunks[c].open_writes > 0)
            SL_FAIL(SL_ERROR_INTERNAL, "the gradient of chunk %u lacks %u writes", c,
                    step->chunks[c].open_writes);
    }
    if (step->norm == SL_NONE && step->program->stage_count <= 1)
        SL_FAIL(SL_ERROR_USAGE, "no tensor is trained: all are frozen");
    if (step->norm == SL_NONE)
        SL_TRY(clear_norm(step));
    const sl_value value = {.kind = SL_VALUE_OUTPUT,
                            .index = SL_OUTPUT_CONTROL,
                            .bytes = sizeof(sl_step_control),
                            .name = "control"};
    uint32_t control;
    SL_TRY(sl_program_add_value(step->program, &value, &control));
    SL_TRY(emit_norm_merge(step));
    SL_TRY(emit_norm_finish(step, control));
    if (step->options->update_early)
        return SL_OK;
    /* The next iteration's forward needs chunk 0 first. */
    for (uint32_t c = 0; c < step->map->chunk_count; c++)
        SL_TRY(emit_update(step, c, control));
    return SL_OK;
}
