/* Models that conversions are tested with, and whether what was written is the same model. */
#ifndef SL_TESTS_CONVERT_CASE_H
#define SL_TESTS_CONVERT_CASE_H

#include "checkpoint/checkpoint_case.h"
#include "foreign/convert/convert.h"
#include "foreign/weights.h"
#include "text/text_case.h"

static const bool only_parameters[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true};

/* ---- models ---- */

/* Numbers like those of weights, some of them ties between two of fp16 and bf16. */
static inline void fill_weights(tiny_model *model, uint64_t seed)
{
    uint64_t state = seed * 2654435761u + 88172645463325252ull;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const sl_tensor_spec *spec = &model->tensors[i];
        memset(model->data[SL_GROUP_PARAM][i], 0, spec->element_count * sizeof(float));
        for (uint64_t j = 0; j < spec->valid_rows * spec->shape[1]; j++) {
            float value = (float)((double)scratch_below(&state, 1u << 24) / (1 << 25) - 0.25);
            if (j % 7 == 0)
                value = (float)((double)scratch_below(&state, 1u << 12) / (1 << 14) - 0.125);
            model->data[SL_GROUP_PARAM][i][j] = value;
        }
    }
}

static inline tiny_model *open_model(sl_model_shape shape, uint64_t seed, bool has_any_bits)
{
    tiny_model *model = tiny_open(shape);
    case_fill(model, seed);
    if (!has_any_bits)
        fill_weights(model, seed);
    return model;
}

static inline sl_status convert_with(const char *from, const char *to, sl_convert_args args)
{
    sl_model_reader reader;
    sl_convert_report report;
    SL_TRY(sl_model_reader_open(from, false, 0, &reader));
    args.reader = &reader;
    args.to = to;
    sl_status status = sl_convert_run(&args, &report);
    sl_model_reader_close(&reader);
    return status;
}

static inline void convert(const char *from, const char *to, sl_convert_format format,
                           sl_encoding encoding)
{
    must(convert_with(from, to, (sl_convert_args){.format = format, .encoding = encoding}));
}

/* Fails unless a Hugging Face directory has the parameters of a model, bit for bit. */
static inline void assert_has_model(const char *directory, const tiny_model *model)
{
    sl_model_shape shape;
    tiny_model *read = tiny_open(model->shape);
    sl_tensor_io io = tiny_io(read);
    must(sl_weights_read_config(directory, &shape));
    assert_true(sl_model_shape_is_same(&shape, &model->shape));
    must(sl_weights_import(&shape, directory, read->tensors, read->tensor_count, &io));
    assert_true(tiny_equal(model, read, only_parameters));
    tiny_close(read);
}

/* Rows of a tensor by its name, panels put together; the caller frees. */
static inline float *gather(const tiny_model *model, const char *name, uint64_t *out_rows,
                            uint64_t *out_columns)
{
    float *data = NULL;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const sl_tensor_spec *spec = &model->tensors[i];
        if (strcmp(spec->name, name) != 0)
            continue;
        *out_rows = spec->whole_shape[0];
        *out_columns = spec->shape[1];
        if (!data)
            data = calloc(*out_rows * *out_columns, sizeof *data);
        memcpy(data + spec->first_row * *out_columns, model->data[SL_GROUP_PARAM][i],
               spec->valid_rows * *out_columns * sizeof *data);
    }
    scratch_need(data != NULL, name);
    return data;
}

#endif
