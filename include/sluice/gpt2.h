/* GPT-2: parameter specs in first-use order and forward ops, written for tensor parallelism. */
#ifndef SLUICE_GPT2_H
#define SLUICE_GPT2_H

#include "sluice/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_gpt2_shape {
    uint32_t layers;
    uint32_t width; /* a multiple of heads */
    uint32_t heads; /* at least the tensor-parallel size */
    uint32_t context;
    uint32_t vocab; /* unpadded */
} sl_gpt2_shape;

/* Names of the built-in shapes, in order of size; NULL ends the list. */
SL_API const char *const *sl_gpt2_names(void);

/* The shape called `name`; SL_ERROR_USAGE names the nearest one otherwise. */
SL_API sl_status sl_gpt2_named(const char *name, sl_gpt2_shape *out_shape);

/* Refuses zero sizes, width % heads, more ranks than heads, sizes whose products overflow:
 * SL_ERROR_USAGE. */
SL_API sl_status sl_gpt2_check(const sl_gpt2_shape *shape, uint32_t tp_size);

/* Parameters without padding, the tied head counted once: 124,439,808 for "gpt2". */
SL_API uint64_t sl_gpt2_parameter_count(const sl_gpt2_shape *shape);

/* FLOPs of training on one token of a row of `seq`: 6 a parameter, and 6 layers * width * seq of
 * causal attention (Chowdhery et al., PaLM, appendix B, which counts attention as not causal). */
SL_API double sl_gpt2_token_flops(const sl_gpt2_shape *shape, uint64_t seq);

/* The vocabulary padded to a multiple of 128 * tp_size. */
SL_API uint64_t sl_gpt2_padded_vocab(const sl_gpt2_shape *shape, uint32_t tp_size);

typedef enum sl_gpt2_mode {
    SL_GPT2_LOSS,   /* tokens and targets in, summed loss out: training and evaluation */
    SL_GPT2_CACHED, /* tokens in, logits of the last token out, keys and values in a cache */
    SL_GPT2_STATS   /* tokens and targets in, stats of each token's softmax out */
} sl_gpt2_mode;

/* How parameters are split over tensor-parallel ranks. */
typedef enum sl_split_layout {
    SL_SPLIT_MEGATRON, /* wte by token ids; the first linear of attention and MLP by columns, the
                          last by rows (Shoeybi et al. 2019) */
    SL_SPLIT_COLOSSAL  /* wte, wpe and attn.c_proj by columns too; each rank computes the head for
                          some of the rows */
} sl_split_layout;

typedef struct sl_gpt2_emit_options {
    uint32_t batch; /* B */
    uint32_t seq;   /* T <= context */
    uint32_t tp_size, tp_rank;
    uint32_t stage_count, stage_index; /* pipeline stages; 0 or 1: one has all layers */
    uint32_t first_layer, layer_end;   /* of this stage, layer_end excluded; 0 and 0: those of
                                          sl_gpt2_stage_layers */
    sl_gpt2_mode mode;
    sl_type type, grad_type; /* the program's */
    /* The most logits alive at once: the head is computed for one range of rows after the other.
     * More are alive only where there would be too many ranges (HEAD_PIECES_MAX in gpt2.c). A
     * larger number makes larger products and takes more memory. It fixes the order of sums, so it
     * may depend on the kind of device, but not on options of the run. 0: 32 Mi logits, 128 MiB in
     * fp32. */
    uint64_t head_logits;
    uint32_t cache_rows; /* CACHED: tokens that the cache holds, T to context; 0: the context */
    bool by_document;    /* LOSS and STATS: attention and positions start anew at each document of a
                            row */
    /* LOSS and STATS: outside of attention and MLP each rank holds B*T / tp_size rows of the hidden
     * states (Korthikanti et al. 2022). tp_size divides B*T, and with dropout B.
     */
    bool sequence_parallel;
    sl_split_layout split_layout; /* COLOSSAL excludes sequence_parallel; in a training step tp_size
                                     divides B*T */
    float dropout; /* LOSS: probability of dropping an element, in [0, 1): of attention's weights,
                      of what attention and MLP add to the hidden states, and of the embedding */
} sl_gpt2_emit_options;

/* head_logits for a GPU: as many as 256 MiB of `type` hold. The default makes products of about 640
 * rows, too few for the many multiprocessors of a GPU. */
SL_API uint64_t sl_gpt2_gpu_head_logits(sl_type type);

/* The layers [*out_first, *out_end) of a stage. No stage has more than one layer more than another.
 */
SL_API void sl_gpt2_stage_layers(const sl_gpt2_shape *shape, uint32_t stage_count,
                                 uint32_t stage_index, uint32_t *out_first, uint32_t *out_end);

/* Emits the forward program of one micro-batch; close it with sl_program_close. SL_ERROR_USAGE:
 * options that do not fit the shape or each other.
 *
 *   LOSS    inputs 0 tokens, 1 targets, and with by_document 2 positions; output 0 the loss
 *   CACHED  input 0 tokens; persistent slot l: the cache of layer l, [2, B, cache_rows, features of
 *           this rank's heads]; output p: the logits of panel p, [panel rows], of the last token
 *           or, if T is 1, [B, panel rows]
 *   STATS   inputs as LOSS; output r: stats of SL_OP_HEAD_STATS, [rows, 4], of row range r
 *
 * With tp_size 1 and one stage the program has no collectives. With several stages (LOSS alone) the
 * first stage has the embedding, the last has norm, head and a copy of wte. EXCHANGE ops move
 * hidden states from stage to stage, and the loss is 0 on all stages but the last.
 */
SL_API sl_status sl_gpt2_emit(const sl_gpt2_shape *shape, const sl_gpt2_emit_options *options,
                              sl_program **out_forward);

#ifdef __cplusplus
}
#endif
#endif
