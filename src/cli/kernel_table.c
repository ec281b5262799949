/* A line for each product or attention of a model, its directions side by side, 79 columns. */
#include "kernel_table.h"

#include <stdio.h>
#include <string.h>

#include "terminal.h"

enum { DIRECTIONS = 3, PART_BYTES = 32 };

static const struct table {
    const char *group, *title, *part, *rows, *direction[DIRECTIONS];
} tables[] = {
    {"product", "products", "product", "rows", {"forward", "input", "weight"}},
    {"attention", "attention, causal", "heads", "T", {"forward", "backward", "cached"}},
};

static const double giga = 1e9;

static bool is_of(const sl_bench_row *row, const struct table *table, const char *type)
{
    return strcmp(row->group, table->group) == 0 && strcmp(row->type, type) == 0;
}

/* Whether two rows stand in one line. */
static bool is_same_line(const sl_bench_row *a, const sl_bench_row *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->type, b->type) == 0 &&
           strcmp(a->kernel.model, b->kernel.model) == 0 &&
           strcmp(a->kernel.part, b->kernel.part) == 0 && a->kernel.rows == b->kernel.rows;
}

static void name_part(const sl_bench_kernel *kernel, char out_name[PART_BYTES])
{
    if (kernel->heads)
        snprintf(out_name, PART_BYTES, "%llu on %llu of %llu", (unsigned long long)kernel->heads,
                 (unsigned long long)kernel->key_heads, (unsigned long long)kernel->head_width);
    else
        snprintf(out_name, PART_BYTES, "%s %llux%llu", kernel->part, (unsigned long long)kernel->in,
                 (unsigned long long)kernel->out);
}

/* Beside an earlier run the ratio to it stands in place of the share of the roof. */
static void print_cell(const sl_bench_row *row)
{
    if (!row)
        printf(" %7s %4s", "-", "");
    else if (row->old.median > 0)
        printf(" %6.0f %4.2fx", row->rate.median / giga, row->rate.median / row->old.median);
    else if (row->roof > 0)
        printf(" %7.1f %3.0f%%", row->rate.median / giga, 100 * row->rate.median / row->roof);
    else
        printf(" %7.1f %4s", row->rate.median / giga, "");
}

/* The line that begins with row `first`; rows of one line follow each other. */
static void print_line(const sl_bench *bench, const struct table *table, uint32_t first)
{
    const sl_bench_row *row = &bench->rows[first];
    const sl_bench_row *cells[DIRECTIONS] = {NULL};
    char part[PART_BYTES];
    for (uint32_t i = first; i < bench->row_count && is_same_line(&bench->rows[i], row); i++)
        for (int d = 0; d < DIRECTIONS; d++)
            if (strcmp(bench->rows[i].kernel.direction, table->direction[d]) == 0)
                cells[d] = &bench->rows[i];
    name_part(&row->kernel, part);
    printf("  %-12s %-22s %4llu", row->kernel.model, part, (unsigned long long)row->kernel.rows);
    for (int d = 0; d < DIRECTIONS; d++)
        print_cell(cells[d]);
    putchar('\n');
}

/* Of the type's first rows, as many as samples are kept. */
static double find_roof(const sl_bench *bench, const struct table *table, const char *type)
{
    sl_samples roofs = {.count = 0};
    for (uint32_t i = 0; i < bench->row_count; i++)
        if (is_of(&bench->rows[i], table, type) && bench->rows[i].roof > 0)
            sl_samples_add(&roofs, bench->rows[i].roof);
    return sl_samples_median(&roofs);
}

static void print_head(const sl_bench *bench, const struct table *table, const char *type)
{
    const double roof = find_roof(bench, table, type);
    printf("\n%s%s, %s: GFLOP/s", sl_terminal_begin(stdout, SL_TERMINAL_HEADING), table->title,
           type);
    if (*bench->old_note)
        printf(", ratio to the earlier run");
    else if (roof > 0)
        printf(", share of multiply-adds from registers (%.0f)", roof / giga);
    printf("%s\n  %-12s %-22s %4s", sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), "model",
           table->part, table->rows);
    for (int d = 0; d < DIRECTIONS; d++)
        printf(" %12s", table->direction[d]);
    putchar('\n');
}

static void print_type(const sl_bench *bench, const struct table *table, const char *type)
{
    const sl_bench_row *last = NULL;
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        if (!is_of(row, table, type))
            continue;
        if (!last)
            print_head(bench, table, type);
        if (!last || !is_same_line(row, last))
            print_line(bench, table, i);
        last = row;
    }
}

void sl_kernel_table_print(const sl_bench *bench)
{
    bool is_any = false;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            print_type(bench, &tables[t], sl_type_name((sl_type)type));
    for (uint32_t i = 0; i < bench->row_count && !is_any; i++)
        is_any = bench->rows[i].kernel.model != NULL;
    if (is_any)
        putchar('\n');
}
