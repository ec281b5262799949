/* One walk over the characters. What passes is a list: a construct that is not on it is refused,
 * because patterns that are read almost alike give ids that are almost right. See
 * pattern_syntax.h. */
#include "pattern_syntax.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "stand_ins.h"
#include "utf8.h"

enum { DEPTH_MAX = 200, ASCII_MAX = 0x7f };

static const uint32_t NO_CODE = UINT32_MAX;

typedef struct translation {
    const char *at; /* what is left */
    FILE *out;
    uint32_t depth;          /* open groups */
    uint32_t caseless_depth; /* the depth inside of a group (?i: ; 0: outside */
    bool is_in_class;
    uint32_t range_start;    /* of a range in a class whose end comes next, or NO_CODE */
    uint32_t previous, last; /* the characters just taken, or NO_CODE: it was none */
} translation;

static sl_status refuse(const char *at, int bytes, const char *why)
{
    char shown[16];
    snprintf(shown, sizeof shown, "%.*s", bytes, at);
    SL_FAIL(SL_ERROR_DATA, "\"%s\" in a pattern %s", sl_files_show(shown).text, why);
}

static sl_status refuse_unknown(const char *at, int bytes)
{
    return refuse(at, bytes, "is not supported");
}

static void copy(translation *self, size_t bytes)
{
    fwrite(self->at, 1, bytes, self->out);
    self->at += bytes;
}

/* ---- characters ---- */

/* With a case that does not matter, Oniguruma takes each of these pairs for one character too. */
static bool is_ligature(uint32_t first, uint32_t second)
{
    static const char pairs[][2] = {{'s', 's'}, {'s', 't'}, {'f', 'f'}, {'f', 'i'}, {'f', 'l'}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (first <= ASCII_MAX && second <= ASCII_MAX && tolower((int)first) == pairs[i][0] &&
            tolower((int)second) == pairs[i][1])
            return true;
    return false;
}

/* Texts hold stand-ins where patterns match. */
static sl_status check_range(const char *at, int bytes, uint32_t first, uint32_t last)
{
    first = first > ASCII_MAX ? first : ASCII_MAX + 1;
    return last <= ASCII_MAX || sl_stand_ins_keep_range(first, last)
               ? SL_OK
               : refuse(at, bytes, "names characters that not every Unicode has");
}

/* Checks a character that was taken from `at`; a range goes on behind it. */
static sl_status note_character(translation *self, uint32_t code, const char *at)
{
    const int bytes = (int)(self->at - at);
    self->last = code;
    if (self->caseless_depth > 0 && code > ASCII_MAX)
        return refuse(at, bytes, "is not supported inside of (?i:");
    if (self->caseless_depth > 0 && !self->is_in_class && is_ligature(self->previous, code))
        return refuse(at - 1, bytes + 1, "is not supported inside of (?i:");
    if (self->range_start != NO_CODE) {
        const uint32_t first = self->range_start;
        self->range_start = NO_CODE;
        return check_range(at, bytes, first, code);
    }
    if (self->is_in_class && self->at[0] == '-' && self->at[1] != ']') {
        self->range_start = code;
        copy(self, 1);
        return SL_OK;
    }
    return check_range(at, bytes, code, code);
}

static sl_status take_character(translation *self)
{
    const char *at = self->at;
    uint32_t code = (unsigned char)*at, bytes = 1;
    if (code > ASCII_MAX)
        bytes = sl_utf8_read((const unsigned char *)at, strnlen(at, 4), &code);
    if (bytes == 0)
        return refuse(at, 1, "is not UTF-8");
    copy(self, bytes);
    return note_character(self, code, at);
}

/* ---- escapes ---- */

static bool is_category(const char *name, size_t bytes)
{
    static const char *const minors[] = {"L",       "ultmo", "M",    "nce", "N",   "dlo", "P",
                                         "cdseifo", "S",     "mcko", "Z",   "slp", "C",   "cfo"};
    for (size_t i = 0; i < sizeof minors / sizeof minors[0]; i += 2)
        if (name[0] == minors[i][0])
            return bytes == 1 || (bytes == 2 && strchr(minors[i + 1], name[1]));
    return false;
}

/* \p{...}. With a case that does not matter PCRE2 takes \p{Lu} for any letter with a case, and
 * Oniguruma does not. PCRE2's Han is that of script extensions. */
static sl_status take_property(translation *self)
{
    const char *name = self->at + 3, *end = strchr(self->at, '}');
    if (self->at[2] != '{' || !end || end == name)
        return refuse_unknown(self->at, 3);
    size_t bytes = (size_t)(end - name);
    const bool is_han = bytes == 3 && memcmp(name, "Han", 3) == 0;
    if (!is_han && !is_category(name, bytes))
        return refuse_unknown(self->at, bytes < 8 ? (int)bytes + 4 : 12);
    if (self->caseless_depth > 0)
        return refuse(self->at, (int)bytes + 4, "is not supported inside of (?i:");
    fprintf(self->out, "\\%c{%s%.*s}", self->at[1], is_han ? "sc:" : "", (int)bytes, name);
    self->at = end + 1;
    return SL_OK;
}

static uint32_t read_code(const char *digits, size_t count)
{
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)count, digits);
    const unsigned long code = strtoul(text, NULL, 16);
    return code < NO_CODE ? (uint32_t)code : NO_CODE - 1; /* which PCRE2 refuses */
}

