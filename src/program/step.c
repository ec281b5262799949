/* The schedule of a training step: which forward and backward ops stand where.
 *
 * micro: each micro-batch runs forward and backward as a whole. layer: each segment runs all
 * micro-batches before the next one starts, so its parameters are needed twice a step, not twice a
 * micro-batch. Both visit micro-batches in index order, so sums come out equal.
 */
#include "step.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"

static sl_status emit_forward(sl_step *step, uint32_t segment_index, uint32_t micro_batch)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    step->phase = SL_PHASE_FORWARD;
    step->segment = segment_index;
    step->micro_batch = micro_batch;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        SL_TRY(sl_instance_emit_op(step, &step->forward->ops[o]));
    sl_recompute_forget(step, segment_index);
    return SL_OK;
}

static sl_status emit_backward_op(sl_step *step, uint32_t segment_index, uint32_t op_index,
                                  uint32_t micro_batch)
{
    step->phase = SL_PHASE_BACKWARD;
    step->segment = segment_index;
    step->micro_batch = micro_batch;
    SL_TRY(sl_backward_emit(step, op_index));
    return sl_update_flush(step);
}

static sl_status emit_backward(sl_step *step, uint32_t segment_index, uint32_t micro_batch)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    for (uint32_t o = segment->op_count; o-- > 0;)
        SL_TRY(emit_backward_op(step, segment_index, segment->first_op + o, micro_batch));
    return SL_OK;
}

/* Op by op over all micro-batches: an accumulator of a deferred use lives for one op only. */
static sl_status emit_backward_by_op(sl_step *step, uint32_t segment_index)
{
    const sl_segment *segment = &step->forward->segments[segment_index];
    for (uint32_t o = segment->op_count; o-- > 0;)
        for (uint32_t m = 0; m < step->options->micro_batch_count; m++)
            SL_TRY(emit_backward_op(step, segment_index, segment->first_op + o, m));
    return SL_OK;
}

static sl_status emit_terminals(sl_step *step, uint32_t micro_batch)
{
    for (uint32_t s = 0; s < step->forward->segment_count; s++) {
        if (!step->forward->segments[s].is_terminal)
            continue;
        SL_TRY(emit_forward(step, s, micro_batch));
        SL_TRY(emit_backward(step, s, micro_batch));
    }
    return SL_OK;
}

static sl_status emit_micro_batch(sl_step *step, uint32_t micro_batch)
{
    const sl_program *forward = step->forward;
    for (uint32_t s = 0; s < forward->segment_count; s++)
        if (!forward->segments[s].is_terminal)
            SL_TRY(emit_forward(step, s, micro_batch));
    SL_TRY(emit_terminals(step, micro_batch));
    for (uint32_t s = forward->segment_count; s-- > 0;)
        if (!forward->segments[s].is_terminal)
            SL_TRY(emit_backward(step, s, micro_batch));
    return SL_OK;
}

static sl_status emit_by_micro_batch(sl_step *step)
{
    for (uint32_t m = 0; m < step->options->micro_batch_count; m++)
        SL_TRY(emit_micro_batch(step, m));
    return SL_OK;
}

static sl_status emit_layer_backward(sl_step *step, uint32_t segment_index)
{
    if (sl_gradient_may_go_by_op(step, segment_index))
        return emit_backward_by_op(step, segment_index);
    for (uint32_t m = 0; m < step->options->micro_batch_count; m++)
        SL_TRY(emit_backward(step, segment_index, m));
    return SL_OK;
}

static sl_status emit_by_layer(sl_step *step)
{
    const sl_program *forward = step->forward;
    uint32_t micro_batch_count = step->options->micro_batch_count;
    for (uint32_t s = 0; s < forward->segment_count; s++)
        for (uint32_t m = 0; m < micro_batch_count && !forward->segments[s].is_terminal; m++)
            SL_TRY(emit_forward(step, s, m));
    for (uint32_t m = 0; m < micro_batch_count; m++)
        SL_TRY(emit_terminals(step, m));
    for (uint32_t s = forward->segment_count; s-- > 0;)
        if (!forward->segments[s].is_terminal)
            SL_TRY(emit_layer_backward(step, s));
    return SL_OK;
}

/* ---- what the passes work on ---- */

typedef struct column {
    void **array;
    uint64_t count;
    size_t element_bytes;
    bool starts_empty; /* filled with SL_NONE, else with zero */
} column;

