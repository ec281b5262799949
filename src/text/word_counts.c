/* A hash table of words; see learn.h. */
#include "word_counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "words.h"

enum { FIRST_WORDS = 1024, WORDS_MAX = 1 << 30 };

static const uint32_t EMPTY = UINT32_MAX;

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory to count words");
}

sl_status sl_word_counts_open(sl_word_counts **out_counts)
{
    *out_counts = calloc(1, sizeof **out_counts);
    return *out_counts ? SL_OK : no_memory();
}

void sl_word_counts_close(sl_word_counts *counts)
{
    if (!counts)
        return;
    free(counts->text);
    free(counts->words);
    free(counts->slots);
    free(counts);
}

static uint32_t *find(const sl_word_counts *self, const char *text, uint32_t bytes)
{
    uint64_t at = sl_hash_64(text, bytes) & (self->slot_count - 1);
    for (;; at = (at + 1) & (self->slot_count - 1)) {
        uint32_t index = self->slots[at];
        if (index == EMPTY)
            return &self->slots[at];
        const sl_counted_word *word = &self->words[index];
        if (word->bytes == bytes && memcmp(self->text + word->first, text, bytes) == 0)
            return &self->slots[at];
    }
}

/* Doubles the list of words, and gives the table four slots for each two. */
static sl_status grow_words(sl_word_counts *self)
{
    uint32_t room = self->word_room ? 2 * self->word_room : FIRST_WORDS;
    if (room > WORDS_MAX)
        SL_FAIL(SL_ERROR_DATA, "the text has more than %d different words", WORDS_MAX);
    sl_counted_word *words = realloc(self->words, room * sizeof *words);
    if (!words)
        return no_memory();
    self->words = words;
    uint32_t *slots = malloc(2 * (uint64_t)room * sizeof *slots);
    if (!slots)
        return no_memory();
    free(self->slots);
    self->slots = slots;
    self->slot_count = 2 * (uint64_t)room;
    self->word_room = room;
    memset(slots, 0xff, self->slot_count * sizeof *slots);
    for (uint32_t i = 0; i < self->word_count; i++)
        *find(self, self->text + words[i].first, words[i].bytes) = i;
    return SL_OK;
}

static sl_status add_word(sl_word_counts *self, const char *text, uint64_t bytes, uint64_t count)
{
    if (bytes > INT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "a word of %llu bytes, without a space between, is too long",
                (unsigned long long)bytes);
    if (self->word_count == self->word_room)
        SL_TRY(grow_words(self));
    uint32_t *slot = find(self, text, (uint32_t)bytes);
    if (*slot != EMPTY) {
        self->words[*slot].count += count;
        return SL_OK;
    }
    SL_TRY(
        SL_ARRAY_RESERVE(self->text, self->text_bytes + bytes, self->text_room, "counts of words"));
    memcpy(self->text + self->text_bytes, text, bytes);
    *slot = self->word_count;
    self->words[self->word_count++] = (sl_counted_word){self->text_bytes, count, (uint32_t)bytes};
    self->text_bytes += bytes;
    return SL_OK;
}

sl_status sl_word_counts_add_text(sl_word_counts *counts, const char *text, uint64_t bytes)
{
    for (uint64_t at = 0, end; at < bytes; at = end) {
        end = sl_words_end(text, bytes, at);
        SL_TRY(add_word(counts, text + at, end - at, 1));
    }
    return SL_OK;
}

sl_status sl_word_counts_add(sl_word_counts *counts, const sl_word_counts *other)
{
    for (uint32_t i = 0; i < other->word_count; i++) {
        const sl_counted_word *word = &other->words[i];
        SL_TRY(add_word(counts, other->text + word->first, word->bytes, word->count));
    }
    return SL_OK;
}
