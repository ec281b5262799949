/* Copies the tape of one micro-batch into a training step, row by row of the schedule.
 *
 * A first walk over the rows counts (which sections use a value, how many contributions a gradient
 * has), a second walk copies. The name of a tape value is the value of the step that stands for it:
 *
 * - a parameter, an output and a persistent value have one name;
 * - an activation that only one section uses has a name for each micro-batch of the rows;
 * - an activation that several sections use has one name at its place, for all micro-batches that
 *   have the place; if several repeated sections use it, the name is a family of instances;
 * - an input is filled anew from each row that refills inputs on: an INPUT op fills it right before
 *   the first op that reads it.
 */
#include "step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"

/* ---- emitting ---- */

sl_status sl_step_emit(sl_step *step, sl_op_kind kind, const sl_op_attrs *attrs,
                       const uint32_t *operands)
{
    sl_op op = {.kind = kind,
                .attrs = *attrs,
                .segment = step->segment,
                .micro_batch = step->micro_batch,
                .phase = step->phase};
    const uint32_t operand_count = sl_op_info_of(kind)->operand_count;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        op.operand[i] = i < operand_count ? operands[i] : SL_NONE;
    return sl_build_append_op(step->program, &op);
}

sl_status sl_step_emit_elementwise(sl_step *step, sl_op_kind kind, uint32_t like,
                                   const uint32_t *operands)
{
    const sl_op_attrs attrs = sl_build_elementwise_attrs(&step->program->values[like]);
    return sl_step_emit(step, kind, &attrs, operands);
}

sl_status sl_step_add_value(sl_step *step, const char *prefix, const char *name, uint64_t bytes,
                            sl_type type, uint32_t *out_value)
{
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .bytes = bytes, .type = type};
    snprintf(value.name, sizeof value.name, "%s%s", prefix, name);
    return sl_program_add_value(step->program, &value, out_value);
}

/* ---- the walk over the schedule ---- */

typedef struct visitor {
    /* Visits op `index` of the tape for the row's micro-batch. If the op is an EXCHANGE that also
     * receives (row->returns), `returned` is the tape's EXCHANGE that receives; else SL_NONE. */
    sl_status (*visit_op)(sl_step *step, const sl_schedule_row *row, uint32_t index,
                          uint32_t returned);
    sl_status (*end_rule)(sl_step *step); /* after the backward ops of one forward op */
} visitor;

enum { GIVEN, TAKEN }; /* operands of EXCHANGE: sent, received */

static bool is_exchange(const sl_step *step, uint32_t index, uint32_t only)
{
    const sl_op *op = &step->tape->program->ops[index];
    return op->kind == SL_OP_EXCHANGE && op->operand[1 - only] == SL_NONE;
}

/* The EXCHANGE that receives in the other direction of the same forward op: for a sent activation
 * the gradient of an earlier micro-batch, for a sent gradient the activation of a later one. */
static uint32_t find_return(const sl_step *step, sl_tape_run other)
{
    for (uint32_t t = other.first; t < other.first + other.count; t++)
        if (is_exchange(step, t, TAKEN))
            return t;
    return SL_NONE;
}

static sl_status walk_run(sl_step *step, const visitor *visit, const sl_schedule_row *row,
                          sl_tape_run run, sl_tape_run other)
{
    for (uint32_t t = run.first; t < run.first + run.count; t++) {
        const bool returns = row->returns.micro_batch != SL_NONE && is_exchange(step, t, GIVEN);
        if (row->has_received && is_exchange(step, t, TAKEN))
            continue;
        SL_TRY(visit->visit_op(step, row, t, returns ? find_return(step, other) : SL_NONE));
    }
    return SL_OK;
}

static sl_status walk_forward(sl_step *step, const visitor *visit, const sl_schedule_row *row,
                              const sl_segment *segment)
{
    const sl_tape *tape = step->tape;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        SL_TRY(walk_run(step, visit, row, tape->forward[o], tape->backward[o]));
    return SL_OK;
}

static sl_status walk_backward(sl_step *step, const visitor *visit, const sl_schedule_row *row,
                               const sl_segment *segment)
{
    const sl_tape *tape = step->tape;
    for (uint32_t o = segment->first_op + segment->op_count; o-- > segment->first_op;) {
        if (row->only_op != SL_NONE && row->only_op != o)
            continue;
        SL_TRY(walk_run(step, visit, row, tape->backward[o], tape->forward[o]));
        SL_TRY(visit->end_rule(step));
    }
    return SL_OK;
}

