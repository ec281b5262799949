/* Small JSON files; see json_file.h. */
#include "json_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "files.h"

/* ---- jansson's memory ---- */

/* If jansson gets no memory for a token, it leaves characters out and goes on, or aborts. So each
 * parse takes a reserve first. In a guarded process (sl_json_file_guard_memory) the parse keeps the
 * reserve: an allocation that the system refuses is taken from it. The parse then gets no more
 * text, and needs no more memory than the text that was read already can need: values of
 * BUFFERED_BYTES of text, at most VALUE_BYTES for each byte, and one token and one table copied to
 * twice their size (GROWTH_BYTES a byte of text). The result of such a parse is dropped, and the
 * reserve with it. In another process the reserve is freed before the parse: that much memory was
 * free then. */
enum {
    BUFFERED_BYTES = 1024,
    VALUE_BYTES = 256,
    GROWTH_BYTES = 10,
    LEAST_BYTES = 4096,
    ALIGNMENT = 16
};

static bool is_guarded;
static json_malloc_t allocate_before;
static json_free_t free_before;

static _Thread_local struct {
    char *memory; /* NULL: nothing is parsed */
    uint64_t bytes, used;
    bool was_needed;
} reserve;

static void *allocate(size_t bytes)
{
    void *memory = allocate_before(bytes);
    if (memory || !reserve.memory || bytes > reserve.bytes - reserve.used)
        return memory;
    memory = reserve.memory + reserve.used;
    uint64_t whole = sl_bits_round_up(bytes, ALIGNMENT), left = reserve.bytes - reserve.used;
    reserve.used += whole < left ? whole : left;
    reserve.was_needed = true;
    return memory;
}

static void release(void *memory)
{
    const char *at = memory;
    if (!reserve.memory || at < reserve.memory || at >= reserve.memory + reserve.bytes)
        free_before(memory);
}

void sl_json_file_guard_memory(void)
{
    if (is_guarded)
        return;
    json_get_alloc_funcs(&allocate_before, &free_before);
    json_set_alloc_funcs(allocate, release);
    is_guarded = true;
}

static void close_reserve(void)
{
    free(reserve.memory);
    reserve.memory = NULL;
}

static sl_status open_reserve(uint64_t text_bytes)
{
    uint64_t bytes, buffered = text_bytes < BUFFERED_BYTES ? text_bytes : BUFFERED_BYTES;
    SL_TRY(sl_bits_multiply(text_bytes, GROWTH_BYTES, "a parse", &bytes));
    SL_TRY(sl_bits_add(bytes, buffered * VALUE_BYTES + LEAST_BYTES, "a parse", &bytes));
    reserve.memory = malloc(bytes);
    reserve.bytes = bytes;
    reserve.used = 0;
    reserve.was_needed = false;
    if (!reserve.memory)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to parse JSON");
    if (!is_guarded)
        close_reserve();
    return SL_OK;
}

/* ---- writing ---- */

typedef struct dump {
    char *text;
    uint64_t bytes, capacity;
    bool was_refused;
} dump;

static sl_status make_room(dump *to, uint64_t bytes)
{
    uint64_t need;
    SL_TRY(sl_bits_add(to->bytes, bytes, "a JSON text", &need));
    SL_TRY(sl_bits_add(need, 1, "a JSON text", &need)); /* NUL */
    return SL_ARRAY_RESERVE(to->text, need, to->capacity, "a JSON text");
}

static int append(const char *part, size_t bytes, void *user)
{
    dump *to = user;
    if (to->was_refused || make_room(to, bytes) != SL_OK) {
        to->was_refused = true;
        return -1;
    }
    memcpy(to->text + to->bytes, part, bytes);
    to->bytes += bytes;
    to->text[to->bytes] = '\0';
    return 0;
}

/* jansson's own goes on where it was refused memory for a key. */
char *sl_json_file_dump(const json_t *root, size_t flags)
{
    dump to = {0};
    int result = json_dump_callback(root, append, &to, flags);
    if (result == 0 && !to.was_refused)
        return to.text;
    free(to.text);
    return NULL;
}

