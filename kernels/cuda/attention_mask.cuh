/* Masks of attention beside causality: documents and dropout, for the kernels that are compiled
 * with MASKED. The call says which of the two apply, so one kernel serves all combinations.
 *
 * A query sees no key before its document (positions), so a block that owns queries starts at the
 * tile of keys where its first query's document begins, and one that owns keys ends where a
 * document begins behind them. One draw of kernels/dropout.h is for two queries and two keys, 8
 * positions apart: elements of one thread, whether rows are queries or keys.
 */
#ifndef SL_KERNELS_CUDA_ATTENTION_MASK_CUH
#define SL_KERNELS_CUDA_ATTENTION_MASK_CUH

#include <float.h>

#include "attention.cuh"

/* Of a block's head, and of the tile of scores under way. */
typedef struct sl_attention_mask {
    const int32_t *positions; /* [T] of the row, or NULL */
    uint64_t seed, stream;
    uint32_t threshold; /* 0: nothing is dropped */
    uint32_t head;      /* among those of all ranks */
    uint32_t query_count;
    float scale;
    uint32_t first_query, first_key; /* of the warp's part of the tile */
} sl_attention_mask;

static __device__ __forceinline__ sl_attention_mask
sl_attention_mask_of(const sl_attention_args &args, uint32_t head_index)
{
    const uint32_t row = head_index / args.heads;
    sl_attention_mask mask;
    mask.positions = args.positions ? args.positions + (uint64_t)row * args.query_count : NULL;
    mask.seed = args.dropout.seed;
    mask.stream = args.dropout.stream + row;
    mask.threshold = args.dropout.threshold;
    mask.head = args.first_head + head_index % args.heads;
    mask.query_count = args.query_count;
    mask.scale = args.dropout.scale;
    mask.first_query = mask.first_key = 0;
    return mask;
}

/* The first key of the query's document; 0 for queries behind the last. A position that is none
 * gives a key that may be behind the query. */
static __device__ __forceinline__ int sl_attention_document(const sl_attention_mask &mask,
                                                            uint32_t query)
{
    const bool is_asked = mask.positions != NULL && query < mask.query_count;
    const int first = is_asked ? (int)query - mask.positions[query] : 0;
    return first > 0 ? first : 0;
}

/* The first tile of keys that the queries from `query` on see anything of. */
static __device__ __forceinline__ uint32_t sl_attention_first_tile(const sl_attention_mask &mask,
                                                                   uint32_t query, uint32_t keys)
{
    return sl_less((uint32_t)sl_attention_document(mask, query), query) / keys;
}

/* Behind the last tile of queries, from `tile` on, that see anything of the keys before `end`. */
static __device__ __forceinline__ uint32_t sl_attention_end_tile(const sl_attention_mask &mask,
                                                                 uint32_t tile, uint32_t queries,
                                                                 uint32_t end)
{
    const uint32_t tile_count = sl_divide_up(mask.query_count, queries);
    uint32_t next = tile + 1;
    if (mask.positions == NULL)
        return tile_count;
    while (next < tile_count && sl_attention_document(mask, next * queries) < (int)end)
        next++;
    return next;
}

/* Factors of the weights of queries query + 8 i and keys key + 8 j, as factors[i][j]; bit 3 of both
 * is 0. */
static __device__ __forceinline__ void sl_attention_draw(const sl_attention_mask &mask,
                                                         uint32_t query, uint32_t key,
                                                         float (&factors)[2][2])
{
    uint32_t words[SL_DROPOUT_WORDS];
    sl_philox_draw(mask.seed, mask.stream, sl_dropout_index(mask.head, query, key), words);
#pragma unroll
    for (int i = 0; i < SL_DROPOUT_WORDS; i++)
        factors[i / 2][i % 2] = sl_dropout_factor(words[i], mask.threshold, mask.scale);
}

/* The factor of one weight. */
static __device__ __forceinline__ float sl_attention_factor(const sl_attention_mask &mask,
                                                            uint32_t query, uint32_t key)
{
    float factors[2][2];
    if (mask.threshold == 0)
        return 1.0f;
    sl_attention_draw(mask, query & ~(uint32_t)SL_DROPOUT_APART, key & ~(uint32_t)SL_DROPOUT_APART,
                      factors);
    const bool is_later = (query & SL_DROPOUT_APART) != 0;
    const float of_key = is_later ? factors[1][0] : factors[0][0];
    const float of_later_key = is_later ? factors[1][1] : factors[0][1];
    return key & SL_DROPOUT_APART ? of_later_key : of_key;
}

/* Whether a call needs the kernels that are compiled with MASKED. */
static inline bool sl_attention_is_masked(const sl_attention_args *args)
{
    return args->positions != NULL || args->dropout.threshold > 0;
}

/* launch<..., MASKED>(call, args): as the call needs. Who loads kernels does not know yet whether
 * there will be positions, and loads both. */
#define SL_ATTENTION_BY_MASK(call, args, launch_plain, launch_masked)                              \
    do {                                                                                           \
        const bool is_masked_ = sl_attention_is_masked(args);                                      \
        if (!is_masked_ || (call)->stream == sl_load_only)                                         \
            SL_TRY(launch_plain(call, args));                                                      \
        return is_masked_ ? launch_masked(call, args) : SL_OK;                                     \
    } while (0)

#endif
