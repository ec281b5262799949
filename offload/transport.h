/* How requests of one lane reach the kernel. One table for each way; store.c is the only caller.
 *
 * Contract of every entry: one thread at a time; a request belongs to the transport from submit
 * until wait hands it back, with `result` set as a system call would leave it (bytes moved, or
 * -errno). At most `depth` requests are out. A transport judges no result.
 */
#ifndef SL_OFFLOAD_TRANSPORT_H
#define SL_OFFLOAD_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_transport sl_transport;

typedef struct sl_transport_request {
    uint32_t file; /* index into the transport's files */
    bool is_write;
    uint64_t offset; /* in the file */
    void *data;
    uint32_t bytes;
    int32_t result; /* out */
} sl_transport_request;

typedef struct sl_transport_options {
    const int *files; /* open descriptors; borrowed; NULL where owns_files */
    uint32_t file_count;
    uint64_t file_bytes; /* of the largest file */
    uint32_t depth;
    uint32_t limit_ms; /* how long wait and close wait for the kernel */
    void *buffer;      /* to register, or NULL */
    uint64_t buffer_bytes;
} sl_transport_options;

typedef struct sl_transport_ops {
    const char *name;
    bool owns_files; /* the store opens none: its bytes lie elsewhere, as in a test's memory */

    /* SL_ERROR_SYSTEM: not possible here; the message says why. */
    sl_status (*open)(const sl_transport_options *options, sl_transport **out_transport);

    /* Hands `count` requests to the kernel at once. A failure means that none was taken; what the
     * kernel refuses after it took others comes back from wait with the reason as its result. */
    sl_status (*submit)(sl_transport *transport, sl_transport_request *const *requests,
                        uint32_t count);

    /* Blocks until at least one request has come back; writes up to `most` of them. None: nothing
     * has for limit_ms. */
    sl_status (*wait)(sl_transport *transport, sl_transport_request **out_requests, uint32_t most,
                      uint32_t *out_count);

    /* Waits until every request has come back, at most limit_ms, then closes. Requests that have
     * not come back by then, or had not when wait gave up, are abandoned: the kernel may still read
     * or write their `data` long after this call. So the caller must not use that memory for
     * anything else; freed, it must not come back into use in this process. */
    void (*close)(sl_transport *transport);

    /* What is special about it: "registered buffers"; "" if nothing. */
    const char *(*note)(const sl_transport *transport);
} sl_transport_ops;

extern const sl_transport_ops sl_transport_uring, sl_transport_threads;

#endif
