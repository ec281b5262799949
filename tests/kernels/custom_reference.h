/* A custom op for tests: every input, the weight and both sides of every product can be seen in
 * every result that op_list.h lets depend on them.
 *
 *   y[o] = sum of x[i]^2 / 2 * (1 + z[i]) over i = o modulo out + s * sum of w[e]^2 / 2 over e = o
 *
 * where i counts to the larger of in and out, modulo in, and e through the weight. */
#ifndef SL_TESTS_CUSTOM_REFERENCE_H
#define SL_TESTS_CUSTOM_REFERENCE_H

#include "sluice/custom.h"

#define CUSTOM_WEIGHT_SCALE 0.0625f

#define CUSTOM_REFERENCE(name, number)                                                             \
    static inline void custom_forward_##name(const uint64_t *sizes, const number *x,               \
                                             const number *z, const number *w, number *y)          \
    {                                                                                              \
        const uint64_t in = sizes[0], out = sizes[1], most = in > out ? in : out;                  \
        for (uint64_t o = 0; o < out; o++)                                                         \
            y[o] = 0;                                                                              \
        for (uint64_t i = 0; i < most; i++)                                                        \
            y[i % out] += x[i % in] * x[i % in] / 2 * (1 + (z ? z[i % in] : 0));                   \
        for (uint64_t e = 0; w && e < sizes[2]; e++)                                               \
            y[e % out] += (number)CUSTOM_WEIGHT_SCALE * w[e] * w[e] / 2;                           \
    }                                                                                              \
    static inline void custom_backward_##name(const uint64_t *sizes, const number *x,              \
                                              const number *z, const number *w, const number *dy,  \
                                              number *const *gradients)                            \
    {                                                                                              \
        const uint64_t in = sizes[0], out = sizes[1], most = in > out ? in : out;                  \
        number *dx = gradients[0], *dz = gradients[1], *dw = gradients[2];                         \
        for (uint64_t i = 0; i < in; i++)                                                          \
            dx[i] = 0;                                                                             \
        for (uint64_t i = 0; dz && i < in; i++)                                                    \
            dz[i] = 0;                                                                             \
        for (uint64_t i = 0; i < most; i++)                                                        \
            dx[i % in] += dy[i % out] * x[i % in] * (1 + (z ? z[i % in] : 0));                     \
        for (uint64_t i = 0; dz && i < most; i++)                                                  \
            dz[i % in] += dy[i % out] * x[i % in] * x[i % in] / 2;                                 \
        for (uint64_t e = 0; dw && e < sizes[2]; e++)                                              \
            dw[e] += (number)CUSTOM_WEIGHT_SCALE * w[e] * dy[e % out];                             \
    }

CUSTOM_REFERENCE(float, float)
CUSTOM_REFERENCE(double, double)

static inline void custom_forward(const sl_custom_rows *rows)
{
    const uint64_t sizes[] = {rows->in, rows->out, *(const uint64_t *)rows->user};
    for (uint64_t r = 0; r < rows->row_count; r++)
        custom_forward_float(sizes, rows->x + r * rows->in, rows->z ? rows->z + r * rows->in : NULL,
                             rows->weight, rows->y + r * rows->out);
}

static inline void custom_backward(const sl_custom_rows *rows)
{
    const uint64_t sizes[] = {rows->in, rows->out, *(const uint64_t *)rows->user};
    for (uint64_t r = 0; r < rows->row_count; r++) {
        const uint64_t at = r * rows->in;
        float *const gradients[] = {rows->dx + at, rows->z ? rows->dz + at : NULL, rows->dweight};
        custom_backward_float(sizes, rows->x + at, rows->z ? rows->z + at : NULL, rows->weight,
                              rows->dy + r * rows->out, gradients);
    }
}

/* The op with a weight of *weight_count elements. */
static inline sl_custom_op custom_op(const uint64_t *weight_count)
{
    return (sl_custom_op){.name = "reference",
                          .forward = custom_forward,
                          .backward = custom_backward,
                          .user = weight_count};
}

#endif
