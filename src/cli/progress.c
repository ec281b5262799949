/* Prints to standard output. Plain lines come at most twice a second, the first and the last
 * always, and within a step every ten seconds. */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"
#include "signals.h"

enum { TIME_BYTES = 32 };

static const double live_seconds = 0.1, plain_seconds = 0.5;
static const double long_seconds = 2, live_within_seconds = 0.5, plain_within_seconds = 10;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

static void format_time(double seconds, char out_text[TIME_BYTES])
{
    unsigned long long rounded = seconds < 1e9 ? (unsigned long long)(seconds + 0.5) : 999999999;
    if (rounded >= 3600)
        snprintf(out_text, TIME_BYTES, "%llu:%02llu:%02llu", rounded / 3600, rounded / 60 % 60,
                 rounded % 60);
    else
        snprintf(out_text, TIME_BYTES, "%llu:%02llu", rounded / 60, rounded % 60);
}

void sl_progress_start(sl_progress *progress, const sl_trainer *trainer)
{
    *progress = (sl_progress){.is_quiet = trainer->config->quiet,
                              .is_live = isatty(STDOUT_FILENO) == 1,
                              .last_step = trainer->config->steps,
                              .first_step = trainer->state.step,
                              .done_step = trainer->state.step};
    progress->started = progress->begun = progress->within_shown = read_seconds();
}

void sl_progress_break(sl_progress *progress)
{
    if (progress->is_line_open)
        printf("\n");
    progress->is_line_open = false;
}

static void print_line(sl_progress *progress, const sl_step_report *report, double now)
{
    const uint64_t *peak = report->peak_bytes;
    char left[TIME_BYTES], disk[SL_UNITS_TEXT_BYTES + 8] = "";
    double steps_done = (double)(report->step - progress->first_step);
    double steps_left = (double)(progress->last_step - report->step);
    format_time(steps_left * (now - progress->started) / steps_done, left);
    if (peak[SL_TIER_DISK] > 0)
        snprintf(disk, sizeof disk, "  disk %s", sl_command_format_size(peak[SL_TIER_DISK]).text);
    printf("%sstep %" PRIu64 "/%" PRIu64 "  loss %.4f%s  norm %.3g  lr %.2e  %.0f tok/s  "
           "device %s  host %s%s  left %s%s",
           progress->is_live ? "\r\033[K" : "", report->step, progress->last_step, report->loss,
           report->skipped ? " (skipped)" : "", (double)report->grad_norm,
           (double)report->learning_rate, report->tokens_per_s,
           sl_command_format_size(peak[SL_TIER_DEVICE]).text,
           sl_command_format_size(peak[SL_TIER_HOST]).text, disk, left,
           progress->is_live ? "" : "\n");
    fflush(stdout);
    progress->is_line_open = progress->is_live;
    progress->shown = now;
}

static void show_step(void *user, const sl_step_report *report)
{
    sl_progress *progress = user;
    double now = read_seconds();
    double pause = progress->is_live ? live_seconds : plain_seconds;
    bool is_end = report->step == progress->first_step + 1 || report->step == progress->last_step;
    progress->done_step = report->step;
    progress->begun = now;
    if (progress->is_quiet || (!is_end && now - progress->shown < pause))
        return;
    print_line(progress, report, now);
}

/* Of a long step, how much is done. */
static void show_within(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    sl_progress *progress = user;
    double now = read_seconds();
    double pause = progress->is_live ? live_within_seconds : plain_within_seconds;
    if (plan_index != 0 || progress->is_quiet || done == count ||
        now - progress->begun < long_seconds || now - progress->within_shown < pause)
        return;
    printf("%sstep %" PRIu64 "/%" PRIu64 "  %.0f %% done%s", progress->is_live ? "\r\033[K" : "",
           progress->done_step + 1, progress->last_step, 100.0 * done / count,
           progress->is_live ? "" : "\n");
    fflush(stdout);
    progress->is_line_open = progress->is_live;
    progress->within_shown = now;
}

static void show_eval(void *user, const sl_eval_report *report)
{
    sl_progress *progress = user;
    if (progress->is_quiet)
        return;
    sl_progress_break(progress);
    printf("%s at step %" PRIu64 ": loss %.4f  perplexity %.2f  (%" PRIu64 " of %" PRIu64
           " tokens)\n",
           report->set, report->step, report->loss, report->perplexity, report->tokens,
           report->data_tokens);
    fflush(stdout);
}

static void begin_save(void *user)
{
    (void)user;
    sl_signals_begin_save();
}

static void end_save(void *user, uint64_t step)
{
    sl_progress *progress = user;
    sl_signals_end_save();
    if (progress->is_quiet)
        return;
    sl_progress_break(progress);
    printf("saved step %" PRIu64 "\n", step);
    fflush(stdout);
}

sl_loop_events sl_progress_events(sl_progress *progress)
{
    return (sl_loop_events){show_step, show_eval, begin_save, end_save, progress};
}

sl_engine_progress sl_progress_within_step(sl_progress *progress)
{
    return (sl_engine_progress){show_within, progress};
}
