/* Walks any training step and checks what must hold whatever the model and the options. */
#ifndef SL_TESTS_PROGRAM_WALK_H
#define SL_TESTS_PROGRAM_WALK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "program/program.h"

typedef struct walk {
    const sl_program *program;
    const sl_chunk_map *map;
    bool *is_defined;          /* [values] */
    bool *is_first_defined;    /* [tensors]: the gradient was written */
    uint32_t *clear_count;     /* [chunks]: of its padding */
    uint32_t *norm_count;      /* [chunks]: into the norm that is handed out */
    uint32_t *update_count;    /* [chunks] */
    uint32_t *direction_count; /* [chunks] */
    uint32_t *normed_chunks;   /* [values]: chunks that a norm value has seen */
} walk;

static inline bool walk_is(const sl_value *value, sl_value_kind kind, sl_group group)
{
    return value->kind == kind && value->group == group;
}

/* The type that op_list.h gives an operand, written down once more: "f" is fp32, "g" as gradients
 * are stored, all else of the compute type; FP32 where elements have no type. */
static inline sl_type walk_type_of(const sl_op *op, uint32_t i)
{
    static const uint8_t fp32_operands[SL_OP_COUNT] = {
        [SL_OP_EMBED_TOKENS] = 1 << 0,
        [SL_OP_LAYERNORM] = 1 << 4,
        [SL_OP_RMSNORM] = 1 << 3,
        [SL_OP_ROTARY] = 1 << 1 | 1 << 3,
        [SL_OP_ATTENTION] = 1 << 2 | 1 << 3,
        [SL_OP_HEAD_STATS] = 1 << 1 | 1 << 2,
        [SL_OP_HEAD_LOSS] = 1 << 0 | 1 << 1 | 1 << 2,
        [SL_OP_HEAD_LOGITS_BACKWARD] = 1 << 0 | 1 << 1,
        [SL_OP_HEAD_INPUT_BACKWARD] = 1 << 2,
        [SL_OP_ATTENTION_BACKWARD] = 1 << 2 | 1 << 5,
        [SL_OP_LAYERNORM_BACKWARD] = 1 << 2,
        [SL_OP_RMSNORM_BACKWARD] = 1 << 2,
        [SL_OP_EMBED_TOKENS_BACKWARD] = 1 << 0 | 1 << 2,
        [SL_OP_EMBED_POSITION_BACKWARD] = 1 << 1,
        [SL_OP_ROUND] = 1 << 0,
        [SL_OP_BLOCK_NORM] = 1 << 1,
        [SL_OP_NORM_FINISH] = 1 << 0 | 1 << 1 | 1 << 2,
        [SL_OP_ADAMW] = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5,
        [SL_OP_SGD] = 1 << 0 | 1 << 2 | 1 << 4,
        [SL_OP_LION] = 1 << 0 | 1 << 2 | 1 << 4,
        [SL_OP_MOMENTUM] = 1 << 0 | 1 << 2,
        [SL_OP_APPLY] = 1 << 0 | 1 << 3,
        [SL_OP_ALL_REDUCE_STATS] = 1 << 0,
        [SL_OP_ALL_REDUCE_NORM] = 1 << 0 | 1 << 1 | 1 << 2,
        [SL_OP_INPUT] = 1 << 0,
    };
    if (fp32_operands[op->kind] >> i & 1)
        return SL_TYPE_FP32;
    static const uint8_t stored_gradients[SL_OP_COUNT] = {
        [SL_OP_HEAD_WEIGHT_BACKWARD] = 1 << 2,
        [SL_OP_LINEAR_WEIGHT_BACKWARD] = 1 << 2 | 1 << 3,
        [SL_OP_LAYERNORM_BACKWARD] = 1 << 5 | 1 << 6,
        [SL_OP_RMSNORM_BACKWARD] = 1 << 5,
        [SL_OP_BLOCK_NORM] = 1 << 0,
        [SL_OP_ADAMW] = 1 << 1,
        [SL_OP_SGD] = 1 << 1,
        [SL_OP_LION] = 1 << 1,
        [SL_OP_MOMENTUM] = 1 << 1,
        [SL_OP_ORTHOGONALISE] = 1 << 0,
        [SL_OP_APPLY] = 1 << 1,
        [SL_OP_CUSTOM_BACKWARD] = 1 << 6,
        [SL_OP_ALL_REDUCE_TENSOR] = 1 << 0,
        [SL_OP_ALL_REDUCE_GRADIENT] = 1 << 0,
        [SL_OP_REDUCE_SCATTER_GRADIENT] = 1 << 0,
        [SL_OP_REDUCE_SCATTER_SHARD] = 1 << 0 | 1 << 1,
        [SL_OP_SCATTER_COLUMNS] = 1 << 1,
    };
    const bool is_stored_gradient = stored_gradients[op->kind] >> i & 1;
    return (sl_type)(is_stored_gradient ? op->attrs.grad_type : op->attrs.type);
}

