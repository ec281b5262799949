/* A buffer that moves over one file after the other; see documents.h. */
#include "documents.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "files/json_file.h"
#include "files/json_records.h"
#include "files/token_description.h"
#include "files/tokens.h"
#include "text_stream.h"
#include "words.h"

enum { BLOCK_BYTES = 1 << 20, WHAT_BYTES = 512 };

struct sl_documents {
    sl_documents_args args;
    uint32_t file;          /* the index of the open one, or of the next */
    sl_text_stream *stream; /* NULL: the next file is to be opened */
    bool is_json, is_array, is_per_line, is_at_end;
    bool is_array_open; /* its end has not come */
    uint64_t line;      /* of an array: its elements so far */
    char *buffer;       /* [capacity]; first .. first + count is still to be given */
    uint64_t capacity, first, count;
    uint64_t piece_limit;            /* bytes of a line, or of text without a space, of this file */
    uint64_t file_bytes, done_bytes; /* of all files; of those before the open one */
};

static bool is_named_jsonl(const char *path)
{
    return sl_files_name_ends(path, ".jsonl") || sl_files_name_ends(path, ".jsonl.gz") ||
           sl_files_name_ends(path, ".jsonl.zst");
}

/* Refuses FILE.json of a file of tokens. */
static sl_status refuse_description(const char *path)
{
    sl_token_description description;
    bool is_description = false;
    if (sl_files_name_ends(path, ".json"))
        SL_TRY(sl_token_description_read(path, &description, &is_description));
    if (is_description)
        SL_FAIL(SL_ERROR_DATA, "%s: describes a file of tokens, and text is asked for",
                sl_files_show(path).text);
    return SL_OK;
}

/* The place behind the mark of UTF-8 and white space. */
static const char *skip_space(const char *at, const char *end)
{
    static const char mark[] = "\xef\xbb\xbf";
    if ((size_t)(end - at) >= sizeof mark - 1 && memcmp(at, mark, sizeof mark - 1) == 0)
        at += sizeof mark - 1;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at;
}

/* Refuses files of tokens and JSON documents of records: read as text they would be trained on.
 * With a form an array is welcome, and text is not. */
static sl_status refuse_others(const char *path, const sl_example_form *form,
                               sl_text_stream *stream)
{
    char start[SL_JSON_RECORDS_START_BYTES];
    uint64_t count = 0, got = 1;
    SL_TRY(refuse_description(path));
    if (sl_files_name_ends(path, ".bin") || sl_files_name_ends(path, ".idx"))
        SL_FAIL(SL_ERROR_DATA,
                "%s: is named as a file of tokens, and text is asked for: if it is text, name it "
                "otherwise",
                sl_files_show(path).text);
    for (; count < sizeof start && got > 0; count += got)
        SL_TRY(sl_text_stream_read(stream, sizeof start - count, start + count, &got));
    const char *what = sl_tokens_name_start(start, count);
    if (what)
        SL_FAIL(SL_ERROR_DATA, "%s: is %s, and text is asked for", sl_files_show(path).text, what);
    const char *first = skip_space(start, start + count);
    const bool is_array = first < start + count && *first == '[';
    if (form && is_array)
        return SL_OK;
    if (!is_named_jsonl(path) && sl_json_records_start(start, count))
        return sl_json_records_refuse(path);
    if (form && !(first < start + count && *first == '{'))
        SL_FAIL(SL_ERROR_DATA,
                "%s: is neither JSON lines nor a JSON array: examples to fine-tune on are objects",
                sl_files_show(path).text);
    return SL_OK;
}

static sl_status look_at_files(sl_documents *self)
{
    for (uint32_t i = 0; i < self->args.path_count; i++) {
        sl_text_stream *stream = NULL;
        SL_TRY(sl_text_stream_open(self->args.paths[i], &stream));
        sl_status status = refuse_others(self->args.paths[i], self->args.form, stream);
        self->file_bytes += sl_text_stream_file_bytes(stream);
        sl_text_stream_close(stream);
        SL_TRY(status);
    }
    return SL_OK;
}

