/* The manifest's text, both ways; see manifest.h. */
#define _GNU_SOURCE
#include "manifest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "files/json_file.h"

static const char FORMAT_NAME[] = "sluice-checkpoint";
static const char TAIL_START[] = ",\n  \"checksum\": \"";
static const char TAIL_END[] = "\"\n}\n";

enum { HASH_DIGITS = 32, TAIL_BYTES = sizeof TAIL_START + sizeof TAIL_END - 2 + HASH_DIGITS };

typedef struct file_info {
    const char *name;
    sl_group group;
} file_info;

static const file_info file_infos[SL_MANIFEST_FILE_COUNT] = {
    [SL_MANIFEST_CONFIG] = {"config.json", SL_GROUP_COUNT},
    [SL_MANIFEST_MODEL] = {"model.safetensors", SL_GROUP_PARAM},
    [SL_MANIFEST_MOMENT1] = {"moment1.safetensors", SL_GROUP_MOMENT1},
    [SL_MANIFEST_MOMENT2] = {"moment2.safetensors", SL_GROUP_MOMENT2},
};

/* Counters that are JSON integers; the seed uses all 64 bits and is a string. */
typedef struct counter_key {
    const char *key;
    size_t offset; /* in sl_checkpoint_state */
} counter_key;

static const counter_key counter_keys[] = {
    {"step", offsetof(sl_checkpoint_state, step)},
    {"tokens_total", offsetof(sl_checkpoint_state, tokens_total)},
    {"next_row", offsetof(sl_checkpoint_state, next_row)},
    {"skipped_steps", offsetof(sl_checkpoint_state, skipped_steps)},
    {"loss_scale_good_steps", offsetof(sl_checkpoint_state, loss_scale_good_steps)},
    {"loss_scale_hysteresis", offsetof(sl_checkpoint_state, loss_scale_hysteresis)},
};

typedef struct shape_key {
    const char *key;
    size_t offset; /* in sl_gpt2_shape */
} shape_key;

static const shape_key shape_keys[] = {
    {"layers", offsetof(sl_gpt2_shape, layers)}, {"width", offsetof(sl_gpt2_shape, width)},
    {"heads", offsetof(sl_gpt2_shape, heads)},   {"context", offsetof(sl_gpt2_shape, context)},
    {"vocab", offsetof(sl_gpt2_shape, vocab)},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *sl_manifest_file_name(sl_manifest_file file)
{
    return file_infos[file].name;
}

sl_group sl_manifest_file_group(sl_manifest_file file)
{
    return file_infos[file].group;
}

void sl_manifest_free(sl_manifest *manifest)
{
    free(manifest->config_json);
    free(manifest->gemm);
    free(manifest->data_fingerprint);
    *manifest = (sl_manifest){0};
}

static void format_hash(sl_hash_value hash, char out_text[HASH_DIGITS + 1])
{
    snprintf(out_text, HASH_DIGITS + 1, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

static sl_hash_value hash_of(sl_hash_stream *stream, const char *text, uint64_t bytes)
{
    sl_hash_update(stream, text, bytes);
    return sl_hash_digest(stream);
}

static sl_status hash_text(const char *text, uint64_t bytes, char out_text[HASH_DIGITS + 1])
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    format_hash(hash_of(stream, text, bytes), out_text);
    sl_hash_close(stream);
    return SL_OK;
}

/* ---- writing ---- */

static sl_status add_counters(json_t *root, const sl_checkpoint_state *state)
{
    char seed[24];
    for (size_t i = 0; i < COUNT(counter_keys); i++) {
        uint64_t value;
        memcpy(&value, (const char *)state + counter_keys[i].offset, sizeof value);
        if (value > INT64_MAX)
            SL_FAIL(SL_ERROR_USAGE, "%s is too large for a checkpoint", counter_keys[i].key);
        json_object_set_new(root, counter_keys[i].key, json_integer((json_int_t)value));
    }
    if (!isfinite(state->loss_scale))
        SL_FAIL(SL_ERROR_USAGE, "a loss scale that is not finite cannot be saved");
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)state->seed);
    json_object_set_new(root, "seed", json_string(seed));
    json_object_set_new(root, "loss_scale", json_real(state->loss_scale));
    return SL_OK;
}

