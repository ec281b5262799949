/* Attention without tensor cores: any type and any head width, all arithmetic in fp32 (no tf32).
 *
 * A block of 256 threads owns TILE queries or keys of a head and TILE of its columns, and walks
 * tiles of TILE on the other side; every thread holds 4 x 4 of each product of [TILE, TILE].
 * Operands pass through shared memory STEPS columns (for scores) or rows (for sums) at a time: two
 * floats loaded from shared memory for four multiply-adds. Wider heads than TILE have a block for
 * every TILE columns, each of which computes the scores again.
 *
 * Shared memory: 2 * 16 * 68 + 64 * 68 floats = 25.5 KiB. Rows are 68 floats apart so that the 4 x
 * 16 threads of two warps, which write a staged tile across its rows, use different banks.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions, loads an MMA or FMA.
 *
 *                                                                sm_80                sm_90
 *   attention_plain_backward_keys<bf16, false>              139   1.54   0.12    164   1.55   0.12
 *   attention_plain_backward_keys<bf16, true>               189   1.46   0.12    193   1.46   0.12
 *   attention_plain_backward_keys<fp32, false>              139   1.48   0.12    164   1.52   0.12
 *   attention_plain_backward_keys<fp32, true>               184   1.40   0.12    191   1.43   0.12
 *   attention_plain_backward_queries<bf16, false, false>    132   1.52   0.12    125   1.56   0.12
 *   attention_plain_backward_queries<bf16, false, true>     132   1.52   0.12    125   1.56   0.12
 *   attention_plain_backward_queries<bf16, true, false>     144   1.50   0.12    142   1.54   0.12
 *   attention_plain_backward_queries<bf16, true, true>      144   1.50   0.12    142   1.54   0.12
 *   attention_plain_backward_queries<fp32, false, false>    132   1.48   0.12    127   1.52   0.12
 *   attention_plain_backward_queries<fp32, false, true>     132   1.48   0.12    127   1.52   0.12
 *   attention_plain_backward_queries<fp32, true, false>     144   1.46   0.12    143   1.51   0.12
 *   attention_plain_backward_queries<fp32, true, true>      144   1.46   0.12    143   1.51   0.12
 *   attention_plain_forward<bf16, false, false>             121   1.64   0.12    127   1.68   0.12
 *   attention_plain_forward<bf16, false, true>              121   1.64   0.12    127   1.68   0.12
 *   attention_plain_forward<bf16, true, false>              118   1.74   0.12    122   1.77   0.12
 *   attention_plain_forward<bf16, true, true>               117   1.74   0.12    122   1.77   0.12
 *   attention_plain_forward<fp32, false, false>             119   1.59   0.12    127   1.65   0.12
 *   attention_plain_forward<fp32, false, true>              119   1.59   0.12    125   1.65   0.12
 *   attention_plain_forward<fp32, true, false>              121   1.70   0.12    123   1.74   0.12
 *   attention_plain_forward<fp32, true, true>               117   1.70   0.12    123   1.74   0.12
 */
#include "attention_dots.cuh"
#include "attention_mask.cuh"
#include "mma.cuh"

enum { TILE = 64, STEPS = 16, PLAIN_THREADS = 256, STRIDE = TILE + 4 };
enum { STAGES = TILE * STEPS / PLAIN_THREADS }; /* elements that a thread stages at once */

typedef struct plain_shared {
    float left[STEPS][STRIDE], right[STEPS][STRIDE];
    float weights[TILE][STRIDE]; /* [columns, rows] of a product */
} plain_shared;

/* Rows of a head's columns in an operand; beyond `count` and `width` are zeros. */
typedef struct plain_rows {
    const void *base;
    uint64_t first, stride; /* elements */
    uint32_t count, width;
} plain_rows;

template <sl_type TYPE>
static __device__ __forceinline__ float load_element(const plain_rows &rows, uint32_t row,
                                                     uint32_t column)
{
    if (row >= rows.count || column >= rows.width)
        return 0.0f;
    return sl_load<TYPE>(rows.base, rows.first + row * rows.stride + column);
}

/* The thread's rows and columns of a product are 4 each, from these on. */
static __device__ __forceinline__ uint32_t thread_row()
{
    return threadIdx.x / 16 * 4;
}

