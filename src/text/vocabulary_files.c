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
#include "vocabulary.h"

enum {
    FILE_BYTES_MAX = 256 << 20,
    TOKEN_BYTES_MAX = 1 << 20,
    FIRST_FAR = 0x100,       /* the first code point of bytes that have no character of their own */
    FAR_COUNT = 33 + 34 + 1, /* 0x00-0x20, 0x7f-0xa0, 0xad */
    CODE_END = FIRST_FAR + FAR_COUNT,
    BYTES_AND_END = 257 /* tokens that need no merge */
};

static const char VERSION_LINE[] = "#version", TEMPORARY_FILE[] = "vocabulary.tmp";

/* ---- bytes as characters ---- */

static bool is_near(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static uint32_t code_of(unsigned char byte)
{
    uint32_t far = FIRST_FAR;
    if (is_near(byte))
        return byte;
    for (int other = 0; other < byte; other++)
        far += !is_near(other);
    return far;
}

/* The byte that a code point stands for, or -1. */
static int byte_of(uint32_t code)
{
    if (code < FIRST_FAR)
        return is_near((int)code) ? (int)code : -1;
    if (code >= CODE_END)
        return -1;
    int byte = 0;
    for (uint32_t far = FIRST_FAR; is_near(byte) || far++ < code; byte++)
        continue;
    return byte;
}

unsigned char sl_vocabulary_nth_byte(uint32_t index)
{
    for (int byte = 0; byte < 256; byte++)
        if (is_near(byte) && index-- == 0)
            return (unsigned char)byte;
    for (int byte = 0; byte < 256; byte++)
        if (!is_near(byte) && index-- == 0)
            return (unsigned char)byte;
    return 0;
}

/* Both directions, made once for a file. */
typedef struct byte_map {
    int16_t bytes[CODE_END];
    uint16_t codes[256];
} byte_map;

static byte_map make_map(void)
{
    byte_map map;
    for (uint32_t code = 0; code < CODE_END; code++)
        map.bytes[code] = (int16_t)byte_of(code);
    for (int byte = 0; byte < 256; byte++)
        map.codes[byte] = (uint16_t)code_of((unsigned char)byte);
    return map;
}

/* Reads one character that may stand for a byte: those are of one or two bytes of UTF-8. Returns
 * how many, or 0. */
static uint32_t read_mapped(const byte_map *map, const unsigned char *text, uint32_t bytes,
                            char *out_byte)
{
    bool is_pair = bytes > 1 && text[0] >= 0xc2 && text[0] < 0xe0 && (text[1] & 0xc0) == 0x80;
    uint32_t code = is_pair ? (text[0] & 0x1fu) << 6 | (text[1] & 0x3fu) : text[0];
    if ((!is_pair && text[0] >= 0x80) || code >= CODE_END || map->bytes[code] < 0)
        return 0;
    *out_byte = (char)map->bytes[code];
    return is_pair ? 2 : 1;
}

/* Writes what the characters stand for to `out_text`, which has room for `bytes`; false if one of
 * them stands for none. */
static bool unmap(const byte_map *map, const char *text, uint32_t bytes, char *out_text,
                  uint32_t *out_bytes)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < bytes;) {
        uint32_t taken =
            read_mapped(map, (const unsigned char *)text + at, bytes - at, &out_text[count++]);
        if (taken == 0)
            return false;
        at += taken;
    }
    *out_bytes = count;
    return true;
}

/* ---- reading ---- */

typedef struct reader {
    const char *path; /* for messages */
    byte_map map;
    sl_token_bytes *tokens; /* [token_count] */
    uint32_t token_count;
    char *text; /* the bytes of all tokens */
    uint64_t text_used, text_room;
    sl_vocabulary *dictionary; /* the tokens, without merges */
    sl_merge *merges;
    uint32_t merge_count;
} reader;

static void close_reader(reader *self)
{
    sl_vocabulary_close(self->dictionary);
    free(self->tokens);
    free(self->text);
    free(self->merges);
}

#define REFUSE(self, format, ...)                                                                  \
    SL_FAIL(SL_ERROR_DATA, "%s: " format, sl_files_show((self)->path).text, __VA_ARGS__)

