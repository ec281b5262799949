/* Communicators: sets of ranks that reduce, gather and exchange together.
 *
 * An sl_comm is one rank's end of a communicator. The world is opened first; tp, dp and pp are
 * split off it. Whatever carries the bytes (nothing, memory that threads or processes of a machine
 * share, MPI), the same calls on the same data give the same bits: a sum is made by exchange and an
 * own loop, in the order of ranks, in fp32, rounded once.
 *
 * Contract of every call: all ranks of the communicator make it, in the same order and with the
 * same sizes (EXCHANGE: the two that are named); a call that differs is refused by all of them,
 * with SL_ERROR_INTERNAL. It blocks as long as the awaited rank makes progress (sl_comm_advance),
 * and fails with SL_ERROR_RANK if that rank has made none for the deadline of the world; the
 * message names it. It fails at once if a rank has died, has left or has called sl_comm_abort.
 * After a failure every later call fails. One thread at a time calls through one end; ends are
 * independent of each other. Nothing allocates after opening.
 */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "groups.h"

typedef struct sl_comm sl_comm;

/* What a sum is of. */
typedef enum sl_comm_type {
    SL_COMM_FP32,
    SL_COMM_BF16,
    SL_COMM_FP16,
    SL_COMM_TYPE_COUNT
} sl_comm_type;

/* Elements as they lie in memory, and as they are summed: each rank's are rounded to `wire`, added
 * in fp32, and the sum is rounded to `wire` once. `stored` is `wire`, or fp32. */
typedef struct sl_comm_types {
    sl_comm_type stored, wire;
} sl_comm_types;

enum {
    SL_COMM_RANKS_MAX = 1024,   /* of a world */
    SL_COMM_RECORD_BYTES = 4096 /* the largest record of sl_comm_merge */
};

/* ---- opening ---- */

typedef enum sl_comm_kind {
    SL_COMM_AUTO,  /* by the environment: what `sluice launch`, mpirun or srun left there; else self
                    */
    SL_COMM_SELF,  /* a world of one */
    SL_COMM_LOCAL, /* processes of one machine, started by `sluice launch` */
    SL_COMM_MPI    /* processes that mpirun or srun started; on several machines by messages */
} sl_comm_kind;

typedef struct sl_comm_options {
    sl_comm_kind kind;
    double timeout_s; /* how long a rank is waited for; 0: 600 */
} sl_comm_options;

/* Opens this process's end of the world; blocks until all ranks have come. SL_ERROR_USAGE if the
 * environment contradicts itself. */
sl_status sl_comm_open(const sl_comm_options *options, sl_comm **out_world);

/* Opens all ends of a world of `size` ranks that are threads of this process. The first closed end
 * may be closed while others are in use. */
sl_status sl_comm_threads_open(uint32_t size, sl_comm **out_ends);

/* Splits a communicator of `member_count` ranks off the world. All ranks of the world call it
 * together, each with the members of its own set, itself among them, in ascending order; sets do
 * not overlap. `name` ("tp", "dp", "pp") is for messages. */
sl_status sl_comm_split(sl_comm *world, const char *name, const uint32_t *members,
                        uint32_t member_count, sl_comm **out_comm);

/* Says that this rank needs no more of it. Others that wait for it fail. The world is closed last.
 * NULL is fine. */
void sl_comm_close(sl_comm *comm);

uint32_t sl_comm_rank(const sl_comm *comm); /* in [0, size) */
uint32_t sl_comm_size(const sl_comm *comm);

/* The rank in the world of its rank `rank`. */
uint32_t sl_comm_member(const sl_comm *comm, uint32_t rank);

/* What carries it: "self", "threads", "local", "mpi". */
const char *sl_comm_carrier(const sl_comm *comm);

/* Which of the ranks on this machine this one is, and how many there are. */
void sl_comm_local(const sl_comm *comm, uint32_t *out_index, uint32_t *out_count);

/* Bytes of memory that its windows take of this machine, over all ranks. */
uint64_t sl_comm_window_bytes(const sl_comm *comm);

/* Of these, what falls to one of the ranks of this machine. */
uint64_t sl_comm_share_bytes(const sl_comm *comm);

/* What sl_comm_share_bytes will say of a communicator of `size` ranks of one machine. */
uint64_t sl_comm_plan_share_bytes(uint32_t size);

