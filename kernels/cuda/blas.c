/* The choices of an open cuBLASLt, kept in the order of their keys. */
#include "blas.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "blas_choice.h"
#include "blas_time.h"
#include "device/cuda.h"

enum {
    WORKSPACE_BYTES_MAX = 32 << 20, /* what the library's documentation advises for Hopper */
    PARTS_MAX = 16,                 /* of the terms, that may lie in the workspace */
    GELU_ROW_UNIT = 8,              /* elements: the library demands this of the rows of an x */
    GELU_CAPABILITY = 9,
    LAUNCHES_MOST = 4, /* of one product: clearing, multiplying, adding up its parts, one more */
};

struct sl_blas {
    const sl_blas_functions *functions;
    cublasLtHandle_t handle;
    bool passes_gelu, times_algorithms;
    bool has_warned;  /* that an algorithm of the list is not offered */
    const char *list; /* of algorithms (sl_cuda_options.algorithms), borrowed; or NULL */
    sl_blas_choice **choices;
    uint64_t count, capacity;
};

/* A device that does not say is a failure: the products without the epilogue have other bits. */
static sl_status find_passes_gelu(bool *out_passes_gelu)
{
    int device = 0, capability = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device);
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "the device does not say its compute capability: %s",
                cudaGetErrorString(error));
    *out_passes_gelu = capability >= GELU_CAPABILITY;
    return SL_OK;
}

sl_status sl_blas_open(const sl_cuda_options *options, sl_blas **out_blas)
{
    const sl_blas_functions *functions = sl_blas_load();
    if (functions == NULL)
        SL_FAIL(SL_ERROR_SYSTEM,
                "%s: install it (part of the CUDA toolkit, and the Python package nvidia-cublas), "
                "name its folder in LD_LIBRARY_PATH, or do without, two to three times slower, by "
                "--cuda-products own",
                sl_blas_load_text());
    sl_blas *blas = calloc(1, sizeof *blas);
    if (blas == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the products' algorithms");
    blas->functions = functions;
    blas->list = options->algorithms;
    blas->times_algorithms = options->times_algorithms;
    const cublasStatus_t status = functions->Create(&blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(blas);
        SL_FAIL(SL_ERROR_SYSTEM,
                "cuBLASLt does not open (%s): leave it more device memory, or do without it by "
                "--cuda-products own",
                functions->GetStatusString(status));
    }
    const sl_status found = options->no_epilogue ? SL_OK : find_passes_gelu(&blas->passes_gelu);
    if (found != SL_OK) {
        sl_blas_close(blas);
        return found;
    }
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
                    : product->gelu_x != NULL ? SL_BLAS_GELU_BACKWARD
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

/* All algorithms of another library's list may be missing: one warning is enough. */
static void report_choice(sl_blas *blas, const sl_blas_choice *choice)
{
    if (choice->is_own)
        sl_log_write(SL_LOG_NOTE, "cuBLASLt has no algorithm for %s", choice->text);
    if (choice->is_lost && !blas->has_warned)
        sl_log_write(SL_LOG_WARNING,
                     "cuBLASLt does not offer an algorithm of the list of algorithms, so last bits "
                     "may differ from now on. The product is now computed as %s; other products "
                     "may have lost their algorithms too",
                     choice->text);
    blas->has_warned |= choice->is_lost;
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
                               sl_blas_workspace_bytes(product), blas->list, &choice));
    memmove(blas->choices + place + 1, blas->choices + place,
            (blas->count - place) * sizeof *blas->choices);
    blas->choices[place] = choice;
    blas->count++;
    report_choice(blas, choice);
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
    sl_cuda_note_launches(LAUNCHES_MOST);
    SL_BLAS_TRY(blas->functions,
                Matmul(blas->handle, choice->operation, &alpha, product->b, choice->a, product->a,
                       choice->b, &beta, added, choice->c, product->c, choice->c,
                       &choice->algorithm, call->workspace, sl_blas_workspace_bytes(product),
                       (cudaStream_t)call->stream));
    return SL_OK;
}

static sl_status launch_once(const sl_blas *blas, const sl_blas_choice *choice,
                             const sl_kernel_call *call, const sl_product *product)
{
    const uint64_t bytes = product->m * product->n * sl_type_bytes(product->c_type);
    const cudaStream_t stream = call->stream;
    SL_TRY(sl_blas_run(blas, choice, call, product));
    cudaError_t error = cudaMemsetAsync(product->c, 0, bytes, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        return SL_OK;
    (void)cudaGetLastError();
    SL_FAIL(SL_ERROR_SYSTEM, "the first product fails: %s", cudaGetErrorString(error));
}

/* An algorithm of the list that the library does not launch is replaced by the library's first. */
static sl_status launch_choice(sl_blas *blas, sl_blas_choice *choice, const sl_kernel_call *call,
                               const sl_product *product)
{
    cublasLtMatmulHeuristicResult_t first = {0};
    uint32_t count = 1;
    const sl_status status = launch_once(blas, choice, call, product);
    if (status == SL_OK || !choice->is_listed)
        return status;
    SL_TRY(sl_blas_choice_list(blas->functions, blas->handle, choice, &first, &count));
    if (count == 0)
        return status;
    sl_blas_choice_take(blas->functions, choice, &first);
    choice->is_listed = false;
    choice->is_lost = true;
    report_choice(blas, choice);
    return launch_once(blas, choice, call, product);
}

static sl_status time_choice(const sl_blas *blas, sl_blas_choice *choice,
                             const sl_kernel_call *call, const sl_product *product)
{
    cublasLtMatmulHeuristicResult_t results[SL_BLAS_CANDIDATES] = {0};
    uint32_t count = SL_BLAS_CANDIDATES;
    const sl_blas_trial trial = {blas, blas->functions, choice, call, product};
    if (!blas->times_algorithms)
        return SL_OK;
    SL_TRY(sl_blas_choice_list(blas->functions, blas->handle, choice, results, &count));
    return count > 1 ? sl_blas_time(&trial, results, count) : SL_OK;
}

sl_status sl_blas_warm_up(sl_blas *blas, const sl_kernel_call *call, const sl_product *product)
{
    const sl_blas_key key = key_of(product);
    bool is_there;
    const uint64_t place = find_index(blas, &key, &is_there);
    if (!is_there || blas->choices[place]->is_own || blas->choices[place]->is_warm)
        return SL_OK;
    sl_blas_choice *choice = blas->choices[place];
    SL_TRY(time_choice(blas, choice, call, product));
    const sl_status status = launch_choice(blas, choice, call, product);
    choice->is_warm = status == SL_OK;
    return status == SL_OK
               ? SL_OK
               : sl_status_prefix(status,
                                  "loading the code of a product (if memory is short, lower "
                                  "--device-memory: it comes from what that leaves)");
}
