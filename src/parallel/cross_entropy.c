/* The cross-entropy of classes that ranks divide, by the statistics of the head's ops.
 *
 * The ops read panels that lie alone, and a caller's row has all classes of the rank. So the loops
 * of the ops run here row by row, over panels of a row. One fp32 sum of half a million exponentials
 * is off by 3e-5; summed by panels it is off by less than 3e-7.
 */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/sized.h"
#include "base/status.h"
#include "ids.h"
#include "kernels/cpu/simd.h"
#include "kernels/rank_stats.h"
#include "team.h"

enum { PANEL_CLASSES = 16384 };

typedef struct entropy {
    sl_parallel_cross_entropy_args args;
    sl_team_part own; /* classes of this rank */
    float *stats;     /* [rows][SL_RANK_STATS_A_ROW] */
} entropy;

static sl_status take_args(const sl_parallel_team *team,
                           const sl_parallel_cross_entropy_args *given, size_t bytes, entropy *out)
{
    sl_parallel_cross_entropy_args *args = &out->args;
    SL_TRY(sl_sized_take("sl_parallel_cross_entropy_args", given, bytes, args, sizeof *args));
    SL_TRY(sl_team_check_product(args->rows, args->classes, "logits of a cross-entropy"));
    if (!args->targets || !args->logits || !args->loss)
        SL_FAIL(SL_ERROR_USAGE, "a cross-entropy needs targets, logits and loss");
    out->own = sl_team_own(team, args->classes, true);
    return sl_ids_check(args->targets, args->rows, args->classes, "target");
}

/* Classes [first, first + count) of this rank's in one row of `logits`. */
static sl_head_rows find_panel(const entropy *it, const float *logits, uint64_t row, uint64_t first,
                               uint64_t count)
{
    return (sl_head_rows){.logits = (float *)logits + row * it->own.count + first,
                          .targets = it->args.targets + row,
                          .stats = it->stats + row * SL_RANK_STATS_A_ROW,
                          .row_count = 1,
                          .column_count = count,
                          .valid_count = count,
                          .first_id = it->own.first + first,
                          .scale = 1.0f / (float)it->args.rows,
                          .type = SL_TYPE_FP32,
                          .add = first > 0};
}

static void measure_row(void *argument, uint64_t row, uint32_t worker_index)
{
    (void)worker_index;
    const entropy *it = argument;
    uint64_t first = 0;
    do { /* without classes: the statistics of nothing */
        const uint64_t count = sl_bits_min(it->own.count - first, PANEL_CLASSES);
        const sl_head_rows panel = find_panel(it, it->args.logits, row, first, count);
        sl_simd_current()->head_stats(&panel);
        first += count;
    } while (first < it->own.count);
}

static void differentiate_row(void *argument, uint64_t row, uint32_t worker_index)
{
    (void)worker_index;
    const entropy *it = argument;
    const sl_head_rows all = find_panel(it, it->args.dlogits, row, 0, it->own.count);
    if (it->args.dlogits != it->args.logits)
        memcpy(all.logits, it->args.logits + row * it->own.count, it->own.count * sizeof(float));
    sl_simd_current()->head_backward(&all);
}

/* The statistics of each rank's classes become those of all. */
static sl_status join_stats(sl_parallel_team *team, const entropy *it, float *parts)
{
    const uint64_t bytes = it->args.rows * SL_RANK_STATS_A_ROW * sizeof(float);
    const sl_op_attrs attrs = {.batch = team->size, .row_count = it->args.rows};
    const sl_kernel_call call = {
        .attrs = &attrs, .operand = {parts, it->stats}, .workers = team->workers};
    if (team->size == 1)
        return SL_OK;
    SL_TRY(sl_comm_all_gather(team->comm, bytes, it->stats, parts));
    return sl_kernels_cpu()->ranks[SL_RANK_STATS](&call);
}

sl_status sl_parallel_cross_entropy_sized(sl_parallel_team *team,
                                          const sl_parallel_cross_entropy_args *args, size_t bytes)
{
    entropy it;
    void *memory;
    uint64_t all, each;
    SL_TRY(take_args(team, args, bytes, &it));
    const uint64_t rows = it.args.rows;
    SL_TRY(sl_bits_multiply(rows, SL_RANK_STATS_A_ROW * sizeof(float), "rows", &each));
    SL_TRY(sl_bits_multiply(each, (uint64_t)team->size + 1, "rows of all ranks", &all));
    SL_TRY(sl_team_take(team, SL_TEAM_PARTS, all, &memory));
    it.stats = (float *)memory + rows * SL_RANK_STATS_A_ROW * team->size;
    sl_workers_run(team->workers, rows, measure_row, &it);
    SL_TRY(join_stats(team, &it, memory));
    const sl_op_attrs attrs = {.row_count = rows};
    SL_TRY(sl_team_compute(team, SL_OP_HEAD_LOSS, &attrs,
                           (const void *[SL_OPERAND_MAX]){it.stats, it.args.loss}));
    *it.args.loss /= (double)rows;
    if (it.args.dlogits && it.own.count > 0)
        sl_workers_run(team->workers, rows, differentiate_row, &it);
    return SL_OK;
}
