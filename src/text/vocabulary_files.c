/* Hugging Face's files of a vocabulary, both ways; see vocabulary.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "files/json_file.h"
#include "vocabulary_reader.h"

enum { FILE_BYTES_MAX = 256 << 20 };

static const char VERSION_LINE[] = "#version", TEMPORARY_FILE[] = "vocabulary.tmp";

/* ---- vocab.json and merges.txt ---- */

static uint64_t count_lines(const char *text, uint64_t bytes)
{
    uint64_t count = 1;
    for (uint64_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    return count;
}

static sl_status take_lines(sl_vocabulary_reader *self, const char *text, uint64_t bytes,
                            char *scratch)
{
    for (uint64_t at = 0, end; at < bytes; at = end + 1) {
        const char *stop = memchr(text + at, '\n', bytes - at);
        end = stop ? (uint64_t)(stop - text) : bytes;
        uint64_t length = end - at - (end > at && text[end - 1] == '\r');
        bool is_comment = length >= sizeof VERSION_LINE - 1 &&
                          memcmp(text + at, VERSION_LINE, sizeof VERSION_LINE - 1) == 0;
        bool is_last = length == 0 && end + 1 >= bytes;
        if (!is_comment && !is_last)
            SL_TRY(sl_vocabulary_reader_take_line(self, text + at, length, scratch));
    }
    return SL_OK;
}

static sl_status take_merges_text(sl_vocabulary_reader *self, const char *text, uint64_t bytes)
{
    char *scratch = malloc(2 * (uint64_t)SL_VOCABULARY_TOKEN_BYTES_MAX < bytes
                               ? 2 * (uint64_t)SL_VOCABULARY_TOKEN_BYTES_MAX
                               : bytes + 1);
    self->merges = malloc(count_lines(text, bytes) * sizeof *self->merges);
    sl_status status = SL_OK;
    if (!scratch || !self->merges)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the merges of %s",
                                sl_files_show(self->path).text);
    else
        status = take_lines(self, text, bytes, scratch);
    free(scratch);
    return status;
}

sl_status sl_vocabulary_parse(const sl_vocabulary_text *tokens, const sl_vocabulary_text *merges,
                              sl_vocabulary **out_vocabulary)
{
    static const char end[] = SL_VOCABULARY_END_OF_TEXT;
    sl_vocabulary_reader self = {.path = tokens->path, .map = sl_byte_map_make()};
    json_t *vocab = NULL;
    SL_TRY(sl_json_file_parse(tokens->path, tokens->text, tokens->bytes, &vocab));
    sl_status status = sl_vocabulary_reader_take_tokens(&self, vocab, NULL);
    json_decref(vocab);
    self.path = merges->path;
    if (status == SL_OK)
        status = take_merges_text(&self, merges->text, merges->bytes);
    if (status == SL_OK)
        status = sl_vocabulary_reader_finish(
            &self, sl_vocabulary_find(self.dictionary, end, sizeof end - 1), out_vocabulary);
    sl_vocabulary_reader_close(&self);
    return status;
}

/* ---- directories ---- */

/* Release with close_text. */
static sl_status open_text(const char *directory, const char *name, char **out_text,
                           sl_vocabulary_text *out)
{
    sl_file file = {.fd = -1};
    char *path = NULL;
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file);
    if (status == SL_OK)
        status = sl_files_read_text(&file, FILE_BYTES_MAX, out_text);
    *out = (sl_vocabulary_text){path, *out_text, file.bytes};
    sl_files_close(&file);
    return status;
}

static void close_text(char *text, const sl_vocabulary_text *of)
{
    free(text);
    free((char *)of->path);
}

static sl_status has_file(const char *directory, const char *name, bool *out_has)
{
    char *path = NULL;
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, out_has);
    free(path);
    return status;
}

