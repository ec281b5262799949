/* One read of T + 1 tokens a row serves tokens and targets. */
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

sl_status sl_feed_fill(const sl_feed *feed, sl_engine *engine, uint32_t plan_index,
                       uint32_t micro_batch, uint64_t first_row, uint32_t row_count)
{
    int32_t *tokens = sl_engine_input(engine, plan_index, 2 * micro_batch);
    int32_t *targets = sl_engine_input(engine, plan_index, 2 * micro_batch + 1);
    size_t row_bytes = feed->seq * sizeof *tokens;
    for (uint32_t i = 0; i < row_count; i++) {
        uint64_t start;
        SL_TRY(sl_tokens_row_start(feed->order, feed->seed, first_row + i, feed->seq,
                                   sl_tokens_count(feed->tokens), &start));
        SL_TRY(sl_tokens_read(feed->tokens, start, (uint64_t)feed->seq + 1, feed->row));
        memcpy(tokens + (size_t)i * feed->seq, feed->row, row_bytes);
        memcpy(targets + (size_t)i * feed->seq, feed->row + 1, row_bytes);
    }
    return SL_OK;
}