static __device__ __forceinline__ uint32_t thread_column()
{
    return threadIdx.x % 16 * 4;
}

static __device__ __forceinline__ void clear_product(float (&product)[4][4])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        product[i / 4][i % 4] = 0.0f;
}

/* product += left' right, both [STEPS, TILE]. */
static __device__ __forceinline__ void multiply_staged(float (&product)[4][4],
                                                       const float (*left)[STRIDE],
                                                       const float (*right)[STRIDE])
{
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const float4 l = *(const float4 *)&left[step][thread_row()];
        const float4 r = *(const float4 *)&right[step][thread_column()];
        const float a[4] = {l.x, l.y, l.z, l.w}, b[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int i = 0; i < 16; i++)
            product[i / 4][i % 4] = sl_multiply_add(a[i / 4], b[i % 4], product[i / 4][i % 4]);
    }
}

/* product = left right', TILE rows each. */
template <sl_type TYPE>
static __device__ __forceinline__ void multiply_rows(float (&product)[4][4], plain_shared *shared,
                                                     const plain_rows &left,
                                                     const plain_rows &right)
{
    clear_product(product);
    for (uint32_t first = 0; first < left.width; first += STEPS) {
        __syncthreads();
#pragma unroll
        for (uint32_t stage = 0; stage < STAGES; stage++) {
            const uint32_t i = threadIdx.x + stage * PLAIN_THREADS;
            const uint32_t row = i / STEPS, step = i % STEPS;
            shared->left[step][row] = load_element<TYPE>(left, row, first + step);
            shared->right[step][row] = load_element<TYPE>(right, row, first + step);
        }
        __syncthreads();
        multiply_staged(product, shared->left, shared->right);
    }
}

/* sums += weights rows, their columns from `first_column` on. Begins with a barrier. */
template <sl_type TYPE>
static __device__ __forceinline__ void add_weighted(float (&sums)[4][4], plain_shared *shared,
                                                    const plain_rows &rows, uint32_t first_column)
{
    for (uint32_t first = 0; first < TILE; first += STEPS) {
        __syncthreads();
#pragma unroll
        for (uint32_t stage = 0; stage < STAGES; stage++) {
            const uint32_t i = threadIdx.x + stage * PLAIN_THREADS;
            const uint32_t step = i / TILE, column = i % TILE;
            shared->right[step][column] =
                load_element<TYPE>(rows, first + step, first_column + column);
        }
        __syncthreads();
        multiply_staged(sums, &shared->weights[first], shared->right);
    }
}

/* Shows a product to the block as the weights of add_weighted, once nobody reads the last ones. */
static __device__ __forceinline__ void put_weights(plain_shared *shared,
                                                   const float (&product)[4][4])
{
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++)
        shared->weights[thread_column() + i % 4][thread_row() + i / 4] = product[i / 4][i % 4];
}

/* Rounds and stores sums * scale[row]; `at`: the element of row 0 and column 0. */
template <sl_type TYPE>
static __device__ __forceinline__ void store_sums(void *to, const plain_rows &shape,
                                                  uint32_t first_column, const float (&sums)[4][4],
                                                  const float (&scale)[4])
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t row = thread_row() + i / 4, column = first_column + thread_column() + i % 4;
        if (row < shape.count && column < shape.width)
            sl_store<TYPE>(to, shape.first + row * shape.stride + column,
                           sums[i / 4][i % 4] * scale[i / 4]);
    }
}

/* Up to TILE rows from `first` on. */
static __device__ __forceinline__ plain_rows query_rows(const sl_attention_args &args,
                                                        const sl_attention_place &place,
                                                        const void *base, uint32_t first)
{
    const plain_rows rows = {base, place.q + first * args.q_row, args.q_row,
                             sl_less(args.query_count - first, TILE), args.width};
    return rows;
}

static __device__ __forceinline__ plain_rows result_rows(const sl_attention_args &args,
                                                         const sl_attention_place &place,
                                                         const void *base, uint32_t first)
{
    const uint64_t stride = (uint64_t)args.heads * args.width;
    const plain_rows rows = {base, place.y + first * stride, stride,
                             sl_less(args.query_count - first, TILE), args.width};
    return rows;
}

