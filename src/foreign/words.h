/* Words of other training programs, and what each word is in sluice.
 *
 * One table of spellings: options, keys of configuration files, values, names of models and
 * commands. A caller that refuses a word looks it up here first, and only then searches for the
 * nearest spelling (nearest.h).
 * Keys of DeepSpeed's JSON are in a list of their own, deepspeed_keys.h, because they are
 * translated into options and not refused.
 *
 * Invariants, which tests/foreign/test_words.c walks: `here` names options, values and commands
 * that exist; no word of the table is an option, value, model or command of sluice; a spelling has
 * one row, or several if programs mean different things by it.
 */
#ifndef SL_FOREIGN_WORDS_H
#define SL_FOREIGN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/nearest.h"

typedef enum sl_word_kind {
    SL_WORD_OPTION, /* of a command line; a configuration file may have the same */
    SL_WORD_KEY,    /* of a configuration file alone; looked up as an option is */
    SL_WORD_VALUE,
    SL_WORD_MODEL,
    SL_WORD_COMMAND
} sl_word_kind;

typedef struct sl_word {
    sl_word_kind kind;
    unsigned tools;     /* the programs that have the word: 1 << index of sl_words_tool, or-ed */
    const char *option; /* VALUE: the option of sluice that it is a value of; else NULL */
    const char *name;   /* without "--"; with the dash of a short option: "-b" */
    const char *here;   /* what to type, such as "--micro-batch N"; NULL: there is no equal */
    const char *note;   /* how the value converts, or why there is no equal; NULL: nothing to say */
} sl_word;

/* The row of that index from 0; NULL: there are no more. */
const sl_word *sl_words_at(size_t index);

/* The name of a program by its index from 0; NULL: there are no more. */
const char *sl_words_tool(size_t index);

enum { SL_WORDS_NAME_BYTES = 64 };

/* Writes a word in the spelling of program `tool`: with "-" or "_" in an option or key. */
void sl_words_spell(const sl_word *word, size_t tool, char out_text[SL_WORDS_NAME_BYTES]);

/* Whether two spellings are one word: "-" equals "_", and case does not count. */
bool sl_words_match(const char *a, const char *b);

enum { SL_WORDS_TEXT_BYTES = 400 };

/* Writes what a word of that kind is here, as ": a word of X for Y (note)". Returns false and
 * writes
 * "" if no row has the word. `option` is the option of a VALUE, else NULL. */
bool sl_words_explain(sl_word_kind kind, const char *option, const char *name,
                      char out_text[SL_WORDS_TEXT_BYTES]);

/* The same for the name that `nearest` was started with. If no row has the name, writes the nearest
 * spelling, as sl_nearest_format does. */
void sl_words_suggest(sl_word_kind kind, const sl_nearest *nearest, const char *prefix,
                      char out_text[SL_WORDS_TEXT_BYTES]);

#endif
