/* Sums and gathers between GPUs: elements in device memory, exchanged by NCCL and added by a kernel
 * in the order of ranks, so that the bits are those of every other communicator.
 *
 * An sl_nccl goes with an end of a communicator whose carrier is the hosts': there the ranks meet
 * before each call, compare what they call, name who is missing, and end together. So a call waits
 * for others on the host, with their deadline, and NCCL only for the devices. A call queues its
 * work in a stream and returns. Two communicators are used in one order on all ranks and through
 * one stream: communication kernels that run beside each other may wait for each other for ever.
 *
 * A thread watches what is queued: NCCL's asynchronous error, the other ranks' end, and how long
 * the device has not come to the end of a call. If one of them says so the communicator is aborted,
 * which ends its kernels, so that the stream goes on; sl_nccl_poll, and every later call, then
 * returns why. An abort is given five seconds.
 *
 * NCCL is loaded when it is first used (nccl_load.c), and its communicators do not block.
 */
#ifndef SL_COMM_NCCL_H
#define SL_COMM_NCCL_H

#include <stddef.h>

#include "comm.h"
#include "wire.h"

/* ---- the library, as far as it is used; tests/cuda/nccl_header.c holds this against its header */

typedef struct sl_nccl_id {
    char bytes[128];
} sl_nccl_id;

typedef enum sl_nccl_result { SL_NCCL_SUCCESS = 0, SL_NCCL_IN_PROGRESS = 7 } sl_nccl_result;

enum { SL_NCCL_INT8 = 0 }; /* of ncclDataType_t: bytes travel */

/* The configuration as version 2.14 knew it, which later versions complete. */
typedef struct sl_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} sl_nccl_config;

typedef struct sl_nccl_calls {
    int (*get_unique_id)(sl_nccl_id *out_id);
    int (*init)(void **out_comm, int rank_count, sl_nccl_id id, int rank, sl_nccl_config *config);
    int (*get_async_error)(void *comm, int *out_error);
    int (*finalize)(void *comm);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *data, size_t count, int type, int peer, void *comm, void *stream);
    int (*receive)(void *data, size_t count, int type, int peer, void *comm, void *stream);
    const char *(*get_error_string)(int result);
    int (*get_version)(int *out_version); /* 22105: 2.21.5 */
} sl_nccl_calls;

/* ---- a communicator ---- */

typedef struct sl_nccl sl_nccl;

/* Where calls queue their work, and what they may use until it has run. */
typedef struct sl_nccl_queue {
    void *stream;           /* of CUDA */
    void *scratch;          /* device memory, 256 B aligned */
    uint64_t scratch_bytes; /* 256 for each rank at least, twice that where elements are rounded on
                               their way; a sum is made in pieces that fit */
} sl_nccl_queue;

/* A sum of terms in device memory, as sl_wire_sum makes it. Term i stands `apart` elements behind
 * the one before. */
typedef struct sl_nccl_sum {
    sl_comm_types types;
    uint64_t count, apart;
    uint32_t term_count, own_index;
    const void *terms, *own;
    void *out_wire, *out_stored; /* out_wire may be NULL */
} sl_nccl_sum;

enum { SL_NCCL_MARKS = 2 };

/* Work of the device: each queues something in `stream`. */
typedef struct sl_nccl_device {
    sl_status (*sum)(void *stream, const sl_nccl_sum *what);
    /* to [count] of `to_type` = from [count] of `from_type`; equal types: the same bytes. */
    sl_status (*convert)(void *stream, sl_comm_type from_type, sl_comm_type to_type, uint64_t count,
                         const void *from, void *to);
    /* Moves mark `which` of SL_NCCL_MARKS behind all that is queued; tells, from any thread,
     * whether the device has passed it. */
    sl_status (*mark)(void *user, uint32_t which, void *stream);
    sl_status (*is_passed)(void *user, uint32_t which, bool *out_is_passed);
    void *user;
} sl_nccl_device;

typedef struct sl_nccl_options {
    sl_comm *host;              /* the same ranks; used by these calls alone while it is open */
    sl_comm *account;           /* whose sent bytes are counted; NULL: host's */
    const sl_nccl_calls *calls; /* NULL: of libnccl.so.2 */
    sl_nccl_queue queue;        /* of the meeting */
    double timeout_s;           /* how long the device may take for what is queued */
    sl_nccl_device device;
} sl_nccl_options;

/* The calls of libnccl.so.2, loaded for good. SL_ERROR_SYSTEM: it cannot be loaded. */
sl_status sl_nccl_load(const sl_nccl_calls **out_calls);

/* Opens it and exchanges something with every peer, so that NCCL takes now what it takes, and waits
 * for that. All ranks call it together, as every call below but where another thread is named.
 * SL_ERROR_SYSTEM: there is no NCCL, or it fails. SL_ERROR_RANK, SL_ERROR_INTERNAL: as of comm.h.
 */
sl_status sl_nccl_open(const sl_nccl_options *options, sl_nccl **out_nccl);

/* What was queued has run, or a call has failed. NULL is fine. */
void sl_nccl_close(sl_nccl *nccl);

/* Of the calls that follow. Not a call of all ranks. */
void sl_nccl_use(sl_nccl *nccl, const sl_nccl_queue *queue);

/* From now on; any thread. */
void sl_nccl_set_timeout(sl_nccl *nccl, double timeout_s);

/* SL_OK, or why what was queued is lost. Any thread; blocks for an abort alone. */
sl_status sl_nccl_poll(sl_nccl *nccl);

/* data [count]: the sum over ranks, in place. */
sl_status sl_nccl_all_reduce(sl_nccl *nccl, sl_comm_types types, uint64_t count, void *data);

/* to [starts[rank + 1] - starts[rank]]: this rank's piece of the sum of from [starts[size]]; `to`
 * may be that piece of `from`. */
sl_status sl_nccl_reduce_scatter(sl_nccl *nccl, sl_comm_types types, const uint64_t *starts,
                                 const void *from, void *to);

/* out_parts [size][bytes], `bytes` even: every rank's part, which may stand there already. */
sl_status sl_nccl_all_gather(sl_nccl *nccl, uint64_t bytes, const void *part, void *out_parts);

/* To rank `peer` and from it, both at once; NULL: not that way. These two ranks alone call it, and
 * in an order that one exchange at a time drains. */
sl_status sl_nccl_exchange(sl_nccl *nccl, uint32_t peer, uint64_t bytes, const void *given,
                           void *taken);

#endif
