/* Global memory that launches may touch, and which of its bytes have a value: one flag a byte, so
 * that launches and copies that run at once never share a word. */
#ifndef PTX_RANGES_H
#define PTX_RANGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ptx_range {
    uint64_t start, end;
    uint8_t *has_value; /* [end - start]: 0 or 1 */
} ptx_range;

/* All zero: none. Sorted; no two overlap. */
typedef struct ptx_ranges {
    ptx_range *range;
    uint64_t count, room;
} ptx_ranges;

void ptx_ranges_close(ptx_ranges *ranges);

/* False: it is empty, overlaps another or there is no memory. */
bool ptx_ranges_add(ptx_ranges *ranges, uint64_t start, uint64_t bytes, bool has_value);

/* False: none starts there. */
bool ptx_ranges_remove(ptx_ranges *ranges, uint64_t start);

/* The last range that starts at or before `address`; NULL: none does. */
const ptx_range *ptx_ranges_before(const ptx_ranges *ranges, uint64_t address);

/* Bytes that lie in ranges get a value; or lose or get it as their source did. */
void ptx_ranges_set(const ptx_ranges *ranges, uint64_t start, uint64_t bytes);
void ptx_ranges_copy(const ptx_ranges *ranges, uint64_t to, uint64_t from, uint64_t bytes);

#endif
