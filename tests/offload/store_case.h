/* A store with a shadow of what it should hold, for the tests of the store: random ranges are
 * written as whole items and read back, whole, in any order. */
#ifndef SL_TESTS_STORE_CASE_H
#define SL_TESTS_STORE_CASE_H

#include <stddef.h>
#include <sys/mman.h>

#include "offload/store.h"
#include "scratch_dir.h"

enum { CASE_ITEMS_MAX = 64 };

/* Items lie one behind the other, with gaps here and there, each from the start of a record on;
 * each is written and read whole. */
typedef struct store_item {
    uint64_t offset, bytes;
    uint64_t version; /* last written; 0: never */
} store_item;

typedef struct store_case {
    uint64_t bytes;
    uint32_t item_count;
    store_item items[CASE_ITEMS_MAX];
    char *memory; /* as large as the store: item i is moved from and to its own offset */
    uint64_t random;
} store_case;

/* The word of an item's version at a place; no two are alike. */
static inline uint64_t store_word(uint64_t item, uint64_t version, uint64_t index)
{
    uint64_t word = (item << 40) ^ (version << 32) ^ index;
    word *= 0x9e3779b97f4a7c15u;
    return word ^ word >> 29;
}

/* Lays out items of up to `most` bytes until `bytes` are full. */
static inline void store_case_init(store_case *test, uint64_t bytes, uint64_t most, uint64_t seed)
{
    *test = (store_case){.bytes = bytes, .random = seed * 2 + 1};
    uint64_t next = 0;
    while (test->item_count < CASE_ITEMS_MAX && next < bytes) {
        next += SL_STORE_RECORD_BYTES * scratch_below(&test->random, 3);
        uint64_t item_bytes =
            SL_STORE_ALIGNMENT * (1 + scratch_below(&test->random, most / SL_STORE_ALIGNMENT));
        if (next + item_bytes > bytes)
            break;
        test->items[test->item_count++] = (store_item){.offset = next, .bytes = item_bytes};
        next += (item_bytes + SL_STORE_RECORD_BYTES - 1) / SL_STORE_RECORD_BYTES *
                SL_STORE_RECORD_BYTES;
    }
    test->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch_need(test->memory != MAP_FAILED && test->item_count > 0, "memory for a case");
}

static inline void store_case_close(store_case *test)
{
    munmap(test->memory, test->bytes);
}

static inline sl_status store_case_write(store_case *test, sl_store *store, uint32_t index)
{
    store_item *item = &test->items[index];
    uint64_t *words = (uint64_t *)(void *)(test->memory + item->offset);
    item->version++;
    for (uint64_t i = 0; i < item->bytes / 8; i++)
        words[i] = store_word(index, item->version, i);
    return sl_store_write(store, item->offset, words, item->bytes);
}

/* True if the memory of an item holds its last version, zeros where there was none. */
static inline int store_case_holds(const store_case *test, uint32_t index)
{
    const store_item *item = &test->items[index];
    const uint64_t *words = (const uint64_t *)(const void *)(test->memory + item->offset);
    for (uint64_t i = 0; i < item->bytes / 8; i++)
        if (words[i] != (item->version ? store_word(index, item->version, i) : 0))
            return 0;
    return 1;
}

/* The memory is spoilt first, so that nothing is right by chance. */
static inline sl_status store_case_read(store_case *test, sl_store *store, uint32_t index)
{
    const store_item *item = &test->items[index];
    memset(test->memory + item->offset, 0x5A, item->bytes);
    return sl_store_read(store, item->offset, test->memory + item->offset, item->bytes);
}

#endif
