/* The checksums of a store: one for each record that was written. Knows no files and no lanes.
 *
 * A record may be written up to some byte only; the rest is zeros. The table is allocated when it
 * opens; its pages become resident as records are used. Different threads may call at once for
 * different records; for one record only if all of them read.
 */
#ifndef SL_OFFLOAD_STORE_SUMS_H
#define SL_OFFLOAD_STORE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_store_sums sl_store_sums;

/* A record whose content differs from what was written. */
typedef struct sl_store_mismatch {
    uint32_t first_byte, bytes; /* of the data that was checked */
    uint64_t expected, found;
} sl_store_mismatch;

/* For `bytes` bytes of address space. SL_ERROR_SYSTEM: no memory. */
sl_status sl_store_sums_open(uint64_t bytes, sl_store_sums **out_sums);
void sl_store_sums_close(sl_store_sums *sums);

/* In the calls below `offset` is the start of a record, and `bytes` a multiple of
 * SL_STORE_ALIGNMENT and at most a piece. */

/* Stores the checksums of `data`, which is about to be written at `offset`. */
void sl_store_sums_note(sl_store_sums *sums, uint64_t offset, const void *data, uint32_t bytes);

/* True if the range was never written. */
bool sl_store_sums_is_blank(const sl_store_sums *sums, uint64_t offset, uint32_t bytes);

/* Bytes of the record that were written, counted from its start. */
uint32_t sl_store_sums_written_bytes(const sl_store_sums *sums, uint64_t offset);

/* Checks bytes that were read from `offset`, and sets those that were never written to zero. The
 * data must end at the end of a record, or not before the end of the record's written bytes. False
 * if a record differs; *out_mismatch says which. */
bool sl_store_sums_check(const sl_store_sums *sums, uint64_t offset, void *data, uint32_t bytes,
                         sl_store_mismatch *out_mismatch);

#endif
