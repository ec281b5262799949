/* dump_gradients MODEL TOKENS OUT [bf16|fp16]: one step with learning rate 0 of the GPT-2 in
 * directory MODEL on the rows of TOKENS (safetensors, "tokens" I32 [A, B, T + 1]: A micro-batches),
 * and what it computes as a safetensors file OUT that was not there before: "loss" [1],
 * "gradient_norm" [1], "logits" [A * B * T, vocab] through the cache token by token,
 * "gradient.NAME" in full and unpadded.
 *
 * In fp16 the loss is scaled by LOSS_SCALE on the way back, and gradients are divided by it.
 *
 * For reference/compare_gpt2.py; no test of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>

#include "files/safetensors.h"
#include "program/model_engine.h"
#include "tensors/full_tensors.h"

typedef struct dump_job {
    int32_t *rows; /* [A, B, T + 1] */
    uint32_t micro_batches, batch, seq;
    float *logits; /* [A * B * T, vocab] */
    uint32_t vocab;
    float loss, norm;
    sl_type type;
} dump_job;

static const float LOSS_SCALE = 4096.0f;

static sl_status check_dimensions(const sl_safetensors_tensor *tensor)
{
    if (tensor == NULL || tensor->dtype != SL_DTYPE_I32 || tensor->dim_count != 3)
        SL_FAIL(SL_ERROR_DATA, "tokens are not I32 [A, B, T + 1]");
    for (uint32_t i = 0; i < 3; i++)
        if (tensor->shape[i] == 0 || tensor->shape[i] > 1 << 16)
            SL_FAIL(SL_ERROR_DATA, "tokens have %llu in a dimension",
                    (unsigned long long)tensor->shape[i]);
    return SL_OK;
}

