/* Tokens and targets of a row are the same T + 1 tokens, read for each. */
#include "data_loader.h"

#include <stdlib.h>
#include <string.h>

sl_status sl_data_loader_open(const sl_tokens *tokens, sl_data_order order, uint64_t seed,
                              uint32_t seq, sl_data_loader *out_loader)
{
    uint64_t start;
    SL_TRY(sl_tokens_row_start(order, seed, 0, seq, sl_tokens_count(tokens), &start));
    sl_data_loader loader = {.tokens = tokens, .order = order, .seed = seed, .seq = seq};
    loader.row = malloc(((size_t)seq + 1) * sizeof *loader.row);
    if (!loader.row)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a row of tokens");
    *out_loader = loader;
    return SL_OK;
}

void sl_data_loader_close(sl_data_loader *loader)
{
    free(loader->row);
    loader->row = NULL;
}

uint64_t sl_data_loader_row_count(const sl_data_loader *loader)
{
    return (sl_tokens_count(loader->tokens) - 1) / loader->seq;
}

sl_status sl_data_loader_read(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                              int32_t *out_tokens)
{
    const int32_t *from = loader->row + (slot == SL_INPUT_TARGETS);
    for (uint32_t i = 0; i < rows.count; i++) {
        uint64_t start;
        SL_TRY(sl_tokens_row_start(loader->order, loader->seed, rows.first + i, loader->seq,
                                   sl_tokens_count(loader->tokens), &start));
        SL_TRY(sl_tokens_read(loader->tokens, start, (uint64_t)loader->seq + 1, loader->row));
        memcpy(out_tokens + (size_t)i * loader->seq, from, loader->seq * sizeof *out_tokens);
    }
    return SL_OK;
}

sl_status sl_data_loader_fill(const sl_data_loader *loader, sl_engine *engine, uint32_t plan_index,
                              sl_row_range rows)
{
    for (uint32_t slot = 0; slot < SL_INPUT_COUNT; slot++)
        SL_TRY(sl_data_loader_read(loader, rows, slot, sl_engine_input(engine, plan_index, slot)));
    return SL_OK;
}
