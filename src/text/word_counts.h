/* What learning sees of counted words. */
#ifndef SL_TEXT_WORD_COUNTS_H
#define SL_TEXT_WORD_COUNTS_H

#include "learn.h"

typedef struct sl_counted_word {
    uint64_t first, count; /* its bytes start at `first` of the text; how often it came */
    uint32_t bytes;
} sl_counted_word;

struct sl_word_counts {
    char *text; /* of all words, one behind the other */
    uint64_t text_bytes, text_room;
    sl_counted_word *words;
    uint32_t word_count, word_room;
    uint32_t *slots; /* [slot_count] indices of words, by hash; UINT32_MAX: empty */
    uint64_t slot_count;
};

#endif
