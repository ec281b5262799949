/* Lines of progress; see meter.h. */
#include "meter.h"

#include <stdarg.h>

#include "base/clock.h"
#include "terminal.h"

enum { MB = 1000000, EXIT_STOPPED = 130, LINE_BYTES = 256 };

static const double live_seconds = 0.2, plain_seconds = 10;

static bool was_stopped;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

void sl_meter_format_time(double seconds, char out_text[SL_METER_TIME_BYTES])
{
    unsigned long long rounded = seconds < 1e9 ? (unsigned long long)(seconds + 0.5) : 999999999;
    if (rounded >= 3600)
        snprintf(out_text, SL_METER_TIME_BYTES, "%llu:%02llu:%02llu", rounded / 3600,
                 rounded / 60 % 60, rounded % 60);
    else
        snprintf(out_text, SL_METER_TIME_BYTES, "%llu:%02llu", rounded / 60, rounded % 60);
}

sl_meter sl_meter_start(const sl_config *config, const char *what, const sl_signal_texts *texts)
{
    double now = read_seconds();
    return (sl_meter){.what = what,
                      .is_quiet = config->quiet,
                      .is_live = sl_terminal_is_live(stderr),
                      .started = now,
                      .shown = now,
                      .stop = sl_signals_watch(texts)};
}

sl_status sl_meter_check_stop(const sl_meter *meter)
{
    was_stopped = *meter->stop != 0;
    if (was_stopped)
        SL_FAIL(SL_ERROR_SYSTEM, "stopped by a signal");
    return SL_OK;
}

int sl_meter_end(sl_status status)
{
    int code = sl_command_end(status);
    return was_stopped && status != SL_OK ? EXIT_STOPPED : code;
}

static bool is_due(sl_meter *meter)
{
    double now = read_seconds();
    if (meter->is_quiet || now - meter->shown < (meter->is_live ? live_seconds : plain_seconds))
        return false;
    meter->shown = now;
    return true;
}

void sl_meter_say(sl_meter *meter, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    if (!is_due(meter))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sl_terminal_draw(stderr, text);
}

sl_status sl_meter_show(void *meter, uint64_t bytes, uint64_t total_bytes)
{
    sl_meter *self = meter;
    SL_TRY(sl_meter_check_stop(self));
    double seconds = sl_meter_seconds(self);
    char left[SL_METER_TIME_BYTES];
    sl_meter_format_time(bytes ? seconds * (double)(total_bytes - bytes) / (double)bytes : 0, left);
    sl_meter_say(self, "%s  %.0f of %.0f MB  %.1f MB/s  left %s", self->what, (double)bytes / MB,
                 (double)total_bytes / MB, seconds > 0 ? (double)bytes / MB / seconds : 0, left);
    return SL_OK;
}

double sl_meter_seconds(const sl_meter *meter)
{
    return read_seconds() - meter->started;
}
