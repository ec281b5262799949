/* Merging by a heap of candidates; common words come from a cache. See bpe.h.
 *
 * A word is a list of symbols; a candidate is a merge and the place of its left symbol. When it
 * comes up its two symbols may have changed since: it holds if they still make the same token.
 */
#include "bpe.h"

#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "pretokenizer.h"
#include "words.h"

enum {
    WORD_BYTES_MAX = 64 << 20, /* 48 times as much memory is taken */
    NONE = UINT32_MAX,         /* no symbol */
    CACHED_BYTES = 24,
    CACHED_IDS = 8
};

typedef struct cached_word {
    uint32_t ids[CACHED_IDS];
    uint32_t unused;
    uint8_t bytes, count; /* bytes 0: empty */
    char text[CACHED_BYTES];
} cached_word;

typedef struct symbol {
    uint32_t id, previous, next; /* id NONE: merged into another */
} symbol;

typedef struct candidate {
    uint32_t rank, place, made;
} candidate;

struct sl_bpe {
    const sl_vocabulary *vocabulary;
    sl_pieces *pieces; /* NULL: words are GPT-2's */
    bool ignores_merges;
    cached_word *cache;
    uint32_t cache_slots;
    uint32_t symbol_room; /* of both arrays; the heap has three times as much */
    uint32_t heap_count;
    symbol *symbols;
    candidate *heap;
};

