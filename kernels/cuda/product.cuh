/* What the two kernels of matrix products share: the tiles of C, the operands as they see them, and
 * what becomes of a sum. Blocks are numbered down the columns of C: neighbours in time share panels
 * of B. */
#ifndef SL_KERNELS_CUDA_PRODUCT_CUH
#define SL_KERNELS_CUDA_PRODUCT_CUH

#include "gelu.cuh"
#include "typed.cuh"

enum {
    SL_PRODUCT_TILE = 128, /* rows and columns of C that a block computes */
    SL_PRODUCT_THREADS = 256,
    SL_PRODUCT_PART = 8, /* elements that one thread loads at once, neighbours in memory */
};

/* op(A) seen as [terms, width = m], or op(B) as [terms, width = n]. */
typedef struct sl_product_side {
    const void *from;
    uint64_t width, terms;
    bool runs_along_terms; /* a row of memory is one column of this view */
    bool has_packs;        /* every part of a row is 16-byte aligned */
} sl_product_side;

typedef struct sl_product_job {
    sl_product_side a, b;
    void *c;
    const void *bias, *residual, *gelu_x;
    bool add, c_is_fp32;
    sl_type type;
} sl_product_job;

/* Elements of memory: row `row` from `column` on. */
typedef struct sl_product_place {
    uint64_t row, column;
} sl_product_place;

static __device__ __forceinline__ uint64_t sl_product_rows(const sl_product_side &side)
{
    return side.runs_along_terms ? side.width : side.terms;
}

static __device__ __forceinline__ uint64_t sl_product_columns(const sl_product_side &side)
{
    return side.runs_along_terms ? side.terms : side.width;
}

/* Element [row, column] of C before it is rounded, from the sum of its terms. */
template <sl_type TYPE>
static __device__ __forceinline__ float sl_product_finish(const sl_product_job &job, uint64_t row,
                                                          uint64_t column, float sum)
{
    const uint64_t at = row * job.b.width + column;
    if (job.bias != NULL)
        sum += sl_load<TYPE>(job.bias, column);
    if (job.residual != NULL)
        sum += sl_load<TYPE>(job.residual, at);
    if (job.add)
        sum += job.c_is_fp32 ? ((const float *)job.c)[at] : sl_load<TYPE>(job.c, at);
    if (job.gelu_x != NULL)
        sum *= sl_gelu_slope(sl_load<TYPE>(job.gelu_x, at));
    return sum;
}

/* Each queues the product over `blocks` blocks: of fp32 by plain arithmetic, of halves by the
 * tensor cores. */
sl_status sl_product_launch_plain(const sl_kernel_call *call, const sl_product_job &job,
                                  uint32_t blocks);
sl_status sl_product_launch_tensor(const sl_kernel_call *call, const sl_product_job &job,
                                   uint32_t blocks);

#endif
