/* Each file is looked at once, and those that are no data are taken out; see text_files.h. */
#define _GNU_SOURCE
#include "text_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/plural.h"
#include "files/files.h"
#include "files/json_records.h"
#include "files/token_description.h"
#include "files/tokens.h"
#include "text_stream.h"

enum { START_BYTES = SL_JSON_RECORDS_START_BYTES };

typedef enum content {
    CONTENT_EMPTY,
    CONTENT_TEXT,
    CONTENT_BINARY,
    CONTENT_TOKENS,
    CONTENT_UNKNOWN,     /* named .bin or .idx: perhaps tokens without a header */
    CONTENT_DESCRIPTION, /* FILE.json of a file of tokens */
    CONTENT_RECORDS,     /* a JSON document of records */
    CONTENT_COUNT
} content;

/* ---- one file ---- */

/* True if an index of Megatron's has the name that belongs to a .bin. */
static sl_status has_index(const char *path, bool *out_has)
{
    char *index = NULL;
    if (asprintf(&index, "%.*s.idx", (int)(strlen(path) - 4), path) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = sl_files_exists(AT_FDCWD, NULL, index, out_has);
    free(index);
    return status;
}

/* True if FILE.json says that a .bin holds tokens. */
static sl_status is_described(const char *path, bool *out_is_described)
{
    sl_token_description description;
    char *beside = NULL;
    SL_TRY(sl_token_description_path(path, &beside));
    sl_status status = sl_token_description_read(beside, &description, out_is_described);
    free(beside);
    return status;
}

static sl_status read_start(const char *path, char *start, uint64_t *out_count)
{
    sl_text_stream *stream = NULL;
    uint64_t got = 1;
    *out_count = 0;
    SL_TRY(sl_text_stream_open(path, &stream));
    sl_status status = SL_OK;
    for (; status == SL_OK && *out_count < START_BYTES && got > 0; *out_count += got)
        status = sl_text_stream_read(stream, START_BYTES - *out_count, start + *out_count, &got);
    sl_text_stream_close(stream);
    return status;
}

/* Judges by name and by the files beside: is it a file of tokens, or the description of one? */
static sl_status look_beside(const char *path, bool *out_is_tokens, bool *out_is_description)
{
    sl_token_description description;
    *out_is_tokens = *out_is_description = false;
    if (sl_files_name_ends(path, ".json"))
        return sl_token_description_read(path, &description, out_is_description);
    if (!sl_files_name_ends(path, ".bin"))
        return SL_OK;
    SL_TRY(has_index(path, out_is_tokens));
    return *out_is_tokens ? SL_OK : is_described(path, out_is_tokens);
}

static content judge_text(const char *start, uint64_t count)
{
    if (memchr(start, '\0', count))
        return CONTENT_BINARY;
    return sl_json_records_start(start, count) ? CONTENT_RECORDS : CONTENT_TEXT;
}

static sl_status look(const char *path, content *out_content)
{
    char start[START_BYTES];
    uint64_t count;
    bool is_tokens, is_description;
    SL_TRY(read_start(path, start, &count));
    SL_TRY(look_beside(path, &is_tokens, &is_description));
    if (is_tokens || sl_tokens_name_start(start, count))
        *out_content = CONTENT_TOKENS;
    else if (is_description)
        *out_content = CONTENT_DESCRIPTION;
    else if (count == 0)
        *out_content = CONTENT_EMPTY;
    else if (sl_files_name_ends(path, ".bin") || sl_files_name_ends(path, ".idx"))
        *out_content = CONTENT_UNKNOWN;
    else
        *out_content = judge_text(start, count);
    return SL_OK;
}

/* ---- those below a directory ---- */

typedef struct tree {
    sl_file_list files;
    unsigned char *contents; /* [files.count], each a content */
    uint32_t counts[CONTENT_COUNT];
    sl_text_kinds kinds;
} tree;

static bool is_data(const tree *self, content what)
{
    const bool takes_tokens = self->kinds == SL_TEXT_OR_TOKENS;
    const bool may_be_tokens = takes_tokens && self->counts[CONTENT_TEXT] == 0;
    if (what == CONTENT_RECORDS)
        return self->kinds == SL_TEXT_EXAMPLES;
    return what == CONTENT_TEXT || what == CONTENT_TOKENS ||
           (what == CONTENT_UNKNOWN && may_be_tokens);
}

static sl_status look_at_all(tree *self)
{
    self->contents = malloc(self->files.count);
    if (!self->contents)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    for (uint32_t i = 0; i < self->files.count; i++) {
        content what;
        SL_TRY(look(self->files.items[i], &what));
        self->contents[i] = (unsigned char)what;
        self->counts[what]++;
    }
    return SL_OK;
}

/* The warning does not count empty files and descriptions of tokens. */
static void warn_of_others(const tree *self, const char *path, uint32_t passed_over,
                           const char *first)
{
    if (passed_over == 0)
        return;
    sl_log_write(SL_LOG_WARNING,
                 "%s: %u of %u files %s passed over as no text (NUL bytes, JSON documents "
                 "of records, or named as tokens); the first is %s",
                 sl_files_show(path).text, passed_over, self->files.count,
                 passed_over == 1 ? "is" : "are", sl_files_show(first).text);
}

static sl_status append_data(const tree *self, const char *path, sl_file_list *list)
{
    uint32_t before = list->count, passed_over = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < self->files.count; i++) {
        content what = (content)self->contents[i];
        if (is_data(self, what)) {
            SL_TRY(sl_file_list_append(list, self->files.items[i]));
        } else if (what != CONTENT_EMPTY && what != CONTENT_DESCRIPTION) {
            first = first ? first : self->files.items[i];
            passed_over++;
        }
    }
    if (list->count == before)
        SL_FAIL(SL_ERROR_DATA,
                "%s: of its %u file%s none is text (they are empty, hold NUL bytes, are named as "
                "tokens, or are JSON documents of records: jq -c '.[]' makes lines of these)",
                sl_files_show(path).text, self->files.count, sl_plural(self->files.count));
    warn_of_others(self, path, passed_over, first);
    return SL_OK;
}

/* Whether NAME.idx stands beside `bin`, which is NAME.bin and changed for as long as it takes. */
static bool is_pair(char *bin)
{
    struct stat info;
    char *ending = bin + strlen(bin) - 4;
    const bool is_there = stat(bin, &info) == 0;
    memcpy(ending, ".idx", 4);
    const bool has_index = stat(bin, &info) == 0;
    memcpy(ending, ".bin", 4);
    return is_there && has_index;
}

static sl_status append_pair(sl_file_list *list, const char *name)
{
    char *bin = NULL;
    if (asprintf(&bin, "%s.bin", name) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = sl_file_list_append(list, is_pair(bin) ? bin : name);
    free(bin);
    return status;
}

sl_status sl_text_files_add(sl_file_list *list, const char *path, sl_text_kinds kinds)
{
    struct stat info;
    tree self = {.kinds = kinds};
    const bool is_there = stat(path, &info) == 0;
    if (!is_there && kinds == SL_TEXT_OR_TOKENS)
        return append_pair(list, path);
    if (!is_there || !S_ISDIR(info.st_mode))
        return sl_file_list_append(list, path);
    sl_status status = sl_file_list_add(&self.files, path);
    if (status == SL_OK)
        status = look_at_all(&self);
    if (status == SL_OK)
        status = append_data(&self, path, list);
    sl_file_list_clear(&self.files);
    free(self.contents);
    return status;
}
