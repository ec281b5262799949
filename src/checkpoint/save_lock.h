/* The lock on a directory of checkpoints: one run at a time saves there.
 *
 * The lock is an flock on the file `.lock` in the directory, held for the whole life of the run and
 * released by the system when the process dies, however that happens. While a run has the lock, the
 * file holds the name of its process: a second run that is refused names it. The file is not
 * removed at the end.
 *
 * On a file system without locks, or after a file server has lost the lock, two runs may save at
 * the same time. So the lock also remembers which checkpoints were there when it was taken, and
 * which ones this process added: a save replaces no other one. Checkpoints are recognised by inode
 * and time of birth, not by name: two runs give the same step the same name.
 */
#ifndef SL_CHECKPOINT_SAVE_LOCK_H
#define SL_CHECKPOINT_SAVE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define SL_SAVE_LOCK_NAME ".lock"

/* A checkpoint that may be replaced. */
typedef struct sl_known_step {
    uint64_t device, inode, birth_ns;
} sl_known_step;

/* Zeroed: not held. */
typedef struct sl_save_lock {
    bool is_held;
    bool was_held; /* at some time of this run: then no checkpoint of a new directory is known */
    int directory; /* open while the lock is held */
    int file;      /* `.lock`, likewise */
    sl_known_step *known;
    uint32_t known_count;
} sl_save_lock;

/* Takes the lock of a directory, which is made with its parents if it is missing; never waits. If
 * this lock is held already nothing happens, unless the path leads to another directory now (the
 * old one was moved or removed): then the new directory is locked, and no checkpoint in it may be
 * replaced. SL_ERROR_USAGE: another process holds the lock. SL_ERROR_IO, SL_ERROR_SYSTEM: the
 * directory cannot be made, opened or locked. */
sl_status sl_save_lock_hold(const char *directory, sl_save_lock *lock);

/* A lock that is not held is fine. */
void sl_save_lock_release(sl_save_lock *lock);

/* True if the checkpoint of this name was there when the lock was taken, or was added since. */
bool sl_save_lock_knows(const sl_save_lock *lock, const char *name);

/* Notes that this process has put the checkpoint there. SL_ERROR_SYSTEM: no memory for the note. */
sl_status sl_save_lock_add(sl_save_lock *lock, const char *name);

#endif
