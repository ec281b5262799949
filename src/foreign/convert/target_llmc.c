/* llm.c's model, and its tokenizer beside it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "target.h"

enum {
    TOKENIZER_MAGIC = 20240328,
    TOKENIZER_VERSION = 2, /* with the end of text */
    TOKENIZER_WORDS = 256,
    TOKEN_BYTES_MAX = 255,
    HEADER_BYTES = SL_LLMC_HEADER_WORDS * 4
};

static sl_status plan(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const sl_llmc_shape llmc = sl_model_tensors_llmc(shape);
    uint64_t elements;
    if (!sl_model_names_of(shape)->is_in_llmc)
        SL_FAIL(SL_ERROR_USAGE, "--format llmc: llm.c has no %s", sl_model_names_of(shape)->title);
    SL_TRY(sl_llmc_check(&llmc, &elements));
    target->is_out_in = true;
    SL_TRY(sl_target_list(target));
    for (uint32_t i = 0; i < target->item_count; i++) {
        sl_target_item *item = &target->items[i];
        item->tensor = sl_model_tensors_nth_by_kind(shape, i);
        item->part = sl_target_whole(target, &item->tensor);
    }
    target->items[0].padding_elements = (llmc.padded_vocab - llmc.vocab) * (uint64_t)llmc.width;
    target->total_bytes = HEADER_BYTES + sl_encoding_bytes(target->args->encoding, elements);
    return SL_OK;
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    return sl_files_append_pushed(&target->file, &target->pushed_bytes, bytes, stored);
}

/* ---- the tokenizer ---- */

/* What keeps llm.c from reading it; NULL: nothing. */
static const char *find_obstacle(const sl_vocabulary *vocabulary)
{
    if (sl_vocabulary_end_of_text(vocabulary) == SL_VOCABULARY_NONE)
        return "the vocabulary has no end of text";
    for (uint32_t id = 0; id < sl_vocabulary_count(vocabulary); id++)
        if (sl_vocabulary_token(vocabulary, id).bytes > TOKEN_BYTES_MAX)
            return "a token has more than 255 bytes";
    return NULL;
}

static sl_status format_tokenizer(const sl_vocabulary *vocabulary, uint32_t end, char **out_text,
                                  size_t *out_bytes)
{
    uint32_t words[TOKENIZER_WORDS] = {TOKENIZER_MAGIC, TOKENIZER_VERSION,
                                       sl_vocabulary_count(vocabulary), end};
    FILE *stream = open_memstream(out_text, out_bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a tokenizer");
    fwrite(words, 1, sizeof words, stream);
    for (uint32_t id = 0; id < sl_vocabulary_count(vocabulary); id++) {
        sl_token_bytes token = sl_vocabulary_token(vocabulary, id);
        putc((int)token.bytes, stream);
        fwrite(token.text, 1, token.bytes, stream);
    }
    bool is_whole = !ferror(stream);
    if (fclose(stream) == 0 && is_whole)
        return SL_OK;
    free(*out_text);
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a tokenizer");
}

static sl_status open_tokenizer(sl_target *target)
{
    char *path = NULL;
    const char *to = target->output.path;
    int length = (int)strlen(to) - (sl_files_name_ends(to, ".bin") ? 4 : 0);
    const char *obstacle = find_obstacle(target->args->vocabulary);
    if (obstacle) {
        sl_log_write(SL_LOG_WARNING, "no tokenizer of llm.c is written: %s", obstacle);
        return SL_OK;
    }
    if (asprintf(&path, "%.*s_tokenizer.bin", length, to) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = sl_output_open(path, false, target->args->overwrites, &target->beside);
    free(path);
    return status;
}

static sl_status write_tokenizer(sl_target *target)
{
    char *text = NULL;
    size_t bytes = 0;
    SL_TRY(
        format_tokenizer(target->args->vocabulary, sl_target_end_of_text(target), &text, &bytes));
    sl_status status = sl_output_write_text(&target->beside, NULL, text, bytes);
    free(text);
    return status;
}

/* ---- the file ---- */

static sl_status start(sl_target *target)
{
    int32_t words[SL_LLMC_HEADER_WORDS];
    const sl_llmc_shape llmc = sl_model_tensors_llmc(&target->args->reader->shape);
    sl_llmc_format_header(&llmc, target->args->encoding, words);
    if (target->args->vocabulary)
        SL_TRY(open_tokenizer(target)); /* what is in its place is told before the work */
    SL_TRY(sl_output_create(&target->output, NULL, &target->file));
    SL_TRY(sl_files_reserve(&target->file, target->total_bytes));
    return append(target, words, sizeof words);
}

static sl_status finish(sl_target *target)
{
    SL_TRY(sl_files_sync(&target->file));
    return target->beside.path ? write_tokenizer(target) : SL_OK;
}

const sl_target_ops sl_target_llmc = {
    .plan = plan, .start = start, .append = append, .finish = finish};
