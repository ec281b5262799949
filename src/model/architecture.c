/* The table of architectures, and what is asked of a shape. */
#include "architecture.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/nearest.h"
#include "base/status.h"
#include "build.h"
#include "gpt2.h"
#include "llama.h"
#include "row.h"

enum { VOCAB_UNIT = 128 };

static const uint64_t gpu_logits_bytes = 1ull << 30;

/* ---- own models ---- */

static sl_status check_own(const sl_model_shape *shape, uint32_t tp_size)
{
    (void)tp_size; /* the layers check it */
    if (!shape->build)
        SL_FAIL(SL_ERROR_USAGE, "this model is built by a program of its own, and only that "
                                "program can go on with it");
    return SL_OK;
}

static uint64_t count_own(const sl_model_shape *shape)
{
    return shape->parameters;
}

static uint64_t count_own_attention(const sl_model_shape *shape)
{
    return shape->attention_width;
}

static sl_status build_own(sl_model *model, const void *user)
{
    const sl_model_shape *shape = user;
    return shape->build(model, shape->user);
}

/* ---- what a shape with layers and a context asks of the options ---- */

static sl_status check_stages(const sl_model_shape *shape, const sl_model_options *options)
{
    if (options->stage_count <= 1)
        return SL_OK;
    if (options->stage_count > shape->layers)
        SL_FAIL(SL_ERROR_USAGE, "%u layers are too few for %u stages (--pp): each takes one",
                shape->layers, options->stage_count);
    if (options->layer_end > 0 &&
        (options->layer_end > shape->layers || options->first_layer >= options->layer_end))
        SL_FAIL(SL_ERROR_INTERNAL, "layers %u to %u of %u on a stage", options->first_layer,
                options->layer_end, shape->layers);
    return SL_OK;
}

static sl_status check_options(const sl_model_shape *shape, const sl_model_options *options)
{
    SL_TRY(sl_model_shape_check(shape, options->tp_size));
    if (shape->architecture == SL_ARCHITECTURE_OWN) /* its layers check them */
        return SL_OK;
    if (options->batch == 0 || options->seq == 0 || options->seq > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "%u rows of %u tokens: rows must be positive, tokens 1 to %u",
                options->batch, options->seq, shape->context);
    const uint32_t cache_rows = options->cache_rows ? options->cache_rows : shape->context;
    if (cache_rows < options->seq || cache_rows > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "a cache of %u tokens: %u to %u", cache_rows, options->seq,
                shape->context);
    return check_stages(shape, options);
}

/* ---- the table ---- */

static const sl_architecture own = {check_own, count_own, count_own_attention, build_own};

#define ROW(KIND, name) [SL_ARCHITECTURE_##KIND] = &sl_##name##_architecture,
static const sl_architecture *const rows[] = {SL_ARCHITECTURES(ROW)[SL_ARCHITECTURE_OWN] = &own};
#undef ROW

/* Built-in shapes of all architectures. */
#define NAME(name, ...) name,
#define GPT2(name, ...) {__VA_ARGS__, SL_GPT2_IDS, .architecture = SL_ARCHITECTURE_GPT2},
#define LLAMA(name, kind, layers, width, heads, kv_heads, head, ffn, context, ids, is_untied,      \
              rope_of)                                                                             \
    {layers, width, heads,     context,          ids, SL_ARCHITECTURE_##kind, kv_heads,            \
     head,   ffn,   is_untied, SL_ROPE_##rope_of},
static const char *const shape_names[] = {SL_GPT2_SHAPES(NAME) SL_LLAMA_SHAPES(NAME) NULL};
static const sl_model_shape shapes[] = {SL_GPT2_SHAPES(GPT2) SL_LLAMA_SHAPES(LLAMA)};
#undef NAME
#undef GPT2
#undef LLAMA

const sl_architecture *sl_architecture_of(const sl_model_shape *shape)
{
    return rows[shape->architecture];
}

const char *sl_architecture_name(sl_architecture_kind kind)
{
#define NAME(KIND, name) #name,
    static const char *const names[] = {SL_ARCHITECTURES(NAME) "own"};
#undef NAME
    return names[kind];
}

uint32_t sl_architecture_ids(sl_architecture_kind kind)
{
    for (uint32_t i = 0; shape_names[i] != NULL; i++)
        if (shapes[i].architecture == kind)
            return shapes[i].vocab;
    return 0;
}

const char *const *sl_architecture_names(void)
{
    return shape_names;
}

sl_status sl_architecture_named(const char *name, sl_model_shape *out_shape)
{
    const char *const *names = shape_names;
    sl_nearest nearest = sl_nearest_start(name);
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out_shape = shapes[i];
            return SL_OK;
        }
        sl_nearest_offer(&nearest, names[i]);
    }
    char hint[128];
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    if (*hint)
        SL_FAIL(SL_ERROR_USAGE, "no model is called \"%.64s\"%s", name, hint);
    SL_FAIL(SL_ERROR_USAGE,
            "no model is called \"%.64s\": the names are %s, %s, %s, %s and others (sluice help "
            "models)",
            name, names[0], names[1], names[2], names[3]);
}

