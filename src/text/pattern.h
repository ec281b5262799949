/* A regular expression of a tokenizer.json, which cuts a text into words.
 *
 * tokenizers reads such patterns by Oniguruma, in its syntax of Ruby; here PCRE2 reads them. What
 * both read alike is passed on; \s, \S, \uHHHH and \p{Han}, which they do not, are rewritten; all
 * else is refused by name (docs/decisions/0104). What a code point is follows from Unicode 16 on
 * every machine (stand_ins.h), whatever the Unicode of the installed PCRE2 is.
 *
 * The limit of steps holds for each match. A pattern that looks far ahead from each place, as
 * \p{L}(?=.*Z)|. does, takes the square of a text's length within it: patterns come from whom the
 * tokenizer comes from, texts from strangers. Known patterns take a few steps a byte of any text.
 */
#ifndef SL_TEXT_PATTERN_H
#define SL_TEXT_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_PATTERN_BYTES_MAX = 1 << 14 };

/* A compiled pattern, for any number of threads. */
typedef struct sl_pattern sl_pattern;

/* Compiles a NUL-terminated pattern. SL_ERROR_DATA: names what is not supported, or the place of an
 * error. */
sl_status sl_pattern_open(const char *text, sl_pattern **out_pattern);

/* NULL is fine. */
void sl_pattern_close(sl_pattern *pattern);

/* As it was given; borrowed. */
const char *sl_pattern_text(const sl_pattern *pattern);

/* True of patterns of which it is known that they begin a word where sl_words_last_cut cuts. */
bool sl_pattern_allows_cuts(const sl_pattern *pattern);

/* What GGUF calls the pattern ("tokenizer.ggml.pre"), or NULL. */
const char *sl_pattern_gguf_name(const sl_pattern *pattern);

/* What one thread needs to match. */
typedef struct sl_matcher sl_matcher;

sl_status sl_matcher_open(sl_matcher **out_matcher);

/* NULL is fine. */
void sl_matcher_close(sl_matcher *matcher);

/* The words of one text, in order; they cover it. */
typedef struct sl_pattern_walk {
    const char *text; /* valid UTF-8, as sl_stand_ins_apply makes it */
    uint64_t bytes;
    uint64_t at;                     /* where the next word starts */
    uint64_t search, last_end;       /* where the next search starts; the end of the last match */
    uint64_t match_start, match_end; /* a match that waits until what is in front of it is given */
    bool has_matched, has_match;
} sl_pattern_walk;

/* Gives the end of the next word, which starts where the last one ended; false at the end. What
 * lies between two matches is a word too. SL_ERROR_DATA: the pattern takes too many steps. */
sl_status sl_pattern_next(const sl_pattern *pattern, sl_matcher *matcher, sl_pattern_walk *walk,
                          uint64_t *out_end, bool *out_is_there);

#endif
