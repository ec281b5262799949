/* The adapters of a model as PEFT has them (adapter.h): a directory of their own. They are few and
 * small, so the walk over the model's tensors has nothing to do, and they are written at the end.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "files/files.h"
#include "files/json_file.h"
#include "layer_adapter.h"
#include "target.h"
#include "tensors/elements.h"

/* Names and sizes: A and B of one layer behind the other. */
typedef struct sl_peft_tensors {
    sl_adapter_layer *layers;   /* [layer_count] */
    sl_foreign_tensor *weights; /* [layer_count], beside which they are */
    uint32_t layer_count;
} sl_peft_tensors;

static sl_status list_layers(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const uint32_t count = sl_model_tensors_count(shape);
    sl_peft_tensors *peft = target->peft = calloc(1, sizeof *peft);
    if (peft) {
        peft->layers = calloc(count, sizeof *peft->layers);
        peft->weights = calloc(count, sizeof *peft->weights);
    }
    target->plans = calloc(2 * (size_t)count, sizeof *target->plans);
    if (!peft || !peft->layers || !peft->weights || !target->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        if (sl_adapter_find_layer(shape, &tensor, &peft->layers[peft->layer_count]))
            peft->weights[peft->layer_count++] = tensor;
    }
    return SL_OK;
}

/* A checkpoint says how many tensors lack states of adamw. They are all tensors of the base, unless
 * adamw trained some of them; rules with fewer states cannot be told from frozen tensors here. */
static void warn_of_trained(const sl_model_reader *reader)
{
    const sl_checkpoint *checkpoint = reader->source.checkpoint;
    if (checkpoint && sl_checkpoint_describe(checkpoint)->stateless_count <
                          sl_model_tensors_count(&reader->shape))
        sl_log_write(SL_LOG_WARNING,
                     "%s: other tensors than adapters were trained, and --format peft leaves them "
                     "out: --merge writes all",
                     sl_files_show(reader->path).text);
}

static sl_status plan(sl_target *target)
{
    SL_TRY(list_layers(target));
    warn_of_trained(target->args->reader);
    const sl_peft_tensors *peft = target->peft;
    const uint64_t rank = target->args->reader->shape.lora.rank;
    for (uint32_t i = 0; i < peft->layer_count; i++) {
        const sl_foreign_tensor *weight = &peft->weights[i];
        sl_safetensors_plan *plans = target->plans + 2 * (size_t)i;
        plans[0] = (sl_safetensors_plan){
            peft->layers[i].a, 2, {rank, weight->rows}, target->args->encoding};
        plans[1] = (sl_safetensors_plan){
            peft->layers[i].b, 2, {weight->columns, rank}, target->args->encoding};
        target->parameter_count += rank * (weight->rows + weight->columns);
    }
    return sl_safetensors_count_bytes(target->plans, 2 * peft->layer_count, &target->total_bytes);
}

static sl_status start(sl_target *target)
{
    sl_file file;
    SL_TRY(sl_output_create(&target->output, SL_ADAPTER_WEIGHTS, &file));
    return sl_safetensors_writer_start(&file, target->plans, 2 * target->peft->layer_count,
                                       &target->safetensors);
}

static sl_status append(sl_target *target, const void *stored, uint64_t bytes)
{
    return sl_safetensors_writer_append_stored(target->safetensors, stored, bytes);
}

static sl_status encode_and_append(sl_target *target, const float *data, uint64_t count)
{
    const uint64_t bytes = sl_encoding_bytes(target->args->encoding, count);
    void *stored = malloc(bytes);
    if (!stored)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an adapter");
    sl_status status = sl_encoding_encode(target->args->encoding, data, count, stored);
    if (status == SL_OK)
        status = append(target, stored, bytes);
    free(stored);
    return status;
}

/* B is [out, rank] there. */
static sl_status append_across(sl_target *target, const float *b, uint64_t rank, uint64_t out)
{
    float *data = malloc(rank * out * sizeof *data);
    if (!data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an adapter");
    sl_elements_lay_across(b, rank, out, rank, data);
    const sl_status status = encode_and_append(target, data, rank * out);
    free(data);
    return status;
}

static sl_status append_tensor(sl_target *target, sl_layer_adapter *from, uint32_t index)
{
    const sl_foreign_tensor *weight = &target->peft->weights[index / 2];
    const uint64_t rank = target->args->reader->shape.lora.rank;
    SL_TRY(sl_layer_adapter_load(from, weight));
    return index % 2 == 0 ? encode_and_append(target, from->a, rank * weight->rows)
                          : append_across(target, from->b, rank, weight->columns);
}

static sl_status append_all(sl_target *target)
{
    sl_layer_adapter from = sl_model_reader_adapter(target->args->reader);
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < 2 * target->peft->layer_count && status == SL_OK; i++)
        status = append_tensor(target, &from, sl_safetensors_writer_order(target->safetensors, i));
    sl_layer_adapter_close(&from);
    return status;
}

/* What the run that made the adapters said of them. */
static sl_status write_config(sl_target *target)
{
    const sl_model_reader *reader = target->args->reader;
    const sl_checkpoint *checkpoint = reader->source.checkpoint;
    json_t *run = NULL;
    char *text = NULL;
    if (checkpoint && reader->source.adapter == NULL) {
        const char *options = sl_checkpoint_describe(checkpoint)->config_json;
        SL_TRY(sl_json_file_parse(reader->path, options, strlen(options), &run));
    }
    const char *init = json_string_value(json_object_get(run, "init"));
    const char *base = run ? init : reader->path;
    if (base && strcmp(base, "scratch") != 0)
        snprintf(target->base, sizeof target->base, "%s", base);
    sl_status status =
        sl_adapter_format_config(&reader->shape, *target->base ? target->base : NULL,
                                 json_number_value(json_object_get(run, "lora_dropout")), &text);
    json_decref(run);
    SL_TRY(status);
    status = sl_output_write_text(&target->output, SL_ADAPTER_CONFIG, text, strlen(text));
    free(text);
    return status;
}

static sl_status finish(sl_target *target)
{
    uint64_t bytes;
    sl_hash_value hash;
    SL_TRY(append_all(target));
    SL_TRY(sl_safetensors_writer_finish(target->safetensors, &bytes, &hash));
    return write_config(target);
}

static void close_layers(sl_target *target)
{
    if (target->peft) {
        free(target->peft->layers);
        free(target->peft->weights);
    }
    free(target->peft);
    target->peft = NULL;
}

const sl_target_ops sl_target_peft = {.is_directory = true,
                                      .plan = plan,
                                      .start = start,
                                      .append = append,
                                      .finish = finish,
                                      .close = close_layers};
