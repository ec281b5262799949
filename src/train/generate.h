/* Sampling from a checkpoint: the prompt in one pass, then token by token with a cache. */
#ifndef SL_TRAIN_GENERATE_H
#define SL_TRAIN_GENERATE_H

#include <signal.h>

#include "session/config/config.h"
#include "session/search/search.h"

/* Receives each new token's bytes as they come; a character may come in several parts. */
typedef void (*sl_generate_sink)(void *user, const char *bytes, uint32_t byte_count);

typedef struct sl_generate_args {
    sl_config *config; /* checked */
    sl_generate_sink sink;
    void *user;
    const volatile sig_atomic_t *stop; /* ends early when not 0 */
} sl_generate_args;

/* Continues the prompt until --tokens, end of text or *stop. Ids that the tokenizer does not know
 * are written as "<id>". SL_ERROR_USAGE: prompt and tokens are beyond the context, the prompt
 * beyond the vocabulary, or the model's tokenizer is not known. SL_ERROR_FIT fills *out_refusal. */
sl_status sl_generate_run(const sl_generate_args *args, sl_refusal *out_refusal);

#endif
