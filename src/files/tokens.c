/* Tokens of several files as one run; see tokens.h.
 *
 * A file is a kind, an offset of its first token and a count; reading is one pread a buffer,
 * widened into the caller's array and checked against the vocabulary there. Nothing is kept of what
 * was read. Of many files the first ones stay open, and the others are opened for each buffer:
 * there may be more files than descriptors.
 */
#define _GNU_SOURCE
#include "tokens_internal.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "json_file.h"
#include "json_records.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little endian");

enum {
    HEADER_WORDS = 256, /* int32 words in front of llm.c's tokens */
    HEADER_BYTES = 4 * HEADER_WORDS,
    BUFFER_BYTES = 16384,    /* read at once, on the stack */
    JSON_LINE_BYTES = 65536, /* of a first line that may be JSON */
    SAMPLE_COUNT = 64,
    SAMPLE_BYTES = 4096,
    PIECE_TOKENS = BUFFER_BYTES, /* read at once when the largest id is looked for */
    OPEN_FILES_MAX = 256 /* that keep their descriptors; further ones are opened for each read */
};

static const uint64_t RNG_STREAM = 0x6461746100000000;   /* of row starts; "data" */
static const uint64_t EPOCH_STREAM = 0x65706f6368000000; /* of the streams of epochs; "epoch" */

/* What llm.c writes in front of its files: known magics, and those of other files of its. */
typedef struct llmc_magic {
    int32_t magic, version;
    sl_token_kind kind; /* SL_TOKEN_TEXT: not tokens */
    const char *what;
} llmc_magic;

static const llmc_magic llmc_magics[] = {
    {20240520, 1, SL_TOKEN_LLMC16, "llm.c tokens (uint16)"},
    {20240801, 7, SL_TOKEN_LLMC32, "llm.c tokens (uint32)"},
    {20240522, 0, SL_TOKEN_TEXT, "an llm.c evaluation file"},
    {20240326, 0, SL_TOKEN_TEXT, "an llm.c model"},
    {20240527, 0, SL_TOKEN_TEXT, "an llm.c optimizer state"},
    {20240328, 0, SL_TOKEN_TEXT, "an llm.c tokenizer"},
};

static const uint32_t token_bytes_of[SL_TOKEN_KIND_COUNT] = {1, 2, 2, 4, 2, 4};

/* ---- what a file is ---- */

static const llmc_magic *find_magic(int32_t magic)
{
    for (size_t i = 0; i < sizeof llmc_magics / sizeof llmc_magics[0]; i++)
        if (llmc_magics[i].magic == magic)
            return &llmc_magics[i];
    return NULL;
}

const char *sl_tokens_name_start(const void *start, uint64_t bytes)
{
    int32_t magic = 0;
    if (sl_megatron_index_starts(start, bytes))
        return "an index of Megatron's tokens";
    if (bytes < sizeof magic)
        return NULL;
    memcpy(&magic, start, sizeof magic);
    const llmc_magic *known = find_magic(magic);
    return known ? known->what : NULL;
}

static sl_status set_llmc(sl_token_file *file, const llmc_magic *known, const int32_t *header)
{
    sl_shown path = sl_files_show(file->file.path);
    if (known->kind == SL_TOKEN_TEXT)
        SL_FAIL(SL_ERROR_DATA, "%s: is %s, not tokens", path.text, known->what);
    if (file->file.bytes < HEADER_BYTES)
        SL_FAIL(SL_ERROR_DATA, "%s: is cut inside the %d-byte header of %s", path.text,
                HEADER_BYTES, known->what);
    if (header[1] != known->version)
        SL_FAIL(SL_ERROR_DATA, "%s: %s of version %d; version %d is read", path.text, known->what,
                header[1], known->version);
    if (header[2] < 1)
        SL_FAIL(SL_ERROR_DATA, "%s: the header counts %d tokens", path.text, header[2]);
    file->kind = known->kind;
    file->data_offset = HEADER_BYTES;
    file->token_count = (uint64_t)header[2];
    uint64_t expected = HEADER_BYTES + file->token_count * token_bytes_of[known->kind];
    if (file->file.bytes != expected)
        SL_FAIL(SL_ERROR_DATA,
                "%s: the header counts %d tokens, which is %llu bytes, but the file has %llu",
                path.text, header[2], (unsigned long long)expected,
                (unsigned long long)file->file.bytes);
    return SL_OK;
}

