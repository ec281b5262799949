/* How many GPUs of a described cluster a job is worth.
 *
 * Tried are the divisors of a node's GPUs, then one node, two, four, ... Each number of GPUs gets
 * its fastest combination by estimate. More GPUs make a step shorter and take more GPU time for it,
 * because they exchange more; too few take more because states have to travel. The answer is the
 * most GPUs whose GPU time of a step is at most a twentieth above the least of all: they end
 * soonest for what the run costs anyway.
 */
#ifndef SL_CLUSTER_RANK_COUNTS_H
#define SL_CLUSTER_RANK_COUNTS_H

#include "choose.h"

enum { SL_CLUSTER_COUNTS = 64 };

typedef struct sl_cluster_count {
    uint32_t ranks;
    sl_cluster_estimate best;
} sl_cluster_count;

/* Those that hold the model and divide the rows, ascending. */
typedef struct sl_cluster_counts {
    sl_cluster_count items[SL_CLUSTER_COUNTS];
    uint32_t count, chosen;
    uint32_t too_few; /* the largest number that was tried and does not hold the model; 0: none */
} sl_cluster_counts;

/* `question` without its ranks; of at most `most` GPUs. SL_ERROR_FIT: none of the numbers holds the
 * model; SL_ERROR_USAGE: none divides; SL_ERROR_SYSTEM. */
sl_status sl_cluster_count_ranks(const sl_cluster_question *question, uint32_t most,
                                 sl_cluster_counts *out_counts);

#endif
