/* Parameters for a session from Megatron-LM's pieces, without a converted model between them. */
#ifndef SL_FOREIGN_MEGATRON_PIECES_H
#define SL_FOREIGN_MEGATRON_PIECES_H

#include "base/hash.h"
#include "megatron_model.h"
#include "tensors/tensor_io.h"

/* Copies what the program has of the parameters of `tensors`, those of a model of the pieces' shape
 * or of some layers of it, through `io->write`, group PARAM; padding rows are written as zeros.
 * Linear weights, which are [out, in] in pieces, are laid across in `window_elements`
 * (tensors/across.h). SL_ERROR_DATA: the shape is another, or a file was cut. SL_ERROR_IO. */
sl_status sl_megatron_pieces_import(const sl_megatron_model *model, const sl_tensor_spec *tensors,
                                    uint32_t tensor_count, uint64_t window_elements,
                                    const sl_tensor_io *io);

/* A hash of all parameters as fp32, in the pieces' order of elements: what ranks compare.
 * SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_megatron_pieces_hash(const sl_megatron_model *model, sl_hash_value *out_hash);

#endif
