/* Which model: its architecture, and its shape.
 *
 * An architecture is a name in a list, and two rows with that name: sl_NAME_architecture (row.h) is
 * how its shapes are checked and counted, and its build function; sl_NAME_model_names
 * (foreign/model_names.h) is what other programs call it. Whoever asks "which model?" asks the
 * shape, and the shape asks its row. One more row, `own`, stands for a model that a program builds
 * itself.
 */
#ifndef SL_MODEL_ARCHITECTURE_H
#define SL_MODEL_ARCHITECTURE_H

#include "emit.h"

/* X(KIND, name): the name is that of checkpoints, too. */
/* clang-format off */
#define SL_ARCHITECTURES(X)                                                                        \
    X(GPT2, gpt2)                                                                                  \
    X(LLAMA, llama)                                                                                \
    X(QWEN2, qwen2)                                                                                \
    X(QWEN3, qwen3)                                                                                \
    X(OLMO2, olmo2)
/* clang-format on */

#define SL_ARCHITECTURE_KIND(KIND, name) SL_ARCHITECTURE_##KIND,
typedef enum sl_architecture_kind {
    SL_ARCHITECTURES(SL_ARCHITECTURE_KIND)
        SL_ARCHITECTURE_OWN, /* of a build function that
                                sl_model_shape_survey was given */
    SL_ARCHITECTURE_COUNT,
    SL_ARCHITECTURE_OF_SIZES = 0 /* where layers, width and heads are given one by one */
} sl_architecture_kind;
#undef SL_ARCHITECTURE_KIND

/* "gpt2|llama|...|own": the choices of a sl_field. */
#define SL_ARCHITECTURE_CHOICE(KIND, name) #name "|"
#define SL_ARCHITECTURE_CHOICES SL_ARCHITECTURES(SL_ARCHITECTURE_CHOICE) "own"

/* Rotary positions, as sl_rotary_spec has them. */
typedef struct sl_model_rope {
    double base;
    uint32_t scaling;                                   /* sl_rotary_scaling */
    double factor;                                      /* LINEAR, LLAMA3 */
    double low_frequency_factor, high_frequency_factor; /* LLAMA3 */
    uint32_t original_context;                          /* LLAMA3: positions before the scaling */
} sl_model_rope;

typedef struct sl_model_shape {
    uint32_t layers;  /* blocks */
    uint32_t width;   /* of GPT-2 a multiple of heads */
    uint32_t heads;   /* of GPT-2 at least the tensor-parallel size; OWN: 0 without attention */
    uint32_t context; /* tokens of a row at most; OWN: 0 where positions are not learnt */
    uint32_t vocab;   /* unpadded */
    sl_architecture_kind architecture;
    /* Of architectures like Llama's (sl_model_shape_is_llama) alone; else 0: */
    uint32_t kv_heads; /* of keys and values; `heads` is a multiple of them */
    uint32_t head;     /* features of a head: even, any part of the width or more */
    uint32_t ffn;      /* features of gate and of up */
    bool is_untied;    /* the head has a table of its own */
    double norm_epsilon;
    sl_model_rope rope;
    sl_lora lora; /* adapters beside its linear layers */
    /* OWN alone: */
    sl_build build;
    const void *user;         /* of `build`; borrowed */
    uint64_t parameters;      /* without padding, a tied head counted once */
    uint64_t attention_width; /* features of all attentions together */
    uint64_t lookup_elements; /* of a table in which tokens are only looked up */
} sl_model_shape;

/* As in the list. */
const char *sl_architecture_name(sl_architecture_kind kind);

/* Names of the built-in shapes, those of an architecture in order of size; NULL ends the list. */
const char *const *sl_architecture_names(void);

/* Ids of the vocabulary of the published shapes; 0: none is published. */
uint32_t sl_architecture_ids(sl_architecture_kind kind);

/* The shape called `name`; SL_ERROR_USAGE names the nearest one otherwise. */
sl_status sl_architecture_named(const char *name, sl_model_shape *out_shape);

/* True of an architecture like Llama's: the sizes of keys, values, heads and ffn are read, and
 * positions are rotary. */
bool sl_model_shape_is_llama(const sl_model_shape *shape);

/* Sets sizes that were not given, and are 0, to what the architecture makes of the others. */
void sl_model_shape_complete(sl_model_shape *shape);

/* Refuses zero sizes, heads that do not divide, more ranks than heads, sizes whose products
 * overflow: SL_ERROR_USAGE. Of an own model the layers check themselves. */
sl_status sl_model_shape_check(const sl_model_shape *shape, uint32_t tp_size);

/* True if both are models of the same architecture and sizes, whatever their adapters. */
bool sl_model_shape_is_same(const sl_model_shape *a, const sl_model_shape *b);

/* Writes the first size that differs, as "kv_heads 4 and 2"; "" where the shapes are the same. */
typedef struct sl_shape_text {
    char text[80];
} sl_shape_text;
sl_shape_text sl_model_shape_difference(const sl_model_shape *a, const sl_model_shape *b);

/* The layers that get adapters where none are named, with commas between; NULL: of an own model. */
const char *sl_model_shape_attention_linears(const sl_model_shape *shape);

/* Parameters without padding and adapters, a tied head counted once: 124,439,808 for "gpt2". */
uint64_t sl_model_shape_parameters(const sl_model_shape *shape);

/* True if so many tensor-parallel ranks can share the heads. */
bool sl_model_shape_may_split(const sl_model_shape *shape, uint32_t tp_size);

/* Elements of the last norm. Not of an own model. */
uint64_t sl_model_shape_norm_elements(const sl_model_shape *shape);

/* FLOPs of training on one token of a row of `seq`: 6 a parameter, and 6 * seq for each feature of
 * causal attention (Chowdhery et al., PaLM, appendix B, which counts attention as not causal). */
double sl_model_shape_token_flops(const sl_model_shape *shape, uint64_t seq);

/* The vocabulary padded to a multiple of 128 * tp_size. */
uint64_t sl_model_shape_padded_vocab(const sl_model_shape *shape, uint32_t tp_size);

/* The layers [*out_first, *out_end) of a stage. No stage has more than one layer more than another.
 */
void sl_model_shape_stage(const sl_model_shape *shape, uint32_t stage_count, uint32_t stage_index,
                          uint32_t *out_first, uint32_t *out_end);

/* head_logits for a GPU: as many as 1 GiB of `type` holds. The default makes products of about 640
 * rows, too few for the many multiprocessors of a GPU; so does a quarter of it (decision 0116). */
uint64_t sl_model_gpu_head_logits(sl_type type);

/* sl_model_emit of a shape. SL_ERROR_USAGE: options that do not fit the shape, too. */
sl_status sl_model_shape_emit(const sl_model_shape *shape, const sl_model_options *options,
                              sl_program **out_forward);

/* The shape of the model that a build function makes: calls it once. SL_ERROR_USAGE: what
 * sl_model_emit refuses, and a model that is too large to count. */
sl_status sl_model_shape_survey(sl_build build, const void *user, sl_model_shape *out_shape);

#endif
