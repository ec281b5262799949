/* What a run does: steps, evaluations, saves. When it does them, its caller decides: the loop of
 * `train` (loop.h), or a program (sluice/session.h).
 */
#ifndef SL_TRAIN_TRAINING_H
#define SL_TRAIN_TRAINING_H

#include <signal.h>

#include "trainer.h"

typedef struct sl_training {
    sl_trainer *trainer;
    const volatile sig_atomic_t *stop; /* of this process */
    bool has_others;           /* ranks, which stop together: by what each step's norm carried */
    bool must_stop;            /* with other ranks: one of them asked */
    bool must_save;            /* --save-minutes are over; with other ranks as must_stop */
    uint64_t saved_ns;         /* when the run began, or saved under --save last */
    uint64_t evaluated_step;   /* UINT64_MAX: none yet */
    sl_engine_statistics late; /* of updates that finished after their step had been logged */
    double checkpoint_ms;      /* of saves after the step that was logged last */
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* logged */
    sl_report_rate rates[SL_REPORT_RATES];    /* of --lr-of; more are not logged */
    uint32_t rate_count;
    bool has_timeline_failed;
    bool counted_nothing; /* the last step: no token of it had a part in the loss */
    sl_end_report end;    /* counted so far */
} sl_training;

/* Begins the run of an opened trainer; both are borrowed. */
void sl_training_begin(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                       sl_training *out_training);

/* True once *stop is not 0; with other ranks, behind the step in which one of them saw it. */
bool sl_training_must_stop(const sl_training *run);

/* Runs one step of the rows that come next, and notes whether a rank is asked to stop. Counts
 * nothing: the caller does. */
sl_status sl_training_run_step(sl_training *run);

/* One step; the sinks are told of it. SL_ERROR_NONFINITE: a loss or gradient is not finite with
 * --nonfinite stop, or 50 times in a row. */
sl_status sl_training_step(sl_training *run, sl_step_report *out_report);

/* Every hundred steps, with other ranks: compares what they hold alike. */
sl_status sl_training_compare(sl_training *run);

/* The evaluation on --eval-data or on a share of --split; nothing without such data, and then
 * *out_report is not written. The sinks are told of one that is whole. A validation counts for
 * --patience, and with --keep-best the best one saves a checkpoint. */
sl_status sl_training_validate(sl_training *run, sl_eval_report *out_report);
sl_status sl_training_test(sl_training *run);

/* Writes a text, of which the sinks are told; nothing without --sample-every. */
sl_status sl_training_sample(sl_training *run);

/* Whether a save is due by --save-minutes, behind the step in which they were over. */
bool sl_training_must_save(const sl_training *run);

/* Saves a checkpoint under --save. */
sl_status sl_training_save(sl_training *run);

/* Writes what the timeline has. */
sl_status sl_training_draw(sl_training *run);

/* Counts what came after the last step, and ends the timeline and the sinks, which are told of
 * run->end; its reason becomes "error" after a failure of the run or of the counting. SL_ERROR_IO
 * may also mean that a sink or the timeline could not be written, which the run outlives. After a
 * failure other ranks may not come: this rank counts its own. */
sl_status sl_training_end(sl_training *run, bool has_failed);

#endif