static __device__ __forceinline__ plain_rows key_rows(const sl_attention_args &args,
                                                      const sl_attention_place &place,
                                                      const void *base, uint32_t first)
{
    const plain_rows rows = {base, place.key + first * args.key_row, args.key_row,
                             sl_less(args.position + args.query_count - first, TILE), args.width};
    return rows;
}

/* ---- forward ---- */

/* The thread's four queries; the 16 threads of a row have the same maximum. */
typedef struct plain_state {
    float sums[4][4], max[4], weight[4];
} plain_state;

/* Over the 16 threads of a row. */
static __device__ __forceinline__ float row_max(float value)
{
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(SL_EVERY_LANE, value, distance));
    return value;
}

static __device__ __forceinline__ float row_sum(float value)
{
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        value += __shfl_xor_sync(SL_EVERY_LANE, value, distance);
    return value;
}

/* Scores of keys of earlier documents become -inf; first_query, first_key: the block's and the
 * tile's. */
static __device__ __forceinline__ void mask_documents(float (&scores)[4][4],
                                                      const sl_attention_mask &mask,
                                                      uint32_t first_query, uint32_t first_key)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int document = sl_attention_document(mask, first_query + thread_row() + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if ((int)(first_key + thread_column()) + j < document)
                scores[i][j] = -INFINITY;
    }
}

/* Weights become those that values are multiplied with. */
static __device__ __forceinline__ void drop_weights(float (&weights)[4][4],
                                                    const sl_attention_mask &mask,
                                                    uint32_t first_query, uint32_t first_key)
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        weights[i / 4][i % 4] *= sl_attention_factor(mask, first_query + thread_row() + i / 4,
                                                     first_key + thread_column() + i % 4);
}

/* `causal_offset`: the tile's first key's position less the block's first query's. Where MASKED, a
 * query may see none of the tile's keys, nor of those before. */
template <bool MASKED>
static __device__ __forceinline__ void update_softmax(plain_state &state, float (&scores)[4][4],
                                                      float factor, int causal_offset)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float max = state.max[i], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (causal_offset + (int)thread_column() + j > (int)thread_row() + i)
                scores[i][j] = -INFINITY;
            max = fmaxf(max, scores[i][j]);
        }
        max = row_max(max);
        const float base = MASKED ? fmaxf(max, -FLT_MAX) : max;
        const float rescale = sl_exp2((state.max[i] - base) * factor);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            scores[i][j] = sl_exp2((scores[i][j] - base) * factor);
            sum += scores[i][j];
            state.sums[i][j] *= rescale;
        }
        state.max[i] = max;
        state.weight[i] = fmaf(state.weight[i], rescale, sum);
    }
}

template <sl_type TYPE, bool MASKED, bool GROUPED>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_plain_forward(sl_attention_args args)
{
    SL_DYNAMIC_SHARED(plain_shared, shared);
    const sl_attention_place place = sl_attention_place_of<GROUPED>(args, blockIdx.x);
    const uint32_t first = (gridDim.y - 1 - blockIdx.y) * TILE, first_column = blockIdx.z * TILE;
    const plain_rows queries = query_rows(args, place, args.q, first);
    const plain_rows results = result_rows(args, place, NULL, first);
    const uint32_t key_count = args.position + first + queries.count;
    sl_attention_mask mask = {};
    if constexpr (MASKED)
        mask = sl_attention_mask_of(args, blockIdx.x);
    const uint32_t first_tile = MASKED ? sl_attention_first_tile(mask, first, TILE) : 0;
    plain_state state;
    clear_product(state.sums);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        state.max[i] = -INFINITY;
        state.weight[i] = 0.0f;
    }
    for (uint32_t key = first_tile * TILE; key < key_count; key += TILE) {
        float scores[4][4];
        multiply_rows<TYPE>(scores, shared, queries, key_rows(args, place, args.k, key));
        if constexpr (MASKED)
            mask_documents(scores, mask, first, key);
        update_softmax<MASKED>(state, scores, args.scale * SL_LOG2_E,
                               (int)key - (int)(args.position + first));
        if constexpr (MASKED)
            drop_weights(scores, mask, first, key);
        put_weights(shared, scores);
        add_weighted<TYPE>(state.sums, shared, key_rows(args, place, args.v, key), first_column);
    }
    float scale[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float weight = row_sum(state.weight[i]);
        scale[i] = 1.0f / weight;
        if (args.lse && thread_column() == 0 && first_column == 0 &&
            thread_row() + i < queries.count)
            args.lse[place.statistics + first + thread_row() + i] =
                fmaf(state.max[i], args.scale, logf(weight));
    }
    store_sums<TYPE>(args.y, results, first_column, state.sums, scale);
}

