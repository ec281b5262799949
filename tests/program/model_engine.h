/* A model of a Hugging Face directory, from its files to an open engine, by the plainest way: for
 * tests and test tools that compare numbers. Everything on the device or everything on the host, no
 * budgets; every plan is verified before it runs.
 */
#ifndef SL_TESTS_MODEL_ENGINE_H
#define SL_TESTS_MODEL_ENGINE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/workers.h"
#include "engine/engine.h"
#include "foreign/weights.h"
#include "model/architecture.h"
#include "tensors/elements.h"

typedef struct model_engine_options {
    const char *directory;
    uint32_t batch, seq;
    uint32_t micro_batches; /* of a training step; 0: decoding with a cache */
    sl_policy policy;
    sl_accumulation accumulation;
    sl_recompute recompute;
    sl_type type, grad_type;
} model_engine_options;

typedef struct model_engine {
    model_engine_options options;
    sl_model_shape shape;
    sl_program *program;
    sl_layout *layout;
    sl_homes *homes;
    sl_plan *plan;
    sl_engine *engine;
    const int32_t *rows; /* [A, B, T + 1]: tokens of the step that runs */
} model_engine;

static inline void model_engine_close(model_engine *model)
{
    sl_engine_close(model->engine);
    sl_plan_close(model->plan);
    sl_homes_close(model->homes);
    sl_layout_close(model->layout);
    sl_program_close(model->program);
    *model = (model_engine){0};
}

/* ---- tensors inside chunks: numbers are floats outside ---- */

static inline uint64_t model_engine_first_byte(const model_engine *model, sl_group group,
                                               uint32_t tensor_index, uint64_t first_element)
{
    return (model->layout->first_element[tensor_index] + first_element) *
           sl_type_bytes(model->layout->group_type[group]);
}

