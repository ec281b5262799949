/* The micro-kernels of one instruction set; see ../micro_kernel.h for their contract. */
#include "gelu.h"
#include "isa.h"
#include "steps.h"
#include "typed.h"

/* Registers of sums, and 2 of B and 1 of A beside them: 28 of 32, 12 or 8 of 16. Packing needs
 * ROWS <= LANES. */
enum { ROWS = LANES == 16 ? 14 : LANES == 8 ? 6 : 4, VECTORS = 2, COLUMNS = VECTORS * LANES };

enum { CHAIN_STEPS = 768 }; /* a strip of B of them is 96 KiB: it streams from the second cache */

/* A tile's strips of A stay in the second cache: 224 rows of 768 terms are 672 KiB. */
#define BLOCKING                                                                                   \
    {                                                                                              \
        .a_tile = 16, .b_tile = 6, .turn_strips = 8, .turn_steps = TURN_STEPS                      \
    }

/* ---- packing: what differs between single terms as fp32 and pairs of bf16 is how LANES elements
 * of a step are read; both ways are functions that are inlined here */

/* The matrix's rows are terms: step `step` of strip columns first .. first + count. `type` is a
 * constant where these are inlined. */
typedef lanes (*pack_across)(const sl_gemm_strip *strip, sl_type type, uint64_t step,
                             uint64_t first, uint32_t count);
/* The matrix's rows lie along the strip: steps first .. first + count of row `row`. */
typedef lanes (*pack_along)(const sl_gemm_strip *strip, sl_type type, uint64_t row, uint64_t first,
                            uint32_t count);

/* Ahead of packing: steps where the matrix's rows are terms, registers of steps where they run
 * along the terms. */
enum { TURN_STEPS = 8, PREFETCH_STEPS = 2 * TURN_STEPS, PREFETCH_SQUARES = 2 };

SL_INLINE const void *strip_at(const sl_gemm_strip *strip, sl_type type, uint64_t row,
                               uint64_t column)
{
    return typed_at(strip->from, type, row * strip->leading + column);
}

SL_INLINE uint32_t at_most_lanes(uint64_t count)
{
    return count < LANES ? (uint32_t)count : LANES;
}

/* The rows of the matrix that step `step` reads, from column `first` on. `terms` of a step are a
 * constant where this is inlined. */
SL_INLINE void prefetch_step(const sl_gemm_strip *strip, sl_type type, uint64_t step,
                             uint64_t first, const uint32_t terms)
{
    for (uint32_t term = 0; term < terms; term++)
        __builtin_prefetch(strip_at(strip, type, step * terms + term, first));
}

/* Each store may spill into the next step, which is then written over, or into the slack. */
SL_INLINE void pack_steps(const sl_gemm_strip *strip, sl_type type, const uint32_t terms,
                          pack_across read)
{
    float *to = (float *)strip->to;
    const uint64_t step_count = (strip->term_count + terms - 1) / terms;
    const uint64_t whole = strip->width / LANES * LANES;
    const uint32_t rest = (uint32_t)(strip->width - whole);
    for (uint64_t step = 0; step < step_count; step++, to += strip->step_width) {
        for (uint64_t first = 0; first < whole; first += LANES) {
            prefetch_step(strip, type, step + PREFETCH_STEPS, first, terms);
            store_lanes(to + first, read(strip, type, step, first, LANES));
        }
        if (rest > 0) {
            prefetch_step(strip, type, step + PREFETCH_STEPS, whole, terms);
            store_lanes(to + whole, read(strip, type, step, whole, rest));
        }
    }
}

SL_INLINE void pack_square(const sl_gemm_strip *strip, sl_type type, uint64_t row, uint64_t step,
                           uint32_t steps, pack_along read)
{
    lanes square[LANES];
    const uint32_t rows = at_most_lanes(strip->width - row);
    for (uint32_t i = 0; i < LANES; i++)
        square[i] = i < rows ? read(strip, type, row + i, step, steps) : set_lanes(0.0f);
    transpose_lanes(square);
    float *to = (float *)strip->to + step * strip->step_width + row;
    for (uint32_t i = 0; i < steps; i++)
        store_lanes(to + i * strip->step_width, square[i]);
}

