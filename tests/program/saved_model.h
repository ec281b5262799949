/* A model that transformers saved, on the engine: its logits, loss and gradients against those of
 * transformers in float64, which lie beside it in gradients.safetensors (compare_llama.py
 * --fixture).
 *
 * Tolerances: 1e-5 of the largest element, where fp32 rounding through this depth gives 1e-6.
 */
#ifndef SL_TESTS_SAVED_MODEL_H
#define SL_TESTS_SAVED_MODEL_H

#include <fcntl.h>
#include <stdio.h>

#include "files/safetensors.h"
#include "model_engine.h"

enum { BATCH = 2, SEQ = 11 };

static const double tolerance = 1e-5;

static inline void must_be_ok(sl_status status)
{
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
}

typedef struct reference {
    char directory[512];
    sl_safetensors *file;
} reference;

static inline reference open_reference(const char *name)
{
    reference self;
    char path[sizeof self.directory + sizeof "/gradients.safetensors"];
    snprintf(self.directory, sizeof self.directory, SL_TEST_SOURCE_DIRECTORY "/reference/llama/%s",
             name);
    snprintf(path, sizeof path, "%s/gradients.safetensors", self.directory);
    must_be_ok(sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &self.file));
    return self;
}

static inline float *read_floats(const reference *self, const char *name, uint64_t *out_count)
{
    const sl_safetensors_tensor *tensor = sl_safetensors_find(self->file, name);
    if (!tensor)
        fail_msg("%s is not in %s", name, self->directory);
    float *data = calloc(tensor->element_count, sizeof *data);
    assert_non_null(data);
    must_be_ok(sl_safetensors_read(self->file, tensor, 0, tensor->element_count, data));
    *out_count = tensor->element_count;
    return data;
}

static inline int32_t *read_tokens(const reference *self)
{
    const sl_safetensors_tensor *tensor = sl_safetensors_find(self->file, "tokens");
    assert_non_null(tensor);
    assert_int_equal(tensor->element_count, BATCH * (SEQ + 1));
    int32_t *tokens = malloc(tensor->byte_count);
    assert_non_null(tokens);
    must_be_ok(sl_files_read_at(&self->file->file, tensor->first_byte, tensor->byte_count, tokens));
    return tokens;
}

/* The largest difference, relative to the largest element. */
static inline double find_error(const float *values, const float *expected, uint64_t count)
{
    double difference = 0, largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        difference = fmax(difference, fabs((double)values[i] - (double)expected[i]));
        largest = fmax(largest, fabs((double)expected[i]));
    }
    return difference / largest;
}

/* Each table of these models is one panel. */
static inline double compare_gradient(model_engine *model, const reference *self, uint32_t index)
{
    char name[64];
    uint64_t count;
    const sl_tensor_spec *spec = &model->program->tensors[index];
    float *gradient = calloc(spec->element_count, sizeof *gradient);
    assert_non_null(gradient);
    must_be_ok(model_engine_read(model, SL_GROUP_GRAD, index, 0, spec->element_count, gradient));
    snprintf(name, sizeof name, "gradient.%s", spec->name);
    float *expected = read_floats(self, name, &count);
    assert_int_equal(count, spec->valid_rows * spec->shape[1]);
    const double error = find_error(gradient, expected, count);
    if (!(error <= tolerance))
        fail_msg("%s: the gradient of %s is off by %.2g", self->directory, spec->name, error);
    free(gradient);
    free(expected);
    return error;
}

static inline void check_gradients(const char *name, sl_recompute recompute, sl_policy policy)
{
    model_engine model;
    reference self = open_reference(name);
    const model_engine_options options = {self.directory,      BATCH,    SEQ, 1, policy,
                                          SL_ACCUMULATE_LAYER, recompute};
    const sl_step_scalars scalars = model_engine_scalars(1, 0.0f);
    int32_t *tokens = read_tokens(&self);
    uint64_t count;
    float *expected = read_floats(&self, "loss", &count);
    double loss = 0, norm = 0, worst = 0;
    must_be_ok(model_engine_open(&options, &model));
    must_be_ok(model_engine_step(&model, tokens, &scalars, &loss, &norm));
    if (!(fabs(loss / (double)*expected - 1) <= tolerance))
        fail_msg("%s: loss %.9g, transformers has %.9g", name, loss, (double)*expected);
    for (uint32_t t = 0; t < model.program->tensor_count; t++)
        worst = fmax(worst, compare_gradient(&model, &self, t));
    printf("%s: %u gradients, the worst off by %.2g\n", name, model.program->tensor_count, worst);
    model_engine_close(&model);
    sl_safetensors_close(self.file);
    free(expected);
    free(tokens);
}

static inline void check_logits(const char *name)
{
    model_engine model;
    reference self = open_reference(name);
    const model_engine_options options = {.directory = self.directory, .batch = 1, .seq = 1};
    int32_t *tokens = read_tokens(&self);
    uint64_t count;
    float *expected = read_floats(&self, "logits", &count);
    must_be_ok(model_engine_open(&options, &model));
    const uint32_t vocab = model.shape.vocab;
    float *logits = calloc(vocab, sizeof *logits);
    assert_int_equal(count, BATCH * SEQ * (uint64_t)vocab);
    for (uint32_t i = 0; i < BATCH * SEQ; i++) {
        const uint32_t row = i / SEQ, at = i % SEQ;
        if (at == 0)
            must_be_ok(sl_engine_clear_persistent(model.engine));
        must_be_ok(model_engine_decode(&model, tokens + row * (SEQ + 1) + at, at, logits));
        const double error = find_error(logits, expected + (uint64_t)i * vocab, vocab);
        if (!(error <= tolerance))
            fail_msg("%s: logits of token %u of row %u are off by %.2g", name, at, row, error);
    }
    model_engine_close(&model);
    sl_safetensors_close(self.file);
    free(logits);
    free(expected);
    free(tokens);
}

static inline void check_all(const char *name)
{
    check_gradients(name, SL_RECOMPUTE_NONE, SL_POLICY_DEVICE);
    check_gradients(name, SL_RECOMPUTE_FULL, SL_POLICY_HOST);
    check_logits(name);
}

#endif
