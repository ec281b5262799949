/* Changes the text of a checkpoint's manifest and seals it again, as another version would have
 * written it. */
#ifndef SL_TESTS_SEALED_MANIFEST_H
#define SL_TESTS_SEALED_MANIFEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scratch_dir.h"

enum { SEALED_HASH_BYTES = 33 };

static inline void sealed_hash(const char *data, size_t bytes, char out_text[SEALED_HASH_BYTES])
{
    sl_hash_value hash = sl_hash_128(data, bytes);
    snprintf(out_text, SEALED_HASH_BYTES, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

/* Puts `after` in the place of `before`, of the same length, in the manifest at `path`. */
static inline void sealed_edit(const char *path, const char *before, const char *after)
{
    size_t bytes;
    char hash[SEALED_HASH_BYTES], *text = scratch_read(path, &bytes);
    char *place = strstr(text, before), *seal = strstr(text, ",\n  \"checksum\": \"");
    scratch_need(place && seal && strlen(before) == strlen(after), before);
    memcpy(place, after, strlen(after));
    sealed_hash(text, (size_t)(seal - text), hash);
    memcpy(strchr(seal, ':') + 3, hash, strlen(hash));
    scratch_write(path, text, bytes);
    free(text);
}

#endif
