/* The head's softmax over panels: running statistics (Milakov and Gimelshein 2018), the loss, and
 * the gradient of the logits. Statistics read a panel once: each thread keeps its largest logit m
 * so far and the sum of exp(logit - m). A warp has one row of a panel, or a block if the row is
 * longer than NARROW. Logits of padding ids are never read.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                                  sm_80                sm_90
 *   head_logits_backward_tile<bf16, false>     22     97     20     21    102     20
 *   head_logits_backward_tile<bf16, true>      32    385     76     32    388     76
 *   head_loss_counted                          18    161     48     19    162     48
 *   head_loss_groups                           20     17     32     24     17     32
 *   head_loss_rows                             28     12     16     28     12     16
 *   head_stats_rows<bf16, false, 32>           18    129     36     22    143     36
 *   head_stats_rows<bf16, false, 256>          20    148     36     24    166     36
 *   head_stats_rows<bf16, true, 32>            31    152     16     31    154     16
 *   head_stats_rows<bf16, true, 256>           31    151     16     31    153     16
 */
#include "mma.cuh"
#include "reduce.cuh"
#include "typed.cuh"

enum {
    THREADS = 256,
    NARROW = 1024,  /* ids of a panel whose rows are a warp's */
    TILE_PIECES = 2 /* pieces of a row that a thread differentiates */
};

typedef struct head_rows {
    void *logits;           /* [row_count, column_count] */
    const int32_t *targets; /* [row_count] */
    float *stats;           /* [row_count, 4] */
    uint64_t row_count, column_count;
    uint64_t valid_count; /* ids of the panel that exist */
    int64_t first_id;
    float scale;
    bool accumulate;
} head_rows;

static head_rows describe_rows(const sl_op_attrs *attrs, void *logits, const void *targets,
                               const void *stats)
{
    const uint64_t left =
        attrs->first_id < attrs->valid_id_count ? attrs->valid_id_count - attrs->first_id : 0;
    head_rows rows = {};
    rows.logits = logits;
    rows.targets = (const int32_t *)targets + attrs->first_row;
    rows.stats = (float *)stats;
    rows.row_count = attrs->row_count;
    rows.column_count = attrs->id_count;
    rows.valid_count = left < attrs->id_count ? left : attrs->id_count;
    rows.first_id = (int64_t)attrs->first_id;
    return rows;
}

/* The column of a row's target in this panel, or one that no logit has. */
static __device__ __forceinline__ uint64_t find_target(const head_rows &rows, uint64_t row)
{
    const int64_t column = (int64_t)rows.targets[row] - rows.first_id;
    return column >= 0 && (uint64_t)column < rows.valid_count ? (uint64_t)column : UINT64_MAX;
}

static __device__ __forceinline__ bool is_masked(const head_rows &rows, uint64_t row)
{
    return rows.targets[row] < 0;
}

/* The largest of some logits and the sum of their exponentials against it; of none, -infinity and
 * 0. A NaN is no maximum, but every sum that it enters stays NaN. */
typedef struct softmax {
    float max, sum;
} softmax;

/* What exponentials are taken against; nothing is larger than -infinity where nothing was seen. */
static __device__ __forceinline__ float find_shift(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

static __device__ __forceinline__ float rescale(softmax s, float new_max)
{
    return s.max == new_max ? s.sum : s.sum * expf(s.max - new_max);
}

template <int COUNT>
static __device__ __forceinline__ void add_logits(softmax *s, const float (&logit)[COUNT])
{
    float max = logit[0], sum = 0.0f;
#pragma unroll
    for (int i = 1; i < COUNT; i++)
        max = fmaxf(max, logit[i]);
    if (max > s->max) { /* seldom, after the first few */
        s->sum = rescale(*s, max);
        s->max = max;
    }
    const float shift = find_shift(s->max);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum += expf(logit[i] - shift);
    s->sum += sum;
}

/* One thread's share of a row. */
template <sl_type TYPE, bool WIDE, int TEAM>
static __device__ __forceinline__ softmax measure_share(const head_rows &rows, uint64_t row)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    softmax s = {-INFINITY, 0.0f};
    uint64_t i = (uint64_t)(threadIdx.x % TEAM) * COUNT;
    for (; i < rows.valid_count; i += TEAM * COUNT) {
        sl_piece<TYPE, WIDE> piece =
            sl_load_piece<TYPE, WIDE>(rows.logits, row * rows.column_count + i);
#pragma unroll
        for (int j = 1; j < COUNT; j++)
            if (i + j >= rows.valid_count)
                piece.value[j] = -INFINITY;
        add_logits(&s, piece.value);
    }
    return s;
}

