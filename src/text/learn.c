/* Pairs with their counts, and a heap of pairs with the words that hold them; see learn.h.
 *
 * An entry of the heap has the count of its pair when it was pushed; one that comes up with an
 * older count is pushed again with the present one. As in the trainer whose merges these are, an
 * entry keeps its own list of words, and a pair that was merged keeps its count: both matter only
 * where two merges make the same token.
 */
#include "learn.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "word_counts.h"

enum { BYTES = 256, FIRST_SLOTS = 1 << 12 };

static const uint32_t NONE = UINT32_MAX;

/* A growing array of words' indices. */
typedef struct word_list {
    uint32_t *items;
    uint64_t count, room;
} word_list;

typedef struct pair {
    uint32_t left, right; /* left NONE: an empty slot */
    int64_t count;
    uint64_t fresh; /* 1 + its place among the fresh ones; 0: none */
} pair;

/* A pair and the words to merge it in. */
typedef struct candidate {
    int64_t count;
    uint32_t left, right;
    word_list words;
} candidate;

typedef struct candidate_list {
    candidate *items;
    uint64_t count, room;
} candidate_list;

typedef struct learning {
    const sl_learn_watch *watch; /* or NULL */
    const sl_word_counts *counts;
    uint32_t *symbols; /* a word's start where its bytes do */
    uint32_t *lengths; /* symbols of each word */
    pair *pairs;       /* [pair_slots], by hash */
    uint64_t pair_slots, pair_count;
    candidate_list heap, fresh; /* fresh: of the merge that is being made */
    sl_token_bytes *tokens;     /* [token_limit + 1] */
    uint32_t token_count, token_limit;
    uint32_t *token_slots; /* ids by the hash of their bytes */
    uint64_t token_slot_count;
    sl_merge *merges; /* [merge_count] */
    uint64_t merge_count, merge_room;
} learning;

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory to learn a vocabulary");
}

/* Makes room for one more item of `item_bytes`. */
static sl_status make_room(void **items, uint64_t count, uint64_t *room, uint64_t item_bytes)
{
    enum { FIRST = 4 };
    if (count < *room)
        return SL_OK;
    uint64_t more = *room ? 2 * *room : FIRST;
    void *larger = realloc(*items, more * item_bytes);
    if (!larger)
        return no_memory();
    *items = larger;
    *room = more;
    return SL_OK;
}

/* ---- pairs ---- */

static pair *find_slot(pair *pairs, uint64_t slots, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15;
    uint64_t at = (key ^ key >> 32) & (slots - 1);
    while (pairs[at].left != NONE && (pairs[at].left != left || pairs[at].right != right))
        at = (at + 1) & (slots - 1);
    return &pairs[at];
}

static sl_status grow_pairs(learning *self)
{
    uint64_t slots = self->pair_slots ? 2 * self->pair_slots : FIRST_SLOTS;
    pair *pairs = malloc(slots * sizeof *pairs);
    if (!pairs)
        return no_memory();
    memset(pairs, 0xff, slots * sizeof *pairs);
    for (uint64_t i = 0; i < self->pair_slots; i++)
        if (self->pairs[i].left != NONE)
            *find_slot(pairs, slots, self->pairs[i].left, self->pairs[i].right) = self->pairs[i];
    free(self->pairs);
    self->pairs = pairs;
    self->pair_slots = slots;
    return SL_OK;
}

static sl_status find_pair(learning *self, uint32_t left, uint32_t right, pair **out_pair)
{
    if (2 * self->pair_count >= self->pair_slots)
        SL_TRY(grow_pairs(self));
    *out_pair = find_slot(self->pairs, self->pair_slots, left, right);
    if ((*out_pair)->left == NONE) {
        **out_pair = (pair){.left = left, .right = right};
        self->pair_count++;
    }
    return SL_OK;
}

/* Notes that a pair came into a word; a word is noted once. */
static sl_status note_word(learning *self, pair *of, uint32_t word)
{
    candidate_list *fresh = &self->fresh;
    if (of->fresh == 0) {
        SL_TRY(make_room((void **)&fresh->items, fresh->count, &fresh->room, sizeof *fresh->items));
        fresh->items[fresh->count++] = (candidate){.left = of->left, .right = of->right};
        of->fresh = fresh->count;
    }
    word_list *words = &fresh->items[of->fresh - 1].words;
    if (words->count > 0 && words->items[words->count - 1] == word)
        return SL_OK;
    SL_TRY(make_room((void **)&words->items, words->count, &words->room, sizeof *words->items));
    words->items[words->count++] = word;
    return SL_OK;
}

/* The pair comes once more in a word, or once less. */
static sl_status change_pair(learning *self, uint32_t left, uint32_t right, uint32_t word, int sign)
{
    pair *of = NULL;
    SL_TRY(find_pair(self, left, right, &of));
    of->count += sign * (int64_t)self->counts->words[word].count;
    return sign > 0 ? note_word(self, of, word) : SL_OK;
}

