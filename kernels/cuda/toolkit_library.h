/* Libraries of the CUDA toolkit that are opened when they are first asked for. */
#ifndef SL_KERNELS_CUDA_TOOLKIT_LIBRARY_H
#define SL_KERNELS_CUDA_TOOLKIT_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the first of `names` that is found: by its name, as the loader finds it; where toolkits
 * stand (CUDA_HOME, CUDA_PATH, /usr/local/cuda); in NVIDIA's Python packages below VIRTUAL_ENV,
 * CONDA_PREFIX, the folders of PATH, ~/.local, /usr/local and /usr. NULL if there is none. */
void *sl_toolkit_open(const char *const *names, uint32_t name_count);
void sl_toolkit_close(void *library);

/* Writes the function of that name to *out_function, a pointer to a pointer to a function. */
bool sl_toolkit_find(void *library, const char *function, void *out_function);

#endif
