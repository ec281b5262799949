/* A model in Megatron-LM's own pieces: one file for each tensor-parallel rank of each pipeline
 * stage,
 *
 *   DIR/latest_checkpointed_iteration.txt      "100", or "release"
 *   DIR/iter_0000100/mp_rank_TT/model_optim_rng.pt        one stage, TT of its tensor-parallel
 * ranks DIR/iter_0000100/mp_rank_TT_PPP/model_optim_rng.pt    stage PPP
 *
 * as torch.save writes them (torch/torch_file.h), under the names of Megatron-LM's own models
 * before Megatron Core, or of Megatron Core's, with the norms beside the layers or within them. The
 * fork of 2019 that DeepSpeedExamples has keeps bare names ("word_embeddings.weight") and no
 * arguments; DeepSpeed's engine saves it as DIR/100/mp_rank_TT_model_states.pt.
 * Linear weights are [out, in]; those of a tensor-parallel group are split by rows or by columns.
 * The rows of query, key and value are interleaved: by head since checkpoint_version 2 (head, part,
 * element), (head, element, part) in 1, (part, head, element) in 0, of the heads of each rank.
 *
 * Embedding rows that only pad the vocabulary are passed over.
 */
#ifndef SL_FOREIGN_MEGATRON_MODEL_H
#define SL_FOREIGN_MEGATRON_MODEL_H

#include "model_tensors.h"

typedef struct sl_megatron_model sl_megatron_model;

/* Whether a directory holds such pieces, or names their iteration. */
bool sl_megatron_model_is_at(const char *path);

/* The directory that the tracker of a directory names, or `path` itself; the caller frees it.
 * SL_ERROR_DATA: the tracker names no iteration. */
sl_status sl_megatron_model_find(const char *path, char **out_directory);

/* Opens all pieces and holds names, shapes and Megatron's own arguments to the
 * row of its architecture. `heads`: of pieces that do not say them; 0: as wide as the published
 * model's. SL_ERROR_MISSING, SL_ERROR_DATA, SL_ERROR_IO. */
sl_status sl_megatron_model_open(const char *path, uint32_t heads, sl_megatron_model **out_model);

/* NULL is fine. */
void sl_megatron_model_close(sl_megatron_model *model);

sl_model_shape sl_megatron_model_shape(const sl_megatron_model *model);

/* The directory of the pieces. */
const char *sl_megatron_model_path(const sl_megatron_model *model);

/* "Megatron-LM's pieces, 2 x 4 (tensor x pipeline parallel)": for people. */
const char *sl_megatron_model_kind(const sl_megatron_model *model);

/* Reads elements of a tensor, a linear one by rows of [out, in]; one call at a time for a model.
 * Where pieces have some columns of each row, whole rows that are asked for together are read from
 * each piece at once. SL_ERROR_DATA: a file was cut. SL_ERROR_IO. */
sl_status sl_megatron_model_read(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                                 uint64_t first_element, uint64_t element_count, float *out_data);

#endif
