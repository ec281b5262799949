/* Which forward values are forgotten after their segment's forward, and how they are recomputed.
 *
 * A value is kept if it is an operand in two segments, or if the mode does not let an op that
 * writes it run again. An op that writes one kept value keeps all its outputs. Other activations
 * are forgotten. So recomputation stays within one segment. Every mode lets GATHER_ROWS and
 * GATHER_COLUMNS run again: they exist so that no rank keeps the data of all ranks.
 *
 * The inputs of a block are kept whole, or, with partition_activations, as one part on each
 * tensor-parallel rank (ZeRO-R, Rajbhandari et al. 2020).
 */
#include <stdlib.h>
#include <string.h>

#include "autodiff.h"
#include "base/status.h"

static bool op_may_run_again(const sl_program *forward, const sl_op *op, sl_recompute mode)
{
    if (op->kind == SL_OP_GATHER_ROWS || op->kind == SL_OP_GATHER_COLUMNS)
        return true;
    switch (mode) {
    case SL_RECOMPUTE_NONE:
        return false;
    case SL_RECOMPUTE_SELECTIVE:
        return sl_op_info_of(op->kind)->is_cheap;
    case SL_RECOMPUTE_FULL:
        break;
    }
    return forward->segments[op->segment].is_block;
}

/* Keeps each value that is an operand in two segments. */
static sl_status keep_shared_values(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    uint32_t *owner = malloc(((size_t)forward->value_count + 1) * sizeof *owner);
    if (owner == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a program");
    memset(owner, 0xFF, forward->value_count * sizeof *owner);
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            uint32_t v = op->operand[i];
            if (v == SL_NONE)
                continue;
            if (owner[v] == SL_NONE)
                owner[v] = op->segment;
            if (owner[v] != op->segment)
                diff->values[v].is_forgotten = false;
        }
    }
    free(owner);
    return SL_OK;
}

/* True if `op` writes a value that is kept. */
static bool writes_kept_value(const sl_autodiff *diff, const sl_op *op)
{
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i) &&
            !diff->values[op->operand[i]].is_forgotten)
            return true;
    return false;
}

/* Keeps all values that `op` writes; true if one of them was forgotten before. */
static bool keep_written_values(sl_autodiff *diff, const sl_op *op)
{
    bool changed = false;
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
        uint32_t v = op->operand[i];
        if (v == SL_NONE || !sl_op_writes(op, i) || !diff->values[v].is_forgotten)
            continue;
        diff->values[v].is_forgotten = false;
        changed = true;
    }
    return changed;
}

/* An op that runs again writes all its outputs, so they are all forgotten or all kept. To keep one
 * more value may make another op keep its outputs: repeats until nothing changes. */
static void keep_together(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t o = 0; o < forward->op_count; o++) {
            const sl_op *op = &forward->ops[o];
            bool may_run_again = op_may_run_again(forward, op, diff->options->recompute);
            if (!may_run_again || writes_kept_value(diff, op))
                changed |= keep_written_values(diff, op);
        }
    }
}

/* ---- inputs of blocks, in parts ---- */

static bool writes_value(const sl_op *op, uint32_t value)
{
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] == value && sl_op_writes(op, i))
            return true;
    return false;
}

/* True for an activation that no op of the segment writes. */
static bool is_given(const sl_program *forward, const sl_segment *segment, uint32_t value)
{
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        if (writes_value(&forward->ops[o], value))
            return false;
    return forward->values[value].kind == SL_VALUE_ACTIVATION;
}

/* True if the op has a backward: `op` writes a value whose gradient is needed. */
static bool is_differentiated(const sl_autodiff *diff, const sl_op *op)
{
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i) &&
            diff->values[op->operand[i]].is_trained)
            return true;
    return false;
}

static void partition_operands(sl_autodiff *diff, uint32_t op_index)
{
    const sl_program *forward = diff->forward;
    const sl_op *op = &forward->ops[op_index];
    if (!is_differentiated(diff, op))
        return;
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
        const uint32_t v = op->operand[i];
        if (v != SL_NONE && is_given(forward, &forward->segments[op->segment], v))
            diff->values[v].is_partitioned = true;
    }
}

/* Marks the inputs of all blocks as partitioned if the options ask for that. */
static void partition_inputs(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    if (!diff->options->partition_activations || forward->tp_size < 2)
        return;
    for (uint32_t o = 0; o < forward->op_count; o++)
        if (forward->segments[forward->ops[o].segment].is_block)
            partition_operands(diff, o);
}

/* Attributes of an op that sees a value as one row for each tensor-parallel rank. */
static sl_op_attrs part_attrs(const sl_autodiff *diff, const sl_value *whole)
{
    const uint32_t ranks = diff->forward->tp_size;
    return (sl_op_attrs){.batch = ranks,
                         .seq = 1,
                         .in = whole->bytes / sl_type_bytes(whole->type) / ranks,
                         .row_count = 1,
                         .type = (uint16_t)whole->type};
}

static bool is_kept_whole(const sl_autodiff *diff, uint32_t forward_value)
{
    const sl_autodiff_value *it = &diff->values[forward_value];
    return it->is_partitioned && it->part == SL_NONE && it->counterpart != SL_NONE;
}

