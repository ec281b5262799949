/* The tensors of a model that other programs know, walked over by the row of its architecture: what
 * Hugging Face and GGUF call them, and how large they are. Shapes are Hugging Face's: a linear
 * weight is [in, out]. */
#ifndef SL_FOREIGN_MODEL_TENSORS_H
#define SL_FOREIGN_MODEL_TENSORS_H

#include "gguf.h"
#include "llmc_model.h"
#include "model_names.h"

typedef struct sl_foreign_tensor {
    const sl_model_names *names;
    uint32_t kind;  /* index in names->kinds */
    uint32_t layer; /* where there is one of each, else 0 */
    uint32_t dim_count;
    uint64_t rows, columns; /* of a vector {n, 1} */
    bool is_linear;         /* [out, in] elsewhere */
} sl_foreign_tensor;

/* Tensors of a shape whose architecture has a row. A layer's kinds follow each other here, as in
 * the model. */
uint32_t sl_model_tensors_count(const sl_model_shape *shape);
sl_foreign_tensor sl_model_tensors_nth(const sl_model_shape *shape, uint32_t index);

/* The same in llm.c's order, kind by kind. */
sl_foreign_tensor sl_model_tensors_nth_by_kind(const sl_model_shape *shape, uint32_t index);

/* The place of a tensor in the first of these orders. */
uint32_t sl_model_tensors_index(const sl_model_shape *shape, const sl_foreign_tensor *tensor);

static inline const sl_tensor_kind *sl_model_tensors_kind(const sl_foreign_tensor *tensor)
{
    return &tensor->names->kinds[tensor->kind];
}

/* The kind of a tensor by its name, without a prefix; NULL: there is none. */
const sl_tensor_kind *sl_model_tensors_named(const sl_model_names *names, const char *name);

/* Elements of the largest linear weight. */
uint64_t sl_model_tensors_largest_linear(const sl_model_shape *shape);

/* The first kind of a table of that many rows: of ids, or of positions. */
uint32_t sl_model_tensors_find(const sl_model_names *names, sl_model_size rows);

static inline bool sl_model_tensors_is_of_layer(const sl_foreign_tensor *tensor)
{
    return tensor->kind >= tensor->names->first_of_layer &&
           tensor->kind < tensor->names->behind_layers;
}

/* "h.0.ln_1.weight", without a prefix, and "blk.0.attn_norm.weight". */
typedef struct sl_foreign_tensor_name {
    char text[SL_GGUF_NAME_MAX + 1];
} sl_foreign_tensor_name;
sl_foreign_tensor_name sl_model_tensors_name(const sl_foreign_tensor *tensor);
sl_foreign_tensor_name sl_model_tensors_gguf_name(const sl_foreign_tensor *tensor);

/* Specs of whole tensors, for the checks of readers; [count]. */
void sl_model_tensors_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs);

/* llm.c's shape of a model that llm.c has. */
sl_llmc_shape sl_model_tensors_llmc(const sl_model_shape *shape);

#endif
