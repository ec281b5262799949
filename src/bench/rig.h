/* An open device as a bench uses it: its tables, and two lanes whose work is timed.
 *
 * Times are those of the work itself as its stream observed it (device.h), by the device's own
 * clock where it has one: the way there and back is not counted. Whoever fills in operands and
 * repeats is elsewhere.
 */
#ifndef SL_BENCH_RIG_H
#define SL_BENCH_RIG_H

#include "device/device.h"
#include "kernels/kernels.h"

enum { SL_RIG_LANES = 2 };

typedef struct sl_rig_lane {
    sl_device_stream *stream;
    uint64_t busy_ns; /* of the lane's work since it was last looked at; of its thread until then */
} sl_rig_lane;

typedef struct sl_rig {
    const sl_device_ops *ops;
    const sl_kernel_table *kernels;
    sl_device *device;
    sl_kernel_library *library;
    sl_workers *workers; /* of the cpu; NULL on others */
    uint32_t worker_count;
    sl_device_info info;
    sl_rig_lane lane[SL_RIG_LANES];
} sl_rig;

typedef struct sl_rig_copy {
    void *to;
    const void *from;
    uint64_t bytes;
} sl_rig_copy;

/* Opens device `index`, its kernels and its lanes. SL_ERROR_SYSTEM, SL_ERROR_USAGE: the build or
 * the machine has no such device. */
sl_status sl_rig_open(sl_device_kind kind, int index, uint32_t worker_count, sl_rig **out_rig);

/* NULL is fine. */
void sl_rig_close(sl_rig *rig);

/* Calls `function` with `argument` in the first lane, waits, and writes the seconds it took there.
 */
sl_status sl_rig_call(sl_rig *rig, sl_status (*function)(void *argument), void *argument,
                      double *out_seconds);

/* Runs `count` <= SL_RIG_LANES copies at once, one a lane, and writes the seconds of each. */
sl_status sl_rig_copy_each(sl_rig *rig, const sl_rig_copy *copies, uint32_t count,
                           double *out_seconds);

#endif
