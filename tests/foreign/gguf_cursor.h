/* Reads GGUF for tests, front to back, written from the format's description: numbers, texts,
 * values as lines of text. Fails the test where the file ends. */
#ifndef SL_TESTS_GGUF_CURSOR_H
#define SL_TESTS_GGUF_CURSOR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct gguf_cursor {
    const unsigned char *data, *at, *end;
} gguf_cursor;

static inline uint64_t take(gguf_cursor *self, size_t bytes)
{
    uint64_t value = 0;
    assert_true((size_t)(self->end - self->at) >= bytes);
    memcpy(&value, self->at, bytes);
    self->at += bytes;
    return value;
}

static inline const char *take_text(gguf_cursor *self, char text[256])
{
    uint64_t bytes = take(self, 8);
    assert_true(bytes < 256 && (size_t)(self->end - self->at) >= bytes);
    memcpy(text, self->at, bytes);
    text[bytes] = '\0';
    self->at += bytes;
    return text;
}

/* Writes a value as text: of a list its count, its last item and the sum of its numbers. */
static inline void take_value(gguf_cursor *self, uint64_t kind, char text[256])
{
    float real;
    if (kind == 4 || kind == 5) {
        snprintf(text, 256, "%d", (int)(int32_t)take(self, 4));
    } else if (kind == 6) {
        uint32_t bits = (uint32_t)take(self, 4);
        memcpy(&real, &bits, sizeof real);
        snprintf(text, 256, "%.9g", (double)real);
    } else if (kind == 7) {
        snprintf(text, 256, "%s", take(self, 1) ? "true" : "false");
    } else if (kind == 8) {
        take_text(self, text);
    } else {
        char item[256] = "";
        assert_int_equal(kind, 9);
        uint64_t item_kind = take(self, 4), count = take(self, 8);
        for (uint64_t i = 0; i < count; i++)
            take_value(self, item_kind, item);
        snprintf(text, 256, "%llu: %.200s", (unsigned long long)count, item);
    }
}

/* Values as lines, and the place behind the last. */
static inline void take_values(gguf_cursor *self, uint64_t count, char *out_lines, size_t capacity)
{
    size_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        char key[256], value[256];
        take_text(self, key);
        uint64_t kind = take(self, 4);
        take_value(self, kind, value);
        used += (size_t)snprintf(out_lines + used, capacity - used, "%s=%s\n", key, value);
        assert_true(used < capacity);
    }
}

/* Where the data start is known only behind the last tensor: so tensors are walked twice. */
static inline void skip_gguf_tensors(gguf_cursor *self, uint64_t count)
{
    char text[256];
    for (uint64_t i = 0; i < count; i++) {
        take_text(self, text);
        uint64_t dim_count = take(self, 4);
        self->at += 8 * dim_count + 4 + 8;
    }
}

#endif
