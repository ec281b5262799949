/* Integers, bits, predicates and selections. Sums and products wrap around; 16 bits are the lower
 * half of a lane whose upper half is zero. */
#include "lanes.h"

PTX_TWO(add_s32, u32, u32, u32, a + b)
PTX_TWO(add_s64, u64, u64, u64, a + b)
PTX_TWO(sub_s32, u32, u32, u32, a - b)
PTX_TWO(sub_s64, u64, u64, u64, a - b)
PTX_TWO(add_16, u32, u32, u32, (a + b) & 0xffff)
PTX_TWO(sub_16, u32, u32, u32, (a - b) & 0xffff)
PTX_TWO(mul_lo_16, u32, u32, u32, (a * b) & 0xffff)
PTX_ONE(neg_s32, u32, u32, 0 - a)
PTX_ONE(neg_s64, u64, u64, 0 - a)
PTX_TWO(mul_lo_s32, u32, u32, u32, (a * b))
PTX_TWO(mul_lo_s64, u64, u64, u64, (a * b))
PTX_TWO(mul_wide_s32, s64, s32, s32, ((int64_t)a * b))
PTX_TWO(mul_wide_u32, u64, u32, u32, ((uint64_t)a * b))
PTX_THREE(mad_lo_s32, u32, (a * b) + c)
PTX_THREE(mad_lo_s64, u64, (a * b) + c)
PTX_TWO(max_u32, u32, u32, u32, a > b ? a : b)
PTX_TWO(max_u64, u64, u64, u64, a > b ? a : b)
PTX_TWO(max_s32, s32, s32, s32, a > b ? a : b)
PTX_TWO(max_s64, s64, s64, s64, a > b ? a : b)
PTX_TWO(min_u32, u32, u32, u32, a < b ? a : b)
PTX_TWO(min_u64, u64, u64, u64, a < b ? a : b)

/* What x / 0 and x % 0 are is unspecified: the lanes are told, the result is noise. */
#define DIVIDE(function, type, expression)                                                         \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        type *restrict to = PTX_LANES_OF(call->to[0]);                                             \
        const type *restrict from_a = PTX_LANES_OF(call->from[0]);                                 \
        const type *restrict from_b = PTX_LANES_OF(call->from[1]);                                 \
        uint32_t undefined = 0;                                                                    \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const type a = from_a[lane], b = from_b[lane];                                         \
            to[lane] = b ? (expression) : (type)0xabadabad;                                        \
            undefined |= (uint32_t)(b == 0) << lane;                                               \
        }                                                                                          \
        return undefined;                                                                          \
    }

DIVIDE(div_u16, u32, a / b)
DIVIDE(div_u32, u32, a / b)
DIVIDE(div_u64, u64, a / b)
DIVIDE(rem_u32, u32, a % b)
DIVIDE(rem_u64, u64, a % b)

PTX_TWO(and_b32, u32, u32, u32, (a & b))
PTX_TWO(and_b64, u64, u64, u64, (a & b))
PTX_TWO(or_b32, u32, u32, u32, a | b)
PTX_TWO(or_b64, u64, u64, u64, a | b)
PTX_TWO(xor_b32, u32, u32, u32, a ^ b)
PTX_TWO(xor_b64, u64, u64, u64, a ^ b)
PTX_ONE(not_b32, u32, u32, ~a)
PTX_ONE(not_b64, u64, u64, ~a)

/* Amounts beyond the width are the width: nothing is left. */
PTX_TWO(shl_b32, u32, u32, u32, b < 32 ? a << (b & 31) : 0)
PTX_TWO(shl_b64, u64, u64, u32, b < 64 ? a << (b & 63) : 0)
PTX_TWO(shr_u32, u32, u32, u32, b < 32 ? a >> (b & 31) : 0)
PTX_TWO(shr_u64, u64, u64, u32, b < 64 ? a >> (b & 63) : 0)
PTX_ONE(clz_b64, u32, u64, a ? (uint32_t)__builtin_clzll(a) : 64)

/* The lowest `length` bits of a, from bit `start` of b on; what would lie beyond the width is cut.
 * Both numbers have 8 bits. */
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t start, uint32_t length)
{
    start &= 255, length &= 255;
    if (start >= 64)
        return b;
    const uint64_t field = (length < 64 ? (UINT64_C(1) << length) - 1 : UINT64_MAX) << start;
    return (b & ~field) | (a << start & field);
}

#define INSERT(function, type)                                                                     \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        type *restrict to = PTX_LANES_OF(call->to[0]);                                             \
        const type *restrict a = PTX_LANES_OF(call->from[0]);                                      \
        const type *restrict b = PTX_LANES_OF(call->from[1]);                                      \
        const u32 *restrict start = PTX_LANES_OF(call->from[2]);                                   \
        const u32 *restrict length = PTX_LANES_OF(call->from[3]);                                  \
        PTX_EACH_LANE to[lane] = (type)insert(a[lane], b[lane], start[lane], length[lane]);        \
        return 0;                                                                                  \
    }

