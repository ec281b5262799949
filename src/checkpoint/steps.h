/* The directories inside a checkpoint directory: their names, their list, making and removal.
 *
 *   step-00000100                            a complete checkpoint
 *   step-00000100.old-0123456789abcdef       a complete one that is replaced where names cannot be
 *                                            exchanged; stands for step-00000100 while that is gone
 *   step-00000100.tmp-0123456789abcdef       being written; locked by its writer while it lives
 *   .trash-step-00000100-0123456789abcdef    being removed
 *
 * Invariants: only directories with exactly such names are touched, and in them only files that a
 * checkpoint consists of; a directory with anything else in it stays. Before a file is deleted, its
 * directory is locked, is still the one that has the name, and the names around it are durable: so
 * no writer loses what it writes, and a power failure cannot bring back the name of a checkpoint
 * without its files.
 */
#ifndef SL_CHECKPOINT_STEPS_H
#define SL_CHECKPOINT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum sl_step_kind {
    SL_STEP_FINAL,
    SL_STEP_REPLACED,
    SL_STEP_TEMPORARY,
    SL_STEP_TRASH
} sl_step_kind;

enum { SL_STEP_NAME_BYTES = 64 };

typedef struct sl_step_entry {
    sl_step_kind kind;
    uint64_t step;
    char name[SL_STEP_NAME_BYTES];
} sl_step_entry;

typedef struct sl_step_list {
    sl_step_entry *entries; /* newest step first; of one step, in the order of kinds */
    uint32_t count;
} sl_step_list;

/* The entry of a step; all kinds but FINAL draw a random suffix. */
sl_step_entry sl_steps_name(sl_step_kind kind, uint64_t step);

/* True for the names that only complete checkpoints have. */
bool sl_steps_is_complete(const sl_step_entry *entry);

/* Lists what has such a name in an open directory; release with sl_steps_free. */
sl_status sl_steps_list(int directory, const char *directory_path, sl_step_list *out_list);
void sl_steps_free(sl_step_list *list);

/* True if the name leads to the open directory `inside`, and not to nothing or to another one. */
bool sl_steps_is_named(int directory, const char *name, int inside);

/* Makes an empty TEMPORARY directory and locks it: whoever cleans meanwhile leaves it alone for as
 * long as `*out_inside` is open. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_steps_make(int directory, const char *directory_path, uint64_t step,
                        sl_step_entry *out_entry, int *out_inside);

/* Tries what saves will do: makes, fills, syncs, renames and removes a small directory.
 * SL_ERROR_IO, SL_ERROR_SYSTEM: one of these failed, so saves would fail too. */
sl_status sl_steps_probe(int directory, const char *directory_path);

/* Removes a directory of a dead run, trash or what was replaced, under its lock and if only a
 * checkpoint's files are in it. One that is not there, or that another run has locked, is fine. */
void sl_steps_remove(int directory, const char *directory_path, const sl_step_entry *entry);

/* Removes a directory that this process made and holds open and locked, if only a checkpoint's
 * files are in it and it still has the name. */
void sl_steps_remove_held(int directory, const char *directory_path, const char *name, int inside);

/* Removes what dead runs left: temporary directories that nobody has locked, trash, and what was
 * replaced by a checkpoint that is there. What stays is logged: a failure here never harms a
 * checkpoint. */
void sl_steps_clean(int directory, const char *directory_path);

/* What is known of complete checkpoints, so that a run reads each at most once. Zeroed at first. */
typedef struct sl_step_verdict {
    uint64_t step;
    sl_step_kind kind;
    bool is_whole;
} sl_step_verdict;

typedef struct sl_step_verdicts {
    sl_step_verdict *items;
    uint32_t count;
} sl_step_verdicts;

void sl_steps_forget(sl_step_verdicts *known);

/* A complete checkpoint was read whole, by whoever goes on from it. SL_ERROR_SYSTEM: no memory. */
sl_status sl_steps_note_whole(sl_step_verdicts *known, uint64_t step);

/* Who says whether a complete checkpoint is whole: reads all of it, or, where it was whole before,
 * only sees that nothing is missing. */
typedef struct sl_step_judge {
    bool (*is_whole)(const void *user, const sl_step_entry *entry, bool was_whole);
    const void *user;
    sl_step_verdicts *known; /* from earlier calls; brought up to date */
} sl_step_judge;

/* Removes complete checkpoints of steps below `step` that lie behind the newest `keep` whole ones
 * (0: none), that of `step` counted, which is whole; each is first renamed to trash. Damaged ones
 * in front of these stay and do not count. Nothing is read while there are `keep` at most. Warns of
 * steps above. */
void sl_steps_prune(int directory, const char *directory_path, uint64_t step, uint32_t keep,
                    const sl_step_judge *judge);

/* Removes every complete checkpoint but that of `step`: all are renamed to trash before the first
 * is removed. */
void sl_steps_remove_others(int directory, const char *directory_path, uint64_t step);

#endif
