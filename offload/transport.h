/* How requests of one lane reach the kernel: one table per transport.
 *
 * Contract of every entry: one thread at a time; a request belongs to the transport from submit
 * until wait returns it, with `result` set as a system call would (bytes moved, or -errno). At most
 * `depth` requests are in flight. A transport does not judge results.
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
    const int *files; /* open descriptors; borrowed; NULL with owns_files */
    uint32_t file_count;
    uint64_t file_bytes; /* of the largest file */
    bool is_cached;      /* some file uses the page cache: a write completes only when its bytes are
                            on the disk, so that the kernel can drop them from memory */
    uint32_t depth;
    uint32_t wait_ms; /* how long one wait lasts */
    void *buffer;     /* to register, or NULL */
    uint64_t buffer_bytes;
    const sl_transport *sibling; /* has the same buffer, whose registration may be shared; NULL:
                                    none */
} sl_transport_options;

typedef struct sl_transport_ops {
    const char *name;
    bool owns_files; /* the store opens no files: the transport keeps the bytes, as in a test's
                        memory */

    /* SL_ERROR_SYSTEM: this transport does not work here; the message says why. */
    sl_status (*open)(const sl_transport_options *options, sl_transport **out_transport);

    /* Submits `count` requests. If the kernel is too busy for some, wait submits them again. On
     * failure no request was taken. */
    sl_status (*submit)(sl_transport *transport, sl_transport_request *const *requests,
                        uint32_t count);

    /* Blocks until at least one request has completed, or for wait_ms. Writes up to `most`
     * completed requests; fewer only if there are no more. Fails if the system will never report
     * how the requests ended. */
    sl_status (*wait)(sl_transport *transport, sl_transport_request **out_requests, uint32_t most,
                      uint32_t *out_count);

    /* Closes at once; the caller has waited for its requests. A request still in flight is
     * abandoned: the system may read or write its `data` at any later time, so that memory must
     * stay mapped, and unused, until the process ends. The caller may close the files: an abandoned
     * request never reaches another file that gets the same descriptor number. */
    void (*close)(sl_transport *transport);

    /* What is special about the transport: "registered buffers"; "" if nothing. */
    const char *(*note)(const sl_transport *transport);

    /* Bytes locked in memory beyond those of the sibling; they count against the limit of locked
     * memory (ulimit -l). */
    uint64_t (*locked_bytes)(const sl_transport *transport);
} sl_transport_ops;

extern const sl_transport_ops sl_transport_uring, sl_transport_threads;

#endif
