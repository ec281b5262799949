/* Renames a finished checkpoint to its final name, and puts an older one of the same step aside. */
#ifndef SL_CHECKPOINT_PUBLISH_H
#define SL_CHECKPOINT_PUBLISH_H

#include "save_lock.h"

typedef struct sl_publish_names {
    const char *temporary; /* of the new checkpoint; if names were exchanged, the older one has it
                              afterwards */
    const char *final;     /* step-N */
    const char *replaced;  /* the older one has it afterwards where names cannot be exchanged */
} sl_publish_names;

/* All names are in the locked directory; `directory_path` is for messages. A checkpoint that
 * another process has put there since the lock was taken is not replaced. SL_ERROR_IO: because of
 * that, or a rename failed; the final name is then as it was before. */
sl_status sl_publish_step(const sl_save_lock *lock, const char *directory_path,
                          const sl_publish_names *names);

#endif
