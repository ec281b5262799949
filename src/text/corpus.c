/* Batches of pieces, visited group by group; see corpus.h. */
#include "corpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/heartbeat.h"

/* A piece in the batch's text. */
typedef struct entry {
    sl_piece piece;
    uint64_t offset; /* of its text */
} entry;

typedef struct group {
    uint32_t first, count; /* of entries */
    sl_first_failure failure;
} group;

typedef struct walk {
    const sl_corpus_visitor *visitor;
    sl_documents *documents;
    char *text;
    uint64_t text_bytes, text_room;
    entry *entries;
    sl_corpus_part *parts;
    uint32_t entry_count, entry_room;
    group groups[SL_CORPUS_GROUPS_MAX];
    uint32_t group_count;
    bool has_examples;
} walk;

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a batch of text");
}

/* ---- filling ---- */

/* A group is closed when it has bytes enough. */
static void add_to_group(walk *self)
{
    uint64_t start = 0;
    if (self->group_count > 0)
        start = self->entries[self->groups[self->group_count - 1].first].offset;
    if (self->group_count == 0 || self->text_bytes - start >= SL_CORPUS_GROUP_BYTES)
        self->groups[self->group_count++] = (group){.first = self->entry_count};
    self->groups[self->group_count - 1].count++;
}

static sl_status add_piece(walk *self, const sl_piece *piece)
{
    SL_TRY(SL_ARRAY_RESERVE(self->text, self->text_bytes + piece->bytes, self->text_room,
                            "a batch of text"));
    uint32_t room = self->entry_room; /* of both */
    SL_TRY(SL_ARRAY_GROW(self->entries, self->entry_count, room, "a batch of text"));
    SL_TRY(SL_ARRAY_GROW(self->parts, self->entry_count, self->entry_room, "a batch of text"));
    add_to_group(self);
    self->entries[self->entry_count++] = (entry){.piece = *piece, .offset = self->text_bytes};
    memcpy(self->text + self->text_bytes, piece->text, piece->bytes);
    self->text_bytes += piece->bytes;
    return SL_OK;
}

static sl_status fill_batch(walk *self)
{
    bool is_there = true;
    self->text_bytes = self->entry_count = self->group_count = 0;
    while (is_there && self->text_bytes < SL_CORPUS_BATCH_BYTES &&
           self->entry_count < SL_CORPUS_BATCH_PIECES) {
        sl_piece piece;
        SL_TRY(sl_documents_next(self->documents, &piece, &is_there));
        if (is_there)
            SL_TRY(add_piece(self, &piece));
    }
    return SL_OK;
}

/* ---- visiting ---- */

/* Where a part is visited. */
typedef struct place {
    uint32_t group, worker;
} place;

static sl_status visit_example(const walk *self, const sl_piece *piece, sl_corpus_part *part,
                               place where)
{
    sl_example example;
    sl_status status = sl_documents_parse_example(self->documents, piece, &example);
    *part = (sl_corpus_part){.text = example.text,
                             .bytes = example.bytes,
                             .group = where.group,
                             .worker = where.worker,
                             .example = &example,
                             .is_json = true,
                             .ends_document = true,
                             .end_counts = example.end_counts,
                             .leaves_input = example.leaves_input};
    if (status == SL_OK)
        status = self->visitor->visit(self->visitor->user, part);
    part->text = NULL;
    part->example = NULL;
    sl_example_free(&example);
    return status;
}

static sl_status visit_piece(walk *self, uint32_t index, uint32_t group_index, uint32_t worker)
{
    sl_piece piece = self->entries[index].piece;
    sl_corpus_part *part = &self->parts[index];
    char *parsed = NULL;
    piece.text = self->text + self->entries[index].offset;
    if (self->has_examples)
        return visit_example(self, &piece, part, (place){group_index, worker});
    *part = (sl_corpus_part){.text = piece.text,
                             .bytes = piece.bytes,
                             .group = group_index,
                             .worker = worker,
                             .is_json = piece.is_json,
                             .ends_document = piece.ends_document};
    if (piece.is_json) {
        SL_TRY(sl_documents_parse(self->documents, &piece, &parsed, &part->bytes));
        part->text = parsed;
        part->is_empty = part->bytes == 0;
    }
    sl_status status = part->is_empty ? SL_OK : self->visitor->visit(self->visitor->user, part);
    if (piece.is_json)
        part->text = NULL;
    free(parsed);
    return status;
}

static void visit_group(void *job, uint64_t tile_index, uint32_t worker_index)
{
    walk *self = job;
    group *of = &self->groups[tile_index];
    for (uint32_t i = 0; i < of->count && of->failure.status == SL_OK; i++)
        sl_first_failure_keep(&of->failure,
                              visit_piece(self, of->first + i, (uint32_t)tile_index, worker_index));
}

static sl_status collect(const walk *self)
{
    for (uint32_t i = 0; i < self->group_count; i++)
        SL_TRY(sl_first_failure_return(&self->groups[i].failure));
    for (uint32_t i = 0; i < self->entry_count && self->visitor->collect; i++)
        if (!self->parts[i].is_empty)
            SL_TRY(self->visitor->collect(self->visitor->user, &self->parts[i]));
    if (self->visitor->end_batch)
        self->visitor->end_batch(self->visitor->user);
    return SL_OK;
}

static sl_status walk_batches(walk *self, sl_workers *workers)
{
    const sl_corpus_visitor *visitor = self->visitor;
    for (;;) {
        SL_TRY(fill_batch(self));
        if (self->entry_count == 0)
            return SL_OK;
        sl_workers_run(workers, self->group_count, visit_group, self);
        SL_TRY(collect(self));
        SL_TRY(sl_heartbeat_give());
        if (visitor->progress)
            SL_TRY(visitor->progress(visitor->user, sl_documents_place(self->documents),
                                     sl_documents_file_bytes(self->documents)));
    }
}

sl_status sl_corpus_walk(const sl_documents_args *args, sl_workers *workers,
                         const sl_corpus_visitor *visitor)
{
    walk *self = calloc(1, sizeof *self);
    if (!self)
        return no_memory();
    self->visitor = visitor;
    self->has_examples = args->form != NULL;
    sl_status status = sl_documents_open(args, &self->documents);
    if (status == SL_OK)
        status = walk_batches(self, workers);
    sl_documents_close(self->documents);
    free(self->text);
    free(self->entries);
    free(self->parts);
    free(self);
    return status;
}
