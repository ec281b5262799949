/* Products of a few rows of A with a B that is not packed; see ../micro_kernel.h for the contract.
 *
 * Memory binds them: B is read once, and its lines are asked for long before they are used, because
 * the processor's own prefetching does not follow rows that lie pages apart. An element is summed
 * step after step, as in gemm.c, so a row of C has the same bits beside few rows and beside many.
 */
#include "base/bits.h"
#include "isa.h"
#include "steps.h"
#include "typed.h"

/* Rows of the matrix that are read side by side. Every line is asked for twice, FAR and NEAR such
 * blocks ahead: the processor drops requests while its queue is full. With one request a line the
 * kernel had two thirds of the rate that it has with two. */
enum { FAR = 3, NEAR = 2, LINE_BYTES = 64, STEPS_MOST = 8 };

/* How the elements of one type are read and multiplied; constants where this is inlined. */
typedef struct few_kind {
    sl_type type;
    uint32_t step_terms; /* rows of the matrix that are a step */
    uint32_t steps;      /* that are read side by side */
    uint32_t registers;  /* that hold a step of one line of columns, or of LANES if less */
    /* The first `columns` of a step from `b` on; `rows` of the matrix are left. */
    void (*read)(const char *b, uint64_t row_bytes, uint64_t rows, uint32_t columns, lanes *out);
    lanes (*read_along)(const char *b, uint64_t terms); /* of a row, LANES steps or what is left */
    lanes (*add)(lanes sum, const uint32_t *a, lanes b);
    /* `registers` of sums, to the order of columns that `read` gives and back. */
    void (*weave)(float *sums);
    void (*unweave)(float *sums);
} few_kind;

/* ---- the matrix's rows are terms */

/* Steps of some columns of B. `steps` is a constant where this is inlined. */
SL_INLINE void add_columns(const sl_gemm_few *few, const few_kind kind, const uint32_t *a,
                           float *sums, const lanes *b, const uint32_t steps)
{
    const uint64_t a_stride = few->a_stride, leading = few->leading_sums;
    for (uint32_t i = 0; i < few->rows; i++, a += a_stride, sums += leading) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < kind.registers; v++) {
            lanes sum = load_lanes(sums + v * LANES);
#pragma GCC unroll 8
            for (uint32_t s = 0; s < steps; s++)
                sum = kind.add(sum, a + s, b[s * kind.registers + v]);
            store_lanes(sums + v * LANES, sum);
        }
    }
}

SL_INLINE void prefetch_rows(const char *b, uint64_t row_bytes, const uint32_t rows)
{
    const char *far = b + FAR * rows * row_bytes, *near = b + NEAR * rows * row_bytes;
#pragma GCC unroll 8
    for (uint32_t row = 0; row < rows; row++) {
        __builtin_prefetch(far + row * row_bytes, 0, 2);
        __builtin_prefetch(near + row * row_bytes, 0, 2);
    }
}

/* All columns of the steps from `step` on. */
SL_INLINE void add_steps(const sl_gemm_few *few, const few_kind kind, uint64_t step,
                         const uint32_t steps)
{
    lanes b[STEPS_MOST];
    const uint32_t width = kind.registers * LANES;
    const uint64_t element = sl_type_bytes(kind.type), row_bytes = few->b.leading * element;
    const uint64_t rows = few->b.term_count - step * kind.step_terms;
    const char *from = (const char *)few->b.from + step * kind.step_terms * row_bytes;
    uint64_t column = 0;
    for (; column < few->b.width; column += width, from += width * element) {
        const uint64_t left = few->b.width - column;
        prefetch_rows(from, row_bytes, steps * kind.step_terms);
#pragma GCC unroll 8
        for (uint32_t s = 0; s < steps; s++)
            kind.read(from + s * kind.step_terms * row_bytes, row_bytes, rows - s * kind.step_terms,
                      left < width ? (uint32_t)left : width, b + s * kind.registers);
        add_columns(few, kind, few->a + step, few->sums + column, b, steps);
    }
}

SL_INLINE void order_sums(const sl_gemm_few *few, uint32_t width, void (*order)(float *sums))
{
    for (uint32_t i = 0; i < few->rows; i++)
        for (uint64_t column = 0; column < few->b.width; column += width)
            order(few->sums + i * few->leading_sums + column);
}

