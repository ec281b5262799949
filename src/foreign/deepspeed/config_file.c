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

/* Turns comments, from // outside of strings to the end of the line, into blanks. */
static void blank_comments(char *text, uint64_t bytes)
{
    bool in_string = false;
    for (uint64_t i = 0; i < bytes; i++) {
        if (text[i] == '\\' && in_string)
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (text[i] == '\n')
            in_string = false; /* a string has none: the parser says so */
        else if (!in_string && text[i] == '/' && i + 1 < bytes && text[i + 1] == '/')
            for (; i < bytes && text[i] != '\n'; i++)
                text[i] = ' ';
    }
}

/* Of a text that may be changed. */
static sl_status load(sl_config *config, sl_config_command command, const char *path, char *text,
                      uint64_t bytes)
{
    json_error_t error;
    json_t *object = NULL;
    blank_comments(text, bytes);
    sl_status status = sl_json_file_load(text, bytes, JSON_REJECT_DUPLICATES, &error, &object);
    if (status == SL_OK && !object)
        SL_FAIL(SL_ERROR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    if (status == SL_OK)
        status = read_object(config, command, path, object);
    json_decref(object);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", path);
}

sl_status sl_config_file_load(sl_config *config, sl_config_command command, const char *path)
{
    char *text = NULL;
    uint64_t bytes = 0;
    SL_TRY(read_file(path, &text, &bytes));
    const sl_status status = load(config, command, path, text, bytes);
    free(text);
    return status;
}

sl_status sl_config_text_load(sl_config *config, sl_config_command command, const char *name,
                              const char *text, uint64_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: no memory to read it", name);
    memcpy(copy, text, bytes);
    const sl_status status = load(config, command, name, copy, bytes);
    free(copy);
    return status;
}
