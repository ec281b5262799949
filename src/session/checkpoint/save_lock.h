/* The lock on a directory of checkpoints: one run at a time saves there.
 *
 * The lock is an flock on the file `.lock` in the directory, held for the whole life of the run and
 * released by the system when its process dies, however that happens. While a run has the lock, the
 * file names the process, for the message of whoever comes second. The file stays.
 *
 * Where a file system has no locks, or a server lost one, two runs may save at once. So the lock
 * also knows which checkpoints were there when it was taken, and which ones this process added:
 * only those are replaced. They are told apart by inode and time of birth, as two runs save one
 * step under one name.
 */
#ifndef SL_SESSION_CHECKPOINT_SAVE_LOCK_H
#define SL_SESSION_CHECKPOINT_SAVE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define SL_SAVE_LOCK_NAME ".lock"

/* A checkpoint that may be replaced. */
typedef struct sl_known_step {
    uint64_t device, inode, birth_ns;
} sl_known_step;

/* All 0: not held. */
typedef struct sl_save_lock {
    bool is_held, was_held;
    int directory; /* open, while it is held */
    int file;
    sl_known_step *known;
    uint32_t known_count;
} sl_save_lock;

/* Takes the lock of a directory, which is made with its parents if it is missing. One that is held
 * is fine, unless the path leads to another directory now (the old one was moved or removed): that
 * one is locked then, and nothing that is in it may be replaced. SL_ERROR_USAGE: another process
 * holds it. SL_ERROR_IO, SL_ERROR_SYSTEM: the directory cannot be made, opened or locked. */
sl_status sl_save_lock_hold(const char *directory, sl_save_lock *lock);

/* One that is not held is fine. */
void sl_save_lock_release(sl_save_lock *lock);

/* Whether the checkpoint of this name in the directory was there when the lock was taken, or was
 * added since. */
bool sl_save_lock_knows(const sl_save_lock *lock, const char *name);

/* This process has put the checkpoint there. SL_ERROR_SYSTEM: no memory; it is not known then. */
sl_status sl_save_lock_add(sl_save_lock *lock, const char *name);

#endif