/* ---- backward ---- */

typedef struct plain_pair {
    uint32_t query, key;
} plain_pair;

/* s and dp of one query and key become p, as dv has it, and ds. */
template <bool MASKED>
static __device__ __forceinline__ void differentiate_softmax(float &s, float &dp,
                                                             const sl_attention_args &args,
                                                             uint64_t statistics, plain_pair pair,
                                                             const sl_attention_mask &mask)
{
    const uint32_t query = pair.query, key = pair.key;
    bool exists = key <= query && query < args.query_count;
    if constexpr (MASKED)
        exists = exists && (int)key >= sl_attention_document(mask, query);
    const float lse = exists ? args.lse[statistics + query] : 0.0f;
    const float dot = exists ? args.dots[statistics + query] : 0.0f;
    const float p = exists ? sl_exp2(fmaf(s, args.scale, -lse) * SL_LOG2_E) : 0.0f;
    const float factor = MASKED ? sl_attention_factor(mask, query, key) : 1.0f;
    s = MASKED ? p * factor : p;
    dp = p * ((MASKED ? dp * factor : dp) - dot);
}

/* A block owns keys: rows of the products. It walks the heads of q that share them. */
template <sl_type TYPE, bool MASKED>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_plain_backward_keys(sl_attention_args args)
{
    SL_DYNAMIC_SHARED(plain_shared, shared);
    sl_attention_place place = sl_attention_place_of<true>(args, blockIdx.x * args.group);
    const uint32_t first = blockIdx.y * TILE, first_column = blockIdx.z * TILE;
    const plain_rows k = key_rows(args, place, args.k, first);
    const plain_rows v = key_rows(args, place, args.v, first);
    uint32_t query_end = args.query_count;
    sl_attention_mask mask = {};
    if constexpr (MASKED) {
        mask = sl_attention_mask_of(args, blockIdx.x * args.group);
        query_end = sl_attention_end_tile(mask, first / TILE, TILE, first + TILE) * TILE;
    }
    float dk[4][4], dv[4][4];
    clear_product(dk);
    clear_product(dv);
    uint32_t query = first, head = 0;
    do {
        const plain_rows q = query_rows(args, place, args.q, query);
        const plain_rows dy = result_rows(args, place, args.dy, query);
        float s[4][4], dp[4][4];
        multiply_rows<TYPE>(s, shared, k, q);
        multiply_rows<TYPE>(dp, shared, v, dy);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const plain_pair pair = {query + thread_column() + i % 4, first + thread_row() + i / 4};
            differentiate_softmax<MASKED>(s[i / 4][i % 4], dp[i / 4][i % 4], args, place.statistics,
                                          pair, mask);
        }
        put_weights(shared, s);
        add_weighted<TYPE>(dv, shared, dy, first_column);
        put_weights(shared, dp);
        add_weighted<TYPE>(dk, shared, q, first_column);
        query += TILE;
        if (query >= query_end) {
            query = first;
            head++;
            mask.head++;
            place.q += args.width;
            place.y += args.width;
            place.statistics += args.query_count;
        }
    } while (head < args.group);
    const float scale[4] = {args.scale, args.scale, args.scale, args.scale};
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_sums<TYPE>(args.dk, k, first_column, dk, scale);
    store_sums<TYPE>(args.dv, v, first_column, dv, one);
}

