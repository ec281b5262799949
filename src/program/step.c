/* The schedule of a training step: which forward and backward ops stand where.
 *
 * micro: each micro-batch runs forward and backward as a whole. layer: each segment runs all
 * micro-batches before the next one starts, so its parameters are needed twice a step, not twice a
 * micro-batch. Both visit micro-batches in index order, so sums come out equal.
 *
 * A stage of a pipeline has orders of its own, and this one (pipeline.c).
 *
 * Each is a row of loops over the micro-batches, and each loop a row of turns: the first
 * micro-batch, those between as one repeated section, the last one. A turn is a section of its own;
 * what comes between loops, as updates do, belongs to the turn before.
 */
#include "step.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- turns and sections ---- */

static uint32_t count_turns(const sl_step *step)
{
    uint32_t count = step->options->micro_batch_count;
    return count < SL_TURNS_MAX ? count : SL_TURNS_MAX;
}

static void enter_turn(sl_step *step, uint32_t turn)
{
    const uint32_t micro_batches = step->options->micro_batch_count;
    step->turn = turn;
    step->is_first = turn == 0;
    step->is_last = turn + 1 == step->turn_count;
    step->micro_batch = step->is_last ? micro_batches - 1 : turn;
    step->instances = turn == 1 && step->turn_count == SL_TURNS_MAX ? micro_batches - 2 : 1;
}

static sl_status end_section(sl_step *step)
{
    step->section.count = step->program->op_count - step->section.first;
    return step->section.count > 0 ? sl_build_append_section(step->program, &step->section) : SL_OK;
}

sl_status sl_step_begin_section(sl_step *step, const sl_section *next)
{
    SL_TRY(end_section(step));
    step->section = *next;
    step->section.first = step->program->op_count;
    sl_instance_forget_inputs(step);
    return SL_OK;
}

/* What follows belongs to `turn`; a single micro-batch is one section. */
sl_status sl_step_begin_turn(sl_step *step, uint32_t turn)
{
    enter_turn(step, turn);
    const sl_section next = {.first_micro_batch = step->micro_batch, .repeat = step->instances};
    if (step->section.first_micro_batch == next.first_micro_batch)
        return SL_OK;
    return sl_step_begin_section(step, &next);
}

/* ---- one turn ---- */

static sl_status emit_forward(sl_step *step, uint32_t segment_index)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    step->phase = SL_PHASE_FORWARD;
    step->segment = segment_index;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        SL_TRY(step->forward->ops[o].kind == SL_OP_EXCHANGE
                   ? sl_pipeline_emit_exchange(step, o)
                   : sl_instance_emit_op(step, &step->forward->ops[o]));
    return sl_recompute_forget(step, segment_index);
}

static sl_status emit_backward_op(sl_step *step, uint32_t segment_index, uint32_t op_index)
{
    step->phase = SL_PHASE_BACKWARD;
    step->segment = segment_index;
    SL_TRY(sl_backward_emit(step, op_index));
    return sl_gradient_consume_complete(step);
}

static sl_status emit_backward(sl_step *step, uint32_t segment_index)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    for (uint32_t o = segment->op_count; o-- > 0;)
        SL_TRY(emit_backward_op(step, segment_index, segment->first_op + o));
    return SL_OK;
}

static sl_status emit_terminals(sl_step *step)
{
    for (uint32_t s = 0; s < step->forward->segment_count; s++) {
        if (!step->forward->segments[s].is_terminal)
            continue;
        SL_TRY(emit_forward(step, s));
        SL_TRY(emit_backward(step, s));
    }
    return SL_OK;
}

sl_status sl_step_emit_pass_forward(sl_step *step)
{
    for (uint32_t s = 0; s < step->forward->segment_count; s++)
        if (!step->forward->segments[s].is_terminal)
            SL_TRY(emit_forward(step, s));
    return SL_OK;
}

sl_status sl_step_emit_pass_backward(sl_step *step)
{
    SL_TRY(emit_terminals(step));
    for (uint32_t s = step->forward->segment_count; s-- > 0;)
        if (!step->forward->segments[s].is_terminal)
            SL_TRY(emit_backward(step, s));
    return SL_OK;
}

/* ---- loops ---- */

