/* What pages show of a run: its curves in bounded memory, and who the run was.
 *
 * A run comes from the records of training while it goes (cli/live_report.c), from a JSON log
 * (history_log.h) or from an earlier page of the run (history_page.h); several of these may fill
 * one run.
 */
#ifndef SL_REPORT_HISTORY_H
#define SL_REPORT_HISTORY_H

#include "series.h"

typedef enum sl_history_curve {
    SL_HISTORY_LOSS,
    SL_HISTORY_LR,
    SL_HISTORY_GRAD_NORM,
    SL_HISTORY_STEP_MS,
    SL_HISTORY_TOKENS_PER_S,
    SL_HISTORY_DEVICE_BYTES,
    SL_HISTORY_HOST_BYTES,
    SL_HISTORY_DISK_BYTES,
    SL_HISTORY_CURVES
} sl_history_curve;

typedef enum sl_history_set {
    SL_HISTORY_EVAL,
    SL_HISTORY_VALIDATION,
    SL_HISTORY_TEST,
    SL_HISTORY_SETS
} sl_history_set;

enum { SL_HISTORY_TEXT_BYTES = 64 };

typedef struct sl_history {
    char id[SL_HISTORY_TEXT_BYTES];     /* ""; not known */
    char reason[SL_HISTORY_TEXT_BYTES]; /* why the run ended; "": no end is recorded */
    json_t *config;                     /* the options of its latest start; NULL: not known */
    double predicted_step_ms;           /* 0: not known */
    sl_series curves[SL_HISTORY_CURVES];
    sl_series evals[SL_HISTORY_SETS]; /* losses */
    json_t *samples; /* texts, in order of steps: objects of step, prompt and text; NULL: none */
    uint64_t first_step, last_step, step_count; /* no steps: all 0 */
    uint64_t tokens_total;                      /* after last_step; 0: not known */
    uint64_t skipped_count;                     /* of steps whose update was left out */
    uint64_t nonfinite_count;                   /* of steps without a finite loss */
    uint64_t repeated_count; /* of records that later records of their steps replace */
    uint64_t damaged_count;  /* of lines that are no record */
    uint64_t damaged_line;   /* the first such line, from 1 */
} sl_history;

/* One step. A value that is not known is NaN. */
typedef struct sl_history_step {
    uint64_t step, tokens_total;
    double values[SL_HISTORY_CURVES];
    bool is_skipped;
} sl_history_step;

/* `cell_limit` of each series. SL_ERROR_SYSTEM. The caller closes the run, on failure too. */
sl_status sl_history_open(uint32_t cell_limit, sl_history *out_run);

/* A zeroed or closed run is fine. */
void sl_history_close(sl_history *run);

/* Adds a step or the loss of an evaluation, each at most once; in any order. Neither allocates. */
void sl_history_add_step(sl_history *run, const sl_history_step *step);
void sl_history_add_eval(sl_history *run, sl_history_set set, uint64_t step, double loss);

/* Adds the text that was written after a step; a second one of a step is left out. Of many texts
 * some stay, the newest ones closest together. SL_ERROR_SYSTEM. */
sl_status sl_history_add_sample(sl_history *run, uint64_t step, const char *prompt,
                                const char *text);

/* The name of a curve in logs and pages ("loss"), and of a set ("validation"). */
const char *sl_history_curve_name(sl_history_curve curve);
const char *sl_history_set_name(sl_history_set set);

/* The run as pages hold it, a new object. `name` stands in legends. SL_ERROR_SYSTEM. */
sl_status sl_history_format(const sl_history *run, const char *name, json_t **out_object);

#endif
