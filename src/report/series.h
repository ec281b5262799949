/* One number of a run over its steps, in a bounded number of cells.
 *
 * A cell holds 2^shift neighbouring steps: the least and the greatest value with their steps, so
 * that a spike stays visible, and the mean. When the steps no longer fit, two cells become one. So
 * adding n values takes O(n) time, and the same memory for any n. Values may come in any order of
 * steps, but each step at most once.
 */
#ifndef SL_REPORT_SERIES_H
#define SL_REPORT_SERIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_SERIES_CELLS = 1024 };
#define SL_SERIES_STEP_MAX (UINT64_C(1) << 53) /* JSON's integers are exact up to it */

typedef struct sl_series_cell {
    uint64_t count; /* of values; 0: an empty cell */
    uint64_t last_step, low_step, high_step;
    double low, high, mean;
} sl_series_cell;

typedef struct sl_series {
    sl_series_cell *cells; /* [cell_limit]; cells[i] holds the steps whose step >> shift is
                              first_cell + i */
    uint32_t cell_limit, shift;
    uint64_t first_cell;
    uint64_t low_cell, high_cell; /* the outermost cells with a value */
    uint64_t count;               /* of values; 0: low_cell and high_cell mean nothing */
} sl_series;

/* `cell_limit` is at least 2. SL_ERROR_SYSTEM. The caller closes the series. */
sl_status sl_series_open(uint32_t cell_limit, sl_series *out_series);

/* A zeroed or closed series is fine. */
void sl_series_close(sl_series *series);

/* Adds a value. Does nothing with one that is not finite, and with a step above
 * SL_SERIES_STEP_MAX. */
void sl_series_add(sl_series *series, uint64_t step, double value);

/* Adds a cell of another series, to the cell that its last step belongs to. */
void sl_series_add_cell(sl_series *series, const sl_series_cell *cell);

/* A new array with a row for each cell: [step, value] of one value, else
 * [last step, count, mean, step of the least, least, step of the greatest, greatest]. NULL: no
 * memory. */
json_t *sl_series_format(const sl_series *series);

/* Reads such a row. False: it is none, or its numbers contradict each other. */
bool sl_series_parse_cell(const json_t *row, sl_series_cell *out_cell);

#endif
