/* All documents are made ids first, which says how long a row must be; then each is a row. Of one
 * that is longer than a row its end is read. */
#include "last_word.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "files/files.h"
#include "score.h"
#include "text/bpe.h"
#include "text/documents.h"
#include "train/loading/loading.h"

typedef struct document {
    uint64_t first; /* in the ids of all */
    uint32_t count; /* tokens that are read or asked for */
    uint32_t word;  /* of these, tokens of the last word: the last ones */
} document;

typedef struct words {
    const sl_eval_model *model;
    const sl_config *config; /* the model's */
    sl_bpe *bpe;
    sl_ids ids, context; /* of all documents; of one without its last word */
    document *documents;
    uint64_t count;
    uint32_t capacity;
    uint32_t seq;
    uint64_t asked; /* documents that are evaluated: all, or as --eval-iters says */
    sl_word_report *report;
    double loss_sum;
} words;

/* ---- documents as ids ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static uint64_t skip_back(const char *text, uint64_t bytes, bool spaces)
{
    while (bytes > 0 && is_space(text[bytes - 1]) == spaces)
        bytes--;
    return bytes;
}

static sl_status fail_document(const words *self, const sl_piece *piece, const char *why)
{
    SL_FAIL(SL_ERROR_DATA, "%s: line %llu: %s",
            sl_files_show(self->config->data.items[piece->file]).text,
            (unsigned long long)piece->line, why);
}

static sl_status add_document(words *self, const document *added)
{
    SL_TRY(SL_ARRAY_GROW(self->documents, self->count, self->capacity, "a list of documents"));
    self->documents[self->count++] = *added;
    return SL_OK;
}

/* The word begins behind its context, spaces between included. */
static sl_status encode_document(words *self, const sl_piece *piece, const char *text,
                                 uint64_t bytes)
{
    const uint64_t first = self->ids.count, most = (uint64_t)self->model->source->shape.context + 1;
    const uint64_t end = skip_back(text, bytes, true);
    const uint64_t context_end = skip_back(text, skip_back(text, end, false), true);
    if (context_end == 0)
        return fail_document(self, piece, "has no word in front of its last one");
    self->context.count = 0;
    SL_TRY(sl_bpe_encode(self->bpe, text, context_end, &self->context));
    SL_TRY(sl_bpe_encode(self->bpe, text, end, &self->ids));
    const uint64_t count = self->ids.count - first;
    const uint64_t word = count > self->context.count ? count - self->context.count : 0;
    if (word == 0 || word >= most)
        return fail_document(self, piece, "its last word does not fit the model's context");
    const document added = {.first = count > most ? self->ids.count - most : first,
                            .count = (uint32_t)(count > most ? most : count),
                            .word = (uint32_t)word};
    return add_document(self, &added);
}

static sl_status read_document(words *self, const sl_documents *documents, const sl_piece *piece)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (!piece->is_json)
        SL_FAIL(SL_ERROR_DATA, "%s: is not JSON lines, which --last-word reads",
                sl_files_show(self->config->data.items[piece->file]).text);
    SL_TRY(sl_documents_parse(documents, piece, &text, &bytes));
    sl_status status = encode_document(self, piece, text ? text : "", bytes);
    free(text);
    return status;
}

static sl_status read_all(words *self)
{
    const sl_documents_args args = {.paths = (const char *const *)self->config->data.items,
                                    .path_count = self->config->data.count,
                                    .json_key = self->config->json_key};
    sl_documents *documents = NULL;
    sl_piece piece;
    bool is_there = true;
    SL_TRY(sl_documents_open(&args, &documents));
    sl_status status = sl_documents_next(documents, &piece, &is_there);
    while (status == SL_OK && is_there) {
        status = read_document(self, documents, &piece);
        if (status == SL_OK)
            status = sl_documents_next(documents, &piece, &is_there);
    }
    sl_documents_close(documents);
    SL_TRY(status);
    if (self->count == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: holds no document",
                sl_files_show(self->config->data.items[0]).text);
    return SL_OK;
}

/* ---- documents as rows ---- */

