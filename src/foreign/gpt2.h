/* What other programs know of GPT-2: its row of model_names.c. */
#ifndef SL_FOREIGN_GPT2_H
#define SL_FOREIGN_GPT2_H

#include "model_names.h"

extern const sl_model_names sl_gpt2_model_names;

#endif