SL_INLINE void multiply_across(const sl_gemm_few *few, const few_kind kind)
{
    const uint64_t steps = sl_bits_divide_up(few->b.term_count, kind.step_terms);
    uint64_t step = 0;
    order_sums(few, kind.registers * LANES, kind.weave);
    for (; (step + kind.steps) * kind.step_terms <= few->b.term_count; step += kind.steps)
        add_steps(few, kind, step, kind.steps);
    for (; step < steps; step++)
        add_steps(few, kind, step, 1);
    order_sums(few, kind.registers * LANES, kind.unweave);
}

/* ---- the matrix's rows are columns of B: a square of them is transposed in registers */

/* Columns `column` to `column + LANES` of LANES steps from `step` on; columns that do not exist
 * repeat the last one. */
SL_INLINE void read_square(const sl_gemm_strip *b, const few_kind kind, uint64_t column,
                           uint64_t step, lanes square[LANES])
{
    const uint64_t last = b->width - 1, term = step * kind.step_terms;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++) {
        const uint64_t row = column + i < last ? column + i : last;
        square[i] = kind.read_along(typed_at(b->from, kind.type, row * b->leading + term),
                                    b->term_count - term);
    }
    transpose_lanes(square);
}

SL_INLINE void read_whole_square(const char *from, uint64_t row_bytes, const few_kind kind,
                                 lanes square[LANES])
{
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++)
        square[i] = kind.read_along(from + i * row_bytes, kind.step_terms * LANES);
    transpose_lanes(square);
}

/* `steps` is a constant where this is inlined, but for the last ones. */
SL_INLINE void add_square(const sl_gemm_few *few, const few_kind kind, uint64_t step,
                          uint64_t column, const lanes square[LANES], const uint32_t steps)
{
    const uint32_t *a = few->a + step;
    float *sums = few->sums + column;
    for (uint32_t i = 0; i < few->rows; i++, a += few->a_stride, sums += few->leading_sums) {
        lanes sum = load_lanes(sums);
#pragma GCC unroll 16
        for (uint32_t s = 0; s < steps; s++)
            sum = kind.add(sum, a + s, square[s]);
        store_lanes(sums, sum);
    }
}

/* The square `squares` later: of these columns, or of the next ones. */
SL_INLINE const char *find_ahead(const char *from, uint64_t row_bytes, uint64_t run_bytes,
                                 uint64_t left, uint32_t squares)
{
    return squares < left ? from + squares * run_bytes
                          : from + LANES * row_bytes + (squares - left) * run_bytes;
}

SL_INLINE void prefetch_squares(const char *from, uint64_t row_bytes, uint64_t run_bytes,
                                uint64_t squares_left)
{
    const char *far = find_ahead(from, row_bytes, run_bytes, squares_left, 2 * FAR);
    const char *near = find_ahead(from, row_bytes, run_bytes, squares_left, FAR);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++) {
        __builtin_prefetch(far + i * row_bytes, 0, 2);
        __builtin_prefetch(near + i * row_bytes, 0, 2);
    }
}

SL_INLINE void multiply_along(const sl_gemm_few *few, const few_kind kind)
{
    const uint64_t element = sl_type_bytes(kind.type), row_bytes = few->b.leading * element;
    const uint64_t steps = sl_bits_divide_up(few->b.term_count, kind.step_terms);
    const uint64_t whole = few->b.term_count / kind.step_terms / LANES * LANES;
    const uint64_t run_bytes = kind.step_terms * LANES * element;
    lanes square[LANES];
    for (uint64_t column = 0; column < few->b.width; column += LANES) {
        uint64_t step = 0;
        const char *from = (const char *)few->b.from + column * row_bytes;
        for (; step < whole && column + LANES <= few->b.width; step += LANES, from += run_bytes) {
            prefetch_squares(from, row_bytes, run_bytes, (whole - step) / LANES);
            read_whole_square(from, row_bytes, kind, square);
            add_square(few, kind, step, column, square, LANES);
        }
        for (; step < steps; step += LANES) {
            const uint64_t left = steps - step;
            read_square(&few->b, kind, column, step, square);
            add_square(few, kind, step, column, square, left < LANES ? (uint32_t)left : LANES);
        }
    }
}

/* ---- both */

SL_INLINE void multiply_few(const sl_gemm_few *all, const few_kind kind)
{
    const sl_gemm_few few = *all; /* no store of sums can change it */
    if (few.b.transpose)
        multiply_along(&few, kind);
    else
        multiply_across(&few, kind);
}

