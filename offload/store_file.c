/* A file of the disk store.
 *
 * The directory is opened once and checked; everything after that uses its descriptor. The file has
 * no name from the start (O_TMPFILE), or is unlinked right after its creation if the file system
 * does not know O_TMPFILE. So nothing is left when the process ends, however it ends: only a kill
 * between creation and unlink leaves an empty file. Direct I/O is tested by a transfer of one
 * block, because some file systems accept the flag and refuse the transfer.
 */
#define _GNU_SOURCE /* O_TMPFILE, O_DIRECT, statx, fallocate */

#include "store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/interruptions.h"
#include "store.h"

enum { NAME_TRIES = 100, OWN_MODE = 0600 };

static sl_status check_directory(const char *name, int directory)
{
    struct stat info;
    if (fstat(directory, &info) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: %s", name, strerror(errno));
    if (info.st_uid != geteuid() && info.st_uid != 0)
        SL_FAIL(
            SL_ERROR_IO,
            "%s: belongs to user %lu, who could exchange what the disk tier keeps there; name a "
            "directory of your own",
            name, (unsigned long)info.st_uid);
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0)
        SL_FAIL(SL_ERROR_IO,
                "%s: others may write there (mode %04o); take that away with chmod go-w, or name "
                "another directory",
                name, (unsigned)(info.st_mode & 07777));
    return SL_OK;
}