/* As long as the longest document, or as --seq says. */
static sl_status choose_seq(words *self)
{
    uint32_t longest = 1, word = 1;
    for (uint64_t i = 0; i < self->count; i++) {
        const document *it = &self->documents[i];
        longest = it->count - 1 > longest ? it->count - 1 : longest;
        word = it->word > word ? it->word : word;
    }
    self->seq = longest < self->config->seq ? longest : (uint32_t)self->config->seq;
    if (word > self->seq)
        SL_FAIL(SL_ERROR_USAGE, "--seq %u: a last word has %u tokens", self->seq, word);
    return SL_OK;
}

/* Tokens of a document that its row holds, the last target counted. */
static uint32_t count_held(const words *self, const document *of)
{
    return of->count <= self->seq + 1 ? of->count : self->seq + 1;
}

static sl_status fill_row(void *user, uint64_t row, int32_t *tokens, int32_t *targets)
{
    const words *self = user;
    const document *of = &self->documents[row];
    const uint32_t held = count_held(self, of);
    const uint32_t *ids = self->ids.items + of->first + (of->count - held);
    for (uint32_t t = 0; t < self->seq; t++) {
        tokens[t] = t + 1 < held ? (int32_t)ids[t] : 0;
        targets[t] = t + 1 < held ? (int32_t)ids[t + 1] : 0;
    }
    return SL_OK;
}

static void take_row(void *user, uint64_t row, const sl_token_score *scores)
{
    words *self = user;
    const document *of = &self->documents[row];
    const uint32_t held = count_held(self, of);
    bool is_right = true;
    for (uint32_t token = held - of->word; token < held; token++) {
        self->loss_sum += scores[token - 1].loss;
        is_right = is_right && scores[token - 1].is_likeliest;
    }
    self->report->right_count += is_right;
    self->report->tokens += of->word;
}

static void note_rows(void *user, uint64_t row_count)
{
    words *self = user;
    sl_word_report *report = self->report;
    report->document_count = row_count;
    report->accuracy = (double)report->right_count / (double)row_count;
    report->perplexity = exp(self->loss_sum / (double)row_count);
    report->is_partial = row_count < self->asked;
    sl_eval_watch_pass(&self->model->watch,
                       &(sl_eval_progress){.done = row_count,
                                           .total = self->asked,
                                           .unit = "documents",
                                           .figure = "accuracy",
                                           .value = row_count > 0 ? report->accuracy : 0});
}

/* Ranks may have files of their own: they have to be the same. */
static sl_status compare_ids(const words *self, const sl_vocabulary *vocabulary)
{
    const sl_common_inputs_args inputs = {
        .vocabulary = vocabulary, .source = self->model->source, .source_option = "--checkpoint"};
    SL_TRY(sl_loading_compare(self->model->ranks, &inputs));
    return sl_loading_compare_bytes(self->model->ranks, "--data", self->ids.items,
                                    self->ids.count * sizeof *self->ids.items);
}

static sl_status score_words(words *self, const sl_vocabulary *vocabulary)
{
    SL_TRY(read_all(self));
    SL_TRY(compare_ids(self, vocabulary));
    SL_TRY(choose_seq(self));
    self->asked = sl_score_count_rows(self->config, self->count);
    const sl_score_rows rows = {.count = self->asked,
                                .seq = self->seq,
                                .fill = fill_row,
                                .take = take_row,
                                .passed = note_rows,
                                .user = self};
    return sl_score_run(self->model, &rows);
}

sl_status sl_last_word_run(const sl_eval_model *model, sl_word_report *out_report)
{
    words self = {.model = model, .config = model->config, .report = out_report};
    sl_vocabulary *vocabulary = NULL;
    SL_TRY(sl_config_fit_model(model->config, &model->source->shape));
    sl_status status = sl_loading_open_vocabulary(model->config, model->source, &vocabulary);
    if (status == SL_OK)
        status = sl_bpe_open(vocabulary, SL_BPE_CACHE_SLOTS, &self.bpe);
    if (status == SL_OK)
        status = score_words(&self, vocabulary);
    sl_bpe_close(self.bpe);
    sl_vocabulary_close(vocabulary);
    sl_ids_free(&self.ids);
    sl_ids_free(&self.context);
    free(self.documents);
    return status;
}
