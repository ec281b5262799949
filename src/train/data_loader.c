/* Tokens and targets of a row are the same T + 1 tokens, read for each. */
#include "data_loader.h"

#include <stdlib.h>
#include <string.h>

sl_status sl_data_loader_open(const sl_tokens *tokens, sl_data_order order, uint64_t seed,
                              uint32_t seq, sl_data_loader *out_loader)
{
    uint64_t start;
    SL_TRY(sl_tokens_row_start(order, seed, 0, seq, sl_tokens_count(tokens), &start));
    sl_data_loader loader = {
        .tokens = tokens, .order = order, .seed = seed, .seq = seq, .end_of_text = -1};
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

sl_status sl_data_loader_check_documents(const sl_data_loader *loader)
{
    if (loader->end_of_text < 0)
        SL_FAIL(SL_ERROR_USAGE, "--documents reset: which token ends a document is not known: add "
                                "--end-of-text ID, or --tokenizer DIR");
    return SL_OK;
}

/* What an input slot has of the row that was read. */
static void write_slot(const sl_data_loader *loader, uint32_t slot, int32_t *out)
{
    int32_t position = 0;
    if (slot != SL_INPUT_POSITIONS) {
        memcpy(out, loader->row + (slot == SL_INPUT_TARGETS), loader->seq * sizeof *out);
        return;
    }
    for (uint32_t t = 0; t < loader->seq; t++) {
        out[t] = position;
        position = loader->row[t] == loader->end_of_text ? 0 : position + 1;
    }
}

sl_status sl_data_loader_read(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                              int32_t *out_tokens)
{
    for (uint32_t i = 0; i < rows.count; i++) {
        uint64_t start;
        SL_TRY(sl_tokens_row_start(loader->order, loader->seed, rows.first + i, loader->seq,
                                   sl_tokens_count(loader->tokens), &start));
        SL_TRY(sl_tokens_read(loader->tokens, start, (uint64_t)loader->seq + 1, loader->row));
        write_slot(loader, slot, out_tokens + (size_t)i * loader->seq);
    }
    return SL_OK;
}

sl_status sl_data_loader_fill(const sl_data_loader *loader, sl_engine *engine, uint32_t plan_index,
                              sl_row_range rows)
{
    for (uint32_t slot = 0; slot < SL_INPUT_COUNT; slot++) {
        int32_t *input = sl_engine_input(engine, plan_index, slot);
        if (input != NULL) /* positions are asked for where documents are kept apart */
            SL_TRY(sl_data_loader_read(loader, rows, slot, input));
    }
    return SL_OK;
}
