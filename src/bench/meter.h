/* What a bench measures with, and the times that it took: all cases of ops, copies and roofs, round
 * by round. What is made of the times is bench.c's. */
#ifndef SL_BENCH_METER_H
#define SL_BENCH_METER_H

#include "bench.h"
#include "copies.h"
#include "ops.h"
#include "roofs.h"

typedef struct sl_meter_roof {
    double samples[SL_OPS_ROUND_MAX];
    sl_spread rate;
} sl_meter_roof;

/* The device, and the host beside it: the same where the device is the cpu. */
typedef struct sl_meter {
    const sl_bench_options *options;
    sl_rig *rig, *host;
    sl_memory memory, host_memory; /* host_memory: beside a GPU */
    sl_ops ops, host_ops, roofs;   /* host_ops and roofs: of or beside a GPU */
    sl_copies copies;
    sl_meter_roof flops[SL_TYPE_COUNT], stream[SL_STREAM_COUNT]; /* flops: of the cpu */
    uint32_t round_count;
} sl_meter;

/* Opens the devices of `options`, borrowed until the close; everything else is empty. */
sl_status sl_meter_open(const sl_bench_options *options, sl_meter *out_meter);

/* A zeroed one is fine. */
void sl_meter_close(sl_meter *meter);

/* Takes memory, warms up and measures all rounds. */
sl_status sl_meter_run(sl_meter *meter);

static inline bool sl_meter_has_gpu(const sl_meter *meter)
{
    return meter->rig != meter->host;
}

#endif
