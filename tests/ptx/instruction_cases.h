/* What the ISA's text says of each variant, by examples worked out by hand: "name", {sources},
 * result. A source or a result is the bits of its register; of a predicate, 1 or 0. At least one
 * case for each row of arithmetic_list.h but those that cross lanes. ANY_NAN: the ISA leaves open
 * which. */
#ifndef PTX_INSTRUCTION_CASES_H
#define PTX_INSTRUCTION_CASES_H

#include <stdint.h>

#define ANY_NAN 0x7fffffff

/* fp32 */
#define ONE 0x3f800000
#define TWO 0x40000000
#define THREE 0x40400000
#define HALF 0x3f000000
#define THIRD 0x3eaaaaab /* to nearest */
#define TINY 0x00000001  /* 2^-149 */
#define LEAST 0x00800000 /* 2^-126, the least normal one */
#define MOST 0x7f7fffff
#define ULP 0x33800000 /* 2^-24: half of the distance of 1 to the next */
#define ZERO 0x00000000
#define INFINITE 0x7f800000
#define SIGNALLING 0x7f800001
#define MINUS(bits) (0x80000000 | (bits))
/* fp64 */
#define ONE_64 0x3ff0000000000000
#define TWO_64 0x4000000000000000
#define THREE_64 0x4008000000000000
#define HALF_64 0x3fe0000000000000
#define THIRD_64 0x3fd5555555555555
#define TINY_64 0x0000000000000001
#define INFINITE_64 0x7ff0000000000000
#define NAN_64 0x7ff8000000001234 /* with a payload */
#define MINUS_64(bits) (0x8000000000000000 | (bits))
/* integers */
#define ALL 0xffffffff
#define ALL_64 0xffffffffffffffff
#define TOP 0x80000000
#define TOP_64 0x8000000000000000

typedef struct instruction_case {
    const char *name;
    uint64_t source[4], result;
} instruction_case;

