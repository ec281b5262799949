/* The directories inside a checkpoint directory: their names, their list and their removal.
 *
 *   step-00000100                            a complete checkpoint
 *   step-00000100.tmp-0123456789abcdef       being written; locked by its writer while it lives
 *   .trash-step-00000100-0123456789abcdef    being removed
 *
 * Invariant: only directories with exactly such names are touched, and in them only files that a
 * checkpoint consists of; a directory with anything else in it stays.
 */
#ifndef SL_SESSION_CHECKPOINT_STEPS_H
#define SL_SESSION_CHECKPOINT_STEPS_H

#include <stdint.h>

#include "base/status.h"

typedef enum sl_step_kind { SL_STEP_FINAL, SL_STEP_TEMPORARY, SL_STEP_TRASH } sl_step_kind;

enum { SL_STEP_NAME_BYTES = 64 };

typedef struct sl_step_entry {
    sl_step_kind kind;
    uint64_t step;
    char name[SL_STEP_NAME_BYTES];
} sl_step_entry;

typedef struct sl_step_list {
    sl_step_entry *entries; /* newest step first */
    uint32_t count;
} sl_step_list;

/* The entry of a step; TEMPORARY and TRASH draw a random suffix. */
sl_step_entry sl_steps_name(sl_step_kind kind, uint64_t step);

/* Lists what has such a name in an open directory; release with sl_steps_free. */
sl_status sl_steps_list(int directory, const char *directory_path, sl_step_list *out_list);
void sl_steps_free(sl_step_list *list);

/* Removes one directory if only a checkpoint's files are in it. A directory that stays is
 * logged: a failure here never harms a checkpoint. */
void sl_steps_remove(int directory, const char *directory_path, const char *name);

/* Removes what dead runs left: temporary directories that nobody has locked, and trash. */
void sl_steps_clean(int directory, const char *directory_path);

/* Removes complete checkpoints of steps below `step` beyond the newest `keep` (0: none), that of
 * `step` counted; each is first renamed to trash. Warns of steps above. */
void sl_steps_prune(int directory, const char *directory_path, uint64_t step, uint32_t keep);

/* Removes every complete checkpoint but that of `step`, likewise. */
void sl_steps_remove_others(int directory, const char *directory_path, uint64_t step);

#endif
