/* Automatic differentiation of one micro-batch; private to the room. The result is a tape (tape.h).
 *
 * Words: a forward value or op is one of the forward program; its counterpart is on the tape.
 *
 * Files: autodiff.c the order of ops and the counterparts of forward values and ops; recompute.c
 * which counterparts are forgotten and made again; backward.c one rule an op kind; gradient.c the
 * gradients of activations.
 */
#ifndef SL_PROGRAM_AUTODIFF_H
#define SL_PROGRAM_AUTODIFF_H

#include "tape.h"

/* A forward value. */
typedef struct sl_autodiff_value {
    uint32_t reader_count;    /* operands that read it, over all forward ops */
    bool is_forgotten;        /* not kept after its segment's forward: recomputed when needed */
    bool is_partitioned;      /* each rank keeps a part: all parts are gathered when needed */
    bool is_wanted;           /* scratch of recompute.c, false between calls */
    uint32_t counterpart;     /* SL_NONE: not made, or forgotten */
    uint32_t part;            /* this rank's part on the tape; SL_NONE: the value is still whole */
    uint32_t gradient;        /* SL_NONE: none yet */
    bool gradient_is_partial; /* not yet summed over the tensor-parallel ranks */
    uint64_t gradient_rows;   /* rows [0, gradient_rows) of the gradient have been written;
                               * UINT64_MAX: all */
} sl_autodiff_value;

typedef struct sl_autodiff {
    const sl_program *forward; /* borrowed, as the options */
    const sl_step_options *options;
    sl_tape *tape;
    sl_autodiff_value *values; /* [forward values] */
    uint32_t *params, *grads;  /* [tensors]: tape values of these groups */
    bool *has_use;             /* [tensors]: a rule asked for the gradient already */
    uint32_t segment;          /* segment and phase of the ops that are appended now */
    sl_phase phase;
} sl_autodiff;

/* ---- autodiff.c ---- */

/* Appends an op of the present segment and phase. `operands` has the op table's count. */
sl_status sl_autodiff_emit(sl_autodiff *diff, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands);

/* A new ACTIVATION value, called `prefix` + `name`. */
sl_status sl_autodiff_add(sl_autodiff *diff, const char *prefix, const char *name, uint64_t bytes,
                          sl_type type, uint32_t *out_value);

/* Appends the counterpart of a forward op. ACTIVATION values that it writes are made; those that it
 * reads must be there. */
sl_status sl_autodiff_emit_op(sl_autodiff *diff, const sl_op *forward_op);

/* The counterpart of a forward value as it stands; SL_ERROR_INTERNAL when there is none. */
sl_status sl_autodiff_find(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value);

/* The tape's value for the gradient of the parameter that a forward op has as an operand; SL_NONE
 * for an absent operand. `is_partial`: each tensor-parallel rank computes a term. */
sl_status sl_autodiff_find_grad(sl_autodiff *diff, uint32_t forward_value, bool is_partial,
                                uint32_t *out_grad);

/* ---- recompute.c ---- */

sl_status sl_recompute_open(sl_autodiff *diff);

/* After a segment's forward: forgets the counterparts that are recomputed later, and replaces a
 * partitioned one by this rank's part. */
sl_status sl_recompute_forget(sl_autodiff *diff, uint32_t segment_index);

/* The counterpart of a forward value, recomputed or gathered first if it was forgotten. */
sl_status sl_recompute_need(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_value);

/* ---- backward.c ---- */

/* Counts the readers of each forward value. */
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

/* The gradient of a forward value, for an op that contributes to it; `out_adds`: the op adds (else
 * it writes). SL_ERROR_INTERNAL where the op would leave rows out, or write and add at once. */
sl_status sl_gradient_contribute(sl_autodiff *diff, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_adds);

/* Adds the whole of tape value `term` to the gradient of a forward value. `term` itself becomes the
 * gradient where there was none and `may_alias`. */
sl_status sl_gradient_add(sl_autodiff *diff, uint32_t forward_value, uint32_t term, bool may_alias);

/* Declares `gradient` to be the gradient of a forward value that has none; else
 * SL_ERROR_INTERNAL. */
sl_status sl_gradient_set(sl_autodiff *diff, uint32_t forward_value, uint32_t gradient);

/* The finished gradient of a forward value, summed over ranks and rounded to the value's type where
 * needed; SL_NONE if the loss does not depend on it. For the rule of the op that makes the value.
 */
sl_status sl_gradient_take(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_gradient);

/* The same where each tensor-parallel rank has a term of it, which the caller sums. */
sl_status sl_gradient_take_terms(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_terms);

#endif