/* A token of which a character stands for no byte is a special one, as all of added_tokens are. */
static sl_status take_token(reader *self, const char *key, bool is_special, const json_t *value)
{
    uint64_t key_bytes = strlen(key);
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    char *text = self->text + self->text_used;
    uint32_t bytes = (uint32_t)key_bytes;
    if (id < 0 || id >= (json_int_t)self->token_count)
        REFUSE(self, "the id of token \"%s\" is not an integer from 0 to %u",
               sl_files_show(key).text, self->token_count - 1);
    if (key_bytes == 0 || key_bytes > TOKEN_BYTES_MAX)
        REFUSE(self, "token %lld has %llu bytes", (long long)id, (unsigned long long)key_bytes);
    if (self->tokens[id].text)
        REFUSE(self, "two tokens have the id %lld", (long long)id);
    if (is_special || !unmap(&self->map, key, bytes, text, &bytes))
        memcpy(text, key, bytes = (uint32_t)key_bytes);
    self->tokens[id] = (sl_token_bytes){text, bytes};
    self->text_used += bytes;
    return SL_OK;
}

static bool needs_slot(const json_t *vocab, const json_t *added)
{
    const char *content = json_string_value(json_object_get(added, "content"));
    return !content || !json_object_get(vocab, content);
}

/* What is beside the vocabulary: special tokens. Those that it has too must have the same id. */
static sl_status take_added(reader *self, const json_t *vocab, const json_t *added)
{
    const json_t *content = json_object_get(added, "content"), *id = json_object_get(added, "id");
    if (!json_is_string(content) || !json_is_integer(id))
        REFUSE(self, "an entry of %s has no content or no id", "added_tokens");
    const char *text = json_string_value(content);
    const json_t *known = json_object_get(vocab, text);
    if (known && !json_equal(known, id))
        REFUSE(self, "token \"%s\" has two ids", sl_files_show(text).text);
    return known ? SL_OK : take_token(self, text, true, id);
}

static sl_status take_room(reader *self, const json_t *vocab, const json_t *added)
{
    size_t index;
    const char *key;
    json_t *value;
    uint64_t count = json_object_size(vocab), bytes = 0;
    json_object_foreach((json_t *)vocab, key, value) bytes += strlen(key);
    json_array_foreach((json_t *)added, index, value)
    {
        count += needs_slot(vocab, value);
        bytes += json_string_length(json_object_get(value, "content"));
    }
    if (count == 0 || count > SL_VOCABULARY_COUNT_MAX)
        REFUSE(self, "has %llu tokens: from 1 to %d may be", (unsigned long long)count,
               SL_VOCABULARY_COUNT_MAX);
    self->token_count = (uint32_t)count;
    self->tokens = calloc(count, sizeof *self->tokens);
    self->text = malloc(bytes + 1);
    if (!self->tokens || !self->text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the %llu tokens of %s", (unsigned long long)count,
                sl_files_show(self->path).text);
    return SL_OK;
}

static sl_status take_tokens(reader *self, const json_t *vocab, const json_t *added)
{
    size_t index;
    const char *key;
    json_t *value;
    SL_TRY(take_room(self, vocab, added));
    json_object_foreach((json_t *)vocab, key, value) SL_TRY(take_token(self, key, false, value));
    json_array_foreach((json_t *)added, index, value) SL_TRY(take_added(self, vocab, value));
    for (uint32_t id = 0; id < self->token_count; id++)
        if (!self->tokens[id].text)
            REFUSE(self, "no token has the id %u: ids run from 0 on without holes", id);
    sl_status status = sl_vocabulary_build(self->tokens, self->token_count, NULL, 0,
                                           SL_VOCABULARY_NONE, &self->dictionary);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(self->path).text);
}

/* The id of a token as the file writes it; `scratch` has room for its bytes. */
static sl_status find_part(const reader *self, const char *text, uint64_t bytes, char *scratch,
                           uint32_t *out_id)
{
    uint32_t used = 0;
    int32_t id = SL_VOCABULARY_NONE;
    if (bytes > 0 && bytes <= TOKEN_BYTES_MAX &&
        unmap(&self->map, text, (uint32_t)bytes, scratch, &used))
        id = sl_vocabulary_find(self->dictionary, scratch, used);
    if (id < 0) {
        char shown[64];
        snprintf(shown, sizeof shown, "%.*s", (int)(bytes < 60 ? bytes : 60), text);
        REFUSE(self, "merge %u: \"%s\" is not a token", self->merge_count + 1,
               sl_files_show(shown).text);
    }
    *out_id = (uint32_t)id;
    return SL_OK;
}

