/* GGUF as llama.cpp reads it: its keys, its tokenizer, its tensors, by the row of the model. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "target.h"

enum {
    TOKEN_NORMAL = 1,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    QUANTIZATION_VERSION = 2
};

/* ---- values ---- */

/* llama.cpp's number for what most of the weights are. */
static uint32_t file_type(sl_encoding encoding)
{
    static const uint32_t numbers[] = {0, 32, 1, 7}; /* F32, BF16, F16, Q8_0 */
    return numbers[encoding];
}

static void add_shape(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const sl_model_names *names = sl_model_names_of(shape);
    const uint64_t inner = names->size(shape, SL_SIZE_INNER);
    char name[64];
    snprintf(name, sizeof name, "%s, %u layers, %u wide", names->title, shape->layers,
             shape->width);
    sl_gguf_add_text(target->gguf, "general.architecture", names->gguf_architecture);
    sl_gguf_add_text(target->gguf, "general.type", "model");
    sl_gguf_add_text(target->gguf, "general.name", name);
    sl_gguf_add_u32(target->gguf, "general.alignment", 32);
    sl_gguf_add_u32(target->gguf, "general.file_type", file_type(target->args->encoding));
    sl_gguf_add_u32(target->gguf, "general.quantization_version", QUANTIZATION_VERSION);
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "block_count").text,
                    shape->layers);
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "context_length").text,
                    shape->context);
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "embedding_length").text,
                    shape->width);
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "feed_forward_length").text,
                    (uint32_t)inner);
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "attention.head_count").text,
                    shape->heads);
    sl_gguf_add_f32(target->gguf, sl_model_names_gguf_key(shape, names->gguf_epsilon).text,
                    (float)names->epsilon(shape));
    sl_gguf_add_u32(target->gguf, sl_model_names_gguf_key(shape, "vocab_size").text, shape->vocab);
    if (names->add_gguf)
        names->add_gguf(shape, target->gguf);
}

/* One item of the list: a token, or two with a space between. */
static sl_status add_words(sl_gguf *gguf, sl_token_bytes first, const sl_token_bytes *second)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a token");
    sl_vocabulary_write_token(first, stream);
    if (second) {
        putc(' ', stream);
        sl_vocabulary_write_token(*second, stream);
    }
    bool is_whole = fclose(stream) == 0;
    if (is_whole)
        sl_gguf_add_item_text(gguf, text, bytes);
    free(text);
    if (!is_whole)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a token");
    return SL_OK;
}

/* What is found in texts as a whole is written as text, all else as characters for bytes. */
static sl_status add_token(sl_gguf *gguf, sl_token_bytes token)
{
    if (token.kind == SL_TOKEN_WORD)
        return add_words(gguf, token, NULL);
    sl_gguf_add_item_text(gguf, token.text, token.bytes);
    return SL_OK;
}

/* Ids that the vocabulary lacks are there too: the model has rows for them. */
static sl_status add_tokens(sl_gguf *gguf, const sl_vocabulary *vocabulary, uint32_t id_count)
{
    char unused[32];
    sl_gguf_add_list(gguf, "tokenizer.ggml.tokens", SL_GGUF_TEXT, id_count);
    for (uint32_t id = 0; id < sl_vocabulary_count(vocabulary); id++)
        SL_TRY(add_token(gguf, sl_vocabulary_token(vocabulary, id)));
    for (uint32_t id = sl_vocabulary_count(vocabulary); id < id_count; id++) {
        snprintf(unused, sizeof unused, "[PAD%u]", id);
        sl_gguf_add_item_text(gguf, unused, strlen(unused));
    }
    return SL_OK;
}

/* llama.cpp finds tokens of control and of users in texts, and no others. */
static int32_t find_type(const sl_vocabulary *vocabulary, uint32_t id)
{
    static const int32_t types[] = {[SL_TOKEN_WORD] = TOKEN_NORMAL,
                                    [SL_TOKEN_ADDED] = TOKEN_USER,
                                    [SL_TOKEN_SPECIAL] = TOKEN_CONTROL};
    if (id >= sl_vocabulary_count(vocabulary))
        return TOKEN_UNUSED;
    if ((int64_t)id == sl_vocabulary_end_of_text(vocabulary))
        return TOKEN_CONTROL;
    return types[sl_vocabulary_token(vocabulary, id).kind];
}

