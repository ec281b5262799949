/* The order of things: devices, disk, memory, warm-up, rounds; then, from the times, the rates of
 * the machine, and rows beside their roofs. */
#define _GNU_SOURCE /* getloadavg */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "copies.h"
#include "disk.h"
#include "kernels.h"
#include "numa.h"
#include "ops.h"
#include "rank_sums.h"
#include "roofs.h"

enum { QUICK_ROUNDS = 3, ROUNDS = 7, LINE_BYTES = 96 };

static const char *const figure_names[SL_BENCH_FIGURE_COUNT] = {
    [SL_BENCH_GEMM] = "gemm",          [SL_BENCH_ADAMW] = "adamw", [SL_BENCH_OP] = "op",
    [SL_BENCH_MEMORY] = "memory",      [SL_BENCH_COPY] = "copy",   [SL_BENCH_COMM] = "comm",
    [SL_BENCH_DISK] = "disk",          [SL_BENCH_NUMA] = "numa",   [SL_BENCH_PRODUCT] = "product",
    [SL_BENCH_ATTENTION] = "attention"};

const char *sl_bench_figure_name(sl_bench_figure figure)
{
    return figure_names[figure];
}

static const uint64_t loop_bytes[2] = {UINT64_C(64) << 20, UINT64_C(8) << 20}; /* [is_quick] */
static const uint32_t kernel_figures = 1u << SL_BENCH_PRODUCT | 1u << SL_BENCH_ATTENTION;
static const double load_max = 0.5; /* runnable threads of others, averaged over a minute */

/* A queued op costs a wake-up beside what its kernel takes; a GPU's ops are timed in a row, and
 * what the least of them takes is what each costs. */
static const double queue_seconds = 2e-6;

/* `host` is `device` where that is the cpu; what is "beside a GPU" is empty then. */
typedef struct measurement {
    const sl_bench_options *options;
    uint32_t figures; /* never 0 */
    sl_timed_device *device, *host;
    sl_memory memory, host_memory;  /* host_memory: beside a GPU */
    sl_ops ops, host_ops, roof_ops; /* the last two: beside a GPU */
    sl_copies copies;               /* between device and host */
    sl_rank_sums sums;
    sl_samples flops[SL_TYPE_COUNT], loops[SL_LOOP_COUNT]; /* rates of the host; flops: of a cpu */
} measurement;

static bool has_gpu(const measurement *m)
{
    return m->device != m->host;
}

static bool measures(const measurement *m, sl_bench_figure figure)
{
    return m->figures >> figure & 1;
}

/* What is measured in rounds. */
static bool has_rounds(const measurement *m)
{
    const uint32_t others = 1u << SL_BENCH_DISK | 1u << SL_BENCH_NUMA | kernel_figures;
    return (m->figures & ~others) != 0;
}

static void report_progress(const measurement *m, const char *line)
{
    if (m->options->progress)
        m->options->progress(m->options->user, line);
}

/* ---- devices, memory, warm-up ---- */

static sl_status open_devices(measurement *m)
{
    const sl_bench_options *options = m->options;
    SL_TRY(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, options->thread_count, &m->host));
    m->device = m->host;
    if (options->device == SL_DEVICE_CPU)
        return SL_OK;
    sl_cuda_options cuda = options->cuda;
    cuda.times_algorithms = !options->is_quick;
    return sl_timed_device_open(options->device, options->device_index, &cuda,
                                options->thread_count, &m->device);
}

void sl_bench_warn_of_load(const sl_bench_options *options)
{
    double load = 0;
    if (options->progress && getloadavg(&load, 1) == 1 && load > load_max)
        sl_log_write(SL_LOG_WARNING, "other work (load %.1f) disturbs what is measured now", load);
}

