/* safetensors: alone, or with all that makes a Hugging Face directory, in shards with an index
 * where one file would be too large. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/json_file.h"
#include "foreign/model_files.h"
#include "foreign/weights.h"
#include "target.h"
#include "text/model_texts.h"

static const char weights_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

/* Runs of items, each with a file of its own. */
typedef struct sl_weight_shards {
    uint32_t *ends; /* [count], one past the last item of each */
    uint32_t count, index;
    uint64_t left_bytes; /* of the tensors of the open file */
} sl_weight_shards;

typedef struct shard_name {
    char text[sizeof "model-00001-of-00512.safetensors" + 10];
} shard_name;

/* Hugging Face's names; one file alone has no number. */
static shard_name name_shard(const sl_weight_shards *shards, uint32_t index)
{
    shard_name name;
    if (shards->count == 1)
        snprintf(name.text, sizeof name.text, "%s", weights_name);
    else
        snprintf(name.text, sizeof name.text, "model-%05u-of-%05u.safetensors", index + 1,
                 shards->count);
    return name;
}

static uint32_t first_of(const sl_weight_shards *shards, uint32_t index)
{
    return index > 0 ? shards->ends[index - 1] : 0;
}

/* ---- which file a tensor is in ---- */

static uint64_t item_bytes(const sl_target_item *item)
{
    return sl_encoding_bytes(item->encoding, item->tensor.rows * item->tensor.columns);
}

/* In the model's order, each as full as it may be; a tensor beyond the limit is alone. */
static sl_status split(sl_target *target, uint64_t most)
{
    sl_weight_shards *shards = target->shards;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < target->item_count; i++) {
        uint64_t more = item_bytes(&target->items[i]);
        if (i > 0 && most > 0 && (more > most || bytes > most - more)) {
            shards->ends[shards->count++] = i;
            bytes = 0;
        }
        if (shards->count == SL_MODEL_FILES_MAX)
            SL_FAIL(SL_ERROR_USAGE,
                    "--shard-size %" PRIu64 " makes more than %d files: give a larger one", most,
                    SL_MODEL_FILES_MAX);
        bytes += more;
    }
    shards->ends[shards->count++] = target->item_count;
    return SL_OK;
}

/* With the prefix of a whole model, or without. */
static sl_weights_name name_tensor(const sl_foreign_tensor *tensor, bool is_whole)
{
    const sl_foreign_tensor_name name = sl_model_tensors_name(tensor);
    sl_weights_name made = sl_weights_whole_name(tensor->names, name.text);
    if (!is_whole)
        snprintf(made.text, sizeof made.text, "%.47s", name.text);
    return made;
}

/* The order of the data in a file is that of its names. */
static int compare_items(const void *a, const void *b, void *is_whole)
{
    const sl_target_item *left = a, *right = b;
    const bool *whole = is_whole;
    return strcmp(name_tensor(&left->tensor, *whole).text,
                  name_tensor(&right->tensor, *whole).text);
}

static sl_status list_shards(sl_target *target, bool is_whole, uint64_t most)
{
    sl_weight_shards *shards = target->shards = calloc(1, sizeof *shards);
    if (shards)
        shards->ends = calloc(target->item_count, sizeof *shards->ends);
    if (!shards || !shards->ends)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    SL_TRY(split(target, most));
    for (uint32_t i = 0; i < shards->count; i++) {
        uint32_t first = first_of(shards, i);
        qsort_r(target->items + first, shards->ends[i] - first, sizeof *target->items,
                compare_items, &is_whole);
    }
    return SL_OK;
}

/* ---- the parameters ---- */

static sl_safetensors_plan plan_tensor(const sl_target *target, uint32_t index)
{
    const sl_foreign_tensor *tensor = &target->items[index].tensor;
    const bool is_turned = tensor->is_linear && target->is_out_in;
    return (sl_safetensors_plan){.name = target->names[index].text,
                                 .dim_count = tensor->dim_count,
                                 .shape = {is_turned ? tensor->columns : tensor->rows,
                                           is_turned ? tensor->rows : tensor->columns},
                                 .encoding = target->items[index].encoding};
}

static sl_status name_tensors(sl_target *target, bool is_whole)
{
    target->names = calloc(target->item_count, sizeof *target->names);
    target->plans = calloc(target->item_count, sizeof *target->plans);
    if (!target->names || !target->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++) {
        const sl_weights_name name = name_tensor(&target->items[i].tensor, is_whole);
        snprintf(target->names[i].text, sizeof target->names[i].text, "%s", name.text);
        target->plans[i] = plan_tensor(target, i);
    }
    return SL_OK;
}

