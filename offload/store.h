/* The disk store: one address space over preallocated, nameless files in one or more directories.
 *
 * It knows offsets, bytes and checksums; it knows nothing of chunks, plans and policies. Its space
 * is cut into pieces of SL_STORE_PIECE_BYTES; piece n lies in directory n modulo their number.
 *
 * A record is SL_STORE_RECORD_BYTES of the address space. Each one that is written gets a checksum,
 * which is compared whenever bytes of it are read. Ranges start where a record does. One that ends
 * inside a record has that record for itself: a write leaves the rest of it zeros, whatever was
 * there before. What was never written reads as zeros.
 *
 *   store.c             opens and closes it all; which piece lies in which file
 *   store_pipe.c        ranges -> requests, short transfers, retries, messages
 *   backoff.h           the pauses between requests to a kernel that is too busy
 *   store_sums.c        the checksum of each record that was written
 *   store_file.c        the files: nameless, mode 0600, reserved, direct I/O where it works
 *   transport.h         how requests reach the kernel: a table of a few entries
 *   store_uring.c       ... by io_uring, one ring a lane
 *   store_threads.c     ... by threads, where io_uring is not allowed
 *
 * Checksums take 9 bytes of memory a record: 144 MiB for 1 TiB.
 *
 * Offsets are multiples of SL_STORE_RECORD_BYTES, lengths and addresses of SL_STORE_ALIGNMENT. The
 * caller must not have two ranges with a common record in flight together, but to read both (a
 * plan's waits see to it).
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
    uint64_t bytes;        /* of the address space, above 0; reserved on the disks when it opens */
    void *buffer;          /* memory that all transfers use, to register; NULL: unregistered */
    uint64_t buffer_bytes; /* may be registered in parts of at most 1 GiB */
    uint32_t depth;        /* pieces in flight a lane; 0: the default */
    uint32_t limit_ms;     /* of one request, then the lane fails; 0: the default, two minutes. The
                              time in which the process is stopped does not count */
    const struct sl_transport_ops *transport; /* NULL: io_uring if a probe succeeds, else threads */
} sl_store_options;

typedef struct sl_store sl_store;

/* How the disks would be reached here: "io_uring" or "threads (io_uring: why not)". Valid until the
 * thread asks again. */
const char *sl_store_probe(void);

/* Opens the files and reserves their space. SL_ERROR_IO names directory, bytes needed and bytes
 * free, or what is unsafe about a directory; SL_ERROR_MISSING: no such directory. */
sl_status sl_store_open(const sl_store_options *options, sl_store **out_store);

/* Waits until the system is done with the memory of every request, each at most limit_ms, then
 * closes; NULL is fine. Returns how many requests it had to abandon. If that is not 0, the system
 * may read or write their memory at any later time: it must stay mapped, and unused, until the
 * process ends. */
uint32_t sl_store_close(sl_store *store);

/* Moves one range and blocks until it is done. SL_ERROR_IO: the request that failed, with file,
 * offset and errno, expected and found checksum, or the age of one that never came back. After such
 * a failure every later call of the lane returns the same. An offset, length or address that is not
 * allowed is SL_ERROR_INTERNAL, and the lane goes on. */
sl_status sl_store_read(sl_store *store, uint64_t offset, void *data, uint64_t bytes);
sl_status sl_store_write(sl_store *store, uint64_t offset, const void *data, uint64_t bytes);

/* For people: "io_uring, 32 x 1 MiB, registered buffers, 64 MiB locked" or "threads (io_uring: not
 * permitted)". What is locked is what both lanes together count against `ulimit -l`. */
const char *sl_store_description(const sl_store *store);

typedef struct sl_store_counts {
    uint64_t read_bytes, written_bytes; /* that reached the disks */
    uint64_t requests, short_transfers, retries;
} sl_store_counts;

/* Since the store was opened; no lane may be at work. */
sl_store_counts sl_store_count(const sl_store *store);

#endif
