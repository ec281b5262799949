/* GPT-2's pattern by hand: one look at the class of each character; see words.h. */
#include "words.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "nfc.h"
#include "unicode_table.h"
#include "utf8.h"

typedef enum class { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE } class;

enum {
    CODE_COUNT = 0x110000,
    CLASSES_PER_BYTE = 4,
    RANGE_COUNT_LETTERS = sizeof unicode_letters / sizeof unicode_letters[0],
    RANGE_COUNT_NUMBERS = sizeof unicode_numbers / sizeof unicode_numbers[0],
    RANGE_COUNT_SPACES = sizeof unicode_spaces / sizeof unicode_spaces[0]
};

/* Two bits a code point, filled from the ranges once. */
static unsigned char classes[CODE_COUNT / CLASSES_PER_BYTE];
static unsigned char byte_classes[128];

static void mark(const uint32_t (*ranges)[2], uint32_t count, class what)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t code = ranges[i][0]; code <= ranges[i][1]; code++)
            classes[code / CLASSES_PER_BYTE] |=
                (unsigned char)(what << code % CLASSES_PER_BYTE * 2);
}

static class look_up(uint32_t code)
{
    return classes[code / CLASSES_PER_BYTE] >> code % CLASSES_PER_BYTE * 2 & 3;
}

static void fill(void)
{
    mark(unicode_letters, RANGE_COUNT_LETTERS, CLASS_LETTER);
    mark(unicode_numbers, RANGE_COUNT_NUMBERS, CLASS_NUMBER);
    mark(unicode_spaces, RANGE_COUNT_SPACES, CLASS_SPACE);
    for (uint32_t code = 0; code < sizeof byte_classes; code++)
        byte_classes[code] = (unsigned char)look_up(code);
}

static void need_classes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}

/* ---- characters ---- */

typedef struct character {
    class class;
    uint32_t bytes;
} character;

static character read_sequence(const unsigned char *at, uint64_t left)
{
    uint32_t code, bytes = sl_utf8_read(at, left, &code);
    return bytes > 0 ? (character){look_up(code), bytes} : (character){CLASS_OTHER, 1};
}

static character read_character(const char *text, uint64_t bytes, uint64_t at)
{
    const unsigned char *place = (const unsigned char *)text + at;
    if (*place < sizeof byte_classes)
        return (character){byte_classes[*place], 1};
    return read_sequence(place, bytes - at);
}

/* ---- words ---- */

static uint64_t skip_class(const char *text, uint64_t bytes, uint64_t at, class what)
{
    while (at < bytes) {
        character next = read_character(text, bytes, at);
        if (next.class != what)
            break;
        at += next.bytes;
    }
    return at;
}

/* The bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0: there is none of them. */
static uint32_t contraction_bytes(const char *text, uint64_t bytes, uint64_t at)
{
    char first = '\0', second = '\0';
    if (at + 1 < bytes)
        first = text[at + 1];
    if (at + 2 < bytes)
        second = text[at + 2];
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    bool is_long = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
    return is_long ? 3 : 0;
}

/* A run of spaces leaves its last one to what follows, unless that is all there is. */
static uint64_t end_of_spaces(const char *text, uint64_t bytes, uint64_t at)
{
    uint64_t end = at, last = at;
    while (end < bytes) {
        character next = read_character(text, bytes, end);
        if (next.class != CLASS_SPACE)
            break;
        last = end;
        end += next.bytes;
    }
    return end < bytes && last > at ? last : end;
}

uint64_t sl_words_end(const char *text, uint64_t bytes, uint64_t at)
{
    need_classes();
    uint32_t contraction = text[at] == '\'' ? contraction_bytes(text, bytes, at) : 0;
    if (contraction > 0)
        return at + contraction;
    uint64_t start = at + (text[at] == ' ' && at + 1 < bytes);
    character first = read_character(text, bytes, start);
    if (first.class == CLASS_SPACE)
        return end_of_spaces(text, bytes, at);
    return skip_class(text, bytes, start + first.bytes, first.class);
}

/* ---- cuts ---- */

/* Where the character starts that ends before `at`, `low` or later. */
static uint64_t start_before(const char *text, uint64_t at, uint64_t low)
{
    uint64_t start = at - 1;
    while (start > low && at - start < 4 && sl_utf8_is_tail((unsigned char)text[start]))
        start--;
    return start;
}

static bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* True if normalization leaves a character as it is. */
static bool is_plain(const char *text, uint64_t bytes)
{
    uint32_t code = (unsigned char)*text;
    return code < 0x80 ||
           (sl_utf8_read((const unsigned char *)text, bytes, &code) > 0 && sl_nfc_is_plain(code));
}

/* To GPT-2's pattern all blanks are alike. By other patterns line ends may belong to the word of
 * the mark in front of them, but to no letter's or number's. */
static bool is_cut(const char *text, uint64_t at, uint64_t low, sl_words_cuts cuts)
{
    if (!is_blank(text[at]))
        return false;
    const uint64_t start = start_before(text, at, low);
    character before = read_character(text, at, start);
    if (start + before.bytes != at)
        before.class = CLASS_OTHER;
    if (text[at] == ' ' || cuts == SL_WORDS_CUTS_GPT2)
        return before.class != CLASS_SPACE;
    return (before.class == CLASS_LETTER || before.class == CLASS_NUMBER) &&
           is_plain(text + start, at - start);
}

uint64_t sl_words_last_cut(const char *text, uint64_t bytes, uint64_t low, sl_words_cuts cuts)
{
    need_classes();
    for (uint64_t at = cuts == SL_WORDS_CUTS_NONE ? low : bytes; at > low + 1;) {
        at--;
        if (is_cut(text, at, low, cuts))
            return at;
    }
    return low;
}
