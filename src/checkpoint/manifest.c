/* The manifest's text, both ways; see manifest.h. */
#define _GNU_SOURCE
#include "manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fields.h"
#include "files/files.h"
#include "files/json_file.h"
#include "files/tokens.h"
#include "text/vocabulary.h"

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
    [SL_MANIFEST_MOMENT1] = {"moment1.safetensors", SL_GROUP_STATE1},
    [SL_MANIFEST_MOMENT2] = {"moment2.safetensors", SL_GROUP_STATE2},
    [SL_MANIFEST_TOKENS] = {SL_VOCABULARY_TOKENS_FILE, SL_GROUP_COUNT},
    [SL_MANIFEST_MERGES] = {SL_VOCABULARY_MERGES_FILE, SL_GROUP_COUNT},
    [SL_MANIFEST_TOKENIZER] = {SL_VOCABULARY_JSON_FILE, SL_GROUP_COUNT},
    [SL_MANIFEST_TOKENIZER_CONFIG] = {SL_VOCABULARY_CONFIG_FILE, SL_GROUP_COUNT},
};

/* The file is of this format, and of a version that is not newer than this one. */
typedef struct header {
    char format[SL_SHOWN_BYTES];
    uint64_t version;
} header;

static const sl_field header_fields[] = {
    SL_FIELD_AS(CHARS, "format", header, format),
    SL_FIELD("format_version", header, version, .low = 1),
    {0},
};

/* Zeros: what an own model may lack. */
static const sl_field shape_fields[] = {
    SL_FIELD("layers", sl_model_shape, layers),
    SL_FIELD("width", sl_model_shape, width, .low = 1),
    SL_FIELD("heads", sl_model_shape, heads),
    SL_FIELD("context", sl_model_shape, context),
    SL_FIELD("vocab", sl_model_shape, vocab, .low = 1),
    SL_FIELD_AS(CHOICE, "architecture", sl_model_shape, architecture,
                .names = SL_ARCHITECTURE_CHOICES, .flags = SL_FIELD_OPTIONAL),
    {0},
};

/* Behind those, of a model that has them alone. */
#define LLAMA_FIELD(name, member, ...) SL_FIELD(name, sl_model_shape, member, __VA_ARGS__)
static const sl_field llama_fields[] = {
    LLAMA_FIELD("kv_heads", kv_heads, .low = 1),
    LLAMA_FIELD("head_size", head, .low = 1),
    LLAMA_FIELD("ffn", ffn, .low = 1),
    LLAMA_FIELD("untied", is_untied, .flags = 0),
    LLAMA_FIELD("norm_epsilon", norm_epsilon, .low = 0),
    LLAMA_FIELD("rope_base", rope.base, .low = 0),
    LLAMA_FIELD("rope_scaling", rope.scaling, .high = SL_ROTARY_LLAMA3),
    LLAMA_FIELD("rope_factor", rope.factor, .low = 0),
    LLAMA_FIELD("rope_low_frequency_factor", rope.low_frequency_factor, .low = 0),
    LLAMA_FIELD("rope_high_frequency_factor", rope.high_frequency_factor, .low = 0),
    LLAMA_FIELD("rope_original_context", rope.original_context, .low = 0),
    {0},
};

/* Behind those, of a model with adapters. */
static const char LORA_KEY[] = "lora";
static const sl_field lora_fields[] = {
    SL_FIELD("rank", sl_lora, rank, .low = 1, .high = SL_LORA_RANK_MAX),
    SL_FIELD("alpha", sl_lora, alpha, .low = 1e-6, .high = 1e6),
    SL_FIELD_AS(CHARS, "targets", sl_lora, targets),
    {0},
};

enum { MAY_MISS = SL_FIELD_OPTIONAL | SL_FIELD_NULLABLE };

static const sl_field entry_fields[] = {
    SL_FIELD("bytes", sl_manifest_entry, bytes),
    SL_FIELD_AS(HEX128, "xxh3_128", sl_manifest_entry, hash),
    SL_FIELD("block_bytes", sl_manifest_entry, block_bytes, .flags = SL_FIELD_OPTIONAL),
    SL_FIELD("block_xxh3_64", sl_manifest_entry, block_sums, .flags = MAY_MISS),
    {0},
};

static const sl_field entry = {
    .kind = SL_FIELD_OBJECT, .fields = entry_fields, .flags = SL_FIELD_OPTIONAL | SL_FIELD_LISTED};