/* ---- the heap: the most frequent pair on top, of equal ones the smaller ---- */

static bool is_before(const candidate *a, const candidate *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static sl_status push(candidate_list *heap, candidate added)
{
    SL_TRY(make_room((void **)&heap->items, heap->count, &heap->room, sizeof *heap->items));
    uint64_t at = heap->count++;
    for (; at > 0 && is_before(&added, &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = added;
    return SL_OK;
}

static candidate pop(candidate_list *heap)
{
    candidate top = heap->items[0], last = heap->items[--heap->count];
    uint64_t at = 0;
    for (uint64_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && is_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!is_before(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}

/* Moves the fresh pairs onto the heap. */
static sl_status push_fresh(learning *self)
{
    candidate_list *fresh = &self->fresh;
    while (fresh->count > 0) {
        candidate *of = &fresh->items[fresh->count - 1];
        pair *found = find_slot(self->pairs, self->pair_slots, of->left, of->right);
        found->fresh = 0;
        of->count = found->count;
        if (of->count > 0)
            SL_TRY(push(&self->heap, *of));
        else
            free(of->words.items);
        fresh->count--;
    }
    return SL_OK;
}

static void free_candidates(candidate_list *list)
{
    for (uint64_t i = 0; i < list->count; i++)
        free(list->items[i].words.items);
    free(list->items);
}

/* ---- tokens ---- */

static uint32_t *find_token(const learning *self, const char *text, uint32_t bytes)
{
    uint64_t at = sl_hash_64(text, bytes) & (self->token_slot_count - 1);
    for (;; at = (at + 1) & (self->token_slot_count - 1)) {
        uint32_t id = self->token_slots[at];
        if (id == NONE)
            return &self->token_slots[at];
        const sl_token_bytes *token = &self->tokens[id];
        if (token->bytes == bytes && memcmp(token->text, text, bytes) == 0)
            return &self->token_slots[at];
    }
}

/* The id of these bytes, which it takes over: a new one, or that of the same token. */
static uint32_t add_token(learning *self, char *text, uint32_t bytes)
{
    uint32_t *slot = find_token(self, text, bytes);
    if (*slot != NONE) {
        free(text);
        return *slot;
    }
    self->tokens[self->token_count] = (sl_token_bytes){text, bytes};
    *slot = self->token_count++;
    return *slot;
}

static sl_status join_tokens(learning *self, uint32_t left, uint32_t right, uint32_t *out_id)
{
    sl_token_bytes a = self->tokens[left], b = self->tokens[right];
    char *text = malloc((uint64_t)a.bytes + b.bytes);
    if (!text)
        return no_memory();
    memcpy(text, a.text, a.bytes);
    memcpy(text + a.bytes, b.text, b.bytes);
    *out_id = add_token(self, text, a.bytes + b.bytes);
    return SL_OK;
}

/* Of a pair that is merged a second time the later merge counts. */
static sl_status keep_merge(learning *self, sl_merge merge)
{
    uint64_t kept = 0;
    bool is_old = merge.made + 1 < self->token_count; /* else no merge made this token before */
    for (uint64_t i = 0; is_old && i < self->merge_count; i++) {
        const sl_merge *old = &self->merges[i];
        if (old->left != merge.left || old->right != merge.right)
            self->merges[kept++] = *old;
    }
    self->merge_count = is_old ? kept : self->merge_count;
    SL_TRY(make_room((void **)&self->merges, self->merge_count, &self->merge_room,
                     sizeof *self->merges));
    self->merges[self->merge_count++] = merge;
    return SL_OK;
}

/* ---- merging ---- */

/* Joins the pair wherever it stands in a word, from the left. */
static sl_status merge_in_word(learning *self, const sl_merge *merge, uint32_t word)
{
    uint32_t *symbols = self->symbols + self->counts->words[word].first;
    uint32_t count = self->lengths[word], kept = 0;
    for (uint32_t at = 0; at < count;) {
        bool is_pair =
            at + 1 < count && symbols[at] == merge->left && symbols[at + 1] == merge->right;
        if (!is_pair) {
            symbols[kept++] = symbols[at++];
            continue;
        }
        if (kept > 0) {
            SL_TRY(change_pair(self, symbols[kept - 1], merge->left, word, -1));
            SL_TRY(change_pair(self, symbols[kept - 1], merge->made, word, 1));
        }
        at += 2;
        if (at < count) {
            SL_TRY(change_pair(self, merge->right, symbols[at], word, -1));
            SL_TRY(change_pair(self, merge->made, symbols[at], word, 1));
        }
        symbols[kept++] = merge->made;
    }
    self->lengths[word] = kept;
    return SL_OK;
}

static sl_status merge_candidate(learning *self, const candidate *top)
{
    sl_merge merge = {.left = top->left, .right = top->right};
    SL_TRY(join_tokens(self, top->left, top->right, &merge.made));
    SL_TRY(keep_merge(self, merge));
    for (uint64_t i = 0; i < top->words.count; i++)
        SL_TRY(merge_in_word(self, &merge, top->words.items[i]));
    return push_fresh(self);
}

static sl_status merge_all(learning *self)
{
    while (self->token_count < self->token_limit && self->heap.count > 0) {
        if (self->watch)
            SL_TRY(self->watch->merging(self->watch->user, self->token_count, self->token_limit));
        candidate top = pop(&self->heap);
        int64_t count = find_slot(self->pairs, self->pair_slots, top.left, top.right)->count;
        if (top.count != count) {
            top.count = count;
            SL_TRY(push(&self->heap, top));
            continue;
        }
        sl_status status = top.count > 0 ? merge_candidate(self, &top) : SL_OK;
        free(top.words.items);
        SL_TRY(status);
        if (top.count <= 0)
            break;
    }
    return SL_OK;
}

/* ---- the start ---- */

/* Bytes have ids in the order of the characters that stand for them. */
static sl_status add_bytes(learning *self, uint32_t ids[BYTES])
{
    for (uint32_t i = 0; i < BYTES; i++) {
        char *text = malloc(1);
        if (!text)
            return no_memory();
        *text = (char)sl_vocabulary_nth_byte(i);
        ids[(unsigned char)*text] = i;
        add_token(self, text, 1);
    }
    return SL_OK;
}

static sl_status take_memory(learning *self)
{
    uint64_t text_bytes = self->counts->text_bytes;
    self->token_slot_count = FIRST_SLOTS;
    while (self->token_slot_count < 2 * (uint64_t)self->token_limit)
        self->token_slot_count *= 2;
    self->symbols = malloc((text_bytes + 1) * sizeof *self->symbols);
    self->lengths = malloc(((uint64_t)self->counts->word_count + 1) * sizeof *self->lengths);
    self->tokens = calloc((uint64_t)self->token_limit + 1, sizeof *self->tokens);
    self->token_slots = malloc(self->token_slot_count * sizeof *self->token_slots);
    if (!self->symbols || !self->lengths || !self->tokens || !self->token_slots)
        return no_memory();
    memset(self->token_slots, 0xff, self->token_slot_count * sizeof *self->token_slots);
    return grow_pairs(self);
}

static sl_status count_pairs(learning *self)
{
    uint32_t ids[BYTES];
    SL_TRY(add_bytes(self, ids));
    for (uint64_t i = 0; i < self->counts->text_bytes; i++)
        self->symbols[i] = ids[(unsigned char)self->counts->text[i]];
    for (uint32_t word = 0; word < self->counts->word_count; word++) {
        const uint32_t *symbols = self->symbols + self->counts->words[word].first;
        self->lengths[word] = self->counts->words[word].bytes;
        for (uint32_t i = 0; i + 1 < self->lengths[word]; i++)
            SL_TRY(change_pair(self, symbols[i], symbols[i + 1], word, 1));
    }
    return push_fresh(self);
}

static sl_status finish(learning *self, sl_vocabulary **out_vocabulary)
{
    static const char end[] = SL_VOCABULARY_END_OF_TEXT;
    self->tokens[self->token_count] = (sl_token_bytes){end, sizeof end - 1};
    return sl_vocabulary_build(self->tokens, self->token_count + 1, self->merges,
                               (uint32_t)self->merge_count, (int32_t)self->token_count,
                               out_vocabulary);
}

static void clear(learning *self)
{
    for (uint32_t id = 0; self->tokens && id < self->token_count; id++)
        free((char *)self->tokens[id].text);
    free(self->tokens);
    free(self->token_slots);
    free(self->symbols);
    free(self->lengths);
    free(self->pairs);
    free(self->merges);
    free_candidates(&self->heap);
    free_candidates(&self->fresh);
}

sl_status sl_learn_vocabulary(const sl_word_counts *counts, uint32_t token_count,
                              const sl_learn_watch *watch, sl_vocabulary **out_vocabulary)
{
    if (token_count < BYTES + 1 || token_count > SL_VOCABULARY_COUNT_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "a vocabulary of %u tokens: it has from %d (bytes and end of text) "
                "to %d",
                token_count, BYTES + 1, SL_VOCABULARY_COUNT_MAX);
    learning self = {.watch = watch, .counts = counts, .token_limit = token_count - 1};
    sl_status status = take_memory(&self);
    if (status == SL_OK)
        status = count_pairs(&self);
    if (status == SL_OK)
        status = merge_all(&self);
    if (status == SL_OK)
        status = finish(&self, out_vocabulary);
    clear(&self);
    return status;
}
