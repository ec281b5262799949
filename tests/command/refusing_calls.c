/* A library to be loaded before others: in the rank REFUSE_RANK, call number REFUSE_AT of a kind
 * fails as the system's would, once. REFUSE_KIND is memory, read or write; calls of it are counted
 * into the file REFUSE_COUNT. Of kind interrupt, reads and writes at a place are interrupted from
 * that number on; of kind interrupt-file, calls on files with SLOW_PATH in their names: writes that
 * are not at a place, locks and reservations; of kind interrupt-read, reads at a place of such
 * files; of kind slow, reads, writes and syncs of files with SLOW_PATH in their names take SLOW_MS
 * more, as on a slow disk; of kind slow-sync, syncs alone; of kind slow-once, the first of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { EARLY_BYTES = 1 << 16 };

static _Alignas(16) char early[EARLY_BYTES]; /* while the real functions are looked for */
static size_t early_used;
static bool is_looking, is_read;
static const char *wanted; /* NULL: not this rank */
static long refused_at, count;

static void read_wishes(void)
{
    const char *rank = getenv("SLUICE_RANK"), *chosen = getenv("REFUSE_RANK");
    const char *number = getenv("REFUSE_AT");
    is_read = true;
    wanted = rank && chosen && strcmp(rank, chosen) == 0 ? getenv("REFUSE_KIND") : NULL;
    refused_at = number ? strtol(number, NULL, 10) : 0;
}

static bool has_slow_name(int file, const char *part)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    return strstr(path, part) != NULL;
}

static void slow_down(int file, bool is_sync)
{
    const char *part = getenv("SLOW_PATH"), *time = getenv("SLOW_MS");
    if (!is_read)
        read_wishes();
    const bool is_once = wanted && strcmp(wanted, "slow-once") == 0;
    const bool is_slow =
        is_once ||
        (wanted && (strcmp(wanted, "slow") == 0 || (is_sync && strcmp(wanted, "slow-sync") == 0)));
    if (!is_slow || !part || !time || !has_slow_name(file, part))
        return;
    if (is_once && __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) > 1)
        return;
    const long ms = strtol(time, NULL, 10);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static bool is_interrupted(void)
{
    if (!is_read)
        read_wishes();
    return wanted && strcmp(wanted, "interrupt") == 0 &&
           __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) >= refused_at;
}

static bool is_interrupted_file(const char *kind, int file)
{
    const char *part = getenv("SLOW_PATH");
    if (!is_read)
        read_wishes();
    return wanted && strcmp(wanted, kind) == 0 && part && has_slow_name(file, part);
}

static bool is_refused(const char *kind)
{
    if (!is_read)
        read_wishes();
    return wanted && strcmp(wanted, kind) == 0 &&
           __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == refused_at;
}

__attribute__((destructor)) static void write_count(void)
{
    const char *name = getenv("REFUSE_COUNT");
    FILE *file = wanted && name ? fopen(name, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", count);
    fclose(file);
}

static void *find(const char *name)
{
    is_looking = true;
    void *function = dlsym(RTLD_NEXT, name);
    is_looking = false;
    return function;
}

static void *take_early(size_t bytes)
{
    void *memory = early + early_used;
    early_used += (bytes + 15) / 16 * 16;
    if (early_used > EARLY_BYTES)
        abort();
    return memory;
}

static bool is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + EARLY_BYTES;
}

/* Of a function FIND_REAL(name) is the one that this library stands before. */
#define FIND_REAL(name)                                                                            \
    static __typeof__(name) *real;                                                                 \
    if (!real)                                                                                     \
    real = (__typeof__(name) *)find(#name)

#define FAIL_WITH(error, result)                                                                   \
    do {                                                                                           \
        errno = (error);                                                                           \
        return (result);                                                                           \
    } while (0)

void *malloc(size_t bytes)
{
    if (is_looking)
        return take_early(bytes);
    FIND_REAL(malloc);
    if (is_refused("memory"))
        FAIL_WITH(ENOMEM, NULL);
    return real(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    if (is_looking)
        return take_early(number * bytes);
    FIND_REAL(calloc);
    if (is_refused("memory"))
        FAIL_WITH(ENOMEM, NULL);
    return real(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    FIND_REAL(realloc);
    if (is_refused("memory"))
        FAIL_WITH(ENOMEM, NULL);
    return real(memory, bytes);
}

void free(void *memory)
{
    if (is_early(memory))
        return;
    FIND_REAL(free);
    real(memory);
}

ssize_t read(int file, void *data, size_t bytes)
{
    FIND_REAL(read);
    if (file > STDERR_FILENO && is_refused("read"))
        FAIL_WITH(EIO, -1);
    return real(file, data, bytes);
}

ssize_t pread(int file, void *data, size_t bytes, off_t offset)
{
    FIND_REAL(pread);
    slow_down(file, false);
    if (is_interrupted() || is_interrupted_file("interrupt-read", file))
        FAIL_WITH(EINTR, -1);
    if (is_refused("read"))
        FAIL_WITH(EIO, -1);
    return real(file, data, bytes, offset);
}

ssize_t write(int file, const void *data, size_t bytes)
{
    FIND_REAL(write);
    if (is_interrupted_file("interrupt-file", file))
        FAIL_WITH(EINTR, -1);
    if (file > STDERR_FILENO && is_refused("write"))
        FAIL_WITH(ENOSPC, -1);
    return real(file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset)
{
    FIND_REAL(pwrite);
    slow_down(file, false);
    if (is_interrupted())
        FAIL_WITH(EINTR, -1);
    if (is_refused("write"))
        FAIL_WITH(ENOSPC, -1);
    return real(file, data, bytes, offset);
}

int flock(int file, int operation)
{
    FIND_REAL(flock);
    if (is_interrupted_file("interrupt-file", file))
        FAIL_WITH(EINTR, -1);
    return real(file, operation);
}

int fallocate(int file, int mode, off_t offset, off_t bytes)
{
    FIND_REAL(fallocate);
    if (is_interrupted_file("interrupt-file", file))
        FAIL_WITH(EINTR, -1);
    return real(file, mode, offset, bytes);
}

int fsync(int file)
{
    FIND_REAL(fsync);
    slow_down(file, true);
    if (is_refused("write"))
        FAIL_WITH(EIO, -1);
    return real(file);
}
