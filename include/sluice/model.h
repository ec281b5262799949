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

/* GELU in its tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
SL_API sl_tensor sl_gelu(sl_model *model, const char *name, sl_tensor x);

/* Drops elements of x with the probability "dropout" and scales the rest by 1 / (1 - "dropout"); x
 * itself where nothing is dropped, as in an evaluation. */
SL_API sl_tensor sl_drop(sl_model *model, const char *name, sl_tensor x);

/* dropout(x) + residual. Both have the same features, all of them on each rank. x is the output of
 * sl_linear; the sum takes its memory, so no other layer reads x. */
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
