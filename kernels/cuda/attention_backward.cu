/* Attention backward by tensor cores. With the weights p = exp(scale * s - lse) of queries (rows)
 * and keys, s = q k', dp = dy v' and ds = p * (dp - dot(y, dy)):
 *
 *   dv = p' dy      dk = scale * ds' q      dq = scale * ds k
 *
 * With dropout the p' of dv, and dp, are multiplied by the factors of the mask.
 *
 * One kernel owns keys and walks the tiles of queries from the diagonal on, of each head that
 * shares the keys: it computes s' and dp',
 * whose rows are its keys, so that p' and ds' are left operands as they stand in registers. The
 * other owns queries and walks the tiles of keys up to the diagonal. Nothing but operands passes
 * through shared memory. A block of either owns 64 or 128 rows; the next tile of the other
 * side is on its way while one is used.
 *
 *   owns     WIDTH  own  other  shared bytes
 *   keys        64  128     32  2 * 16 Ki + 4 *  4 Ki + 512
 *   keys       128   64     32  2 * 16 Ki + 4 *  8 Ki + 512
 *   keys       256   64     16  2 * 32 Ki + 4 *  8 Ki + 256
 *   queries     64  128     32  2 * 16 Ki + 4 *  4 Ki
 *   queries    128   64     32  2 * 16 Ki + 4 *  8 Ki
 *   queries    256   64     16  2 * 32 Ki + 4 *  8 Ki
 *
 * At 256 the sums of both dk and dv would be 256 registers: two blocks share the columns there and
 * both compute s' and dp', 6 products instead of 4.
 *
 * Operations a pair of query and key: 14 * WIDTH (FlashAttention-2, with atomic additions: 10). A
 * tile of the other side brings 4 * WIDTH bytes a row for 8 * own * WIDTH (keys) or 6 * own * WIDTH
 * (queries) operations: 128 to 192 operations a byte.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and LDSM a HMMA.
 *
 *                                                               sm_80                sm_90
 *   attention_backward_keys<bf16, 64, false, false>        255   3.98   0.38    247   3.98   0.38
 *   attention_backward_keys<bf16, 64, false, true>         254   4.03   0.38    254   4.02   0.38
 *   attention_backward_keys<bf16, 64, true, false>         255   6.37   0.38    255   6.34   0.38
 *   attention_backward_keys<bf16, 64, true, true>          255   6.77   0.38    255   6.50   0.38
 *   attention_backward_keys<bf16, 128, false, false>       242   4.39   0.62    246   4.38   0.62
 *   attention_backward_keys<bf16, 128, false, true>        240   4.42   0.62    244   4.41   0.62
 *   attention_backward_keys<bf16, 128, true, false>        246   5.62   0.62    249   5.62   0.62
 *   attention_backward_keys<bf16, 128, true, true>         247   5.62   0.62    255   5.61   0.62
 *   attention_backward_keys<bf16, 256, false, false>       225   5.11   0.83    236   5.10   0.83
 *   attention_backward_keys<bf16, 256, false, true>        225   5.19   0.83    233   5.17   0.83
 *   attention_backward_keys<bf16, 256, true, false>        240   5.94   0.83    241   5.94   0.83
 *   attention_backward_keys<bf16, 256, true, true>         236   6.07   0.83    244   6.06   0.83
 *   attention_backward_queries<bf16, 64, false, false>     216   4.22   0.42    210   4.20   0.42
 *   attention_backward_queries<bf16, 64, false, true>      228   4.22   0.42    210   4.20   0.42
 *   attention_backward_queries<bf16, 64, true, false>      246   7.07   0.42    247   7.09   0.42
 *   attention_backward_queries<bf16, 64, true, true>       246   7.07   0.42    247   7.09   0.42
 *   attention_backward_queries<bf16, 128, false, false>    160   4.54   0.67    164   4.52   0.67
 *   attention_backward_queries<bf16, 128, false, true>     168   4.55   0.67    164   4.52   0.67
 *   attention_backward_queries<bf16, 128, true, false>     168   5.97   0.67    168   6.00   0.67
 *   attention_backward_queries<bf16, 128, true, true>      168   5.97   0.67    168   6.00   0.67
 *   attention_backward_queries<bf16, 256, false, false>    235   5.05   0.83    235   5.03   0.83
 *   attention_backward_queries<bf16, 256, false, true>     235   5.05   0.83    235   5.03   0.83
 *   attention_backward_queries<bf16, 256, true, false>     242   5.78   0.83    240   5.77   0.83
 *   attention_backward_queries<bf16, 256, true, true>      242   5.78   0.83    238   5.77   0.83
 */
