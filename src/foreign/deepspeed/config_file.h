/* The file of --config, ours (config_json.h) or DeepSpeed's (deepspeed.h): its keys say whose it
 * is. A comment goes from // to the end of its line. */
#ifndef SL_FOREIGN_DEEPSPEED_CONFIG_FILE_H
#define SL_FOREIGN_DEEPSPEED_CONFIG_FILE_H

#include "config/config.h"

/* Sets the options that the JSON object in file `path` gives for `command`. SL_ERROR_USAGE: a key
 * is there twice or not known, or a value is wrong; names it and the file. SL_ERROR_MISSING: no
 * such file. SL_ERROR_DATA: not JSON, with line and column. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_config_file_load(sl_config *config, sl_config_command command, const char *path);

/* The same of `bytes` bytes of text; `name` stands for the path in messages. */
sl_status sl_config_text_load(sl_config *config, sl_config_command command, const char *name,
                              const char *text, uint64_t bytes);

#endif