static sl_status walk_row(sl_step *step, const visitor *visit, const sl_schedule_row *row)
{
    const uint32_t count = row->segment_end - row->first_segment;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_reversed = row->direction == SL_DIRECTION_BACKWARD;
        const uint32_t s = is_reversed ? row->segment_end - 1 - i : row->first_segment + i;
        const sl_segment *segment = &step->forward->segments[s];
        if (segment->is_terminal != (row->direction == SL_DIRECTION_LOSS))
            continue;
        if (row->direction != SL_DIRECTION_BACKWARD)
            SL_TRY(walk_forward(step, visit, row, segment));
        if (row->direction != SL_DIRECTION_FORWARD)
            SL_TRY(walk_backward(step, visit, row, segment));
    }
    return SL_OK;
}

/* ---- counting ---- */

static sl_step_name *name_of(const sl_step *step, uint32_t place, uint32_t tape_value)
{
    return &step->names[(uint64_t)place * step->tape->program->value_count + tape_value];
}

static void count_use(sl_step *step, sl_placed batch, uint32_t section, uint32_t tape_value)
{
    const sl_section *sections = step->schedule.sections;
    sl_step_name *name = name_of(step, batch.place, tape_value);
    if (name->made_for == batch.serial && name->section != section) {
        name->crosses = true;
        name->is_family =
            name->is_family || (sections[name->section].repeat > 1 && sections[section].repeat > 1);
    }
    name->made_for = batch.serial;
    name->section = section;
}

static sl_status count_op(sl_step *step, const sl_schedule_row *row, uint32_t index,
                          uint32_t returned)
{
    const sl_program *tape = step->tape->program;
    const sl_op *op = &tape->ops[index];
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && tape->values[op->operand[i]].kind == SL_VALUE_ACTIVATION)
            count_use(step, row->batch, row->section, op->operand[i]);
    if (returned != SL_NONE)
        count_use(step, row->returns, row->section, tape->ops[returned].operand[TAKEN]);
    step->copies[index]++;
    sl_sums_count(step, index);
    return SL_OK;
}

static sl_status count_nothing(sl_step *step)
{
    (void)step;
    return SL_OK;
}

static sl_status count_rows(sl_step *step)
{
    static const visitor counting = {count_op, count_nothing};
    for (uint32_t r = 0; r < step->schedule.row_count; r++)
        SL_TRY(walk_row(step, &counting, &step->schedule.rows[r]));
    const uint64_t names = (uint64_t)step->schedule.place_count * step->tape->program->value_count;
    for (uint64_t n = 0; n < names; n++)
        step->names[n].made_for = SL_NONE;
    sl_sums_open(step);
    return SL_OK;
}

/* ---- names ---- */

static sl_status add_copy(sl_step *step, uint32_t tape_value, uint32_t instances,
                          uint32_t *out_value)
{
    sl_value value = step->tape->program->values[tape_value];
    if (value.kind == SL_VALUE_INPUT || value.kind == SL_VALUE_ACTIVATION)
        value.micro_batch = step->micro_batch;
    value.instances = instances;
    return sl_program_add_value(step->program, &value, out_value);
}

static sl_status name_activation(sl_step *step, sl_placed batch, uint32_t section,
                                 uint32_t tape_value, bool is_read, uint32_t *out_value)
{
    const uint32_t repeat = step->schedule.sections[section].repeat;
    sl_step_name *name = name_of(step, batch.place, tape_value);
    const bool is_made = name->value != SL_NONE && name->made_for == batch.serial;
    if (!is_made && is_read)
        SL_FAIL(SL_ERROR_INTERNAL, "%s is read before it is made",
                step->tape->program->values[tape_value].name);
    if (!is_made && (name->value == SL_NONE || !name->crosses))
        SL_TRY(add_copy(step, tape_value, name->is_family ? repeat : 1, &name->value));
    name->made_for = batch.serial;
    assert(repeat == 1 || !name->is_family ||
           step->program->values[name->value].instances == repeat);
    *out_value = name->value;
    return SL_OK;
}

