/* Encoding is a visit of the corpus, writing its collection; see tokenize.h. */
#include "tokenize.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "bpe.h"
#include "corpus.h"
#include "files/files.h"
#include "files/tokens.h"
#include "learn.h"

/* ---- documents that were seen, by the hash of their text ---- */

typedef struct seen {
    sl_hash_value *slots; /* zeros: empty */
    uint64_t slot_count, count;
} seen;

static sl_hash_value *find_seen(const seen *self, sl_hash_value hash)
{
    for (uint64_t at = hash.low & (self->slot_count - 1);; at = (at + 1) & (self->slot_count - 1)) {
        sl_hash_value *slot = &self->slots[at];
        bool is_empty = slot->low == 0 && slot->high == 0;
        if (is_empty || (slot->low == hash.low && slot->high == hash.high))
            return slot;
    }
}

static sl_status grow_seen(seen *self)
{
    enum { FIRST = 1024 };
    seen larger = {.slot_count = self->slot_count ? 2 * self->slot_count : FIRST,
                   .count = self->count};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to remember %llu documents",
                (unsigned long long)self->count);
    for (uint64_t i = 0; i < self->slot_count; i++)
        if (self->slots[i].low != 0 || self->slots[i].high != 0)
            *find_seen(&larger, self->slots[i]) = self->slots[i];
    free(self->slots);
    *self = larger;
    return SL_OK;
}

/* Adds it; tells if it was there. */
static sl_status add_seen(seen *self, sl_hash_value hash, bool *out_was_there)
{
    if (2 * self->count >= self->slot_count)
        SL_TRY(grow_seen(self));
    sl_hash_value *slot = find_seen(self, hash);
    *out_was_there = slot->low != 0 || slot->high != 0;
    self->count += !*out_was_there;
    *slot = hash;
    return SL_OK;
}

/* ---- encoding ---- */

typedef struct encoding {
    const sl_tokenize_args *args;
    const sl_vocabulary *vocabulary;
    sl_tokenize_report *report;
    sl_token_writer *writer;
    uint32_t end_of_text;                 /* the id */
    sl_bpe **encoders;                    /* [worker_count] */
    sl_ids ids[SL_CORPUS_GROUPS_MAX];     /* of each group of a batch */
    uint64_t taken[SL_CORPUS_GROUPS_MAX]; /* of them, by the writer */
    uint64_t document_ids, document_bytes;
    sl_hash_stream *document_hash; /* of its text so far; NULL: of JSON lines */
    bool end_is_marked;            /* of the example that is written, its end of text */
    uint64_t left_input_count;     /* examples whose "input" is left out */
    sl_hash_value whole_hash;      /* of a document that came as one part */
    seen seen;
} encoding;

static sl_status encode_span(const encoding *self, sl_bpe *encoder, const char *text,
                             const sl_example_span *span, sl_ids *ids)
{
    const uint64_t first = ids->count;
    SL_TRY(sl_bpe_encode(encoder, text, span->bytes, ids));
    if (span->ends) {
        SL_TRY(sl_ids_reserve(ids, 1));
        ids->items[ids->count++] = self->end_of_text;
    }
    for (uint64_t i = first; i < ids->count && !span->counts; i++)
        ids->items[i] = sl_tokens_mark(ids->items[i]);
    return SL_OK;
}

/* Nothing predicts the first id, so it never counts. */
static sl_status encode_example(const encoding *self, const sl_corpus_part *part, sl_ids *ids)
{
    const uint64_t first = ids->count;
    const char *text = part->text;
    for (uint32_t i = 0; i < part->example->span_count; i++) {
        const sl_example_span *span = &part->example->spans[i];
        SL_TRY(encode_span(self, self->encoders[part->worker], text, span, ids));
        text += span->bytes;
    }
    if (ids->count > first && !sl_tokens_is_marked(ids->items[first]))
        ids->items[first] = sl_tokens_mark(ids->items[first]);
    return SL_OK;
}

static sl_status encode_part(void *user, sl_corpus_part *part)
{
    encoding *self = user;
    sl_ids *ids = &self->ids[part->group];
    uint64_t first = ids->count;
    SL_TRY(part->example
               ? encode_example(self, part, ids)
               : sl_bpe_encode(self->encoders[part->worker], part->text, part->bytes, ids));
    part->id_count = ids->count - first;
    if (self->args->cleans && part->is_json)
        part->hash = sl_hash_128(part->text, part->bytes);
    return SL_OK;
}

