/* Models: a build function calls layers, and a session trains what they make up.
 *
 * A build function describes the whole model, and knows nothing of ranks. The layers know how the
 * model is divided: parameters over tensor-parallel ranks, rows of the hidden states over the same
 * ranks, blocks over pipeline stages. Rows, tokens of a row, precision and dropout are options of
 * the session (sluice/options.h), and no business of the build function either.
 *
 * A build function is called many times, also while a plan is searched, so it is pure and cheap:
 * the same calls each time. Errors stick: after the first one layers do nothing and return valid
 * handles, and sl_session_open returns the error. So a build function checks nothing. What a layer
 * makes is read by another one: all parameters have a part in the loss.
 *
 *   static sl_status build(sl_model *model, const void *user)
 *   {
 *       const sl_embedding bytes = {.name = "wte", .ids = 257, .width = 128, .deviation = 0.02f};
 *       const sl_linear_spec up = {.out = 512, .parallel = SL_COLUMNS, .deviation = 0.02f};
 *       const sl_linear_spec down = {.out = 128, .parallel = SL_ROWS, .deviation = 0.02f};
 *       sl_tensor x = sl_embed(model, &bytes);
 *       (void)user;
 *       for (uint32_t i = 0; i < 4; i++) {
 *           sl_block(model, "h", i);
 *           sl_tensor y = sl_linear(model, "up", sl_norm(model, "norm", x), &up);
 *           y = sl_linear(model, "down", sl_gelu(model, "gelu", y), &down);
 *           x = sl_drop_add(model, "drop", y, x);
 *           sl_block_end(model);
 *       }
 *       sl_head(model, "wte", sl_norm(model, "last", x));
 *       return SL_OK;
 *   }
 *
 * Names of parameters are those of checkpoints: the name of the block, of the layer, and "weight"
 * or "bias", as in "h.0.up.weight". They are different for each parameter of a model, and have at
 * most 47 characters. The name of a layer without parameters stands in plans and messages. A name
 * stays valid until the build function returns.
 *
 * Later versions add fields behind those of a struct. A function whose name ends in _sized takes
 * the size of the caller's struct as `bytes`, for languages that do not read this header: fields
 * behind it are 0. A field that the library does not know must be 0.
 */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/custom.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model while it is built; only a build function is given one. */
typedef struct sl_model sl_model;

/* An activation of a model: some features of each token of a micro-batch. A handle that a layer
 * returns, valid until the build function returns; it needs no freeing. */
typedef struct sl_tensor {
    uint32_t index; /* private */
} sl_tensor;

/* A build function: calls the layers of a model. `user` is that of sl_options_set_model. Returns
 * SL_OK, or what the caller of sl_session_open gets. */
typedef sl_status (*sl_build)(sl_model *model, const void *user);

/* ---- layers: hidden states are [B, T, features] ---- */

/* The layers up to sl_block_end are block `index`: the unit of recomputation and of stages, with
 * "name.index." before their names. Blocks are numbered from 0 and stand one behind the other,
 * without layers between them. "name.index." has at most 19 characters. */
SL_API void sl_block(sl_model *model, const char *name, uint32_t index);
SL_API void sl_block_end(sl_model *model);

/* What sl_embed makes. Fields that are not set are 0 or NULL. */
typedef struct sl_embedding {
    const char *name; /* "wte": the table is `name`.weight, [ids, width]; at most 32 characters */
    uint64_t ids;     /* token ids of the model, unpadded; at least 1 */
    uint64_t width;   /* features of a hidden state; at least 1 */
    const char *positions; /* "wpe": a table of learnt positions, [context, width]; NULL: none */
    uint64_t context;      /* positions; with a table of them at least the option "seq" */
    float deviation; /* standard deviation of the initial values, which are normal with mean 0; 0:
                        0.02 */
} sl_embedding;

/* The hidden states of the tokens, [B, T, width]: rows of the table, plus those of the positions.
 * Called once, before the first block. */
SL_API sl_tensor sl_embed_sized(sl_model *model, const sl_embedding *embedding, size_t bytes);
static inline sl_tensor sl_embed(sl_model *model, const sl_embedding *embedding)
{
    return sl_embed_sized(model, embedding, sizeof *embedding);
}

/* y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, over the features of each token; the
 * parameters are `name`.weight, at first 1, and `name`.bias, at first 0 (Ba et al. 2016). x has all
 * features on each rank. */
SL_API sl_tensor sl_norm(sl_model *model, const char *name, sl_tensor x);