/* `scratch` has room for the bytes of both. */
static sl_status take_merge(reader *self, sl_token_bytes left, sl_token_bytes right, char *scratch)
{
    sl_merge merge;
    SL_TRY(find_part(self, left.text, left.bytes, scratch, &merge.left));
    SL_TRY(find_part(self, right.text, right.bytes, scratch, &merge.right));
    sl_token_bytes first = sl_vocabulary_token(self->dictionary, merge.left);
    sl_token_bytes second = sl_vocabulary_token(self->dictionary, merge.right);
    memcpy(scratch, first.text, first.bytes);
    memcpy(scratch + first.bytes, second.text, second.bytes);
    int32_t made = sl_vocabulary_find(self->dictionary, scratch, first.bytes + second.bytes);
    if (made < 0)
        REFUSE(self, "merge %u makes a token that the vocabulary has not", self->merge_count + 1);
    merge.made = (uint32_t)made;
    self->merges[self->merge_count++] = merge;
    return SL_OK;
}

static sl_status finish(reader *self, sl_vocabulary **out_vocabulary)
{
    static const char end[] = SL_VOCABULARY_END_OF_TEXT;
    if (self->merge_count == 0 && self->token_count > BYTES_AND_END)
        REFUSE(self, "has no merges, which a vocabulary of more than %d tokens needs",
               BYTES_AND_END);
    sl_status status = sl_vocabulary_build(
        self->tokens, self->token_count, self->merges, self->merge_count,
        sl_vocabulary_find(self->dictionary, end, sizeof end - 1), out_vocabulary);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(self->path).text);
}

/* ---- vocab.json and merges.txt ---- */

static uint64_t count_lines(const char *text, uint64_t bytes)
{
    uint64_t count = 1;
    for (uint64_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    return count;
}

static sl_status take_line(reader *self, const char *line, uint64_t bytes, char *scratch)
{
    const char *blank = memchr(line, ' ', bytes);
    uint64_t left = blank ? (uint64_t)(blank - line) : 0;
    if (left == 0 || left + 1 == bytes || bytes > TOKEN_BYTES_MAX ||
        memchr(blank + 1, ' ', bytes - left - 1))
        REFUSE(self, "merge %u is not two tokens with one space between", self->merge_count + 1);
    return take_merge(self, (sl_token_bytes){line, (uint32_t)left},
                      (sl_token_bytes){blank + 1, (uint32_t)(bytes - left - 1)}, scratch);
}

static sl_status take_lines(reader *self, const char *text, uint64_t bytes, char *scratch)
{
    for (uint64_t at = 0, end; at < bytes; at = end + 1) {
        const char *stop = memchr(text + at, '\n', bytes - at);
        end = stop ? (uint64_t)(stop - text) : bytes;
        uint64_t length = end - at - (end > at && text[end - 1] == '\r');
        bool is_comment = length >= sizeof VERSION_LINE - 1 &&
                          memcmp(text + at, VERSION_LINE, sizeof VERSION_LINE - 1) == 0;
        bool is_last = length == 0 && end + 1 >= bytes;
        if (!is_comment && !is_last)
            SL_TRY(take_line(self, text + at, length, scratch));
    }
    return SL_OK;
}

static sl_status take_merges_text(reader *self, const char *text, uint64_t bytes)
{
    char *scratch =
        malloc(2 * (uint64_t)TOKEN_BYTES_MAX < bytes ? 2 * (uint64_t)TOKEN_BYTES_MAX : bytes + 1);
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
    reader self = {.path = tokens->path, .map = make_map()};
    json_t *vocab = NULL;
    SL_TRY(sl_json_file_parse(tokens->path, tokens->text, tokens->bytes, &vocab));
    sl_status status = take_tokens(&self, vocab, NULL);
    json_decref(vocab);
    self.path = merges->path;
    if (status == SL_OK)
        status = take_merges_text(&self, merges->text, merges->bytes);
    if (status == SL_OK)
        status = finish(&self, out_vocabulary);
    close_reader(&self);
    return status;
}

/* ---- tokenizer.json ---- */

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* What makes ids otherwise than GPT-2 does is refused. */
static sl_status check_model(const reader *self, const json_t *model)
{
    static const char *const others[] = {"dropout", "continuing_subword_prefix",
                                         "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    if (!is_text(json_object_get(model, "type"), "BPE"))
        REFUSE(self, "%s is not BPE", "model.type");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!is_absent(json_object_get(model, others[i])))
            REFUSE(self, "model.%s is set, which GPT-2's is not", others[i]);
    if (!json_is_object(json_object_get(model, "vocab")))
        REFUSE(self, "%s is not an object", "model.vocab");
    if (!json_is_array(json_object_get(model, "merges")))
        REFUSE(self, "%s is not an array", "model.merges");
    return SL_OK;
}

static sl_status check_pipeline(const reader *self, const json_t *root)
{
    const json_t *words = json_object_get(root, "pre_tokenizer");
    const json_t *regex = json_object_get(words, "use_regex");
    const json_t *added = json_object_get(root, "added_tokens");
    if (!is_absent(json_object_get(root, "normalizer")))
        REFUSE(self, "%s is set, which GPT-2's is not", "normalizer");
    if (!is_text(json_object_get(words, "type"), "ByteLevel") ||
        !is_absent(json_object_get(words, "add_prefix_space")) || (regex && !json_is_true(regex)))
        REFUSE(self, "%s is not ByteLevel as GPT-2 has it (its pattern, no space in front)",
               "pre_tokenizer");
    if (!is_absent(added) && !json_is_array(added))
        REFUSE(self, "%s is not an array", "added_tokens");
    return SL_OK;
}

static sl_status take_merge_json(reader *self, const json_t *merge, char *scratch)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge))
        return take_line(self, json_string_value(merge), json_string_length(merge), scratch);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right) ||
        json_string_length(left) > TOKEN_BYTES_MAX || json_string_length(right) > TOKEN_BYTES_MAX)
        REFUSE(self, "merge %u is neither two tokens nor a text of two", self->merge_count + 1);
    return take_merge(
        self, (sl_token_bytes){json_string_value(left), (uint32_t)json_string_length(left)},
        (sl_token_bytes){json_string_value(right), (uint32_t)json_string_length(right)}, scratch);
}

