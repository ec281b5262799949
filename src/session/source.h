/* Where weights come from: a directory that `train --save` filled, one checkpoint in it, a
 * Hugging Face GPT-2 directory, or Megatron-LM's pieces. What is in the directory says which of
 * them it is. */
#ifndef SL_SESSION_SOURCE_H
#define SL_SESSION_SOURCE_H

#include "checkpoint/checkpoint.h"
#include "sluice/gpt2.h"

struct sl_session;

typedef struct sl_source {
    char *directory;                  /* of a Hugging Face model, else NULL */
    sl_checkpoint *checkpoint;        /* else NULL */
    struct sl_megatron_model *pieces; /* else NULL */
    sl_gpt2_shape shape;
    const char *tokenizer; /* of the checkpoint; NULL: not known, as of a Hugging Face model */
    const char *path; /* of the checkpoint or model itself: a vocabulary may lie there; NULL: none
                         is open */
} sl_source;

/* Opens a directory. `checks_all` is for checkpoints: see sl_checkpoint_find. SL_ERROR_MISSING,
 * SL_ERROR_DATA. */
sl_status sl_source_open(const char *path, bool checks_all, sl_source *out_source);
void sl_source_close(sl_source *source);

/* Loads the parameters into a session of the source's shape. SL_ERROR_DAMAGED: see
 * sl_checkpoint_load. */
sl_status sl_source_load(const sl_source *source, struct sl_session *session);

#endif