/* \uHHHH or \x{H...}: a code point. */
static sl_status take_code(translation *self)
{
    enum { DIGITS = 4 };
    const bool is_braced = self->at[1] == 'x';
    const char *at = self->at, *digits = self->at + (is_braced ? 3 : 2);
    size_t count = strspn(digits, "0123456789abcdefABCDEF");
    if (is_braced && (self->at[2] != '{' || count == 0 || digits[count] != '}'))
        return refuse_unknown(self->at, 3);
    if (!is_braced && count < DIGITS)
        return refuse_unknown(self->at, 2);
    count = is_braced ? count : DIGITS;
    fprintf(self->out, "\\x{%.*s}", (int)count, digits);
    self->at = digits + count + is_braced;
    return note_character(self, read_code(digits, count), at);
}

static sl_status take_escape(translation *self)
{
    static const char names[] = "rntf", codes[] = "\r\n\t\f";
    const char what = self->at[1], *at = self->at;
    if ((unsigned char)what > ASCII_MAX) {
        copy(self, 1);
        return take_character(self);
    }
    if (what == 's' || what == 'S') { /* PCRE2's also match U+180E */
        fprintf(self->out, "\\%c{White_Space}", what == 's' ? 'p' : 'P');
        self->at += 2;
        return SL_OK;
    }
    if (what == 'p' || what == 'P')
        return take_property(self);
    if (what == 'x' || what == 'u')
        return take_code(self);
    bool is_known = what != '\0' && (strchr("dDrntf", what) || !isalnum((unsigned char)what));
    if (!is_known && !(!self->is_in_class && what != '\0' && strchr("Az", what)))
        return refuse_unknown(self->at, 2);
    copy(self, 2);
    if (strchr("dDAz", what))
        return SL_OK;
    const char *name = strchr(names, what);
    return note_character(self, (uint32_t)(name ? codes[name - names] : what), at);
}

/* ---- groups, classes, repeats ---- */

static sl_status take_group(translation *self)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"};
    if (++self->depth > DEPTH_MAX)
        return refuse(self->at, 1, "is nested too deep");
    if (self->at[1] != '?' && self->at[1] != '*') {
        copy(self, 1);
        return SL_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t bytes = strlen(known[i]);
        if (strncmp(self->at, known[i], bytes) != 0)
            continue;
        if (known[i][2] == 'i' && self->caseless_depth == 0)
            self->caseless_depth = self->depth;
        copy(self, bytes);
        return SL_OK;
    }
    return refuse_unknown(self->at, 4);
}

static void end_group(translation *self)
{
    if (self->caseless_depth == self->depth)
        self->caseless_depth = 0;
    self->depth -= self->depth > 0; /* one too many is PCRE2's to refuse */
    copy(self, 1);
}

/* Of {n}, {n,} and {n,m} Ruby has no possessive form, and {,n} is {0,n} to it alone. */
static sl_status take_brace(translation *self)
{
    const char *at = self->at + 1;
    size_t low = strspn(at, "0123456789");
    if (low == 0 && at[0] == ',')
        return refuse_unknown(self->at, 3);
    const bool is_range = low > 0 && at[low] == ',';
    const char *end = at + low + (is_range ? 1 + strspn(at + low + 1, "0123456789") : 0);
    if (low == 0 || *end != '}') { /* a character, whatever a later PCRE2 makes of it */
        fputc('\\', self->out);
        return take_character(self);
    }
    size_t bytes = (size_t)(end + 1 - self->at);
    if (end[1] == '+' || (end[1] == '?' && !is_range))
        return refuse(self->at, (int)bytes + 1, "means other things to other readers");
    copy(self, bytes);
    return SL_OK;
}

static sl_status start_class(translation *self)
{
    self->is_in_class = true;
    self->range_start = NO_CODE;
    copy(self, self->at[1] == '^' ? 2 : 1);
    return *self->at == ']' ? refuse(self->at - 1, 2, "is not supported: write \\]") : SL_OK;
}

static sl_status take_in_class(translation *self)
{
    if (*self->at == '[' || strncmp(self->at, "&&", 2) == 0)
        return refuse(self->at, *self->at == '[' ? 1 : 2, "is not supported inside of [ ]");
    if (*self->at != ']')
        return take_character(self);
    self->is_in_class = false;
    copy(self, 1);
    return SL_OK;
}

static sl_status take(translation *self)
{
    const char what = *self->at;
    const bool is_bracket = !self->is_in_class && (what == '(' || what == ')');
    self->previous = self->last;
    self->last = is_bracket ? self->last : NO_CODE; /* (?:s)s is ss */
    if (what == '\\')
        return take_escape(self);
    if (self->is_in_class)
        return take_in_class(self);
    if (what == '[')
        return start_class(self);
    if (what == '(')
        return take_group(self);
    if (what == '{')
        return take_brace(self);
    if (what == ')')
        end_group(self);
    else if (strchr(".^$*+?|", what))
        copy(self, 1);
    else
        return take_character(self);
    return SL_OK;
}

sl_status sl_pattern_syntax_translate(const char *text, char **out_text)
{
    size_t bytes = 0;
    *out_text = NULL;
    translation self = {.at = text,
                        .out = open_memstream(out_text, &bytes),
                        .range_start = NO_CODE,
                        .last = NO_CODE};
    sl_status status = SL_OK;
    if (!self.out)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pattern");
    while (*self.at != '\0' && status == SL_OK)
        status = take(&self);
    bool is_whole = !ferror(self.out);
    is_whole = fclose(self.out) == 0 && is_whole;
    if (status == SL_OK && !is_whole)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a pattern");
    if (status != SL_OK) {
        free(*out_text);
        *out_text = NULL;
    }
    return status;
}
