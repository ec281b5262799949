/* The checksums of a store. A piece's parts never overlap and stand in layers 0 to count - 1, in no
 * order; a bit for each block says whether it was ever written. One lock: it is taken once for each
 * part of up to 1 MiB. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MADV_NOHUGEPAGE */

#include "store_sums.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "store.h"

enum { BLOCKS = SL_STORE_PIECE_BYTES / SL_STORE_ALIGNMENT, WORD_BITS = 64 };

typedef struct part {
    uint64_t sum;
    uint16_t first_block, block_count;
} part;

typedef struct piece {
    uint64_t written[BLOCKS / WORD_BITS];
    uint16_t part_count;
} piece;

struct sl_store_sums {
    pthread_mutex_t lock;
    uint64_t piece_count;
    piece *pieces;
    part *parts; /* [BLOCKS][piece_count] */
    uint64_t part_bytes;
};

_Static_assert(sizeof(part) == 16 && sizeof(piece) == 40, "store_sums.h and store.h say so");

/* Where a part lies: block numbers inside a piece. */
typedef struct place {
    uint64_t piece_index;
    uint32_t first_block, block_count;
} place;

static place place_of(uint64_t offset, uint32_t bytes)
{
    return (place){.piece_index = offset / SL_STORE_PIECE_BYTES,
                   .first_block = (uint32_t)(offset % SL_STORE_PIECE_BYTES) / SL_STORE_ALIGNMENT,
                   .block_count = bytes / SL_STORE_ALIGNMENT};
}

static part *part_at(sl_store_sums *sums, uint64_t piece_index, uint32_t layer)
{
    return &sums->parts[layer * sums->piece_count + piece_index];
}

static bool overlaps(const part *one, const place *other)
{
    return one->first_block < other->first_block + other->block_count &&
           other->first_block < (uint32_t)one->first_block + one->block_count;
}

static void forget_overlapped(sl_store_sums *sums, const place *where)
{
    piece *home = &sums->pieces[where->piece_index];
    for (uint32_t layer = 0; layer < home->part_count;) {
        part *old = part_at(sums, where->piece_index, layer);
        if (overlaps(old, where))
            *old = *part_at(sums, where->piece_index, --home->part_count);
        else
            layer++;
    }
}

static void mark_written(piece *home, const place *where)
{
    for (uint32_t i = where->first_block; i < where->first_block + where->block_count; i++)
        home->written[i / WORD_BITS] |= UINT64_C(1) << i % WORD_BITS;
}

static bool is_blank(const piece *home, const place *where)
{
    for (uint32_t i = where->first_block; i < where->first_block + where->block_count; i++)
        if (home->written[i / WORD_BITS] >> i % WORD_BITS & 1)
            return false;
    return true;
}

void sl_store_sums_note(sl_store_sums *sums, uint64_t offset, uint32_t bytes, uint64_t sum)
{
    place where = place_of(offset, bytes);
    piece *home = &sums->pieces[where.piece_index];
    pthread_mutex_lock(&sums->lock);
    forget_overlapped(sums, &where);
    mark_written(home, &where);
    *part_at(sums, where.piece_index, home->part_count++) =
        (part){.sum = sum,
               .first_block = (uint16_t)where.first_block,
               .block_count = (uint16_t)where.block_count};
    pthread_mutex_unlock(&sums->lock);
}

static sl_store_part find_part(sl_store_sums *sums, const place *where, uint64_t *out_sum)
{
    const piece *home = &sums->pieces[where->piece_index];
    for (uint32_t layer = 0; layer < home->part_count; layer++) {
        const part *known = part_at(sums, where->piece_index, layer);
        if (known->first_block == where->first_block && known->block_count == where->block_count) {
            *out_sum = known->sum;
            return SL_STORE_PART_WHOLE;
        }
    }
    return is_blank(home, where) ? SL_STORE_PART_BLANK : SL_STORE_PART_CUT;
}

sl_store_part sl_store_sums_find(sl_store_sums *sums, uint64_t offset, uint32_t bytes,
                                 uint64_t *out_sum)
{
    place where = place_of(offset, bytes);
    pthread_mutex_lock(&sums->lock);
    sl_store_part known = find_part(sums, &where, out_sum);
    pthread_mutex_unlock(&sums->lock);
    return known;
}

/* Layers that are hardly used must not take huge pages. */
static sl_status map_parts(sl_store_sums *sums)
{
    SL_TRY(sl_bits_multiply(sums->piece_count, BLOCKS * sizeof(part), "the disk tier's checksums",
                            &sums->part_bytes));
    void *memory = mmap(NULL, sums->part_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        SL_FAIL(SL_ERROR_SYSTEM, "no address space for the disk tier's checksums: %s",
                strerror(errno));
    madvise(memory, sums->part_bytes, MADV_NOHUGEPAGE);
    sums->parts = memory;
    return SL_OK;
}

sl_status sl_store_sums_open(uint64_t bytes, sl_store_sums **out_sums)
{
    sl_store_sums *sums = calloc(1, sizeof *sums);
    if (sums == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the disk tier's checksums");
    if (pthread_mutex_init(&sums->lock, NULL) != 0) {
        free(sums);
        SL_FAIL(SL_ERROR_SYSTEM, "cannot create the lock of the disk tier's checksums");
    }
    sums->piece_count = sl_bits_divide_up(bytes, SL_STORE_PIECE_BYTES);
    sums->pieces = calloc(sums->piece_count, sizeof *sums->pieces);
    sl_status status =
        sums->pieces != NULL
            ? map_parts(sums)
            : sl_status_fail(SL_ERROR_SYSTEM, "no memory for the checksums of %llu pieces",
                             (unsigned long long)sums->piece_count);
    if (status != SL_OK) {
        sl_store_sums_close(sums);
        return status;
    }
    *out_sums = sums;
    return SL_OK;
}

void sl_store_sums_close(sl_store_sums *sums)
{
    if (sums == NULL)
        return;
    if (sums->parts != NULL)
        munmap(sums->parts, sums->part_bytes);
    free(sums->pieces);
    pthread_mutex_destroy(&sums->lock);
    free(sums);
}
