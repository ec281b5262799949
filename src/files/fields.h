/* Structs as JSON objects. A table of rows says which member of a struct stands under which key, in
 * the order in which they are written; reading and writing walk the same table. Every format of
 * this program is such a table: manifest, machine profile, plan, log, configuration, and what is
 * read of a foreign config.json.
 *
 *     static const sl_field shape_fields[] = {
 *         SL_FIELD("layers", sl_model_shape, layers, .low = 1),
 *         SL_FIELD("width", sl_model_shape, width, .low = 1),
 *         {0}};
 *
 * Reading is strict: a key that is missing, of another kind or out of range fails with
 * SL_ERROR_DATA, and the message names file, key and what is wrong. Keys that no row names are
 * passed over, so that a later version may add some; SL_FIELD_CLOSED refuses them.
 */
#ifndef SL_FILES_FIELDS_H
#define SL_FILES_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What a member is in memory, and in JSON. */
typedef enum sl_field_kind {
    SL_FIELD_U32,      /* an integer */
    SL_FIELD_U64,      /* an integer, at most INT64_MAX: JSON readers keep no more */
    SL_FIELD_U64_TEXT, /* all 64 bits, as a string of decimal digits */
    SL_FIELD_F32,      /* a number; one that is not finite cannot be written */
    SL_FIELD_F64,
    SL_FIELD_BOOL,
    SL_FIELD_TEXT,      /* char *: a string; read as a copy that the struct owns */
    SL_FIELD_CHARS,     /* char[bytes]: a string, cut at the array's end when it is read, with bytes
                           that cannot be printed as \xNN */
    SL_FIELD_JSON_TEXT, /* char *, owned: an object, as compact text */
    SL_FIELD_HEX128,    /* sl_hash_value: 32 hexadecimal digits */
    SL_FIELD_CHOICE,    /* an enum: value i as the i-th of `names` */
    SL_FIELD_OBJECT,    /* a struct: an object with `fields` */
    SL_FIELD_MAP /* an array: an object with element i under the i-th of `names`; elements are
                    `stride` bytes apart, and fields[0], which has no key, says what one is */
} sl_field_kind;

enum {
    SL_FIELD_OPTIONAL = 1, /* absent: the struct keeps what it holds. In an element: any may be */
    SL_FIELD_NULLABLE = 2, /* null counts as absent, and stands for a number that is not finite and
                              for a text that is NULL */
    SL_FIELD_CLOSED = 4,   /* MAP: a key that is none of the names is refused */
    SL_FIELD_LISTED = 8,   /* element of a MAP: starts with a bool that says whether it is there */
    SL_FIELD_AUTO = 16     /* written: UINT64_MAX or NaN is "auto", what is beyond 63 bits a real, a
                              text that is NULL null */
};

typedef struct sl_field {
    const char *key; /* NULL ends a table */
    sl_field_kind kind;
    size_t offset; /* in the struct */
    unsigned flags;
    double low, high;  /* of a number that is read, both ends included; high 0: no upper end */
    size_t bytes;      /* CHARS */
    uint32_t digits;   /* F32, F64 printed: as by %.*g; 0: as many as read back to the same value */
    size_t stride;     /* MAP */
    const char *names; /* CHOICE, MAP: "first|second", below 4 KiB */
    const struct sl_field *fields; /* OBJECT, MAP */
} sl_field;

/* The kind of a member, by its type. */
/* clang-format off */
#define SL_FIELD_KIND_OF(member)                                                                   \
    _Generic((member), uint32_t: SL_FIELD_U32, uint64_t: SL_FIELD_U64, float: SL_FIELD_F32,        \
             double: SL_FIELD_F64, bool: SL_FIELD_BOOL, char *: SL_FIELD_TEXT,                     \
             const char *: SL_FIELD_TEXT)
/* clang-format on */

/* A row whose kind follows from the member's type: integers, floats, bool, text. */
#define SL_FIELD(name, type, member, ...)                                                          \
    {                                                                                              \
        .key = name, .kind = SL_FIELD_KIND_OF(((type *)NULL)->member),                             \
        .offset = offsetof(type, member), __VA_ARGS__                                              \
    }

/* A row of another kind. */
#define SL_FIELD_AS(kind_name, name, type, member, ...)                                            \
    {                                                                                              \
        .key = name, .kind = SL_FIELD_##kind_name, .offset = offsetof(type, member),               \
        .bytes = sizeof(((type *)NULL)->member), __VA_ARGS__                                       \
    }

/* Reads an object into a struct; `path` is for messages. On failure the struct may hold a part, and
 * owns what it holds. SL_ERROR_DATA; SL_ERROR_SYSTEM: no memory. */
sl_status sl_fields_read(const char *path, const json_t *object, const sl_field *fields,
                         void *out_struct);

/* Adds the members of a struct to an object. SL_ERROR_USAGE: a number that JSON does not have, a
 * text that is NULL and not NULLABLE, a JSON_TEXT that is no object. SL_ERROR_SYSTEM: `object` is
 * NULL, memory was refused, or text is not UTF-8.
 */
sl_status sl_fields_write(const sl_field *fields, const void *from, json_t *object);

/* The same as a new object. */
sl_status sl_fields_make(const sl_field *fields, const void *from, json_t **out_object);

/* The value of one member: a new reference; statuses as above. */
sl_status sl_fields_write_value(const sl_field *field, const void *from, json_t **out_value);

/* Writes the members of a struct as text, `"key":value` with commas between, and allocates nothing.
 * Returns its length, below `capacity`. Numbers read back to the same value, one that is not finite
 * is null. For U64, F32, F64, BOOL, OBJECT, MAP, and TEXT that needs no escapes: words of this
 * program. */
size_t sl_fields_print(const sl_field *fields, const void *from, char *out_text, size_t capacity);

/* The value of one member in the same way, without its key. */
size_t sl_fields_print_value(const sl_field *field, const void *from, char *out_text,
                             size_t capacity);

/* A member as a number: U32, U64, F32, F64, BOOL (0 or 1). */
double sl_fields_number(const sl_field *field, const void *from);

/* Finds a name in "first|second"; SL_ERROR_USAGE lists them and names the nearest. */
sl_status sl_fields_find_name(const char *names, const char *name, uint32_t *out_index);

#endif
