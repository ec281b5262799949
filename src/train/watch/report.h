/* What a run tells while it goes: a start, steps, evaluations and an end. Plain numbers; columns.c
 * says what each is called where it is written. */
#ifndef SL_TRAIN_REPORT_H
#define SL_TRAIN_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "chunk/plan.h"

typedef struct sl_start_report {
    json_t *config, *plan;          /* objects, borrowed */
    uint64_t first_step, last_step; /* of this run, from 1 */
} sl_start_report;

enum { SL_REPORT_COMMS = 4 }; /* world, tp, dp, pp */

/* Tensors whose learning rate is another one. */
typedef struct sl_report_rate {
    char pattern[128]; /* of their names */
    float factor;      /* of the learning rate */
} sl_report_rate;

enum { SL_REPORT_RATES = 32 };

/* With other ranks memory is the largest over them, and traffic the sum. */
typedef struct sl_step_report {
    uint64_t step; /* from 1 */
    double loss;   /* mean over the step's tokens that count, before the update; NAN: none does */
    float grad_norm, learning_rate, loss_scale;
    uint64_t tokens, tokens_total;
    double step_ms, tokens_per_s;
    double flops; /* of the model, see CONTRACT */
    double epoch; /* of the data, that are over; NAN: this order of the data has none */
    uint64_t peak_bytes[SL_TIER_COUNT];
    uint64_t moved_bytes[SL_LANE_COUNT];
    double stall_ms[SL_LANE_COUNT];
    double phase_ms[SL_PHASE_COUNT];      /* RECOMPUTE is in BACKWARD */
    double checkpoint_ms;                 /* of saves since the report before */
    uint64_t comm_bytes[SL_REPORT_COMMS]; /* handed to other ranks */
    uint32_t rank_count;                  /* 0: there are no other ranks */
    const sl_report_rate *rates;          /* [rate_count] */
    uint32_t rate_count;
    bool skipped;
    bool counts_nothing; /* no token has a part in the loss, and the step is skipped */
} sl_step_report;

typedef struct sl_eval_report {
    const char *set; /* "eval", also where it is NULL; or the share of the data that it covers */
    uint64_t step;   /* steps trained before */
    double loss, perplexity;
    uint64_t tokens;       /* that were evaluated; of examples those that count in the loss */
    uint64_t data_tokens;  /* that the data have, but for the first, which nothing predicts */
    bool has_all_examples; /* the data are examples, all of which were evaluated: what of them does
                              not count in the loss is in data_tokens alone */
    bool is_partial;       /* a signal ended it before all that was asked for was evaluated */
} sl_eval_report;

/* How far an evaluation has come. */
typedef struct sl_eval_progress {
    uint64_t done, total;
    const char *unit;   /* of these: "tokens" or "documents" */
    const char *figure; /* what is known of them: "loss" or "accuracy" */
    double value;       /* so far; 0 of nothing */
} sl_eval_progress;

/* A text that the model wrote. */
typedef struct sl_sample_report {
    uint64_t step;             /* steps trained before */
    const char *prompt, *text; /* valid UTF-8 without NUL; `text` is what comes behind the prompt */
    uint64_t tokens;           /* of `text` */
} sl_sample_report;

typedef struct sl_end_report {
    const char *reason; /* "done", "patience", "signal", "error" */
    uint64_t step, tokens_total, skipped_steps;
    uint64_t run_steps;   /* steps of this run */
    double seconds;       /* of this run's steps */
    double checkpoint_ms; /* of this run's saves */
    double last_loss;
    uint64_t planned_peak_bytes[SL_TIER_COUNT], measured_peak_bytes[SL_TIER_COUNT];
    uint64_t moved_bytes[SL_LANE_COUNT]; /* of this run, evaluations not counted */
} sl_end_report;

#endif
