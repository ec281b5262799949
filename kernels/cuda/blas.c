/* The choices of an open cuBLASLt, kept in the order of their keys. */
#include "blas.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "blas_choice.h"

enum {
    WORKSPACE_BYTES_MAX = 32 << 20, /* what the library's documentation advises for Hopper */
    PARTS_MAX = 16,                 /* of the terms, that may lie in the workspace */
    GELU_ROW_UNIT = 8,              /* elements: the library demands this of the rows of an x */
    GELU_CAPABILITY = 9,
};

struct sl_blas {
    const sl_blas_functions *functions;
    cublasLtHandle_t handle;
    bool passes_gelu;
    sl_blas_choice **choices;
    uint64_t count, capacity;
};

static bool find_passes_gelu(void)
{
    int device = 0, capability = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           capability >= GELU_CAPABILITY && getenv("SLUICE_NO_EPILOGUE") == NULL;
}

sl_status sl_blas_open(sl_blas **out_blas)
{
    *out_blas = NULL;
    const sl_blas_functions *functions = sl_blas_load();
    if (functions == NULL) {
        sl_log_write(SL_LOG_NOTE, "%s", sl_blas_load_text());
        return SL_OK;
    }
    sl_blas *blas = calloc(1, sizeof *blas);
    if (blas == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the products' algorithms");
    blas->functions = functions;
    const cublasStatus_t status = functions->Create(&blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        sl_log_write(SL_LOG_WARNING,
                     "cuBLASLt does not open (%s): products run slower, by own kernels",
                     functions->GetStatusString(status));
        free(blas);
        return SL_OK;
    }
    blas->passes_gelu = find_passes_gelu();
    *out_blas = blas;
    return SL_OK;
}

void sl_blas_close(sl_blas *blas)
{
    if (blas == NULL)
        return;
    for (uint64_t i = 0; i < blas->count; i++)
        sl_blas_choice_close(blas->functions, blas->choices[i]);
    free(blas->choices);
    blas->functions->Destroy(blas->handle);
    free(blas);
}

/* Splitting the terms pays where C is small, and then its parts are small too. */
uint64_t sl_blas_workspace_bytes(const sl_product *product)
{
    const uint64_t elements_max = WORKSPACE_BYTES_MAX / PARTS_MAX / sizeof(float);
    if (product->n == 0 || product->m >= elements_max / product->n)
        return WORKSPACE_BYTES_MAX;
    return sl_bits_round_up(PARTS_MAX * sizeof(float) * product->m * product->n, 256);
}

bool sl_blas_passes_gelu(const sl_blas *blas, const sl_product *product)
{
    return blas->passes_gelu && product->type != SL_TYPE_FP32 && product->n % GELU_ROW_UNIT == 0;
}

static sl_blas_key key_of(const sl_product *product)
{
    return (sl_blas_key){
        .m = product->m,
        .n = product->n,
        .k = product->k,
        .a_alignment = product->a_alignment,
        .b_alignment = product->b_alignment,
        .c_alignment = product->c_alignment,
        .type = (uint8_t)product->type,
        .c_type = (uint8_t)product->c_type,
        .transposes = (uint8_t)(product->transpose_a | product->transpose_b << 1),
        .epilogue = product->bias != NULL     ? SL_BLAS_BIAS
                    : product->gelu_x != NULL ? SL_BLAS_GELU
                                              : SL_BLAS_PLAIN,
    };
}

/* Where the key stands, or would stand. */
static uint64_t find_index(const sl_blas *blas, const sl_blas_key *key, bool *out_is_there)
{
    uint64_t first = 0, end = blas->count;
    *out_is_there = false;
    while (first < end && !*out_is_there) {
        const uint64_t middle = first + (end - first) / 2;
        const int order = memcmp(&blas->choices[middle]->key, key, sizeof *key);
        if (order < 0)
            first = middle + 1;
        else
            end = middle;
        if (order == 0) {
            *out_is_there = true;
            first = middle;
        }
    }
    return first;
}

const sl_blas_choice *sl_blas_find(const sl_blas *blas, const sl_product *product)
{
    const sl_blas_key key = key_of(product);
    bool is_there;
    const uint64_t place = find_index(blas, &key, &is_there);
    return is_there ? blas->choices[place] : NULL;
}

bool sl_blas_is_own(const sl_blas_choice *choice)
{
    return choice->is_own;
}

const char *sl_blas_text(const sl_blas *blas, uint64_t index)
{
    return index < blas->count ? blas->choices[index]->text : NULL;
}

static sl_status grow_choices(sl_blas *blas)
{
    if (blas->count < blas->capacity)
        return SL_OK;
    const uint64_t capacity = blas->capacity ? 2 * blas->capacity : 64;
    sl_blas_choice **choices = realloc(blas->choices, capacity * sizeof *choices);
    if (choices == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the products' algorithms");
    blas->choices = choices;
    blas->capacity = capacity;
    return SL_OK;
}

sl_status sl_blas_prepare(sl_blas *blas, const sl_product *product)
{
    const sl_blas_key key = key_of(product);
    bool is_there;
    const uint64_t place = find_index(blas, &key, &is_there);
    if (is_there)
        return SL_OK;
    SL_TRY(grow_choices(blas));
    sl_blas_choice *choice;
    SL_TRY(sl_blas_choice_open(blas->functions, blas->handle, &key,
                               sl_blas_workspace_bytes(product), &choice));
    memmove(blas->choices + place + 1, blas->choices + place,
            (blas->count - place) * sizeof *blas->choices);
    blas->choices[place] = choice;
    blas->count++;
    if (choice->is_own)
        sl_log_write(SL_LOG_NOTE, "cuBLASLt has no algorithm for %s", choice->text);
    return SL_OK;
}

/* Both what C holds and a residual come in as the library's C, with beta 1. */
sl_status sl_blas_run(const sl_blas *blas, const sl_blas_choice *choice, const sl_kernel_call *call,
                      const sl_product *product)
{
    const float alpha = 1.0f, beta = product->add || product->residual != NULL ? 1.0f : 0.0f;
    const void *added = product->residual != NULL ? product->residual : product->c;
    if (product->add && product->residual != NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "a product that adds to C and a residual");
    SL_TRY(sl_blas_choice_point(blas->functions, choice, product));
    SL_BLAS_TRY(blas->functions,
                Matmul(blas->handle, choice->operation, &alpha, product->b, choice->a, product->a,
                       choice->b, &beta, added, choice->c, product->c, choice->c,
                       &choice->algorithm, call->workspace, sl_blas_workspace_bytes(product),
                       (cudaStream_t)call->stream));
    return SL_OK;
}
