/* A model in parts (parts.h) under the names that transformers has for its tensors, with whatever a
 * program put in front of them: "model.transformer.wte.weight" of one, and of its optimizer's
 * states "optim.state.transformer.wte.weight.exp_avg".
 *
 * Every tensor of the model is there once with its size. What else has the weights' front is a
 * buffer that the model is known to have, or refused. States are there of all tensors, or of none.
 */
#ifndef SL_FOREIGN_PIECES_NAMED_MODEL_H
#define SL_FOREIGN_PIECES_NAMED_MODEL_H

#include "model_pieces.h"
#include "parts.h"

enum { SL_NAMED_STATES = 2 };

typedef struct sl_named_model {
    sl_parts weights, states; /* owned; `states` is empty where they are among the weights */
    const sl_parted **found;  /* owned: [1 + SL_NAMED_STATES][tensor_count]; NULL: no state */
    uint32_t tensor_count;
    sl_model_shape shape;
} sl_named_model;

extern const sl_model_pieces_ops sl_named_model_ops;

typedef struct sl_named_model_args {
    const char *directory; /* with the model's config.json */
    uint64_t step;         /* where no part says it; UINT64_MAX: not known */
    bool allows_flat;      /* a tensor may be stored as one run of its elements */
} sl_named_model_args;

/* SL_ERROR_DATA: `what` says no shape, and there is no config.json beside it. */
sl_status sl_named_model_need_config(const char *directory, const char *what);

/* Reads config.json, finds all tensors, and makes `pieces` of them. Takes both lists of parts over,
 * also on failure, and zeroes them; `states` may be empty. The step is what the parts say
 * ("NAME.step"), else that of the arguments. SL_ERROR_DATA, SL_ERROR_MISSING. */
sl_status sl_named_model_open(const sl_named_model_args *args, sl_parts *weights, sl_parts *states,
                              sl_model_pieces *pieces);

#endif
