/* Attention forward by tensor cores.
 *
 * A block owns QUERIES queries of one head and walks the tiles of KEYS keys up to the diagonal; the
 * next tile of keys and values is on its way while one is used. Of a warp's 16 * ROW_TILES queries
 * the scores of one tile, the weighted sums, their maxima and sums of weights are registers; the
 * rounded weights go from one product into the next without leaving them.
 *
 *   WIDTH  QUERIES  KEYS  shared bytes
 *      64      128    64   16 Ki + 4 *  8 Ki = 48 Ki
 *     128      128    32   32 Ki + 4 *  8 Ki = 64 Ki
 *     256       64    32   32 Ki + 4 * 16 Ki = 96 Ki
 *
 * so that two blocks share a multiprocessor of 164 KiB up to WIDTH 128, and one fits the 99 KiB
 * that the smallest of ours give a block. A tile of keys costs a block 4 * QUERIES * KEYS * WIDTH
 * operations and 4 * KEYS * WIDTH bytes: QUERIES = 128 operations a byte of keys and values, most
 * of which come from the second-level cache, for all blocks of a head read the same ones. From
 * shared memory a warp reads a fragment of 16 keys x 16 columns (512 bytes) for 2 * ROW_TILES
 * products of 16 x 8 x 16: ROW_TILES = 2 halves what would otherwise bind.
 *
 * Scores s stay unscaled: exp(scale * (s - max)) = exp2((s - max) * c) with c = scale * log2(e).
 * The difference is taken first: a multiply-add of s, c and -max * c would leave the rounding error
 * of a product, which for huge scores is huge too. Sums of weights are of the unrounded ones.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and LDSM a HMMA.
 *
 *                                                      sm_80                sm_90
 *   attention_forward<bf16, 64, false, false>     215   5.77   0.31    224   5.76   0.31
 *   attention_forward<bf16, 64, false, true>      215   5.77   0.31    224   5.76   0.31
 *   attention_forward<bf16, 64, true, false>      253   5.83   0.31    248   5.81   0.31
 *   attention_forward<bf16, 64, true, true>       253   5.83   0.31    248   5.81   0.31
 *   attention_forward<bf16, 128, false, false>    253   5.52   0.38    255   5.51   0.38
 *   attention_forward<bf16, 128, false, true>     253   5.52   0.38    255   5.51   0.38
 *   attention_forward<bf16, 128, true, false>     255   5.58   0.38    255   5.56   0.38
 *   attention_forward<bf16, 128, true, true>      255   5.58   0.38    255   5.56   0.38
 *   attention_forward<bf16, 256, false, false>    245   5.79   0.62    247   5.77   0.62
 *   attention_forward<bf16, 256, false, true>     245   5.79   0.62    247   5.77   0.62
 *   attention_forward<bf16, 256, true, false>     246   5.84   0.62    249   5.82   0.62
 *   attention_forward<bf16, 256, true, true>      246   5.84   0.62    249   5.82   0.62
 */
#include "attention_mask.cuh"
#include "attention_tiles.cuh"

template <int WIDTH> struct forward_shape {
    enum {
        ROW_TILES = WIDTH <= 128 ? 2 : 1,
        ROWS = 16 * ROW_TILES, /* of a warp */
        QUERIES = SL_ATTENTION_WARPS * ROWS,
        KEYS = WIDTH <= 64 ? 64 : 32,
        QUERY_PACKS = QUERIES * WIDTH / 8,
        KEY_PACKS = KEYS * WIDTH / 8,
        SHARED_BYTES = 16 * (QUERY_PACKS + 4 * KEY_PACKS)
    };
};

/* A warp's queries; [.][0] and [.][1] are rows g and g + 8 of 16. */
template <int WIDTH> struct forward_state {
    float sums[forward_shape<WIDTH>::ROW_TILES][WIDTH / 8][4];
    float max[forward_shape<WIDTH>::ROW_TILES][2];    /* of unscaled scores, over the four lanes */
    float weight[forward_shape<WIDTH>::ROW_TILES][2]; /* of this lane's keys alone */
};

template <int WIDTH> static __device__ __forceinline__ void clear_state(forward_state<WIDTH> &state)
{
#pragma unroll
    for (int m = 0; m < forward_shape<WIDTH>::ROW_TILES; m++) {
        state.max[m][0] = state.max[m][1] = -INFINITY;
        state.weight[m][0] = state.weight[m][1] = 0.0f;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
            state.sums[m][n][0] = state.sums[m][n][1] = state.sums[m][n][2] = state.sums[m][n][3] =
                0.0f;
    }
}

/* Over the four lanes that hold one row. */
static __device__ __forceinline__ float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(SL_EVERY_LANE, value, 1));
    return fmaxf(value, __shfl_xor_sync(SL_EVERY_LANE, value, 2));
}

static __device__ __forceinline__ float quad_sum(float value)
{
    value += __shfl_xor_sync(SL_EVERY_LANE, value, 1);
    return value + __shfl_xor_sync(SL_EVERY_LANE, value, 2);
}

