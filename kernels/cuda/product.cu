/* Matrix products by our own kernels: for machines without cuBLASLt, and for products that it has
 * no algorithm for. */
#include "product.h"

#include "product.cuh"

enum { GRID_BLOCKS_MAX = 0x7fffffff };

static uint64_t count_tiles(uint64_t elements)
{
    return (elements + SL_PRODUCT_TILE - 1) / SL_PRODUCT_TILE;
}

static sl_status check(const sl_product *product)
{
    const uint64_t m = product->of.m, n = product->of.n, k = product->of.k;
    const bool is_finished =
        product->bias != NULL || product->residual != NULL || product->gelu_x != NULL;
    if (m == 0 || n == 0 || k == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product without rows, columns or terms");
    if (product->of.c_type != product->of.type &&
        (product->of.c_type != SL_TYPE_FP32 || is_finished))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of type %d into type %d",
                (int)product->of.type, (int)product->of.c_type);
    if (product->of.add && product->gelu_x != NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product that adds to C and passes a GELU");
    if (count_tiles(m) > GRID_BLOCKS_MAX / count_tiles(n))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of %llu x %llu is too large for one grid",
                (unsigned long long)m, (unsigned long long)n);
    return SL_OK;
}

static sl_product_side side_of(const void *from, sl_type type, uint64_t width, uint64_t terms,
                               bool runs_along_terms)
{
    sl_product_side side = {from, width, terms, runs_along_terms, false};
    const uint64_t row_bytes = (runs_along_terms ? terms : width) * sl_type_bytes(type);
    side.has_packs = (uintptr_t)from % 16 == 0 && row_bytes % 16 == 0;
    return side;
}

sl_status sl_product_run(const sl_kernel_call *call, const sl_product *product)
{
    SL_TRY(check(product));
    const uint64_t m = product->of.m, n = product->of.n, k = product->of.k;
    sl_product_job job = {};
    job.a = side_of(product->a, product->of.type, m, k, !product->of.transpose_a);
    job.b = side_of(product->b, product->of.type, n, k, product->of.transpose_b);
    job.c = product->c;
    job.bias = product->bias;
    job.residual = product->residual;
    job.gelu_x = product->gelu_x;
    job.add = product->of.add;
    job.c_is_fp32 = product->of.c_type == SL_TYPE_FP32;
    job.type = product->of.type;
    const uint32_t blocks = (uint32_t)(count_tiles(m) * count_tiles(n));
    return product->of.type == SL_TYPE_FP32 ? sl_product_launch_plain(call, job, blocks)
                                            : sl_product_launch_tensor(call, job, blocks);
}
