/* Where the kernel of a test runs: on the processor, called at once (without SL_TEST_GPU), or on a
 * device that is opened through the tables: what the call names on the host is
 * copied to the device, the kernel runs there, and everything is copied back, guards included.
 *
 * It knows the device table and the kernel table alone, so the same code also runs on the stand-in,
 * where it is tested. Each range lies in memory of its own, so that a tool that watches memory
 * sees the first byte too far; SL_TEST_SANITIZER leaves the guards out for that, and the workspace
 * as nobody wrote it. */
#ifndef SL_TESTS_CUDA_GPU_PLACE_H
#define SL_TESTS_CUDA_GPU_PLACE_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_PLACE_SKIP = 77 }; /* the exit code of a test that found no GPU */

#ifndef SL_TEST_GPU
static inline bool gpu_place_open(void)
{
    return true;
}

static inline void gpu_place_close(void)
{
}

static inline sl_status gpu_place_run(sl_op_kind kind, sl_kernel run, const sl_kernel_call *call,
                                      const uint64_t operand_bytes[SL_OPERAND_MAX],
                                      uint64_t workspace_bytes, uint64_t guard_bytes)
{
    (void)kind, (void)operand_bytes, (void)workspace_bytes, (void)guard_bytes;
    return run(call);
}
#else

/* Opens the first GPU, once; false where none opens, and says why. */
bool gpu_place_open(void);
void gpu_place_close(void);

/* Runs `run` on the GPU, with the library of `call` or else the one that was opened, over the
 * operands of `call`, `operand_bytes[i]` long, and a workspace, with `guard_bytes` before and
 * behind each that are copied too. Blocks until all is back. */
sl_status gpu_place_run(sl_op_kind kind, sl_kernel run, const sl_kernel_call *call,
                        const uint64_t operand_bytes[SL_OPERAND_MAX], uint64_t workspace_bytes,
                        uint64_t guard_bytes);
#endif

#ifdef __cplusplus
}
#endif
#endif