sl_status sl_json_file_format(const json_t *root, int digits, char **out_text)
{
    *out_text = sl_json_file_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write JSON");
    return SL_OK;
}

/* Bytes of the character that a text starts with; 0: it is no UTF-8. */
static size_t measure_character(const unsigned char *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : 4;
    if (bytes == 1)
        return 1;
    if (bytes == 4 && at[0] >> 3 != 30)
        return 0;
    uint32_t code = at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) { /* the NUL at the end is no continuation */
        if (at[i] >> 6 != 2)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[bytes] || code > 0x10ffff || is_surrogate ? 0 : bytes;
}

json_t *sl_json_file_text(const char *text)
{
    enum { SHOWN = 4 }; /* "\xNN" */
    size_t length = strlen(text), used = 0;
    char *shown = length < SIZE_MAX / SHOWN ? malloc(SHOWN * length + 1) : NULL;
    if (!shown)
        return NULL;
    for (size_t i = 0; i < length;) {
        size_t bytes = measure_character((const unsigned char *)text + i);
        if (bytes > 0)
            memcpy(shown + used, text + i, bytes);
        else
            snprintf(shown + used, SHOWN + 1, "\\x%02x", (unsigned char)text[i]);
        used += bytes > 0 ? bytes : SHOWN;
        i += bytes > 0 ? bytes : 1;
    }
    json_t *string = json_stringn(shown, used);
    free(shown);
    return string;
}

/* ---- parsing ---- */

typedef struct text_left {
    const char *next;
    uint64_t bytes;
} text_left;

static size_t hand_out(void *buffer, size_t most, void *user)
{
    text_left *left = user;
    uint64_t bytes = reserve.was_needed ? 0 : left->bytes < most ? left->bytes : most;
    memcpy(buffer, left->next, bytes);
    left->next += bytes;
    left->bytes -= bytes;
    return bytes;
}

sl_status sl_json_file_load(const char *text, uint64_t bytes, size_t flags, json_error_t *error,
                            json_t **out_root)
{
    text_left left = {text, bytes};
    SL_TRY(open_reserve(bytes));
    json_t *root = json_load_callback(hand_out, &left, flags, error);
    bool was_refused = reserve.was_needed || (!root && error->text[0] == '\0');
    if (was_refused)
        json_decref(root);
    close_reserve();
    if (was_refused)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to parse JSON");
    *out_root = root;
    return SL_OK;
}

sl_status sl_json_file_parse(const char *path, const char *text, uint64_t bytes, json_t **out_root)
{
    json_error_t error;
    json_t *root = NULL;
    if (memchr(text, '\0', bytes)) /* jansson passes over one behind a number */
        SL_FAIL(SL_ERROR_DATA, "%s: is not strict JSON: it holds a NUL byte",
                sl_files_show(path).text);
    sl_status status = sl_json_file_load(text, bytes, JSON_REJECT_DUPLICATES, &error, &root);
    if (status != SL_OK)
        return sl_status_prefix(status, "%s", sl_files_show(path).text);
    if (!root)
        SL_FAIL(SL_ERROR_DATA, "%s: is not strict JSON: %s at byte %d", sl_files_show(path).text,
                sl_files_show(error.text).text, error.position);
    if (!json_is_object(root)) {
        json_decref(root);
        SL_FAIL(SL_ERROR_DATA, "%s: is not a JSON object", sl_files_show(path).text);
    }
    *out_root = root;
    return SL_OK;
}

sl_status sl_json_file_read(int directory, const char *directory_path, const char *name,
                            uint64_t limit, json_t **out_root)
{
    sl_file file;
    char *text = NULL;
    SL_TRY(sl_files_open(directory, directory_path, name, SL_LINKS_FOLLOW, &file));
    sl_status status = sl_files_read_text(&file, limit, &text);
    if (status == SL_OK)
        status = sl_json_file_parse(file.path, text, file.bytes, out_root);
    free(text);
    sl_files_close(&file);
    return status;
}
