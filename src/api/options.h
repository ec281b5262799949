/* What options hold. Private to the room. */
#ifndef SL_API_OPTIONS_H
#define SL_API_OPTIONS_H

#include <signal.h>

#include "base/log.h"
#include "config/config.h"
#include "sluice/options.h"
#include "train/trainer.h"

struct sl_options {
    sl_config config;
    sl_trainer_inputs inputs;
    sl_event_callback event; /* NULL: nobody hears of events */
    void *event_user;
    sl_log_receiver log;
    volatile sig_atomic_t stop; /* not 0: calls that open or plan end */
};

/* SL_ERROR_USAGE: the options are NULL. */
sl_status sl_options_check(const sl_options *options);

/* Copies the options into a configuration that is all 0, which the caller clears, also on failure;
 * and what a program gives into the inputs. */
sl_status sl_options_copy(const sl_options *options, sl_config *out_config,
                          sl_trainer_inputs *out_inputs);

#endif