#include "attention_dots.cuh"
#include "attention_mask.cuh"
#include "attention_tiles.cuh"

template <int WIDTH> struct keys_shape {
    enum {
        ROW_TILES = WIDTH <= 64 ? 2 : 1,
        ROWS = 16 * ROW_TILES, /* of a warp */
        KEYS = SL_ATTENTION_WARPS * ROWS,
        QUERIES = WIDTH <= 128 ? 32 : 16,
        COLUMNS = WIDTH <= 128 ? WIDTH : 128, /* of dk and dv */
        PARTS = WIDTH / COLUMNS,
        KEY_PACKS = KEYS * WIDTH / 8,
        QUERY_PACKS = QUERIES * WIDTH / 8,
        STATISTICS = 2 * QUERIES, /* floats a tile: lse, then dots */
        SHARED_BYTES = 16 * (2 * KEY_PACKS + 4 * QUERY_PACKS) + 4 * 2 * STATISTICS
    };
};

template <int WIDTH> struct queries_shape {
    enum {
        ROW_TILES = WIDTH <= 64 ? 2 : 1,
        ROWS = 16 * ROW_TILES, /* of a warp */
        QUERIES = SL_ATTENTION_WARPS * ROWS,
        KEYS = WIDTH <= 128 ? 32 : 16,
        QUERY_PACKS = QUERIES * WIDTH / 8,
        KEY_PACKS = KEYS * WIDTH / 8,
        SHARED_BYTES = 16 * (2 * QUERY_PACKS + 4 * KEY_PACKS)
    };
};

template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void clear_sums(float (&sums)[ROW_TILES][COLUMN_TILES][4])
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
            sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;
}

/* Begins to copy up to ROWS rows from `first` on into two neighbouring tiles: of q and dy. */
template <int WIDTH, int ROWS>
static __device__ __forceinline__ void copy_queries(const sl_attention_args &args,
                                                    const sl_attention_place &place, uint32_t first,
                                                    uint4 *tiles)
{
    const uint64_t y_row = (uint64_t)args.heads * args.width;
    const uint32_t count = args.query_count - first;
    const sl_tile_rows q = {(const uint16_t *)args.q + place.q + first * args.q_row, args.q_row,
                            count, args.width};
    const sl_tile_rows dy = {(const uint16_t *)args.dy + place.y + first * y_row, y_row, count,
                             args.width};
    sl_tile_copy<WIDTH, ROWS>(tiles, q);
    sl_tile_copy<WIDTH, ROWS>(tiles + ROWS * WIDTH / 8, dy);
}

/* The same of k and v. */
template <int WIDTH, int ROWS>
static __device__ __forceinline__ void copy_keys(const sl_attention_args &args,
                                                 const sl_attention_place &place, uint32_t first,
                                                 uint4 *tiles)
{
    sl_tile_copy_keys<WIDTH, ROWS>(args, place.key + first * args.key_row, args.query_count - first,
                                   tiles);
}

/* ---- blocks that own keys ---- */

template <int WIDTH> struct keys_state {
    float dk[keys_shape<WIDTH>::ROW_TILES][keys_shape<WIDTH>::COLUMNS / 8][4]; /* not yet scaled */
    float dv[keys_shape<WIDTH>::ROW_TILES][keys_shape<WIDTH>::COLUMNS / 8][4];
};

/* Begins to copy a tile of queries, their gradients and statistics into one half of `query_tiles`
 * and of `statistics`. */
template <int WIDTH>
static __device__ __forceinline__ void copy_query_tile(const sl_attention_args &args,
                                                       const sl_attention_place &place,
                                                       uint32_t tile_index, uint32_t half,
                                                       uint4 *query_tiles, float *statistics)
{
    typedef keys_shape<WIDTH> shape;
    const uint32_t first = tile_index * shape::QUERIES;
    copy_queries<WIDTH, shape::QUERIES>(args, place, first,
                                        query_tiles + half * 2 * shape::QUERY_PACKS);
    if (threadIdx.x < shape::STATISTICS) {
        const uint32_t row = first + threadIdx.x % shape::QUERIES;
        const float *from = threadIdx.x < shape::QUERIES ? args.lse : args.dots;
        const bool copies = row < args.query_count;
        sl_copy_begin_float(&statistics[half * shape::STATISTICS + threadIdx.x],
                            from + place.statistics + (copies ? row : 0), copies);
    }
}

