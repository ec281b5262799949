/* The ops of Muon beside its update: MOMENTUM, with the bits of kernels/cpu/simd/muon.c, and the
 * loops over elements around the products of ORTHOGONALISE (orthogonalise.c). A thread does sixteen
 * bytes of the compute type; the last one of a matrix does what is left, element by element.
 */
#include <math.h>

#include "reduce.cuh"
#include "typed.cuh"

extern "C" {
#include "newton_schulz.h"
}

enum { THREADS = 256 };

/* A piece of elements that are stored as STORED, each rounded to TYPE. */
template <sl_type TYPE, sl_type STORED, bool WIDE>
static __device__ __forceinline__ sl_piece<TYPE, WIDE> load_rounded(const void *from,
                                                                    uint64_t first)
{
    if constexpr (STORED == TYPE) {
        return sl_load_piece<TYPE, WIDE>(from, first);
    } else {
        sl_piece<TYPE, WIDE> piece;
        sl_load_floats((const float *)from, first, piece.value);
#pragma unroll
        for (int i = 0; i < sl_piece<TYPE, WIDE>::COUNT; i++)
            piece.value[i] = sl_widen<TYPE>(sl_round<TYPE>(piece.value[i]));
        return piece;
    }
}

template <sl_type TYPE, sl_type STORED, bool WIDE>
static __device__ __forceinline__ void store_as(void *to, uint64_t first,
                                                const sl_piece<TYPE, WIDE> &piece)
{
    if constexpr (STORED == TYPE)
        sl_store_piece<TYPE, WIDE>(to, first, piece);
    else
        sl_store_floats((float *)to, first, piece.value);
}

/* ---- MOMENTUM ---- */

typedef struct momentum_args {
    const sl_step_control *control;
    void *gradient;
    float *mean;
    float momentum, rest, loss_scale;
} momentum_args;

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) momentum(const momentum_args a)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    const uint64_t first = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * COUNT;
    const float clip_scale = a.control->clip_scale;
    const float most = TYPE == SL_TYPE_FP16 ? 65504.0f : INFINITY;
    float mean[COUNT];
    if (a.control->skip)
        return;
    sl_piece<TYPE, true> piece = load_rounded<TYPE, GRADIENT, true>(a.gradient, first);
    sl_load_floats(a.mean, first, mean);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float term = a.rest * (piece.value[i] * clip_scale);
        mean[i] = fmaf(a.momentum, mean[i], term);
        const float direction = fmaf(a.momentum, mean[i], term) * a.loss_scale;
        const float low = direction > most ? most : direction;
        piece.value[i] = low < -most ? -most : low;
    }
    sl_store_floats(a.mean, first, mean);
    store_as<TYPE, GRADIENT, true>(a.gradient, first, piece);
}

template <sl_type TYPE>
static sl_status launch_momentum(const sl_kernel_call *call, const momentum_args &a)
{
    const uint64_t each = THREADS * sl_pack<TYPE>::COUNT;
    const uint32_t blocks = (uint32_t)(call->attrs->element_count / each);
    if (blocks == 0)
        return SL_OK;
    return call->attrs->grad_type == SL_TYPE_FP32
               ? SL_LAUNCH(call, blocks, THREADS, 0, (momentum<TYPE, SL_TYPE_FP32>), a)
               : SL_LAUNCH(call, blocks, THREADS, 0, (momentum<TYPE, TYPE>), a);
}

extern "C" sl_status sl_cuda_momentum(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const float weight = call->scalars.muon_momentum;
    const momentum_args a = {(const sl_step_control *)call->operand[0],
                             call->operand[1],
                             (float *)call->operand[2],
                             weight,
                             1.0f - weight,
                             call->scalars.loss_scale};
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0 ||
        attrs->element_count / SL_BLOCK_ELEMENTS > INT32_MAX / 2)
        SL_FAIL(SL_ERROR_INTERNAL, "directions of %llu elements are not whole blocks of a grid",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    return SL_BY_TYPE(attrs->type, launch_momentum, call, a);
}

