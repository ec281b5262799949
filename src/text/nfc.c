/* A text is normalized in parts that begin with an ASCII character: none of these joins what stands
 * in front of it. Parts of plain characters alone have the form. See nfc.h. */
#include "nfc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "stand_ins.h"
#include "utf8.h"

/* What lies from `start` to `end`: characters, of which the first may be ASCII. */
typedef struct part {
    uint64_t start, end;
    uint64_t skipped; /* bytes behind it that stay as they are */
    bool is_plain;
} part;

/* Latin with marks in one piece, punctuation, kana, ideographs, Hangul syllables. */
bool sl_nfc_is_plain(uint32_t code)
{
    return code < 0x300 || (code >= 0x2010 && code <= 0x2027) ||
           (code >= 0x3001 && code <= 0x3029) || (code >= 0x3041 && code <= 0x3096) ||
           (code >= 0x30a1 && code <= 0x30fa) || (code >= 0x4e00 && code <= 0x9fff) ||
           (code >= 0xac00 && code <= 0xd7a3);
}

/* The part around the next character at or behind `at` that is not ASCII; it ends in front of an
 * ASCII character, of one that stays in place, or of a byte that is part of none. */
static part find_part(const char *text, uint64_t bytes, uint64_t at)
{
    uint64_t first = sl_utf8_skip_ascii(text, bytes, at);
    part found = {.start = first > at ? first - 1 : first, .end = first, .is_plain = true};
    while (found.end < bytes && (unsigned char)text[found.end] >= 0x80) {
        uint32_t code = 0;
        uint32_t length =
            sl_utf8_read((const unsigned char *)text + found.end, bytes - found.end, &code);
        const bool is_plain = length > 0 && sl_nfc_is_plain(code);
        if (length == 0 || (!is_plain && sl_stand_ins_is_fixed(code))) {
            found.skipped = length > 0 ? length : 1;
            break;
        }
        found.is_plain = found.is_plain && is_plain;
        found.end += length;
    }
    return found;
}

static sl_status append(sl_nfc *self, const char *text, uint64_t bytes)
{
    uint64_t needed = self->count + bytes;
    if (bytes == 0)
        return SL_OK;
    SL_TRY(SL_ARRAY_RESERVE(self->text, needed, self->capacity, "a text"));
    memcpy(self->text + self->count, text, bytes);
    self->count = needed;
    return SL_OK;
}

static sl_status fail_memory(uint64_t count)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory to normalize %llu characters", (unsigned long long)count);
}

static sl_status need_codes(sl_nfc *self, uint64_t count)
{
    if (count <= self->code_capacity)
        return SL_OK;
    free(self->codes);
    self->codes = malloc(count * sizeof *self->codes);
    self->code_capacity = self->codes ? count : 0;
    return self->codes ? SL_OK : fail_memory(count);
}

static uint32_t class_of(int32_t code)
{
    return (uint32_t)utf8proc_get_property(code)->combining_class;
}

/* Sorts marks by their class, those of one class in their order. */
static sl_status sort_marks(int32_t *marks, uint64_t count)
{
    enum { CLASSES = 256 };
    uint64_t starts[CLASSES + 1] = {0};
    int32_t *sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return fail_memory(count);
    for (uint64_t i = 0; i < count; i++)
        starts[class_of(marks[i]) + 1]++;
    for (uint32_t i = 1; i < CLASSES; i++)
        starts[i] += starts[i - 1];
    for (uint64_t i = 0; i < count; i++)
        sorted[starts[class_of(marks[i])]++] = marks[i];
    memcpy(marks, sorted, count * sizeof *marks);
    free(sorted);
    return SL_OK;
}

/* Puts each run of marks into canonical order. */
static sl_status order_marks(int32_t *codes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++) {
        const uint64_t start = at;
        bool is_sorted = true;
        for (uint32_t last = 0, next; at < count && (next = class_of(codes[at])) > 0; at++) {
            is_sorted = is_sorted && last <= next;
            last = next;
        }
        if (!is_sorted)
            SL_TRY(sort_marks(codes + start, at - start));
    }
    return SL_OK;
}

static sl_status fail_composing(utf8proc_ssize_t error)
{
    SL_FAIL(error == UTF8PROC_ERROR_NOMEM ? SL_ERROR_SYSTEM : SL_ERROR_DATA,
            "a text cannot be normalized: %s", utf8proc_errmsg(error));
}

/* Normalizes a part; *out_text is NULL where that changes nothing, else borrowed. As utf8proc_map,
 * which sorts marks by exchanging neighbours: of a long run that takes the square of its length. */
static sl_status compose(sl_nfc *self, const char *text, uint64_t bytes, const char **out_text,
                         uint64_t *out_bytes)
{
    const utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const uint64_t most = bytes + bytes / 2 + 1; /* U+0390, of two bytes, becomes three: no more */
    uint64_t count = 0;
    SL_TRY(need_codes(self, most + 1)); /* utf8proc writes a NUL */
    for (uint64_t at = 0; at < bytes;) {
        const unsigned char *place = (const unsigned char *)text + at;
        uint32_t code = *place;
        at += code < 0x80 ? 1 : sl_utf8_read(place, bytes - at, &code);
        utf8proc_ssize_t added =
            utf8proc_decompose_char((utf8proc_int32_t)code, self->codes + count,
                                    (utf8proc_ssize_t)(most - count), options, NULL);
        if (added < 0 || (uint64_t)added > most - count)
            return fail_composing(added < 0 ? added : UTF8PROC_ERROR_OVERFLOW);
        count += (uint64_t)added;
    }
    SL_TRY(order_marks(self->codes, count));
    utf8proc_ssize_t length = utf8proc_reencode(self->codes, (utf8proc_ssize_t)count, options);
    if (length < 0)
        return fail_composing(length);
    *out_bytes = (uint64_t)length;
    const bool is_same = *out_bytes == bytes && memcmp(self->codes, text, bytes) == 0;
    *out_text = is_same ? NULL : (const char *)self->codes;
    return SL_OK;
}

sl_status sl_nfc_apply(sl_nfc *nfc, const char *text, uint64_t bytes, const char **out_text,
                       uint64_t *out_bytes)
{
    uint64_t copied = 0; /* of the text, into the copy */
    nfc->count = 0;
    for (uint64_t at = 0; at < bytes;) {
        const char *composed = NULL;
        uint64_t length = 0;
        part found = find_part(text, bytes, at);
        if (!found.is_plain)
            SL_TRY(compose(nfc, text + found.start, found.end - found.start, &composed, &length));
        if (composed) {
            SL_TRY(append(nfc, text + copied, found.start - copied));
            SL_TRY(append(nfc, composed, length));
            copied = found.end;
        }
        at = found.end + found.skipped;
    }
    *out_text = copied > 0 ? nfc->text : text;
    *out_bytes = bytes;
    if (copied == 0)
        return SL_OK;
    SL_TRY(append(nfc, text + copied, bytes - copied));
    *out_text = nfc->text;
    *out_bytes = nfc->count;
    return SL_OK;
}

void sl_nfc_free(sl_nfc *nfc)
{
    free(nfc->text);
    free(nfc->codes);
    *nfc = (sl_nfc){0};
}