static sl_status set_nanogpt(sl_token_file *file)
{
    if (file->file.bytes % 2 != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: %llu bytes are not whole uint16 tokens",
                sl_files_show(file->file.path).text, (unsigned long long)file->file.bytes);
    file->kind = SL_TOKEN_NANOGPT;
    file->token_count = file->file.bytes / 2;
    return SL_OK;
}

/* Of a file named .bin: an index beside it says what it holds. */
static sl_status set_bin(sl_token_file *file)
{
    bool is_megatron = false;
    SL_TRY(sl_megatron_index_open(&file->file, &file->index, &is_megatron));
    if (!is_megatron)
        return set_nanogpt(file);
    file->kind = file->index.id_bytes == 2 ? SL_TOKEN_MEGATRON16 : SL_TOKEN_MEGATRON32;
    file->token_count = file->index.token_count;
    return SL_OK;
}

/* True if the file starts with a line that is one JSON object; of a line longer than the buffer the
 * first key is looked at. */
static sl_status find_json_line(const sl_file *file, bool *out_found)
{
    char line[JSON_LINE_BYTES + 1];
    uint64_t bytes = file->bytes < JSON_LINE_BYTES ? file->bytes : JSON_LINE_BYTES;
    SL_TRY(sl_files_read_at(file, 0, bytes, line));
    line[bytes] = '\0';
    const char *end = memchr(line, '\n', bytes), *at = line + strspn(line, " \t");
    *out_found = false;
    if (*at != '{')
        return SL_OK;
    if (!end && bytes < file->bytes) {
        at += 1 + strspn(at + 1, " \t");
        const char *quote = *at == '"' ? strchr(at + 1, '"') : NULL;
        *out_found = quote && quote[1 + strspn(quote + 1, " \t")] == ':';
        return SL_OK;
    }
    json_error_t error;
    json_t *object = NULL;
    uint64_t length = (uint64_t)((end ? end : line + bytes) - at);
    SL_TRY(
        sl_json_file_load(at, length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error, &object));
    *out_found = json_is_object(object);
    json_decref(object);
    return SL_OK;
}

/* Refuses JSON that would be read as text: a document of records, or a description of tokens. */
static sl_status refuse_json(const sl_file *file)
{
    char start[SL_JSON_RECORDS_START_BYTES];
    uint64_t bytes = file->bytes < sizeof start ? file->bytes : sizeof start;
    sl_token_description description;
    bool is_description = false;
    SL_TRY(sl_files_read_at(file, 0, bytes, start));
    if (sl_json_records_start(start, bytes))
        return sl_json_records_refuse(file->path);
    if (sl_files_name_ends(file->path, ".json"))
        SL_TRY(sl_token_description_read(file->path, &description, &is_description));
    if (is_description)
        SL_FAIL(SL_ERROR_DATA,
                "%s: says how the file of tokens beside it was made: give that file instead",
                sl_files_show(file->path).text);
    return SL_OK;
}

/* True of a file that begins as an array of objects. */
static sl_status find_array(const sl_file *file, bool *out_found)
{
    char start[SL_JSON_RECORDS_START_BYTES];
    uint64_t bytes = file->bytes < sizeof start ? file->bytes : sizeof start;
    SL_TRY(sl_files_read_at(file, 0, bytes, start));
    *out_found = sl_json_records_is_array(start, bytes);
    return SL_OK;
}

