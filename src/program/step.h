/* What the files that derive a training step share; private to the room.
 *
 * Words: a forward value or op is one of the forward program; its counterpart in the step belongs
 * to one turn. A turn is the first micro-batch, the last one, or all those between, which are one
 * repeated section: so there are three of them at most, however many micro-batches there are. Maps
 * over (turn t, forward value v) are indexed with t * F + v, where F is the forward program's value
 * count.
 *
 * Files: step.c the schedule; instance.c counterparts of forward values and ops;
 * recompute.c which of them are forgotten and made again; backward.c one rule an op kind;
 * gradient.c where gradients are gathered; update.c norms and AdamW.
 */
#ifndef SL_PROGRAM_STEP_H
#define SL_PROGRAM_STEP_H

#include "build.h"

typedef struct sl_step {
    const sl_program *forward; /* borrowed, as the next two */
    const sl_chunk_map *chunks;
    const sl_step_options *options;
    sl_program *program; /* the step; handed out at the end */

    /* What the ops that are emitted now belong to. */
    uint32_t turn;
    sl_section section; /* the one under way; `count` stands when it is over */
    uint32_t segment;
    sl_phase phase;

    /* instance.c */
    uint32_t *param_of_tensor;             /* [tensors] step values */
    uint32_t *grad_of_tensor;              /* [tensors] */
    uint32_t *chunk_value[SL_GROUP_COUNT]; /* [chunks]; SL_NONE in unused groups */
    uint32_t *counterpart;                 /* [turns * F], SL_NONE: not made, or forgotten */

    /* recompute.c */
    bool *is_forgotten; /* [F]: dies after its segment's forward, is made again on demand */
    bool *is_wanted;    /* [F], scratch, false between calls */

    /* backward.c */
    uint32_t *reader_count; /* [F]: operands that read it, over all forward ops */

    /* gradient.c */
    uint32_t *gradient;        /* [turns * F], SL_NONE: none yet */
    uint64_t *gradient_rows;   /* [turns * F]: rows below this one have been written */
    uint8_t *gradient_partial; /* [turns * F], an sl_partial */
    uint32_t *last_site;       /* [tensors]: site of the last segment that uses it */
    uint32_t *accumulator;     /* [forward ops * SL_OPERAND_MAX], of deferred uses */
    uint32_t *tensor_sum;      /* [tensors]: where a gradient is gathered before it is rounded */
    uint32_t *open_parts;      /* [tensors]: additions to it still to come */
    uint32_t *open_writes;     /* [chunks]: gradient writes still to come */
    bool *is_cleared;          /* [chunks]: CLEAR was emitted */

    /* update.c */
    uint32_t *complete; /* chunks whose last write belongs to the rule being emitted */
    uint32_t complete_count;
    uint32_t norm; /* of all gradients, SL_NONE before its first use */
} sl_step;

/* ---- step.c ---- */

enum { SL_TURNS_MAX = 3 };

/* How many turns a step takes, the micro-batch with which one starts, and how many it is for. */
uint32_t sl_step_turn_count(const sl_step *step);
uint32_t sl_step_first_micro_batch(const sl_step *step, uint32_t turn);
uint32_t sl_step_repeat(const sl_step *step, uint32_t turn);

/* ---- instance.c ---- */

/* Makes the parameter, gradient and chunk values of the step. */
sl_status sl_instance_open(sl_step *step);

/* The next section: inputs have to be filled again. */
void sl_instance_forget_inputs(sl_step *step);

/* Makes families of values that are needed in several repeated sections, of others single ones. */
sl_status sl_instance_settle_families(sl_step *step);

/* Appends an op of the current turn, segment and phase. `operands` has the table's count. */
sl_status sl_instance_emit(sl_step *step, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands);

/* A new ACTIVATION value of the current turn, called `prefix` + `name`. */
sl_status sl_instance_add_activation(sl_step *step, const char *prefix, const char *name,
                                     uint64_t bytes, sl_type type, uint32_t *out_value);

/* The same of all turns: an accumulator. */
sl_status sl_instance_add_shared(sl_step *step, const char *prefix, const char *name,
                                 uint64_t bytes, sl_type type, uint32_t *out_value);

/* The place of forward value `forward_value` in the maps, for the current turn. */
uint64_t sl_instance_index(const sl_step *step, uint32_t forward_value);

