/* The exact sum of fp32 numbers that are not negative, in fixed point: see sl_norm_sum. Integers
 * add in any order to the same sum, so chunks, tiles, shards and ranks cannot matter. */
#ifndef SL_KERNELS_CPU_NORM_SUM_H
#define SL_KERNELS_CPU_NORM_SUM_H

#include "program/op_list.h"

/* Adds `value` >= 0 exactly; infinity, NaN or a negative number makes the sum non-finite for good.
 */
void sl_norm_sum_add(sl_norm_sum *sum, float value);

/* Adds another sum. */
void sl_norm_sum_merge(sl_norm_sum *sum, const sl_norm_sum *other);

/* The sum, rounded once to double; NaN if it is non-finite. */
double sl_norm_sum_value(const sl_norm_sum *sum);

#endif