SL_INLINE void pack_whole_square(const sl_gemm_strip *strip, sl_type type, uint64_t row,
                                 uint64_t step, const uint32_t terms, pack_along read)
{
    lanes square[LANES];
    const uint64_t last = strip->width - 1;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++) { /* rows that do not exist repeat the last one */
        const uint64_t line = row + i < last ? row + i : last;
        __builtin_prefetch(strip_at(strip, type, line, (step + PREFETCH_SQUARES * LANES) * terms));
        square[i] = read(strip, type, line, step, LANES);
    }
    transpose_lanes(square);
    float *to = (float *)strip->to + step * strip->step_width + row;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++)
        store_lanes(to + i * strip->step_width, square[i]);
}

/* A strip of one row. */
SL_INLINE void pack_row(const sl_gemm_strip *strip, sl_type type, uint64_t step_count,
                        pack_along read)
{
    float *to = (float *)strip->to;
    for (uint64_t step = 0; step < step_count; step += LANES)
        store_lanes(to + step, read(strip, type, 0, step, at_most_lanes(step_count - step)));
}

SL_INLINE void pack_squares(const sl_gemm_strip *strip, sl_type type, const uint32_t terms,
                            pack_along read)
{
    const uint64_t step_count = (strip->term_count + terms - 1) / terms;
    const uint64_t whole = step_count / LANES * LANES;
    if (strip->step_width == 1) {
        pack_row(strip, type, step_count, read);
        return;
    }
    for (uint64_t step = 0; step < whole; step += LANES)
        for (uint64_t row = 0; row < strip->width; row += LANES)
            pack_whole_square(strip, type, row, step, terms, read);
    for (uint64_t row = 0; row < strip->width && whole < step_count; row += LANES)
        pack_square(strip, type, row, whole, (uint32_t)(step_count - whole), read);
}

/* ---- single terms in fp32 */

SL_INLINE lanes read_lanes(const void *from, sl_type type, uint32_t count)
{
    return count == LANES ? load_typed(from, type) : load_typed_part(from, type, count);
}

SL_INLINE lanes read_across(const sl_gemm_strip *strip, sl_type type, uint64_t step, uint64_t first,
                            uint32_t count)
{
    return read_lanes(strip_at(strip, type, step, first), type, count);
}

SL_INLINE lanes read_along(const sl_gemm_strip *strip, sl_type type, uint64_t row, uint64_t first,
                           uint32_t count)
{
    return read_lanes(strip_at(strip, type, row, first), type, count);
}

SL_INLINE void gemm_pack_typed(sl_type type, const sl_gemm_strip *strip)
{
    if (strip->transpose)
        pack_squares(strip, type, 1, read_along);
    else
        pack_steps(strip, type, 1, read_across);
}

static void gemm_pack(const sl_gemm_strip *strip)
{
    SL_BY_TYPE(strip->type, gemm_pack_typed, strip);
}

/* ---- both kinds of step */

typedef lanes (*add_step)(lanes sum, const uint32_t *a, lanes b);

SL_INLINE void start_sums(const sl_gemm_patch *patch, const uint32_t rows, const uint32_t vectors,
                          lanes sum[ROWS][VECTORS])
{
#pragma GCC unroll 14
    for (uint32_t i = 0; i < rows; i++) {
        sum[i][0] = sum[i][vectors - 1] = set_lanes(0.0f);
        __builtin_prefetch(patch->c + i * patch->leading_c, 1);
        __builtin_prefetch(patch->c + i * patch->leading_c + vectors * LANES - 1, 1);
    }
}

