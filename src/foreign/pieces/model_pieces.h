/* A model in pieces of another program: its parameters, and where they are there its optimizer's
 * states, tensor by tensor, without a converted model between them.
 *
 *   Megatron-LM           mp_rank_TT[_PPP]/model_optim_rng.pt; megatron_model.h
 *   torch, Megatron Core  .metadata and *.distcp, a distributed checkpoint; distributed.h
 *   DeepSpeed             zero/NAME/fp32.pt, the universal layout; universal.h
 *
 * What is in a directory says which of them it is. Each format is a row of one table; callers know
 * no format.
 */
#ifndef SL_FOREIGN_PIECES_MODEL_PIECES_H
#define SL_FOREIGN_PIECES_MODEL_PIECES_H

#include "base/hash.h"
#include "foreign/model_tensors.h"
#include "tensors/tensor_io.h"

enum { SL_MODEL_PIECES_KIND_BYTES = 96, SL_MODEL_PIECES_TEXT_BYTES = 256 };

/* What a format does with a model that it opened; `self` is its own. */
typedef struct sl_model_pieces_ops {
    /* Reads elements of a parameter, or of a state (groups STATE1, STATE2) of AdamW. */
    sl_status (*read)(void *self, sl_group group, const sl_foreign_tensor *tensor,
                      uint64_t first_element, uint64_t element_count, float *out_data);
    void (*close)(void *self);
} sl_model_pieces_ops;

/* One thread at a time. */
typedef struct sl_model_pieces {
    const sl_model_pieces_ops *ops;
    void *self;
    sl_model_shape shape;
    char *path;                            /* where they lie, for messages; owned */
    char kind[SL_MODEL_PIECES_KIND_BYTES]; /* "Megatron-LM's pieces, 2 x 4 (...)": for people */
    bool is_out_in;                        /* linear weights are [out, in] */
    bool has_states;                       /* STATE1 and STATE2 of all tensors, and `step` */
    uint64_t step;                         /* updates that the states have seen */
    char no_states[SL_MODEL_PIECES_TEXT_BYTES]; /* without them: why, behind "the optimizer's
                                                   states: " */
} sl_model_pieces;

typedef struct sl_model_pieces_args {
    const char *path;
    uint32_t heads; /* of a model whose pieces do not say them; 0: of the width of published ones */
} sl_model_pieces_args;

/* Whether a directory holds pieces of a format, or names where they are. */
bool sl_model_pieces_are_at(const char *path);

/* Opens them, and holds names and sizes of all tensors to the model. SL_ERROR_MISSING,
 * SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_model_pieces_open(const sl_model_pieces_args *args, sl_model_pieces **out_pieces);

/* NULL is fine. */
void sl_model_pieces_close(sl_model_pieces *pieces);

/* Reads elements of a tensor, a linear one by rows of [out, in] where is_out_in says so.
 * SL_ERROR_DATA: a file was cut, or is damaged. SL_ERROR_IO. */
sl_status sl_model_pieces_read(const sl_model_pieces *pieces, sl_group group,
                               const sl_foreign_tensor *tensor, uint64_t first_element,
                               uint64_t element_count, float *out_data);

/* Copies what the program has of the parameters of `tensors`, those of a model of the pieces' shape
 * or of some layers of it, through `io->write`, group PARAM; padding rows are written as zeros.
 * Linear weights that are [out, in] are laid across in `window_elements` (tensors/across.h).
 * SL_ERROR_DATA: the shape is another, or a file was cut. SL_ERROR_IO. */
sl_status sl_model_pieces_import(const sl_model_pieces *pieces, const sl_tensor_spec *tensors,
                                 uint32_t tensor_count, uint64_t window_elements,
                                 const sl_tensor_io *io);

/* A hash of all parameters as fp32, in the pieces' order of elements: what ranks compare.
 * SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_model_pieces_hash(const sl_model_pieces *pieces, sl_hash_value *out_hash);

#endif
