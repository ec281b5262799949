/* The products of the stand-in for cuBLASLt: naming an algorithm, and what is checked before and
 * when one runs. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cublaslt.h"
#include "cublaslt_objects.h"
#include "standin.h"

enum { WORKSPACE_ALIGNMENT = 256 };

static uint64_t element_bytes(uint64_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

/* The pointers of the epilogue aside, which may differ from call to call. */
static uint64_t hash_of(const standin_operation *operation, const standin_layout *const layout[4])
{
    struct {
        standin_operation operation;
        standin_layout layout[4];
    } all;
    memset(&all, 0, sizeof all);
    all.operation.transpose_a = operation->transpose_a;
    all.operation.transpose_b = operation->transpose_b;
    all.operation.epilogue = operation->epilogue;
    all.operation.gelu_leading = operation->gelu_leading;
    all.operation.compute = operation->compute;
    all.operation.scale = operation->scale;
    for (int i = 0; i < 4; i++)
        all.layout[i] = *layout[i];
    return sl_hash_64(&all, sizeof all);
}

static cublasStatus_t check_types(const standin_operation *o, const standin_layout *const layout[4])
{
    if (o->compute != CUBLAS_COMPUTE_32F || o->scale != CUDA_R_32F)
        return standin_blas_refuse("sums of kind %u, scaled by type %u", o->compute, o->scale);
    if (layout[0]->type != layout[1]->type || layout[2]->type != layout[3]->type)
        return standin_blas_refuse("A and B, or C and D, of different types");
    if (layout[3]->type != layout[0]->type && layout[3]->type != CUDA_R_32F)
        return standin_blas_refuse("type %d from type %d", (int)layout[3]->type,
                                   (int)layout[0]->type);
    if (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && o->epilogue != CUBLASLT_EPILOGUE_BIAS &&
        o->epilogue != CUBLASLT_EPILOGUE_DGELU)
        return standin_blas_refuse("epilogue %u", o->epilogue);
    if (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && layout[3]->type != layout[0]->type)
        return standin_blas_refuse("a bias or GELU of another type than the factors");
    return CUBLAS_STATUS_SUCCESS;
}

