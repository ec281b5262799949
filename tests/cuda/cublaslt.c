/* The objects of the stand-in for cuBLASLt, and what tests may ask of it. */
#include "cublaslt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublaslt_objects.h"

enum { FUNCTIONS_MAX = 32, TEXT_BYTES = 256 };

typedef struct function_state {
    const char *name;
    uint64_t calls, fails_at;
    cublasStatus_t status;
} function_state;

static struct {
    function_state functions[FUNCTIONS_MAX];
    uint32_t function_count;
    uint64_t live, faults;
    char first_fault[TEXT_BYTES];
    bool is_hidden, refuses_odd, refuses_gelu;
    uint32_t offered; /* 0: as the environment says */
    uint32_t fastest; /* 1 + its index; 0: as the environment says */
    standin_blas_fault fault[STANDIN_BLAS_ALGORITHMS];
    uint64_t launches;
} state;

/* ---- control ---- */

cublasStatus_t standin_blas_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (state.faults++ == 0)
        vsnprintf(state.first_fault, sizeof state.first_fault, format, arguments);
    va_end(arguments);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static function_state *find_function(const char *name)
{
    for (uint32_t i = 0; i < state.function_count; i++)
        if (strcmp(state.functions[i].name, name) == 0)
            return &state.functions[i];
    if (state.function_count == FUNCTIONS_MAX)
        abort();
    function_state *found = &state.functions[state.function_count++];
    *found = (function_state){.name = name};
    return found;
}

void standin_blas_reset(void)
{
    const uint64_t live = state.live;
    memset(&state, 0, sizeof state);
    state.live = live;
    if (live > 0)
        standin_blas_refuse("%llu objects of cuBLASLt are still open", (unsigned long long)live);
}

void standin_blas_hide(bool is_hidden)
{
    state.is_hidden = is_hidden;
}

bool standin_blas_is_hidden(void)
{
    return state.is_hidden || getenv("STANDIN_NO_BLAS") != NULL;
}

void standin_blas_refuse_odd(bool refuses)
{
    state.refuses_odd = refuses;
}

bool standin_blas_refuses_odd(void)
{
    return state.refuses_odd;
}

void standin_blas_refuse_gelu(bool refuses)
{
    state.refuses_gelu = refuses;
}

bool standin_blas_refuses_gelu(void)
{
    return state.refuses_gelu;
}