/* NULL when memory is refused, as json_pack. */
static json_t *make_shape(const sl_gpt2_shape *shape)
{
    json_t *object = json_object();
    for (size_t i = 0; i < COUNT(shape_keys); i++) {
        uint32_t value;
        memcpy(&value, (const char *)shape + shape_keys[i].offset, sizeof value);
        json_object_set_new(object, shape_keys[i].key, json_integer(value));
    }
    if (json_object_size(object) == COUNT(shape_keys))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *make_files(const sl_manifest *manifest)
{
    size_t listed_count = 0;
    json_t *object = json_object();
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++) {
        const sl_manifest_entry *entry = &manifest->files[i];
        char hash[HASH_DIGITS + 1];
        if (!entry->is_listed)
            continue;
        listed_count++;
        format_hash(entry->hash, hash);
        json_object_set_new(
            object, file_infos[i].name,
            json_pack("{s:I, s:s}", "bytes", (json_int_t)entry->bytes, "xxh3_128", hash));
    }
    if (json_object_size(object) == listed_count)
        return object;
    json_decref(object);
    return NULL;
}

/* A value that memory was refused for is missing then; sl_manifest_format counts them. */
static sl_status add_all(json_t *root, const sl_manifest *manifest)
{
    json_t *config;
    json_object_set_new(root, "format", json_string(FORMAT_NAME));
    json_object_set_new(root, "format_version", json_integer(SL_MANIFEST_VERSION));
    SL_TRY(add_counters(root, &manifest->state));
    sl_status status = sl_json_file_parse("the configuration", manifest->config_json,
                                          strlen(manifest->config_json), &config);
    if (status == SL_ERROR_DATA)
        return sl_status_prefix(SL_ERROR_USAGE, "a checkpoint needs a JSON object");
    SL_TRY(status);
    json_object_set_new(root, "model", make_shape(&manifest->shape));
    json_object_set_new(root, "precision", json_string(sl_type_name(manifest->precision)));
    json_object_set_new(root, "config", config);
    json_object_set_new(root, "gemm", json_string(manifest->gemm));
    json_object_set_new(root, "data", json_string(manifest->data_fingerprint));
    json_object_set_new(root, "files", make_files(manifest));
    return SL_OK;
}

/* Puts the checksum of everything before it in the place of the closing brace. */
static sl_status seal(const char *text, char **out_text)
{
    char hash[HASH_DIGITS + 1];
    size_t bytes = strlen(text) - 2; /* jansson ends an indented object in "\n}" */
    SL_TRY(hash_text(text, bytes, hash));
    if (asprintf(out_text, "%.*s%s%s%s", (int)bytes, text, TAIL_START, hash, TAIL_END) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest");
    return SL_OK;
}

sl_status sl_manifest_format(const sl_manifest *manifest, char **out_text)
{
    enum { KEY_COUNT = COUNT(counter_keys) + 10 };
    json_t *root = json_object();
    sl_status status = add_all(root, manifest);
    bool is_whole = json_object_size(root) == KEY_COUNT;
    char *text = status == SL_OK && is_whole
                     ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17))
                     : NULL;
    json_decref(root);
    SL_TRY(status);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest, or text that is not UTF-8");
    status = strlen(text) + TAIL_BYTES > SL_MANIFEST_BYTES_MAX
                 ? sl_status_fail(SL_ERROR_USAGE, "the configuration is too long for a checkpoint")
                 : seal(text, out_text);
    free(text);
    return status;
}

/* ---- reading ---- */

