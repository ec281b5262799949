/* The norm of the gradient: BLOCK_NORM adds the squares of a chunk, NORM_FINISH makes the
 * sl_step_control of the update from the sum. The bits of kernels/cpu/block_norm.c and norm_sum.c.
 *
 * BLOCK_NORM is two kernels: warps write the fp32 sums of their blocks to the workspace, then one
 * block of threads adds them exactly. sl_norm_sum is a fixed-point number; here its digits of 32
 * bits are added in 64, so that they need no carries before the end, and integers add in any order
 * to the same sum.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                       sm_80                sm_90
 *   block_norm_add                  32    155    180     32    164    180
 *   block_norm_sums<bf16, bf16>     31    234    133     31    238    133
 *   block_norm_sums<bf16, fp32>     32    298    261     32    302    261
 *   norm_finish                     30     24     32     29     24     32
 */
#include <stdbool.h>

#include "launch.cuh"
#include "typed.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / SL_WARP,
    BATCH = 16, /* loads under way at a time */
    MANTISSA_BITS = 23,
    LEAST_EXPONENT = -149,
    WORDS = 6,
    DIGITS = 9 /* the mantissa of the largest float ends below bit 277 */
};

typedef struct gradient_args {
    const void *elements;
    uint64_t block_count;
    const uint8_t *counts; /* a flag a block; NULL: all count */
    float *sums;           /* [block_count] */
} gradient_args;

/* Element `index`, rounded to the compute type. */
template <sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ float load_rounded(const void *gradient, uint64_t index)
{
    if constexpr (GRADIENT == TYPE)
        return sl_load<TYPE>(gradient, index);
    else
        return sl_widen<TYPE>(sl_round<TYPE>(((const float *)gradient)[index]));
}

/* The fixed tree of a block's squares, as kernels/cpu/simd/update.c describes it: lane l adds the
 * elements l, l + 32, l + 64, ... in that order, then halves are added. Lane 0 has the sum. */
template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) block_norm_sums(const gradient_args a)
{
    const uint32_t lane = threadIdx.x % SL_WARP;
    const uint64_t block = (uint64_t)blockIdx.x * WARPS + threadIdx.x / SL_WARP;
    if (block >= a.block_count)
        return; /* a whole warp */
    float sum = 0.0f;
    const bool is_counted = a.counts == NULL || a.counts[block] != 0;
    for (uint32_t i = 0; is_counted && i < SL_BLOCK_ELEMENTS; i += SL_WARP * BATCH) {
        float value[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            value[j] = load_rounded<TYPE, GRADIENT>(a.elements, block * SL_BLOCK_ELEMENTS + i +
                                                                    j * SL_WARP + lane);
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            sum = fmaf(value[j], value[j], sum);
    }
#pragma unroll
    for (int width = SL_WARP / 2; width > 0; width /= 2)
        sum += __shfl_down_sync(SL_EVERY_LANE, sum, width);
    if (lane == 0)
        a.sums[block] = sum;
}

/* Adds a number that is not negative to digit[][thread]; false if it is not finite. */
static __device__ __forceinline__ bool add_digits(uint64_t digit[DIGITS][THREADS], float value)
{
    const uint32_t bits = __float_as_uint(value), exponent = bits >> MANTISSA_BITS & 0xff;
    if (exponent == 0xff || (bits >> 31 && bits << 1 != 0))
        return false;
    const uint32_t fraction = bits & ((1u << MANTISSA_BITS) - 1);
    const uint64_t mantissa = exponent > 0 ? fraction | 1u << MANTISSA_BITS : fraction;
    const uint32_t position = exponent > 0 ? exponent - 1 : 0;
    const uint64_t shifted = mantissa << position % 32;
    digit[position / 32][threadIdx.x] += (uint32_t)shifted;
    digit[position / 32 + 1][threadIdx.x] += shifted >> 32;
    return true;
}

/* A warp adds one digit of all threads. */
static __device__ __forceinline__ uint64_t sum_digit(const uint64_t *digit)
{
    unsigned long long sum = 0;
    for (uint32_t i = threadIdx.x % SL_WARP; i < THREADS; i += SL_WARP)
        sum += digit[i];
#pragma unroll
    for (int width = SL_WARP / 2; width > 0; width /= 2)
        sum += __shfl_down_sync(SL_EVERY_LANE, sum, width);
    return sum;
}

/* norm += the number of these digits; each is below 2^63. */
static __device__ __forceinline__ void add_to_norm(sl_norm_sum *norm, const uint64_t total[DIGITS])
{
    uint64_t carry = 0; /* below 2^32 between digits, below 2 between words */
    bool word_carry = false;
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
        uint64_t value = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            carry += 2 * word + half < DIGITS ? total[2 * word + half] : 0;
            value |= (carry & 0xffffffffu) << 32 * half;
            carry >>= 32;
        }
        const uint64_t before = norm->word[word], sum = before + value, rest = sum + word_carry;
        word_carry = sum < before || rest < sum;
        norm->word[word] = rest;
    }
    if (word_carry)
        norm->nonfinite = 1; /* not a sum of floats */
}

