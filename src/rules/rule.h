/* Update rules: what is stored of a tensor while it is trained, and which op updates it.
 *
 * A tensor has a rule, and all tensors of a chunk have the same one. The rules stand in one list,
 * a row each; layout, homes, steps and plans ask the row. So a new rule is an op with its kernels
 * (op_list.h) and a row: docs/add-a-rule.md.
 */
#ifndef SL_RULES_RULE_H
#define SL_RULES_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "program/op_list.h"
#include "sluice/status.h"

/* What is stored of a parameter. */
typedef enum sl_group {
    SL_GROUP_PARAM,  /* what the model computes with, in the compute type */
    SL_GROUP_GRAD,   /* the gradient of a step */
    SL_GROUP_MASTER, /* the parameter in fp32, if the compute type is half precision */
    SL_GROUP_STATE1, /* the states of the rule, in fp32; named "moment1" and "moment2" */
    SL_GROUP_STATE2,
    SL_GROUP_COUNT
} sl_group;

/* "param", "grad", "master", "moment1", "moment2"; valid for ever. */
const char *sl_group_name(sl_group group);

/* X(NAME, name, op, operands in op_list.h's order). The op updates a chunk, on the device or on the
 * host; SL_OP_COUNT: nothing updates it. An operand is CONTROL (sl_step_control), or a group; the
 * groups are what is stored of a tensor. */
#define SL_RULE_LIST(X)                                                                            \
    /* Decoupled weight decay (Loshchilov and Hutter 2019); what a tensor has by default. */       \
    X(ADAMW, adamw, SL_OP_ADAMW, CONTROL, GRAD, STATE1, STATE2, PARAM, MASTER)                     \
    /* The tensor is frozen: no gradient, no states, no update. */                                 \
    X(NONE, none, SL_OP_COUNT, PARAM)

typedef enum sl_rule_id {
#define X(NAME, ...) SL_RULE_##NAME,
    SL_RULE_LIST(X)
#undef X
        SL_RULE_COUNT
} sl_rule_id;

/* Operands of a rule's op; behind the last one are zeros. */
enum { SL_RULE_CONTROL = 1, SL_RULE_GROUP = 2 /* SL_RULE_GROUP + an sl_group */ };

typedef struct sl_rule {
    const char *name;
    sl_op_kind update;
    uint8_t operand[SL_OPERAND_MAX];
} sl_rule;

/* The row of a rule; valid for ever. */
const sl_rule *sl_rule_of(sl_rule_id rule);

/* True if something of a tensor with this rule is stored in the group; in the group MASTER only if
 * the compute type is half precision. */
bool sl_rule_stores(sl_rule_id rule, sl_group group);

/* Bytes of a block of SL_BLOCK_ELEMENTS elements in a group; 0: nothing is stored there. `type` is
 * the compute type, `grad_type` that of gradients. */
uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, sl_type type, sl_type grad_type);

#endif
