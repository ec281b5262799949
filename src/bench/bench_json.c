/* A bench as one JSON object. */
#include "bench.h"

static json_t *format_row(const sl_bench_row *row)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "group", row->group,
                               "type", row->type, "name", row->name, "unit",
                               row->is_flops ? "FLOP/s" : "B/s", "median", row->rate.median, "p10",
                               row->rate.p10, "p90", row->rate.p90, "seconds", row->seconds);
    if (object && row->fit_seconds > 0 &&
        json_object_set_new(object, "fit_seconds", json_real(row->fit_seconds))) {
        json_decref(object);
        return NULL;
    }
    if (object && row->roof > 0 &&
        (json_object_set_new(object, "roof", json_real(row->roof)) ||
         json_object_set_new(object, "percent_of_roof",
                             json_real(100 * row->rate.median / row->roof)))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

sl_status sl_bench_format(const sl_bench *bench, json_t **out_object)
{
    const sl_profile *profile = &bench->profile;
    json_t *rows = json_array();
    int failed = !rows;
    for (uint32_t i = 0; i < bench->row_count && !failed; i++)
        failed = json_array_append_new(rows, format_row(&bench->rows[i]));
    if (failed) {
        json_decref(rows);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the report of a bench");
    }
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:o}", "host", profile->host,
                  "gpu", profile->gpu, "cpu", profile->cpu, "kernels", profile->kernels, "version",
                  profile->version, "date", profile->date, "core_count", (int)profile->core_count,
                  "thread_count", (int)profile->thread_count, "disk", profile->disk, "disk_note",
                  bench->disk_note, "rows", rows);
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the report of a bench");
    *out_object = object;
    return SL_OK;
}