static uint32_t read_number(const char *variable, uint32_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

void standin_blas_offer(uint32_t count)
{
    state.offered = count;
}

uint32_t standin_blas_offered(void)
{
    return state.offered != 0 ? state.offered : read_number("STANDIN_BLAS_OFFERS", 1);
}

void standin_blas_plant(uint32_t index, standin_blas_fault fault)
{
    state.fault[index] = fault;
}

standin_blas_fault standin_blas_fault_of(uint32_t index)
{
    return state.fault[index];
}

void standin_blas_prefer(uint32_t index)
{
    state.fastest = index + 1;
}

uint32_t standin_blas_slow_us(uint32_t index)
{
    enum { SLOW_US = 4000 };
    const uint32_t fastest =
        state.fastest != 0 ? state.fastest - 1 : read_number("STANDIN_BLAS_FASTEST", UINT32_MAX);
    return fastest == UINT32_MAX || fastest == index ? 0 : SLOW_US;
}

double standin_blas_factor(uint32_t index)
{
    const double own = 1 + index * 0x1p-18;
    if (state.fault[index] == STANDIN_BLAS_IS_OFF)
        return 1.1;
    if (state.fault[index] == STANDIN_BLAS_CHANGES_BITS)
        return own + (double)(++state.launches % 2) * 0x1p-8;
    return own;
}

void standin_blas_fail_call(const char *name, uint64_t nth, int status)
{
    function_state *function = find_function(name);
    function->fails_at = function->calls + nth;
    function->status = (cublasStatus_t)status;
}

uint64_t standin_blas_calls(const char *name)
{
    return find_function(name)->calls;
}

uint64_t standin_blas_live(void)
{
    return state.live;
}

uint64_t standin_blas_faults(const char **out_first)
{
    if (out_first != NULL)
        *out_first = state.first_fault;
    return state.faults;
}

cublasStatus_t standin_blas_enter(const char *name)
{
    function_state *function = find_function(name);
    return ++function->calls == function->fails_at ? function->status : CUBLAS_STATUS_SUCCESS;
}

/* ---- objects ---- */

static cublasStatus_t open_object(uint64_t bytes, void *out_object)
{
    void *object = calloc(1, bytes);
    if (object == NULL)
        abort();
    memcpy(out_object, &object, sizeof object);
    state.live++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t close_object(void *object)
{
    if (object == NULL)
        return standin_blas_refuse("NULL is closed");
    free(object);
    state.live--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lightHandle)
{
    ENTER();
    open_object(sizeof **lightHandle, lightHandle);
    (*lightHandle)->mark = STANDIN_BLAS_MARK;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle)
{
    ENTER();
    return close_object(lightHandle);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "as the test asked, or a fault";
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matLayout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    ENTER();
    if (rows == 0 || cols == 0 || ld < 0 || (uint64_t)ld < rows)
        return standin_blas_refuse("a matrix of %llu rows, %llu columns, %lld between them",
                                   (unsigned long long)rows, (unsigned long long)cols,
                                   (long long)ld);
    if (type != CUDA_R_32F && type != CUDA_R_16F && type != CUDA_R_16BF)
        return standin_blas_refuse("a matrix of type %d", (int)type);
    open_object(sizeof **matLayout, matLayout);
    const standin_layout layout = {rows, cols, (uint64_t)ld, (uint64_t)type};
    memcpy(*matLayout, &layout, sizeof layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout)
{
    ENTER();
    return close_object(matLayout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType)
{
    ENTER();
    open_object(sizeof **matmulDesc, matmulDesc);
    const standin_operation operation = {.epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                         .compute = (uint32_t)computeType,
                                         .scale = (uint32_t)scaleType};
    memcpy(*matmulDesc, &operation, sizeof operation);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc)
{
    ENTER();
    return close_object(matmulDesc);
}

static cublasStatus_t set_attribute(int attribute, void *to, size_t bytes, const void *from,
                                    size_t given_bytes)
{
    if (from == NULL || given_bytes != bytes)
        return standin_blas_refuse("attribute %d of %zu bytes, not %zu", attribute, given_bytes,
                                   bytes);
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t sizeInBytes)
{
    ENTER();
    standin_operation *o = (standin_operation *)matmulDesc;
    const struct {
        int attribute;
        void *to;
        size_t bytes;
    } rows[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &o->transpose_a, sizeof o->transpose_a},
                {CUBLASLT_MATMUL_DESC_TRANSB, &o->transpose_b, sizeof o->transpose_b},
                {CUBLASLT_MATMUL_DESC_EPILOGUE, &o->epilogue, sizeof o->epilogue},
                {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias},
                {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->gelu_x, sizeof o->gelu_x},
                {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &o->gelu_leading, sizeof o->gelu_leading}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].attribute == (int)attr)
            return set_attribute((int)attr, rows[i].to, rows[i].bytes, buf, sizeInBytes);
    return standin_blas_refuse("attribute %d of an operation", (int)attr);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    ENTER();
    open_object(sizeof **pref, pref);
    const standin_preference preference = {.numbers = UINT64_MAX,
                                           .schemes = CUBLASLT_REDUCTION_SCHEME_MASK,
                                           .alignment = {256, 256, 256, 256}};
    memcpy(*pref, &preference, sizeof preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    ENTER();
    return close_object(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t sizeInBytes)
{
    ENTER();
    standin_preference *p = (standin_preference *)pref;
    const int first = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if ((int)attr >= first && (int)attr < first + 4)
        return set_attribute((int)attr, &p->alignment[(int)attr - first], sizeof(uint32_t), buf,
                             sizeInBytes);
    switch ((int)attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set_attribute((int)attr, &p->workspace_bytes, sizeof(uint64_t), buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set_attribute((int)attr, &p->schemes, sizeof(uint32_t), buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return set_attribute((int)attr, &p->numbers, sizeof(uint64_t), buf, sizeInBytes);
    default:
        return standin_blas_refuse("attribute %d of a preference", (int)attr);
    }
}
