/* Groups of rows, as a table of 79 columns and as a line each. */
#include "bench_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "terminal.h"

enum { NAME_COLUMNS = 34, SUMMARY_INDENT = 14 };

/* In the order of the table. */
static const struct group {
    const char *name, *word, *title[SL_DEVICE_KIND_COUNT];
} groups[] = {
    {"gemm",
     "products",
     {"matrix products, against multiply-adds from registers",
      "matrix products, against the largest square one"}},
    {"adamw",
     "AdamW",
     {"AdamW, against a loop that reads four arrays and writes three",
      "AdamW on the device, against a copy within it"}},
    {"host_adamw",
     "AdamW (host)",
     {NULL, "AdamW on the host, against a loop that reads four and writes three"}},
    {"op",
     "other ops",
     {"other ops of a step, on data as warm as a step leaves it",
      "other ops of a step, on data as warm as a step leaves it"}},
    {"product", "model product", {NULL}}, /* kernel_table.c prints their rows */
    {"attention", "attention", {NULL}},
    {"memory", "memory", {"host memory, all workers", "host memory, all workers"}},
    {"numa", "NUMA nodes", {"memory by NUMA node", "memory by NUMA node"}},
    {"comm", "ranks", {"collectives, against a plain copy", "collectives, against a plain copy"}},
    {"copy", "copies", {"copies, one thread each", "copies, from and to locked memory"}},
    {"disk", "disk", {"disk", "disk, through the same locked memory"}},
};

enum { GROUP_COUNT = sizeof groups / sizeof groups[0] };

static const double giga = 1e9;

static const char *name_unit(bool is_flops)
{
    return is_flops ? "GFLOP/s" : "GB/s";
}

static bool is_of(const sl_bench_row *row, const struct group *group)
{
    return strcmp(row->group, group->name) == 0;
}

/* ---- every row ---- */

/* Beside an earlier run its ratio stands in place of the spread. */
static void print_row(const sl_bench_row *row)
{
    static const char *const verdicts[] = {"", " worse", " better"};
    char beside[32], share[16] = "";
    if (row->old.median > 0)
        snprintf(beside, sizeof beside, "x %.2f%s", row->rate.median / row->old.median,
                 verdicts[row->verdict]);
    else
        snprintf(beside, sizeof beside, "%.1f..%.1f", row->rate.p10 / giga, row->rate.p90 / giga);
    if (row->roof > 0)
        snprintf(share, sizeof share, "%3.0f%%", 100 * row->rate.median / row->roof);
    printf("  %-4s %-*s %7.1f %-7s %15s %4s\n", row->type, NAME_COLUMNS, row->name,
           row->rate.median / giga, name_unit(row->is_flops), beside, share);
}

static void print_title(const char *title)
{
    printf("\n%s%s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING), title,
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
}

static void print_group(const sl_bench *bench, const struct group *group)
{
    bool is_first = true;
    for (uint32_t i = 0; i < bench->row_count; i++) {
        if (!is_of(&bench->rows[i], group) || !group->title[bench->profile.device])
            continue;
        if (is_first)
            print_title(group->title[bench->profile.device]);
        is_first = false;
        print_row(&bench->rows[i]);
    }
}

void sl_bench_table_print(const sl_bench *bench)
{
    sl_terminal_print(stdout, 2,
                      "median, slow and fast end (p10..p90), share of the roof in the same run");
    for (int i = 0; i < GROUP_COUNT; i++)
        print_group(bench, &groups[i]);
    putchar('\n');
}

/* ---- a line for each group ---- */

typedef struct rates {
    double least, most; /* 0: there are no rows */
} rates;

static rates find_rates(const sl_bench *bench, const struct group *group, const char *type,
                        bool is_flops)
{
    rates found = {0, 0};
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        if (!is_of(row, group) || strcmp(row->type, type) != 0 || row->is_flops != is_flops)
            continue;
        found.least =
            found.most > 0 && found.least < row->rate.median ? found.least : row->rate.median;
        found.most = found.most > row->rate.median ? found.most : row->rate.median;
    }
    return found;
}

/* "fp32 93.1, bf16 88.0 GFLOP/s at best", or "12.1 to 20.3 GB/s" of rows without a type. */
static void add_rates(const sl_bench *bench, const struct group *group, bool is_flops,
                      sl_terminal_text *line)
{
    const char *between = line->used ? "; " : "";
    bool is_any = false;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const char *name = sl_type_name((sl_type)type);
        const rates found = find_rates(bench, group, name, is_flops);
        if (found.most <= 0)
            continue;
        sl_terminal_add(line, "%s%s %.1f", is_any ? ", " : between, name, found.most / giga);
        is_any = true;
    }
    if (is_any)
        sl_terminal_add(line, " %s at best", name_unit(is_flops));
    const rates others = find_rates(bench, group, "", is_flops);
    if (others.most > 0)
        sl_terminal_add(line, "%s%.1f to %.1f %s", is_any ? "; " : between, others.least / giga,
                        others.most / giga, name_unit(is_flops));
}

