/* The checksums of a store: two arrays, by the index of the record. No lock: lanes at work at once
 * never have a record in common. */
#include "store_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "store.h"

struct sl_store_sums {
    uint64_t *sums;
    uint8_t *pages; /* per record: pages of SL_STORE_ALIGNMENT bytes that were written; 0: none */
};

_Static_assert(SL_STORE_RECORD_BYTES / SL_STORE_ALIGNMENT <= UINT8_MAX, "pages fit");
_Static_assert(SL_STORE_PIECE_BYTES % SL_STORE_RECORD_BYTES == 0, "records are in one piece");

/* Bytes of a range in the record that begins at byte `done` of the range. */
static uint32_t record_part(uint32_t bytes, uint32_t done)
{
    uint32_t left = bytes - done;
    return left < SL_STORE_RECORD_BYTES ? left : SL_STORE_RECORD_BYTES;
}

uint32_t sl_store_sums_written_bytes(const sl_store_sums *sums, uint64_t offset)
{
    return (uint32_t)sums->pages[offset / SL_STORE_RECORD_BYTES] * SL_STORE_ALIGNMENT;
}

void sl_store_sums_note(sl_store_sums *sums, uint64_t offset, const void *data, uint32_t bytes)
{
    for (uint32_t done = 0; done < bytes; done += SL_STORE_RECORD_BYTES) {
        uint64_t record = (offset + done) / SL_STORE_RECORD_BYTES;
        uint32_t part = record_part(bytes, done);
        sums->sums[record] = sl_hash_64((const char *)data + done, part);
        sums->pages[record] = (uint8_t)(part / SL_STORE_ALIGNMENT);
    }
}

bool sl_store_sums_is_blank(const sl_store_sums *sums, uint64_t offset, uint32_t bytes)
{
    for (uint32_t done = 0; done < bytes; done += SL_STORE_RECORD_BYTES)
        if (sl_store_sums_written_bytes(sums, offset + done) > 0)
            return false;
    return true;
}

bool sl_store_sums_check(const sl_store_sums *sums, uint64_t offset, void *data, uint32_t bytes,
                         sl_store_mismatch *out_mismatch)
{
    for (uint32_t done = 0; done < bytes; done += SL_STORE_RECORD_BYTES) {
        uint64_t expected = sums->sums[(offset + done) / SL_STORE_RECORD_BYTES];
        uint32_t written = sl_store_sums_written_bytes(sums, offset + done);
        char *start = (char *)data + done;
        uint64_t found = written > 0 ? sl_hash_64(start, written) : expected;
        if (found != expected) {
            *out_mismatch = (sl_store_mismatch){done, written, expected, found};
            return false;
        }
        memset(start + written, 0, record_part(bytes, done) - written);
    }
    return true;
}

sl_status sl_store_sums_open(uint64_t bytes, sl_store_sums **out_sums)
{
    uint64_t count = sl_bits_divide_up(bytes, SL_STORE_RECORD_BYTES);
    sl_store_sums *sums = calloc(1, sizeof *sums);
    if (sums != NULL) {
        sums->sums = calloc(count, sizeof *sums->sums);
        sums->pages = calloc(count, sizeof *sums->pages);
    }
    if (sums == NULL || sums->sums == NULL || sums->pages == NULL) {
        sl_store_sums_close(sums);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the disk tier's %llu checksums",
                (unsigned long long)count);
    }
    *out_sums = sums;
    return SL_OK;
}

void sl_store_sums_close(sl_store_sums *sums)
{
    if (sums == NULL)
        return;
    free(sums->sums);
    free(sums->pages);
    free(sums);
}