/* Only what works on sums is of another type than the program. */
static inline void walk_check_type(const walk *w, const sl_op *op, uint32_t i)
{
    bool is_any_type = op->kind == SL_OP_CLEAR || op->kind == SL_OP_CLEAR_PADDING ||
                       op->kind == SL_OP_ADD || op->kind == SL_OP_ALL_REDUCE ||
                       op->kind == SL_OP_INPUT || op->kind == SL_OP_GATHER_ROWS ||
                       op->kind == SL_OP_TAKE_ROWS;
    const sl_value *value = &w->program->values[op->operand[i]];
    if (value->type != walk_type_of(op, i))
        fail_msg("%s: operand %u, %s, is of type %d, not %d", sl_op_info_of(op->kind)->name, i,
                 value->name, (int)value->type, (int)walk_type_of(op, i));
    if (!is_any_type)
        assert_int_equal(op->attrs.type, w->program->type);
    if (op->kind == SL_OP_BLOCK_NORM || sl_op_info_of(op->kind)->updates_chunk)
        assert_int_equal(op->attrs.grad_type, w->program->grad_type);
    if (value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK)
        assert_int_equal(value->type, sl_program_group_type(w->program, value->group));
}

/* Bytes as the table says; and read only after written. */
static inline void walk_check_operand(walk *w, const sl_op *op, uint32_t i)
{
    const sl_op_info *info = sl_op_info_of(op->kind);
    if (op->operand[i] == SL_NONE) {
        assert_true(info->operand[i].is_optional);
        return;
    }
    assert_true(op->operand[i] < w->program->value_count);
    const sl_value *value = &w->program->values[op->operand[i]];
    uint64_t bytes = sl_op_operand_bytes(op->kind, &op->attrs, i);
    if (bytes != 0)
        assert_int_equal(value->bytes, bytes);
    walk_check_type(w, op, i);
    bool comes_from_outside = value->kind == SL_VALUE_PERSISTENT ||
                              value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
    if (sl_op_reads(op, i) && !comes_from_outside && !w->is_defined[op->operand[i]])
        fail_msg("%s reads %s before it is written", info->name, value->name);
}

/* Gradients: a chunk's padding is cleared once, then tensors are written, then normed; parameters
 * are read before the update.
 */
static inline void walk_check_tensor(walk *w, const sl_op *op, uint32_t i)
{
    const sl_value *value = &w->program->values[op->operand[i]];
    uint32_t chunk = w->map->chunk_of_tensor[value->index];
    if (value->group == SL_GROUP_PARAM) {
        assert_false(sl_op_writes(op, i));
        assert_int_equal(w->update_count[chunk], 0);
        return;
    }
    assert_int_equal(value->group, SL_GROUP_GRAD);
    assert_int_equal(w->clear_count[chunk], 1);
    if (op->kind == SL_OP_ORTHOGONALISE) { /* after MOMENTUM, before APPLY */
        assert_int_equal(w->direction_count[chunk], 1);
        assert_int_equal(w->update_count[chunk], 0);
        return;
    }
    assert_int_equal(w->norm_count[chunk], 0);
    const bool is_whole =
        sl_op_info_of(op->kind)->operand[i].mode == SL_MODE_GRADIENT && !op->attrs.adds_gradient;
    if (w->program->grad_type == SL_TYPE_FP32) { /* added to, never overwritten */
        assert_int_equal(sl_op_reads(op, i), w->is_first_defined[value->index]);
    } else { /* rounded into, once */
        const bool is_sum = op->kind == SL_OP_ALL_REDUCE_TENSOR;
        const bool is_zero = op->kind == SL_OP_CLEAR; /* of an unused parameter */
        assert_true(op->kind == SL_OP_ROUND || is_whole || is_sum || is_zero);
        assert_int_equal(w->is_first_defined[value->index], is_sum);
    }
    w->is_first_defined[value->index] = true;
}

