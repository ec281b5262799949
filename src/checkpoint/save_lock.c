/* Locks the directory and lists its checkpoints; see save_lock.h. */
#define _GNU_SOURCE
#include "save_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/interruptions.h"
#include "base/log.h"
#include "files/files.h"
#include "steps.h"

enum { HOST_BYTES = 65, HOLDER_BYTES = 128 };

/* ---- the file ---- */

static sl_status open_file(int directory, const char *path, int *out_file)
{
    struct stat info;
    int fd = openat(directory, SL_SAVE_LOCK_NAME,
                    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        SL_FAIL(SL_ERROR_IO, "%s/%s: cannot be made or opened: %s", sl_files_show(path).text,
                SL_SAVE_LOCK_NAME, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1) {
        close(fd);
        SL_FAIL(SL_ERROR_IO, "%s/%s: is not the lock of this directory: move it away",
                sl_files_show(path).text, SL_SAVE_LOCK_NAME);
    }
    *out_file = fd;
    return SL_OK;
}

/* Names the process that has the lock, as far as the file says it. */
static sl_status refuse_second(int file, const char *path)
{
    char holder[HOLDER_BYTES] = "";
    const ssize_t bytes = pread(file, holder, sizeof holder - 1, 0);
    holder[bytes > 0 ? strcspn(holder, "\n") : 0] = '\0';
    SL_FAIL(SL_ERROR_USAGE,
            "%s: another run saves there now (%s): wait for its end, stop it, or save elsewhere",
            sl_files_show(path).text, *holder ? sl_files_show(holder).text : "it has the lock");
}

static sl_status lock_file(int file, const char *path)
{
    uint32_t interruptions = 0;
    int result;
    do
        result = flock(file, LOCK_EX | LOCK_NB);
    while (result < 0 && sl_interruptions_allow(&interruptions));
    if (result == 0)
        return SL_OK;
    if (errno == EWOULDBLOCK)
        return refuse_second(file, path);
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        SL_FAIL(SL_ERROR_IO, "%s/%s: cannot be locked: %s", sl_files_show(path).text,
                SL_SAVE_LOCK_NAME, strerror(errno));
    sl_log_write(SL_LOG_WARNING, "%s: its file system has no locks: let no other run save there",
                 sl_files_show(path).text);
    return SL_OK;
}

/* The name is only for a message: a failure leaves the file empty and is ignored. */
static void name_holder(int file)
{
    char host[HOST_BYTES] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown");
    if (ftruncate(file, 0) != 0 || dprintf(file, "process %ld on %s\n", (long)getpid(), host) < 0)
        return;
}

/* ---- checkpoints that may be replaced ---- */

static bool identify(int directory, const char *name, sl_known_step *out_step)
{
    struct statx info;
    if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &info) != 0)
        return false;
    *out_step = (sl_known_step){.device = (uint64_t)info.stx_dev_major << 32 | info.stx_dev_minor,
                                .inode = info.stx_ino};
    if (info.stx_mask & STATX_BTIME)
        out_step->birth_ns = (uint64_t)info.stx_btime.tv_sec * 1000000000 + info.stx_btime.tv_nsec;
    return true;
}

bool sl_save_lock_knows(const sl_save_lock *lock, const char *name)
{
    sl_known_step step;
    if (!identify(lock->directory, name, &step))
        return false;
    for (uint32_t i = 0; i < lock->known_count; i++)
        if (memcmp(&lock->known[i], &step, sizeof step) == 0)
            return true;
    return false;
}

sl_status sl_save_lock_add(sl_save_lock *lock, const char *name)
{
    sl_known_step step;
    if (!identify(lock->directory, name, &step))
        return SL_OK; /* the checkpoint is gone again */
    sl_known_step *larger = realloc(lock->known, (lock->known_count + 1ull) * sizeof *larger);
    if (!larger)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of checkpoints");
    lock->known = larger;
    lock->known[lock->known_count++] = step;
    return SL_OK;
}

static sl_status add_all(const char *path, sl_save_lock *lock)
{
    sl_step_list list;
    SL_TRY(sl_steps_list(lock->directory, path, &list));
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < list.count && status == SL_OK; i++)
        if (list.entries[i].kind == SL_STEP_FINAL)
            status = sl_save_lock_add(lock, list.entries[i].name);
    sl_steps_free(&list);
    return status;
}

/* ---- the directory ---- */

static bool is_at(const sl_save_lock *lock, const char *path)
{
    struct stat named, held;
    return stat(path, &named) == 0 && fstat(lock->directory, &held) == 0 &&
           named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

/* A directory that cannot be opened for want of permissions is not called missing. */
static sl_status open_directory(const char *path, int *out_directory)
{
    SL_TRY(sl_files_make_directories(path));
    sl_status status =
        sl_files_open_directory(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, out_directory);
    return status == SL_ERROR_MISSING ? SL_ERROR_IO : status;
}

static sl_status take(const char *path, sl_save_lock *lock)
{
    SL_TRY(open_directory(path, &lock->directory));
    sl_status status = open_file(lock->directory, path, &lock->file);
    if (status == SL_OK) {
        status = lock_file(lock->file, path);
        if (status == SL_OK) {
            name_holder(lock->file);
            lock->is_held = true;
            return SL_OK;
        }
        close(lock->file);
    }
    close(lock->directory);
    return status;
}

sl_status sl_save_lock_hold(const char *directory, sl_save_lock *lock)
{
    if (lock->is_held && is_at(lock, directory))
        return SL_OK;
    sl_save_lock_release(lock);
    SL_TRY(take(directory, lock));
    sl_status status = lock->was_held ? SL_OK : add_all(directory, lock);
    lock->was_held = true;
    if (status != SL_OK)
        sl_save_lock_release(lock);
    return status;
}

void sl_save_lock_release(sl_save_lock *lock)
{
    if (lock->is_held) {
        if (ftruncate(lock->file, 0) != 0) /* the name stays: the next holder overwrites it */
            errno = 0;
        close(lock->file);
        close(lock->directory);
    }
    free(lock->known);
    *lock = (sl_save_lock){.was_held = lock->was_held};
}