/* `length` bits of a from bit `start` on, zeros where there are none. */
static inline uint32_t extract(uint32_t a, uint32_t start, uint32_t length)
{
    start &= 255, length &= 255;
    const uint32_t mask = length < 32 ? (1u << length) - 1 : 0xffffffff;
    return start < 32 ? a >> start & mask : 0;
}

PTX_THREE(bfe_u32, u32, extract(a, b, c))

/* The upper half of the two together, moved up by a number of bits below 32. */
/* The byte that nibble `at` of a selector takes of eight, or eight times that byte's sign. */
static inline uint32_t pick_byte(uint64_t bytes, uint32_t selector, uint32_t at)
{
    const uint32_t nibble = selector >> 4 * at & 15;
    const uint32_t byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 0xff;
    return (nibble & 8 ? (byte >> 7) * 0xff : byte) << 8 * at;
}

static inline uint32_t permute(uint64_t bytes, uint32_t selector)
{
    return pick_byte(bytes, selector, 0) | pick_byte(bytes, selector, 1) |
           pick_byte(bytes, selector, 2) | pick_byte(bytes, selector, 3);
}

PTX_THREE(prmt_b32, u32, permute((uint64_t)b << 32 | a, c))
PTX_THREE(shf_l_wrap_b32, u32, (uint32_t)((((uint64_t)b << 32 | a) << (c & 31)) >> 32))
INSERT(bfi_b32, u32)
INSERT(bfi_b64, u64)

PTX_ONE(cvt_s32_s8, s32, u32, (int8_t)(a & 255))
PTX_ONE(cvt_s64_s32, s64, s32, a)
PTX_ONE(cvt_u16_u32, u32, u32, a & 0xffff)
PTX_ONE(cvt_u32_u16, u32, u32, a & 0xffff)
PTX_ONE(cvt_u32_u64, u32, u64, (uint32_t)a)
PTX_ONE(cvt_u64_u32, u64, u32, a)

PTX_COMPARE(setp_eq_b32, u32, a == b)
PTX_COMPARE(setp_eq_b64, u64, a == b)
PTX_COMPARE(setp_ne_b32, u32, a != b)
PTX_COMPARE(setp_ne_b64, u64, a != b)
PTX_COMPARE(setp_ge_u32, u32, a >= b)
PTX_COMPARE(setp_ge_u64, u64, a >= b)
PTX_COMPARE(setp_ge_s32, s32, a >= b)
PTX_COMPARE(setp_ge_s64, s64, a >= b)
PTX_COMPARE(setp_gt_u32, u32, a > b)
PTX_COMPARE(setp_gt_u64, u64, a > b)
PTX_COMPARE(setp_gt_s32, s32, a > b)
PTX_COMPARE(setp_gt_s64, s64, a > b)
PTX_COMPARE(setp_le_s32, s32, a <= b)
PTX_COMPARE(setp_le_u32, u32, a <= b)
PTX_COMPARE(setp_le_u64, u64, a <= b)
PTX_COMPARE(setp_lt_u32, u32, a < b)
PTX_COMPARE(setp_lt_u64, u64, a < b)
PTX_COMPARE(setp_lt_s32, s32, a < b)
PTX_COMPARE(setp_lt_s64, s64, a < b)

/* Predicates of all lanes at once. */
#define PREDICATE(function, expression)                                                            \
    uint32_t ptx_do_##function(const ptx_arithmetic_call *call)                                    \
    {                                                                                              \
        const u32 *const *from = (const u32 *const *)call->from;                                   \
        *(u32 *)call->to[0] = (expression);                                                        \
        return 0;                                                                                  \
    }

PREDICATE(and_pred, *from[0] & *from[1])
PREDICATE(or_pred, *from[0] | *from[1])
PREDICATE(xor_pred, *from[0] ^ *from[1])
PREDICATE(not_pred, ~*from[0])

#define SELECT(function, type)                                                                     \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        type *restrict to = PTX_LANES_OF(call->to[0]);                                             \
        const type *restrict a = PTX_LANES_OF(call->from[0]);                                      \
        const type *restrict b = PTX_LANES_OF(call->from[1]);                                      \
        const uint32_t takes_first = *(const u32 *)call->from[2];                                  \
        PTX_EACH_LANE to[lane] = takes_first >> lane & 1 ? a[lane] : b[lane];                      \
        return 0;                                                                                  \
    }

SELECT(selp_b32, u32)
SELECT(selp_b64, u64)