/* Scores of keys of earlier documents become -inf. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void mask_documents(float (&scores)[ROW_TILES][COLUMN_TILES][4],
                                                      const sl_attention_mask &mask)
{
    if (mask.positions == NULL)
        return;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t query = mask.first_query + 16 * m + sl_tile_row(2 * half);
            const int document = sl_attention_document(mask, query) - (int)mask.first_key;
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    if (8 * n + (int)sl_tile_column(i) < document)
                        scores[m][n][i] = -INFINITY;
        }
}

/* Weights become those that values are multiplied with. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void drop_weights(float (&weights)[ROW_TILES][COLUMN_TILES][4],
                                                    const sl_attention_mask &mask)
{
    if (mask.threshold == 0)
        return;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n += 2)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float factors[2][2];
                sl_attention_draw(mask, mask.first_query + 16 * m + sl_tile_row(0),
                                  mask.first_key + 8 * n + sl_tile_column(e), factors);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    weights[m][n + i % 2][i / 2 * 2 + e] *= factors[i / 2][i % 2];
            }
}

/* Scores become weights against the running maximum, which rescales what was summed before. Every
 * query sees the first key of all tiles, so from the first tile on no maximum is -inf; but where
 * MASKED, for its document may begin later. */
template <int WIDTH, bool MASKED, int COLUMN_TILES>
static __device__ __forceinline__ void update_softmax(
    forward_state<WIDTH> &state, float (&scores)[forward_shape<WIDTH>::ROW_TILES][COLUMN_TILES][4],
    float factor)
{
#pragma unroll
    for (int m = 0; m < forward_shape<WIDTH>::ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float max = state.max[m][half], sum = 0.0f;
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n++)
                max = fmaxf(max, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
            max = quad_max(max);
            const float base = MASKED ? fmaxf(max, -FLT_MAX) : max;
            const float rescale = sl_exp2((state.max[m][half] - base) * factor);
#pragma unroll
            for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    scores[m][n][i] = sl_exp2((scores[m][n][i] - base) * factor);
                    sum += scores[m][n][i];
                }
            state.max[m][half] = max;
            state.weight[m][half] = fmaf(state.weight[m][half], rescale, sum);
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                state.sums[m][n][2 * half] *= rescale;
                state.sums[m][n][2 * half + 1] *= rescale;
            }
        }
}

/* `causal_offset` as for sl_tile_mask_rows; `key_tile`: a tile of keys and the tile of their
 * values. */
template <sl_type TYPE, int WIDTH, bool MASKED>
static __device__ __forceinline__ void attend_keys(forward_state<WIDTH> &state,
                                                   const uint4 *queries, const uint4 *key_tile,
                                                   int causal_offset, float factor,
                                                   const sl_attention_mask &mask)
{
    typedef forward_shape<WIDTH> shape;
    const uint32_t first_row = threadIdx.x / SL_WARP * shape::ROWS;
    float scores[shape::ROW_TILES][shape::KEYS / 8][4];
    uint32_t weights[shape::ROW_TILES][shape::KEYS / 16][4];
    sl_tile_multiply<TYPE, WIDTH>(scores, queries, first_row, key_tile);
    if (causal_offset + shape::KEYS - 1 > 0)
        sl_tile_mask_rows(scores, causal_offset);
    if constexpr (MASKED)
        mask_documents(scores, mask);
    update_softmax<WIDTH, MASKED>(state, scores, factor);
    if constexpr (MASKED)
        drop_weights(scores, mask);
    sl_tile_round<TYPE>(weights, scores);
    sl_tile_add<TYPE, WIDTH, WIDTH>(state.sums, weights, key_tile + shape::KEY_PACKS, 0);
}

/* Begins to copy tile `tile_index` of keys and values into its half of `key_tiles`. */
template <int WIDTH>
static __device__ __forceinline__ void copy_keys(const sl_attention_args &args, uint64_t first,
                                                 uint32_t key_count, uint32_t tile_index,
                                                 uint4 *key_tiles)
{
    typedef forward_shape<WIDTH> shape;
    const uint32_t first_key = tile_index * shape::KEYS;
    sl_tile_copy_keys<WIDTH, shape::KEYS>(args, first + first_key * args.key_row,
                                          key_count - first_key,
                                          key_tiles + tile_index % 2 * 2 * shape::KEY_PACKS);
}

/* y and lse of the block's queries, `count` of them from the places on. */
template <sl_type TYPE, int WIDTH>
static __device__ __forceinline__ void store_results(const sl_attention_args &args,
                                                     forward_state<WIDTH> &state, uint4 *queries,
                                                     uint16_t *y, float *lse, uint32_t count)
{
    typedef forward_shape<WIDTH> shape;
    const uint32_t first_row = threadIdx.x / SL_WARP * shape::ROWS;
    float scale[shape::ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < shape::ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float weight = quad_sum(state.weight[m][half]);
            const uint32_t row = first_row + 16 * m + sl_tile_row(2 * half);
            scale[m][half] = 1.0f / weight;
            if (lse && threadIdx.x % 4 == 0 && row < count)
                lse[row] = fmaf(state.max[m][half], args.scale, logf(weight));
        }
    const sl_tile_result result = {y, (uint64_t)args.heads * args.width, count, args.width};
    sl_tile_store<TYPE, WIDTH, WIDTH>(result, state.sums, scale, queries, first_row, 0);
}