static sl_status read_pair(const char *directory, sl_vocabulary **out_vocabulary)
{
    sl_vocabulary_text tokens = {0}, merges = {0};
    char *tokens_text = NULL, *merges_text = NULL;
    sl_status status = open_text(directory, SL_VOCABULARY_TOKENS_FILE, &tokens_text, &tokens);
    if (status == SL_OK)
        status = open_text(directory, SL_VOCABULARY_MERGES_FILE, &merges_text, &merges);
    if (status == SL_OK)
        status = sl_vocabulary_parse(&tokens, &merges, out_vocabulary);
    close_text(tokens_text, &tokens);
    close_text(merges_text, &merges);
    return status;
}

static sl_status read_json(const char *directory, sl_vocabulary **out_vocabulary)
{
    sl_vocabulary_text json = {0}, config = {0};
    char *json_text = NULL, *config_text = NULL;
    bool has_config;
    SL_TRY(has_file(directory, SL_VOCABULARY_CONFIG_FILE, &has_config));
    sl_status status = open_text(directory, SL_VOCABULARY_JSON_FILE, &json_text, &json);
    if (status == SL_OK && has_config)
        status = open_text(directory, SL_VOCABULARY_CONFIG_FILE, &config_text, &config);
    if (status == SL_OK)
        status = sl_vocabulary_parse_json(&json, has_config ? &config : NULL, out_vocabulary);
    close_text(json_text, &json);
    close_text(config_text, &config);
    return status;
}

sl_status sl_vocabulary_is_in(const char *directory, bool *out_is_there)
{
    SL_TRY(has_file(directory, SL_VOCABULARY_TOKENS_FILE, out_is_there));
    return *out_is_there ? SL_OK : has_file(directory, SL_VOCABULARY_JSON_FILE, out_is_there);
}

sl_status sl_vocabulary_read(const char *directory, sl_vocabulary **out_vocabulary)
{
    bool has_tokens, has_json;
    SL_TRY(has_file(directory, SL_VOCABULARY_TOKENS_FILE, &has_tokens));
    SL_TRY(has_file(directory, SL_VOCABULARY_JSON_FILE, &has_json));
    if (has_json)
        return read_json(directory, out_vocabulary);
    if (!has_tokens)
        SL_FAIL(SL_ERROR_MISSING,
                "%s: holds no vocabulary: neither tokenizer.json nor vocab.json with merges.txt",
                sl_files_show(directory).text);
    return read_pair(directory, out_vocabulary);
}

/* ---- writing ---- */

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a vocabulary");
}

static sl_status format_token(const sl_byte_map *map, sl_token_bytes token, json_t **out_string)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return no_memory();
    sl_byte_map_write(map, token, stream);
    bool is_whole = fclose(stream) == 0;
    *out_string = is_whole ? json_stringn(text, bytes) : NULL;
    free(text);
    return *out_string ? SL_OK : no_memory();
}

static sl_status format_tokens(const sl_vocabulary *vocabulary, json_t *object)
{
    sl_byte_map map = sl_byte_map_make();
    sl_status status = SL_OK;
    for (uint32_t id = 0; status == SL_OK && id < sl_vocabulary_count(vocabulary); id++) {
        json_t *key = NULL;
        status = format_token(&map, sl_vocabulary_token(vocabulary, id), &key);
        if (status == SL_OK &&
            json_object_set_new(object, json_string_value(key), json_integer(id)) != 0)
            status = no_memory();
        json_decref(key);
    }
    return status;
}

static sl_status format_merges(const sl_vocabulary *vocabulary, char **out_text)
{
    sl_byte_map map = sl_byte_map_make();
    size_t bytes = 0;
    const sl_merge *merges = sl_vocabulary_merges(vocabulary);
    FILE *stream = open_memstream(out_text, &bytes);
    if (!stream)
        return no_memory();
    fputs("#version: 0.2\n", stream);
    for (uint32_t i = 0; i < sl_vocabulary_merge_count(vocabulary); i++) {
        sl_byte_map_write(&map, sl_vocabulary_token(vocabulary, merges[i].left), stream);
        putc(' ', stream);
        sl_byte_map_write(&map, sl_vocabulary_token(vocabulary, merges[i].right), stream);
        putc('\n', stream);
    }
    bool is_whole = !ferror(stream);
    if (fclose(stream) == 0 && is_whole)
        return SL_OK;
    free(*out_text);
    *out_text = NULL;
    return no_memory();
}

