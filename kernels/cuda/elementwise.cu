/* The ops that work on elements one by one: GELU and its gradient, ADD, CLEAR, CLEAR_PADDING,
 * ROUND. A thread does sixteen bytes; the last one does what is left, element by element.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                            sm_80                sm_90
 *   clear_runs<bf16>                     16     13      2     17     13      2
 *   elementwise<ADD, bf16>               24     51     48     24     54     48
 *   elementwise<CLEAR, bf16>             12     39     18     11     42     18
 *   elementwise<GELU, bf16>              25    242     32     25    246     32
 *   elementwise<GELU_BACKWARD, bf16>     32    307     48     32    314     48
 *   elementwise<ROUND, bf16>             22     25     48     22     28     48
 */
#include "gelu.cuh"
#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256 };

/* What becomes of y; x is 0 where the op has none, y where it does not read it. */
template <sl_op_kind OP> static __device__ __forceinline__ float compute(float x, float y)
{
    if constexpr (OP == SL_OP_GELU)
        return sl_gelu(x);
    else if constexpr (OP == SL_OP_GELU_BACKWARD)
        return y * sl_gelu_slope(x);
    else if constexpr (OP == SL_OP_ADD)
        return y + x;
    else
        return x; /* ROUND; CLEAR */
}

template <sl_op_kind OP> struct elements_op {
    enum {
        READS_X = OP != SL_OP_CLEAR,
        READS_Y = OP == SL_OP_GELU_BACKWARD || OP == SL_OP_ADD,
        WIDE_X = OP == SL_OP_ROUND /* fp32 whatever the type */
    };
};

