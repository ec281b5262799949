/* Tokens, and two hash tables: from bytes to an id, from two ids to a merge; see vocabulary.h. */
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "files/files.h"

static const uint32_t FREE = UINT32_MAX; /* an empty slot */

typedef struct token_facts {
    uint8_t kind, is_added;
} token_facts;

typedef struct merge_slot {
    uint32_t left, right, rank, made; /* rank FREE: empty */
} merge_slot;

struct sl_vocabulary {
    uint32_t count, merge_count;
    int32_t end_of_text;
    char *text;      /* of all tokens, one behind the other */
    uint64_t *first; /* [count + 1]: where the bytes of each start */
    token_facts *facts;
    sl_merge *merges;
    uint32_t *ids; /* [id_slots]: by the hash of their bytes */
    merge_slot *pairs;
    uint64_t id_slots, pair_slots; /* powers of two */
    uint32_t byte_ids[256];
    sl_pretokenizer *pretokenizer; /* or NULL */
};

/* ---- tables ---- */

static uint64_t slots_for(uint32_t count)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)count)
        slots *= 2;
    return slots;
}

/* The slot of these bytes, or the empty one where they belong. */
static uint32_t *find_id(const sl_vocabulary *self, const char *text, uint32_t bytes)
{
    uint64_t at = sl_hash_64(text, bytes) & (self->id_slots - 1);
    for (;; at = (at + 1) & (self->id_slots - 1)) {
        uint32_t id = self->ids[at];
        if (id == FREE)
            return &self->ids[at];
        sl_token_bytes token = sl_vocabulary_token(self, id);
        if (token.bytes == bytes && memcmp(token.text, text, bytes) == 0)
            return &self->ids[at];
    }
}

static merge_slot *find_pair(const sl_vocabulary *self, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15;
    uint64_t at = (key ^ key >> 32) & (self->pair_slots - 1);
    for (;; at = (at + 1) & (self->pair_slots - 1)) {
        merge_slot *slot = &self->pairs[at];
        if (slot->rank == FREE || (slot->left == left && slot->right == right))
            return slot;
    }
}

/* ---- building ---- */

static sl_status take_memory(sl_vocabulary *self, uint64_t text_bytes)
{
    self->id_slots = slots_for(self->count);
    self->pair_slots = slots_for(self->merge_count);
    self->text = malloc(text_bytes + 1);
    self->first = malloc(((uint64_t)self->count + 1) * sizeof *self->first);
    self->facts = malloc(((uint64_t)self->count + 1) * sizeof *self->facts);
    self->merges = malloc(((uint64_t)self->merge_count + 1) * sizeof *self->merges);
    self->ids = malloc(self->id_slots * sizeof *self->ids);
    self->pairs = malloc(self->pair_slots * sizeof *self->pairs);
    if (!self->text || !self->first || !self->facts || !self->merges || !self->ids || !self->pairs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a vocabulary of %u tokens", self->count);
    memset(self->ids, 0xff, self->id_slots * sizeof *self->ids);
    memset(self->pairs, 0xff, self->pair_slots * sizeof *self->pairs);
    return SL_OK;
}

static sl_status add_tokens(sl_vocabulary *self, const sl_token_bytes *tokens)
{
    uint64_t at = 0;
    for (uint32_t id = 0; id < self->count; id++) {
        if (tokens[id].bytes == 0)
            SL_FAIL(SL_ERROR_DATA, "token %u is empty", id);
        uint32_t *slot = find_id(self, tokens[id].text, tokens[id].bytes);
        const uint32_t other = *slot;
        if (other != FREE && tokens[id].is_added == tokens[other].is_added)
            SL_FAIL(SL_ERROR_DATA, "tokens %u and %u are the same", other, id);
        memcpy(self->text + at, tokens[id].text, tokens[id].bytes);
        self->first[id] = at;
        self->facts[id] = (token_facts){(uint8_t)tokens[id].kind, tokens[id].is_added};
        at += tokens[id].bytes;
        self->first[id + 1] = at;
        if (other == FREE || (tokens[other].is_added && !tokens[id].is_added))
            *slot = id;
    }
    return SL_OK;
}

static sl_status find_bytes(sl_vocabulary *self)
{
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        self->byte_ids[byte] = *find_id(self, &text, 1);
        if (self->byte_ids[byte] == FREE)
            SL_FAIL(SL_ERROR_DATA, "no token stands for byte 0x%02x alone, so some text has none",
                    byte);
    }
    return SL_OK;
}

