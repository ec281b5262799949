/* Which model: its architecture, and its shape.
 *
 * An architecture is a row of a table (architecture.c): how its shapes are called and checked, and
 * the build function. Whoever asks "which model?" asks the shape, and the shape asks its row. The
 * last row, `own`, stands for a model that a program builds itself.
 */
#ifndef SL_MODEL_ARCHITECTURE_H
#define SL_MODEL_ARCHITECTURE_H

#include "emit.h"

/* X(kind, name): the name is that of checkpoints. OWN: of a build function that
 * sl_model_shape_survey was given. */
/* clang-format off */
#define SL_ARCHITECTURES(X)                                                                        \
    X(GPT2, "gpt2")                                                                                \
    X(OWN, "own")
/* clang-format on */

#define SL_ARCHITECTURE_KIND(kind, name) SL_ARCHITECTURE_##kind,
typedef enum sl_architecture_kind {
    SL_ARCHITECTURES(SL_ARCHITECTURE_KIND) SL_ARCHITECTURE_COUNT,
    SL_ARCHITECTURE_OF_SIZES = 0 /* where layers, width and heads are given one by one */
} sl_architecture_kind;
#undef SL_ARCHITECTURE_KIND

/* "gpt2|own": the choices of a sl_field. */
#define SL_ARCHITECTURE_CHOICE(kind, name) "|" name
#define SL_ARCHITECTURE_CHOICES (&("" SL_ARCHITECTURES(SL_ARCHITECTURE_CHOICE))[1])

typedef struct sl_model_shape {
    uint32_t layers;  /* blocks */
    uint32_t width;   /* of GPT-2 a multiple of heads */
    uint32_t heads;   /* of GPT-2 at least the tensor-parallel size; OWN: 0 without attention */
    uint32_t context; /* tokens of a row at most; OWN: 0 where positions are not learnt */
    uint32_t vocab;   /* unpadded */
    sl_architecture_kind architecture;
    /* OWN alone: */
    sl_build build;
    const void *user;         /* of `build`; borrowed */
    uint64_t parameters;      /* without padding, a tied head counted once */
    uint64_t attention_width; /* features of all attentions together */
} sl_model_shape;

/* As in the list. */
const char *sl_architecture_name(sl_architecture_kind kind);

/* Names of the built-in shapes, in order of size; NULL ends the list. */
const char *const *sl_architecture_names(void);

/* Ids of the vocabulary of the published shapes; 0: none is published. */
uint32_t sl_architecture_ids(sl_architecture_kind kind);

/* The shape called `name`; SL_ERROR_USAGE names the nearest one otherwise. */
sl_status sl_architecture_named(const char *name, sl_model_shape *out_shape);

/* Refuses zero sizes, width % heads, more ranks than heads, sizes whose products overflow:
 * SL_ERROR_USAGE. Of an own model the layers check themselves. */
sl_status sl_model_shape_check(const sl_model_shape *shape, uint32_t tp_size);

/* True if both are models of the same architecture and sizes. */
bool sl_model_shape_is_same(const sl_model_shape *a, const sl_model_shape *b);

/* Parameters without padding, a tied head counted once: 124,439,808 for "gpt2". */
uint64_t sl_model_shape_parameters(const sl_model_shape *shape);

/* FLOPs of training on one token of a row of `seq`: 6 a parameter, and 6 * seq for each feature of
 * causal attention (Chowdhery et al., PaLM, appendix B, which counts attention as not causal). */
double sl_model_shape_token_flops(const sl_model_shape *shape, uint64_t seq);

/* The vocabulary padded to a multiple of 128 * tp_size. */
uint64_t sl_model_shape_padded_vocab(const sl_model_shape *shape, uint32_t tp_size);

/* The layers [*out_first, *out_end) of a stage. No stage has more than one layer more than another.
 */
void sl_model_shape_stage(const sl_model_shape *shape, uint32_t stage_count, uint32_t stage_index,
                          uint32_t *out_first, uint32_t *out_end);

/* head_logits for a GPU: as many as 256 MiB of `type` hold. The default makes products of about 640
 * rows, too few for the many multiprocessors of a GPU. */
uint64_t sl_model_gpu_head_logits(sl_type type);

/* sl_model_emit of a shape. SL_ERROR_USAGE: options that do not fit the shape, too. */
sl_status sl_model_shape_emit(const sl_model_shape *shape, const sl_model_options *options,
                              sl_program **out_forward);

/* The shape of the model that a build function makes: calls it once. SL_ERROR_USAGE: what
 * sl_model_emit refuses, and a model that is too large to count. */
sl_status sl_model_shape_survey(sl_build build, const void *user, sl_model_shape *out_shape);

#endif