static sl_status fill_input(sl_step *step, sl_placed batch, uint32_t tape_value,
                            uint32_t *out_value)
{
    sl_step_name *name = name_of(step, batch.place, tape_value);
    const bool is_forward = step->phase == SL_PHASE_FORWARD;
    uint32_t *shared = &step->row_inputs[2 * tape_value + (is_forward ? 0 : 1)];
    if (name->value == SL_NONE || name->made_for != step->refill) {
        const sl_op_attrs attrs = {.element_count = step->tape->program->values[tape_value].bytes /
                                                    sizeof(int32_t)};
        if (!step->schedule.shares_inputs || *shared == SL_NONE)
            SL_TRY(add_copy(step, tape_value, 1, shared));
        name->value = *shared;
        name->made_for = step->refill;
        SL_TRY(sl_step_emit(step, SL_OP_INPUT, &attrs, &name->value));
    }
    *out_value = name->value;
    return SL_OK;
}

/* A value that all micro-batches share has its name at place 0. */
static sl_status name_shared(sl_step *step, uint32_t tape_value, uint32_t *out_value)
{
    sl_step_name *name = name_of(step, 0, tape_value);
    if (name->value == SL_NONE)
        SL_TRY(add_copy(step, tape_value, 1, &name->value));
    *out_value = name->value;
    return SL_OK;
}

/* SL_NONE for an absent operand, and for a contribution to a gradient, which sums.c fills in. */
static sl_status name_operand(sl_step *step, const sl_schedule_row *row, const sl_op *tape_op,
                              uint32_t operand_index, uint32_t *out_value)
{
    const uint32_t v = tape_op->operand[operand_index];
    *out_value = SL_NONE;
    if (v == SL_NONE || sl_sums_is_contribution(step->tape, tape_op, operand_index))
        return SL_OK;
    const sl_value *value = &step->tape->program->values[v];
    switch (value->kind) {
    case SL_VALUE_TENSOR:
        *out_value = step->tensors[value->index].param;
        return SL_OK;
    case SL_VALUE_ACTIVATION:
        return name_activation(step, row->batch, row->section, v,
                               sl_op_reads(tape_op, operand_index), out_value);
    case SL_VALUE_INPUT:
        return fill_input(step, row->batch, v, out_value);
    case SL_VALUE_OUTPUT:
    case SL_VALUE_PERSISTENT:
    case SL_VALUE_CHUNK:
    case SL_VALUE_PART:
        break;
    }
    return name_shared(step, v, out_value);
}

/* ---- copying ---- */

/* All micro-batches add to one loss: the first copy of an op keeps the tape's adds_output, later
 * copies add. */
static void add_to_loss(const sl_step *step, uint32_t index, sl_op *op)
{
    if (op->kind == SL_OP_HEAD_LOSS && step->copied[index] > 0)
        op->attrs.adds_output = 1;
}

static sl_status copy_op(sl_step *step, const sl_schedule_row *row, uint32_t index,
                         uint32_t returned)
{
    const sl_program *tape = step->tape->program;
    const sl_op *tape_op = &tape->ops[index];
    sl_op op = *tape_op;
    step->micro_batch = op.micro_batch = row->batch.micro_batch;
    step->segment = op.segment;
    step->phase = op.phase;
    for (uint32_t i = 0; i < sl_op_info_of(op.kind)->operand_count; i++)
        SL_TRY(name_operand(step, row, tape_op, i, &op.operand[i]));
    if (returned != SL_NONE)
        SL_TRY(name_activation(step, row->returns, row->section, tape->ops[returned].operand[TAKEN],
                               false, &op.operand[TAKEN]));
    if (returned != SL_NONE && row->direction == SL_DIRECTION_BACKWARD)
        op.micro_batch = row->returns.micro_batch; /* of the received activation */
    add_to_loss(step, index, &op);
    SL_TRY(sl_sums_open_contributions(step, index, &op));
    SL_TRY(sl_build_append_op(step->program, &op));
    step->copied[index]++;
    return sl_sums_close_contributions(step, index);
}

