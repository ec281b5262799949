/* safetensors: alone, or with all that makes a Hugging Face directory, in shards with an index
 * where one file would be too large. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"
#include "foreign/model_files.h"
#include "foreign/weights.h"
#include "target.h"

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

/* The order of the data in a file is that of its names. */
static int compare_items(const void *a, const void *b)
{
    const sl_target_item *left = a, *right = b;
    return strcmp(sl_model_tensors_name(&left->tensor).text,
                  sl_model_tensors_name(&right->tensor).text);
}

static sl_status list_shards(sl_target *target, uint64_t most)
{
    sl_weight_shards *shards = target->shards = calloc(1, sizeof *shards);
    if (shards)
        shards->ends = calloc(target->item_count, sizeof *shards->ends);
    if (!shards || !shards->ends)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    SL_TRY(split(target, most));
    for (uint32_t i = 0; i < shards->count; i++) {
        uint32_t first = first_of(shards, i);
        qsort(target->items + first, shards->ends[i] - first, sizeof *target->items, compare_items);
    }
    return SL_OK;
}

/* ---- the parameters ---- */

static sl_status name_tensors(sl_target *target, const char *prefix)
{
    target->names = calloc(target->item_count, sizeof *target->names);
    target->plans = calloc(target->item_count, sizeof *target->plans);
    if (!target->names || !target->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++) {
        const sl_foreign_tensor *tensor = &target->items[i].tensor;
        snprintf(target->names[i].text, sizeof target->names[i].text, "%s%.47s", prefix,
                 sl_model_tensors_name(tensor).text);
        target->plans[i] = (sl_safetensors_plan){.name = target->names[i].text,
                                                 .dim_count = tensor->dim_count,
                                                 .shape = {tensor->rows, tensor->columns},
                                                 .encoding = target->items[i].encoding};
    }
    return SL_OK;
}

/* `most` bytes of tensors go into a file; 0: all. */
static sl_status plan_prefixed(sl_target *target, const char *prefix, uint64_t most)
{
    uint64_t bytes;
    SL_TRY(sl_target_list(target));
    SL_TRY(list_shards(target, most));
    SL_TRY(name_tensors(target, prefix));
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
    return plan_prefixed(target, "", 0);
}

static sl_status plan_hf(sl_target *target)
{
    return plan_prefixed(target, SL_WEIGHTS_PREFIX, target->args->shard_bytes);
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

static sl_status write_configs(sl_target *target)
{
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    uint32_t end = sl_target_end_of_text(target);
    char *text;
    SL_TRY(sl_weights_format_config(&target->args->reader->shape, dtypes[target->args->encoding],
                                    end, &text));
    sl_status status = write_text(target, "config.json", text);
    free(text);
    SL_TRY(status);
    return write_json(
        target, "generation_config.json",
        json_pack("{s:I, s:I}", "bos_token_id", (json_int_t)end, "eos_token_id", (json_int_t)end));
}

/* A vocabulary without an end of text has no special token: null keeps readers from adding one. */
static json_t *pack_special(const char *token)
{
    return json_pack("{s:s?, s:s?, s:s?}", "bos_token", token, "eos_token", token, "unk_token",
                     token);
}

static sl_status write_special(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    bool has_end = sl_vocabulary_end_of_text(target->args->vocabulary) != SL_VOCABULARY_NONE;
    const char *token = has_end ? SL_VOCABULARY_END_OF_TEXT : NULL;
    json_t *root = pack_special(token);
    json_t *more =
        json_pack("{s:s, s:b, s:I}", "tokenizer_class", sl_model_names_of(shape)->tokenizer_class,
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
    char *tokens, *merges;
    SL_TRY(sl_vocabulary_format(target->args->vocabulary, &tokens, &merges));
    sl_status status = write_text(target, SL_VOCABULARY_TOKENS_FILE, tokens);
    if (status == SL_OK)
        status = write_text(target, SL_VOCABULARY_MERGES_FILE, merges);
    free(tokens);
    free(merges);
    return status;
}

static sl_status finish_hf(sl_target *target)
{
    SL_TRY(finish_weights(target));
    SL_TRY(write_index(target));
    SL_TRY(write_configs(target));
    if (!target->args->vocabulary)
        return SL_OK;
    SL_TRY(write_vocabulary(target));
    return write_special(target);
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
