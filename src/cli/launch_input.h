/* Standard input of the first rank. Ranks are in the background of the terminal and may not read
 * from it. So a thread of the launcher reads the launcher's standard input, and writes what it read
 * into a socket, which is the rank's standard input. The thread reads nothing until the rank has
 * written a byte into the socket: most commands never ask. */
#ifndef SL_CLI_LAUNCH_INPUT_H
#define SL_CLI_LAUNCH_INPUT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct sl_launch_input {
    int own_end, rank_end; /* of the socket; -1: closed */
    pthread_t thread;
    bool has_thread;
} sl_launch_input;

/* Makes the socket, unless the launcher's standard input is closed. SL_ERROR_SYSTEM: the system has
 * no socket. */
sl_status sl_launch_input_open(sl_launch_input *out_input);

/* In each rank, before its program starts: sets SL_ENVIRONMENT_INPUT. True if this is the first
 * rank, and the socket is its standard input now. */
bool sl_launch_input_give(const sl_launch_input *input, bool is_first);

/* Starts the thread. Called in the launcher, whose signals are blocked, after all ranks were made.
 * SL_ERROR_SYSTEM: the system has no thread. */
sl_status sl_launch_input_start(sl_launch_input *input);

/* Ends the thread, waits for it, and closes the socket. Also after an sl_launch_input_start that
 * failed or was not called. */
void sl_launch_input_close(sl_launch_input *input);

#endif
