/* The schedule of a training step in lines for people: which micro-batch goes through which
 * segments when. The lines are read off the step itself, so they say what is run. */
#ifndef SL_REPORT_SCHEDULE_TEXT_H
#define SL_REPORT_SCHEDULE_TEXT_H

#include "program/program.h"

enum { SL_SCHEDULE_LINES = 16, SL_SCHEDULE_BYTES = 160 };

typedef struct sl_schedule_text {
    char lines[SL_SCHEDULE_LINES][SL_SCHEDULE_BYTES];
    uint32_t count; /* where it is SL_SCHEDULE_LINES, later lines are left out */
} sl_schedule_text;

/* Describes a step of sl_program_derive_step. Its cost is one walk over the ops. */
void sl_schedule_describe(const sl_program *step, sl_schedule_text *out_text);

#endif
