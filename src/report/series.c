/* The cells are a window on the numbers step >> shift. A value outside the window moves it, or,
 * when the outermost values are too far apart, halves the resolution first. The window is moved so
 * that all free cells lie on the side on which the value came: the next ones are expected there. */
#include "series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_LENGTH = 7 };

sl_status sl_series_open(uint32_t cell_limit, sl_series *out_series)
{
    *out_series = (sl_series){.cell_limit = cell_limit};
    out_series->cells = calloc(cell_limit, sizeof *out_series->cells);
    if (!out_series->cells)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the curves of a run");
    return SL_OK;
}

void sl_series_close(sl_series *series)
{
    free(series->cells);
    *series = (sl_series){0};
}

/* Differences and sums of values within this bound are finite. */
static bool is_usable(double value)
{
    return fabs(value) <= 1e300; /* false of a NaN */
}

static void merge(const sl_series_cell *from, sl_series_cell *to)
{
    if (from->count == 0)
        return;
    if (to->count == 0) {
        *to = *from;
        return;
    }
    if (from->low < to->low) {
        to->low = from->low;
        to->low_step = from->low_step;
    }
    if (from->high > to->high) {
        to->high = from->high;
        to->high_step = from->high_step;
    }
    to->last_step = from->last_step > to->last_step ? from->last_step : to->last_step;
    to->count += from->count;
    to->mean += (from->mean - to->mean) * ((double)from->count / (double)to->count);
}

/* Each cell goes to a place that is not behind its own, so none is overwritten before it moved. */
static void halve_resolution(sl_series *series)
{
    const uint64_t first = series->first_cell >> 1;
    for (uint32_t i = 0; i < series->cell_limit; i++) {
        const sl_series_cell cell = series->cells[i];
        series->cells[i].count = 0;
        merge(&cell, &series->cells[((series->first_cell + i) >> 1) - first]);
    }
    series->first_cell = first;
    series->low_cell >>= 1;
    series->high_cell >>= 1;
    series->shift++;
}

static void move_window(sl_series *series, uint64_t first_cell)
{
    const uint64_t kept = series->high_cell - series->low_cell + 1;
    memmove(series->cells + (series->low_cell - first_cell),
            series->cells + (series->low_cell - series->first_cell), kept * sizeof *series->cells);
    for (uint64_t i = 0; i < series->cell_limit; i++)
        if (first_cell + i < series->low_cell || first_cell + i > series->high_cell)
            series->cells[i].count = 0;
    series->first_cell = first_cell;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Makes the cell of a step part of the window. */
static uint64_t reach(sl_series *series, uint64_t step)
{
    if (series->count == 0) {
        series->first_cell = series->low_cell = series->high_cell = step >> series->shift;
        return series->first_cell;
    }
    while (distance(step >> series->shift, series->low_cell) >= series->cell_limit ||
           distance(step >> series->shift, series->high_cell) >= series->cell_limit)
        halve_resolution(series);
    const uint64_t cell = step >> series->shift, limit = series->cell_limit;
    if (cell < series->first_cell)
        move_window(series, series->high_cell + 1 > limit ? series->high_cell + 1 - limit : 0);
    else if (cell >= series->first_cell + limit)
        move_window(series, series->low_cell);
    series->low_cell = cell < series->low_cell ? cell : series->low_cell;
    series->high_cell = cell > series->high_cell ? cell : series->high_cell;
    return cell;
}

void sl_series_add_cell(sl_series *series, const sl_series_cell *cell)
{
    const uint64_t place = reach(series, cell->last_step);
    merge(cell, &series->cells[place - series->first_cell]);
    series->count += cell->count;
}

void sl_series_add(sl_series *series, uint64_t step, double value)
{
    const sl_series_cell cell = {1, step, step, step, value, value, value};
    if (is_usable(value) && step <= SL_SERIES_STEP_MAX)
        sl_series_add_cell(series, &cell);
}

/* ---- as JSON ---- */

static json_t *format_cell(const sl_series_cell *cell)
{
    if (cell->count == 1)
        return json_pack("[I,f]", (json_int_t)cell->last_step, cell->mean);
    return json_pack("[I,I,f,I,f,I,f]", (json_int_t)cell->last_step, (json_int_t)cell->count,
                     cell->mean, (json_int_t)cell->low_step, cell->low, (json_int_t)cell->high_step,
                     cell->high);
}

json_t *sl_series_format(const sl_series *series)
{
    json_t *rows = json_array();
    bool has_failed = !rows;
    for (uint32_t i = 0; series->count > 0 && i < series->cell_limit; i++)
        if (series->cells[i].count > 0)
            has_failed |= json_array_append_new(rows, format_cell(&series->cells[i])) != 0;
    if (has_failed) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}

static bool parse_step(const json_t *value, uint64_t *out_step)
{
    const json_int_t step = json_integer_value(value);
    *out_step = (uint64_t)step;
    return json_is_integer(value) && step >= 0 && (uint64_t)step <= SL_SERIES_STEP_MAX;
}

static bool parse_value(const json_t *value, double *out_value)
{
    *out_value = json_number_value(value);
    return json_is_number(value) && is_usable(*out_value);
}

static bool parse_single(const json_t *row, sl_series_cell *cell)
{
    if (!parse_step(json_array_get(row, 0), &cell->last_step) ||
        !parse_value(json_array_get(row, 1), &cell->mean))
        return false;
    cell->count = 1;
    cell->low_step = cell->high_step = cell->last_step;
    cell->low = cell->high = cell->mean;
    return true;
}

bool sl_series_parse_cell(const json_t *row, sl_series_cell *out_cell)
{
    sl_series_cell *cell = out_cell;
    if (json_array_size(row) == 2)
        return parse_single(row, cell);
    return json_array_size(row) == ROW_LENGTH &&
           parse_step(json_array_get(row, 0), &cell->last_step) &&
           parse_step(json_array_get(row, 1), &cell->count) &&
           parse_value(json_array_get(row, 2), &cell->mean) &&
           parse_step(json_array_get(row, 3), &cell->low_step) &&
           parse_value(json_array_get(row, 4), &cell->low) &&
           parse_step(json_array_get(row, 5), &cell->high_step) &&
           parse_value(json_array_get(row, 6), &cell->high) && cell->count >= 2 &&
           cell->low <= cell->high && cell->low_step <= cell->last_step &&
           cell->high_step <= cell->last_step;
}
