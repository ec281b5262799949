/* Progress of a command that works through bytes, on standard error: one live line on a terminal,
 * plain lines elsewhere. The first signal is seen where progress is told. */
#ifndef SL_CLI_METER_H
#define SL_CLI_METER_H

#include "command.h"
#include "signals.h"

/* Whether a line of a stream can be written over: it goes to a terminal that is not dumb. */
bool sl_meter_is_live(int fd);

/* Columns that a live line may have: the last one stays empty, for there some terminals wrap. */
size_t sl_meter_width(int fd);

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

/* SL_ERROR_SYSTEM after the first signal; the command leaves with 130 then. */
sl_status sl_meter_check_stop(const sl_meter *meter);

/* The command's end: sl_command_end, or that code where a signal ended it. */
int sl_meter_end(sl_status status);

/* Says a line when it is time for one, cut to the terminal's width. */
void sl_meter_say(sl_meter *meter, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells bytes, rate and time left when it is time to. Statuses of sl_meter_check_stop. `meter` is
 * an sl_meter: what works through bytes calls this as it goes on. */
sl_status sl_meter_show(void *meter, uint64_t bytes, uint64_t total_bytes);

double sl_meter_seconds(const sl_meter *meter);

#endif