static void add_token_types(sl_gguf *gguf, const sl_vocabulary *vocabulary, uint32_t id_count)
{
    sl_gguf_add_list(gguf, "tokenizer.ggml.token_type", SL_GGUF_INT32, id_count);
    for (uint32_t id = 0; id < id_count; id++)
        sl_gguf_add_item_i32(gguf, find_type(vocabulary, id));
}

static sl_status add_merges(sl_gguf *gguf, const sl_vocabulary *vocabulary)
{
    const sl_merge *merges = sl_vocabulary_merges(vocabulary);
    uint32_t count = sl_vocabulary_merge_count(vocabulary);
    sl_gguf_add_list(gguf, "tokenizer.ggml.merges", SL_GGUF_TEXT, count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_token_bytes right = sl_vocabulary_token(vocabulary, merges[i].right);
        SL_TRY(add_words(gguf, sl_vocabulary_token(vocabulary, merges[i].left), &right));
    }
    return SL_OK;
}

/* What GGUF calls the pattern that cuts texts into words. It follows from the vocabulary alone: any
 * model may be trained with any vocabulary. */
static sl_status name_pattern(const sl_vocabulary *vocabulary, const char **out_name)
{
    const sl_pretokenizer *pretokenizer = sl_vocabulary_pretokenizer(vocabulary);
    *out_name = "gpt-2";
    if (!pretokenizer)
        return SL_OK;
    *out_name =
        pretokenizer->pattern_count == 1 ? sl_pattern_gguf_name(pretokenizer->patterns[0]) : NULL;
    if (!*out_name)
        SL_FAIL(SL_ERROR_DATA,
                "GGUF has no name for the pattern of the tokenizer, so texts would get other ids "
                "in llama.cpp: --format hf keeps the tokenizer");
    return SL_OK;
}

static sl_status add_vocabulary(sl_target *target)
{
    const sl_vocabulary *vocabulary = target->args->vocabulary;
    uint32_t id_count = target->args->reader->shape.vocab, end = sl_target_end_of_text(target);
    const char *pattern;
    const sl_model_names *names = sl_model_names_of(&target->args->reader->shape);
    sl_gguf_add_text(target->gguf, "tokenizer.ggml.model",
                     vocabulary ? names->gguf_tokenizer : "no_vocab");
    if (!vocabulary)
        return SL_OK;
    SL_TRY(name_pattern(vocabulary, &pattern));
    sl_gguf_add_text(target->gguf, "tokenizer.ggml.pre", pattern);
    SL_TRY(add_tokens(target->gguf, vocabulary, id_count));
    add_token_types(target->gguf, vocabulary, id_count);
    SL_TRY(add_merges(target->gguf, vocabulary));
    if (sl_vocabulary_end_of_text(vocabulary) != SL_VOCABULARY_NONE) {
        sl_gguf_add_u32(target->gguf, "tokenizer.ggml.bos_token_id", end);
        sl_gguf_add_u32(target->gguf, "tokenizer.ggml.eos_token_id", end);
    }
    sl_gguf_add_bool(target->gguf, "tokenizer.ggml.add_bos_token", false);
    return SL_OK;
}

/* ---- tensors ---- */

static sl_encoding choose_encoding(const sl_target_item *item, sl_encoding wanted)
{
    const sl_foreign_tensor *tensor = &item->tensor;
    uint64_t row_elements = tensor->is_linear ? tensor->rows : tensor->columns;
    if (item->values || tensor->dim_count == 1 ||
        sl_model_tensors_kind(tensor)->rows == SL_SIZE_CONTEXT)
        return SL_ENCODING_FP32;
    if (wanted == SL_ENCODING_Q8_0 && row_elements % SL_ENCODING_Q8_0_ELEMENTS != 0)
        return SL_ENCODING_FP16;
    return wanted;
}

