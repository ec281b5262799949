/* The adapters of a model that is converted, read layer by layer: from a checkpoint that has them
 * among its tensors, or from a directory of PEFT's. Memory is that of the largest layer's two
 * tensors, and one of them once more. */
#ifndef SL_FOREIGN_CONVERT_LAYER_ADAPTER_H
#define SL_FOREIGN_CONVERT_LAYER_ADAPTER_H

#include "foreign/adapter.h"

typedef struct sl_layer_adapter {
    const sl_model_shape *shape;      /* borrowed */
    const sl_adapter *adapter;        /* likewise; NULL: of the checkpoint */
    const sl_safetensors *checkpoint; /* likewise; else NULL */
    float *a, *b;                     /* [rank, in], [rank, out], of a layer; NULL: of none yet */
    uint32_t index;                   /* of the layer's weight: sl_model_tensors_index */
} sl_layer_adapter;

/* Frees the memory; a zeroed one is fine. */
void sl_layer_adapter_close(sl_layer_adapter *self);

/* True if the layer of this weight has adapters. */
bool sl_layer_adapter_has(const sl_layer_adapter *self, const sl_foreign_tensor *tensor);

/* Reads those of the layer, which has some, into `a` and `b`. SL_ERROR_DATA, SL_ERROR_DAMAGED,
 * SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_layer_adapter_load(sl_layer_adapter *self, const sl_foreign_tensor *tensor);

/* Adds alpha / rank * A B to elements of the weight, which is [in, out], or [out, in] if
 * `is_out_in`. Sums over the rank are fp32, in its order, and added once. Statuses as above. */
sl_status sl_layer_adapter_merge(sl_layer_adapter *self, const sl_foreign_tensor *tensor,
                                 bool is_out_in, uint64_t first_element, uint64_t element_count,
                                 float *data);

/* The specs of all adapters of a shape, as a checkpoint has them, two for each layer; returns their
 * number. NULL: counts alone. */
uint32_t sl_layer_adapter_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs);

#endif
