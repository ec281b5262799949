/* One small JSON object beside a file of tokens; see token_description.h. */
#include "token_description.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "json_file.h"

enum { VERSION = 1, TEXT_BYTES_MAX = 4096 };

static const char first_key[] = "sluice_tokens";

static const sl_field fields[] = {
    SL_FIELD(first_key, sl_token_description, version, .low = 1),
    SL_FIELD_AS(CHARS, "tokenizer", sl_token_description, tokenizer),
    SL_FIELD("vocab", sl_token_description, vocab, .low = 1, .high = INT32_MAX),
    SL_FIELD("end_of_text", sl_token_description, end_of_text, .high = INT32_MAX),
    SL_FIELD("documents", sl_token_description, documents),
    SL_FIELD("tokens", sl_token_description, tokens, .low = 1),
    SL_FIELD("bytes", sl_token_description, bytes, .low = 1),
    {0}};

sl_status sl_token_description_path(const char *tokens_path, char **out_path)
{
    static const char ending[] = ".json";
    size_t length = strlen(tokens_path);
    *out_path = malloc(length + sizeof ending);
    if (!*out_path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    memcpy(*out_path, tokens_path, length);
    memcpy(*out_path + length, ending, sizeof ending);
    return SL_OK;
}

sl_status sl_token_description_write(const sl_token_description *description, sl_file *file)
{
    json_t *object = NULL;
    sl_token_description of = *description;
    of.version = VERSION;
    SL_TRY(sl_fields_make(fields, &of, &object));
    char *text = sl_json_file_dump(object, JSON_INDENT(1));
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to describe %s", sl_files_show(file->path).text);
    sl_status status = sl_files_append(file, strlen(text), text);
    if (status == SL_OK)
        status = sl_files_append(file, 1, "\n");
    free(text);
    return status;
}

static sl_status read_object(const char *path, const json_t *object,
                             sl_token_description *out_description)
{
    const json_t *version = json_object_get(object, first_key);
    if (json_is_integer(version) && json_integer_value(version) > VERSION)
        SL_FAIL(SL_ERROR_DATA,
                "%s: describes a file of tokens in version %lld, but version %d is read: remove "
                "it, or use a later sluice",
                sl_files_show(path).text, (long long)json_integer_value(version), VERSION);
    SL_TRY(sl_fields_read(path, object, fields, out_description));
    if (out_description->end_of_text >= out_description->vocab)
        SL_FAIL(SL_ERROR_DATA, "%s: \"end_of_text\" %u is not below \"vocab\" %u",
                sl_files_show(path).text, out_description->end_of_text, out_description->vocab);
    return SL_OK;
}

/* A file that is missing, large, or no JSON is no description, and no error. */
sl_status sl_token_description_read(const char *path, sl_token_description *out_description,
                                    bool *out_is_there)
{
    json_t *object = NULL;
    *out_is_there = false;
    sl_status status = sl_json_file_read(AT_FDCWD, NULL, path, TEXT_BYTES_MAX, &object);
    if (status == SL_ERROR_MISSING || status == SL_ERROR_DATA)
        return SL_OK;
    SL_TRY(status);
    *out_is_there = json_object_get(object, first_key) != NULL;
    if (*out_is_there)
        status = read_object(path, object, out_description);
    json_decref(object);
    return status;
}
