/* The tensors of a GPT-2, one row a kind: what Hugging Face, GGUF and llm.c call them, and how
 * large they are. Shapes are Hugging Face's: a linear weight is [in, out]. */
#ifndef SL_FOREIGN_GPT2_TENSORS_H
#define SL_FOREIGN_GPT2_TENSORS_H

#include "gguf.h"
#include "llmc_model.h"
#include "model/architecture.h"

typedef struct sl_gpt2_tensor {
    sl_llmc_kind kind;
    uint32_t layer; /* where there is one of each, else 0 */
    uint32_t dim_count;
    uint64_t rows, columns; /* of a vector {n, 1} */
    bool is_linear;         /* [out, in] elsewhere */
} sl_gpt2_tensor;

/* A layer's kinds follow each other here, as in the model: wte, wpe, the layers, the last norm. */
uint32_t sl_gpt2_tensors_count(const sl_model_shape *shape);
sl_gpt2_tensor sl_gpt2_tensors_nth(const sl_model_shape *shape, uint32_t index);

/* The same in llm.c's order, kind by kind. */
sl_gpt2_tensor sl_gpt2_tensors_nth_by_kind(const sl_model_shape *shape, uint32_t index);

/* The place of a tensor in the first of these orders. */
uint32_t sl_gpt2_tensors_index(const sl_model_shape *shape, const sl_gpt2_tensor *tensor);

/* "h.0.ln_1.weight", without a prefix, and "blk.0.attn_norm.weight". */
typedef struct sl_gpt2_tensor_name {
    char text[SL_GGUF_NAME_MAX + 1];
} sl_gpt2_tensor_name;
sl_gpt2_tensor_name sl_gpt2_tensors_name(const sl_gpt2_tensor *tensor);
sl_gpt2_tensor_name sl_gpt2_tensors_gguf_name(const sl_gpt2_tensor *tensor);

/* Specs of whole tensors, for the checks of readers; [count]. */
void sl_gpt2_tensors_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs);

/* llm.c's shape of the same model. */
sl_llmc_shape sl_gpt2_tensors_llmc(const sl_model_shape *shape);

#endif
