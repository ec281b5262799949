/* Weights from a directory of Hugging Face, and its config.json.
 *
 * Takes config.json and model.safetensors (or the shards that model.safetensors.index.json names)
 * and copies every parameter to where the caller keeps it. Names may carry the prefix of the
 * architecture ("transformer.", "model.") or not; buffers that are no parameters are skipped; any
 * other name or shape that the model does not have is refused. GPT-2's linear weights are [in, out]
 * there as here, and a panel of the program is a run of rows of the file's tensor; those of other
 * architectures are [out, in] and laid across.
 *
 * A checkpoint directory (step-N) of a GPT-2 is such a directory too.
 */
#ifndef SL_FOREIGN_WEIGHTS_H
#define SL_FOREIGN_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "model_files.h"
#include "model_names.h"
#include "tensors/tensor_io.h"

/* The prefix of names in a checkpoint's files, whatever the model: as transformers has it of GPT-2.
 */
#define SL_WEIGHTS_PREFIX "transformer."

/* Prefix, a tensor's name and the NUL. */
enum { SL_WEIGHTS_NAME_BYTES = sizeof SL_WEIGHTS_PREFIX + sizeof((sl_tensor_spec *)NULL)->name };

typedef struct sl_weights_name {
    char text[SL_WEIGHTS_NAME_BYTES];
} sl_weights_name;

/* The name of a tensor in Hugging Face's files of a whole model:
 * "model.layers.0.mlp.up_proj.weight" of a Llama, where "lm_head.weight" has no prefix. */
sl_weights_name sl_weights_whole_name(const sl_model_names *names, const char *name);

/* True if files of Hugging Face have the tensor of this name, without a prefix, as [out, in]. */
bool sl_weights_is_across(const sl_model_names *names, const char *name);

/* Reads DIRECTORY/config.json; absent keys have Hugging Face's defaults, model_type must be there.
 * SL_ERROR_MISSING: no such directory or file. SL_ERROR_DATA: an architecture or a variant that
 * this program does not compute, which the message names by its key. */
sl_status sl_weights_read_config(const char *directory, sl_model_shape *out_shape);

/* Copies what the program has of the parameters of `tensors` from
 * the files in `directory` through `io->write`, group PARAM, by parts of bounded size; padding rows
 * are written as zeros. F16 and BF16 files are widened. Every name and shape is checked before the
 * first write. SL_ERROR_MISSING, SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_weights_import(const sl_model_shape *shape, const char *directory,
                            const sl_tensor_spec *tensors, uint32_t tensor_count,
                            const sl_tensor_io *io);

/* The same checks alone, of the model whose row is `names`: opens the files of `directory`, in
 * which every name and shape is right. The caller closes them. */
sl_status sl_weights_open(const sl_model_names *names, const char *directory,
                          const sl_tensor_spec *tensors, uint32_t tensor_count,
                          sl_model_files **out_files);

/* An opened directory; `path` is for messages. */
typedef struct sl_weights_directory {
    const sl_model_names *names;
    const char *path;
    const sl_model_files *files;
} sl_weights_directory;

typedef struct sl_weights_tensor {
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
} sl_weights_tensor;

/* The tensor of opened files under either of its names. SL_ERROR_DATA: it is missing, or there
 * twice. */
sl_status sl_weights_find(const sl_weights_directory *in, const char *name,
                          sl_weights_tensor *out_tensor);

/* Writes to `out_text` a config.json of this shape that transformers loads, with torch's name of
 * the weights' type and the id of the end of text; release it with free(). Not of an own model. */
sl_status sl_weights_format_config(const sl_model_shape *shape, const char *dtype,
                                   uint32_t end_of_text, char **out_text);

/* The config.json of a checkpoint: the same where its parameters are such files, as of a GPT-2
 * without adapters, else sizes that no other program reads as one of its models. */
sl_status sl_weights_describe_checkpoint(const sl_model_shape *shape, char **out_text);

#endif
