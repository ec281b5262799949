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
    sl_trainer *trainer;     /* prepared for SL_CONFIG_PROFILE; gets the runtime, and closes it */
    sl_blueprint *blueprint; /* found by its search; taken over, also on failure */
    uint32_t step_count;     /* >= 1, without the warm-up */
    const volatile sig_atomic_t *stop;
    uint64_t (*heap_bytes)(void); /* what the allocator holds resident; NULL: not known */
    void (*passed)(void *user, uint32_t step,
                   double seconds); /* or NULL; from 1, warm-up included */
    void *user;
} sl_measure_args;

/* Opens the engine over painted arenas, runs the warm-up and the steps, and fills in what was
 * measured; with --timeline it is written too. Stopped, it ends after the step that runs:
 * out_measured->step_count is how many were measured, and with 0 the rest of it is empty.
 * Statuses: those of sl_runtime_open and sl_engine_step; SL_ERROR_IO of the timeline. */
sl_status sl_measure_run(const sl_measure_args *args, sl_measured *out_measured);

#endif
