#include "address_cache.h"

#include <stdlib.h>

#include "base/hash.h"

enum { ENTRIES = 64 /* 3.5 MB for a model of 48 layers with four micro-batches */ };

typedef struct entry {
    sl_hash_value key;
    uint32_t item_count;
    uint64_t *offsets; /* [item_count]; NULL: the entry is empty */
    uint64_t peak;
} entry;

struct sl_address_cache {
    entry entries[ENTRIES];
    uint32_t next; /* index of the entry to replace next */
};

sl_status sl_address_cache_open(sl_address_cache **out_cache)
{
    sl_address_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %d sets of addresses", ENTRIES);
    *out_cache = cache;
    return SL_OK;
}

void sl_address_cache_close(sl_address_cache *cache)
{
    for (int i = 0; cache && i < ENTRIES; i++)
        free(cache->entries[i].offsets);
    free(cache);
}

/* The hash of all inputs of a request. Offsets are outputs, so they are set to 0 first. */
static sl_hash_value hash_request(const sl_address_request *request)
{
    for (uint32_t n = 0; n < request->item_count; n++)
        request->items[n].offset = 0;
    const sl_hash_value items =
        sl_hash_128(request->items, (uint64_t)request->item_count * sizeof *request->items);
    const sl_hash_value pairs =
        sl_hash_128(request->pairs, (uint64_t)request->pair_count * sizeof *request->pairs);
    const uint64_t all[] = {items.high, items.low,     pairs.high,
                            pairs.low,  request->base, request->alignment};
    return sl_hash_128(all, sizeof all);
}

static const entry *find_entry(const sl_address_cache *cache, sl_hash_value key,
                               uint32_t item_count)
{
    for (int i = 0; i < ENTRIES; i++) {
        const entry *it = &cache->entries[i];
        if (it->offsets && it->item_count == item_count && it->key.high == key.high &&
            it->key.low == key.low)
            return it;
    }
    return NULL;
}

static void keep(sl_address_cache *cache, sl_hash_value key, const sl_address_request *request,
                 uint64_t peak)
{
    entry *it = &cache->entries[cache->next];
    uint64_t *offsets = calloc((size_t)request->item_count + 1, sizeof *offsets);
    if (!offsets)
        return;
    for (uint32_t n = 0; n < request->item_count; n++)
        offsets[n] = request->items[n].offset;
    free(it->offsets);
    *it = (entry){key, request->item_count, offsets, peak};
    cache->next = (cache->next + 1) % ENTRIES;
}

sl_status sl_address_cache_assign(sl_address_cache *cache, const sl_address_request *request,
                                  uint64_t *out_peak)
{
    if (!cache)
        return sl_addresses_assign(request, out_peak);
    const sl_hash_value key = hash_request(request);
    const entry *known = find_entry(cache, key, request->item_count);
    if (!known) {
        SL_TRY(sl_addresses_assign(request, out_peak));
        keep(cache, key, request, *out_peak);
        return SL_OK;
    }
    for (uint32_t n = 0; n < request->item_count; n++)
        request->items[n].offset = known->offsets[n];
    *out_peak = known->peak;
    return SL_OK;
}
