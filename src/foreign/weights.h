/* Weights from a directory of Hugging Face, and its config.json.
 *
 * Takes config.json and model.safetensors (or the shards that model.safetensors.index.json names)
 * and copies every parameter to where the caller keeps it. Names may carry the "transformer."
 * prefix or not; buffers that are no parameters are skipped; any other name or shape that the model
 * does not have is refused. Layouts are Hugging Face's own ([in, out]): nothing is
 * transposed, and a panel of the program is a run of rows of the file's tensor.
 *
 * A checkpoint directory (step-N) is such a directory too.
 */
#ifndef SL_FOREIGN_WEIGHTS_H
#define SL_FOREIGN_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include "model_files.h"
#include "model_names.h"
#include "tensors/tensor_io.h"

/* The prefix of names in a checkpoint's files, as transformers has it. */
#define SL_WEIGHTS_PREFIX "transformer."

/* Prefix, a tensor's name and the NUL. */
enum { SL_WEIGHTS_NAME_BYTES = sizeof SL_WEIGHTS_PREFIX + sizeof((sl_tensor_spec *)NULL)->name };

/* Reads DIRECTORY/config.json; absent keys have Hugging Face's defaults, model_type must be there.
 * SL_ERROR_MISSING: no such directory or file. SL_ERROR_DATA: an architecture or a variant that
 * this program does not compute (activation, attention scaling, untied head, inner width, epsilon).
 */
sl_status sl_weights_read_config(const char *directory, sl_model_shape *out_shape);

/* `names` is the row of the model. Copies what the program has of the parameters of `tensors` from
 * the files in `directory` through `io->write`, group PARAM, by parts of bounded size; padding rows
 * are written as zeros. F16 and BF16 files are widened. Every name and shape is checked before the
 * first write. SL_ERROR_MISSING, SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_weights_import(const sl_model_names *names, const char *directory,
                            const sl_tensor_spec *tensors, uint32_t tensor_count,
                            const sl_tensor_io *io);

/* The same checks alone: opens the files of `directory`, in which every name and shape is right.
 * The caller closes them. */
sl_status sl_weights_open(const sl_model_names *names, const char *directory,
                          const sl_tensor_spec *tensors, uint32_t tensor_count,
                          sl_model_files **out_files);

/* The tensor of opened files under either of its names, and the file that it is in. `directory` is
 * for messages. SL_ERROR_DATA: it is missing, or there twice. */
sl_status sl_weights_find(const char *directory, const sl_model_files *files, const char *name,
                          const sl_safetensors **out_file,
                          const sl_safetensors_tensor **out_tensor);

/* Writes to `out_text` a config.json of this shape that transformers loads, with
 * torch's name of the weights' type and the id of the end of text; release it with free(). */
sl_status sl_weights_format_config(const sl_model_shape *shape, const char *dtype,
                                   uint32_t end_of_text, char **out_text);

#endif
