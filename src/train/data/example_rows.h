/* Rows of whole examples: each example of a part is cut to a row, and neighbours share a row while
 * they fit, or each has one. What is left of a row is padding, whose targets are masked.
 *
 * Memory: 24 bytes an example. The examples' ids stay in their file. */
#ifndef SL_TRAIN_EXAMPLE_ROWS_H
#define SL_TRAIN_EXAMPLE_ROWS_H

#include "data_files.h"

/* An example as rows have it. */
typedef struct sl_example_place {
    uint64_t first_token; /* in the run of all tokens */
    uint32_t token_count; /* at most T + 1 */
} sl_example_place;

/* Of one part. */
typedef struct sl_example_rows {
    sl_example_place *examples; /* [example_count] */
    uint64_t *first_example;    /* [row_count + 1]: of each row */
    uint64_t example_count, row_count;
    uint64_t cut_count;     /* examples that were longer than a row */
    uint64_t dropped_count; /* of them those that had nothing left to learn; they are in no row */
    uint64_t token_count;   /* that rows hold, without padding */
    uint64_t longest;       /* tokens of the longest example, before it was cut */
} sl_example_rows;

typedef struct sl_example_rows_args {
    const sl_tokens *tokens; /* of examples, with marks; borrowed */
    const sl_data_part *part;
    uint32_t seq; /* T */
    bool packs;   /* neighbours share rows */
} sl_example_rows_args;

/* Reads where the examples of a part begin, and the start of each one that is cut. A part
 * may have no row. Release with sl_example_rows_free, on failure too. */
sl_status sl_example_rows_make(const sl_example_rows_args *args, sl_example_rows *out_rows);
void sl_example_rows_free(sl_example_rows *rows);

/* Writes the ids of row `row` < row_count, [T + 1], as they are stored: marked where they have no
 * part in the loss; `padding` stands behind them, marked. */
sl_status sl_example_rows_read(const sl_example_rows *rows, const sl_tokens *tokens, uint64_t row,
                               uint32_t seq, uint32_t padding, int32_t *out_ids);

/* Writes the position of each of the T tokens of a row in its example; padding is one more. */
void sl_example_rows_positions(const sl_example_rows *rows, uint64_t row, uint32_t seq,
                               int32_t *out_positions);

#endif