sl_status sl_documents_open(const sl_documents_args *args, sl_documents **out_documents)
{
    if (args->path_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "no file of text is given");
    sl_documents *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read documents");
    self->args = *args;
    sl_status status = look_at_files(self);
    if (status != SL_OK) {
        sl_documents_close(self);
        return status;
    }
    *out_documents = self;
    return SL_OK;
}

void sl_documents_close(sl_documents *documents)
{
    if (!documents)
        return;
    sl_text_stream_close(documents->stream);
    free(documents->buffer);
    free(documents);
}

/* ---- the buffer ---- */

/* True if a text file is one piece. */
static bool is_whole(const sl_documents *self)
{
    return self->args.cuts == SL_WORDS_CUTS_NONE && !self->args.is_per_line;
}

/* The bytes of the longest piece. A packed file may unpack to any length, so its limit follows from
 * the size of the file: lines are short, but prose of one piece is three to ten times as long. */
static uint64_t limit_piece(const sl_documents *self)
{
    const sl_text_stream *stream = self->stream;
    const uint64_t times =
        is_whole(self) ? SL_DOCUMENTS_PACKED_WHOLE_TIMES : SL_DOCUMENTS_PACKED_TIMES;
    uint64_t limit = times * sl_text_stream_file_bytes(stream);
    if (!sl_text_stream_is_packed(stream) || limit > SL_DOCUMENTS_LINE_BYTES_MAX)
        return SL_DOCUMENTS_LINE_BYTES_MAX;
    return limit < SL_DOCUMENTS_PACKED_BYTES_MIN ? SL_DOCUMENTS_PACKED_BYTES_MIN : limit;
}

static sl_status fail_long(const sl_documents *self)
{
    const bool is_packed = sl_text_stream_is_packed(self->stream);
    SL_FAIL(SL_ERROR_DATA, "%s: line %llu or a text %s is above the limit of %llu bytes%s",
            sl_files_show(self->args.paths[self->file]).text, (unsigned long long)self->line + 1,
            is_whole(self) ? "that this tokenizer's pattern cannot take in parts"
                           : "without a space",
            (unsigned long long)self->piece_limit,
            is_packed ? " for a packed file of this size: unpack it" : "");
}

/* How many bytes of the buffer this file may use. */
static uint64_t find_room(const sl_documents *self)
{
    return self->capacity < self->piece_limit ? self->capacity : self->piece_limit;
}

static sl_status grow(sl_documents *self)
{
    uint64_t capacity = self->capacity ? 2 * self->capacity : BLOCK_BYTES;
    if (self->capacity >= self->piece_limit)
        return fail_long(self);
    capacity = capacity < self->piece_limit ? capacity : self->piece_limit;
    char *buffer = realloc(self->buffer, capacity);
    if (!buffer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read %s",
                sl_files_show(self->args.paths[self->file]).text);
    self->buffer = buffer;
    self->capacity = capacity;
    return SL_OK;
}

/* Reads on until the buffer is full or the file at its end; what is in it stays. */
static sl_status fill(sl_documents *self)
{
    if (self->first > 0)
        memmove(self->buffer, self->buffer + self->first, self->count);
    self->first = 0;
    if (self->count == find_room(self))
        SL_TRY(grow(self));
    while (!self->is_at_end && self->count < find_room(self)) {
        uint64_t got = 0;
        SL_TRY(sl_text_stream_read(self->stream, find_room(self) - self->count,
                                   self->buffer + self->count, &got));
        self->count += got;
        self->is_at_end = got == 0;
    }
    return SL_OK;
}

/* ---- files ---- */

/* Reads on until the first line ends; *out_bytes is 0 where it is above its limit. */
static sl_status read_first_line(sl_documents *self, uint64_t *out_bytes)
{
    const char *end = memchr(self->buffer, '\n', self->count);
    while (!end && !self->is_at_end && self->count <= SL_DOCUMENTS_FIRST_LINE_BYTES_MAX) {
        SL_TRY(fill(self));
        end = memchr(self->buffer, '\n', self->count);
    }
    *out_bytes = end ? (uint64_t)(end - self->buffer) : self->count;
    if (*out_bytes > SL_DOCUMENTS_FIRST_LINE_BYTES_MAX)
        *out_bytes = 0;
    return SL_OK;
}

