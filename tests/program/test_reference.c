/* GPT-2 against PyTorch: logits, loss, every gradient, ten AdamW steps.
 *
 * What could be wrong here: a formula (GELU's form, the scale of attention, epsilon, which tensors
 * decay), an order of dimensions (q, k, v; heads; [in, out]), a tied gradient of which one use is
 * lost, a row or panel that is off by one, padding that leaks into the softmax, the division of the
 * loss over micro-batches, clipping, bias correction. The oracle is reference/small: a GPT-2 that
 * transformers agrees with, run by PyTorch in float64 from the same fp32 weights (reference/small/
 * README.md). Its shape has nothing even, two panels of wte and padding.
 *
 * Tolerances. Loss, gradient norm and logits: 1e-5, where fp32 rounding through this depth gives
 * 1e-7 to 1e-6. Gradients: ||a - b|| <= max(1e-5, 2 e) ||b||, e what PyTorch's own fp32 has; e is
 * below 1e-6 for all. Weights after ten steps: element by element the bound of the file, which
 * make_reference.py derives (class WeightBound) from that gradient error, AdamW's formula and
 * float64's second moments. The key bias is left out: a key bias b adds q.b to all scores of a
 * query alike, softmax does not see it, so its true gradient is zero, what is computed is rounding,
 * and AdamW makes steps of the full learning rate of it.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "files/safetensors.h"
#include "model_engine.h"

#define DIRECTORY SL_TEST_SOURCE_DIRECTORY "/reference/small"

enum { BATCH = 2, SEQ = 17, MICRO_BATCHES = 2, STEPS = 10, ROW_TOKENS = SEQ + 1, VOCAB = 301 };
enum { MICRO_BATCH_TOKENS = BATCH * ROW_TOKENS, STEP_TOKENS = MICRO_BATCHES * MICRO_BATCH_TOKENS };
enum { PARAMETERS = 40 }; /* whole tensors: 2 embeddings, 3 * 12 of blocks, 2 of the last norm */

static const double tolerance = 1e-5;

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != SL_OK) {                                                                     \
            fail_msg("%s: %s", #call, sl_status_message());                                        \
            abort(); /* never reached, which the compiler does not see */                          \
        }                                                                                          \
    } while (0)

/* ---- the reference ---- */

static sl_safetensors *open_reference(const char *name)
{
    sl_safetensors *file;
    assert_ok(sl_safetensors_open(AT_FDCWD, NULL, name, SL_LINKS_FOLLOW, &file));
    return file;
}

/* The data of a tensor as the file has it, of the type expected; release with free(). */
static void *read_raw(const sl_safetensors *file, const char *name, sl_dtype dtype,
                      uint64_t *out_count)
{
    const sl_safetensors_tensor *tensor = sl_safetensors_find(file, name);
    if (tensor == NULL)
        fail_msg("%s is not in %s", name, file->file.path);
    assert_int_equal(tensor->dtype, dtype);
    void *data = malloc(tensor->byte_count);
    assert_non_null(data);
    assert_ok(sl_files_read_at(&file->file, tensor->first_byte, tensor->byte_count, data));
    *out_count = tensor->element_count;
    return data;
}

static double *read_doubles(const sl_safetensors *file, const char *name, uint64_t expected_count)
{
    uint64_t count;
    double *data = read_raw(file, name, SL_DTYPE_F64, &count);
    assert_int_equal(count, expected_count);
    return data;
}

static int32_t *read_tokens(void)
{
    uint64_t count;
    sl_safetensors *file = open_reference(DIRECTORY "/tokens.safetensors");
    int32_t *tokens = read_raw(file, "tokens", SL_DTYPE_I32, &count);
    assert_int_equal(count, STEPS * STEP_TOKENS);
    sl_safetensors_close(file);
    return tokens;
}

/* ---- the model's tensors ---- */

static uint64_t count_elements(const model_engine *model, const char *name)
{
    for (uint32_t t = 0; t < model->program->tensor_count; t++) {
        const sl_tensor_spec *spec = &model->program->tensors[t];
        if (strcmp(spec->name, name) == 0)
            return spec->whole_shape[0] * spec->whole_shape[1];
    }
    fail_msg("the model has no %s", name);
    return 0;
}

/* Reads rows of a panel to where they are in the whole; what lies behind them must be zero. */
static void gather_panel(model_engine *model, sl_group group, uint32_t tensor_index, float *whole)
{
    const sl_tensor_spec *spec = &model->program->tensors[tensor_index];
    uint64_t valid = spec->valid_rows * spec->shape[1];
    float *panel = malloc(spec->element_count * sizeof *panel);
    assert_non_null(panel);
    assert_ok(model_engine_read(model, group, tensor_index, 0, spec->element_count, panel));
    memcpy(whole + spec->first_row * spec->shape[1], panel, valid * sizeof *panel);
    for (uint64_t i = valid; i < spec->element_count; i++)
        assert_true(panel[i] == 0.0f);
    free(panel);
}

