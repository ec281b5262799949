/* Progress of a command that works through bytes, on standard error: one live line on a terminal,
 * plain lines elsewhere. The first signal is seen where progress is told. */
#ifndef SL_CLI_METER_H
#define SL_CLI_METER_H

#include "command.h"
#include "signals.h"

typedef struct sl_meter {
    const char *what;
    bool is_quiet, is_live, is_line_open;
    double started, shown; /* seconds */
    const volatile sig_atomic_t *stop;
} sl_meter;

/* Begins, and watches signals with these texts. */
sl_meter sl_meter_start(const sl_config *config, const char *what, const sl_signal_texts *texts);

/* Ends a live line, so that other text starts on a line of its own. */
void sl_meter_end_line(sl_meter *meter);

/* SL_ERROR_SYSTEM after the first signal; the command leaves with SL_METER_EXIT_STOPPED then. */
sl_status sl_meter_check_stop(const sl_meter *meter);
bool sl_meter_was_stopped(void);

enum { SL_METER_EXIT_STOPPED = 130 };

/* Whether it is time for a line; the caller writes it, between these two. */
bool sl_meter_is_due(sl_meter *meter);
const char *sl_meter_line_start(const sl_meter *meter);
const char *sl_meter_line_end(const sl_meter *meter);

/* Tells bytes, rate and time left when it is time to. Statuses of sl_meter_check_stop. */
sl_status sl_meter_show(sl_meter *meter, uint64_t bytes, uint64_t total_bytes);

double sl_meter_seconds(const sl_meter *meter);

#endif
