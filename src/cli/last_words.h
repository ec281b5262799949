/* What ranks say when they end with a failure: each leaves its message on the board, and `launch`
 * prints what several of them say once, with which ranks they are. */
#ifndef SL_CLI_LAST_WORDS_H
#define SL_CLI_LAST_WORDS_H

#include <stdbool.h>
#include <stdint.h>

enum { SL_LAST_WORDS_RANKS_MAX = 256 };

typedef struct sl_last_words {
    bool has_ended[SL_LAST_WORDS_RANKS_MAX]; /* the caller's */
    bool is_said[SL_LAST_WORDS_RANKS_MAX];   /* zeros at first */
} sl_last_words;

/* Prints to standard error what ranks that have ended left on the board in `file`, each rank's
 * words at most once over all calls. */
void sl_last_words_say(sl_last_words *words, int file, uint32_t rank_count);

#endif
