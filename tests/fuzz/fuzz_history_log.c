/* A JSON log of a run. What is accepted has steps in order, values between their bounds, and as
 * many cells at most as were asked for; it is written as a page holds it, and each row is read
 * again. */
#define _GNU_SOURCE
#include <jansson.h>
#include <math.h>

#include "fuzz.h"
#include "report/history_log.h"

enum { CELLS = 16 };

static void check_cells(const sl_series *series)
{
    uint64_t count = 0, last_step = 0;
    for (uint32_t i = 0; series->count > 0 && i < series->cell_limit; i++) {
        const sl_series_cell *cell = &series->cells[i];
        if (cell->count == 0)
            continue;
        FUZZ_NEED(cell->last_step >> series->shift == series->first_cell + i);
        FUZZ_NEED(count == 0 || cell->last_step > last_step);
        FUZZ_NEED(cell->low <= cell->high && isfinite(cell->mean));
        FUZZ_NEED(cell->low_step <= cell->last_step && cell->high_step <= cell->last_step);
        last_step = cell->last_step;
        count += cell->count;
    }
    FUZZ_NEED(count == series->count);
}

static void check_rows(const json_t *rows)
{
    size_t i;
    json_t *row;
    sl_series_cell cell;
    json_array_foreach((json_t *)rows, i, row)
    {
        FUZZ_NEED(sl_series_parse_cell(row, &cell));
    }
}

static void check_page(const sl_history *run)
{
    json_t *object = NULL, *rows;
    const char *name;
    if (!fuzz_succeeds(sl_history_format(run, "log", &object)))
        return;
    json_object_foreach(json_object_get(object, "curves"), name, rows) check_rows(rows);
    json_object_foreach(json_object_get(object, "evals"), name, rows) check_rows(rows);
    json_decref(object);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_history run;
    scratch_path path = fuzz_write("run.jsonl", data, bytes);
    if (fuzz_succeeds(sl_history_open(CELLS, &run)) &&
        fuzz_accepts(sl_history_log_read(path.text, UINT64_MAX, &run))) {
        for (int i = 0; i < SL_HISTORY_CURVES; i++)
            check_cells(&run.curves[i]);
        for (int i = 0; i < SL_HISTORY_SETS; i++)
            check_cells(&run.evals[i]);
        FUZZ_NEED(run.curves[SL_HISTORY_LOSS].count + run.nonfinite_count >= run.step_count);
        FUZZ_NEED(run.first_step <= run.last_step);
        check_page(&run);
    }
    sl_history_close(&run);
}
