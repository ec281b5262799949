/* The list of models and what follows from it: the cases, the memory that holds their operands,
 * rounds, rows. A sample of the roof is taken before each sample of a kernel, so that a machine
 * that changes its speed does so under both.
 *
 * Every product is bare: without bias, residual or gelu, its result written once in the compute
 * type. */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "ops.h"
#include "roofs.h"

enum { ROUNDS = 5, FEW_ROUNDS = 3, LINE_BYTES = 96, CONTEXT_SMALL = 8 };

static const double long_seconds = 0.25; /* calls as long as that have FEW_ROUNDS */
static const uint64_t operand_most = UINT64_C(256) << 20, free_share = 64;
static const uint64_t batch_tokens = 1024; /* of attention, as long as T is below */
static const uint64_t panel_widths = 4;    /* ids of a panel of the head, in widths */

typedef struct model {
    const char *name;
    uint64_t width, heads, key_heads, head_width, mlp;
    uint64_t context; /* the longest T that is measured */
    bool is_quick;    /* also where there is little time */
} model;

static const model models[] = {
    {"gpt2", 768, 12, 12, 64, 3072, 1024, true},
    {"gpt2-medium", 1024, 16, 16, 64, 4096, 1024, false},
    {"gpt2-xl", 1600, 25, 25, 64, 6400, 1024, false},
    {"llama-3.2-1b", 2048, 32, 8, 64, 8192, 4096, true},
    {"llama-3-8b", 4096, 32, 8, 128, 14336, 4096, false},
};

static const uint64_t product_rows[] = {64, 256, 1024}, attention_tokens[] = {64, 256, 1024, 4096};
static const uint64_t quick_tokens = 256;

typedef struct kernel {
    sl_bench_row row; /* its name and sizes */
    sl_samples roof;
} kernel;

typedef struct kernels {
    const sl_bench_options *options;
    sl_timed_device *device;
    uint32_t figures;
    model small; /* of options->small_shape */
    sl_ops_case *cases;
    kernel *list; /* beside the cases */
    uint32_t count, capacity;
    sl_memory_need need;
    sl_memory memory;
    sl_ops ops;
} kernels;

/* ---- the list ---- */

/* Whether `word` stands in `text` between blanks and commas. */
static bool has_word(const char *text, const char *word)
{
    while (*text) {
        const size_t length = strcspn(text, " ,");
        if (length == strlen(word) && strncmp(text, word, length) == 0)
            return true;
        text += length;
        text += strspn(text, " ,");
    }
    return false;
}

static bool is_matched(const kernels *k, const sl_bench_row *row)
{
    for (uint32_t i = 0; i < k->options->match_count; i++) {
        const char *word = k->options->match[i];
        if (!has_word(row->name, word) && strcmp(row->type, word) != 0)
            return false;
    }
    return true;
}

static bool is_too_large(const kernels *k, const sl_ops_case *one)
{
    const uint64_t share = k->device->info.free_bytes / free_share;
    return sl_ops_largest_operand(one) > (share < operand_most ? share : operand_most);
}

static sl_status add(kernels *k, sl_op_kind kind, const sl_op_attrs *attrs, const sl_bench_row *row)
{
    const sl_ops_case one = {.kind = kind, .attrs = *attrs, .is_bare = true};
    if (!is_matched(k, row) || is_too_large(k, &one) || !k->device->kernels->row[kind].run)
        return SL_OK;
    uint32_t capacity = k->capacity; /* of both */
    SL_TRY(SL_ARRAY_GROW(k->cases, k->count, capacity, "kernels to measure"));
    SL_TRY(SL_ARRAY_GROW(k->list, k->count, k->capacity, "kernels to measure"));
    sl_ops_note_memory(&one, &k->need);
    k->cases[k->count] = one;
    k->list[k->count++] = (kernel){.row = *row};
    return SL_OK;
}

/* ---- products ---- */

typedef struct product {
    const char *part;
    uint64_t in, out;
    bool is_head; /* `out` is a panel of token ids */
} product;