static sl_status emit_by_micro_batch(sl_step *step)
{
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        SL_TRY(sl_step_emit_pass_forward(step));
        SL_TRY(sl_step_emit_pass_backward(step));
    }
    return SL_OK;
}

static bool op_uses_tensor(const sl_program *forward, const sl_op *op, uint32_t tensor)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE && forward->values[op->operand[i]].kind == SL_VALUE_TENSOR &&
            forward->values[op->operand[i]].index == tensor)
            return true;
    return false;
}

/* True if an op of the segment before `op_index` uses the tensor. */
static bool is_used_before(const sl_program *forward, const sl_segment *segment, uint32_t op_index,
                           uint32_t tensor)
{
    for (uint32_t o = segment->first_op; o < op_index; o++)
        if (op_uses_tensor(forward, &forward->ops[o], tensor))
            return true;
    return false;
}

/* Elements of the largest activation that the segment touches, of all micro-batches. */
static double count_activation_elements(const sl_step *step, const sl_segment *segment)
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

/* True if it helps to run a segment's backward op by op over all micro-batches, because it uses a
 * parameter whose last site is another one, and its accumulator is larger than the gradients that
 * each op then reads again; and if that changes no sum: no two of its ops add to the same
 * accumulator. */
static bool may_go_by_op(const sl_step *step, uint32_t segment_index)
{
    const sl_program *forward = step->forward;
    const sl_segment *segment = &forward->segments[segment_index];
    double deferred_elements = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = op->operand[i];
            if (v == SL_NONE || forward->values[v].kind != SL_VALUE_TENSOR)
                continue;
            const uint32_t tensor = forward->values[v].index;
            if (sl_gradient_is_deferred(step, op, tensor))
                deferred_elements += (double)forward->tensors[tensor].element_count;
            else if (is_used_before(forward, segment, o, tensor))
                return false;
        }
    }
    return deferred_elements >= count_activation_elements(step, segment) && deferred_elements > 0;
}

/* Op by op over all micro-batches: an accumulator of a deferred use lives for one op only. */
static sl_status emit_backward_by_op(sl_step *step, uint32_t segment_index)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    for (uint32_t o = segment->op_count; o-- > 0;)
        for (uint32_t turn = 0; turn < step->turn_count; turn++) {
            SL_TRY(sl_step_begin_turn(step, turn));
            SL_TRY(emit_backward_op(step, segment_index, segment->first_op + o));
        }
    return SL_OK;
}

/* What a stage takes from another, or gives to it, goes with the block that needs or makes it: the
 * other stage then waits for one micro-batch and not for all. */
static bool exchanges(const sl_program *forward, uint32_t segment_index)
{
    return forward->ops[forward->segments[segment_index].first_op].kind == SL_OP_EXCHANGE;
}

static bool goes_with_next(const sl_program *forward, uint32_t segment_index)
{
    const bool takes = segment_index == 0 && exchanges(forward, segment_index);
    const bool is_before_last = segment_index + 2 == forward->segment_count;
    return takes || (is_before_last && exchanges(forward, segment_index + 1));
}

/* Segments [first, end) in one loop. */
static sl_status emit_layer_forward(sl_step *step, uint32_t first, uint32_t end)
{
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        for (uint32_t s = first; s < end; s++)
            SL_TRY(emit_forward(step, s));
    }
    return SL_OK;
}

static sl_status emit_layer_backward(sl_step *step, uint32_t first, uint32_t end)
{
    if (end == first + 1 && may_go_by_op(step, first))
        return emit_backward_by_op(step, first);
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        for (uint32_t s = end; s-- > first;)
            SL_TRY(emit_backward(step, s));
    }
    return SL_OK;
}

/* The segment that runs in the loop of the terminal ones, forward before and backward behind them,
 * for what it makes is needed there alone: the last norm. SL_NONE: there is none. */
static uint32_t find_head_segment(const sl_program *forward)
{
    uint32_t last = SL_NONE;
    bool has_terminals = false;
    for (uint32_t s = 0; s < forward->segment_count; s++) {
        has_terminals = has_terminals || forward->segments[s].is_terminal;
        if (!forward->segments[s].is_terminal)
            last = s;
    }
    return has_terminals && last != SL_NONE && !forward->segments[last].is_block ? last : SL_NONE;
}