static sl_status hash_part(encoding *self, const sl_corpus_part *part)
{
    if (!self->args->cleans)
        return SL_OK;
    if (!part->text) {
        self->whole_hash = part->hash;
        return SL_OK;
    }
    if (!self->document_hash)
        SL_TRY(sl_hash_open(&self->document_hash));
    sl_hash_update(self->document_hash, part->text, part->bytes);
    return SL_OK;
}

static sl_hash_value take_hash(encoding *self)
{
    sl_hash_value hash = self->whole_hash;
    if (self->document_hash) {
        hash = sl_hash_digest(self->document_hash);
        sl_hash_close(self->document_hash);
    }
    self->document_hash = NULL;
    return hash;
}

static sl_status judge_document(encoding *self, bool *out_is_kept)
{
    bool is_short = self->document_ids < SL_TOKENIZE_CLEAN_IDS, is_repeated = false;
    *out_is_kept = true;
    if (!self->args->cleans)
        return SL_OK;
    sl_hash_value hash = take_hash(self);
    if (!is_short)
        SL_TRY(add_seen(&self->seen, hash, &is_repeated));
    self->report->short_documents += is_short;
    self->report->repeated_documents += is_repeated;
    *out_is_kept = !is_short && !is_repeated;
    return SL_OK;
}

static sl_status note_writing(encoding *self, sl_status status)
{
    self->report->failed_writing = self->report->failed_writing || status != SL_OK;
    return status;
}

static sl_status end_document(encoding *self)
{
    bool is_kept;
    const uint32_t end =
        self->end_is_marked ? sl_tokens_mark(self->end_of_text) : self->end_of_text;
    uint64_t id_count = self->document_ids, bytes = self->document_bytes;
    SL_TRY(judge_document(self, &is_kept));
    self->document_ids = self->document_bytes = 0;
    if (!is_kept)
        return note_writing(self, sl_token_writer_drop(self->writer));
    SL_TRY(note_writing(self, sl_token_writer_add(self->writer, &end, 1)));
    self->report->ids += id_count + 1;
    self->report->kept_bytes += bytes;
    self->report->documents++;
    return note_writing(self, sl_token_writer_end(self->writer));
}

static sl_status write_part(void *user, const sl_corpus_part *part)
{
    encoding *self = user;
    uint64_t *taken = &self->taken[part->group];
    const uint32_t *ids = self->ids[part->group].items + *taken;
    SL_TRY(note_writing(self, sl_token_writer_add(self->writer, ids, part->id_count)));
    *taken += part->id_count;
    self->document_ids += part->id_count;
    self->document_bytes += part->bytes;
    self->report->text_bytes += part->bytes;
    self->end_is_marked = self->args->documents.form && (!part->end_counts || part->id_count == 0);
    self->left_input_count += part->leaves_input;
    SL_TRY(hash_part(self, part));
    return part->ends_document ? end_document(self) : SL_OK;
}

static void empty_groups(void *user)
{
    encoding *self = user;
    memset(self->taken, 0, sizeof self->taken);
    for (uint32_t i = 0; i < SL_CORPUS_GROUPS_MAX; i++)
        self->ids[i].count = 0;
}

static sl_status show_progress(void *user, uint64_t bytes, uint64_t file_bytes)
{
    encoding *self = user;
    self->report->file_bytes = bytes;
    return self->args->progress ? self->args->progress(self->args->user, bytes, file_bytes) : SL_OK;
}

static sl_status open_encoders(encoding *self)
{
    self->encoders = calloc(self->args->worker_count, sizeof *self->encoders);
    if (!self->encoders)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for encoders");
    for (uint32_t i = 0; i < self->args->worker_count; i++)
        SL_TRY(sl_bpe_open(self->vocabulary, SL_BPE_CACHE_SLOTS, &self->encoders[i]));
    return SL_OK;
}

static void close_encoding(encoding *self)
{
    for (uint32_t i = 0; self->encoders && i < self->args->worker_count; i++)
        sl_bpe_close(self->encoders[i]);
    for (uint32_t i = 0; i < SL_CORPUS_GROUPS_MAX; i++)
        sl_ids_free(&self->ids[i]);
    if (self->document_hash)
        sl_hash_close(self->document_hash);
    sl_token_writer_close(self->writer);
    free(self->encoders);
    free(self->seen.slots);
    free(self);
}

