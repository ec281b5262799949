/* The training loop: steps, and between them evaluation, checkpoints and signals. */
#ifndef SL_TRAIN_LOOP_H
#define SL_TRAIN_LOOP_H

#include <signal.h>

#include "trainer.h"

/* What a run reports while it goes; entries may be NULL. Called by the thread of sl_loop_run. */
typedef struct sl_loop_events {
    void (*step)(void *user, const sl_step_report *report);
    void (*eval)(void *user, const sl_eval_report *report);
    void (*saving)(void *user); /* a save begins; `saved` follows, or the run fails */
    void (*saved)(void *user, uint64_t step);
    void *user;
} sl_loop_events;

/* Trains to --steps or until *stop is not 0: then the step is finished, and an evaluation left
 * out. Evaluates and saves where the configuration says, and at the end, unless it was stopped
 * before its first step. Writes the log, its "end" included, also on failure. SL_ERROR_NONFINITE: a
 * loss or gradient is not finite with --nonfinite stop, or 50 times in a row; nothing is saved
 * then. SL_ERROR_IO may also mean that log or timeline could not be written, which the run
 * outlives: *out_end has a reason that is not "error". */
sl_status sl_loop_run(sl_trainer *trainer, const sl_loop_events *events,
                      const volatile sig_atomic_t *stop, sl_end_report *out_end);

#endif