sl_status sl_bpe_open(const sl_vocabulary *vocabulary, uint32_t cache_slots, sl_bpe **out_bpe)
{
    sl_bpe *self = calloc(1, sizeof *self);
    if (self)
        self->cache = calloc(cache_slots, sizeof *self->cache);
    if (!self || !self->cache) {
        sl_bpe_close(self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an encoder");
    }
    self->vocabulary = vocabulary;
    self->cache_slots = cache_slots;
    const sl_pretokenizer *pretokenizer = sl_vocabulary_pretokenizer(vocabulary);
    sl_status status = pretokenizer ? sl_pieces_open(pretokenizer, &self->pieces) : SL_OK;
    if (status != SL_OK) {
        sl_bpe_close(self);
        return status;
    }
    self->ignores_merges = pretokenizer && pretokenizer->ignores_merges;
    *out_bpe = self;
    return SL_OK;
}

void sl_bpe_close(sl_bpe *bpe)
{
    if (!bpe)
        return;
    sl_pieces_close(bpe->pieces);
    free(bpe->cache);
    free(bpe->symbols);
    free(bpe->heap);
    free(bpe);
}

/* ---- the heap: the least (rank, place) on top ---- */

static bool is_before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void push(sl_bpe *self, candidate added)
{
    uint32_t at = self->heap_count++;
    while (at > 0 && is_before(&added, &self->heap[(at - 1) / 2])) {
        self->heap[at] = self->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    self->heap[at] = added;
}

static candidate pop(sl_bpe *self)
{
    candidate top = self->heap[0], last = self->heap[--self->heap_count];
    uint32_t at = 0, count = self->heap_count;
    for (uint32_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_before(&self->heap[child + 1], &self->heap[child]))
            child++;
        if (!is_before(&self->heap[child], &last))
            break;
        self->heap[at] = self->heap[child];
        at = child;
    }
    self->heap[at] = last;
    return top;
}

/* ---- one word ---- */

static sl_status make_room(sl_bpe *self, uint64_t bytes)
{
    if (bytes <= self->symbol_room)
        return SL_OK;
    if (bytes > WORD_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA,
                "a word of %llu bytes, without a space between, is above the limit of %d: put "
                "spaces or line ends into it",
                (unsigned long long)bytes, WORD_BYTES_MAX);
    free(self->symbols);
    free(self->heap);
    self->symbol_room = 0;
    self->symbols = malloc(bytes * sizeof *self->symbols);
    self->heap = malloc(3 * bytes * sizeof *self->heap);
    if (!self->symbols || !self->heap)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a word of %llu bytes", (unsigned long long)bytes);
    self->symbol_room = (uint32_t)bytes;
    return SL_OK;
}

/* Adds what the symbol at `place` and the one behind it may merge to. */
static void offer(sl_bpe *self, uint32_t place)
{
    candidate found = {.place = place};
    const symbol *left = &self->symbols[place];
    if (left->next != NONE &&
        sl_vocabulary_find_merge(self->vocabulary, left->id, self->symbols[left->next].id,
                                 &found.rank, &found.made))
        push(self, found);
}

static void apply(sl_bpe *self, const candidate *chosen)
{
    symbol *left = &self->symbols[chosen->place];
    uint32_t rank, made = NONE;
    if (left->id == NONE || left->next == NONE)
        return;
    symbol *right = &self->symbols[left->next];
    if (!sl_vocabulary_find_merge(self->vocabulary, left->id, right->id, &rank, &made) ||
        made != chosen->made)
        return;
    left->id = made;
    left->next = right->next;
    right->id = NONE;
    if (left->next != NONE)
        self->symbols[left->next].previous = chosen->place;
    if (left->previous != NONE)
        offer(self, left->previous);
    offer(self, chosen->place);
}

static void start_word(sl_bpe *self, const char *text, uint32_t bytes)
{
    self->heap_count = 0;
    for (uint32_t i = 0; i < bytes; i++)
        self->symbols[i] =
            (symbol){sl_vocabulary_byte(self->vocabulary, (unsigned char)text[i]),
                     i > 0 ? i - 1 : (uint32_t)NONE, i + 1 < bytes ? i + 1 : (uint32_t)NONE};
    for (uint32_t i = 0; i + 1 < bytes; i++)
        offer(self, i);
}

static bool is_token(const sl_bpe *self, const char *text, uint64_t bytes, uint32_t *out_id)
{
    int32_t id = SL_VOCABULARY_NONE;
    if (self->ignores_merges && bytes <= UINT32_MAX)
        id = sl_vocabulary_find_word(self->vocabulary, text, (uint32_t)bytes);
    *out_id = (uint32_t)id;
    return id != SL_VOCABULARY_NONE;
}

static sl_status merge_word(sl_bpe *self, const char *text, uint64_t bytes, sl_ids *ids)
{
    uint32_t whole;
    SL_TRY(make_room(self, bytes));
    SL_TRY(sl_ids_reserve(ids, bytes));
    if (is_token(self, text, bytes, &whole)) {
        ids->items[ids->count++] = whole;
        return SL_OK;
    }
    start_word(self, text, (uint32_t)bytes);
    while (self->heap_count > 0) {
        candidate chosen = pop(self);
        apply(self, &chosen);
    }
    for (uint32_t i = 0; i != NONE; i = self->symbols[i].next)
        ids->items[ids->count++] = self->symbols[i].id;
    return SL_OK;
}

/* ---- the cache ---- */

static cached_word *find_slot(const sl_bpe *self, const char *text, uint64_t bytes)
{
    return &self->cache[sl_hash_64(text, bytes) & (self->cache_slots - 1)];
}

static void keep(cached_word *slot, const char *text, uint64_t bytes, const uint32_t *ids,
                 uint64_t count)
{
    if (count > CACHED_IDS)
        return;
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
    memcpy(slot->text, text, bytes);
    memcpy(slot->ids, ids, count * sizeof *ids);
}

static sl_status encode_word(sl_bpe *self, const char *text, uint64_t bytes, sl_ids *ids)
{
    if (bytes > CACHED_BYTES)
        return merge_word(self, text, bytes, ids);
    cached_word *slot = find_slot(self, text, bytes);
    SL_TRY(sl_ids_reserve(ids, CACHED_IDS));
    if (slot->bytes == bytes && memcmp(slot->text, text, bytes) == 0) {
        memcpy(ids->items + ids->count, slot->ids, sizeof slot->ids);
        ids->count += slot->count;
        return SL_OK;
    }
    uint64_t first = ids->count;
    SL_TRY(merge_word(self, text, bytes, ids));
    keep(slot, text, bytes, ids->items + first, ids->count - first);
    return SL_OK;
}

static sl_status encode_pieces(sl_bpe *self, const char *text, uint64_t bytes, sl_ids *ids)
{
    sl_text_piece piece;
    bool is_there;
    sl_pieces_start(self->pieces, text, bytes);
    for (;;) {
        SL_TRY(sl_pieces_next(self->pieces, &piece, &is_there));
        if (!is_there)
            return SL_OK;
        if (piece.text) {
            SL_TRY(encode_word(self, piece.text, piece.bytes, ids));
            continue;
        }
        SL_TRY(sl_ids_reserve(ids, 1));
        ids->items[ids->count++] = piece.id;
    }
}

sl_status sl_bpe_encode(sl_bpe *bpe, const char *text, uint64_t bytes, sl_ids *ids)
{
    if (bpe->pieces)
        return encode_pieces(bpe, text, bytes, ids);
    for (uint64_t at = 0, end; at < bytes; at = end) {
        end = sl_words_end(text, bytes, at);
        SL_TRY(encode_word(bpe, text + at, end - at, ids));
    }
    return SL_OK;
}