/* In the order of the file; manifest.h says what it means that one is not there. */
static const sl_field fields[] = {
    SL_FIELD("step", sl_manifest, run.state.step),
    SL_FIELD("tokens_total", sl_manifest, run.state.tokens_total),
    SL_FIELD("next_row", sl_manifest, run.state.next_row),
    SL_FIELD("skipped_steps", sl_manifest, run.state.skipped_steps),
    SL_FIELD("loss_scale_good_steps", sl_manifest, run.state.loss_scale_good_steps),
    SL_FIELD("loss_scale_hysteresis", sl_manifest, run.state.loss_scale_hysteresis),
    SL_FIELD("lr_decay_lag", sl_manifest, run.state.lr_decay_lag, .high = 1, .flags = MAY_MISS),
    SL_FIELD_AS(U64_TEXT, "seed", sl_manifest, run.state.seed), /* all 64 bits */
    SL_FIELD_AS(HEX128, "run", sl_manifest, run.run, .flags = MAY_MISS),
    SL_FIELD("loss_scale", sl_manifest, run.state.loss_scale, .low = -INFINITY),
    SL_FIELD_AS(OBJECT, "model", sl_manifest, run.shape, .fields = shape_fields),
    SL_FIELD_AS(CHOICE, "precision", sl_manifest, run.precision, .names = "fp32|bf16|fp16",
                .flags = SL_FIELD_OPTIONAL),
    SL_FIELD_AS(JSON_TEXT, "config", sl_manifest, run.config_json),
    SL_FIELD_AS(JSON_TEXT, "given", sl_manifest, run.given_json, .flags = MAY_MISS),
    SL_FIELD("stateless_tensors", sl_manifest, run.stateless_count, .flags = SL_FIELD_OPTIONAL),
    SL_FIELD("tokenizer", sl_manifest, run.tokenizer, .flags = MAY_MISS),
    SL_FIELD("gemm", sl_manifest, run.gemm),
    SL_FIELD("data", sl_manifest, run.data_fingerprint),
    SL_FIELD("data_sample", sl_manifest, run.data_sample, .flags = MAY_MISS),
    SL_FIELD_AS(
        MAP, "files", sl_manifest, files, .fields = &entry, .flags = SL_FIELD_CLOSED,
        .names = "config.json|model.safetensors|moment1.safetensors|moment2.safetensors|vocab.json|"
                 "merges.txt",
        .stride = sizeof(sl_manifest_entry)),
    {0},
};

/* Behind those, where tensors have other rules than adamw and none. */
static const sl_field rules_fields[] = {
    SL_FIELD_AS(JSON_TEXT, "rules", sl_manifest, run.rules_json, .flags = MAY_MISS),
    {0},
};

/* Behind those, of a run whose matrix products cuBLASLt computes. */
static const sl_field algorithms_fields[] = {
    SL_FIELD("algorithms", sl_manifest, run.algorithms, .flags = MAY_MISS),
    {0},
};

/* Behind those, of a model of which such texts are known. */
static const sl_field texts_fields[] = {
    SL_FIELD("chat_template", sl_manifest, run.texts.chat, .flags = MAY_MISS),
    SL_FIELD("generation_config", sl_manifest, run.texts.generation, .flags = MAY_MISS),
    SL_FIELD("example_template", sl_manifest, run.texts.examples, .flags = MAY_MISS),
    {0},
};

/* Behind those, of a run that has evaluated. */
#define EVAL_FIELD(name, least)                                                                    \
    SL_FIELD(#name, sl_manifest, run.state.name, .low = (least), .flags = SL_FIELD_OPTIONAL)
static const sl_field eval_fields[] = {
    EVAL_FIELD(eval_count, 0), EVAL_FIELD(evaluated_step, 0),    EVAL_FIELD(evals_since_best, 0),
    EVAL_FIELD(best_step, 0),  EVAL_FIELD(best_loss, -INFINITY), {0},
};

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
    free((char *)manifest->run.config_json);
    free((char *)manifest->run.given_json);
    free((char *)manifest->run.rules_json);
    free((char *)manifest->run.tokenizer);
    sl_model_texts_free(&manifest->run.texts);
    free((char *)manifest->run.gemm);
    free((char *)manifest->run.algorithms);
    free((char *)manifest->run.data_fingerprint);
    free((char *)manifest->run.data_sample);
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        free(manifest->files[i].block_sums);
    *manifest = (sl_manifest){0};
}

