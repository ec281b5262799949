/* One look at each character that is not ASCII; see stand_ins.h. */
#include "stand_ins.h"

#include <stdlib.h>
#include <string.h>

#include "unicode_stand_ins.h"
#include "utf8.h"

enum {
    CONTROL = 0x01, /* neither letter nor number nor space, and no pattern names it */
    RANGE_COUNT = sizeof unicode_stand_ins / sizeof unicode_stand_ins[0],
    MARK_COUNT = sizeof unicode_fixed_marks / sizeof unicode_fixed_marks[0]
};

uint32_t sl_stand_ins_find(uint32_t code)
{
    uint32_t low = 0, high = RANGE_COUNT;
    if (code < unicode_stand_ins[0][0])
        return code;
    while (high - low > 1) { /* range `low` starts at or in front of the code point */
        uint32_t middle = (low + high) / 2;
        if (unicode_stand_ins[middle][0] <= code)
            low = middle;
        else
            high = middle;
    }
    return code <= unicode_stand_ins[low][1] ? unicode_stand_ins[low][2] : code;
}

bool sl_stand_ins_keep_range(uint32_t first, uint32_t last)
{
    for (uint32_t i = 0; i < RANGE_COUNT; i++) {
        const uint32_t *range = unicode_stand_ins[i];
        const bool has_stand_in = first <= range[2] && range[2] <= last;
        const bool has_all = first <= range[0] && range[1] <= last;
        const bool has_none = range[1] < first || last < range[0];
        if (has_stand_in ? !has_all : !has_none)
            return false;
    }
    return true;
}

bool sl_stand_ins_is_fixed(uint32_t code)
{
    for (uint32_t i = 0; i < MARK_COUNT && unicode_fixed_marks[i][0] <= code; i++)
        if (code <= unicode_fixed_marks[i][1])
            return true;
    return sl_stand_ins_find(code) != code;
}

static sl_status start_copy(sl_stand_ins *self, const char *text, uint64_t bytes)
{
    if (self->capacity < bytes) {
        free(self->text);
        self->capacity = 0;
        self->text = malloc(bytes);
        if (!self->text)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a text of %llu bytes",
                    (unsigned long long)bytes);
        self->capacity = bytes;
    }
    memcpy(self->text, text, bytes);
    return SL_OK;
}

static void write_code(char *at, uint32_t code, uint32_t bytes)
{
    static const unsigned char firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = bytes - 1; i > 0; i--, code >>= 6)
        at[i] = (char)(0x80 | (code & 0x3f));
    at[0] = (char)(firsts[bytes] | code);
}

sl_status sl_stand_ins_apply(sl_stand_ins *stand_ins, const char *text, uint64_t bytes,
                             const char **out_text)
{
    *out_text = text;
    for (uint64_t at = 0; (at = sl_utf8_skip_ascii(text, bytes, at)) < bytes;) {
        uint32_t code = 0;
        uint32_t length = sl_utf8_read((const unsigned char *)text + at, bytes - at, &code);
        uint32_t seen = length > 0 ? sl_stand_ins_find(code) : 0;
        if (length == 0 || seen != code) {
            if (*out_text == text)
                SL_TRY(start_copy(stand_ins, text, bytes));
            *out_text = stand_ins->text;
            if (length > 0)
                write_code(stand_ins->text + at, seen, length);
            else
                stand_ins->text[at] = CONTROL;
        }
        at += length > 0 ? length : 1;
    }
    return SL_OK;
}

void sl_stand_ins_free(sl_stand_ins *stand_ins)
{
    free(stand_ins->text);
    *stand_ins = (sl_stand_ins){0};
}