/* ---- the norm of a matrix ---- */

/* A block sums the squares of a tile: thread t those of the elements t, t + THREADS, ... */
template <sl_type TYPE, sl_type STORED>
static __global__ void __launch_bounds__(THREADS)
    matrix_squares(const void *x, uint64_t count, float *sums)
{
    __shared__ float scratch[THREADS / SL_WARP];
    const uint64_t first = (uint64_t)blockIdx.x * SL_NEWTON_SCHULZ_TILE;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SL_NEWTON_SCHULZ_TILE; i += THREADS) {
        const uint64_t at = first + i + threadIdx.x;
        const float value = at < count ? load_rounded<TYPE, STORED, false>(x, at).value[0] : 0.0f;
        sum = fmaf(value, value, sum);
    }
    sum = sl_block_sum<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* One block: adds up the sums of tiles in double, and writes behind them what the matrix is
 * multiplied by. */
static __global__ void __launch_bounds__(THREADS)
    matrix_factor(float *sums, uint64_t count, float first, float least)
{
    __shared__ double partial[THREADS];
    double sum = 0.0;
    for (uint64_t i = threadIdx.x; i < count; i += THREADS)
        sum += (double)sums[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < THREADS; i++)
        sum += partial[i];
    const float norm = (float)__dsqrt_rn(sum);
    sums[count] = __fdiv_rn(first, norm < least ? least : norm);
}

template <sl_type TYPE>
static sl_status launch_norm(const sl_kernel_call *call, const void *x, float *sums)
{
    const uint64_t count = sl_newton_schulz_elements(call->attrs);
    const uint64_t tiles = sl_newton_schulz_tiles(call->attrs);
    SL_TRY(sl_launch_covers(tiles, "orthogonalise"));
    const uint32_t blocks = (uint32_t)tiles;
    if (call->attrs->grad_type == SL_TYPE_FP32)
        SL_TRY(SL_LAUNCH(call, blocks, THREADS, 0, (matrix_squares<TYPE, SL_TYPE_FP32>), x, count,
                         sums));
    else
        SL_TRY(SL_LAUNCH(call, blocks, THREADS, 0, (matrix_squares<TYPE, TYPE>), x, count, sums));
    return SL_LAUNCH(call, 1, THREADS, 0, matrix_factor, sums, tiles, sl_newton_schulz_first(),
                     sl_newton_schulz_epsilon());
}

extern "C" sl_status sl_cuda_matrix_norm(const sl_kernel_call *call, const void *x, float *sums)
{
    return SL_BY_TYPE(call->attrs->type, launch_norm, call, x, sums);
}

/* ---- a matrix times a number ---- */

typedef struct factor_args {
    const void *x;
    void *y;
    const float *factor_at; /* NULL: `factor` */
    float factor;
    uint64_t count;
} factor_args;

template <sl_type TYPE, sl_type X, sl_type Y, bool WIDE>
static __device__ __forceinline__ void multiply(const factor_args &a, uint64_t i, float factor)
{
    sl_piece<TYPE, WIDE> piece = load_rounded<TYPE, X, WIDE>(a.x, i);
#pragma unroll
    for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++)
        piece.value[j] *= factor;
    store_as<TYPE, Y, WIDE>(a.y, i, piece);
}

template <sl_type TYPE, sl_type X, sl_type Y>
static __global__ void __launch_bounds__(THREADS) matrix_multiply(const factor_args a)
{
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t first = thread * sl_pack<TYPE>::COUNT;
    const float factor = a.factor_at != NULL ? *a.factor_at : a.factor;
    if (first + sl_pack<TYPE>::COUNT <= a.count) {
        multiply<TYPE, X, Y, true>(a, first, factor);
        return;
    }
#pragma unroll 1
    for (uint64_t i = first; i < a.count; i++)
        multiply<TYPE, X, Y, false>(a, i, factor);
}

