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
    SL_GROUP_MASTER, /* if the compute type is half precision: the parameter in fp32, by sl_master
                      */
    SL_GROUP_STATE1, /* the states of the rule, by sl_states; named "moment1" and "moment2" */
    SL_GROUP_STATE2,
    SL_GROUP_COUNT
} sl_group;

/* "param", "grad", "master", "moment1", "moment2"; valid for ever. */
const char *sl_group_name(sl_group group);

/* X(NAME, name, op, operands in op_list.h's order). The op updates a chunk, on the device or on the
 * host; SL_OP_COUNT: nothing updates it. An operand is CONTROL (sl_step_control), NOTHING (absent),
 * or a group; the groups are what is stored of a tensor. Names are in checkpoints. */
#define SL_RULE_LIST(X)                                                                            \
    /* Decoupled weight decay (Loshchilov and Hutter 2019); what a tensor has by default. */       \
    X(ADAMW, adamw, SL_OP_ADAMW, CONTROL, GRAD, STATE1, STATE2, PARAM, MASTER)                     \
    /* The tensor is frozen: no gradient, no states, no update. */                                 \
    X(NONE, none, SL_OP_COUNT, PARAM)                                                              \
    /* The same of a matrix that is stored smaller than the compute type (sl_frozen): the op       \
     * DEQUANTIZE makes what other ops read. Files name it "none". */                              \
    X(SMALL, small, SL_OP_COUNT, PARAM)                                                            \
    /* Stochastic gradient descent without and with momentum (Sutskever et al. 2013). */           \
    X(SGD, sgd, SL_OP_SGD, CONTROL, GRAD, NOTHING, PARAM, MASTER)                                  \
    X(MOMENTUM, momentum, SL_OP_SGD, CONTROL, GRAD, STATE1, PARAM, MASTER)                         \
    /* Chen et al. 2023. */                                                                        \
    X(LION, lion, SL_OP_LION, CONTROL, GRAD, STATE1, PARAM, MASTER)                                \
    /* Jordan et al. 2024; of matrices alone. */                                                   \
    X(MUON, muon, SL_OP_APPLY, CONTROL, GRAD, PARAM, MASTER)

/* X(NAME, make, turn, operands of `make`): of the rules that update by something else than the
 * gradient, a row more. Before the update, the op `make` turns a chunk's gradient into directions,
 * in its place, where the update runs; then the op `turn` takes the direction of each tensor, a
 * matrix, on the device. */
#define SL_RULE_DIRECTION_LIST(X)                                                                  \
    X(MUON, SL_OP_MOMENTUM, SL_OP_ORTHOGONALISE, CONTROL, GRAD, STATE1)

typedef enum sl_rule_id {
#define X(NAME, ...) SL_RULE_##NAME,
    SL_RULE_LIST(X)
#undef X
        SL_RULE_COUNT
} sl_rule_id;

/* Operands of a rule's op; behind the last one are zeros. */
enum { SL_RULE_NOTHING, SL_RULE_CONTROL, SL_RULE_GROUP /* SL_RULE_GROUP + an sl_group */ };

/* A row of SL_RULE_DIRECTION_LIST. */
typedef struct sl_rule_direction {
    sl_op_kind make, turn;
    uint8_t operand[SL_OPERAND_MAX]; /* of `make` */
} sl_rule_direction;

typedef struct sl_rule {
    const char *name;
    sl_op_kind update;
    uint8_t operand[SL_OPERAND_MAX];
} sl_rule;

/* How elements are stored. */
typedef struct sl_stored_types {
    sl_type param, grad; /* the compute type; that of gradients */
    sl_states states;
    sl_frozen frozen; /* of SL_RULE_SMALL */
    sl_master master;
} sl_stored_types;

/* The row of a rule; valid for ever. */
const sl_rule *sl_rule_of(sl_rule_id rule);

/* NULL: the rule updates by the gradient. */
const sl_rule_direction *sl_rule_direction_of(sl_rule_id rule);

/* True if nothing updates the tensor. */
bool sl_rule_is_frozen(sl_rule_id rule);

/* True if something of a tensor with this rule is stored in the group; in the group MASTER only if
 * the compute type is half precision. */
bool sl_rule_stores(sl_rule_id rule, sl_group group);

/* Bytes of a block of SL_BLOCK_ELEMENTS elements in a group; 0: nothing is stored there.*/
uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, const sl_stored_types *types);

#endif
