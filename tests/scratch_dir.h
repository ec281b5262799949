/* A directory of its own for each test, and small files in it. Failures of the set-up abort the
 * test program: they say nothing about the code under test. */
#ifndef SL_TESTS_SCRATCH_DIR_H
#define SL_TESTS_SCRATCH_DIR_H

#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCRATCH_PATH_BYTES = 1024 };

typedef struct scratch_path {
    char text[SCRATCH_PATH_BYTES];
} scratch_path;

static inline void scratch_need(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        abort();
    }
}

/* Makes an empty directory under TMPDIR; without one in memory where that can be, for thousands of
 * small files wait long for a busy disk. */
static inline scratch_path scratch_open(void)
{
    scratch_path path;
    const char *parent = getenv("TMPDIR");
    if (!parent)
        parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path.text, sizeof path.text, "%s/sluice-test-XXXXXX", parent);
    scratch_need(mkdtemp(path.text) != NULL, path.text);
    return path;
}

/* `directory`/`name`; use the result's .text inside the same expression or keep the struct. */
static inline scratch_path scratch_join(const char *directory, const char *name)
{
    scratch_path path;
    int length = snprintf(path.text, sizeof path.text, "%s/%s", directory, name);
    scratch_need(length > 0 && length < SCRATCH_PATH_BYTES, name);
    return path;
}

/* True if two files have the same bytes. */
static inline int scratch_is_same(const char *path, const char *other)
{
    FILE *a = fopen(path, "rb"), *b = fopen(other, "rb");
    int left, right;
    scratch_need(a != NULL, path);
    scratch_need(b != NULL, other);
    do {
        left = getc(a);
        right = getc(b);
    } while (left == right && left != EOF);
    fclose(a);
    fclose(b);
    return left == right;
}

static inline int scratch_remove_one(const char *path, const struct stat *info, int type,
                                     struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

static inline void scratch_close(const scratch_path *path)
{
    nftw(path->text, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a whole new file; cutting and rewriting an old one makes ext4 flush it to the disk. */
static inline void scratch_write(const char *path, const void *data, size_t bytes)
{
    unlink(path);
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    scratch_need(fwrite(data, 1, bytes, file) == bytes, path);
    scratch_need(fclose(file) == 0, path);
}

/* Reads a whole file, NUL behind it; the caller frees. */
static inline char *scratch_read(const char *path, size_t *out_bytes)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    scratch_need(file != NULL && fstat(fileno(file), &info) == 0, path);
    char *data = malloc((size_t)info.st_size + 1);
    scratch_need(data != NULL, path);
    *out_bytes = fread(data, 1, (size_t)info.st_size, file);
    scratch_need(*out_bytes == (size_t)info.st_size, path);
    data[*out_bytes] = '\0';
    fclose(file);
    return data;
}

static inline int scratch_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* SL_TEST_FULL=1 asks for the full counts. */
static inline uint64_t scratch_count(uint64_t quick, uint64_t full)
{
    const char *text = getenv("SL_TEST_FULL");
    return text && text[0] == '1' ? full : quick;
}

/* The seed of a property test: SL_TEST_SEED or the given one; printed, so a failure can be redone.
 */
static inline uint64_t scratch_seed(const char *test, uint64_t fallback)
{
    const char *text = getenv("SL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : fallback;
    printf("%s: seed %llu\n", test, (unsigned long long)seed);
    return seed;
}

/* A small generator of its own (xorshift*), so that tests do not draw from the code under test. */
static inline uint64_t scratch_draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static inline uint64_t scratch_below(uint64_t *state, uint64_t bound)
{
    return (scratch_draw(state) >> 11) % bound;
}

#endif
