/* --freeze: which tensors are frozen (SL_RULE_NONE), by patterns of their names
 * (tensor_patterns.h). A pattern after `!` trains the tensors that it matches. What a frozen tensor
 * spares is counted here too.
 */
#ifndef SL_CONFIG_FREEZE_H
#define SL_CONFIG_FREEZE_H

#include "config.h"
#include "program/program.h"

/* Freezes the tensors of a program whose names match. */
void sl_freeze_apply(const sl_config_list *patterns, sl_program *program);

/* Of a program that has all tensors of the model. SL_ERROR_USAGE: a pattern matches no tensor, or
 * all tensors are frozen; the message says what the names are like. */
sl_status sl_freeze_check(const sl_config_list *patterns, const sl_program *program);

/* Elements of the whole tensors that are trained, without padding; of a program as above. */
uint64_t sl_freeze_count_trained(const sl_program *program);

/* Elements of the whole adapters of LoRA, likewise. */
uint64_t sl_freeze_count_adapters(const sl_program *program);

/* About the FLOPs of training on one token of a row of `seq`; of a program as above. Each parameter
 * takes 2 forward, 2 for its own gradient if it is trained, and, from the first trained tensor on,
 * 2 for the gradient of its input; so without frozen tensors sl_model_shape_token_flops. */
double sl_freeze_token_flops(const sl_program *program, uint64_t seq);

/* True if all tensors of the stages before that of `stage` are frozen; `whole` is the program of
 * all stages. */
bool sl_freeze_is_before(const sl_program *whole, const sl_program *stage);

#endif
