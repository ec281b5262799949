/* Which ranks of a run share a machine, and how fast the machines exchange.
 *
 * The rate is measured between the ranks of this run: each rank sends to the rank of the next
 * machine with the same place there, all at once, so that what a whole machine sends is known. No
 * file says it.
 */
#ifndef SL_SESSION_MACHINES_H
#define SL_SESSION_MACHINES_H

#include "machine/cluster_file.h"
#include "ranks.h"

typedef struct sl_machines {
    uint32_t count;          /* of machines */
    uint32_t ranks_each;     /* 0: they differ, or ranks of a machine are not consecutive */
    sl_cluster_link network; /* between a whole machine and the others; of several machines of which
                                ranks_each is known */
} sl_machines;

/* All ranks call it, and get the same; a process that is alone is one machine of one rank.
 * SL_ERROR_SYSTEM: no memory. */
sl_status sl_machines_measure(const sl_ranks *ranks, sl_machines *out_machines);

#endif
