/* The table of all variants, and what only moves bits between lanes: shuffles and loads of
 * matrices. Numbers are in arithmetic_integer.c, arithmetic_float.c and mma.c. */
#include "arithmetic.h"

#include <stdlib.h>

#include "lanes.h"

#define PTX_ROW(function, name, results, sources) {name, results, sources, ptx_do_##function},
static const ptx_arithmetic_row ROWS[] = {PTX_ARITHMETIC_LIST(PTX_ROW)};

static int compare_names(const void *name, const void *row)
{
    return strcmp(name, ((const ptx_arithmetic_row *)row)->name);
}

const ptx_arithmetic_row *ptx_arithmetic_find(const char *name)
{
    return bsearch(name, ROWS, sizeof ROWS / sizeof *ROWS, sizeof *ROWS, compare_names);
}

/* The lane that each lane reads, and whether it is one of its segment (PTX ISA, "shfl.sync"): the
 * bits of `segment` are those of a lane's number that tell segments apart, and `clamp` bounds the
 * others, from below where the shuffle goes up. `wanted` is of lane, first, distance and segment.
 */
#define SHUFFLE(function, wanted, is_in_bound)                                                     \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        const u32 *restrict value = PTX_LANES_OF(call->from[0]);                                   \
        const u32 *restrict b = PTX_LANES_OF(call->from[1]);                                       \
        const u32 *restrict c = PTX_LANES_OF(call->from[2]);                                       \
        u32 *restrict to = PTX_LANES_OF(call->to[0]);                                              \
        uint32_t source[32], inside = 0, undefined = 0;                                            \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const int32_t distance = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8;   \
            const int32_t first = lane & segment & 31, bound = first | (clamp & ~segment);         \
            const int32_t from = (wanted);                                                         \
            const bool is_inside = (is_in_bound);                                                  \
            source[lane] = is_inside ? (uint32_t)from : lane;                                      \
            inside |= (uint32_t)is_inside << lane;                                                 \
        }                                                                                          \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            to[lane] = value[source[lane]];                                                        \
            undefined |= (~call->lanes >> source[lane] & 1) << lane;                               \
        }                                                                                          \
        *(u32 *)call->to[1] = inside;                                                              \
        return undefined;                                                                          \
    }

SHUFFLE(shfl_up, (int32_t)lane - distance, from >= bound)
SHUFFLE(shfl_down, (int32_t)lane + distance, from <= bound)
SHUFFLE(shfl_bfly, (int32_t)lane ^ distance, from <= bound)
SHUFFLE(shfl_idx, first | (distance & ~segment), from <= bound)

/* Four lanes hold a row, two elements each; transposed, they hold a column. */
void ptx_arithmetic_load_matrices(uint32_t *const *to, const uint8_t (*rows)[16], uint32_t count,
                                  bool transposes)
{
    for (uint32_t i = 0; i < count; i++) {
        uint16_t element[8][8];
        memcpy(element, rows[8 * i], sizeof element);
        PTX_EACH_LANE
        {
            const uint32_t g = lane / 4, t = lane % 4 * 2;
            const uint16_t low = transposes ? element[t][g] : element[g][t];
            const uint16_t high = transposes ? element[t + 1][g] : element[g][t + 1];
            to[i][lane] = low | (uint32_t)high << 16;
        }
    }
}