static sl_status set_text(sl_token_file *file, const void *start, uint64_t start_bytes)
{
    file->is_json = sl_files_name_ends(file->file.path, ".jsonl");
    if (!file->is_json)
        SL_TRY(find_json_line(&file->file, &file->is_json));
    if (!file->is_json && file->may_be_array)
        SL_TRY(find_array(&file->file, &file->is_json));
    if (!file->is_json)
        SL_TRY(refuse_json(&file->file));
    file->is_packed = sl_files_packing(start, start_bytes) != SL_PACKING_NONE;
    if (!file->is_packed && memchr(start, '\0', start_bytes))
        sl_log_write(SL_LOG_WARNING,
                     "%s: read as text, but holds NUL bytes; headerless tokens must be named .bin",
                     sl_files_show(file->file.path).text);
    file->kind = SL_TOKEN_TEXT;
    file->token_count = file->file.bytes + 1;
    return SL_OK;
}

static sl_status recognise_kind(sl_token_file *file)
{
    int32_t header[HEADER_WORDS] = {0};
    uint64_t bytes = file->file.bytes < HEADER_BYTES ? file->file.bytes : HEADER_BYTES;
    if (bytes == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: is empty", sl_files_show(file->file.path).text);
    SL_TRY(sl_files_read_at(&file->file, 0, bytes, header));
    if (sl_megatron_index_starts(header, bytes))
        SL_FAIL(SL_ERROR_DATA, "%s: is an index of Megatron's tokens: give the .bin beside it",
                sl_files_show(file->file.path).text);
    const llmc_magic *known = bytes >= sizeof header[0] ? find_magic(header[0]) : NULL;
    if (known)
        return set_llmc(file, known, header);
    if (sl_files_name_ends(file->file.path, ".bin"))
        return set_bin(file);
    return set_text(file, header, bytes);
}

/* A description that does not fit was made for another file, perhaps an older one of this name. */
static sl_status check_description(const sl_token_file *file, const char *path)
{
    const sl_token_description *of = &file->description;
    if (of->bytes == file->file.bytes && of->tokens == file->token_count)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA,
            "%s: describes a file of %llu bytes and %llu tokens, but %s has %llu bytes and %llu "
            "tokens: it is of another file; remove it, or make the tokens again",
            sl_files_show(path).text, (unsigned long long)of->bytes, (unsigned long long)of->tokens,
            sl_files_show(file->file.path).text, (unsigned long long)file->file.bytes,
            (unsigned long long)file->token_count);
}

static sl_status read_description(sl_token_file *file)
{
    char *path = NULL;
    SL_TRY(sl_token_description_path(file->file.path, &path));
    sl_status status = sl_token_description_read(path, &file->description, &file->is_described);
    if (status == SL_OK && file->is_described)
        status = check_description(file, path);
    free(path);
    return status;
}

static sl_status recognise(sl_token_file *file)
{
    SL_TRY(recognise_kind(file));
    return file->kind == SL_TOKEN_TEXT ? SL_OK : read_description(file);
}

/* ---- opening ---- */

static bool ask_system(const sl_token_file *file, struct stat *out_info)
{
    const sl_file *of = &file->file;
    return (of->fd >= 0 ? fstat(of->fd, out_info) : stat(of->path, out_info)) == 0;
}

static sl_status add_file(sl_tokens *tokens, sl_token_file *file)
{
    struct stat info;
    if (ask_system(file, &info)) /* before it is looked at */
        file->written = info.st_mtim;
    SL_TRY(recognise(file));
    file->first_token = tokens->token_count;
    return sl_bits_add(tokens->token_count, file->token_count, "the number of tokens",
                       &tokens->token_count);
}

/* Of training and evaluation data together, with an index each, at most half of the limit. */
static uint32_t count_kept_open(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 8 >= OPEN_FILES_MAX)
        return OPEN_FILES_MAX;
    return (uint32_t)(limit.rlim_cur / 8);
}

static sl_status lay_to_rest(sl_token_file *file)
{
    if (file->index.file.path)
        SL_TRY(sl_files_rest(&file->index.file));
    return sl_files_rest(&file->file);
}