static sl_status check_version(const char *path, const json_t *root)
{
    const char *format;
    uint64_t version;
    SL_TRY(sl_json_file_get_string(path, root, "format", &format));
    if (strcmp(format, FORMAT_NAME) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: format is \"%s\", not \"%s\"", sl_files_show(path).text,
                sl_files_show(format).text, FORMAT_NAME);
    SL_TRY(sl_json_file_get_integer(path, root, "format_version", (sl_json_range){1, INT64_MAX},
                                    &version));
    if (version > SL_MANIFEST_VERSION)
        SL_FAIL(SL_ERROR_DATA,
                "%s: format_version %llu is newer than this program, which reads up to %d",
                sl_files_show(path).text, (unsigned long long)version, SL_MANIFEST_VERSION);
    return SL_OK;
}

static sl_status check_seal(const char *path, const char *text, uint64_t bytes)
{
    char hash[HASH_DIGITS + 1];
    const char *tail = bytes >= TAIL_BYTES ? text + bytes - TAIL_BYTES : NULL;
    if (!tail || memcmp(tail, TAIL_START, sizeof TAIL_START - 1) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: does not end in its checksum", sl_files_show(path).text);
    SL_TRY(hash_text(text, bytes - TAIL_BYTES, hash));
    if (memcmp(tail + sizeof TAIL_START - 1, hash, HASH_DIGITS) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: its checksum does not match, it was changed or damaged",
                sl_files_show(path).text);
    return SL_OK;
}

static sl_status parse_seed(const char *path, const json_t *root, uint64_t *out_seed)
{
    const char *text;
    SL_TRY(sl_json_file_get_string(path, root, "seed", &text));
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0' || errno == ERANGE)
        SL_FAIL(SL_ERROR_DATA, "%s: key \"seed\" is not a number of 64 bits",
                sl_files_show(path).text);
    *out_seed = value;
    return SL_OK;
}

static sl_status parse_state(const char *path, const json_t *root, sl_checkpoint_state *state)
{
    for (size_t i = 0; i < COUNT(counter_keys); i++) {
        uint64_t value;
        SL_TRY(sl_json_file_get_integer(path, root, counter_keys[i].key,
                                        (sl_json_range){0, INT64_MAX}, &value));
        memcpy((char *)state + counter_keys[i].offset, &value, sizeof value);
    }
    const json_t *scale = json_object_get(root, "loss_scale");
    if (!json_is_number(scale))
        SL_FAIL(SL_ERROR_DATA, "%s: key \"loss_scale\" is missing or not a number",
                sl_files_show(path).text);
    state->loss_scale = json_number_value(scale);
    return parse_seed(path, root, &state->seed);
}

static sl_status parse_shape(const char *path, const json_t *root, sl_gpt2_shape *shape)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        SL_FAIL(SL_ERROR_DATA, "%s: key \"model\" is missing or not an object",
                sl_files_show(path).text);
    for (size_t i = 0; i < COUNT(shape_keys); i++) {
        uint64_t value;
        SL_TRY(sl_json_file_get_integer(path, model, shape_keys[i].key,
                                        (sl_json_range){1, UINT32_MAX}, &value));
        uint32_t size = (uint32_t)value;
        memcpy((char *)shape + shape_keys[i].offset, &size, sizeof size);
    }
    return SL_OK;
}

static sl_status parse_precision(const char *path, const json_t *root, sl_type *out_precision)
{
    const char *text = sl_type_name(SL_TYPE_FP32);
    if (json_object_get(root, "precision"))
        SL_TRY(sl_json_file_get_string(path, root, "precision", &text));
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        if (strcmp(text, sl_type_name((sl_type)type)) == 0) {
            *out_precision = (sl_type)type;
            return SL_OK;
        }
    }
    SL_FAIL(SL_ERROR_DATA, "%s: precision \"%s\" is not fp32, bf16 or fp16",
            sl_files_show(path).text, sl_files_show(text).text);
}

