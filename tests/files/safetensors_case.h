/* What the tests of safetensors files share: opening, and writing a file from its parts as the
 * format says. */
#ifndef SL_TESTS_SAFETENSORS_CASE_H
#define SL_TESTS_SAFETENSORS_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "files/safetensors.h"
#include "scratch_case.h"

static inline sl_safetensors *must_open(const char *path)
{
    sl_safetensors *file = NULL;
    if (sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file) != SL_OK)
        fail_msg("%s", sl_status_message());
    return file;
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
