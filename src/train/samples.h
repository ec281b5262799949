/* The texts that a run writes between its steps, with the model as it is then.
 *
 * A token takes a pass of the plan's sample program over one row, which ends in the text so far. So
 * a text costs no memory beside the plan's, is the same however the plan places things, and comes
 * from any ranks: each has the same row, and those with logits of the last stage share theirs. The
 * draws are those of `sluice generate` with the run's seed. Beyond a row, its last part is read as
 * if it began there.
 */
#ifndef SL_TRAIN_SAMPLES_H
#define SL_TRAIN_SAMPLES_H

#include <signal.h>

#include "session/ranks.h"
#include "session/runtime.h"
#include "text/model_texts.h"
#include "text/vocabulary.h"
#include "train/watch/report.h"

typedef struct sl_samples sl_samples;

/* Of the --sample options, for a model of `vocab` ids. A prompt is put into the template of the
 * examples in `texts`, if there is one (sl_example_make_prompt), and a text ends where `texts` and
 * --end-of-text say. `vocabulary` is borrowed; NULL: text is bytes, or is not known.
 * SL_ERROR_USAGE: it is not known, or the prompt does not fit it. */
sl_status sl_samples_open(const sl_config *config, const sl_model_texts *texts,
                          const sl_vocabulary *vocabulary, uint32_t vocab,
                          sl_samples **out_samples);
void sl_samples_close(sl_samples *samples); /* NULL is fine */

typedef struct sl_samples_args {
    const sl_runtime *runtime;
    const sl_ranks *ranks;
    const volatile sig_atomic_t *stop; /* not 0: the text ends early; NULL with other ranks */
} sl_samples_args;

/* Writes one text; *out_report has its texts, valid until the next one is written, and its length.
 * All ranks call it together. SL_ERROR_NONFINITE: the model has no logit that is finite. */
sl_status sl_samples_write(sl_samples *samples, const sl_samples_args *args,
                           sl_sample_report *out_report);

#endif
