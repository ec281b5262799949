/* Rounding and sums, a block of elements at a time: the block's fp32 sum stays in the nearest
 * cache. Loops over whole blocks are plain, so that the compiler makes vector code of them; the
 * order of a sum is that of the terms for every element, whatever the block or the vector. */
#include "wire.h"

#include <string.h>

#include "base/half.h"

enum { BLOCK = 1024 };

/* Without a branch, for vectors; the same as sl_half_to_bf16. */
static inline uint16_t round_to_bf16(float value)
{
    uint32_t bits = sl_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x0040;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static void narrow(sl_comm_type type, uint64_t count, const float *from, void *to)
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

static void widen(sl_comm_type type, uint64_t count, const void *from, float *to)
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

void sl_wire_round(sl_comm_types types, uint64_t count, const void *from, void *to)
{
    if (types.stored == types.wire)
        memcpy(to, from, count * sl_wire_bytes(types.wire));
    else
        narrow(types.wire, count, from, to);
}

void sl_wire_widen(sl_comm_types types, uint64_t count, const void *from, void *to)
{
    if (types.stored == types.wire)
        memcpy(to, from, count * sl_wire_bytes(types.wire));
    else
        widen(types.wire, count, from, to);
}

static void add(sl_comm_type type, uint64_t count, const void *from, float *sum)
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

/* The sum of elements [first, first + count), count <= BLOCK. `own` is rounded to the wire type as
 * everybody else's were on their way here. */
static void sum_block(const sl_wire_sum_args *args, uint64_t first, uint64_t count)
{
    float sum[BLOCK];
    uint32_t own[BLOCK], wire[BLOCK]; /* room for either type */
    uint64_t stored_bytes = sl_wire_bytes(args->types.stored);
    uint64_t wire_bytes = sl_wire_bytes(args->types.wire);
    sl_wire_round(args->types, count, (const char *)args->own + first * stored_bytes, own);
    for (uint32_t i = 0; i < args->term_count; i++) {
        const void *term = i == args->own_index
                               ? own
                               : (const void *)((const char *)args->terms[i] + first * wire_bytes);
        if (i == 0)
            widen(args->types.wire, count, term, sum);
        else
            add(args->types.wire, count, term, sum);
    }
    char *out = args->out_wire ? (char *)args->out_wire + first * wire_bytes : (char *)wire;
    narrow(args->types.wire, count, sum, out);
    sl_wire_widen(args->types, count, out, (char *)args->out_stored + first * stored_bytes);
}

/* Two ranks in fp32, which is what two cores do most: nothing to round. */
static void sum_pair(uint64_t count, const float *a, const float *b, float *restrict wire,
                     float *stored)
{
    for (uint64_t i = 0; i < count; i++)
        wire[i] = a[i] + b[i];
    memcpy(stored, wire, count * sizeof *wire);
}

static bool is_plain_pair(const sl_wire_sum_args *args)
{
    return args->term_count == 2 && args->types.stored == SL_COMM_FP32 &&
           args->types.wire == SL_COMM_FP32 && args->out_wire;
}

static void sum_plain_block(const sl_wire_sum_args *args, uint64_t first, uint64_t count)
{
    const float *own = (const float *)args->own + first;
    const float *other = (const float *)args->terms[1 - args->own_index] + first;
    sum_pair(count, args->own_index == 0 ? own : other, args->own_index == 0 ? other : own,
             (float *)args->out_wire + first, (float *)args->out_stored + first);
}

void sl_wire_sum(const sl_wire_sum_args *args)
{
    bool is_plain = is_plain_pair(args);
    for (uint64_t first = 0; first < args->count; first += BLOCK) {
        uint64_t left = args->count - first, count = left < BLOCK ? left : BLOCK;
        if (is_plain)
            sum_plain_block(args, first, count);
        else
            sum_block(args, first, count);
    }
}
