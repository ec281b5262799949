/* See model_texts.h. */
#include "model_texts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "files/json_file.h"
#include "vocabulary.h"

/* What is kept lies in manifests of at most 4 MiB, where a byte may take six. */
enum { FILE_BYTES_MAX = 256 << 20, KEPT_BYTES_MAX = 128 << 10 };

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for the texts of a model");
}

static sl_status copy_text(const char *text, char **out_copy)
{
    *out_copy = text ? strdup(text) : NULL;
    return text && !*out_copy ? no_memory() : SL_OK;
}

/* As JSON has it. */
static bool is_utf8(const char *text)
{
    json_t *string = json_string(text);
    json_decref(string);
    return string != NULL;
}

/* Whether a checkpoint can keep it; else a warning says why not. */
static bool can_keep(const char *text, const char *what)
{
    const char *why = strlen(text) > KEPT_BYTES_MAX ? "longer than 128 KiB"
                      : !is_utf8(text)              ? "not in UTF-8"
                                                    : NULL;
    if (why)
        sl_log_write(SL_LOG_WARNING, "%s is %s, and is not kept", what, why);
    return !why;
}

/* NULL where the file is not there. */
static sl_status read_text(const char *directory, const char *name, char **out_text)
{
    char *path = NULL;
    bool is_there = false;
    sl_file file = {.fd = -1};
    *out_text = NULL;
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, &is_there);
    if (status == SL_OK && is_there)
        status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file);
    if (status == SL_OK && is_there)
        status = sl_files_read_text(&file, FILE_BYTES_MAX, out_text);
    sl_files_close(&file);
    free(path);
    return status;
}

/* Of a tokenizer_config.json that says it; one that cannot be parsed says nothing. */
static sl_status read_chat_of_config(const char *directory, char **out_chat)
{
    char *text = NULL;
    json_t *root = NULL;
    json_error_t error;
    SL_TRY(read_text(directory, SL_VOCABULARY_CONFIG_FILE, &text));
    sl_status status =
        text ? sl_json_file_load(text, strlen(text), JSON_DECODE_INT_AS_REAL, &error, &root)
             : SL_OK;
    const json_t *value = json_object_get(root, "chat_template");
    if (json_is_array(value))
        sl_log_write(SL_LOG_WARNING, "%s: several chat templates are not kept",
                     SL_VOCABULARY_CONFIG_FILE);
    if (status == SL_OK)
        status = copy_text(json_string_value(value), out_chat);
    json_decref(root);
    free(text);
    return status;
}

static sl_status read_chat(const char *directory, char **out_chat)
{
    SL_TRY(read_text(directory, SL_MODEL_TEXTS_CHAT_FILE, out_chat));
    if (!*out_chat)
        SL_TRY(read_chat_of_config(directory, out_chat));
    if (*out_chat && !can_keep(*out_chat, "the chat template")) {
        free(*out_chat);
        *out_chat = NULL;
    }
    return SL_OK;
}

static sl_status format_object(const json_t *object, char **out_text)
{
    *out_text = object ? sl_json_file_dump(object, JSON_COMPACT) : NULL;
    return *out_text ? SL_OK : no_memory();
}

static sl_status parse_generation(const char *text, json_t **out_root)
{
    return sl_json_file_parse(SL_MODEL_TEXTS_GENERATION_FILE, text, strlen(text), out_root);
}

static sl_status read_generation(const char *directory, char **out_generation)
{
    char *text = NULL;
    json_t *root = NULL;
    SL_TRY(read_text(directory, SL_MODEL_TEXTS_GENERATION_FILE, &text));
    sl_status status = text ? parse_generation(text, &root) : SL_OK;
    free(text);
    if (root)
        status = format_object(root, out_generation);
    if (*out_generation && !can_keep(*out_generation, SL_MODEL_TEXTS_GENERATION_FILE)) {
        free(*out_generation);
        *out_generation = NULL;
    }
    json_decref(root);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(directory).text);
}

/* No command but those that write or end a text needs them. */
static sl_status pass_over(sl_status status)
{
    if (status != SL_ERROR_DATA)
        return status;
    sl_log_write(SL_LOG_WARNING, "passed over: %s", sl_status_message());
    return SL_OK;
}

sl_status sl_model_texts_read(const char *directory, sl_model_texts *out_texts)
{
    *out_texts = (sl_model_texts){0};
    sl_status status = pass_over(read_chat(directory, &out_texts->chat));
    if (status == SL_OK)
        status = pass_over(read_generation(directory, &out_texts->generation));
    if (status != SL_OK)
        sl_model_texts_free(out_texts);
    return status;
}

sl_status sl_model_texts_copy(const sl_model_texts *from, sl_model_texts *out_texts)
{
    *out_texts = (sl_model_texts){0};
    SL_TRY(copy_text(from->chat, &out_texts->chat));
    SL_TRY(copy_text(from->generation, &out_texts->generation));
    return copy_text(from->examples, &out_texts->examples);
}

sl_status sl_model_texts_set_examples(sl_model_texts *texts, const char *template_text)
{
    char *copy;
    SL_TRY(copy_text(can_keep(template_text, "the template") ? template_text : NULL, &copy));
    free(texts->examples);
    texts->examples = copy;
    return SL_OK;
}

sl_status sl_model_texts_set_ends(sl_model_texts *texts, const sl_text_ends *ends)
{
    json_t *root = NULL;
    char *text = NULL;
    if (!texts->generation && ends->count == 0)
        return SL_OK;
    if (texts->generation)
        SL_TRY(parse_generation(texts->generation, &root));
    else
        root = json_object();
    (void)json_object_del(root, SL_TEXT_ENDS_KEY);
    const bool is_set = ends->count == 0 ||
                        json_object_set_new(root, SL_TEXT_ENDS_KEY, sl_text_ends_pack(ends)) == 0;
    const sl_status status = is_set ? format_object(root, &text) : no_memory();
    json_decref(root);
    SL_TRY(status);
    free(texts->generation);
    texts->generation = text;
    return SL_OK;
}

sl_status sl_model_texts_find_ends(const sl_model_texts *texts, const char *path, uint32_t vocab,
                                   sl_text_ends *ends)
{
    json_t *root = NULL;
    if (!texts->generation)
        return SL_OK;
    SL_TRY(parse_generation(texts->generation, &root));
    const sl_status status = sl_text_ends_take(path, root, vocab, ends);
    json_decref(root);
    return status;
}

void sl_model_texts_free(sl_model_texts *texts)
{
    free(texts->chat);
    free(texts->generation);
    free(texts->examples);
    *texts = (sl_model_texts){0};
}
