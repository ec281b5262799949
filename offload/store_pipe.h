/* One lane of the disk store: cuts a range into parts, keeps up to `depth` of them in flight, and
 * checks the results. Shares files and checksums with the other lane. */
#ifndef SL_OFFLOAD_STORE_PIPE_H
#define SL_OFFLOAD_STORE_PIPE_H

#include <stdint.h>

#include "base/status.h"
#include "store.h"
#include "store_file.h"
#include "store_sums.h"
#include "transport.h"

typedef struct sl_store_pipe_options {
    const sl_transport_ops *ops;
    sl_transport *transport; /* closed with the pipe; the caller's if the pipe does not open */
    const sl_store_file *files;
    uint32_t file_count;
    sl_store_sums *sums;
    uint32_t depth, limit_ms;
    uint32_t wait_ms; /* how long one wait of the transport lasts; shorter than limit_ms */
    sl_store_lane lane;
} sl_store_pipe_options;

typedef struct sl_store_pipe sl_store_pipe;

/* Borrows files and sums until the pipe is closed. SL_ERROR_SYSTEM: no memory. */
sl_status sl_store_pipe_open(const sl_store_pipe_options *options, sl_store_pipe **out_pipe);

/* Waits for every request, each at most limit_ms, and closes. Returns how many it had to abandon:
 * see `close` in transport.h for their memory. */
uint32_t sl_store_pipe_close(sl_store_pipe *pipe);

/* Moves one range and blocks; errors as of sl_store_read. After a failure no request of the range
 * is in flight, unless the transport cannot say what became of its requests, or one never
 * completed. */
sl_status sl_store_pipe_move(sl_store_pipe *pipe, uint64_t offset, char *data, uint64_t bytes);

/* The transport's note; "" if there is none. */
const char *sl_store_pipe_note(const sl_store_pipe *pipe);

/* Bytes that the transport keeps locked in memory. */
uint64_t sl_store_pipe_locked_bytes(const sl_store_pipe *pipe);

/* Adds the counts of this lane. */
void sl_store_pipe_count(const sl_store_pipe *pipe, sl_store_counts *counts);

#endif