static sl_status add_paths(sl_tokens *tokens, const char *const *paths, uint32_t path_count)
{
    const uint32_t kept_open = count_kept_open();
    for (uint32_t i = 0; i < path_count; i++) {
        sl_token_file *file = &tokens->files[i];
        SL_TRY(sl_files_open(AT_FDCWD, NULL, paths[i], SL_LINKS_FOLLOW, &file->file));
        tokens->file_count++; /* from here on, close frees it */
        file->may_be_array = tokens->takes_arrays;
        SL_TRY(add_file(tokens, file));
        if (i >= kept_open)
            SL_TRY(lay_to_rest(file));
    }
    return SL_OK;
}

static sl_tokens *allocate(uint32_t file_count)
{
    sl_tokens *tokens = calloc(1, sizeof *tokens);
    if (tokens)
        tokens->files = calloc(file_count, sizeof *tokens->files);
    if (tokens && tokens->files)
        return tokens;
    free(tokens);
    sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of %u files", file_count);
    return NULL;
}

static sl_status end_opening(sl_tokens *tokens, sl_status status, uint32_t vocab_limit,
                             sl_tokens **out_tokens)
{
    if (status == SL_OK)
        status = sl_tokens_limit_vocab(tokens, vocab_limit);
    if (status != SL_OK) {
        sl_tokens_close(tokens);
        return status;
    }
    *out_tokens = tokens;
    return SL_OK;
}

sl_status sl_tokens_open(const char *const *paths, uint32_t path_count, uint32_t vocab_limit,
                         sl_tokens **out_tokens)
{
    if (path_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "no data file is given");
    sl_tokens *tokens = allocate(path_count);
    if (!tokens)
        return SL_ERROR_SYSTEM;
    return end_opening(tokens, add_paths(tokens, paths, path_count), vocab_limit, out_tokens);
}

sl_status sl_tokens_open_examples(const char *const *paths, uint32_t path_count,
                                  sl_tokens **out_tokens)
{
    sl_tokens *tokens = allocate(path_count);
    if (!tokens)
        return SL_ERROR_SYSTEM;
    tokens->takes_arrays = true;
    return end_opening(tokens, add_paths(tokens, paths, path_count), 0, out_tokens);
}

void sl_tokens_take_marks(sl_tokens *tokens)
{
    for (uint32_t i = 0; i < tokens->file_count; i++)
        tokens->files[i].has_marks = true;
}

static void close_file(sl_token_file *file)
{
    sl_megatron_index_close(&file->index);
    sl_files_close(&file->file);
}

void sl_tokens_close(sl_tokens *tokens)
{
    if (!tokens)
        return;
    for (uint32_t i = 0; i < tokens->file_count; i++)
        close_file(&tokens->files[i]);
    free(tokens->files);
    free(tokens);
}

sl_status sl_tokens_limit_vocab(sl_tokens *tokens, uint32_t vocab_limit)
{
    uint32_t needed = sl_tokens_vocab_needed(tokens);
    if (vocab_limit != 0 && vocab_limit < needed)
        SL_FAIL(SL_ERROR_USAGE, "text needs a vocabulary of %u, but it has %u", needed,
                vocab_limit);
    tokens->vocab_limit = vocab_limit;
    return SL_OK;
}

uint64_t sl_tokens_count(const sl_tokens *tokens)
{
    return tokens->token_count;
}

uint32_t sl_tokens_vocab_needed(const sl_tokens *tokens)
{
    for (uint32_t i = 0; i < tokens->file_count; i++)
        if (tokens->files[i].kind == SL_TOKEN_TEXT)
            return SL_TOKENS_BYTE_VOCAB;
    return 0;
}

bool sl_tokens_is_text(const sl_tokens *tokens)
{
    for (uint32_t i = 0; i < tokens->file_count; i++)
        if (tokens->files[i].kind != SL_TOKEN_TEXT)
            return false;
    return true;
}

bool sl_tokens_file_is_text(const sl_tokens *tokens, uint32_t file)
{
    return tokens->files[file].kind == SL_TOKEN_TEXT;
}

bool sl_tokens_file_is_wrapped(const sl_tokens *tokens, uint32_t file)
{
    return tokens->files[file].is_packed || tokens->files[file].is_json;
}