/* A tile of queries on the way of a block that owns keys of several heads of q: from tile to tile
 * of a head, then to the next head. */
typedef struct group_walk {
    uint32_t tile, half; /* half: of the shared memory of tiles */
    uint32_t head;       /* of the group */
} group_walk;

/* Goes on to the next tile; false if there is none. */
static __device__ __forceinline__ bool advance(group_walk &walk, const sl_attention_args &args,
                                               uint32_t first_tile, uint32_t tile_count)
{
    walk.half ^= 1;
    if (++walk.tile < tile_count)
        return true;
    if (++walk.head == args.group)
        return false;
    walk.tile = first_tile;
    return true;
}

/* Where the head of the walk begins; `first`: the group's first one. */
static __device__ __forceinline__ sl_attention_place place_of(const group_walk &walk,
                                                              const sl_attention_args &args,
                                                              const sl_attention_place &first)
{
    sl_attention_place place = first;
    place.q += walk.head * args.width;
    place.y += walk.head * args.width;
    place.statistics += (uint64_t)walk.head * args.query_count;
    return place;
}

/* s' and dp' become p' and ds'. Queries beyond the last have rows of zeros: what their weights of 1
 * add is 0. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void differentiate_softmax_columns(
    float (&s)[ROW_TILES][COLUMN_TILES][4], float (&dp)[ROW_TILES][COLUMN_TILES][4],
    const float *statistics, float factor)
{
    const float *dots = statistics + 8 * COLUMN_TILES;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t query = 8 * n + sl_tile_column(i);
                const float offset = -statistics[query] * SL_LOG2_E;
                s[m][n][i] = sl_exp2(fmaf(s[m][n][i], factor, offset));
                dp[m][n][i] = s[m][n][i] * (dp[m][n][i] - dots[query]);
            }
}

/* Scores of queries earlier than their key become -inf. `causal_offset`: the first query less the
 * warp's first key. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void mask_columns(float (&scores)[ROW_TILES][COLUMN_TILES][4],
                                                    int causal_offset)
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (causal_offset + 8 * n + (int)sl_tile_column(i) < 16 * m + (int)sl_tile_row(i))
                    scores[m][n][i] = -INFINITY;
}

/* The same with what documents and dropout take away; statistics: lse of the tile's queries, then
 * dots. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void differentiate_masked_columns(
    float (&s)[ROW_TILES][COLUMN_TILES][4], float (&dp)[ROW_TILES][COLUMN_TILES][4],
    const float *statistics, float factor, const sl_attention_mask &mask)
{
    const float *dots = statistics + 8 * COLUMN_TILES;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n += 2)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t first = 8 * n + sl_tile_column(e);
                const uint32_t first_key = mask.first_key + 16 * m;
                float factors[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
                if (mask.threshold > 0)
                    sl_attention_draw(mask, mask.first_query + first, first_key + sl_tile_row(0),
                                      factors);
#pragma unroll
                for (int i = 0; i < 4; i++) { /* of two queries and two keys */
                    const uint32_t at = i % 2 * 2 + e, column = first + i / 2 * 8;
                    const uint32_t query = mask.first_query + column;
                    const int key = (int)(first_key + sl_tile_row(at));
                    const bool sees =
                        key <= (int)query && key >= sl_attention_document(mask, query);
                    float &weight = s[m][n + i / 2][at], &gradient = dp[m][n + i / 2][at];
                    const float power = fmaf(weight, factor, -statistics[column] * SL_LOG2_E);
                    const float p = sl_exp2(sees ? power : -INFINITY);
                    weight = p * factors[i / 2][i % 2];
                    gradient = p * (gradient * factors[i / 2][i % 2] - dots[column]);
                }
            }
}

typedef struct tile_walk {
    float factor;
    int causal_offset; /* the tile's first query less the warp's first key */
} tile_walk;