static sl_status open_ops(const measurement *m, sl_memory *memory, sl_ops_list list,
                          sl_ops *out_ops)
{
    const uint32_t figures = list == SL_OPS_ROOFS ? UINT32_MAX : m->figures;
    const sl_ops_selection selection = {list, figures, m->options->is_quick,
                                        m->options->small_shape};
    char line[LINE_BYTES];
    SL_TRY(sl_ops_open(memory, &selection, out_ops));
    if (out_ops->count == 0)
        return SL_OK;
    snprintf(line, sizeof line, "warming up %u ops, %s", out_ops->count, memory->device->ops->name);
    report_progress(m, line);
    return sl_ops_warm_up(out_ops);
}

static sl_status open_cases(measurement *m)
{
    bool is_quick = m->options->is_quick;
    sl_bench_warn_of_load(m->options);
    report_progress(m, "filling memory with random numbers");
    SL_TRY(sl_memory_open(m->device, is_quick, &m->memory));
    if (measures(m, SL_BENCH_COPY) || (has_gpu(m) && measures(m, SL_BENCH_ADAMW)))
        SL_TRY(sl_copies_open(m->device, is_quick, &m->copies));
    if (measures(m, SL_BENCH_COMM))
        SL_TRY(sl_rank_sums_open(is_quick, &m->sums));
    SL_TRY(open_ops(m, &m->memory, SL_OPS_OF_STEPS, &m->ops));
    if (!has_gpu(m))
        return SL_OK;
    SL_TRY(sl_memory_open(m->host, is_quick, &m->host_memory));
    SL_TRY(open_ops(m, &m->host_memory, SL_OPS_ADAMW, &m->host_ops));
    return open_ops(m, &m->memory, SL_OPS_ROOFS, &m->roof_ops);
}

static void close_measurement(measurement *m)
{
    sl_ops_close(&m->roof_ops);
    sl_ops_close(&m->host_ops);
    sl_ops_close(&m->ops);
    sl_rank_sums_close(&m->sums);
    sl_copies_close(&m->copies);
    sl_memory_close(&m->host_memory);
    sl_memory_close(&m->memory);
    if (has_gpu(m))
        sl_timed_device_close(m->device);
    sl_timed_device_close(m->host);
}

/* ---- rounds ---- */

static sl_status sample_roofs(measurement *m)
{
    sl_workers *workers = m->host->workers;
    sl_memory *memory = has_gpu(m) ? &m->host_memory : &m->memory;
    bool has_loops = measures(m, SL_BENCH_MEMORY) || measures(m, SL_BENCH_ADAMW);
    bool has_flops = !has_gpu(m) && (measures(m, SL_BENCH_GEMM) || measures(m, SL_BENCH_OP));
    for (int type = 0; type < SL_TYPE_COUNT && has_flops; type++)
        sl_samples_add(&m->flops[type], sl_roofs_flops(workers, (sl_type)type));
    for (int loop = 0; loop < SL_LOOP_COUNT && has_loops; loop++) {
        double rate = 0;
        SL_TRY(sl_roofs_memory(workers, memory, (sl_memory_loop)loop,
                               loop_bytes[m->options->is_quick], &rate));
        sl_samples_add(&m->loops[loop], rate);
    }
    return SL_OK;
}

static sl_status run_rounds(measurement *m)
{
    const uint32_t count = m->options->is_quick ? QUICK_ROUNDS : ROUNDS;
    char line[LINE_BYTES];
    for (uint32_t round = 0; round < count; round++) {
        snprintf(line, sizeof line, "ops, copies and memory: round %u of %u", round + 1, count);
        report_progress(m, line);
        SL_TRY(sample_roofs(m));
        if (m->copies.mapped_bytes > 0)
            SL_TRY(sl_copies_sample(&m->copies));
        if (m->sums.count > 0)
            SL_TRY(sl_rank_sums_sample(&m->sums));
        SL_TRY(sl_ops_sample(&m->roof_ops));
        SL_TRY(sl_ops_sample(&m->ops));
        SL_TRY(sl_ops_sample(&m->host_ops));
    }
    return SL_OK;
}

