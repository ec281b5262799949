/* Warnings of ranks that mpirun or srun has started. Of those of `launch` the launcher prints each
 * warning once (last_words.h); here there is no launcher. So rank 0 prints its warnings at once,
 * and the other ranks hold theirs until all ranks meet before the first step: then each prints the
 * warnings that no lower rank has had. */
#ifndef SL_CLI_HELD_WARNINGS_H
#define SL_CLI_HELD_WARNINGS_H

#include <stdbool.h>

#include "comm/comm.h"
#include "comm/environment.h"

/* From now on warnings may be held. To be called once, before the ranks have threads that warn. */
void sl_held_warnings_start(const sl_environment *environment);

/* Whether the warning is held; else the caller prints it. Any thread. */
bool sl_held_warnings_take(const char *line);

/* Compares what the ranks of `world` hold, prints what nobody else prints, and holds no more. Each
 * rank calls it once. NULL: this process is alone. */
sl_status sl_held_warnings_compare(sl_comm *world);

/* Prints all that is held, and holds no more: of a rank that ends before it has compared. */
void sl_held_warnings_say(void);

#endif
