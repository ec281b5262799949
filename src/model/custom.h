/* What a layer and the check of custom ops share. */
#ifndef SL_MODEL_CUSTOM_H
#define SL_MODEL_CUSTOM_H

#include "sluice/custom.h"

/* Copies a caller's op, whose struct has `bytes`. SL_ERROR_USAGE: it lacks something; the
 * message begins with `name`. */
sl_status sl_custom_read(const char *name, const sl_custom_op *op, size_t bytes,
                         sl_custom_op *out_op);

/* What an elementwise op must be, for inputs of `features`. */
sl_status sl_custom_check_features(const char *name, const sl_custom_op *op, uint64_t features);

#endif
