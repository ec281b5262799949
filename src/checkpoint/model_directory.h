/* Where weights come from: a directory that `train --save` filled, one checkpoint in it, a
 * directory of Hugging Face, or pieces of another program (foreign/pieces). What is in the
 * directory says which of them it is. Or, without a directory, a model that is open. */
#ifndef SL_CHECKPOINT_MODEL_DIRECTORY_H
#define SL_CHECKPOINT_MODEL_DIRECTORY_H

#include "checkpoint.h"
#include "model/architecture.h"
#include "tensors/full_tensors.h"

typedef struct sl_model_directory {
    char *directory;                /* of a Hugging Face model, else NULL */
    sl_checkpoint *checkpoint;      /* else NULL */
    struct sl_model_pieces *pieces; /* else NULL */
    const sl_tensor_io *open_io;    /* of a model that is open, and its tensors; else NULL */
    const sl_full_tensors *open_tensors;
    const sl_engine_ranks *open_ranks; /* that hold it together; NULL: this process alone does */
    sl_model_shape shape;
    const char *tokenizer;      /* of the checkpoint; NULL: not known, as of a Hugging Face model */
    sl_model_texts texts;       /* of the directory, or the checkpoint's */
    bool names_end;             /* a checkpoint whose run was told by --end-of-text: */
    uint32_t end_of_text;       /* the id behind each document, below the shape's ids */
    struct sl_adapter *adapter; /* of LoRA, from a directory of PEFT's; else NULL */
    const char *path; /* of the checkpoint or model itself: a vocabulary may lie there; NULL: none
                         is open */
} sl_model_directory;

/* Opens a directory. `checks_all` is for checkpoints: see sl_checkpoint_find. `heads` is for pieces
 * that do not say them; 0: see sl_model_pieces_args. SL_ERROR_MISSING, SL_ERROR_DATA. */
sl_status sl_model_directory_open(const char *path, bool checks_all, uint32_t heads,
                                  sl_model_directory *out_source);

/* Adds the adapters of a directory that PEFT saved; NULL: none. SL_ERROR_USAGE: the model has some
 * already. Else as sl_adapter_open. */
sl_status sl_model_directory_add_adapter(sl_model_directory *source, const char *path);

void sl_model_directory_close(sl_model_directory *source);

/* Writes the parameters of `tensors`, which are of the directory's shape, through `io->write`;
 * adapters are left out if the directory has none. If it has some, so have the tensors.
 * SL_ERROR_DAMAGED: see sl_checkpoint_load. */
sl_status sl_model_directory_load(const sl_model_directory *source, const sl_tensor_spec *tensors,
                                  uint32_t tensor_count, const sl_tensor_io *io);

#endif
