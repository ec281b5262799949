/* From times to rows beside their roofs, and to the rates of a machine. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "meter.h"

/* A queued op costs a wake-up beside what its kernel takes; a GPU's ops are timed in a row, and
 * what the least of them takes is what each costs. */
static const double queue_seconds = 2e-6;

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
    const char *added = a->adds_output ? ", added" : "";
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

/* The median rate of what the case is held against; 0: nothing says more than itself. */
static double find_roof(const sl_meter *m, const sl_ops_case *one, bool on_host)
{
    if (sl_op_flops(one->kind, &one->attrs) > 0) {
        for (uint32_t i = 0; i < m->roofs.count; i++)
            if (m->roofs.cases[i].kind == SL_OP_LINEAR &&
                m->roofs.cases[i].attrs.type == one->attrs.type)
                return (double)sl_op_flops(SL_OP_LINEAR, &m->roofs.cases[i].attrs) /
                       m->roofs.cases[i].seconds.median;
        return m->flops[one->attrs.type].rate.median;
    }
    if (one->kind != SL_OP_ADAMW) /* the others are not memory's alone: caches hold their data */
        return 0;
    const sl_copies_case *within = &m->copies.cases[SL_COPIES_WITHIN];
    return on_host ? m->stream[SL_STREAM_UPDATE].rate.median
                   : 2.0 * (double)within->bytes / within->seconds.median;
}

static sl_status add_case(const sl_meter *m, const sl_ops_case *one, bool on_host, sl_bench *bench)
{
    double flops = (double)sl_op_flops(one->kind, &one->attrs);
    double bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs);
    sl_bench_row row = {.group = is_product(one->kind)      ? "gemm"
                                 : one->kind != SL_OP_ADAMW ? "op"
                                 : on_host                  ? "host_adamw"
                                                            : "adamw",
                        .type = sl_type_name((sl_type)one->attrs.type),
                        .seconds = one->seconds.median,
                        .fit_seconds = sl_machine_op_seconds(&bench->profile.machine, one->kind,
                                                             &one->attrs, on_host),
                        .is_flops = flops > 0};
    row.rate = sl_spread_rate(one->seconds, flops > 0 ? flops : bytes);
    row.roof = find_roof(m, one, on_host || !sl_meter_has_gpu(m));
    name_case(one, row.name);
    return sl_bench_add(bench, &row);
}

static sl_status add_cases(const sl_meter *m, const sl_ops *ops, bool on_host, sl_bench *bench)
{
    for (uint32_t i = 0; i < ops->count; i++)
        SL_TRY(add_case(m, &ops->cases[i], on_host, bench));
    return SL_OK;
}

static sl_status add_rate(sl_bench *bench, const char *group, const char *type, const char *name,
                          sl_spread rate)
{
    bool is_flops = strcmp(group, "gemm") == 0;
    sl_bench_row row = {.group = group, .type = type, .rate = rate, .is_flops = is_flops};
    snprintf(row.name, sizeof row.name, "%s", name);
    return sl_bench_add(bench, &row);
}

/* The products that others are held against stand as roofs; the least op is none of them. */
static sl_status add_gpu_roofs(const sl_meter *m, sl_bench *bench)
{
    char name[64];
    for (uint32_t i = 0; i < m->roofs.count; i++) {
        const sl_ops_case *one = &m->roofs.cases[i];
        if (one->kind != SL_OP_LINEAR)
            continue;
        double flops = (double)sl_op_flops(one->kind, &one->attrs);
        name_case(one, name);
        SL_TRY(add_rate(bench, "gemm", sl_type_name((sl_type)one->attrs.type), name,
                        sl_spread_rate(one->seconds, flops)));
    }
    return SL_OK;
}

static sl_status add_copies(const sl_meter *m, sl_bench *bench)
{
    for (int kind = 0; kind < SL_COPIES_COUNT; kind++) {
        const sl_copies_case *one = &m->copies.cases[kind];
        double bytes = (kind == SL_COPIES_WITHIN ? 2.0 : 1.0) * (double)one->bytes;
        SL_TRY(add_rate(bench, "copy", "", one->name, sl_spread_rate(one->seconds, bytes)));
        bench->rows[bench->row_count - 1].seconds = one->seconds.median;
    }
    return SL_OK;
}

static sl_status add_rows(const sl_meter *m, sl_bench *bench)
{
    for (int type = 0; type < SL_TYPE_COUNT && !sl_meter_has_gpu(m); type++)
        SL_TRY(add_rate(bench, "gemm", sl_type_name((sl_type)type), "multiply-adds from registers",
                        m->flops[type].rate));
    SL_TRY(add_gpu_roofs(m, bench));
    SL_TRY(add_rate(bench, "memory", "", "reading", m->stream[SL_STREAM_READ].rate));
    SL_TRY(add_rate(bench, "memory", "", "4 reads, 3 writes", m->stream[SL_STREAM_UPDATE].rate));
    SL_TRY(add_copies(m, bench));
    SL_TRY(add_cases(m, &m->ops, false, bench));
    return add_cases(m, &m->host_ops, true, bench);
}

/* ---- the machine ---- */

/* What the least op of a GPU took. */
static double find_op_seconds(const sl_meter *m)
{
    for (uint32_t i = 0; i < m->roofs.count; i++)
        if (m->roofs.cases[i].kind == SL_OP_CLEAR)
            return m->roofs.cases[i].seconds.median;
    return queue_seconds;
}

static sl_status fit_machine(const sl_meter *m, sl_machine *machine)
{
    bool has_gpu = sl_meter_has_gpu(m);
    machine->op_seconds = find_op_seconds(m);
    SL_TRY(sl_ops_fit(&m->ops, machine));
    SL_TRY(sl_ops_fit_host(has_gpu ? &m->host_ops : &m->ops, machine));
    sl_copies_set_machine(&m->copies, queue_seconds, machine);
    machine->is_measured = true;
    return SL_OK;
}

static sl_status measure(sl_meter *m, sl_bench *bench)
{
    SL_TRY(sl_meter_open(m->options, m));
    sl_profile_init(&bench->profile,
                    &(sl_profile_subject){.device = m->rig->ops->kind,
                                          .worker_count = m->options->thread_count,
                                          .info = sl_meter_has_gpu(m) ? &m->rig->info : NULL});
    SL_TRY(sl_disk_measure(m->options, m->rig, bench)); /* first: a directory may be wrong */
    SL_TRY(sl_meter_run(m));
    SL_TRY(fit_machine(m, &bench->profile.machine));
    return add_rows(m, bench);
}

sl_status sl_bench_run(const sl_bench_options *options, sl_bench *out_bench)
{
    sl_bench bench = {0};
    sl_meter m = {.options = options};
    sl_status status = measure(&m, &bench);
    sl_meter_close(&m);
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