/* The x of a GELU, of the layout of D; the library documents what it wants of its columns. */
static cublasStatus_t check_gelu(const standin_operation *o, const standin_layout *d)
{
    const bool is_gelu = o->epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (!is_gelu && (o->gelu_x != NULL || o->gelu_leading != 0))
        return standin_blas_refuse("an x without a GELU");
    if (is_gelu && (o->gelu_leading % 8 != 0 || (uint64_t)o->gelu_leading < d->rows))
        return standin_blas_refuse("columns of a GELU's x %lld elements apart",
                                   (long long)o->gelu_leading);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_sizes(const standin_operation *o, const standin_layout *const layout[4])
{
    const standin_layout *a = layout[0], *b = layout[1], *c = layout[2], *d = layout[3];
    const bool turn_a = o->transpose_a == CUBLAS_OP_T, turn_b = o->transpose_b == CUBLAS_OP_T;
    const uint64_t m = turn_a ? a->columns : a->rows, of_a = turn_a ? a->rows : a->columns;
    const uint64_t n = turn_b ? b->rows : b->columns, of_b = turn_b ? b->columns : b->rows;
    if (of_a != of_b || d->rows != m || d->columns != n)
        return standin_blas_refuse("[%llu, %llu] times [%llu, %llu] into [%llu, %llu]",
                                   (unsigned long long)m, (unsigned long long)of_a,
                                   (unsigned long long)of_b, (unsigned long long)n,
                                   (unsigned long long)d->rows, (unsigned long long)d->columns);
    if (memcmp(c, d, sizeof *c) != 0)
        return standin_blas_refuse("C and D of different layouts");
    return CUBLAS_STATUS_SUCCESS;
}

/* What sluice promises of its numbers. */
static cublasStatus_t check_promises(const standin_preference *p,
                                     const standin_layout *const layout[4])
{
    const uint64_t short_numbers = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 |
                                   CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F |
                                   CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    const bool is_fp32 = layout[0]->type == CUDA_R_32F;
    if ((p->schemes & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0)
        return standin_blas_refuse("schemes %u of adding parts", p->schemes);
    if ((p->numbers & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F) != 0)
        return standin_blas_refuse("sums may be fp16");
    if (is_fp32 && (p->numbers & short_numbers) != 0)
        return standin_blas_refuse("fp32 may be shortened");
    if (!is_fp32 && (p->numbers & (CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA)) == 0)
        return standin_blas_refuse("no tensor cores for halves");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_alignments(const standin_preference *p,
                                       const standin_layout *const layout[4])
{
    for (int i = 0; i < 4; i++) {
        const uint32_t alignment = p->alignment[i];
        if (alignment > 256 || (alignment & (alignment - 1)) != 0 ||
            alignment < element_bytes(layout[i]->type))
            return standin_blas_refuse("matrix %d aligned to %u bytes", i, alignment);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Half of the products would be computed in two parts, if their workspace allows it. */
static standin_algorithm name_algorithm(const standin_preference *p, uint64_t of,
                                        const standin_layout *d, uint32_t index)
{
    standin_algorithm algorithm = {
        .mark = STANDIN_BLAS_MARK, .of = of, .parts = 1 + of % 2, .index = index};
    const uint64_t bytes = algorithm.parts * d->rows * d->columns * sizeof(float);
    if (algorithm.parts > 1 && bytes <= p->workspace_bytes)
        algorithm.workspace_bytes = bytes;
    else
        algorithm.parts = 1;
    if (standin_blas_fault_of(index) == STANDIN_BLAS_TAKES_MORE)
        algorithm.workspace_bytes = p->workspace_bytes + 1;
    memcpy(algorithm.alignment, p->alignment, sizeof algorithm.alignment);
    return algorithm;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount)
{
    ENTER();
    const standin_operation *operation = (const standin_operation *)operationDesc;
    const standin_preference *p = (const standin_preference *)preference;
    const standin_layout *const layout[4] = {
        (const standin_layout *)Adesc, (const standin_layout *)Bdesc, (const standin_layout *)Cdesc,
        (const standin_layout *)Ddesc};
    *returnAlgoCount = 0;
    if (lightHandle == NULL || lightHandle->mark != STANDIN_BLAS_MARK || requestedAlgoCount < 1)
        return standin_blas_refuse("a handle that is not open, or %d algorithms",
                                   requestedAlgoCount);
    TRY(check_types(operation, layout));
    TRY(check_sizes(operation, layout));
    TRY(check_promises(p, layout));
    TRY(check_alignments(p, layout));
    TRY(check_gelu(operation, layout[3]));
    if ((operation->epilogue == CUBLASLT_EPILOGUE_BIAS && operation->bias == NULL) ||
        (operation->epilogue == CUBLASLT_EPILOGUE_DGELU && operation->gelu_x == NULL))
        return standin_blas_refuse("the heuristic cannot see how bias or GELU are aligned");
    if (operation->epilogue == CUBLASLT_EPILOGUE_DGELU && standin_blas_refuses_gelu())
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (standin_blas_refuses_odd() && (layout[0]->leading % 2 || layout[1]->leading % 2))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (uint32_t i = 0; i < standin_blas_offered() && (int)i < requestedAlgoCount; i++) {
        const standin_algorithm algorithm =
            name_algorithm(p, hash_of(operation, layout), layout[3], i);
        cublasLtMatmulHeuristicResult_t *result = &heuristicResultsArray[(*returnAlgoCount)++];
        memset(result, 0, sizeof *result);
        memcpy(&result->algo, &algorithm, sizeof algorithm);
        result->workspaceSize = algorithm.workspace_bytes;
        result->wavesCount = 0.5f;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void *buf, size_t sizeInBytes,
                                                    size_t *sizeWritten)
{
    ENTER();
    standin_algorithm algorithm;
    memcpy(&algorithm, algo, sizeof algorithm);
    const bool is_short = attr == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ||
                          attr == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID;
    if (sizeInBytes != (is_short ? 2 : 4))
        return standin_blas_refuse("attribute %d of an algorithm in %zu bytes", (int)attr,
                                   sizeInBytes);
    const bool adds_in_place = standin_blas_fault_of(algorithm.index) == STANDIN_BLAS_ADDS_IN_PLACE;
    const uint32_t scheme = adds_in_place         ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                            : algorithm.parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                  : 0;
    const uint32_t value = attr == CUBLASLT_ALGO_CONFIG_SPLITK_NUM         ? algorithm.parts
                           : attr == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? scheme
                           : attr == CUBLASLT_ALGO_CONFIG_ID ? 10 + 100 * algorithm.index
                                                             : 10 + (uint32_t)attr;
    memcpy(buf, &value, sizeInBytes); /* least byte first */
    *sizeWritten = sizeInBytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_pointers(const standin_product *p, const standin_algorithm *algorithm)
{
    const void *const pointer[4] = {p->from_a, p->from_b, p->from_c, p->to};
    for (int i = 0; i < 4; i++)
        if (pointer[i] == NULL || (uintptr_t)pointer[i] % algorithm->alignment[i] != 0)
            return standin_blas_refuse("matrix %d at %p, not aligned to %u bytes", i, pointer[i],
                                       algorithm->alignment[i]);
    if (p->operation.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (p->operation.bias == NULL || (uintptr_t)p->operation.bias % 16 != 0))
        return standin_blas_refuse("a bias at %p", p->operation.bias);
    if (p->operation.epilogue == CUBLASLT_EPILOGUE_DGELU &&
        (p->operation.gelu_x == NULL || (uintptr_t)p->operation.gelu_x % 16 != 0))
        return standin_blas_refuse("a GELU's x at %p", p->operation.gelu_x);
    if (p->workspace_bytes > 0 &&
        (p->workspace == NULL || (uintptr_t)p->workspace % WORKSPACE_ALIGNMENT != 0))
        return standin_blas_refuse("a workspace at %p", p->workspace);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_algorithm(const standin_product *p, const standin_layout *d,
                                      const standin_algorithm *algorithm, size_t given_bytes)
{
    const standin_layout *const layout[4] = {&p->a, &p->b, &p->c, d};
    if (algorithm->mark != STANDIN_BLAS_MARK || algorithm->of != hash_of(&p->operation, layout))
        return standin_blas_refuse("an algorithm that the heuristic did not name for this product");
    if (algorithm->workspace_bytes > given_bytes)
        return standin_blas_refuse("a workspace of %zu bytes, not %llu", given_bytes,
                                   (unsigned long long)algorithm->workspace_bytes);
    return check_pointers(p, algorithm);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc,
                              const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
                              const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspaceSizeInBytes, cudaStream_t stream)
{
    ENTER();
    if (lightHandle == NULL || lightHandle->mark != STANDIN_BLAS_MARK || algo == NULL)
        return standin_blas_refuse("a handle that is not open, or no algorithm");
    standin_algorithm algorithm;
    memcpy(&algorithm, algo, sizeof algorithm);
    const standin_product product = {.a = *(const standin_layout *)Adesc,
                                     .b = *(const standin_layout *)Bdesc,
                                     .c = *(const standin_layout *)Cdesc,
                                     .operation = *(const standin_operation *)computeDesc,
                                     .from_a = A,
                                     .from_b = B,
                                     .from_c = C,
                                     .to = D,
                                     .alpha = *(const float *)alpha,
                                     .beta = *(const float *)beta,
                                     .workspace = workspace,
                                     .workspace_bytes = algorithm.workspace_bytes,
                                     .factor = standin_blas_factor(algorithm.index),
                                     .slow_us = standin_blas_slow_us(algorithm.index)};
    TRY(check_algorithm(&product, (const standin_layout *)Ddesc, &algorithm, workspaceSizeInBytes));
    if (standin_blas_fault_of(algorithm.index) == STANDIN_BLAS_REFUSES)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (standin_load_code(algorithm.of + algorithm.index) != 0)
        return CUBLAS_STATUS_ALLOC_FAILED;
    standin_product *queued = malloc(sizeof *queued);
    if (queued == NULL)
        abort();
    *queued = product;
    if (standin_queue_owned(stream, "cublasLtMatmul", standin_product_run, queued) != 0) {
        free(queued);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}
