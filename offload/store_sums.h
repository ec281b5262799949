/* The checksums of a store: one for each record that was written. Knows no files and no lanes.
 *
 * A record may have been written up to some byte only; behind that it is zeros. All memory is taken
 * when the table opens, and used as records are. Calls on different records may come from
 * different threads at once; on one record only those that read.
 */
#ifndef SL_OFFLOAD_STORE_SUMS_H
#define SL_OFFLOAD_STORE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_store_sums sl_store_sums;

/* A record that is not what was written there. */
typedef struct sl_store_mismatch {
    uint32_t first_byte, bytes; /* of the data that was checked */
    uint64_t expected, found;
} sl_store_mismatch;

/* For `bytes` bytes of address space. SL_ERROR_SYSTEM: no memory. */
sl_status sl_store_sums_open(uint64_t bytes, sl_store_sums **out_sums);
void sl_store_sums_close(sl_store_sums *sums);

/* In the calls below `offset` is that of a record in the store, and `bytes` a multiple of
 * SL_STORE_ALIGNMENT, at most a piece. */

/* Notes that `data` is about to be written there. */
void sl_store_sums_note(sl_store_sums *sums, uint64_t offset, const void *data, uint32_t bytes);

/* True if nothing was ever written there. */
bool sl_store_sums_is_blank(const sl_store_sums *sums, uint64_t offset, uint32_t bytes);

/* Bytes of the record that were written, from its first one on. */
uint32_t sl_store_sums_written_bytes(const sl_store_sums *sums, uint64_t offset);

/* Compares what was read from there, and sets to zero what was never written. The data ends with a
 * record, or not before what was written of it. False if a record differs, which *out_mismatch
 * describes. */
bool sl_store_sums_check(const sl_store_sums *sums, uint64_t offset, void *data, uint32_t bytes,
                         sl_store_mismatch *out_mismatch);

#endif
