/* A live line on standard error while a run is planned or opens: what is done, and for how long.
 * Where standard error is no terminal, plan --compare prints a plain line every ten seconds, and
 * train one. Nothing is shown with --quiet, or of what ends within a second. */
#ifndef SL_CLI_BUSY_LINE_H
#define SL_CLI_BUSY_LINE_H

#include <stdio.h>

#include "base/heartbeat.h"
#include "config/config.h"

enum { SL_BUSY_LINE_BYTES = 352 };

typedef struct sl_busy_line {
    const char *what;
    const sl_config *config; /* says what is loaded */
    FILE *plain; /* for plain lines; NULL: standard error is a terminal, or no such lines */
    bool is_opening, listens, is_shown, is_told;
    double started, shown; /* seconds of the clock: the beginning; when the line was drawn last */
    sl_heartbeat before;   /* the listener from before, which is called too */
} sl_busy_line;

/* Begins, in the thread that does the work. `self` stays at its address until the end. `what` is
 * what is done ("planning"): borrowed, and its text may change meanwhile. Where standard error is
 * no terminal, lines go to `plain`, unless that is NULL. */
void sl_busy_line_begin(sl_busy_line *self, const sl_config *config, const char *what, FILE *plain);

/* The same of a run that opens: it reads, plans, takes memory and sets the first values. Of plain
 * lines there is one. */
void sl_busy_line_begin_opening(sl_busy_line *self, const sl_config *config, FILE *plain);

/* Takes the line away. A listener that was set after the beginning has to be gone already. A second
 * call does nothing. */
void sl_busy_line_end(sl_busy_line *self);

#endif
