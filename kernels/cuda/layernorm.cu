/* Layer normalisation over rows (Ba et al. 2016). A row is read once and stays in registers, so the
 * variance is taken in a second pass over it and does not cancel. Up to NARROW wide, a warp has a
 * row to itself and needs no barrier; up to WIDEST, a block of 256 has it. Any other width (rows
 * that are no multiple of sixteen bytes, or wider) is walked three times, out of the caches.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                                        sm_80                sm_90
 *   layernorm_any_rows<bf16>                         24    459    104     27    463    104
 *   layernorm_backward_any_rows<bf16, false>         32     19     32     32     19     32
 *   layernorm_backward_any_rows<bf16, true>          32     40     32     32     41     32
 *   layernorm_backward_rows<bf16, 128, 1, false>     71    303    104     72    301    104
 *   layernorm_backward_rows<bf16, 128, 1, true>      71    300    104     72    298    104
 *   layernorm_backward_rows<bf16, 256, 1, false>     71    316    104     73    313    104
 *   layernorm_backward_rows<bf16, 256, 1, true>      70    314    104     76    309    104
 *   layernorm_backward_rows<bf16, 256, 2, false>    122    573    200    126    577    200
 *   layernorm_backward_rows<bf16, 256, 2, true>     120    518    200    120    521    200
 *   layernorm_backward_rows<bf16, 512, 3, false>    125    724    296    120    734    296
 *   layernorm_backward_rows<bf16, 512, 3, true>     125    721    296    120    731    296
 *   layernorm_rows<bf16, 32, 4>                      64    369    264     64    377    264
 *   layernorm_rows<bf16, 32, 8>                      96    672    520     96    682    520
 *   layernorm_rows<bf16, 256, 2>                     48    254    136     48    268    136
 *   layernorm_rows<bf16, 256, 6>                     79    553    392     79    566    392
 */
#include "reduce.cuh"
#include "row_groups.cuh"
#include "typed.cuh"

enum { THREADS = 256, WARP_BLOCK = 128 };

#define EPSILON 1e-5f

typedef struct norm_rows {
    const void *x, *gamma, *beta;
    void *y;
    float *stats; /* [row_count, 2] */
    uint64_t row_count, width;
} norm_rows;

/* Of the threads that share a row. */
template <int TEAM> static __device__ __forceinline__ uint32_t find_member(void)
{
    return threadIdx.x % TEAM;
}

template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ float sum_packs(const sl_pack<TYPE> (&x)[PACKS], uint32_t packs)
{
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + find_member<TEAM>() < packs)
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
                sum += x[p].value[i];
    return sum;
}

/* The sum of squared distances from the mean, which is taken off for good. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ float centre_packs(sl_pack<TYPE> (&x)[PACKS], uint32_t packs,
                                                     float mean)
{
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + find_member<TEAM>() < packs)
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                x[p].value[i] -= mean;
                sum = fmaf(x[p].value[i], x[p].value[i], sum);
            }
    return sum;
}

/* Moves the minimum, and reads gamma and beta again for every row, out of the caches. So few blocks
 * a multiprocessor keep bytes enough on their way, and a row in registers. */
template <sl_type TYPE, int TEAM, int PACKS>
static __global__ void __launch_bounds__(TEAM == SL_WARP ? WARP_BLOCK : TEAM,
                                         TEAM == SL_WARP ? 4 : 2) layernorm_rows(norm_rows rows)
{
    __shared__ float scratch[2][TEAM / SL_WARP];
    const int COUNT = sl_pack<TYPE>::COUNT;
    const uint32_t member = find_member<TEAM>(), packs = (uint32_t)rows.width / COUNT;
    const uint64_t row = (uint64_t)blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM;
    if (row >= rows.row_count) /* whole warps */
        return;
    sl_pack<TYPE> x[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs)
            x[p] = sl_load_pack<TYPE>(rows.x, row * rows.width + (p * TEAM + member) * COUNT);
    const float sum = sl_team_sum<TEAM>(sum_packs<TYPE, TEAM>(x, packs), scratch[0]);
    const float mean = sum / (float)rows.width;
    const float squares = sl_team_sum<TEAM>(centre_packs<TYPE, TEAM>(x, packs, mean), scratch[1]);
    const float inverse = 1.0f / sqrtf(squares / (float)rows.width + EPSILON);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs) {
            const uint32_t column = (p * TEAM + member) * COUNT;
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(rows.gamma, column);
            const sl_pack<TYPE> beta = sl_load_pack<TYPE>(rows.beta, column);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x[p].value[i] = fmaf(x[p].value[i] * inverse, gamma.value[i], beta.value[i]);
            sl_store_pack<TYPE>(rows.y, row * rows.width + column, x[p]);
        }
    if (member == 0) {
        rows.stats[2 * row] = mean;
        rows.stats[2 * row + 1] = inverse;
    }
}

