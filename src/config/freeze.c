/* Matches names of tensors with the patterns of --freeze; see freeze.h. */
#include "freeze.h"

#include <string.h>

#include "base/status.h"
#include "tensor_patterns.h"

void sl_freeze_apply(const sl_config_list *patterns, sl_program *program)
{
    sl_tensor_pattern found;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (sl_tensor_patterns_find(patterns, program->tensors[t].name, &found) &&
            !found.is_negated)
            program->tensors[t].rule = SL_RULE_NONE;
}

sl_status sl_freeze_check(const sl_config_list *patterns, const sl_program *program)
{
    sl_tensor_pattern at = {0};
    while (sl_tensor_patterns_next(patterns, &at)) {
        SL_TRY(sl_tensor_patterns_check("freeze", &at, program));
        if (at.has_value)
            SL_FAIL(SL_ERROR_USAGE,
                    "--freeze: \"%s=%s\": it takes patterns alone; --rule gives "
                    "tensors another rule",
                    at.text, at.value);
    }
    if (sl_freeze_count_trained(program) == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--freeze: all tensors are frozen, so there is nothing to train; take some back, "
                "as in --freeze '*' '!%s'",
                sl_tensor_patterns_examples(program).last_block);
    return SL_OK;
}

/* Elements of the whole tensor; 0 for a panel behind the first one. */
static uint64_t count_elements(const sl_program *program, uint32_t tensor)
{
    const sl_tensor_spec *spec = &program->tensors[tensor];
    if (tensor > 0 && strcmp(spec->name, program->tensors[tensor - 1].name) == 0)
        return 0;
    return spec->whole_shape[0] * (spec->dim_count == 2 ? spec->whole_shape[1] : 1);
}

uint64_t sl_freeze_count_trained(const sl_program *program)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (sl_program_trains(program, t))
            count += count_elements(program, t);
    return count;
}

uint64_t sl_freeze_count_adapters(const sl_program *program)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (program->tensors[t].is_adapter)
            count += count_elements(program, t);
    return count;
}

/* The tensor that an op reads as operand `index`; NULL: it is none. */
static const sl_tensor_spec *find_operand(const sl_program *program, const sl_op *op, int index)
{
    const uint32_t value = op->operand[index];
    const bool is_tensor = value != SL_NONE && program->values[value].kind == SL_VALUE_TENSOR;
    return is_tensor ? &program->tensors[program->values[value].index] : NULL;
}

/* The first tensor that an op reads, of all or of those that are trained; NULL: none. */
static const sl_tensor_spec *find_read(const sl_program *program, const sl_op *op, bool trains)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const sl_tensor_spec *spec = find_operand(program, op, i);
        if (spec && (!trains || sl_program_trains(program, (uint32_t)(spec - program->tensors))))
            return spec;
    }
    return NULL;
}

/* Features of q of one attention on all ranks together: those of the linear before it, which has no
 * padding, and a third of them where it makes k and v too. Norms of heads and rotary positions may
 * stand between the two. */
static uint64_t count_attention_features(const sl_program *program, uint32_t attention)
{
    enum { X, WEIGHT, TURNED_Y, LINEAR_Y = 4 };
    const sl_op *op = &program->ops[attention];
    uint32_t q = op->operand[0];
    for (uint32_t o = attention; o-- > 0;) {
        const sl_op *it = &program->ops[o];
        const bool keeps_features = it->kind == SL_OP_RMSNORM || it->kind == SL_OP_ROTARY;
        const sl_tensor_spec *weight = find_operand(program, it, WEIGHT);
        if (keeps_features && it->operand[TURNED_Y] == q)
            q = it->operand[X];
        if (it->kind == SL_OP_LINEAR && it->operand[LINEAR_Y] == q && weight != NULL)
            return weight->whole_shape[1] / (op->attrs.is_separate ? 1 : 3);
    }
    return op->attrs.in * program->tp_size;
}

/* Scores and mixes: 2 forward, and 4 for their gradients if a tensor before them is trained. */
static double count_attention_flops(const sl_program *program, uint64_t seq)
{
    double flops = 0;
    bool has_trained = false;
    for (uint32_t o = 0; o < program->op_count; o++) {
        has_trained = has_trained || find_read(program, &program->ops[o], true) != NULL;
        if (program->ops[o].kind == SL_OP_ATTENTION)
            flops +=
                (double)count_attention_features(program, o) * (double)seq * (has_trained ? 6 : 2);
    }
    return flops;
}

/* The name of the head's table. */
static const char *find_head_table(const sl_program *program)
{
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op *op = &program->ops[o];
        const sl_tensor_spec *table = find_read(program, op, false);
        if (program->segments[op->segment].is_terminal && table != NULL)
            return table->name;
    }
    return "";
}

/* The head reads its table behind all layers: so the gradient of the head's input is needed even if
 * the table is frozen, and is an embedding's, too. A table in which tokens are only looked up is in
 * no product. */
double sl_freeze_token_flops(const sl_program *program, uint64_t seq)
{
    const char *table = find_head_table(program), *lookup = sl_program_lookup_table(program);
    double flops = count_attention_flops(program, seq);
    bool has_trained = false;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        const bool is_trained = sl_program_trains(program, t);
        has_trained = has_trained || is_trained;
        const bool has_backward = has_trained || strcmp(spec->name, table) == 0;
        if (strcmp(spec->name, lookup) != 0)
            flops += (double)count_elements(program, t) * (2 + 2 * is_trained + 2 * has_backward);
    }
    return flops;
}

/* Both have their tensors in the order of the model, but for a tied one, which comes again at the
 * end of the last stage. So the first tensor of a later stage is one of its first layer. */
bool sl_freeze_is_before(const sl_program *whole, const sl_program *stage)
{
    for (uint32_t t = 0; t < whole->tensor_count; t++) {
        if (strcmp(whole->tensors[t].name, stage->tensors[0].name) == 0)
            break;
        if (sl_program_trains(whole, t))
            return false;
    }
    return true;
}
