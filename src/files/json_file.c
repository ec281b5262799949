/* Small JSON files; see json_file.h. */
#include "json_file.h"

#include <stdlib.h>
#include <string.h>

#include "files.h"

/* jansson calls some refusals of memory a syntax error. So a failed parse is done once more, when
 * there is memory for a copy; then the text is to blame. */
static sl_status parse_again(const char *path, const char *text, uint64_t bytes, json_t **out_root)
{
    json_error_t error;
    char *copy = malloc(bytes + 1); /* used below, or the compiler leaves it out */
    if (copy)
        memcpy(copy, text, bytes);
    json_t *root = copy ? json_loadb(copy, bytes, JSON_REJECT_DUPLICATES, &error) : NULL;
    free(copy);
    if (!root && (!copy || error.text[0] == '\0'))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to parse %s", sl_files_show(path).text);
    if (!root)
        SL_FAIL(SL_ERROR_DATA, "%s: is not strict JSON: %s at byte %d", sl_files_show(path).text,
                sl_files_show(error.text).text, error.position);
    *out_root = root;
    return SL_OK;
}

sl_status sl_json_file_parse(const char *path, const char *text, uint64_t bytes, json_t **out_root)
{
    if (memchr(text, '\0', bytes)) /* jansson passes over one behind a number */
        SL_FAIL(SL_ERROR_DATA, "%s: is not strict JSON: it holds a NUL byte",
                sl_files_show(path).text);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        SL_TRY(parse_again(path, text, bytes, &root));
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
