/* Llama, Qwen 2 and Qwen 3, by the layers of model.h. */
#include "llama.h"

static const float weight_deviation = 0.02f;

/* ---- attention ---- */

static sl_linear_spec linear_of(uint64_t out, sl_parallel parallel)
{
    return (sl_linear_spec){
        .out = out, .parallel = parallel, .deviation = weight_deviation, .no_bias = true};
}

static sl_linear_spec projection_of(const sl_model_shape *shape, uint64_t heads)
{
    sl_linear_spec spec = linear_of(heads * shape->head, SL_COLUMNS);
    spec.column_heads = heads;
    spec.no_bias = !sl_architecture_of(shape)->has_qkv_bias;
    return spec;
}

/* Of k or v. */
static sl_linear_spec key_projection_of(const sl_model_shape *shape)
{
    sl_linear_spec spec = projection_of(shape, shape->kv_heads);
    spec.shares_heads = 1;
    return spec;
}

sl_rotary_spec sl_llama_rotary(const sl_model_shape *shape, uint64_t heads)
{
    const sl_model_rope *rope = &shape->rope;
    return (sl_rotary_spec){.heads = heads,
                            .context = shape->context,
                            .base = rope->base,
                            .scaling = rope->scaling,
                            .factor = rope->factor,
                            .low_frequency_factor = rope->low_frequency_factor,
                            .high_frequency_factor = rope->high_frequency_factor,
                            .original_context = rope->original_context};
}

/* The layers of q, or of k. */
typedef struct turned_names {
    const char *projection, *norm, *rotary;
} turned_names;

static sl_tensor build_turned(sl_model *model, const sl_model_shape *shape, sl_tensor x,
                              const turned_names *names, const sl_linear_spec *projection)
{
    const sl_rotary_spec rotary = sl_llama_rotary(shape, projection->column_heads);
    const sl_rms_spec norm = {(float)shape->norm_epsilon, shape->head};
    sl_tensor y = sl_linear(model, names->projection, x, projection);
    if (sl_architecture_of(shape)->has_head_norms)
        y = sl_rms_norm(model, names->norm, y, &norm);
    return sl_rotary(model, names->rotary, y, &rotary);
}

static sl_tensor build_attention(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    static const turned_names q_names = {"self_attn.q_proj", "self_attn.q_norm", "self_attn.q"};
    static const turned_names k_names = {"self_attn.k_proj", "self_attn.k_norm", "self_attn.k"};
    const bool is_colossal = sl_model_options_of(model)->split_layout == SL_SPLIT_COLOSSAL;
    const sl_attention_spec heads = {shape->heads, shape->kv_heads};
    const sl_linear_spec queries = projection_of(shape, shape->heads);
    const sl_linear_spec keys = key_projection_of(shape);
    const sl_linear_spec mixed = linear_of(shape->width, is_colossal ? SL_GATHERED : SL_ROWS);
    const sl_tensor q = build_turned(model, shape, x, &q_names, &queries);
    const sl_tensor k = build_turned(model, shape, x, &k_names, &keys);
    const sl_tensor v = sl_linear(model, "self_attn.v_proj", x, &keys);
    return sl_linear(model, "self_attn.o_proj", sl_attend(model, "self_attn", q, k, v, &heads),
                     &mixed);
}

/* ---- the model ---- */

static sl_tensor build_mlp(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    const sl_linear_spec wide = linear_of(shape->ffn, SL_COLUMNS);
    const sl_linear_spec narrow = linear_of(shape->width, SL_ROWS);
    const sl_tensor gate = sl_linear(model, "mlp.gate_proj", x, &wide);
    const sl_tensor up = sl_linear(model, "mlp.up_proj", x, &wide);
    return sl_linear(model, "mlp.down_proj", sl_swiglu(model, "mlp.swiglu", gate, up), &narrow);
}

/* x + attention(norm(x)), then x + mlp(norm(x)). */
static sl_tensor build_block(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    const sl_rms_spec norm = {.epsilon = (float)shape->norm_epsilon};
    sl_tensor y = sl_rms_norm(model, "input_layernorm", x, &norm);
    x = sl_drop_add(model, "self_attn.dropout", build_attention(model, shape, y), x);
    y = sl_rms_norm(model, "post_attention_layernorm", x, &norm);
    return sl_drop_add(model, "mlp.dropout", build_mlp(model, shape, y), x);
}

static sl_status build(sl_model *model, const void *user)
{
    const sl_model_shape *shape = user;
    const sl_rms_spec norm = {.epsilon = (float)shape->norm_epsilon};
    const sl_embedding embedding = {.name = "embed_tokens",
                                    .ids = shape->vocab,
                                    .width = shape->width,
                                    .context = shape->context,
                                    .deviation = weight_deviation};
    sl_tensor x = sl_drop(model, "embedding.dropout", sl_embed(model, &embedding));
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        sl_block(model, "layers", layer);
        x = build_block(model, shape, x);
        sl_block_end(model);
    }
    x = sl_rms_norm(model, "norm", x, &norm);
    if (shape->is_untied)
        sl_head_untied(model, "lm_head", x, shape->vocab, weight_deviation);
    else
        sl_head(model, "embed_tokens", x);
    return SL_OK;
}

/* ---- the rows ---- */

#define ROW SL_LLAMA_ROW, .build = build

const sl_architecture sl_llama_architecture = {ROW, .norm_epsilon = 1e-5, .rope_base = 1e4};
const sl_architecture sl_qwen2_architecture = {ROW, .has_qkv_bias = true, .norm_epsilon = 1e-6,
                                               .rope_base = 1e6};
const sl_architecture sl_qwen3_architecture = {ROW, .has_head_norms = true, .norm_epsilon = 1e-6,
                                               .rope_base = 1e6};
