/* What an exchange between ranks costs on a described cluster, and one rank of it as a machine.
 *
 * Ranks are laid onto nodes in order, so the members of a group that lie close together share a
 * node. All groups of a kind exchange at the same time and share what leaves a node: of a sum or
 * gather of n bytes over N ranks, g of them a node,
 *
 *   ring      a node's groups each send n (N-1)/N over the network, a rank as much over its link;
 *   pairwise  each rank sends n (N-g)/N over the network, n (g-1)/N over its link;
 *
 * and the slower of both ways counts. A ring has N-1 rounds, pairs have one. An all-reduce is a
 * sum and a gather.
 */
#ifndef SL_MACHINE_EXCHANGE_COST_H
#define SL_MACHINE_EXCHANGE_COST_H

#include "chunk/chunk.h"
#include "cluster_file.h"
#include "comm/groups.h"

/* A sum or a gather among the ranks of one group. */
typedef struct sl_exchange_cost {
    uint32_t ranks;
    bool leaves_node;
    double byte_seconds; /* a byte of what is summed or gathered */
    double seconds;      /* before that */
} sl_exchange_cost;

/* Of a group of tensor- or data-parallel ranks. */
sl_exchange_cost sl_exchange_cost_of(const sl_cluster *cluster, const sl_comm_layout *layout,
                                     sl_comm_group group);

/* Seconds of a sum or a gather of so many bytes; 0 for one rank. */
double sl_exchange_cost_seconds(const sl_exchange_cost *cost, double bytes);

/* Seconds from one stage to the next: each rank sends to one neighbour. */
double sl_exchange_cost_send_seconds(const sl_cluster *cluster, const sl_comm_layout *layout,
                                     double bytes);

/* One rank: that of a machine that is there, or the described GPU and its share of the node, with
 * the exchanges of its groups.
 * grad_bytes: of an element of a stored gradient. */
sl_machine sl_cluster_machine(const sl_cluster *cluster, const sl_comm_layout *layout,
                              uint32_t grad_bytes);

#endif
