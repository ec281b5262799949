/* A reader of TensorBoard's event files for tests, made from the layout of its records and messages
 * and not from the writer: checksums by long division of polynomials, first bit first. Anything
 * that is not as it should be fails the test. Include after <cmocka.h>. */
#ifndef TESTS_EVENT_DECODER_H
#define TESTS_EVENT_DECODER_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DECODED_TAG_BYTES = 96, DECODED_VALUE_MAX = 64 };

typedef struct decoded_value {
    char tag[DECODED_TAG_BYTES], meaning[160];
    float value;
} decoded_value;

typedef struct decoded_event {
    double wall_time;
    int64_t step;
    char version[32]; /* "": none */
    bool is_start;
    decoded_value values[DECODED_VALUE_MAX];
    uint32_t value_count;
} decoded_event;

typedef struct decoded_file {
    decoded_event *events;
    uint32_t count;
} decoded_file;

/* ---- checksums ---- */

/* The remainder of the bits, lowest of each byte first, by the polynomial of Castagnoli. */
static inline uint32_t decode_crc(const unsigned char *data, size_t bytes)
{
    uint32_t rest = 0xFFFFFFFFu, turned = 0;
    for (size_t i = 0; i < 8 * bytes; i++) {
        uint32_t bit = data[i / 8] >> i % 8 & 1u;
        uint32_t top = rest >> 31;
        rest = rest << 1 ^ ((top ^ bit) ? 0x1EDC6F41u : 0);
    }
    for (int i = 0; i < 32; i++)
        turned |= (rest >> i & 1u) << (31 - i);
    return turned ^ 0xFFFFFFFFu;
}

static inline uint32_t decode_masked_crc(const unsigned char *data, size_t bytes)
{
    uint32_t crc = decode_crc(data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static inline uint64_t decode_number(const unsigned char *data, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = bytes; i-- > 0;)
        number = number * 256 + data[i];
    return number;
}

/* ---- messages ---- */

typedef struct decoded_span {
    const unsigned char *at, *end;
} decoded_span;

typedef struct decoded_field {
    uint32_t number, type;
    uint64_t bits;     /* of a varint or of fixed bytes */
    decoded_span span; /* of type 2 */
} decoded_field;

static inline uint64_t decode_varint(decoded_span *from)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        assert_true(from->at < from->end);
        unsigned char byte = *from->at++;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return number;
    }
    fail_msg("a varint of more than ten bytes");
    return 0;
}

/* False at the end. */
static inline bool decode_field(decoded_span *from, decoded_field *out)
{
    if (from->at == from->end)
        return false;
    uint64_t key = decode_varint(from);
    *out = (decoded_field){.number = (uint32_t)(key >> 3), .type = (uint32_t)(key & 7)};
    size_t bytes = out->type == 1 ? 8 : out->type == 5 ? 4 : 0;
    if (out->type == 0) {
        out->bits = decode_varint(from);
        return true;
    }
    if (out->type == 2)
        bytes = (size_t)decode_varint(from);
    assert_true(out->type == 1 || out->type == 2 || out->type == 5);
    assert_true(bytes <= (size_t)(from->end - from->at));
    out->span = (decoded_span){from->at, from->at + bytes};
    if (out->type != 2)
        out->bits = decode_number(from->at, bytes);
    from->at += bytes;
    return true;
}

static inline void decode_text(decoded_span from, char *text, size_t capacity)
{
    size_t bytes = (size_t)(from.end - from.at);
    assert_true(bytes < capacity);
    memcpy(text, from.at, bytes);
    text[bytes] = '\0';
}

/* The dashboard's name, which is "scalars", and a description. */
static inline void decode_metadata(decoded_span from, decoded_value *out)
{
    decoded_field field, inner = {0};
    char plugin[32] = "";
    while (decode_field(&from, &field)) {
        assert_true(field.number == 1 || field.number == 3);
        if (field.number == 3) {
            decode_text(field.span, out->meaning, sizeof out->meaning);
        } else {
            assert_true(decode_field(&field.span, &inner) && inner.number == 1);
            decode_text(inner.span, plugin, sizeof plugin);
        }
    }
    assert_string_equal(plugin, "scalars");
}

