/* The GEMM library, behind one call. Exactly one gemm_<library>.c is built: CMake's SL_GEMM.
 *
 *   openblas  allocates nothing after a thread's first call; the default
 *   onednn    faster, but takes and frees a buffer from the heap in every call
 */
#ifndef SL_KERNELS_CPU_GEMM_LIBRARY_H
#define SL_KERNELS_CPU_GEMM_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

/* C [m, n] = op(A) [m, k] * op(B) [k, n], or C += with `add`; row-major, leading dimensions in
 * floats. */
typedef struct sl_gemm_tile {
    bool transpose_a, transpose_b;
    uint64_t m, n, k;
    const float *a;
    uint64_t leading_a;
    const float *b;
    uint64_t leading_b;
    bool add;
    float *c;
    uint64_t leading_c;
} sl_gemm_tile;

/* Computes the tile in the calling thread alone; false when the library reports a failure. The bits
 * depend on the tile's shape and content, not on thread or address. */
bool sl_gemm_library_multiply(const sl_gemm_tile *tile);

/* "OpenBLAS 0.3.21" and the like; owned by the library, the calling thread's. */
const char *sl_gemm_library_name(void);

#endif
