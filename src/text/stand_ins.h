/* A text as patterns see it, of the same length: each byte that is not part of valid UTF-8 is a
 * control character, and each code point of which the installed PCRE2 may know less or more than
 * Unicode 16, or other things, is an older one of the same kind (unicode_stand_ins.h). So words are
 * the same on every machine, and matching needs no look at the encoding. */
#ifndef SL_TEXT_STAND_INS_H
#define SL_TEXT_STAND_INS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Room for changed texts. Zeros: empty. */
typedef struct sl_stand_ins {
    char *text;
    uint64_t capacity;
} sl_stand_ins;

/* Gives the text itself where nothing stands for anything, else a changed copy, which lives until
 * the next call. */
sl_status sl_stand_ins_apply(sl_stand_ins *stand_ins, const char *text, uint64_t bytes,
                             const char **out_text);

/* What stands for a code point that is not ASCII: mostly itself. */
uint32_t sl_stand_ins_find(uint32_t code);

/* True of a range in which a code point lies just if its stand-in does: a pattern may name it. */
bool sl_stand_ins_keep_range(uint32_t first, uint32_t last);

/* True of a code point that normalization leaves in place: a mark that Unicode 9, by which
 * tokenizers normalizes, does not have, whatever the Unicode of the installed utf8proc is. */
bool sl_stand_ins_is_fixed(uint32_t code);

void sl_stand_ins_free(sl_stand_ins *stand_ins);

#endif
