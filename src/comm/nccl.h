/* Sums and gathers between GPUs: elements in device memory, exchanged by NCCL and added by a kernel
 * in the order of ranks, so that the bits are those of every other communicator.
 *
 * An sl_nccl goes with an end of a communicator whose carrier is the hosts': there the ranks meet
 * before each call, compare what they call, name who is missing, and end together. So a call waits
 * for others on the host, with their deadline, and NCCL only for the devices. One call at a time:
 * communication kernels that run beside each other may wait for each other for ever.
 *
 * NCCL is loaded when it is first used, and its communicators do not block: after each call its
 * asynchronous error is looked at until it is there or the patience is over. After a failure the
 * communicator is aborted, which is given five seconds, and every later call fails.
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
} sl_nccl_calls;

/* ---- a communicator ---- */

typedef struct sl_nccl sl_nccl;

typedef struct sl_nccl_options {
    sl_comm *host;              /* the same ranks; used by these calls alone while it is open */
    const sl_nccl_calls *calls; /* NULL: of libnccl.so.2 */
    void *stream;               /* of CUDA: everything is queued there, behind what is in it */
    void *scratch;              /* device memory, 256 B aligned */
    uint64_t scratch_bytes;     /* 256 for each rank at least; a sum is made in pieces that fit */
    double timeout_s;           /* how long the devices may take for one call */
    /* Queues a sum of terms in device memory in the stream: sl_wire_sum says of what. */
    sl_status (*sum)(void *user, const sl_wire_sum_args *args);
    /* Whether everything in the stream has run; never blocks. */
    sl_status (*is_done)(void *user, bool *out_is_done);
    void *user;
} sl_nccl_options;

/* Opens it and exchanges something with every peer, so that NCCL takes now what it takes. All ranks
 * call it together, as every call below; each blocks until the device is done. SL_ERROR_SYSTEM:
 * there is no NCCL, or it fails. SL_ERROR_RANK, SL_ERROR_INTERNAL: as of comm.h. */
sl_status sl_nccl_open(const sl_nccl_options *options, sl_nccl **out_nccl);
void sl_nccl_close(sl_nccl *nccl);

/* data [count]: the sum over ranks, in place. */
sl_status sl_nccl_all_reduce(sl_nccl *nccl, sl_comm_type type, uint64_t count, void *data);

/* to [starts[rank + 1] - starts[rank]]: this rank's piece of the sum of from [starts[size]]; `to`
 * may be that piece of `from`. */
sl_status sl_nccl_reduce_scatter(sl_nccl *nccl, sl_comm_type type, const uint64_t *starts,
                                 const void *from, void *to);

/* starts [size + 1], in bytes: every rank's piece in the whole; this rank's may lie there already,
 * else the caller copies it. */
sl_status sl_nccl_gather_pieces(sl_nccl *nccl, const uint64_t *starts, void *whole);

#endif
