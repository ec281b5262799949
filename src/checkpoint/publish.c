/* Renames and exchanges names; see publish.h, and steps.h for the names that exist meanwhile. The
 * functions that return int return 0 or an errno value; EEXIST and ENOTEMPTY: a checkpoint that
 * this run may not replace has the final name. */
#define _GNU_SOURCE
#include "publish.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"

static int rename_here(const sl_save_lock *lock, const char *from, const char *to, sl_rename kind)
{
    return sl_files_rename(lock->directory, from, to, kind);
}

/* True if a checkpoint that this run may not replace has the final name. */
static bool is_foreign(const sl_save_lock *lock, const sl_publish_names *names)
{
    return faccessat(lock->directory, names->final, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
           !sl_save_lock_knows(lock, names->final);
}

/* A run that does not heed the lock may put its own checkpoint there just before the names are
 * exchanged: that checkpoint gets its name back. ENOENT: nothing has the final name. */
static int exchange_known(const sl_save_lock *lock, const sl_publish_names *names)
{
    if (is_foreign(lock, names))
        return EEXIST;
    int error = rename_here(lock, names->temporary, names->final, SL_RENAME_EXCHANGE);
    if (error != 0 || sl_save_lock_knows(lock, names->temporary))
        return error;
    error = rename_here(lock, names->temporary, names->final, SL_RENAME_EXCHANGE);
    return error ? error : EEXIST;
}

/* Puts an older checkpoint aside, if this run may replace it. ENOENT: there is none. */
static int put_aside(const sl_save_lock *lock, const sl_publish_names *names)
{
    if (is_foreign(lock, names))
        return EEXIST;
    const int error = rename_here(lock, names->final, names->replaced, SL_RENAME_REPLACE);
    if (error != 0 || sl_save_lock_knows(lock, names->replaced))
        return error;
    rename_here(lock, names->replaced, names->final, SL_RENAME_REPLACE);
    return EEXIST;
}

/* For a file system that cannot exchange names: between the two renames the older checkpoint is
 * found under the name `replaced`. */
static int replace_in_two(const sl_save_lock *lock, const sl_publish_names *names)
{
    const int moved = put_aside(lock, names);
    if (moved != 0 && moved != ENOENT)
        return moved;
    const int error = rename_here(lock, names->temporary, names->final, SL_RENAME_REPLACE);
    if (error != 0 && moved == 0)
        rename_here(lock, names->replaced, names->final, SL_RENAME_REPLACE);
    return error;
}

/* Another run may prune the older checkpoint meanwhile; the final name is free then. */
static int rename_to_final(const sl_save_lock *lock, const sl_publish_names *names)
{
    enum { TRIES = 4 };
    int error = ENOENT;
    for (int i = 0; i < TRIES && error == ENOENT; i++) {
        error = rename_here(lock, names->temporary, names->final, SL_RENAME_NEW);
        if (error == EEXIST || error == ENOTEMPTY)
            error = exchange_known(lock, names);
    }
    return error == EINVAL || error == ENOSYS ? replace_in_two(lock, names) : error;
}

sl_status sl_publish_step(const sl_save_lock *lock, const char *directory_path,
                          const sl_publish_names *names)
{
    const int error = rename_to_final(lock, names);
    if (error == EEXIST || error == ENOTEMPTY)
        SL_FAIL(SL_ERROR_IO,
                "%s/%s: another process put it there since this run began, so it is not replaced, "
                "and this step is not saved: stop one of the two, or save elsewhere",
                sl_files_show(directory_path).text, names->final);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s/%s: cannot be renamed to %s: %s",
                sl_files_show(directory_path).text, names->temporary, names->final,
                strerror(error));
    return SL_OK;
}
