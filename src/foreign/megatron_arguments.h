/* What Megatron-LM was told on its command line, as its files keep it: an object with attributes.
 * An argument that makes another model is refused by its name. */
#ifndef SL_FOREIGN_MEGATRON_ARGUMENTS_H
#define SL_FOREIGN_MEGATRON_ARGUMENTS_H

#include "foreign/torch/pickle.h"
#include "model_names.h"

typedef struct sl_megatron_arguments {
    const char *path; /* of the file, for messages */
    const sl_model_names *names;
    const sl_pickle_value *values; /* a dict */
} sl_megatron_arguments;

/* Writes the sizes that are said; the others keep what they are. Holds all arguments to the row of
 * the architecture. SL_ERROR_DATA names the argument. */
sl_status sl_megatron_arguments_read_shape(const sl_megatron_arguments *arguments,
                                           sl_model_shape *shape);

/* One size. One that is absent or None keeps what `value` holds. SL_ERROR_DATA: it is no size. */
sl_status sl_megatron_arguments_read_size(const sl_megatron_arguments *arguments, const char *key,
                                          uint32_t *value);

/* SL_ERROR_DATA unless it is absent or `needed`. */
sl_status sl_megatron_arguments_need_size(const sl_megatron_arguments *arguments, const char *key,
                                          uint64_t needed);

#endif