/* Any width. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS) layernorm_any_rows(norm_rows rows)
{
    __shared__ float scratch[2][THREADS / SL_WARP];
    const uint64_t row = blockIdx.x, first = row * rows.width;
    float sum = 0.0f, squares = 0.0f;
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS)
        sum += sl_load<TYPE>(rows.x, first + i);
    const float mean = sl_block_sum<THREADS>(sum, scratch[0]) / (float)rows.width;
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float distance = sl_load<TYPE>(rows.x, first + i) - mean;
        squares = fmaf(distance, distance, squares);
    }
    squares = sl_block_sum<THREADS>(squares, scratch[1]);
    const float inverse = 1.0f / sqrtf(squares / (float)rows.width + EPSILON);
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float normal = (sl_load<TYPE>(rows.x, first + i) - mean) * inverse;
        sl_store<TYPE>(rows.y, first + i,
                       fmaf(normal, sl_load<TYPE>(rows.gamma, i), sl_load<TYPE>(rows.beta, i)));
    }
    if (threadIdx.x == 0) {
        rows.stats[2 * row] = mean;
        rows.stats[2 * row + 1] = inverse;
    }
}

/* The kernel whose threads hold a row of up to TEAM * VALUES. */
template <sl_type TYPE, int TEAM, int VALUES>
static sl_status launch_forward(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    const uint32_t block = TEAM == SL_WARP ? WARP_BLOCK : TEAM, rows_a_block = block / TEAM;
    const uint64_t grid = sl_bits_divide_up(rows.row_count, rows_a_block);
    return SL_LAUNCH(call, (uint32_t)grid, block, 0,
                     (layernorm_rows<TYPE, TEAM, VALUES / sl_pack<TYPE>::COUNT>), rows);
}

template <sl_type TYPE>
static sl_status dispatch_forward(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    if (rows.width % sl_pack<TYPE>::COUNT == 0) {
        if (rows.width <= SL_WARP * 32)
            return launch_forward<TYPE, SL_WARP, 32>(call, all);
        if (rows.width <= SL_WARP * 64)
            return launch_forward<TYPE, SL_WARP, 64>(call, all);
        if (rows.width <= THREADS * 16)
            return launch_forward<TYPE, THREADS, 16>(call, all);
        if (rows.width <= THREADS * 48)
            return launch_forward<TYPE, THREADS, 48>(call, all);
    }
    return SL_LAUNCH(call, (uint32_t)rows.row_count, THREADS, 0, layernorm_any_rows<TYPE>, rows);
}

extern "C" sl_status sl_cuda_layernorm(const sl_kernel_call *call)
{
    const norm_rows rows = {call->operand[0], call->operand[1],          call->operand[2],
                            call->operand[3], (float *)call->operand[4], call->attrs->row_count,
                            call->attrs->in};
    SL_TRY(sl_launch_covers(rows.row_count, "layernorm"));
    return SL_BY_TYPE(call->attrs->type, dispatch_forward, call, &rows);
}

/* ---- backward
 *
 * A block owns a fixed group of rows and walks it: x and dy of a row are read once and stay in
 * registers over the one barrier that its two sums need, and each thread keeps dgamma and dbeta of
 * its own columns over the whole group. Groups leave these in the workspace, where a second kernel
 * adds them in a fixed order.
 *
 * Moves, beyond the minimum, 8 bytes a column for each group of 8 rows or more: at most 512 groups.
 */

enum { GROUP_ROWS_LEAST = 8 };

typedef struct norm_gradient {
    const void *x, *gamma;
    const float *stats; /* [row_count, 2] */
    const void *dy;
    void *dx;        /* NULL: not computed */
    float *partials; /* [groups, 2, width]: dgamma, dbeta; NULL: not computed */
    uint64_t row_count, group_rows, width;
    bool accumulate;
} norm_gradient;

