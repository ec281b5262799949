/* Rows of tokens on their way into the inputs of a plan. */
#ifndef SL_TRAIN_FEED_H
#define SL_TRAIN_FEED_H

#include "files/tokens.h"
#include "sluice/engine.h"

typedef struct sl_feed {
    const sl_tokens *tokens; /* borrowed */
    sl_data_order order;
    uint64_t seed;
    uint32_t seq; /* T: tokens of a row */
    int32_t *row; /* [T + 1] */
} sl_feed;

/* Checks that the files hold a row. sl_feed_close frees the row buffer; `tokens` stays the
 * caller's. SL_ERROR_DATA: too few tokens. */
sl_status sl_feed_open(const sl_tokens *tokens, sl_data_order order, uint64_t seed, uint32_t seq,
                       sl_feed *out_feed);
void sl_feed_close(sl_feed *feed);

/* Whole rows without overlap: floor((n - 1) / T). */
uint64_t sl_feed_row_count(const sl_feed *feed);

/* Rows of a micro-batch. */
typedef struct sl_feed_rows {
    uint64_t first;
    uint32_t count;
} sl_feed_rows;

/* Writes tokens (SL_INPUT_TOKENS) or targets, one token later, of `rows`: [count, T]. One thread at
 * a time; no allocation. */
sl_status sl_feed_read(const sl_feed *feed, sl_feed_rows rows, uint32_t slot, int32_t *out_tokens);

/* Reads `rows` into the inputs of a plan that the caller fills. */
sl_status sl_feed_fill(const sl_feed *feed, sl_engine *engine, uint32_t plan_index,
                       sl_feed_rows rows);

#endif
