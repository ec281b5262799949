/* A walk over documents with all workers: batches of pieces are read, looked at by the workers, and
 * handed on in order. What is done with a piece may not depend on the batch, the group or the
 * worker: then no result depends on their number. */
#ifndef SL_TEXT_CORPUS_H
#define SL_TEXT_CORPUS_H

#include "base/hash.h"
#include "base/workers.h"
#include "documents.h"

enum {
    SL_CORPUS_BATCH_BYTES = 16 << 20,
    SL_CORPUS_BATCH_PIECES = 1 << 16, /* of a corpus of empty and one-letter lines */
    SL_CORPUS_GROUP_BYTES = 128 << 10,
    SL_CORPUS_GROUPS_MAX = SL_CORPUS_BATCH_BYTES / SL_CORPUS_GROUP_BYTES + 2
};

/* Some text of a document, and the visitor's notes on it. */
typedef struct sl_corpus_part {
    const char *text; /* when collected: NULL of JSON lines, whose documents are one part each */
    uint64_t bytes;
    uint32_t group;  /* of the batch: parts of one group are visited by one worker, in order */
    uint32_t worker; /* which one */
    uint64_t id_count;
    sl_hash_value hash;
    const sl_example *example; /* when visited, of examples: whose text it is; else NULL */
    bool is_json, is_empty, ends_document;
    bool end_counts;   /* of an example: its end of text has a part in the loss */
    bool leaves_input; /* likewise: see sl_example */
} sl_corpus_part;

typedef struct sl_corpus_visitor {
    /* Called by several workers at once. */
    sl_status (*visit)(void *user, sl_corpus_part *part);
    /* Called in the order of the documents, by the caller's thread. May be NULL. */
    sl_status (*collect)(void *user, const sl_corpus_part *part);
    /* Called between batches, with the bytes of the files that are read. May be NULL. SL_OK: go
     * on. */
    sl_status (*progress)(void *user, uint64_t bytes, uint64_t file_bytes);
    /* Called when the parts of a batch were collected. May be NULL. */
    void (*end_batch)(void *user);
    void *user;
} sl_corpus_visitor;

/* Walks over all documents. Statuses of sl_documents_next and of the visitor, of parts in order the
 * first. */
sl_status sl_corpus_walk(const sl_documents_args *args, sl_workers *workers,
                         const sl_corpus_visitor *visitor);

#endif
