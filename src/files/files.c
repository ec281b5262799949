/* Careful files; see files.h. The one place of this room that names errno values of reading and
 * writing. */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/heartbeat.h"
#include "base/interruptions.h"

enum {
    IO_BYTES_MAX = 1 << 30, /* one read or write moves less than 2 GiB on Linux */
    PUSH_BYTES = 32 << 20   /* written back together */
};

/* ---- text for people ---- */

static size_t show_byte(unsigned char byte, char out[5])
{
    if (byte >= 0x20 && byte < 0x7f) {
        out[0] = (char)byte;
        return 1;
    }
    snprintf(out, 5, "\\x%02x", byte);
    return 4;
}

sl_shown sl_files_show(const char *text)
{
    enum { HEAD = 100, DOTS = 3 };
    sl_shown shown = {{0}};
    size_t length = text ? strlen(text) : 0, used = 0, i = 0;
    size_t tail = length; /* where the part behind the dots starts */
    for (size_t room = 0; tail > 0 && room < SL_SHOWN_BYTES - HEAD - DOTS - 10; tail--) {
        char shown_byte[5];
        room += show_byte((unsigned char)text[tail - 1], shown_byte);
    }
    while (i < length) {
        char shown_byte[5];
        if (used >= HEAD && i < tail) {
            memcpy(shown.text + used, "...", DOTS);
            used += DOTS;
            i = tail;
        }
        size_t bytes = show_byte((unsigned char)text[i++], shown_byte);
        memcpy(shown.text + used, shown_byte, bytes);
        used += bytes;
    }
    return shown;
}

sl_packing sl_files_packing(const void *start, uint64_t bytes)
{
    const unsigned char *at = start;
    bool is_skippable =
        bytes >= 4 && (at[0] & 0xf0) == 0x50 && memcmp(at + 1, "\x2a\x4d\x18", 3) == 0;
    if (bytes >= 2 && at[0] == 0x1f && at[1] == 0x8b)
        return SL_PACKING_GZIP;
    if (bytes >= 4 && memcmp(at, "\x28\xb5\x2f\xfd", 4) == 0)
        return SL_PACKING_ZSTD;
    return is_skippable ? SL_PACKING_ZSTD : SL_PACKING_NONE;
}

/* ---- opening ---- */

static sl_status fail_open(const char *path, int error)
{
    sl_status status = SL_ERROR_IO;
    if (error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM)
        status = SL_ERROR_MISSING;
    else if (error == EMFILE || error == ENFILE || error == ENOMEM)
        status = SL_ERROR_SYSTEM;
    else if (error == ELOOP)
        SL_FAIL(SL_ERROR_DATA,
                "%s: is a symbolic link that is not followed here, or one of a circle",
                sl_files_show(path).text);
    SL_FAIL(status, "%s: cannot be opened: %s", sl_files_show(path).text, strerror(error));
}

sl_status sl_files_join_path(const char *directory_path, const char *name, char **out_path)
{
    int length = directory_path ? asprintf(out_path, "%s/%s", directory_path, name)
                                : asprintf(out_path, "%s", name);
    if (length >= 0)
        return SL_OK;
    *out_path = NULL;
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
}

bool sl_files_name_ends(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length >= ending_length && strcmp(name + length - ending_length, ending) == 0;
}

static sl_status check_regular(const char *path, const struct stat *info)
{
    if (S_ISREG(info->st_mode))
        return SL_OK;
    const char *kind = S_ISDIR(info->st_mode)    ? "a directory"
                       : S_ISFIFO(info->st_mode) ? "a FIFO"
                       : S_ISLNK(info->st_mode)  ? "a symbolic link, which is not followed here"
                                                 : "a device or socket";
    SL_FAIL(SL_ERROR_DATA, "%s: is %s, not a regular file", sl_files_show(path).text, kind);
}

sl_status sl_files_exists(int directory, const char *directory_path, const char *name,
                          bool *out_exists)
{
    struct stat info;
    char *path = NULL;
    *out_exists = fstatat(directory, name, &info, 0) == 0;
    if (*out_exists || errno == ENOENT || errno == ENOTDIR)
        return SL_OK;
    int error = errno;
    SL_TRY(sl_files_join_path(directory_path, name, &path));
    sl_status status = fail_open(path, error);
    free(path);
    return status;
}

