/* Sorted by the first byte, then the longest first, then by their bytes: most bytes start no token,
 * and those of one first byte and one length are searched by halves. See added_tokens.h. */
#include "added_tokens.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *text;
    uint64_t bytes;
    uint32_t id;
    uint32_t end; /* where the entries end that have its first byte and its length */
} entry;

struct sl_added_tokens {
    entry *entries;
    char *text;
    uint32_t first[257]; /* where the entries start that begin with a byte */
};

static int compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->text[0] != b->text[0])
        return (unsigned char)a->text[0] < (unsigned char)b->text[0] ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return memcmp(a->text, b->text, a->bytes);
}

static void copy_tokens(sl_added_tokens *self, const sl_added_token *tokens, uint32_t count)
{
    char *at = self->text;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = strlen(tokens[i].text);
        memcpy(at, tokens[i].text, bytes);
        self->entries[i] = (entry){.text = at, .bytes = bytes, .id = tokens[i].id};
        at += bytes;
    }
    qsort(self->entries, count, sizeof *self->entries, compare);
    for (uint32_t i = count; i-- > 0;) {
        entry *it = &self->entries[i];
        const bool is_last =
            i + 1 == count || it[1].text[0] != it->text[0] || it[1].bytes != it->bytes;
        it->end = is_last ? i + 1 : it[1].end;
    }
    for (uint32_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < count && (unsigned char)self->entries[i].text[0] < byte)
            i++;
        self->first[byte] = i;
    }
}

static sl_status check(const sl_added_tokens *self, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (compare(&self->entries[i - 1], &self->entries[i]) == 0)
            SL_FAIL(SL_ERROR_DATA, "added tokens %u and %u are the same", self->entries[i - 1].id,
                    self->entries[i].id);
    return SL_OK;
}

sl_status sl_added_tokens_open(const sl_added_token *tokens, uint32_t count,
                               sl_added_tokens **out_set)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += strlen(tokens[i].text);
    sl_added_tokens *self = calloc(1, sizeof *self);
    if (self) {
        self->entries = malloc(count * sizeof *self->entries + 1);
        self->text = malloc(bytes + 1);
    }
    if (!self || !self->entries || !self->text) {
        sl_added_tokens_close(self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for added tokens");
    }
    copy_tokens(self, tokens, count);
    sl_status status = check(self, count);
    if (status != SL_OK)
        sl_added_tokens_close(self);
    else
        *out_set = self;
    return status;
}

void sl_added_tokens_close(sl_added_tokens *set)
{
    if (!set)
        return;
    free(set->entries);
    free(set->text);
    free(set);
}

void sl_added_tokens_hash(const sl_added_tokens *set, sl_hash_stream *stream)
{
    const uint32_t count = set ? set->first[256] : 0;
    sl_hash_update(stream, &count, sizeof count);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t facts[2] = {set->entries[i].id, set->entries[i].bytes};
        sl_hash_update(stream, facts, sizeof facts);
        sl_hash_update(stream, set->entries[i].text, set->entries[i].bytes);
    }
}

/* Of the entries from `low` on that have its length the one that is `text`, or NULL. */
static const entry *find_equal(const sl_added_tokens *self, uint32_t low, const char *text)
{
    const uint64_t bytes = self->entries[low].bytes;
    for (uint32_t high = self->entries[low].end; low < high;) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = memcmp(self->entries[middle].text, text, bytes);
        if (order == 0)
            return &self->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The longest token at `at`, or NULL. */
static const entry *find(const sl_added_tokens *self, const char *at, uint64_t left)
{
    const unsigned char byte = (unsigned char)*at;
    const entry *found = NULL;
    for (uint32_t i = self->first[byte]; !found && i < self->first[byte + 1];
         i = self->entries[i].end)
        if (self->entries[i].bytes <= left)
            found = find_equal(self, i, at);
    return found;
}

static void give_token(sl_added_walk *walk, sl_added_part *out_part)
{
    *out_part = (sl_added_part){.id = walk->token};
    walk->at = walk->token_end;
    walk->token_end = 0;
}

bool sl_added_tokens_next(const sl_added_tokens *set, sl_added_walk *walk, sl_added_part *out_part)
{
    uint64_t start = walk->at, end = set ? start : walk->bytes;
    const entry *found = NULL;
    if (walk->token_end > 0) {
        give_token(walk, out_part);
        return true;
    }
    while (end < walk->bytes && !(found = find(set, walk->text + end, walk->bytes - end)))
        end++;
    walk->at = end;
    if (found) {
        walk->token = found->id;
        walk->token_end = end + found->bytes;
    }
    if (end > start)
        *out_part = (sl_added_part){walk->text + start, end - start, 0};
    else if (found)
        give_token(walk, out_part);
    return end > start || found;
}
