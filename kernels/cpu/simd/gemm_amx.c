/* The micro-kernel for AMX, whose registers are tiles of 16 rows of 64 bytes: products of bf16 in
 * fp32 sums, 32 terms an instruction. Compiled with AVX-512, which every processor with AMX has.
 *
 * A step is those 32 terms. Of A it is packed as rows of 32 terms, of B as 16 pairs of terms, each
 * for all columns: as the tiles of the instruction require. Missing terms at an edge are zero.
 * The instruction sums the even and the odd terms of a step each in order and adds both to C,
 * without subnormals; so an element of C depends on its own row and column alone, wherever its
 * tile lies. */
#include "isa.h"
#include "typed.h"

#if defined(__AVX512F__)

#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum {
    SIDE = 16,       /* rows of a tile, and words of a row */
    ROWS = 2 * SIDE, /* of C, in four tiles */
    COLUMNS = 2 * SIDE,
    STEP_TERMS = 32,  /* two a word */
    CHAIN_STEPS = 24, /* strips of them are 48 KiB: a tile's strips and sums fill half of the
                         second cache */
    PREFETCH_TERMS = 32,
    WORD_BYTES = 4
};

/* ---- packing: squares of 16 rows or columns and 16 pairs of terms */

/* Where row `row` of the matrix begins, from `column` on. */
SL_INLINE const void *matrix_at(const sl_gemm_strip *strip, uint64_t row, uint64_t column)
{
    return typed_at(strip->from, SL_TYPE_BF16, row * strip->leading + column);
}

/* A row or column of the strip in each register; the matrix's rows run along the terms. */
SL_INLINE void read_along(const sl_gemm_strip *strip, uint64_t line, uint64_t term, lanes *square)
{
    const uint64_t left = strip->term_count - term;
    const __mmask32 mask = left < STEP_TERMS ? (__mmask32)((UINT32_C(1) << left) - 1) : UINT32_MAX;
    for (uint32_t i = 0; i < SIDE; i++) {
        square[i] = set_lanes(0.0f);
        if (line + i >= strip->width)
            continue;
        const void *from = matrix_at(strip, line + i, term);
        __builtin_prefetch((const char *)from + PREFETCH_TERMS * sizeof(uint16_t));
        square[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from));
    }
}

/* A pair of terms in each register; the matrix's rows are terms. */
SL_INLINE void read_across(const sl_gemm_strip *strip, uint64_t line, uint64_t term, lanes *square)
{
    const uint64_t left = line < strip->width ? strip->width - line : 0;
    const __mmask16 mask = mask_of(left < SIDE ? (uint32_t)left : SIDE);
    for (uint32_t i = 0; i < SIDE; i++) {
        const uint64_t row = term + 2 * i;
        __builtin_prefetch(matrix_at(strip, row + PREFETCH_TERMS, line));
        __builtin_prefetch(matrix_at(strip, row + PREFETCH_TERMS + 1, line));
        __m256i even = _mm256_setzero_si256(), odd = even;
        if (row < strip->term_count)
            even = _mm256_maskz_loadu_epi16(mask, matrix_at(strip, row, line));
        if (row + 1 < strip->term_count)
            odd = _mm256_maskz_loadu_epi16(mask, matrix_at(strip, row + 1, line));
        const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
        square[i] = _mm512_castsi512_ps(_mm512_or_si512(_mm512_cvtepu16_epi32(even), high));
    }
}

/* `is_a` and `along` are constants where this is inlined. */
SL_INLINE void pack_squares(const sl_gemm_strip *strip, bool is_a, bool along)
{
    const uint64_t width = strip->step_width;
    float *to = (float *)strip->to;
    lanes square[SIDE];
    for (uint64_t term = 0; term < strip->term_count; term += STEP_TERMS, to += width * SIDE)
        for (uint64_t line = 0; line < width; line += SIDE) {
            if (along)
                read_along(strip, line, term, square);
            else
                read_across(strip, line, term, square);
            if (along != is_a)
                transpose_lanes(square);
            for (uint32_t i = 0; i < SIDE && (!is_a || line + i < width); i++)
                store_lanes(is_a ? to + (line + i) * SIDE : to + i * width + line, square[i]);
        }
}

static void pack_a(const sl_gemm_strip *strip)
{
    if (strip->transpose)
        pack_squares(strip, true, true);
    else
        pack_squares(strip, true, false);
}

static void pack_b(const sl_gemm_strip *strip)
{
    if (strip->transpose)
        pack_squares(strip, false, true);
    else
        pack_squares(strip, false, false);
}

/* ---- multiplying */

/* The layout that the processor reads: SDM, volume 1, chapter 18. */
typedef struct tile_shapes {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t row_count[16];
} tile_shapes;

/* Stores into memory that a tile is loaded from next come first: gcc's tile loads do not say that
 * they read. */
SL_INLINE void finish_stores(void)
{
    __asm__ volatile("" ::: "memory");
}

AMX static void start(void)
{
    static const tile_shapes shapes = {.palette = 1,
                                       .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                       .row_count = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shapes);
}

