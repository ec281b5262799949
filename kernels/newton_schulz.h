/* The Newton-Schulz steps of ORTHOGONALISE (Jordan et al. 2024; coefficients as torch.optim.Muon),
 * as the products and factors that every device computes.
 *
 * A step is X' = a X + (b A + c A A) X with A = X X^T, or where X has more rows than columns
 * X' = a X + X (b A + c A A) with A = X^T X. The matrices are kept by a factor s of a step:
 * X = s Y. With s' = a s the step is Y' = Y + B Y, where B = (b s^2 / a) G + (c s^4 / a) G G and
 * G = Y Y^T: a product and its residual, rounded once. The first s is 1/16, so that half precision
 * has neither too large nor too small numbers: elements of G are at most 256.
 *
 * In the workspace: Y in the compute type; a second one, where the matrix is not stored in that
 * type and so cannot hold it; G, in the place of which B is made; G G in fp32; sums of squares;
 * what the products take.
 */
#ifndef SL_KERNELS_NEWTON_SCHULZ_H
#define SL_KERNELS_NEWTON_SCHULZ_H

#include "base/bits.h"
#include "product.h"

enum {
    SL_NEWTON_SCHULZ_STEPS = 5,
    SL_NEWTON_SCHULZ_TILE = 2048, /* elements of one sum of squares */
    SL_NEWTON_SCHULZ_ALIGNMENT = 256
};

/* Of a step. */
typedef struct sl_newton_schulz_factors {
    float linear, square; /* of G and of G G in B */
} sl_newton_schulz_factors;

static inline double sl_newton_schulz_a(void)
{
    return 3.4445;
}

/* 1 / s of the first step. */
static inline float sl_newton_schulz_first(void)
{
    return 16.0f;
}

/* The smallest norm that a matrix is divided by. */
static inline float sl_newton_schulz_epsilon(void)
{
    return 1e-7f;
}

static inline sl_newton_schulz_factors sl_newton_schulz_factors_of(uint32_t step)
{
    const double a = sl_newton_schulz_a(), b = -4.7750, c = 2.0315;
    double s = 1 / (double)sl_newton_schulz_first();
    for (uint32_t i = 0; i < step; i++)
        s *= a;
    const sl_newton_schulz_factors factors = {(float)(b * s * s / a),
                                              (float)(c * s * s * s * s / a)};
    return factors;
}

/* From the last Y to the result. */
static inline float sl_newton_schulz_last(const sl_op_attrs *attrs)
{
    double s = (double)attrs->scale / (double)sl_newton_schulz_first();
    for (uint32_t i = 0; i < SL_NEWTON_SCHULZ_STEPS; i++)
        s *= sl_newton_schulz_a();
    return (float)s;
}

static inline bool sl_newton_schulz_is_wide(const sl_op_attrs *attrs)
{
    return attrs->in <= attrs->out;
}

static inline uint64_t sl_newton_schulz_side(const sl_op_attrs *attrs)
{
    return sl_newton_schulz_is_wide(attrs) ? attrs->in : attrs->out;
}

static inline uint64_t sl_newton_schulz_elements(const sl_op_attrs *attrs)
{
    return attrs->in * attrs->out;
}

/* Sums of squares of a matrix. */
static inline uint64_t sl_newton_schulz_tiles(const sl_op_attrs *attrs)
{
    return sl_bits_divide_up(sl_newton_schulz_elements(attrs), SL_NEWTON_SCHULZ_TILE);
}

#ifndef __cplusplus

static inline sl_product sl_newton_schulz_product(const sl_op_attrs *attrs, uint64_t m, uint64_t n,
                                                  uint64_t k)
{
    enum { ALIGNMENT = 16 };
    return (sl_product){.type = (sl_type)attrs->type,
                        .c_type = (sl_type)attrs->type,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a_alignment = ALIGNMENT,
                        .b_alignment = ALIGNMENT,
                        .c_alignment = ALIGNMENT};
}

