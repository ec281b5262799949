/* Walks in walks: see pretokenizer.h. */
#include "pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "nfc.h"
#include "stand_ins.h"

struct sl_pieces {
    const sl_pretokenizer *of;
    sl_matcher *matcher;
    sl_nfc nfc;
    sl_stand_ins stand_ins;
    sl_added_walk outer, inner; /* of the text, of a normalized part of it */
    const char *text, *seen;    /* of the part that is cut into words, and as patterns see it */
    sl_pattern_walk walks[SL_PRETOKENIZER_PATTERNS_MAX];
    uint64_t starts[SL_PRETOKENIZER_PATTERNS_MAX]; /* in the part, of what a pattern walks */
    uint32_t depth;                                /* walks that go on */
};

void sl_pretokenizer_close(sl_pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (uint32_t i = 0; i < pretokenizer->pattern_count; i++)
        sl_pattern_close(pretokenizer->patterns[i]);
    sl_added_tokens_close(pretokenizer->added);
    sl_added_tokens_close(pretokenizer->added_to_form);
    free(pretokenizer->json);
    free(pretokenizer->config);
    free(pretokenizer);
}

void sl_pretokenizer_hash(const sl_pretokenizer *pretokenizer, sl_hash_stream *stream)
{
    uint64_t facts[3] = {pretokenizer->pattern_count, pretokenizer->ignores_merges,
                         pretokenizer->is_nfc};
    sl_hash_update(stream, facts, sizeof facts);
    for (uint32_t i = 0; i < pretokenizer->pattern_count; i++) {
        const char *text = sl_pattern_text(pretokenizer->patterns[i]);
        sl_hash_update(stream, text, strlen(text) + 1);
    }
    sl_added_tokens_hash(pretokenizer->added, stream);
    sl_added_tokens_hash(pretokenizer->added_to_form, stream);
}

sl_status sl_pieces_open(const sl_pretokenizer *pretokenizer, sl_pieces **out_pieces)
{
    sl_pieces *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to cut texts");
    self->of = pretokenizer;
    sl_status status = sl_matcher_open(&self->matcher);
    if (status != SL_OK)
        free(self);
    else
        *out_pieces = self;
    return status;
}

void sl_pieces_close(sl_pieces *pieces)
{
    if (!pieces)
        return;
    sl_matcher_close(pieces->matcher);
    sl_nfc_free(&pieces->nfc);
    sl_stand_ins_free(&pieces->stand_ins);
    free(pieces);
}

void sl_pieces_start(sl_pieces *pieces, const char *text, uint64_t bytes)
{
    pieces->outer = (sl_added_walk){.text = text, .bytes = bytes};
    pieces->inner = (sl_added_walk){0};
    pieces->depth = 0;
}

/* Begins to walk a range of the part by the next pattern. */
static void go_down(sl_pieces *self, uint64_t start, uint64_t bytes)
{
    self->starts[self->depth] = start;
    self->walks[self->depth] = (sl_pattern_walk){.text = self->seen + start, .bytes = bytes};
    self->depth++;
}

/* The next word of the part; false at its end. */
static sl_status next_word(sl_pieces *self, sl_text_piece *piece, bool *out_is_there)
{
    *out_is_there = false;
    while (self->depth > 0) {
        const uint32_t level = self->depth - 1;
        sl_pattern_walk *walk = &self->walks[level];
        const uint64_t from = walk->at;
        uint64_t end;
        bool is_there;
        SL_TRY(sl_pattern_next(self->of->patterns[level], self->matcher, walk, &end, &is_there));
        const uint64_t start = self->starts[level] + from;
        if (!is_there) {
            self->depth--;
        } else if (self->depth < self->of->pattern_count) {
            go_down(self, start, end - from);
        } else {
            *piece = (sl_text_piece){.text = self->text + start, .bytes = end - from};
            *out_is_there = true;
            return SL_OK;
        }
    }
    return SL_OK;
}

static sl_status start_inner(sl_pieces *self, const sl_added_part *part)
{
    self->inner = (sl_added_walk){.text = part->text, .bytes = part->bytes};
    if (!self->of->is_nfc)
        return SL_OK;
    return sl_nfc_apply(&self->nfc, part->text, part->bytes, &self->inner.text, &self->inner.bytes);
}

static sl_status start_words(sl_pieces *self, const sl_added_part *part)
{
    SL_TRY(sl_stand_ins_apply(&self->stand_ins, part->text, part->bytes, &self->seen));
    self->text = part->text;
    go_down(self, 0, part->bytes);
    return SL_OK;
}

sl_status sl_pieces_next(sl_pieces *pieces, sl_text_piece *out_piece, bool *out_is_there)
{
    const sl_pretokenizer *of = pieces->of;
    sl_added_part part;
    for (;;) {
        SL_TRY(next_word(pieces, out_piece, out_is_there));
        if (*out_is_there)
            return SL_OK;
        bool is_inner = sl_added_tokens_next(of->added_to_form, &pieces->inner, &part);
        if (!is_inner && !sl_added_tokens_next(of->added, &pieces->outer, &part))
            return SL_OK;
        if (!part.text) {
            *out_piece = (sl_text_piece){.id = part.id};
            *out_is_there = true;
            return SL_OK;
        }
        SL_TRY(is_inner ? start_words(pieces, &part) : start_inner(pieces, &part));
    }
}
