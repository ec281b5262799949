/* Files of documents. The first byte of an input is a set of the bits below, the rest the file,
 * which may be packed. The pieces of a plain text are the text; lines are its lines; what a line of
 * JSON, or an element of an array, gives is taken or refused; the spans of an example are its text.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "text/documents.h"

enum { NAMED_JSONL = 1, PER_LINE = 2, HAS_TWO = 4, NAMED_JSON = 8, PAIRS = 16, MESSAGES = 32 };
enum { PACKED_ALLOWANCE = 2 << 20 };

static const sl_example_form pairs = {.prompt_key = "p", .response_key = "r"};
static const sl_example_form messages = {.messages_key = "m"};

static bool is_packed(const uint8_t *data, size_t bytes)
{
    return (bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b) ||
           (bytes >= 4 && (data[0] == 0x28 || (data[0] & 0xf0) == 0x50));
}

static void check_example(const sl_documents *documents, const sl_piece *piece)
{
    sl_example example;
    uint64_t bytes = 0;
    if (fuzz_accepts(sl_documents_parse_example(documents, piece, &example))) {
        for (uint32_t i = 0; i < example.span_count; i++)
            bytes += example.spans[i].bytes;
        FUZZ_NEED(bytes == example.bytes);
    }
    sl_example_free(&example);
}

static void check_piece(const sl_documents *documents, const sl_piece *piece, bool is_example)
{
    char *text = NULL;
    uint64_t bytes = 0;
    FUZZ_NEED(piece->bytes > 0);
    if (is_example) {
        check_example(documents, piece);
        return;
    }
    if (piece->is_json && fuzz_accepts(sl_documents_parse(documents, piece, &text, &bytes)))
        FUZZ_NEED((text != NULL) == (bytes > 0));
    free(text);
}

/* True if the piece stands in the file at *at, but for what lies between lines. */
static bool follows(const sl_piece *piece, const uint8_t *data, size_t bytes, size_t *at)
{
    while (piece->line > 0 && *at < bytes &&
           (*at + piece->bytes > bytes || memcmp(data + *at, piece->text, piece->bytes) != 0))
        ++*at;
    if (*at + piece->bytes > bytes || memcmp(data + *at, piece->text, piece->bytes) != 0)
        return false;
    *at += piece->bytes;
    return true;
}

static void walk(sl_documents *documents, bool has_examples, const uint8_t *data, size_t bytes)
{
    bool is_there = true, ended = true;
    size_t at = 0;
    uint32_t file = 0;
    for (;;) {
        sl_piece piece;
        if (!fuzz_accepts(sl_documents_next(documents, &piece, &is_there)))
            return;
        if (!is_there)
            break;
        check_piece(documents, &piece, has_examples);
        at = piece.file == file ? at : 0;
        file = piece.file;
        ended = piece.ends_document;
        if (!is_packed(data, bytes))
            FUZZ_NEED(follows(&piece, data, bytes, &at));
    }
    FUZZ_NEED(ended);
    FUZZ_NEED(sl_documents_place(documents) == sl_documents_file_bytes(documents));
}

static const char *name_file(unsigned flags)
{
    if (flags & NAMED_JSONL)
        return "data.jsonl";
    return flags & NAMED_JSON ? "data.json" : "data.txt";
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_documents *documents = NULL;
    if (bytes == 0)
        return;
    fuzz_allow(PACKED_ALLOWANCE);
    scratch_path path = fuzz_write(name_file(data[0]), data + 1, bytes - 1);
    const char *const paths[] = {path.text, path.text};
    const sl_documents_args args = {.paths = paths,
                                    .path_count = data[0] & HAS_TWO ? 2 : 1,
                                    .is_per_line = data[0] & PER_LINE,
                                    .json_key = "text",
                                    .form = data[0] & PAIRS      ? &pairs
                                            : data[0] & MESSAGES ? &messages
                                                                 : NULL};
    if (fuzz_accepts(sl_documents_open(&args, &documents)))
        walk(documents, args.form != NULL, data + 1, bytes - 1);
    sl_documents_close(documents);
}
