/* Opens and describes the state that the kernels keep. */
#include "library.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "blas_load.h"
#include "ops.h"

enum { TEXT_BYTES = 512 };

/* cuBLASLt belongs to the device that is current when it opens. */
sl_status sl_library_open(int device_index, const sl_cuda_options *options,
                          sl_kernel_library **out_library)
{
    static const sl_cuda_options defaults = {0};
    options = options != NULL ? options : &defaults;
    const cudaError_t error = cudaSetDevice(device_index);
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA refuses device %d: %s", device_index,
                cudaGetErrorString(error));
    sl_kernel_library *library = calloc(1, sizeof *library);
    if (library == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the library of kernels");
    const sl_status status = options->own_products ? SL_OK : sl_blas_open(options, &library->blas);
    if (status != SL_OK) {
        sl_library_close(library);
        return status;
    }
    *out_library = library;
    return SL_OK;
}

void sl_library_close(sl_kernel_library *library)
{
    if (library == NULL)
        return;
    sl_blas_close(library->blas);
    free(library);
}

char sl_load_only[1];

/* CUDA loads a kernel when it is first launched, which takes memory and may wait for all that the
 * GPU was given; a GPU that waits for a host stream whose thread then cannot ask CUDA would never
 * be done. So everything of ours is loaded before the first step, and what cuBLASLt will launch is
 * launched once by then (linear.c). */
static sl_status load_kernels(sl_kernel kernel, const sl_op_attrs *attrs)
{
    static const sl_padding padding = {0, 1};
    void *const somewhere = (void *)(uintptr_t)4096;
    sl_kernel_call call = {.attrs = attrs,
                           .workspace = somewhere,
                           .block_flags = somewhere,
                           .block_keys = somewhere,
                           .padding = &padding,
                           .padding_count = 1,
                           .stream = sl_load_only};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] = somewhere;
    return kernel(&call);
}

sl_status sl_library_prepare(sl_kernel_library *library, sl_op_kind kind,
                             const sl_kernel_call *call)
{
    sl_kernel kernel;
    SL_TRY(sl_kernels_find(sl_kernels_cuda(), kind, &kernel));
    SL_TRY(load_kernels(kernel, call->attrs));
    SL_TRY(sl_cuda_attention_prepare(kind, call->attrs));
    if (library->blas == NULL)
        return SL_OK;
    SL_TRY(sl_cuda_orthogonalise_prepare(library->blas, kind, call));
    return sl_cuda_linear_prepare(library->blas, kind, call);
}

/* Whether a collective's kernel computes from one type to another (kernels/ranks.h); those of one
 * type alone have it as both. */
static bool takes_types(sl_rank_kernel which, sl_type type, sl_type grad_type, bool adds_gradient)
{
    if (which == SL_RANK_CONVERT && !adds_gradient && type == SL_TYPE_FP32)
        return true;
    if (which == SL_RANK_CONVERT && adds_gradient)
        return grad_type == SL_TYPE_FP32;
    const bool widens = which == SL_RANK_SUM || which == SL_RANK_CONVERT;
    return type == grad_type || (widens && grad_type == SL_TYPE_FP32);
}

/* Of a size that sixteen bytes divide, and of one that they do not: code of both differs. */
static sl_status load_widths(sl_rank_kernel which, sl_op_attrs attrs)
{
    static const uint16_t widths[] = {64, 1};
    for (int i = 0; i < 2; i++) {
        attrs.element_count = attrs.in = attrs.out = widths[i];
        SL_TRY(load_kernels(sl_kernels_cuda()->ranks[which], &attrs));
    }
    return SL_OK;
}

static sl_status load_types(sl_rank_kernel which, sl_type type, sl_type grad_type)
{
    for (int adds = 0; adds < 2; adds++) {
        const sl_op_attrs attrs = {.type = (uint16_t)type,
                                   .grad_type = (uint16_t)grad_type,
                                   .adds_gradient = adds,
                                   .row_count = 1,
                                   .batch = 1};
        if (takes_types(which, type, grad_type, adds != 0))
            SL_TRY(load_widths(which, attrs));
    }
    return SL_OK;
}

/* No plan says which of them a run will launch, and they are few. */
sl_status sl_library_load_ranks(void)
{
    for (int which = 0; which < SL_RANK_KERNEL_COUNT; which++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int grad_type = 0; grad_type < SL_TYPE_COUNT; grad_type++)
                SL_TRY(load_types((sl_rank_kernel)which, (sl_type)type, (sl_type)grad_type));
    return SL_OK;
}

const char *sl_library_algorithm(const sl_kernel_library *library, uint64_t index)
{
    return library->blas ? sl_blas_text(library->blas, index) : NULL;
}

static char text[TEXT_BYTES];

static void write_text(void)
{
    snprintf(text, sizeof text, "cuda, %s", sl_blas_load_text());
}

const char *sl_library_description(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_text);
    return text;
}

const char *sl_library_lack(void)
{
    return sl_blas_load() != NULL ? NULL : SL_BLAS_COST;
}
