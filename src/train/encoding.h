/* The text of a run becomes ids. Of the ranks of a machine that have the same files, one reads,
 * hashes and encodes them; the others take the paths of its result. */
#ifndef SL_TRAIN_ENCODING_H
#define SL_TRAIN_ENCODING_H

#include "trainer.h"

/* All ranks call it, also without text. SL_ERROR_RANK: the rank that encodes is lost. */
sl_status sl_encoding_run(sl_trainer *trainer);

#endif