/* `key_tile`: the tiles of keys and values; `query_tile`: the tiles of queries and of their
 * results' gradients. */
template <sl_type TYPE, int WIDTH, bool MASKED>
static __device__ __forceinline__ void add_queries(keys_state<WIDTH> &state, const uint4 *key_tile,
                                                   const uint4 *query_tile, const float *statistics,
                                                   const tile_walk &walk,
                                                   const sl_attention_mask &mask)
{
    typedef keys_shape<WIDTH> shape;
    const uint32_t first_row = threadIdx.x / SL_WARP * shape::ROWS;
    const uint32_t first_pack = blockIdx.z * (shape::COLUMNS / 8);
    float s[shape::ROW_TILES][shape::QUERIES / 8][4], dp[shape::ROW_TILES][shape::QUERIES / 8][4];
    uint32_t weights[shape::ROW_TILES][shape::QUERIES / 16][4];
    const uint4 *queries = query_tile, *gradients = query_tile + shape::QUERY_PACKS;
    sl_tile_multiply<TYPE, WIDTH>(s, key_tile, first_row, queries);
    sl_tile_multiply<TYPE, WIDTH>(dp, key_tile + shape::KEY_PACKS, first_row, gradients);
    if constexpr (!MASKED)
        if (walk.causal_offset < shape::ROWS - 1) /* the first query does not see the last key */
            mask_columns(s, walk.causal_offset);
    if constexpr (MASKED)
        differentiate_masked_columns(s, dp, statistics, walk.factor, mask);
    else
        differentiate_softmax_columns(s, dp, statistics, walk.factor);
    sl_tile_round<TYPE>(weights, s);
    sl_tile_add<TYPE, WIDTH, shape::COLUMNS>(state.dv, weights, gradients, first_pack);
    sl_tile_round<TYPE>(weights, dp);
    sl_tile_add<TYPE, WIDTH, shape::COLUMNS>(state.dk, weights, queries, first_pack);
}

/* Where no heads share keys, rows of dk lie as far apart as those of dq. */
template <sl_type TYPE, int WIDTH, bool GROUPED>
static __device__ __forceinline__ void store_keys(const sl_attention_args &args,
                                                  const sl_attention_place &place,
                                                  const keys_state<WIDTH> &state, uint32_t first,
                                                  uint4 *key_tile)
{
    typedef keys_shape<WIDTH> shape;
    const uint32_t first_row = threadIdx.x / SL_WARP * shape::ROWS;
    const uint32_t first_pack = blockIdx.z * (shape::COLUMNS / 8);
    const uint64_t row = GROUPED ? args.key_row : args.q_row;
    const uint64_t at = (GROUPED ? place.key : place.q) + first * row;
    float scale[shape::ROW_TILES][2], one[shape::ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < shape::ROW_TILES; m++) {
        scale[m][0] = scale[m][1] = args.scale;
        one[m][0] = one[m][1] = 1.0f;
    }
    sl_tile_result result = {(uint16_t *)args.dk + at, row, args.query_count - first, args.width};
    sl_tile_store<TYPE, WIDTH, shape::COLUMNS>(result, state.dk, scale, key_tile, first_row,
                                               first_pack);
    result.first = (uint16_t *)args.dv + at;
    sl_tile_store<TYPE, WIDTH, shape::COLUMNS>(result, state.dv, one, key_tile + shape::KEY_PACKS,
                                               first_row, first_pack);
}

/* GROUPED: the block walks the queries of one head after the other, of those that share its keys.
 */
