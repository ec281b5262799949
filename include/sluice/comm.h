/* Communicators: ranks that add, gather and exchange arrays, in a training loop of a program's own.
 *
 * A rank is a process, and an sl_comm is its end of a communicator. sl_comm_open makes the world:
 * all processes that `sluice launch`, mpirun or srun started. Other communicators are split off it.
 * Layers over a communicator are in sluice/parallel.h. A program that only opens sessions needs
 * neither: a session has communicators of its own.
 *
 *     sl_comm *world = NULL;
 *     float sum[2] = {1, 2};
 *     sl_status status = sl_comm_open(0, &world);
 *     if (status == SL_OK)
 *         status = sl_comm_all_reduce(world, SL_COMM_FP32, 2, sum);
 *     if (status != SL_OK)
 *         fprintf(stderr, "%s\n", sl_status_message());
 *     sl_comm_close(world);
 *
 * Calls: all ranks of a communicator make the same calls, in the same order and with the same
 * sizes. A call blocks until this rank's result is there. Arrays are host memory, of any alignment
 * that their type has.
 *
 * Sums: the terms are added in the order of ranks, in fp32, and the sum is rounded once. So all
 * ranks get the same bits, and the bits do not depend on what carries the data: memory of one
 * machine, or MPI between machines.
 *
 * Threads: at most one thread at a time calls the functions of one end; sl_comm_advance and
 * sl_comm_abort are the exception. Different ends may be used by different threads at the same
 * time.
 *
 * Errors: SL_ERROR_RANK: a rank has died, has closed its end, has called sl_comm_abort, or has made
 * no progress for the deadline of the world; the message names the rank. SL_ERROR_INTERNAL: the
 * ranks made different calls, or an argument is wrong. After a failure of a call between ranks all
 * later calls of the world fail, on all ranks.
 *
 * Nothing of the process is touched: no signal handler, no allocator, no standard stream. Between
 * machines the MPI library is loaded and initialised, and does as it likes.
 */
#ifndef SLUICE_COMM_H
#define SLUICE_COMM_H

#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's end of a communicator. */
typedef struct sl_comm sl_comm;

/* What a sum is of. */
typedef enum sl_comm_type {
    SL_COMM_FP32, /* float */
    SL_COMM_BF16, /* the upper half of a float, in a uint16_t */
    SL_COMM_FP16, /* IEEE half precision, in a uint16_t */
    SL_COMM_TYPE_COUNT
} sl_comm_type;

/* Opens this process's end of the world, and waits until all ranks have come. `timeout_s` is the
 * deadline of the world: the seconds for which a rank without progress is waited for; 0: 600.
 * Started without ranks, a process is a world of one. A process may have several worlds open, and
 * open another after one is closed; sessions, sl_evaluate, sl_generate and sl_profile open one
 * each. The n-th world that a rank opens is the n-th of every other rank, so all ranks open their
 * worlds in the same order. If ranks are on several machines, a process opens one world in its
 * life. SL_ERROR_USAGE: the environment contradicts itself. SL_ERROR_RANK: a rank did not come, or
 * has ended. SL_ERROR_SYSTEM: no memory, no MPI library, or MPI has ended in this process. */
SL_API sl_status sl_comm_open(double timeout_s, sl_comm **out_world);

/* Opens a world of `size` ranks that are threads of this process: out_ends [size]. Each thread uses
 * one end. SL_ERROR_USAGE: no ranks, or more than 256. SL_ERROR_SYSTEM: no memory. */
SL_API sl_status sl_comm_threads_open(uint32_t size, sl_comm **out_ends);

/* Splits a communicator of `member_count` ranks off the world. All ranks of the world make the call
 * together, each with the members of its own set: ranks of the world, itself among them, in
 * ascending order. Sets do not overlap. `name`, such as "tp", stands in messages. Rank i of the new
 * communicator is members[i]. SL_ERROR_SYSTEM: no memory; there is room for about 15 communicators
 * as large as the world, and a closed one gives none back. */
SL_API sl_status sl_comm_split(sl_comm *world, const char *name, const uint32_t *members,
                               uint32_t member_count, sl_comm **out_comm);

/* Closes this rank's end. Ranks that wait for this one then fail. The world is closed last. NULL is
 * fine. */
SL_API void sl_comm_close(sl_comm *comm);

/* Which rank of the communicator this is, from 0, and how many there are. */
SL_API uint32_t sl_comm_rank(const sl_comm *comm);
SL_API uint32_t sl_comm_size(const sl_comm *comm);

/* data [count]: becomes the sum over ranks. */
SL_API sl_status sl_comm_all_reduce(sl_comm *comm, sl_comm_type type, uint64_t count, void *data);

/* to [count]: this rank's piece of the sum over ranks of from [size, count]. `to` may be that piece
 * of `from`. */
SL_API sl_status sl_comm_reduce_scatter(sl_comm *comm, sl_comm_type type, uint64_t count,
                                        const void *from, void *to);

/* out_parts [size, bytes]: every rank's `part`, in the order of ranks. `part` may be this rank's
 * place in `out_parts`. */
SL_API sl_status sl_comm_all_gather(sl_comm *comm, uint64_t bytes, const void *part,
                                    void *out_parts);

/* data [bytes]: becomes what rank `root` has there. */
SL_API sl_status sl_comm_broadcast(sl_comm *comm, uint32_t root, uint64_t bytes, void *data);

/* Waits until all ranks are here. */
SL_API sl_status sl_comm_barrier(sl_comm *comm);

/* No rank, for an exchange in one direction. */
#define SL_COMM_NOBODY UINT32_MAX

/* What sl_comm_exchange does. No later version adds a field. */
typedef struct sl_comm_exchange_args {
    uint32_t to, from;   /* ranks other than this one, which may be the same; SL_COMM_NOBODY: this
                            rank sends nothing, receives nothing */
    const void *send;    /* [send_bytes] */
    uint64_t send_bytes; /* as many as rank `to` receives */
    void *receive;       /* [receive_bytes] */
    uint64_t receive_bytes;
} sl_comm_exchange_args;

/* Sends to one rank and receives from one, both at once. Only these ranks make the call, each with
 * the arguments of its side. */
SL_API sl_status sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args);

/* Says that this rank makes progress, in long work between two calls: ranks that wait for it count
 * their deadline anew. Any thread. */
SL_API void sl_comm_advance(sl_comm *comm);

/* Ends the world for all of its ranks: their calls fail with SL_ERROR_RANK, on this machine within
 * a tenth of a second. `reason` stands in their messages and may be NULL. For a rank that gives up
 * after a failure of its own. Any thread. */
SL_API void sl_comm_abort(sl_comm *comm, const char *reason);

#ifdef __cplusplus
}
#endif
#endif
