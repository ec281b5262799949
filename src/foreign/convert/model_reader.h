/* The parameters of a model as fp32, tensor by tensor, wherever they are: in a checkpoint of this
 * program, in a directory of Hugging Face, in pieces, or in a model of llm.c. All
 * names and shapes are checked on opening, the checksums of a checkpoint on reading. */
#ifndef SL_FOREIGN_CONVERT_MODEL_READER_H
#define SL_FOREIGN_CONVERT_MODEL_READER_H

#include "checkpoint/model_directory.h"
#include "foreign/model_files.h"
#include "foreign/model_tensors.h"
#include "foreign/weights.h"
#include "layer_adapter.h"

typedef struct sl_model_reader {
    sl_model_shape shape;
    const char *kind;          /* "checkpoint of step 7", ...: for people */
    const char *path;          /* of the checkpoint, model or file itself */
    const char *directory;     /* where a vocabulary may lie; NULL: nowhere */
    const char *tokenizer;     /* what the checkpoint says; NULL: nothing */
    bool is_out_in;            /* linear weights are [out, in] */
    sl_model_directory source; /* of a directory */
    sl_model_files *files;     /* of a Hugging Face model */
    sl_weights_tensor *found;  /* [sl_model_tensors_count] of safetensors, else NULL */
    sl_llmc_model *llmc;       /* of a file, else NULL */
    bool merges;               /* reads weights with their adapters added */
    sl_layer_adapter *adapter; /* of the layer that was read last; NULL: none was */
} sl_model_reader;

/* Opens the model at `path`. `checks_all` is for a checkpoint alone: see sl_checkpoint_find;
 * `heads` for pieces alone: see sl_model_directory_open. SL_ERROR_MISSING, SL_ERROR_DATA,
 * SL_ERROR_IO. */
sl_status sl_model_reader_open(const char *path, bool checks_all, uint32_t heads,
                               sl_model_reader *out_reader);

/* Adds the adapters of a directory that PEFT saved; NULL: none. See
 * sl_model_directory_add_adapter. */
sl_status sl_model_reader_add_adapter(sl_model_reader *reader, const char *path);

/* For reading the adapters of a model that has some; to be closed before the reader is. */
sl_layer_adapter sl_model_reader_adapter(const sl_model_reader *reader);

/* A zeroed one is fine. */
void sl_model_reader_close(sl_model_reader *reader);

/* Reads elements of a tensor as they stand in the source, so a linear one by rows of [out, in]
 * where is_out_in says so. SL_ERROR_DATA: a file was cut. SL_ERROR_DAMAGED: bytes of a checkpoint
 * differ from those that were saved. SL_ERROR_IO. */
sl_status sl_model_reader_read(const sl_model_reader *reader, const sl_foreign_tensor *tensor,
                               uint64_t first_element, uint64_t element_count, float *out_data);

#endif
