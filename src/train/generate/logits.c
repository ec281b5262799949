/* See logits.h. */
#include "logits.h"

#include "base/bits.h"
#include "tensors/elements.h"

void sl_logits_join(const sl_runtime *runtime, uint32_t plan_index, uint64_t row, float *logits)
{
    enum { LOGITS = 2 };
    const sl_program *program = runtime->blueprint->programs[plan_index];
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op *op = &program->ops[o];
        const sl_op_attrs *panel = &op->attrs;
        if (op->kind != SL_OP_HEAD_LOGITS)
            continue;
        const sl_value *value = &program->values[op->operand[LOGITS]];
        const char *output = sl_engine_output(runtime->engine, plan_index, value->index);
        const uint64_t left =
            panel->valid_id_count > panel->first_id ? panel->valid_id_count - panel->first_id : 0;
        sl_elements_widen(program->type,
                          output + row * panel->id_count * sl_type_bytes(program->type),
                          sl_bits_min(panel->id_count, left), logits + panel->first_id);
    }
}