/* Of this panel's logits, or of all up to it. */
template <sl_type TYPE, bool WIDE, int TEAM>
static __global__ void __launch_bounds__(THREADS) head_stats_rows(head_rows rows)
{
    __shared__ float scratch[2][TEAM / SL_WARP];
    const uint64_t row = (uint64_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= rows.row_count) /* whole warps */
        return;
    const softmax mine = measure_share<TYPE, WIDE, TEAM>(rows, row);
    softmax all = {sl_team_max<TEAM>(mine.max, scratch[0]), 0.0f};
    all.sum = sl_team_sum<TEAM>(rescale(mine, all.max), scratch[1]);
    if (threadIdx.x % TEAM > 0)
        return;
    float4 *stats = (float4 *)rows.stats + row;
    const uint64_t column = find_target(rows, row);
    float target = 0.0f;
    if (column != UINT64_MAX)
        target = sl_load<TYPE>(rows.logits, row * rows.column_count + column);
    if (rows.accumulate) {
        const softmax before = {stats->x, stats->y};
        const float max = before.max > all.max ? before.max : all.max;
        all.sum = rescale(before, max) + rescale(all, max);
        all.max = max;
        target += stats->z;
    }
    *stats = make_float4(all.max, all.sum, target, is_masked(rows, row) ? 1.0f : 0.0f);
}

template <sl_type TYPE, bool WIDE>
static sl_status launch_stats(const sl_kernel_call *call, const head_rows *all)
{
    const head_rows rows = *all;
    const uint32_t few = (uint32_t)sl_bits_divide_up(rows.row_count, THREADS / SL_WARP);
    if (rows.column_count <= NARROW)
        return SL_LAUNCH(call, few, THREADS, 0, (head_stats_rows<TYPE, WIDE, SL_WARP>), rows);
    return SL_LAUNCH(call, (uint32_t)rows.row_count, THREADS, 0,
                     (head_stats_rows<TYPE, WIDE, THREADS>), rows);
}

template <sl_type TYPE>
static sl_status dispatch_stats(const sl_kernel_call *call, const head_rows *all)
{
    return all->column_count % sl_pack<TYPE>::COUNT == 0 ? launch_stats<TYPE, true>(call, all)
                                                         : launch_stats<TYPE, false>(call, all);
}

extern "C" sl_status sl_cuda_head_stats(const sl_kernel_call *call)
{
    head_rows rows =
        describe_rows(call->attrs, call->operand[0], call->operand[1], call->operand[2]);
    rows.accumulate = call->attrs->adds_output != 0;
    SL_TRY(sl_launch_covers(rows.row_count, "head_stats"));
    return SL_BY_TYPE(call->attrs->type, dispatch_stats, call, &rows);
}

/* A row's logits become its gradients. */
typedef struct row_slope {
    uint64_t target, valid_count; /* from valid_count on gradients are 0 */
    float max, factor, scale;
} row_slope;

template <int COUNT>
static __device__ __forceinline__ void differentiate(const row_slope &row, uint64_t first,
                                                     float (&value)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float share = expf(value[i] - row.max) * row.factor;
        const float slope = first + i == row.target ? share - row.scale : share;
        value[i] = first + i < row.valid_count ? slope : 0.0f;
    }
}

/* nvcc makes four narrow stores of the first wide one of a tile, if it may. */
template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void store_slopes(void *to, uint64_t index,
                                                    const sl_piece<TYPE, WIDE> &piece)
{
    if constexpr (WIDE)
        sl_store_whole((typename sl_stored<TYPE>::element *)to + index,
                       sl_round_pack<TYPE>(piece.value));
    else
        sl_store_piece<TYPE, WIDE>(to, index, piece);
}

/* A block differentiates a tile of one row; every logit is read and written once. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS) head_logits_backward_tile(head_rows rows)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t at = blockIdx.x;
    const row_slope row = {find_target(rows, at), is_masked(rows, at) ? 0 : rows.valid_count,
                           rows.stats[4 * at], rows.scale / rows.stats[4 * at + 1], rows.scale};
    uint64_t first = ((uint64_t)blockIdx.y * TILE_PIECES * THREADS + threadIdx.x) * COUNT;
    const uint64_t row_first = at * rows.column_count;
    sl_piece<TYPE, WIDE> piece[TILE_PIECES] = {};
#pragma unroll
    for (int p = 0; p < TILE_PIECES; p++)
        if (first + p * THREADS * COUNT < row.valid_count)
            piece[p] =
                sl_load_piece<TYPE, WIDE>(rows.logits, row_first + first + p * THREADS * COUNT);
#pragma unroll
    for (int p = 0; p < TILE_PIECES; p++) {
        const uint64_t column = first + p * THREADS * COUNT;
        differentiate(row, column, piece[p].value);
        if (column < rows.column_count)
            store_slopes<TYPE, WIDE>(rows.logits, row_first + column, piece[p]);
    }
}

template <sl_type TYPE, bool WIDE>
static sl_status launch_backward(const sl_kernel_call *call, const head_rows *all)
{
    const head_rows rows = *all;
    const uint64_t tile = TILE_PIECES * THREADS * sl_piece<TYPE, WIDE>::COUNT;
    const uint64_t tiles = sl_bits_divide_up(rows.column_count, tile);
    if (tiles > SL_GRID_SIDE_MOST)
        SL_FAIL(SL_ERROR_INTERNAL, "head_logits_backward does not cover %llu ids",
                (unsigned long long)rows.column_count);
    return SL_LAUNCH(call, dim3((uint32_t)rows.row_count, (uint32_t)tiles), THREADS, 0,
                     (head_logits_backward_tile<TYPE, WIDE>), rows);
}

template <sl_type TYPE>
static sl_status dispatch_backward(const sl_kernel_call *call, const head_rows *all)
{
    return all->column_count % sl_pack<TYPE>::COUNT == 0 ? launch_backward<TYPE, true>(call, all)
                                                         : launch_backward<TYPE, false>(call, all);
}

extern "C" sl_status sl_cuda_head_logits_backward(const sl_kernel_call *call)
{
    head_rows rows =
        describe_rows(call->attrs, call->operand[2], call->operand[0], call->operand[1]);
    rows.scale = call->attrs->scale * call->scalars.loss_scale;
    SL_TRY(sl_launch_covers(rows.row_count, "head_logits_backward"));
    return SL_BY_TYPE(call->attrs->type, dispatch_backward, call, &rows);
}

/* ---- HEAD_LOSS, in double. A block adds a fixed group of rows: each thread every 256th row, and
 * the threads' sums as a tree. With more groups than one, their sums go to the workspace and one
 * more block adds them. Masked rows are left out; a block counts the others, if that is asked for.
 */

