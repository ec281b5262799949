/* Stands in for the system calls that write checkpoints: counts them, makes a chosen one fail, cuts
 * it short, loses what it writes or ends the process in it, and keeps a trace. To be included by
 * one test program only: its definitions take the place of the C library's.
 *
 * fsync is only recorded: a killed process leaves the same files with or without it, and thousands
 * of real ones would take minutes.
 */
#ifndef SL_TESTS_FAULTY_CALLS_H
#define SL_TESTS_FAULTY_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FAULT_SHORT = -1, FAULT_DIE = -2, FAULT_LOST = -3 }; /* else an errno value */

typedef struct fault_plan {
    int armed;      /* count calls and act */
    uint64_t calls; /* seen since armed */
    uint64_t first; /* the call that fails, from 1; 0: none */
    int all_after;  /* and every later one */
    int kind;
    int plain_renames;  /* as a file system without RENAME_NOREPLACE and RENAME_EXCHANGE */
    int no_reservation; /* as one without fallocate */
    FILE *trace;        /* one line a call, or NULL */
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
    if (faults.first == 0 || faults.calls < faults.first ||
        (faults.calls > faults.first && !faults.all_after))
        return 0;
    if (faults.kind == FAULT_DIE)
        _exit(137);
    if (faults.kind == FAULT_SHORT || faults.kind == FAULT_LOST ||
        (faults.kind == EINTR && !can_repeat))
        return 0;
    errno = faults.kind;
    return 1;
}

static inline size_t fault_cut(size_t bytes)
{
    int cuts = faults.armed && faults.kind == FAULT_SHORT && faults.first != 0 &&
               (faults.calls == faults.first || (faults.all_after && faults.calls > faults.first));
    return cuts && bytes > 1 ? bytes / 2 : bytes;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    fault_trace("pwrite", fd, "", "");
    if (fault_hits(1))
        return -1;
    if (faults.armed && faults.kind == FAULT_LOST && faults.calls == faults.first)
        return (ssize_t)bytes;
    return syscall(SYS_pwrite64, fd, data, fault_cut(bytes), offset);
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
    return fault_hits(0) ? -1 : 0;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (fault_hits(1))
        return -1;
    if (faults.no_reservation) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    (void)fd, (void)offset, (void)bytes, (void)flags;
    return fault_hits(0) ? -1 : 0;
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    fault_trace("mkdir", directory, name, "");
    return fault_hits(0) ? -1 : (int)syscall(SYS_mkdirat, directory, name, mode);
}

int unlinkat(int directory, const char *name, int flags)
{
    fault_trace("unlink", directory, name, "");
    return fault_hits(0) ? -1 : (int)syscall(SYS_unlinkat, directory, name, flags);
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
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

int openat(int directory, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (flags & O_CREAT)
        fault_trace("create", directory == AT_FDCWD ? -1 : directory, name, "");
    return fault_hits(0) ? -1 : (int)syscall(SYS_openat, directory, name, flags, mode);
}

#endif