static int compare_shares(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void add_share(const sl_bench *bench, const struct group *group, sl_terminal_text *line)
{
    uint32_t count = 0;
    double *shares = calloc((size_t)bench->row_count + 1, sizeof *shares);
    for (uint32_t i = 0; shares && i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        if (is_of(row, group) && row->roof > 0)
            shares[count++] = row->rate.median / row->roof;
    }
    if (count > 0) {
        qsort(shares, count, sizeof *shares, compare_shares);
        sl_terminal_add(line, "; median share of the roof %.0f%%", 100 * shares[count / 2]);
    }
    free(shares);
}

/* The rates of each way, as plan and train use them. */
static void add_lanes(const sl_machine *machine, const struct group *group, sl_terminal_text *line)
{
    const double *rate = machine->copy_rate;
    if (strcmp(group->name, "copy") == 0)
        sl_terminal_add(line, "to the device %.1f, from it %.1f GB/s", rate[SL_LANE_H2D] / giga,
                        rate[SL_LANE_D2H] / giga);
    else if (strcmp(group->name, "disk") == 0)
        sl_terminal_add(line, "read %.2f, write %.2f, both at once %.2f GB/s",
                        rate[SL_LANE_READ] / giga, rate[SL_LANE_WRITE] / giga,
                        machine->mixed_disk_rate / giga);
}

static void summarize_group(const sl_bench *bench, const struct group *group)
{
    sl_terminal_text line = {.used = 0};
    bool is_there = false;
    for (uint32_t i = 0; i < bench->row_count; i++)
        is_there = is_there || is_of(&bench->rows[i], group);
    if (!is_there)
        return;
    add_lanes(&bench->profile.machine, group, &line);
    if (line.used == 0) {
        add_rates(bench, group, true, &line);
        add_rates(bench, group, false, &line);
        add_share(bench, group, &line);
    }
    sl_terminal_print(stdout, SUMMARY_INDENT, "%s%-*s%s%s",
                      sl_terminal_begin(stdout, SL_TERMINAL_HEADING), SUMMARY_INDENT, group->word,
                      sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), line.text);
}

static void print_notes(const sl_bench *bench)
{
    const sl_profile *profile = &bench->profile;
    if (*bench->disk_note)
        sl_terminal_print(stdout, 2, "disk: %s, %s", profile->disk, bench->disk_note);
    else if (*profile->disk)
        sl_terminal_print(stdout, 2, "the disk was not measured; its rates of before stay: %s",
                          profile->disk);
    else
        sl_terminal_print(stdout, 2, "the disk was not measured: give --disk-dir");
    if (*bench->fio_note)
        sl_terminal_print(stdout, 2, "no rows of fio: %s", bench->fio_note);
    if (*bench->numa_note)
        sl_terminal_print(stdout, 2, "no rows of NUMA nodes: %s", bench->numa_note);
}

void sl_bench_table_compare(const sl_bench *bench)
{
    if (!*bench->old_note)
        return;
    putchar('\n');
    sl_terminal_print(stdout, 2, "held against %s", bench->old_note);
    sl_terminal_print(stdout, 2,
                      "the middle of all ratios is %.3f; by more than the spread of both runs %u "
                      "rows are worse and %u better",
                      bench->old_ratio, bench->worse_count, bench->better_count);
    for (uint32_t i = 0; i < bench->row_count; i++)
        if (bench->rows[i].verdict != SL_BENCH_SAME)
            print_row(&bench->rows[i]);
}

void sl_bench_table_summarize(const sl_bench *bench)
{
    const sl_profile *profile = &bench->profile;
    if (profile->is_quick)
        puts("a quick bench: few shapes, few rounds");
    sl_terminal_print(stdout, 2, "%s%s%s, %u worker%s of %u core%s; %s", profile->gpu,
                      *profile->gpu ? " beside " : "", profile->cpu, profile->thread_count,
                      sl_plural(profile->thread_count), profile->core_count,
                      sl_plural(profile->core_count), profile->kernels);
    for (int i = 0; i < GROUP_COUNT; i++)
        summarize_group(bench, &groups[i]);
    print_notes(bench);
    sl_bench_table_compare(bench);
}
