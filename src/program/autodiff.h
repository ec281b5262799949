/* Automatic differentiation of one micro-batch; private to the room. The result is a tape (tape.h).
 *
 * Words: a forward value or op belongs to the forward program; its counterpart is on the tape.
 *
 * Files: autodiff.c has the order of ops and the counterparts of forward values and ops;
 * recompute.c decides which counterparts are forgotten, and recomputes them; backward.c has one
 * rule for each op kind; gradient.c has the gradients of activations.
 */
#ifndef SL_PROGRAM_AUTODIFF_H
#define SL_PROGRAM_AUTODIFF_H

#include "tape.h"

/* A forward value. */
typedef struct sl_autodiff_value {
    uint32_t reader_count;    /* operands of all forward ops that read the value */
    bool is_trained;          /* depends on a tensor that is trained: its gradient is needed */
    bool is_forgotten;        /* not kept after its segment's forward: recomputed when needed */
    bool is_partitioned;      /* each rank keeps one part; the parts are gathered when needed */
    bool is_wanted;           /* recompute.c is about to compute it; false between its calls */
    uint32_t counterpart;     /* the current one; SL_NONE: not computed yet, or forgotten */
    uint32_t part;            /* this rank's part on the tape; SL_NONE: the value is still whole */
    uint32_t gradient;        /* SL_NONE: none yet */
    bool gradient_is_partial; /* not yet summed over the tensor-parallel ranks */
    uint64_t gradient_rows;   /* rows [0, gradient_rows) of the gradient have been written;
                               * UINT64_MAX: all */
} sl_autodiff_value;

typedef struct sl_autodiff {
    const sl_program *forward; /* borrowed, like `options` */
    const sl_step_options *options;
    sl_tape *tape;
    sl_autodiff_value *values; /* [forward values] */
    uint32_t *params, *grads;  /* [tensors]: the tape values of each tensor */
    bool *has_use;             /* [tensors]: a rule has asked for the tensor's gradient */
    uint32_t segment;          /* segment and phase of the ops that are emitted now */
    sl_phase phase;
} sl_autodiff;

/* ---- autodiff.c ---- */

/* Appends an op of the current segment and phase. `operands` has one entry for each operand of
 * `kind`. */
sl_status sl_autodiff_emit(sl_autodiff *diff, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands);

/* A new ACTIVATION value, called `prefix` + `name`. */
sl_status sl_autodiff_add(sl_autodiff *diff, const char *prefix, const char *name, uint64_t bytes,
                          sl_type type, uint32_t *out_value);

/* Appends the counterpart of a forward op. Adds counterparts of the activations that the op writes
 * without reading; activations that the op reads must have one already. */
sl_status sl_autodiff_emit_op(sl_autodiff *diff, const sl_op *forward_op);

/* The current counterpart of a forward value; adds one if the value is no activation.
 * SL_ERROR_INTERNAL: an activation has none now. */
sl_status sl_autodiff_find(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value);

/* The tape value of the gradient of a parameter, which is an operand of a forward op; SL_NONE for
 * an absent operand and for a frozen tensor. `is_partial`: each tensor-parallel rank computes one
 * term of the gradient. */
sl_status sl_autodiff_find_grad(sl_autodiff *diff, uint32_t forward_value, bool is_partial,
                                uint32_t *out_grad);

/* ---- recompute.c ---- */

/* Decides which values are forgotten, and which are partitioned. */
sl_status sl_recompute_open(sl_autodiff *diff);

/* After a segment's forward: forgets the counterparts that are recomputed later, and replaces each
 * partitioned input of a block by this rank's part. */
sl_status sl_recompute_forget(sl_autodiff *diff, uint32_t segment_index);

/* The counterpart of a forward value; recomputed if forgotten, gathered if only a part was kept. */
sl_status sl_recompute_need(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value);

/* ---- backward.c ---- */

/* Counts the readers of each forward value, and finds the values whose gradients are needed. */
void sl_backward_open(sl_autodiff *diff);

/* Emits the backward ops of a forward op. */
sl_status sl_backward_emit(sl_autodiff *diff, uint32_t op_index);

/* ---- gradient.c ---- */

/* What one op writes or adds to the gradient of an activation. */
typedef struct sl_contribution {
    uint64_t first_row, end_row; /* end_row: UINT64_MAX if the last row is one of them */
    sl_type type;                /* of the elements that the op writes */
    bool is_partial;             /* the gradient is a sum over the tensor-parallel ranks */
} sl_contribution;

/* The gradient of a forward value, for an op that contributes to the gradient; `out_adds`: the op
 * must add (else write). SL_ERROR_INTERNAL: the op would leave rows out, or would write some rows
 * and add to others; or contributions differ in type or in is_partial. */
sl_status sl_gradient_contribute(sl_autodiff *diff, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_adds);

/* Adds all rows of tape value `term` to the gradient of a forward value. If there is no gradient
 * yet and `may_alias`, `term` itself becomes the gradient. */
sl_status sl_gradient_add(sl_autodiff *diff, uint32_t forward_value, uint32_t term, bool may_alias);

/* Likewise, where each tensor-parallel rank has one term of what is added; `term` itself may become
 * the gradient. */
sl_status sl_gradient_add_terms(sl_autodiff *diff, uint32_t forward_value, uint32_t term);

/* Makes tape value `gradient` the gradient of a forward value. SL_ERROR_INTERNAL: the forward value
 * has a gradient already. */
sl_status sl_gradient_set(sl_autodiff *diff, uint32_t forward_value, uint32_t gradient);

/* The finished gradient of a forward value, rounded to the value's type and summed over ranks where
 * needed; SL_NONE if the loss does not depend on the value. For the rule of the op that writes the
 * value. */
sl_status sl_gradient_take(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_gradient);

/* As sl_gradient_take, where each tensor-parallel rank has one term of the gradient; the caller
 * sums the terms over the ranks. */
sl_status sl_gradient_take_terms(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_terms);

#endif
