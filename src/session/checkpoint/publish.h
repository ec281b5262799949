/* Giving a checkpoint that is written its name, in the place of an older one of its step. */
#ifndef SL_SESSION_CHECKPOINT_PUBLISH_H
#define SL_SESSION_CHECKPOINT_PUBLISH_H

#include "save_lock.h"

typedef struct sl_publish_names {
    const char *temporary; /* has the name of what was replaced afterwards, if names were swapped */
    const char *final;
    const char *replaced; /* where names cannot be swapped: what was replaced has it afterwards */
} sl_publish_names;

/* Names of the directory that is locked; `directory_path` is for messages. SL_ERROR_IO: as before;
 * a checkpoint that another process has put there since the lock was taken is not replaced. */
sl_status sl_publish_step(const sl_save_lock *lock, const char *directory_path,
                          const sl_publish_names *names);

#endif