sl_status sl_files_open_directory(int directory, const char *directory_path, const char *name,
                                  sl_links links, int *out_fd)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (links == SL_LINKS_REFUSE ? O_NOFOLLOW : 0);
    int fd = openat(directory, name, flags);
    if (fd >= 0) {
        *out_fd = fd;
        return SL_OK;
    }
    int error = errno;
    struct stat info;
    char *path = NULL;
    SL_TRY(sl_files_join_path(directory_path, name, &path));
    sl_status status;
    if (error == ENOTDIR && fstatat(directory, name, &info, 0) == 0)
        status = sl_status_fail(SL_ERROR_DATA, "%s: is not a directory", sl_files_show(path).text);
    else
        status = fail_open(path, error);
    free(path);
    return status;
}

static sl_status open_regular(int directory, const char *name, sl_links links, sl_file *file)
{
    struct stat info;
    int refuse = links == SL_LINKS_REFUSE;
    if (fstatat(directory, name, &info, refuse ? AT_SYMLINK_NOFOLLOW : 0) < 0)
        return fail_open(file->path, errno);
    SL_TRY(check_regular(file->path, &info));
    int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (refuse ? O_NOFOLLOW : 0);
    file->fd = openat(directory, name, flags);
    if (file->fd < 0 || fstat(file->fd, &info) < 0)
        return fail_open(file->path, errno);
    SL_TRY(check_regular(file->path, &info)); /* the name may have changed hands in between */
    file->bytes = (uint64_t)info.st_size;
    return SL_OK;
}

sl_status sl_files_open(int directory, const char *directory_path, const char *name, sl_links links,
                        sl_file *out_file)
{
    sl_file file = {.fd = -1};
    SL_TRY(sl_files_join_path(directory_path, name, &file.path));
    sl_status status = open_regular(directory, name, links, &file);
    if (status != SL_OK) {
        sl_files_close(&file);
        return status;
    }
    *out_file = file;
    return SL_OK;
}

/* `shown` is the name in messages; NULL: the file's own. */
static sl_status create_with(int directory, const char *directory_path, const char *name,
                             const char *shown, mode_t mode, sl_file *out_file)
{
    sl_file file = {.fd = -1};
    SL_TRY(sl_files_join_path(directory_path, name, &file.path));
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    file.fd = openat(directory, name, flags, mode);
    if (file.fd < 0) {
        int error = errno;
        sl_status_fail(SL_ERROR_IO, "%s: cannot be made: %s",
                       sl_files_show(shown ? shown : file.path).text, strerror(error));
        sl_files_close(&file);
        return SL_ERROR_IO;
    }
    *out_file = file;
    return SL_OK;
}

sl_status sl_files_create(int directory, const char *directory_path, const char *name,
                          sl_file *out_file)
{
    return create_with(directory, directory_path, name, NULL, 0600, out_file);
}

sl_status sl_files_create_shared(int directory, const char *directory_path, const char *name,
                                 sl_file *out_file)
{
    return create_with(directory, directory_path, name, NULL, 0666, out_file);
}

/* ---- files without a name ---- */

enum { LINK_BYTES = 32 };

/* Where the system names the file of a descriptor. */
static const char *name_descriptor(int fd, char out_link[LINK_BYTES])
{
    snprintf(out_link, LINK_BYTES, "/proc/self/fd/%d", fd);
    return out_link;
}

/* A descriptor of a file without a name in the directory in which `path` ends; -1: none can be
 * made there, or it could not be named later. */
