/* What other programs know of an architecture: what they call it and its tensors, and what they say
 * of its sizes. One row for each architecture that they know; readers and writers of their formats
 * ask the row of a shape and know no architecture themselves.
 *
 * To add an architecture, write its row, as gpt2.c has GPT-2's: docs/add-a-model.md. What a format
 * does not have is NULL or false there, and the format refuses the model.
 */
#ifndef SL_FOREIGN_MODEL_NAMES_H
#define SL_FOREIGN_MODEL_NAMES_H

#include <jansson.h>

#include "gguf.h"
#include "model/architecture.h"

enum { SL_MEGATRON_NAMES_MAX = 4 };

/* Sizes of tensors. */
typedef enum sl_model_size {
    SL_SIZE_ONE, /* the columns of a vector */
    SL_SIZE_VOCAB,
    SL_SIZE_CONTEXT,
    SL_SIZE_WIDTH,
    SL_SIZE_QKV,   /* features of query, key and value together */
    SL_SIZE_QUERY, /* features of the query, of key and value each, of one head */
    SL_SIZE_KEY,
    SL_SIZE_HEAD,
    SL_SIZE_INNER /* features between the linears of the MLP */
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
    /* Outputs that llama.cpp has in another order: the pairs that it turns by rotary positions
     * stand beside each other in a head, here half a head apart. */
    bool is_interleaved;
} sl_tensor_kind;

/* An argument of Megatron-LM that makes another model where it has another value. */
typedef struct sl_megatron_argument {
    const char *key;
    const char *text; /* NULL: a flag */
    bool flag;
    bool is_written; /* reading, an absent one is right */
    bool is_near;    /* reading, another value is right, too: it changes little */
} sl_megatron_argument;

enum { SL_FALSE_KEYS_MAX = 2 };

/* config.json of an architecture with Llama's keys (llama_config.c). */
typedef struct sl_llama_keys {
    const char *class_name;                   /* "LlamaForCausalLM" */
    const char *activation, *activation_more; /* of the gate: hidden_act, and another word for it */
    bool has_qkv_bias;                        /* so attention_bias may be true */
    const char *false_keys[SL_FALSE_KEYS_MAX]; /* written as false */
    /* What an absent key means. */
    uint32_t head;       /* 0: the width by the heads */
    bool is_tied;        /* tie_word_embeddings */
    bool names_kv_heads; /* num_key_value_heads is never absent */
    double norm_epsilon; /* rms_norm_eps; 0: 1e-6 */
} sl_llama_keys;

typedef struct sl_model_names {
    const char *title; /* "GPT-2": for people */

    /* Kinds of tensors: in front of the layers, of each layer, behind the layers. Of a model that
     * llm.c has, they are numbered as sl_llmc_kind is. */
    const sl_tensor_kind *kinds;
    uint32_t kind_count, first_of_layer, behind_layers;
    bool has_head;     /* the last kind is a head, which a shape that ties it lacks */
    const char *layer; /* "h": in front of ".N." */
    uint64_t (*size)(const sl_model_shape *shape, sl_model_size size); /* from QKV on */
    double (*epsilon)(const sl_model_shape *shape);                    /* of norms */
    const char *epsilon_text; /* of one that is the same in all shapes; else NULL */

    /* Hugging Face. */
    const char *model_type, *other_type; /* the second may be NULL */
    const char *prefix;                  /* of names in the files of a whole model */
    /* llama.cpp's name of the pattern that transformers computes of a tokenizer of this model_type,
     * whatever the files say; NULL: that of the files. */
    const char *fixed_pattern;
    const char *bare; /* the name that has none; NULL: all have it */
    bool is_out_in;   /* linear weights are [out, in] there */
    sl_status (*read_config)(const char *path, const json_t *root, sl_model_shape *out_shape);
    json_t *(*format_config)(const sl_model_shape *shape, const char *dtype, uint32_t end_of_text);
    const sl_llama_keys *llama_keys;     /* of config.json; NULL: it has others */
    bool has_start;                      /* the end of text stands in front of a text, too */
    bool (*is_buffer)(const char *name); /* in files, and no parameter */

    /* llama.cpp. gguf_architecture NULL: no such file is written. */
    const char *gguf_architecture, *gguf_epsilon, *gguf_tokenizer;
    void (*add_gguf)(const sl_model_shape *shape, sl_gguf *gguf); /* further values; NULL: none */
    /* Writes the divisors of the rotary frequencies, [head / 2], that llama.cpp takes as a tensor.
     * `out_count`: how many; 0: there is no such tensor. NULL: in no shape. SL_ERROR_DATA: the
     * shape needs divisors that llama.cpp does not read. */
    sl_status (*rotary_divisors)(const sl_model_shape *shape, float *out_divisors,
                                 uint64_t *out_count);

    /* Megatron-LM. NULL: not read and not written. */
    const sl_megatron_argument *megatron_arguments; /* up to one without a key */
    uint32_t megatron_head_width;                   /* where a file says no number of heads */

    bool is_in_llmc;
} sl_model_names;

#define SL_MODEL_NAMES_ROW(KIND, name) extern const sl_model_names sl_##name##_model_names;
SL_ARCHITECTURES(SL_MODEL_NAMES_ROW)
#undef SL_MODEL_NAMES_ROW

/* So many kinds has the shape. */
uint32_t sl_model_names_count(const sl_model_names *names, const sl_model_shape *shape);

/* The row of an architecture; NULL: no other program knows it. */
const sl_model_names *sl_model_names_of(const sl_model_shape *shape);

/* The architecture of Hugging Face's model_type; SL_ARCHITECTURE_COUNT: none. */
sl_architecture_kind sl_model_names_find(const char *model_type);

/* The architecture that llm.c has, and the one whose Megatron-LM pieces are read. */
sl_architecture_kind sl_model_names_in_llmc(void);
sl_architecture_kind sl_model_names_in_megatron(void);

/* A key of llama.cpp that begins with the architecture: "gpt2.block_count" of "block_count". */
typedef struct sl_gguf_key {
    char text[SL_GGUF_NAME_MAX + 1];
} sl_gguf_key;
sl_gguf_key sl_model_names_gguf_key(const sl_model_shape *shape, const char *key);

/* Writes all model_types, as "\"a\", \"b\"". */
void sl_model_names_list(size_t capacity, char *out_text);

#endif
