/* The micro-kernel of kernels/cpu/simd/gemm_amx.c, compiled with AVX-512 over tiles in memory: each
 * tile instruction is a function that follows its pseudocode in Intel's manual (SDM, volume 2), and
 * aborts where the processor would raise a fault. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/simd.h"

enum { TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

typedef struct emulated_tile {
    uint8_t rows;
    uint16_t row_bytes;
    uint8_t data[TILE_ROWS][TILE_BYTES];
} emulated_tile;

static _Thread_local emulated_tile tiles[TILES];
static _Thread_local int is_configured;

static void require(int holds)
{
    if (!holds)
        abort();
}

static emulated_tile *tile_at(int index)
{
    require(is_configured && index < TILES && tiles[index].rows > 0);
    return &tiles[index];
}

static void load_config(const void *from)
{
    uint8_t config[64];
    memcpy(config, from, sizeof config);
    require(config[0] == 1 && config[1] == 0);
    for (int i = 0; i < TILES; i++) {
        memset(&tiles[i], 0, sizeof tiles[i]);
        memcpy(&tiles[i].row_bytes, config + 16 + 2 * i, sizeof tiles[i].row_bytes);
        tiles[i].rows = config[48 + i];
        require(tiles[i].rows <= TILE_ROWS && tiles[i].row_bytes <= TILE_BYTES);
        require((tiles[i].rows == 0) == (tiles[i].row_bytes == 0));
    }
    is_configured = 1;
}

static void release(void)
{
    memset(tiles, 0, sizeof tiles);
    is_configured = 0;
}

static void zero(int index)
{
    memset(tile_at(index)->data, 0, sizeof tiles[index].data);
}

static void load(int index, const void *from, size_t stride)
{
    emulated_tile *tile = tile_at(index);
    memset(tile->data, 0, sizeof tile->data);
    for (int row = 0; row < tile->rows; row++)
        memcpy(tile->data[row], (const char *)from + row * stride, tile->row_bytes);
}

static void store(int index, void *to, size_t stride)
{
    const emulated_tile *tile = tile_at(index);
    for (int row = 0; row < tile->rows; row++)
        memcpy((char *)to + row * stride, tile->data[row], tile->row_bytes);
}

/* No subnormals, neither taken nor made. */
static float flush(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}

static float word(const emulated_tile *tile, int row, int column)
{
    float value;
    memcpy(&value, &tile->data[row][4 * column], sizeof value);
    return value;
}

static float half(const emulated_tile *tile, int row, int column)
{
    const uint32_t bits = (uint32_t)tile->data[row][2 * column] << 16 |
                          (uint32_t)tile->data[row][2 * column + 1] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return flush(value);
}

static void multiply_halves(int to, int left, int right)
{
    emulated_tile *c = tile_at(to);
    const emulated_tile *a = tile_at(left), *b = tile_at(right);
    require(to != left && to != right && left != right && c->rows == a->rows);
    require(c->row_bytes == b->row_bytes && a->row_bytes == 4 * b->rows);
    for (int m = 0; m < c->rows; m++)
        for (int n = 0; n < c->row_bytes / 4; n++) {
            float even = 0.0f, odd = 0.0f;
            for (int k = 0; k < b->rows; k++) {
                even = flush(fmaf(half(a, m, 2 * k), half(b, k, 2 * n), even));
                odd = flush(fmaf(half(a, m, 2 * k + 1), half(b, k, 2 * n + 1), odd));
            }
            const float sum = flush(flush(word(c, m, n)) + flush(even + odd));
            memcpy(&c->data[m][4 * n], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig load_config
#define _tile_release release
#define _tile_zero zero
#define _tile_loadd load
#define _tile_stored store
#define _tile_dpbf16ps multiply_halves
#define sl_simd_micro_kernel_amx emulated_amx_micro_kernel
#include "kernels/cpu/simd/gemm_amx.c"