/* COUNT of `to`'s elements from x, which is fp32 for ROUND: then in more than one access. */
template <sl_op_kind OP, sl_type TYPE>
static __device__ __forceinline__ sl_pack<TYPE> load_x(const void *x, uint64_t first)
{
    if constexpr (!elements_op<OP>::WIDE_X) {
        return sl_load_pack<TYPE>(x, first);
    } else {
        sl_pack<TYPE> pack;
#pragma unroll
        for (int i = 0; i < sl_pack<TYPE>::COUNT; i += 4) {
            const sl_pack<SL_TYPE_FP32> part = sl_load_pack<SL_TYPE_FP32>(x, first + i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                pack.value[i + j] = part.value[j];
        }
        return pack;
    }
}

template <sl_op_kind OP, sl_type TYPE>
static __device__ __forceinline__ void run_pack(const void *x, void *y, uint64_t first)
{
    sl_pack<TYPE> from = {}, to = {};
    if constexpr (elements_op<OP>::READS_X)
        from = load_x<OP, TYPE>(x, first);
    if constexpr (elements_op<OP>::READS_Y)
        to = sl_load_pack<TYPE>(y, first);
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
        to.value[i] = compute<OP>(from.value[i], to.value[i]);
    sl_store_pack<TYPE>(y, first, to);
}

template <sl_op_kind OP, sl_type TYPE>
static __device__ __forceinline__ void run_element(const void *x, void *y, uint64_t i)
{
    float from = 0.0f, to = 0.0f;
    if constexpr (elements_op<OP>::WIDE_X)
        from = ((const float *)x)[i];
    else if constexpr (elements_op<OP>::READS_X)
        from = sl_load<TYPE>(x, i);
    if constexpr (elements_op<OP>::READS_Y)
        to = sl_load<TYPE>(y, i);
    sl_store<TYPE>(y, i, compute<OP>(from, to));
}

template <sl_op_kind OP, sl_type TYPE>
static __global__ void __launch_bounds__(THREADS)
    elementwise(const void *__restrict__ x, void *__restrict__ y, uint64_t count)
{
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t first = thread * sl_pack<TYPE>::COUNT;
    if (first + sl_pack<TYPE>::COUNT <= count) {
        run_pack<OP, TYPE>(x, y, first);
        return;
    }
#pragma unroll 1
    for (uint64_t i = first; i < count; i++)
        run_element<OP, TYPE>(x, y, i);
}

template <sl_op_kind OP, sl_type TYPE>
static sl_status launch_elements(const sl_kernel_call *call, const void *x, void *y)
{
    const uint64_t count = call->attrs->element_count, each = THREADS * sl_pack<TYPE>::COUNT;
    if (count == 0)
        return SL_OK;
    if ((count - 1) / each >= INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu elements are more than a grid has",
                (unsigned long long)count);
    const uint32_t blocks = (uint32_t)((count - 1) / each + 1);
    return SL_LAUNCH(call, blocks, THREADS, 0, (elementwise<OP, TYPE>), x, y, count);
}

template <sl_op_kind OP>
static sl_status run_elements(const sl_kernel_call *call, const void *x, void *y)
{
    switch ((sl_type)call->attrs->type) {
    case SL_TYPE_FP32:
        return launch_elements<OP, SL_TYPE_FP32>(call, x, y);
    case SL_TYPE_BF16:
        return launch_elements<OP, SL_TYPE_BF16>(call, x, y);
    default:
        return launch_elements<OP, SL_TYPE_FP16>(call, x, y);
    }
}

extern "C" sl_status sl_cuda_gelu(const sl_kernel_call *call)
{
    return run_elements<SL_OP_GELU>(call, call->operand[0], call->operand[1]);
}

extern "C" sl_status sl_cuda_gelu_backward(const sl_kernel_call *call)
{
    return run_elements<SL_OP_GELU_BACKWARD>(call, call->operand[0], call->operand[1]);
}

extern "C" sl_status sl_cuda_add(const sl_kernel_call *call)
{
    return run_elements<SL_OP_ADD>(call, call->operand[0], call->operand[1]);
}

extern "C" sl_status sl_cuda_round(const sl_kernel_call *call)
{
    return run_elements<SL_OP_ROUND>(call, call->operand[0], call->operand[1]);
}

extern "C" sl_status sl_cuda_clear(const sl_kernel_call *call)
{
    return run_elements<SL_OP_CLEAR>(call, NULL, call->operand[0]);
}

/* ---- padding ---- */

enum {
    RUNS_MOST = 128,      /* of one launch: the kernel takes them as its argument */
    RUN_BLOCKS_MOST = 512 /* that share one run */
};

typedef struct padding_runs {
    sl_padding run[RUNS_MOST];
} padding_runs;

/* Run blockIdx.y, in packs of sixteen aligned bytes; at its ends a pack may be cut. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS)
    clear_runs(void *__restrict__ chunk, const padding_runs runs)
{
    const uint64_t each = sl_pack<TYPE>::COUNT, threads = (uint64_t)gridDim.x * THREADS;
    const uint64_t first = runs.run[blockIdx.y].first;
    const uint64_t end = first + runs.run[blockIdx.y].count;
    uint64_t pack = first / each + (uint64_t)blockIdx.x * THREADS + threadIdx.x;
#pragma unroll 1
    for (; pack * each < end; pack += threads) {
        if (pack * each >= first && (pack + 1) * each <= end) {
            sl_store_pack<TYPE>(chunk, pack * each, {});
            continue;
        }
#pragma unroll 1
        for (uint64_t i = pack * each; i < (pack + 1) * each; i++)
            if (i >= first && i < end)
                sl_store<TYPE>(chunk, i, 0.0f);
    }
}

template <sl_type TYPE>
static sl_status launch_runs(const sl_kernel_call *call, const sl_padding *padding, uint32_t count)
{
    padding_runs runs = {};
    uint64_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        runs.run[i] = padding[i];
        longest = padding[i].count > longest ? padding[i].count : longest;
    }
    /* A run begins anywhere: so it may take one pack more. */
    const uint64_t packs = longest / sl_pack<TYPE>::COUNT + 2;
    const uint64_t blocks = sl_bits_divide_up(packs, THREADS);
    const dim3 grid((uint32_t)sl_bits_min(blocks, RUN_BLOCKS_MOST), count);
    return SL_LAUNCH(call, grid, THREADS, 0, (clear_runs<TYPE>), call->operand[0], runs);
}

/* Zeros are the same bits in both types of half precision. */
extern "C" sl_status sl_cuda_clear_padding(const sl_kernel_call *call)
{
    for (uint64_t first = 0; first < call->padding_count; first += RUNS_MOST) {
        const uint32_t count = (uint32_t)sl_bits_min(call->padding_count - first, RUNS_MOST);
        const sl_padding *padding = call->padding + first;
        SL_TRY(call->attrs->type == SL_TYPE_FP32 ? launch_runs<SL_TYPE_FP32>(call, padding, count)
                                                 : launch_runs<SL_TYPE_BF16>(call, padding, count));
    }
    return SL_OK;
}
