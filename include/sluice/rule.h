/* Update rules: what is stored of a tensor while it is trained, and which op updates it.
 *
 * A tensor has a rule, and all tensors of a chunk have the same one. The rules stand in one table
 * (src/rules/rules.c), a row each; layout, homes, steps and plans ask the row. So a new rule is an
 * op with its kernels (op_list.h) and a row: docs/add-a-rule.md.
 */
#ifndef SLUICE_RULE_H
#define SLUICE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/op_list.h"
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is stored of a parameter. */
typedef enum sl_group {
    SL_GROUP_PARAM,   /* what the model computes with, in the compute type */
    SL_GROUP_GRAD,    /* the gradient of a step */
    SL_GROUP_MASTER,  /* the parameter in fp32, where the compute type is rounded */
    SL_GROUP_MOMENT1, /* the states of the rule: the first and the second one that the rule has */
    SL_GROUP_MOMENT2,
    SL_GROUP_COUNT
} sl_group;

/* "param", "grad", "master", "moment1", "moment2"; valid for ever. */
SL_API const char *sl_group_name(sl_group group);

typedef enum sl_rule_id {
    SL_RULE_ADAMW, /* the rule of a tensor of which nothing else is said */
    SL_RULE_NONE,  /* the tensor is frozen: it has parameters alone, and nothing updates it */
    SL_RULE_COUNT
} sl_rule_id;

/* An operand of a rule's op: the step's control, or what is stored of the chunk in a group. */
typedef enum sl_rule_operand {
    SL_RULE_OPERAND_END, /* there are no more */
    SL_RULE_OPERAND_CONTROL,
    SL_RULE_OPERAND_GROUP, /* SL_RULE_OPERAND_GROUP + an sl_group */
} sl_rule_operand;

typedef struct sl_rule {
    const char *name;
    bool has_group[SL_GROUP_COUNT]; /* what is stored of a tensor; MASTER is so in half precision
                                       alone */
    sl_op_kind update; /* updates a chunk, on the device or the host; SL_OP_COUNT: nothing does */
    uint8_t operand[SL_OPERAND_MAX]; /* of `update`, in op_list.h's order: sl_rule_operand */
} sl_rule;

/* The row of a rule; valid for ever. */
SL_API const sl_rule *sl_rule_of(sl_rule_id rule);

/* Bytes that a block of SL_BLOCK_ELEMENTS elements takes in a group; 0: the rule stores nothing in
 * it. `type` is the compute type, `grad_type` that of gradients. */
SL_API uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, sl_type type,
                                    sl_type grad_type);

#ifdef __cplusplus
}
#endif
#endif
