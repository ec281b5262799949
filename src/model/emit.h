/* What the emitters of GPT-2's parts share; private to the room. */
#ifndef SL_MODEL_EMIT_H
#define SL_MODEL_EMIT_H

#include "sluice/gpt2.h"

/* One emission under way. Sizes are of this rank. */
typedef struct sl_emit {
    const sl_gpt2_shape *shape;
    const sl_gpt2_emit_options *options;
    sl_program *program;
    uint64_t rows;         /* B * T */
    uint64_t width;        /* C, of the whole model */
    uint64_t local_width;  /* C / tp_size: features of this rank's heads */
    uint64_t padded_vocab; /* ids of all ranks */
    uint64_t local_vocab;  /* ids of this rank */
    uint64_t panel_rows;   /* of every panel but the last */
    uint32_t panel_count;
    uint32_t *panels; /* [panel_count] parameter values */
    uint32_t tokens, targets;
    uint32_t stream; /* the residual stream [B, T, C] as it stands */
    uint32_t layer;
} sl_emit;

/* How a tensor's values start. */
typedef struct sl_emit_init {
    float mean, deviation;
} sl_emit_init;

/* What an emitter says of a tensor; emit.c makes the spec. */
typedef struct sl_emit_tensor {
    const char *name;                   /* as Hugging Face names it; in a block, without "h.N." */
    uint64_t rows, columns;             /* of this rank; columns 0: a vector of `rows` */
    uint64_t whole_rows, whole_columns; /* of the whole tensor; 0: as this rank's */
    sl_split split;                     /* with tp_size > 1 */
    sl_emit_init init;
} sl_emit_tensor;

/* ---- emit.c ---- */

/* Appends a parameter of layer `emit->layer` (`is_inner`) or of the model. */
sl_status sl_emit_add_tensor(sl_emit *emit, const sl_emit_tensor *tensor, bool is_inner,
                             uint32_t *out_value);

/* Appends an ACTIVATION value of `elements` numbers of the compute type a row of the micro-batch,
 * called "h.N.name" (`is_inner`) or "name". */
sl_status sl_emit_add_activation(sl_emit *emit, const char *name, bool is_inner, uint64_t elements,
                                 uint32_t *out_value);

/* As sl_emit_add_activation, of fp32 numbers whatever the compute type. */
sl_status sl_emit_add_statistics(sl_emit *emit, const char *name, bool is_inner, uint64_t elements,
                                 uint32_t *out_value);

/* sl_program_add_op with attrs->type set to the compute type. */
sl_status sl_emit_add_op(sl_emit *emit, sl_op_kind kind, const sl_op_attrs *attrs,
                         const uint32_t *operands, uint32_t operand_count);

/* ---- block.c ---- */

/* LAYERNORM of the stream, with parameters `name`.weight and `name`.bias: y [B, T, C]. */
sl_status sl_block_emit_norm(sl_emit *emit, const char *name, bool is_inner, uint32_t *out_y);

/* One transformer block, a segment of its own; moves emit->stream on. */
sl_status sl_block_emit(sl_emit *emit);

/* ---- linear.c ---- */

typedef struct sl_linear_args {
    const char *name;     /* "attn.c_attn" */
    uint64_t in, out;     /* of the whole linear */
    sl_split split;       /* how tensor parallelism splits the weight */
    float deviation;      /* of the initial weight */
    uint32_t x, residual; /* residual: SL_NONE if there is none */
} sl_linear_args;

/* y = x * weight + bias (+ residual), split over the ranks: COLUMNS and QKV leave each rank its
 * part of y, ROWS takes a part of x and sums over the ranks. */
sl_status sl_linear_emit(sl_emit *emit, const sl_linear_args *args, uint32_t *out_y);

/* ---- head.c ---- */

/* The panels of wte, as parameters. */
sl_status sl_head_add_panels(sl_emit *emit);

/* First id of panel p on this rank, and the ids that it holds. */
uint64_t sl_head_panel_first_id(const sl_emit *emit, uint32_t panel);
uint64_t sl_head_panel_ids(const sl_emit *emit, uint32_t panel);

/* Loss over row groups, each a terminal segment. x: the normalised stream [B, T, C]. */
sl_status sl_head_emit_loss(sl_emit *emit, uint32_t x);

/* Logits of the last token, an output a panel. */
sl_status sl_head_emit_last_logits(sl_emit *emit, uint32_t x);

#endif
