/* The contract of a micro-kernel: one thread's innermost work of a matrix product, in registers.
 * gemm.c divides a product and calls it; simd/gemm.c has one for each instruction set, and one more
 * for pairs of bf16 (multiply_few of both is in simd/gemm_few.c); simd/gemm_amx.c has one for tiles
 * of bf16. It is BLIS's contract (Van Zee and van de Geijn 2015): rows and columns are its MR and
 * NR, a strip is its micro-panel, a patch its micro-tile.
 *
 *   pack      stores a strip of A (at most `rows` rows) or of B (at most `columns` columns) step
 *             after step, so that the inner loop reads memory in order
 *   multiply  adds the product of a packed strip of A and one of B to a patch of fp32 sums
 *   multiply_few  the same sums for a few rows of A, of a B that is not packed: packing it would
 *             cost more than the product
 *   epilogue  turns sums into C: bias, residual, what C held, GELU, one rounding
 *
 * A step is one term of the sums, held in fp32 whatever the operands' type; or two terms, held as a
 * pair of bf16, where the processor multiplies pairs fast; or the 32 terms of an AMX instruction.
 * An element of C is one chain over the steps of a patch in order, of fused multiply-adds (two
 * roundings where the set has no fused one) or of what the instruction sums, so it does not depend
 * on how C is cut.
 */
#ifndef SL_KERNELS_CPU_MICRO_KERNEL_H
#define SL_KERNELS_CPU_MICRO_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "program/op_list.h"

/* A strip: `width` rows of A or columns of B, `term_count` terms of each. */
typedef struct sl_gemm_strip {
    const void *from; /* the first element, of `type` */
    sl_type type;
    uint64_t leading; /* elements from a row of the matrix to the next */
    bool transpose;   /* the rows of the matrix run along the terms, not along the strip */
    uint64_t width, term_count;
    uint64_t step_width; /* rows or columns of one packed step, >= width */
    uint32_t *to;        /* steps * step_width * words_per_step, and SL_GEMM_SLACK of slack */
} sl_gemm_strip;

enum { SL_GEMM_SLACK = 16 }; /* packed words that a strip's last store may write past its end */

/* C[rows, columns] (+)= a strip of A times one of B.
 *
 * A packed strip of A has a_row = words_per_step and a_step = words_per_step * its width. Rows that
 * lie in memory as the words of their terms, one behind the other, are a strip too: a_step =
 * words_per_step. One of a_row and a_step is words_per_step. Each step of B is words_per_step rows
 * of words, b_row apart, with a word for each of the micro-kernel's columns. */
typedef struct sl_gemm_patch {
    const uint32_t *a, *b;
    uint64_t a_row, a_step, b_row; /* words: from a row of A to the next, from a step to the next */
    uint64_t step_count;           /* at least 1 */
    float *c;
    uint64_t leading_c;
    uint32_t rows, columns; /* at most the micro-kernel's own */
    bool add;               /* add to C instead of overwriting it */

    /* To prefetch: of A the next strip from its start, of B one line a step. The strides are a
     * line's 64 bytes, or 0: nothing to prefetch. */
    const void *next_a, *next_b;
    uint64_t next_a_stride, next_b_stride;
} sl_gemm_patch;

/* sums[rows, b.width] += rows of A, each a strip of its own, times unpacked columns of B. */
typedef struct sl_gemm_few {
    const uint32_t *a; /* packed steps of a row, a_stride words from a row to the next */
    uint64_t a_stride;
    uint32_t rows;
    sl_gemm_strip b; /* of any width; without the fields for packing */
    float *sums;
    uint64_t leading_sums; /* b.width in whole strips: the sums behind b.width are written too */
} sl_gemm_few;

/* c = sums + bias + residual (+ c), times gelu'(gelu_x), rounded once. */
typedef struct sl_gemm_epilogue {
    const float *sums;
    uint64_t leading_sums;
    void *c;                              /* may be `sums`, in fp32 */
    sl_type type;                         /* of all void pointers */
    const void *bias, *residual, *gelu_x; /* may be NULL */
    uint64_t leading;                     /* of c, residual and gelu_x */
    uint64_t rows, columns;
    bool add; /* add to the contents of c */
} sl_gemm_epilogue;

/* How gemm.c cuts a product for a micro-kernel: no number here changes a bit of the result. */
typedef struct sl_gemm_blocking {
    uint32_t a_tile, b_tile; /* strips of one tile of work, at most */
    bool goes_across;        /* the next tile takes the next strips of B; else those of A */
    bool whole_strips;       /* strips of A have `rows` rows but for the last; else all strips have
                                equally many, within one */
    uint32_t turn_strips, turn_steps; /* packed in turn where the matrix's rows are terms */
    bool finishes_patches; /* the epilogue follows a patch's last chain, while its sums are in the
                              first cache; else that of a tile, for longer runs of C */
} sl_gemm_blocking;

typedef struct sl_micro_kernel {
    uint32_t rows, columns;  /* of C in registers */
    uint32_t narrow_columns; /* the fewest columns that cost less than all: a divisor of columns */
    uint32_t terms_per_step; /* 1, 2 or 32: a divisor of the terms packed at once */
    uint32_t words_per_step; /* of a row or column: 1 or 16 */
    uint32_t chain_steps;    /* the longest chain */
    bool starts_from_c;      /* a later chain starts from C; else it is summed alone and then
                                added */
    sl_gemm_blocking blocking;
    void (*pack_a)(const sl_gemm_strip *strip);
    void (*pack_b)(const sl_gemm_strip *strip);
    void (*start)(void); /* before a thread's first patch of a tile */
    void (*stop)(void);  /* after its last */
    void (*multiply)(const sl_gemm_patch *patch);
    void (*multiply_few)(const sl_gemm_few *few);
    void (*epilogue)(const sl_gemm_epilogue *epilogue);
} sl_micro_kernel;

#endif