/* What sl_rms_norm makes. */
typedef struct sl_rms_spec {
    float epsilon; /* added to the mean square; positive */
    uint64_t head; /* features of a head: each head is normalised by itself; 0: all features */
    float weight_offset; /* added to the weight: 1 where checkpoints have the weight less 1 */
} sl_rms_spec;

/* y = x / sqrt(mean(x^2) + epsilon) * (weight_offset + weight), over the features of each token, or
 * of each of its heads; the parameter is `name`.weight, of a token's or a head's features, at first
 * 1 - weight_offset (Zhang and Sennrich 2019). x has all features on each rank, or whole heads. */
SL_API sl_tensor sl_rms_norm_sized(sl_model *model, const char *name, sl_tensor x,
                                   const sl_rms_spec *spec, size_t bytes);
static inline sl_tensor sl_rms_norm(sl_model *model, const char *name, sl_tensor x,
                                    const sl_rms_spec *spec)
{
    return sl_rms_norm_sized(model, name, x, spec, sizeof *spec);
}

/* How a linear is split over tensor-parallel ranks (Shoeybi et al. 2019). Without such ranks all of
 * them compute the same. */
typedef enum sl_parallel {
    SL_COLUMNS, /* each rank computes some of the features of y */
    SL_QKV,     /* as SL_COLUMNS, by heads inside each of q, k and v */
    SL_ROWS,    /* x has some of the features on each rank; y is the sum over the ranks */
    SL_GATHERED /* as SL_COLUMNS, and y is gathered: each rank has all features of it */
} sl_parallel;

/* What sl_linear makes. */
typedef struct sl_linear_spec {
    uint64_t out;         /* features of y, on all ranks together; at least 1 */
    sl_parallel parallel; /* the split over tensor-parallel ranks */
    uint64_t heads;       /* SL_QKV: heads of q, of k and of v each; `out` is a multiple of 3 heads.
                             Not read otherwise */
    float deviation;      /* standard deviation of the initial weight, as of sl_embedding */
    uint64_t no_bias;     /* not 0: there is no bias */
    uint64_t column_heads; /* SL_COLUMNS: if not 0, each rank computes whole heads of
                              out / column_heads features. Not read otherwise */
    uint64_t shares_heads; /* not 0: with fewer column_heads than ranks, each head is stored by
                              equally many ranks; only for k and v of sl_attend */
} sl_linear_spec;

/* y = x * weight + bias, [B, T, out], with `name`.weight [in, out] and `name`.bias [out], at first
 * 0; `in` is the number of features of x. */
SL_API sl_tensor sl_linear_sized(sl_model *model, const char *name, sl_tensor x,
                                 const sl_linear_spec *spec, size_t bytes);
static inline sl_tensor sl_linear(sl_model *model, const char *name, sl_tensor x,
                                  const sl_linear_spec *spec)
{
    return sl_linear_sized(model, name, x, spec, sizeof *spec);
}

/* Causal self-attention of `heads` heads with scores scaled by 1 / sqrt(features of a head). qkv is
 * the output of a linear split by SL_QKV with as many heads: q, k and v side by side, [B, T, 3 C].
 * Returns [B, T, C]. */
SL_API sl_tensor sl_attention(sl_model *model, const char *name, sl_tensor qkv, uint64_t heads);

/* How the angles of sl_rotary grow with the position beyond the context that a model was first
 * trained on. */
typedef enum sl_rotary_scaling {
    SL_ROTARY_PLAIN,
    SL_ROTARY_LINEAR, /* positions are divided by `factor` (Chen et al. 2023) */
    SL_ROTARY_LLAMA3  /* frequencies are divided by `factor` where less than
                         low_frequency_factor turns fit original_context, kept where more than
                         high_frequency_factor do, and blended between */
} sl_rotary_scaling;

/* What sl_rotary makes. */
typedef struct sl_rotary_spec {
    uint64_t heads;   /* of x, on all ranks; the width of a head is even */
    uint64_t context; /* positions; at least the option "seq" */
    double base;      /* pair i of n / 2 turns by base^(-2 i / n) a token; at least 1 */
    uint32_t scaling; /* an sl_rotary_scaling; what it does not name is not read */
    double factor;    /* at least 1 */
    double low_frequency_factor, high_frequency_factor;
    uint64_t original_context;
} sl_rotary_spec;

