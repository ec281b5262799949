/* The ops of a rule that updates by a direction of its own (rule.h), before the update of a chunk:
 *
 *   make           of the chunk, or of this data-parallel rank's shard, in the gradient's place
 *   gather         with shards: each rank gets the directions of all ranks
 *   turn           of each tensor, whole: where tensor-parallel ranks have parts of it, they are
 *                  gathered before, and each rank takes its own part after
 *   take           with shards of gradients: the shard, for the update, out of the whole chunk
 *
 * So every rank turns the same matrices, to the same bits. Gathered matrices have the columns or
 * rows in the order of the ranks, and their padding, which is zero: Newton-Schulz steps commute
 * with both.
 */
#include <math.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/status.h"
#include "step.h"

typedef struct direction {
    sl_step *step;
    const sl_rule_direction *rule;
    uint32_t chunk_index;
    uint32_t whole; /* the gathered chunk; SL_NONE: the directions lie in the grad group */
} direction;

/* torch has the matrix transposed: its rows are our columns. */
static float find_scale(const sl_program *program, const sl_tensor_spec *spec)
{
    const double in = (double)spec->whole_shape[0], out = (double)spec->whole_shape[1];
    if (program->muon_scale == SL_MUON_ORIGINAL)
        return (float)sqrt(fmax(1.0, out / in));
    return (float)(0.2 * sqrt(fmax(in, out)));
}

/* Attributes of an op on values of the grad group's type that are no gradients to it. */
static sl_op_attrs stored_attrs(const direction *self)
{
    return (sl_op_attrs){.element_count = self->step->map->chunks[self->chunk_index].elements,
                         .type = (uint16_t)self->step->program->grad_type};
}

/* ---- chunks ---- */

static sl_status gather_shards(direction *self)
{
    sl_step *step = self->step;
    const uint32_t gradient = step->chunks[self->chunk_index].value[SL_GROUP_GRAD];
    sl_op_attrs attrs = stored_attrs(self);
    char name[sizeof step->program->values->name];
    if (!sl_program_has_shards(step->program))
        return SL_OK;
    if (!sl_program_shards_group(step->program, SL_GROUP_GRAD))
        return sl_step_emit(step, SL_OP_ALL_GATHER_CHUNK, &attrs, &gradient);
    uint64_t bytes;
    SL_TRY(
        sl_bits_multiply(attrs.element_count, sl_type_bytes((sl_type)attrs.type), "chunk", &bytes));
    snprintf(name, sizeof name, "direction of chunk %u", self->chunk_index);
    SL_TRY(sl_step_add_value(step, "", name, bytes, (sl_type)attrs.type, &self->whole));
    attrs.row_count = attrs.element_count / step->program->dp_size;
    return sl_step_emit(step, SL_OP_ALL_GATHER_SHARD, &attrs, (uint32_t[]){gradient, self->whole});
}

static sl_status take_shard(direction *self)
{
    sl_step *step = self->step;
    sl_op_attrs attrs = stored_attrs(self);
    if (self->whole == SL_NONE)
        return SL_OK;
    attrs.row_count = attrs.element_count / step->program->dp_size;
    return sl_step_emit(
        step, SL_OP_TAKE_SHARD, &attrs,
        (uint32_t[]){self->whole, step->chunks[self->chunk_index].value[SL_GROUP_GRAD]});
}

/* ---- tensors ---- */

/* The direction of a tensor: in the grad group, or inside the gathered chunk. */
static sl_status find_part(direction *self, uint32_t tensor, uint32_t *out_value)
{
    *out_value = self->step->tensors[tensor].grad;
    if (self->whole == SL_NONE)
        return SL_OK;
    sl_value part = self->step->program->values[*out_value];
    part.kind = SL_VALUE_PART;
    part.whole = self->whole;
    return sl_program_add_value(self->step->program, &part, out_value);
}

static sl_status turn(direction *self, uint32_t tensor, uint32_t matrix, uint64_t rows,
                      uint64_t columns)
{
    const sl_program *program = self->step->program;
    const sl_op_attrs attrs = {.in = rows,
                               .out = columns,
                               .scale = find_scale(self->step->forward, &program->tensors[tensor]),
                               .type = (uint16_t)program->type,
                               .grad_type = (uint16_t)program->grad_type};
    return sl_step_emit(self->step, self->rule->turn, &attrs, &matrix);
}

/* Of a tensor that is split over tensor-parallel ranks. */
static sl_status turn_gathered(direction *self, uint32_t tensor, uint32_t part)
{
    sl_step *step = self->step;
    const sl_tensor_spec *spec = &step->program->tensors[tensor];
    const bool has_rows = spec->split == SL_SPLIT_ROWS;
    const uint64_t ranks = step->program->tp_size;
    const uint64_t rows = spec->shape[0] * (has_rows ? ranks : 1);
    const uint64_t columns = spec->shape[1] * (has_rows ? 1 : ranks);
    const sl_type type = step->program->grad_type;
    const sl_op_attrs attrs = {.batch = 1,
                               .seq = rows,
                               .row_count = spec->shape[0],
                               .in = columns,
                               .out = spec->shape[1],
                               .type = (uint16_t)type};
    uint64_t bytes;
    uint32_t matrix;
    SL_TRY(sl_bits_multiply(spec->element_count * ranks, sl_type_bytes(type), "matrix", &bytes));
    SL_TRY(sl_step_add_value(step, "all of d ", spec->name, bytes, type, &matrix));
    SL_TRY(sl_step_emit(step, has_rows ? SL_OP_GATHER_ROWS : SL_OP_GATHER_COLUMNS, &attrs,
                        (uint32_t[]){part, matrix}));
    SL_TRY(turn(self, tensor, matrix, rows, columns));
    return sl_step_emit(step, has_rows ? SL_OP_TAKE_ROWS : SL_OP_TAKE_COLUMNS, &attrs,
                        (uint32_t[]){matrix, part});
}

static sl_status turn_tensor(direction *self, uint32_t tensor)
{
    const sl_tensor_spec *spec = &self->step->program->tensors[tensor];
    uint32_t part;
    if (spec->replica_count > 0)
        SL_FAIL(SL_ERROR_USAGE,
                "tensor %s: muon does not update columns of which %u tensor-parallel ranks have "
                "copies: give it another rule, as in --rule '%s=adamw', or fewer ranks",
                spec->name, spec->replica_count, spec->name);
    SL_TRY(find_part(self, tensor, &part));
    return spec->split == SL_SPLIT_NONE || self->step->program->tp_size <= 1
               ? turn(self, tensor, part, spec->shape[0], spec->shape[1])
               : turn_gathered(self, tensor, part);
}

sl_status sl_direction_emit(sl_step *step, uint32_t chunk_index, uint32_t control,
                            const sl_op_attrs *attrs)
{
    direction self = {.step = step,
                      .rule = sl_rule_direction_of(step->map->chunks[chunk_index].rule),
                      .chunk_index = chunk_index,
                      .whole = SL_NONE};
    uint32_t operands[SL_OPERAND_MAX];
    sl_update_list_operands(self.rule->operand, &step->chunks[chunk_index], control, operands);
    SL_TRY(sl_step_emit(step, self.rule->make, attrs, operands));
    SL_TRY(gather_shards(&self));
    for (uint32_t t = 0; t < step->program->tensor_count; t++)
        if (step->map->chunk_of_tensor[t] == chunk_index)
            SL_TRY(turn_tensor(&self, t));
    return take_shard(&self);
}
