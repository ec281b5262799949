/* A model of the public layers that Llama and Qwen are made of, in sizes of which none fits
 * another: grouped heads, heads whose width is not width / heads, an odd inner width. */
#ifndef SL_TESTS_LLAMA_MODEL_H
#define SL_TESTS_LLAMA_MODEL_H

#include <stdbool.h>

#include "sluice/model.h"

typedef struct llama_sizes {
    uint64_t layers, width, heads, kv_heads, head, inner, context, ids;
    bool has_head_norms; /* q and k are normalised head by head, as in Qwen 3 */
    bool has_biases;     /* of q, k and v, as in Qwen 2 */
    bool is_tied;        /* the head has the embedding's table */
    bool is_gemma;       /* scaled embedding, norms of 1 + weight, GELU as the gate */
    sl_rotary_spec rotary;
    bool has_no_rotary;
} llama_sizes;

static const llama_sizes llama_tiny = {.layers = 2,
                                       .width = 10,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head = 6,
                                       .inner = 13,
                                       .context = 24,
                                       .ids = 131,
                                       .has_head_norms = true,
                                       .rotary = {.base = 100}};

static inline sl_tensor llama_projection(sl_model *model, const char *name, sl_tensor x,
                                         uint64_t heads, const llama_sizes *it)
{
    const sl_linear_spec spec = {.out = heads * it->head,
                                 .parallel = SL_COLUMNS,
                                 .deviation = 0.1f,
                                 .no_bias = !it->has_biases,
                                 .column_heads = heads};
    return sl_linear(model, name, x, &spec);
}

/* q or k: projected, normalised and turned. */
static inline sl_tensor llama_turned(sl_model *model, const char *names[3], sl_tensor x,
                                     uint64_t heads, const llama_sizes *it)
{
    const sl_rms_spec norm = {.epsilon = 1e-6f, .head = it->head};
    sl_rotary_spec rotary = it->rotary;
    rotary.heads = heads;
    rotary.context = it->context;
    x = llama_projection(model, names[0], x, heads, it);
    if (it->has_head_norms)
        x = sl_rms_norm(model, names[1], x, &norm);
    return it->has_no_rotary ? x : sl_rotary(model, names[2], x, &rotary);
}

static inline sl_tensor llama_attention(sl_model *model, sl_tensor x, const llama_sizes *it)
{
    const char *of_q[] = {"attn.q_proj", "attn.q_norm", "attn.q_rotary"};
    const char *of_k[] = {"attn.k_proj", "attn.k_norm", "attn.k_rotary"};
    const sl_attention_spec spec = {it->heads, it->kv_heads};
    const sl_tensor q = llama_turned(model, of_q, x, it->heads, it);
    const sl_tensor k = llama_turned(model, of_k, x, it->kv_heads, it);
    const sl_tensor v = llama_projection(model, "attn.v_proj", x, it->kv_heads, it);
    return sl_attend(model, "attn", q, k, v, &spec);
}

static inline sl_status llama_build(sl_model *model, const void *user)
{
    const llama_sizes *it = (const llama_sizes *)user;
    const sl_embedding table = {
        .name = "wte", .ids = it->ids, .width = it->width, .context = it->context};
    const sl_rms_spec norm = {.epsilon = 1e-5f, .weight_offset = it->is_gemma ? 1.0f : 0.0f};
    const sl_linear_spec back = {
        .out = it->width, .parallel = SL_ROWS, .deviation = 0.1f, .no_bias = 1};
    const sl_linear_spec inner = {
        .out = it->inner, .parallel = SL_COLUMNS, .deviation = 0.1f, .no_bias = 1};
    sl_tensor x = sl_embed(model, &table);
    if (it->is_gemma)
        x = sl_scale(model, "wte.scale", x, 3.25f);
    for (uint32_t layer = 0; layer < it->layers; layer++) {
        sl_block(model, "h", layer);
        sl_tensor y = llama_attention(model, sl_rms_norm(model, "ln_1", x, &norm), it);
        x = sl_drop_add(model, "attn.drop", sl_linear(model, "attn.o_proj", y, &back), x);
        y = sl_rms_norm(model, "ln_2", x, &norm);
        const sl_tensor gate = sl_linear(model, "gate", y, &inner);
        y = (it->is_gemma ? sl_geglu : sl_swiglu)(model, "mlp", gate,
                                                  sl_linear(model, "up", y, &inner));
        x = sl_drop_add(model, "mlp.drop", sl_linear(model, "down", y, &back), x);
        sl_block_end(model);
    }
    x = sl_rms_norm(model, "norm", x, &norm);
    if (it->is_tied)
        sl_head(model, "wte", x);
    else
        sl_head_untied(model, "lm_head", x, it->ids, 0);
    return SL_OK;
}

#endif
