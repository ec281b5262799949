/* See trained_tensors.h. */
#define _GNU_SOURCE
#include "trained_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "checkpoint/saved_rules.h"
#include "files/files.h"
#include "files/json_file.h"

enum { RUNS_MAX = 64, BLOCK = 4096 };

typedef struct search {
    const sl_model_reader *reader; /* the checkpoint that is written */
    const sl_tensor_spec *specs;   /* [count] */
    uint32_t count;
    bool *is_trained; /* [count] */
    bool *is_updated; /* [count], by one run */
    bool has_codes;   /* a run stored frozen matrices in 8 bits */
} search;

/* ---- runs ---- */

static sl_status add_updated(search *self, const sl_model_reader *run)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(run->source.checkpoint);
    SL_TRY(sl_saved_rules_find_trained(run->path, info->rules_json, self->specs, self->count,
                                       self->is_updated));
    for (uint32_t i = 0; i < self->count; i++)
        self->is_trained[i] = self->is_trained[i] || self->is_updated[i];
    return SL_OK;
}

/* NULL: it began from scratch, or by a program that keeps no options. */
static sl_status find_start(search *self, const sl_model_reader *run, char **out_init)
{
    json_t *root;
    const char *text = sl_checkpoint_describe(run->source.checkpoint)->config_json;
    *out_init = NULL;
    SL_TRY(sl_json_file_parse(run->path, text, strlen(text), &root));
    const char *init = json_string_value(json_object_get(root, "init"));
    const char *type = json_string_value(json_object_get(root, "frozen_type"));
    const bool has_start = init && strcmp(init, "scratch") != 0;
    self->has_codes = self->has_codes || (type && strcmp(type, "int8") == 0);
    if (has_start)
        *out_init = strdup(init);
    json_decref(root);
    if (has_start && !*out_init)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    return SL_OK;
}

static bool is_run(const sl_model_reader *reader)
{
    return reader->source.checkpoint && reader->shape.lora.rank > 0;
}

static bool has_shape_of(const sl_model_reader *base, const sl_model_shape *shape)
{
    if (!sl_model_names_of(&base->shape) || base->shape.lora.rank > 0 ||
        base->shape.architecture != shape->architecture ||
        sl_model_tensors_count(&base->shape) != sl_model_tensors_count(shape))
        return false;
    for (uint32_t i = 0; i < sl_model_tensors_count(shape); i++) {
        const sl_foreign_tensor of = sl_model_tensors_nth(&base->shape, i);
        const sl_foreign_tensor wanted = sl_model_tensors_nth(shape, i);
        if (of.rows != wanted.rows || of.columns != wanted.columns)
            return false;
    }
    return true;
}

/* ---- the base ---- */

static bool is_of_base(float now, float base, float tolerance)
{
    return sl_bits_of_float(now) == sl_bits_of_float(base) || fabsf(now - base) <= tolerance ||
           now == sl_half_from_bf16(sl_half_to_bf16(base)) ||
           now == sl_half_from_fp16(sl_half_to_fp16(base));
}

/* A code of 8 bits is off by half a step of largest / 127; the roundings of its scale to fp16, and
 * of the number to bf16 before and after it, are another 0.6 of it at most. Where the scale is too
 * small for fp16's full precision, it is off by half of fp16's smallest step, 127 times. */
static float find_tolerance(const float *base, uint64_t count)
{
    const float least = 127 * 0x1p-25f;
    float largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(base[i]));
    return largest / 100 + least;
}

static sl_status compare(const search *self, const sl_model_reader *base, uint32_t index,
                         bool *out_differs)
{
    float now[BLOCK], then[BLOCK];
    const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->reader->shape, index);
    const uint64_t count = tensor.rows * tensor.columns;
    const bool has_codes = self->has_codes && tensor.dim_count > 1;
    *out_differs = false;
    for (uint64_t done = 0; done < count && !*out_differs; done += BLOCK) {
        const uint64_t part = count - done < BLOCK ? count - done : BLOCK;
        SL_TRY(sl_model_reader_read(self->reader, &tensor, done, part, now));
        SL_TRY(sl_model_reader_read(base, &tensor, done, part, then));
        const float tolerance = has_codes ? find_tolerance(then, part) : 0;
        for (uint64_t i = 0; i < part; i++)
            *out_differs = *out_differs || !is_of_base(now[i], then[i], tolerance);
    }
    return SL_OK;
}

static sl_status compare_all(search *self, const sl_model_reader *base)
{
    for (uint32_t i = 0; i < self->count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&self->reader->shape, i);
        if (!self->is_trained[i] && !tensor.is_linear)
            SL_TRY(compare(self, base, i, &self->is_trained[i]));
    }
    return SL_OK;
}

static void warn_of_no_base(const char *path, const char *why)
{
    sl_log_write(SL_LOG_WARNING,
                 "%s: %s: what only earlier runs trained beside the adapters is not found, and "
                 "--format peft leaves it out",
                 sl_files_show(path).text, why);
}

/* Takes what the run at `path` says, and where it began; NULL: it is the last one. */
static sl_status go_back(search *self, const char *path, char **out_start)
{
    sl_model_reader model;
    *out_start = NULL;
    sl_status status = sl_model_reader_open(path, false, 0, &model);
    if (status != SL_OK) {
        warn_of_no_base(path, sl_status_message());
        return status == SL_ERROR_SYSTEM ? status : SL_OK;
    }
    const bool is_same = is_run(&model) && sl_model_tensors_count(&model.shape) == self->count;
    if (is_same) {
        status = add_updated(self, &model);
        if (status == SL_OK)
            status = find_start(self, &model, out_start);
    } else if (has_shape_of(&model, &self->reader->shape))
        status = compare_all(self, &model);
    else
        warn_of_no_base(path, "is no model that these adapters began with");
    sl_model_reader_close(&model);
    return status;
}

static sl_status follow(search *self, char **out_base)
{
    char *start = NULL;
    SL_TRY(add_updated(self, self->reader));
    SL_TRY(find_start(self, self->reader, out_base));
    for (uint32_t i = 0; *out_base && i < RUNS_MAX; i++) {
        SL_TRY(go_back(self, *out_base, &start));
        if (!start)
            return SL_OK;
        free(*out_base);
        *out_base = start;
    }
    if (*out_base)
        warn_of_no_base(*out_base, "too many runs, or runs in a circle, lead to the base");
    return SL_OK;
}

sl_status sl_trained_tensors_find(const sl_model_reader *reader, bool *out_trained, char **out_base)
{
    const uint32_t count = sl_model_tensors_count(&reader->shape);
    sl_tensor_spec *specs = calloc(count, sizeof *specs);
    bool *is_updated = calloc(count, sizeof *is_updated);
    search self = {.reader = reader,
                   .specs = specs,
                   .count = count,
                   .is_trained = out_trained,
                   .is_updated = is_updated};
    sl_status status = SL_OK;
    *out_base = NULL;
    memset(out_trained, 0, count * sizeof *out_trained);
    if (specs && is_updated) {
        sl_model_tensors_specify(&reader->shape, specs);
        status = follow(&self, out_base);
    } else
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    if (status != SL_OK) {
        free(*out_base);
        *out_base = NULL;
    }
    free(specs);
    free(is_updated);
    return status;
}
