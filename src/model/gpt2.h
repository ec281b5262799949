/* GPT-2's row of the table of architectures. Private to the room. */
#ifndef SL_MODEL_GPT2_H
#define SL_MODEL_GPT2_H

#include "architecture.h"

/* Names of the built-in shapes, NULL ends the list; the shape of a name. */
const char *const *sl_gpt2_names(void);
void sl_gpt2_named(uint32_t index, sl_model_shape *out_shape);

sl_status sl_gpt2_check(const sl_model_shape *shape, uint32_t tp_size);
sl_status sl_gpt2_check_options(const sl_model_shape *shape, const sl_model_options *options);
uint64_t sl_gpt2_parameters(const sl_model_shape *shape);
uint64_t sl_gpt2_attention_width(const sl_model_shape *shape);

/* `user` is a sl_model_shape. */
sl_status sl_gpt2_build(sl_model *model, const void *user);

#endif