/* ---- the machine ---- */

/* What the least op of a GPU took. */
static double find_op_seconds(const measurement *m)
{
    for (uint32_t i = 0; i < m->roof_ops.count; i++)
        if (m->roof_ops.cases[i].kind == SL_OP_CLEAR)
            return sl_samples_median(&m->roof_ops.cases[i].seconds);
    return queue_seconds;
}

/* Beside a GPU: the best of the loops that were measured. */
static void fit_host_memory(const measurement *m, sl_machine *machine)
{
    double best = 0;
    for (int loop = 0; loop < SL_LOOP_COUNT; loop++)
        if (m->loops[loop].count > 0)
            best = fmax(best, sl_samples_median(&m->loops[loop]));
    if (has_gpu(m) && best > 0)
        machine->host_memory_rate = best;
}

static sl_status fit_machine(const measurement *m, sl_machine *machine)
{
    fit_host_memory(m, machine);
    if (!m->options->base || measures(m, SL_BENCH_OP))
        machine->op_seconds = find_op_seconds(m);
    SL_TRY(sl_ops_fit(&m->ops, machine));
    SL_TRY(sl_ops_fit_host(has_gpu(m) ? &m->host_ops : &m->ops, machine));
    if (measures(m, SL_BENCH_COPY))
        sl_copies_set_machine(&m->copies, queue_seconds, machine);
    if (measures(m, SL_BENCH_COMM))
        sl_rank_sums_fit(&m->sums, machine);
    machine->is_measured = true;
    return SL_OK;
}

/* ---- rows ---- */

sl_status sl_bench_add(sl_bench *bench, const sl_bench_row *row)
{
    SL_TRY(SL_ARRAY_GROW(bench->rows, bench->row_count, bench->row_capacity, "rows of a bench"));
    bench->rows[bench->row_count++] = *row;
    return SL_OK;
}

/* What becomes of the results: gradients of micro-batches are summed in fp32. */
static const char *name_result(const sl_ops_case *one)
{
    const sl_op_attrs *a = &one->attrs;
    const bool is_widened = a->type != SL_TYPE_FP32 && a->grad_type == SL_TYPE_FP32;
    if (a->adds_gradient)
        return a->adds_output ? ", added, summed" : ", summed";
    if (sl_ops_makes_gradient(one->kind) && is_widened)
        return a->adds_output ? ", added, fp32 gradient" : ", fp32 gradient";
    return a->adds_output ? ", added" : "";
}

/* "linear 768x2304, 256 rows"; sizes that an op does not have are left out. */
static void name_case(const sl_ops_case *one, char out_name[64])
{
    const sl_op_attrs *a = &one->attrs;
    static const char *const state_names[SL_STATES_COUNT] = {[SL_STATES_FP32] = "",
                                                             [SL_STATES_BF16] = ", bf16 states",
                                                             [SL_STATES_INT8] = ", int8 states"};
    const sl_op_info *info = sl_op_info_of(one->kind);
    const char *name = info->name;
    unsigned long long rows = a->row_count ? a->row_count : a->batch * a->seq;
    unsigned long long out = a->out ? a->out : a->id_count;
    if (a->element_count)
        snprintf(out_name, 64, "%s %.4g M%s%s%s", name, 1e-6 * (double)a->element_count,
                 a->grad_type ? ", half gradient" : "",
                 state_names[info->updates_chunk ? a->state_type : SL_STATES_FP32],
                 info->updates_chunk && a->master_type == SL_MASTER_LOW ? ", low master" : "");
    else if (a->heads)
        snprintf(out_name, 64, "%s %llu x T=%llu, %llu wide", name, (unsigned long long)a->batch,
                 (unsigned long long)a->seq, (unsigned long long)a->in);
    else if (out)
        snprintf(out_name, 64, "%s %llux%llu, %llu rows%s", name, (unsigned long long)a->in, out,
                 rows, name_result(one));
    else
        snprintf(out_name, 64, "%s %llu wide, %llu rows%s", name, (unsigned long long)a->in, rows,
                 name_result(one));
}