AMX static void stop(void)
{
    _tile_release();
}

/* Four tiles of C at `c`, rows `stride` bytes apart. A tile of the next step is loaded as soon as
 * the last product that reads its register is issued: loads take as long as products, and overlap
 * with them only then. Nothing is prefetched: loads and prefetches share the same ports. */
AMX static void multiply_steps(const sl_gemm_patch *patch, float *c, size_t stride, bool add)
{
    float *lower = (float *)((char *)c + SIDE * stride);
    finish_stores();
    if (add) {
        _tile_loadd(0, c, stride);
        _tile_loadd(1, c + SIDE, stride);
        _tile_loadd(2, lower, stride);
        _tile_loadd(3, lower + SIDE, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const uint32_t *a = patch->a, *b = patch->b;
    const size_t a_bytes = patch->a_row * WORD_BYTES, b_bytes = patch->b_row * WORD_BYTES;
    _tile_loadd(4, a, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(7, b + SIDE, b_bytes);
    _tile_loadd(5, a + SIDE * patch->a_row, a_bytes);
    for (uint64_t step = 1; step < patch->step_count; step++) {
        a += patch->a_step;
        b += SIDE * patch->b_row;
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(4, a, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(7, b + SIDE, b_bytes);
        _tile_loadd(5, a + SIDE * patch->a_row, a_bytes);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    _tile_stored(0, c, stride);
    _tile_stored(1, c + SIDE, stride);
    _tile_stored(2, lower, stride);
    _tile_stored(3, lower + SIDE, stride);
}

/* A patch that does not fill the tiles is computed beside C. */
static void multiply(const sl_gemm_patch *patch)
{
    const uint64_t leading = patch->leading_c;
    if (patch->rows == ROWS && patch->columns == COLUMNS) {
        multiply_steps(patch, patch->c, leading * sizeof *patch->c, patch->add);
        return;
    }
    float sums[ROWS * COLUMNS] = {0};
    const size_t bytes = patch->columns * sizeof *sums;
    for (uint32_t i = 0; i < patch->rows && patch->add; i++)
        memcpy(sums + i * COLUMNS, patch->c + i * leading, bytes);
    multiply_steps(patch, sums, COLUMNS * sizeof *sums, true);
    for (uint32_t i = 0; i < patch->rows; i++)
        memcpy(patch->c + i * leading, sums + i * COLUMNS, bytes);
}

/* Of a few rows: C (+)= A B, tiles 0, 1 and 2, C at `sums`. */
AMX static void multiply_square(const sl_gemm_few *few, uint64_t term, const uint32_t *square,
                                float *sums)
{
    const size_t stride = few->leading_sums * sizeof *sums;
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, few->a + term / 2, few->a_stride * sizeof *few->a);
    _tile_loadd(2, square, COLUMNS * WORD_BYTES);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, sums, stride);
}

/* A step of B is packed as it is met, two tiles side by side. */
AMX static void multiply_few(const sl_gemm_few *few)
{
    const uint8_t rows = (uint8_t)few->rows;
    const tile_shapes shapes = {
        .palette = 1, .row_bytes = {64, 64, 64}, .row_count = {rows, rows, SIDE}};
    const sl_gemm_strip *b = &few->b;
    uint32_t squares[COLUMNS * SIDE];
    _tile_loadconfig(&shapes);
    for (uint64_t term = 0; term < b->term_count; term += STEP_TERMS)
        for (uint64_t column = 0; column < b->width; column += COLUMNS) {
            const uint64_t terms = b->term_count - term, columns = b->width - column;
            const sl_gemm_strip step = {.from = b->transpose ? matrix_at(b, column, term)
                                                             : matrix_at(b, term, column),
                                        .type = b->type,
                                        .leading = b->leading,
                                        .transpose = b->transpose,
                                        .width = columns < COLUMNS ? columns : COLUMNS,
                                        .term_count = terms < STEP_TERMS ? terms : STEP_TERMS,
                                        .step_width = COLUMNS,
                                        .to = squares};
            pack_b(&step);
            finish_stores();
            multiply_square(few, term, squares, few->sums + column);
            if (columns > SIDE)
                multiply_square(few, term, squares + SIDE, few->sums + column + SIDE);
        }
    _tile_release();
}

const sl_micro_kernel sl_simd_micro_kernel_amx = {
    .rows = ROWS,
    .columns = COLUMNS,
    .narrow_columns = COLUMNS,
    .terms_per_step = STEP_TERMS,
    .words_per_step = SIDE,
    .chain_steps = CHAIN_STEPS,
    .starts_from_c = true,
    .blocking = {.a_tile = 8,
                 .b_tile = 6,
                 .goes_across = true,
                 .whole_strips = true,
                 .turn_strips = 8,
                 .turn_steps = 1,
                 .finishes_patches = true},
    .pack_a = pack_a,
    .pack_b = pack_b,
    .start = start,
    .stop = stop,
    .multiply = multiply,
    .multiply_few = multiply_few,
    .epilogue = SL_SIMD(gemm_epilogue),
};

#endif
