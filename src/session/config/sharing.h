/* What tensor-parallel ranks share besides tensors: options of it that contradict each other or the
 * size of a micro-batch are refused. */
#ifndef SL_SESSION_CONFIG_SHARING_H
#define SL_SESSION_CONFIG_SHARING_H

#include "config.h"

/* Once --seq is known. --partition-activations that nobody gave, but a foreign file asks for, is
 * taken back where ranks do not share tensors. SL_ERROR_USAGE. */
sl_status sl_sharing_check(sl_config *config);

#endif
