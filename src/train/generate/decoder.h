/* A model that reads text and says what comes next: rows of tokens side by side, equally long, over
 * one cache of keys and values.
 *
 * Programs, all planned before the first token: one more token of every row; the text to start
 * from, of one row, whose keys and values are then copied to the others; and, where the text may
 * become longer than the context or is not known beforehand, a piece of every row. So a token costs
 * one pass over the weights for all rows, and attention over the tokens that there are.
 *
 * The text slides: where the context is full, its last part is read again as if it began there.
 *
 * Of several ranks each holds its part of the model, and each data-parallel set of ranks computes
 * its share of the rows. All ranks have the tokens of all rows, and get the logits of all of them.
 */
#ifndef SL_TRAIN_DECODER_H
#define SL_TRAIN_DECODER_H

#include <signal.h>
#include <stdbool.h>

#include "checkpoint/model_directory.h"
#include "config/config.h"
#include "model/architecture.h"
#include "session/ranks.h"

typedef struct sl_decoder_args {
    const sl_config *config; /* checked */
    const sl_model_directory *source;
    sl_ranks *ranks;       /* that call each function of this decoder together; borrowed */
    uint64_t prompt_count; /* tokens of the only text that is read; 0: any texts */
    uint64_t new_count;    /* tokens that a text grows by at most */
} sl_decoder_args;

typedef struct sl_decoder sl_decoder;

/* Plans, opens the engine and loads the weights. SL_ERROR_FIT; the message says what would fit. */
sl_status sl_decoder_open(const sl_decoder_args *args, sl_decoder **out_decoder);

/* NULL is fine. */
void sl_decoder_close(sl_decoder *decoder);

/* The source's shape, with the context that the decoder has: that of a rotary model may be shorter
 * where it is not known how many tokens are needed. */
const sl_model_shape *sl_decoder_shape(const sl_decoder *decoder);

/* Tokens of a prompt that are read when `new_count` are to follow: its last ones. */
uint64_t sl_decoder_fitting(const sl_model_shape *shape, uint64_t prompt_count, uint64_t new_count);

/* Every row becomes the last tokens of this text that fit; count > 0. */
void sl_decoder_start(sl_decoder *decoder, const int32_t *tokens, uint64_t count,
                      uint64_t new_count);

/* Adds one token to each row, tokens [rows]; slides first where the cache is full. `new_count`:
 * tokens that are still to be added, this one counted. */
void sl_decoder_append(sl_decoder *decoder, const int32_t *tokens, uint64_t new_count);

/* Reads what was not read yet, at least the last token again. Ends early where *stop is not 0, with
 * *out_is_whole false: then there are no logits, and the rest is read by the next call. Several
 * ranks read to the end. */
sl_status sl_decoder_read(sl_decoder *decoder, const volatile sig_atomic_t *stop,
                          bool *out_is_whole);

/* Whether *stop is set; of several ranks, whether it was on one of them at the end of the last
 * read.
 */
bool sl_decoder_must_stop(const sl_decoder *decoder, const volatile sig_atomic_t *stop);

/* What the last read says of a row's next token, [vocab]: the caller's to change until the next
 * call of any row. */
float *sl_decoder_logits(sl_decoder *decoder, uint32_t row);

/* Tokens of a row that are in the cache. */
uint32_t sl_decoder_read_count(const sl_decoder *decoder);

/* Waits for the engine; its first failure. */
sl_status sl_decoder_drain(sl_decoder *decoder);

#endif
