/* How much of a checkpoint is looked at when it is opened: for the saver, which has just written
 * it, and for everyone else. */
#ifndef SL_SESSION_CHECKPOINT_CHECKPOINT_OPEN_H
#define SL_SESSION_CHECKPOINT_CHECKPOINT_OPEN_H

#include "checkpoint.h"

/* The prefix of names in a checkpoint's files, as GPT2LMHeadModel of transformers has it. */
#define SL_CHECKPOINT_PREFIX "transformer."

enum { SL_CHECKPOINT_NAME_BYTES = 64 }; /* prefix, a tensor's name and the NUL */

typedef enum sl_checkpoint_depth {
    SL_CHECKPOINT_HEADERS, /* manifest, sizes, safetensors headers, checksum of config.json */
    SL_CHECKPOINT_CONTENT  /* and the checksum of every byte */
} sl_checkpoint_depth;

/* As sl_checkpoint_open, of `name` in an open directory. */
sl_status sl_checkpoint_open_at(int directory, const char *directory_path, const char *name,
                                sl_checkpoint_depth depth, sl_checkpoint **out_checkpoint);

#endif