/* Removes a slash at the end: with one, open follows a symbolic link in spite of O_NOFOLLOW. */
static sl_status open_directory(const char *name, int *out_directory)
{
    char *plain = strdup(name);
    if (plain == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the name of a directory");
    for (size_t i = strlen(plain); i > 1 && plain[i - 1] == '/'; i--)
        plain[i - 1] = '\0';
    int directory = open(plain, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    struct stat info;
    bool is_link = directory < 0 && lstat(plain, &info) == 0 && S_ISLNK(info.st_mode);
    free(plain);
    if (is_link)
        SL_FAIL(SL_ERROR_IO, "%s: is a symbolic link; name the directory itself", name);
    if (directory < 0)
        SL_FAIL(error == ENOENT ? SL_ERROR_MISSING : SL_ERROR_IO, "%s: %s", name, strerror(error));
    sl_status status = check_directory(name, directory);
    if (status != SL_OK) {
        close(directory);
        return status;
    }
    *out_directory = directory;
    return SL_OK;
}

/* A descriptor, or -1 with errno set. */
static int make_nameless(int directory, int flags)
{
    return openat(directory, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, OWN_MODE);
}

static int make_and_unlink(int directory, int flags)
{
    for (int tries = 0; tries < NAME_TRIES; tries++) {
        uint64_t word;
        char name[40];
        if (getrandom(&word, sizeof word, 0) != sizeof word)
            return -1;
        snprintf(name, sizeof name, ".sluice-%016llx", (unsigned long long)word);
        int fd = openat(directory, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags,
                        OWN_MODE);
        int error = errno;
        /* Some file systems create the file and then refuse O_DIRECT: unlink in any case. */
        if ((fd >= 0 || error == EINVAL) && unlinkat(directory, name, 0) != 0 && fd >= 0) {
            error = errno;
            close(fd);
            fd = -1;
        }
        errno = error;
        if (fd >= 0 || error != EEXIST)
            return fd;
    }
    return -1;
}

static bool is_refusal(int error)
{
    return error == EINVAL || error == EOPNOTSUPP || error == EISDIR || error == ENOENT;
}

/* With O_TMPFILE or not, with O_DIRECT or not: the best that the file system knows. */
static int make_file(int directory, bool *out_is_direct)
{
    static int (*const makers[])(int, int) = {make_nameless, make_and_unlink};
    for (int i = 0; i < 4; i++) {
        bool is_direct = i % 2 == 0;
        int fd = makers[i / 2](directory, is_direct ? O_DIRECT : 0);
        *out_is_direct = is_direct;
        if (fd >= 0 || !is_refusal(errno))
            return fd;
    }
    return -1;
}

/* Sets mode 0600 whatever the umask is; fails if another user could open the file. */
static sl_status close_to_others(const sl_store_file *file)
{
    struct stat info;
    if (fchmod(file->fd, OWN_MODE) != 0 || fstat(file->fd, &info) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: the disk tier's file: %s", file->directory, strerror(errno));
    if (!S_ISREG(info.st_mode) || (info.st_mode & 07777) != OWN_MODE || info.st_nlink != 0)
        SL_FAIL(SL_ERROR_IO,
                "%s: the disk tier's file would not be private (mode %06o, %lu links); name a "
                "directory on a local file system",
                file->directory, (unsigned)info.st_mode, (unsigned long)info.st_nlink);
    return SL_OK;
}

uint64_t sl_store_file_free_bytes(const sl_store_file *file)
{
    struct statvfs info;
    if (file->fd < 0 || fstatvfs(file->fd, &info) != 0)
        return 0;
    return (uint64_t)info.f_bavail * info.f_frsize;
}

static sl_status fail_reservation(const sl_store_file *file, uint64_t bytes, const char *reason)
{
    SL_FAIL(SL_ERROR_IO,
            "%s: the disk tier needs %llu bytes there and %llu are free: %s; free some, add a "
            "directory, or place less on disk",
            file->directory, (unsigned long long)bytes,
            (unsigned long long)sl_store_file_free_bytes(file), reason);
}

/* Checked first, because the kernel kills a process that exceeds its file size limit. */
static sl_status check_file_limit(const sl_store_file *file, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= bytes)
        return SL_OK;
    SL_FAIL(SL_ERROR_IO,
            "%s: the disk tier needs a file of %llu bytes and this process may write %llu (ulimit "
            "-f); raise that, add a directory, or place less on disk",
            file->directory, (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
}

/* If the file system cannot reserve space, requires that enough is free now. */
static sl_status extend_file(sl_store_file *file, uint64_t bytes)
{
    if (sl_store_file_free_bytes(file) < bytes)
        return fail_reservation(file, bytes, strerror(ENOSPC));
    if (ftruncate(file->fd, (off_t)bytes) != 0)
        return fail_reservation(file, bytes, strerror(errno));
    return SL_OK;
}

static sl_status reserve_space(sl_store_file *file, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return fail_reservation(file, bytes, strerror(EFBIG));
    SL_TRY(check_file_limit(file, bytes));
    uint32_t interruptions = 0;
    int result;
    do {
        result = fallocate(file->fd, 0, 0, (off_t)bytes);
    } while (result != 0 && sl_interruptions_allow(&interruptions));
    file->is_reserved = result == 0;
    if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail_reservation(file, bytes, strerror(errno));
    return result == 0 ? SL_OK : extend_file(file, bytes);
}

/* Writes and reads back one block of zeros; 0 or an errno. */
static int try_block(int fd)
{
    void *block = aligned_alloc(SL_STORE_ALIGNMENT, SL_STORE_ALIGNMENT);
    if (block == NULL)
        return ENOMEM;
    memset(block, 0, SL_STORE_ALIGNMENT);
    int error = 0;
    if (pwrite(fd, block, SL_STORE_ALIGNMENT, 0) < 0 || pread(fd, block, SL_STORE_ALIGNMENT, 0) < 0)
        error = errno;
    free(block);
    return error;
}

/* The unit of direct I/O on this file by statx; 0: the kernel says that it is not usable. */
static uint32_t direct_unit(int fd)
{
    uint32_t unit = SL_STORE_ALIGNMENT;
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) != 0) {
        uint32_t memory_unit = info.stx_dio_mem_align;
        unit = info.stx_dio_offset_align > memory_unit ? info.stx_dio_offset_align : memory_unit;
    }
#endif
    bool is_usable = unit != 0 && SL_STORE_ALIGNMENT % unit == 0;
    return is_usable ? unit : 0;
}

/* Decides whether the file bypasses the page cache: for all transfers or for none. */
static sl_status choose_direct(sl_store_file *file)
{
    int error = file->is_direct ? 0 : EINVAL;
    uint32_t unit = file->is_direct ? direct_unit(file->fd) : 0;
    file->unit = unit != 0 ? unit : SL_STORE_ALIGNMENT;
    if (unit != 0)
        error = try_block(file->fd);
    if (error != 0 && error != EINVAL && error != EOPNOTSUPP)
        SL_FAIL(error == ENOMEM ? SL_ERROR_SYSTEM : SL_ERROR_IO,
                "%s: trying the disk tier's file: %s", file->directory, strerror(error));
    if (unit != 0 && error == 0)
        return SL_OK;
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: the disk tier's file: %s", file->directory, strerror(errno));
    /* What the kernel reads ahead of one piece may lie in another that has been dropped: it would
     * stay in the page cache. */
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    file->is_direct = false;
    return SL_OK;
}

static void write_note(sl_store_file *file)
{
    const char *words[] = {"", "no direct I/O", "space not reserved",
                           "no direct I/O, space not reserved"};
    const char *word = words[(file->is_direct ? 0 : 1) + (file->is_reserved ? 0 : 2)];
    if (word[0] != '\0')
        snprintf(file->note, sizeof file->note, "%.100s: %s", file->directory, word);
}

sl_status sl_store_file_open(const char *directory, uint64_t bytes, sl_store_file *out_file)
{
    int parent;
    SL_TRY(open_directory(directory, &parent));
    sl_store_file file = {.directory = directory};
    file.fd = make_file(parent, &file.is_direct);
    int error = errno;
    close(parent);
    if (file.fd < 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot make the disk tier's file there: %s", directory,
                strerror(error));
    sl_status status = close_to_others(&file);
    if (status == SL_OK)
        status = reserve_space(&file, bytes);
    if (status == SL_OK)
        status = choose_direct(&file);
    if (status != SL_OK) {
        sl_store_file_close(&file);
        return status;
    }
    write_note(&file);
    *out_file = file;
    return SL_OK;
}

void sl_store_file_close(sl_store_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

void sl_store_file_settle(const sl_store_file *file, uint64_t offset, uint32_t bytes)
{
    if (!file->is_direct)
        posix_fadvise(file->fd, (off_t)offset, bytes, POSIX_FADV_DONTNEED);
}