/* True if nothing stands behind the first `bytes` bytes of the file. */
static bool is_all(const sl_documents *self, uint64_t bytes)
{
    uint64_t at = bytes;
    while (at < self->count && strchr(" \t\r\n", self->buffer[at]) && self->buffer[at] != '\0')
        at++;
    return self->is_at_end && at == self->count;
}

/* Of a .json file that is one object alone, as those that hold settings are, the key is asked for:
 * without it they are text. */
static bool is_json_lines(const sl_documents *self, const json_t *object, uint64_t bytes)
{
    bool is_settings = sl_files_name_ends(self->args.paths[self->file], ".json") &&
                       !json_object_get(object, self->args.json_key) && is_all(self, bytes);
    return json_is_object(object) && !is_settings;
}

/* Warns if a file that is read as text is one object with an array of records. It is not refused,
 * because files of settings may look the same. */
static void warn_of_records(const sl_documents *self, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_object(json_array_get(value, 0)))
            continue;
        sl_log_write(SL_LOG_WARNING,
                     "%s: is one JSON object that holds records, and is read as text; a line for "
                     "each record (jq -c '.NAME[]' FILE >FILE.jsonl) is read by --json-key",
                     sl_files_show(self->args.paths[self->file]).text);
        return;
    }
}

/* True if the first line is one JSON object, whatever room the buffer had. */
static sl_status find_json(sl_documents *self, bool *out_found)
{
    json_error_t error;
    json_t *object = NULL;
    uint64_t bytes = 0;
    *out_found = false;
    if (self->count > 0 && self->buffer[0] == '{')
        SL_TRY(read_first_line(self, &bytes));
    if (bytes == 0)
        return SL_OK;
    SL_TRY(sl_json_file_load(self->buffer, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error,
                             &object));
    *out_found = is_json_lines(self, object, bytes);
    if (!*out_found)
        warn_of_records(self, object);
    json_decref(object);
    return SL_OK;
}

/* Of examples: skips what stands before the first object or element. */
static void skip_start(sl_documents *self)
{
    const char *end = self->buffer + self->count;
    const char *first = skip_space(self->buffer, end);
    const bool is_array = first < end && *first == '[';
    for (const char *at = self->buffer; at < first && !is_array; at++)
        self->line += *at == '\n';
    self->is_array = self->is_array_open = is_array;
    self->first = (uint64_t)(first - self->buffer) + self->is_array;
    self->count -= self->first;
}

static sl_status open_file(sl_documents *self)
{
    const char *path = self->args.paths[self->file];
    SL_TRY(sl_text_stream_open(path, &self->stream));
    self->piece_limit = limit_piece(self);
    self->first = self->count = self->line = 0;
    self->is_at_end = false;
    SL_TRY(fill(self));
    self->is_json = is_named_jsonl(path) || self->args.form;
    self->is_array = self->is_array_open = false;
    if (self->args.form)
        skip_start(self);
    else if (!self->is_json)
        SL_TRY(find_json(self, &self->is_json));
    self->is_per_line = self->is_json || self->args.is_per_line;
    return SL_OK;
}

static void close_file(sl_documents *self)
{
    self->done_bytes += sl_text_stream_file_bytes(self->stream);
    sl_text_stream_close(self->stream);
    self->stream = NULL;
    self->file++;
}

/* ---- pieces ---- */

static void give(sl_documents *self, uint64_t bytes, uint64_t skipped, sl_piece *piece)
{
    *piece =
        (sl_piece){.text = self->buffer + self->first,
                   .bytes = bytes,
                   .is_json = self->is_json,
                   .ends_document = self->is_per_line || (self->is_at_end && bytes == self->count),
                   .is_element = self->is_array,
                   .file = self->file,
                   .line = self->line};
    self->first += bytes + skipped;
    self->count -= bytes + skipped;
}

static sl_status take_line(sl_documents *self, sl_piece *piece)
{
    const char *start = self->buffer + self->first;
    const char *end = memchr(start, '\n', self->count);
    while (!end && !self->is_at_end) {
        SL_TRY(fill(self));
        start = self->buffer;
        end = memchr(start, '\n', self->count);
    }
    self->line++;
    give(self, end ? (uint64_t)(end - start) : self->count, end != NULL, piece);
    return SL_OK;
}