uint32_t sl_tokens_file_count(const sl_tokens *tokens)
{
    return tokens->file_count;
}

static bool is_written(const sl_token_file *file)
{
    struct stat info;
    return !ask_system(file, &info) || (uint64_t)info.st_size != file->file.bytes ||
           info.st_mtim.tv_sec != file->written.tv_sec ||
           info.st_mtim.tv_nsec != file->written.tv_nsec;
}

const char *sl_tokens_find_written(const sl_tokens *tokens)
{
    for (uint32_t i = 0; i < tokens->file_count; i++)
        if (is_written(&tokens->files[i]))
            return tokens->files[i].file.path;
    return NULL;
}

const char *sl_tokens_file_path(const sl_tokens *tokens, uint32_t file)
{
    return tokens->files[file].file.path;
}

const sl_token_description *sl_tokens_file_description(const sl_tokens *tokens, uint32_t file)
{
    return tokens->files[file].is_described ? &tokens->files[file].description : NULL;
}

void sl_tokens_file_range(const sl_tokens *tokens, uint32_t file, uint64_t *out_first,
                          uint64_t *out_count)
{
    *out_first = tokens->files[file].first_token;
    *out_count = tokens->files[file].token_count;
}

/* ---- reading ---- */

/* A loop for each width, which compilers can make of whole registers. */
#define WIDEN(type)                                                                                \
    for (uint64_t i = 0; i < count; i++) {                                                         \
        type id;                                                                                   \
        memcpy(&id, data + i * sizeof id, sizeof id);                                              \
        out_ids[i] = id;                                                                           \
    }

static void widen(sl_token_kind kind, const unsigned char *data, uint64_t count, uint32_t *out_ids)
{
    if (token_bytes_of[kind] == sizeof(uint8_t))
        WIDEN(uint8_t)
    else if (token_bytes_of[kind] == sizeof(uint16_t))
        WIDEN(uint16_t)
    else
        WIDEN(uint32_t)
}

static sl_status check_ids(const sl_tokens *tokens, const sl_token_file *file, uint64_t first,
                           uint64_t count, const uint32_t *ids)
{
    uint32_t limit = tokens->vocab_limit ? tokens->vocab_limit : (uint32_t)INT32_MAX, largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t id = file->has_marks ? sl_tokens_unmark(ids[i]) : ids[i];
        largest = id > largest ? id : largest;
    }
    for (uint64_t i = 0; i < count && largest >= limit; i++) {
        const uint32_t id = file->has_marks ? sl_tokens_unmark(ids[i]) : ids[i];
        if (id >= limit)
            SL_FAIL(SL_ERROR_DATA, "%s: token %llu of the file is %u, not below the vocabulary %u",
                    sl_files_show(file->file.path).text, (unsigned long long)(first + i), id,
                    limit);
    }
    return SL_OK;
}

/* Stored tokens [first, first + count) of one file, through a buffer. */
static sl_status read_stored(const sl_tokens *tokens, const sl_token_file *file, uint64_t first,
                             uint64_t count, int32_t *out_ids)
{
    unsigned char data[BUFFER_BYTES];
    uint32_t ids[BUFFER_BYTES];
    uint32_t token_bytes = token_bytes_of[file->kind];
    while (count > 0) {
        uint64_t part = count < BUFFER_BYTES / token_bytes ? count : BUFFER_BYTES / token_bytes;
        SL_TRY(sl_files_read_at(&file->file, file->data_offset + first * token_bytes,
                                part * token_bytes, data));
        widen(file->kind, data, part, ids);
        SL_TRY(check_ids(tokens, file, first, part, ids));
        memcpy(out_ids, ids, part * sizeof ids[0]);
        first += part;
        count -= part;
        out_ids += part;
    }
    return SL_OK;
}

static sl_status read_file_tokens(const sl_tokens *tokens, const sl_token_file *file,
                                  uint64_t first, uint64_t count, int32_t *out_ids)
{
    bool reads_end = file->kind == SL_TOKEN_TEXT && first + count == file->token_count;
    if (reads_end)
        out_ids[--count] = SL_TOKENS_END_OF_TEXT;
    return read_stored(tokens, file, first, count, out_ids);
}

