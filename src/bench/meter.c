/* The order of things: devices, memory, warm-up, rounds. */
#define _GNU_SOURCE /* getloadavg */
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUICK_ROUNDS = 3, ROUNDS = 7, LINE_BYTES = 96 };

static const uint64_t stream_bytes[2] = {UINT64_C(64) << 20, UINT64_C(8) << 20}; /* [quick] */
static const double load_max = 0.5; /* runnable threads of others, averaged over a minute */

static void report(const sl_meter *m, const char *line)
{
    if (m->options->progress)
        m->options->progress(m->options->user, line);
}

static sl_memory *find_host_memory(sl_meter *m)
{
    return sl_meter_has_gpu(m) ? &m->host_memory : &m->memory;
}

static void warn_of_load(const sl_meter *m)
{
    char line[LINE_BYTES];
    double load = 0;
    if (getloadavg(&load, 1) == 1 && load > load_max) {
        snprintf(line, sizeof line, "other work (load %.1f) disturbs what is measured now", load);
        report(m, line);
    }
}

sl_status sl_meter_open(const sl_bench_options *options, sl_meter *m)
{
    *m = (sl_meter){.options = options};
    SL_TRY(sl_rig_open(SL_DEVICE_CPU, 0, options->thread_count, &m->host));
    m->rig = m->host;
    if (options->device == SL_DEVICE_CPU)
        return SL_OK;
    return sl_rig_open(options->device, options->device_index, options->thread_count, &m->rig);
}

static sl_status warm_up(const sl_meter *m, sl_ops *ops)
{
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "warming up %u ops, %s", ops->count, ops->rig->ops->name);
    report(m, line);
    for (uint32_t i = 0; i < ops->count; i++)
        SL_TRY(sl_ops_warm_up(ops, &ops->cases[i]));
    return SL_OK;
}

static sl_status open_ops(const sl_meter *m, sl_memory *memory, sl_ops_list list, sl_ops *out_ops)
{
    const sl_ops_wish wish = {list, m->options->is_quick, m->options->small_shape};
    SL_TRY(sl_ops_open(memory, &wish, out_ops));
    return warm_up(m, out_ops);
}

/* The host memory and AdamW of a machine with a GPU, and the roofs of that. */
static sl_status open_beside_gpu(sl_meter *m)
{
    SL_TRY(sl_memory_open(m->host, m->options->is_quick, &m->host_memory));
    SL_TRY(open_ops(m, &m->host_memory, SL_OPS_ADAMW, &m->host_ops));
    return open_ops(m, &m->memory, SL_OPS_ROOFS, &m->roofs);
}

static sl_status open_parts(sl_meter *m)
{
    bool is_quick = m->options->is_quick;
    m->round_count = is_quick ? QUICK_ROUNDS : ROUNDS;
    warn_of_load(m);
    report(m, "filling memory with random numbers");
    SL_TRY(sl_memory_open(m->rig, is_quick, &m->memory));
    SL_TRY(sl_copies_open(m->rig, is_quick, &m->copies));
    SL_TRY(open_ops(m, &m->memory, SL_OPS_OF_STEPS, &m->ops));
    return sl_meter_has_gpu(m) ? open_beside_gpu(m) : SL_OK;
}

void sl_meter_close(sl_meter *m)
{
    sl_ops_close(&m->roofs);
    sl_ops_close(&m->host_ops);
    sl_ops_close(&m->ops);
    sl_copies_close(&m->copies);
    sl_memory_close(&m->host_memory);
    sl_memory_close(&m->memory);
    if (sl_meter_has_gpu(m))
        sl_rig_close(m->rig);
    sl_rig_close(m->host);
}

static sl_status measure_roofs(sl_meter *m, uint32_t round)
{
    bool is_quick = m->options->is_quick;
    for (int type = 0; type < SL_TYPE_COUNT && !sl_meter_has_gpu(m); type++)
        m->flops[type].samples[round] = sl_roofs_flops(m->host->workers, (sl_type)type);
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
        SL_TRY(sl_roofs_stream(m->host->workers, find_host_memory(m), (sl_stream)stream,
                               stream_bytes[is_quick], &m->stream[stream].samples[round]));
    return sl_copies_sample(&m->copies, round);
}

static sl_status sample_ops(sl_ops *ops, uint32_t round)
{
    for (uint32_t i = 0; i < ops->count; i++)
        SL_TRY(sl_ops_sample(ops, &ops->cases[i], round));
    return SL_OK;
}

static void finish_rounds(sl_meter *m)
{
    sl_ops_finish(&m->roofs, m->round_count);
    sl_ops_finish(&m->ops, m->round_count);
    sl_ops_finish(&m->host_ops, m->round_count);
    sl_copies_finish(&m->copies, m->round_count);
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        m->flops[type].rate = sl_spread_of(m->flops[type].samples, m->round_count);
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
        m->stream[stream].rate = sl_spread_of(m->stream[stream].samples, m->round_count);
}

sl_status sl_meter_run(sl_meter *m)
{
    char line[LINE_BYTES];
    SL_TRY(open_parts(m));
    for (uint32_t round = 0; round < m->round_count; round++) {
        snprintf(line, sizeof line, "ops, copies and memory: round %u of %u", round + 1,
                 m->round_count);
        report(m, line);
        SL_TRY(measure_roofs(m, round));
        SL_TRY(sample_ops(&m->roofs, round));
        SL_TRY(sample_ops(&m->ops, round));
        SL_TRY(sample_ops(&m->host_ops, round));
    }
    finish_rounds(m);
    return SL_OK;
}
