/* Patterns of tensor names in options: --freeze, --rule, --lr-of and --decay-of.
 *
 * A pattern is fnmatch(3)'s: `*` is any text, `?` a character, `[0-8]` one of several. It is
 * matched against whole names, as checkpoints have them ("h.0.ln_1.weight"). Behind the last `=` of
 * an item stands what the option gives the tensors. Patterns are tried in order, and the last one
 * that matches decides. A comma ends an item: one of the list may hold several.
 */
#ifndef SL_CONFIG_TENSOR_PATTERNS_H
#define SL_CONFIG_TENSOR_PATTERNS_H

#include "config.h"
#include "program/program.h"

enum { SL_TENSOR_PATTERN_BYTES = 128, SL_TENSOR_VALUE_BYTES = 32 };

/* An item of a list; the first is behind a zeroed one. */
typedef struct sl_tensor_pattern {
    char text[SL_TENSOR_PATTERN_BYTES]; /* without `!`; cut if it is longer */
    char value[SL_TENSOR_VALUE_BYTES];  /* likewise */
    bool has_value, is_negated;         /* it began with `!` */
    bool is_cut;                        /* text or value is longer: it is none */
    uint32_t item;                      /* of the list, that comes next */
    const char *rest;                   /* of that item; NULL: it is not begun */
} sl_tensor_pattern;

/* Reads the next item; false behind the last one. */
bool sl_tensor_patterns_next(const sl_config_list *list, sl_tensor_pattern *at);

/* The last item that matches a name; false: none does. */
bool sl_tensor_patterns_find(const sl_config_list *list, const char *name, sl_tensor_pattern *out);

/* SL_ERROR_USAGE: the item, of an option of this name, matches no tensor of the program, which has
 * all of the model's; the message says what names are like. */
sl_status sl_tensor_patterns_check(const char *option, const sl_tensor_pattern *item,
                                   const sl_program *program);

/* Patterns for messages: of this model's blocks, or of all weights where no name has a block. */
typedef struct sl_tensor_examples {
    char pattern[32], last_block[32];
} sl_tensor_examples;

sl_tensor_examples sl_tensor_patterns_examples(const sl_program *program);

#endif
