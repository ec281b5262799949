/* Normalisation of rows by the root of their mean square (Zhang and Sennrich 2019), as
 * layernorm.cu: a row is read once and stays in registers. A row may be one head of a token, so
 * rows of up to SHORTEST belong to 8 lanes and those of up to SHORT to 16, and a warp has several;
 * wider ones belong to a warp or a block. Any other width (rows that are no multiple of sixteen
 * bytes, or wider than all) is walked twice, out of the caches.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                                      sm_80                sm_90
 *   rmsnorm_any_rows<bf16>                         20    307     68     22    323     68
 *   rmsnorm_backward_any_rows<bf16, false>         30     11     16     32     11     16
 *   rmsnorm_backward_any_rows<bf16, true>          40     67     56     32     66     56
 *   rmsnorm_backward_rows<bf16, 8, 2, false>      109    481    196    114    481    196
 *   rmsnorm_backward_rows<bf16, 8, 2, true>       102    429    196     98    431    196
 *   rmsnorm_backward_rows<bf16, 16, 2, false>     109    483    196    114    483    196
 *   rmsnorm_backward_rows<bf16, 16, 2, true>      102    431    196     98    433    196
 *   rmsnorm_backward_rows<bf16, 128, 1, false>     71    233    100     72    238    100
 *   rmsnorm_backward_rows<bf16, 128, 1, true>      71    230    100     72    234    100
 *   rmsnorm_backward_rows<bf16, 256, 1, false>     78    239    100     79    241    100
 *   rmsnorm_backward_rows<bf16, 256, 1, true>      78    236    100     79    238    100
 *   rmsnorm_backward_rows<bf16, 256, 2, false>    111    502    196    114    507    196
 *   rmsnorm_backward_rows<bf16, 256, 2, true>      96    451    196     96    456    196
 *   rmsnorm_backward_rows<bf16, 512, 3, false>     85    622    292     84    632    292
 *   rmsnorm_backward_rows<bf16, 512, 3, true>      85    619    292     84    629    292
 *   rmsnorm_rows<bf16, 8, 2>                       38    195    100     39    203    100
 *   rmsnorm_rows<bf16, 16, 2>                      38    197    100     39    205    100
 *   rmsnorm_rows<bf16, 32, 4>                      62    319    196     62    329    196
 *   rmsnorm_rows<bf16, 32, 8>                     106    586    388    106    610    388
 *   rmsnorm_rows<bf16, 256, 2>                     39    208    100     40    218    100
 *   rmsnorm_rows<bf16, 256, 6>                     80    466    292     80    484    292
 */
#include "reduce.cuh"
#include "row_groups.cuh"
#include "typed.cuh"

enum { THREADS = 256, WARP_BLOCK = 128, SHORTEST = 128, SHORT = 256 };

typedef struct norm_rows {
    const void *x, *gamma;
    void *y;
    float *stats; /* [row_count] */
    uint64_t row_count, width;
    float epsilon, gamma_offset;
} norm_rows;

/* Of the threads that share a row. */
template <int TEAM> static __device__ __forceinline__ uint32_t find_member(void)
{
    return threadIdx.x % TEAM;
}

/* Moves the minimum, and reads gamma again for every row, out of the caches. */
template <sl_type TYPE, int TEAM, int PACKS>
static __global__ void __launch_bounds__(TEAM <= SL_WARP ? WARP_BLOCK : TEAM,
                                         TEAM <= SL_WARP ? 4 : 2) rmsnorm_rows(norm_rows rows)
{
    __shared__ float scratch[(TEAM + SL_WARP - 1) / SL_WARP];
    const int COUNT = sl_pack<TYPE>::COUNT;
    const uint32_t member = find_member<TEAM>();
    const uint64_t row = (uint64_t)blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM;
    /* None where there is no row: all lanes of a warp take part in its sums. */
    const uint32_t packs = row < rows.row_count ? (uint32_t)rows.width / COUNT : 0;
    sl_pack<TYPE> x[PACKS];
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs)
            x[p] = sl_load_pack<TYPE>(rows.x, row * rows.width + (p * TEAM + member) * COUNT);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                squares = fmaf(x[p].value[i], x[p].value[i], squares);
    const float mean = sl_team_sum<TEAM>(squares, scratch) / (float)rows.width;
    const float inverse = 1.0f / sqrtf(mean + rows.epsilon);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs) {
            const uint32_t column = (p * TEAM + member) * COUNT;
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(rows.gamma, column);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x[p].value[i] = x[p].value[i] * inverse * (gamma.value[i] + rows.gamma_offset);
            sl_store_pack<TYPE>(rows.y, row * rows.width + column, x[p]);
        }
    if (member == 0 && packs > 0)
        rows.stats[row] = inverse;
}