static const uint64_t GROUPS_MOST = 1024, GROUP_ROWS_LEAST = 1024;

static uint64_t count_group_rows(uint64_t row_count)
{
    const uint64_t rows = sl_bits_divide_up(row_count, GROUPS_MOST);
    return rows > GROUP_ROWS_LEAST ? rows : GROUP_ROWS_LEAST;
}

static uint64_t count_groups(uint64_t row_count)
{
    return sl_bits_divide_up(row_count, count_group_rows(row_count));
}

extern "C" uint64_t sl_cuda_head_loss_workspace_bytes(sl_op_kind, const sl_op_attrs *attrs,
                                                      uint32_t)
{
    return count_groups(attrs->row_count) * sizeof(double);
}

/* The first thread gets the sum of every thread's value. */
static __device__ double sum_over_block(double value)
{
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = value;
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[threadIdx.x];
}

/* -log p(target) of the rows of a group; added to *sums where that is the loss itself. */
static __global__ void __launch_bounds__(THREADS)
    head_loss_rows(const float4 *stats, uint64_t row_count, uint64_t group_rows, double *sums,
                   bool accumulate)
{
    const uint64_t first = blockIdx.x * group_rows;
    const uint64_t end = first + group_rows < row_count ? first + group_rows : row_count;
    double sum = 0.0;
    for (uint64_t row = first + threadIdx.x; row < end; row += THREADS) {
        const float4 s = stats[row];
        if (s.w == 0.0f)
            sum += log((double)s.y) + ((double)s.x - (double)s.z);
    }
    sum = sum_over_block(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = accumulate ? sums[blockIdx.x] + sum : sum;
}

static __global__ void __launch_bounds__(THREADS)
    head_loss_groups(const double *sums, uint64_t group_count, double *loss, bool accumulate)
{
    double sum = 0.0;
    for (uint64_t group = threadIdx.x; group < group_count; group += THREADS)
        sum += sums[group];
    sum = sum_over_block(sum);
    if (threadIdx.x == 0)
        *loss = accumulate ? *loss + sum : sum;
}

/* How many rows are not masked; whole numbers, exact in any order. */
static __global__ void __launch_bounds__(THREADS)
    head_loss_counted(const float4 *stats, uint64_t row_count, double *counted, bool accumulate)
{
    double sum = 0.0;
    for (uint64_t row = threadIdx.x; row < row_count; row += THREADS)
        sum += stats[row].w == 0.0f ? 1.0 : 0.0;
    sum = sum_over_block(sum);
    if (threadIdx.x == 0)
        *counted = accumulate ? *counted + sum : sum;
}

static sl_status count_rows(const sl_kernel_call *call)
{
    if (!call->operand[2])
        return SL_OK;
    return SL_LAUNCH(call, 1, THREADS, 0, head_loss_counted, (const float4 *)call->operand[0],
                     (uint64_t)call->attrs->row_count, (double *)call->operand[2],
                     call->attrs->adds_output != 0);
}

extern "C" sl_status sl_cuda_head_loss(const sl_kernel_call *call)
{
    const float4 *stats = (const float4 *)call->operand[0];
    double *loss = (double *)call->operand[1], *sums = (double *)call->workspace;
    const uint64_t row_count = call->attrs->row_count;
    const uint64_t group_rows = count_group_rows(row_count), group_count = count_groups(row_count);
    const bool accumulate = call->attrs->adds_output != 0;
    SL_TRY(count_rows(call));
    if (group_count == 1)
        return SL_LAUNCH(call, 1, THREADS, 0, head_loss_rows, stats, row_count, group_rows, loss,
                         accumulate);
    SL_TRY(SL_LAUNCH(call, (uint32_t)group_count, THREADS, 0, head_loss_rows, stats, row_count,
                     group_rows, sums, false));
    return SL_LAUNCH(call, 1, THREADS, 0, head_loss_groups, sums, group_count, loss, accumulate);
}
