/* Token and position embeddings, and the gradient of positions. */
#include "typed.cuh"

enum { THREADS = 128 };

/* The element of a copy: 16 bytes where rows allow it. x[b] is one piece of wpe, which is read from
 * the caches for every b but the first. */
template <typename UNIT>
static __global__ void __launch_bounds__(THREADS)
    embed_position(const UNIT *wpe, UNIT *x, uint64_t units, uint64_t batch)
{
    const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < units)
        for (uint64_t b = blockIdx.y; b < batch; b += gridDim.y)
            x[b * units + i] = wpe[i];
}

template <typename UNIT>
static sl_status launch_position(const sl_kernel_call *call, uint64_t row_bytes)
{
    const uint64_t row_units = row_bytes / sizeof(UNIT), batch = call->attrs->batch;
    const uint64_t units = call->attrs->seq * row_units;
    const UNIT *wpe = (const UNIT *)call->operand[0] + call->scalars.position * row_units;
    UNIT *x = (UNIT *)call->operand[1];
    const uint64_t blocks = sl_bits_divide_up(units, THREADS);
    SL_TRY(sl_launch_covers(blocks, "embed_position"));
    const uint32_t side = batch < SL_GRID_SIDE_MOST ? (uint32_t)batch : SL_GRID_SIDE_MOST;
    return SL_LAUNCH(call, dim3((uint32_t)blocks, side), THREADS, 0, embed_position<UNIT>, wpe, x,
                     units, batch);
}

/* What a rank above 0 gives to a sum over the ranks. */
static sl_status clear_rows(const sl_kernel_call *call)
{
    sl_op_attrs attrs = *call->attrs;
    sl_kernel_call clear = *call;
    attrs.element_count = attrs.batch * attrs.seq * attrs.in;
    clear.attrs = &attrs;
    clear.operand[0] = call->operand[1];
    return sl_cuda_clear(&clear);
}

extern "C" sl_status sl_cuda_embed_position(const sl_kernel_call *call)
{
    if (call->attrs->rank_index > 0)
        return clear_rows(call);
    const uint64_t element = sl_type_bytes((sl_type)call->attrs->type);
    const uint64_t row_bytes = call->attrs->in * element;
    if (row_bytes % sizeof(uint4) == 0)
        return launch_position<uint4>(call, row_bytes);
    return element == sizeof(uint32_t) ? launch_position<uint32_t>(call, row_bytes)
                                       : launch_position<uint16_t>(call, row_bytes);
}

typedef struct token_rows {
    const int32_t *tokens;
    const void *panel;
    void *x;
    uint64_t row_count, width;
    int64_t first_id, id_count;
} token_rows;

/* A warp adds the panel's row to a row of x, if the panel has its token. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS) embed_tokens(token_rows rows)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t row = (uint64_t)blockIdx.x * (THREADS / SL_WARP) + threadIdx.x / SL_WARP;
    if (row >= rows.row_count)
        return;
    const int64_t id = (int64_t)rows.tokens[row] - rows.first_id;
    if (id < 0 || id >= rows.id_count)
        return;
    const uint64_t from = (uint64_t)id * rows.width, to = row * rows.width;
#pragma unroll 4
    for (uint64_t i = threadIdx.x % SL_WARP * COUNT; i < rows.width; i += SL_WARP * COUNT) {
        const sl_piece<TYPE, WIDE> more = sl_load_piece<TYPE, WIDE>(rows.panel, from + i);
        sl_piece<TYPE, WIDE> x = sl_load_piece<TYPE, WIDE>(rows.x, to + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            x.value[j] += more.value[j];
        sl_store_piece<TYPE, WIDE>(rows.x, to + i, x);
    }
}

template <sl_type TYPE>
static sl_status add_panel(const sl_kernel_call *call, const token_rows *all)
{
    const token_rows rows = *all;
    const uint64_t blocks = sl_bits_divide_up(rows.row_count, THREADS / SL_WARP);
    SL_TRY(sl_launch_covers(blocks, "embed_tokens"));
    if (rows.width % sl_pack<TYPE>::COUNT == 0)
        return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, (embed_tokens<TYPE, true>), rows);
    return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, (embed_tokens<TYPE, false>), rows);
}

extern "C" sl_status sl_cuda_embed_tokens(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->rank_index > 0)
        return SL_OK;
    const token_rows rows = {
        (const int32_t *)call->operand[0], call->operand[1], call->operand[2],
        attrs->batch * attrs->seq,         attrs->in,        (int64_t)attrs->first_id,
        (int64_t)attrs->id_count};
    return SL_BY_TYPE(attrs->type, add_panel, call, &rows);
}

/* A thread has its columns of one position: the sum over b in order, then added. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    embed_position_backward(const void *dx, float *dwpe, uint64_t count, uint64_t batch)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t i = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * COUNT;
    if (i >= count)
        return;
    sl_piece<TYPE, WIDE> sum = sl_load_piece<TYPE, WIDE>(dx, i);
#pragma unroll 4
    for (uint64_t b = 1; b < batch; b++) {
        const sl_piece<TYPE, WIDE> more = sl_load_piece<TYPE, WIDE>(dx, b * count + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            sum.value[j] += more.value[j];
    }
    float old[COUNT];
    sl_load_floats(dwpe, i, old);
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        old[j] += sum.value[j];
    sl_store_floats(dwpe, i, old);
}

template <sl_type TYPE, bool WIDE>
static sl_status launch_position_backward(const sl_kernel_call *call)
{
    const uint64_t count = call->attrs->seq * call->attrs->in, batch = call->attrs->batch;
    const uint64_t blocks = sl_bits_divide_up(count, THREADS * sl_piece<TYPE, WIDE>::COUNT);
    const void *dx = call->operand[0];
    float *dwpe = (float *)call->operand[1];
    SL_TRY(sl_launch_covers(blocks, "embed_position_backward"));
    return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, (embed_position_backward<TYPE, WIDE>), dx,
                     dwpe, count, batch);
}

template <sl_type TYPE> static sl_status sum_positions(const sl_kernel_call *call)
{
    const uint64_t count = call->attrs->seq * call->attrs->in; /* of each b, one after the other */
    return count % sl_pack<TYPE>::COUNT == 0 ? launch_position_backward<TYPE, true>(call)
                                             : launch_position_backward<TYPE, false>(call);
}

extern "C" sl_status sl_cuda_embed_position_backward(const sl_kernel_call *call)
{
    return SL_BY_TYPE(call->attrs->type, sum_positions, call);
}
