/* OLMo 2, by the layers of model.h: Llama's sizes, but norms stand behind attention and MLP and not
 * before them, and all of q and all of k have one each. So every rank needs all of q and k:
 * tensor-parallel ranks divide the weights of attention, and each computes all heads. */
#include "base/status.h"
#include "llama.h"

static const float weight_deviation = 0.02f;

static sl_tensor build_norm(sl_model *model, const sl_model_shape *shape, const char *name,
                            sl_tensor x)
{
    const sl_rms_spec spec = {.epsilon = (float)shape->norm_epsilon};
    return sl_rms_norm(model, name, x, &spec);
}

static sl_tensor build_linear(sl_model *model, const char *name, sl_tensor x, uint64_t out,
                              sl_parallel parallel)
{
    const sl_linear_spec spec = {
        .out = out, .parallel = parallel, .deviation = weight_deviation, .no_bias = true};
    return sl_linear(model, name, x, &spec);
}

static sl_tensor build_attention(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    const uint64_t q_width = (uint64_t)shape->heads * shape->head;
    const uint64_t k_width = (uint64_t)shape->kv_heads * shape->head;
    const sl_attention_spec spec = {shape->heads, shape->kv_heads};
    const sl_rotary_spec q_rotary = sl_llama_rotary(shape, shape->heads);
    const sl_rotary_spec k_rotary = sl_llama_rotary(shape, shape->kv_heads);
    sl_tensor q = build_linear(model, "self_attn.q_proj", x, q_width, SL_GATHERED);
    q = build_norm(model, shape, "self_attn.q_norm", q);
    sl_tensor k = build_linear(model, "self_attn.k_proj", x, k_width, SL_GATHERED);
    k = build_norm(model, shape, "self_attn.k_norm", k);
    const sl_tensor v = build_linear(model, "self_attn.v_proj", x, k_width, SL_GATHERED);
    q = sl_rotary(model, "self_attn.q", q, &q_rotary);
    k = sl_rotary(model, "self_attn.k", k, &k_rotary);
    return build_linear(model, "self_attn.o_proj", sl_attend(model, "self_attn", q, k, v, &spec),
                        shape->width, SL_GATHERED);
}

static sl_tensor build_mlp(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    const sl_tensor gate = build_linear(model, "mlp.gate_proj", x, shape->ffn, SL_COLUMNS);
    const sl_tensor up = build_linear(model, "mlp.up_proj", x, shape->ffn, SL_COLUMNS);
    return build_linear(model, "mlp.down_proj", sl_swiglu(model, "mlp.swiglu", gate, up),
                        shape->width, SL_ROWS);
}

/* x, for linears that ranks divide: each rank has a term of their gradient, and all of the
 * residual's. A layer between the two adds up the terms. */
static sl_tensor build_branch(sl_model *model, const char *name, sl_tensor x)
{
    return sl_model_options_of(model)->tp_size > 1 ? sl_scale(model, name, x, 1) : x;
}

/* x + norm(attention(x)), then x + norm(mlp(x)). */
static sl_tensor build_block(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    sl_tensor y = build_attention(model, shape, build_branch(model, "self_attn.x", x));
    y = build_norm(model, shape, "post_attention_layernorm", y);
    x = sl_drop_add(model, "self_attn.dropout", y, x);
    y = build_mlp(model, shape, build_branch(model, "mlp.x", x));
    y = build_norm(model, shape, "post_feedforward_layernorm", y);
    return sl_drop_add(model, "mlp.dropout", y, x);
}

static sl_status build(sl_model *model, const void *user)
{
    const sl_model_shape *shape = user;
    const sl_embedding embedding = {.name = "embed_tokens",
                                    .ids = shape->vocab,
                                    .width = shape->width,
                                    .context = shape->context,
                                    .deviation = weight_deviation};
    if (sl_model_options_of(model)->sequence_parallel)
        SL_FAIL(SL_ERROR_USAGE,
                "olmo2 has norms of all heads together, which tensor-parallel ranks "
                "compute of whole rows: leave out --sequence-parallel");
    sl_tensor x = sl_drop(model, "embedding.dropout", sl_embed(model, &embedding));
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        sl_block(model, "layers", layer);
        x = build_block(model, shape, x);
        sl_block_end(model);
    }
    x = build_norm(model, shape, "norm", x);
    if (shape->is_untied)
        sl_head_untied(model, "lm_head", x, shape->vocab, weight_deviation);
    else
        sl_head(model, "embed_tokens", x);
    return SL_OK;
}

const sl_architecture sl_olmo2_architecture = {
    SL_LLAMA_ROW, .build = build, .has_whole_norms = true, .norm_epsilon = 1e-6, .rope_base = 5e5};