static sl_status emit_head(sl_step *step, uint32_t head_segment)
{
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        if (head_segment != SL_NONE)
            SL_TRY(emit_forward(step, head_segment));
        SL_TRY(emit_terminals(step));
        if (head_segment != SL_NONE)
            SL_TRY(emit_backward(step, head_segment));
    }
    return SL_OK;
}

sl_status sl_step_emit_by_layer(sl_step *step)
{
    const sl_program *forward = step->forward;
    const uint32_t head_segment = find_head_segment(forward);
    uint32_t first, end;
    for (first = 0; first < forward->segment_count; first = end) {
        end = first + 1;
        if (first == head_segment || forward->segments[first].is_terminal)
            continue;
        while (goes_with_next(forward, end - 1))
            end++;
        SL_TRY(emit_layer_forward(step, first, end));
    }
    SL_TRY(emit_head(step, head_segment));
    for (end = forward->segment_count; end > 0; end = first) {
        first = end - 1;
        if (first == head_segment || forward->segments[first].is_terminal)
            continue;
        while (first > 0 && goes_with_next(forward, first - 1))
            first--;
        SL_TRY(emit_layer_backward(step, first, end));
    }
    return SL_OK;
}

/* ---- what the files work on ---- */

static sl_status allocate_arrays(sl_step *step)
{
    const sl_program *forward = step->forward;
    const uint32_t chunks = step->map->chunk_count;
    const uint64_t uses = (uint64_t)forward->op_count * SL_OPERAND_MAX;
    const uint64_t turn_values = (uint64_t)forward->value_count * step->turn_count;
    step->values = calloc((uint64_t)forward->value_count + 1, sizeof *step->values);
    step->turn_values = calloc(turn_values + 1, sizeof *step->turn_values);
    step->tensors = calloc((uint64_t)forward->tensor_count + 1, sizeof *step->tensors);
    step->chunks = calloc((uint64_t)chunks + 1, sizeof *step->chunks);
    step->deferred = calloc(uses + 1, sizeof *step->deferred);
    step->complete = calloc((uint64_t)chunks + 1, sizeof *step->complete);
    if (step->values == NULL || step->turn_values == NULL || step->tensors == NULL ||
        step->chunks == NULL || step->deferred == NULL || step->complete == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to derive a step from %u ops", forward->op_count);
    for (uint64_t v = 0; v < turn_values; v++)
        step->turn_values[v] =
            (sl_turn_value){.counterpart = SL_NONE, .gradient = SL_NONE, .part = SL_NONE};
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        step->tensors[t] = (sl_step_tensor){SL_NONE, SL_NONE, SL_NONE, SL_NONE, 0, false};
    for (uint32_t v = 0; v < forward->value_count; v++)
        step->values[v].filled[0] = step->values[v].filled[1] = SL_NONE;
    for (uint32_t c = 0; c < chunks; c++)
        for (int group = 0; group < SL_GROUP_COUNT; group++)
            step->chunks[c].value[group] = SL_NONE;
    memset(step->deferred, 0xFF, uses * sizeof *step->deferred); /* SL_NONE */
    return SL_OK;
}

static void free_arrays(sl_step *step)
{
    free(step->values);
    free(step->turn_values);
    free(step->tensors);
    free(step->chunks);
    free(step->deferred);
    free(step->complete);
    free(step->slots);
    free(step->links);
}

/* ---- the request ---- */

typedef struct placed_segment {
    uint32_t site, index;
} placed_segment;

static int compare_sites(const void *left, const void *right)
{
    const placed_segment *a = left, *b = right;
    if (a->site != b->site)
        return a->site < b->site ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* `sorted` has room for all segments: those of one site stand together in it. */
static sl_status check_sites(const sl_program *forward, placed_segment *sorted)
{
    const sl_segment *segments = forward->segments;
    for (uint32_t s = 0; s < forward->segment_count; s++)
        sorted[s] = (placed_segment){segments[s].site, s};
    qsort(sorted, forward->segment_count, sizeof *sorted, compare_sites);
    for (uint32_t i = 1; i < forward->segment_count; i++) {
        uint32_t s = sorted[i - 1].index, other = sorted[i].index;
        if (segments[s].site == segments[other].site &&
            !(segments[s].is_terminal && segments[other].is_terminal))
            SL_FAIL(SL_ERROR_INTERNAL, "segments %u and %u share a site and are not terminal", s,
                    other);
    }
    return SL_OK;
}

static sl_status check_forward(const sl_program *forward)
{
    for (uint32_t o = 0; o < forward->op_count; o++)
        if (forward->ops[o].segment >= forward->segment_count)
            SL_FAIL(SL_ERROR_INTERNAL, "op %u of the forward program has no segment", o);
    placed_segment *sorted = calloc((uint64_t)forward->segment_count + 1, sizeof *sorted);
    if (sorted == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to check %u segments", forward->segment_count);
    sl_status status = check_sites(forward, sorted);
    free(sorted);
    return status;
}

/* In micro-batch order every tensor's sum in fp32 would live from the first micro-batch to the
 * last: as much memory as a grad group in fp32, and more work. */
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
    if (chunks->chunk_elements == 0 || chunks->chunk_elements % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "chunks of %llu elements are not whole blocks",
                (unsigned long long)chunks->chunk_elements);
    for (uint32_t t = 0; t < forward->tensor_count; t++)
        if (chunks->chunk_of_tensor[t] >= chunks->chunk_count ||
            forward->tensors[t].element_count > chunks->chunk_elements)
            SL_FAIL(SL_ERROR_INTERNAL, "tensor %s is in no chunk", forward->tensors[t].name);
    SL_TRY(check_types(forward, options));
    if (forward->stage_count > 1 && options->accumulation == SL_ACCUMULATE_LAYER &&
        options->schedule != SL_SCHEDULE_GPIPE)
        SL_FAIL(SL_ERROR_USAGE, "stages that take micro-batches back before all are sent have no "
                                "layer order: add --schedule gpipe");
    return check_forward(forward);
}

/* ---- the whole step ---- */

static bool is_stage(const sl_step *step)
{
    return step->forward->stage_count > 1;
}

static sl_status emit_step(sl_step *step)
{
    step->turn_count = step->pass_count = count_turns(step);
    step->return_turn = SL_NONE;
    if (is_stage(step))
        sl_pipeline_open(step);
    SL_TRY(allocate_arrays(step));
    step->program->micro_batch_count = step->options->micro_batch_count;
    step->program->type = step->forward->type;
    step->program->grad_type = step->forward->grad_type;
    step->program->tp_size = step->forward->tp_size;
    step->program->tp_rank = step->forward->tp_rank;
    step->program->dp_size = step->forward->dp_size;
    step->program->dp_rank = step->forward->dp_rank;
    step->program->zero = step->forward->zero;
    step->program->stage_count = step->forward->stage_count;
    step->program->stage_index = step->forward->stage_index;
    step->program->has_whole_gradients = step->forward->has_whole_gradients;
    step->program->head_ranks = step->forward->head_ranks;
    SL_TRY(sl_instance_open(step));
    SL_TRY(sl_recompute_open(step));
    sl_backward_open(step);
    SL_TRY(sl_gradient_open(step));
    step->section.repeat = 1;
    if (is_stage(step))
        SL_TRY(sl_pipeline_emit(step));
    else if (step->options->accumulation == SL_ACCUMULATE_LAYER)
        SL_TRY(sl_step_emit_by_layer(step));
    else
        SL_TRY(emit_by_micro_batch(step));
    SL_TRY(sl_gradient_finish(step));
    SL_TRY(end_section(step));
    return step->refills_inputs ? sl_pipeline_settle(step) : sl_instance_settle_families(step);
}

sl_status sl_program_derive_step(const sl_program *forward, const sl_chunk_map *chunks,
                                 const sl_step_options *options, sl_program **out_step)
{
    SL_TRY(check_request(forward, chunks, options));
    sl_step step = {.forward = forward, .map = chunks, .options = options, .norm = SL_NONE};
    SL_TRY(sl_program_open(&step.program));
    sl_status status = emit_step(&step);
    free_arrays(&step);
    if (status != SL_OK) {
        sl_program_close(step.program);
        return status;
    }
    *out_step = step.program;
    return SL_OK;
}
