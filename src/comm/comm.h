/* Communicators, as the engine uses them: what sluice/comm.h has, with the same contract, and what
 * is ours alone.
 *
 * Whatever carries the bytes (nothing, memory that threads or processes of a machine share, MPI),
 * the same calls on the same data give the same bits: a sum is made by exchange and an own loop, in
 * the order of ranks, in fp32, rounded once. Nothing allocates after opening.
 */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "groups.h"
#include "sluice/comm.h"

/* Elements as they lie in memory, and as they are summed: each rank's are rounded to `wire`, added
 * in fp32, and the sum is rounded to `wire` once. `stored` is `wire`, or fp32. */
typedef struct sl_comm_types {
    sl_comm_type stored, wire;
} sl_comm_types;

enum {
    SL_COMM_RANKS_MAX = 1024,   /* of a world */
    SL_COMM_RECORD_BYTES = 4096 /* the largest record of sl_comm_merge */
};

/* ---- an end ---- */

/* The rank in the world of its rank `rank`. */
uint32_t sl_comm_member(const sl_comm *comm, uint32_t rank);

/* Which of the ranks on this machine this one is, and how many there are. */
void sl_comm_local(const sl_comm *comm, uint32_t *out_index, uint32_t *out_count);

/* The first of its ranks that is on this machine, by its rank in the world. */
uint32_t sl_comm_first_local(const sl_comm *comm);

/* Bytes of memory that its windows take of this machine, divided by its ranks here. */
uint64_t sl_comm_share_bytes(const sl_comm *comm);

/* What sl_comm_share_bytes will say of a communicator of `size` ranks of one machine. */
uint64_t sl_comm_plan_share_bytes(uint32_t size);

/* Bytes that this process has handed to other ranks through communicators of `group`: those that
 * were split off under its name. What several ranks take counts for each of them. Any thread. */
uint64_t sl_comm_sent_bytes(const sl_comm *world, sl_comm_group group);

/* ---- calls ---- */

/* sl_comm_all_reduce of elements that are stored in another type than they are summed in. */
sl_status sl_comm_all_reduce_stored(sl_comm *comm, sl_comm_types types, uint64_t count, void *data);

/* to [starts[rank + 1] - starts[rank]]: this rank's piece of the sum of from [starts[size]]. `to`
 * may be that piece of `from`. starts [size + 1] ascends from 0. */
sl_status sl_comm_reduce_scatter_pieces(sl_comm *comm, sl_comm_types types, const uint64_t *starts,
                                        const void *from, void *to);

/* starts [size + 1] of equal pieces. SL_ERROR_USAGE: all together are 2^64 elements or more. */
sl_status sl_comm_find_starts(uint32_t size, uint64_t each, uint64_t *out_starts);

/* sl_comm_all_gather of parts of several sizes: starts [size + 1], in bytes, ascends from 0. */
sl_status sl_comm_gather_pieces(sl_comm *comm, const uint64_t *starts, const void *piece,
                                void *out_whole);

/* Adds `other` to `sum`, both records of the call. */
typedef void (*sl_comm_merge_function)(void *sum, const void *other);

/* record [bytes] <= SL_COMM_RECORD_BYTES: those of all ranks, merged in the order of ranks. */
sl_status sl_comm_merge(sl_comm *comm, uint32_t bytes, void *record, sl_comm_merge_function merge);

/* *seconds becomes the longest of all ranks. */
sl_status sl_comm_find_longest(sl_comm *comm, double *seconds);

/* ---- death ---- */

/* Says, for a message that names this rank, what it does next: shown to others from now on. `op` is
 * copied. Any thread. */
void sl_comm_post(sl_comm *comm, uint64_t step, const char *op);

/* How long a rank is waited for from now on, in seconds: ends split off before keep theirs. */
void sl_comm_set_timeout(sl_comm *world, double seconds);

/* Ends the world though nothing has failed: all calls of all ranks return SL_ERROR_STOPPED then,
 * with the message `reason`. Any thread. */
void sl_comm_stop(sl_comm *comm, const char *reason);

/* SL_OK, or the failure that the next call would return: never blocks. Any thread. */
sl_status sl_comm_poll(sl_comm *comm);

/* How long a rank that is a process may give no sign of life (watch.h); 60 s at first. */
void sl_comm_set_heartbeat(sl_comm *world, double seconds);

/* From now on this rank does, or no longer does, one thing that may take long without a call, such
 * as a save: others wait for it while its process lives (watch.h). Any thread. */
void sl_comm_set_work(sl_comm *world, bool is_at_work);

/* `lost` is called once when the run has ended, as soon as a rank of this machine notices it, while
 * this one may be in no call: not from threads that are ranks. It may call no communicator. NULL:
 * nobody listens any more; a call of `lost` under way has returned. */
void sl_comm_listen(sl_comm *world, void (*lost)(void *user), void *user);

/* One thing that must be equal on all ranks: "instruction set", "avx512". */
typedef struct sl_comm_fact {
    const char *name;
    const char *value;
} sl_comm_fact;

/* SL_ERROR_USAGE on all ranks if a fact differs from rank 0's, naming it, a rank and both values.
 * All ranks give the same names, in one order. */
sl_status sl_comm_agree(sl_comm *comm, const sl_comm_fact *facts, uint32_t count);

#endif