static double count_flops(const sl_ops_case *one)
{
    return (double)sl_op_flops(one->kind, &one->attrs);
}

/* The median rate of what the case is held against; 0: nothing says more than itself. */
static double find_roof(const measurement *m, const sl_ops_case *one, bool on_host)
{
    if (count_flops(one) > 0) {
        for (uint32_t i = 0; i < m->roof_ops.count; i++) {
            const sl_ops_case *roof = &m->roof_ops.cases[i];
            if (roof->kind == SL_OP_LINEAR && roof->attrs.type == one->attrs.type)
                return count_flops(roof) / sl_samples_median(&roof->seconds);
        }
        return sl_samples_median(&m->flops[one->attrs.type]);
    }
    if (!sl_op_info_of(one->kind)
             ->updates_chunk) /* the others are not memory's alone: caches hold their data */
        return 0;
    const sl_copies_case *within = &m->copies.cases[SL_COPIES_WITHIN];
    return on_host ? sl_samples_median(&m->loops[SL_LOOP_UPDATE])
                   : 2.0 * (double)within->bytes / sl_samples_median(&within->seconds);
}

static sl_status add_op(const measurement *m, const sl_ops_case *one, bool on_host, sl_bench *bench)
{
    const double flops = count_flops(one);
    const double bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs);
    const sl_bench_figure figure = sl_ops_figure(one->kind);
    const bool is_host_adamw = on_host && figure == SL_BENCH_ADAMW;
    sl_bench_row row = {.group = is_host_adamw ? "host_adamw" : figure_names[figure],
                        .type = sl_type_name((sl_type)one->attrs.type),
                        .rate = sl_samples_rate(&one->seconds, flops > 0 ? flops : bytes),
                        .seconds = sl_samples_median(&one->seconds),
                        .fit_seconds = sl_machine_op_seconds(&bench->profile.machine, one->kind,
                                                             &one->attrs, on_host),
                        .roof = find_roof(m, one, on_host || !has_gpu(m)),
                        .is_flops = flops > 0};
    name_case(one, row.name);
    return sl_bench_add(bench, &row);
}

static sl_status add_ops(const measurement *m, const sl_ops *ops, bool on_host, sl_bench *bench)
{
    for (uint32_t i = 0; i < ops->count; i++)
        SL_TRY(add_op(m, &ops->cases[i], on_host, bench));
    return SL_OK;
}

static sl_status add_rate(sl_bench *bench, const char *group, const char *type, const char *name,
                          sl_percentiles rate)
{
    bool is_flops = strcmp(group, "gemm") == 0;
    sl_bench_row row = {.group = group, .type = type, .rate = rate, .is_flops = is_flops};
    snprintf(row.name, sizeof row.name, "%s", name);
    return sl_bench_add(bench, &row);
}

static const char *const loop_names[SL_LOOP_COUNT] = {
    [SL_LOOP_READ] = "reading",
    [SL_LOOP_UPDATE] = "4 reads, 3 writes",
    [SL_LOOP_SCALE] = "scale, as STREAM counts",
    [SL_LOOP_TRIAD] = "triad, as STREAM counts",
};

