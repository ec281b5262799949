/* Tokens and targets of a row are the same T + 1 tokens, read for each. */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

sl_status sl_feed_open(const sl_tokens *tokens, sl_data_order order, uint64_t seed, uint32_t seq,
                       sl_feed *out_feed)
{
    uint64_t start;
    SL_TRY(sl_tokens_row_start(order, seed, 0, seq, sl_tokens_count(tokens), &start));
    sl_feed feed = {.tokens = tokens, .order = order, .seed = seed, .seq = seq};
    feed.row = malloc(((size_t)seq + 1) * sizeof *feed.row);
    if (!feed.row)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a row of tokens");
    *out_feed = feed;
    return SL_OK;
}

void sl_feed_close(sl_feed *feed)
{
    free(feed->row);
    feed->row = NULL;
}

uint64_t sl_feed_row_count(const sl_feed *feed)
{
    return (sl_tokens_count(feed->tokens) - 1) / feed->seq;
}

sl_status sl_feed_read(const sl_feed *feed, sl_feed_rows rows, uint32_t slot, int32_t *out_tokens)
{
    const int32_t *from = feed->row + (slot == SL_INPUT_TARGETS);
    for (uint32_t i = 0; i < rows.count; i++) {
        uint64_t start;
        SL_TRY(sl_tokens_row_start(feed->order, feed->seed, rows.first + i, feed->seq,
                                   sl_tokens_count(feed->tokens), &start));
        SL_TRY(sl_tokens_read(feed->tokens, start, (uint64_t)feed->seq + 1, feed->row));
        memcpy(out_tokens + (size_t)i * feed->seq, from, feed->seq * sizeof *out_tokens);
    }
    return SL_OK;
}

sl_status sl_feed_fill(const sl_feed *feed, sl_engine *engine, uint32_t plan_index,
                       sl_feed_rows rows)
{
    for (uint32_t slot = 0; slot < SL_INPUT_COUNT; slot++)
        SL_TRY(sl_feed_read(feed, rows, slot, sl_engine_input(engine, plan_index, slot)));
    return SL_OK;
}
