/* What options hold. Private to the room. */
#ifndef SL_API_OPTIONS_H
#define SL_API_OPTIONS_H

#include "config/config.h"
#include "sluice/options.h"
#include "train/trainer.h"

struct sl_options {
    sl_config config;
    sl_trainer_inputs inputs;
    sl_event_callback event; /* NULL: nobody hears of events */
    void *event_user;
};

#endif
