/* The ranks of this machine, or of several like it, as a cluster, so that a layout is chosen for
 * them as for a described one. Rates and budgets are those of a search: what train will plan with.
 */
#ifndef SL_CLUSTER_HERE_H
#define SL_CLUSTER_HERE_H

#include "machine/cluster_file.h"
#include "search/search.h"

/* `search`: of one rank, with its share of the machine (sl_ranks_share), which `node_ranks` ranks
 * have. `network`: what joins machines; NULL: there is one. *out_cluster borrows *out_rank. */
void sl_cluster_here(const sl_search *search, uint32_t node_ranks, const sl_cluster_link *network,
                     sl_cluster_rank *out_rank, sl_cluster *out_cluster);

#endif