/* Any width. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS) rmsnorm_any_rows(norm_rows rows)
{
    __shared__ float scratch[THREADS / SL_WARP];
    const uint64_t row = blockIdx.x, first = row * rows.width;
    float squares = 0.0f;
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float x = sl_load<TYPE>(rows.x, first + i);
        squares = fmaf(x, x, squares);
    }
    const float mean = sl_block_sum<THREADS>(squares, scratch) / (float)rows.width;
    const float inverse = 1.0f / sqrtf(mean + rows.epsilon);
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float normal = sl_load<TYPE>(rows.x, first + i) * inverse;
        sl_store<TYPE>(rows.y, first + i,
                       normal * (sl_load<TYPE>(rows.gamma, i) + rows.gamma_offset));
    }
    if (threadIdx.x == 0)
        rows.stats[row] = inverse;
}

/* The kernel whose threads hold a row of up to TEAM * VALUES. */
template <sl_type TYPE, int TEAM, int VALUES>
static sl_status launch_forward(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    const uint32_t block = TEAM <= SL_WARP ? WARP_BLOCK : TEAM;
    const uint64_t grid = sl_bits_divide_up(rows.row_count, block / TEAM);
    return SL_LAUNCH(call, (uint32_t)grid, block, 0,
                     (rmsnorm_rows<TYPE, TEAM, VALUES / sl_pack<TYPE>::COUNT>), rows);
}

template <sl_type TYPE>
static sl_status dispatch_forward(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    if (rows.width % sl_pack<TYPE>::COUNT == 0) {
        if (rows.width <= SHORTEST)
            return launch_forward<TYPE, 8, SHORTEST / 8>(call, all);
        if (rows.width <= SHORT)
            return launch_forward<TYPE, 16, SHORT / 16>(call, all);
        if (rows.width <= SL_WARP * 32)
            return launch_forward<TYPE, SL_WARP, 32>(call, all);
        if (rows.width <= SL_WARP * 64)
            return launch_forward<TYPE, SL_WARP, 64>(call, all);
        if (rows.width <= THREADS * 16)
            return launch_forward<TYPE, THREADS, 16>(call, all);
        if (rows.width <= THREADS * 48)
            return launch_forward<TYPE, THREADS, 48>(call, all);
    }
    return SL_LAUNCH(call, (uint32_t)rows.row_count, THREADS, 0, rmsnorm_any_rows<TYPE>, rows);
}

extern "C" sl_status sl_cuda_rmsnorm(const sl_kernel_call *call)
{
    const norm_rows rows = {call->operand[0],          call->operand[1],         call->operand[2],
                            (float *)call->operand[3], call->attrs->row_count,   call->attrs->in,
                            call->attrs->epsilon,      call->attrs->gamma_offset};
    SL_TRY(sl_launch_covers(rows.row_count, "rmsnorm"));
    return SL_BY_TYPE(call->attrs->type, dispatch_forward, call, &rows);
}

/* ---- backward
 *
 * A block owns a fixed group of rows and walks it, as in layernorm.cu: each thread keeps dgamma of
 * its own columns over its rows. Where teams of lanes have a row each, a block has many of them;
 * team t takes the rows t, t + teams, ... of the group, and the teams' sums are added in their
 * order.
 *
 * Moves, beyond the minimum, 4 bytes a column for each group of rows.
 */

typedef struct norm_gradient {
    const void *x, *gamma;
    const float *stats; /* [row_count] */
    const void *dy;
    void *dx;        /* NULL: not computed */
    float *partials; /* [groups, width]: dgamma; NULL: not computed */
    uint64_t row_count, group_rows, width;
    float gamma_offset;
    bool accumulate;
} norm_gradient;

/* Of a group; a short row is a part of a block's work at a time. */
static uint64_t find_least_rows(uint64_t width)
{
    return width <= SHORT ? 128 : 8;
}

static uint64_t count_groups(const sl_op_attrs *attrs)
{
    return sl_row_groups_count(attrs->row_count, find_least_rows(attrs->in));
}

