/* What other programs know of an architecture: what they call it and its tensors, and what they say
 * of its sizes. One row for each architecture that they know; readers and writers of their formats
 * ask the row of a shape and know no architecture themselves.
 *
 * To add an architecture, write its row, as gpt2.c has GPT-2's, and list it in model_names.c. What
 * a format does not have is NULL or false there, and the format refuses the model.
 */
#ifndef SL_FOREIGN_MODEL_NAMES_H
#define SL_FOREIGN_MODEL_NAMES_H

#include <jansson.h>

#include "model/architecture.h"

enum { SL_MEGATRON_NAMES_MAX = 4 };

/* Sizes of tensors. */
typedef enum sl_model_size {
    SL_SIZE_ONE, /* the columns of a vector */
    SL_SIZE_VOCAB,
    SL_SIZE_CONTEXT,
    SL_SIZE_WIDTH,
    SL_SIZE_QKV,  /* features of query, key and value together */
    SL_SIZE_INNER /* features between the two linears of the MLP */
} sl_model_size;

/* How Megatron-LM divides a tensor, [out, in], among tensor-parallel ranks. */
typedef enum sl_megatron_split {
    SL_MEGATRON_WHOLE, /* each rank has all */
    SL_MEGATRON_ROWS,
    SL_MEGATRON_COLUMNS,
    SL_MEGATRON_HEADS /* rows, of query, key and value by heads */
} sl_megatron_split;

/* A kind of tensors: one of the model, or one of each layer. Shapes are Hugging Face's. */
typedef struct sl_tensor_kind {
    const char *name; /* Hugging Face's and ours, behind the layer's */
    const char *gguf; /* behind "blk.N." of a layer */
    sl_model_size rows, columns;
    bool is_linear; /* [in, out] here, [out, in] in other formats */
    sl_megatron_split split;
    /* Behind "layers.N." of a layer. The last one is that of Megatron Core with TransformerEngine,
     * where norms belong to the linear layer behind them. */
    const char *megatron[SL_MEGATRON_NAMES_MAX];
} sl_tensor_kind;

/* An argument of Megatron-LM that makes another model where it has another value. */
typedef struct sl_megatron_argument {
    const char *key;
    const char *text; /* NULL: a flag */
    bool flag;
    bool is_written; /* reading, an absent one is right */
    bool is_near;    /* reading, another value is right, too: it changes little */
} sl_megatron_argument;

typedef struct sl_model_names {
    const char *title; /* "GPT-2": for people */

    /* Kinds of tensors: in front of the layers, of each layer, behind the layers. Of a model that
     * llm.c has, they are numbered as sl_llmc_kind is. */
    const sl_tensor_kind *kinds;
    uint32_t kind_count, first_of_layer, behind_layers;
    const char *layer;                                                 /* "h": in front of ".N." */
    uint64_t (*size)(const sl_model_shape *shape, sl_model_size size); /* QKV and INNER alone */
    double epsilon;                                                    /* of norms */
    const char *epsilon_text;

    /* Hugging Face. */
    const char *model_type, *tokenizer_class;
    sl_status (*read_config)(const char *path, const json_t *root, sl_model_shape *out_shape);
    json_t *(*format_config)(const sl_model_shape *shape, const char *dtype, uint32_t end_of_text);
    bool (*is_buffer)(const char *name); /* in files, and no parameter */

    /* llama.cpp. */
    const char *gguf_architecture, *gguf_epsilon, *gguf_tokenizer, *gguf_pre_tokenizer;

    /* Megatron-LM. NULL: not read and not written. */
    const sl_megatron_argument *megatron_arguments; /* up to one without a key */
    uint32_t megatron_head_width;                   /* where a file says no number of heads */

    bool is_in_llmc;
} sl_model_names;

/* The row of an architecture; NULL: no other program knows it. */
const sl_model_names *sl_model_names_of(const sl_model_shape *shape);

/* The architecture of Hugging Face's model_type; SL_ARCHITECTURE_COUNT: none. */
sl_architecture_kind sl_model_names_find(const char *model_type);

/* The architecture that llm.c has, and the one whose Megatron-LM pieces are read. */
sl_architecture_kind sl_model_names_in_llmc(void);
sl_architecture_kind sl_model_names_in_megatron(void);

/* Writes all model_types, as "\"a\" and \"b\"". */
void sl_model_names_list(size_t capacity, char *out_text);

#endif
