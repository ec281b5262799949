/* Which cores the ranks of a machine compute on: each its share of those that it may use, whoever
 * started the ranks and whether or not they were bound. */
#ifndef SL_SESSION_BINDING_H
#define SL_SESSION_BINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

enum { SL_BINDING_CORES = 1024, SL_BINDING_WORDS = SL_BINDING_CORES / 64 };

/* What one rank may use. */
typedef struct sl_binding {
    uint64_t machine;                 /* equal on one machine */
    uint32_t quota;                   /* cores that the machine's cgroup gives time for */
    uint32_t starter_cores;           /* that whoever started the rank may use */
    uint64_t cores[SL_BINDING_WORDS]; /* a bit each */
} sl_binding;

/* Those of a machine, divided. */
typedef struct sl_binding_share {
    uint32_t worker_count; /* this rank's, at least 1 */
    uint32_t rank_count;   /* of this machine */
    uint32_t used_cores;   /* by all of them */
    uint32_t usable_cores; /* that they could use */
} sl_binding_share;

/* Divides the cores of rank `rank` of all [rank_count]: one that n ranks may use counts 1/n to each
 * of them, and together they get no more than the quota. */
sl_binding_share sl_binding_divide(const sl_binding *all, uint32_t rank_count, uint32_t rank);

/* True if the ranks are bound to half of the usable cores or fewer. */
bool sl_binding_wastes(const sl_binding_share *share);

/* Finds this rank's share; all ranks of `world` call it. */
sl_status sl_binding_find(sl_comm *world, sl_binding_share *out_share);

/* What each of `rank_count` ranks would find if this process started them. */
sl_status sl_binding_plan(uint32_t rank_count, sl_binding_share *out_share);

#endif
