/* See token_text.h. */
#include "token_text.h"

#include <stdio.h>

#include "text/bpe.h"

enum { PROMPT_CACHE_SLOTS = 1 };

static sl_status add_end_of_text(const sl_vocabulary *vocabulary, const char *option, sl_ids *ids)
{
    int32_t end = sl_vocabulary_end_of_text(vocabulary);
    if (end == SL_VOCABULARY_NONE)
        SL_FAIL(SL_ERROR_USAGE, "the tokenizer has no end of text to start from: give %s", option);
    SL_TRY(sl_ids_reserve(ids, 1));
    ids->items[ids->count++] = (uint32_t)end;
    return SL_OK;
}

sl_status sl_prompt_encode(const sl_vocabulary *vocabulary, uint32_t vocab, const char *option,
                           const char *text, uint64_t bytes, sl_ids *ids)
{
    sl_bpe *bpe = NULL;
    ids->count = 0;
    SL_TRY(sl_bpe_open(vocabulary, PROMPT_CACHE_SLOTS, &bpe));
    sl_status status = sl_bpe_encode(bpe, text, bytes, ids);
    sl_bpe_close(bpe);
    if (status == SL_OK && ids->count == 0)
        status = add_end_of_text(vocabulary, option, ids);
    SL_TRY(status);
    for (uint64_t i = 0; i < ids->count; i++)
        if (ids->items[i] >= vocab)
            SL_FAIL(SL_ERROR_USAGE, "%s: token %u is beyond the model's vocabulary of %u", option,
                    ids->items[i], vocab);
    return SL_OK;
}

sl_token_bytes sl_token_text(const sl_vocabulary *vocabulary, uint32_t id,
                             char room[SL_TOKEN_TEXT_BYTES])
{
    if (id < sl_vocabulary_count(vocabulary))
        return sl_vocabulary_token(vocabulary, id);
    return (sl_token_bytes){.text = room,
                            .bytes = (uint32_t)snprintf(room, SL_TOKEN_TEXT_BYTES, "<%u>", id)};
}
