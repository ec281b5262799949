/* The arithmetic of the stand-in for cuBLASLt: double sums, rounded to fp32 and to the type. */
#define _GNU_SOURCE /* usleep */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "cublaslt_objects.h"
#include "standin.h"

static float read_element(const void *from, uint64_t type, uint64_t index)
{
    if (type == CUDA_R_32F)
        return ((const float *)from)[index];
    const uint16_t half = ((const uint16_t *)from)[index];
    return type == CUDA_R_16BF ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

static void write_element(void *to, uint64_t type, uint64_t index, float value)
{
    if (type == CUDA_R_32F)
        ((float *)to)[index] = value;
    else
        ((uint16_t *)to)[index] =
            type == CUDA_R_16BF ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

/* op(A) with its columns one after the other: [terms, rows]. */
static float *gather(const standin_product *p, uint64_t rows, uint64_t terms)
{
    float *values = malloc(rows * terms * sizeof *values);
    if (values == NULL)
        abort();
    const bool is_transposed = p->operation.transpose_a == CUBLAS_OP_T;
    for (uint64_t s = 0; s < terms; s++)
        for (uint64_t i = 0; i < rows; i++)
            values[s * rows + i] = read_element(
                p->from_a, p->a.type, is_transposed ? s + i * p->a.leading : i + s * p->a.leading);
    return values;
}

static void add_terms(const standin_product *p, const float *a, uint64_t terms, uint64_t column,
                      double *sums)
{
    const bool is_transposed = p->operation.transpose_b == CUBLAS_OP_T;
    for (uint64_t s = 0; s < terms; s++) {
        const double factor =
            read_element(p->from_b, p->b.type,
                         is_transposed ? column + s * p->b.leading : s + column * p->b.leading);
        for (uint64_t i = 0; i < p->c.rows; i++)
            sums[i] += factor * (double)a[s * p->c.rows + i];
    }
}

/* Of the tanh form. */
static double gelu_slope(double x)
{
    const double root = sqrt(2 / M_PI), t = tanh(root * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

static void finish_column(const standin_product *p, uint64_t column, const double *sums)
{
    for (uint64_t i = 0; i < p->c.rows; i++) {
        const uint64_t at = i + column * p->c.leading;
        double sum = (double)p->alpha * p->factor * sums[i];
        if (p->beta != 0.0f) /* else C is not read */
            sum += (double)p->beta * (double)read_element(p->from_c, p->c.type, at);
        if (p->operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
            sum += (double)read_element(p->operation.bias, p->c.type, i);
        if (p->operation.epilogue == CUBLASLT_EPILOGUE_DGELU)
            sum *= gelu_slope((double)read_element(
                p->operation.gelu_x, p->c.type, i + column * (uint64_t)p->operation.gelu_leading));
        write_element(p->to, p->c.type, at, (float)sum);
    }
}

void standin_product_run(void *product)
{
    standin_product *p = product;
    const uint64_t terms = p->operation.transpose_a == CUBLAS_OP_T ? p->a.rows : p->a.columns;
    const uint64_t element_bytes = p->c.type == CUDA_R_32F ? 4 : 2;
    float *a = gather(p, p->c.rows, terms);
    double *sums = malloc(p->c.rows * sizeof *sums);
    if (sums == NULL)
        abort();
    if (p->slow_us > 0)
        usleep(p->slow_us);
    if (p->workspace_bytes > 0)
        memset(p->workspace, 0xa5, p->workspace_bytes);
    for (uint64_t column = 0; column < p->c.columns; column++) {
        memset(sums, 0, p->c.rows * sizeof *sums);
        add_terms(p, a, terms, column, sums);
        finish_column(p, column, sums);
        standin_note_written((const char *)p->to + column * p->c.leading * element_bytes,
                             p->c.rows * element_bytes);
    }
    free(sums);
    free(a);
}
