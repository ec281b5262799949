/* A library to be loaded before others: of the reads of files whose path has FLIP_PATH in it,
 * number FLIP_AT gives one bit otherwise than it is on the disk. Reads are counted into the file
 * FLIP_COUNT, which also gets the path and the offset of the byte that was changed. Of several
 * ranks FLIP_RANK alone is meant. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };

static long count, changed_at = -1;
static char changed_path[PATH_BYTES];

static bool is_watched(int file, char path[PATH_BYTES])
{
    char link[64];
    const char *part = getenv("FLIP_PATH");
    const char *rank = getenv("SLUICE_RANK"), *chosen = getenv("FLIP_RANK");
    if (chosen && (!rank || strcmp(rank, chosen) != 0))
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = '\0';
    return part && strstr(path, part);
}

static long read_number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

/* Another byte and bit of each read. */
static void flip(unsigned char *data, ssize_t bytes, long offset)
{
    const uint64_t draw = (uint64_t)(count + 1000 * read_number("FLIP_SEED")) * 0x9e3779b97f4a7c15u;
    const uint64_t byte = (draw >> 16) % (uint64_t)bytes;
    data[byte] ^= (unsigned char)(1u << (draw >> 61));
    changed_at = offset + (long)byte;
}

ssize_t pread(int file, void *data, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    char path[PATH_BYTES];
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    ssize_t got = real(file, data, bytes, offset);
    if (got <= 0 || !is_watched(file, path))
        return got;
    if (__atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == read_number("FLIP_AT")) {
        flip(data, got, (long)offset);
        memcpy(changed_path, path, PATH_BYTES);
    }
    return got;
}

__attribute__((destructor)) static void write_count(void)
{
    const char *name = getenv("FLIP_COUNT");
    FILE *out = name && count > 0 ? fopen(name, "w") : NULL; /* not what started the command */
    if (!out)
        return;
    fprintf(out, "%ld %ld %s\n", count, changed_at, changed_path);
    fclose(out);
}
