/* A run beside an earlier one, row by row. A row changed if no sample of one run lies among those
 * of the other (their p10 to p90 are apart) and the medians are farther apart than either spread:
 * a machine that was merely noisy changes nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "files/fields.h"
#include "files/json_file.h"

enum { FILE_BYTES_MAX = 4 << 20, ROWS_MAX = 100000, UNIT_BYTES = 16 };

typedef struct old_row {
    char group[32], type[32], name[64], unit[UNIT_BYTES];
    sl_percentiles rate;
} old_row;

static const sl_field row_fields[] = {
    SL_FIELD_AS(CHARS, "group", old_row, group), SL_FIELD_AS(CHARS, "type", old_row, type),
    SL_FIELD_AS(CHARS, "name", old_row, name),   SL_FIELD_AS(CHARS, "unit", old_row, unit),
    SL_FIELD("median", old_row, rate.median),    SL_FIELD("p10", old_row, rate.p10),
    SL_FIELD("p90", old_row, rate.p90),          {0},
};

typedef struct identity {
    char host[SL_PROFILE_TEXT_BYTES], cpu[SL_PROFILE_TEXT_BYTES], gpu[SL_PROFILE_TEXT_BYTES];
    char date[SL_PROFILE_TEXT_BYTES];
    uint32_t thread_count;
} identity;

static const sl_field identity_fields[] = {
    SL_FIELD_AS(CHARS, "host", identity, host),
    SL_FIELD_AS(CHARS, "cpu", identity, cpu),
    SL_FIELD_AS(CHARS, "gpu", identity, gpu, .flags = SL_FIELD_OPTIONAL),
    SL_FIELD_AS(CHARS, "date", identity, date),
    SL_FIELD("thread_count", identity, thread_count, .low = 1, .high = 65536),
    {0},
};

static double find_spread(const sl_percentiles *rate)
{
    return rate->p90 - rate->p10;
}

static sl_bench_verdict judge(const sl_bench_row *row)
{
    const double far = row->rate.median - row->old.median, own = find_spread(&row->rate);
    const double spread = own > find_spread(&row->old) ? own : find_spread(&row->old);
    if (row->rate.p90 < row->old.p10 && -far > spread)
        return SL_BENCH_WORSE;
    return row->rate.p10 > row->old.p90 && far > spread ? SL_BENCH_BETTER : SL_BENCH_SAME;
}

static bool is_same_row(const sl_bench_row *row, const old_row *old)
{
    return strcmp(row->group, old->group) == 0 && strcmp(row->type, old->type) == 0 &&
           strcmp(row->name, old->name) == 0 &&
           strcmp(row->is_flops ? "FLOP/s" : "B/s", old->unit) == 0;
}

static sl_status read_row(const char *path, const json_t *object, sl_bench *bench)
{
    old_row old;
    SL_TRY(sl_fields_read(path, object, row_fields, &old));
    bool is_ordered =
        old.rate.p10 >= 1 && old.rate.p10 <= old.rate.median && old.rate.median <= old.rate.p90;
    if (!is_ordered)
        SL_FAIL(SL_ERROR_DATA, "%s: \"%s\": the rates %g, %g and %g are below 1 or not in order",
                path, old.name, old.rate.p10, old.rate.median, old.rate.p90);
    for (uint32_t i = 0; i < bench->row_count; i++)
        if (is_same_row(&bench->rows[i], &old)) {
            bench->rows[i].old = old.rate;
            bench->rows[i].verdict = judge(&bench->rows[i]);
        }
    return SL_OK;
}

static int compare_ratios(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sl_status sum_up(sl_bench *bench)
{
    uint32_t count = 0;
    double *ratios = calloc((size_t)bench->row_count + 1, sizeof *ratios);
    if (!ratios)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u ratios", bench->row_count);
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        bench->worse_count += row->verdict == SL_BENCH_WORSE;
        bench->better_count += row->verdict == SL_BENCH_BETTER;
        if (row->old.median > 0)
            ratios[count++] = row->rate.median / row->old.median;
    }
    qsort(ratios, count, sizeof *ratios, compare_ratios);
    bench->old_ratio = count ? ratios[count / 2] : 0;
    free(ratios);
    return SL_OK;
}

static void describe(const char *path, const identity *old, sl_bench *bench)
{
    const sl_profile *here = &bench->profile;
    const char *other = strcmp(old->cpu, here->cpu) != 0   ? ", of another processor"
                        : strcmp(old->gpu, here->gpu) != 0 ? ", of another GPU"
                        : old->thread_count != here->thread_count
                            ? ", with another number of workers"
                        : strcmp(old->host, here->host) != 0 ? ", of another machine of that kind"
                                                             : "";
    snprintf(bench->old_note, sizeof bench->old_note, "%.200s of %.30s%s", path, old->date, other);
}

static sl_status read_report(const char *path, const json_t *root, sl_bench *bench)
{
    identity old = {.gpu = ""};
    const json_t *report = json_object_get(root, "report");
    report = report ? report : root;
    const json_t *rows = json_object_get(report, "rows");
    if (!json_is_array(rows) || json_array_size(rows) > ROWS_MAX)
        SL_FAIL(SL_ERROR_DATA,
                "%s: there is no list \"rows\": give what `sluice bench --json` printed, or a "
                "machine profile with its report",
                path);
    SL_TRY(sl_fields_read(path, report, identity_fields, &old));
    for (size_t i = 0; i < json_array_size(rows); i++)
        SL_TRY(read_row(path, json_array_get(rows, i), bench));
    describe(path, &old, bench);
    return sum_up(bench);
}

sl_status sl_bench_compare(sl_bench *bench, const char *path)
{
    json_t *root = NULL;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    sl_status status = read_report(path, root, bench);
    json_decref(root);
    return status;
}