template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED>
static __global__ void __launch_bounds__(SL_ATTENTION_THREADS)
    attention_backward_keys(sl_attention_args args)
{
    typedef keys_shape<WIDTH> shape;
    SL_DYNAMIC_SHARED(uint4, key_tile);
    uint4 *const query_tiles = key_tile + 2 * shape::KEY_PACKS;
    float *const statistics = (float *)(query_tiles + 4 * shape::QUERY_PACKS);
    const uint32_t first_head = GROUPED ? blockIdx.x * args.group : blockIdx.x;
    const sl_attention_place place = sl_attention_place_of<GROUPED>(args, first_head);
    const uint32_t first = blockIdx.y * shape::KEYS;
    const uint32_t first_tile = first / shape::QUERIES;
    uint32_t tile_count = sl_divide_up(args.query_count, shape::QUERIES);
    sl_attention_mask mask = {};
    if constexpr (MASKED) {
        mask = sl_attention_mask_of(args, first_head);
        tile_count = sl_attention_end_tile(mask, first_tile, shape::QUERIES, first + shape::KEYS);
    }
    const int warp_key = (int)(first + threadIdx.x / SL_WARP * shape::ROWS);
    copy_keys<WIDTH, shape::KEYS>(args, place, first, key_tile);
    copy_query_tile<WIDTH>(args, place, first_tile, first_tile % 2, query_tiles, statistics);
    keys_state<WIDTH> state;
    clear_sums(state.dk);
    clear_sums(state.dv);
    group_walk next = {first_tile, first_tile % 2, 0};
    uint32_t tile = first_tile;
    bool goes_on;
    do {
        sl_copy_wait();
        __syncthreads(); /* this tile has come, and nobody reads the one before any more */
        const uint32_t half = GROUPED ? next.half : tile % 2, head = next.head;
        if constexpr (GROUPED) {
            tile = next.tile;
            goes_on = advance(next, args, first_tile, tile_count);
            if (goes_on)
                copy_query_tile<WIDTH>(args, place_of(next, args, place), next.tile, next.half,
                                       query_tiles, statistics);
        } else if (tile + 1 < tile_count) {
            copy_query_tile<WIDTH>(args, place, tile + 1, (tile + 1) % 2, query_tiles, statistics);
        }
        const tile_walk walk = {args.scale * SL_LOG2_E, (int)(tile * shape::QUERIES) - warp_key};
        mask.first_query = tile * shape::QUERIES;
        mask.first_key = (uint32_t)warp_key;
        /* the tile's last query sees the warp's first key */
        if (walk.causal_offset + shape::QUERIES > 0)
            add_queries<TYPE, WIDTH, MASKED>(state, key_tile,
                                             query_tiles + half * 2 * shape::QUERY_PACKS,
                                             statistics + half * shape::STATISTICS, walk, mask);
        if constexpr (GROUPED)
            mask.head += next.head - head;
        else
            goes_on = ++tile < tile_count;
    } while (goes_on);
    store_keys<TYPE, WIDTH, GROUPED>(args, place, state, first, key_tile);
}

/* ---- blocks that own queries ---- */

template <int WIDTH> struct queries_state {
    float dq[queries_shape<WIDTH>::ROW_TILES][WIDTH / 8][4]; /* before the scale */
    float offset[queries_shape<WIDTH>::ROW_TILES][2];        /* -lse * log2(e) */
    float dots[queries_shape<WIDTH>::ROW_TILES][2];
};

template <int WIDTH>
static __device__ __forceinline__ void open_state(queries_state<WIDTH> &state,
                                                  const sl_attention_args &args,
                                                  const sl_attention_place &place,
                                                  uint32_t first_query)
{
    clear_sums(state.dq);
#pragma unroll
    for (int m = 0; m < queries_shape<WIDTH>::ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t query = first_query + 16 * m + sl_tile_row(2 * half);
            const bool exists = query < args.query_count;
            state.offset[m][half] = exists ? -args.lse[place.statistics + query] * SL_LOG2_E : 0.0f;
            state.dots[m][half] = exists ? args.dots[place.statistics + query] : 0.0f;
        }
}

/* s and dp become p and ds. */
template <int WIDTH, int COLUMN_TILES>
static __device__ __forceinline__ void differentiate_softmax_rows(
    const queries_state<WIDTH> &state, float (&s)[queries_shape<WIDTH>::ROW_TILES][COLUMN_TILES][4],
    float (&dp)[queries_shape<WIDTH>::ROW_TILES][COLUMN_TILES][4], float factor)
{
#pragma unroll
    for (int m = 0; m < queries_shape<WIDTH>::ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float p = sl_exp2(fmaf(s[m][n][i], factor, state.offset[m][i / 2]));
                dp[m][n][i] = p * (dp[m][n][i] - state.dots[m][i / 2]);
            }
}