static sl_status copy_section(sl_step *step, const sl_section *rows)
{
    static const visitor copying = {copy_op, sl_update_consume_complete};
    const bool is_last = rows->first + rows->count == step->schedule.row_count;
    sl_section section = *rows;
    section.first = step->program->op_count;
    for (uint32_t r = rows->first; r < rows->first + rows->count; r++) {
        if (step->schedule.rows[r].refills)
            step->refill = r;
        SL_TRY(walk_row(step, &copying, &step->schedule.rows[r]));
    }
    if (is_last)
        SL_TRY(sl_update_finish(step));
    section.count = step->program->op_count - section.first;
    return section.count > 0 ? sl_build_append_section(step->program, &section) : SL_OK;
}

static sl_status copy_rows(sl_step *step)
{
    for (uint32_t s = 0; s < step->schedule.section_count; s++)
        SL_TRY(copy_section(step, &step->schedule.sections[s]));
    for (uint32_t t = 0; t < step->tape->program->op_count; t++)
        assert(step->copied[t] == step->copies[t]);
    return SL_OK;
}

/* ---- values of the step ---- */

/* 0: the chunk's rule stores nothing in the group. */
static uint64_t find_block_bytes(const sl_step *step, sl_group group, uint32_t chunk_index)
{
    const sl_stored_types types = sl_program_stored_types(step->program);
    return sl_rule_block_bytes(step->map->chunks[chunk_index].rule, group, &types);
}

