/* Records go out by write(2) alone: nothing is kept back in a buffer, so nothing is lost with it.
 */
#include "log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/interruptions.h"
#include "base/log.h"
#include "files.h"

enum { PERMISSIONS = 0666 /* less the umask */, START_BYTES_MAX = 64 };

/* A run that was killed may have left half a line at the end, which the next record would join. */
static void cut_half_line(int fd, const char *path)
{
    char byte;
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    off_t end = info.st_size;
    while (end > 0 && pread(fd, &byte, 1, end - 1) == 1 && byte != '\n')
        end--;
    if (end < info.st_size && ftruncate(fd, end) != 0)
        sl_log_write(SL_LOG_WARNING, "%s: its last line is half a line and stays: %s",
                     sl_files_show(path).text, strerror(errno));
}

static void cut_half_line_at(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    cut_half_line(fd, path);
    close(fd);
}

/* A descriptor of the log of `run` at `path`; -1: there is none. The name is checked before
 * opening, as opening a device or a pipe may have an effect; the descriptor is checked again after
 * it. */
static int open_own(const char *path, int access_mode, const char *run, sl_log_judge is_own)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return -1;
    int fd = open(path, access_mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && is_own(fd, run))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

bool sl_log_file_is_own(const char *path, const char *run, sl_log_judge is_own)
{
    int fd = open_own(path, O_RDONLY, run, is_own);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

sl_status sl_log_file_check(const char *option, const char *path, const char *start)
{
    char found[START_BYTES_MAX];
    struct stat info;
    const size_t bytes = strlen(start) < sizeof found ? strlen(start) : sizeof found;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return SL_OK; /* what keeps it from being opened is told then */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return SL_OK;
    ssize_t count = pread(fd, found, bytes, 0);
    close(fd);
    if (count <= 0 || memcmp(found, start, (size_t)count) == 0)
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "%s %s: is there and is no such log, so it is not written over: name "
            "another file, or move this one away",
            option, sl_files_show(path).text);
}

static sl_status open_named(const sl_log_target *target, int *out_fd)
{
    static const int flags_of_mode[] = {
        [SL_LOG_FILE_EMPTY] = O_TRUNC, [SL_LOG_FILE_APPEND] = 0, [SL_LOG_FILE_NEW] = O_EXCL};
    if (target->mode == SL_LOG_FILE_APPEND)
        cut_half_line_at(target->path);
    *out_fd =
        open(target->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | flags_of_mode[target->mode],
             PERMISSIONS);
    if (*out_fd < 0)
        SL_FAIL(errno == EEXIST ? SL_ERROR_USAGE : SL_ERROR_IO, "%s: %s", target->path,
                strerror(errno));
    return SL_OK;
}

static sl_status continue_own(const sl_log_target *target, sl_log_judge is_own, int *out_fd)
{
    *out_fd = open_own(target->path, O_RDWR | O_APPEND, target->run, is_own);
    if (*out_fd < 0)
        SL_FAIL(SL_ERROR_IO, "%s: is no log of this run, or cannot be written",
                sl_files_show(target->path).text);
    cut_half_line(*out_fd, target->path);
    return SL_OK;
}

sl_status sl_log_file_open(const sl_log_target *target, sl_log_judge is_own, sl_log_file *out_file)
{
    int fd = -1;
    char *copy = strdup(target->path);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the name of a log");
    sl_status status = target->mode == SL_LOG_FILE_OWN ? continue_own(target, is_own, &fd)
                                                       : open_named(target, &fd);
    if (status != SL_OK) {
        free(copy);
        return status;
    }
    *out_file = (sl_log_file){fd, copy};
    return SL_OK;
}

void sl_log_file_close(sl_log_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = (sl_log_file){.fd = -1};
}

/* Cuts off what was written of a record. A pipe cannot take it back. */
static void take_back(const sl_log_file *file, size_t written)
{
    struct stat info;
    if (written == 0 || fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    if (ftruncate(file->fd, info.st_size - (off_t)written) != 0)
        sl_log_write(SL_LOG_WARNING, "%s: its last record is not whole: %s", file->path,
                     strerror(errno));
}

sl_status sl_log_file_write(const sl_log_file *file, const void *record, size_t bytes)
{
    const char *from = record;
    uint32_t interruptions = 0;
    for (size_t done = 0; file->fd >= 0 && done < bytes;) {
        ssize_t count = write(file->fd, from + done, bytes - done);
        if (count < 0 && sl_interruptions_allow(&interruptions))
            continue;
        if (count < 0) {
            int error = errno;
            take_back(file, done);
            SL_FAIL(SL_ERROR_IO, "%s: %s", file->path, strerror(error));
        }
        done += (size_t)count;
    }
    return SL_OK;
}
