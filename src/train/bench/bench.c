/* The order of things: warm up, rounds, rows, rates. */
#define _GNU_SOURCE /* getloadavg */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "ops.h"
#include "roofs.h"

enum { QUICK_ROUNDS = 3, ROUNDS = 7, LINE_BYTES = 96 };

static const uint64_t stream_bytes[2] = {UINT64_C(64) << 20, UINT64_C(8) << 20}; /* [quick] */
static const uint64_t copy_bytes[2] = {UINT64_C(32) << 20, UINT64_C(8) << 20};
static const double load_max = 0.5; /* runnable threads of others, averaged over a minute */

/* A queued op costs a wake-up beside what its kernel takes. */
static const double queue_seconds = 2e-6;

typedef struct roof {
    double samples[SL_OPS_ROUND_MAX];
    sl_spread rate;
} roof;

typedef struct meter {
    const sl_bench_options *options;
    sl_bench *bench;
    sl_memory memory;
    sl_ops ops;
    sl_workers *workers;
    roof flops[SL_TYPE_COUNT], stream[SL_STREAM_COUNT], copy[2];
    uint32_t round_count;
} meter;

static void report(const meter *m, const char *line)
{
    if (m->options->progress)
        m->options->progress(m->options->user, line);
}

/* ---- measuring ---- */

static sl_status open_meter(const sl_bench_options *options, sl_bench *bench, meter *m)
{
    char line[LINE_BYTES];
    *m = (meter){.options = options,
                 .bench = bench,
                 .round_count = options->is_quick ? QUICK_ROUNDS : ROUNDS};
    double load = 0;
    if (getloadavg(&load, 1) == 1 && load > load_max) {
        snprintf(line, sizeof line, "other work (load %.1f) disturbs what is measured now", load);
        report(m, line);
    }
    report(m, "filling memory with random numbers");
    SL_TRY(sl_workers_open(options->thread_count, &m->workers));
    SL_TRY(sl_memory_open(options->is_quick, &m->memory));
    SL_TRY(sl_ops_open(options->is_quick, options->thread_count, &m->ops));
    snprintf(line, sizeof line, "warming up %u ops on %u threads", m->ops.count,
             options->thread_count);
    report(m, line);
    for (uint32_t i = 0; i < m->ops.count; i++)
        SL_TRY(sl_ops_warm_up(&m->ops, &m->ops.cases[i], &m->memory, m->workers));
    return SL_OK;
}

static void close_meter(meter *m)
{
    sl_ops_close(&m->ops);
    sl_memory_close(&m->memory);
    sl_workers_close(m->workers);
}

static sl_status measure_roofs(meter *m, uint32_t round)
{
    bool is_quick = m->options->is_quick;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        m->flops[type].samples[round] = sl_roofs_flops(m->workers, (sl_type)type);
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
        SL_TRY(sl_roofs_stream(m->workers, &m->memory, (sl_stream)stream, stream_bytes[is_quick],
                               &m->stream[stream].samples[round]));
    for (int both = 0; both < 2; both++)
        SL_TRY(
            sl_roofs_copy(&m->memory, both, copy_bytes[is_quick], &m->copy[both].samples[round]));
    return SL_OK;
}

static void finish_roof(roof *one, uint32_t round_count)
{
    one->rate = sl_spread_of(one->samples, round_count);
}

static sl_status measure_rounds(meter *m)
{
    char line[LINE_BYTES];
    for (uint32_t round = 0; round < m->round_count; round++) {
        snprintf(line, sizeof line, "ops, copies and memory: round %u of %u", round + 1,
                 m->round_count);
        report(m, line);
        SL_TRY(measure_roofs(m, round));
        for (uint32_t i = 0; i < m->ops.count; i++)
            SL_TRY(sl_ops_sample(&m->ops, &m->ops.cases[i], round, &m->memory, m->workers));
    }
    sl_ops_finish(&m->ops, m->round_count);
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        finish_roof(&m->flops[type], m->round_count);
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
        finish_roof(&m->stream[stream], m->round_count);
    for (int both = 0; both < 2; both++)
        finish_roof(&m->copy[both], m->round_count);
    return SL_OK;
}

/* ---- rows ---- */

sl_status sl_bench_add(sl_bench *bench, const sl_bench_row *row)
{
    if (bench->row_count == bench->row_capacity) {
        uint32_t capacity = bench->row_capacity ? 2 * bench->row_capacity : 64;
        sl_bench_row *rows = realloc(bench->rows, capacity * sizeof *rows);
        if (!rows)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u rows of a bench", capacity);
        bench->rows = rows;
        bench->row_capacity = capacity;
    }
    bench->rows[bench->row_count++] = *row;
    return SL_OK;
}