static uint64_t count_groups(uint64_t row_count)
{
    return sl_row_groups_count(row_count, GROUP_ROWS_LEAST);
}

extern "C" uint64_t sl_cuda_layernorm_backward_workspace_bytes(sl_op_kind, const sl_op_attrs *attrs,
                                                               uint32_t)
{
    return count_groups(attrs->row_count) * 2 * attrs->in * sizeof(float);
}

/* A row as it was loaded; what dx held comes along only where there are registers for it. */
template <sl_type TYPE, int TEAM, int PACKS> struct row_packs {
    enum {
        AHEAD = PACKS <= 2 /* the next row is loaded while this one is summed */
    };
    uint4 x[PACKS], dy[PACKS], dx[PACKS];
    float mean, inverse;
};

/* The column of a thread's pack `p`. */
template <sl_type TYPE, int TEAM> static __device__ __forceinline__ uint32_t find_column(int p)
{
    return (p * TEAM + threadIdx.x) * sl_pack<TYPE>::COUNT;
}

template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ void load_row(const norm_gradient &g, uint64_t row,
                                                row_packs<TYPE, TEAM, PACKS> *out)
{
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < g.width) {
            out->x[p] = sl_load_raw<TYPE>(g.x, row * g.width + column);
            out->dy[p] = sl_load_raw<TYPE>(g.dy, row * g.width + column);
            if (row_packs<TYPE, TEAM, PACKS>::AHEAD && g.accumulate)
                out->dx[p] = sl_load_raw<TYPE>(g.dx, row * g.width + column);
        }
    }
    out->mean = g.stats[2 * row];
    out->inverse = g.stats[2 * row + 1];
}

typedef struct row_sums {
    float plain, crossed; /* of dy gamma, and of dy gamma times the normalised x */
} row_sums;

/* One thread's part of a row's sums; adds the row to dgamma and dbeta of its columns. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ row_sums add_row(const norm_gradient &g,
                                                   const row_packs<TYPE, TEAM, PACKS> &row,
                                                   sl_pack<TYPE> (&dgamma)[PACKS],
                                                   sl_pack<TYPE> (&dbeta)[PACKS])
{
    row_sums sums = {0.0f, 0.0f};
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < g.width) {
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(g.gamma, column);
            const sl_pack<TYPE> x = sl_widen_pack<TYPE>(row.x[p]);
            const sl_pack<TYPE> dy = sl_widen_pack<TYPE>(row.dy[p]);
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                const float normal = (x.value[i] - row.mean) * row.inverse;
                const float d = dy.value[i] * gamma.value[i];
                sums.plain += d;
                sums.crossed = fmaf(d, normal, sums.crossed);
                dgamma[p].value[i] = fmaf(dy.value[i], normal, dgamma[p].value[i]);
                dbeta[p].value[i] += dy.value[i];
            }
        }
    }
    return sums;
}

/* Every thread gets both sums of the whole row, with one barrier: the next row uses the other
 * scratch, and who writes this one again has passed a barrier after everyone read it. */
template <int TEAM>
static __device__ __forceinline__ row_sums sum_over_block(row_sums mine,
                                                          float (*scratch)[TEAM / SL_WARP])
{
    const int warp = threadIdx.x / SL_WARP;
    mine.plain = sl_warp_sum(mine.plain);
    mine.crossed = sl_warp_sum(mine.crossed);
    if (threadIdx.x % SL_WARP == 0) {
        scratch[0][warp] = mine.plain;
        scratch[1][warp] = mine.crossed;
    }
    __syncthreads();
    row_sums sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < TEAM / SL_WARP; i++) {
        sums.plain += scratch[0][i];
        sums.crossed += scratch[1][i];
    }
    return sums;
}

