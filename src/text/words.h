/* Words: the pieces of a text between which no tokens merge, as GPT-2's pattern cuts them.
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * The pattern is Radford et al.'s (GPT-2, 2019); letters, numbers and spaces are those of
 * unicode_table.h, the same on every machine (docs/decisions/0022). A byte that is not part of
 * valid UTF-8 is a character of its own, of the third kind. Words cover a text without gaps.
 */
#ifndef SL_TEXT_WORDS_H
#define SL_TEXT_WORDS_H

#include <stdint.h>

/* The end of the word that starts at `at` < `bytes`: at < end <= bytes. */
uint64_t sl_words_end(const char *text, uint64_t bytes, uint64_t at);

/* Where a text may be cut, so that each part can be encoded alone. */
typedef enum sl_words_cuts {
    SL_WORDS_CUTS_GPT2,  /* a blank behind a character that is no space */
    SL_WORDS_CUTS_KNOWN, /* U+0020 behind such a character, or a blank behind a letter or a number:
                            also for the patterns of which sl_pattern_allows_cuts says so,
                            normalized or not */
    SL_WORDS_CUTS_NONE   /* nowhere */
} sl_words_cuts;

/* The largest place in (low, bytes) where a word starts in any case, whatever stands before `low`
 * and behind the text. `low` where there is none. */
uint64_t sl_words_last_cut(const char *text, uint64_t bytes, uint64_t low, sl_words_cuts cuts);

#endif