static sl_status take_merges_json(reader *self, const json_t *merges, uint64_t text_bytes)
{
    size_t index;
    json_t *merge;
    sl_status status = SL_OK;
    char *scratch =
        malloc(2 * (uint64_t)TOKEN_BYTES_MAX < text_bytes ? 2 * (uint64_t)TOKEN_BYTES_MAX
                                                          : text_bytes + 1);
    self->merges = malloc((json_array_size(merges) + 1) * sizeof *self->merges);
    if (!scratch || !self->merges)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the merges of %s",
                                sl_files_show(self->path).text);
    for (index = 0; status == SL_OK && index < json_array_size(merges); index++) {
        merge = json_array_get(merges, index);
        status = take_merge_json(self, merge, scratch);
    }
    free(scratch);
    return status;
}

static sl_status take_root(reader *self, const json_t *root, uint64_t text_bytes)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    SL_TRY(check_model(self, model));
    SL_TRY(check_pipeline(self, root));
    SL_TRY(take_tokens(self, vocab, json_object_get(root, "added_tokens")));
    return take_merges_json(self, json_object_get(model, "merges"), text_bytes);
}

sl_status sl_vocabulary_parse_json(const sl_vocabulary_text *json, sl_vocabulary **out_vocabulary)
{
    reader self = {.path = json->path, .map = make_map()};
    json_t *root = NULL;
    SL_TRY(sl_json_file_parse(json->path, json->text, json->bytes, &root));
    sl_status status = take_root(&self, root, json->bytes);
    json_decref(root);
    if (status == SL_OK)
        status = finish(&self, out_vocabulary);
    close_reader(&self);
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
    sl_vocabulary_text json = {0};
    char *text = NULL;
    sl_status status = open_text(directory, SL_VOCABULARY_JSON_FILE, &text, &json);
    if (status == SL_OK)
        status = sl_vocabulary_parse_json(&json, out_vocabulary);
    close_text(text, &json);
    return status;
}

static sl_status has_file(const char *directory, const char *name, bool *out_has)
{
    char *path = NULL;
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, out_has);
    free(path);
    return status;
}

sl_status sl_vocabulary_is_in(const char *directory, bool *out_is_there)
{
    SL_TRY(has_file(directory, SL_VOCABULARY_TOKENS_FILE, out_is_there));
    return *out_is_there ? SL_OK : has_file(directory, SL_VOCABULARY_JSON_FILE, out_is_there);
}

sl_status sl_vocabulary_read(const char *directory, sl_vocabulary **out_vocabulary)
{
    bool has_tokens, has_merges, has_json;
    SL_TRY(has_file(directory, SL_VOCABULARY_TOKENS_FILE, &has_tokens));
    SL_TRY(has_file(directory, SL_VOCABULARY_MERGES_FILE, &has_merges));
    SL_TRY(has_file(directory, SL_VOCABULARY_JSON_FILE, &has_json));
    if (has_tokens && (has_merges || !has_json)) /* of vocab.json alone: says what is missing */
        return read_pair(directory, out_vocabulary);
    if (!has_json)
        SL_FAIL(SL_ERROR_MISSING,
                "%s: holds no vocabulary: neither vocab.json with merges.txt nor tokenizer.json",
                sl_files_show(directory).text);
    return read_json(directory, out_vocabulary);
}

