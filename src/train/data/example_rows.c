/* One pass over the documents of a part; see example_rows.h. */
#include "example_rows.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "files/token_documents.h"

enum { FIRST_ROOM = 1024 };

typedef struct making {
    const sl_example_rows_args *args;
    sl_example_rows *to;
    uint32_t example_room, row_room;
    uint64_t row_tokens; /* of the last row */
    int32_t *ids;        /* [T + 1] */
} making;

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for the places of examples");
}

/* ---- growing ---- */

static sl_status add_example(making *self, sl_example_place place)
{
    sl_example_rows *to = self->to;
    SL_TRY(SL_ARRAY_GROW(to->examples, to->example_count, self->example_room,
                         "the places of examples"));
    to->examples[to->example_count++] = place;
    to->token_count += place.token_count;
    return SL_OK;
}

/* A row begins with the example that comes next; there is room for the end of the last row, too. */
static sl_status begin_row(making *self)
{
    sl_example_rows *to = self->to;
    SL_TRY(SL_ARRAY_GROW(to->first_example, to->row_count + 1, self->row_room,
                         "the places of examples"));
    to->first_example[to->row_count++] = to->example_count;
    self->row_tokens = 0;
    return SL_OK;
}

/* ---- examples ---- */

/* True if a token of the example has a part in the loss. */
static sl_status find_counted(const making *self, const sl_example_place *place, bool *out_found)
{
    *out_found = false;
    SL_TRY(sl_tokens_read(self->args->tokens, place->first_token, place->token_count, self->ids));
    for (uint32_t i = 1; i < place->token_count && !*out_found; i++)
        *out_found = !sl_tokens_is_marked((uint32_t)self->ids[i]);
    return SL_OK;
}

static sl_status take_example(making *self, uint64_t first, uint64_t count)
{
    const uint64_t most = (uint64_t)self->args->seq + 1;
    const bool is_cut = count > most;
    const sl_example_place place = {first, (uint32_t)(is_cut ? most : count)};
    bool is_kept = true;
    if (count > self->to->longest)
        self->to->longest = count;
    if (is_cut)
        SL_TRY(find_counted(self, &place, &is_kept));
    self->to->cut_count += is_cut;
    self->to->dropped_count += !is_kept;
    if (!is_kept)
        return SL_OK;
    const bool fits = self->args->packs && self->to->row_count > 0 &&
                      self->row_tokens + place.token_count <= most;
    if (!fits)
        SL_TRY(begin_row(self));
    self->row_tokens += place.token_count;
    return add_example(self, place);
}

static sl_status take_documents(making *self, const sl_token_documents *documents)
{
    const sl_data_part *part = self->args->part;
    const uint64_t end = part->first_token + part->token_count;
    const uint64_t count = sl_token_documents_count(documents);
    uint64_t first, next;
    SL_TRY(sl_token_documents_start(documents, 0, &first));
    for (uint64_t i = 0; i < count && first < end; i++, first = next) {
        SL_TRY(sl_token_documents_start(documents, i + 1, &next));
        if (first >= part->first_token && next > first)
            SL_TRY(take_example(self, first, next - first));
    }
    return SL_OK;
}

static sl_status make_rows(making *self)
{
    const sl_example_rows_args *args = self->args;
    sl_token_documents *documents = NULL;
    self->ids = malloc(((size_t)args->seq + 1) * sizeof *self->ids);
    if (!self->ids)
        return no_memory();
    SL_TRY(sl_token_documents_open(args->tokens, 0, sl_tokens_file_count(args->tokens), -1,
                                   &documents));
    const sl_status status = take_documents(self, documents);
    sl_token_documents_close(documents);
    return status;
}

sl_status sl_example_rows_make(const sl_example_rows_args *args, sl_example_rows *out_rows)
{
    making self = {.args = args, .to = out_rows};
    *out_rows = (sl_example_rows){0};
    const sl_status status = make_rows(&self);
    free(self.ids);
    SL_TRY(status);
    if (out_rows->row_count > 0)
        out_rows->first_example[out_rows->row_count] = out_rows->example_count;
    return SL_OK;
}

void sl_example_rows_free(sl_example_rows *rows)
{
    free(rows->examples);
    free(rows->first_example);
    *rows = (sl_example_rows){0};
}

/* ---- reading ---- */

sl_status sl_example_rows_read(const sl_example_rows *rows, const sl_tokens *tokens, uint64_t row,
                               uint32_t seq, uint32_t padding, int32_t *out_ids)
{
    uint64_t at = 0;
    assert(row < rows->row_count && !sl_tokens_is_marked(padding));
    for (uint64_t i = rows->first_example[row]; i < rows->first_example[row + 1]; i++) {
        const sl_example_place *place = &rows->examples[i];
        SL_TRY(sl_tokens_read(tokens, place->first_token, place->token_count, out_ids + at));
        at += place->token_count;
    }
    for (; at <= seq; at++)
        out_ids[at] = (int32_t)sl_tokens_mark(padding);
    return SL_OK;
}

void sl_example_rows_positions(const sl_example_rows *rows, uint64_t row, uint32_t seq,
                               int32_t *out_positions)
{
    uint64_t at = 0;
    for (uint64_t i = rows->first_example[row]; i < rows->first_example[row + 1]; i++)
        for (uint32_t t = 0; t < rows->examples[i].token_count && at < seq; t++)
            out_positions[at++] = (int32_t)t;
    for (int32_t t = 0; at < seq; t++)
        out_positions[at++] = t;
}