static sl_status add_tensor_values(sl_step *step, sl_group group)
{
    const sl_program *forward = step->forward;
    sl_type type = sl_program_group_type(step->program, group);
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        if (group == SL_GROUP_GRAD && !sl_program_trains(forward, t))
            continue;
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

/* Where ranks keep shards of gradients, ops write to an activation as long as the whole chunk, and
 * the gradient of a tensor is a part of that activation. */
static sl_status add_chunk_gradients(sl_step *step)
{
    sl_program *program = step->program;
    const sl_type type = program->grad_type;
    char name[sizeof program->values->name];
    for (uint32_t c = 0; c < step->map->chunk_count; c++) {
        uint64_t bytes;
        if (step->chunks[c].value[SL_GROUP_GRAD] == SL_NONE)
            continue;
        SL_TRY(
            sl_bits_multiply(step->map->chunks[c].elements, sl_type_bytes(type), "chunk", &bytes));
        snprintf(name, sizeof name, "gradient of chunk %u", c);
        SL_TRY(sl_step_add_value(step, "", name, bytes, type, &step->chunks[c].gradient));
    }
    for (uint32_t t = 0; t < step->forward->tensor_count; t++) {
        if (step->tensors[t].grad == SL_NONE)
            continue;
        sl_value *gradient = &program->values[step->tensors[t].grad];
        gradient->kind = SL_VALUE_PART;
        gradient->whole = step->chunks[step->map->chunk_of_tensor[t]].gradient;
    }
    return SL_OK;
}

static sl_status add_chunk_values(sl_step *step, sl_group group)
{
    const sl_type type = sl_program_group_type(step->program, group);
    const uint32_t shard_count = sl_program_shard_count(step->program, group);
    for (uint32_t c = 0; c < step->map->chunk_count; c++) {
        sl_value value = {.kind = SL_VALUE_CHUNK, .group = group, .index = c, .type = type};
        const uint64_t block_bytes = find_block_bytes(step, group, c);
        if (block_bytes == 0)
            continue;
        value.bytes = sl_chunk_bytes(
            step->map->chunks[c].elements / shard_count / SL_BLOCK_ELEMENTS, block_bytes);
        step->program->has_state[group] = true;
        snprintf(value.name, sizeof value.name, "%s chunk %u", sl_group_name(group), c);
        SL_TRY(sl_program_add_value(step->program, &value, &step->chunks[c].value[group]));
    }
    return SL_OK;
}

static sl_status add_values(sl_step *step)
{
    SL_TRY(add_tensor_values(step, SL_GROUP_PARAM));
    SL_TRY(add_tensor_values(step, SL_GROUP_GRAD));
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        SL_TRY(add_chunk_values(step, (sl_group)group));
    for (uint32_t c = 0; c < step->map->chunk_count; c++)
        step->chunks[c].gradient = step->chunks[c].value[SL_GROUP_GRAD];
    return sl_program_shards_group(step->program, SL_GROUP_GRAD) ? add_chunk_gradients(step)
                                                                 : SL_OK;
}

/* ---- opening ---- */

static sl_status allocate_arrays(sl_step *step)
{
    const sl_program *tape = step->tape->program;
    const uint32_t chunks = step->map->chunk_count, tensors = step->forward->tensor_count;
    const uint64_t names = (uint64_t)step->schedule.place_count * tape->value_count;
    const uint64_t uses = (uint64_t)tape->op_count * SL_OPERAND_MAX;
    step->names = calloc(names + 1, sizeof *step->names);
    step->row_inputs = calloc(2ull * tape->value_count + 1, sizeof *step->row_inputs);
    step->copies = calloc(2ull * tape->op_count + 1, sizeof *step->copies);
    step->deferred = calloc(uses + 1, sizeof *step->deferred);
    step->tensors = calloc((uint64_t)tensors + 1, sizeof *step->tensors);
    step->chunks = calloc((uint64_t)chunks + 1, sizeof *step->chunks);
    step->complete = calloc((uint64_t)chunks + 1, sizeof *step->complete);
    if (step->names == NULL || step->row_inputs == NULL || step->copies == NULL ||
        step->deferred == NULL || step->tensors == NULL || step->chunks == NULL ||
        step->complete == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to derive a step from %u ops", step->forward->op_count);
    step->copied = step->copies + tape->op_count;
    for (uint64_t n = 0; n < names; n++)
        step->names[n].value = step->names[n].made_for = SL_NONE;
    memset(step->row_inputs, 0xFF, 2ull * tape->value_count * sizeof *step->row_inputs);
    memset(step->deferred, 0xFF, uses * sizeof *step->deferred); /* SL_NONE */
    for (uint32_t t = 0; t < tensors; t++)
        step->tensors[t] = (sl_step_tensor){.param = SL_NONE, .grad = SL_NONE, .sum = SL_NONE};
    for (uint32_t c = 0; c < chunks; c++)
        memset(step->chunks[c].value, 0xFF, sizeof step->chunks[c].value);
    return SL_OK;
}

static void free_arrays(sl_step *step)
{
    sl_tape_close(step->tape);
    sl_schedule_close(&step->schedule);
    free(step->names);
    free(step->row_inputs);
    free(step->copies);
    free(step->deferred);
    free(step->tensors);
    free(step->chunks);
    free(step->complete);
}

/* Copies sizes, types, tensors and segments of the forward program. */
static sl_status copy_frame(sl_step *step)
{
    const sl_program *forward = step->forward;
    sl_program *to = step->program;
    to->micro_batch_count = step->options->micro_batch_count;
    to->type = forward->type;
    sl_program_copy_lists(forward, to);
    to->grad_type = forward->grad_type;
    to->states = forward->states;
    to->frozen = forward->frozen;
    to->master = forward->master;
    to->tp_size = forward->tp_size;
    to->tp_rank = forward->tp_rank;
    to->dp_size = forward->dp_size;
    to->dp_rank = forward->dp_rank;
    to->zero = forward->zero;
    to->stage_count = forward->stage_count;
    to->stage_index = forward->stage_index;
    to->stages_before_are_frozen = forward->stages_before_are_frozen;
    to->has_whole_gradients = forward->has_whole_gradients;
    to->head_ranks = forward->head_ranks;
    to->mask_rows = forward->mask_rows;
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        SL_TRY(sl_build_append_tensor(to, &forward->tensors[t]));
    for (uint32_t s = 0; s < forward->segment_count; s++)
        SL_TRY(sl_build_append_segment(to, &forward->segments[s]));
    return SL_OK;
}

/* ---- the request ---- */

/* Segments that end in the loss come last, and run backward first; then the others run backward,
 * the last site first. So the contributions of a tensor's last site are the first terms of its
 * gradient in every order. */
static sl_status check_segments(const sl_program *forward)
{
    for (uint32_t s = 1; s < forward->segment_count; s++) {
        const sl_segment *before = &forward->segments[s - 1], *it = &forward->segments[s];
        if (before->is_terminal && !it->is_terminal)
            SL_FAIL(SL_ERROR_INTERNAL, "segment %u stands behind one that ends in the loss", s);
        if (it->site < before->site || (it->site == before->site && !before->is_terminal))
            SL_FAIL(SL_ERROR_INTERNAL,
                    "segment %u, at site %u, and segment %u, at site %u: sites ascend, and only "
                    "segments that end in the loss share a site",
                    s - 1, before->site, s, it->site);
    }
    return SL_OK;
}

static sl_status check_forward(const sl_program *forward)
{
    for (uint32_t o = 0; o < forward->op_count; o++)
        if (forward->ops[o].segment >= forward->segment_count)
            SL_FAIL(SL_ERROR_INTERNAL, "op %u of the forward program has no segment", o);
    return check_segments(forward);
}

/* With half-precision gradients in micro order, the fp32 sum of every tensor would live from the
 * first micro-batch to the last: as much memory as a grad group in fp32, and more work. */
static sl_status check_types(const sl_program *forward, const sl_step_options *options)
{
    if (forward->grad_type == SL_TYPE_FP32)
        return SL_OK;
    if (forward->grad_type != forward->type)
        SL_FAIL(SL_ERROR_INTERNAL, "gradients of type %d in a program of type %d",
                (int)forward->grad_type, (int)forward->type);
    if (options->micro_batch_count > 1 && options->accumulation != SL_ACCUMULATE_LAYER)
        SL_FAIL(SL_ERROR_USAGE,
                "gradients in half precision take one micro-batch or accumulation by layer, not "
                "%u micro-batches in micro order: keep gradients in fp32",
                options->micro_batch_count);
    return SL_OK;
}

static sl_status check_request(const sl_program *forward, const sl_chunk_map *chunks,
                               const sl_step_options *options)
{
    if (options->micro_batch_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a step needs at least one micro-batch");
    for (uint32_t c = 0; c < chunks->chunk_count; c++)
        if (chunks->chunks[c].elements == 0 || chunks->chunks[c].elements % SL_BLOCK_ELEMENTS != 0)
            SL_FAIL(SL_ERROR_INTERNAL, "chunk %u of %llu elements is not of whole blocks", c,
                    (unsigned long long)chunks->chunks[c].elements);
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        if (chunks->chunk_of_tensor[t] >= chunks->chunk_count ||
            forward->tensors[t].element_count > chunks->chunks[chunks->chunk_of_tensor[t]].elements)
            SL_FAIL(SL_ERROR_INTERNAL, "tensor %s is in no chunk", forward->tensors[t].name);
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        if (chunks->chunks[chunks->chunk_of_tensor[t]].rule != forward->tensors[t].rule)
            SL_FAIL(SL_ERROR_INTERNAL, "tensor %s is in a chunk of another rule",
                    forward->tensors[t].name);
    SL_TRY(check_types(forward, options));
    const uint64_t ranks = forward->dp_size > 1 ? forward->dp_size : 1;
    if (forward->mask_rows > SL_COUNTED_MAX / ranks / options->micro_batch_count)
        SL_FAIL(SL_ERROR_USAGE, "a step of more than %d tokens cannot count those of responses",
                SL_COUNTED_MAX);
    if (forward->mask_rows > 0 && options->update_early)
        SL_FAIL(SL_ERROR_INTERNAL, "with masks no chunk is updated before all losses are known");
    if (forward->stage_count > 1 && options->accumulation == SL_ACCUMULATE_LAYER &&
        options->schedule != SL_SCHEDULE_GPIPE)
        SL_FAIL(SL_ERROR_USAGE, "stages that take micro-batches back before all are sent have no "
                                "layer order: add --schedule gpipe");
    return check_forward(forward);
}

/* ---- the whole step ---- */

static sl_status make_step(sl_step *step)
{
    SL_TRY(sl_tape_open(step->forward, step->options, &step->tape));
    SL_TRY(sl_schedule_build(step->forward, step->tape, step->options, &step->schedule));
    SL_TRY(allocate_arrays(step));
    SL_TRY(copy_frame(step));
    SL_TRY(add_values(step));
    SL_TRY(count_rows(step));
    return copy_rows(step);
}

sl_status sl_program_derive_step(const sl_program *forward, const sl_chunk_map *chunks,
                                 const sl_step_options *options, sl_program **out_step)
{
    SL_TRY(check_request(forward, chunks, options));
    sl_step step = {.forward = forward, .map = chunks, .options = options, .norm = SL_NONE};
    SL_TRY(sl_program_open(&step.program));
    sl_status status = make_step(&step);
    free_arrays(&step);
    if (status != SL_OK) {
        sl_program_close(step.program);
        return status;
    }
    *out_step = step.program;
    return SL_OK;
}