static sl_status allocate_column(const column *wanted)
{
    uint64_t bytes;
    SL_TRY(sl_bits_multiply(wanted->count, wanted->element_bytes, "step", &bytes));
    *wanted->array = malloc(bytes + 1);
    if (*wanted->array == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to derive a step (%llu bytes)",
                (unsigned long long)bytes);
    memset(*wanted->array, wanted->starts_empty ? 0xFF : 0, bytes);
    return SL_OK;
}

static sl_status allocate_maps(sl_step *step)
{
    const sl_program *forward = step->forward;
    uint64_t values = forward->value_count, tensors = forward->tensor_count;
    uint64_t chunks = step->chunks->chunk_count;
    uint64_t pairs = values * step->options->micro_batch_count; /* of 32 bits each */
    uint64_t uses = (uint64_t)forward->op_count * SL_OPERAND_MAX;
    const column columns[] = {
        {(void **)&step->param_of_tensor, tensors, sizeof(uint32_t), true},
        {(void **)&step->grad_of_tensor, tensors, sizeof(uint32_t), true},
        {(void **)&step->chunk_value[SL_GROUP_PARAM], chunks, sizeof(uint32_t), true},
        {(void **)&step->chunk_value[SL_GROUP_GRAD], chunks, sizeof(uint32_t), true},
        {(void **)&step->chunk_value[SL_GROUP_MASTER], chunks, sizeof(uint32_t), true},
        {(void **)&step->chunk_value[SL_GROUP_MOMENT1], chunks, sizeof(uint32_t), true},
        {(void **)&step->chunk_value[SL_GROUP_MOMENT2], chunks, sizeof(uint32_t), true},
        {(void **)&step->counterpart, pairs, sizeof(uint32_t), true},
        {(void **)&step->is_forgotten, values, sizeof(bool), false},
        {(void **)&step->is_wanted, values, sizeof(bool), false},
        {(void **)&step->reader_count, values, sizeof(uint32_t), false},
        {(void **)&step->gradient, pairs, sizeof(uint32_t), true},
        {(void **)&step->gradient_rows, pairs, sizeof(uint64_t), false},
        {(void **)&step->gradient_partial, pairs, sizeof(uint8_t), false},
        {(void **)&step->last_site, tensors, sizeof(uint32_t), true},
        {(void **)&step->accumulator, uses, sizeof(uint32_t), true},
        {(void **)&step->tensor_sum, tensors, sizeof(uint32_t), true},
        {(void **)&step->open_parts, tensors, sizeof(uint32_t), false},
        {(void **)&step->open_writes, chunks, sizeof(uint32_t), false},
        {(void **)&step->is_cleared, chunks, sizeof(bool), false},
        {(void **)&step->complete, chunks, sizeof(uint32_t), false},
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        SL_TRY(allocate_column(&columns[i]));
    return SL_OK;
}

static void free_maps(sl_step *step)
{
    free(step->param_of_tensor);
    free(step->grad_of_tensor);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        free(step->chunk_value[group]);
    free(step->counterpart);
    free(step->is_forgotten);
    free(step->is_wanted);
    free(step->reader_count);
    free(step->gradient);
    free(step->gradient_rows);
    free(step->gradient_partial);
    free(step->last_site);
    free(step->accumulator);
    free(step->tensor_sum);
    free(step->open_parts);
    free(step->open_writes);
    free(step->is_cleared);
    free(step->complete);
}

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
    return check_forward(forward);
}

static sl_status emit_step(sl_step *step)
{
    SL_TRY(allocate_maps(step));
    step->program->micro_batch_count = step->options->micro_batch_count;
    step->program->type = step->forward->type;
    step->program->grad_type = step->forward->grad_type;
    SL_TRY(sl_instance_open(step));
    SL_TRY(sl_recompute_open(step));
    sl_backward_open(step);
    SL_TRY(sl_gradient_open(step));
    if (step->options->accumulation == SL_ACCUMULATE_LAYER)
        SL_TRY(emit_by_layer(step));
    else
        SL_TRY(emit_by_micro_batch(step));
    return sl_update_finish(step);
}

sl_status sl_program_derive_step(const sl_program *forward, const sl_chunk_map *chunks,
                                 const sl_step_options *options, sl_program **out_step)
{
    SL_TRY(check_request(forward, chunks, options));
    sl_step step = {.forward = forward, .chunks = chunks, .options = options, .norm = SL_NONE};
    SL_TRY(sl_program_open(&step.program));
    sl_status status = emit_step(&step);
    free_maps(&step);
    if (status != SL_OK) {
        sl_program_close(step.program);
        return status;
    }
    *out_step = step.program;
    return SL_OK;
}