SL_INLINE void store_sums(const sl_gemm_patch *patch, const uint32_t rows, const uint32_t vectors,
                          lanes sum[ROWS][VECTORS])
{
    float *c = patch->c;
#pragma GCC unroll 14
    for (uint32_t i = 0; i < rows; i++, c += patch->leading_c)
#pragma GCC unroll 2
        for (uint32_t j = 0; j < vectors; j++) {
            const lanes old = patch->add ? load_lanes(c + j * LANES) : set_lanes(0.0f);
            store_lanes(c + j * LANES, old + sum[i][j]);
        }
}

/* The rows of a step are neighbours. `rows` and `vectors` are constants where this is inlined. */
SL_INLINE void multiply_rows(const sl_gemm_patch *patch, const uint32_t rows,
                             const uint32_t vectors, add_step add)
{
    lanes sum[ROWS][VECTORS];
    start_sums(patch, rows, vectors, sum);
    const uint32_t *a = patch->a;
    const float *b = (const float *)patch->b;
    const uint64_t a_step = patch->a_step, b_row = patch->b_row;
    const char *next_a = patch->next_a, *next_b = patch->next_b;
    for (uint64_t step = 0; step < patch->step_count; step++) {
        __builtin_prefetch(next_a, 0, 2);
        __builtin_prefetch(next_b, 0, 2);
        next_a += patch->next_a_stride;
        next_b += patch->next_b_stride;
        const lanes b0 = load_lanes(b), b1 = load_lanes(b + (vectors - 1) * LANES);
#pragma GCC unroll 14
        for (uint32_t i = 0; i < rows; i++) {
            sum[i][0] = add(sum[i][0], a + i, b0);
            if (vectors == 2)
                sum[i][1] = add(sum[i][1], a + i, b1);
        }
        a += a_step;
        b += b_row;
    }
    store_sums(patch, rows, vectors, sum);
}

/* Three rows share a pointer, which an address reaches by once and twice the distance of rows. */
enum { GROUP = 3, GROUPS = (ROWS + GROUP - 1) / GROUP, LYING_STEPS = 4 };

/* The step `ahead` steps behind where `group` points. */
SL_INLINE void add_lying_step(const uint32_t *const *group, uint64_t a_row, const float *b,
                              const uint32_t ahead, const uint32_t rows, const uint32_t vectors,
                              lanes sum[ROWS][VECTORS], add_step add)
{
    const lanes b0 = load_lanes(b), b1 = load_lanes(b + (vectors - 1) * LANES);
#pragma GCC unroll 14
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t *a = group[i / GROUP] + i % GROUP * a_row + ahead;
        sum[i][0] = add(sum[i][0], a, b0);
        if (vectors == 2)
            sum[i][1] = add(sum[i][1], a, b1);
    }
}

/* The steps of a row are neighbours. */
SL_INLINE void multiply_lying(const sl_gemm_patch *patch, const uint32_t rows,
                              const uint32_t vectors, add_step add)
{
    lanes sum[ROWS][VECTORS];
    start_sums(patch, rows, vectors, sum);
    const uint32_t *group[GROUPS];
    const float *b = (const float *)patch->b;
    const uint64_t a_row = patch->a_row, b_row = patch->b_row;
#pragma GCC unroll 5
    for (uint32_t g = 0; g < GROUPS; g++)
        group[g] = patch->a + g * GROUP * a_row;
    uint64_t left = patch->step_count;
    for (; left >= LYING_STEPS; left -= LYING_STEPS) {
#pragma GCC unroll 4
        for (uint32_t s = 0; s < LYING_STEPS; s++, b += b_row)
            add_lying_step(group, a_row, b, s, rows, vectors, sum, add);
#pragma GCC unroll 5
        for (uint32_t g = 0; g < GROUPS; g++)
            group[g] += LYING_STEPS;
    }
    for (; left > 0; left--, b += b_row) {
        add_lying_step(group, a_row, b, 0, rows, vectors, sum, add);
#pragma GCC unroll 5
        for (uint32_t g = 0; g < GROUPS; g++)
            group[g]++;
    }
    store_sums(patch, rows, vectors, sum);
}