static __global__ void __launch_bounds__(THREADS)
    block_norm_add(const float *__restrict__ sums, uint64_t count, sl_norm_sum *norm,
                   bool accumulates)
{
    __shared__ uint64_t digit[DIGITS][THREADS], total[DIGITS];
    bool is_nonfinite = false;
#pragma unroll
    for (int i = 0; i < DIGITS; i++)
        digit[i][threadIdx.x] = 0;
    for (uint64_t i = threadIdx.x; i < count; i += THREADS)
        if (!add_digits(digit, sums[i]))
            is_nonfinite = true;
    is_nonfinite = __syncthreads_or(is_nonfinite) != 0;
    for (uint32_t i = threadIdx.x / SL_WARP; i < DIGITS; i += WARPS) {
        const uint64_t sum = sum_digit(digit[i]);
        if (threadIdx.x % SL_WARP == 0)
            total[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (!accumulates)
        *norm = sl_norm_sum{};
    add_to_norm(norm, total);
    if (is_nonfinite)
        norm->nonfinite = 1;
}

/* 2^exponent for a normal number. */
static __device__ __forceinline__ double power_of_two(int exponent)
{
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

/* The sum, rounded once; as sl_norm_sum_value. The 64 bits from the highest set bit down, with the
 * lowest of them set if any bit below is: more than double keeps. */
static __device__ double find_value(const sl_norm_sum *sum)
{
    if (sum->nonfinite)
        return __longlong_as_double(0x7ff8000000000000); /* not a number */
    int top = WORDS - 1;
    while (top > 0 && sum->word[top] == 0)
        top--;
    if (sum->word[top] == 0)
        return 0.0;
    const int zeros = __clzll((long long)sum->word[top]);
    uint64_t leading = sum->word[top] << zeros;
    bool rest = false;
    if (top > 0) {
        const uint64_t next = sum->word[top - 1];
        leading |= zeros > 0 ? next >> (64 - zeros) : 0;
        rest = next << zeros != 0;
    }
    for (int word = 0; word < top - 1; word++)
        rest = rest || sum->word[word] != 0;
    return (double)(leading | (rest ? 1 : 0)) * power_of_two(64 * top - zeros + LEAST_EXPONENT);
}

/* From the mean over `row_count` rows to that over those that count; 0 if none does. */
static __device__ double find_share(const double *counted, double row_count)
{
    if (!counted)
        return 1.0;
    return *counted > 0.0 ? __ddiv_rn(row_count, *counted) : 0.0;
}

/* In double throughout, rounded once at the end. A gradient that is not finite leaves a NaN norm
 * and a factor of 0. */
static __global__ void norm_finish(const sl_norm_sum *norm, sl_step_control *control, double clip,
                                   double loss_scale, const double *counted, double row_count)
{
    if (threadIdx.x != 0)
        return;
    const double share = find_share(counted, row_count);
    const double size = __ddiv_rn(__dmul_rn(__dsqrt_rn(find_value(norm)), share), loss_scale);
    sl_step_control result = {(float)size, 0.0f, 1, norm->flags};
    if (isfinite(size) && share > 0.0) {
        const double factor = clip > 0.0 ? __ddiv_rn(clip, size + 1e-6) : 1.0;
        result.clip_scale =
            (float)__ddiv_rn(__dmul_rn(factor < 1.0 ? factor : 1.0, share), loss_scale);
        result.skip = 0;
    }
    *control = result;
}

extern "C" uint64_t sl_cuda_block_norm_workspace_bytes(sl_op_kind, const sl_op_attrs *attrs,
                                                       uint32_t)
{
    return attrs->element_count / SL_BLOCK_ELEMENTS * sizeof(float);
}

template <sl_type TYPE>
static sl_status launch_sums(const sl_kernel_call *call, const gradient_args &a)
{
    const uint32_t grid = (uint32_t)((a.block_count - 1) / WARPS + 1);
    if (call->attrs->grad_type == SL_TYPE_FP32)
        return SL_LAUNCH(call, grid, THREADS, 0, (block_norm_sums<TYPE, SL_TYPE_FP32>), a);
    return SL_LAUNCH(call, grid, THREADS, 0, (block_norm_sums<TYPE, TYPE>), a);
}

extern "C" sl_status sl_cuda_block_norm(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint8_t *counts = call->block_flags ? call->block_flags + attrs->first_block : NULL;
    const gradient_args a = {call->operand[0], attrs->element_count / SL_BLOCK_ELEMENTS, counts,
                             (float *)call->workspace};
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0 || a.block_count > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "a norm of %llu elements is not whole blocks of a grid",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    if (a.block_count > 0)
        SL_TRY(SL_BY_TYPE(attrs->type, launch_sums, call, a));
    return SL_LAUNCH(call, 1, THREADS, 0, block_norm_add, a.sums, a.block_count,
                     (sl_norm_sum *)call->operand[1], attrs->adds_output != 0);
}

extern "C" sl_status sl_cuda_norm_finish(const sl_kernel_call *call)
{
    return SL_LAUNCH(call, 1, SL_WARP, 0, norm_finish, (const sl_norm_sum *)call->operand[0],
                     (sl_step_control *)call->operand[1], (double)call->scalars.clip,
                     (double)call->scalars.loss_scale, (const double *)call->operand[2],
                     (double)call->attrs->row_count);
}
