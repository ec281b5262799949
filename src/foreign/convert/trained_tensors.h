/* Which tensors of a checkpoint with adapters were trained beside them, in its run or in an earlier
 * one. The rules of a checkpoint say what its own run updated. So the runs are followed back, by
 * the --init of each, to the model without adapters that the first began with, and tensors are
 * compared with those of that base: one that --adapter brought or that an earlier part of the run
 * trained differs. A frozen tensor is the base's, or rounded to a 16-bit type; of a table where a
 * run stored frozen matrices in 8 bits a smaller change than that of the rounding is not seen.
 * Weights of linear layers are not compared: the rules of the runs decide.
 */
#ifndef SL_FOREIGN_CONVERT_TRAINED_TENSORS_H
#define SL_FOREIGN_CONVERT_TRAINED_TENSORS_H

#include "model_reader.h"

/* Writes out_trained, [sl_model_tensors_count], of an opened checkpoint with adapters. `out_base`
 * is the path of the base, to be released with free(); NULL: the first run began from scratch. If
 * a model on the way cannot be opened or has another shape, it counts as the base, nothing is
 * compared, and a warning says so. SL_ERROR_DATA, SL_ERROR_DAMAGED, SL_ERROR_IO, SL_ERROR_SYSTEM.
 */
sl_status sl_trained_tensors_find(const sl_model_reader *reader, bool *out_trained,
                                  char **out_base);

#endif
