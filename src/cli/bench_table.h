/* What `bench` prints for people: a summary of about ten lines, and on request every row. */
#ifndef SL_CLI_BENCH_TABLE_H
#define SL_CLI_BENCH_TABLE_H

#include "bench/bench.h"

/* Prints every row, with its spread and its share of the roof. */
void sl_bench_table_print(const sl_bench *bench);

/* Prints which rows changed since the run that this one is held against; nothing without one. */
void sl_bench_table_compare(const sl_bench *bench);

/* Prints the machine, a line for each group of rows, and which rows changed since the run that this
 * one is held against. */
void sl_bench_table_summarize(const sl_bench *bench);

#endif