/* ---- shapes ---- */

bool sl_model_shape_is_llama(const sl_model_shape *shape)
{
    return sl_architecture_of(shape)->is_llama;
}

void sl_model_shape_complete(sl_model_shape *shape)
{
    if (sl_model_shape_is_llama(shape))
        sl_llama_complete(shape);
}

sl_status sl_model_shape_check(const sl_model_shape *shape, uint32_t tp_size)
{
    return sl_architecture_of(shape)->check(shape, tp_size);
}

/* What two shapes are compared by, as checkpoints call it. */
typedef struct shape_size {
    const char *name;
    size_t offset;
    bool is_real; /* a double, else an uint32_t */
} shape_size;

#define SIZE(name, member)                                                                         \
    {                                                                                              \
        name, offsetof(sl_model_shape, member), false                                              \
    }
#define REAL(name, member)                                                                         \
    {                                                                                              \
        name, offsetof(sl_model_shape, member), true                                               \
    }
static const shape_size shape_sizes[] = {
    SIZE("layers", layers),
    SIZE("width", width),
    SIZE("heads", heads),
    SIZE("context", context),
    SIZE("vocab", vocab),
    SIZE("kv_heads", kv_heads),
    SIZE("head_size", head),
    SIZE("ffn", ffn),
    REAL("norm_epsilon", norm_epsilon),
    REAL("rope_base", rope.base),
    SIZE("rope_scaling", rope.scaling),
    REAL("rope_factor", rope.factor),
    REAL("rope_low_frequency_factor", rope.low_frequency_factor),
    REAL("rope_high_frequency_factor", rope.high_frequency_factor),
    SIZE("rope_original_context", rope.original_context),
};
#undef SIZE
#undef REAL

static double take_size(const sl_model_shape *shape, const shape_size *size)
{
    const char *place = (const char *)shape + size->offset;
    return size->is_real ? *(const double *)(const void *)place
                         : *(const uint32_t *)(const void *)place;
}

/* The first size that differs, or NULL. */
static const shape_size *find_difference(const sl_model_shape *a, const sl_model_shape *b)
{
    for (size_t i = 0; i < sizeof shape_sizes / sizeof shape_sizes[0]; i++)
        if (take_size(a, &shape_sizes[i]) != take_size(b, &shape_sizes[i]))
            return &shape_sizes[i];
    return NULL;
}

bool sl_model_shape_is_same(const sl_model_shape *a, const sl_model_shape *b)
{
    return a->architecture == b->architecture && a->is_untied == b->is_untied &&
           !find_difference(a, b);
}

sl_shape_text sl_model_shape_difference(const sl_model_shape *a, const sl_model_shape *b)
{
    sl_shape_text made = {""};
    const shape_size *size = find_difference(a, b);
    if (a->architecture != b->architecture)
        snprintf(made.text, sizeof made.text, "architecture %s and %s",
                 sl_architecture_name(a->architecture), sl_architecture_name(b->architecture));
    else if (size)
        snprintf(made.text, sizeof made.text, "%s %.15g and %.15g", size->name, take_size(a, size),
                 take_size(b, size));
    else if (a->is_untied != b->is_untied)
        snprintf(made.text, sizeof made.text, "untied %s and %s", a->is_untied ? "true" : "false",
                 b->is_untied ? "true" : "false");
    return made;
}

bool sl_model_shape_may_split(const sl_model_shape *shape, uint32_t tp_size)
{
    return sl_model_shape_is_llama(shape) ? sl_llama_may_split(shape, tp_size)
                                          : tp_size <= shape->heads;
}

uint64_t sl_model_shape_norm_elements(const sl_model_shape *shape)
{
    return (sl_model_shape_is_llama(shape) ? 1ull : 2ull) * shape->width;
}

