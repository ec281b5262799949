/* Attention by cuDNN, where the environment asks for it: SLUICE_ATTENTION=cudnn (otherwise, or with
 * "own", by our kernels).
 *
 * Once for each shape the library is told the op as a graph of products, elementwise steps and
 * sums, and names engines for it. The first is taken whose notes do not say that its sums vary and
 * that wants no more workspace than follows from the shape; where there is none, our kernels
 * compute the op and a note says so. Nothing is timed. No note promises that sums repeat: so the
 * backward graph asks for none that blocks share, dq being a product over all keys, and an engine
 * must want the room for all gradients of scores, 2 B H T^2 bytes, which it then writes out.
 * Backward needs y and lse; lse is as our kernels leave it, so forward and backward may come from
 * different hands. */
#ifndef SL_KERNELS_CUDA_CUDNN_ATTENTION_H
#define SL_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/kernels.h"

typedef struct sl_cudnn sl_cudnn;           /* an open library with what was prepared */
typedef struct sl_cudnn_plan sl_cudnn_plan; /* how one op is computed */

/* What the environment asks for; SL_ERROR_USAGE if it is neither. */
sl_status sl_cudnn_find_asked(bool *out_is_asked);

/* Opens cuDNN on the current device. *out_cudnn is NULL where it was not asked for, where there is
 * none, or where it cannot use the device; then a note says why. */
sl_status sl_cudnn_open(sl_cudnn **out_cudnn);
void sl_cudnn_close(sl_cudnn *cudnn); /* NULL is fine */

/* Of an attention op that cuDNN may compute; 0 for others, and where it was not asked for. */
uint64_t sl_cudnn_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

/* Chooses for the op. May allocate. Does nothing for ops that cuDNN is not asked for. */
sl_status sl_cudnn_prepare(sl_cudnn *cudnn, sl_op_kind kind, const sl_op_attrs *attrs);

/* Queues the op in call->stream if cuDNN was chosen for it: then *out_is_done is set. Allocates
 * nothing of ours. Calls with one library come from one thread. `cudnn` may be NULL. */
sl_status sl_cudnn_run(const sl_cudnn *cudnn, sl_op_kind kind, const sl_kernel_call *call,
                       bool *out_is_done);

/* The choices as text, for what is recorded of a run; NULL from `index` = their number on. */
const char *sl_cudnn_text(const sl_cudnn *cudnn, uint64_t index);

/* "attention by own kernels", or whose it is; asks the library only where it is asked for. */
const char *sl_cudnn_description(void);

#endif