/* `most` bytes of tensors go into a file; 0: all. */
static sl_status plan_named(sl_target *target, bool is_whole, uint64_t most)
{
    uint64_t bytes;
    target->is_out_in = sl_model_names_of(&target->args->reader->shape)->is_out_in;
    SL_TRY(sl_target_list(target));
    SL_TRY(list_shards(target, is_whole, most));
    SL_TRY(name_tensors(target, is_whole));
    for (uint32_t i = 0; i < target->shards->count; i++) {
        uint32_t first = first_of(target->shards, i);
        SL_TRY(sl_safetensors_count_bytes(target->plans + first, target->shards->ends[i] - first,
                                          &bytes));
        if (bytes > UINT64_MAX - target->total_bytes)
            SL_FAIL(SL_ERROR_USAGE, "the model's size overflows");
        target->total_bytes += bytes;
    }
    return SL_OK;
}

static sl_status plan_weights(sl_target *target)
{
    return plan_named(target, false, 0);
}

static sl_status plan_hf(sl_target *target)
{
    return plan_named(target, true, target->args->shard_bytes);
}

static sl_status open_shard(sl_target *target)
{
    sl_file file;
    sl_weight_shards *shards = target->shards;
    uint32_t first = first_of(shards, shards->index), end = shards->ends[shards->index];
    shards->left_bytes = 0;
    for (uint32_t i = first; i < end; i++)
        shards->left_bytes += item_bytes(&target->items[i]);
    SL_TRY(sl_output_create(&target->output, name_shard(shards, shards->index).text, &file));
    return sl_safetensors_writer_start(&file, target->plans + first, end - first,
                                       &target->safetensors);
}

static sl_status close_shard(sl_target *target)
{
    uint64_t bytes;
    sl_hash_value hash;
    SL_TRY(sl_safetensors_writer_finish(target->safetensors, &bytes, &hash));
    sl_safetensors_writer_close(target->safetensors);
    target->safetensors = NULL;
    target->shards->index++;
    return SL_OK;
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    sl_weight_shards *shards = target->shards;
    SL_TRY(sl_safetensors_writer_append_stored(target->safetensors, stored, bytes));
    shards->left_bytes -= bytes;
    if (shards->left_bytes > 0)
        return SL_OK;
    SL_TRY(close_shard(target));
    return shards->index < shards->count ? open_shard(target) : SL_OK;
}

/* Each file was synced when it was full. */
static sl_status finish_weights(sl_target *target)
{
    if (target->shards->index < target->shards->count)
        SL_FAIL(SL_ERROR_INTERNAL, "tensors are missing in a conversion");
    return SL_OK;
}

static void close_shards(sl_target *target)
{
    if (target->shards)
        free(target->shards->ends);
    free(target->shards);
    target->shards = NULL;
}

/* ---- what stands beside them ---- */

static sl_status write_text(sl_target *target, const char *name, const char *text)
{
    return sl_output_write_text(&target->output, name, text, strlen(text));
}

/* `root` is this call's; NULL: there was no memory. */
static sl_status write_json(sl_target *target, const char *name, json_t *root)
{
    char *text = root ? sl_json_file_dump(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %s", name);
    sl_status status = write_text(target, name, text);
    free(text);
    return status;
}

/* Which file each tensor is in; one file alone needs none. */
static sl_status write_index(sl_target *target)
{
    const sl_weight_shards *shards = target->shards;
    uint64_t bytes = 0;
    json_t *map = json_object();
    bool is_whole = map != NULL;
    if (shards->count == 1) {
        json_decref(map);
        return SL_OK;
    }
    for (uint32_t shard = 0, i = 0; i < target->item_count; i++) {
        shard += i == shards->ends[shard];
        bytes += item_bytes(&target->items[i]);
        is_whole =
            is_whole && json_object_set_new(map, target->names[i].text,
                                            json_string(name_shard(shards, shard).text)) == 0;
    }
    json_t *root = is_whole ? json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                                        (json_int_t)bytes, "weight_map", map)
                            : NULL;
    json_decref(map);
    return write_json(target, index_name, root);
}

/* The vocabulary's end of text. */
static int32_t find_own_end(const sl_target *target)
{
    const sl_vocabulary *vocabulary = target->args->vocabulary;
    return vocabulary ? sl_vocabulary_end_of_text(vocabulary) : SL_VOCABULARY_NONE;
}

/* The settings of the base model, if they are known, with all ids that end a text: also the
 * vocabulary's end where --end-of-text of the run named another. */
