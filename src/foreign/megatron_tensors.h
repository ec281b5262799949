/* Names of tensors and pieces in Megatron-LM's files, by the row of the model. For the reader and
 * the writer of its pieces. */
#ifndef SL_FOREIGN_MEGATRON_TENSORS_H
#define SL_FOREIGN_MEGATRON_TENSORS_H

#include "model_tensors.h"

#define SL_MEGATRON_TRACKER "latest_checkpointed_iteration.txt"
#define SL_MEGATRON_CORE_FRONT "decoder" /* before the names of layers in Megatron Core */

enum {
    SL_MEGATRON_NAME_BYTES = 160,
    SL_MEGATRON_VOCAB_UNIT = 128 /* what Megatron pads ids to, times the tensor-parallel ranks */
};

typedef struct sl_megatron_name {
    char text[SL_MEGATRON_NAME_BYTES];
} sl_megatron_name;

/* Whether a tensor's name has something in front, as "decoder"; what is before the layers has not.
 */
static inline bool sl_megatron_tensors_has_front(const sl_foreign_tensor *tensor)
{
    return tensor->kind >= tensor->names->first_of_layer;
}

/* "decoder.layers.3." and the name, of one of each layer. */
sl_megatron_name sl_megatron_tensors_name(const sl_foreign_tensor *tensor, const char *front,
                                          const char *name);

/* The same as Megatron Core has it. */
sl_megatron_name sl_megatron_tensors_core_name(const sl_foreign_tensor *tensor);

/* The directory of a piece: "mp_rank_01", or of stages "mp_rank_01_003". */
sl_megatron_name sl_megatron_tensors_piece(uint32_t tp_rank, uint32_t pp_rank, bool has_stages);

#endif