/* The products that others are held against stand as roofs; the least op is none of them. */
static sl_status add_roofs(const measurement *m, sl_bench *bench)
{
    char name[64];
    for (int type = 0; type < SL_TYPE_COUNT && m->flops[type].count > 0; type++)
        SL_TRY(add_rate(bench, "gemm", sl_type_name((sl_type)type), "multiply-adds from registers",
                        sl_samples_percentiles(&m->flops[type])));
    for (uint32_t i = 0; i < m->roof_ops.count; i++) {
        const sl_ops_case *one = &m->roof_ops.cases[i];
        if (one->kind != SL_OP_LINEAR || !measures(m, SL_BENCH_GEMM))
            continue;
        name_case(one, name);
        SL_TRY(add_rate(bench, "gemm", sl_type_name((sl_type)one->attrs.type), name,
                        sl_samples_rate(&one->seconds, count_flops(one))));
    }
    for (int loop = 0; loop < SL_LOOP_COUNT; loop++)
        if (m->loops[loop].count > 0)
            SL_TRY(add_rate(bench, "memory", "", loop_names[loop],
                            sl_samples_percentiles(&m->loops[loop])));
    return SL_OK;
}

static sl_status add_copies(const measurement *m, sl_bench *bench)
{
    for (int kind = 0; kind < SL_COPIES_COUNT && m->copies.cases[kind].seconds.count > 0; kind++) {
        const sl_copies_case *one = &m->copies.cases[kind];
        double bytes = (kind == SL_COPIES_WITHIN ? 2.0 : 1.0) * (double)one->bytes;
        SL_TRY(add_rate(bench, "copy", "", one->name, sl_samples_rate(&one->seconds, bytes)));
        bench->rows[bench->row_count - 1].seconds = sl_samples_median(&one->seconds);
    }
    return SL_OK;
}

/* Bytes of the sum a second, beside a plain copy of as many. */
static sl_status add_sums(const measurement *m, sl_bench *bench)
{
    for (uint32_t i = 0; i < m->sums.count; i++) {
        const sl_rank_sums_case *one = &m->sums.cases[i];
        const double bytes = (double)(one->element_count * sl_type_bytes(one->type));
        sl_bench_row row = {.group = "comm",
                            .type = sl_type_name(one->type),
                            .rate = sl_samples_rate(&one->seconds, bytes),
                            .seconds = sl_samples_median(&one->seconds),
                            .roof = bytes / sl_samples_median(&one->copy_seconds)};
        snprintf(row.name, sizeof row.name, "all_reduce of 2 ranks, %.4g MiB", bytes / (1 << 20));
        SL_TRY(sl_bench_add(bench, &row));
    }
    return SL_OK;
}

static sl_status list_algorithms(const measurement *m, sl_bench *bench)
{
    const sl_timed_device *device = m->device;
    return device->times_algorithms ? sl_kernels_list_algorithms(device->kernels, device->library,
                                                                 "", "\n", &bench->algorithms)
                                    : SL_OK;
}

/* ---- the run ---- */

static sl_status measure_machine(measurement *m, sl_bench *bench)
{
    SL_TRY(open_devices(m));
    sl_profile_init(&bench->profile,
                    &(sl_profile_subject){.device = m->device->ops->kind,
                                          .worker_count = m->options->thread_count,
                                          .info = has_gpu(m) ? &m->device->info : NULL});
    if (m->options->base)
        bench->profile.machine = *m->options->base;
    if (measures(m, SL_BENCH_DISK)) /* first: a directory may be wrong */
        SL_TRY(sl_disk_measure(m->options, m->device, bench));
    if (measures(m, SL_BENCH_NUMA) && !m->options->small_shape)
        SL_TRY(sl_numa_measure(m->options, bench));
    if (m->figures & kernel_figures)
        SL_TRY(sl_kernels_measure(m->options, m->figures, m->device, bench));
    if (!has_rounds(m))
        return list_algorithms(m, bench);
    SL_TRY(open_cases(m));
    SL_TRY(run_rounds(m));
    SL_TRY(fit_machine(m, &bench->profile.machine));
    SL_TRY(add_roofs(m, bench));
    SL_TRY(add_copies(m, bench));
    SL_TRY(add_sums(m, bench));
    SL_TRY(add_ops(m, &m->ops, false, bench));
    SL_TRY(add_ops(m, &m->host_ops, true, bench));
    return list_algorithms(m, bench);
}