/* Rotary positions (Su et al. 2021): in each head of n features, features i and i + n / 2 are a
 * pair, which is turned by an angle that grows with the token's position in its row, or in its
 * document where these are kept apart. [B, T, features of x]. */
SL_API sl_tensor sl_rotary_sized(sl_model *model, const char *name, sl_tensor x,
                                 const sl_rotary_spec *spec, size_t bytes);
static inline sl_tensor sl_rotary(sl_model *model, const char *name, sl_tensor x,
                                  const sl_rotary_spec *spec)
{
    return sl_rotary_sized(model, name, x, spec, sizeof *spec);
}

/* What sl_attend makes. */
typedef struct sl_attention_spec {
    uint64_t heads;    /* of q */
    uint64_t kv_heads; /* of k and v: divides `heads`. Query head h reads key head
                          h / (heads / kv_heads) (Ainslie et al. 2023) */
} sl_attention_spec;

/* Causal self-attention as sl_attention, of q [B, T, heads n], k and v [B, T, kv_heads n] that
 * layers of their own made: linears split by SL_COLUMNS with their column_heads, or what
 * sl_rms_norm and sl_rotary made of them. Returns [B, T, heads n]. */
SL_API sl_tensor sl_attend_sized(sl_model *model, const char *name, const sl_tensor qkv[3],
                                 const sl_attention_spec *spec, size_t bytes);
static inline sl_tensor sl_attend(sl_model *model, const char *name, sl_tensor q, sl_tensor k,
                                  sl_tensor v, const sl_attention_spec *spec)
{
    const sl_tensor qkv[3] = {q, k, v};
    return sl_attend_sized(model, name, qkv, spec, sizeof *spec);
}

/* GELU in its tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
SL_API sl_tensor sl_gelu(sl_model *model, const char *name, sl_tensor x);

/* gate / (1 + exp(-gate)) * up, of two tensors with the same features (Shazeer 2020). */
SL_API sl_tensor sl_swiglu(sl_model *model, const char *name, sl_tensor gate, sl_tensor up);

/* gelu(gate) * up, likewise, with GELU's tanh form (Shazeer 2020). */
SL_API sl_tensor sl_geglu(sl_model *model, const char *name, sl_tensor gate, sl_tensor up);

/* x * factor, which is finite and not 0. */
SL_API sl_tensor sl_scale(sl_model *model, const char *name, sl_tensor x, float factor);

/* Drops elements of x with the probability "dropout" and scales the rest by 1 / (1 - "dropout"); x
 * itself where nothing is dropped, as in an evaluation. */
SL_API sl_tensor sl_drop(sl_model *model, const char *name, sl_tensor x);

/* dropout(x) + residual. Both have the same features, all of them on each rank. x is the output of
 * sl_linear, sl_norm or sl_rms_norm; the sum takes its memory, so no other layer reads x. */
SL_API sl_tensor sl_drop_add(sl_model *model, const char *name, sl_tensor x, sl_tensor residual);

/* The end of the model, called once, behind all blocks: the logits of x, [B, T, ids], with the
 * table of the embedding called `table`, and their mean cross-entropy. x is as wide as the table.
 */
SL_API void sl_head(sl_model *model, const char *table, sl_tensor x);

/* The same with a table of its own, `name`.weight, [ids, features of x]: targets are below `ids`.
 * `deviation` is that of the initial values; 0: 0.02. */
SL_API void sl_head_untied(sl_model *model, const char *name, sl_tensor x, uint64_t ids,
                           float deviation);

/* ---- an op of a program's own ---- */

/* y = op(x), [B, T, out]; the weight is `name`.weight, if the op has one. x has all its features on
 * each rank, unless the op is elementwise. At most 16 kinds in a model. */
SL_API sl_tensor sl_custom_sized(sl_model *model, const char *name, const sl_custom_op *op,
                                 size_t bytes, const sl_tensor *inputs, uint32_t input_count);
static inline sl_tensor sl_custom(sl_model *model, const char *name, const sl_custom_op *op,
                                  sl_tensor x)
{
    return sl_custom_sized(model, name, op, sizeof *op, &x, 1);
}

/* y = op(x, z); both have the same features. */
static inline sl_tensor sl_custom_two(sl_model *model, const char *name, const sl_custom_op *op,
                                      sl_tensor x, sl_tensor z)
{
    const sl_tensor inputs[2] = {x, z};
    return sl_custom_sized(model, name, op, sizeof *op, inputs, 2);
}

#ifdef __cplusplus
}
#endif
#endif