static sl_gguf_tensor describe(const sl_target_item *item)
{
    const sl_foreign_tensor *tensor = &item->tensor;
    sl_gguf_tensor described = {.dim_count = tensor->dim_count,
                                .shape = {tensor->rows, tensor->columns},
                                .encoding = item->encoding};
    if (tensor->is_linear) {
        described.shape[0] = tensor->columns;
        described.shape[1] = tensor->rows;
    }
    if (item->values)
        snprintf(described.name, sizeof described.name, "rope_freqs.weight");
    else
        memcpy(described.name, sl_model_tensors_gguf_name(tensor).text, sizeof described.name);
    return described;
}

static sl_status set_tensors(sl_target *target)
{
    uint32_t other_count = 0;
    sl_gguf_tensor *tensors = calloc(target->item_count, sizeof *tensors);
    if (!tensors)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", target->item_count);
    for (uint32_t i = 0; i < target->item_count; i++) {
        sl_target_item *item = &target->items[i];
        item->encoding = choose_encoding(item, item->encoding);
        other_count += item->encoding == SL_ENCODING_FP16;
        tensors[i] = describe(item);
    }
    if (target->args->encoding == SL_ENCODING_Q8_0 && other_count > 0)
        sl_log_write(SL_LOG_NOTE,
                     "%u tensors are fp16: their rows are no whole blocks of 32 elements of q8_0",
                     other_count);
    sl_status status =
        sl_gguf_set_tensors(target->gguf, tensors, target->item_count, &target->total_bytes);
    free(tensors);
    return status;
}

/* What the rotary frequencies are divided by is a tensor there, behind the others. */
static sl_status add_divisors(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const sl_model_names *names = sl_model_names_of(shape);
    uint64_t count;
    if (!names->rotary_divisors)
        return SL_OK;
    target->rotary_divisors = calloc(shape->head, sizeof *target->rotary_divisors);
    if (!target->rotary_divisors)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u frequencies", shape->head);
    SL_TRY(names->rotary_divisors(shape, target->rotary_divisors, &count));
    if (count > 0)
        target->items[target->item_count++] = (sl_target_item){
            .tensor = {.names = names, .dim_count = 1, .rows = count, .columns = 1},
            .encoding = SL_ENCODING_FP32,
            .part = {.row_count = count, .column_count = 1},
            .values = target->rotary_divisors};
    return SL_OK;
}

/* llama.cpp turns neighbours, files of others the halves of a head. */
static void interleave_heads(sl_target *target)
{
    for (uint32_t i = 0; i < target->item_count; i++)
        if (sl_model_tensors_kind(&target->items[i].tensor)->is_interleaved)
            target->items[i].pair_rows = target->args->reader->shape.head;
}

static sl_status plan(sl_target *target)
{
    const sl_model_names *names = sl_model_names_of(&target->args->reader->shape);
    if (!names->gguf_architecture)
        SL_FAIL(SL_ERROR_DATA,
                "no file for llama.cpp can be written of a %s: --format hf writes one for "
                "transformers",
                names->title);
    target->is_out_in = true;
    SL_TRY(sl_target_list(target));
    interleave_heads(target);
    SL_TRY(add_divisors(target));
    SL_TRY(sl_gguf_open(&target->gguf));
    add_shape(target);
    SL_TRY(add_vocabulary(target));
    return set_tensors(target);
}

static sl_status start(sl_target *target)
{
    sl_file file;
    SL_TRY(sl_output_create(&target->output, NULL, &file));
    return sl_gguf_start(target->gguf, &file);
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    return sl_gguf_append(target->gguf, stored, bytes);
}

static sl_status finish(sl_target *target)
{
    return sl_gguf_finish(target->gguf);
}

const sl_target_ops sl_target_gguf = {
    .plan = plan, .start = start, .append = append, .finish = finish};
