/* The known name nearest to a mistyped one. */
#ifndef SL_BASE_NEAREST_H
#define SL_BASE_NEAREST_H

#include <stdint.h>

/* Remembers the candidate with the fewest edits from `name`. */
typedef struct sl_nearest {
    const char *name, *best;
    uint32_t best_distance;
} sl_nearest;

sl_nearest sl_nearest_start(const char *name);

/* Offers a candidate; borrowed. */
void sl_nearest_offer(sl_nearest *nearest, const char *candidate);

/* ": did you mean X?" if the best candidate has at most two edits, and at most half as many as
 * `name` has letters; else "". `prefix` stands before the candidate. */
void sl_nearest_format(const sl_nearest *nearest, const char *prefix, char *out_text,
                       uint32_t capacity);

#endif
