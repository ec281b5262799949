/* The log of a run: one JSON object a line, flushed at once. Lines of steps allocate nothing.
 *
 * Numbers are written so that they read back to the same value; non-finite ones as null.
 */
#ifndef SL_TRAIN_LOG_JSON_H
#define SL_TRAIN_LOG_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sluice/plan.h"

typedef struct sl_log_json sl_log_json;

typedef struct sl_step_report {
    uint64_t step; /* from 1 */
    double loss;   /* mean over the step's tokens, before the update */
    float grad_norm, learning_rate, loss_scale;
    uint64_t tokens, tokens_total;
    double step_ms, tokens_per_s;
    double flops; /* of the model, see CONTRACT */
    uint64_t peak_bytes[SL_TIER_COUNT];
    uint64_t moved_bytes[SL_LANE_COUNT];
    double stall_ms[SL_LANE_COUNT];
    bool skipped;
    double epoch; /* of the data that are over after this step; NaN where the order has none */
} sl_step_report;

typedef struct sl_eval_report {
    uint64_t step;   /* steps trained before */
    const char *set; /* "eval" (--eval-data), "validation" or "test" */
    double loss, perplexity;
    uint64_t tokens;      /* that were evaluated */
    uint64_t data_tokens; /* that the data have, but for the first, which nothing predicts */
} sl_eval_report;

typedef struct sl_end_report {
    const char *reason; /* "done", "signal", "error" */
    uint64_t step, tokens_total, skipped_steps;
    uint64_t run_steps; /* steps of this run */
    double seconds;     /* of this run's steps */
    double last_loss;
    uint64_t planned_peak_bytes[SL_TIER_COUNT], measured_peak_bytes[SL_TIER_COUNT];
    uint64_t moved_bytes[SL_LANE_COUNT]; /* of this run, evaluations not counted */
} sl_end_report;

/* Opens a log at `path`, behind what is there or from the start; a NULL path gives a log that
 * writes nothing. SL_ERROR_IO. */
sl_status sl_log_json_open(const char *path, bool append, sl_log_json **out_log);

/* NULL is fine. */
void sl_log_json_close(sl_log_json *log);

/* Each writes a line, whole or not at all. SL_ERROR_IO: it could not; later ones may be. "start":
 * takes nothing over; `config` and `plan` are objects. */
sl_status sl_log_json_start(sl_log_json *log, json_t *config, json_t *plan);
sl_status sl_log_json_step(sl_log_json *log, const sl_step_report *report);
sl_status sl_log_json_eval(sl_log_json *log, const sl_eval_report *report);
sl_status sl_log_json_end(sl_log_json *log, const sl_end_report *report);

#endif
