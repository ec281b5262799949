/* A matrix product of attention's tiles, all in the first caches: C[m, n] (+)= A[m, k] B[k, n].
 *
 * Why not the micro-kernel of gemm.c: that wants both operands packed, which pays where a packed
 * strip serves many products. A tile has 64 rows and serves one or two, and of a diagonal tile half
 * can be left out. So A is read where it lies, one float at a time through any two strides, and may
 * be transposed; rows of B and C are contiguous. Each element of C is one chain of multiply-adds
 * over k in order, so it does not depend on how m and n are cut.
 */
#ifndef SL_KERNELS_CPU_SIMD_TILE_PRODUCT_H
#define SL_KERNELS_CPU_SIMD_TILE_PRODUCT_H

#include <stdbool.h>

#include "lanes.h"

/* What of a product is wanted where A, B or C is the diagonal tile of causal attention: the rest is
 * zero, or masked later. Whole patches are done, so a little more than the triangle is. */
typedef enum triangle {
    WHOLE,
    COLUMNS_FROM_ROW, /* of C; the others are left as they are */
    STEPS_FROM_ROW,
    STEPS_TO_ROW,
} triangle;

typedef struct tile_product {
    const float *a;
    uint64_t a_row, a_step; /* from a row of A to the next, from one k to the next */
    const float *b;
    uint64_t b_step;
    float *c;
    uint64_t c_row;
    uint64_t rows, columns, steps; /* m, n, k */
    bool add;                      /* to C, else overwrite it */
    triangle part;
} tile_product;

/* Registers: 24 sums and 4 of B with 32 of them, 12 and 2 with 16; A comes from memory. */
enum { PATCH_ROWS = 6, PATCH_VECTORS = LANES == 16 ? 4 : 2 };

/* One patch of `rows` x (`vectors` registers, `part` lanes of the last). rows and vectors are
 * constants where this is inlined. */
SL_INLINE void multiply_patch(const tile_product *p, const uint32_t rows, const uint32_t vectors,
                              uint32_t part)
{
    lanes sum[PATCH_ROWS][PATCH_VECTORS];
#pragma GCC unroll 6
    for (uint32_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < vectors; j++)
            sum[i][j] = set_lanes(0.0f);

    const float *a = p->a, *b = p->b;
    for (uint64_t step = 0; step < p->steps; step++) {
        lanes row_of_b[PATCH_VECTORS];
#pragma GCC unroll 4
        for (uint32_t j = 0; j + 1 < vectors; j++)
            row_of_b[j] = load_lanes(b + j * LANES);
        row_of_b[vectors - 1] = load_part(b + (vectors - 1) * LANES, part);
#pragma GCC unroll 6
        for (uint32_t i = 0; i < rows; i++) {
            lanes factor = set_lanes(a[i * p->a_row]);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < vectors; j++)
                sum[i][j] = fma_lanes(factor, row_of_b[j], sum[i][j]);
        }
        a += p->a_step;
        b += p->b_step;
    }

#pragma GCC unroll 6
    for (uint32_t i = 0; i < rows; i++) {
        float *c = p->c + i * p->c_row;
#pragma GCC unroll 4
        for (uint32_t j = 0; j + 1 < vectors; j++) {
            lanes old = p->add ? load_lanes(c + j * LANES) : set_lanes(0.0f);
            store_lanes(c + j * LANES, old + sum[i][j]);
        }
        c += (vectors - 1) * LANES;
        lanes old = p->add ? load_part(c, part) : set_lanes(0.0f);
        store_part(c, old + sum[i][vectors - 1], part);
    }
}

#define MULTIPLY_ROWS(vectors)                                                                     \
    switch (rows) {                                                                                \
    case 1:                                                                                        \
        multiply_patch(p, 1, vectors, part);                                                       \
        break;                                                                                     \
    case 2:                                                                                        \
        multiply_patch(p, 2, vectors, part);                                                       \
        break;                                                                                     \
    case 3:                                                                                        \
        multiply_patch(p, 3, vectors, part);                                                       \
        break;                                                                                     \
    case 4:                                                                                        \
        multiply_patch(p, 4, vectors, part);                                                       \
        break;                                                                                     \
    case 5:                                                                                        \
        multiply_patch(p, 5, vectors, part);                                                       \
        break;                                                                                     \
    default:                                                                                       \
        multiply_patch(p, 6, vectors, part);                                                       \
    }

static __attribute__((unused)) void multiply_tile_edge(const tile_product *p, uint32_t rows,
                                                       uint32_t vectors, uint32_t part)
{
    switch (vectors) {
    case 1:
        MULTIPLY_ROWS(1)
        break;
    case 2:
        MULTIPLY_ROWS(2)
        break;
#if defined(__AVX512F__)
    case 3:
        MULTIPLY_ROWS(3)
        break;
    default:
        MULTIPLY_ROWS(4)
#endif
    }
}

/* The rows from `row` on and the columns from `column` on, as many as a patch holds. */
SL_INLINE void multiply_at(const tile_product *product, uint64_t row, uint64_t column,
                           uint64_t column_end)
{
    tile_product patch = *product;
    uint64_t step = 0;
    if (product->part == COLUMNS_FROM_ROW && column < row / LANES * LANES)
        column = row / LANES * LANES;
    if (column >= column_end)
        return;
    if (product->part == STEPS_FROM_ROW)
        step = row < product->steps ? row : product->steps;
    if (product->part == STEPS_TO_ROW && row + PATCH_ROWS < product->steps)
        patch.steps = row + PATCH_ROWS;
    patch.steps -= step;
    patch.a = product->a + row * product->a_row + step * product->a_step;
    patch.b = product->b + column + step * product->b_step;
    patch.c = product->c + row * product->c_row + column;
    const uint64_t rows_left = product->rows - row;
    const uint32_t width = (uint32_t)(column_end - column), vectors = (width + LANES - 1) / LANES;
    multiply_tile_edge(&patch, rows_left < PATCH_ROWS ? (uint32_t)rows_left : PATCH_ROWS, vectors,
                       width - (vectors - 1) * LANES);
}

/* Walks C patch by patch. */
static __attribute__((unused)) void multiply_tiles(const tile_product *product)
{
    const uint64_t patch_columns = PATCH_VECTORS * LANES;
    for (uint64_t column = 0; column < product->columns; column += patch_columns) {
        const uint64_t left = product->columns - column;
        const uint64_t end = column + (left < patch_columns ? left : patch_columns);
        for (uint64_t row = 0; row < product->rows; row += PATCH_ROWS)
            multiply_at(product, row, column, end);
    }
}

#endif
