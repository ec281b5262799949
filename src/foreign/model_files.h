/* The safetensors files of one model directory: model.safetensors alone, or the shards that
 * model.safetensors.index.json names.
 *
 * The index is not trusted: it can name plain files of its own directory that end in .safetensors
 * and nothing else; no path, no symbolic link. Each tensor that it maps must be in that shard, and
 * each tensor of a shard must be mapped to it.
 */
#ifndef SL_FOREIGN_MODEL_FILES_H
#define SL_FOREIGN_MODEL_FILES_H

#include <stdint.h>

#include "files/safetensors.h"

enum { SL_MODEL_FILES_MAX = 512 }; /* shards; each is an open file */

typedef struct sl_model_files {
    sl_safetensors **files; /* [file_count] */
    uint32_t file_count;
} sl_model_files;

/* Opens the files of `directory`; model.safetensors itself may be a symbolic link, as in Hugging
 * Face's cache. SL_ERROR_MISSING: neither it nor an index is there. SL_ERROR_DATA. */
sl_status sl_model_files_open(const char *directory, sl_model_files **out_files);

/* NULL is fine. */
void sl_model_files_close(sl_model_files *files);

/* The tensor of this name and the file it is in, or NULL. */
const sl_safetensors_tensor *sl_model_files_find(const sl_model_files *files, const char *name,
                                                 const sl_safetensors **out_file);

#endif
