/* Stands in for offload/store.c until that is there: the address space is plain memory. Checks what
 * the store's contract asks of its callers. */
#include <stdlib.h>
#include <string.h>

#include "offload/store.h"

struct sl_store {
    unsigned char *data;
    uint64_t bytes;
};

sl_status sl_store_open(const sl_store_options *options, sl_store **out_store)
{
    sl_store *store = calloc(1, sizeof *store);
    if (store)
        store->data = calloc(1, options->bytes);
    if (!store || !store->data) {
        free(store);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a store");
    }
    store->bytes = options->bytes;
    *out_store = store;
    return SL_OK;
}

void sl_store_close(sl_store *store)
{
    if (store)
        free(store->data);
    free(store);
}

static sl_status check(const sl_store *store, uint64_t offset, const void *data, uint64_t bytes)
{
    uint64_t all = offset | (uintptr_t)data | bytes;
    if (all % SL_STORE_ALIGNMENT != 0 || offset + bytes > store->bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "a stretch that a store cannot reach");
    return SL_OK;
}

sl_status sl_store_read(sl_store *store, uint64_t offset, void *data, uint64_t bytes)
{
    SL_TRY(check(store, offset, data, bytes));
    memcpy(data, store->data + offset, bytes);
    return SL_OK;
}

sl_status sl_store_write(sl_store *store, uint64_t offset, const void *data, uint64_t bytes)
{
    SL_TRY(check(store, offset, data, bytes));
    memcpy(store->data + offset, data, bytes);
    return SL_OK;
}

const char *sl_store_description(const sl_store *store)
{
    (void)store;
    return "memory";
}
