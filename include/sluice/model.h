/* Models: a build function calls layers, and a session trains what they make up.
 *
 * A build function describes the whole model, and knows nothing of ranks. The layers know how the
 * model is divided: parameters over tensor-parallel ranks, rows of the hidden states over the same
 * ranks, blocks over pipeline stages. Rows, tokens of a row, precision and dropout are options of
 * the session (sluice/options.h), and no business of the build function either.
 *
 * A build function is called many times, also while a plan is searched, so it is pure and cheap:
 * the same calls each time. Errors stick: after the first one layers do nothing and return valid
 * handles, and sl_session_open returns the error. So a build function checks nothing.
 *
 *   static sl_status build(sl_model *model, const void *user)
 *   {
 *       sl_tensor x = sl_embed(model, &(sl_embedding){.name = "wte", .ids = 257, .width = 128});
 *       for (uint32_t i = 0; i < 4; i++) {
 *           sl_block(model, "h", i);
 *           sl_tensor y = sl_norm(model, "norm", x);
 *           y = sl_linear(model, "up", y, &(sl_linear_spec){.out = 512, .parallel = SL_COLUMNS});
 *           y = sl_gelu(model, "gelu", y);
 *           y = sl_linear(model, "down", y, &(sl_linear_spec){.out = 128, .parallel = SL_ROWS});
 *           x = sl_drop_add(model, "drop", y, x);
 *           sl_block_end(model);
 *       }
 *       sl_head(model, "wte", sl_norm(model, "last", x));
 *       return SL_OK;
 *   }
 *
 * Names of parameters are those of checkpoints: the name of the block, of the layer, and "weight"
 * or "bias", as in "h.0.up.weight".
 */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H

#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model while it is built; only a build function is given one. */
typedef struct sl_model sl_model;

/* An activation of a model: some features of each token of a micro-batch. */
typedef struct sl_tensor {
    uint32_t index;
} sl_tensor;

/* Calls the layers of a model. Returns SL_OK, or what the caller of sl_session_open gets. */
typedef sl_status (*sl_build)(sl_model *model, const void *user);

/* ---- layers: hidden states are [B, T, features] ---- */

/* The layers up to sl_block_end are block `index`: the unit of recomputation and of stages, with
 * "name.index." before their names. Blocks are numbered from 0 and stand one behind the other. */
SL_API void sl_block(sl_model *model, const char *name, uint32_t index);
SL_API void sl_block_end(sl_model *model);

typedef struct sl_embedding {
    const char *name;      /* "wte": its table is `name`.weight, [ids, width], in panels of rows */
    uint64_t ids, width;   /* token ids, unpadded */
    const char *positions; /* "wpe": a table of learnt positions, [context, width]; NULL: none */
    uint64_t context;
    float deviation; /* of the initial values */
} sl_embedding;

/* The hidden states of the tokens: rows of the table, plus those of the positions. Before all
 * blocks, once. */
SL_API sl_tensor sl_embed(sl_model *model, const sl_embedding *embedding);

/* LAYERNORM over the features, with `name`.weight and `name`.bias. */
SL_API sl_tensor sl_norm(sl_model *model, const char *name, sl_tensor x);

/* How a linear is split over tensor-parallel ranks. */
typedef enum sl_parallel {
    SL_COLUMNS, /* each rank computes some of the features of y */
    SL_QKV,     /* so, by heads inside each of q, k and v */
    SL_ROWS,    /* x has some of the features on each rank; y is the sum over the ranks */
    SL_GATHERED /* as COLUMNS, and y is gathered: each rank has all features of it */
} sl_parallel;

typedef struct sl_linear_spec {
    uint64_t out; /* features of y, on all ranks together */
    sl_parallel parallel;
    uint64_t heads;  /* QKV: heads of q, of k and of v each */
    float deviation; /* of the initial weight */
} sl_linear_spec;

/* y = x * weight + bias, with `name`.weight [in, out] and `name`.bias. */
SL_API sl_tensor sl_linear(sl_model *model, const char *name, sl_tensor x,
                           const sl_linear_spec *spec);

/* Causal attention; qkv: the output of a linear split by QKV. */
SL_API sl_tensor sl_attention(sl_model *model, const char *name, sl_tensor qkv, uint64_t heads);

/* The tanh form. */
SL_API sl_tensor sl_gelu(sl_model *model, const char *name, sl_tensor x);

/* dropout(x); x itself without dropout. */
SL_API sl_tensor sl_drop(sl_model *model, const char *name, sl_tensor x);

/* dropout(x) + residual. x, the output of a linear, is used up. */
SL_API sl_tensor sl_drop_add(sl_model *model, const char *name, sl_tensor x, sl_tensor residual);

/* The end of the model: the logits of x with the table of an embedding, and their loss. */
SL_API void sl_head(sl_model *model, const char *table, sl_tensor x);

/* The same with a table of its own, `name`.weight, [ids, features of x]: targets are below `ids`.
 * `deviation` is that of the initial values. */
SL_API void sl_head_untied(sl_model *model, const char *name, sl_tensor x, uint64_t ids,
                           float deviation);

#ifdef __cplusplus
}
#endif
#endif
