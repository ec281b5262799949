/* Counts in messages: "1 row", "2 rows". */
#ifndef SL_BASE_PLURAL_H
#define SL_BASE_PLURAL_H

#include <stdint.h>

/* The end of a noun behind a count: "" of one, else "s". */
static inline const char *sl_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
