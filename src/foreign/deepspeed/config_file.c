/* See config_file.h. */
#include "config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_json.h"
#include "deepspeed.h"
#include "files/json_file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static sl_status read_object(sl_config *config, sl_config_command command, const char *path,
                             json_t *object)
{
    sl_config others;
    if (!json_is_object(object))
        SL_FAIL(SL_ERROR_DATA, "the configuration is not a JSON object");
    SL_TRY(sl_config_init(&others));
    sl_status status = sl_deepspeed_is_meant(object)
                           ? sl_deepspeed_read(config, &others, command, path, object)
                           : sl_config_read(config, &others, command, object);
    sl_config_clear(&others);
    return status;
}

/* A pipe will do. The caller frees the text. */
static sl_status read_file(const char *path, char **out_text, uint64_t *out_bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        SL_FAIL(errno == ENOENT ? SL_ERROR_MISSING : SL_ERROR_IO, "%s: %s", path, strerror(errno));
    char *text = malloc(FILE_BYTES_MAX + 1);
    sl_status status = SL_OK;
    if (!text)
        status = sl_status_fail(SL_ERROR_SYSTEM, "%s: no memory to read it", path);
    size_t bytes = text ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    if (text && ferror(file))
        status = sl_status_fail(SL_ERROR_IO, "%s: %s", path, strerror(errno));
    else if (bytes > FILE_BYTES_MAX)
        status = sl_status_fail(SL_ERROR_DATA, "%s: has more than %d bytes", path, FILE_BYTES_MAX);
    fclose(file);
    if (status != SL_OK) {
        free(text);
        return status;
    }
    *out_text = text;
    *out_bytes = bytes;
    return SL_OK;
}

sl_status sl_config_file_load(sl_config *config, sl_config_command command, const char *path)
{
    json_error_t error;
    json_t *object = NULL;
    char *text = NULL;
    uint64_t bytes = 0;
    SL_TRY(read_file(path, &text, &bytes));
    sl_status status = sl_json_file_load(text, bytes, JSON_REJECT_DUPLICATES, &error, &object);
    free(text);
    if (status == SL_OK && !object)
        SL_FAIL(SL_ERROR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    if (status == SL_OK)
        status = read_object(config, command, path, object);
    json_decref(object);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", path);
}
