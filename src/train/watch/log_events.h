/* The records of steps and evaluations as event files of TensorBoard. */
#ifndef SL_TRAIN_LOG_EVENTS_H
#define SL_TRAIN_LOG_EVENTS_H

#include "sink.h"

/* Opens a new event file in `directory` for a run whose first step is `first_step`, and adds it.
 * Statuses: see sl_event_file_open. */
sl_status sl_log_events_open(const char *directory, uint64_t first_step, sl_sinks *sinks);

#endif
