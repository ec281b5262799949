/* Which deaths of ranks `sluice launch --restarts` starts them again after, and with how many. */
#ifndef SL_CLI_RESTARTS_H
#define SL_CLI_RESTARTS_H

#include "config/config.h"

typedef struct sl_restarts {
    uint32_t limit, done; /* how many restarts there may be, and have been; limit 0: none */
    bool sheds_ranks;     /* --fewer-ranks */
    sl_config config;     /* what train's words say; owned */
    char **words;         /* "sluice", the command's words with --resume, NULL; the array is owned,
                             its strings are borrowed */
} sl_restarts;

/* Reads the words of the command, NULL behind the last, which live as long as `restarts`, whose
 * limit and sheds_ranks are set. Nothing is done where the limit is 0. Prints and leaves where the
 * words ask for help.
 * SL_ERROR_USAGE: another command than train, or nothing is saved, or what is saved is not to be
 * gone on from, or the rows of a step do not stay the same with fewer ranks; and what is wrong with
 * the words. */
sl_status sl_restarts_open(sl_restarts *restarts, char **words);

/* Frees what `restarts` owns; one that was not opened is fine. */
void sl_restarts_close(sl_restarts *restarts);

/* How many ranks go on after a signal ended some of `rank_count`: fewer where they may be, and the
 * model and the rows of a step divide among fewer. */
uint32_t sl_restarts_choose_ranks(const sl_restarts *restarts, uint32_t rank_count);

/* Counts a restart and prints what died, from where `rank_count` ranks go on, and which restart it
 * is. SL_ERROR_IO: the checkpoints cannot be listed. */
sl_status sl_restarts_announce(sl_restarts *restarts, const char *died, uint32_t rank_count);

#endif
