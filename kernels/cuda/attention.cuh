/* Causal attention of one head after another: what its kernels have in common.
 *
 * The method is FlashAttention-2 (Dao 2023): a block owns some queries and walks the tiles of keys,
 * carrying for every query the maximum of its scores, the sum of exponentials against it, and the
 * weighted sum of values; scores never leave the block. Backward, the weights are recomputed from
 * the queries' lse, once by blocks that own keys (dk, dv) and once by blocks that own queries (dq),
 * so that no sum is shared between blocks: 7 products of tiles where FlashAttention-2 has 5, and
 * neither atomic additions, which would give other bits every time, nor partial sums in memory.
 *
 * Query i of a call stands at position + i and sees keys 0 .. position + i.
 *
 * Heads of q may share a head of k and v in groups (Ainslie et al. 2023). The blocks of a group's
 * heads are neighbours, and read its keys and values out of the second-level cache. Backward, a
 * block that owns keys walks the queries of its group's heads one after the other: the sums of a
 * key go through all of them in a fixed order.
 */
#ifndef SL_KERNELS_CUDA_ATTENTION_CUH
#define SL_KERNELS_CUDA_ATTENTION_CUH

#include "typed.cuh"

extern "C" {
#include "kernels/dropout.h"
}

/* The operands of one call. Places are those of the first head; a head's columns are side by side
 * in a row. Rows and batches are counted in elements. */
typedef struct sl_attention_args {
    const void *q, *k, *v;
    uint64_t q_row, q_batch;     /* from one row of q and dq to the next, one batch to the next */
    uint64_t key_row, key_batch; /* the same of k, v, dk and dv */
    void *y;                     /* forward written, backward read; [B, T, I] */
    float *lse;                  /* [B, H, T]; forward written, or NULL */
    const void *dy;              /* [B, T, I] */
    float *dots;                 /* [B, H, T]: of y and dy */
    void *dq, *dk, *dv;
    uint32_t heads, width;    /* of a head */
    uint32_t query_count;     /* T */
    uint32_t position;        /* of the first query */
    uint32_t head_count;      /* B * H */
    float scale;              /* of scores: 1 / sqrt(width) */
    uint32_t first_head;      /* of this rank */
    uint32_t group;           /* heads of q that share a head of k and v; divides heads */
    const int32_t *positions; /* [B, T], of each token in its document; NULL: all see all before */
    sl_dropout dropout;       /* of weights */
} sl_attention_args;

#define SL_LOG2_E 1.44269504088896340736f

/* Where a block's head begins, in elements. */
typedef struct sl_attention_place {
    uint64_t q, key, y;  /* q: also of dq; key: of k, v, dk and dv */
    uint64_t statistics; /* lse, dots */
} sl_attention_place;

/* GROUPED: heads of q may share a head of k and v. */
template <bool GROUPED>
static __device__ __forceinline__ sl_attention_place
sl_attention_place_of(const sl_attention_args &args, uint32_t head_index)
{
    const uint64_t batch = head_index / args.heads;
    const uint32_t head = head_index % args.heads;
    const uint64_t column = (uint64_t)head * args.width;
    const uint64_t key_column = GROUPED ? (uint64_t)(head / args.group) * args.width : column;
    sl_attention_place place;
    place.q = batch * args.q_batch + column;
    place.key = batch * args.key_batch + key_column;
    place.y = batch * args.query_count * args.heads * args.width + column;
    place.statistics = (uint64_t)head_index * args.query_count;
    return place;
}

static __device__ __forceinline__ uint32_t sl_less(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static __host__ __device__ __forceinline__ uint32_t sl_divide_up(uint32_t total, uint32_t part)
{
    return total / part + (total % part != 0);
}

/* The grid of blocks that own `tile` queries each, of every head; an sl_status. Heads vary first:
 * so all the longest blocks start before any shorter one. */
static inline sl_status sl_attention_grid(const sl_attention_args *args, uint32_t tile,
                                          uint32_t parts, dim3 *out_grid)
{
    const uint32_t tiles = sl_divide_up(args->query_count, tile);
    if (tiles > 65535 || parts > 65535)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %u queries has too many tiles", args->query_count);
    *out_grid = dim3(args->head_count, tiles, parts);
    return SL_OK;
}

/* The same of blocks that own keys: one for all heads of a group. */
static inline sl_status sl_attention_key_grid(const sl_attention_args *args, uint32_t tile,
                                              uint32_t parts, dim3 *out_grid)
{
    SL_TRY(sl_attention_grid(args, tile, parts, out_grid));
    out_grid->x /= args->group;
    return SL_OK;
}

/* ---- the kernels; each queues what its name says ---- */

/* By tensor cores: half precision, widths that are multiples of 8 up to 256. */
sl_status sl_attention_tensor_forward(const sl_kernel_call *call, const sl_attention_args *args);
sl_status sl_attention_tensor_backward(const sl_kernel_call *call, const sl_attention_args *args);

/* Lets them have their shared memory. */
sl_status sl_attention_tensor_prepare_forward(const sl_op_attrs *attrs);
sl_status sl_attention_tensor_prepare_backward(const sl_op_attrs *attrs);

/* Any type and width. */
sl_status sl_attention_plain_forward(const sl_kernel_call *call, const sl_attention_args *args);
sl_status sl_attention_plain_backward(const sl_kernel_call *call, const sl_attention_args *args);

/* Few queries: the keys are split over blocks; partial results go through the workspace. */
enum { SL_ATTENTION_FEW = 8 };

uint64_t sl_attention_split_bytes(const sl_op_attrs *attrs);
sl_status sl_attention_split(const sl_kernel_call *call, const sl_attention_args *args);

#endif