static int open_unseen(const char *path, mode_t mode)
{
    char link[LINK_BYTES];
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = directory ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, mode) : -1;
    free(directory);
    if (fd >= 0 && access(name_descriptor(fd, link), F_OK) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static sl_status create_unseen_with(const char *name, mode_t mode, sl_file *out_file)
{
    char *path = NULL;
    if (asprintf(&path, "%s.tmp-%ld", name, (long)getpid()) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    unlink(path); /* of a process that died and had this number */
    int fd = open_unseen(path, mode);
    if (fd >= 0) {
        *out_file = (sl_file){.fd = fd, .path = path, .is_unseen = true};
        return SL_OK;
    }
    sl_status status = create_with(AT_FDCWD, NULL, path, name, mode, out_file);
    free(path);
    return status;
}

sl_status sl_files_create_unseen(const char *name, sl_file *out_file)
{
    return create_unseen_with(name, 0600, out_file);
}

sl_status sl_files_create_unseen_shared(const char *name, sl_file *out_file)
{
    return create_unseen_with(name, 0666, out_file);
}

sl_status sl_files_link_unseen(sl_file *file)
{
    char link[LINK_BYTES];
    if (file->is_unseen && linkat(AT_FDCWD, name_descriptor(file->fd, link), AT_FDCWD, file->path,
                                  AT_SYMLINK_FOLLOW) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be named: %s", sl_files_show(file->path).text,
                strerror(errno));
    file->is_unseen = false;
    return SL_OK;
}

sl_status sl_files_publish(sl_file *file, const char *name)
{
    SL_TRY(sl_files_link_unseen(file));
    const int error = sl_files_rename(AT_FDCWD, file->path, name, SL_RENAME_REPLACE);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be named %s: %s", sl_files_show(file->path).text,
                sl_files_show(name).text, strerror(error));
    file->is_unseen = true; /* its temporary name is gone again */
    return SL_OK;
}

void sl_files_discard(sl_file *file)
{
    if (file->path && file->fd >= 0 && !file->is_unseen)
        unlink(file->path);
    sl_files_close(file);
}

void sl_files_close(sl_file *file)
{
    if (!file->whole) {
        if (file->path && file->fd >= 0)
            close(file->fd);
        free(file->path);
    }
    *file = (sl_file){.fd = -1};
}

/* ---- reading and writing ---- */

static sl_status fail_transfer(const sl_file *file, const char *what, uint64_t bytes,
                               uint64_t offset, int error)
{
    SL_FAIL(SL_ERROR_IO, "%s: %s %llu bytes at offset %llu failed: %s",
            sl_files_show(file->path).text, what, (unsigned long long)bytes,
            (unsigned long long)offset, strerror(error));
}

sl_status sl_files_rest(sl_file *file)
{
    struct stat info;
    if (fstat(file->fd, &info) != 0)
        return fail_open(file->path, errno);
    file->device = info.st_dev;
    file->inode = info.st_ino;
    close(file->fd);
    file->fd = -1;
    return SL_OK;
}

static sl_status check_same(const sl_file *resting, const sl_file *now)
{
    struct stat info;
    if (fstat(now->fd, &info) != 0)
        return fail_open(now->path, errno);
    if (info.st_dev != resting->device || info.st_ino != resting->inode ||
        now->bytes != resting->bytes)
        SL_FAIL(SL_ERROR_DATA, "%s: was changed or replaced while it is in use",
                sl_files_show(now->path).text);
    return SL_OK;
}

static sl_status read_resting(const sl_file *file, uint64_t offset, uint64_t bytes, void *data)
{
    sl_file now;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, file->path, SL_LINKS_FOLLOW, &now));
    sl_status status = check_same(file, &now);
    if (status == SL_OK)
        status = sl_files_read_at(&now, offset, bytes, data);
    sl_files_close(&now);
    return status;
}

sl_status sl_files_take_part(const sl_file *whole, uint64_t first_byte, uint64_t bytes,
                             sl_file *out_part)
{
    if (first_byte > whole->bytes || bytes > whole->bytes - first_byte)
        SL_FAIL(SL_ERROR_DATA,
                "%s: has %llu bytes, and %llu bytes at %llu are needed: it is cut, or another file",
                sl_files_show(whole->path).text, (unsigned long long)whole->bytes,
                (unsigned long long)bytes, (unsigned long long)first_byte);
    *out_part = (sl_file){
        .fd = -1, .bytes = bytes, .path = whole->path, .whole = whole, .first_byte = first_byte};
    return SL_OK;
}