static bool is_join(const sl_vocabulary *self, const sl_merge *merge)
{
    if (merge->left >= self->count || merge->right >= self->count || merge->made >= self->count)
        return false;
    sl_token_bytes left = sl_vocabulary_token(self, merge->left);
    sl_token_bytes right = sl_vocabulary_token(self, merge->right);
    sl_token_bytes made = sl_vocabulary_token(self, merge->made);
    return (uint64_t)left.bytes + right.bytes == made.bytes &&
           memcmp(made.text, left.text, left.bytes) == 0 &&
           memcmp(made.text + left.bytes, right.text, right.bytes) == 0;
}

/* Of two merges of one pair the later one counts, as in the tokenizers library. */
static sl_status add_merges(sl_vocabulary *self, const sl_merge *merges)
{
    for (uint32_t rank = 0; rank < self->merge_count; rank++) {
        const sl_merge *merge = &merges[rank];
        if (!is_join(self, merge))
            SL_FAIL(SL_ERROR_DATA, "merge %u does not make the token that joins its two", rank + 1);
        self->merges[rank] = *merge;
        *find_pair(self, merge->left, merge->right) =
            (merge_slot){merge->left, merge->right, rank, merge->made};
    }
    return SL_OK;
}

static sl_status fill(sl_vocabulary *self, const sl_token_bytes *tokens, const sl_merge *merges)
{
    uint64_t text_bytes = 0;
    for (uint32_t id = 0; id < self->count; id++)
        text_bytes += tokens[id].bytes;
    SL_TRY(take_memory(self, text_bytes));
    SL_TRY(add_tokens(self, tokens));
    SL_TRY(find_bytes(self));
    return add_merges(self, merges);
}

sl_status sl_vocabulary_build(const sl_token_bytes *tokens, uint32_t token_count,
                              const sl_merge *merges, uint32_t merge_count, int32_t end_of_text,
                              sl_vocabulary **out_vocabulary)
{
    if (token_count > SL_VOCABULARY_COUNT_MAX || merge_count > SL_VOCABULARY_COUNT_MAX)
        SL_FAIL(SL_ERROR_DATA, "%u tokens and %u merges are above the limit of %d", token_count,
                merge_count, SL_VOCABULARY_COUNT_MAX);
    sl_vocabulary *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a vocabulary");
    self->count = token_count;
    self->merge_count = merge_count;
    self->end_of_text = end_of_text;
    sl_status status = fill(self, tokens, merges);
    if (status != SL_OK) {
        sl_vocabulary_close(self);
        return status;
    }
    *out_vocabulary = self;
    return SL_OK;
}

sl_status sl_vocabulary_of_bytes(sl_vocabulary **out_vocabulary)
{
    enum { BYTES = 256 };
    char bytes[BYTES];
    sl_token_bytes tokens[BYTES + 1];
    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (sl_token_bytes){&bytes[i], 1};
    }
    tokens[BYTES] =
        (sl_token_bytes){SL_VOCABULARY_END_OF_TEXT, sizeof SL_VOCABULARY_END_OF_TEXT - 1};
    return sl_vocabulary_build(tokens, BYTES + 1, NULL, 0, BYTES, out_vocabulary);
}

void sl_vocabulary_close(sl_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    sl_pretokenizer_close(vocabulary->pretokenizer);
    free(vocabulary->text);
    free(vocabulary->first);
    free(vocabulary->facts);
    free(vocabulary->merges);
    free(vocabulary->ids);
    free(vocabulary->pairs);
    free(vocabulary);
}

void sl_vocabulary_adopt(sl_vocabulary *vocabulary, sl_pretokenizer *pretokenizer)
{
    vocabulary->pretokenizer = pretokenizer;
}

