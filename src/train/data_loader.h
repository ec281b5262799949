/* Rows of tokens from the data files, in the order of training, for the inputs of a plan. */
#ifndef SL_TRAIN_DATA_LOADER_H
#define SL_TRAIN_DATA_LOADER_H

#include "files/tokens.h"
#include "sluice/engine.h"

typedef struct sl_data_loader {
    const sl_tokens *tokens; /* borrowed */
    sl_data_order order;
    uint64_t seed;
    uint32_t seq;        /* T: tokens of a row */
    int32_t end_of_text; /* the id that ends a document; -1: not known */
    int32_t *row;        /* [T + 1] */
} sl_data_loader;

/* Checks that the files hold a row. sl_data_loader_close frees the row buffer; `tokens` stays the
 * caller's. SL_ERROR_DATA: too few tokens. */
sl_status sl_data_loader_open(const sl_tokens *tokens, sl_data_order order, uint64_t seed,
                              uint32_t seq, sl_data_loader *out_loader);
void sl_data_loader_close(sl_data_loader *loader);

/* Whole rows without overlap: floor((n - 1) / T). */
uint64_t sl_data_loader_row_count(const sl_data_loader *loader);

/* Rows that follow each other: those of a micro-batch. */
typedef struct sl_row_range {
    uint64_t first;
    uint32_t count;
} sl_row_range;

/* Writes tokens (SL_INPUT_TOKENS), targets, one token later, or positions, from 0 on in each row and
 * behind each end of text, of `rows`: [count, T]. One thread at a time; no allocation. */
sl_status sl_data_loader_read(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                              int32_t *out_tokens);

/* SL_ERROR_USAGE where it is not known what ends a document. */
sl_status sl_data_loader_check_documents(const sl_data_loader *loader);

/* Reads `rows` into the inputs of a plan that the caller fills. */
sl_status sl_data_loader_fill(const sl_data_loader *loader, sl_engine *engine, uint32_t plan_index,
                              sl_row_range rows);

#endif
