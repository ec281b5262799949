/* The documents of many files, in order, in pieces that fit memory.
 *
 * A file is text or JSON lines (a name that ends in .jsonl, before .gz or .zst, or a first line,
 * of at most SL_DOCUMENTS_FIRST_LINE_BYTES_MAX, that is one JSON object; but a .json file of one
 * object without the key is text); either may be packed (text_stream.h). A document is a text file,
 * or a line of one, or what stands under one key of each object. Lines end at a line feed, which
 * belongs to none; empty documents are left out. A document of a text file may come in several
 * pieces, cut where words begin in any case (sl_words_last_cut), unless it is to come whole as all
 * others do (SL_WORDS_CUTS_NONE).
 *
 * Memory grows with the longest piece. The limit of a piece of a packed file follows from the size
 * of the file, so a few kilobytes that unpack to one line of a gigabyte are refused.
 */
#ifndef SL_TEXT_DOCUMENTS_H
#define SL_TEXT_DOCUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "example.h"
#include "words.h"

enum {
    SL_DOCUMENTS_LINE_BYTES_MAX = 1 << 30,   /* of a line, of text without a space, of one whole */
    SL_DOCUMENTS_PACKED_TIMES = 2,           /* the same of a packed file: times its size, ... */
    SL_DOCUMENTS_PACKED_WHOLE_TIMES = 16,    /* where a text file comes whole, times this, ... */
    SL_DOCUMENTS_PACKED_BYTES_MIN = 4 << 20, /* ... or this, whichever is more */
    SL_DOCUMENTS_FIRST_LINE_BYTES_MAX = 64 << 20 /* of one that tells that a file is JSON lines */
};

typedef struct sl_documents_args {
    const char *const *paths; /* borrowed */
    uint32_t path_count;
    bool is_per_line;            /* of text: each line is a document */
    sl_words_cuts cuts;          /* of text: where documents are cut; zero: as for GPT-2 */
    const char *json_key;        /* of JSON lines; borrowed */
    const sl_example_form *form; /* each file is JSON lines or an array of objects, and each object
                                    an example; NULL: there are none; borrowed */
} sl_documents_args;

typedef struct sl_piece {
    const char *text; /* as it stands in the file: of JSON lines the line */
    uint64_t bytes;
    bool is_json, ends_document;
    bool is_element; /* of an array, and `line` is its number */
    uint32_t file;   /* the index of its path */
    uint64_t line;   /* of a line: its number from 1 */
} sl_piece;

typedef struct sl_documents sl_documents;

/* Looks at each file's size and start. Statuses of sl_files_open. SL_ERROR_DATA: a file of tokens,
 * or a JSON document of records (files/json_records.h), is among them; with a form, a file that is
 * neither JSON lines nor an array. */
sl_status sl_documents_open(const sl_documents_args *args, sl_documents **out_documents);

/* NULL is fine. */
void sl_documents_close(sl_documents *documents);

/* Gives the next piece, whose text lives until the next call; false at the end. SL_ERROR_DATA names
 * file and line. */
sl_status sl_documents_next(sl_documents *documents, sl_piece *out_piece, bool *out_is_there);

/* The text of a line of JSON, to be released with free(); NULL where it is empty. SL_ERROR_DATA:
 * it is not an object, or has no text under the key. Any thread may call it. */
sl_status sl_documents_parse(const sl_documents *documents, const sl_piece *piece, char **out_text,
                             uint64_t *out_bytes);

/* The same of an example, released with sl_example_free, on failure too. SL_ERROR_DATA names file
 * and line, or which element of the array. */
sl_status sl_documents_parse_example(const sl_documents *documents, const sl_piece *piece,
                                     sl_example *out_example);

/* Bytes of the files read so far, as they lie on the disk, and of all files. */
uint64_t sl_documents_place(const sl_documents *documents);
uint64_t sl_documents_file_bytes(const sl_documents *documents);

#endif