/* clang-format off */
static const instruction_case CASES[] = {
    {"abs.f64", {MINUS_64(TWO_64)}, TWO_64},
    {"abs.f64", {MINUS_64(0)}, 0},
    {"abs.f64", {MINUS_64(INFINITE_64)}, INFINITE_64},
    {"add.f32", {ONE + 1, ULP}, ONE + 2},
    {"add.f64", {ONE_64, TWO_64}, THREE_64},
    {"add.rn.f32", {ONE, TWO}, THREE},
    {"add.rn.f32", {ONE, ULP}, ONE},                         /* a tie, to even */
    {"add.rn.f32", {ONE + 1, ULP}, ONE + 2},                 /* a tie, to even */
    {"add.rn.f32", {TINY, TINY}, 2},                         /* no flush of subnormal numbers */
    {"add.rn.f32", {MOST, MOST}, INFINITE},
    {"add.rn.f32", {ONE, MINUS(ONE)}, ZERO},
    {"add.rn.f32", {MINUS(ZERO), MINUS(ZERO)}, MINUS(ZERO)},
    {"add.rn.f32", {INFINITE, MINUS(INFINITE)}, ANY_NAN},
    {"add.rn.f32", {SIGNALLING, ONE}, ANY_NAN},
    {"add.rn.f64", {ONE_64, TWO_64}, THREE_64},
    {"add.rn.f64", {ONE_64, 0x3ca0000000000000}, ONE_64},
    {"add.rn.f64", {TINY_64, TINY_64}, 2},
    {"add.rn.f64", {NAN_64, ONE_64}, NAN_64},                /* payloads are kept */
    {"add.s16", {0xffff, 2}, 1},
    {"add.s32", {ALL, 1}, 0},
    {"add.s32", {0x7fffffff, 1}, TOP},
    {"add.s64", {ALL, 1}, 0x100000000},
    {"add.s64", {ALL_64, 2}, 1},
    {"add.u64", {ALL_64, 1}, 0},
    {"add.u64", {ALL, ALL}, 0x1fffffffe},
    {"and.b16", {0xff0f, 0x0ff0}, 0x0f00},
    {"and.b32", {0xff00ff00, 0x0ff00ff0}, 0x0f000f00},
    {"and.b64", {0xff00ff00ff00ff00, 0x0ff00ff00ff00ff0}, 0x0f000f000f000f00},
    {"and.pred", {1, 1}, 1},
    {"and.pred", {1, 0}, 0},
    {"and.pred", {0, 0}, 0},
    {"bfe.u32", {0x12345678, 8, 12}, 0x456},
    {"bfe.u32", {0xff000000, 28, 8}, 0xf},                   /* zeros beyond the last bit */
    {"bfe.u32", {ALL, 31, 4}, 1},
    {"bfe.u32", {ALL, 32, 4}, 0},
    {"bfe.u32", {ALL, 3, 0}, 0},
    {"bfe.u32", {ALL, 0, 255}, ALL},
    {"bfi.b32", {0x5, 0, 3, 29}, 0x28},
    {"bfi.b32", {ALL, 0, 28, 8}, 0xf0000000},                /* what lies beyond is cut */
    {"bfi.b32", {0, ALL, 4, 8}, 0xfffff00f},
    {"bfi.b32", {ALL, 0x1234, 5, 0}, 0x1234},                /* no length: b */
    {"bfi.b32", {ALL, 0x1234, 32, 4}, 0x1234},               /* beyond the last bit: b */
    {"bfi.b32", {0xabcdef01, 0x1234, 0, 255}, 0xabcdef01},
    {"bfi.b32", {ALL, 0, 0x104, 0x104}, 0xf0},               /* 8 bits of either count */
    {"bfi.b64", {0x89abcdef, 0x01234567, 32, 32}, 0x89abcdef01234567},
    {"bfi.b64", {ALL_64, 0, 60, 8}, 0xf000000000000000},
    {"bfi.b64", {ALL_64, 0x1234, 64, 8}, 0x1234},
    {"bfi.b64", {0x1122334455667788, ALL_64, 0, 64}, 0x1122334455667788},
    {"clz.b64", {0}, 64},
    {"clz.b64", {1}, 63},
    {"clz.b64", {TOP_64}, 0},
    {"clz.b64", {0x0000000100000000}, 31},
    {"cvt.f32.f16", {0x3c00}, ONE},
    {"cvt.f32.f16", {0xc000}, MINUS(TWO)},
    {"cvt.f32.f16", {0x0001}, 0x33800000},                   /* 2^-24 */
    {"cvt.f32.f16", {0x83ff}, 0xb87fc000},                   /* -1023 x 2^-24 */
    {"cvt.f32.f16", {0x0400}, 0x38800000},
    {"cvt.f32.f16", {0x7bff}, 0x477fe000},                   /* 65504 */
    {"cvt.f32.f16", {0xfc00}, MINUS(INFINITE)},
    {"cvt.f32.f16", {0x7e00}, ANY_NAN},
    {"cvt.f32.f16", {0x8000}, MINUS(ZERO)},
    {"cvt.f64.f32", {THREE}, THREE_64},
    {"cvt.f64.f32", {TINY}, 0x36a0000000000000},
    {"cvt.f64.f32", {MINUS(INFINITE)}, MINUS_64(INFINITE_64)},
    {"cvt.rn.bf16.f32", {ONE}, 0x3f80},
    {"cvt.rn.bf16.f32", {0x3f808000}, 0x3f80},               /* ties, to even */
    {"cvt.rn.bf16.f32", {0x3f818000}, 0x3f82},
    {"cvt.rn.bf16.f32", {0x3f808001}, 0x3f81},
    {"cvt.rn.bf16.f32", {MOST}, 0x7f80},
    {"cvt.rn.bf16.f32", {0x80018001}, 0x8002},               /* subnormal */
    {"cvt.rn.bf16.f32", {MINUS(INFINITE)}, 0xff80},
    {"cvt.rn.bf16.f32", {SIGNALLING}, 0x7fff},               /* the canonical NaN */
    {"cvt.rn.bf16x2.f32", {ONE, TWO}, 0x3f804000},           /* the first in the upper half */
    {"cvt.rn.bf16x2.f32", {0x3f818000, SIGNALLING}, 0x3f827fff},
    {"cvt.rn.f16.f32", {ONE}, 0x3c00},
    {"cvt.rn.f16.f32", {0x3f801000}, 0x3c00},                /* ties, to even */
    {"cvt.rn.f16.f32", {0x3f803000}, 0x3c02},
    {"cvt.rn.f16.f32", {0x3f801001}, 0x3c01},
    {"cvt.rn.f16.f32", {0x477fefff}, 0x7bff},                /* just below 65520 */
    {"cvt.rn.f16.f32", {0x477ff000}, 0x7c00},                /* 65520: a tie, to infinity */
    {"cvt.rn.f16.f32", {MINUS(MOST)}, 0xfc00},
    {"cvt.rn.f16.f32", {0x33800000}, 0x0001},                /* 2^-24 */
    {"cvt.rn.f16.f32", {0x33000000}, 0x0000},                /* 2^-25: a tie, to even */
    {"cvt.rn.f16.f32", {0xb3000001}, 0x8001},
    {"cvt.rn.f16.f32", {0x387fe000}, 0x0400},                /* a tie up to the least normal one */
    {"cvt.rn.f16.f32", {0x387fdfff}, 0x03ff},
    {"cvt.rn.f16.f32", {SIGNALLING}, 0x7fff},
    {"cvt.rn.f16x2.f32", {ONE, TWO}, 0x3c004000},
    {"cvt.rn.f16x2.f32", {MINUS(MOST), 0x33800000}, 0xfc000001},
    {"cvt.rn.f32.f64", {THIRD_64}, THIRD},
    {"cvt.rn.f32.f64", {0x3ff0000010000000}, ONE},           /* a tie, to even */
    {"cvt.rn.f32.f64", {0x3ff0000030000000}, ONE + 2},
    {"cvt.rn.f32.f64", {0x36a0000000000000}, TINY},
    {"cvt.rn.f32.f64", {0x47f0000000000000}, INFINITE},
    {"cvt.rn.f32.s32", {ALL}, MINUS(ONE)},
    {"cvt.rn.f32.s32", {TOP}, 0xcf000000},
    {"cvt.rn.f32.s32", {0x01000001}, 0x4b800000},            /* 2^24 + 1: a tie, to even */
    {"cvt.rn.f32.s32", {0x01000003}, 0x4b800002},
    {"cvt.rn.f32.u64", {ALL_64}, 0x5f800000},
    {"cvt.rn.f32.u64", {0x8000008000000000}, 0x5f000000},    /* a tie, to even */
    {"cvt.rn.f32.u64", {0x8000008000000001}, 0x5f000001},
    {"cvt.rn.f64.u32", {ALL}, 0x41efffffffe00000},
    {"cvt.rn.f64.u32", {3}, THREE_64},
    {"cvt.rn.f64.u64", {ALL_64}, 0x43f0000000000000},
    {"cvt.rn.f64.u64", {0x20000000000001}, 0x4340000000000000},
    {"cvt.rn.f64.u64", {0x20000000000003}, 0x4340000000000002},
    {"cvt.rzi.s32.f32", {MINUS(THREE)}, 0xfffffffd},
    {"cvt.rzi.s32.f32", {0x3ff33333}, 1},                    /* 1.9 */
    {"cvt.rzi.s32.f32", {0x4f000000}, ALL >> 1},
    {"cvt.rzi.s32.f32", {0xcf000001}, TOP},
    {"cvt.rzi.s32.f32", {0x7fc00000}, 0},
    {"cvt.rzi.u32.f64", {THREE_64}, 3},
    {"cvt.rzi.u32.f64", {0x3ffe666666666666}, 1},            /* 1.9 */
    {"cvt.rzi.u32.f64", {0x41efffffffe00000}, ALL},          /* 2^32 - 1 */
    {"cvt.rzi.u32.f64", {0x41f0000000000000}, ALL},
    {"cvt.rzi.u32.f64", {MINUS_64(THREE_64)}, 0},
    {"cvt.rzi.u32.f64", {NAN_64}, TOP},
    {"cvt.s32.s8", {0x80}, 0xffffff80},
    {"cvt.s32.s8", {0x1234567f}, 0x7f},                      /* the upper bits are not read */
    {"cvt.s64.s32", {TOP}, 0xffffffff80000000},
    {"cvt.s64.s32", {3}, 3},
    {"cvt.sat.f32.f32", {HALF}, HALF},
    {"cvt.sat.f32.f32", {0x3fc00000}, ONE},
    {"cvt.sat.f32.f32", {TWO}, ONE},
    {"cvt.sat.f32.f32", {MINUS(ONE)}, ZERO},
    {"cvt.sat.f32.f32", {MINUS(ZERO)}, ZERO},
    {"cvt.sat.f32.f32", {INFINITE}, ONE},
    {"cvt.sat.f32.f32", {SIGNALLING}, ZERO},
    {"cvt.sat.f32.f32", {TINY}, TINY},
    {"cvt.u16.u32", {0x12345678}, 0x5678},
    {"cvt.u32.u16", {0xffff}, 0xffff},
    {"cvt.u32.u64", {0x123456789abcdef0}, 0x9abcdef0},
    {"cvt.u64.u32", {0xfffffffe}, 0xfffffffe},
    {"cvt.u64.u16", {0xfffe}, 0xfffe},
    {"div.rn.f32", {ONE, THREE}, THIRD},
    {"div.rn.f32", {ONE, MINUS(ZERO)}, MINUS(INFINITE)},
    {"div.rn.f32", {ZERO, ZERO}, ANY_NAN},
    {"div.rn.f32", {LEAST, TWO}, 0x00400000},
    {"div.rn.f32", {TINY, TWO}, ZERO},                       /* a tie, to even */
    {"div.rn.f32", {MOST, HALF}, INFINITE},
    {"div.rn.f64", {ONE_64, THREE_64}, THIRD_64},
    {"div.rn.f64", {MINUS_64(ONE_64), 0}, MINUS_64(INFINITE_64)},
    {"div.u16", {0xffff, 7}, 9362},
    {"div.u32", {ALL, 7}, 613566756},
    {"div.u32", {6, 7}, 0},
    {"div.u64", {ALL_64, 10}, 1844674407370955161},
    {"ex2.approx.ftz.f32", {ZERO}, ONE},
    {"ex2.approx.ftz.f32", {MINUS(ZERO)}, ONE},
    {"ex2.approx.ftz.f32", {TINY}, ONE},                     /* flushed */
    {"ex2.approx.ftz.f32", {INFINITE}, INFINITE},
    {"ex2.approx.ftz.f32", {MINUS(INFINITE)}, ZERO},
    {"ex2.approx.ftz.f32", {0xc3000000}, ZERO},              /* 2^-128: flushed */
    {"ex2.approx.ftz.f32", {SIGNALLING}, ANY_NAN},
    {"fma.rm.f32", {ONE, ONE, ULP}, ONE},
    {"fma.rm.f32", {MINUS(ONE), ONE, MINUS(TINY)}, MINUS(ONE + 1)},
    {"fma.rm.f32", {ONE, ONE, MINUS(TINY)}, ONE - 1},
    {"fma.rm.f32", {ONE + 1, ONE + 1, ZERO}, ONE + 2},       /* 1 + 2^-22 + 2^-46 */
    {"fma.rm.f32", {ONE + 1, MINUS(ONE + 1), ZERO}, MINUS(ONE + 3)},
    {"fma.rm.f32", {MOST, TWO, ZERO}, MOST},
    {"fma.rm.f32", {MOST, MINUS(TWO), ZERO}, MINUS(INFINITE)},
    {"fma.rm.f32", {ONE, ONE, MINUS(ONE)}, MINUS(ZERO)},     /* an exact zero, rounded down */
    {"fma.rm.f32", {ZERO, ONE, ZERO}, ZERO},
    {"fma.rm.f32", {TINY, TINY, ZERO}, ZERO},
    {"fma.rm.f32", {TINY, MINUS(TINY), ZERO}, MINUS(TINY)},
    {"fma.rm.f32", {INFINITE, ZERO, ONE}, ANY_NAN},
    {"fma.rn.f32", {TWO, THREE, ONE}, 0x40e00000},
    {"fma.rn.f32", {ONE + 1, ONE + 1, MINUS(ONE + 2)}, 0x28800000}, /* 2^-46: one rounding */
    {"fma.rn.f32", {MOST, TWO, MINUS(MOST)}, MOST},          /* no overflow in between */
    {"fma.rn.f32", {ONE, ONE, MINUS(ONE)}, ZERO},
    {"fma.rn.f32", {ZERO, INFINITE, ONE}, ANY_NAN},
    {"fma.rn.f64", {TWO_64, THREE_64, ONE_64}, 0x401c000000000000},
    {"fma.rn.f64", {ONE_64 + 1, ONE_64 + 1, MINUS_64(ONE_64 + 2)}, 0x3970000000000000},
    {"fma.rn.f64", {ONE_64, NAN_64, ONE_64}, NAN_64},
    {"mad.lo.s32", {0x10000, 0x10001, 5}, 0x10005},
    {"mad.lo.s32", {ALL, 7, 8}, 1},
    {"mad.lo.s64", {0x100000001, 0x100000001, ALL_64}, 0x200000000},
    {"max.f32", {ONE, TWO}, TWO},
    {"max.f32", {MINUS(ONE), MINUS(TWO)}, MINUS(ONE)},
    {"max.f32", {SIGNALLING, ONE}, ONE},
    {"max.f32", {MINUS(INFINITE), ANY_NAN}, MINUS(INFINITE)},
    {"max.f32", {ANY_NAN, ANY_NAN}, ANY_NAN},
    {"max.f32", {MINUS(ZERO), ZERO}, ZERO},                  /* +0 is the greater one */
    {"max.f32", {ZERO, MINUS(ZERO)}, ZERO},
    {"max.s32", {ALL, 0}, 0},
    {"max.s32", {TOP, ALL}, ALL},
    {"max.s64", {ALL_64, 0}, 0},
    {"max.s64", {TOP_64, ALL_64}, ALL_64},
    {"max.u32", {TOP, 1}, TOP},
    {"max.u64", {ALL_64, 0}, ALL_64},
    {"min.f64", {ONE_64, MINUS_64(TWO_64)}, MINUS_64(TWO_64)},
    {"min.f64", {NAN_64, ONE_64}, ONE_64},
    {"min.f64", {ONE_64, NAN_64}, ONE_64},
    {"min.f64", {0, MINUS_64(0)}, MINUS_64(0)},
    {"min.u32", {TOP, 1}, 1},
    {"min.u64", {TOP_64, 0x100000000}, 0x100000000},
    {"mul.f32", {ONE + 1, ONE + 1}, ONE + 2},
    {"mul.f64", {THREE_64, THIRD_64}, ONE_64},
    {"mul.lo.s16", {0x101, 0x101}, 0x0201},
    {"mul.lo.s16", {0xffff, 0xffff}, 1},
    {"mul.lo.s32", {0x10001, 0x10001}, 0x20001},
    {"mul.lo.s32", {ALL, ALL}, 1},
    {"mul.lo.s64", {0x100000001, 0x100000001}, 0x200000001},
    {"mul.rn.f32", {THREE, THIRD}, ONE},
    {"mul.rn.f32", {ONE + 1, ONE + 1}, ONE + 2},
    {"mul.rn.f32", {LEAST, HALF}, 0x00400000},
    {"mul.rn.f32", {TINY, HALF}, ZERO},
    {"mul.rn.f32", {MINUS(ZERO), ONE}, MINUS(ZERO)},
    {"mul.rn.f32", {INFINITE, ZERO}, ANY_NAN},
    {"mul.rn.f64", {THREE_64, THIRD_64}, ONE_64},
    {"mul.rn.f64", {NAN_64, TWO_64}, NAN_64},
    {"mul.wide.s32", {ALL, 8}, 0xfffffffffffffff8},
    {"mul.wide.s32", {TOP, TOP}, 0x4000000000000000},
    {"mul.wide.u16", {0xffff, 0xffff}, 0xfffe0001},
    {"mul.wide.u16", {0x8000, 16}, 0x80000},
    {"mul.wide.u32", {ALL, ALL}, 0xfffffffe00000001},
    {"neg.f32", {ONE}, MINUS(ONE)},
    {"neg.f32", {MINUS(ZERO)}, ZERO},
    {"neg.f64", {0}, MINUS_64(0)},
    {"neg.f64", {MINUS_64(INFINITE_64)}, INFINITE_64},
    {"neg.s32", {1}, ALL},
    {"neg.s32", {TOP}, TOP},
    {"neg.s64", {1}, ALL_64},
    {"not.b32", {0x0f0f0f0f}, 0xf0f0f0f0},
    {"not.b64", {0x0f0f0f0f0f0f0f0f}, 0xf0f0f0f0f0f0f0f0},
    {"not.pred", {1}, 0},
    {"not.pred", {0}, 1},
    {"or.b32", {0xff00ff00, 0x0ff00ff0}, 0xfff0fff0},
    {"or.b64", {0xff00ff00ff00ff00, 0x0ff00ff00ff00ff0}, 0xfff0fff0fff0fff0},
    {"or.pred", {1, 0}, 1},
    {"or.pred", {0, 0}, 0},
    {"rcp.approx.ftz.f64", {TWO_64}, HALF_64},
    {"rcp.approx.ftz.f64", {TWO_64 + 0xffffffff}, HALF_64},  /* the lower word is not read */
    {"rcp.approx.ftz.f64", {MINUS_64(INFINITE_64)}, MINUS_64(0)},
    {"rcp.approx.ftz.f64", {MINUS_64(0)}, MINUS_64(INFINITE_64)},
    {"rcp.approx.ftz.f64", {0x000fffff00000000}, INFINITE_64},
    {"rcp.approx.ftz.f64", {MINUS_64(0x000fffff00000000)}, MINUS_64(INFINITE_64)},
    {"rcp.approx.ftz.f64", {0x7fe8000000000000}, 0},         /* would be subnormal */
    {"rcp.approx.ftz.f64", {NAN_64}, 0x7fffffff00000000},
    {"rcp.rn.f32", {THREE}, THIRD},
    {"rcp.rn.f32", {MINUS(ZERO)}, MINUS(INFINITE)},
    {"rcp.rn.f32", {MOST}, 0x00200000},                      /* 2^-128 and a little */
    {"rem.u32", {ALL, 7}, 3},
    {"rem.u64", {ALL_64, 10}, 5},
    {"selp.b16", {1, 2, 1}, 1},
    {"selp.b16", {1, 2, 0}, 2},
    {"selp.b32", {0x1234, 0x5678, 1}, 0x1234},
    {"selp.b32", {0x1234, 0x5678, 0}, 0x5678},
    {"selp.b64", {0x123400000000, 0x567800000000, 1}, 0x123400000000},
    {"selp.b64", {0x123400000000, 0x567800000000, 0}, 0x567800000000},
    {"selp.f32", {ONE, SIGNALLING, 0}, SIGNALLING},          /* bits are moved, no NaN is made */
    {"selp.f32", {ONE, TWO, 1}, ONE},
    {"selp.f64", {ONE_64, TWO_64, 1}, ONE_64},
    {"selp.f64", {ONE_64, TWO_64, 0}, TWO_64},
    {"selp.u16", {1, 2, 1}, 1},
    {"selp.u16", {1, 2, 0}, 2},
    {"selp.u32", {1, 2, 1}, 1},
    {"selp.u32", {1, 2, 0}, 2},
    {"selp.u64", {1, 2, 1}, 1},
    {"selp.u64", {1, 2, 0}, 2},
    {"setp.eq.b32", {5, 5}, 1},
    {"setp.eq.b32", {5, TOP + 5}, 0},
    {"setp.eq.b64", {0x100000000, 0}, 0},
    {"setp.eq.b64", {ALL_64, ALL_64}, 1},
    {"setp.eq.f32", {ZERO, MINUS(ZERO)}, 1},
    {"setp.eq.f32", {ANY_NAN, ANY_NAN}, 0},
    {"setp.eq.f32", {TINY, ZERO}, 0},
    {"setp.eq.s16", {0xffff, 0xffff}, 1},
    {"setp.eq.s16", {0xffff, 0x7fff}, 0},
    {"setp.eq.s32", {5, 5}, 1},
    {"setp.eq.s32", {5, TOP + 5}, 0},
    {"setp.eq.s64", {TOP_64, TOP_64}, 1},
    {"setp.eq.s64", {TOP_64, 0}, 0},
    {"setp.equ.f64", {ONE_64, ONE_64}, 1},
    {"setp.equ.f64", {ONE_64, NAN_64}, 1},
    {"setp.equ.f64", {ONE_64, TWO_64}, 0},
    {"setp.equ.f64", {0, MINUS_64(0)}, 1},
    {"setp.ge.s32", {TOP, 0}, 0},
    {"setp.ge.s32", {ALL, ALL}, 1},
    {"setp.ge.s32", {0, ALL}, 1},
    {"setp.ge.s64", {ALL_64, 0}, 0},
    {"setp.ge.s64", {0, 0}, 1},
    {"setp.ge.u32", {ALL, 0}, 1},
    {"setp.ge.u32", {0, 1}, 0},
    {"setp.ge.u32", {1, 1}, 1},
    {"setp.ge.u64", {ALL_64, 0}, 1},
    {"setp.ge.u64", {ALL, 0x100000000}, 0},
    {"setp.geu.f32", {ANY_NAN, ONE}, 1},
    {"setp.geu.f32", {ONE, TWO}, 0},
    {"setp.geu.f32", {MINUS(ZERO), ZERO}, 1},
    {"setp.geu.f64", {ONE_64, NAN_64}, 1},
    {"setp.geu.f64", {ONE_64, TWO_64}, 0},
    {"setp.gt.f32", {TWO, ONE}, 1},
    {"setp.gt.f32", {ONE, ONE}, 0},
    {"setp.gt.f32", {INFINITE, ANY_NAN}, 0},
    {"setp.gt.s32", {1, ALL}, 1},
    {"setp.gt.s32", {TOP, 0}, 0},
    {"setp.gt.s64", {0, TOP_64}, 1},
    {"setp.gt.s64", {ALL_64, ALL_64}, 0},
    {"setp.gt.u16", {0xffff, 0x7fff}, 1},
    {"setp.gt.u16", {128, 128}, 0},
    {"setp.gt.u32", {ALL, 0}, 1},
    {"setp.gt.u32", {0, 0}, 0},
    {"setp.gt.u64", {TOP_64, 1}, 1},
    {"setp.gt.u64", {ALL, 0x100000000}, 0},
    {"setp.le.s32", {ALL, 1}, 1},
    {"setp.le.s32", {TOP, TOP}, 1},
    {"setp.le.s32", {1, ALL}, 0},
    {"setp.le.u32", {1, ALL}, 1},
    {"setp.le.u32", {ALL, ALL}, 1},
    {"setp.le.u32", {2, 1}, 0},
    {"setp.le.u64", {1, TOP_64}, 1},
    {"setp.le.u64", {0x100000000, ALL}, 0},
    {"setp.leu.f32", {ANY_NAN, ONE}, 1},
    {"setp.leu.f32", {TWO, ONE}, 0},
    {"setp.leu.f32", {ZERO, MINUS(ZERO)}, 1},
    {"setp.leu.f64", {NAN_64, ONE_64}, 1},
    {"setp.leu.f64", {TWO_64, ONE_64}, 0},
    {"setp.lt.f32", {MINUS(ONE), ONE}, 1},
    {"setp.lt.f32", {ANY_NAN, ONE}, 0},
    {"setp.lt.f32", {MINUS(ZERO), ZERO}, 0},
    {"setp.lt.s32", {ALL, 0}, 1},
    {"setp.lt.s32", {0, ALL}, 0},
    {"setp.lt.s64", {ALL_64, 0}, 1},
    {"setp.lt.s64", {ALL, 0x100000000}, 1},
    {"setp.lt.s64", {0, 0}, 0},
    {"setp.lt.u16", {0x7fff, 0x8000}, 1},
    {"setp.lt.u16", {5, 5}, 0},
    {"setp.lt.u32", {ALL, 0}, 0},
    {"setp.lt.u32", {0, 1}, 1},
    {"setp.lt.u64", {ALL_64, 0}, 0},
    {"setp.lt.u64", {ALL, 0x100000000}, 1},
    {"setp.ne.s16", {0xffff, 0x7fff}, 1},
    {"setp.ne.s16", {7, 7}, 0},
    {"setp.ne.s32", {0, TOP}, 1},
    {"setp.ne.s32", {ALL, ALL}, 0},
    {"setp.ne.s64", {0, 0x100000000}, 1},
    {"setp.ne.s64", {ALL_64, ALL_64}, 0},
    {"setp.ne.u32", {0, TOP}, 1},
    {"setp.ne.u32", {3, 3}, 0},
    {"setp.neu.f32", {ANY_NAN, ONE}, 1},
    {"setp.neu.f32", {TWO, ONE}, 1},
    {"setp.neu.f32", {ZERO, MINUS(ZERO)}, 0},
    {"prmt.b32", {0x33221100, 0x77665544, 4180}, 0x11005544},
    {"prmt.b32", {0x33221100, 0x77665544, 0x7632}, 0x77663322},
    {"prmt.b32", {0x80221100, 0x77665544, 0xfb30}, 0x00ff8000},
    {"shf.l.wrap.b32", {TOP, 3, 1}, 7},
    {"shf.l.wrap.b32", {TOP, 3, 0}, 3},
    {"shf.l.wrap.b32", {0x12345678, ALL, 32 + 4}, 0xfffffff1},
    {"shl.b32", {1, 31}, TOP},
    {"shl.b32", {3, 4}, 48},
    {"shl.b32", {ALL, 32}, 0},                               /* clamped to the width */
    {"shl.b32", {ALL, ALL}, 0},
    {"shl.b64", {1, 63}, TOP_64},
    {"shl.b64", {3, 33}, 0x600000000},
    {"shl.b64", {ALL_64, 64}, 0},
    {"shl.b64", {ALL, 4}, 0xffffffff0},
    {"shr.u32", {TOP, 31}, 1},
    {"shr.u32", {48, 4}, 3},
    {"shr.u32", {ALL, 33}, 0},
    {"shr.u64", {TOP_64, 63}, 1},
    {"shr.u64", {0x600000000, 33}, 3},
    {"shr.u64", {ALL_64, 64}, 0},
    {"sqrt.rn.f32", {0x40800000}, TWO},
    {"sqrt.rn.f32", {TWO}, 0x3fb504f3},
    {"sqrt.rn.f32", {MINUS(ZERO)}, MINUS(ZERO)},
    {"sqrt.rn.f32", {MINUS(TINY)}, ANY_NAN},
    {"sqrt.rn.f32", {0x00000002}, 0x1a800000},               /* 2^-148 */
    {"sqrt.rn.f64", {TWO_64}, 0x3ff6a09e667f3bcd},
    {"sqrt.rn.f64", {INFINITE_64}, INFINITE_64},
    {"sub.f32", {MINUS(ONE), ULP}, MINUS(ONE)},
    {"sub.f64", {ONE_64, TWO_64}, MINUS_64(ONE_64)},
    {"sub.rn.f32", {ONE, TWO}, MINUS(ONE)},
    {"sub.rn.f32", {ONE, ONE}, ZERO},
    {"sub.rn.f32", {MINUS(ONE), ULP}, MINUS(ONE)},           /* a tie, to even */
    {"sub.rn.f32", {INFINITE, INFINITE}, ANY_NAN},
    {"sub.rn.f64", {ONE_64, TWO_64}, MINUS_64(ONE_64)},
    {"sub.rn.f64", {TWO_64, NAN_64}, NAN_64},
    {"sub.s16", {1, 2}, 0xffff},
    {"sub.s32", {0, 1}, ALL},
    {"sub.s64", {0x100000000, 1}, ALL},
    {"xor.b32", {0xff00ff00, 0x0ff00ff0}, 0xf0f0f0f0},
    {"xor.b64", {0xff00ff00ff00ff00, 0x0ff00ff00ff00ff0}, 0xf0f0f0f0f0f0f0f0},
    {"xor.pred", {1, 1}, 0},
    {"xor.pred", {1, 0}, 1},
    {"xor.pred", {0, 0}, 0},
};
/* clang-format on */

#endif
