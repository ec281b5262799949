/* The training loop: steps, and between them evaluation, checkpoints and signals. */
#ifndef SL_TRAIN_LOOP_H
#define SL_TRAIN_LOOP_H

#include "training.h"

/* Trains to --steps, until --patience has run out, or until *stop is not 0: then the step is
 * finished, and an evaluation left out. Evaluates and saves where the configuration says, and at
 * the end, unless it was stopped before its first step. training->end.reason says what ended it. */
sl_status sl_loop_steps(sl_training *training);

/* sl_loop_steps from the beginning of a training to its end. Tells trainer->sinks, which were
 * started, of all of it; of its end also on failure. SL_ERROR_NONFINITE: a loss or gradient is not
 * finite with --nonfinite stop, or 50 times in a row; nothing is saved then. SL_ERROR_IO may also
 * mean that a sink or the timeline could not be written, which the run outlives: *out_end has a
 * reason that is not "error". */
sl_status sl_loop_run(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                      sl_end_report *out_end);

#endif