static void format_hash(const char *text, uint64_t bytes, char out_text[HASH_DIGITS + 1])
{
    sl_hash_value hash = sl_hash_128(text, bytes);
    snprintf(out_text, HASH_DIGITS + 1, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

/* ---- writing ---- */

/* Puts the checksum of everything before it in the place of the closing brace. */
static sl_status seal(const char *text, char **out_text)
{
    char hash[HASH_DIGITS + 1];
    size_t bytes = strlen(text) - 2; /* jansson ends an indented object in "\n}" */
    if (strlen(text) + TAIL_BYTES > SL_MANIFEST_BYTES_MAX)
        SL_FAIL(SL_ERROR_USAGE, "the configuration is too long for a checkpoint");
    format_hash(text, bytes, hash);
    if (asprintf(out_text, "%.*s%s%s%s", (int)bytes, text, TAIL_START, hash, TAIL_END) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest");
    return SL_OK;
}

/* The lowest version that knows all that is there. */
static uint64_t choose_version(const sl_manifest *manifest)
{
    const sl_manifest_entry *files = manifest->files;
    if (manifest->run.shape.lora.rank > 0)
        return 5;
    if (manifest->run.rules_json)
        return 4;
    if (files[SL_MANIFEST_TOKENIZER].is_listed)
        return 3;
    return files[SL_MANIFEST_TOKENS].is_listed || files[SL_MANIFEST_MERGES].is_listed ? 2 : 1;
}

static sl_status write_lora(const sl_lora *lora, json_t *model)
{
    json_t *object = NULL;
    SL_TRY(sl_fields_make(lora_fields, lora, &object));
    if (json_object_set_new(model, LORA_KEY, object) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest");
    return SL_OK;
}

static bool has_texts(const sl_model_texts *texts)
{
    return texts->chat || texts->generation || texts->examples;
}

static sl_status write_fields(const sl_manifest *manifest, json_t *root)
{
    header first = {.version = choose_version(manifest)};
    snprintf(first.format, sizeof first.format, "%s", FORMAT_NAME);
    const sl_model_shape *shape = &manifest->run.shape;
    SL_TRY(sl_fields_write(header_fields, &first, root));
    SL_TRY(sl_fields_write(fields, manifest, root));
    if (manifest->run.rules_json)
        SL_TRY(sl_fields_write(rules_fields, manifest, root));
    if (manifest->run.algorithms)
        SL_TRY(sl_fields_write(algorithms_fields, manifest, root));
    if (has_texts(&manifest->run.texts))
        SL_TRY(sl_fields_write(texts_fields, manifest, root));
    if (manifest->run.state.eval_count > 0)
        SL_TRY(sl_fields_write(eval_fields, manifest, root));
    json_t *model = json_object_get(root, "model");
    if (sl_model_shape_is_llama(shape))
        SL_TRY(sl_fields_write(llama_fields, shape, model));
    return shape->lora.rank > 0 ? write_lora(&shape->lora, model) : SL_OK;
}

sl_status sl_manifest_format(const sl_manifest *manifest, char **out_text)
{
    json_t *root = json_object();
    sl_status status = write_fields(manifest, root);
    char *text =
        status == SL_OK ? sl_json_file_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    SL_TRY(status);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest");
    status = seal(text, out_text);
    free(text);
    return status;
}

/* ---- reading ---- */

static sl_status check_seal(const char *path, const char *text, uint64_t bytes)
{
    char hash[HASH_DIGITS + 1];
    const char *tail = bytes >= TAIL_BYTES ? text + bytes - TAIL_BYTES : NULL;
    if (!tail || memcmp(tail, TAIL_START, sizeof TAIL_START - 1) != 0 ||
        memcmp(text + bytes - (sizeof TAIL_END - 1), TAIL_END, sizeof TAIL_END - 1) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: does not end in its checksum", sl_files_show(path).text);
    format_hash(text, bytes - TAIL_BYTES, hash);
    if (memcmp(tail + sizeof TAIL_START - 1, hash, HASH_DIGITS) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: its checksum does not match, it was changed or damaged",
                sl_files_show(path).text);
    return SL_OK;
}

/* The version of a manifest that is this format's and whole. */
static sl_status read_header(const char *path, const char *text, uint64_t bytes, const json_t *root,
                             uint64_t *out_version)
{
    header first;
    SL_TRY(sl_fields_read(path, root, header_fields, &first));
    if (strcmp(first.format, FORMAT_NAME) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: format is \"%s\", not \"%s\"", sl_files_show(path).text,
                first.format, FORMAT_NAME);
    SL_TRY(check_seal(path, text, bytes));
    *out_version = first.version;
    return SL_OK;
}

/* Older versions knew bytes alone, and took text for any model: only where there is an id for each
 * byte and the end of text and no more, it cannot have been meant otherwise. */
static sl_status believe_bytes(const json_t *root, sl_manifest *manifest)
{
    if (json_object_get(root, "tokenizer") || manifest->run.shape.vocab != SL_TOKENS_BYTE_VOCAB)
        return SL_OK;
    manifest->run.tokenizer = strdup("byte");
    if (!manifest->run.tokenizer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a manifest");
    return SL_OK;
}

static sl_status read_lora(const char *path, const json_t *model, sl_lora *lora)
{
    const json_t *object = json_object_get(model, LORA_KEY);
    return object ? sl_fields_read(path, object, lora_fields, lora) : SL_OK;
}

static sl_status read_all(const char *path, const char *text, uint64_t bytes, const json_t *root,
                          sl_manifest *manifest)
{
    uint64_t version;
    SL_TRY(read_header(path, text, bytes, root, &version));
    if (version > SL_MANIFEST_VERSION)
        SL_FAIL(SL_ERROR_DATA,
                "%s: format_version %llu is newer than this program, which reads up to %d",
                sl_files_show(path).text, (unsigned long long)version, SL_MANIFEST_VERSION);
    SL_TRY(sl_fields_read(path, root, fields, manifest));
    SL_TRY(sl_fields_read(path, root, rules_fields, manifest));
    SL_TRY(sl_fields_read(path, root, algorithms_fields, manifest));
    SL_TRY(sl_fields_read(path, root, texts_fields, manifest));
    SL_TRY(sl_fields_read(path, root, eval_fields, manifest));
    if (sl_model_shape_is_llama(&manifest->run.shape))
        SL_TRY(sl_fields_read(path, json_object_get(root, "model"), llama_fields,
                              &manifest->run.shape));
    SL_TRY(read_lora(path, json_object_get(root, "model"), &manifest->run.shape.lora));
    if (!manifest->files[SL_MANIFEST_MODEL].is_listed ||
        !manifest->files[SL_MANIFEST_CONFIG].is_listed)
        SL_FAIL(SL_ERROR_DATA, "%s: does not list model.safetensors and config.json",
                sl_files_show(path).text);
    return believe_bytes(root, manifest);
}

sl_status sl_manifest_parse(const char *path, const char *text, uint64_t bytes,
                            sl_manifest *out_manifest)
{
    json_t *root;
    sl_manifest manifest = {.run.state.lr_decay_lag = 1}; /* of versions that do not say so */
    SL_TRY(sl_json_file_parse(path, text, bytes, &root));
    sl_status status = read_all(path, text, bytes, root, &manifest);
    json_decref(root);
    if (status != SL_OK) {
        sl_manifest_free(&manifest);
        return status;
    }
    *out_manifest = manifest;
    return SL_OK;
}

sl_status sl_manifest_read(int inside, const char *path, sl_manifest *out_manifest)
{
    sl_file file;
    char *text = NULL;
    SL_TRY(sl_files_open(inside, path, SL_MANIFEST_NAME, SL_LINKS_REFUSE, &file));
    sl_status status = sl_files_read_text(&file, SL_MANIFEST_BYTES_MAX, &text);
    if (status == SL_OK)
        status = sl_manifest_parse(file.path, text, file.bytes, out_manifest);
    free(text);
    sl_files_close(&file);
    return status;
}

static sl_status read_version(int inside, const char *path, uint64_t *out_version)
{
    sl_file file;
    json_t *root = NULL;
    char *text = NULL;
    SL_TRY(sl_files_open(inside, path, SL_MANIFEST_NAME, SL_LINKS_REFUSE, &file));
    sl_status status = sl_files_read_text(&file, SL_MANIFEST_BYTES_MAX, &text);
    if (status == SL_OK)
        status = sl_json_file_parse(file.path, text, file.bytes, &root);
    if (status == SL_OK)
        status = read_header(file.path, text, file.bytes, root, out_version);
    json_decref(root);
    free(text);
    sl_files_close(&file);
    return status;
}

bool sl_manifest_is_newer(int directory, const char *path, const char *name)
{
    int inside;
    uint64_t version = 0;
    if (sl_files_open_directory(directory, path, name, SL_LINKS_FOLLOW, &inside) != SL_OK)
        return false;
    sl_status status = read_version(inside, name, &version);
    close(inside);
    return status == SL_OK && version > SL_MANIFEST_VERSION;
}