sl_status sl_bench_run(const sl_bench_options *options, sl_bench *out_bench)
{
    sl_bench bench = {0};
    const uint32_t all = (1u << SL_BENCH_PROFILE_COUNT) - 1;
    measurement m = {.options = options, .figures = options->figures ? options->figures : all};
    sl_status status = measure_machine(&m, &bench);
    close_measurement(&m);
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
    free(bench->algorithms);
    *bench = (sl_bench){0};
}

/* ---- as JSON ---- */

/* Adds a key for each size that the kernel has. */
static int add_sizes(const sl_bench_kernel *kernel, json_t *object)
{
    const struct {
        const char *name;
        uint64_t size;
    } sizes[] = {{"batch", kernel->batch},
                 {"rows", kernel->rows},
                 {"in", kernel->in},
                 {"out", kernel->out},
                 {"heads", kernel->heads},
                 {"key_heads", kernel->key_heads},
                 {"head_width", kernel->head_width}};
    int failed = json_object_set_new(object, "model", json_string(kernel->model)) ||
                 json_object_set_new(object, "part", json_string(kernel->part)) ||
                 json_object_set_new(object, "direction", json_string(kernel->direction));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !failed; i++)
        if (sizes[i].size > 0)
            failed =
                json_object_set_new(object, sizes[i].name, json_integer((json_int_t)sizes[i].size));
    return failed;
}

static json_t *format_row(const sl_bench_row *row)
{
    /* A key whose value is NULL is left out ("o*"). */
    static const char *const verdicts[] = {"same", "worse", "better"};
    const bool has_roof = row->roof > 0, has_old = row->old.median > 0;
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*}",
                     "group", row->group, "type", row->type, "name", row->name, "unit",
                     row->is_flops ? "FLOP/s" : "B/s", "median", row->rate.median, "p10",
                     row->rate.p10, "p90", row->rate.p90, "seconds", row->seconds, "fit_seconds",
                     row->fit_seconds > 0 ? json_real(row->fit_seconds) : NULL, "roof",
                     has_roof ? json_real(row->roof) : NULL, "percent_of_roof",
                     has_roof ? json_real(100 * row->rate.median / row->roof) : NULL, "old_median",
                     has_old ? json_real(row->old.median) : NULL, "ratio",
                     has_old ? json_real(row->rate.median / row->old.median) : NULL, "verdict",
                     has_old ? json_string(verdicts[row->verdict]) : NULL);
}

static int append_row(const sl_bench_row *row, json_t *rows)
{
    json_t *object = format_row(row);
    int failed = !object || (row->kernel.model && add_sizes(&row->kernel, object));
    if (failed) {
        json_decref(object);
        return failed;
    }
    return json_array_append_new(rows, object);
}

sl_status sl_bench_format(const sl_bench *bench, json_t **out_object)
{
    const sl_profile *profile = &bench->profile;
    json_t *rows = json_array();
    int failed = !rows;
    for (uint32_t i = 0; i < bench->row_count && !failed; i++)
        failed = append_row(&bench->rows[i], rows);
    if (failed) {
        json_decref(rows);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the report of a bench");
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:i, "
        "s:o}",
        "host", profile->host, "gpu", profile->gpu, "cpu", profile->cpu, "kernels",
        profile->kernels, "version", profile->version, "date", profile->date, "quick",
        (int)profile->is_quick, "core_count", (int)profile->core_count, "thread_count",
        (int)profile->thread_count, "disk", profile->disk, "disk_note", bench->disk_note,
        "fio_note", bench->fio_note, "numa_note", bench->numa_note, "against", bench->old_note,
        "against_ratio", bench->old_ratio, "worse_count", (int)bench->worse_count, "better_count",
        (int)bench->better_count, "rows", rows);
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the report of a bench");
    *out_object = object;
    return SL_OK;
}
