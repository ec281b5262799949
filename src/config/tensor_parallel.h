/* What tensor-parallel ranks share besides tensors: options of it that contradict each other or the
 * size of a micro-batch are refused. */
#ifndef SL_CONFIG_TENSOR_PARALLEL_H
#define SL_CONFIG_TENSOR_PARALLEL_H

#include "config.h"

/* Checks, once --seq is known, the options of ranks that share tensors. Takes
 * --partition-activations back if only a foreign file asks for it and it has no effect (--tp 1, or
 * --sequence-parallel). SL_ERROR_USAGE. */
sl_status sl_tensor_parallel_check(sl_config *config);

#endif
