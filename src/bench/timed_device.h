/* An open device whose work is timed: its tables, and two streams.
 *
 * Times are those of the work itself as its stream observed it (device.h), by the device's own
 * clock where it has one: the way there and back is not counted.
 */
#ifndef SL_BENCH_TIMED_DEVICE_H
#define SL_BENCH_TIMED_DEVICE_H

#include "device/device.h"
#include "kernels/kernels.h"

enum { SL_TIMED_DEVICE_STREAMS = 2 };

typedef struct sl_timed_stream {
    sl_device_stream *stream;
    uint64_t busy_ns; /* since the last look; written by the stream's thread until it is drained */
    struct sl_timed_device *device;
} sl_timed_stream;

typedef struct sl_timed_device {
    const sl_device_ops *ops;
    const sl_kernel_table *kernels;
    sl_device *handle;
    sl_kernel_library *library;
    sl_workers *workers; /* of the cpu; NULL on others */
    uint32_t worker_count;
    bool times_algorithms; /* of sl_cuda_options */
    sl_device_info info;
    sl_timed_stream streams[SL_TIMED_DEVICE_STREAMS];
    uint64_t give_up_ns; /* a wait fails at this time of the clock; 0: waits have no end */
    bool is_stuck;       /* one did: streams and memory of the device stay as they are */
} sl_timed_device;

typedef struct sl_timed_copy {
    void *to;
    const void *from;
    uint64_t bytes;
} sl_timed_copy;

/* Opens device `index`, its kernels and its streams; `cuda` NULL: the defaults. SL_ERROR_SYSTEM,
 * SL_ERROR_USAGE: the build or the machine has no such device. */
sl_status sl_timed_device_open(sl_device_kind kind, int index, const sl_cuda_options *cuda,
                               uint32_t worker_count, sl_timed_device **out_device);

/* `blocked` of an observer whose stream is the device's: ends a wait at give_up_ns with
 * SL_ERROR_SYSTEM. */
sl_status sl_timed_device_be_patient(sl_timed_device *device);

/* NULL is fine. One that is stuck is abandoned, with what it has open. */
void sl_timed_device_close(sl_timed_device *device);

/* Calls `function` with `argument` in the first stream, waits, and writes the seconds it took. */
sl_status sl_timed_device_run(sl_timed_device *device, sl_status (*function)(void *argument),
                              void *argument, double *out_seconds);

/* Runs `count` <= SL_TIMED_DEVICE_STREAMS copies at once, one a
 * stream, and writes the seconds of each. */
sl_status sl_timed_device_copy(sl_timed_device *device, const sl_timed_copy *copies, uint32_t count,
                               double *out_seconds);

#endif