/* dx of one row; `means` are its sums over its width. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ void store_row(const norm_gradient &g, uint64_t index,
                                                 const row_packs<TYPE, TEAM, PACKS> &row,
                                                 row_sums means)
{
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const uint32_t column = find_column<TYPE, TEAM>(p);
        if (column < g.width) {
            const uint64_t at = index * g.width + column;
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(g.gamma, column);
            const sl_pack<TYPE> x = sl_widen_pack<TYPE>(row.x[p]);
            sl_pack<TYPE> d = sl_widen_pack<TYPE>(row.dy[p]), old = {};
            if (g.accumulate)
                old = sl_widen_pack<TYPE>(
                    row_packs<TYPE, TEAM, PACKS>::AHEAD ? row.dx[p] : sl_load_raw<TYPE>(g.dx, at));
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                const float normal = (x.value[i] - row.mean) * row.inverse;
                const float centred =
                    fmaf(d.value[i], gamma.value[i], -means.plain) - normal * means.crossed;
                d.value[i] =
                    g.accumulate ? fmaf(centred, row.inverse, old.value[i]) : centred * row.inverse;
            }
            sl_store_pack<TYPE>(g.dx, at, d);
        }
    }
}

/* ALL: dx and the partials are wanted; so this case has no branches for the others. */
template <sl_type TYPE, int TEAM, int PACKS, bool ALL>
static __global__ void __launch_bounds__(TEAM) layernorm_backward_rows(norm_gradient g)
{
    __shared__ float scratch[2][2][TEAM / SL_WARP];
    typedef row_packs<TYPE, TEAM, PACKS> packs;
    const uint64_t first = blockIdx.x * g.group_rows,
                   end = sl_row_groups_end(g.group_rows, g.row_count);
    sl_pack<TYPE> dgamma[PACKS] = {}, dbeta[PACKS] = {};
    packs now = {}, next = {};
    load_row<TYPE, TEAM, PACKS>(g, first, &now);
    for (uint64_t row = first; row < end; row++) {
        if (packs::AHEAD && row + 1 < end)
            load_row<TYPE, TEAM, PACKS>(g, row + 1, &next);
        row_sums sums = add_row<TYPE, TEAM, PACKS>(g, now, dgamma, dbeta);
        if (ALL || g.dx != NULL) {
            sums = sum_over_block<TEAM>(sums, scratch[row % 2]);
            const row_sums means = {sums.plain / (float)g.width, sums.crossed / (float)g.width};
            store_row<TYPE, TEAM, PACKS>(g, row, now, means);
        }
        if (packs::AHEAD)
            now = next;
        else if (row + 1 < end)
            load_row<TYPE, TEAM, PACKS>(g, row + 1, &now);
    }
    if (!ALL && g.partials == NULL)
        return;
    float *sums = g.partials + blockIdx.x * 2 * g.width;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (find_column<TYPE, TEAM>(p) < g.width) {
            sl_store_floats(sums, find_column<TYPE, TEAM>(p), dgamma[p].value);
            sl_store_floats(sums + g.width, find_column<TYPE, TEAM>(p), dbeta[p].value);
        }
}

/* One thread's part of the sums of a row of any width; with HAS_COLUMNS adds the row to dgamma and
 * dbeta of its columns. */
template <sl_type TYPE, bool HAS_COLUMNS>
static __device__ __forceinline__ row_sums add_any_row(const norm_gradient &g, uint64_t row,
                                                       float *dgamma, float *dbeta)
{
    const float mean = g.stats[2 * row], inverse = g.stats[2 * row + 1];
    row_sums sums = {0.0f, 0.0f};
    for (uint64_t i = threadIdx.x; i < g.width; i += THREADS) {
        const float dy = sl_load<TYPE>(g.dy, row * g.width + i);
        const float normal = (sl_load<TYPE>(g.x, row * g.width + i) - mean) * inverse;
        const float d = dy * sl_load<TYPE>(g.gamma, i);
        sums.plain += d;
        sums.crossed = fmaf(d, normal, sums.crossed);
        if (HAS_COLUMNS) {
            dgamma[i] = fmaf(dy, normal, dgamma[i]);
            dbeta[i] += dy;
        }
    }
    return sums;
}

/* dx of one row of any width; `means` are its sums over its width. */
template <sl_type TYPE>
static __device__ __forceinline__ void store_any_row(const norm_gradient &g, uint64_t row,
                                                     row_sums means)
{
    const float mean = g.stats[2 * row], inverse = g.stats[2 * row + 1];
    for (uint64_t i = threadIdx.x; i < g.width; i += THREADS) {
        const uint64_t at = row * g.width + i;
        const float normal = (sl_load<TYPE>(g.x, at) - mean) * inverse;
        const float d = fmaf(sl_load<TYPE>(g.dy, at), sl_load<TYPE>(g.gamma, i), -means.plain) -
                        normal * means.crossed;
        const float old = g.accumulate ? sl_load<TYPE>(g.dx, at) : 0.0f;
        sl_store<TYPE>(g.dx, at, fmaf(d, inverse, old));
    }
}

