/* The adapters of a model as PEFT has them (adapter.h): a directory of their own, with the norms,
 * tables and heads that were trained beside them ("modules_to_save"). The walk over the model's
 * tensors has nothing to do, and all of them are written at the end.
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
#include "trained_tensors.h"

typedef struct saved_name {
    char text[SL_ADAPTER_NAME_BYTES];
} saved_name;

/* Names and sizes: A and B of one layer behind the other, then what else was trained. */
typedef struct sl_peft_tensors {
    sl_adapter_layer *layers;   /* [layer_count] */
    sl_foreign_tensor *weights; /* [layer_count], beside which they are */
    sl_foreign_tensor *saved;   /* [saved_count]; of a tied model the table twice: as its head */
    saved_name *names;          /* [saved_count] */
    uint32_t layer_count, saved_count;
    bool leaves_some; /* linear layers were trained, too, which are not written */
    char *base;       /* that the checkpoint's first run began with; NULL: none, or no checkpoint */
} sl_peft_tensors;

static sl_status list_layers(sl_target *target)
{
    const sl_model_shape *shape = &target->args->reader->shape;
    const uint32_t count = sl_model_tensors_count(shape);
    sl_peft_tensors *peft = target->peft = calloc(1, sizeof *peft);
    if (peft) {
        peft->layers = calloc(count, sizeof *peft->layers);
        peft->weights = calloc(count, sizeof *peft->weights);
        peft->saved = calloc((size_t)count + 1, sizeof *peft->saved);
        peft->names = calloc((size_t)count + 1, sizeof *peft->names);
    }
    target->plans = calloc(3 * (size_t)count + 1, sizeof *target->plans);
    if (!peft || !peft->layers || !peft->weights || !peft->saved || !peft->names || !target->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, i);
        if (sl_adapter_find_layer(shape, &tensor, &peft->layers[peft->layer_count]))
            peft->weights[peft->layer_count++] = tensor;
    }
    return SL_OK;
}

/* ---- what else was trained ---- */

/* "ln_f" of "ln_f.weight", "h.0.ln_1" of "h.0.ln_1.bias". */
static size_t module_length(const char *name)
{
    return (size_t)(strrchr(name, '.') - name);
}

static bool is_same_module(const char *name, const char *other)
{
    const size_t length = module_length(name);
    return length == module_length(other) && strncmp(name, other, length) == 0;
}

/* Tensors of a module follow each other in the model's order: finds the first one, and the one
 * behind the last. */
static void find_module(const sl_tensor_spec *specs, uint32_t count, uint32_t index,
                        uint32_t *out_first, uint32_t *out_end)
{
    *out_first = index;
    *out_end = index + 1;
    while (*out_first > 0 && is_same_module(specs[index].name, specs[*out_first - 1].name))
        --*out_first;
    while (*out_end < count && is_same_module(specs[index].name, specs[*out_end].name))
        ++*out_end;
}

static void save_as(const sl_foreign_tensor *tensor, const char *name, sl_peft_tensors *peft)
{
    saved_name *saved = &peft->names[peft->saved_count];
    snprintf(saved->text, sizeof saved->text, SL_ADAPTER_NAME_START "%s", name);
    peft->saved[peft->saved_count++] = *tensor;
}

/* PEFT would leave the head of a tied model as it was. */
static void save_tensor(const sl_model_shape *shape, uint32_t index, sl_peft_tensors *peft)
{
    const sl_foreign_tensor tensor = sl_model_tensors_nth(shape, index);
    const sl_foreign_tensor_name name = sl_model_tensors_name(&tensor);
    save_as(&tensor, sl_weights_whole_name(tensor.names, name.text).text, peft);
    if (!shape->is_untied && sl_model_tensors_kind(&tensor)->rows == SL_SIZE_VOCAB)
        save_as(&tensor, "lm_head.weight", peft);
}

/* PEFT saves a module whole: if one of its tensors was trained, all are written. A linear layer of
 * a block is left out: the module beside its adapters is the layer that PEFT wraps. */
static void list_saved(const sl_model_shape *shape, const sl_tensor_spec *specs,
                       const bool *is_trained, sl_peft_tensors *peft)
{
    const uint32_t count = sl_model_tensors_count(shape);
    uint32_t first, end;
    for (uint32_t i = 0; i < count; i = end) {
        bool is_linear = false, is_any_trained = false;
        find_module(specs, count, i, &first, &end);
        for (uint32_t k = first; k < end; k++) {
            is_linear = is_linear || sl_model_tensors_nth(shape, k).is_linear;
            is_any_trained = is_any_trained || is_trained[k];
        }
        peft->leaves_some = peft->leaves_some || (is_linear && is_any_trained);
        for (uint32_t k = first; k < end && !is_linear && is_any_trained; k++)
            save_tensor(shape, k, peft);
    }
}

/* By the adapters' own file, or by what the checkpoint's runs trained. */
static sl_status find_trained(sl_target *target, const sl_tensor_spec *specs, uint32_t count,
                              bool *out_trained)
{
    const sl_model_reader *reader = target->args->reader;
    sl_weights_tensor saved;
    if (!reader->source.adapter)
        return sl_trained_tensors_find(reader, out_trained, &target->peft->base);
    for (uint32_t i = 0; i < count; i++)
        out_trained[i] = sl_adapter_find_saved(reader->source.adapter, specs[i].name, &saved);
    return SL_OK;
}

