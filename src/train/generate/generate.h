/* Sampling from a checkpoint: texts that go on, several side by side. */
#ifndef SL_TRAIN_GENERATE_H
#define SL_TRAIN_GENERATE_H

#include <signal.h>

#include "checkpoint/model_directory.h"
#include "config/config.h"
#include "session/ranks.h"
#include "text/vocabulary.h"

/* Receives what the samples say. A failure of `text` ends the run. */
typedef struct sl_generate_sink {
    /* Bytes of a sample, as they are certain: whole characters of valid UTF-8, no stop text. */
    sl_status (*text)(void *user, uint32_t sample, const char *bytes, uint64_t byte_count);
    void (*ended)(void *user, uint32_t sample); /* nothing more comes of it */
    void *user;
} sl_generate_sink;

typedef struct sl_generate_args {
    sl_config *config;  /* checked; borrowed, as all pointers here */
    const char *prompt; /* the text to continue; of an interactive run the first one */
    uint64_t prompt_bytes;
    const sl_model_directory *source; /* NULL: the one that the configuration names */
    sl_vocabulary *vocabulary;        /* of `source`; NULL: its text is bytes */
    sl_generate_sink sink;
    const volatile sig_atomic_t *stop; /* ends early when not 0 */
    sl_ranks *ranks; /* that hold the model, and all make the same text; its world is NULL: one
                        process does */
} sl_generate_args;

typedef struct sl_generator sl_generator;

/* Opens checkpoint, tokenizer and engine, and starts with the prompt; an empty one is the end of a
 * text before. A prompt is put into the template (sl_example_make_prompt) of --template, or into
 * that of the examples on which the model was tuned; an empty one only into a given template. Warns
 * where the prompt is longer than the context. SL_ERROR_USAGE: the prompt is beyond the vocabulary,
 * the model's tokenizer is not known, or --system and no template of messages. SL_ERROR_FIT. Of a
 * checkpoint that is damaged an older one is opened (sl_loading_run). */
sl_status sl_generator_open(const sl_generate_args *args, sl_generator **out_generator);

/* NULL is fine. */
void sl_generator_close(sl_generator *generator);

/* Starts another text; of an interactive run alone. */
sl_status sl_generator_start(sl_generator *generator, const char *prompt, uint64_t prompt_bytes);

/* The text that the model goes on from: the prompt, in its template. Valid until the next start. */
const char *sl_generator_prompt(const sl_generator *generator, uint64_t *out_bytes);

/* Goes on with every sample for --tokens, or until an end of text, a text of --stop, or *stop. Ids
 * that the tokenizer does not know are written as "<id>". */
sl_status sl_generator_run(sl_generator *generator);

/* What was done so far, and how long it took. */
typedef struct sl_generate_times {
    uint64_t prompt_tokens, new_tokens; /* read before the first one; of all samples */
    uint64_t later_tokens;              /* of these, those behind the first one of a sample */
    double prompt_seconds, later_seconds;
} sl_generate_times;

sl_generate_times sl_generator_times(const sl_generator *generator);

#endif