/* Any width: rows are read twice, and the group's sums stand in the workspace from the start. */
template <sl_type TYPE, bool ALL>
static __global__ void __launch_bounds__(THREADS) layernorm_backward_any_rows(norm_gradient g)
{
    __shared__ float scratch[2][2][THREADS / SL_WARP];
    const uint64_t first = blockIdx.x * g.group_rows,
                   end = sl_row_groups_end(g.group_rows, g.row_count);
    const bool has_columns = ALL || g.partials != NULL;
    float *dgamma = has_columns ? g.partials + blockIdx.x * 2 * g.width : NULL;
    float *dbeta = has_columns ? dgamma + g.width : NULL;
    if (has_columns)
        for (uint64_t i = threadIdx.x; i < g.width; i += THREADS)
            dgamma[i] = dbeta[i] = 0.0f;
    for (uint64_t row = first; row < end; row++) {
        row_sums sums = has_columns ? add_any_row<TYPE, true>(g, row, dgamma, dbeta)
                                    : add_any_row<TYPE, false>(g, row, NULL, NULL);
        if (!ALL && g.dx == NULL)
            continue;
        sums = sum_over_block<THREADS>(sums, scratch[row % 2]);
        store_any_row<TYPE>(g, row, {sums.plain / (float)g.width, sums.crossed / (float)g.width});
    }
}

/* The kernel whose block of TEAM threads holds a row of up to TEAM * VALUES. */
template <sl_type TYPE, bool ALL, int TEAM, int VALUES>
static sl_status launch_backward(const sl_kernel_call *call, const norm_gradient *all)
{
    const norm_gradient g = *all;
    return SL_LAUNCH(call, (uint32_t)count_groups(g.row_count), TEAM, 0,
                     (layernorm_backward_rows<TYPE, TEAM, VALUES / sl_pack<TYPE>::COUNT, ALL>), g);
}

template <sl_type TYPE, bool ALL>
static sl_status launch_for_width(const sl_kernel_call *call, const norm_gradient *all)
{
    const norm_gradient g = *all;
    if (g.width % sl_pack<TYPE>::COUNT == 0) {
        if (g.width <= 128 * 8)
            return launch_backward<TYPE, ALL, 128, 8>(call, all);
        if (g.width <= 256 * 8)
            return launch_backward<TYPE, ALL, 256, 8>(call, all);
        if (g.width <= 256 * 16)
            return launch_backward<TYPE, ALL, 256, 16>(call, all);
        if (g.width <= 512 * 24)
            return launch_backward<TYPE, ALL, 512, 24>(call, all);
    }
    return SL_LAUNCH(call, (uint32_t)count_groups(g.row_count), THREADS, 0,
                     (layernorm_backward_any_rows<TYPE, ALL>), g);
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

extern "C" sl_status sl_cuda_layernorm_backward(const sl_kernel_call *call)
{
    const uint64_t width = call->attrs->in, group_count = count_groups(call->attrs->row_count);
    void *dx = call->operand[4], *dbeta = call->operand[6]; /* dbeta is stored as dgamma is */
    const sl_gradient_out dgamma = sl_gradient_out_of(call, call->operand[5]);
    const bool has_columns = dgamma.to != NULL || dbeta != NULL;
    const norm_gradient g = {call->operand[0],
                             call->operand[1],
                             (const float *)call->operand[2],
                             call->operand[3],
                             dx,
                             has_columns ? (float *)call->workspace : NULL,
                             call->attrs->row_count,
                             sl_row_groups_rows(call->attrs->row_count, GROUP_ROWS_LEAST),
                             width,
                             dx != NULL && call->attrs->adds_output != 0};
    SL_TRY(sl_launch_covers(width, "layernorm_backward"));
    SL_TRY(SL_BY_TYPE(call->attrs->type, dispatch_backward, call, &g));
    if (!has_columns)
        return SL_OK;
    return sl_row_groups_add<2>(call, group_count, width, dgamma, dbeta);
}
