/* What the lanes did in the steps that are measured, in sums: an observer of the engine whose
 * memory does not grow with steps or micro-batches.
 *
 * Of each command of a step's body it keeps how often it ran, for how long, and what its lane
 * waited for before it. The first steps are a warm-up and are left out: a lane counts them by
 * itself, for the engine returns while updates of a step still run. So of each lane the same whole
 * steps are measured; of the compute lane, the time from its last command of the warm-up to its
 * last one of all is what it worked, what it waited, and gaps.
 */
#ifndef SL_MEASURE_RECORD_H
#define SL_MEASURE_RECORD_H

#include "engine/engine.h"

enum { SL_RECORD_KEPT_REPETITIONS = 2 }; /* of a loop, at either end of it */

/* Sums over the measured steps, and over the repetitions of a command. */
typedef struct sl_record_command {
    uint64_t run_count, run_ns;
    uint64_t wait_count, wait_ns;     /* waits of the lane right before the command */
    uint64_t longest_wait_ns;         /* the longest of them */
    uint32_t longest_wait_command;    /* and for which command; meaningless with wait_count 0 */
    uint64_t cause_ns[SL_LANE_COUNT]; /* wait_ns, by the lane that was waited for in the end */
} sl_record_command;

typedef struct sl_record_lane {
    uint64_t run_count, busy_ns;
    uint64_t wait_ns[SL_LANE_COUNT]; /* by the lane that was waited for in the end */
    uint64_t start_ns, end_ns;       /* end of the last command of the warm-up, and of all */
    uint32_t step_count;             /* that it began, the warm-up's included */
} sl_record_lane;

/* A command as it ran in the last step: of a loop its first two and last two repetitions. */
typedef struct sl_record_span {
    uint32_t command, repetition;
    sl_lane cause; /* of most of the wait in front of it; SL_LANE_COUNT: there was none */
    uint64_t start_ns, end_ns;
} sl_record_span;

typedef struct sl_record sl_record;

/* Takes the memory for plan 0 of an engine (borrowed). SL_ERROR_SYSTEM; SL_ERROR_INTERNAL: the
 * plan's sections do not hold its body. */
sl_status sl_record_open(const sl_engine_plan *step, uint32_t warm_up_steps,
                         sl_record **out_record);
void sl_record_close(sl_record *record); /* NULL is fine */

/* For the engine's options; valid as long as the record. `next` (or NULL) hears of all of it too.
 */
const sl_engine_observer *sl_record_observer(sl_record *record, const sl_engine_observer *next);

/* What was recorded, while no lane works: [body_count], [SL_LANE_COUNT]. */
const sl_record_command *sl_record_commands(const sl_record *record);
const sl_record_lane *sl_record_lanes(const sl_record *record);

/* What a lane did in the last step that it began, in order; borrowed. */
const sl_record_span *sl_record_spans(const sl_record *record, sl_lane lane, uint32_t *out_count);

/* When the compute lane began with it. */
uint64_t sl_record_last_start_ns(const sl_record *record);

#endif