static inline void walk_check_norm(walk *w, const sl_op *op)
{
    const sl_value *gradient = &w->program->values[op->operand[0]];
    assert_true(walk_is(gradient, SL_VALUE_CHUNK, SL_GROUP_GRAD));
    for (uint32_t t = 0; t < w->program->tensor_count; t++)
        if (w->map->chunk_of_tensor[t] == gradient->index)
            assert_true(w->is_first_defined[t]);
    assert_int_equal(op->attrs.adds_output, w->normed_chunks[op->operand[1]] > 0);
    w->normed_chunks[op->operand[1]]++;
    w->norm_count[gradient->index]++;
}

/* The groups of an update's operands behind the control, written down once more; COUNT: none. */
static inline const sl_group *walk_update_groups(sl_rule_id rule)
{
    static const sl_group groups[SL_RULE_COUNT][5] = {
        [SL_RULE_ADAMW] = {SL_GROUP_GRAD, SL_GROUP_STATE1, SL_GROUP_STATE2, SL_GROUP_PARAM,
                           SL_GROUP_MASTER},
        [SL_RULE_SGD] = {SL_GROUP_GRAD, SL_GROUP_COUNT, SL_GROUP_PARAM, SL_GROUP_MASTER,
                         SL_GROUP_COUNT},
        [SL_RULE_MOMENTUM] = {SL_GROUP_GRAD, SL_GROUP_STATE1, SL_GROUP_PARAM, SL_GROUP_MASTER,
                              SL_GROUP_COUNT},
        [SL_RULE_LION] = {SL_GROUP_GRAD, SL_GROUP_STATE1, SL_GROUP_PARAM, SL_GROUP_MASTER,
                          SL_GROUP_COUNT},
        [SL_RULE_MUON] = {SL_GROUP_GRAD, SL_GROUP_PARAM, SL_GROUP_MASTER, SL_GROUP_COUNT,
                          SL_GROUP_COUNT},
    };
    return groups[rule];
}

static inline void walk_check_update(walk *w, const sl_op *op)
{
    uint32_t chunk = w->program->values[op->operand[1]].index;
    const sl_group *groups = walk_update_groups(w->map->chunks[chunk].rule);
    if (op->kind == SL_OP_MOMENTUM) {
        assert_true(walk_is(&w->program->values[op->operand[1]], SL_VALUE_CHUNK, SL_GROUP_GRAD));
        assert_true(walk_is(&w->program->values[op->operand[2]], SL_VALUE_CHUNK, SL_GROUP_STATE1));
        assert_true(w->norm_count[chunk] > 0);
        w->direction_count[chunk]++;
        return;
    }
    for (int i = 0; i < 5; i++) {
        const uint32_t operand = op->operand[i + 1];
        const bool is_there = groups[i] != SL_GROUP_COUNT &&
                              (groups[i] != SL_GROUP_MASTER || w->program->type != SL_TYPE_FP32);
        assert_int_equal(operand != SL_NONE, is_there);
        if (!is_there)
            continue;
        assert_true(walk_is(&w->program->values[operand], SL_VALUE_CHUNK, groups[i]));
        assert_int_equal(w->program->values[operand].index, chunk);
    }
    assert_true(w->norm_count[chunk] > 0);
    assert_int_equal(op->attrs.first_block, w->map->chunks[chunk].first_block);
    w->update_count[chunk]++;
}

