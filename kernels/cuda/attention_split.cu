/* Attention of few queries to many keys, as in decoding. There is one product per key and value and
 * no reuse, so it is bound by reading keys and values once, with all multiprocessors. A block has
 * SPLIT keys of one head for one query. It writes the maximum m of its scores, the sum of
 * exp(score - m), and the weighted sum of values to the workspace, and a second kernel combines the
 * splits in order (Flash-Decoding: Dao, Haziza, Massa, Sizov 2023).
 *
 * Workspace: [B * H, T, splits of the cache, width + 2] floats: maximum, sum, values.
 * Shared memory: width + SPLIT + the groups' sums, at most SPLIT * 8 floats or one row.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                        sm_80                sm_90
 *   attention_join<bf16>             32    117     64     32    117     64
 *   attention_split<bf16, false>     32     14      4     32     15      4
 *   attention_split<bf16, true>      34     98     64     35    100     64
 */
#include "attention.cuh"
#include "mma.cuh"
#include "reduce.cuh"

enum { SPLIT = 128, SPLIT_THREADS = SPLIT };

typedef struct split_args {
    sl_attention_args attention;
    float *partials;
    uint32_t split_count; /* that the workspace has room for */
} split_args;

static __device__ __forceinline__ float *partial_of(const split_args &args, uint32_t query,
                                                    uint32_t split)
{
    const uint64_t row = (uint64_t)blockIdx.x * args.attention.query_count + query;
    return args.partials + (row * args.split_count + split) * (args.attention.width + 2);
}

/* The product of the query in shared memory with the row of elements from `at` on. */
template <sl_type TYPE, bool IN_PACKS>
static __device__ __forceinline__ float multiply_row(const float *query, const void *rows,
                                                     uint64_t at, uint32_t width)
{
    float sum = 0.0f;
    if constexpr (IN_PACKS) {
        for (uint32_t i = 0; i < width; i += sl_pack<TYPE>::COUNT) {
            const sl_pack<TYPE> pack = sl_load_pack<TYPE>(rows, at + i);
#pragma unroll
            for (int j = 0; j < sl_pack<TYPE>::COUNT; j++)
                sum = fmaf(query[i + j], pack.value[j], sum);
        }
    } else {
        for (uint32_t i = 0; i < width; i++)
            sum = fmaf(query[i], sl_load<TYPE>(rows, at + i), sum);
    }
    return sum;
}

/* Packs of columns go to lanes, keys to groups of lanes in turn; the groups' sums of
 * weights[key] * value are added in their order. `key_count` keys from the element `at` on. */
template <sl_type TYPE, bool IN_PACKS>
static __device__ __forceinline__ void add_values(const sl_attention_args &args,
                                                  const float *weights, float *group_sums,
                                                  uint64_t at, uint32_t key_count, float *sums)
{
    enum { COUNT = IN_PACKS ? sl_pack<TYPE>::COUNT : 1 };
    const uint32_t packs = args.width / COUNT, lanes = sl_less(packs, SPLIT_THREADS);
    const uint32_t groups = SPLIT_THREADS / lanes, group = threadIdx.x / lanes;
    for (uint32_t pack = threadIdx.x % lanes; group < groups && pack < packs; pack += lanes) {
        float sum[COUNT] = {};
        for (uint32_t key = group; key < key_count; key += groups) {
            const uint64_t place = at + key * args.key_row + pack * COUNT;
            if constexpr (IN_PACKS) {
                const sl_pack<TYPE> values = sl_load_pack<TYPE>(args.v, place);
#pragma unroll
                for (int j = 0; j < COUNT; j++)
                    sum[j] = fmaf(weights[key], values.value[j], sum[j]);
            } else {
                sum[0] = fmaf(weights[key], sl_load<TYPE>(args.v, place), sum[0]);
            }
        }
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            group_sums[group * args.width + pack * COUNT + j] = sum[j];
    }
    __syncthreads();
    for (uint32_t column = threadIdx.x; column < args.width; column += SPLIT_THREADS) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < groups; i++)
            sum += group_sums[i * args.width + column];
        sums[column] = sum;
    }
}