/* G of Y. */
static inline sl_product sl_newton_schulz_gram(const sl_op_attrs *attrs)
{
    const uint64_t side = sl_newton_schulz_side(attrs);
    const uint64_t terms = sl_newton_schulz_elements(attrs) / side;
    sl_product product = sl_newton_schulz_product(attrs, side, side, terms);
    product.transpose_a = !sl_newton_schulz_is_wide(attrs);
    product.transpose_b = sl_newton_schulz_is_wide(attrs);
    return product;
}

/* G G. */
static inline sl_product sl_newton_schulz_square(const sl_op_attrs *attrs)
{
    const uint64_t side = sl_newton_schulz_side(attrs);
    sl_product product = sl_newton_schulz_product(attrs, side, side, side);
    product.c_type = SL_TYPE_FP32;
    return product;
}

/* B Y or Y B, of which the residual is Y. */
static inline sl_product sl_newton_schulz_step(const sl_op_attrs *attrs)
{
    return sl_newton_schulz_product(attrs, attrs->in, attrs->out, sl_newton_schulz_side(attrs));
}

/* Where in a workspace the matrices of an op begin, in bytes, and how long it is. */
typedef struct sl_newton_schulz_layout {
    uint64_t matrix[2], gram, square, sums, product;
    uint64_t bytes;
} sl_newton_schulz_layout;

static inline uint64_t sl_newton_schulz_add(sl_newton_schulz_layout *layout, uint64_t bytes)
{
    const uint64_t first = layout->bytes;
    layout->bytes += sl_bits_round_up(bytes, SL_NEWTON_SCHULZ_ALIGNMENT);
    return first;
}

/* True if the op's operand has room for a Y. */
static inline bool sl_newton_schulz_holds(const sl_op_attrs *attrs)
{
    return attrs->grad_type == attrs->type;
}

/* `product_bytes`: of the largest product. */
static inline sl_newton_schulz_layout sl_newton_schulz_lay_out(const sl_op_attrs *attrs,
                                                               uint64_t product_bytes)
{
    sl_newton_schulz_layout layout = {{0, 0}, 0, 0, 0, 0, 0};
    const uint64_t elements = sl_newton_schulz_elements(attrs);
    const uint64_t side = sl_newton_schulz_side(attrs), size = sl_type_bytes((sl_type)attrs->type);
    layout.matrix[0] = sl_newton_schulz_add(&layout, elements * size);
    if (!sl_newton_schulz_holds(attrs))
        layout.matrix[1] = sl_newton_schulz_add(&layout, elements * size);
    layout.gram = sl_newton_schulz_add(&layout, side * side * size);
    layout.square = sl_newton_schulz_add(&layout, side * side * sizeof(float));
    layout.sums =
        sl_newton_schulz_add(&layout, (sl_newton_schulz_tiles(attrs) + 1) * sizeof(float));
    layout.product = sl_newton_schulz_add(&layout, product_bytes);
    return layout;
}

/* What an op works on. */
typedef struct sl_newton_schulz_room {
    void *matrix[2]; /* the Ys of even and of odd steps */
    void *gram;
    float *square, *sums;
    void *product;
} sl_newton_schulz_room;

/* `matrix`: the op's operand. */
static inline sl_newton_schulz_room sl_newton_schulz_place(const sl_op_attrs *attrs,
                                                           const sl_newton_schulz_layout *layout,
                                                           void *matrix, void *workspace)
{
    char *first = workspace;
    return (sl_newton_schulz_room){
        .matrix = {first + layout->matrix[0],
                   sl_newton_schulz_holds(attrs) ? matrix : first + layout->matrix[1]},
        .gram = first + layout->gram,
        .square = (float *)(void *)(first + layout->square),
        .sums = (float *)(void *)(first + layout->sums),
        .product = first + layout->product};
}

#endif

#endif