static inline sl_status model_engine_read(void *user, sl_group group, uint32_t tensor_index,
                                          uint64_t first_element, uint64_t element_count,
                                          float *data)
{
    model_engine *model = user;
    sl_type type = model->layout->group_type[group];
    uint64_t bytes = element_count * sl_type_bytes(type);
    void *stored = malloc(bytes);
    if (stored == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu elements", (unsigned long long)element_count);
    sl_status status = sl_engine_read_chunk(
        model->engine, group, model->layout->chunk_of_tensor[tensor_index],
        model_engine_first_byte(model, group, tensor_index, first_element), bytes, stored);
    if (status == SL_OK)
        sl_elements_widen(type, stored, element_count, data);
    free(stored);
    return status;
}

static inline sl_status model_engine_write(void *user, sl_group group, uint32_t tensor_index,
                                           uint64_t first_element, uint64_t element_count,
                                           const float *data)
{
    model_engine *model = user;
    sl_type type = model->layout->group_type[group];
    uint64_t bytes = element_count * sl_type_bytes(type);
    if (group == SL_GROUP_PARAM && model->homes->tier[SL_GROUP_MASTER])
        SL_TRY(model_engine_write(user, SL_GROUP_MASTER, tensor_index, first_element, element_count,
                                  data));
    void *stored = malloc(bytes);
    if (stored == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu elements", (unsigned long long)element_count);
    sl_elements_round(type, data, element_count, stored);
    sl_status status = sl_engine_write_chunk(
        model->engine, group, model->layout->chunk_of_tensor[tensor_index],
        model_engine_first_byte(model, group, tensor_index, first_element), bytes, stored);
    free(stored);
    return status;
}

static inline sl_tensor_io model_engine_io(model_engine *model)
{
    sl_tensor_io io = {model_engine_read, model_engine_write, model};
    return io;
}

/* ---- opening ---- */

/* Layouts are made of the forward program, for the step is made for a layout. */
static inline sl_status model_engine_build(model_engine *model)
{
    const model_engine_options *options = &model->options;
    sl_model_options emit = {.batch = options->batch,
                             .seq = options->seq,
                             .tp_size = 1,
                             .type = options->type,
                             .grad_type = options->grad_type,
                             .mode = options->micro_batches > 0 ? SL_MODEL_LOSS : SL_MODEL_CACHED};
    sl_step_options step = {.micro_batch_count = options->micro_batches,
                            .accumulation = options->accumulation,
                            .recompute = options->recompute};
    SL_TRY(sl_model_shape_emit(&model->shape, &emit, &model->program));
    SL_TRY(sl_layout_build(model->program, 0, &model->layout));
    if (options->micro_batches == 0)
        return SL_OK;
    sl_program *forward = model->program;
    sl_chunk_map chunks = sl_layout_chunk_map(model->layout);
    model->program = NULL;
    sl_status status = sl_program_derive_step(forward, &chunks, &step, &model->program);
    sl_program_close(forward);
    return status;
}

static inline sl_status model_engine_plan(model_engine *model, const sl_engine_target *target)
{
    sl_policy_options policy = {.policy = model->options.policy};
    sl_machine machine = sl_machine_default(target->worker_count);
    sl_shortage shortage;
    SL_TRY(sl_homes_build(model->program, model->layout, &policy, &model->homes));
    sl_plan_request request = {.program = model->program,
                               .layout = model->layout,
                               .homes = model->homes,
                               .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                               .prefetch = SL_PREFETCH_AUTO,
                               .workspace = sl_engine_workspace_bytes,
                               .workspace_context = target,
                               .machine = &machine};
    SL_TRY(sl_plan_build(&request, &model->plan, &shortage));
    return sl_plan_verify(&request, model->plan);
}

/* Tokens [B, T] are the first T of each row [B, T + 1] of the micro-batch, targets the last T. */
static inline sl_status model_engine_fill(void *user, const sl_engine_fill *what, void *memory)
{
    const model_engine *model = user;
    uint32_t seq = model->options.seq, batch = model->options.batch;
    const int32_t *rows = model->rows + (size_t)what->micro_batch * batch * (seq + 1);
    for (uint32_t b = 0; b < batch; b++)
        memcpy((int32_t *)memory + (size_t)b * seq, rows + b * (seq + 1) + what->slot,
               seq * sizeof *rows);
    return SL_OK;
}

static inline sl_status model_engine_start(model_engine *model)
{
    const sl_engine_target target = {.worker_count = sl_workers_usable_cpu_count()};
    SL_TRY(sl_weights_read_config(model->options.directory, &model->shape));
    SL_TRY(model_engine_build(model));
    SL_TRY(model_engine_plan(model, &target));
    sl_engine_plan plan = {model->program, model->plan};
    const sl_engine_source source = {model_engine_fill, model};
    sl_engine_options engine = {.layout = model->layout,
                                .homes = model->homes,
                                .plans = &plan,
                                .plan_count = 1,
                                .source = &source,
                                .target = target};
    SL_TRY(sl_engine_open(&engine, &model->engine));
    sl_tensor_io io = model_engine_io(model);
    return sl_weights_import(&model->shape, model->options.directory, model->program->tensors,
                             model->program->tensor_count, &io);
}

/* Opens an engine with the weights of the directory; close it with model_engine_close. The model
 * stays where it is while it is open. */
static inline sl_status model_engine_open(const model_engine_options *options,
                                          model_engine *out_model)
{
    *out_model = (model_engine){.options = *options};
    sl_status status = model_engine_start(out_model);
    if (status != SL_OK)
        model_engine_close(out_model);
    return status;
}

/* ---- running ---- */

/* The scalars of AdamW's step `step` >= 1, as the references are made. */
static inline sl_step_scalars model_engine_scalars(uint32_t step, float learning_rate)
{
    sl_step_scalars scalars = {.learning_rate = learning_rate,
                               .weight_decay = 0.1f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .epsilon = 1e-8f,
                               .bias1 = (float)(1.0 - pow(0.9, step)),
                               .bias2_root = (float)sqrt(1.0 - pow(0.95, step)),
                               .clip = 1.0f,
                               .loss_scale = 1.0f};
    return scalars;
}

/* One training step on [A, B, T + 1] tokens; writes the mean loss and the gradient's norm. */
static inline sl_status model_engine_step(model_engine *model, const int32_t *rows,
                                          const sl_step_scalars *scalars, double *out_loss,
                                          double *out_norm)
{
    const model_engine_options *options = &model->options;
    model->rows = rows;
    SL_TRY(sl_engine_step(model->engine, 0, scalars));
    const double *loss = sl_engine_output(model->engine, 0, SL_OUTPUT_LOSS);
    const sl_step_control *control = sl_engine_output(model->engine, 0, SL_OUTPUT_CONTROL);
    *out_loss = *loss / ((double)options->micro_batches * options->batch * options->seq);
    *out_norm = control->grad_norm;
    return SL_OK;
}

/* The table of the head. */
static inline const char *model_engine_table(const sl_model_shape *shape)
{
    if (!sl_model_shape_is_llama(shape))
        return "wte.weight";
    return shape->is_untied ? "lm_head.weight" : "embed_tokens.weight";
}

/* Appends `seq` tokens to the cache, of which `position` are in it already, and copies the logits
 * [vocab] of the last one. */
static inline sl_status model_engine_decode(model_engine *model, const int32_t *tokens,
                                            uint32_t position, float *out_logits)
{
    uint32_t slot = 0;
    sl_step_scalars scalars = {.position = position, .loss_scale = 1.0f};
    sl_type type = model->options.type;
    memcpy(sl_engine_input(model->engine, 0, 0), tokens, model->options.seq * sizeof *tokens);
    SL_TRY(sl_engine_step(model->engine, 0, &scalars));
    for (uint32_t t = 0; t < model->program->tensor_count; t++) {
        const sl_tensor_spec *spec = &model->program->tensors[t];
        if (strcmp(spec->name, model_engine_table(&model->shape)) != 0)
            continue;
        const void *logits = sl_engine_output(model->engine, 0, slot++);
        sl_elements_widen(type, logits, spec->valid_rows, out_logits + spec->first_row);
    }
    return SL_OK;
}

#endif
