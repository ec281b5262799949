/* What the tests of safetensors files share: opening, expecting a message, and writing a file from
 * its parts as the format says. */
#ifndef SL_TESTS_SAFETENSORS_CASE_H
#define SL_TESTS_SAFETENSORS_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "files/safetensors.h"
#include "scratch_dir.h"

static inline int open_scratch(void **state)
{
    static scratch_path directory;
    directory = scratch_open();
    *state = &directory;
    return 0;
}

static inline int close_scratch(void **state)
{
    scratch_close(*state);
    return 0;
}

static inline sl_safetensors *must_open(const char *path)
{
    sl_safetensors *file = NULL;
    if (sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file) != SL_OK)
        fail_msg("%s", sl_status_message());
    return file;
}

/* The status, a piece of the message, and nothing in it that a terminal would obey. */
static inline void expect_failure(const char *what, sl_status status, sl_status expected,
                                  const char *fragment)
{
    if (status != expected || !strstr(sl_status_message(), fragment))
        fail_msg("%s: status %d, message \"%s\", expected \"%s\"", what, status,
                 status ? sl_status_message() : "", fragment);
    for (const char *c = sl_status_message(); *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            fail_msg("%s: the message holds byte %02x", what, (unsigned char)*c);
}

/* Writes a file from its parts, as the format says. */
static inline void write_by_hand(const char *path, const char *header, const void *data,
                                 size_t bytes)
{
    FILE *file = fopen(path, "wb");
    uint64_t length = strlen(header);
    scratch_need(file != NULL, path);
    fwrite(&length, 8, 1, file);
    fwrite(header, 1, length, file);
    fwrite(data, 1, bytes, file);
    fclose(file);
}

#endif
