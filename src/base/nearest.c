/* Levenshtein distance of short names, one row of the table at a time. */
#include "nearest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 63, TYPING_ERRORS_MAX = 2 };

static uint32_t least(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static uint32_t count_edits(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return UINT32_MAX;
    uint32_t row[LONGEST + 1];
    for (uint32_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= b_length; j++) {
            uint32_t above = row[j];
            row[j] = least(row[j - 1] + 1, above + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[b_length];
}

sl_nearest sl_nearest_start(const char *name)
{
    return (sl_nearest){.name = name, .best_distance = UINT32_MAX};
}

void sl_nearest_offer(sl_nearest *nearest, const char *candidate)
{
    uint32_t distance = count_edits(nearest->name, candidate);
    if (distance >= nearest->best_distance)
        return;
    nearest->best = candidate;
    nearest->best_distance = distance;
}

void sl_nearest_format(const sl_nearest *nearest, const char *prefix, char *out_text,
                       uint32_t capacity)
{
    /* A candidate with more edits is another word; to suggest it would only confuse. */
    const bool is_near = nearest->best_distance <= TYPING_ERRORS_MAX &&
                         nearest->best_distance <= strlen(nearest->name) / 2;
    if (nearest->best && is_near)
        snprintf(out_text, capacity, ": did you mean %s%s?", prefix, nearest->best);
    else
        snprintf(out_text, capacity, "%s", "");
}