static inline void decode_value(decoded_span from, decoded_value *out)
{
    decoded_field field;
    bool has_value = false;
    *out = (decoded_value){.tag = ""};
    while (decode_field(&from, &field)) {
        if (field.number == 1) {
            decode_text(field.span, out->tag, sizeof out->tag);
        } else if (field.number == 2) {
            assert_int_equal(field.type, 5);
            memcpy(&out->value, field.span.at, sizeof out->value);
            has_value = true;
        } else {
            assert_int_equal(field.number, 9);
            decode_metadata(field.span, out);
        }
    }
    assert_true(has_value && out->tag[0]);
}

static inline void decode_summary(decoded_span from, decoded_event *out)
{
    decoded_field field;
    while (decode_field(&from, &field)) {
        assert_int_equal(field.number, 1);
        assert_true(out->value_count < DECODED_VALUE_MAX);
        decode_value(field.span, &out->values[out->value_count++]);
    }
}

static inline void decode_event(decoded_span from, decoded_event *out)
{
    decoded_field field, inner = {0};
    while (decode_field(&from, &field)) {
        if (field.number == 1) {
            assert_int_equal(field.type, 1);
            memcpy(&out->wall_time, field.span.at, sizeof out->wall_time);
        } else if (field.number == 2) {
            out->step = (int64_t)field.bits;
        } else if (field.number == 3) {
            decode_text(field.span, out->version, sizeof out->version);
        } else if (field.number == 5) {
            decode_summary(field.span, out);
        } else {
            assert_int_equal(field.number, 7);
            assert_true(decode_field(&field.span, &inner));
            out->is_start = inner.number == 1 && inner.bits == 1;
        }
    }
}

/* ---- files ---- */

static inline void decode_close(decoded_file *file)
{
    free(file->events);
    *file = (decoded_file){0};
}

/* Every record of a file; there may be nothing behind the last. */
static inline decoded_file decode_bytes(const unsigned char *data, size_t bytes)
{
    decoded_file file = {0};
    for (size_t at = 0; at < bytes;) {
        assert_true(bytes - at >= 16);
        uint64_t length = decode_number(data + at, 8);
        assert_true(length <= bytes - at - 16);
        assert_int_equal(decode_number(data + at + 8, 4), decode_masked_crc(data + at, 8));
        const unsigned char *content = data + at + 12;
        assert_int_equal(decode_number(content + length, 4),
                         decode_masked_crc(content, (size_t)length));
        file.events = realloc(file.events, (file.count + 1) * sizeof *file.events);
        assert_non_null(file.events);
        file.events[file.count] = (decoded_event){0};
        decode_event((decoded_span){content, content + length}, &file.events[file.count++]);
        at += (size_t)length + 16;
    }
    return file;
}

static inline decoded_file decode_file(const char *path)
{
    static unsigned char data[1 << 20];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t bytes = fread(data, 1, sizeof data, stream);
    assert_true(bytes < sizeof data);
    fclose(stream);
    return decode_bytes(data, bytes);
}

static inline int decode_is_event_file(const struct dirent *entry)
{
    return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

/* File number `index` of a directory, in the order of names, which is that of readers. Fails if
 * there are other than `count` files. */
static inline decoded_file decode_directory(const char *directory, int index, int count)
{
    struct dirent **names;
    char path[512];
    int found = scandir(directory, &names, decode_is_event_file, alphasort);
    assert_int_equal(found, count);
    snprintf(path, sizeof path, "%.250s/%.250s", directory, names[index]->d_name);
    for (int i = 0; i < found; i++)
        free(names[i]);
    free(names);
    return decode_file(path);
}

/* The value of a tag in an event; fails where it has none. */
static inline float decode_tag(const decoded_event *event, const char *tag)
{
    for (uint32_t i = 0; i < event->value_count; i++)
        if (strcmp(event->values[i].tag, tag) == 0)
            return event->values[i].value;
    fail_msg("step %lld has no %s", (long long)event->step, tag);
    return 0;
}

static inline bool decode_has_tag(const decoded_event *event, const char *tag)
{
    for (uint32_t i = 0; i < event->value_count; i++)
        if (strcmp(event->values[i].tag, tag) == 0)
            return true;
    return false;
}

#endif
