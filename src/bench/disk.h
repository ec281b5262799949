/* The disk tier's rates, through the disk store itself. */
#ifndef SL_BENCH_DISK_H
#define SL_BENCH_DISK_H

#include "bench.h"
#include "offload/store.h"
#include "samples.h"
#include "timed_device.h"

/* One lane's transfers: calls of `call_bytes` through a range of a store, once. */
typedef struct sl_disk_pass {
    sl_store *store;
    sl_store_lane lane;
    uint8_t *buffer; /* [call_bytes], in the store's buffer */
    uint64_t first_byte, range_bytes, call_bytes;
    /* what it took: */
    sl_samples seconds;                /* of a call */
    double total_seconds, cpu_seconds; /* cpu_seconds: of the whole process meanwhile */
    uint64_t moved_bytes;
    sl_status status;
    char message[256]; /* of a failure in another thread */
} sl_disk_pass;

/* Runs passes beside each other, each in a thread of its own but the first. The first failure in
 * their order is returned. */
sl_status sl_disk_run(sl_disk_pass *passes, uint32_t count);

/* Random bytes, that no drive can compress. `bytes` is a multiple of 8. */
void sl_disk_fill(void *address, uint64_t bytes, uint64_t seed);

/* Measures the directories of the options, if any, through host memory of `device`, as a run does:
 * adds rows and the disk part of the machine. */
sl_status sl_disk_measure(const sl_bench_options *options, const sl_timed_device *device,
                          sl_bench *bench);

#endif
