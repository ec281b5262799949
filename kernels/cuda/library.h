/* The state that the kernels of one open GPU keep between calls: an open cuBLASLt with its choices.
 */
#ifndef SL_KERNELS_CUDA_LIBRARY_H
#define SL_KERNELS_CUDA_LIBRARY_H

#include "blas.h"

struct sl_kernel_library {
    sl_blas *blas; /* NULL: products run by our own kernel */
};

/* What prepare asks of the ops; both do nothing for any op that is not theirs. Products: prepares
 * every one that the op may turn out to be, and launches it on the call's operands if it has them.
 * Attention: lets the open device's kernels have the shared memory that they launch with. */
sl_status sl_cuda_linear_prepare(sl_blas *blas, sl_op_kind kind, const sl_kernel_call *call);
sl_status sl_cuda_attention_prepare(sl_op_kind kind, const sl_op_attrs *attrs);
sl_status sl_cuda_orthogonalise_prepare(sl_blas *blas, sl_op_kind kind, const sl_kernel_call *call);

/* One product of an op: prepares it, and launches it if the call has a workspace. */
sl_status sl_cuda_linear_prepare_product(sl_blas *blas, const sl_kernel_call *call,
                                         const sl_product *product);

/* Entries of the table (kernels/kernels.h). */
sl_status sl_library_open(int device_index, const sl_cuda_options *options,
                          sl_kernel_library **out_library);
void sl_library_close(sl_kernel_library *library);
sl_status sl_library_prepare(sl_kernel_library *library, sl_op_kind kind,
                             const sl_kernel_call *call);
sl_status sl_library_load_ranks(void);
const char *sl_library_algorithm(const sl_kernel_library *library, uint64_t index);
const char *sl_library_description(void);
const char *sl_library_lack(void);

#endif