static sl_status add_product(kernels *k, const model *of, const product *one, uint64_t rows,
                             sl_type type)
{
    static const char *const directions[] = {"forward", "input", "weight"};
    static const sl_op_kind kinds[2][3] = {
        {SL_OP_LINEAR, SL_OP_LINEAR_INPUT_BACKWARD, SL_OP_LINEAR_WEIGHT_BACKWARD},
        {SL_OP_HEAD_LOGITS, SL_OP_HEAD_INPUT_BACKWARD, SL_OP_HEAD_WEIGHT_BACKWARD}};
    sl_op_attrs attrs = {
        .row_count = rows, .in = one->in, .type = (uint16_t)type, .grad_type = (uint16_t)type};
    if (one->is_head) {
        attrs.batch = 1;
        attrs.seq = rows;
        attrs.id_count = one->out;
    } else
        attrs.out = one->out;
    for (int i = 0; i < 3; i++) {
        sl_bench_row row = {.group = sl_bench_figure_name(SL_BENCH_PRODUCT),
                            .type = sl_type_name(type),
                            .is_flops = true,
                            .kernel = {.model = of->name,
                                       .part = one->part,
                                       .direction = directions[i],
                                       .rows = rows,
                                       .in = one->in,
                                       .out = one->out}};
        snprintf(row.name, sizeof row.name, "%s %s %llux%llu, %llu rows, %s", of->name, one->part,
                 (unsigned long long)one->in, (unsigned long long)one->out,
                 (unsigned long long)rows, directions[i]);
        SL_TRY(add(k, kinds[one->is_head][i], &attrs, &row));
    }
    return SL_OK;
}

static sl_status add_products(kernels *k, const model *of, uint64_t rows, sl_type type)
{
    const uint64_t heads_width = of->heads * of->head_width;
    const uint64_t qkv_width = heads_width + 2 * of->key_heads * of->head_width;
    const product products[] = {
        {"qkv", of->width, qkv_width, false},
        {"attn-out", heads_width, of->width, false},
        {"mlp-up", of->width, of->mlp, false}, /* of Llama gate and up each */
        {"mlp-down", of->mlp, of->width, false},
        {"head", of->width, panel_widths * of->width, true}, /* src/model/table.c */
    };
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        SL_TRY(add_product(k, of, &products[i], rows, type));
    return SL_OK;
}

/* ---- attention ---- */

static sl_status add_attention(kernels *k, const model *of, uint64_t tokens, sl_type type)
{
    static const char *const directions[] = {"forward", "backward", "cached"};
    static const sl_op_kind kinds[] = {SL_OP_ATTENTION, SL_OP_ATTENTION_BACKWARD,
                                       SL_OP_ATTENTION_CACHED};
    const uint64_t batch = tokens < batch_tokens ? batch_tokens / tokens : 1;
    for (int i = 0; i < 3; i++) {
        const bool is_cached = kinds[i] == SL_OP_ATTENTION_CACHED;
        const sl_op_attrs attrs = {.batch = is_cached ? 1 : batch,
                                   .seq = is_cached ? 1 : tokens,
                                   .cache_rows = is_cached ? tokens : 0,
                                   .in = of->heads * of->head_width,
                                   .out = of->key_heads * of->head_width,
                                   .heads = of->heads,
                                   .type = (uint16_t)type};
        sl_bench_row row = {.group = sl_bench_figure_name(SL_BENCH_ATTENTION),
                            .type = sl_type_name(type),
                            .is_flops = true,
                            .kernel = {.model = of->name,
                                       .part = "attention",
                                       .direction = directions[i],
                                       .batch = attrs.batch,
                                       .rows = tokens,
                                       .heads = of->heads,
                                       .key_heads = of->key_heads,
                                       .head_width = of->head_width}};
        snprintf(row.name, sizeof row.name, "%s %llu heads on %llu of %llu, %llu x T=%llu, %s",
                 of->name, (unsigned long long)of->heads, (unsigned long long)of->key_heads,
                 (unsigned long long)of->head_width, (unsigned long long)attrs.batch,
                 (unsigned long long)tokens, directions[i]);
        SL_TRY(add(k, kinds[i], &attrs, &row));
    }
    return SL_OK;
}

/* ---- all of them ---- */

static bool is_wanted(const kernels *k, const model *of, uint64_t tokens)
{
    if (k->options->small_shape)
        return tokens == of->context;
    return k->options->is_quick ? of->is_quick && tokens == quick_tokens : tokens <= of->context;
}

static sl_status add_model(kernels *k, const model *of, sl_type type)
{
    const uint64_t small[] = {CONTEXT_SMALL};
    const bool is_small = k->options->small_shape != NULL;
    const size_t lengths = sizeof product_rows / sizeof product_rows[0];
    const size_t token_lengths = sizeof attention_tokens / sizeof attention_tokens[0];
    const uint64_t *rows = is_small ? small : product_rows;
    const uint64_t *tokens = is_small ? small : attention_tokens;
    for (size_t i = 0; i < (is_small ? 1 : lengths); i++)
        if (k->figures >> SL_BENCH_PRODUCT & 1 && is_wanted(k, of, rows[i]))
            SL_TRY(add_products(k, of, rows[i], type));
    for (size_t i = 0; i < (is_small ? 1 : token_lengths); i++)
        if (k->figures >> SL_BENCH_ATTENTION & 1 && is_wanted(k, of, tokens[i]))
            SL_TRY(add_attention(k, of, tokens[i], type));
    return SL_OK;
}

