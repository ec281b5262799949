/* The tensors of a small model and a place to keep them: what readers and writers of weights are
 * tested with, without an engine. Those of a GPT-2 are written down here, those of other
 * architectures, and of a GPT-2 with adapters, are of the program that the model room emits.
 *
 * wte is cut into panels of 128 rows and padded to a multiple of 128, as the engine does.
 */
#ifndef SL_TESTS_TINY_MODEL_H
#define SL_TESTS_TINY_MODEL_H

#include "model/architecture.h"
#include "scratch_dir.h"
#include "tensors/tensor_io.h"

enum { TINY_TENSORS_MAX = 256, TINY_PANEL_ROWS = 128 };

typedef struct tiny_model {
    sl_model_shape shape;
    sl_tensor_spec tensors[TINY_TENSORS_MAX];
    uint32_t tensor_count;
    float *data[SL_GROUP_COUNT][TINY_TENSORS_MAX];
    uint64_t write_count; /* elements written through the sink */
    uint64_t calls;       /* of read and write */
    uint64_t fail_call;   /* this call fails; 0: none */
} tiny_model;

static inline void tiny_add(tiny_model *model, const char *name, uint32_t dim_count, uint64_t rows,
                            uint64_t columns)
{
    scratch_need(model->tensor_count < TINY_TENSORS_MAX, "too many tensors");
    sl_tensor_spec *spec = &model->tensors[model->tensor_count++];
    *spec = (sl_tensor_spec){.dim_count = dim_count,
                             .shape = {rows, columns},
                             .valid_rows = rows,
                             .whole_shape = {rows, columns},
                             .element_count = rows * columns};
    snprintf(spec->name, sizeof spec->name, "%s", name);
}

static inline void tiny_add_layer(tiny_model *model, uint32_t layer)
{
    uint64_t width = model->shape.width;
    const struct {
        const char *name;
        uint32_t dim_count;
        uint64_t rows, columns;
    } rows[] = {
        {"ln_1.weight", 1, width, 1},
        {"ln_1.bias", 1, width, 1},
        {"attn.c_attn.weight", 2, width, 3 * width},
        {"attn.c_attn.bias", 1, 3 * width, 1},
        {"attn.c_proj.weight", 2, width, width},
        {"attn.c_proj.bias", 1, width, 1},
        {"ln_2.weight", 1, width, 1},
        {"ln_2.bias", 1, width, 1},
        {"mlp.c_fc.weight", 2, width, 4 * width},
        {"mlp.c_fc.bias", 1, 4 * width, 1},
        {"mlp.c_proj.weight", 2, 4 * width, width},
        {"mlp.c_proj.bias", 1, width, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[48];
        snprintf(name, sizeof name, "h.%u.%s", layer, rows[i].name);
        tiny_add(model, name, rows[i].dim_count, rows[i].rows, rows[i].columns);
    }
}

static inline void tiny_add_embedding(tiny_model *model)
{
    uint64_t vocab = model->shape.vocab;
    for (uint64_t row = 0; row < vocab; row += TINY_PANEL_ROWS) {
        tiny_add(model, "wte.weight", 2, TINY_PANEL_ROWS, model->shape.width);
        sl_tensor_spec *spec = &model->tensors[model->tensor_count - 1];
        spec->first_row = row;
        spec->valid_rows = vocab - row < TINY_PANEL_ROWS ? vocab - row : TINY_PANEL_ROWS;
        spec->whole_shape[0] = vocab;
    }
}

static inline void tiny_add_gpt2(tiny_model *model)
{
    const sl_model_shape *shape = &model->shape;
    tiny_add_embedding(model);
    tiny_add(model, "wpe.weight", 2, shape->context, shape->width);
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        tiny_add_layer(model, layer);
    tiny_add(model, "ln_f.weight", 1, shape->width, 1);
    tiny_add(model, "ln_f.bias", 1, shape->width, 1);
}

static inline void tiny_add_emitted(tiny_model *model)
{
    const sl_model_options options = {.batch = 1, .seq = 1, .tp_size = 1};
    sl_program *program = NULL;
    const sl_status status = sl_model_shape_emit(&model->shape, &options, &program);
    scratch_need(status == SL_OK && program->tensor_count <= TINY_TENSORS_MAX, "a program");
    memcpy(model->tensors, program->tensors, program->tensor_count * sizeof *program->tensors);
    model->tensor_count = program->tensor_count;
    sl_program_close(program);
}

/* Declares all tensors and takes memory for parameters and moments, filled with 0xEE. */
static inline tiny_model *tiny_open(sl_model_shape shape)
{
    tiny_model *model = calloc(1, sizeof *model);
    scratch_need(model != NULL, "memory");
    model->shape = shape;
    if (sl_model_shape_is_llama(&shape) || shape.lora.rank > 0)
        tiny_add_emitted(model);
    else
        tiny_add_gpt2(model);
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; i < model->tensor_count; i++) {
            size_t bytes = model->tensors[i].element_count * sizeof(float);
            model->data[group][i] = malloc(bytes);
            scratch_need(model->data[group][i] != NULL, "memory");
            memset(model->data[group][i], 0xEE, bytes);
        }
    }
    return model;
}

static inline void tiny_close(tiny_model *model)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0; i < model->tensor_count; i++)
            free(model->data[group][i]);
    free(model);
}

/* Random bits in every valid element (NaNs, infinities and all), zeros in the padding. */
static inline void tiny_fill(tiny_model *model, uint64_t seed)
{
    uint64_t state = seed * 2654435761u + 88172645463325252ull;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; i < model->tensor_count; i++) {
            const sl_tensor_spec *spec = &model->tensors[i];
            uint64_t valid = spec->valid_rows * spec->shape[1];
            memset(model->data[group][i], 0, spec->element_count * sizeof(float));
            for (uint64_t j = 0; j < valid; j++) {
                uint32_t bits = (uint32_t)(scratch_draw(&state) >> 32);
                memcpy(&model->data[group][i][j], &bits, sizeof bits);
            }
        }
    }
}

static inline int tiny_equal(const tiny_model *a, const tiny_model *b, const bool *has_state)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0; has_state[group] && i < a->tensor_count; i++)
            if (memcmp(a->data[group][i], b->data[group][i],
                       a->tensors[i].element_count * sizeof(float)) != 0)
                return 0;
    return 1;
}

static inline sl_status tiny_touch(tiny_model *model, uint32_t tensor, uint64_t first,
                                   uint64_t count)
{
    scratch_need(tensor < model->tensor_count && count > 0 &&
                     first + count <= model->tensors[tensor].element_count,
                 "a piece outside its tensor");
    return ++model->calls == model->fail_call ? SL_ERROR_RANK : SL_OK;
}

static inline sl_status tiny_read(void *user, sl_group group, uint32_t tensor, uint64_t first,
                                  uint64_t count, float *data)
{
    tiny_model *model = user;
    sl_status status = tiny_touch(model, tensor, first, count);
    if (status == SL_OK)
        memcpy(data, model->data[group][tensor] + first, count * sizeof(float));
    return status;
}

static inline sl_status tiny_write(void *user, sl_group group, uint32_t tensor, uint64_t first,
                                   uint64_t count, const float *data)
{
    tiny_model *model = user;
    sl_status status = tiny_touch(model, tensor, first, count);
    if (status == SL_OK)
        memcpy(model->data[group][tensor] + first, data, count * sizeof(float));
    model->write_count += count;
    return status;
}

static inline sl_tensor_io tiny_io(tiny_model *model)
{
    return (sl_tensor_io){.read = tiny_read, .write = tiny_write, .user = model};
}

#endif
