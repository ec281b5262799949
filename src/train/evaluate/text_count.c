/* The sizes of each id once, then a walk over the tokens. */
#include "text_count.h"

#include <stdlib.h>

enum { BLOCK_TOKENS = 1 << 16 };

static void measure_ids(const sl_vocabulary *vocabulary, sl_text_count *sizes)
{
    const uint32_t id_count = sl_vocabulary_count(vocabulary);
    const int32_t end = sl_vocabulary_end_of_text(vocabulary);
    for (uint32_t id = 0; id < id_count; id++) {
        const sl_token_bytes token = sl_vocabulary_token(vocabulary, id);
        if ((int32_t)id == end)
            continue;
        sizes[id].bytes = token.bytes;
        for (uint32_t i = 0; i < token.bytes; i++)
            sizes[id].characters += ((unsigned char)token.text[i] & 0xc0) != 0x80;
    }
}

typedef struct counting {
    const sl_tokens *tokens;
    uint32_t id_count;
    sl_text_count *sizes; /* [id_count] */
    int32_t *block;       /* [BLOCK_TOKENS] */
} counting;

static sl_status add_tokens(const counting *self, uint64_t first, uint64_t count,
                            sl_text_count *sum)
{
    for (uint64_t done = 0; done < count; done += BLOCK_TOKENS) {
        const uint64_t left = count - done, part = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
        SL_TRY(sl_tokens_read(self->tokens, first + done, part, self->block));
        for (uint64_t i = 0; i < part; i++) {
            const uint32_t id = (uint32_t)self->block[i];
            if (id >= self->id_count)
                continue;
            sum->bytes += self->sizes[id].bytes;
            sum->characters += self->sizes[id].characters;
        }
    }
    return SL_OK;
}

sl_status sl_text_count_tokens(const sl_tokens *tokens, uint64_t first, uint64_t count,
                               const sl_vocabulary *vocabulary, sl_text_count *out_count)
{
    counting self = {.tokens = tokens, .id_count = sl_vocabulary_count(vocabulary)};
    sl_status status = SL_ERROR_SYSTEM;
    *out_count = (sl_text_count){0};
    self.sizes = calloc(self.id_count, sizeof *self.sizes);
    self.block = malloc(BLOCK_TOKENS * sizeof *self.block);
    if (self.sizes && self.block) {
        measure_ids(vocabulary, self.sizes);
        status = add_tokens(&self, first, count, out_count);
    } else
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to count text");
    free(self.sizes);
    free(self.block);
    return status;
}
