/* The tape: forward, recomputation and backward ops of one micro-batch, in the order in which they
 * run when the micro-batch runs alone. Automatic differentiation writes the tape once (autodiff.h),
 * and a step copies it for each micro-batch in the order of a schedule (step.h). Private to the
 * room.
 *
 * The tape does not know how many micro-batches there are: an op that contributes to the
 * gradient of a parameter names the tensor (a TENSOR value of group GRAD), and the step decides
 * where the contribution goes and whether the op writes or adds.
 *
 * An activation of the tape is made once: an op that is recomputed makes new activations.
 */
#ifndef SL_PROGRAM_TAPE_H
#define SL_PROGRAM_TAPE_H

#include "build.h"

/* Ops [first, first + count) of the tape. */
typedef struct sl_tape_run {
    uint32_t first, count;
} sl_tape_run;

typedef struct sl_tape {
    sl_program *program;   /* values and ops; gradients of parameters are fp32 */
    sl_tape_run *forward;  /* [forward ops]: the forward of the op */
    sl_tape_run *backward; /* [forward ops]: the backward of the op, with what it recomputes */
    uint32_t *last_site;   /* [tensors]: site of the last segment that uses the tensor */
    bool *is_partial;      /* [tensors]: the gradient is a sum over the tensor-parallel ranks */
} sl_tape;

/* True if `segment` is not at the tensor's last site. Gradients of such a use are summed in a
 * separate accumulator, which is added after all contributions of the last site: so additions have
 * the same order in every schedule. */
static inline bool sl_tape_is_deferred(const sl_tape *tape, const sl_segment *segment,
                                       uint32_t tensor)
{
    return segment->site != tape->last_site[tensor];
}

/* Differentiates `forward`. `options` says what is recomputed, what ranks keep in parts, and over
 * how many micro-batches the loss is a mean. Close with sl_tape_close. */
sl_status sl_tape_open(const sl_program *forward, const sl_step_options *options,
                       sl_tape **out_tape);

/* Frees a tape; NULL is fine. */
void sl_tape_close(sl_tape *tape);

#endif