/* ---- single terms in fp32 */

SL_INLINE void keep_order(float *sums)
{
    (void)sums;
}

/* One type: its functions of a few_kind, and multiply_NAME. */
#define TERMS(name, its_type)                                                                      \
    SL_INLINE void read_##name(const char *b, uint64_t row_bytes, uint64_t rows, uint32_t columns, \
                               lanes *out)                                                         \
    {                                                                                              \
        (void)row_bytes;                                                                           \
        (void)rows;                                                                                \
        out[0] = load_at(its_type, b, 0, columns);                                                 \
    }                                                                                              \
                                                                                                   \
    SL_INLINE lanes read_along_##name(const char *b, uint64_t terms)                               \
    {                                                                                              \
        return load_at(its_type, b, 0, terms < LANES ? (uint32_t)terms : LANES);                   \
    }                                                                                              \
                                                                                                   \
    static void multiply_##name(const sl_gemm_few *few)                                            \
    {                                                                                              \
        const few_kind kind = {.type = its_type,                                                   \
                               .step_terms = 1,                                                    \
                               .steps = its_type == SL_TYPE_FP32 ? 4 : 8,                          \
                               .registers = 1,                                                     \
                               .read = read_##name,                                                \
                               .read_along = read_along_##name,                                    \
                               .add = add_term,                                                    \
                               .weave = keep_order,                                                \
                               .unweave = keep_order};                                             \
        multiply_few(few, kind);                                                                   \
    }

TERMS(fp32, SL_TYPE_FP32)
TERMS(bf16, SL_TYPE_BF16)
TERMS(fp16, SL_TYPE_FP16)

void SL_SIMD(gemm_multiply_few)(const sl_gemm_few *few)
{
    static void (*const by_type[])(const sl_gemm_few *few) = {[SL_TYPE_FP32] = multiply_fp32,
                                                              [SL_TYPE_BF16] = multiply_bf16,
                                                              [SL_TYPE_FP16] = multiply_fp16};
    by_type[few->b.type](few);
}

/* ---- pairs of bf16: two rows of 32 columns are woven, and sums stay in the order of the weave */

#if defined(__AVX512F__)

SL_INLINE void read_pairs(const char *b, uint64_t row_bytes, uint64_t rows, uint32_t columns,
                          lanes *out)
{
    const __mmask32 mask = (__mmask32)((UINT64_C(1) << columns) - 1);
    const __m512i even = _mm512_maskz_loadu_epi16(mask, b);
    const __m512i odd = _mm512_maskz_loadu_epi16(rows > 1 ? mask : 0, b + row_bytes);
    out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd));
    out[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd));
}

SL_INLINE lanes read_along_pairs(const char *b, uint64_t terms)
{
    const uint64_t count = terms < 2 * LANES ? terms : 2 * LANES;
    const __mmask32 mask = (__mmask32)((UINT64_C(1) << count) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, b));
}

/* Unpacking works in quarters of a register: the first has columns 0 to 3, 8 to 11, and so on. */
SL_INLINE void weave_sums(float *sums)
{
    const lanes first = load_lanes(sums), second = load_lanes(sums + LANES);
    store_lanes(sums, _mm512_shuffle_f32x4(first, second, 0x88));
    store_lanes(sums + LANES, _mm512_shuffle_f32x4(first, second, 0xdd));
}

SL_INLINE void unweave_sums(float *sums)
{
    const lanes first = load_lanes(sums), second = load_lanes(sums + LANES);
    const lanes low = _mm512_shuffle_f32x4(first, second, 0x44);
    const lanes high = _mm512_shuffle_f32x4(first, second, 0xee);
    store_lanes(sums, _mm512_shuffle_f32x4(low, low, 0xd8));
    store_lanes(sums + LANES, _mm512_shuffle_f32x4(high, high, 0xd8));
}

__attribute__((target("avx512bf16"))) void sl_simd_gemm_multiply_few_pairs(const sl_gemm_few *few)
{
    const few_kind kind = {.type = SL_TYPE_BF16,
                           .step_terms = 2,
                           .steps = 4,
                           .registers = 2,
                           .read = read_pairs,
                           .read_along = read_along_pairs,
                           .add = add_pair,
                           .weave = weave_sums,
                           .unweave = unweave_sums};
    multiply_few(few, kind);
}

#endif
