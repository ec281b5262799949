/* The layers of a model. Each adds its parameters and activations to a program and emits its
 * forward ops, split over tensor-parallel ranks if possible. Private to the room. */
#ifndef SL_MODEL_LAYER_H
#define SL_MODEL_LAYER_H

#include "sluice/gpt2.h"

/* One emission under way. Sizes are of this rank. */
typedef struct sl_emit {
    const sl_gpt2_shape *shape;
    const sl_gpt2_emit_options *options;
    sl_program *program;
    uint64_t rows;         /* B * T */
    uint64_t hidden_rows;  /* rows of the hidden states on this rank: all, or B*T / tp_size */
    bool by_columns;       /* ranks hold wte, wpe and attn.c_proj by columns */
    uint64_t columns;      /* of these on this rank, padded with zeros if C does not divide */
    uint64_t head_rows;    /* rows that the head computes on this rank */
    uint64_t width;        /* C, of the whole model */
    uint64_t local_heads;  /* heads of this rank; equal on all ranks, the last rank's padded with
                              zeros */
    uint64_t local_width;  /* features of the local heads */
    uint64_t local_inner;  /* features of the MLP on this rank, padded likewise; 4 * C with one
                              rank */
    uint64_t padded_vocab; /* token ids of all ranks */
    uint64_t local_vocab;  /* token ids of this rank */
    uint64_t panel_rows;   /* of every panel but the last */
    uint32_t panel_count;
    uint32_t *panels;                    /* [panel_count] parameter values */
    uint32_t tokens, targets, positions; /* positions: SL_NONE without by_document */
    uint32_t hidden; /* the current hidden states [B, T, C]: the residual stream */
    uint32_t layer;  /* names below start with "h.N."; SL_NONE outside of the blocks */
} sl_emit;

/* Where elements are dropped: in the embedding, and in each block at three sites. */
typedef enum sl_layer_site {
    SL_LAYER_SITE_EMBEDDING,
    SL_LAYER_SITE_WEIGHTS,   /* attention weights */
    SL_LAYER_SITE_ATTENTION, /* what its branch adds to the hidden states */
    SL_LAYER_SITE_MLP
} sl_layer_site;

/* A parameter tensor of a layer. */
typedef struct sl_layer_tensor {
    const char *name;                   /* as Hugging Face names it; in a block, without "h.N." */
    uint64_t rows, columns;             /* on this rank; columns 0: a vector of `rows` */
    uint64_t whole_rows, whole_columns; /* of the whole tensor; 0: as this rank's */
    sl_split split;                     /* with tp_size > 1 */
    uint64_t split_whole;  /* features of the whole split axis (QKV: of q, k and v each) */
    float mean, deviation; /* of the initial values */
} sl_layer_tensor;

sl_status sl_layer_add_tensor(sl_emit *emit, const sl_layer_tensor *tensor, uint32_t *out_value);

/* Appends an ACTIVATION of `elements` numbers for each row: of the micro-batch (add_activation), or
 * of the hidden states on this rank (add_hidden). */
sl_status sl_layer_add_hidden(sl_emit *emit, const char *name, sl_type type, uint64_t elements,
                              uint32_t *out_value);
sl_status sl_layer_add_activation(sl_emit *emit, const char *name, sl_type type, uint64_t elements,
                                  uint32_t *out_value);

/* Sets the bytes of `value` to `rows` rows of `columns` numbers of its type, and appends it. */
sl_status sl_layer_add_rows(sl_emit *emit, sl_value *value, uint64_t rows, uint64_t columns,
                            uint32_t *out_value);

/* sl_program_add_op with attrs->type set to the compute type. */
sl_status sl_layer_add_op(sl_emit *emit, sl_op_kind kind, const sl_op_attrs *attrs,
                          const uint32_t *operands, uint32_t operand_count);

/* True with sequence parallelism: this rank has only some rows of the hidden states. */
static inline bool sl_layer_splits_rows(const sl_emit *emit)
{
    return emit->hidden_rows < emit->rows;
}

/* Sums `terms` [B, T, C] over the ranks and writes this rank's rows of the sum. */
sl_status sl_layer_scatter_rows(sl_emit *emit, const char *name, uint32_t terms, uint32_t *out_y);

/* Gathers y [B, T, C] from x [B, T, local_columns] of each rank. */
sl_status sl_layer_gather_columns(sl_emit *emit, const char *name, uint32_t x,
                                  uint64_t local_columns, uint32_t *out_y);

/* LAYERNORM of the hidden states, with parameters `name`.weight and `name`.bias: y [B, T, C]. */
sl_status sl_layer_norm(sl_emit *emit, const char *name, uint32_t *out_y);

typedef struct sl_linear_args {
    const char *name;        /* "attn.c_attn" */
    uint64_t in, out;        /* of the whole linear */
    sl_split split;          /* of the weight */
    uint64_t local_features; /* this rank's features of the split axis (QKV: of q, k and v each) */
    bool is_gathered;        /* y has the columns of all ranks */
    float deviation;         /* of the initial weight */
    uint32_t x, residual;    /* residual: SL_NONE if there is none */
} sl_linear_args;

/* y = x * weight + bias (+ residual), split over the ranks. COLUMNS and QKV: y has this rank's
 * features; ROWS: x has this rank's features, and y is summed over the ranks. */
sl_status sl_layer_linear(sl_emit *emit, const sl_linear_args *args, uint32_t *out_y);

/* Attention of this rank's heads; qkv: [B, T, 3 * local_width]. In mode CACHED with a cache of the
 * layer. */
sl_status sl_layer_attention(sl_emit *emit, uint32_t qkv, uint32_t *out_y);

/* y = dropout(x) [B, T, C], plus the hidden states if `adds_hidden`. Without dropout y is x, to
 * which the linear has added the hidden states already. */
sl_status sl_layer_dropout(sl_emit *emit, sl_layer_site site, uint32_t x, bool adds_hidden,
                           uint32_t *out_y);

/* GELU of `features` numbers a row. */
sl_status sl_layer_gelu(sl_emit *emit, uint32_t x, uint64_t features, uint32_t *out_y);

#endif
