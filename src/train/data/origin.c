/* Believes descriptions, and reads samples of files that have none; see origin.h. */
#include "origin.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

static const uint64_t tokens_looked_at = UINT64_C(1) << 22; /* of all files together */

static sl_status add_description(const sl_token_description *description, const char *path,
                                 sl_origin *origin)
{
    const sl_token_description *first = &origin->description;
    if (origin->is_described && strcmp(first->tokenizer, description->tokenizer) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s was made with the tokenizer \"%s\", but %s with \"%s\": an id means another "
                "text in each; make the files of one model with one tokenizer",
                origin->path.text, sl_files_show(first->tokenizer).text, sl_files_show(path).text,
                sl_files_show(description->tokenizer).text);
    if (origin->is_described)
        return SL_OK;
    origin->is_described = true;
    origin->description = *description;
    origin->path = sl_files_show(path);
    return SL_OK;
}

sl_status sl_origin_look(const sl_tokens *tokens, sl_origin *origin)
{
    for (uint32_t i = 0; tokens && i < sl_tokens_file_count(tokens); i++) {
        const sl_token_description *description = sl_tokens_file_description(tokens, i);
        if (description)
            SL_TRY(add_description(description, sl_tokens_file_path(tokens, i), origin));
        else if (!sl_tokens_file_is_text(tokens, i))
            origin->has_unknown = true;
    }
    return SL_OK;
}

bool sl_origin_is_known(const sl_origin *origin)
{
    return origin->is_described && !origin->has_unknown;
}

/* ---- the ids ---- */

/* True of a file of tokens without a description, or with one whose vocabulary is larger than the
 * model's. */
static bool is_looked_at(const sl_tokens *tokens, uint32_t file, uint32_t vocab)
{
    const sl_token_description *description = sl_tokens_file_description(tokens, file);
    return !sl_tokens_file_is_text(tokens, file) && !(description && description->vocab <= vocab);
}

typedef struct seen {
    sl_largest_id largest; /* of all files that were looked at */
    uint64_t looked_at;    /* tokens of them */
    uint32_t file;         /* with the largest */
    uint32_t file_count;
} seen;

static sl_status look_at_file(const sl_tokens *tokens, uint32_t file, uint64_t budget, seen *of)
{
    sl_largest_id largest;
    SL_TRY(sl_tokens_find_largest(tokens, file, budget, &largest));
    of->looked_at += largest.looked_at;
    if (of->file_count++ == 0 || largest.id > of->largest.id) {
        of->largest = largest;
        of->file = file;
    }
    return SL_OK;
}

static sl_status look_at_all(const sl_tokens *tokens, uint32_t vocab, seen *of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sl_tokens_file_count(tokens); i++)
        count += is_looked_at(tokens, i, vocab);
    for (uint32_t i = 0; i < sl_tokens_file_count(tokens) && count > 0; i++)
        if (is_looked_at(tokens, i, vocab))
            SL_TRY(look_at_file(tokens, i, tokens_looked_at / count, of));
    return SL_OK;
}

/* A vocabulary that is a little larger is a padded one, or its last ids are rare. */
static void tell_if_idle(const sl_tokens *tokens, uint32_t vocab, const seen *of)
{
    const uint32_t used = of->largest.id + 1;
    if (of->file_count == 0 || vocab - used <= vocab / SL_ORIGIN_IDLE_TOLD)
        return;
    sl_log_write(SL_LOG_WARNING,
                 "the vocabulary of %u ids is larger than the ids seen: %s does not say its own, "
                 "and of %" PRIu64 " tokens that were looked at the largest is %u; give "
                 "--tokenizer DIR, or --vocab %u if it is enough",
                 vocab, sl_files_show(sl_tokens_file_path(tokens, of->file)).text, of->looked_at,
                 of->largest.id, used);
}

sl_status sl_origin_check(const sl_tokens *tokens, uint32_t vocab, bool tells)
{
    seen of = {0};
    if (!tokens)
        return SL_OK;
    SL_TRY(look_at_all(tokens, vocab, &of));
    if (of.file_count > 0 && of.largest.id >= vocab)
        SL_FAIL(SL_ERROR_DATA,
                "%s: token %" PRIu64
                " of the file is %u, not below the vocabulary %u: give --vocab "
                "of at least %u for a new model, or data that were made for this one",
                sl_files_show(sl_tokens_file_path(tokens, of.file)).text, of.largest.token,
                of.largest.id, vocab, of.largest.id + 1);
    if (tells)
        tell_if_idle(tokens, vocab, &of);
    return SL_OK;
}