static sl_status keep_part(sl_autodiff *diff, uint32_t forward_value)
{
    const sl_value *whole = &diff->forward->values[forward_value];
    const sl_op_attrs attrs = part_attrs(diff, whole);
    sl_autodiff_value *it = &diff->values[forward_value];
    if (attrs.in * attrs.batch * sl_type_bytes(whole->type) != whole->bytes)
        SL_FAIL(SL_ERROR_USAGE, "%s does not divide among %u tensor-parallel ranks", whole->name,
                diff->forward->tp_size);
    SL_TRY(sl_autodiff_add(diff, "part of ", whole->name, whole->bytes / attrs.batch, whole->type,
                           &it->part));
    SL_TRY(
        sl_autodiff_emit(diff, SL_OP_TAKE_ROWS, &attrs, (uint32_t[]){it->counterpart, it->part}));
    it->counterpart = SL_NONE;
    return SL_OK;
}

/* Gathers the parts of a partitioned value; does nothing if the whole value is there. */
static sl_status gather_parts(sl_autodiff *diff, uint32_t forward_value)
{
    sl_autodiff_value *it = &diff->values[forward_value];
    if (!it->is_partitioned || it->counterpart != SL_NONE || it->part == SL_NONE)
        return SL_OK;
    const sl_value *whole = &diff->forward->values[forward_value];
    const sl_op_attrs attrs = part_attrs(diff, whole);
    SL_TRY(
        sl_autodiff_add(diff, "all of ", whole->name, whole->bytes, whole->type, &it->counterpart));
    return sl_autodiff_emit(diff, SL_OP_GATHER_ROWS, &attrs,
                            (uint32_t[]){it->part, it->counterpart});
}

/* ---- opening and forgetting ---- */

sl_status sl_recompute_open(sl_autodiff *diff)
{
    const sl_program *forward = diff->forward;
    for (uint32_t v = 0; v < forward->value_count; v++)
        diff->values[v].is_forgotten = forward->values[v].kind == SL_VALUE_ACTIVATION;
    SL_TRY(keep_shared_values(diff));
    keep_together(diff);
    partition_inputs(diff);
    return SL_OK;
}

/* Replaces each partitioned input of a block by this rank's part. */
static sl_status keep_parts(sl_autodiff *diff, const sl_segment *segment)
{
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &diff->forward->ops[o];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] != SL_NONE && is_kept_whole(diff, op->operand[i]) &&
                is_given(diff->forward, segment, op->operand[i]))
                SL_TRY(keep_part(diff, op->operand[i]));
    }
    return SL_OK;
}

sl_status sl_recompute_forget(sl_autodiff *diff, uint32_t segment_index)
{
    const sl_segment *segment = &diff->forward->segments[segment_index];
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &diff->forward->ops[o];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            uint32_t v = op->operand[i];
            if (v != SL_NONE && diff->values[v].is_forgotten)
                diff->values[v].counterpart = SL_NONE;
        }
    }
    return segment->is_block ? keep_parts(diff, segment) : SL_OK;
}

static bool is_missing(const sl_autodiff *diff, uint32_t forward_value)
{
    return forward_value != SL_NONE && diff->values[forward_value].is_forgotten &&
           diff->values[forward_value].counterpart == SL_NONE;
}

static bool writes_wanted_value(const sl_autodiff *diff, const sl_op *op)
{
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i) &&
            diff->values[op->operand[i]].is_wanted)
            return true;
    return false;
}

/* Marks the missing operands of each op that writes a wanted value as wanted too. Walks backward,
 * because the op that writes an operand stands before the op that reads the operand. */
static void want_sources(sl_autodiff *diff, const sl_segment *segment)
{
    for (uint32_t o = segment->op_count; o-- > 0;) {
        const sl_op *op = &diff->forward->ops[segment->first_op + o];
        if (!writes_wanted_value(diff, op))
            continue;
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (is_missing(diff, op->operand[i]))
                diff->values[op->operand[i]].is_wanted = true;
    }
}

static sl_status emit_wanted(sl_autodiff *diff, const sl_segment *segment)
{
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &diff->forward->ops[o];
        if (!writes_wanted_value(diff, op))
            continue;
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] != SL_NONE)
                SL_TRY(gather_parts(diff, op->operand[i]));
        SL_TRY(sl_autodiff_emit_op(diff, op));
    }
    return SL_OK;
}

static void want_nothing(sl_autodiff *diff, const sl_segment *segment)
{
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &diff->forward->ops[o];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] != SL_NONE)
                diff->values[op->operand[i]].is_wanted = false;
    }
}

sl_status sl_recompute_need(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value)
{
    if (is_missing(diff, forward_value)) {
        const sl_segment *segment = &diff->forward->segments[diff->segment];
        sl_phase phase = diff->phase;
        diff->phase = SL_PHASE_RECOMPUTE;
        diff->values[forward_value].is_wanted = true;
        want_sources(diff, segment);
        sl_status status = emit_wanted(diff, segment);
        want_nothing(diff, segment);
        diff->phase = phase;
        SL_TRY(status);
    }
    sl_phase phase = diff->phase;
    diff->phase = SL_PHASE_RECOMPUTE;
    sl_status status = gather_parts(diff, forward_value);
    diff->phase = phase;
    SL_TRY(status);
    return sl_autodiff_find(diff, forward_value, out_value);
}
