/* The gradient of token embeddings. Rows are ordered by token first; then a warp has one id and a
 * few columns and adds the id's rows in their order, so no two threads write one number.
 *
 * Of an id with many rows, each SEGMENT of them is summed on its own beforehand, into the
 * workspace, and the warp of the id adds these sums and then the rows left over. Where a segment's
 * sum stands follows from where the segment begins: no two begin within SEGMENT places of each
 * other. So a token that is every third word costs about what its rows cost to read.
 *
 * Reads each row of dx that counts once, and the panel's rows once where it adds to them; 4 bytes a
 * column for every segment are written and read on top.
 */
#include "embed.h"

#include "typed.cuh"

extern "C" {
#include "token_order.h"
}

enum { THREADS = 256, SEGMENT_THREADS = 128, SEGMENT = 64, FREQUENT = 2 * SEGMENT, BATCH_ROWS = 8 };

typedef struct token_gradient {
    const int32_t *tokens;
    const void *dx;      /* [row_count, width] */
    float *dpanel;       /* [id_count, width] */
    float *segment_sums; /* [segment_count, width] */
    sl_token_order order;
    uint64_t width, id_count;
    int64_t first_id;
    bool accumulate;
} token_gradient;

static uint64_t count_segments(const sl_op_attrs *attrs)
{
    return attrs->batch * attrs->seq / SEGMENT;
}

uint64_t sl_cuda_embed_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind != SL_OP_EMBED_TOKENS_BACKWARD)
        return 0;
    return sl_token_order_bytes(attrs) + count_segments(attrs) * attrs->in * sizeof(float);
}

/* Adds BATCH rows at once, so that as many loads are on their way. */
template <sl_type TYPE, bool WIDE, int BATCH>
static __device__ __forceinline__ void add_batch(const token_gradient &g, uint32_t first,
                                                 uint64_t column,
                                                 float (&sum)[sl_piece<TYPE, WIDE>::COUNT])
{
    sl_piece<TYPE, WIDE> piece[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
        piece[i] =
            sl_load_piece<TYPE, WIDE>(g.dx, (uint64_t)g.order.rows[first + i] * g.width + column);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
#pragma unroll
        for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++)
            sum[j] += piece[i].value[j];
}

/* Adds the rows at places [first, end) of the order, in that order. */
template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void add_rows(const token_gradient &g, uint32_t first,
                                                uint32_t end, uint64_t column,
                                                float (&sum)[sl_piece<TYPE, WIDE>::COUNT])
{
    for (; first + BATCH_ROWS <= end; first += BATCH_ROWS)
        add_batch<TYPE, WIDE, BATCH_ROWS>(g, first, column, sum);
    for (; first < end; first++)
        add_batch<TYPE, WIDE, 1>(g, first, column, sum);
}

/* The segment that begins at places [slot * SEGMENT, (slot + 1) * SEGMENT), if one does: it would
 * cover the last of them. */
static __device__ __forceinline__ bool find_segment(const token_gradient &g, uint32_t slot,
                                                    uint32_t *out_first)
{
    const uint32_t slot_first = slot * SEGMENT, last = slot_first + SEGMENT - 1;
    if (last >= g.order.bounds[g.id_count])
        return false;
    const int64_t id = (int64_t)g.tokens[g.order.rows[last]] - g.first_id;
    const uint32_t begin = g.order.bounds[id], end = g.order.bounds[id + 1];
    const uint32_t skipped =
        begin < slot_first ? (slot_first - begin + SEGMENT - 1) / SEGMENT * SEGMENT : 0;
    *out_first = begin + skipped;
    return end - begin >= FREQUENT && *out_first <= last && *out_first + SEGMENT <= end;
}