static void warn_of_inputs(const encoding *self)
{
    if (self->left_input_count > 0)
        sl_log_write(SL_LOG_WARNING,
                     "%llu example%s a text under \"input\", which is left out: a --template with "
                     "the mark {input} takes it",
                     (unsigned long long)self->left_input_count,
                     self->left_input_count == 1 ? " has" : "s have");
}

static sl_status run_encoding(encoding *self, const sl_token_writer_args *output,
                              sl_workers *workers)
{
    const sl_corpus_visitor visitor = {.visit = encode_part,
                                       .collect = write_part,
                                       .progress = show_progress,
                                       .end_batch = empty_groups,
                                       .user = self};
    sl_token_writer_args completed = *output;
    completed.end_of_text = self->end_of_text;
    completed.has_marks = self->args->documents.form != NULL;
    SL_TRY(open_encoders(self));
    SL_TRY(note_writing(self, sl_token_writer_open(&completed, &self->writer)));
    sl_documents_args documents = self->args->documents;
    documents.cuts = sl_vocabulary_cuts(self->vocabulary);
    SL_TRY(sl_corpus_walk(&documents, workers, &visitor));
    if (self->report->ids == 0)
        SL_FAIL(SL_ERROR_DATA, "%s%s: no document is left to write",
                sl_files_show(self->args->documents.paths[0]).text,
                self->args->documents.path_count > 1 ? " and the files behind it" : "");
    SL_TRY(show_progress(self, self->report->file_bytes, self->report->file_bytes));
    SL_TRY(note_writing(self, sl_token_writer_finish(self->writer)));
    warn_of_inputs(self);
    self->report->files = sl_token_writer_file_count(self->writer);
    return SL_OK;
}

static sl_status choose_end(const sl_tokenize_args *args, const sl_vocabulary *vocabulary,
                            uint32_t *out_end)
{
    int32_t end =
        args->end_of_text >= 0 ? args->end_of_text : sl_vocabulary_end_of_text(vocabulary);
    if (end == SL_VOCABULARY_NONE)
        SL_FAIL(
            SL_ERROR_USAGE,
            "the vocabulary has no token %s and no eos_token to stand between documents: name an "
            "id of it with --end-of-text ID",
            SL_VOCABULARY_END_OF_TEXT);
    *out_end = (uint32_t)end;
    if (*out_end >= sl_vocabulary_count(vocabulary))
        SL_FAIL(SL_ERROR_USAGE, "--end-of-text %u is not below the %u tokens of the vocabulary",
                *out_end, sl_vocabulary_count(vocabulary));
    return SL_OK;
}

sl_status sl_tokenize_run(const sl_tokenize_args *args, const sl_vocabulary *vocabulary,
                          const sl_token_writer_args *output, sl_tokenize_report *report)
{
    sl_workers *workers = NULL;
    uint32_t end_of_text;
    SL_TRY(choose_end(args, vocabulary, &end_of_text));
    encoding *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to encode");
    *report = (sl_tokenize_report){0};
    self->args = args;
    self->vocabulary = vocabulary;
    self->end_of_text = end_of_text;
    self->report = report;
    sl_status status = sl_workers_open(args->worker_count, &workers);
    if (status == SL_OK)
        status = run_encoding(self, output, workers);
    sl_workers_close(workers);
    close_encoding(self);
    return status;
}

/* ---- learning ---- */

typedef struct counting {
    const sl_tokenize_args *args;
    sl_word_counts **counts; /* [worker_count] */
} counting;

static sl_status count_part(void *user, sl_corpus_part *part)
{
    counting *self = user;
    return sl_word_counts_add_text(self->counts[part->worker], part->text, part->bytes);
}

static sl_status show_counting(void *user, uint64_t bytes, uint64_t file_bytes)
{
    const counting *self = user;
    return self->args->progress ? self->args->progress(self->args->user, bytes, file_bytes) : SL_OK;
}

static sl_status count_words(counting *self)
{
    const sl_corpus_visitor visitor = {
        .visit = count_part, .progress = show_counting, .user = self};
    sl_workers *workers = NULL;
    for (uint32_t i = 0; i < self->args->worker_count; i++)
        SL_TRY(sl_word_counts_open(&self->counts[i]));
    SL_TRY(sl_workers_open(self->args->worker_count, &workers));
    sl_status status = sl_corpus_walk(&self->args->documents, workers, &visitor);
    sl_workers_close(workers);
    for (uint32_t i = 1; status == SL_OK && i < self->args->worker_count; i++)
        status = sl_word_counts_add(self->counts[0], self->counts[i]);
    return status;
}

