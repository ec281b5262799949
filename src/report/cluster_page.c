#include "cluster_page.h"

#include <stdio.h>

#include "page.h"
#include "sluice/version.h"

enum { PASSES_DRAWN = 6000, MARGIN = 4 };

/* The passes that lie in one of the windows. */
typedef struct drawing {
    json_t *passes;
    double windows[2][2];
    uint32_t window_count;
    bool has_failed;
} drawing;

static void draw_pass(void *user, const sl_pipeline_pass *pass)
{
    drawing *self = user;
    bool is_shown = false;
    for (uint32_t i = 0; i < self->window_count; i++)
        is_shown |= pass->end > self->windows[i][0] && pass->start < self->windows[i][1];
    if (!is_shown)
        return;
    json_t *row = json_pack("[i,i,i,f,f]", (int)pass->stage, (int)pass->micro_batch,
                            (int)pass->is_backward, pass->start, pass->end);
    self->has_failed |= json_array_append_new(self->passes, row) != 0;
}

/* The end of the last pass. */
static void note_end(void *user, const sl_pipeline_pass *pass)
{
    double *end = user;
    *end = pass->end > *end ? pass->end : *end;
}

/* All of the step, or, of a long one, as much at both ends as shows how the pipeline is filled and
 * drained. */
static void set_windows(const sl_cluster_candidate *candidate, double end, double step,
                        drawing *self)
{
    const double stages = candidate->layout.stages, passes = 2 * stages * candidate->accumulate;
    const double filled = (stages + MARGIN) / (candidate->accumulate + stages);
    double part = 0.5 * PASSES_DRAWN / passes;
    part = part > filled ? part : filled;
    const bool is_whole = part >= 0.5;
    self->window_count = is_whole ? 1 : 2;
    self->windows[0][0] = 0;
    self->windows[0][1] = is_whole ? step : part * end;
    self->windows[1][0] = end - part * end;
    self->windows[1][1] = step;
}

static json_t *list_layers(const sl_cluster_question *question, uint32_t stages)
{
    json_t *list = json_array();
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t first, count;
        sl_cluster_stage_layers(question->job.shape.layers, stages, s, &first, &count);
        if (json_array_append_new(list, json_pack("[i,i]", (int)first, (int)count)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *list_windows(const drawing *self)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < self->window_count; i++)
        if (json_array_append_new(
                list, json_pack("[f,f]", self->windows[i][0], self->windows[i][1])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static sl_status draw_pipeline(const sl_cluster_question *question, const sl_cluster_answer *answer,
                               json_t **out_picture)
{
    sl_cluster_estimate estimate = answer->best[0]; /* put together, also where a plan was made */
    const uint32_t stages = estimate.candidate.layout.stages;
    double end = 0;
    drawing self = {.passes = json_array()};
    const sl_pipeline_observer watch = {note_end, &end}, draw = {draw_pass, &self};
    sl_status status = sl_cluster_time(&question->job, &answer->costs[0], &watch, &estimate);
    if (status == SL_OK) {
        set_windows(&estimate.candidate, end, estimate.step_seconds, &self);
        status = sl_cluster_time(&question->job, &answer->costs[0], &draw, &estimate);
    }
    *out_picture =
        json_pack("{s:i, s:i, s:f, s:f, s:o, s:o, s:o}", "stages", (int)stages, "micro_batches",
                  (int)estimate.candidate.accumulate, "pipeline_seconds", end, "step_seconds",
                  estimate.step_seconds, "windows", list_windows(&self), "layers",
                  list_layers(question, stages), "passes", self.passes);
    SL_TRY(status);
    if (self.has_failed || !*out_picture)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    return SL_OK;
}

sl_status sl_report_write_cluster(const char *path, const sl_cluster_question *question,
                                  const sl_cluster_answer *answer, const json_t *plan)
{
    char version[128];
    json_t *picture = NULL;
    sl_status status = draw_pipeline(question, answer, &picture);
    if (status != SL_OK) {
        json_decref(picture);
        return status;
    }
    snprintf(version, sizeof version, "sluice %s (%s)", sl_version_text(), sl_version_commit());
    json_t *root = json_pack("{s:s, s:o, s:o}", "version", version, "picture", picture, "plan",
                             json_deep_copy(plan));
    if (!root)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    status = sl_report_write_page(path, root, SL_PAGE_CLUSTER);
    json_decref(root);
    return status;
}
