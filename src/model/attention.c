/* Attention as a forward op: with q, k and v in one tensor or in three, and with a cache of keys
 * and values where the model decodes. A rank has whole key heads, each with all query heads that
 * read it; or one key head that it shares with other ranks, with some of its query heads.
 */
#include <stdio.h>

#include "base/bits.h"
#include "base/sized.h"
#include "base/status.h"
#include "build.h"

/* Limits of the counters that number dropout's random draws (kernels/dropout.h). */
enum { DROPOUT_SEQ_MAX = 1 << 20, DROPOUT_HEADS_MAX = 1 << 12 };

/* An attention on this rank: what it reads, and its sizes. */
typedef struct local_attention {
    const char *name;
    uint32_t qkv, k, v; /* k and v SL_NONE: qkv has all three */
    sl_op_attrs attrs;
    uint32_t site; /* of dropout */
    bool is_whole; /* all heads on each rank */
} local_attention;

static sl_status add_cache(sl_model *model, uint64_t local_width, uint32_t *out_cache)
{
    sl_value cache = {.kind = SL_VALUE_PERSISTENT,
                      .index = sl_model_number_slot(model),
                      .type = model->program->type};
    uint64_t rows = 2ull * model->options->batch; /* keys and values */
    snprintf(cache.name, sizeof cache.name, "%.20scache", model->prefix);
    SL_TRY(sl_bits_multiply(rows, model->cache_rows, cache.name, &rows));
    return sl_layer_add_rows(model, &cache, rows, local_width, out_cache);
}

/* Ranks that divide the heads draw for their own: the first one is number tp_rank * heads. */
static sl_status set_dropout(const sl_model *model, const local_attention *it, sl_op_attrs *attrs)
{
    attrs->dropout = model->options->dropout;
    if (attrs->dropout == 0)
        return SL_OK;
    if (attrs->seq > DROPOUT_SEQ_MAX || attrs->heads * model->options->tp_size > DROPOUT_HEADS_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "dropout takes rows of at most %u tokens and %u heads, not %llu and %llu",
                DROPOUT_SEQ_MAX, DROPOUT_HEADS_MAX, (unsigned long long)attrs->seq,
                (unsigned long long)(attrs->heads * model->options->tp_size));
    attrs->dropout_site = it->site;
    attrs->rank_index = it->is_whole ? 0 : (uint16_t)model->options->tp_rank;
    return SL_OK;
}

static sl_status emit_cached(sl_model *model, local_attention *it, sl_model_tensor *made)
{
    uint32_t cache;
    it->attrs.cache_rows = model->cache_rows;
    SL_TRY(add_cache(model, it->attrs.out, &cache));
    SL_TRY(sl_layer_add_activation(model, it->name, "", model->program->type, it->attrs.in,
                                   &made->value));
    const uint32_t operands[] = {it->qkv, cache, made->value, it->k, it->v};
    return sl_layer_add_op(model, SL_OP_ATTENTION_CACHED, &it->attrs, operands, 5);
}

static sl_status emit_whole(sl_model *model, local_attention *it, sl_model_tensor *made)
{
    uint32_t lse;
    SL_TRY(sl_layer_add_activation(model, it->name, "", model->program->type, it->attrs.in,
                                   &made->value));
    SL_TRY(sl_layer_add_activation(model, it->name, ".lse", SL_TYPE_FP32, it->attrs.heads, &lse));
    SL_TRY(set_dropout(model, it, &it->attrs));
    const uint32_t operands[] = {it->qkv, made->value, lse, model->positions, it->k, it->v};
    return sl_layer_add_op(model, SL_OP_ATTENTION, &it->attrs, operands, 6);
}

static sl_status emit_attention(sl_model *model, local_attention *it, sl_model_tensor *made)
{
    it->attrs.batch = model->options->batch;
    it->attrs.seq = model->options->seq;
    SL_TRY(sl_model_open_segment(model));
    return model->options->mode == SL_MODEL_CACHED ? emit_cached(model, it, made)
                                                   : emit_whole(model, it, made);
}

/* ---- q, k and v in one tensor ---- */

static sl_status make_joined(sl_model *model, const char *name, sl_tensor x, uint64_t heads,
                             sl_model_tensor *made)
{
    local_attention it = {.name = name, .k = SL_NONE, .v = SL_NONE};
    sl_model_tensor qkv;
    it.site = sl_model_number_site(model);
    SL_TRY(sl_model_use(model, x, &qkv));
    if (heads == 0 || qkv.features % (3 * heads) != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu features are not q, k and v of %llu heads", name,
                (unsigned long long)qkv.features, (unsigned long long)heads);
    *made = sl_layer_describe(name, qkv.features / 3);
    made->local = qkv.local / 3;
    if (!sl_model_is_here(model))
        return SL_OK;
    it.is_whole = qkv.local == qkv.features;
    it.qkv = qkv.value;
    it.attrs.in = it.attrs.out = made->local; /* as many key heads as query heads */
    it.attrs.heads = made->local / (made->features / heads);
    return emit_attention(model, &it, made);
}

