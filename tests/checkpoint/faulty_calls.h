/* Stands in for the system calls that write checkpoints: counts them, makes a chosen one fail, cuts
 * it short, loses what it writes or ends the process in it, stops there for another process, lets a
 * disk be full, and tells a listener of each call that worked. To be included once in a test
 * program: its definitions take the place of the C library's.
 *
 * fsync is only recorded: a killed process leaves the same files with or without it, and thousands
 * of real ones would take minutes.
 */
#ifndef SL_TESTS_FAULTY_CALLS_H
#define SL_TESTS_FAULTY_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Else an errno value. CUT: short, and the calls that follow fail with EIO. */
enum { FAULT_SHORT = -1, FAULT_DIE = -2, FAULT_LOST = -3, FAULT_CUT = -4 };

/* A call that worked. */
typedef enum fault_call_kind {
    FAULT_CALL_CREATE,
    FAULT_CALL_WRITE,
    FAULT_CALL_RESERVE,
    FAULT_CALL_SYNC,
    FAULT_CALL_MKDIR,
    FAULT_CALL_UNLINK,
    FAULT_CALL_RENAME
} fault_call_kind;

typedef struct fault_call {
    fault_call_kind kind;
    int fd; /* of the file, or of the directory that holds the names */
    const char *name, *to;
    const void *data;
    uint64_t offset, bytes;
    unsigned flags;
} fault_call;

/* Where two processes take turns: one stops, the other says when it may go on. */
typedef struct fault_turn {
    sem_t stopped, go;
} fault_turn;

typedef struct fault_plan {
    int armed;      /* count calls and act */
    uint64_t calls; /* seen since armed */
    uint64_t first; /* the call that fails, from 1; 0: none */
    int all_after;  /* and every later one */
    int syncs_fail; /* and every later fsync, with EIO */
    int kind;
    const char *die_after; /* the process ends behind a rename to a name with this in it */
    int plain_renames;     /* as a file system without RENAME_NOREPLACE and RENAME_EXCHANGE */
    int no_reservation;    /* as one without fallocate */
    int lost_lock;         /* as one that grants the lock of a directory to everybody */
    FILE *trace;           /* one line a call, or NULL */
    void (*listen)(const fault_call *call);
    uint64_t pause_at;   /* the call before which the process stops, if there is a turn */
    uint64_t pause_more; /* and once more so many calls later; 0: no more */
    fault_turn *turn;
    const char *disk; /* a directory whose files may take up `room` bytes, or NULL */
    uint64_t room;
    int real_space; /* without `disk`: ask the kernel how much is free, and do not say "plenty" */
} fault_plan;

static fault_plan faults;

static inline const char *fault_fd_name(int fd, char *text, size_t bytes)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, text, bytes - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(text, '/');
    return slash ? slash + 1 : text;
}

/* One line: call, base name of the descriptor, names. */
static inline void fault_trace(const char *call, int fd, const char *a, const char *b)
{
    char text[512];
    if (faults.armed && faults.trace)
        fprintf(faults.trace, "%s %s %s %s\n", call,
                fd >= 0 ? fault_fd_name(fd, text, sizeof text) : "-", a, b);
}

/* True if this call is to fail; errno is set. Dies here if it is to die. */
static inline int fault_hits(int can_repeat)
{
    if (!faults.armed)
        return 0;
    faults.calls++;
    if (faults.turn && faults.calls == faults.pause_at) {
        sem_post(&faults.turn->stopped);
        while (sem_wait(&faults.turn->go) < 0 && errno == EINTR)
            continue;
        faults.pause_at += faults.pause_more;
        faults.pause_more = 0;
    }
    if (faults.first == 0 || faults.calls < faults.first ||
        (faults.calls > faults.first && !faults.all_after))
        return 0;
    if (faults.kind == FAULT_DIE)
        _exit(137);
    if (faults.kind == FAULT_SHORT || faults.kind == FAULT_LOST ||
        (faults.kind == FAULT_CUT && faults.calls == faults.first) ||
        (faults.kind == EINTR && !can_repeat))
        return 0;
    errno = faults.kind == FAULT_CUT ? EIO : faults.kind;
    return 1;
}

static inline size_t fault_cut(size_t bytes)
{
    int is_cutting = faults.kind == FAULT_SHORT || faults.kind == FAULT_CUT;
    int cuts = faults.armed && is_cutting && faults.first != 0 &&
               (faults.calls == faults.first || (faults.all_after && faults.calls > faults.first));
    return cuts && bytes > 1 ? bytes / 2 : bytes;
}

/* Tells of a call, if it worked; returns what it returned. */
static inline int fault_tell(int result, fault_call call)
{
    int kept = errno;
    if (result >= 0 && faults.armed && faults.listen)
        faults.listen(&call);
    errno = kept;
    return result;
}

/* ---- a full disk ---- */

static uint64_t fault_used_bytes;

static inline int fault_add_used(const char *path, const struct stat *info, int type,
                                 struct FTW *place)
{
    (void)path, (void)type, (void)place;
    fault_used_bytes += (uint64_t)info->st_blocks * 512;
    return 0;
}

static inline uint64_t fault_free_bytes(void)
{
    fault_used_bytes = 0;
    nftw(faults.disk, fault_add_used, 16, FTW_PHYS);
    return faults.room > fault_used_bytes ? faults.room - fault_used_bytes : 0;
}