static model describe_small(const sl_model_shape *shape)
{
    return (model){.name = "small",
                   .width = shape->width,
                   .heads = shape->heads,
                   .key_heads = shape->heads,
                   .head_width = shape->width / shape->heads,
                   .mlp = (uint64_t)4 * shape->width,
                   .context = CONTEXT_SMALL};
}

static sl_status list_kernels(kernels *k)
{
    const sl_model_shape *small_shape = k->options->small_shape;
    if (small_shape)
        k->small = describe_small(small_shape);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        if (small_shape)
            SL_TRY(add_model(k, &k->small, (sl_type)type));
        for (size_t i = 0; i < sizeof models / sizeof models[0] && !small_shape; i++)
            SL_TRY(add_model(k, &models[i], (sl_type)type));
    }
    if (k->count == 0 && k->options->match_count == 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no product and no attention of the models fits the free memory");
    if (k->count == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--match leaves no row of product and attention: each of its words must be one of "
                "a row's type and name, such as bf16, gpt2, mlp-up, 1024, T=256 or forward");
    return SL_OK;
}

/* ---- rounds ---- */

static void report_progress(const kernels *k, const char *line)
{
    if (k->options->progress)
        k->options->progress(k->options->user, line);
}

static sl_status sample_kernel(kernels *k, uint32_t index)
{
    if (k->device->workers)
        sl_samples_add(&k->list[index].roof,
                       sl_roofs_flops(k->device->workers, (sl_type)k->cases[index].attrs.type));
    return sl_ops_sample_case(&k->ops, index);
}

static sl_status run_rounds(kernels *k)
{
    const uint32_t rounds = k->options->is_quick ? FEW_ROUNDS : ROUNDS;
    char line[LINE_BYTES];
    for (uint32_t round = 0; round < rounds; round++) {
        snprintf(line, sizeof line, "%u products and attentions: round %u of %u", k->count,
                 round + 1, rounds);
        report_progress(k, line);
        for (uint32_t i = 0; i < k->count; i++)
            if (round < FEW_ROUNDS || k->ops.cases[i].seconds.values[0] < long_seconds)
                SL_TRY(sample_kernel(k, i));
    }
    return SL_OK;
}

static sl_status add_rows(kernels *k, sl_bench *bench)
{
    static const sl_bench_figure figures[] = {SL_BENCH_PRODUCT, SL_BENCH_ATTENTION};
    for (size_t f = 0; f < sizeof figures / sizeof figures[0]; f++)
        for (uint32_t i = 0; i < k->count; i++) {
            const sl_ops_case *one = &k->ops.cases[i];
            sl_bench_row *row = &k->list[i].row;
            if (row->group != sl_bench_figure_name(figures[f]))
                continue;
            row->rate = sl_samples_rate(&one->seconds, (double)sl_op_flops(one->kind, &one->attrs));
            row->seconds = sl_samples_median(&one->seconds);
            row->roof = sl_samples_median(&k->list[i].roof);
            SL_TRY(sl_bench_add(bench, row));
        }
    return SL_OK;
}

static sl_status measure(kernels *k, sl_bench *bench)
{
    SL_TRY(list_kernels(k));
    sl_bench_warn_of_load(k->options);
    report_progress(k, "filling memory with random numbers");
    SL_TRY(sl_memory_open_for(k->device, &k->need, &k->memory));
    const sl_ops_selection selection = {
        .list = SL_OPS_GIVEN, .given = k->cases, .given_count = k->count};
    SL_TRY(sl_ops_open(&k->memory, &selection, &k->ops));
    report_progress(k, "warming up products and attentions");
    SL_TRY(sl_ops_warm_up(&k->ops));
    SL_TRY(run_rounds(k));
    return add_rows(k, bench);
}

sl_status sl_kernels_measure(const sl_bench_options *options, uint32_t figures,
                             sl_timed_device *device, sl_bench *bench)
{
    kernels k = {.options = options, .device = device, .figures = figures};
    sl_status status = measure(&k, bench);
    sl_ops_close(&k.ops);
    sl_memory_close(&k.memory);
    free(k.cases);
    free(k.list);
    return status;
}
