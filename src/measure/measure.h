/* Runs a few steps of a training with everything measured. Needs no data, writes no log, and leaves
 * checkpoints alone: parameters are the seed's first values, and without --data tokens are random,
 * which costs the same.
 */
#ifndef SL_MEASURE_MEASURE_H
#define SL_MEASURE_MEASURE_H

#include <signal.h>

#include "measured.h"
#include "train/trainer.h"

enum { SL_MEASURE_WARM_UP = 1 }; /* steps before those that are measured */

typedef struct sl_measure_args {
    sl_trainer *trainer; /* prepared for PROFILE; is opened */
    uint32_t step_count; /* >= 1, without the warm-up */
    const volatile sig_atomic_t *stop;
    uint64_t (*heap_bytes)(void); /* what the allocator holds resident; NULL: not known */
    void (*planned)(void *user, const sl_blueprint *blueprint); /* or NULL; before it is opened */
    void (*passed)(void *user, uint32_t step,
                   double seconds); /* or NULL; from 1, warm-up included */
    void *user;
} sl_measure_args;

/* Plans, opens the engine over painted arenas, runs the warm-up and the steps, and fills in what
 * was measured; with --timeline it is written too. Ranks call it together, and each gets what all
 * of them measured. Stopped, it ends after the step that runs, on all ranks:
 * out_measured->step_count is how many were measured, and with 0 the rest of it is empty.
 * SL_ERROR_FIT, statuses of sl_trainer_open and sl_engine_step; SL_ERROR_IO of the timeline. */
sl_status sl_measure_run(const sl_measure_args *args, sl_measured *out_measured);

#endif
