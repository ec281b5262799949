/* Lines of progress; see meter.h. */
#include "meter.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { MB = 1000000, EXIT_STOPPED = 130, LINE_BYTES = 256, DEFAULT_COLUMNS = 80 };

static const double live_seconds = 0.2, plain_seconds = 10;

static bool was_stopped;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

bool sl_meter_is_live(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && !(kind && strcmp(kind, "dumb") == 0);
}

size_t sl_meter_width(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_COLUMNS - 1;
    return (size_t)size.ws_col - 1;
}

sl_meter sl_meter_start(const sl_config *config, const char *what, const sl_signal_texts *texts)
{
    double now = read_seconds();
    return (sl_meter){.what = what,
                      .is_quiet = config->quiet,
                      .is_live = sl_meter_is_live(STDERR_FILENO),
                      .started = now,
                      .shown = now,
                      .stop = sl_signals_watch(texts)};
}

void sl_meter_end_line(sl_meter *meter)
{
    if (meter->is_line_open)
        fputc('\n', stderr);
    meter->is_line_open = false;
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

static void say(sl_meter *meter, const char *format, va_list arguments)
{
    char text[LINE_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    if (meter->is_live)
        fprintf(stderr, "\r\033[K%.*s", (int)sl_meter_width(STDERR_FILENO), text);
    else
        fprintf(stderr, "%s\n", text);
    meter->is_line_open = meter->is_live;
}

void sl_meter_say(sl_meter *meter, const char *format, ...)
{
    va_list arguments;
    if (!is_due(meter))
        return;
    va_start(arguments, format);
    say(meter, format, arguments);
    va_end(arguments);
}

sl_status sl_meter_show(void *meter, uint64_t bytes, uint64_t total_bytes)
{
    sl_meter *self = meter;
    SL_TRY(sl_meter_check_stop(self));
    double seconds = sl_meter_seconds(self);
    double left = bytes ? seconds * (double)(total_bytes - bytes) / (double)bytes : 0;
    sl_meter_say(self, "%s  %.0f of %.0f MB  %.1f MB/s  left %.0f s", self->what,
                 (double)bytes / MB, (double)total_bytes / MB,
                 seconds > 0 ? (double)bytes / MB / seconds : 0, left);
    return SL_OK;
}

double sl_meter_seconds(const sl_meter *meter)
{
    return read_seconds() - meter->started;
}