/* Block (head, split, query). */
template <sl_type TYPE, bool IN_PACKS>
static __global__ void __launch_bounds__(SPLIT_THREADS) attention_split(split_args args)
{
    SL_DYNAMIC_SHARED(float, scratch); /* a float a warp, twice */
    float *const weights = scratch + 2 * SL_WARP, *const query = weights + SPLIT;
    float *const group_sums = query + args.attention.width;
    const sl_attention_place place = sl_attention_place_of<true>(args.attention, blockIdx.x);
    const uint32_t all_keys = args.attention.position + blockIdx.z + 1; /* that the query sees */
    const uint32_t first = blockIdx.y * SPLIT, width = args.attention.width;
    if (first >= all_keys)
        return;
    const uint32_t key_count = sl_less(all_keys - first, SPLIT);
    const uint64_t at = place.key + first * args.attention.key_row;
    for (uint32_t i = threadIdx.x; i < width; i += SPLIT_THREADS)
        query[i] = sl_load<TYPE>(args.attention.q, place.q + blockIdx.z * args.attention.q_row + i);
    __syncthreads();
    float score = -INFINITY;
    if (threadIdx.x < key_count)
        score = multiply_row<TYPE, IN_PACKS>(query, args.attention.k,
                                             at + threadIdx.x * args.attention.key_row, width);
    const float max = sl_block_max<SPLIT_THREADS>(score, scratch);
    const float weight = sl_exp2((score - max) * (args.attention.scale * SL_LOG2_E));
    weights[threadIdx.x] = weight;
    const float sum = sl_block_sum<SPLIT_THREADS>(weight, scratch + SL_WARP);
    float *partial = partial_of(args, blockIdx.z, blockIdx.y);
    if (threadIdx.x == 0) {
        partial[0] = max;
        partial[1] = sum;
    }
    add_values<TYPE, IN_PACKS>(args.attention, weights, group_sums, at, key_count, partial + 2);
}

/* Block (head, query): the splits in their order. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(SPLIT_THREADS) attention_join(split_args args)
{
    const sl_attention_place place = sl_attention_place_of<true>(args.attention, blockIdx.x);
    const uint32_t width = args.attention.width;
    const uint32_t count = sl_divide_up(args.attention.position + blockIdx.y + 1, SPLIT);
    const float *partials = partial_of(args, blockIdx.y, 0);
    float max = -INFINITY, weight = 0.0f;
    for (uint32_t i = 0; i < count; i++)
        max = fmaxf(max, partials[(uint64_t)i * (width + 2)]);
    for (uint32_t column = threadIdx.x; column < width; column += SPLIT_THREADS) {
        float sum = 0.0f;
        weight = 0.0f;
        for (uint32_t i = 0; i < count; i++) {
            const float *partial = partials + (uint64_t)i * (width + 2);
            const float share = sl_exp2((partial[0] - max) * (args.attention.scale * SL_LOG2_E));
            weight = fmaf(share, partial[1], weight);
            sum = fmaf(share, partial[2 + column], sum);
        }
        sl_store<TYPE>(args.attention.y,
                       place.y + blockIdx.y * (uint64_t)args.attention.heads * width + column,
                       sum / weight);
    }
}

static uint32_t count_splits(const sl_op_attrs *attrs)
{
    return sl_divide_up((uint32_t)attrs->cache_rows, SPLIT);
}

uint64_t sl_attention_split_bytes(const sl_op_attrs *attrs)
{
    const uint64_t width = attrs->in / attrs->heads;
    return attrs->batch * attrs->heads * attrs->seq * count_splits(attrs) * (width + 2) *
           sizeof(float);
}

template <sl_type TYPE>
static sl_status launch(const sl_kernel_call *call, const sl_attention_args *attention)
{
    const split_args args = {*attention, (float *)call->workspace, count_splits(call->attrs)};
    const uint32_t keys = attention->position + attention->query_count, width = attention->width;
    const dim3 grid(attention->head_count, sl_divide_up(keys, SPLIT), attention->query_count);
    const uint32_t group_floats = width < 8 * SPLIT_THREADS ? 8 * SPLIT_THREADS : width;
    const uint32_t shared_bytes = 4 * (2 * SL_WARP + SPLIT + width + group_floats);
    if (grid.y > 65535 || shared_bytes > 48 * 1024)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %u features a head to %u keys", width, keys);
    if (width % sl_pack<TYPE>::COUNT == 0)
        SL_TRY(SL_LAUNCH(call, grid, SPLIT_THREADS, shared_bytes, (attention_split<TYPE, true>),
                         args));
    else
        SL_TRY(SL_LAUNCH(call, grid, SPLIT_THREADS, shared_bytes, (attention_split<TYPE, false>),
                         args));
    return SL_LAUNCH(call, dim3(attention->head_count, attention->query_count), SPLIT_THREADS, 0,
                     (attention_join<TYPE>), args);
}

sl_status sl_attention_split(const sl_kernel_call *call, const sl_attention_args *args)
{
    return SL_BY_TYPE(call->attrs->type, launch, call, args);
}