/* The file that token `token` < token_count is in. */
static uint32_t find_file(const sl_tokens *tokens, uint64_t token)
{
    uint32_t low = 0, high = tokens->file_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (tokens->files[middle].first_token <= token)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

sl_status sl_tokens_read(const sl_tokens *tokens, uint64_t first_token, uint64_t token_count,
                         int32_t *out_ids)
{
    if (first_token > tokens->token_count || token_count > tokens->token_count - first_token)
        SL_FAIL(SL_ERROR_USAGE, "tokens from %llu on, %llu of them, are asked of %llu",
                (unsigned long long)first_token, (unsigned long long)token_count,
                (unsigned long long)tokens->token_count);
    while (token_count > 0) {
        const sl_token_file *file = &tokens->files[find_file(tokens, first_token)];
        uint64_t first = first_token - file->first_token;
        uint64_t left = file->token_count - first;
        uint64_t part = token_count < left ? token_count : left;
        SL_TRY(read_file_tokens(tokens, file, first, part, out_ids));
        first_token += part;
        token_count -= part;
        out_ids += part;
    }
    return SL_OK;
}

/* ---- the largest id ---- */

static sl_status look_at_piece(const sl_token_file *file, uint64_t first, uint64_t count,
                               sl_largest_id *largest)
{
    static const sl_tokens any = {0};
    int32_t ids[BUFFER_BYTES];
    SL_TRY(read_stored(&any, file, first, count, ids));
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t id = file->has_marks ? sl_tokens_unmark((uint32_t)ids[i]) : (uint32_t)ids[i];
        if (largest->looked_at + i == 0 || id > largest->id) {
            largest->id = id;
            largest->token = first + i;
        }
    }
    largest->looked_at += count;
    return SL_OK;
}

/* Piece i of n starts at i / (n - 1) of what lies before the last one. */
static sl_status look_at_pieces(const sl_token_file *file, uint64_t piece_count,
                                sl_largest_id *largest)
{
    const uint64_t last = file->token_count - PIECE_TOKENS, step_count = piece_count - 1;
    for (uint64_t i = 0; i < piece_count; i++) {
        uint64_t first = last / step_count * i + last % step_count * i / step_count;
        SL_TRY(look_at_piece(file, first, PIECE_TOKENS, largest));
    }
    return SL_OK;
}

static sl_status look_at_all(const sl_token_file *file, sl_largest_id *largest)
{
    for (uint64_t at = 0; at < file->token_count; at += PIECE_TOKENS) {
        uint64_t left = file->token_count - at;
        SL_TRY(look_at_piece(file, at, left < PIECE_TOKENS ? left : PIECE_TOKENS, largest));
    }
    return SL_OK;
}

sl_status sl_tokens_find_largest(const sl_tokens *tokens, uint32_t file, uint64_t token_budget,
                                 sl_largest_id *out_largest)
{
    const sl_token_file *of = &tokens->files[file];
    uint64_t pieces = token_budget / PIECE_TOKENS > 2 ? token_budget / PIECE_TOKENS : 2;
    sl_largest_id largest = {0};
    if (of->token_count > pieces * PIECE_TOKENS)
        SL_TRY(look_at_pieces(of, pieces, &largest));
    else
        SL_TRY(look_at_all(of, &largest));
    *out_largest = largest;
    return SL_OK;
}

/* ---- identity and order ---- */

static void format_digest(sl_hash_stream *stream, char out_text[SL_TOKENS_FINGERPRINT])
{
    sl_hash_value value = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(out_text, SL_TOKENS_FINGERPRINT, "%016llx%016llx", (unsigned long long)value.high,
             (unsigned long long)value.low);
}

static const char *find_base_name(const sl_token_file *file)
{
    const char *slash = strrchr(file->file.path, '/');
    return slash ? slash + 1 : file->file.path;
}

