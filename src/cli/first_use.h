/* --self-test of train, profile and bench. */
#ifndef SL_CLI_FIRST_USE_H
#define SL_CLI_FIRST_USE_H

#include "comm/environment.h"
#include "config/config.h"

/* Lets the device of the options prove itself where --self-test says so and it has not yet; of
 * ranks each its own GPU, before they wait for each other. The device may still be left open.
 * `environment` NULL: there are no ranks. SL_ERROR_SYSTEM: it gave a wrong answer. */
sl_status sl_command_prove_device(const sl_config *config, const sl_environment *environment);

#endif