/* ---- elements of an array ---- */

typedef enum element_state {
    ELEMENT_WHOLE,
    ELEMENT_OPEN,
    ELEMENT_NONE,
    ELEMENT_WRONG,
    ELEMENT_JOINED /* no comma stands before it */
} element_state;

static uint64_t skip_blanks(const char *text, uint64_t bytes, uint64_t at)
{
    while (at < bytes && strchr(" \t\r\n", text[at]) && text[at] != '\0')
        at++;
    return at;
}

/* Judges what stands between two elements, or before the first one: an element, where it begins, or
 * the end of the array. WHOLE: an object begins at *out_first. */
static element_state find_start(const char *text, uint64_t bytes, bool is_first,
                                uint64_t *out_first)
{
    uint64_t at = skip_blanks(text, bytes, 0);
    const bool has_comma = !is_first && at < bytes && text[at] == ',';
    if (has_comma)
        at = skip_blanks(text, bytes, at + 1);
    *out_first = at;
    if (at == bytes)
        return ELEMENT_OPEN;
    if (text[at] == ']' && !has_comma)
        return ELEMENT_NONE;
    if (text[at] != '{')
        return ELEMENT_WRONG;
    return is_first || has_comma ? ELEMENT_WHOLE : ELEMENT_JOINED;
}

/* Finds the next object in `text`: where it begins and ends. NONE: the array ends at *out_first. */
static element_state find_element(const char *text, uint64_t bytes, bool is_first,
                                  uint64_t *out_first, uint64_t *out_end)
{
    uint64_t depth = 0;
    bool is_in_string = false;
    const element_state start = find_start(text, bytes, is_first, out_first);
    if (start != ELEMENT_WHOLE)
        return start;
    for (uint64_t at = *out_first; at < bytes; at++) {
        if (is_in_string) {
            is_in_string = text[at] != '"';
            at += text[at] == '\\'; /* what it escapes is no quote */
            continue;
        }
        is_in_string = text[at] == '"';
        depth += text[at] == '{' || text[at] == '[';
        depth -= text[at] == '}' || text[at] == ']';
        if (depth == 0) {
            *out_end = at + 1;
            return ELEMENT_WHOLE;
        }
    }
    return ELEMENT_OPEN;
}

static sl_status fail_element(const sl_documents *self, const char *why)
{
    SL_FAIL(SL_ERROR_DATA, "%s: element %llu of the array %s",
            sl_files_show(self->args.paths[self->file]).text, (unsigned long long)self->line, why);
}

static sl_status take_element(sl_documents *self, sl_piece *piece)
{
    uint64_t first = 0, end = 0;
    element_state state;
    self->line++;
    for (;;) {
        state =
            find_element(self->buffer + self->first, self->count, self->line == 1, &first, &end);
        const bool needs_more = state == ELEMENT_OPEN || state == ELEMENT_NONE;
        if (!needs_more || self->is_at_end)
            break;
        SL_TRY(fill(self));
    }
    if (state == ELEMENT_OPEN)
        return fail_element(self, "is cut: the file ends inside of it");
    if (state == ELEMENT_WRONG)
        return fail_element(self, "is not a JSON object");
    if (state == ELEMENT_JOINED)
        return fail_element(self, "has no comma before it");
    self->first += first;
    self->count -= first;
    if (state == ELEMENT_WHOLE) {
        give(self, end - first, 0, piece);
        return SL_OK;
    }
    self->is_array_open = false;
    const char *behind = self->buffer + self->first + 1;
    if (skip_space(behind, behind + self->count - 1) != behind + self->count - 1)
        return fail_element(self, "has something behind the end of the array");
    give(self, 0, self->count, piece);
    return SL_OK;
}

static sl_status take_text(sl_documents *self, sl_piece *piece)
{
    uint64_t bytes = self->count;
    if (!self->is_at_end && self->first > 0)
        SL_TRY(fill(self));
    while (!self->is_at_end) {
        bytes = sl_words_last_cut(self->buffer, self->count, 0, self->args.cuts);
        if (bytes > 0)
            break;
        SL_TRY(fill(self));
    }
    give(self, self->is_at_end ? self->count : bytes, 0, piece);
    return SL_OK;
}