template <sl_type TYPE> static sl_status count_blocks(uint64_t count, uint32_t *out_blocks)
{
    const uint64_t blocks = sl_bits_divide_up(count, THREADS * sl_pack<TYPE>::COUNT);
    SL_TRY(sl_launch_covers(blocks, "orthogonalise"));
    *out_blocks = (uint32_t)blocks;
    return SL_OK;
}

template <sl_type TYPE>
static sl_status launch_multiply(const sl_kernel_call *call, const factor_args &a, bool is_first)
{
    uint32_t blocks;
    SL_TRY(count_blocks<TYPE>(a.count, &blocks));
    if (call->attrs->grad_type != SL_TYPE_FP32)
        return SL_LAUNCH(call, blocks, THREADS, 0, (matrix_multiply<TYPE, TYPE, TYPE>), a);
    return is_first
               ? SL_LAUNCH(call, blocks, THREADS, 0, (matrix_multiply<TYPE, SL_TYPE_FP32, TYPE>), a)
               : SL_LAUNCH(call, blocks, THREADS, 0, (matrix_multiply<TYPE, TYPE, SL_TYPE_FP32>),
                           a);
}

extern "C" sl_status sl_cuda_matrix_begin(const sl_kernel_call *call, const void *x,
                                          const float *sums, void *y)
{
    const factor_args a = {x, y, sums + sl_newton_schulz_tiles(call->attrs), 0.0f,
                           sl_newton_schulz_elements(call->attrs)};
    return SL_BY_TYPE(call->attrs->type, launch_multiply, call, a, true);
}

extern "C" sl_status sl_cuda_matrix_end(const sl_kernel_call *call, const void *x, void *y)
{
    const factor_args a = {x, y, NULL, sl_newton_schulz_last(call->attrs),
                           sl_newton_schulz_elements(call->attrs)};
    return SL_BY_TYPE(call->attrs->type, launch_multiply, call, a, false);
}

/* ---- the polynomial ---- */

typedef struct quadratic_args {
    void *gram;
    const float *square;
    sl_newton_schulz_factors factors;
    uint64_t count;
} quadratic_args;

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void add_square(const quadratic_args &a, uint64_t first)
{
    sl_piece<TYPE, WIDE> piece = sl_load_piece<TYPE, WIDE>(a.gram, first);
    float square[sl_piece<TYPE, WIDE>::COUNT];
    sl_load_floats(a.square, first, square);
#pragma unroll
    for (int i = 0; i < sl_piece<TYPE, WIDE>::COUNT; i++)
        piece.value[i] = fmaf(a.factors.square, square[i], a.factors.linear * piece.value[i]);
    sl_store_piece<TYPE, WIDE>(a.gram, first, piece);
}

template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS) matrix_quadratic(const quadratic_args a)
{
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t first = thread * sl_pack<TYPE>::COUNT;
    if (first + sl_pack<TYPE>::COUNT <= a.count) {
        add_square<TYPE, true>(a, first);
        return;
    }
#pragma unroll 1
    for (uint64_t i = first; i < a.count; i++)
        add_square<TYPE, false>(a, i);
}

template <sl_type TYPE>
static sl_status launch_quadratic(const sl_kernel_call *call, const quadratic_args &a)
{
    uint32_t blocks;
    SL_TRY(count_blocks<TYPE>(a.count, &blocks));
    return SL_LAUNCH(call, blocks, THREADS, 0, matrix_quadratic<TYPE>, a);
}

extern "C" sl_status sl_cuda_matrix_quadratic(const sl_kernel_call *call, uint32_t step, void *gram,
                                              const float *square)
{
    const uint64_t side = sl_newton_schulz_side(call->attrs);
    const quadratic_args a = {gram, square, sl_newton_schulz_factors_of(step), side * side};
    return SL_BY_TYPE(call->attrs->type, launch_quadratic, call, a);
}
