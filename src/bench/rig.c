/* Opens in the order of dependence, closes in reverse. */
#include "rig.h"

#include <stdlib.h>

static void count_busy(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)tag;
    sl_rig_lane *lane = user;
    lane->busy_ns += end_ns - start_ns;
}

static void ignore_wait(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)user, (void)tag, (void)start_ns, (void)end_ns;
}

static sl_status open_parts(sl_rig *rig, sl_device_kind kind, int index)
{
    static const char *const names[SL_RIG_LANES] = {"bench", "bench, back"};
    if (!rig->ops || !rig->kernels)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA: build it where nvcc is found, or use "
                                 "--device cpu");
    SL_TRY(rig->ops->open(index, &rig->device));
    SL_TRY(rig->ops->describe(rig->device, &rig->info));
    SL_TRY(rig->kernels->open(index, &rig->library));
    if (kind == SL_DEVICE_CPU)
        SL_TRY(sl_workers_open(rig->worker_count, &rig->workers));
    for (int i = 0; i < SL_RIG_LANES; i++) {
        const sl_queue_observer observer = {count_busy, ignore_wait, &rig->lane[i]};
        SL_TRY(rig->ops->stream_open(rig->device, SL_STREAM_DEVICE, names[i], &observer,
                                     &rig->lane[i].stream));
    }
    return SL_OK;
}

sl_status sl_rig_open(sl_device_kind kind, int index, uint32_t worker_count, sl_rig **out_rig)
{
    sl_rig *rig = calloc(1, sizeof *rig);
    if (!rig)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to measure a device");
    rig->ops = sl_device_ops_of(kind);
    rig->kernels = sl_kernels_of(kind);
    rig->worker_count = worker_count;
    sl_status status = open_parts(rig, kind, index);
    if (status != SL_OK) {
        sl_rig_close(rig);
        return status;
    }
    *out_rig = rig;
    return SL_OK;
}

void sl_rig_close(sl_rig *rig)
{
    if (!rig)
        return;
    for (int i = SL_RIG_LANES; i-- > 0;)
        if (rig->lane[i].stream)
            rig->ops->stream_close(rig->lane[i].stream);
    sl_workers_close(rig->workers);
    if (rig->device) {
        rig->kernels->close(rig->library);
        rig->ops->close(rig->device);
    }
    free(rig);
}

/* ---- work ---- */

typedef struct call_args {
    sl_status (*function)(void *argument);
    void *argument;
} call_args;

static sl_status run_call(void *arguments)
{
    const call_args *args = arguments;
    return args->function(args->argument);
}

static sl_status finish_lane(sl_rig *rig, uint32_t index, double *out_seconds)
{
    sl_rig_lane *lane = &rig->lane[index];
    SL_TRY(rig->ops->stream_finish(lane->stream));
    *out_seconds = 1e-9 * (double)(lane->busy_ns ? lane->busy_ns : 1); /* never none: rates */
    lane->busy_ns = 0;
    return SL_OK;
}

sl_status sl_rig_call(sl_rig *rig, sl_status (*function)(void *argument), void *argument,
                      double *out_seconds)
{
    const call_args args = {function, argument};
    SL_TRY(rig->ops->launch(rig->lane[0].stream, 0, run_call, &args, sizeof args));
    return finish_lane(rig, 0, out_seconds);
}

sl_status sl_rig_copy_each(sl_rig *rig, const sl_rig_copy *copies, uint32_t count,
                           double *out_seconds)
{
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(
            rig->ops->copy(rig->lane[i].stream, 0, copies[i].to, copies[i].from, copies[i].bytes));
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(finish_lane(rig, i, &out_seconds[i]));
    return SL_OK;
}