/* Appends the counterpart of a forward op. ACTIVATION values that it writes are made, those it
 * reads must be there. */
sl_status sl_instance_emit_op(sl_step *step, const sl_op *forward_op);

/* The counterpart of a forward value as it stands; SL_ERROR_INTERNAL when there is none. An input
 * is filled where a section first asks for it. */
sl_status sl_instance_find(sl_step *step, uint32_t forward_value, uint32_t *out_value);

/* ---- recompute.c ---- */

sl_status sl_recompute_open(sl_step *step);

/* Forgets the counterparts that a segment's forward leaves behind for recomputation. */
void sl_recompute_forget(sl_step *step, uint32_t segment_index);

/* The counterpart of a forward value, recomputed first if it was forgotten. */
sl_status sl_recompute_need(sl_step *step, uint32_t forward_value, uint32_t *out_value);

/* ---- gradient.c ---- */

/* What is still missing in a gradient that every rank of a tensor-parallel group has a part of. */
typedef enum sl_partial { SL_PARTIAL_NO, SL_PARTIAL_YES } sl_partial;

sl_status sl_gradient_open(sl_step *step);

/* True if it helps to run a segment's backward op by op over all micro-batches, because it uses a
 * parameter whose last site is another one, and its accumulator is larger than the gradients that
 * each op then reads again; and if that changes no sum: no two of its ops add to the same
 * accumulator. */
bool sl_gradient_may_go_by_op(const sl_step *step, uint32_t segment_index);

/* The finished gradient of a forward value, summed over ranks and rounded to the value's type where
 * needed; SL_NONE if the loss does not depend on it. For the rule of the op that makes the value.
 */
sl_status sl_gradient_take(sl_step *step, uint32_t forward_value, uint32_t *out_gradient);

/* Declares `gradient` to be the gradient of a forward value. */
void sl_gradient_set(sl_step *step, uint32_t forward_value, uint32_t gradient);

/* Adds the whole of step value `part` to the gradient of a forward value. `part` itself becomes the
 * gradient where there was none and `may_alias`. */
sl_status sl_gradient_add(sl_step *step, uint32_t forward_value, uint32_t part, bool may_alias);

/* What an op is about to write or add to a gradient. */
typedef struct sl_contribution {
    uint64_t first_row, end_row; /* whole values: 0 and UINT64_MAX */
    sl_type type;                /* of the elements that the op writes */
    sl_partial partial;
} sl_contribution;

/* The gradient of a forward value, about to be contributed to: the value and whether the
 * contribution adds (else it writes). */
sl_status sl_gradient_contribute(sl_step *step, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_accumulate);

/* The accumulator that the rule of forward op `op_index` adds the gradient of its parameter operand
 * to; SL_NONE for an absent one. `out_accumulate` is NULL where the op updates (the accumulator is
 * then cleared first), else it is set to whether the op adds. */
sl_status sl_gradient_begin(sl_step *step, uint32_t op_index, uint32_t operand_index,
                            uint32_t *out_gradient, uint32_t *out_accumulate);

enum { SL_GATHERED_MAX = 2 };

/* The parameters of a forward op whose gradients one backward op computes, operands of mode G. */
typedef struct sl_gathering {
    uint32_t operand[SL_GATHERED_MAX]; /* of the forward op */
    uint32_t count;
} sl_gathering;

/* As sl_gradient_begin for an op of mode G: also sets attrs->adds_gradient and attrs->grad_type, to
 * what holds for all of its gradients. */
sl_status sl_gradient_gather(sl_step *step, uint32_t op_index, const sl_gathering *gathering,
                             sl_op_attrs *attrs, uint32_t *out_gradients);

/* After the op that adds was emitted: moves deferred sums on and notices complete chunks. */
sl_status sl_gradient_end(sl_step *step, uint32_t op_index, uint32_t operand_index);

/* ---- backward.c ---- */

/* Counts readers. */
void sl_backward_open(sl_step *step);

/* Emits the backward ops of a forward op for the current turn. */
sl_status sl_backward_emit(sl_step *step, uint32_t op_index);

/* ---- update.c ---- */

/* Norm, and with update_early AdamW, of the chunks that became complete. Ops that are emitted next
 * belong to the update until the caller says otherwise, as after sl_update_finish. */
sl_status sl_update_flush(sl_step *step);

/* What is left after the last backward op. */
sl_status sl_update_finish(sl_step *step);

#endif
