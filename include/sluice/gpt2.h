/* GPT-2: shapes, counts and the model, by the layers of model.h. */
#ifndef SLUICE_GPT2_H
#define SLUICE_GPT2_H

#include "sluice/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_gpt2_shape {
    uint32_t layers;
    uint32_t width; /* a multiple of heads */
    uint32_t heads; /* at least the tensor-parallel size */
    uint32_t context;
    uint32_t vocab; /* unpadded */
} sl_gpt2_shape;

/* Names of the built-in shapes, in order of size; NULL ends the list. */
SL_API const char *const *sl_gpt2_names(void);

/* The shape called `name`; SL_ERROR_USAGE names the nearest one otherwise. */
SL_API sl_status sl_gpt2_named(const char *name, sl_gpt2_shape *out_shape);

/* Refuses zero sizes, width % heads, more ranks than heads, sizes whose products overflow:
 * SL_ERROR_USAGE. */
SL_API sl_status sl_gpt2_check(const sl_gpt2_shape *shape, uint32_t tp_size);

/* Parameters without padding, the tied head counted once: 124,439,808 for "gpt2". */
SL_API uint64_t sl_gpt2_parameter_count(const sl_gpt2_shape *shape);

/* FLOPs of training on one token of a row of `seq`: 6 a parameter, and 6 layers * width * seq of
 * causal attention (Chowdhery et al., PaLM, appendix B, which counts attention as not causal). */
SL_API double sl_gpt2_token_flops(const sl_gpt2_shape *shape, uint64_t seq);

/* The vocabulary padded to a multiple of 128 * tp_size. */
SL_API uint64_t sl_gpt2_padded_vocab(const sl_gpt2_shape *shape, uint32_t tp_size);

/* head_logits for a GPU: as many as 256 MiB of `type` hold. The default makes products of about 640
 * rows, too few for the many multiprocessors of a GPU. */
SL_API uint64_t sl_gpt2_gpu_head_logits(sl_type type);

/* The layers [*out_first, *out_end) of a stage. No stage has more than one layer more than another.
 */
SL_API void sl_gpt2_stage_layers(const sl_gpt2_shape *shape, uint32_t stage_count,
                                 uint32_t stage_index, uint32_t *out_first, uint32_t *out_end);

/* sl_model_emit of GPT-2. SL_ERROR_USAGE: options that do not fit the shape, too. */
SL_API sl_status sl_gpt2_emit(const sl_gpt2_shape *shape, const sl_model_options *options,
                              sl_program **out_forward);

#ifdef __cplusplus
}
#endif
#endif
