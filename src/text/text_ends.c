#include "text_ends.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>

#include "files/files.h"
#include "files/json_file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

bool sl_text_ends_has(const sl_text_ends *ends, uint32_t id)
{
    for (uint32_t i = 0; i < ends->count; i++)
        if (ends->ids[i] == id)
            return true;
    return false;
}

static sl_status add_end(const char *path, const json_t *value, uint32_t vocab, sl_text_ends *ends)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= (json_int_t)vocab)
        SL_FAIL(SL_ERROR_DATA, "%s: \"eos_token_id\" is not an id below %u, or a list of such ids",
                sl_files_show(path).text, vocab);
    const uint32_t id = (uint32_t)json_integer_value(value);
    if (sl_text_ends_has(ends, id))
        return SL_OK;
    if (ends->count == SL_TEXT_ENDS_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: \"eos_token_id\" lists more than %d ids",
                sl_files_show(path).text, SL_TEXT_ENDS_MAX - 1);
    ends->ids[ends->count++] = id;
    return SL_OK;
}

sl_status sl_text_ends_take(const char *path, const json_t *object, uint32_t vocab,
                            sl_text_ends *ends)
{
    const json_t *value = json_object_get(object, SL_TEXT_ENDS_KEY);
    size_t index;
    json_t *each;
    if (!value || json_is_null(value))
        return SL_OK;
    if (!json_is_array(value))
        return add_end(path, value, vocab, ends);
    json_array_foreach(value, index, each) SL_TRY(add_end(path, each, vocab, ends));
    return SL_OK;
}

/* *out_says: the file is there and has the key. */
static sl_status read_file(const char *path, uint32_t vocab, sl_text_ends *ends, bool *out_says)
{
    json_t *root = NULL;
    SL_TRY(sl_files_exists(AT_FDCWD, NULL, path, out_says));
    if (!*out_says)
        return SL_OK;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    const json_t *value = json_object_get(root, SL_TEXT_ENDS_KEY);
    *out_says = value && !json_is_null(value);
    sl_status status = sl_text_ends_take(path, root, vocab, ends);
    json_decref(root);
    return status;
}

sl_status sl_text_ends_read(const char *directory, uint32_t vocab, sl_text_ends *ends)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    bool says = false;
    for (int i = 0; i < 2 && !says; i++) {
        char *path = NULL;
        SL_TRY(sl_files_join_path(directory, names[i], &path));
        sl_status status = read_file(path, vocab, ends, &says);
        free(path);
        SL_TRY(status);
    }
    return SL_OK;
}

json_t *sl_text_ends_pack(const sl_text_ends *ends)
{
    if (ends->count == 1)
        return json_integer(ends->ids[0]);
    json_t *list = json_array();
    for (uint32_t i = 0; i < ends->count; i++)
        json_array_append_new(list, json_integer(ends->ids[i]));
    if (json_array_size(list) == ends->count)
        return list;
    json_decref(list);
    return NULL;
}