/* How many of `bytes` at `offset` of a file still find room; whole pages are taken. */
static inline uint64_t fault_room(int fd, uint64_t offset, uint64_t bytes)
{
    struct stat info;
    if (!faults.disk || fstat(fd, &info) < 0)
        return bytes;
    uint64_t end = (uint64_t)info.st_blocks * 512 + fault_free_bytes() / 4096 * 4096;
    if (offset + bytes <= end)
        return bytes;
    return end > offset ? end - offset : 0;
}

/* A new name takes a page. True if there is none left; errno is set. */
static inline int fault_is_full(void)
{
    if (!faults.disk || fault_free_bytes() >= 4096)
        return 0;
    errno = ENOSPC;
    return 1;
}

int statvfs(const char *path, struct statvfs *info)
{
    if (fault_hits(0))
        return -1;
    struct stat there;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &there, 0) < 0)
        return -1;
    struct statfs real;
    uint64_t bytes = faults.disk ? fault_free_bytes() : 1ull << 40;
    if (!faults.disk && faults.real_space && statfs(path, &real) == 0)
        bytes = (uint64_t)real.f_bavail * (uint64_t)real.f_bsize;
    *info = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096};
    info->f_bavail = info->f_bfree = bytes / 4096;
    return 0;
}

/* ---- the calls ---- */

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    fault_trace("pwrite", fd, "", "");
    if (fault_hits(1))
        return -1;
    if (faults.armed && faults.kind == FAULT_LOST && faults.calls == faults.first)
        return (ssize_t)bytes;
    bytes = fault_cut(bytes);
    uint64_t fits = fault_room(fd, (uint64_t)offset, bytes);
    if (fits == 0 && bytes > 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t result = syscall(SYS_pwrite64, fd, data, fits, offset);
    fault_tell(result > 0 ? 0 : -1, (fault_call){.kind = FAULT_CALL_WRITE,
                                                 .fd = fd,
                                                 .data = data,
                                                 .offset = (uint64_t)offset,
                                                 .bytes = (uint64_t)result});
    return result;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    if (fault_hits(1))
        return -1;
    return syscall(SYS_pread64, fd, data, fault_cut(bytes), offset);
}

int fsync(int fd)
{
    fault_trace("fsync", fd, "", "");
    if (fault_hits(0))
        return -1;
    if (faults.armed && faults.syncs_fail && faults.calls > faults.first) {
        errno = EIO;
        return -1;
    }
    return fault_tell(0, (fault_call){.kind = FAULT_CALL_SYNC, .fd = fd});
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (fault_hits(1))
        return -1;
    if (faults.no_reservation) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (fault_room(fd, (uint64_t)offset, (uint64_t)bytes) < (uint64_t)bytes) {
        errno = ENOSPC;
        return -1;
    }
    return fault_tell(
        (int)syscall(SYS_fallocate, fd, mode, offset, bytes),
        (fault_call){.kind = FAULT_CALL_RESERVE, .fd = fd, .bytes = (uint64_t)(offset + bytes)});
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    (void)fd, (void)offset, (void)bytes, (void)flags;
    return fault_hits(0) ? -1 : 0;
}

int flock(int fd, int operation)
{
    char name[512];
    if (fault_hits(1))
        return -1;
    if (faults.lost_lock && strcmp(fault_fd_name(fd, name, sizeof name), ".lock") == 0)
        return 0;
    return (int)syscall(SYS_flock, fd, operation);
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    fault_trace("mkdir", directory, name, "");
    if (fault_hits(0) || fault_is_full())
        return -1;
    return fault_tell((int)syscall(SYS_mkdirat, directory, name, mode),
                      (fault_call){.kind = FAULT_CALL_MKDIR, .fd = directory, .name = name});
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int directory, const char *name, int flags)
{
    fault_trace("unlink", directory, name, "");
    if (fault_hits(0))
        return -1;
    return fault_tell((int)syscall(SYS_unlinkat, directory, name, flags),
                      (fault_call){.kind = FAULT_CALL_UNLINK, .fd = directory, .name = name});
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to,
              unsigned flags)
{
    fault_trace("rename", from_directory, from, to);
    if (fault_hits(0))
        return -1;
    if (flags != 0 && faults.plain_renames) {
        errno = EINVAL;
        return -1;
    }
    int result =
        fault_tell((int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags),
                   (fault_call){.kind = FAULT_CALL_RENAME,
                                .fd = from_directory,
                                .name = from,
                                .to = to,
                                .flags = flags});
    if (result == 0 && faults.armed && faults.die_after && strstr(to, faults.die_after))
        _exit(137);
    return result;
}

int openat(int directory, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (!(flags & O_CREAT))
        return fault_hits(0) ? -1 : (int)syscall(SYS_openat, directory, name, flags, mode);
    fault_trace("create", directory == AT_FDCWD ? -1 : directory, name, "");
    if (fault_hits(0) || fault_is_full())
        return -1;
    return fault_tell((int)syscall(SYS_openat, directory, name, flags, mode),
                      (fault_call){.kind = FAULT_CALL_CREATE, .fd = directory, .name = name});
}

/* What the headers make of openat where they check the flags while it runs. */
int __openat_2(int directory, const char *name, int flags);

int __openat_2(int directory, const char *name, int flags)
{
    return openat(directory, name, flags);
}

#endif