extern "C" uint64_t sl_cuda_rmsnorm_backward_workspace_bytes(sl_op_kind, const sl_op_attrs *attrs,
                                                             uint32_t)
{
    return count_groups(attrs) * attrs->in * sizeof(float);
}

/* Threads that share rows of a block. */
template <int TEAM> struct team_shape {
    enum { BLOCK = TEAM <= SL_WARP ? THREADS : TEAM, TEAMS = BLOCK / TEAM };
};

/* A row as it was loaded; what dx held comes along only where there are registers for it. */
template <sl_type TYPE, int TEAM, int PACKS> struct row_packs {
    enum {
        AHEAD = PACKS <= 2 /* the next row is loaded while this one is summed */
    };
    uint4 x[PACKS], dy[PACKS], dx[PACKS];
    float inverse;
    uint32_t width; /* 0: there is no row */
};

/* The column of a thread's pack `p`. */
template <sl_type TYPE, int TEAM> static __device__ __forceinline__ uint32_t find_column(int p)
{
    return (p * TEAM + find_member<TEAM>()) * sl_pack<TYPE>::COUNT;
}

/* There is no row from `end` on. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ void load_row(const norm_gradient &g, uint64_t row, uint64_t end,
                                                row_packs<TYPE, TEAM, PACKS> *out)
{
    out->width = row < end ? (uint32_t)g.width : 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < out->width) {
            out->x[p] = sl_load_raw<TYPE>(g.x, row * g.width + column);
            out->dy[p] = sl_load_raw<TYPE>(g.dy, row * g.width + column);
            if (row_packs<TYPE, TEAM, PACKS>::AHEAD && g.accumulate)
                out->dx[p] = sl_load_raw<TYPE>(g.dx, row * g.width + column);
        }
    }
    out->inverse = row < end ? g.stats[row] : 0.0f;
}

/* One thread's part of the row's sum of dy gamma times the normalised x; adds the row to dgamma of
 * its columns. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ float add_row(const norm_gradient &g,
                                                const row_packs<TYPE, TEAM, PACKS> &row,
                                                sl_pack<TYPE> (&dgamma)[PACKS])
{
    float crossed = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < row.width) {
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(g.gamma, column);
            const sl_pack<TYPE> x = sl_widen_pack<TYPE>(row.x[p]);
            const sl_pack<TYPE> dy = sl_widen_pack<TYPE>(row.dy[p]);
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                const float normal = x.value[i] * row.inverse;
                crossed = fmaf(dy.value[i] * (gamma.value[i] + g.gamma_offset), normal, crossed);
                dgamma[p].value[i] = fmaf(dy.value[i], normal, dgamma[p].value[i]);
            }
        }
    }
    return crossed;
}

/* dx of one row; `mean`: its sum over its width. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ void store_row(const norm_gradient &g, uint64_t index,
                                                 const row_packs<TYPE, TEAM, PACKS> &row,
                                                 float mean)
{
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < row.width) {
            const uint64_t at = index * g.width + column;
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(g.gamma, column);
            const sl_pack<TYPE> x = sl_widen_pack<TYPE>(row.x[p]);
            sl_pack<TYPE> d = sl_widen_pack<TYPE>(row.dy[p]), old = {};
            if (g.accumulate)
                old = sl_widen_pack<TYPE>(
                    row_packs<TYPE, TEAM, PACKS>::AHEAD ? row.dx[p] : sl_load_raw<TYPE>(g.dx, at));
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                const float normal = x.value[i] * row.inverse;
                const float slope =
                    fmaf(-normal, mean, d.value[i] * (gamma.value[i] + g.gamma_offset));
                d.value[i] =
                    g.accumulate ? fmaf(slope, row.inverse, old.value[i]) : slope * row.inverse;
            }
            sl_store_pack<TYPE>(g.dx, at, d);
        }
    }
}

/* The sums of the block's teams become those of its group. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ void store_columns(const norm_gradient &g,
                                                     const sl_pack<TYPE> (&dgamma)[PACKS])
{
    typedef team_shape<TEAM> shape;
    enum { WIDEST = TEAM * PACKS * sl_pack<TYPE>::COUNT };
    float *const out = g.partials + blockIdx.x * g.width;
    if constexpr (shape::TEAMS == 1) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (find_column<TYPE, TEAM>(p) < g.width)
                sl_store_floats(out, find_column<TYPE, TEAM>(p), dgamma[p].value);
    } else {
        __shared__ __align__(16) float sums[shape::TEAMS * WIDEST];
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            sl_store_floats(&sums[threadIdx.x / TEAM * WIDEST], find_column<TYPE, TEAM>(p),
                            dgamma[p].value);
        __syncthreads();
        for (uint32_t column = threadIdx.x; column < g.width; column += shape::BLOCK) {
            float sum = 0.0f;
#pragma unroll
            for (int team = 0; team < shape::TEAMS; team++)
                sum += sums[team * WIDEST + column];
            out[column] = sum;
        }
    }
}

/* ALL: dx and the partials are wanted; so this case has no branches for the others. */
template <sl_type TYPE, int TEAM, int PACKS, bool ALL>
static __global__ void __launch_bounds__(team_shape<TEAM>::BLOCK)
    rmsnorm_backward_rows(norm_gradient g)
{
    __shared__ float scratch[2][(TEAM + SL_WARP - 1) / SL_WARP];
    typedef row_packs<TYPE, TEAM, PACKS> packs;
    enum { TEAMS = team_shape<TEAM>::TEAMS };
    const uint64_t first = blockIdx.x * g.group_rows;
    const uint64_t end = sl_row_groups_end(g.group_rows, g.row_count);
    sl_pack<TYPE> dgamma[PACKS] = {};
    packs now = {}, next = {};
    uint64_t row = first + threadIdx.x / TEAM;
    load_row<TYPE, TEAM, PACKS>(g, row, end, &now);
    for (uint64_t step = first; step < end; step += TEAMS, row += TEAMS) {
        if (packs::AHEAD)
            load_row<TYPE, TEAM, PACKS>(g, row + TEAMS, end, &next);
        float crossed = add_row<TYPE, TEAM, PACKS>(g, now, dgamma);
        if (ALL || g.dx != NULL) {
            crossed = sl_team_sum<TEAM>(crossed, scratch[step % 2]);
            store_row<TYPE, TEAM, PACKS>(g, row, now, crossed / (float)g.width);
        }
        if (packs::AHEAD)
            now = next;
        else
            load_row<TYPE, TEAM, PACKS>(g, row + TEAMS, end, &now);
    }
    if (ALL || g.partials != NULL)
        store_columns<TYPE, TEAM, PACKS>(g, dgamma);
}

