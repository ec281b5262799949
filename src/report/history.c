/* Adds records to the series of a run, and writes them as JSON. */
#include "history.h"

#include <stdio.h>
#include <string.h>

#include "files/json_file.h"

static const char *const curve_names[SL_HISTORY_CURVES] = {
    "loss",         "lr",           "grad_norm",  "step_ms",
    "tokens_per_s", "device_bytes", "host_bytes", "disk_bytes"};
static const char *const set_names[SL_HISTORY_SETS] = {"eval", "validation", "test"};

const char *sl_history_curve_name(sl_history_curve curve)
{
    return curve_names[curve];
}

const char *sl_history_set_name(sl_history_set set)
{
    return set_names[set];
}

sl_status sl_history_open(uint32_t cell_limit, sl_history *out_run)
{
    *out_run = (sl_history){0};
    for (int curve = 0; curve < SL_HISTORY_CURVES; curve++)
        SL_TRY(sl_series_open(cell_limit, &out_run->curves[curve]));
    for (int set = 0; set < SL_HISTORY_SETS; set++)
        SL_TRY(sl_series_open(cell_limit, &out_run->evals[set]));
    return SL_OK;
}

void sl_history_close(sl_history *run)
{
    for (int curve = 0; curve < SL_HISTORY_CURVES; curve++)
        sl_series_close(&run->curves[curve]);
    for (int set = 0; set < SL_HISTORY_SETS; set++)
        sl_series_close(&run->evals[set]);
    json_decref(run->config);
    json_decref(run->samples);
    *run = (sl_history){0};
}

void sl_history_add_step(sl_history *run, const sl_history_step *step)
{
    const uint64_t loss_count = run->curves[SL_HISTORY_LOSS].count;
    for (int curve = 0; curve < SL_HISTORY_CURVES; curve++)
        sl_series_add(&run->curves[curve], step->step, step->values[curve]);
    if (run->step_count == 0 || step->step < run->first_step)
        run->first_step = step->step;
    if (step->step >= run->last_step) {
        run->last_step = step->step;
        run->tokens_total = step->tokens_total;
    }
    run->step_count++;
    run->skipped_count += step->is_skipped;
    run->nonfinite_count += run->curves[SL_HISTORY_LOSS].count == loss_count;
}

void sl_history_add_eval(sl_history *run, sl_history_set set, uint64_t step, double loss)
{
    sl_series_add(&run->evals[set], step, loss);
}

/* ---- texts ---- */

static uint64_t step_of_sample(const json_t *samples, size_t index)
{
    return (uint64_t)json_integer_value(json_object_get(json_array_get(samples, index), "step"));
}

/* Of the older half every second one goes. */
static void thin_samples(json_t *samples)
{
    const size_t half = json_array_size(samples) / 2;
    for (size_t i = 0; i < half / 2; i++)
        json_array_remove(samples, i + 1);
}

sl_status sl_history_add_sample(sl_history *run, uint64_t step, const char *prompt,
                                const char *text)
{
    enum { SAMPLES_MAX = 40 };
    if (!run->samples)
        run->samples = json_array();
    size_t at = json_array_size(run->samples);
    while (at > 0 && step_of_sample(run->samples, at - 1) > step)
        at--;
    if (at > 0 && step_of_sample(run->samples, at - 1) == step)
        return SL_OK;
    json_t *sample =
        json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "prompt", prompt, "text", text);
    if (json_array_insert_new(run->samples, at, sample) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the texts of a report");
    if (json_array_size(run->samples) > SAMPLES_MAX)
        thin_samples(run->samples);
    return SL_OK;
}

/* ---- as JSON ---- */

static int put_text(json_t *object, const char *key, const char *text)
{
    return json_object_set_new(object, key, text ? sl_json_file_text(text) : json_null());
}

static int put_count(json_t *object, const char *key, uint64_t count)
{
    return json_object_set_new(object, key, json_integer((json_int_t)count));
}

static int put_curves(const sl_history *run, json_t *object)
{
    json_t *curves = json_object(), *evals = json_object();
    int failed = 0;
    for (int i = 0; i < SL_HISTORY_CURVES; i++)
        if (run->curves[i].count > 0)
            failed |=
                json_object_set_new(curves, curve_names[i], sl_series_format(&run->curves[i]));
    for (int i = 0; i < SL_HISTORY_SETS; i++)
        if (run->evals[i].count > 0)
            failed |= json_object_set_new(evals, set_names[i], sl_series_format(&run->evals[i]));
    failed |= json_object_set_new(object, "curves", curves);
    return failed | json_object_set_new(object, "evals", evals);
}

sl_status sl_history_format(const sl_history *run, const char *name, json_t **out_object)
{
    json_t *object = json_object();
    int failed = put_text(object, "name", name);
    failed |= put_text(object, "run", run->id);
    failed |= put_text(object, "reason", run->reason);
    failed |=
        json_object_set_new(object, "config", run->config ? json_incref(run->config) : json_null());
    failed |= json_object_set_new(object, "predicted_step_ms", json_real(run->predicted_step_ms));
    failed |= put_count(object, "first_step", run->first_step);
    failed |= put_count(object, "last_step", run->last_step);
    failed |= put_count(object, "steps", run->step_count);
    failed |= put_count(object, "tokens_total", run->tokens_total);
    failed |= put_count(object, "skipped", run->skipped_count);
    failed |= put_count(object, "nonfinite", run->nonfinite_count);
    failed |= put_count(object, "repeated", run->repeated_count);
    failed |= put_count(object, "damaged", run->damaged_count);
    failed |= put_count(object, "damaged_line", run->damaged_line);
    failed |= put_curves(run, object);
    if (run->samples)
        failed |= json_object_set(object, "samples", run->samples);
    if (failed) {
        json_decref(object);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    *out_object = object;
    return SL_OK;
}