sl_status sl_tokens_fingerprint(const sl_tokens *tokens, char out_text[SL_TOKENS_FINGERPRINT])
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        const sl_token_file *file = &tokens->files[i];
        const char *name = find_base_name(file);
        uint64_t facts[2] = {file->kind, file->file.bytes};
        sl_hash_update(stream, name, strlen(name) + 1);
        sl_hash_update(stream, facts, sizeof facts);
    }
    format_digest(stream, out_text);
    return SL_OK;
}

/* Piece i starts at i / (SAMPLE_COUNT - 1) of what lies before the last one. */
static sl_status hash_pieces(const sl_file *file, sl_hash_stream *stream)
{
    unsigned char piece[SAMPLE_BYTES];
    uint64_t step_count = SAMPLE_COUNT - 1, whole = (uint64_t)SAMPLE_COUNT * SAMPLE_BYTES;
    uint64_t last = file->bytes > SAMPLE_BYTES ? file->bytes - SAMPLE_BYTES : 0;
    for (uint64_t i = 0; i < SAMPLE_COUNT; i++) {
        uint64_t start = last / step_count * i + last % step_count * i / step_count;
        if (file->bytes <= whole)
            start = i * SAMPLE_BYTES;
        if (start >= file->bytes)
            break;
        uint64_t left = file->bytes - start, bytes = left < SAMPLE_BYTES ? left : SAMPLE_BYTES;
        SL_TRY(sl_files_read_at(file, start, bytes, piece));
        sl_hash_update(stream, piece, bytes);
    }
    return SL_OK;
}

sl_status sl_tokens_sample(const sl_tokens *tokens, char out_text[SL_TOKENS_FINGERPRINT])
{
    sl_hash_stream *stream;
    sl_status status = SL_OK;
    SL_TRY(sl_hash_open(&stream));
    for (uint32_t i = 0; i < tokens->file_count && status == SL_OK; i++)
        status = hash_pieces(&tokens->files[i].file, stream);
    if (status != SL_OK) {
        sl_hash_close(stream);
        return status;
    }
    format_digest(stream, out_text);
    return SL_OK;
}

sl_status sl_tokens_identify_file(const sl_tokens *tokens, uint32_t file, const char **out_name,
                                  char out_text[SL_TOKENS_FINGERPRINT])
{
    const sl_token_file *it = &tokens->files[file];
    const uint64_t facts[2] = {it->kind, it->file.bytes};
    sl_hash_stream *stream;
    *out_name = find_base_name(it);
    SL_TRY(sl_hash_open(&stream));
    sl_hash_update(stream, facts, sizeof facts);
    sl_status status = hash_pieces(&it->file, stream);
    if (status != SL_OK) {
        sl_hash_close(stream);
        return status;
    }
    format_digest(stream, out_text);
    return SL_OK;
}

/* Every epoch has a stream of its own. */
static uint64_t shuffle(uint64_t seed, uint64_t epoch, uint64_t row, uint64_t row_count)
{
    sl_rng_word4 words = sl_rng_draw(seed, EPOCH_STREAM, epoch);
    uint64_t stream = (uint64_t)words.word[0] << 32 | words.word[1];
    return sl_rng_permute(seed, stream, row, row_count);
}

sl_status sl_tokens_row_start(sl_data_order order, uint64_t seed, uint64_t global_row, uint64_t seq,
                              uint64_t token_count, uint64_t *out_start)
{
    if (seq == 0)
        SL_FAIL(SL_ERROR_USAGE, "rows of 0 tokens");
    if (token_count <= seq)
        SL_FAIL(SL_ERROR_DATA,
                "the data has %llu tokens, but a row of %llu needs %llu with its last target",
                (unsigned long long)token_count, (unsigned long long)seq,
                (unsigned long long)seq + 1);
    uint64_t row_count = (token_count - 1) / seq, row = global_row % row_count;
    if (order == SL_DATA_SHUFFLE)
        row = shuffle(seed, global_row / row_count, row, row_count);
    if (order != SL_DATA_RANDOM)
        *out_start = row * seq;
    else
        *out_start = sl_rng_below(seed, RNG_STREAM, global_row, token_count - seq);
    return SL_OK;
}
