/* Custom ops: what a model computes that no layer of sluice does.
 *
 *   static void square_forward(const sl_custom_rows *rows)
 *   {
 *       for (uint64_t i = 0; i < rows->row_count * rows->in; i++)
 *           rows->y[i] = rows->x[i] * rows->x[i];
 *   }
 *
 *   static void square_backward(const sl_custom_rows *rows)
 *   {
 *       for (uint64_t i = 0; i < rows->row_count * rows->in; i++)
 *           rows->dx[i] = 2 * rows->x[i] * rows->dy[i];
 *   }
 *
 *   static const sl_custom_op square = {
 *       .name = "square", .forward = square_forward, .backward = square_backward};
 *
 * sl_custom and sl_custom_two (sluice/model.h) put such an op into a model. Later versions add
 * fields behind those of a struct, as in sluice/model.h.
 */
#ifndef SLUICE_CUSTOM_H
#define SLUICE_CUSTOM_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Some rows of a custom op: one row for each token, in fp32 whatever the precision of the session.
 * All arrays are row-major. What is written overlaps nothing else; x and z may be one array. */
typedef struct sl_custom_rows {
    uint64_t row_count; /* rows of this call; at least 1 */
    uint64_t in, out;   /* features of a row of x, and of y, on this rank */
    const float *x, *z; /* [row_count, in]; z: the second input, NULL if there is none */
    const float
        *weight;      /* as sl_custom_op has it, of an elementwise op [in]; NULL if there is none */
    float *y;         /* forward: [row_count, out], to be written whole */
    const float *dy;  /* backward: the gradient of y, [row_count, out] */
    float *dx, *dz;   /* backward: the gradients of x and z, to be written whole */
    float *dweight;   /* backward: the gradient of the weight, to be added to */
    const void *user; /* of sl_custom_op */
} sl_custom_rows;

/* Computes some rows. Several threads call it at the same time, with other rows; what it writes
 * depends on its rows alone. It cannot fail, allocates nothing, and calls nothing of sluice. */
typedef void (*sl_custom_function)(const sl_custom_rows *rows);

/* A kind of op that sluice does not have: y = f(x, z, weight), where row r of y depends on rows r
 * of x and z, and on the weight. It runs on the cpu device, in forward and backward passes, in
 * evaluations and in decoding, under any placement. */
typedef struct sl_custom_op {
    const char *name;            /* of the kind, different for each kind of a model; in plans */
    sl_custom_function forward;  /* writes y */
    sl_custom_function backward; /* writes dx and dz, adds to dweight */
    const void *user;            /* given to both; valid, as `name`, until the session is closed */
    uint64_t out;                /* features of y; 0: as many as x has */
    uint64_t weight[2];          /* {0, 0}: no weight; {n, 0}: a vector; {rows, columns} */
    float mean, deviation;       /* of the initial weight, which is normal; deviation 0: all mean */
    int is_elementwise;          /* 1: feature i of y depends on feature i of x and z, and on
                                    element i of a weight vector; then x may be divided among
                                    tensor-parallel ranks by its features, evenly, and the
                                    op is not told which features it has */
    uint64_t flops;              /* of matrix products of a row, forward; in the rates of
                                                 profile and plan */
    double seconds; /* that a row takes forward, beyond the time to move its bytes, with
                       all cores at work; for the planned time of a step */
} sl_custom_op;

/* Checks an op on a few rows of `features` random inputs, `input_count` of them (1 or 2): samples
 * of each gradient against finite differences to 2 %, that all is written that must be, that rows
 * of y do not depend on each other, and that of an elementwise op one feature of the inputs changes
 * one of y. SL_ERROR_USAGE: the message says what is wrong. SL_ERROR_SYSTEM: no memory. */
SL_API sl_status sl_custom_check_sized(const sl_custom_op *op, size_t bytes, uint64_t features,
                                       uint32_t input_count);
static inline sl_status sl_custom_check(const sl_custom_op *op, uint64_t features,
                                        uint32_t input_count)
{
    return sl_custom_check_sized(op, sizeof *op, features, input_count);
}

#ifdef __cplusplus
}
#endif
#endif