static sl_status find_saved(sl_target *target)
{
    const sl_model_reader *reader = target->args->reader;
    const uint32_t count = sl_model_tensors_count(&reader->shape);
    sl_tensor_spec *specs = calloc(count, sizeof *specs);
    bool *is_trained = calloc(count, sizeof *is_trained);
    if (!specs || !is_trained) {
        free(specs);
        free(is_trained);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    }
    sl_model_tensors_specify(&reader->shape, specs);
    const sl_status status = find_trained(target, specs, count, is_trained);
    if (status == SL_OK)
        list_saved(&reader->shape, specs, is_trained, target->peft);
    free(specs);
    free(is_trained);
    return status;
}

static void warn_of_left_out(const sl_target *target)
{
    if (target->peft->leaves_some)
        sl_log_write(SL_LOG_WARNING,
                     "%s: weights or biases of linear layers were trained beside the adapters, and "
                     "--format peft leaves them out: --merge writes all",
                     sl_files_show(target->args->reader->path).text);
}

static uint32_t count_tensors(const sl_peft_tensors *peft)
{
    return 2 * peft->layer_count + peft->saved_count;
}

static sl_status plan(sl_target *target)
{
    SL_TRY(list_layers(target));
    SL_TRY(find_saved(target));
    warn_of_left_out(target);
    const sl_peft_tensors *peft = target->peft;
    const uint64_t rank = target->args->reader->shape.lora.rank;
    const sl_encoding encoding = target->args->encoding;
    sl_safetensors_plan *plans = target->plans;
    for (uint32_t i = 0; i < peft->layer_count; i++) {
        const sl_foreign_tensor *weight = &peft->weights[i];
        *plans++ = (sl_safetensors_plan){peft->layers[i].a, 2, {rank, weight->rows}, encoding};
        *plans++ = (sl_safetensors_plan){peft->layers[i].b, 2, {weight->columns, rank}, encoding};
        target->parameter_count += rank * (weight->rows + weight->columns);
    }
    for (uint32_t i = 0; i < peft->saved_count; i++) {
        const sl_foreign_tensor *of = &peft->saved[i];
        *plans++ = (sl_safetensors_plan){
            peft->names[i].text, of->dim_count, {of->rows, of->columns}, encoding};
        target->parameter_count += of->rows * of->columns;
    }
    target->tensor_count = count_tensors(peft);
    return sl_safetensors_count_bytes(target->plans, count_tensors(peft), &target->total_bytes);
}

static sl_status start(sl_target *target)
{
    sl_file file;
    SL_TRY(sl_output_create(&target->output, SL_ADAPTER_WEIGHTS, &file));
    return sl_safetensors_writer_start(&file, target->plans, count_tensors(target->peft),
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

/* A table may be large: a block at a time. */
static sl_status append_saved(sl_target *target, const sl_foreign_tensor *tensor)
{
    const uint64_t count = tensor->rows * tensor->columns;
    const uint64_t most = count < SL_CONVERT_BLOCK_ELEMENTS ? count : SL_CONVERT_BLOCK_ELEMENTS;
    float *data = malloc(most * sizeof *data);
    if (!data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a tensor");
    sl_status status = SL_OK;
    for (uint64_t done = 0; done < count && status == SL_OK; done += most) {
        const uint64_t part = count - done < most ? count - done : most;
        status = sl_model_reader_read(target->args->reader, tensor, done, part, data);
        if (status == SL_OK)
            status = encode_and_append(target, data, part);
    }
    free(data);
    return status;
}

static sl_status append_tensor(sl_target *target, sl_layer_adapter *from, uint32_t index)
{
    if (index >= 2 * target->peft->layer_count)
        return append_saved(target, &target->peft->saved[index - 2 * target->peft->layer_count]);
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
    for (uint32_t i = 0; i < count_tensors(target->peft) && status == SL_OK; i++)
        status = append_tensor(target, &from, sl_safetensors_writer_order(target->safetensors, i));
    sl_layer_adapter_close(&from);
    return status;
}

/* The modules of the tensors that are written whole, by their names in a whole model. NULL: no
 * memory. */
static json_t *list_saved_modules(const sl_peft_tensors *peft)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < peft->saved_count; i++) {
        const char *name = peft->names[i].text;
        if (i > 0 && is_same_module(name, peft->names[i - 1].text))
            continue;
        const char *module = name + sizeof SL_ADAPTER_NAME_START - 1;
        if (json_array_append_new(list, json_stringn(module, module_length(module))) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
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
    const char *base = run ? target->peft->base : reader->path;
    if (base)
        snprintf(target->base, sizeof target->base, "%s", base);
    json_t *saved = list_saved_modules(target->peft);
    const sl_adapter_facts facts = {.base = *target->base ? target->base : NULL,
                                    .dropout =
                                        json_number_value(json_object_get(run, "lora_dropout")),
                                    .saved = saved};
    sl_status status = saved ? sl_adapter_format_config(&reader->shape, &facts, &text)
                             : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of modules");
    json_decref(saved);
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
        free(target->peft->saved);
        free(target->peft->names);
        free(target->peft->base);
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
