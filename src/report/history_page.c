/* The numbers of a page stand in it as JSON, in the element sluice-data: "runs" is an array of what
 * sl_history_format makes. A page is read back cell by cell, as its log may be gone. */
#define _GNU_SOURCE /* memmem */
#include "history_page.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "files/json_file.h"
#include "files/page_file.h"
#include "page.h"
#include "sluice/version.h"

enum { PAGE_BYTES_MAX = 64 << 20, CELLS_OF_ALL_RUNS = 4096, CELLS_MIN = 128 };

uint32_t sl_history_page_cells(uint32_t run_count)
{
    const uint32_t cells = CELLS_OF_ALL_RUNS / (run_count ? run_count : 1);
    if (cells > SL_SERIES_CELLS)
        return SL_SERIES_CELLS;
    return cells < CELLS_MIN ? CELLS_MIN : cells;
}

/* ---- written ---- */

static sl_status list_runs(const sl_history *runs, char *const *names, uint32_t run_count,
                           json_t *list)
{
    for (uint32_t i = 0; i < run_count; i++) {
        json_t *object = NULL;
        SL_TRY(sl_history_format(&runs[i], names[i], &object));
        if (json_array_append_new(list, object) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    return SL_OK;
}

sl_status sl_history_page_write(const char *path, const sl_history *runs, char *const *names,
                                uint32_t run_count)
{
    char version[128];
    json_t *list = json_array();
    sl_status status = list_runs(runs, names, run_count, list);
    snprintf(version, sizeof version, "sluice %s (%s)", sl_version_text(), sl_version_commit());
    json_t *root = json_pack("{s:s, s:o}", "version", version, "runs", list);
    if (status == SL_OK && !root)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a report");
    if (status == SL_OK)
        status = sl_report_write_page(path, root, SL_PAGE_RUNS);
    json_decref(root);
    return status;
}

/* ---- read ---- */

static sl_status fail_page(const char *path)
{
    SL_FAIL(SL_ERROR_DATA, "%s: the numbers of this report are damaged", sl_files_show(path).text);
}

static sl_status read_numbers(const char *path, json_t **out_root)
{
    static const char opening[] = "id=\"sluice-data\">", closing[] = "</script>";
    sl_file file;
    char *text = NULL;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_REFUSE, &file));
    sl_status status = sl_files_read_text(&file, PAGE_BYTES_MAX, &text);
    if (status == SL_OK) {
        const char *start = memmem(text, file.bytes, opening, sizeof opening - 1);
        start = start ? start + sizeof opening - 1 : text + file.bytes;
        const size_t rest = (size_t)(text + file.bytes - start);
        const char *end = memmem(start, rest, closing, sizeof closing - 1);
        status = end ? sl_json_file_parse(path, start, (uint64_t)(end - start), out_root)
                     : fail_page(path);
    }
    free(text);
    sl_files_close(&file);
    return status;
}

/* A cell with steps on both sides of `step_end` cannot be divided. */
static bool add_rows(const json_t *rows, uint64_t step_end, sl_series *series)
{
    size_t i;
    json_t *row;
    sl_series_cell cell;
    json_array_foreach((json_t *)rows, i, row)
    {
        if (!sl_series_parse_cell(row, &cell))
            return false;
        if (cell.last_step < step_end)
            sl_series_add_cell(series, &cell);
    }
    return true;
}

static sl_status add_samples(const json_t *samples, uint64_t step_end, sl_history *run)
{
    size_t i;
    json_t *sample;
    json_array_foreach((json_t *)samples, i, sample)
    {
        const char *prompt = json_string_value(json_object_get(sample, "prompt"));
        const char *text = json_string_value(json_object_get(sample, "text"));
        const json_int_t step = json_integer_value(json_object_get(sample, "step"));
        if (prompt && text && step > 0 && (uint64_t)step < step_end)
            SL_TRY(sl_history_add_sample(run, (uint64_t)step, prompt, text));
    }
    return SL_OK;
}

static uint64_t count_of(const json_t *object, const char *key)
{
    const json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 ? (uint64_t)count : 0;
}

static bool take_run(const json_t *object, uint64_t step_end, sl_history *run)
{
    const json_t *curves = json_object_get(object, "curves");
    const json_t *evals = json_object_get(object, "evals");
    bool is_right = json_is_object(curves) && json_is_object(evals);
    for (int i = 0; is_right && i < SL_HISTORY_CURVES; i++)
        is_right = add_rows(json_object_get(curves, sl_history_curve_name((sl_history_curve)i)),
                            step_end, &run->curves[i]);
    for (int i = 0; is_right && i < SL_HISTORY_SETS; i++)
        is_right = add_rows(json_object_get(evals, sl_history_set_name((sl_history_set)i)),
                            step_end, &run->evals[i]);
    const uint64_t first = count_of(object, "first_step");
    if (!is_right || first == 0 || first >= step_end)
        return is_right;
    const uint64_t last = count_of(object, "last_step");
    const uint64_t counted = last < step_end ? last : step_end - 1;
    run->first_step = run->step_count == 0 || first < run->first_step ? first : run->first_step;
    run->last_step = counted > run->last_step ? counted : run->last_step;
    run->step_count += counted - first + 1;
    run->skipped_count += count_of(object, "skipped");
    run->nonfinite_count += count_of(object, "nonfinite");
    return true;
}

sl_status sl_history_page_read(const char *path, const char *id, uint64_t step_end, sl_history *run)
{
    json_t *root = NULL;
    if (!sl_page_file_is_own(path, id))
        return SL_OK;
    SL_TRY(read_numbers(path, &root));
    const json_t *object = json_array_get(json_object_get(root, "runs"), 0);
    const bool is_right = !object || take_run(object, step_end, run);
    sl_status status = is_right ? SL_OK : fail_page(path);
    if (status == SL_OK)
        status = add_samples(json_object_get(object, "samples"), step_end, run);
    json_decref(root);
    return status;
}