/* One thread's part of the sum of a row of any width; with HAS_COLUMNS adds the row to dgamma of
 * its columns. */
template <sl_type TYPE, bool HAS_COLUMNS>
static __device__ __forceinline__ float add_any_row(const norm_gradient &g, uint64_t row,
                                                    float *dgamma)
{
    const float inverse = g.stats[row];
    float crossed = 0.0f;
    for (uint64_t i = threadIdx.x; i < g.width; i += THREADS) {
        const float dy = sl_load<TYPE>(g.dy, row * g.width + i);
        const float normal = sl_load<TYPE>(g.x, row * g.width + i) * inverse;
        crossed = fmaf(dy * (sl_load<TYPE>(g.gamma, i) + g.gamma_offset), normal, crossed);
        if (HAS_COLUMNS)
            dgamma[i] = fmaf(dy, normal, dgamma[i]);
    }
    return crossed;
}

/* dx of one row of any width; `mean`: its sum over its width. */
template <sl_type TYPE>
static __device__ __forceinline__ void store_any_row(const norm_gradient &g, uint64_t row,
                                                     float mean)
{
    const float inverse = g.stats[row];
    for (uint64_t i = threadIdx.x; i < g.width; i += THREADS) {
        const uint64_t at = row * g.width + i;
        const float normal = sl_load<TYPE>(g.x, at) * inverse;
        const float slope = fmaf(
            -normal, mean, sl_load<TYPE>(g.dy, at) * (sl_load<TYPE>(g.gamma, i) + g.gamma_offset));
        const float old = g.accumulate ? sl_load<TYPE>(g.dx, at) : 0.0f;
        sl_store<TYPE>(g.dx, at, fmaf(slope, inverse, old));
    }
}