static void gemm_set_up_nothing(void)
{
}

typedef void (*multiply_patch)(const sl_gemm_patch *patch);

SL_INLINE void multiply_whole(const sl_gemm_patch *patch, const uint32_t rows, add_step add)
{
    const bool is_lying = patch->a_row != 1, is_narrow = patch->columns <= LANES;
    if (is_lying && is_narrow)
        multiply_lying(patch, rows, 1, add);
    else if (is_lying)
        multiply_lying(patch, rows, VECTORS, add);
    else if (is_narrow)
        multiply_rows(patch, rows, 1, add);
    else
        multiply_rows(patch, rows, VECTORS, add);
}

/* A patch that does not fill its registers is computed beside C. */
SL_INLINE void multiply_any(const sl_gemm_patch *patch, const multiply_patch *by_rows)
{
    const multiply_patch multiply = by_rows[patch->rows - 1];
    if (patch->columns == COLUMNS || patch->columns == LANES) {
        multiply(patch);
        return;
    }
    float sums[ROWS * COLUMNS];
    sl_gemm_patch full = *patch;
    full.c = sums;
    full.leading_c = COLUMNS;
    full.add = false;
    multiply(&full);
    for (uint32_t i = 0; i < patch->rows; i++)
        for (uint32_t j = 0; j < patch->columns; j++) {
            float *c = patch->c + i * patch->leading_c + j;
            *c = patch->add ? *c + sums[i * COLUMNS + j] : sums[i * COLUMNS + j];
        }
}

#define ROWS_TO_4(X) X(1) X(2) X(3) X(4)
#if defined(__AVX512F__)
#define EVERY_ROWS(X) ROWS_TO_4(X) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif defined(__AVX2__)
#define EVERY_ROWS(X) ROWS_TO_4(X) X(5) X(6)
#else
#define EVERY_ROWS(X) ROWS_TO_4(X)
#endif

#define X(n)                                                                                       \
    static void gemm_multiply_##n(const sl_gemm_patch *patch)                                      \
    {                                                                                              \
        multiply_whole(patch, n, add_term);                                                        \
    }
EVERY_ROWS(X)
#undef X

static void gemm_multiply(const sl_gemm_patch *patch)
{
    static const multiply_patch by_rows[ROWS] = {
#define X(n) gemm_multiply_##n,
        EVERY_ROWS(X)
#undef X
    };
    multiply_any(patch, by_rows);
}

/* ---- the epilogue */

SL_INLINE void finish_elements(const sl_gemm_epilogue *f, sl_type type, uint64_t row,
                               uint64_t column, uint32_t count)
{
    const uint64_t at = row * f->leading + column;
    lanes sum = read_lanes(f->sums + row * f->leading_sums + column, SL_TYPE_FP32, count);
    if (f->bias != NULL)
        sum += read_lanes(typed_at(f->bias, type, column), type, count);
    if (f->residual != NULL)
        sum += read_lanes(typed_at(f->residual, type, at), type, count);
    if (f->add)
        sum += read_lanes(typed_at(f->c, type, at), type, count);
    if (f->gelu_x != NULL)
        sum *= gelu_slope_lanes(read_lanes(typed_at(f->gelu_x, type, at), type, count));
    void *to = (char *)f->c + at * sl_type_bytes(type);
    if (count == LANES)
        store_typed(to, type, sum);
    else
        store_typed_part(to, type, sum, count);
}

SL_INLINE void gemm_epilogue_typed(sl_type type, const sl_gemm_epilogue *f)
{
    for (uint64_t row = 0; row < f->rows; row++) {
        uint64_t column = 0;
        for (; column + LANES <= f->columns; column += LANES)
            finish_elements(f, type, row, column, LANES);
        if (column < f->columns)
            finish_elements(f, type, row, column, (uint32_t)(f->columns - column));
    }
}