/* Bytes that this process has handed to other ranks through communicators of `group`: those that
 * were split off under its name. What several ranks take counts for each of them. Any thread. */
uint64_t sl_comm_sent_bytes(const sl_comm *world, sl_comm_group group);

/* ---- calls ---- */

/* data [count]: the sum over ranks, in place. */
sl_status sl_comm_all_reduce(sl_comm *comm, sl_comm_type type, uint64_t count, void *data);

/* The same where the elements are stored in another type than they are summed in. */
sl_status sl_comm_all_reduce_stored(sl_comm *comm, sl_comm_types types, uint64_t count, void *data);

/* to [starts[rank + 1] - starts[rank]]: this rank's piece of the sum of from [starts[size]]. `to`
 * may be that piece of `from`. starts [size + 1] ascends from 0. */
sl_status sl_comm_reduce_scatter(sl_comm *comm, sl_comm_types types, const uint64_t *starts,
                                 const void *from, void *to);

/* out_parts [size][bytes]: every rank's part, which may stand there already. */
sl_status sl_comm_all_gather(sl_comm *comm, uint64_t bytes, const void *part, void *out_parts);

/* The same with parts of several sizes: starts [size + 1], in bytes, ascends from 0. */
sl_status sl_comm_gather_pieces(sl_comm *comm, const uint64_t *starts, const void *piece,
                                void *out_whole);

/* data [bytes]: what `root` has there. */
sl_status sl_comm_broadcast(sl_comm *comm, uint32_t root, uint64_t bytes, void *data);

/* Adds `other` to `sum`, both records of the call. */
typedef void (*sl_comm_merge_function)(void *sum, const void *other);

/* record [bytes] <= SL_COMM_RECORD_BYTES: those of all ranks, merged in the order of ranks. */
sl_status sl_comm_merge(sl_comm *comm, uint32_t bytes, void *record, sl_comm_merge_function merge);

/* Waits until all ranks are here. */
sl_status sl_comm_barrier(sl_comm *comm);

/* To one neighbour and from one, which may be the same; SL_COMM_NOBODY: not that way. */
typedef struct sl_comm_exchange_args {
    uint32_t to, from;
    const void *send;
    uint64_t send_bytes;
    void *receive;
    uint64_t receive_bytes;
} sl_comm_exchange_args;

#define SL_COMM_NOBODY UINT32_MAX

/* Sends and receives at once. The neighbours make the calls that belong to it. */
sl_status sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args);

/* ---- death ---- */

/* Says, for a message that names this rank, what it does next: shown to others from now on. `op` is
 * copied. Any thread. */
void sl_comm_post(sl_comm *comm, uint64_t step, const char *op);

/* Says that a part of long work between calls is done: ranks that wait for this one count their
 * deadline anew. Any thread. */
void sl_comm_advance(sl_comm *comm);

/* How long a rank is waited for from now on, in seconds: ends split off before keep theirs. */
void sl_comm_set_timeout(sl_comm *world, double seconds);

/* Ends the world for all of its ranks: waits fail, on this machine within a tenth of a second.
 * `reason` (may be NULL) is what their messages quote; the first one stands. Any thread. */
void sl_comm_abort(sl_comm *comm, const char *reason);

/* Ends the world though nothing has failed: all calls of all ranks return SL_ERROR_STOPPED then,
 * with the message `reason`. Any thread. */
void sl_comm_stop(sl_comm *comm, const char *reason);

/* SL_OK, or the failure that the next call would return: never blocks. Any thread. */
sl_status sl_comm_poll(sl_comm *comm);

/* The same for who does not wait in a call, but wants to hear of a rank of this machine that has
 * died: a few system calls. Any thread. */
sl_status sl_comm_look(sl_comm *comm);

/* One thing that must be equal on all ranks: "instruction set", "avx512". */
typedef struct sl_comm_fact {
    const char *name;
    const char *value;
} sl_comm_fact;

/* SL_ERROR_USAGE on all ranks if a fact differs from rank 0's, naming it, a rank and both values.
 * All ranks give the same names, in one order. */
sl_status sl_comm_agree(sl_comm *comm, const sl_comm_fact *facts, uint32_t count);

#endif
