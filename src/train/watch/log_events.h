/* The records of steps and evaluations as event files of TensorBoard. */
#ifndef SL_TRAIN_LOG_EVENTS_H
#define SL_TRAIN_LOG_EVENTS_H

#include "files/log_file.h"
#include "sink.h"

/* True if `directory` is a directory, not a link to one, and holds an event file of `run`. */
bool sl_log_events_is_own(const char *directory, const char *run);

/* Opens a new event file in the directory `target->path` for a run whose first step is
 * `first_step`, and adds it. Statuses: see sl_event_file_open. */
sl_status sl_log_events_open(const sl_log_target *target, uint64_t first_step, sl_sinks *sinks);

#endif
