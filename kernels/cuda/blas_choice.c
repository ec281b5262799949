/* Describes a product to cuBLASLt and queries an algorithm. cuBLASLt is column-major: a row-major C
 * = op(A) op(B) is its column-major C^T = op(B)^T op(A)^T over the same memory, so B goes in as its
 * A, A as its B, n counts its rows, and no matrix is copied. The bias has one element a row of C^T,
 * which is what its epilogue adds; the x of a GELU is laid out as C^T. */
#include "blas_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16 };

static const char description_start[] = ", waves "; /* in the text of a choice */

sl_status sl_blas_fail(const sl_blas_functions *functions, const char *what, cublasStatus_t status)
{
    SL_FAIL(SL_ERROR_SYSTEM, "cuBLASLt refuses %.80s: %s (%d)", what,
            functions->GetStatusString(status), (int)status);
}

/* ---- what it is asked ---- */

static cudaDataType_t data_type(uint8_t type)
{
    return type == SL_TYPE_FP32 ? CUDA_R_32F : type == SL_TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The matrix of `rows` rows of `columns` elements, as columns. */
static sl_status describe_matrix(const sl_blas_functions *functions, uint8_t type, uint64_t rows,
                                 uint64_t columns, cublasLtMatrixLayout_t *out_layout)
{
    SL_BLAS_TRY(functions,
                MatrixLayoutCreate(out_layout, data_type(type), columns, rows, (int64_t)columns));
    return SL_OK;
}

/* By what the library calls them. */
static const struct {
    const char *name;
    uint32_t epilogue;
    cublasLtMatmulDescAttributes_t pointer;
} epilogues[SL_BLAS_EPILOGUE_COUNT] = {
    [SL_BLAS_PLAIN] = {"", CUBLASLT_EPILOGUE_DEFAULT, 0},
    [SL_BLAS_BIAS] = {" bias", CUBLASLT_EPILOGUE_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER},
    [SL_BLAS_GELU_BACKWARD] = {" gelu'", CUBLASLT_EPILOGUE_DGELU,
                               CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER},
};

static sl_status set_epilogue_operand(const sl_blas_functions *functions,
                                      const sl_blas_choice *choice, const void *operand)
{
    SL_BLAS_TRY(functions,
                MatmulDescSetAttribute(choice->operation, epilogues[choice->key.epilogue].pointer,
                                       &operand, sizeof operand));
    return SL_OK;
}

sl_status sl_blas_choice_point(const sl_blas_functions *functions, const sl_blas_choice *choice,
                               const sl_product *product)
{
    if (choice->key.epilogue == SL_BLAS_PLAIN)
        return SL_OK;
    return set_epilogue_operand(
        functions, choice, choice->key.epilogue == SL_BLAS_BIAS ? product->bias : product->gelu_x);
}

static sl_status describe_epilogue(const sl_blas_functions *functions, sl_blas_choice *choice)
{
    const sl_blas_key *key = &choice->key;
    const int64_t leading = (int64_t)key->n;
    const void *aligned = (const void *)(uintptr_t)ALIGNMENT; /* what the heuristic looks at */
    if (key->epilogue == SL_BLAS_PLAIN)
        return SL_OK;
    SL_BLAS_TRY(functions,
                MatmulDescSetAttribute(choice->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                       &epilogues[key->epilogue].epilogue, sizeof(uint32_t)));
    if (key->epilogue == SL_BLAS_GELU_BACKWARD)
        SL_BLAS_TRY(functions,
                    MatmulDescSetAttribute(choice->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                           &leading, sizeof leading));
    return set_epilogue_operand(functions, choice, aligned);
}

static sl_status describe_product(const sl_blas_functions *functions, sl_blas_choice *choice)
{
    const sl_blas_key *key = &choice->key;
    const bool transpose_a = key->transposes & 1, transpose_b = key->transposes & 2;
    const int32_t of_a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t of_b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    SL_BLAS_TRY(functions, MatmulDescCreate(&choice->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SL_BLAS_TRY(functions, MatmulDescSetAttribute(choice->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &of_b, sizeof of_b));
    SL_BLAS_TRY(functions, MatmulDescSetAttribute(choice->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                  &of_a, sizeof of_a));
    SL_TRY(describe_epilogue(functions, choice));
    SL_TRY(describe_matrix(functions, key->type, transpose_b ? key->n : key->k,
                           transpose_b ? key->k : key->n, &choice->a));
    SL_TRY(describe_matrix(functions, key->type, transpose_a ? key->k : key->m,
                           transpose_a ? key->m : key->k, &choice->b));
    return describe_matrix(functions, key->c_type, key->m, key->n, &choice->c);
}

/* Kinds of numbers that an algorithm may use: all but these, for what the library may yet come to
 * know has bits of its own. */
static uint64_t allowed_numbers(uint8_t type)
{
    const uint64_t half_sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
    const uint64_t short_inputs = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 |
                                  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F |
                                  CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    return ~(type == SL_TYPE_FP32 ? half_sums | short_inputs : half_sums);
}

static sl_status set_preferences(const sl_blas_functions *functions, const sl_blas_key *key,
                                 uint64_t workspace_bytes, cublasLtMatmulPreference_t preference)
{
    const uint64_t numbers = allowed_numbers(key->type);
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or no parts at all */
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_IMPL_MASK, &numbers, sizeof numbers},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_alignment, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_alignment, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->c_alignment, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->c_alignment, sizeof(uint32_t)},
    };
    for (uint32_t i = 0; i < sizeof settings / sizeof *settings; i++)
        SL_BLAS_TRY(functions, MatmulPreferenceSetAttribute(preference, settings[i].attribute,
                                                            settings[i].value, settings[i].bytes));
    return SL_OK;
}