static sl_status write_generation(sl_target *target, uint32_t end)
{
    const sl_model_reader *reader = target->args->reader;
    const sl_model_directory *source = &reader->source;
    sl_model_texts texts = {0};
    sl_text_ends ends = {1, {end}};
    if (source->directory)
        SL_TRY(sl_text_ends_read(source->directory, reader->shape.vocab, &ends));
    else
        SL_TRY(sl_model_texts_find_ends(&source->texts, reader->path, reader->shape.vocab, &ends));
    const int32_t own = find_own_end(target);
    if (own != SL_VOCABULARY_NONE && !sl_text_ends_has(&ends, (uint32_t)own) &&
        ends.count < SL_TEXT_ENDS_MAX)
        ends.ids[ends.count++] = (uint32_t)own;
    json_t *root = NULL;
    sl_status status = sl_model_texts_copy(&source->texts, &texts);
    if (status == SL_OK)
        status = sl_model_texts_set_ends(&texts, &ends);
    if (status == SL_OK)
        status =
            sl_json_file_parse(reader->path, texts.generation, strlen(texts.generation), &root);
    sl_model_texts_free(&texts);
    SL_TRY(status);
    if (sl_model_names_of(&reader->shape)->has_start && !json_object_get(root, "bos_token_id"))
        json_object_set_new(root, "bos_token_id", json_integer(end));
    return write_json(target, SL_MODEL_TEXTS_GENERATION_FILE, root);
}

static sl_status write_configs(sl_target *target)
{
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    const sl_model_reader *reader = target->args->reader;
    uint32_t end = sl_target_end_of_text(target);
    char *text;
    SL_TRY(sl_weights_format_config(&reader->shape, dtypes[target->args->encoding], end, &text));
    sl_status status = write_text(target, "config.json", text);
    free(text);
    SL_TRY(status);
    return write_generation(target, end);
}

/* A vocabulary without an end of text has no special token: null keeps readers from adding one. */
static json_t *pack_special(const char *token)
{
    return json_pack("{s:s?, s:s?, s:s?}", "bos_token", token, "eos_token", token, "unk_token",
                     token);
}

/* transformers writes a model_max_length of 10^30 where none is known. */
static sl_status parse_class(const char *config, json_t **out_root)
{
    json_error_t error;
    const uint64_t bytes = strlen(config);
    SL_TRY(sl_json_file_load(config, bytes, 0, &error, out_root));
    if (!*out_root && json_error_code(&error) == json_error_numeric_overflow)
        SL_TRY(sl_json_file_load(config, bytes, JSON_DECODE_INT_AS_REAL, &error, out_root));
    if (!*out_root)
        SL_FAIL(SL_ERROR_DATA, "%s: is not JSON: %s", SL_VOCABULARY_CONFIG_FILE,
                sl_files_show(error.text).text);
    return SL_OK;
}

/* True if the run's --end-of-text named another id than the vocabulary's end. */
static bool has_other_end(const sl_target *target)
{
    return target->args->reader->source.names_end &&
           (int64_t)sl_target_end_of_text(target) != find_own_end(target);
}

/* The token of the run's --end-of-text; NULL text: none, or one that is a word, which readers of
 * tokenizer_config.json would not find whole in texts. */
static sl_token_bytes find_other_end(const sl_target *target)
{
    const sl_vocabulary *vocabulary = target->args->vocabulary;
    const uint32_t end = sl_target_end_of_text(target);
    if (!has_other_end(target) || end >= sl_vocabulary_count(vocabulary) ||
        sl_vocabulary_token(vocabulary, end).kind == SL_TOKEN_WORD)
        return (sl_token_bytes){0};
    return sl_vocabulary_token(vocabulary, end);
}

static void warn_of_end(const sl_target *target)
{
    if (has_other_end(target) && !find_other_end(target).text)
        sl_log_write(SL_LOG_WARNING,
                     "the end of text of the run, id %u, is no added token of the tokenizer: "
                     "generation_config.json and config.json name it, the tokenizer's files name "
                     "their own",
                     sl_target_end_of_text(target));
}

/* A tokenizer_config.json stays as it was read if it names a class. Without one transformers takes
 * the class of config.json's model_type, which may have another pattern; this class takes
 * tokenizer.json as it is. An end of text of the run's own takes the place of its eos_token.
 * `config` may be NULL. */