sl_status sl_files_read_at(const sl_file *file, uint64_t offset, uint64_t bytes, void *data)
{
    uint64_t done = 0;
    uint32_t interruptions = 0;
    if (file->whole) {
        offset += file->first_byte;
        file = file->whole;
    }
    if (file->fd < 0)
        return read_resting(file, offset, bytes, data);
    while (done < bytes) {
        ssize_t got = pread(file->fd, (char *)data + done, sl_bits_min(bytes - done, IO_BYTES_MAX),
                            (off_t)(offset + done));
        if (got < 0 && sl_interruptions_allow(&interruptions))
            continue;
        if (got < 0)
            return fail_transfer(file, "reading", bytes - done, offset + done, errno);
        if (got == 0)
            SL_FAIL(SL_ERROR_DATA, "%s: ends at byte %llu, but had %llu bytes when it was opened",
                    sl_files_show(file->path).text, (unsigned long long)(offset + done),
                    (unsigned long long)file->bytes);
        done += (uint64_t)got;
        interruptions = 0;
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

sl_status sl_files_append(sl_file *file, uint64_t bytes, const void *data)
{
    uint64_t done = 0;
    uint32_t interruptions = 0;
    while (done < bytes) {
        uint64_t part = sl_bits_min(bytes - done, IO_BYTES_MAX);
        ssize_t got = pwrite(file->fd, (const char *)data + done, part, (off_t)file->bytes);
        if (got < 0 && sl_interruptions_allow(&interruptions))
            continue;
        if (got <= 0)
            return fail_transfer(file, "writing", bytes - done, file->bytes, got ? errno : EIO);
        file->bytes += (uint64_t)got;
        done += (uint64_t)got;
        interruptions = 0;
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

sl_status sl_files_reserve(const sl_file *file, uint64_t bytes)
{
    int result;
    uint32_t interruptions = 0;
    do
        result = fallocate(file->fd, 0, 0, (off_t)bytes);
    while (result < 0 && sl_interruptions_allow(&interruptions));
    if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return SL_OK;
    return fail_transfer(file, "reserving", bytes, 0, errno);
}

/* Waits until a range is on the disk. A write error that is reported here is not reported again by
 * fsync. */
static sl_status write_back(const sl_file *file, uint64_t offset, uint64_t bytes)
{
    const unsigned wait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (sync_file_range(file->fd, (off_t)offset, (off_t)bytes, wait) < 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        return fail_transfer(file, "writing back", bytes, offset, errno);
    return sl_heartbeat_give();
}

sl_status sl_files_push(const sl_file *file, uint64_t offset, uint64_t bytes)
{
    sync_file_range(file->fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    if (offset < bytes)
        return SL_OK;
    uint64_t before = offset - bytes;
    SL_TRY(write_back(file, before, bytes));
    posix_fadvise(file->fd, (off_t)before, (off_t)bytes, POSIX_FADV_DONTNEED);
    return SL_OK;
}

sl_status sl_files_append_pushed(sl_file *file, uint64_t *pushed_bytes, uint64_t bytes,
                                 const void *data)
{
    SL_TRY(sl_files_append(file, bytes, data));
    while (file->bytes - *pushed_bytes >= PUSH_BYTES) {
        SL_TRY(sl_files_push(file, *pushed_bytes, PUSH_BYTES));
        *pushed_bytes += PUSH_BYTES;
    }
    return SL_OK;
}

/* Writes a large file back part by part, with a sign of life after each: one fsync of all of it may
 * take minutes. */
sl_status sl_files_sync(const sl_file *file)
{
    for (uint64_t done = 0; file->bytes > PUSH_BYTES && done < file->bytes; done += PUSH_BYTES)
        SL_TRY(write_back(file, done, PUSH_BYTES));
    if (fsync(file->fd) == 0)
        return sl_heartbeat_give();
    SL_FAIL(SL_ERROR_IO, "%s: syncing %llu bytes failed: %s", sl_files_show(file->path).text,
            (unsigned long long)file->bytes, strerror(errno));
}

void sl_files_forget(const sl_file *file)
{
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
}

sl_status sl_files_sync_directory(int directory, const char *directory_path)
{
    if (fsync(directory) == 0 || errno == EINVAL) /* EINVAL: this file system needs none */
        return sl_heartbeat_give();
    SL_FAIL(SL_ERROR_IO, "%s: syncing the directory failed: %s", sl_files_show(directory_path).text,
            strerror(errno));
}

sl_status sl_files_read_text(const sl_file *file, uint64_t limit, char **out_text)
{
    if (file->bytes > limit)
        SL_FAIL(SL_ERROR_DATA, "%s: has %llu bytes, more than the %llu that such a file may have",
                sl_files_show(file->path).text, (unsigned long long)file->bytes,
                (unsigned long long)limit);
    char *text = malloc(file->bytes + 1);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the %llu bytes of %s",
                (unsigned long long)file->bytes, sl_files_show(file->path).text);
    sl_status status = sl_files_read_at(file, 0, file->bytes, text);
    if (status != SL_OK) {
        free(text);
        return status;
    }
    text[file->bytes] = '\0';
    *out_text = text;
    return SL_OK;
}

sl_status sl_files_write_text(int directory, const char *directory_path, const char *name,
                              const char *text)
{
    sl_file file;
    SL_TRY(sl_files_create(directory, directory_path, name, &file));
    sl_status status = sl_files_append(&file, strlen(text), text);
    if (status == SL_OK)
        status = sl_files_sync(&file);
    sl_files_close(&file);
    return status;
}

/* ---- names ---- */

static sl_status make_directory(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return SL_OK;
    SL_FAIL(SL_ERROR_IO, "%s: the directory cannot be made: %s", sl_files_show(path).text,
            strerror(errno));
}

static sl_status sync_parent(char *path)
{
    char *slash = strrchr(path, '/');
    const char *parent = !slash ? "." : slash == path ? "/" : path;
    if (slash && slash != path)
        *slash = '\0';
    int fd = -1;
    sl_status status = sl_files_open_directory(AT_FDCWD, NULL, parent, SL_LINKS_FOLLOW, &fd);
    if (status == SL_OK) {
        status = sl_files_sync_directory(fd, parent);
        close(fd);
    }
    if (slash && slash != path)
        *slash = '/';
    return status;
}

sl_status sl_files_sync_parent(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = sync_parent(copy);
    free(copy);
    return status;
}

static sl_status make_each(char *path)
{
    for (char *end = path + 1;; end++) {
        if (*end != '/' && *end != '\0')
            continue;
        char kept = *end;
        struct stat info;
        *end = '\0';
        bool is_new = end[-1] != '/' && stat(path, &info) < 0;
        if (is_new)
            SL_TRY(make_directory(path));
        if (is_new || kept == '\0') {
            sl_status status = sync_parent(path);
            if (is_new)
                SL_TRY(status);
        }
        *end = kept;
        if (kept == '\0')
            return SL_OK;
    }
}

sl_status sl_files_make_directories(const char *path)
{
    if (path[0] == '\0')
        SL_FAIL(SL_ERROR_USAGE, "the name of a directory is empty");
    char *copy = strdup(path);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = make_each(copy);
    free(copy);
    return status;
}

/* "a/b" becomes "a", "a" becomes ".", "/a" becomes "/". */
static void cut_last_part(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path && slash[1]] = '\0';
    else
        memcpy(path, ".", 2);
}

sl_status sl_files_free_space(const char *path, uint64_t *out_free_bytes, uint64_t *out_block_bytes)
{
    struct statvfs info;
    char *parent = strdup(path);
    if (!parent)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    int result = statvfs(parent, &info);
    while (result < 0 && errno == ENOENT && *parent && strcmp(parent, ".") != 0) {
        cut_last_part(parent);
        result = statvfs(parent, &info);
    }
    int error = errno;
    free(parent);
    if (result < 0)
        SL_FAIL(SL_ERROR_IO, "%s: its free space cannot be asked: %s", sl_files_show(path).text,
                strerror(error));
    *out_free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    *out_block_bytes = info.f_frsize;
    return SL_OK;
}

int sl_files_rename(int directory, const char *from, const char *to, sl_rename kind)
{
    static const unsigned flags[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    if (renameat2(directory, from, directory, to, flags[kind]) == 0)
        return 0;
    return errno;
}

sl_status sl_files_replace_text(int directory, const char *directory_path, const char *name,
                                const char *temporary, const char *text)
{
    unlinkat(directory, temporary, 0); /* of a run that died */
    sl_status status = sl_files_write_text(directory, directory_path, temporary, text);
    if (status == SL_OK) {
        int error = sl_files_rename(directory, temporary, name, SL_RENAME_REPLACE);
        if (error)
            status = sl_status_fail(SL_ERROR_IO, "%s/%s: cannot be replaced: %s",
                                    sl_files_show(directory_path).text, sl_files_show(name).text,
                                    strerror(error));
    }
    if (status == SL_OK)
        return sl_files_sync_directory(directory, directory_path);
    unlinkat(directory, temporary, 0);
    return status;
}
