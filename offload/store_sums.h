/* The checksums of a store: one for each part that was written, a part being what one range has
 * in one piece. Knows no files and no lanes.
 *
 * Memory: 16 bytes a part, 40 a piece. Room for a part at every block of every piece is mapped when
 * the table opens, one layer for each part a piece may have, and takes memory only where it is
 * used: no call allocates. */
#ifndef SL_OFFLOAD_STORE_SUMS_H
#define SL_OFFLOAD_STORE_SUMS_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_store_sums sl_store_sums;

typedef enum sl_store_part {
    SL_STORE_PART_BLANK, /* nothing was ever written there */
    SL_STORE_PART_WHOLE, /* this is a part as it was last written */
    SL_STORE_PART_CUT    /* something was written there, but not this part */
} sl_store_part;

/* For `bytes` bytes of address space. */
sl_status sl_store_sums_open(uint64_t bytes, sl_store_sums **out_sums);
void sl_store_sums_close(sl_store_sums *sums);

/* Notes that this part is about to be written; parts that it overlaps are gone. Any thread. */
void sl_store_sums_note(sl_store_sums *sums, uint64_t offset, uint32_t bytes, uint64_t sum);

/* Says what is known of this part; writes its sum where it is whole. Any thread. */
sl_store_part sl_store_sums_find(sl_store_sums *sums, uint64_t offset, uint32_t bytes,
                                 uint64_t *out_sum);

#endif
