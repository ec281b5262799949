/* Multiply-adds from registers alone, by the instruction with which products of a type are
 * computed: what no product can exceed. CHAINS sums that do not depend on each other hide the
 * latency of an instruction. */
#include "isa.h"
#include "lanes.h"

enum { CHAINS = 12 }; /* six cycles of latency on two ports; with two factors in 16 registers */

/* Every chain starts elsewhere and all end in memory: a compiler would join equal chains, and leave
 * out those of which nothing comes. Each sum needs the one before, so none is computed once for the
 * whole loop. */
static void multiply_add_lanes(uint64_t count, float *numbers)
{
    const lanes a = set_lanes(numbers[0]), b = set_lanes(numbers[1]);
    lanes sum[CHAINS];
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++)
        sum[c] = set_lanes(numbers[0] + (float)c);
    for (uint64_t i = 0; i < count; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sum[c] = fma_lanes(sum[c], a, b);
#pragma GCC unroll 12
    for (int c = 1; c < CHAINS; c++)
        sum[0] += sum[c];
    numbers[2] = sum_lanes(sum[0]);
}

const sl_register_loop SL_SIMD(register_loop) = {multiply_add_lanes, 2 * LANES *CHAINS};

#if defined(__AVX512F__)

__attribute__((target("avx512bf16"))) static void multiply_add_pairs(uint64_t count, float *numbers)
{
    enum { PAIR = 0x3bff3bff }; /* of ordinary bf16 */
    const __m512bh a = (__m512bh)_mm512_set1_epi32(PAIR), b = a;
    lanes sum[CHAINS];
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++)
        sum[c] = set_lanes(numbers[0] + (float)c);
    for (uint64_t i = 0; i < count; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
#pragma GCC unroll 12
    for (int c = 1; c < CHAINS; c++)
        sum[0] += sum[c];
    numbers[2] = sum_lanes(sum[0]);
}

const sl_register_loop sl_simd_register_loop_pairs = {multiply_add_pairs, 4 * LANES *CHAINS};

enum { SIDE = 16, ROW_BYTES = 64, TILE_FLOPS = 2 * SIDE * SIDE * 2 * SIDE, TILE_SUMS = 6 };

/* Six tiles of sums hide a latency of 52 cycles at one instruction every 16. */
__attribute__((target("amx-tile,amx-bf16"))) static void multiply_add_tiles(uint64_t count,
                                                                            float *numbers)
{
    uint8_t shapes[64] = {1}; /* the palette; bytes of a row from 16 on, rows from 48 on */
    uint16_t elements[SIDE * 2 * SIDE];
    for (int i = 0; i < 8; i++) {
        shapes[16 + 2 * i] = ROW_BYTES;
        shapes[48 + i] = SIDE;
    }
    for (int i = 0; i < SIDE * 2 * SIDE; i++)
        elements[i] = 0x3bff; /* an ordinary bf16 */
    __asm__ volatile("" ::"r"(elements), "r"(shapes) : "memory");
    _tile_loadconfig(shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_loadd(6, elements, ROW_BYTES);
    _tile_loadd(7, elements, ROW_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_release();
    numbers[2] = numbers[0];
}

const sl_register_loop sl_simd_register_loop_amx = {multiply_add_tiles, TILE_SUMS *TILE_FLOPS};

#endif
