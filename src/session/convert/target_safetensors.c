/* safetensors: alone, or with all that makes a Hugging Face directory. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"
#include "session/weights/weights.h"
#include "target.h"

static const char weights_name[] = "model.safetensors";

/* ---- the parameters ---- */

static sl_status plan_prefixed(sl_target *target, const char *prefix)
{
    SL_TRY(sl_target_list(target));
    target->names = calloc(target->item_count, sizeof *target->names);
    target->plans = calloc(target->item_count, sizeof *target->plans);
    if (!target->names || !target->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++) {
        const sl_gpt2_tensor *tensor = &target->items[i].tensor;
        snprintf(target->names[i].text, sizeof target->names[i].text, "%s%.47s", prefix,
                 sl_gpt2_tensors_name(tensor).text);
        target->plans[i] = (sl_safetensors_plan){.name = target->names[i].text,
                                                 .dim_count = tensor->dim_count,
                                                 .shape = {tensor->rows, tensor->columns},
                                                 .encoding = target->items[i].encoding};
    }
    return sl_safetensors_count_bytes(target->plans, target->item_count, &target->total_bytes);
}

static sl_status plan_weights(sl_target *target)
{
    return plan_prefixed(target, "");
}

static sl_status plan_hf(sl_target *target)
{
    return plan_prefixed(target, SL_WEIGHTS_PREFIX);
}

/* The writer has an order of its own. */
static sl_status order_items(sl_target *target)
{
    sl_target_item *ordered = calloc(target->item_count, sizeof *ordered);
    if (!ordered)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++)
        ordered[i] = target->items[sl_safetensors_writer_order(target->safetensors, i)];
    free(target->items);
    target->items = ordered;
    return SL_OK;
}

static sl_status start(sl_target *target)
{
    sl_file file;
    SL_TRY(sl_output_create(&target->output, weights_name, &file));
    SL_TRY(sl_safetensors_writer_start(&file, target->plans, target->item_count,
                                       &target->safetensors));
    return order_items(target);
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    return sl_safetensors_writer_append_stored(target->safetensors, stored, bytes);
}

static sl_status finish_weights(sl_target *target)
{
    uint64_t bytes;
    sl_hash_value hash;
    return sl_safetensors_writer_finish(target->safetensors, &bytes, &hash);
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
    bool has_end = sl_vocabulary_end_of_text(target->args->vocabulary) != SL_VOCABULARY_NONE;
    const char *token = has_end ? SL_VOCABULARY_END_OF_TEXT : NULL;
    json_t *root = pack_special(token);
    json_t *more =
        json_pack("{s:s, s:b, s:I}", "tokenizer_class", "GPT2Tokenizer", "add_prefix_space", 0,
                  "model_max_length", (json_int_t)target->args->reader->shape.context);
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
    SL_TRY(write_configs(target));
    if (!target->args->vocabulary)
        return SL_OK;
    SL_TRY(write_vocabulary(target));
    return write_special(target);
}

const sl_target_ops sl_target_hf = {
    .is_directory = true, .plan = plan_hf, .start = start, .append = append, .finish = finish_hf};

const sl_target_ops sl_target_weights = {
    .plan = plan_weights, .start = start, .append = append, .finish = finish_weights};
