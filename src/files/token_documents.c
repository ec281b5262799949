/* A count for each file, and a walk through the one that is asked for; see token_documents.h. */
#include "token_documents.h"

#include <stdlib.h>

#include "base/bits.h"
#include "tokens_internal.h"

enum { BLOCK_IDS = 4096 };

struct sl_token_documents {
    const sl_tokens *tokens;
    uint32_t first_file, file_count;
    int32_t end_of_text;
    uint64_t count;   /* of all files */
    uint64_t *counts; /* [file_count] */
};

static bool is_megatron(const sl_token_file *file)
{
    return file->kind == SL_TOKEN_MEGATRON16 || file->kind == SL_TOKEN_MEGATRON32;
}

static uint64_t count_ends(const int32_t *ids, uint64_t count, int32_t end_of_text)
{
    uint64_t ends = 0;
    for (uint64_t i = 0; i < count; i++)
        ends += ids[i] == end_of_text;
    return ends;
}

/* How many of the ids there are up to the end with the number `wanted`. */
static uint64_t find_end(const int32_t *ids, int32_t end_of_text, uint64_t wanted)
{
    uint64_t i = 0;
    for (; wanted > 0; i++)
        wanted -= ids[i] == end_of_text;
    return i;
}

/* Walks over a file without an index until `wanted` of its documents are over, or it is; gives how
 * many there were, and the token of the run behind the last. */
static sl_status walk(const sl_token_documents *self, const sl_token_file *file, uint64_t wanted,
                      uint64_t *out_count, uint64_t *out_token)
{
    int32_t ids[BLOCK_IDS];
    bool is_open = false;
    *out_count = 0;
    for (uint64_t at = 0; at < file->token_count; at += BLOCK_IDS) {
        uint64_t left = file->token_count - at, part = left < BLOCK_IDS ? left : BLOCK_IDS;
        SL_TRY(sl_tokens_read(self->tokens, file->first_token + at, part, ids));
        uint64_t ends = count_ends(ids, part, self->end_of_text);
        if (ends >= wanted - *out_count) {
            *out_token = file->first_token + at;
            *out_token += find_end(ids, self->end_of_text, wanted - *out_count);
            *out_count = wanted;
            return SL_OK;
        }
        *out_count += ends;
        is_open = ids[part - 1] != self->end_of_text;
    }
    *out_token = file->first_token + file->token_count;
    *out_count += is_open;
    return SL_OK;
}

static sl_status count_file(const sl_token_documents *self, const sl_token_file *file,
                            uint64_t *out_count)
{
    uint64_t end;
    *out_count = 1;
    if (file->kind == SL_TOKEN_TEXT)
        return SL_OK;
    if (is_megatron(file)) {
        *out_count = sl_megatron_index_document_count(&file->index);
        return SL_OK;
    }
    if (self->end_of_text < 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: where its documents end is not known: name the id between them with "
                "--end-of-text ID, or their vocabulary with --tokenizer",
                sl_files_show(file->file.path).text);
    return walk(self, file, UINT64_MAX, out_count, &end);
}

static sl_status count_all(sl_token_documents *self)
{
    for (uint32_t i = 0; i < self->file_count; i++) {
        SL_TRY(count_file(self, &self->tokens->files[self->first_file + i], &self->counts[i]));
        SL_TRY(sl_bits_add(self->count, self->counts[i], "the number of documents", &self->count));
    }
    return SL_OK;
}

sl_status sl_token_documents_open(const sl_tokens *tokens, uint32_t first_file, uint32_t file_count,
                                  int32_t end_of_text, sl_token_documents **out_documents)
{
    sl_token_documents *self = calloc(1, sizeof *self);
    if (self)
        self->counts = calloc(file_count, sizeof *self->counts);
    if (!self || !self->counts) {
        free(self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to count documents");
    }
    self->tokens = tokens;
    self->first_file = first_file;
    self->file_count = file_count;
    self->end_of_text = end_of_text;
    sl_status status = count_all(self);
    if (status != SL_OK) {
        sl_token_documents_close(self);
        return status;
    }
    *out_documents = self;
    return SL_OK;
}

void sl_token_documents_close(sl_token_documents *documents)
{
    if (!documents)
        return;
    free(documents->counts);
    free(documents);
}

uint64_t sl_token_documents_count(const sl_token_documents *documents)
{
    return documents->count;
}

sl_status sl_token_documents_start(const sl_token_documents *documents, uint64_t document,
                                   uint64_t *out_token)
{
    uint32_t i = 0;
    uint64_t count;
    while (i + 1 < documents->file_count && document >= documents->counts[i])
        document -= documents->counts[i++];
    const sl_token_file *file = &documents->tokens->files[documents->first_file + i];
    *out_token = file->first_token;
    if (document >= documents->counts[i])
        *out_token += file->token_count;
    else if (is_megatron(file)) {
        SL_TRY(sl_megatron_index_document_start(&file->index, document, out_token));
        *out_token += file->first_token;
    } else if (document > 0)
        SL_TRY(walk(documents, file, document, &count, out_token));
    return SL_OK;
}