sl_tensor sl_attention(sl_model *model, const char *name, sl_tensor qkv, uint64_t heads)
{
    sl_model_tensor made = {.value = SL_NONE};
    const sl_status status = make_joined(model, name, qkv, heads, &made);
    return sl_model_return(model, status, &made);
}

/* ---- q, k and v in three ---- */

enum { Q, K, V, INPUTS };

static sl_status check_heads(const char *name, const sl_attention_spec *spec,
                             const sl_model_tensor inputs[INPUTS])
{
    const sl_model_tensor *q = &inputs[Q], *k = &inputs[K], *v = &inputs[V];
    if (spec->heads == 0 || spec->kv_heads == 0 || spec->heads % spec->kv_heads != 0)
        SL_FAIL(SL_ERROR_USAGE, "%s: %llu key heads do not divide %llu heads", name,
                (unsigned long long)spec->kv_heads, (unsigned long long)spec->heads);
    if (q->features % spec->heads != 0 || k->features != v->features ||
        k->features / spec->kv_heads != q->features / spec->heads ||
        k->features % spec->kv_heads != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: q, k and v of %llu, %llu and %llu features are not %llu heads on %llu", name,
                (unsigned long long)q->features, (unsigned long long)k->features,
                (unsigned long long)v->features, (unsigned long long)spec->heads,
                (unsigned long long)spec->kv_heads);
    return SL_OK;
}

/* Each rank has the query heads of its key heads, and no others. Where ranks share a key head, each
 * has some of its query heads, all equally many. */
static sl_status check_ranks(const sl_model *model, const char *name, const sl_attention_spec *spec,
                             const sl_model_tensor inputs[INPUTS])
{
    const uint64_t width = inputs[Q].features / spec->heads;
    const uint64_t heads = inputs[Q].local / width, kv_heads = inputs[K].local / width;
    const bool is_divided = inputs[K].is_shared ? heads * model->options->tp_size == spec->heads
                                                : heads * spec->kv_heads == kv_heads * spec->heads;
    if (inputs[Q].local % width != 0 || inputs[K].local % width != 0 || !is_divided ||
        inputs[V].local != inputs[K].local || inputs[V].is_shared != inputs[K].is_shared)
        SL_FAIL(
            SL_ERROR_USAGE,
            "%s: %llu heads on %llu key heads cannot be divided among %u tensor-parallel ranks: "
            "each needs whole key heads, or, with shares_heads of the linears of k and v, "
            "equally many query heads of one key head",
            name, (unsigned long long)spec->heads, (unsigned long long)spec->kv_heads,
            model->options->tp_size);
    return SL_OK;
}

static sl_status make_separate(sl_model *model, const char *name, const sl_tensor from[INPUTS],
                               const sl_attention_spec *spec, sl_model_tensor *made)
{
    local_attention it = {.name = name};
    sl_model_tensor inputs[INPUTS];
    it.site = sl_model_number_site(model);
    for (int i = 0; i < INPUTS; i++)
        SL_TRY((i == Q ? sl_layer_use_rows : sl_layer_use_head_rows)(model, from[i], &inputs[i]));
    SL_TRY(check_heads(name, spec, inputs));
    SL_TRY(check_ranks(model, name, spec, inputs));
    *made = sl_layer_describe(name, inputs[Q].features);
    made->local = inputs[Q].local;
    if (!sl_model_is_here(model))
        return SL_OK;
    it.is_whole = inputs[Q].local == inputs[Q].features;
    it.qkv = inputs[Q].value;
    it.k = inputs[K].value;
    it.v = inputs[V].value;
    it.attrs.in = inputs[Q].local;
    it.attrs.out = inputs[K].local;
    it.attrs.heads = inputs[Q].local / (inputs[Q].features / spec->heads);
    it.attrs.is_separate = 1;
    return emit_attention(model, &it, made);
}

sl_tensor sl_attend_sized(sl_model *model, const char *name, const sl_tensor qkv[3],
                          const sl_attention_spec *spec, size_t bytes)
{
    sl_model_tensor made = {.value = SL_NONE};
    sl_attention_spec known;
    sl_status status = sl_sized_take("sl_attention_spec", spec, bytes, &known, sizeof known);
    if (status == SL_OK)
        status = make_separate(model, name, qkv, &known, &made);
    return sl_model_return(model, status, &made);
}