/* ---- what it answers ---- */

/* A number of the algorithm, of 2 or 4 bytes; -1 if the library does not tell. */
static int64_t number_of(const sl_blas_functions *functions, const cublasLtMatmulAlgo_t *algorithm,
                         cublasLtMatmulAlgoConfigAttributes_t attribute, size_t bytes)
{
    uint16_t narrow = 0;
    uint32_t wide = 0;
    size_t written = 0;
    const cublasStatus_t status = functions->MatmulAlgoConfigGetAttribute(
        algorithm, attribute, bytes == sizeof narrow ? (void *)&narrow : (void *)&wide, bytes,
        &written);
    return status == CUBLAS_STATUS_SUCCESS ? (int64_t)(wide | narrow) : -1;
}

/* Writes first all that tells algorithms apart, then what only describes them. */
static void write_numbers(const sl_blas_functions *functions,
                          const cublasLtMatmulHeuristicResult_t *result, char *text, size_t room)
{
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t bytes;
    } rows[] = {
        {"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},
        {", tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
        {", stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
        {", cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
        {", parts", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
        {", scheme", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
        {", swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
        {", option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
        {", inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    };
    size_t at = 0;
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows && at < room; i++)
        at +=
            (size_t)snprintf(text + at, room - at, "%s %" PRId64, rows[i].name,
                             number_of(functions, &result->algo, rows[i].attribute, rows[i].bytes));
    if (at < room)
        snprintf(text + at, room - at, "%s%.3g, workspace %zu", description_start,
                 (double)result->wavesCount, result->workspaceSize);
}

/* Writes which product it is, and returns the length of the text. */
static size_t write_key(const sl_blas_key *key, char text[SL_BLAS_TEXT_BYTES])
{
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    return (size_t)snprintf(
        text, SL_BLAS_TEXT_BYTES,
        "%" PRIu64 "x%" PRIu64 "x%" PRIu64 " %s to %s %c%c, aligned %u %u %u%s: ", key->m, key->n,
        key->k, types[key->type], types[key->c_type], key->transposes & 1 ? 'T' : 'N',
        key->transposes & 2 ? 'T' : 'N', key->a_alignment, key->b_alignment, key->c_alignment,
        epilogues[key->epilogue].name);
}

static void write_text(const sl_blas_functions *functions, const sl_blas_key *key,
                       const cublasLtMatmulHeuristicResult_t *result, char text[SL_BLAS_TEXT_BYTES])
{
    const size_t length = write_key(key, text);
    write_numbers(functions, result, text + length, SL_BLAS_TEXT_BYTES - length);
}

static void take_own(sl_blas_choice *choice)
{
    const size_t length = write_key(&choice->key, choice->text);
    choice->is_own = true;
    snprintf(choice->text + length, SL_BLAS_TEXT_BYTES - length, "%s",
             choice->key.epilogue == SL_BLAS_GELU_BACKWARD ? "by a kernel of ours next"
                                                           : "own kernel");
}

void sl_blas_choice_take(const sl_blas_functions *functions, sl_blas_choice *choice,
                         const cublasLtMatmulHeuristicResult_t *result)
{
    choice->algorithm = result->algo;
    write_text(functions, &choice->key, result, choice->text);
}

/* Partial sums may only be added by the scheme that the preferences allow. */
static bool is_usable(const sl_blas_functions *functions, const sl_blas_choice *choice,
                      const cublasLtMatmulHeuristicResult_t *result)
{
    const int64_t scheme =
        number_of(functions, &result->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4);
    return result->state == CUBLAS_STATUS_SUCCESS &&
           result->workspaceSize <= choice->workspace_bytes &&
           (scheme <= 0 || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

static sl_status ask_heuristic(const sl_blas_functions *functions, cublasLtHandle_t handle,
                               const sl_blas_choice *choice, cublasLtMatmulPreference_t preference,
                               cublasLtMatmulHeuristicResult_t *results, uint32_t *count)
{
    int answered = 0;
    const cublasStatus_t status = functions->MatmulAlgoGetHeuristic(
        handle, choice->operation, choice->a, choice->b, choice->c, choice->c, preference,
        (int)*count, results, &answered);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED)
        return sl_blas_fail(functions, "to name an algorithm", status);
    *count = 0;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < answered; i++)
        if (is_usable(functions, choice, &results[i]))
            results[(*count)++] = results[i];
    return SL_OK;
}

sl_status sl_blas_choice_list(const sl_blas_functions *functions, cublasLtHandle_t handle,
                              const sl_blas_choice *choice,
                              cublasLtMatmulHeuristicResult_t *results, uint32_t *count)
{
    cublasLtMatmulPreference_t preference;
    SL_BLAS_TRY(functions, MatmulPreferenceCreate(&preference));
    sl_status status =
        set_preferences(functions, &choice->key, choice->workspace_bytes, preference);
    if (status == SL_OK)
        status = ask_heuristic(functions, handle, choice, preference, results, count);
    functions->MatmulPreferenceDestroy(preference);
    return status;
}

/* ---- the list of algorithms ---- */

/* The line of `list` that names an algorithm for this product; NULL: none does. */
static const char *find_line(const char *list, const sl_blas_key *key)
{
    char start[SL_BLAS_TEXT_BYTES];
    const size_t length = write_key(key, start);
    snprintf(start + length, sizeof start - length, "algorithm");
    for (const char *line = list; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, start, strlen(start)) == 0)
            return line;
    }
    return NULL;
}

static bool is_same_algorithm(const char *line, const char *text)
{
    const char *end = strstr(text, description_start);
    const size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
    return strncmp(line, text, length) == 0 && line[length] == description_start[0];
}

static sl_status choose_algorithm(const sl_blas_functions *functions, cublasLtHandle_t handle,
                                  const char *list, sl_blas_choice *choice)
{
    cublasLtMatmulHeuristicResult_t results[SL_BLAS_CANDIDATES] = {0};
    const char *line = find_line(list, &choice->key);
    uint32_t count = line != NULL ? SL_BLAS_CANDIDATES : 1;
    SL_TRY(describe_product(functions, choice));
    SL_TRY(sl_blas_choice_list(functions, handle, choice, results, &count));
    for (uint32_t i = 0; i < count && line != NULL && !choice->is_listed; i++) {
        sl_blas_choice_take(functions, choice, &results[i]);
        choice->is_listed = is_same_algorithm(line, choice->text);
    }
    choice->is_lost = line != NULL && !choice->is_listed;
    if (count == 0)
        take_own(choice);
    else if (!choice->is_listed)
        sl_blas_choice_take(functions, choice, &results[0]);
    return SL_OK;
}

sl_status sl_blas_choice_open(const sl_blas_functions *functions, cublasLtHandle_t handle,
                              const sl_blas_key *key, uint64_t workspace_bytes, const char *list,
                              sl_blas_choice **out_choice)
{
    sl_blas_choice *choice = calloc(1, sizeof *choice);
    if (choice == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a product's algorithm");
    choice->key = *key;
    choice->workspace_bytes = workspace_bytes;
    const sl_status status = choose_algorithm(functions, handle, list, choice);
    if (status != SL_OK) {
        sl_blas_choice_close(functions, choice);
        return status;
    }
    *out_choice = choice;
    return SL_OK;
}

void sl_blas_choice_close(const sl_blas_functions *functions, sl_blas_choice *choice)
{
    if (choice->operation != NULL)
        functions->MatmulDescDestroy(choice->operation);
    const cublasLtMatrixLayout_t layouts[] = {choice->a, choice->b, choice->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL)
            functions->MatrixLayoutDestroy(layouts[i]);
    free(choice);
}
