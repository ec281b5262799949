/* --lora-rank, --lora-alpha and --lora-targets: which adapters the model has (model/lora.h). */
#ifndef SL_CONFIG_LORA_H
#define SL_CONFIG_LORA_H

#include "config.h"
#include "program/program.h"

/* Gives `shape` the adapters of the options; `base` are those that its weights come with, of rank 0
 * if there are none. Options that say nothing take those of `base`, and otherwise the rank as alpha
 * and the linear layers of attention as targets. The options are filled in. SL_ERROR_USAGE: the
 * weights have other adapters, --lora-alpha and the like without --lora-rank, no targets, or too
 * many. */
sl_status sl_config_take_lora(sl_config *config, const sl_lora *base, sl_model_shape *shape);

/* Of a program that has all tensors of the model. SL_ERROR_USAGE: a target names no layer. */
sl_status sl_lora_check(const sl_lora *lora, const sl_program *program);

#endif
