/* The messages of ranks that have failed: each rank leaves its message on the board (comm/board.h).
 * `launch` prints a message of several ranks only once, and says which ranks they are. */
#ifndef SL_CLI_LAST_WORDS_H
#define SL_CLI_LAST_WORDS_H

#include <stdbool.h>
#include <stdint.h>

enum { SL_LAST_WORDS_RANKS_MAX = 256 };

typedef struct sl_last_words {
    bool has_ended[SL_LAST_WORDS_RANKS_MAX]; /* set by the caller */
    bool is_said[SL_LAST_WORDS_RANKS_MAX];   /* printed already; false at first */
} sl_last_words;

/* Prints the messages of ranks that have ended, from the board in `file`, to standard error; each
 * rank's message at most once over all calls. */
void sl_last_words_say(sl_last_words *words, int file, uint32_t rank_count);

#endif
