/* Finds the fastest combinations of options for training on a described cluster.
 *
 * All combinations of the open options are counted. Each whose fullest rank fits gets a lower bound
 * of its time; they are simulated in the order of that bound until no other can be among the best.
 * So the answer is exact within the rules of estimate.h, and depends on the question alone.
 */
#ifndef SL_CLUSTER_CHOOSE_H
#define SL_CLUSTER_CHOOSE_H

#include "estimate.h"

enum { SL_CLUSTER_OPEN = -1, SL_CLUSTER_BEST = 3 };

/* Costs of layers that were planned. */
typedef struct sl_cluster_samples sl_cluster_samples;

typedef struct sl_cluster_question {
    sl_cluster_job job;
    /* Numbers that are fixed; 0: open. */
    uint32_t tensor, data, stages, micro_batch;
    /* What is fixed; SL_CLUSTER_OPEN: it is not. */
    int zero, recompute, policy, accumulation, is_gpipe;
    bool plans; /* a candidate that this version can run is planned whole and verified */
    /* Shared by questions that differ in ranks, in rows of a step and in what is fixed; NULL: the
     * question has its own. */
    sl_cluster_samples *samples;
} sl_cluster_question;

/* The candidate that misses least of those that do not fit. */
typedef struct sl_cluster_miss {
    sl_cluster_candidate candidate;
    sl_tier tier;
    uint64_t missing_bytes, budget_bytes;
} sl_cluster_miss;

typedef struct sl_cluster_answer {
    sl_cluster_estimate best[SL_CLUSTER_BEST]; /* each the best of its layout; the fastest first */
    sl_layer_costs costs[SL_CLUSTER_BEST];
    uint32_t count;
    uint64_t considered, fitting, simulated;
    uint32_t sampled; /* layers that were planned */
    sl_cluster_miss miss;
} sl_cluster_answer;

/* SL_ERROR_SYSTEM. */
sl_status sl_cluster_samples_open(sl_cluster_samples **out_samples);
void sl_cluster_samples_close(sl_cluster_samples *samples);

/* SL_ERROR_USAGE: nothing divides so; SL_ERROR_FIT: nothing fits, and *out_answer has the miss. */
sl_status sl_cluster_choose(const sl_cluster_question *question, sl_cluster_answer *out_answer);

#endif