/* "linear 768x2304, 256 rows"; sizes that an op does not have are left out. */
static void name_case(const sl_ops_case *one, char out_name[64])
{
    const sl_op_attrs *a = &one->attrs;
    const char *name = sl_op_info_of(one->kind)->name;
    unsigned long long rows = a->row_count ? a->row_count : a->batch * a->seq;
    unsigned long long out = a->out ? a->out : a->id_count;
    const char *added = a->accumulate ? ", added" : "";
    if (a->element_count)
        snprintf(out_name, 64, "%s %.4g M%s", name, 1e-6 * (double)a->element_count,
                 a->grad_type ? ", half gradient" : "");
    else if (a->heads)
        snprintf(out_name, 64, "%s %llu x T=%llu, %llu wide", name, (unsigned long long)a->batch,
                 (unsigned long long)a->seq, (unsigned long long)a->in);
    else if (out)
        snprintf(out_name, 64, "%s %llux%llu, %llu rows%s", name, (unsigned long long)a->in, out,
                 rows, added);
    else
        snprintf(out_name, 64, "%s %llu wide, %llu rows%s", name, (unsigned long long)a->in, rows,
                 added);
}

static bool is_product(sl_op_kind kind)
{
    sl_op_attrs one = {.row_count = 1, .in = 1, .out = 1, .id_count = 1};
    return sl_op_flops(kind, &one) > 0;
}

static sl_status add_case(const meter *m, const sl_ops_case *one)
{
    double flops = (double)sl_op_flops(one->kind, &one->attrs);
    double bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs);
    bool is_adamw = one->kind == SL_OP_ADAMW;
    sl_bench_row row = {.group = is_product(one->kind) ? "gemm"
                                 : is_adamw            ? "adamw"
                                                       : "op",
                        .type = sl_type_name((sl_type)(one->attrs.type)),
                        .seconds = one->seconds.median,
                        .fit_seconds = sl_machine_op_seconds(&m->bench->profile.machine, one->kind,
                                                             &one->attrs, false),
                        .is_flops = flops > 0};
    row.rate = sl_spread_rate(one->seconds, flops > 0 ? flops : bytes);
    if (flops > 0)
        row.roof = m->flops[one->attrs.type].rate.median;
    else if (is_adamw) /* the others are not memory's alone: a step finds their data in a cache */
        row.roof = m->stream[SL_STREAM_UPDATE].rate.median;
    name_case(one, row.name);
    return sl_bench_add(m->bench, &row);
}

static sl_status add_roof(const meter *m, const char *group, const char *type, const char *name,
                          const roof *one)
{
    bool is_flops = strcmp(group, "gemm") == 0;
    sl_bench_row row = {.group = group, .type = type, .rate = one->rate, .is_flops = is_flops};
    snprintf(row.name, sizeof row.name, "%s", name);
    return sl_bench_add(m->bench, &row);
}

static sl_status add_rows(const meter *m)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        SL_TRY(add_roof(m, "gemm", sl_type_name((sl_type)type), "multiply-adds from registers",
                        &m->flops[type]));
    SL_TRY(add_roof(m, "memory", "", "reading", &m->stream[SL_STREAM_READ]));
    SL_TRY(add_roof(m, "memory", "", "4 reads, 3 writes", &m->stream[SL_STREAM_UPDATE]));
    SL_TRY(add_roof(m, "copy", "", "one way", &m->copy[0]));
    SL_TRY(add_roof(m, "copy", "", "both ways at once, each", &m->copy[1]));
    for (uint32_t i = 0; i < m->ops.count; i++)
        SL_TRY(add_case(m, &m->ops.cases[i]));
    return SL_OK;
}

/* ---- the machine ---- */

static sl_status fit_machine(const meter *m, sl_machine *machine)
{
    machine->op_seconds = queue_seconds;
    SL_TRY(sl_ops_fit(&m->ops, machine));
    for (int lane = SL_MACHINE_H2D; lane <= SL_MACHINE_D2H; lane++) {
        machine->copy_rate[lane] = m->copy[0].rate.median;
        machine->copy_seconds[lane] = queue_seconds;
    }
    machine->is_measured = true;
    return SL_OK;
}

sl_status sl_bench_run(const sl_bench_options *options, sl_bench *out_bench)
{
    sl_bench bench = {0};
    meter m = {0};
    sl_profile_init(&bench.profile, options->thread_count);
    sl_status status = sl_disk_measure(options, &bench); /* first: a directory may be wrong */
    if (status == SL_OK)
        status = open_meter(options, &bench, &m);
    if (status == SL_OK)
        status = measure_rounds(&m);
    if (status == SL_OK)
        status = fit_machine(&m, &bench.profile.machine);
    if (status == SL_OK)
        status = add_rows(&m);
    close_meter(&m);
    if (status != SL_OK) {
        sl_bench_close(&bench);
        return status;
    }
    *out_bench = bench;
    return SL_OK;
}

void sl_bench_close(sl_bench *bench)
{
    free(bench->rows);
    *bench = (sl_bench){0};
}