/* ---- writing ---- */

static void write_code(uint32_t code, FILE *stream)
{
    if (code < 0x80)
        putc((int)code, stream);
    else
        fprintf(stream, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
}

static void write_token(const byte_map *map, sl_token_bytes token, FILE *stream)
{
    for (uint32_t i = 0; i < token.bytes; i++)
        write_code(map->codes[(unsigned char)token.text[i]], stream);
}

void sl_vocabulary_write_token(sl_token_bytes token, FILE *stream)
{
    for (uint32_t i = 0; i < token.bytes; i++)
        write_code(code_of((unsigned char)token.text[i]), stream);
}

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a vocabulary");
}

static sl_status format_token(const byte_map *map, sl_token_bytes token, json_t **out_string)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return no_memory();
    write_token(map, token, stream);
    bool is_whole = fclose(stream) == 0;
    *out_string = is_whole ? json_stringn(text, bytes) : NULL;
    free(text);
    return *out_string ? SL_OK : no_memory();
}

static sl_status format_tokens(const sl_vocabulary *vocabulary, json_t *object)
{
    byte_map map = make_map();
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
    byte_map map = make_map();
    size_t bytes = 0;
    const sl_merge *merges = sl_vocabulary_merges(vocabulary);
    FILE *stream = open_memstream(out_text, &bytes);
    if (!stream)
        return no_memory();
    fputs("#version: 0.2\n", stream);
    for (uint32_t i = 0; i < sl_vocabulary_merge_count(vocabulary); i++) {
        write_token(&map, sl_vocabulary_token(vocabulary, merges[i].left), stream);
        putc(' ', stream);
        write_token(&map, sl_vocabulary_token(vocabulary, merges[i].right), stream);
        putc('\n', stream);
    }
    bool is_whole = !ferror(stream);
    if (fclose(stream) == 0 && is_whole)
        return SL_OK;
    free(*out_text);
    *out_text = NULL;
    return no_memory();
}

sl_status sl_vocabulary_format(const sl_vocabulary *vocabulary, char **out_tokens_text,
                               char **out_merges_text)
{
    char *merges_text = NULL;
    json_t *object = json_object();
    sl_status status = object ? format_tokens(vocabulary, object) : no_memory();
    if (status == SL_OK)
        status = format_merges(vocabulary, &merges_text);
    char *tokens_text = status == SL_OK ? sl_json_file_dump(object, 0) : NULL;
    json_decref(object);
    if (status == SL_OK && !tokens_text)
        status = no_memory();
    if (status != SL_OK) {
        free(merges_text);
        return status;
    }
    *out_tokens_text = tokens_text;
    *out_merges_text = merges_text;
    return SL_OK;
}

/* vocab.json, by which a directory holds a vocabulary, comes last; merges.txt alone is what a
 * broken run left. */
static sl_status save_texts(const char *directory, const char *tokens_text, const char *merges_text)
{
    int fd;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    sl_status status = sl_files_replace_text(fd, directory, SL_VOCABULARY_MERGES_FILE,
                                             TEMPORARY_FILE, merges_text);
    if (status == SL_OK)
        status = sl_files_replace_text(fd, directory, SL_VOCABULARY_TOKENS_FILE, TEMPORARY_FILE,
                                       tokens_text);
    if (status != SL_OK) {
        unlinkat(fd, SL_VOCABULARY_TOKENS_FILE, 0);
        unlinkat(fd, SL_VOCABULARY_MERGES_FILE, 0);
    }
    close(fd);
    return status;
}

sl_status sl_vocabulary_save(const sl_vocabulary *vocabulary, const char *directory)
{
    bool is_there;
    char *tokens_text = NULL, *merges_text = NULL;
    SL_TRY(sl_files_make_directories(directory));
    SL_TRY(sl_vocabulary_is_in(directory, &is_there));
    if (is_there)
        SL_FAIL(SL_ERROR_USAGE, "%s: holds a vocabulary already: name another directory",
                sl_files_show(directory).text);
    SL_TRY(sl_vocabulary_format(vocabulary, &tokens_text, &merges_text));
    sl_status status = save_texts(directory, tokens_text, merges_text);
    free(tokens_text);
    free(merges_text);
    return status;
}
