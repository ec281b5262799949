/* Models: a build function calls layers, and out comes the forward program of one micro-batch.
 *
 * A build function describes the whole model, and knows nothing of ranks. From the options the
 * layers know how the model is divided: parameters over tensor-parallel ranks, rows of the hidden
 * states over the same ranks, blocks over pipeline stages. Layers of another stage add nothing to
 * the program. Shapes and modes that a model does not depend on (rows, tokens, decoding) are in the
 * options, too.
 *
 * A build function is called many times, also by searches, so it is pure and cheap: the same calls
 * each time. Errors stick: after the first one layers do nothing and return valid handles, and
 * sl_model_emit returns the error. So a build function checks nothing.
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

#include "sluice/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model while it is built; only sl_model_emit makes one. */
typedef struct sl_model sl_model;

/* An activation of a model: some features of each token of a micro-batch. */
typedef struct sl_tensor {
    uint32_t index;
} sl_tensor;

/* Calls the layers of a model. Returns SL_OK, or what the caller of sl_model_emit gets. */
typedef sl_status (*sl_build)(sl_model *model, const void *user);

typedef enum sl_model_mode {
    SL_MODEL_LOSS,   /* tokens and targets in, summed loss out: training and evaluation */
    SL_MODEL_CACHED, /* tokens in, logits of the last token out, keys and values in a cache */
    SL_MODEL_STATS   /* tokens and targets in, stats of each token's softmax out */
} sl_model_mode;

/* How parameters are split over tensor-parallel ranks. */
typedef enum sl_split_layout {
    SL_SPLIT_MEGATRON, /* wte by token ids; the first linear of attention and MLP by columns, the
                          last by rows (Shoeybi et al. 2019) */
    SL_SPLIT_COLOSSAL  /* wte, wpe and attn.c_proj by columns too; each rank computes the head for
                          some of the rows */
} sl_split_layout;

typedef struct sl_model_options {
    uint32_t batch; /* B */
    uint32_t seq;   /* T, at most the model's context */
    uint32_t tp_size, tp_rank;
    uint32_t stage_count, stage_index; /* pipeline stages; 0 or 1: one has all blocks */
    uint32_t first_layer, layer_end;   /* blocks of this stage, layer_end excluded; 0 and 0: shared
                                          out evenly */
    sl_model_mode mode;
    sl_type type, grad_type; /* the program's */
    /* The most logits alive at once: the head is computed for one range of rows after the other.
     * More are alive only where there would be too many ranges (HEAD_PIECES_MAX in head.c). A
     * larger number makes larger products and takes more memory. It fixes the order of sums, so it
     * may depend on the kind of device, but not on options of the run. 0: 32 Mi logits, 128 MiB in
     * fp32. */
    uint64_t head_logits;
    uint32_t cache_rows; /* CACHED: tokens that the cache holds; 0: the context */
    bool by_document;    /* LOSS and STATS: attention and positions start anew at each document of a
                            row */
    /* LOSS and STATS: outside of attention and MLP each rank holds B*T / tp_size rows of the hidden
     * states (Korthikanti et al. 2022). tp_size divides B*T, and with dropout B. */
    bool sequence_parallel;
    sl_split_layout split_layout; /* COLOSSAL excludes sequence_parallel; in a training step tp_size
                                     divides B*T */
    float dropout; /* LOSS: probability of dropping an element, in [0, 1): of attention's weights,
                      and of what sl_drop and sl_drop_add are given */
} sl_model_options;

/* Emits the forward program of one micro-batch; close it with sl_program_close. SL_ERROR_USAGE:
 * options that do not fit each other, or layers that do not.
 *
 *   LOSS    inputs 0 tokens, 1 targets, and with by_document 2 positions; output 0 the loss
 *   CACHED  input 0 tokens; persistent slot l: the cache of attention l, [2, B, cache_rows,
 * features of this rank's heads]; output p: the logits of panel p, [panel rows], of the last token
 *           or, if T is 1, [B, panel rows]
 *   STATS   inputs as LOSS; output r: stats of SL_OP_HEAD_STATS, [rows, 4], of row range r
 *
 * With tp_size 1 and one stage the program has no collectives. With several stages (LOSS alone) the
 * first one has what comes before the blocks, the last one what comes behind them and a copy of the
 * head's table. EXCHANGE ops move the one tensor that crosses from block to block, and the loss is
 * 0 on all stages but the last. */
SL_API sl_status sl_model_emit(sl_build build, const void *user, const sl_model_options *options,
                               sl_program **out_forward);

/* The options of the program that is built. */
SL_API const sl_model_options *sl_model_options_of(const sl_model *model);

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

/* The end of the model: the logits of x with the table of an embedding, and what the mode asks of
 * them. */
SL_API void sl_head(sl_model *model, const char *table, sl_tensor x);

#ifdef __cplusplus
}
#endif
#endif
