/* Standard input of the first rank. Ranks are in the background of the terminal, and may not read
 * from it: the launcher reads, and a thread of it writes what comes into a socket, which is the
 * rank's standard input. It reads nothing until the rank has asked, by any byte that the rank
 * writes into the socket: most commands never do. */
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

/* Where standard input is closed there is nothing to give. */
sl_status sl_launch_input_open(sl_launch_input *out_input);

/* In each rank, before its program: says what the first rank can ask for. True: this is the first
 * rank, and has it. */
bool sl_launch_input_give(const sl_launch_input *input, bool is_first);

/* In the launcher, whose signals are blocked, after all ranks were made. */
sl_status sl_launch_input_start(sl_launch_input *input);

/* Waits for the thread. Also of one that was not started. */
void sl_launch_input_close(sl_launch_input *input);

#endif
