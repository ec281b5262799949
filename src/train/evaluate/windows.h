/* Perplexity over windows that overlap (`eval --overlap N`).
 *
 * Window k is the T tokens from k (T - N) on, the last one what is left. Its first N tokens are
 * context, which the window before has counted; of the first window that is the first token alone.
 * So every token but the first is counted once, and behind the first window with N tokens before it
 * or more. These are the windows of Hugging Face's strided perplexity with max_length = T and
 * stride = T - N; the loss here is the mean over the counted tokens.
 */
#ifndef SL_TRAIN_WINDOWS_H
#define SL_TRAIN_WINDOWS_H

#include "checkpoint/model_directory.h"
#include "evaluate.h"

/* Windows over `token_count` >= 2 tokens; 0 < overlap < seq. */
uint64_t sl_windows_count(uint64_t token_count, uint32_t seq, uint32_t overlap);

/* Fills in loss, perplexity and tokens of a part of the data, or of what was done of it. Row length
 * and overlap of the model's configuration are checked here. SL_ERROR_USAGE: the overlap is no less
 * than a row. SL_ERROR_DATA: fewer than two tokens. */
sl_status sl_windows_run(const sl_eval_model *model, const sl_eval_data *data,
                         sl_eval_report *report);

#endif