static sl_status format_pair(const sl_vocabulary *vocabulary, sl_vocabulary_files *files)
{
    json_t *object = json_object();
    sl_status status = object ? format_tokens(vocabulary, object) : no_memory();
    if (status == SL_OK)
        status = format_merges(vocabulary, &files->texts[SL_VOCABULARY_FILE_MERGES]);
    if (status == SL_OK)
        files->texts[SL_VOCABULARY_FILE_TOKENS] = sl_json_file_dump(object, 0);
    json_decref(object);
    if (status == SL_OK && !files->texts[SL_VOCABULARY_FILE_TOKENS])
        status = no_memory();
    return status;
}

static sl_status copy_text(const char *text, char **out_copy)
{
    *out_copy = text ? strdup(text) : NULL;
    return !text || *out_copy ? SL_OK : no_memory();
}

sl_status sl_vocabulary_format(const sl_vocabulary *vocabulary, sl_vocabulary_files *out_files)
{
    const sl_pretokenizer *pretokenizer = sl_vocabulary_pretokenizer(vocabulary);
    *out_files = (sl_vocabulary_files){0};
    if (!pretokenizer)
        return format_pair(vocabulary, out_files);
    SL_TRY(copy_text(pretokenizer->json, &out_files->texts[SL_VOCABULARY_FILE_JSON]));
    return copy_text(pretokenizer->config, &out_files->texts[SL_VOCABULARY_FILE_CONFIG]);
}

void sl_vocabulary_files_free(sl_vocabulary_files *files)
{
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT; i++)
        free(files->texts[i]);
    *files = (sl_vocabulary_files){0};
}

const char *sl_vocabulary_file_name(sl_vocabulary_file file)
{
    static const char *const names[] = {
        [SL_VOCABULARY_FILE_MERGES] = SL_VOCABULARY_MERGES_FILE,
        [SL_VOCABULARY_FILE_TOKENS] = SL_VOCABULARY_TOKENS_FILE,
        [SL_VOCABULARY_FILE_CONFIG] = SL_VOCABULARY_CONFIG_FILE,
        [SL_VOCABULARY_FILE_JSON] = SL_VOCABULARY_JSON_FILE,
    };
    return names[file];
}

/* The file by which a directory holds a vocabulary comes last of its own; the other alone is what a
 * broken run left. A failure removes files that were not there before. */
static sl_status save_texts(const char *directory, const sl_vocabulary_files *files)
{
    int fd;
    sl_status status = SL_OK;
    bool was_there[SL_VOCABULARY_FILE_COUNT] = {false};
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT; i++)
        was_there[i] = faccessat(fd, sl_vocabulary_file_name((sl_vocabulary_file)i), F_OK, 0) == 0;
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT && status == SL_OK; i++)
        if (files->texts[i])
            status =
                sl_files_replace_text(fd, directory, sl_vocabulary_file_name((sl_vocabulary_file)i),
                                      TEMPORARY_FILE, files->texts[i]);
    for (int i = SL_VOCABULARY_FILE_COUNT; i-- > 0 && status != SL_OK;)
        if (files->texts[i] && !was_there[i])
            unlinkat(fd, sl_vocabulary_file_name((sl_vocabulary_file)i), 0);
    close(fd);
    return status;
}

sl_status sl_vocabulary_save(const sl_vocabulary *vocabulary, const char *directory)
{
    bool is_there;
    sl_vocabulary_files files;
    SL_TRY(sl_files_make_directories(directory));
    SL_TRY(sl_vocabulary_is_in(directory, &is_there));
    if (is_there)
        SL_FAIL(SL_ERROR_USAGE, "%s: holds a vocabulary already: name another directory",
                sl_files_show(directory).text);
    sl_status status = sl_vocabulary_format(vocabulary, &files);
    if (status == SL_OK)
        status = save_texts(directory, &files);
    sl_vocabulary_files_free(&files);
    return status;
}