sl_status sl_tokenize_learn(const sl_tokenize_args *args, uint32_t token_count,
                            sl_vocabulary **out_vocabulary)
{
    const sl_learn_watch watch = {args->merging, args->user};
    counting self = {args, calloc(args->worker_count, sizeof *self.counts)};
    if (!self.counts)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to count words");
    sl_status status = count_words(&self);
    if (status == SL_OK)
        status = sl_learn_vocabulary(self.counts[0], token_count, args->merging ? &watch : NULL,
                                     out_vocabulary);
    for (uint32_t i = 0; i < args->worker_count; i++)
        sl_word_counts_close(self.counts[i]);
    free(self.counts);
    return status;
}

/* ---- decoding ---- */

typedef struct decoding {
    const sl_vocabulary *vocabulary;
    int32_t end_of_text;
    sl_tokenize_sink sink;
    void *user;
} decoding;

static sl_status decode_id(const decoding *self, int32_t id)
{
    static const char end_of_text[] = SL_VOCABULARY_END_OF_TEXT;
    if (id == self->end_of_text && id != sl_vocabulary_end_of_text(self->vocabulary))
        return self->sink(self->user, end_of_text, sizeof end_of_text - 1);
    const sl_token_bytes token = sl_vocabulary_token(self->vocabulary, (uint32_t)id);
    return self->sink(self->user, token.text, token.bytes);
}

static sl_status decode_tokens(const sl_tokens *tokens, const decoding *self)
{
    enum { PART = 4096 };
    int32_t ids[PART];
    uint64_t count = sl_tokens_count(tokens);
    SL_TRY(sl_tokens_read(tokens, count - 1, 1, ids));
    count -= ids[0] == self->end_of_text;
    for (uint64_t at = 0; at < count; at += PART) {
        uint64_t part = count - at < PART ? count - at : PART;
        SL_TRY(sl_tokens_read(tokens, at, part, ids));
        for (uint64_t i = 0; i < part; i++)
            SL_TRY(decode_id(self, ids[i]));
    }
    return SL_OK;
}

/* Refuses files of another tokenizer: their ids would be decoded to other text. */
static sl_status check_descriptions(const sl_tokens *tokens, const sl_vocabulary *vocabulary)
{
    char name[SL_VOCABULARY_NAME_BYTES];
    SL_TRY(sl_vocabulary_name(vocabulary, name));
    for (uint32_t i = 0; i < sl_tokens_file_count(tokens); i++) {
        const sl_token_description *description = sl_tokens_file_description(tokens, i);
        if (description && strcmp(description->tokenizer, name) != 0)
            SL_FAIL(SL_ERROR_USAGE,
                    "%s was made with the tokenizer \"%s\", but --tokenizer is \"%s\"",
                    sl_files_show(sl_tokens_file_path(tokens, i)).text,
                    sl_files_show(description->tokenizer).text, name);
    }
    return SL_OK;
}

sl_status sl_tokenize_decode(const sl_tokenize_decode_args *args, sl_tokenize_sink sink, void *user)
{
    const sl_vocabulary *vocabulary = args->vocabulary;
    const decoding self = {.vocabulary = vocabulary,
                           .end_of_text = args->end_of_text >= 0
                                              ? args->end_of_text
                                              : sl_vocabulary_end_of_text(vocabulary),
                           .sink = sink,
                           .user = user};
    sl_tokens *tokens = NULL;
    SL_TRY(sl_tokens_open(args->paths, args->path_count, 0, &tokens));
    sl_status status;
    if (sl_tokens_vocab_needed(tokens) > 0)
        status = sl_status_fail(SL_ERROR_DATA, "there is text among the files: what is decoded are "
                                               "files of tokens");
    else
        status = sl_tokens_limit_vocab(tokens, sl_vocabulary_count(vocabulary));
    if (status == SL_OK)
        status = check_descriptions(tokens, vocabulary);
    if (status == SL_OK)
        status = decode_tokens(tokens, &self);
    sl_tokens_close(tokens);
    return status;
}
