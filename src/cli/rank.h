/* What a command does that runs on ranks, around its work: of what all ranks would say, the first
 * one says it. A process that nobody started as a rank is the first one, and alone. */
#ifndef SL_CLI_RANK_H
#define SL_CLI_RANK_H

#include "comm/environment.h"
#include "config/config.h"

/* Reads which rank this process is. From now on warnings may be held (held_warnings.h), and a rank
 * that is not the first is quiet, at a signal too. To be called once, before anything is said. */
sl_status sl_command_begin_rank(sl_config *config, sl_environment *out_environment);

/* Says what is still held, then as sl_command_end. */
int sl_command_end_rank(sl_status status);

#endif