/* Any width: rows are read twice, and the group's sums stand in the workspace from the start. */
template <sl_type TYPE, bool ALL>
static __global__ void __launch_bounds__(THREADS) rmsnorm_backward_any_rows(norm_gradient g)
{
    __shared__ float scratch[2][THREADS / SL_WARP];
    const uint64_t first = blockIdx.x * g.group_rows;
    const uint64_t end = sl_row_groups_end(g.group_rows, g.row_count);
    const bool has_columns = ALL || g.partials != NULL;
    float *dgamma = has_columns ? g.partials + blockIdx.x * g.width : NULL;
    if (has_columns)
        for (uint64_t i = threadIdx.x; i < g.width; i += THREADS)
            dgamma[i] = 0.0f;
    for (uint64_t row = first; row < end; row++) {
        float crossed = has_columns ? add_any_row<TYPE, true>(g, row, dgamma)
                                    : add_any_row<TYPE, false>(g, row, NULL);
        if (!ALL && g.dx == NULL)
            continue;
        crossed = sl_block_sum<THREADS>(crossed, scratch[row % 2]);
        store_any_row<TYPE>(g, row, crossed / (float)g.width);
    }
}

/* The kernel whose teams of TEAM threads hold a row of up to TEAM * VALUES. */
template <sl_type TYPE, bool ALL, int TEAM, int VALUES>
static sl_status launch_backward(const sl_kernel_call *call, const norm_gradient *all)
{
    const norm_gradient g = *all;
    return SL_LAUNCH(call, (uint32_t)count_groups(call->attrs), team_shape<TEAM>::BLOCK, 0,
                     (rmsnorm_backward_rows<TYPE, TEAM, VALUES / sl_pack<TYPE>::COUNT, ALL>), g);
}

template <sl_type TYPE, bool ALL>
static sl_status launch_for_width(const sl_kernel_call *call, const norm_gradient *all)
{
    const norm_gradient g = *all;
    if (g.width % sl_pack<TYPE>::COUNT == 0) {
        if (g.width <= SHORTEST)
            return launch_backward<TYPE, ALL, 8, SHORTEST / 8>(call, all);
        if (g.width <= SHORT)
            return launch_backward<TYPE, ALL, 16, SHORT / 16>(call, all);
        if (g.width <= 128 * 8)
            return launch_backward<TYPE, ALL, 128, 8>(call, all);
        if (g.width <= 256 * 8)
            return launch_backward<TYPE, ALL, 256, 8>(call, all);
        if (g.width <= 256 * 16)
            return launch_backward<TYPE, ALL, 256, 16>(call, all);
        if (g.width <= 512 * 24)
            return launch_backward<TYPE, ALL, 512, 24>(call, all);
    }
    return SL_LAUNCH(call, (uint32_t)count_groups(call->attrs), THREADS, 0,
                     (rmsnorm_backward_any_rows<TYPE, ALL>), g);
}

template <sl_type TYPE>
static sl_status dispatch_backward(const sl_kernel_call *call, const norm_gradient *all)
{
    const bool has_all = all->dx != NULL && all->partials != NULL;
    const bool loads = call->stream == sl_load_only; /* both: later calls may have fewer outputs */
    if (has_all || loads)
        SL_TRY((launch_for_width<TYPE, true>(call, all)));
    return has_all && !loads ? SL_OK : launch_for_width<TYPE, false>(call, all);
}

extern "C" sl_status sl_cuda_rmsnorm_backward(const sl_kernel_call *call)
{
    enum { X, GAMMA, STATS, DY, DX, DGAMMA };
    const sl_op_attrs *attrs = call->attrs;
    const sl_gradient_out dgamma = sl_gradient_out_of(call, call->operand[DGAMMA]);
    const norm_gradient g = {call->operand[X],
                             call->operand[GAMMA],
                             (const float *)call->operand[STATS],
                             call->operand[DY],
                             call->operand[DX],
                             dgamma.to != NULL ? (float *)call->workspace : NULL,
                             attrs->row_count,
                             sl_row_groups_rows(attrs->row_count, find_least_rows(attrs->in)),
                             attrs->in,
                             attrs->gamma_offset,
                             call->operand[DX] != NULL && attrs->adds_output != 0};
    SL_TRY(sl_launch_covers(g.width, "rmsnorm_backward"));
    SL_TRY(SL_BY_TYPE(attrs->type, dispatch_backward, call, &g));
    return dgamma.to == NULL
               ? SL_OK
               : sl_row_groups_add<1>(call, count_groups(attrs), g.width, dgamma, NULL);
}