static sl_status copy_rows(const sl_safetensors *file, dump_job *dump)
{
    const sl_safetensors_tensor *tensor = sl_safetensors_find(file, "tokens");
    SL_TRY(check_dimensions(tensor));
    dump->micro_batches = (uint32_t)tensor->shape[0];
    dump->batch = (uint32_t)tensor->shape[1];
    dump->seq = (uint32_t)tensor->shape[2] - 1;
    dump->rows = malloc(tensor->byte_count);
    if (dump->rows == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the tokens");
    return sl_files_read_at(&file->file, tensor->first_byte, tensor->byte_count, dump->rows);
}

static sl_status read_rows(const char *path, dump_job *dump)
{
    sl_safetensors *file;
    SL_TRY(sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    sl_status status = copy_rows(file, dump);
    sl_safetensors_close(file);
    return status;
}

/* ---- logits ---- */

static sl_status decode_rows(model_engine *model, dump_job *dump)
{
    uint64_t row_count = (uint64_t)dump->micro_batches * dump->batch;
    dump->vocab = model->shape.vocab;
    dump->logits = calloc(row_count * dump->seq * dump->vocab, sizeof *dump->logits);
    if (dump->logits == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the logits");
    for (uint64_t row = 0; row < row_count; row++) {
        SL_TRY(sl_engine_clear_persistent(model->engine));
        for (uint32_t t = 0; t < dump->seq; t++)
            SL_TRY(model_engine_decode(model, dump->rows + row * (dump->seq + 1) + t, t,
                                       dump->logits + (row * dump->seq + t) * dump->vocab));
    }
    return SL_OK;
}

static sl_status compute_logits(const char *directory, dump_job *dump)
{
    model_engine model;
    model_engine_options options = {
        .directory = directory, .batch = 1, .seq = 1, .type = dump->type};
    SL_TRY(model_engine_open(&options, &model));
    sl_status status = decode_rows(&model, dump);
    model_engine_close(&model);
    return status;
}

/* ---- the file ---- */

enum { NAME_BYTES = 64 };

typedef struct output_plan {
    sl_full_tensors *list;
    sl_safetensors_plan
        *tensors; /* gradients in the order of full tensors, then the rest: strcmp's order */
    char (*names)[NAME_BYTES];
    uint32_t count;
} output_plan;

static sl_status name_tensors(const dump_job *dump, output_plan *out)
{
    uint32_t count = out->list->count;
    uint64_t token_count = (uint64_t)dump->micro_batches * dump->batch * dump->seq;
    out->tensors = calloc(count + 3, sizeof *out->tensors);
    out->names = calloc(count + 1, sizeof *out->names);
    if (out->tensors == NULL || out->names == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u names", count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_full_tensor *full = &out->list->items[i];
        snprintf(out->names[i], NAME_BYTES, "gradient.%s", full->name);
        out->tensors[i] =
            (sl_safetensors_plan){out->names[i], full->dim_count, {full->shape[0], full->shape[1]}};
    }
    out->tensors[count] = (sl_safetensors_plan){"gradient_norm", 1, {1}};
    out->tensors[count + 1] = (sl_safetensors_plan){"logits", 2, {token_count, dump->vocab}};
    out->tensors[count + 2] = (sl_safetensors_plan){"loss", 1, {1}};
    out->count = count + 3;
    return SL_OK;
}

/* Reads what model_engine_read reads, without the loss scale. */
static sl_status read_unscaled(void *user, sl_group group, uint32_t tensor_index,
                               uint64_t first_element, uint64_t element_count, float *data)
{
    model_engine *model = user;
    SL_TRY(model_engine_read(user, group, tensor_index, first_element, element_count, data));
    for (uint64_t i = 0; i < element_count && model->options.type == SL_TYPE_FP16; i++)
        data[i] /= LOSS_SCALE;
    return SL_OK;
}

static sl_status write_tensors(model_engine *model, const dump_job *dump, const output_plan *out,
                               sl_safetensors_writer *writer)
{
    sl_tensor_io io = {read_unscaled, model_engine_write, model};
    uint64_t token_count = (uint64_t)dump->micro_batches * dump->batch * dump->seq, bytes;
    sl_hash_value hash;
    for (uint32_t i = 0; i < out->list->count; i++)
        SL_TRY(sl_full_tensors_save(out->list, &out->list->items[i], SL_GROUP_GRAD, &io, writer));
    SL_TRY(sl_safetensors_writer_append(writer, &dump->norm, 1));
    SL_TRY(sl_safetensors_writer_append(writer, dump->logits, token_count * dump->vocab));
    SL_TRY(sl_safetensors_writer_append(writer, &dump->loss, 1));
    return sl_safetensors_writer_finish(writer, &bytes, &hash);
}

static sl_status write_named(model_engine *model, const dump_job *dump, const output_plan *out,
                             const char *path)
{
    sl_safetensors_writer *writer;
    SL_TRY(sl_safetensors_writer_open(AT_FDCWD, NULL, path, out->tensors, out->count, &writer));
    sl_status status = write_tensors(model, dump, out, writer);
    sl_safetensors_writer_close(writer);
    return status;
}

static sl_status write_file(model_engine *model, const dump_job *dump, const char *path)
{
    output_plan out = {0};
    SL_TRY(sl_full_tensors_open(model->program->tensors, model->program->tensor_count, &out.list));
    sl_status status = name_tensors(dump, &out);
    if (status == SL_OK)
        status = write_named(model, dump, &out, path);
    free(out.tensors);
    free(out.names);
    sl_full_tensors_close(out.list);
    return status;
}

/* ---- the step ---- */

static sl_status step_and_write(model_engine *model, dump_job *dump, const char *path)
{
    sl_step_scalars scalars = model_engine_scalars(1, 0.0f);
    if (dump->type == SL_TYPE_FP16)
        scalars.loss_scale = LOSS_SCALE;
    double loss, norm;
    SL_TRY(model_engine_step(model, dump->rows, &scalars, &loss, &norm));
    dump->loss = (float)loss;
    dump->norm = (float)norm;
    return write_file(model, dump, path);
}

static sl_status compute_gradients(const char *directory, dump_job *dump, const char *path)
{
    model_engine model;
    model_engine_options options = {.directory = directory,
                                    .batch = dump->batch,
                                    .seq = dump->seq,
                                    .micro_batches = dump->micro_batches,
                                    .type = dump->type,
                                    .grad_type =
                                        dump->micro_batches == 1 ? dump->type : SL_TYPE_FP32};
    SL_TRY(model_engine_open(&options, &model));
    sl_status status = step_and_write(&model, dump, path);
    model_engine_close(&model);
    return status;
}

static sl_status run(char **argument, sl_type type)
{
    dump_job dump = {.type = type};
    sl_status status = read_rows(argument[2], &dump);
    if (status == SL_OK)
        status = compute_logits(argument[1], &dump);
    if (status == SL_OK)
        status = compute_gradients(argument[1], &dump, argument[3]);
    free(dump.rows);
    free(dump.logits);
    return status;
}

/* SL_TYPE_COUNT: no such type. */
static sl_type find_type(const char *name)
{
    static const char *const names[SL_TYPE_COUNT] = {"fp32", "bf16", "fp16"};
    int type = SL_TYPE_FP32;
    while (type < SL_TYPE_COUNT && strcmp(name, names[type]) != 0)
        type++;
    return (sl_type)type;
}

int main(int argument_count, char **argument)
{
    sl_type type = argument_count == 5 ? find_type(argument[4]) : SL_TYPE_FP32;
    if (argument_count < 4 || argument_count > 5 || type == SL_TYPE_COUNT) {
        fprintf(stderr, "usage: dump_gradients MODEL TOKENS OUT [fp32|bf16|fp16]\n");
        return sl_status_exit_code(SL_ERROR_USAGE);
    }
    sl_status status = run(argument, type);
    if (status != SL_OK)
        fprintf(stderr, "dump_gradients: %s\n", sl_status_message());
    return sl_status_exit_code(status);
}
