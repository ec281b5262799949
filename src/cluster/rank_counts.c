/* See rank_counts.h. */
#include "rank_counts.h"

#include <stdlib.h>

static const double worth = 1.05; /* of the least GPU time */

/* The number after `ranks`; 0 before the first. */
static uint64_t find_next(const sl_cluster *cluster, uint64_t ranks)
{
    const uint32_t node = cluster->node_gpus;
    if (ranks >= node)
        return 2 * ranks;
    for (ranks++; node % ranks != 0;)
        ranks++;
    return ranks;
}

static double gpu_seconds(const sl_cluster_count *it)
{
    return it->ranks * it->best.step_seconds;
}

static void choose_count(sl_cluster_counts *counts)
{
    double least = gpu_seconds(&counts->items[0]);
    for (uint32_t i = 1; i < counts->count; i++)
        if (gpu_seconds(&counts->items[i]) < least)
            least = gpu_seconds(&counts->items[i]);
    counts->chosen = counts->count - 1;
    while (gpu_seconds(&counts->items[counts->chosen]) > worth * least)
        counts->chosen--;
}

/* One that does not divide or fit is passed over. */
static sl_status try_count(sl_cluster_question *question, uint32_t ranks, sl_cluster_answer *answer,
                           sl_cluster_counts *counts)
{
    question->job.ranks = ranks;
    const sl_status status = sl_cluster_choose(question, answer);
    if (status == SL_ERROR_FIT)
        counts->too_few = ranks;
    if (status == SL_ERROR_FIT || status == SL_ERROR_USAGE)
        return SL_OK;
    SL_TRY(status);
    counts->items[counts->count++] = (sl_cluster_count){ranks, answer->best[0]};
    return SL_OK;
}

/* A node whose GPUs have no network stands alone. */
static uint32_t find_most(const sl_cluster *cluster, uint32_t most)
{
    const bool is_alone = cluster->network.byte_rate <= 0;
    return is_alone && cluster->node_gpus < most ? cluster->node_gpus : most;
}

sl_status sl_cluster_count_ranks(const sl_cluster_question *question, uint32_t most,
                                 sl_cluster_counts *out_counts)
{
    const sl_cluster *cluster = question->job.cluster;
    sl_cluster_question each = *question;
    sl_status status = SL_OK;
    sl_cluster_answer *answer = calloc(1, sizeof *answer);
    if (!answer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for numbers of GPUs");
    each.plans = false;
    out_counts->count = out_counts->too_few = 0;
    for (uint64_t ranks = find_next(cluster, 0);
         status == SL_OK && ranks <= find_most(cluster, most) &&
         out_counts->count < SL_CLUSTER_COUNTS;
         ranks = find_next(cluster, ranks))
        status = try_count(&each, (uint32_t)ranks, answer, out_counts);
    free(answer);
    SL_TRY(status);
    if (out_counts->count > 0)
        choose_count(out_counts);
    else if (out_counts->too_few > 0)
        SL_FAIL(SL_ERROR_FIT, "%u GPUs do not hold the model", out_counts->too_few);
    else
        SL_FAIL(SL_ERROR_USAGE,
                "no number of GPUs up to %u divides so: leave --tp, --pp, --dp and --micro-batch "
                "open, or change --global-batch",
                find_most(cluster, most));
    return SL_OK;
}