/* The same with what documents and dropout take away. */
template <int WIDTH, int COLUMN_TILES>
static __device__ __forceinline__ void differentiate_masked_rows(
    const queries_state<WIDTH> &state, float (&s)[queries_shape<WIDTH>::ROW_TILES][COLUMN_TILES][4],
    float (&dp)[queries_shape<WIDTH>::ROW_TILES][COLUMN_TILES][4], float factor,
    const sl_attention_mask &mask)
{
#pragma unroll
    for (int m = 0; m < queries_shape<WIDTH>::ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n += 2)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t first = mask.first_query + 16 * m + sl_tile_row(0);
                const uint32_t column = mask.first_key + 8 * n + sl_tile_column(e);
                float factors[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
                if (mask.threshold > 0)
                    sl_attention_draw(mask, first, column, factors);
#pragma unroll
                for (int i = 0; i < 4; i++) { /* of two queries and two keys */
                    const uint32_t query = first + i / 2 * 8;
                    const int key = (int)(column + i % 2 * 8), at = i / 2 * 2 + e;
                    const bool sees =
                        key <= (int)query && key >= sl_attention_document(mask, query);
                    const float power = fmaf(s[m][n + i % 2][at], factor, state.offset[m][i / 2]);
                    const float p = sl_exp2(sees ? power : -INFINITY);
                    dp[m][n + i % 2][at] =
                        p * (dp[m][n + i % 2][at] * factors[i / 2][i % 2] - state.dots[m][i / 2]);
                }
            }
}

/* `causal_offset`: the tile's first key less the warp's first query; `query_tile`: the tiles of q
 * and dy; `key_tile`: the tiles of k and v. */
template <sl_type TYPE, int WIDTH, bool MASKED>
static __device__ __forceinline__ void add_keys(queries_state<WIDTH> &state,
                                                const uint4 *query_tile, const uint4 *key_tile,
                                                float factor, int causal_offset,
                                                const sl_attention_mask &mask)
{
    typedef queries_shape<WIDTH> shape;
    const uint32_t first_row = threadIdx.x / SL_WARP * shape::ROWS;
    float s[shape::ROW_TILES][shape::KEYS / 8][4], dp[shape::ROW_TILES][shape::KEYS / 8][4];
    uint32_t weights[shape::ROW_TILES][shape::KEYS / 16][4];
    sl_tile_multiply<TYPE, WIDTH>(s, query_tile, first_row, key_tile);
    sl_tile_multiply<TYPE, WIDTH>(dp, query_tile + shape::QUERY_PACKS, first_row,
                                  key_tile + shape::KEY_PACKS);
    if constexpr (!MASKED)
        if (causal_offset + shape::KEYS - 1 > 0) /* the first query does not see the last key */
            sl_tile_mask_rows(s, causal_offset);
    if constexpr (MASKED)
        differentiate_masked_rows<WIDTH>(state, s, dp, factor, mask);
    else
        differentiate_softmax_rows<WIDTH>(state, s, dp, factor);
    sl_tile_round<TYPE>(weights, dp);
    sl_tile_add<TYPE, WIDTH, WIDTH>(state.dq, weights, key_tile, 0);
}

template <sl_type TYPE, int WIDTH>
static __device__ __forceinline__ void store_queries(const sl_attention_args &args,
                                                     const sl_attention_place &place,
                                                     const queries_state<WIDTH> &state,
                                                     uint32_t first, uint4 *query_tile)
{
    typedef queries_shape<WIDTH> shape;
    float scale[shape::ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < shape::ROW_TILES; m++)
        scale[m][0] = scale[m][1] = args.scale;
    const sl_tile_result result = {(uint16_t *)args.dq + place.q + first * args.q_row, args.q_row,
                                   args.query_count - first, args.width};
    sl_tile_store<TYPE, WIDTH, WIDTH>(result, state.dq, scale, query_tile,
                                      threadIdx.x / SL_WARP * shape::ROWS, 0);
}

