/* Stands in for the system calls that make the disk store's files: a file system without this or
 * that, and the n-th call failing. To be included by one test program only: its definitions take
 * the place of the C library's. */
#ifndef SL_TESTS_STORE_CALLS_H
#define SL_TESTS_STORE_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct store_calls_plan {
    int no_nameless;        /* errno of O_TMPFILE; 0: it works */
    int no_direct_open;     /* errno of O_DIRECT at open */
    int no_direct_moves;    /* errno of transfers with O_DIRECT */
    int reservation;        /* errno of fallocate */
    int reservation_once;   /* of the first fallocate alone */
    uint32_t direct_unit;   /* what statx says; 0: what it says here, UINT32_MAX: no direct I/O */
    uint64_t fails_at;      /* the call that fails with EIO, from 1; 0: none */
    _Atomic uint64_t calls; /* so far; a store's threads make some */
} store_calls_plan;

static store_calls_plan store_calls;

static inline int store_call_fails(int error)
{
    if (store_calls.fails_at == atomic_fetch_add(&store_calls.calls, 1) + 1)
        error = EIO;
    errno = error;
    return error != 0;
}

static inline int is_direct(int fd)
{
    return (syscall(SYS_fcntl, fd, F_GETFL) & O_DIRECT) != 0;
}

int openat(int directory, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    int error = 0;
    if (flags & O_DIRECT)
        error = store_calls.no_direct_open;
    if ((flags & O_TMPFILE) == O_TMPFILE && store_calls.no_nameless)
        error = store_calls.no_nameless;
    if (store_call_fails(error))
        return -1;
    return (int)syscall(SYS_openat, directory, name, flags, mode);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    int error = store_calls.reservation ? store_calls.reservation : store_calls.reservation_once;
    store_calls.reservation_once = 0;
    if (store_call_fails(error))
        return -1;
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int fchmod(int fd, mode_t mode)
{
    return store_call_fails(0) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int unlinkat(int directory, const char *name, int flags)
{
    int fails = store_call_fails(0);
    int result = (int)syscall(SYS_unlinkat, directory, name, flags);
    if (fails)
        errno = EIO;
    return fails ? -1 : result;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (store_call_fails(is_direct(fd) ? store_calls.no_direct_moves : 0))
        return -1;
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    if (store_call_fails(is_direct(fd) ? store_calls.no_direct_moves : 0))
        return -1;
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

int statx(int directory, const char *restrict name, int flags, unsigned mask,
          struct statx *restrict out)
{
    int result = (int)syscall(SYS_statx, directory, name, flags, mask, out);
#ifdef STATX_DIOALIGN
    if (result == 0 && store_calls.direct_unit != 0) {
        uint32_t unit = store_calls.direct_unit == UINT32_MAX ? 0 : store_calls.direct_unit;
        out->stx_mask |= STATX_DIOALIGN;
        out->stx_dio_offset_align = out->stx_dio_mem_align = unit;
    }
#endif
    return result;
}

#endif
