/* A live line on standard error while a run is planned or opens: reads, plans, takes memory and
 * sets the first values. Where standard error is no terminal, `train` prints one plain line
 * instead. Nothing is shown with --quiet, or if the run opens within a second. */
#ifndef SL_CLI_OPENING_LINE_H
#define SL_CLI_OPENING_LINE_H

#include <stdio.h>

#include "base/heartbeat.h"
#include "config/config.h"

typedef struct sl_opening_line {
    const char *what;
    const sl_config *config; /* says what is loaded */
    FILE *plain; /* for the plain line; NULL: standard error is a terminal, or no such line */
    bool listens, is_shown, is_told;
    double started, shown; /* seconds of the clock: the beginning; when the line was drawn last */
    sl_heartbeat before;   /* the listener from before, which is called too */
} sl_opening_line;

/* Begins, in the thread that opens the run. `self` stays at its address until the end. Where
 * standard error is no terminal, one line goes to `plain`, unless that is NULL. */
void sl_opening_line_begin(sl_opening_line *self, const sl_config *config, FILE *plain);

/* The same of a command that plans and opens nothing. */
void sl_opening_line_begin_planning(sl_opening_line *self, const sl_config *config);

/* Takes the line away. A listener that was set after sl_opening_line_begin has to be gone already.
 * A second call does nothing. */
void sl_opening_line_end(sl_opening_line *self);

#endif
