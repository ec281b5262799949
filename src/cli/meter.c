/* Lines of progress; see meter.h. */
#include "meter.h"

#include <unistd.h>

#include "base/clock.h"

enum { MB = 1000000 };

static const double live_seconds = 0.2, plain_seconds = 10;

static bool was_stopped;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

sl_meter sl_meter_start(const sl_config *config, const char *what, const sl_signal_texts *texts)
{
    double now = read_seconds();
    return (sl_meter){.what = what,
                      .is_quiet = config->quiet,
                      .is_live = isatty(STDERR_FILENO) == 1,
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

bool sl_meter_was_stopped(void)
{
    return was_stopped;
}

bool sl_meter_is_due(sl_meter *meter)
{
    double now = read_seconds();
    if (meter->is_quiet || now - meter->shown < (meter->is_live ? live_seconds : plain_seconds))
        return false;
    meter->is_line_open = meter->is_live;
    meter->shown = now;
    return true;
}

const char *sl_meter_line_start(const sl_meter *meter)
{
    return meter->is_live ? "\r\033[K" : "";
}

const char *sl_meter_line_end(const sl_meter *meter)
{
    return meter->is_live ? "" : "\n";
}

sl_status sl_meter_show(sl_meter *meter, uint64_t bytes, uint64_t total_bytes)
{
    SL_TRY(sl_meter_check_stop(meter));
    if (!sl_meter_is_due(meter))
        return SL_OK;
    double seconds = meter->shown - meter->started;
    double left = bytes ? seconds * (double)(total_bytes - bytes) / (double)bytes : 0;
    fprintf(stderr, "%s%s  %.0f of %.0f MB  %.1f MB/s  left %.0f s%s", sl_meter_line_start(meter),
            meter->what, (double)bytes / MB, (double)total_bytes / MB, (double)bytes / MB / seconds,
            left, sl_meter_line_end(meter));
    return SL_OK;
}

double sl_meter_seconds(const sl_meter *meter)
{
    return read_seconds() - meter->started;
}
