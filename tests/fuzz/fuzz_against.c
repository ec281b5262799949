/* What an earlier `bench` printed, as --against reads it. Rows of this run are given an older one
 * of any size: what is accepted is in order and can be divided by, verdicts follow from the numbers
 * alone and are counted, and words of the file that are shown hold nothing that a terminal obeys.
 */
#define _GNU_SOURCE
#include <math.h>

#include "bench/bench.h"
#include "fuzz.h"

static const sl_bench_row measured[] = {
    {.group = "gemm", .type = "fp32", .name = "linear", .rate = {100, 90, 110}, .is_flops = true},
    {.group = "memory", .type = "", .name = "scale", .rate = {2e10, 1e10, 2.5e10}},
    {.group = "op", .type = "bf16", .name = "gelu", .rate = {1e308, 1e308, 1e308}},
};

enum { ROWS = sizeof measured / sizeof measured[0] };

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static void check_row(const sl_bench_row *row)
{
    const sl_percentiles *now = &row->rate, *old = &row->old;
    const bool is_there = old->median > 0;
    FUZZ_NEED(is_there || row->verdict == SL_BENCH_SAME);
    FUZZ_NEED(!is_there || (old->p10 > 0 && old->p10 <= old->median && old->median <= old->p90));
    FUZZ_NEED(!is_there || isfinite(now->median / old->median));
    FUZZ_NEED(row->verdict != SL_BENCH_WORSE || now->p90 < old->p10);
    FUZZ_NEED(row->verdict != SL_BENCH_BETTER || now->p10 > old->p90);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_bench_row rows[ROWS];
    sl_bench bench = {.rows = rows, .row_count = ROWS, .row_capacity = ROWS};
    uint32_t counts[3] = {0};
    memcpy(rows, measured, sizeof rows);
    bench.profile.thread_count = 2;
    scratch_path path = fuzz_write("old.json", data, bytes);
    if (!fuzz_accepts(sl_bench_compare(&bench, path.text)))
        return;
    for (int i = 0; i < ROWS; i++) {
        check_row(&rows[i]);
        counts[rows[i].verdict]++;
    }
    FUZZ_NEED(counts[SL_BENCH_WORSE] == bench.worse_count);
    FUZZ_NEED(counts[SL_BENCH_BETTER] == bench.better_count);
    FUZZ_NEED(isfinite(bench.old_ratio) && bench.old_ratio >= 0);
    FUZZ_NEED(memchr(bench.old_note, '\0', sizeof bench.old_note) != NULL);
    FUZZ_NEED(is_plain(bench.old_note));
}
