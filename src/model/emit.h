/* From a build function to a program: the layers of sluice/model.h are called, and out comes the
 * forward program of one micro-batch.
 */
#ifndef SL_MODEL_EMIT_H
#define SL_MODEL_EMIT_H

#include "lora.h"
#include "program/program.h"
#include "sluice/model.h"

typedef enum sl_model_mode {
    SL_MODEL_LOSS,   /* tokens and targets in, summed loss out: training and evaluation */
    SL_MODEL_CACHED, /* tokens in, logits of the last token out, keys and values in a cache */
    SL_MODEL_STATS,  /* tokens and targets in, stats of each token's softmax out */
    SL_MODEL_NEXT /* tokens in, logits of the last token out: as LOSS computes, without a cache */
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
    bool by_document; /* LOSS, STATS, NEXT: attention and positions start anew at each document of a
                         row */
    bool masks;       /* LOSS: targets may be below 0 and have no part in the loss; output 2 counts
                         the others */
    /* LOSS and STATS: outside of attention and MLP each rank holds B*T / tp_size rows of the hidden
     * states (Korthikanti et al. 2022). tp_size divides B*T, and with dropout B. */
    bool sequence_parallel;
    sl_split_layout split_layout; /* COLOSSAL excludes sequence_parallel; in a training step tp_size
                                     divides B*T */
    float dropout; /* LOSS: probability of dropping an element, in [0, 1): of attention's weights,
                      and of what sl_drop and sl_drop_add are given */
    const sl_lora *lora; /* adapters, borrowed; NULL: none */
    float lora_dropout;  /* LOSS: likewise, of what adapters read */
} sl_model_options;

/* Emits the forward program of one micro-batch; close it with sl_program_close. SL_ERROR_USAGE:
 * options that do not fit each other, or layers that do not.
 *
 *   LOSS    inputs 0 tokens, 1 targets, and with by_document 2 positions; output 0 the loss, and
 *           with masks 2 how many tokens have a part in it
 *   CACHED  input 0 tokens; a persistent slot for each attention: its cache, [2, B, cache_rows,
 *           features of this rank's key heads]; output p: the logits of panel p, [panel rows], of
 *           the last token or, if T is 1, [B, panel rows]
 *   STATS   inputs as LOSS; output r: stats of SL_OP_HEAD_STATS, [rows, 4], of row range r
 *   NEXT    input 0 tokens, and with by_document 2 positions; outputs as CACHED
 *
 * Tables of rotary positions take persistent slots in every mode. Slots are numbered from 0 in the
 * order in which layers first ask for them: the same in all programs of one model, stage and mode.
 * CACHED programs have slots for caches between those of tables, other programs do not.
 *
 * With tp_size 1 and one stage the program has no collectives. With several stages the first one
 * has what comes before the blocks, the last one what comes behind them and a copy of the head's
 * table. EXCHANGE ops move the one tensor that crosses from block to block. In mode LOSS all
 * stages have a loss, which is 0 on all but the last; stats and logits are outputs of the last
 * one alone. */
sl_status sl_model_emit(sl_build build, const void *user, const sl_model_options *options,
                        sl_program **out_forward);

/* The options of the program that is built. */
const sl_model_options *sl_model_options_of(const sl_model *model);

#endif
