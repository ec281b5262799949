/* The tape: forward, recomputation and backward ops of one micro-batch, in the order in which they
 * run when the micro-batch runs alone. Automatic differentiation writes the tape once (autodiff.h),
 * and a step copies it for each micro-batch in the order of a schedule (step.h). Private to the
 * room.
 *
 * The tape does not know how many micro-batches there are: an op that computes a part of the
 * gradient of a parameter names the tensor (a TENSOR value of group GRAD), and the step decides
 * where the part goes and whether the op writes or adds.
 *
 * Values of the tape: an activation is made once; every op that is run again makes a new one.
 */
#ifndef SL_PROGRAM_TAPE_H
#define SL_PROGRAM_TAPE_H

#include "build.h"

/* Ops [first, first + count) of the tape. */
typedef struct sl_tape_run {
    uint32_t first, count;
} sl_tape_run;

typedef struct sl_tape {
    sl_program *program;   /* gradients of parameters in fp32 */
    sl_tape_run *forward;  /* [forward ops]: what runs as the op goes forward */
    sl_tape_run *backward; /* [forward ops]: what runs as the op goes backward, recomputation too */
    uint32_t *last_site;   /* [tensors]: site of the last segment that uses the tensor */
    bool *is_partial;      /* [tensors]: each tensor-parallel rank has a term of the gradient */
} sl_tape;

/* True for a use of a tensor in a segment at another site than its last. Such a use adds up in an
 * accumulator of its own, behind all parts of the last site: so the order of additions is the same
 * in every schedule. */
static inline bool sl_tape_is_deferred(const sl_tape *tape, const sl_segment *segment,
                                       uint32_t tensor)
{
    return segment->site != tape->last_site[tensor];
}

/* Differentiates `forward`. Recomputation, what ranks keep in parts, and the count of tokens that
 * the loss is a mean over are those of `options`. Close with sl_tape_close. */
sl_status sl_tape_open(const sl_program *forward, const sl_step_options *options,
                       sl_tape **out_tape);

/* Frees a tape; NULL is fine. */
void sl_tape_close(sl_tape *tape);

#endif
