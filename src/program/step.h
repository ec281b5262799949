/* What the files that make a training step share; private to the room.
 *
 * A step is made in three passes. Automatic differentiation writes the tape of one micro-batch
 * (tape.h). A schedule says in which order micro-batches go through the segments (schedule.h), and
 * step.c copies the tape in that order. The optimizer stands behind (update.c).
 *
 * The copies of an op differ in the names of values (step.c) and in which
 * contribution to a gradient is the first and which is the last (sums.c).
 */
#ifndef SL_PROGRAM_STEP_H
#define SL_PROGRAM_STEP_H

#include "schedule.h"
#include "tape.h"

/* A value of the tape at one place. */
typedef struct sl_step_name {
    uint32_t value;    /* of the step; SL_NONE: none yet */
    uint32_t made_for; /* activation: the micro-batch's serial; input: the row that refilled it */
    uint32_t section;  /* while rows are counted: the last section that used it */
    bool crosses;      /* several sections use it: all micro-batches of the place share the name */
    bool is_family;    /* several repeated sections use it: each repetition has an instance */
} sl_step_name;

/* A parameter tensor and its gradient. */
typedef struct sl_step_tensor {
    uint32_t param, grad; /* its step values in these groups */
    uint32_t sum; /* where contributions add up: `grad`, or an fp32 sum beside it; SL_NONE: nowhere
                     yet */
    uint32_t open_contributions; /* contributions still to come */
    bool has_contributions;      /* the loss depends on the parameter */
} sl_step_tensor;

typedef struct sl_step_chunk {
    uint32_t value[SL_GROUP_COUNT]; /* step values; SL_NONE in unused groups */
    uint32_t gradient; /* holds the gradients of the chunk's tensors: the chunk of the grad group,
                        * or, where ranks keep shards, an activation that lives until the sum
                        * over ranks */
    uint32_t open_writes; /* writes to the gradient still to come */
    bool is_open;         /* its padding was cleared: the gradient may be written */
} sl_step_chunk;

typedef struct sl_step {
    const sl_program *forward; /* borrowed, as the next two */
    const sl_chunk_map *map;
    const sl_step_options *options;
    sl_tape *tape;
    sl_schedule_table schedule;
    sl_program *program; /* the step; handed out at the end */

    sl_step_name *names;  /* [places * values of the tape] */
    uint32_t *row_inputs; /* [2 * values of the tape]: the value that forward phases fill last, and
                           * the value that other phases do */
    uint32_t *copies;     /* [ops of the tape]: copies that the schedule asks for */
    uint32_t *copied;     /* [ops of the tape]: copies that have been emitted */
    uint32_t *deferred;   /* [ops of the tape * SL_OPERAND_MAX]: accumulators, or SL_NONE */
    uint32_t refill;      /* the last row that refills inputs */
    sl_step_tensor *tensors; /* [tensors] */
    sl_step_chunk *chunks;   /* [chunks] */
    uint32_t *complete; /* [chunks]: chunks whose last gradient write belongs to the present rule */
    uint32_t complete_count;
    uint32_t norm; /* of all gradients, SL_NONE before its first use */

    /* Of the op that is emitted now. */
    uint32_t micro_batch, segment;
    sl_phase phase;
} sl_step;

/* ---- step.c ---- */

/* Appends an op of the present micro-batch, segment and phase. `operands` has the table's count. */
sl_status sl_step_emit(sl_step *step, sl_op_kind kind, const sl_op_attrs *attrs,
                       const uint32_t *operands);

/* CLEAR, ADD, ROUND: an op on all elements of value `like`, of its type. */
sl_status sl_step_emit_elementwise(sl_step *step, sl_op_kind kind, uint32_t like,
                                   const uint32_t *operands);

/* A new ACTIVATION value of all micro-batches, called `prefix` + `name`. */
sl_status sl_step_add_value(sl_step *step, const char *prefix, const char *name, uint64_t bytes,
                            sl_type type, uint32_t *out_value);

/* ---- sums.c ---- */

/* True if operand `operand_index` of a tape op contributes to the gradient of a parameter. */
bool sl_sums_is_contribution(const sl_tape *tape, const sl_op *tape_op, uint32_t operand_index);

/* Counts the contributions of a copy of tape op `index`; before anything is emitted. */
void sl_sums_count(sl_step *step, uint32_t index);

/* When all contributions are counted: which chunks they complete. */
void sl_sums_open(sl_step *step);

/* Before a copy of tape op `index` is emitted: decides where its contributions go, fills their
 * operands, and sets whether the op adds, and what it stores. */
sl_status sl_sums_open_contributions(sl_step *step, uint32_t index, sl_op *op);

/* After the copy: closes its contributions; chunks may become complete. */
sl_status sl_sums_close_contributions(sl_step *step, uint32_t index);

/* Behind all rows: gradients of tensors that two stages hold are exchanged and added. */
sl_status sl_sums_close(sl_step *step);

/* ---- update.c ---- */

/* For the chunks that became complete: the sum over data-parallel ranks, the norm and, with
 * update_early, the update. */
sl_status sl_update_consume_complete(sl_step *step);

/* The operands of an op that a rule names, for a chunk (rule.h). */
void sl_update_list_operands(const uint8_t rule_operand[SL_OPERAND_MAX], const sl_step_chunk *chunk,
                             uint32_t control, uint32_t operands[SL_OPERAND_MAX]);

/* After the last backward op: gradients of tied tensors, the norm of all chunks, and the updates
 * that were not early. */
sl_status sl_update_finish(sl_step *step);

/* ---- direction.c ---- */

/* Before the update of a chunk whose rule has a direction: turns its gradient into the direction.
 * `attrs`: of the update. SL_ERROR_USAGE: a tensor is no matrix that this rank can turn. */
sl_status sl_direction_emit(sl_step *step, uint32_t chunk_index, uint32_t control,
                            const sl_op_attrs *attrs);

#endif