static bool is_blank(const sl_piece *piece)
{
    for (uint64_t i = 0; i < piece->bytes; i++)
        if (!strchr(" \t\r", piece->text[i]) || piece->text[i] == '\0')
            return false;
    return true;
}

sl_status sl_documents_next(sl_documents *documents, sl_piece *out_piece, bool *out_is_there)
{
    *out_is_there = false;
    while (documents->file < documents->args.path_count) {
        if (!documents->stream)
            SL_TRY(open_file(documents));
        if (documents->count == 0 && documents->is_at_end && !documents->is_array_open) {
            close_file(documents);
            continue;
        }
        SL_TRY(documents->is_array      ? take_element(documents, out_piece)
               : documents->is_per_line ? take_line(documents, out_piece)
                                        : take_text(documents, out_piece));
        *out_is_there = out_piece->bytes > 0 && !(out_piece->is_json && is_blank(out_piece));
        if (*out_is_there)
            return SL_OK;
    }
    return SL_OK;
}

/* ---- JSON ---- */

static sl_status fail_line(const sl_documents *self, const sl_piece *piece, const char *why)
{
    SL_FAIL(SL_ERROR_DATA, "%s: %s %llu: %s", sl_files_show(self->args.paths[piece->file]).text,
            piece->is_element ? "element" : "line", (unsigned long long)piece->line, why);
}

static sl_status copy_text(const json_t *string, char **out_text, uint64_t *out_bytes)
{
    *out_bytes = json_string_length(string);
    *out_text = *out_bytes ? malloc(*out_bytes) : NULL;
    if (*out_bytes == 0)
        return SL_OK;
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a document");
    memcpy(*out_text, json_string_value(string), *out_bytes);
    return SL_OK;
}

static sl_status fail_without_key(const sl_documents *documents, const sl_piece *piece,
                                  const char *key)
{
    char what[WHAT_BYTES];
    snprintf(what, sizeof what,
             "has no text under the key \"%s\" (--json-key names another; examples have "
             "--prompt-key and --response-key, or --messages-key)",
             sl_files_show(key).text);
    return fail_line(documents, piece, what);
}

sl_status sl_documents_parse(const sl_documents *documents, const sl_piece *piece, char **out_text,
                             uint64_t *out_bytes)
{
    json_error_t error;
    json_t *object = NULL;
    *out_text = NULL;
    SL_TRY(sl_json_file_load(piece->text, piece->bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                             &error, &object));
    if (!object)
        return fail_line(documents, piece, sl_files_show(error.text).text);
    const char *const key = documents->args.json_key;
    const json_t *string = json_object_get(object, key);
    sl_status status = SL_OK;
    if (!json_is_object(object))
        status = fail_line(documents, piece, "is not a JSON object");
    else if (!json_is_string(string))
        status = fail_without_key(documents, piece, key);
    else
        status = copy_text(string, out_text, out_bytes);
    json_decref(object);
    return status;
}

sl_status sl_documents_parse_example(const sl_documents *documents, const sl_piece *piece,
                                     sl_example *out_example)
{
    json_error_t error;
    json_t *object = NULL;
    *out_example = (sl_example){0};
    SL_TRY(sl_json_file_load(piece->text, piece->bytes,
                             JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES,
                             &error, &object));
    if (!object)
        return fail_line(documents, piece, sl_files_show(error.text).text);
    sl_status status = sl_example_make(documents->args.form, object, out_example);
    json_decref(object);
    if (status == SL_ERROR_DATA)
        status = sl_status_prefix(
            status, "%s: %s %llu", sl_files_show(documents->args.paths[piece->file]).text,
            piece->is_element ? "element" : "line", (unsigned long long)piece->line);
    return status;
}

uint64_t sl_documents_place(const sl_documents *documents)
{
    return documents->done_bytes +
           (documents->stream ? sl_text_stream_place(documents->stream) : 0);
}

uint64_t sl_documents_file_bytes(const sl_documents *documents)
{
    return documents->file_bytes;
}