/* A block owns queries: rows of the products. */
template <sl_type TYPE, bool MASKED, bool GROUPED>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_plain_backward_queries(sl_attention_args args)
{
    SL_DYNAMIC_SHARED(plain_shared, shared);
    const sl_attention_place place = sl_attention_place_of<GROUPED>(args, blockIdx.x);
    const uint32_t first = (gridDim.y - 1 - blockIdx.y) * TILE, first_column = blockIdx.z * TILE;
    const plain_rows q = query_rows(args, place, args.q, first);
    const plain_rows dy = result_rows(args, place, args.dy, first);
    sl_attention_mask mask = {};
    if constexpr (MASKED)
        mask = sl_attention_mask_of(args, blockIdx.x);
    float dq[4][4];
    clear_product(dq);
    uint32_t key = MASKED ? sl_attention_first_tile(mask, first, TILE) * TILE : 0;
    do {
        const plain_rows k = key_rows(args, place, args.k, key);
        float s[4][4], dp[4][4];
        multiply_rows<TYPE>(s, shared, q, k);
        multiply_rows<TYPE>(dp, shared, dy, key_rows(args, place, args.v, key));
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const plain_pair pair = {first + thread_row() + i / 4, key + thread_column() + i % 4};
            differentiate_softmax<MASKED>(s[i / 4][i % 4], dp[i / 4][i % 4], args, place.statistics,
                                          pair, mask);
        }
        put_weights(shared, dp);
        add_weighted<TYPE>(dq, shared, k, first_column);
        key += TILE;
    } while (key < first + q.count);
    const float scale[4] = {args.scale, args.scale, args.scale, args.scale};
    store_sums<TYPE>(args.dq, q, first_column, dq, scale);
}

/* ---- launches ---- */

template <sl_type TYPE, bool MASKED, bool GROUPED>
static sl_status launch_one_forward(const sl_kernel_call *call, const sl_attention_args *args)
{
    const sl_attention_args copy = *args;
    dim3 grid;
    SL_TRY(sl_attention_grid(args, TILE, sl_divide_up(args->width, TILE), &grid));
    return SL_LAUNCH(call, grid, PLAIN_THREADS, sizeof(plain_shared),
                     (attention_plain_forward<TYPE, MASKED, GROUPED>), copy);
}

template <sl_type TYPE, bool GROUPED>
static sl_status launch_forward_heads(const sl_kernel_call *call, const sl_attention_args *args)
{
    SL_ATTENTION_BY_MASK(call, args, (launch_one_forward<TYPE, false, GROUPED>),
                         (launch_one_forward<TYPE, true, GROUPED>));
}

template <sl_type TYPE>
static sl_status launch_forward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return args->group > 1 ? launch_forward_heads<TYPE, true>(call, args)
                           : launch_forward_heads<TYPE, false>(call, args);
}

template <sl_type TYPE, bool MASKED, bool GROUPED>
static sl_status launch_one_backward(const sl_kernel_call *call, const sl_attention_args *args)
{
    const sl_attention_args copy = *args;
    dim3 keys, queries;
    SL_TRY(sl_attention_key_grid(args, TILE, sl_divide_up(args->width, TILE), &keys));
    SL_TRY(sl_attention_grid(args, TILE, sl_divide_up(args->width, TILE), &queries));
    SL_TRY((sl_attention_dots<TYPE, false>(call, args)));
    SL_TRY(SL_LAUNCH(call, keys, PLAIN_THREADS, sizeof(plain_shared),
                     (attention_plain_backward_keys<TYPE, MASKED>), copy));
    return SL_LAUNCH(call, queries, PLAIN_THREADS, sizeof(plain_shared),
                     (attention_plain_backward_queries<TYPE, MASKED, GROUPED>), copy);
}

template <sl_type TYPE, bool GROUPED>
static sl_status launch_backward_heads(const sl_kernel_call *call, const sl_attention_args *args)
{
    SL_ATTENTION_BY_MASK(call, args, (launch_one_backward<TYPE, false, GROUPED>),
                         (launch_one_backward<TYPE, true, GROUPED>));
}

template <sl_type TYPE>
static sl_status launch_backward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return args->group > 1 ? launch_backward_heads<TYPE, true>(call, args)
                           : launch_backward_heads<TYPE, false>(call, args);
}

sl_status sl_attention_plain_forward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return SL_BY_TYPE(call->attrs->type, launch_forward, call, args);
}

sl_status sl_attention_plain_backward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return SL_BY_TYPE(call->attrs->type, launch_backward, call, args);
}
