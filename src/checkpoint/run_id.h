/* The id of a run: 128 random bits, drawn at the first start and kept by each later start that goes
 * on from a checkpoint. The run's checkpoints and logs carry the id, so that a later start can tell
 * whether a log belongs to the run. */
#ifndef SL_CHECKPOINT_RUN_ID_H
#define SL_CHECKPOINT_RUN_ID_H

#include <stdbool.h>

#include "base/hash.h"

enum { SL_RUN_ID_BYTES = 33 };

typedef sl_hash_value sl_run_id; /* zeros: not known */

bool sl_run_id_is_known(sl_run_id id);

sl_run_id sl_run_id_draw(void);

/* 32 hexadecimal digits. */
void sl_run_id_format(sl_run_id id, char out_text[SL_RUN_ID_BYTES]);

#endif
