/* Adapters of LoRA as PEFT saves them: a directory with adapter_config.json and
 * adapter_model.safetensors.
 *
 * Names are "base_model.model.", the layer's name in the files of a whole model of Hugging Face,
 * and
 * ".lora_A.weight" [rank, in] or ".lora_B.weight" [out, rank]: both are laid across here, whichever
 * way round the model has its linear weights. Which layers have adapters is taken from the names of
 * the tensors, so target_modules may be anything; every block has the same ones. Norms, tables and
 * heads that were trained whole beside them (modules_to_save) stand there under their names in the
 * whole model, each module with all its tensors. A key of adapter_config.json that asks for what is
 * not computed here (DoRA, rsLoRA, biases, other ranks by layer) is refused by name.
 */
#ifndef SL_FOREIGN_ADAPTER_H
#define SL_FOREIGN_ADAPTER_H

#include "model_tensors.h"
#include "tensors/tensor_io.h"
#include "weights.h"

#define SL_ADAPTER_CONFIG "adapter_config.json"
#define SL_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define SL_ADAPTER_NAME_START "base_model.model."

typedef struct sl_adapter sl_adapter;

/* Opens a directory with adapters for a model of this shape, and checks their names.
 * SL_ERROR_MISSING: a file is not there. SL_ERROR_DATA. SL_ERROR_USAGE: PEFT does not know the
 * model. */
sl_status sl_adapter_open(const char *directory, const sl_model_shape *shape,
                          sl_adapter **out_adapter);

/* NULL is fine. */
void sl_adapter_close(sl_adapter *adapter);

/* What the adapters are, for a shape. */
const sl_lora *sl_adapter_lora(const sl_adapter *adapter);

/* The directory. */
const char *sl_adapter_path(const sl_adapter *adapter);

/* Writes `tensors`, which are the model's adapters, through `io->write`, group PARAM.
 * SL_ERROR_DATA: the file does not have the same, in the same shapes. SL_ERROR_IO. */
sl_status sl_adapter_import(const sl_adapter *adapter, const sl_tensor_spec *tensors,
                            uint32_t tensor_count, const sl_tensor_io *io);

/* A tensor of the model, by our name, that was trained whole; false: the file has none. */
bool sl_adapter_find_saved(const sl_adapter *adapter, const char *name,
                           sl_weights_tensor *out_tensor);

/* Writes all of these over those of the base, through `io->write`; `tensors` are the model's
 * without its adapters, or those that a rank has. SL_ERROR_DATA: one has another shape.
 * SL_ERROR_IO. */
sl_status sl_adapter_import_saved(const sl_adapter *adapter, const sl_tensor_spec *tensors,
                                  uint32_t tensor_count, const sl_tensor_io *io);

/* The layer that an adapter stands beside, as "layers.0.self_attn.q_proj", and its two tensors as
 * PEFT names them. */
enum { SL_ADAPTER_NAME_BYTES = 128 };

typedef struct sl_adapter_layer {
    char name[sizeof((sl_tensor_spec *)NULL)->name];
    char a[SL_ADAPTER_NAME_BYTES], b[SL_ADAPTER_NAME_BYTES];
} sl_adapter_layer;

/* True if the tensor is the weight of a layer that has adapters by the shape. */
bool sl_adapter_find_layer(const sl_model_shape *shape, const sl_foreign_tensor *tensor,
                           sl_adapter_layer *out_layer);

/* The first tensor, or the second one, of a layer in the file. SL_ERROR_DATA: it is not there, or
 * of another shape than [rows, columns]. */
sl_status sl_adapter_find(const sl_adapter *adapter, const char *name, uint64_t rows,
                          uint64_t columns, sl_weights_tensor *out_tensor);

/* What an adapter_config.json says beside the shape; all borrowed. */
typedef struct sl_adapter_facts {
    const char *base; /* the path of the base model; NULL: it has none */
    double dropout;
    json_t *saved; /* a list of the modules that were trained whole; it may be empty */
} sl_adapter_facts;

/* The text of an adapter_config.json; release it with free(). SL_ERROR_SYSTEM: no memory. */
sl_status sl_adapter_format_config(const sl_model_shape *shape, const sl_adapter_facts *facts,
                                   char **out_text);

#endif