void SL_SIMD(gemm_epilogue)(const sl_gemm_epilogue *f)
{
    SL_BY_TYPE(f->type, gemm_epilogue_typed, f);
}

const sl_micro_kernel SL_SIMD(micro_kernel) = {
    .rows = ROWS,
    .columns = COLUMNS,
    .narrow_columns = LANES,
    .terms_per_step = 1,
    .words_per_step = 1,
    .chain_steps = CHAIN_STEPS,
    .blocking = BLOCKING,
    .pack_a = gemm_pack,
    .pack_b = gemm_pack,
    .start = gemm_set_up_nothing,
    .stop = gemm_set_up_nothing,
    .multiply = gemm_multiply,
    .multiply_few = SL_SIMD(gemm_multiply_few),
    .epilogue = SL_SIMD(gemm_epilogue),
};

/* ---- pairs of bf16 */

#if defined(__AVX512F__)

/* Rows of terms 2 step and 2 step + 1, woven. */
SL_INLINE lanes read_pairs_across(const sl_gemm_strip *strip, sl_type type, uint64_t step,
                                  uint64_t first, uint32_t count)
{
    const __mmask16 mask = mask_of(count);
    const uint16_t *from = strip_at(strip, type, 2 * step, first);
    const __m256i even = _mm256_maskz_loadu_epi16(mask, from);
    __m256i odd = _mm256_setzero_si256();
    if (2 * step + 1 < strip->term_count)
        odd = _mm256_maskz_loadu_epi16(mask, from + strip->leading);
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_cvtepu16_epi32(even), high));
}

SL_INLINE lanes read_pairs_along(const sl_gemm_strip *strip, sl_type type, uint64_t row,
                                 uint64_t first, uint32_t count)
{
    const uint64_t left = strip->term_count - 2 * first, most = 2 * (uint64_t)count;
    const uint64_t terms = left < most ? left : most;
    const __mmask32 mask = (__mmask32)((UINT64_C(1) << terms) - 1);
    return _mm512_castsi512_ps(
        _mm512_maskz_loadu_epi16(mask, strip_at(strip, type, row, 2 * first)));
}

static void gemm_pack_pairs(const sl_gemm_strip *strip)
{
    if (strip->transpose)
        pack_squares(strip, SL_TYPE_BF16, 2, read_pairs_along);
    else
        pack_steps(strip, SL_TYPE_BF16, 2, read_pairs_across);
}

#define X(n)                                                                                       \
    __attribute__((target("avx512bf16"))) static void gemm_multiply_pairs_##n(                     \
        const sl_gemm_patch *patch)                                                                \
    {                                                                                              \
        multiply_whole(patch, n, add_pair);                                                        \
    }
EVERY_ROWS(X)
#undef X

static void gemm_multiply_pairs(const sl_gemm_patch *patch)
{
    static const multiply_patch by_rows[ROWS] = {
#define X(n) gemm_multiply_pairs_##n,
        EVERY_ROWS(X)
#undef X
    };
    multiply_any(patch, by_rows);
}

const sl_micro_kernel sl_simd_micro_kernel_pairs = {
    .rows = ROWS,
    .columns = COLUMNS,
    .narrow_columns = LANES,
    .terms_per_step = 2,
    .words_per_step = 1,
    .chain_steps = CHAIN_STEPS,
    .blocking = BLOCKING,
    .pack_a = gemm_pack_pairs,
    .pack_b = gemm_pack_pairs,
    .start = gemm_set_up_nothing,
    .stop = gemm_set_up_nothing,
    .multiply = gemm_multiply_pairs,
    .multiply_few = sl_simd_gemm_multiply_few_pairs,
    .epilogue = SL_SIMD(gemm_epilogue),
};

#endif
