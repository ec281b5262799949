/* What the stand-in for cuBLASLt keeps behind the library's opaque types. */
#ifndef SL_STANDIN_CUBLASLT_OBJECTS_H
#define SL_STANDIN_CUBLASLT_OBJECTS_H

#include <cublasLt.h>
#include <stdbool.h>

#include "cublaslt.h"

#define STANDIN_BLAS_MARK 0x6375626c61734c74ull /* of what was opened, or named, here */

struct cublasLtContext {
    uint64_t mark;
};

typedef struct standin_layout {
    uint64_t rows, columns, leading; /* column-major */
    uint64_t type;
} standin_layout;

typedef struct standin_operation {
    const void *bias, *gelu_x;
    int64_t gelu_leading;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue, compute, scale;
} standin_operation;

typedef struct standin_preference {
    uint64_t workspace_bytes, numbers;
    uint32_t schemes, alignment[4]; /* A, B, C, D */
} standin_preference;

typedef struct standin_algorithm {
    uint64_t mark, of, workspace_bytes; /* of: a hash of what it was named for */
    uint32_t parts, alignment[4], index;
} standin_algorithm;

_Static_assert(sizeof(standin_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "too large");
_Static_assert(sizeof(standin_operation) <= sizeof(cublasLtMatmulDescOpaque_t), "too large");
_Static_assert(sizeof(standin_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "too large");
_Static_assert(sizeof(standin_algorithm) <= sizeof(cublasLtMatmulAlgo_t), "too large");

/* A product as it is queued: D = alpha op(A) op(B) + beta C, + bias, or times gelu'(gelu_x). */
typedef struct standin_product {
    standin_layout a, b, c;
    standin_operation operation;
    const void *from_a, *from_b, *from_c;
    void *to;
    float alpha, beta;
    void *workspace;
    uint64_t workspace_bytes;
    double factor; /* of the sums: what tells algorithms apart */
    uint32_t slow_us;
} standin_product;

/* Counts a fault, with a text made as by printf; an invalid value. */
cublasStatus_t standin_blas_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Counts a call; what a test asked it to fail with, or success. */
cublasStatus_t standin_blas_enter(const char *function);

#define STANDIN_BLAS_ALGORITHMS 8

uint32_t standin_blas_offered(void);
standin_blas_fault standin_blas_fault_of(uint32_t index);

/* Microseconds that a launch takes longer, and what its sums are multiplied with. */
uint32_t standin_blas_slow_us(uint32_t index);
double standin_blas_factor(uint32_t index);

bool standin_blas_refuses_odd(void);
bool standin_blas_refuses_gelu(void);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cublasStatus_t try_status_ = (call);                                                 \
        if (try_status_ != CUBLAS_STATUS_SUCCESS)                                                  \
            return try_status_;                                                                    \
    } while (0)

#define ENTER() TRY(standin_blas_enter(__func__))

/* Computes a product; called in its stream, which frees it. */
void standin_product_run(void *product);

#endif