/* ---- looking ---- */

const sl_pretokenizer *sl_vocabulary_pretokenizer(const sl_vocabulary *vocabulary)
{
    return vocabulary->pretokenizer;
}

sl_words_cuts sl_vocabulary_cuts(const sl_vocabulary *vocabulary)
{
    if (!vocabulary->pretokenizer)
        return SL_WORDS_CUTS_GPT2;
    return vocabulary->pretokenizer->allows_cuts ? SL_WORDS_CUTS_KNOWN : SL_WORDS_CUTS_NONE;
}

uint32_t sl_vocabulary_count(const sl_vocabulary *vocabulary)
{
    return vocabulary->count;
}

uint32_t sl_vocabulary_merge_count(const sl_vocabulary *vocabulary)
{
    return vocabulary->merge_count;
}

const sl_merge *sl_vocabulary_merges(const sl_vocabulary *vocabulary)
{
    return vocabulary->merges;
}

int32_t sl_vocabulary_end_of_text(const sl_vocabulary *vocabulary)
{
    return vocabulary->end_of_text;
}

uint32_t sl_vocabulary_byte(const sl_vocabulary *vocabulary, unsigned char byte)
{
    return vocabulary->byte_ids[byte];
}

sl_token_bytes sl_vocabulary_token(const sl_vocabulary *vocabulary, uint32_t id)
{
    uint64_t first = vocabulary->first[id];
    return (sl_token_bytes){vocabulary->text + first, (uint32_t)(vocabulary->first[id + 1] - first),
                            vocabulary->facts[id].is_added,
                            (sl_token_kind)vocabulary->facts[id].kind};
}

int32_t sl_vocabulary_find(const sl_vocabulary *vocabulary, const char *text, uint32_t bytes)
{
    return (int32_t)*find_id(vocabulary, text, bytes); /* FREE is SL_VOCABULARY_NONE */
}

int32_t sl_vocabulary_find_word(const sl_vocabulary *vocabulary, const char *text, uint32_t bytes)
{
    const int32_t id = sl_vocabulary_find(vocabulary, text, bytes);
    return id >= 0 && vocabulary->facts[id].is_added ? SL_VOCABULARY_NONE : id;
}

bool sl_vocabulary_find_merge(const sl_vocabulary *vocabulary, uint32_t left, uint32_t right,
                              uint32_t *out_rank, uint32_t *out_made)
{
    const merge_slot *slot = find_pair(vocabulary, left, right);
    *out_rank = slot->rank;
    *out_made = slot->made;
    return slot->rank != FREE;
}

/* Without merges, with the bytes in order, it is the byte tokenizer's. */
static bool is_of_bytes(const sl_vocabulary *self)
{
    if (self->merge_count > 0 || self->count != 257 || self->end_of_text != 256)
        return false;
    for (uint32_t byte = 0; byte < 256; byte++)
        if (self->byte_ids[byte] != byte)
            return false;
    return true;
}

sl_status sl_vocabulary_name(const sl_vocabulary *self, char out_name[SL_VOCABULARY_NAME_BYTES])
{
    sl_hash_stream *stream;
    if (is_of_bytes(self)) {
        snprintf(out_name, SL_VOCABULARY_NAME_BYTES, "byte");
        return SL_OK;
    }
    SL_TRY(sl_hash_open(&stream));
    uint64_t counts[3] = {self->count, self->merge_count, (uint64_t)self->end_of_text};
    sl_hash_update(stream, counts, sizeof counts);
    sl_hash_update(stream, self->first, ((uint64_t)self->count + 1) * sizeof *self->first);
    sl_hash_update(stream, self->text, self->first[self->count]);
    sl_hash_update(stream, self->merges, (uint64_t)self->merge_count * sizeof *self->merges);
    if (self->pretokenizer)
        sl_pretokenizer_hash(self->pretokenizer, stream);
    sl_hash_value value = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(out_name, SL_VOCABULARY_NAME_BYTES, "bpe-%016llx%016llx",
             (unsigned long long)value.high, (unsigned long long)value.low);
    return SL_OK;
}