template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED>
static __global__ void __launch_bounds__(SL_ATTENTION_THREADS)
    attention_backward_queries(sl_attention_args args)
{
    typedef queries_shape<WIDTH> shape;
    SL_DYNAMIC_SHARED(uint4, query_tile);
    uint4 *const key_tiles = query_tile + 2 * shape::QUERY_PACKS;
    const sl_attention_place place = sl_attention_place_of<GROUPED>(args, blockIdx.x);
    const uint32_t first = (gridDim.y - 1 - blockIdx.y) * shape::QUERIES;
    const uint32_t key_count = sl_less(args.query_count, first + shape::QUERIES);
    const uint32_t tile_count = sl_divide_up(key_count, shape::KEYS);
    const uint32_t warp_query = first + threadIdx.x / SL_WARP * shape::ROWS;
    sl_attention_mask mask = {};
    if constexpr (MASKED)
        mask = sl_attention_mask_of(args, blockIdx.x);
    const uint32_t first_tile = MASKED ? sl_attention_first_tile(mask, first, shape::KEYS) : 0;
    copy_queries<WIDTH, shape::QUERIES>(args, place, first, query_tile);
    copy_keys<WIDTH, shape::KEYS>(args, place, first_tile * shape::KEYS,
                                  key_tiles + first_tile % 2 * 2 * shape::KEY_PACKS);
    queries_state<WIDTH> state;
    open_state(state, args, place, warp_query);
    uint32_t tile = first_tile;
    do {
        sl_copy_wait();
        __syncthreads(); /* this tile has come, and nobody reads the one before any more */
        if (tile + 1 < tile_count)
            copy_keys<WIDTH, shape::KEYS>(args, place, (tile + 1) * shape::KEYS,
                                          key_tiles + (tile + 1) % 2 * 2 * shape::KEY_PACKS);
        const int causal_offset = (int)(tile * shape::KEYS) - (int)warp_query;
        mask.first_query = warp_query;
        mask.first_key = tile * shape::KEYS;
        if (causal_offset < shape::ROWS) /* the warp's last query sees the tile's first key */
            add_keys<TYPE, WIDTH, MASKED>(state, query_tile,
                                          key_tiles + tile % 2 * 2 * shape::KEY_PACKS,
                                          args.scale * SL_LOG2_E, causal_offset, mask);
    } while (++tile < tile_count);
    store_queries<TYPE>(args, place, state, first, query_tile);
}

/* ---- launches ---- */

template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED>
static sl_status launch_one(const sl_kernel_call *call, const sl_attention_args *args)
{
    const sl_attention_args copy = *args;
    dim3 keys, queries;
    SL_TRY(sl_attention_key_grid(args, keys_shape<WIDTH>::KEYS, keys_shape<WIDTH>::PARTS, &keys));
    SL_TRY(sl_attention_grid(args, queries_shape<WIDTH>::QUERIES, 1, &queries));
    SL_TRY((sl_attention_dots<TYPE, true>(call, args)));
    SL_TRY(SL_LAUNCH(call, keys, SL_ATTENTION_THREADS, keys_shape<WIDTH>::SHARED_BYTES,
                     (attention_backward_keys<TYPE, WIDTH, MASKED, GROUPED>), copy));
    return SL_LAUNCH(call, queries, SL_ATTENTION_THREADS, queries_shape<WIDTH>::SHARED_BYTES,
                     (attention_backward_queries<TYPE, WIDTH, MASKED, GROUPED>), copy);
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

template <sl_type TYPE, int WIDTH, bool MASKED, bool GROUPED> static sl_status prepare_one(void)
{
    SL_TRY(sl_attention_allow_shared(attention_backward_keys<TYPE, WIDTH, MASKED, GROUPED>,
                                     keys_shape<WIDTH>::SHARED_BYTES));
    return sl_attention_allow_shared(attention_backward_queries<TYPE, WIDTH, MASKED, GROUPED>,
                                     queries_shape<WIDTH>::SHARED_BYTES);
}

template <sl_type TYPE, int WIDTH, bool GROUPED> static sl_status prepare_heads(void)
{
    SL_TRY((prepare_one<TYPE, WIDTH, false, GROUPED>()));
    return prepare_one<TYPE, WIDTH, true, GROUPED>();
}

template <sl_type TYPE, int WIDTH> static sl_status prepare(bool is_grouped)
{
    return is_grouped ? prepare_heads<TYPE, WIDTH, true>() : prepare_heads<TYPE, WIDTH, false>();
}

sl_status sl_attention_tensor_backward(const sl_kernel_call *call, const sl_attention_args *args)
{
    return SL_ATTENTION_BY_WIDTH(call->attrs->type, args->width, launch, call, args);
}

sl_status sl_attention_tensor_prepare_backward(const sl_op_attrs *attrs)
{
    return SL_ATTENTION_BY_WIDTH(attrs->type, attrs->in / attrs->heads, prepare,
                                 attrs->out != attrs->in);
}
