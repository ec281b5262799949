/* A live line on standard error while a run opens: while it reads, plans, takes memory and sets the
 * first values. Nothing is shown where standard error is no terminal, with --quiet, or of a run
 * that opens within a second. */
#ifndef SL_CLI_OPENING_LINE_H
#define SL_CLI_OPENING_LINE_H

#include "base/heartbeat.h"
#include "config/config.h"

typedef struct sl_opening_line {
    bool listens, is_shown;
    double started, shown; /* seconds */
    sl_heartbeat before;   /* the listener that goes on hearing of signs of life */
} sl_opening_line;

/* Begins, in the thread that opens the run. `self` stays at its address until the end. */
void sl_opening_line_begin(sl_opening_line *self, const sl_config *config);

/* Takes the line away. What listened after the beginning must have ended before. May be called
 * again. */
void sl_opening_line_end(sl_opening_line *self);

#endif