static sl_status parse_hash(const char *path, const json_t *entry, sl_hash_value *out_hash)
{
    const char *text;
    char high[HASH_DIGITS / 2 + 1] = {0};
    SL_TRY(sl_json_file_get_string(path, entry, "xxh3_128", &text));
    if (strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
        SL_FAIL(SL_ERROR_DATA, "%s: key \"xxh3_128\" is not 32 hexadecimal digits",
                sl_files_show(path).text);
    memcpy(high, text, HASH_DIGITS / 2);
    out_hash->high = strtoull(high, NULL, 16);
    out_hash->low = strtoull(text + HASH_DIGITS / 2, NULL, 16);
    return SL_OK;
}

static sl_status find_file(const char *path, const char *name, sl_manifest_file *out_file)
{
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++) {
        if (strcmp(file_infos[i].name, name) == 0) {
            *out_file = (sl_manifest_file)i;
            return SL_OK;
        }
    }
    SL_FAIL(SL_ERROR_DATA, "%s: lists \"%s\", which is no file of a checkpoint",
            sl_files_show(path).text, sl_files_show(name).text);
}

static sl_status parse_files(const char *path, const json_t *root, sl_manifest_entry *files)
{
    json_t *listed = json_object_get(root, "files"), *value;
    const char *name;
    sl_manifest_file file = SL_MANIFEST_FILE_COUNT;
    if (!json_is_object(listed))
        SL_FAIL(SL_ERROR_DATA, "%s: key \"files\" is missing or not an object",
                sl_files_show(path).text);
    json_object_foreach(listed, name, value)
    {
        SL_TRY(find_file(path, name, &file));
        SL_TRY(sl_json_file_get_integer(path, value, "bytes", (sl_json_range){0, INT64_MAX},
                                        &files[file].bytes));
        SL_TRY(parse_hash(path, value, &files[file].hash));
        files[file].is_listed = true;
    }
    if (!files[SL_MANIFEST_MODEL].is_listed || !files[SL_MANIFEST_CONFIG].is_listed)
        SL_FAIL(SL_ERROR_DATA, "%s: does not list model.safetensors and config.json",
                sl_files_show(path).text);
    return SL_OK;
}

static sl_status parse_texts(const char *path, const json_t *root, sl_manifest *manifest)
{
    const char *gemm, *data;
    const json_t *config = json_object_get(root, "config");
    if (!json_is_object(config))
        SL_FAIL(SL_ERROR_DATA, "%s: key \"config\" is missing or not an object",
                sl_files_show(path).text);
    SL_TRY(sl_json_file_get_string(path, root, "gemm", &gemm));
    SL_TRY(sl_json_file_get_string(path, root, "data", &data));
    manifest->config_json = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(17));
    manifest->gemm = strdup(gemm);
    manifest->data_fingerprint = strdup(data);
    if (!manifest->config_json || !manifest->gemm || !manifest->data_fingerprint)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the texts of %s", sl_files_show(path).text);
    return SL_OK;
}

static sl_status parse_all(const char *path, const json_t *root, sl_manifest *manifest)
{
    SL_TRY(parse_state(path, root, &manifest->state));
    SL_TRY(parse_shape(path, root, &manifest->shape));
    SL_TRY(parse_precision(path, root, &manifest->precision));
    SL_TRY(parse_files(path, root, manifest->files));
    return parse_texts(path, root, manifest);
}

sl_status sl_manifest_parse(const char *path, const char *text, uint64_t bytes,
                            sl_manifest *out_manifest)
{
    json_t *root;
    sl_manifest manifest = {0};
    SL_TRY(sl_json_file_parse(path, text, bytes, &root));
    sl_status status = check_version(path, root);
    if (status == SL_OK)
        status = check_seal(path, text, bytes);
    if (status == SL_OK)
        status = parse_all(path, root, &manifest);
    json_decref(root);
    if (status != SL_OK) {
        sl_manifest_free(&manifest);
        return status;
    }
    *out_manifest = manifest;
    return SL_OK;
}