/* Updates belong to no segment, all else to one and to a micro-batch. */
static inline void walk_check_place(const walk *w, const sl_op *op)
{
    bool is_update = op->kind == SL_OP_BLOCK_NORM || op->kind == SL_OP_ALL_REDUCE_NORM ||
                     op->kind == SL_OP_NORM_FINISH || op->kind == SL_OP_ORTHOGONALISE ||
                     sl_op_info_of(op->kind)->updates_chunk;
    assert_int_equal(op->phase == SL_PHASE_UPDATE, is_update);
    assert_int_equal(op->segment == SL_NONE, is_update);
    assert_true(is_update || op->segment < w->program->segment_count);
    assert_true(op->micro_batch < w->program->micro_batch_count);
}

static inline void walk_op(walk *w, const sl_op *op)
{
    walk_check_place(w, op);
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
        walk_check_operand(w, op, i);
        if (op->operand[i] != SL_NONE && w->program->values[op->operand[i]].kind == SL_VALUE_TENSOR)
            walk_check_tensor(w, op, i);
    }
    if (op->kind == SL_OP_CLEAR_PADDING)
        w->clear_count[w->program->values[op->operand[0]].index]++;
    if (op->kind == SL_OP_BLOCK_NORM)
        walk_check_norm(w, op);
    if (sl_op_info_of(op->kind)->updates_chunk)
        walk_check_update(w, op);
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i))
            w->is_defined[op->operand[i]] = true;
}

/* Sections cover the ops, one after the other; families are used where they have an instance for
 * each repetition. */
static inline void walk_sections(const sl_program *step)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < step->section_count; s++) {
        const sl_section *section = &step->sections[s];
        assert_int_equal(section->first, next);
        assert_true(section->count > 0 && section->repeat > 0);
        assert_true(section->first_micro_batch + section->repeat <= step->micro_batch_count);
        next += section->count;
        for (uint32_t o = section->first; o < next; o++) {
            assert_int_equal(step->ops[o].micro_batch, section->first_micro_batch);
            for (int i = 0; i < SL_OPERAND_MAX; i++)
                if (step->ops[o].operand[i] != SL_NONE) {
                    uint32_t instances = step->values[step->ops[o].operand[i]].instances;
                    assert_true(instances == 1 || instances == section->repeat);
                }
        }
    }
    assert_int_equal(next, step->op_count);
}

/* Checks a whole training step. */
static inline void walk_step(const sl_program *step, const sl_chunk_map *map)
{
    walk w = {.program = step, .map = map};
    walk_sections(step);
    w.is_defined = calloc(step->value_count + 1, sizeof(bool));
    w.normed_chunks = calloc(step->value_count + 1, sizeof(uint32_t));
    w.is_first_defined = calloc(step->tensor_count + 1, sizeof(bool));
    w.clear_count = calloc(map->chunk_count, sizeof(uint32_t));
    w.norm_count = calloc(map->chunk_count, sizeof(uint32_t));
    w.update_count = calloc(map->chunk_count, sizeof(uint32_t));
    w.direction_count = calloc(map->chunk_count, sizeof(uint32_t));
    for (uint32_t tick = 0; tick < step->op_count; tick++)
        walk_op(&w, &step->ops[tick]);
    for (uint32_t c = 0; c < map->chunk_count; c++) {
        assert_int_equal(w.clear_count[c], 1);
        assert_int_equal(w.norm_count[c], 1);
        assert_int_equal(w.update_count[c], 1);
        assert_int_equal(w.direction_count[c], map->chunks[c].rule == SL_RULE_MUON);
    }
    for (uint32_t v = 0; v < step->value_count; v++)
        if (step->values[v].kind == SL_VALUE_OUTPUT)
            assert_true(w.is_defined[v]);
    free(w.is_defined);
    free(w.normed_chunks);
    free(w.is_first_defined);
    free(w.clear_count);
    free(w.norm_count);
    free(w.update_count);
    free(w.direction_count);
}

#endif