template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED>
static __global__ void __launch_bounds__(SL_ATTENTION_THREADS)
    attention_forward(sl_attention_args args)
{
    typedef forward_shape<WIDTH> shape;
    SL_DYNAMIC_SHARED(uint4, queries);
    uint4 *const key_tiles = queries + shape::QUERY_PACKS;
    const sl_attention_place place = sl_attention_place_of<GROUPED>(args, blockIdx.x);
    const uint32_t first = (gridDim.y - 1 - blockIdx.y) * shape::QUERIES;
    const uint32_t count = sl_less(args.query_count - first, shape::QUERIES);
    const uint32_t key_count = args.position + first + count;
    const uint32_t tile_count = sl_divide_up(key_count, shape::KEYS);
    const float factor = args.scale * SL_LOG2_E;
    sl_attention_mask mask = {};
    if constexpr (MASKED)
        mask = sl_attention_mask_of(args, blockIdx.x);
    const uint32_t first_tile = MASKED ? sl_attention_first_tile(mask, first, shape::KEYS) : 0;
    const int warp_query = (int)(args.position + first + threadIdx.x / SL_WARP * shape::ROWS);
    const sl_tile_rows rows = {(const uint16_t *)args.q + place.q + first * args.q_row, args.q_row,
                               count, args.width};
    sl_tile_copy<WIDTH, shape::QUERIES>(queries, rows);
    copy_keys<WIDTH>(args, place.key, key_count, first_tile, key_tiles);
    forward_state<WIDTH> state;
    clear_state(state);
    for (uint32_t tile = first_tile; tile < tile_count; tile++) {
        sl_copy_wait();
        __syncthreads(); /* this tile has come, and nobody reads the one before any more */
        if (tile + 1 < tile_count)
            copy_keys<WIDTH>(args, place.key, key_count, tile + 1, key_tiles);
        const int causal_offset = (int)(tile * shape::KEYS) - warp_query;
        mask.first_query = (uint32_t)warp_query;
        mask.first_key = tile * shape::KEYS;
        if (causal_offset < shape::ROWS) /* the warp's last query sees the tile's first key */
            attend_keys<TYPE, WIDTH, MASKED>(state, queries,
                                             key_tiles + tile % 2 * 2 * shape::KEY_PACKS,
                                             causal_offset, factor, mask);
    }
    store_results<TYPE>(args, state, queries,
                        (uint16_t *)args.y + place.y + first * args.heads * (uint64_t)args.width,
                        args.lse ? args.lse + place.statistics + first : NULL, count);
}

template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED>
static sl_status launch_one(const sl_kernel_call *call, const sl_attention_args *args)
{
    typedef forward_shape<WIDTH> shape;
    const sl_attention_args copy = *args;
    dim3 grid;
    SL_TRY(sl_attention_grid(args, shape::QUERIES, 1, &grid));
    return SL_LAUNCH(call, grid, SL_ATTENTION_THREADS, shape::SHARED_BYTES,
                     (attention_forward<TYPE, WIDTH, MASKED, GROUPED>), copy);
}

template <sl_type TYPE, int WIDTH, bool GROUPED>
static sl_status launch_heads(const sl_kernel_call *call, const sl_attention_args *args)
{
    SL_ATTENTION_BY_MASK(call, args, (launch_one<TYPE, WIDTH, false, GROUPED>),
                         (launch_one<TYPE, WIDTH, true, GROUPED>));
}

template <sl_type TYPE, int WIDTH>
static sl_status launch(const sl_kernel_call *call, const sl_attention_args *args)
{
    return args->group > 1 ? launch_heads<TYPE, WIDTH, true>(call, args)
                           : launch_heads<TYPE, WIDTH, false>(call, args);
}

template <sl_type TYPE, int WIDTH, bool GROUPED> static sl_status prepare_heads(void)
{
    enum { BYTES = forward_shape<WIDTH>::SHARED_BYTES };
    SL_TRY(sl_attention_allow_shared(attention_forward<TYPE, WIDTH, false, GROUPED>, BYTES));
    return sl_attention_allow_shared(attention_forward<TYPE, WIDTH, true, GROUPED>, BYTES);
}

template <sl_type TYPE, int WIDTH> static sl_status prepare(bool is_grouped)
{
    return is_grouped ? prepare_heads<TYPE, WIDTH, true>() : prepare_heads<TYPE, WIDTH, false>();
}

sl_status sl_attention_tensor_forward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return SL_ATTENTION_BY_WIDTH(call->attrs->type, args->width, launch, call, args);
}

sl_status sl_attention_tensor_prepare_forward(const sl_op_attrs *attrs)
{
    return SL_ATTENTION_BY_WIDTH(attrs->type, attrs->in / attrs->heads, prepare,
                                 attrs->out != attrs->in);
}
