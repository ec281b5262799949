/* The table of architectures, and what is asked of a shape. */
#include "architecture.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/nearest.h"
#include "base/status.h"
#include "build.h"
#include "gpt2.h"

enum { VOCAB_UNIT = 128 };

static const uint64_t gpu_logits_bytes = 256ull << 20;

typedef struct architecture {
    sl_status (*check)(const sl_model_shape *shape, uint32_t tp_size);
    sl_status (*check_options)(const sl_model_shape *shape, const sl_model_options *options);
    uint64_t (*parameters)(const sl_model_shape *shape);
    uint64_t (*attention_width)(const sl_model_shape *shape); /* of all attentions together */
    sl_build build;                                           /* `user` is the shape */
} architecture;

/* ---- own models ---- */

static sl_status check_own(const sl_model_shape *shape, uint32_t tp_size)
{
    (void)tp_size; /* the layers check it */
    if (!shape->build)
        SL_FAIL(SL_ERROR_USAGE, "this model is built by a program of its own, and only that "
                                "program can go on with it");
    return SL_OK;
}

static sl_status check_own_options(const sl_model_shape *shape, const sl_model_options *options)
{
    (void)options;
    return check_own(shape, 1);
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

/* ---- the table ---- */

static const architecture architectures[] = {
    [SL_ARCHITECTURE_GPT2] = {sl_gpt2_check, sl_gpt2_check_options, sl_gpt2_parameters,
                              sl_gpt2_attention_width, sl_gpt2_build},
    [SL_ARCHITECTURE_OWN] = {check_own, check_own_options, count_own, count_own_attention,
                             build_own},
};

/* Built-in shapes of all architectures. */
#define NAME(name, ...) name,
#define GPT2(name, ...) {__VA_ARGS__, SL_GPT2_IDS, .architecture = SL_ARCHITECTURE_GPT2},
static const char *const shape_names[] = {SL_GPT2_SHAPES(NAME) NULL};
static const sl_model_shape shapes[] = {SL_GPT2_SHAPES(GPT2)};
#undef NAME
#undef GPT2

static const architecture *row_of(const sl_model_shape *shape)
{
    return &architectures[shape->architecture];
}

const char *sl_architecture_name(sl_architecture_kind kind)
{
#define NAME(kind, name) name,
    static const char *const names[] = {SL_ARCHITECTURES(NAME)};
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
            "no model is called \"%.64s\": the names are %s, %s, %s, %s and larger ones", name,
            names[0], names[1], names[2], names[3]);
}

/* ---- shapes ---- */

sl_status sl_model_shape_check(const sl_model_shape *shape, uint32_t tp_size)
{
    return row_of(shape)->check(shape, tp_size);
}

bool sl_model_shape_is_same(const sl_model_shape *a, const sl_model_shape *b)
{
    return a->architecture == b->architecture && a->layers == b->layers && a->width == b->width &&
           a->heads == b->heads && a->context == b->context && a->vocab == b->vocab;
}

uint64_t sl_model_shape_parameters(const sl_model_shape *shape)
{
    return row_of(shape)->parameters(shape);
}

double sl_model_shape_token_flops(const sl_model_shape *shape, uint64_t seq)
{
    const double attention = (double)row_of(shape)->attention_width(shape) * (double)seq;
    return 6 * ((double)sl_model_shape_parameters(shape) + attention);
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
    SL_TRY(row_of(shape)->check_options(shape, options));
    return sl_model_emit(row_of(shape)->build, shape, options, out_forward);
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
    for (uint32_t t = 0; t < whole->tensor_count; t++)
        shape->parameters += count_elements(whole, t);
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