/* A whole tensor of `group`; release with free(). */
static float *gather(model_engine *model, sl_group group, const char *name, uint64_t *out_count)
{
    *out_count = count_elements(model, name);
    float *whole = malloc(*out_count * sizeof *whole);
    assert_non_null(whole);
    for (uint32_t t = 0; t < model->program->tensor_count; t++)
        if (strcmp(model->program->tensors[t].name, name) == 0)
            gather_panel(model, group, t, whole);
    return whole;
}

static bool is_key_bias(const char *name, uint64_t i, uint64_t count)
{
    const char *end = strstr(name, "attn.c_attn.bias");
    return end != NULL && i >= count / 3 && i < count / 3 * 2;
}

/* ---- comparing ---- */

static void assert_near(const char *what, uint32_t step, double value, double expected)
{
    double error = fabs(value - expected) / fabs(expected);
    if (!(error <= tolerance))
        fail_msg("%s of step %u: %.9g, PyTorch has %.9g: off by %.2g", what, step, value, expected,
                 error);
}

static double relative_error(const char *name, const float *values, const double *expected,
                             uint64_t count)
{
    double difference = 0.0, norm = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        if (is_key_bias(name, i, count))
            continue;
        difference += (values[i] - expected[i]) * (values[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

static double compare_gradient(model_engine *model, const sl_safetensors *file, const char *name)
{
    char key[128];
    uint64_t count;
    float *gradient = gather(model, SL_GROUP_GRAD, name, &count);
    snprintf(key, sizeof key, "gradient.%s", name);
    double *expected = read_doubles(file, key, count);
    snprintf(key, sizeof key, "torch_error.%s", name);
    double *torch_error = read_doubles(file, key, 1);
    double error = relative_error(name, gradient, expected, count);
    double limit = fmax(tolerance, 2.0 * *torch_error);
    if (!(error <= limit))
        fail_msg("gradient of %s: off by %.3g of its norm, PyTorch's fp32 by %.3g", name, error,
                 *torch_error);
    free(gradient);
    free(expected);
    free(torch_error);
    return error;
}

static const char *strip(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

/* ---- gradients ---- */

/* The first micro-batch alone, in a program of the given kind. */
static void check_gradients(sl_accumulation accumulation, sl_recompute recompute, sl_policy policy)
{
    model_engine model;
    model_engine_options options = {DIRECTORY, BATCH, SEQ, 1, policy, accumulation, recompute};
    sl_safetensors *file = open_reference(DIRECTORY "/gradients.safetensors");
    sl_step_scalars scalars = model_engine_scalars(1, 0.0f);
    int32_t *tokens = read_tokens();
    double *expected_loss = read_doubles(file, "loss", 1), loss, norm, worst = 0.0;
    uint32_t compared = 0;
    assert_ok(model_engine_open(&options, &model));
    assert_ok(model_engine_step(&model, tokens, &scalars, &loss, &norm));
    assert_near("loss", 1, loss, *expected_loss);
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = strip(file->tensors[i].name, "gradient.");
        if (name == NULL)
            continue;
        worst = fmax(worst, compare_gradient(&model, file, name));
        compared++;
    }
    printf("%u gradients, the worst off by %.2g\n", compared, worst);
    assert_int_equal(compared, PARAMETERS);
    model_engine_close(&model);
    free(expected_loss);
    free(tokens);
    sl_safetensors_close(file);
}

static void gradients_when_everything_is_on_the_device_then_as_pytorchs(void **state)
{
    (void)state;
    check_gradients(SL_ACCUMULATE_MICRO, SL_RECOMPUTE_NONE, SL_POLICY_DEVICE);
}

static void gradients_when_recomputed_layer_by_layer_from_the_host_then_as_pytorchs(void **state)
{
    (void)state;
    check_gradients(SL_ACCUMULATE_LAYER, SL_RECOMPUTE_FULL, SL_POLICY_HOST);
}

/* ---- logits ---- */

static double largest_difference(const float *values, const double *expected, double *out_largest)
{
    double difference = 0.0, largest = 0.0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        difference = fmax(difference, fabs(values[i] - expected[i]));
        largest = fmax(largest, fabs(expected[i]));
    }
    *out_largest = largest;
    return difference;
}

static void compare_logits(const float *logits, const double *expected, uint32_t position)
{
    double largest, difference = largest_difference(logits, expected, &largest);
    if (!(difference <= tolerance * largest))
        fail_msg("logits of token %u: off by %.3g, the largest is %.3g", position, difference,
                 largest);
}

/* Each row in pieces of `seq` tokens through the cache; only the last token of a piece answers. */
static void check_logits(uint32_t seq)
{
    model_engine model;
    model_engine_options options = {.directory = DIRECTORY, .batch = 1, .seq = seq};
    sl_safetensors *file = open_reference(DIRECTORY "/gradients.safetensors");
    double *expected = read_doubles(file, "logits", (uint64_t)BATCH * SEQ * VOCAB);
    int32_t *tokens = read_tokens();
    float logits[VOCAB];
    assert_ok(model_engine_open(&options, &model));
    assert_int_equal(model.shape.vocab, VOCAB);
    for (uint32_t b = 0; b < BATCH; b++) {
        assert_ok(sl_engine_clear_persistent(model.engine));
        for (uint32_t t = 0; t + seq <= SEQ; t += seq) {
            assert_ok(model_engine_decode(&model, tokens + b * ROW_TOKENS + t, t, logits));
            compare_logits(logits, expected + (b * SEQ + t + seq - 1) * VOCAB, t + seq - 1);
        }
    }
    model_engine_close(&model);
    free(tokens);
    free(expected);
    sl_safetensors_close(file);
}

static void logits_when_decoded_token_by_token_then_as_pytorchs(void **state)
{
    (void)state;
    check_logits(1);
}

static void logits_when_decoded_five_tokens_at_a_time_then_as_pytorchs(void **state)
{
    (void)state;
    check_logits(5);
}

static void logits_when_a_row_is_read_at_once_then_as_pytorchs(void **state)
{
    (void)state;
    check_logits(SEQ);
}

/* ---- ten steps ---- */

/* The largest share of its bound that an element uses. */
static double compare_weight(model_engine *model, const sl_safetensors *file, const char *name)
{
    char key[128];
    uint64_t count, bound_count;
    float *weight = gather(model, SL_GROUP_PARAM, name, &count);
    snprintf(key, sizeof key, "weight.%s", name);
    double *expected = read_doubles(file, key, count), worst = 0.0;
    snprintf(key, sizeof key, "bound.%s", name);
    float *bound = read_raw(file, key, SL_DTYPE_F32, &bound_count);
    assert_int_equal(bound_count, count);
    for (uint64_t i = 0; i < count; i++) {
        double difference = fabs(weight[i] - expected[i]);
        if (is_key_bias(name, i, count))
            continue;
        if (!(difference <= bound[i]))
            fail_msg("%s[%llu] after %d steps: %.9g, PyTorch has %.9g; they may differ by %.3g",
                     name, (unsigned long long)i, STEPS, weight[i], expected[i], bound[i]);
        worst = fmax(worst, difference / bound[i]);
    }
    free(weight);
    free(expected);
    free(bound);
    return worst;
}

static void compare_weights(model_engine *model, const sl_safetensors *file)
{
    uint32_t compared = 0;
    double worst = 0.0;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = strip(file->tensors[i].name, "weight.");
        if (name == NULL)
            continue;
        worst = fmax(worst, compare_weight(model, file, name));
        compared++;
    }
    printf("%u tensors after %d steps, the worst element at %.2g of its bound\n", compared, STEPS,
           worst);
    assert_int_equal(compared, PARAMETERS);
}

static void check_steps(sl_policy policy)
{
    model_engine model;
    model_engine_options options = {
        .directory = DIRECTORY, .batch = BATCH, .seq = SEQ, .micro_batches = 2, .policy = policy};
    sl_safetensors *file = open_reference(DIRECTORY "/steps.safetensors");
    double *losses = read_doubles(file, "losses", STEPS), loss, norm;
    double *norms = read_doubles(file, "gradient_norms", STEPS);
    int32_t *tokens = read_tokens();
    assert_ok(model_engine_open(&options, &model));
    for (uint32_t step = 1; step <= STEPS; step++) {
        sl_step_scalars scalars = model_engine_scalars(step, 1e-3f);
        const int32_t *rows = tokens + (step - 1) * STEP_TOKENS;
        assert_ok(model_engine_step(&model, rows, &scalars, &loss, &norm));
        assert_near("loss", step, loss, losses[step - 1]);
        assert_near("gradient norm", step, norm, norms[step - 1]);
    }
    compare_weights(&model, file);
    model_engine_close(&model);
    free(losses);
    free(norms);
    free(tokens);
    sl_safetensors_close(file);
}

static void ten_steps_when_everything_is_on_the_device_then_as_pytorchs(void **state)
{
    (void)state;
    check_steps(SL_POLICY_DEVICE);
}

static void ten_steps_when_everything_is_on_the_host_then_as_pytorchs(void **state)
{
    (void)state;
    check_steps(SL_POLICY_HOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_everything_is_on_the_device_then_as_pytorchs),
        cmocka_unit_test(gradients_when_recomputed_layer_by_layer_from_the_host_then_as_pytorchs),
        cmocka_unit_test(logits_when_decoded_token_by_token_then_as_pytorchs),
        cmocka_unit_test(logits_when_decoded_five_tokens_at_a_time_then_as_pytorchs),
        cmocka_unit_test(logits_when_a_row_is_read_at_once_then_as_pytorchs),
        cmocka_unit_test(ten_steps_when_everything_is_on_the_device_then_as_pytorchs),
        cmocka_unit_test(ten_steps_when_everything_is_on_the_host_then_as_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
