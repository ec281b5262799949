/* The end of a gradient's way: its norm, and AdamW of its chunk. Norms are sums that no order can
 * change, so chunks are added as they become complete. */
#include "base/status.h"
#include "step.h"

static sl_op_attrs typed_attrs(const sl_step *step)
{
    return (sl_op_attrs){.type = (uint16_t)step->program->type,
                         .grad_type = (uint16_t)step->program->grad_type};
}

static sl_status add_norm_value(sl_step *step, const char *name, uint32_t *out_norm)
{
    return sl_instance_add_shared(step, name, "", sizeof(sl_norm_sum), SL_TYPE_FP32, out_norm);
}

static sl_status emit_block_norm(sl_step *step, uint32_t chunk_index, uint32_t norm,
                                 bool accumulate)
{
    sl_op_attrs attrs = typed_attrs(step);
    attrs.element_count = step->chunks->chunk_elements;
    attrs.adds_output = accumulate;
    uint32_t operands[] = {step->chunk_value[SL_GROUP_GRAD][chunk_index], norm};
    return sl_instance_emit(step, SL_OP_BLOCK_NORM, &attrs, operands);
}

static sl_status add_to_norm(sl_step *step, uint32_t chunk_index)
{
    bool is_first = step->norm == SL_NONE;
    if (is_first)
        SL_TRY(add_norm_value(step, "norm", &step->norm));
    return emit_block_norm(step, chunk_index, step->norm, !is_first);
}

static sl_status emit_adamw(sl_step *step, uint32_t chunk_index, uint32_t control)
{
    uint64_t elements = step->chunks->chunk_elements;
    sl_op_attrs attrs = typed_attrs(step);
    attrs.element_count = elements;
    attrs.first_block = chunk_index * (elements / SL_BLOCK_ELEMENTS);
    uint32_t operands[] = {control,
                           step->chunk_value[SL_GROUP_GRAD][chunk_index],
                           step->chunk_value[SL_GROUP_MOMENT1][chunk_index],
                           step->chunk_value[SL_GROUP_MOMENT2][chunk_index],
                           step->chunk_value[SL_GROUP_PARAM][chunk_index],
                           step->chunk_value[SL_GROUP_MASTER][chunk_index]};
    return sl_instance_emit(step, SL_OP_ADAMW, &attrs, operands);
}

static sl_status emit_norm_finish(sl_step *step, uint32_t norm, uint32_t control)
{
    sl_op_attrs attrs = {.type = (uint16_t)step->program->type};
    return sl_instance_emit(step, SL_OP_NORM_FINISH, &attrs, (uint32_t[]){norm, control});
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
sl_status sl_update_flush(sl_step *step)
{
    enter_update(step);
    for (uint32_t i = 0; i < step->complete_count; i++) {
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
    for (uint32_t c = 0; c < step->chunks->chunk_count; c++)
        if (step->open_writes[c] > 0 || !step->is_cleared[c])
            SL_FAIL(SL_ERROR_INTERNAL, "the gradient of chunk %u lacks %u writes", c,
                    step->open_writes[c]);
    if (step->norm == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "a step without parameters");
    sl_value value = {.kind = SL_VALUE_OUTPUT,
                      .index = SL_OUTPUT_CONTROL,
                      .bytes = sizeof(sl_step_control),
                      .name = "control"};
    uint32_t control;
    SL_TRY(sl_program_add_value(step->program, &value, &control));
    SL_TRY(emit_norm_finish(step, step->norm, control));
    if (step->options->update_early)
        return SL_OK;
    /* The next iteration's forward needs chunk 0 first. */
    for (uint32_t c = 0; c < step->chunks->chunk_count; c++)
        SL_TRY(emit_adamw(step, c, control));
    return SL_OK;
}
