/* The warnings of ranks, and the messages of those that have failed: each rank leaves them on the
 * board (comm/board.h). `launch` prints a message of several ranks only once, and says which ranks
 * they are. */
#ifndef SL_CLI_LAST_WORDS_H
#define SL_CLI_LAST_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/board.h"

enum { SL_LAST_WORDS_RANKS_MAX = 256 };

typedef struct sl_last_words {
    bool has_ended[SL_LAST_WORDS_RANKS_MAX]; /* set by the caller */
    bool is_said[SL_LAST_WORDS_RANKS_MAX];   /* printed already; false at first */
    uint32_t heard[SL_LAST_WORDS_RANKS_MAX]; /* warnings that the last call has found */
    bool is_remark_said[SL_LAST_WORDS_RANKS_MAX][SL_BOARD_REMARKS];
} sl_last_words;

/* Prints the messages of ranks that have ended, from the board in `file`, to standard error; each
 * rank's message at most once over all calls. */
void sl_last_words_say(sl_last_words *words, int file, uint32_t rank_count);

/* Prints the warnings that an earlier call has found already, so that the other ranks that have the
 * same had time to leave it; with `is_over` all of them. */
void sl_last_words_say_remarks(sl_last_words *words, int file, uint32_t rank_count, bool is_over);

#endif
