/* DeepSpeed's configuration, read as options of this program. Placement, batch, precision,
 * optimizer and schedule become options; what cannot change the numbers is named and passed over;
 * what would, and has no equal here, is refused. What the file leaves out takes DeepSpeed's
 * defaults, as values that nobody gave: a checkpoint's win over them when a run goes on.
 * docs/deepspeed.md says more. */
#ifndef SL_FOREIGN_DEEPSPEED_DEEPSPEED_H
#define SL_FOREIGN_DEEPSPEED_DEEPSPEED_H

#include <jansson.h>
#include <stdbool.h>

#include "config/config.h"

/* Whether an object of a --config file is DeepSpeed's, by keys that only such a file has. */
bool sl_deepspeed_is_meant(const json_t *object);

/* Sets the options that the object means and that `command` takes; those of other commands are
 * checked and go to `others`. Adds to config->explanation a table of what each key means, under the
 * name of the file. SL_ERROR_USAGE names the key: unknown, of another kind, out of range, or
 * without an equal here. SL_ERROR_SYSTEM. */
sl_status sl_deepspeed_read(sl_config *config, sl_config *others, sl_config_command command,
                            const char *path, const json_t *object);

#endif