const char *sl_model_shape_attention_linears(const sl_model_shape *shape)
{
    return sl_architecture_of(shape)->attention_linears;
}

uint64_t sl_model_shape_parameters(const sl_model_shape *shape)
{
    return sl_architecture_of(shape)->parameters(shape);
}

/* Elements of a table in which tokens are only looked up: an untied embedding is in no product. */
static uint64_t count_lookup(const sl_model_shape *shape)
{
    return shape->is_untied ? (uint64_t)shape->vocab * shape->width : shape->lookup_elements;
}

double sl_model_shape_token_flops(const sl_model_shape *shape, uint64_t seq)
{
    const double attention =
        (double)sl_architecture_of(shape)->attention_width(shape) * (double)seq;
    const uint64_t multiplied = sl_model_shape_parameters(shape) - count_lookup(shape);
    return 6 * ((double)multiplied + attention);
}

uint64_t sl_model_shape_padded_vocab(const sl_model_shape *shape, uint32_t tp_size)
{
    return sl_bits_round_up(shape->vocab, (uint64_t)VOCAB_UNIT * tp_size);
}

void sl_model_shape_stage(const sl_model_shape *shape, uint32_t stage_count, uint32_t stage_index,
                          uint32_t *out_first, uint32_t *out_end)
{
    const uint64_t layers = shape->layers, count = stage_count > 1 ? stage_count : 1;
    *out_first = (uint32_t)(layers * stage_index / count);
    *out_end = (uint32_t)(layers * ((uint64_t)stage_index + 1) / count);
}

uint64_t sl_model_gpu_head_logits(sl_type type)
{
    return gpu_logits_bytes / sl_type_bytes(type);
}

sl_status sl_model_shape_emit(const sl_model_shape *shape, const sl_model_options *options,
                              sl_program **out_forward)
{
    sl_model_options all = *options;
    SL_TRY(check_options(shape, options));
    all.lora = shape->lora.rank > 0 ? &shape->lora : NULL;
    return sl_model_emit(sl_architecture_of(shape)->build, shape, &all, out_forward);
}

/* ---- the survey of an own model ---- */

/* Elements of the whole tensor; 0 for a panel behind the first one. */
static uint64_t count_elements(const sl_program *program, uint32_t tensor)
{
    const sl_tensor_spec *spec = &program->tensors[tensor];
    if (tensor > 0 && strcmp(spec->name, program->tensors[tensor - 1].name) == 0)
        return 0;
    return spec->whole_shape[0] * (spec->dim_count == 2 ? spec->whole_shape[1] : 1);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Panels of a table follow each other; other tensors of one name are of two layers. */
static sl_status check_names(const sl_program *program)
{
    uint32_t count = 0;
    const char **names = malloc((size_t)program->tensor_count * sizeof *names);
    if (names == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u names", program->tensor_count);
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (count_elements(program, t) > 0)
            names[count++] = program->tensors[t].name;
    qsort(names, count, sizeof *names, compare_names);
    sl_status status = SL_OK;
    for (uint32_t i = 1; i < count && status == SL_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status =
                sl_status_fail(SL_ERROR_USAGE, "two layers have a parameter called %s", names[i]);
    free(names);
    return status;
}

static void count_survey(const sl_program *whole, sl_model_shape *shape)
{
    const char *lookup = sl_program_lookup_table(whole);
    for (uint32_t t = 0; t < whole->tensor_count; t++) {
        const uint64_t count = count_elements(whole, t);
        shape->parameters += count;
        shape->lookup_elements += strcmp(whole->tensors[t].name, lookup) == 0 ? count : 0;
    }
    for (uint32_t o = 0; o < whole->op_count; o++) {
        const sl_op *op = &whole->ops[o];
        if (op->kind != SL_OP_ATTENTION)
            continue;
        shape->attention_width += op->attrs.in;
        shape->heads = (uint32_t)op->attrs.heads;
    }
}

sl_status sl_model_shape_survey(sl_build build, const void *user, sl_model_shape *out_shape)
{
    const sl_model_options options = {.batch = 1, .seq = 1, .tp_size = 1};
    sl_model_shape shape = {.architecture = SL_ARCHITECTURE_OWN, .build = build, .user = user};
    sl_program *whole;
    SL_TRY(sl_model_emit_sizes(build, user, &options, &shape, &whole));
    count_survey(whole, &shape);
    const sl_status status = check_names(whole);
    sl_program_close(whole);
    if (status == SL_OK)
        *out_shape = shape;
    return status;
}