static sl_status write_class(sl_target *target, const char *config)
{
    bool has_end = find_own_end(target) != SL_VOCABULARY_NONE;
    const sl_token_bytes other = find_other_end(target);
    json_t *root = NULL;
    if (config)
        SL_TRY(parse_class(config, &root));
    else
        root =
            json_pack("{s:s?, s:I, s:b}", "eos_token", has_end ? SL_VOCABULARY_END_OF_TEXT : NULL,
                      "model_max_length", (json_int_t)target->args->reader->shape.context,
                      "clean_up_tokenization_spaces", 0);
    const bool has_class = config && json_object_get(root, "tokenizer_class");
    if (has_class && !other.text) {
        json_decref(root);
        return write_text(target, SL_VOCABULARY_CONFIG_FILE, config);
    }
    if ((!has_class && json_object_set_new(root, "tokenizer_class",
                                           json_string("PreTrainedTokenizerFast")) != 0) ||
        (other.text &&
         json_object_set_new(root, "eos_token", json_stringn(other.text, other.bytes)) != 0)) {
        json_decref(root);
        root = NULL;
    }
    return write_json(target, SL_VOCABULARY_CONFIG_FILE, root);
}

/* vocab.json and merges.txt are of GPT-2's pattern. */
static sl_status write_special(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    bool has_end = sl_vocabulary_end_of_text(target->args->vocabulary) != SL_VOCABULARY_NONE;
    const char *token = has_end ? SL_VOCABULARY_END_OF_TEXT : NULL;
    json_t *root = pack_special(token);
    json_t *more = json_pack("{s:s, s:b, s:I}", "tokenizer_class", "GPT2Tokenizer",
                             "add_prefix_space", 0, "model_max_length", (json_int_t)shape->context);
    bool is_whole = root && more && json_object_update(root, more) == 0;
    json_decref(more);
    if (!is_whole) {
        json_decref(root);
        root = NULL;
    }
    SL_TRY(write_json(target, "tokenizer_config.json", root));
    return has_end ? write_json(target, "special_tokens_map.json", pack_special(token)) : SL_OK;
}

static sl_status write_vocabulary(sl_target *target)
{
    sl_vocabulary_files files;
    sl_status status = sl_vocabulary_format(target->args->vocabulary, &files);
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT && status == SL_OK; i++)
        if (i == SL_VOCABULARY_FILE_CONFIG && files.texts[SL_VOCABULARY_FILE_JSON])
            status = write_class(target, files.texts[i]);
        else if (files.texts[i])
            status =
                write_text(target, sl_vocabulary_file_name((sl_vocabulary_file)i), files.texts[i]);
    sl_vocabulary_files_free(&files);
    return status;
}

/* Without merges a token is a byte, whatever the pattern. */
static void warn_of_pattern(const sl_target *target)
{
    const sl_vocabulary *vocabulary = target->args->vocabulary;
    const sl_pretokenizer *of = sl_vocabulary_pretokenizer(vocabulary);
    const sl_model_names *names = sl_model_names_of(&target->args->reader->shape);
    const char *pattern = of && of->pattern_count == 1 ? sl_pattern_gguf_name(of->patterns[0]) : "";
    if (!names->fixed_pattern || sl_vocabulary_merge_count(vocabulary) == 0 ||
        (pattern && strcmp(pattern, names->fixed_pattern) == 0))
        return;
    sl_log_write(SL_LOG_WARNING,
                 "AutoTokenizer of transformers gives each %s the pattern of Qwen's tokenizer, "
                 "which is not that of this one: load it with %s",
                 names->title, of ? "PreTrainedTokenizerFast" : "GPT2Tokenizer");
}

static sl_status finish_hf(sl_target *target)
{
    SL_TRY(finish_weights(target));
    SL_TRY(write_index(target));
    SL_TRY(write_configs(target));
    if (target->args->reader->source.texts.chat)
        SL_TRY(
            write_text(target, SL_MODEL_TEXTS_CHAT_FILE, target->args->reader->source.texts.chat));
    if (!target->args->vocabulary)
        return SL_OK;
    SL_TRY(write_vocabulary(target));
    warn_of_pattern(target);
    warn_of_end(target);
    /* a tokenizer.json says which tokens are special */
    return sl_vocabulary_pretokenizer(target->args->vocabulary) ? SL_OK : write_special(target);
}

const sl_target_ops sl_target_hf = {.is_directory = true,
                                    .plan = plan_hf,
                                    .start = open_shard,
                                    .append = append,
                                    .finish = finish_hf,
                                    .close = close_shards};

const sl_target_ops sl_target_weights = {.plan = plan_weights,
                                         .start = open_shard,
                                         .append = append,
                                         .finish = finish_weights,
                                         .close = close_shards};
