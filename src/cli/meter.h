/* Progress of a command that works through bytes, on standard error: one live line on a terminal,
 * plain lines elsewhere. The first signal is seen where progress is told. */
#ifndef SL_CLI_METER_H
#define SL_CLI_METER_H

#include "command.h"
#include "signals.h"

enum { SL_METER_TIME_BYTES = 32 };

/* "1:02:03" or "2:03". */
void sl_meter_format_time(double seconds, char out_text[SL_METER_TIME_BYTES]);

typedef struct sl_meter {
    const char *what;
    bool is_quiet, is_live;
    double started, shown; /* seconds */
    const volatile sig_atomic_t *stop;
} sl_meter;

/* Begins, and watches signals with these texts. */
sl_meter sl_meter_start(const sl_config *config, const char *what, const sl_signal_texts *texts);

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