template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(SEGMENT_THREADS, 8) sum_segments(token_gradient g)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    uint32_t first;
    if (!find_segment(g, blockIdx.x, &first))
        return;
    uint64_t column = ((uint64_t)blockIdx.y * SEGMENT_THREADS + threadIdx.x) * COUNT;
    for (; column < g.width; column += (uint64_t)gridDim.y * SEGMENT_THREADS * COUNT) {
        float sum[COUNT] = {};
        add_rows<TYPE, WIDE>(g, first, first + SEGMENT, column, sum);
        sl_store_floats(g.segment_sums, blockIdx.x * g.width + column, sum);
    }
}

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void add_id(const token_gradient &g, uint64_t id, uint32_t first,
                                              uint32_t end, uint64_t column)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t at = id * g.width + column;
    float sum[COUNT] = {};
    if (g.accumulate)
        sl_load_floats(g.dpanel, at, sum);
    const uint32_t segments = end - first >= FREQUENT ? (end - first) / SEGMENT : 0;
#pragma unroll 8
    for (uint32_t s = 0; s < segments; s++) {
        float more[COUNT];
        sl_load_floats(g.segment_sums, (first / SEGMENT + s) * g.width + column, more);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[i] += more[i];
    }
    add_rows<TYPE, WIDE>(g, first + segments * SEGMENT, end, column, sum);
    sl_store_floats(g.dpanel, at, sum);
}

/* An id that no row has keeps what it had, or becomes zero. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS, 4) add_ids(token_gradient g)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t id = (uint64_t)blockIdx.x * (THREADS / SL_WARP) + threadIdx.x / SL_WARP;
    if (id >= g.id_count)
        return;
    const uint32_t first = g.order.bounds[id], end = g.order.bounds[id + 1];
    if (first == end && g.accumulate)
        return;
    uint64_t column = ((uint64_t)blockIdx.y * SL_WARP + threadIdx.x % SL_WARP) * COUNT;
    for (; column < g.width; column += (uint64_t)gridDim.y * SL_WARP * COUNT)
        add_id<TYPE, WIDE>(g, id, first, end, column);
}

/* Blocks of the second dimension for tiles of `columns`; a block walks on where they are too few.
 */
static uint32_t count_tiles(uint64_t width, uint64_t columns)
{
    const uint64_t tiles = sl_bits_divide_up(width, columns);
    return tiles < SL_GRID_SIDE_MOST ? (uint32_t)tiles : SL_GRID_SIDE_MOST;
}

template <sl_type TYPE, bool WIDE>
static sl_status launch_gradient(const sl_kernel_call *call, const token_gradient *all)
{
    const token_gradient g = *all;
    const uint32_t count = sl_piece<TYPE, WIDE>::COUNT;
    const uint64_t id_blocks = sl_bits_divide_up(g.id_count, THREADS / SL_WARP);
    const dim3 segments((uint32_t)count_segments(call->attrs),
                        count_tiles(g.width, SEGMENT_THREADS * count));
    const dim3 ids((uint32_t)id_blocks, count_tiles(g.width, SL_WARP * count));
    if (segments.x > 1) /* a frequent id has two or more */
        SL_TRY(SL_LAUNCH(call, segments, SEGMENT_THREADS, 0, (sum_segments<TYPE, WIDE>), g));
    return SL_LAUNCH(call, ids, THREADS, 0, (add_ids<TYPE, WIDE>), g);
}

template <sl_type TYPE>
static sl_status differentiate(const sl_kernel_call *call, const token_gradient *all)
{
    return all->width % sl_pack<TYPE>::COUNT == 0 ? launch_gradient<TYPE, true>(call, all)
                                                  : launch_gradient<TYPE, false>(call, all);
}

extern "C" sl_status sl_cuda_embed_tokens_backward(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    token_gradient g = {};
    g.tokens = (const int32_t *)call->operand[0];
    g.dx = call->operand[1];
    g.dpanel = (float *)call->operand[2];
    g.segment_sums = (float *)((char *)call->workspace + sl_token_order_bytes(attrs));
    g.width = attrs->in;
    g.id_count = attrs->id_count;
    g.first_id = (int64_t)attrs->first_id;
    g.accumulate = attrs->adds_output != 0;
    SL_TRY(sl_token_order_make(call, g.tokens, call->workspace, &g.order));
    return SL_BY_TYPE(attrs->type, differentiate, call, &g);
}
