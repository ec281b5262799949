/* The disk store: one address space over preallocated, nameless files in one or more directories.
 *
 * It knows offsets, bytes and checksums; it knows nothing of chunks, plans and policies. Its space
 * is striped in pieces of SL_STORE_PIECE_BYTES: piece n lies in directory n modulo their number.
 *
 * A record is SL_STORE_RECORD_BYTES of the address space. Each record that is written gets a
 * checksum, which is compared whenever bytes of the record are read. Ranges start at the start of a
 * record. A range that ends inside a record owns the whole record: a write sets the rest of it to
 * zeros. Records that were never written read as zeros.
 *
 *   store.c             opens and closes; which piece lies in which file
 *   store_pipe.c        ranges -> requests, short transfers, retries, messages
 *   backoff.h           the pauses between requests to a kernel that is too busy
 *   store_sums.c        the checksum of each record that was written
 *   store_file.c        the files: nameless, mode 0600, preallocated, direct I/O where it works
 *   transport.h         how requests reach the kernel: a table of a few entries
 *   store_uring.c       ... by io_uring, one ring per lane
 *   store_threads.c     ... by threads, where io_uring is not allowed
 *
 * Checksums take 9 bytes of memory per record: 144 MiB for 1 TiB.
 *
 * Offsets are multiples of SL_STORE_RECORD_BYTES, lengths and addresses of SL_STORE_ALIGNMENT. The
 * caller must not have two ranges with a common record in flight at once, unless both are read (the
 * waits of a plan ensure this).
 */
#ifndef SL_OFFLOAD_STORE_H
#define SL_OFFLOAD_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_STORE_ALIGNMENT = 4096, SL_STORE_RECORD_BYTES = 1 << 16, SL_STORE_PIECE_BYTES = 1 << 20 };

/* Each lane is used by one thread at a time and has a ring, or threads, of its own. */
typedef enum sl_store_lane { SL_STORE_READ, SL_STORE_WRITE, SL_STORE_LANE_COUNT } sl_store_lane;

struct sl_transport_ops;

typedef struct sl_store_options {
    const char *const *directories; /* at least one; each must be safe to write to */
    uint32_t directory_count;
    uint64_t bytes;        /* of the address space, above 0; reserved on the disks at opening */
    void *buffer;          /* the memory of all transfers, to be registered; NULL: unregistered */
    uint64_t buffer_bytes; /* registered in parts of at most 1 GiB */
    uint32_t depth;        /* pieces in flight a lane; 0: the default */
    uint32_t limit_ms;     /* how long one request may take before the lane fails; 0: the default,
                              two minutes. Time in which the process is stopped does not count */
    const struct sl_transport_ops *transport; /* NULL: io_uring if a probe succeeds, else threads */
} sl_store_options;

typedef struct sl_store sl_store;

/* The transport that this machine would use: "io_uring" or "threads (io_uring: why not)". Valid
 * until the thread's next call. */
const char *sl_store_probe(void);

/* Opens the files and reserves their space. SL_ERROR_IO names directory, bytes needed and bytes
 * free, or what is unsafe about a directory; SL_ERROR_MISSING: no such directory. */
sl_status sl_store_open(const sl_store_options *options, sl_store **out_store);

/* Waits until the system has finished every request, each for at most limit_ms, then closes; NULL
 * is fine. Returns the number of abandoned requests. If it is not 0, the system may still read or
 * write their memory at any later time: the memory must stay mapped, and unused, until the process
 * ends. */
uint32_t sl_store_close(sl_store *store);

/* Moves one range and blocks until it is done. SL_ERROR_IO: a request failed; the message has file,
 * offset and errno, expected and found checksum, or the age of a request that never completed.
 * After such a failure every later call of the lane returns it. SL_ERROR_INTERNAL: an offset,
 * length or address that is not allowed; the lane goes on. */
sl_status sl_store_read(sl_store *store, uint64_t offset, void *data, uint64_t bytes);
sl_status sl_store_write(sl_store *store, uint64_t offset, const void *data, uint64_t bytes);

/* For people: "io_uring, 32 x 1 MiB, registered buffers, 64 MiB locked" or "threads (io_uring: not
 * permitted)". The locked memory is what both lanes together count against `ulimit -l`. */
const char *sl_store_description(const sl_store *store);

typedef struct sl_store_counts {
    uint64_t read_bytes, written_bytes; /* written or read on the disks */
    uint64_t requests, short_transfers, retries;
} sl_store_counts;

/* Counts since the store was opened; no lane may be in a call. */
sl_store_counts sl_store_count(const sl_store *store);

#endif
