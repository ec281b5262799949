/* A grid that passed the checks of its launch. */
#ifndef SL_TESTS_CUDA_SHIM_GRID_H
#define SL_TESTS_CUDA_SHIM_GRID_H

#include <cuda_runtime.h>

enum { SHIM_MESSAGE_BYTES = 512 };

/* Runs all its blocks; false, and why in out_message[SHIM_MESSAGE_BYTES], if a thread made a
 * mistake. Grids of several callers run one after another. */
bool shim_grid_run(const sl_shim_grid *grid, const sl_shim_kernel *kernel, char *out_message);

#endif
