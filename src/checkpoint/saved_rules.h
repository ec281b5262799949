/* By which rules the tensors of a checkpoint were updated: what their states mean. The manifest has
 * the names of the tensors whose rule is neither adamw nor none. Of the others, adamw updated those
 * that are in the file of first moments, and the rest were frozen. So checkpoints of adamw alone
 * have no such list, as before there were other rules. */
#ifndef SL_CHECKPOINT_SAVED_RULES_H
#define SL_CHECKPOINT_SAVED_RULES_H

#include "files/safetensors.h"
#include "tensors/full_tensors.h"

/* Writes the list as the text of a JSON object, tensor to rule; release it with free(). NULL: it is
 * empty. SL_ERROR_SYSTEM. */
sl_status sl_saved_rules_format(const sl_full_tensors *list, char **out_text);

/* Compares the rules of tensors that go on with those of the checkpoint; `text` and `moments` (the
 * file of first moments) may be NULL. What was frozen may have any rule now, and what is frozen now
 * any before. SL_ERROR_USAGE names a tensor, both rules and the way out; `path` is for messages. */
sl_status sl_saved_rules_check(const char *path, const char *text, const sl_safetensors *moments,
                               const sl_full_tensors *list);

/* Which of the tensors the run updated whose checkpoint is at `path`: out_trained is [count]. Reads
 * the header of the file of first moments, if that is there. `text` may be NULL. SL_ERROR_DATA,
 * SL_ERROR_IO. */
sl_status sl_saved_rules_find_trained(const char *path, const char *text,
                                      const sl_tensor_spec *tensors, uint32_t count,
                                      bool *out_trained);

#endif
