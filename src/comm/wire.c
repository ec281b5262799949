/* Rounding and sums, a block of elements at a time: the block's fp32 sum stays in the nearest
 * cache. Loops over whole blocks are plain, so that the compiler makes vector code of them; the
 * order of a sum is that of the terms for every element, whatever the block or the vector. */
#include "wire.h"

#include <string.h>

#include "base/half.h"

enum { BLOCK = 1024 };

/* The loops are compiled twice, for any processor and for AVX2, by being inlined into both of what
 * stands at the end. Neither contracts or reorders, so both give the same bits. */
#define SL_INLINE static inline __attribute__((always_inline))

/* Without a branch, for vectors; the same as sl_half_to_bf16. */
SL_INLINE uint16_t round_to_bf16(float value)
{
    uint32_t bits = sl_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x0040;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

SL_INLINE void narrow(sl_comm_type type, uint64_t count, const float *from, void *to)
{
    uint16_t *halves = to;
    if (type == SL_COMM_FP32) {
        memcpy(to, from, count * sizeof *from);
    } else if (type == SL_COMM_BF16) {
        for (uint64_t i = 0; i < count; i++)
            halves[i] = round_to_bf16(from[i]);
    } else {
        for (uint64_t i = 0; i < count; i++)
            halves[i] = sl_half_to_fp16(from[i]);
    }
}

SL_INLINE void widen(sl_comm_type type, uint64_t count, const void *from, float *to)
{
    const uint16_t *halves = from;
    if (type == SL_COMM_FP32) {
        memcpy(to, from, count * sizeof *to);
    } else if (type == SL_COMM_BF16) {
        for (uint64_t i = 0; i < count; i++)
            to[i] = sl_half_from_bf16(halves[i]);
    } else {
        for (uint64_t i = 0; i < count; i++)
            to[i] = sl_half_from_fp16(halves[i]);
    }
}

SL_INLINE void convert(sl_comm_type from_type, sl_comm_type to_type, uint64_t count,
                       const void *from, void *to)
{
    if (from_type == to_type)
        memcpy(to, from, count * sl_wire_bytes(to_type));
    else if (to_type == SL_COMM_FP32)
        widen(from_type, count, from, to);
    else
        narrow(to_type, count, from, to);
}

SL_INLINE void add(sl_comm_type type, uint64_t count, const void *from, float *sum)
{
    const float *floats = from;
    const uint16_t *halves = from;
    if (type == SL_COMM_FP32) {
        for (uint64_t i = 0; i < count; i++)
            sum[i] += floats[i];
    } else if (type == SL_COMM_BF16) {
        for (uint64_t i = 0; i < count; i++)
            sum[i] += sl_half_from_bf16(halves[i]);
    } else {
        for (uint64_t i = 0; i < count; i++)
            sum[i] += sl_half_from_fp16(halves[i]);
    }
}

/* Term i from element `first` on, as it came; this rank's own is in `own`. */
SL_INLINE const void *term_at(const sl_wire_sum_args *args, uint32_t i, uint64_t first,
                              const void *own)
{
    uint64_t wire_bytes = sl_wire_bytes(args->types.wire);
    return i == args->own_index ? own
                                : (const void *)((const char *)args->terms[i] + first * wire_bytes);
}

/* The sum of elements [first, first + count), count <= BLOCK. `own` is rounded to the wire type as
 * everybody else's were on their way here. */
SL_INLINE void sum_block(const sl_wire_sum_args *args, uint64_t first, uint64_t count)
{
    float sum[BLOCK];
    uint32_t own[BLOCK], wire[BLOCK]; /* room for either type */
    const sl_comm_type on_wire = args->types.wire, stored = args->types.stored;
    const uint64_t stored_bytes = sl_wire_bytes(stored), wire_bytes = sl_wire_bytes(on_wire);
    convert(stored, on_wire, count, (const char *)args->own + first * stored_bytes, own);
    widen(on_wire, count, term_at(args, 0, first, own), sum);
    for (uint32_t i = 1; i < args->term_count; i++)
        add(on_wire, count, term_at(args, i, first, own), sum);
    char *out = args->out_wire ? (char *)args->out_wire + first * wire_bytes : (char *)wire;
    narrow(on_wire, count, sum, out);
    convert(on_wire, stored, count, out, (char *)args->out_stored + first * stored_bytes);
}

/* Two ranks, which is what two cores do most: a sum of two is the same in either order, and both
 * places are written while it is in a register. */
SL_INLINE void sum_pair_fp32(uint64_t count, const float *restrict other, float *restrict own,
                             float *restrict wire)
{
    for (uint64_t i = 0; i < count; i++) {
        const float sum = own[i] + other[i];
        own[i] = sum;
        wire[i] = sum;
    }
}

/* The sum's fp32 bits, of which the upper half is what bf16 rounds to. */
SL_INLINE uint32_t add_upper_halves(uint32_t a, uint32_t b)
{
    const float sum = sl_bits_to_float(a) + sl_bits_to_float(b);
    const uint32_t bits = sl_bits_of_float(sum);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x00400000 : rounded;
}

/* Two elements in a word: neither is moved for the other's sake, as packing of vectors would. */
SL_INLINE void sum_pair_bf16(uint64_t count, const uint16_t *restrict other, uint16_t *restrict own,
                             uint16_t *restrict wire)
{
    for (uint64_t i = 0; i < count / 2; i++) {
        uint32_t a, b;
        memcpy(&a, own + 2 * i, sizeof a);
        memcpy(&b, other + 2 * i, sizeof b);
        const uint32_t low = add_upper_halves(a << 16, b << 16);
        const uint32_t high = add_upper_halves(a & 0xffff0000, b & 0xffff0000);
        const uint32_t both = low >> 16 | (high & 0xffff0000);
        memcpy(own + 2 * i, &both, sizeof both);
        memcpy(wire + 2 * i, &both, sizeof both);
    }
    if (count % 2 == 0)
        return;
    const uint32_t last =
        add_upper_halves((uint32_t)own[count - 1] << 16, (uint32_t)other[count - 1] << 16);
    own[count - 1] = wire[count - 1] = (uint16_t)(last >> 16);
}

/* Whether the two are in one of these types wherever they are. */
SL_INLINE bool is_plain_pair(const sl_wire_sum_args *args)
{
    return args->term_count == 2 && args->types.stored == args->types.wire &&
           args->types.wire != SL_COMM_FP16 && args->out_wire && args->out_stored == args->own;
}

SL_INLINE void sum_plain_pair(const sl_wire_sum_args *args)
{
    const void *other = args->terms[1 - args->own_index];
    if (args->types.wire == SL_COMM_FP32)
        sum_pair_fp32(args->count, other, args->out_stored, args->out_wire);
    else
        sum_pair_bf16(args->count, other, args->out_stored, args->out_wire);
}

SL_INLINE void sum_all(const sl_wire_sum_args *args)
{
    if (is_plain_pair(args)) {
        sum_plain_pair(args);
        return;
    }
    for (uint64_t first = 0; first < args->count; first += BLOCK) {
        const uint64_t left = args->count - first;
        sum_block(args, first, left < BLOCK ? left : BLOCK);
    }
}

/* ---- for any processor, and for AVX2 ---- */

#if defined(__x86_64__)
#define SL_AVX2 __attribute__((target("avx2")))
#define SL_HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define SL_AVX2
#define SL_HAS_AVX2 0
#endif

SL_AVX2 static void convert_by_avx2(sl_comm_type from_type, sl_comm_type to_type, uint64_t count,
                                    const void *from, void *to)
{
    convert(from_type, to_type, count, from, to);
}

SL_AVX2 static void sum_by_avx2(const sl_wire_sum_args *args)
{
    sum_all(args);
}

void sl_wire_convert(sl_comm_type from_type, sl_comm_type to_type, uint64_t count, const void *from,
                     void *to)
{
    if (SL_HAS_AVX2)
        convert_by_avx2(from_type, to_type, count, from, to);
    else
        convert(from_type, to_type, count, from, to);
}

void sl_wire_sum(const sl_wire_sum_args *args)
{
    if (SL_HAS_AVX2)
        sum_by_avx2(args);
    else
        sum_all(args);
}
