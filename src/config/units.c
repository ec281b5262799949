/* Parsing is strict: no blanks, no signs, nothing left over. */
#include "units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unit_letters[] = "KMGT";

static sl_status parse_front(const char *text, double *out_value, const char **out_rest)
{
    if (text[0] == '-' && isdigit((unsigned char)text[1]))
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is below 0", text);
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a number", text);
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool is_hexadecimal = text[0] == '0' && toupper((unsigned char)text[1]) == 'X';
    if (isinf(value))
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is too large", text);
    if (end == text || is_hexadecimal)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a number", text);
    *out_value = value;
    *out_rest = end;
    return SL_OK;
}

sl_status sl_units_parse_count(const char *text, uint64_t *out_count)
{
    if (isdigit((unsigned char)text[0])) {
        char *end;
        errno = 0;
        unsigned long long whole = strtoull(text, &end, 10);
        if (*end == '\0' && errno == 0) {
            *out_count = whole;
            return SL_OK;
        }
    }
    double value;
    const char *rest;
    SL_TRY(parse_front(text, &value, &rest));
    if (*rest == '\0' && value > 0x1p53)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is too large", text);
    if (*rest != '\0' || value != floor(value))
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a whole number", text);
    *out_count = (uint64_t)value;
    return SL_OK;
}

sl_status sl_units_parse_real(const char *text, double *out_real)
{
    bool is_negative = text[0] == '-';
    double value;
    const char *rest;
    SL_TRY(parse_front(text + is_negative, &value, &rest));
    if (*rest != '\0')
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a number", text);
    *out_real = is_negative ? -value : value;
    return SL_OK;
}

/* The power of 1024 that a suffix names; "" is 0. */
static sl_status parse_unit(const char *suffix, unsigned *out_power)
{
    if (*suffix == '\0' || strcmp(suffix, "B") == 0) {
        *out_power = 0;
        return SL_OK;
    }
    const char *letter = strchr(unit_letters, toupper((unsigned char)*suffix));
    const char *rest = suffix + 1;
    if (!letter || (*rest != '\0' && strcmp(rest, "B") != 0 && strcmp(rest, "iB") != 0))
        SL_FAIL(SL_ERROR_USAGE, "unknown unit \"%s\": use K, M, G or T, such as 512M or 1.5GiB",
                suffix);
    *out_power = (unsigned)(letter - unit_letters) + 1;
    return SL_OK;
}

sl_status sl_units_parse_size(const char *text, uint64_t *out_bytes)
{
    double value;
    const char *suffix;
    unsigned power = 0;
    SL_TRY(parse_front(text, &value, &suffix));
    SL_TRY(parse_unit(suffix, &power));
    char *end;
    errno = 0;
    unsigned long long whole = strtoull(text, &end, 10);
    if (end == suffix && errno == 0) { /* whole numbers stay exact beyond 2^53 */
        if (power && whole >> (64 - 10 * power))
            SL_FAIL(SL_ERROR_USAGE, "\"%s\" is more than 64 bits of bytes", text);
        *out_bytes = whole << (10 * power);
        return SL_OK;
    }
    double bytes = ldexp(value, 10 * (int)power);
    if (bytes >= 0x1p63)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is more than 63 bits of bytes", text);
    *out_bytes = (uint64_t)bytes;
    return SL_OK;
}

/* A number and the letter behind it. Bytes may be rounded, elements are counted. */
static sl_status parse_scaled(const char *text, const char *letter, uint64_t *out_count)
{
    double value;
    const char *rest;
    unsigned power = 0;
    SL_TRY(parse_front(text, &value, &rest));
    if (rest != letter)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a number of elements, such as 16777216 or 16M",
                text);
    SL_TRY(parse_unit(letter, &power));
    const double elements = ldexp(value, 10 * (int)power);
    if (elements != floor(elements))
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is %.17g elements: give a whole number of them", text,
                elements);
    return sl_units_parse_size(text, out_count);
}

sl_status sl_units_parse_elements(const char *text, uint64_t *out_count)
{
    const size_t length = strlen(text);
    const char *last = text + length - (length > 0);
    if (*last && strchr(unit_letters, toupper((unsigned char)*last)))
        return parse_scaled(text, last, out_count);
    if (sl_units_parse_count(text, out_count) != SL_OK)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not a number of elements, such as 16777216 or 16M",
                text);
    return SL_OK;
}

void sl_units_format_size(uint64_t bytes, char out_text[SL_UNITS_TEXT_BYTES])
{
    double value = (double)bytes;
    unsigned power = 0;
    while (value >= 1024 && power < 4) {
        value /= 1024;
        power++;
    }
    if (power == 0)
        snprintf(out_text, SL_UNITS_TEXT_BYTES, "%llu B", (unsigned long long)bytes);
    else
        snprintf(out_text, SL_UNITS_TEXT_BYTES, "%.*f %ciB", value < 10 ? 2 : 1, value,
                 unit_letters[power - 1]);
}

void sl_units_format_exact_size(uint64_t bytes, char out_text[SL_UNITS_TEXT_BYTES])
{
    unsigned power = 0;
    while (bytes && bytes % 1024 == 0 && power < 4) {
        bytes /= 1024;
        power++;
    }
    char letter[2] = "";
    if (power > 0)
        letter[0] = unit_letters[power - 1];
    snprintf(out_text, SL_UNITS_TEXT_BYTES, "%llu%s", (unsigned long long)bytes, letter);
}
