/* What `bench --only product,attention` prints for people: a table for each figure and type. */
#ifndef SL_CLI_KERNEL_TABLE_H
#define SL_CLI_KERNEL_TABLE_H

#include "bench/bench.h"

/* Prints nothing if there are no rows of product or attention. */
void sl_kernel_table_print(const sl_bench *bench);

#endif
