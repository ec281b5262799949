/* Learning a vocabulary: the most frequent pair of neighbouring tokens is merged, again and again.
 *
 * The merges are those of the tokenizers library's BpeTrainer over the same words: of equally
 * frequent pairs the one with the smaller ids comes first, bytes have ids in the order of their
 * characters (vocabulary.h). Counts alone decide, so the order in which words came, and who counted
 * them, cannot matter. Method: Sennrich et al. 2016, with an index of the words of each pair.
 */
#ifndef SL_TEXT_LEARN_H
#define SL_TEXT_LEARN_H

#include "vocabulary.h"

/* How often each word occurs. For one thread at a time. */
typedef struct sl_word_counts sl_word_counts;

sl_status sl_word_counts_open(sl_word_counts **out_counts);

/* NULL is fine. */
void sl_word_counts_close(sl_word_counts *counts);

/* Counts the words of a text. */
sl_status sl_word_counts_add_text(sl_word_counts *counts, const char *text, uint64_t bytes);

/* Adds the counts of another. */
sl_status sl_word_counts_add(sl_word_counts *counts, const sl_word_counts *other);

/* Called before each merge; anything but SL_OK ends the learning with that status. */
typedef struct sl_learn_watch {
    sl_status (*merging)(void *user, uint32_t tokens, uint32_t token_limit);
    void *user;
} sl_learn_watch;

/* Learns a vocabulary of `token_count` tokens: 256 bytes, merges, and end of text last. It has
 * fewer where no pair is left. SL_ERROR_USAGE: token_count is below 257 or above
 * SL_VOCABULARY_COUNT_MAX. `watch` may be NULL. */
sl_status sl_learn_vocabulary(const sl_word_counts *counts, uint32_t token_count,
                              const sl_learn_watch *watch, sl_vocabulary **out_vocabulary);

#endif
