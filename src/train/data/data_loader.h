/* Rows of tokens from the data files, in the order of training, for the inputs of a plan.
 *
 * A run of tokens has parts (data_files.h). Which part a row of a blend comes from follows from the
 * seed and the row alone: of the first g rows that no part before has, part i gets
 * floor(g share_i + phase_i), the phase drawn by the seed. So after any number of rows each part
 * has had its share to within one row for each part before it, no order of ranks and no stop
 * changes that, and the rows of a part come in its own order: row k of it is its k-th.
 *
 * Of examples a row holds whole ones (example_rows.h), and orders are orders of these rows.
 *
 * Or a program gives the rows itself (sluice/options.h); then there are no files and no parts.
 */
#ifndef SL_TRAIN_DATA_LOADER_H
#define SL_TRAIN_DATA_LOADER_H

#include "data_files.h"
#include "engine/engine.h"
#include "example_rows.h"
#include "files/tokens.h"
#include "sluice/options.h"

/* Rows of a program's own; all 0: there are none. */
typedef struct sl_own_rows {
    sl_rows call;
    void *user;
    uint64_t count; /* UINT64_MAX: no end is known */
} sl_own_rows;

typedef struct sl_data_loader_args {
    sl_own_rows own;         /* instead of `tokens` and `parts` */
    uint32_t own_batch;      /* rows that are asked of it at once */
    uint32_t vocab;          /* of them: ids are less */
    const sl_tokens *tokens; /* borrowed */
    sl_data_parts parts;     /* taken over, also on failure */
    bool joins;              /* whole rows of one part after those of the other; else a blend */
    sl_data_order order;
    uint64_t seed;
    uint32_t seq;        /* T: tokens of a row */
    bool by_document;    /* positions are asked for */
    int32_t end_of_text; /* the id that ends a document; -1: not known */
    bool has_examples; /* the tokens are examples: rows hold whole ones, and some targets are masked
                        */
    bool packs;        /* several examples share a row */
} sl_data_loader_args;

typedef struct sl_data_loader {
    sl_data_loader_args args;
    uint32_t seq;
    int32_t *row;                  /* [T + 1]; NULL: closed */
    struct sl_own_batch *own_read; /* what was read last of own rows */
    sl_example_rows *examples;     /* [parts.count]; NULL: the tokens are no examples */
} sl_data_loader;

/* Checks that the parts hold a row: each of a blend, of joined ones any. SL_ERROR_DATA: too few
 * tokens. SL_ERROR_USAGE: it is not known what ends a document, and has to be. */
sl_status sl_data_loader_open(const sl_data_loader_args *args, sl_data_loader *out_loader);
void sl_data_loader_close(sl_data_loader *loader);

/* Whole rows without overlap: of each part floor((n - 1) / T), of examples those that hold them. */
uint64_t sl_data_loader_row_count(const sl_data_loader *loader);

/* Tokens that are predicted at most: of each part all but the first. */
uint64_t sl_data_loader_token_count(const sl_data_loader *loader);

/* Epochs that the first `row_count` rows are, of a blend those of the part that is read most often;
 * NaN where the order has none. */
double sl_data_loader_epoch(const sl_data_loader *loader, uint64_t row_count);

/* The part that a row comes from, and which of its rows it is; for tests. */
uint32_t sl_data_loader_find_part(const sl_data_loader *loader, uint64_t global_row,
                                  uint64_t *out_row);

/* Rows that follow each other: those of a micro-batch. */
typedef struct sl_row_range {
    uint64_t first;
    uint32_t count;
} sl_row_range;

/* Writes tokens (SL_INPUT_TOKENS), targets, one token later, of examples -1 where the target is
 * masked, or positions, from 0 on in each row and behind each end of text or example, of `rows`:
 * [count, T]. One thread at a time; no allocation. */
sl_status sl_data_loader_read(const sl_data_loader *loader, sl_row_range rows, uint32_t slot,
                              int32_t *out_tokens);

/* Reads `rows` into the inputs of a plan that the caller fills. */
sl_status sl_data_loader_fill(const sl_data_loader *loader, sl_engine *engine, uint32_t plan_index,
                              sl_row_range rows);

#endif
