/* A line is made of parts. Where a terminal is too narrow for all, those that matter least are left
 * out, so that a live line never wraps: a line that wrapped could not be taken back. The width is
 * asked for each line, so that a window may change its size. */
#include "progress.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "command.h"
#include "meter.h"
#include "signals.h"
#include "terminal.h"

enum { PART_BYTES = 64, PART_MAX = 16, LINE_BYTES = PART_MAX * PART_BYTES };
enum { NO_WIDTH = LINE_BYTES };

static const double live_seconds = 0.1, plain_seconds = 10;
static const double long_seconds = 2, live_within_seconds = 0.5, plain_within_seconds = 10;
static const double silent_save_seconds = 1;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

/* ---- lines ---- */

typedef struct part {
    char text[PART_BYTES];
    uint32_t rank; /* the highest is left out first; 0 never */
} part;

typedef struct line {
    part parts[PART_MAX];
    uint32_t count;
} line;

static void __attribute__((format(printf, 3, 4)))
add_part(line *to, uint32_t rank, const char *format, ...)
{
    part *next = &to->parts[to->count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next->text, PART_BYTES, format, arguments);
    va_end(arguments);
    next->rank = rank;
}

/* Joins the parts up to a rank; returns the length. */
static size_t join_parts(const line *from, uint32_t highest, char out_text[LINE_BYTES])
{
    size_t used = 0;
    for (uint32_t i = 0; i < from->count; i++)
        if (from->parts[i].rank <= highest)
            used += (size_t)snprintf(out_text + used, LINE_BYTES - used, "%s%s", used ? "  " : "",
                                     from->parts[i].text);
    return used;
}

static void print_line(sl_progress *progress, const line *what)
{
    char text[LINE_BYTES];
    const size_t width = progress->is_live ? sl_terminal_columns(stdout) : NO_WIDTH;
    uint32_t highest = PART_MAX;
    while (join_parts(what, highest, text) > width && highest > 0)
        highest--;
    sl_terminal_draw(stdout, text);
}

/* ---- steps ---- */

static void add_tiers(line *to, const sl_step_report *report)
{
    static const uint32_t ranks[SL_TIER_COUNT] = {10, 11, 12};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (tier != SL_TIER_DISK || report->peak_bytes[tier] > 0)
            add_part(to, ranks[tier], "%s %s", sl_tier_name((sl_tier)tier),
                     sl_command_format_size(report->peak_bytes[tier]).text);
}

/* Times are means since the line before. */
static void add_times(const sl_progress *progress, double now, line *to)
{
    char left[SL_METER_TIME_BYTES];
    double steps_done = (double)(progress->done_step + 1 - progress->first_step);
    double steps_left = (double)(progress->last_step - progress->done_step);
    double step_ms = progress->ms / (double)progress->steps;
    sl_meter_format_time(steps_left * (now - progress->started) / steps_done, left);
    add_part(to, 6, "%.*f ms", step_ms < 100 ? 1 : 0, step_ms);
    add_part(to, 2, "%.0f tok/s", 1e3 * progress->tokens / progress->ms);
    add_part(to, 3, "left %s", left);
}

static void show_line(sl_progress *progress, const sl_step_report *report, double now)
{
    line what = {.count = 0};
    add_part(&what, 0, "step %" PRIu64 "/%" PRIu64, report->step, progress->last_step);
    add_part(&what, 1, "loss %.4f%s", report->loss, report->skipped ? " (skipped)" : "");
    add_part(&what, 7, "norm %.3g", (double)report->grad_norm);
    add_part(&what, 4, "lr %.2e", (double)report->learning_rate);
    if (report->loss_scale != 1)
        add_part(&what, 8, "scale %g", (double)report->loss_scale);
    if (progress->skipped > 0)
        add_part(&what, 9, "skipped %" PRIu64, progress->skipped);
    if (report->epoch >= 0) /* not where it is no number */
        add_part(&what, 5, "epoch %.2f", report->epoch);
    add_times(progress, now, &what);
    add_tiers(&what, report);
    print_line(progress, &what);
    progress->shown = now;
    progress->ms = progress->tokens = 0;
    progress->steps = 0;
}

static bool is_line_due(const sl_progress *progress, double now)
{
    uint64_t step = progress->done_step;
    if (step == progress->first_step || step == progress->last_step)
        return true;
    if (!progress->is_live && progress->log_every != SL_CONFIG_UNSET)
        return step % progress->log_every == 0;
    return now - progress->shown >= (progress->is_live ? live_seconds : plain_seconds);
}

static sl_status show_step(void *self, const sl_step_report *report)
{
    sl_progress *progress = self;
    double now = read_seconds();
    progress->done_step = report->step;
    progress->begun = now;
    progress->skipped += report->skipped;
    progress->ms += report->step_ms;
    progress->tokens += (double)report->tokens;
    progress->steps++;
    if (!progress->is_quiet && is_line_due(progress, now))
        show_line(progress, report, now);
    return SL_OK;
}

/* Of a long step, how much is done. */
static void show_within(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    sl_progress *progress = user;
    line what = {.count = 0};
    double now = read_seconds();
    double pause = progress->is_live ? live_within_seconds : plain_within_seconds;
    if (plan_index != 0 || progress->is_quiet || done == count ||
        now - progress->begun < long_seconds || now - progress->within_shown < pause)
        return;
    add_part(&what, 0, "step %" PRIu64 "/%" PRIu64, progress->done_step + 1, progress->last_step);
    add_part(&what, 0, "%.0f %% done", 100.0 * done / count);
    print_line(progress, &what);
    progress->within_shown = now;
}

/* ---- other records ---- */

static sl_status start(void *self, const sl_start_report *report)
{
    sl_progress *progress = self;
    progress->first_step = report->first_step;
    progress->last_step = report->last_step;
    progress->done_step = report->first_step - 1;
    progress->started = progress->begun = progress->within_shown = read_seconds();
    return SL_OK;
}

/* The line of the step before stays; one of the evaluation takes the place of its last one. */
static void show_evaluating(void *self, const char *set, const sl_eval_progress *passed)
{
    sl_progress *progress = self;
    char left[SL_METER_TIME_BYTES];
    line what = {.count = 0};
    const double now = read_seconds();
    const double pause = progress->is_live ? live_within_seconds : plain_within_seconds;
    if (passed->done == 0) {
        sl_terminal_end_line();
        progress->begun = progress->within_shown = now;
    }
    if (progress->is_quiet || passed->done == 0 || passed->done == passed->total ||
        now - progress->within_shown < pause)
        return;
    const double done = (double)passed->done / (double)passed->total;
    sl_meter_format_time((now - progress->begun) * (1 - done) / done, left);
    add_part(&what, 0, "%s at step %" PRIu64 ": %.0f %%", set, progress->done_step, 100 * done);
    add_part(&what, 2, "%s %.4f", passed->figure, passed->value);
    add_part(&what, 1, "left %s", left);
    print_line(progress, &what);
    progress->within_shown = now;
}

static sl_status show_eval(void *self, const sl_eval_report *report)
{
    sl_progress *progress = self;
    line what = {.count = 0};
    progress->begun = read_seconds(); /* of the next step */
    if (progress->is_quiet)
        return SL_OK;
    add_part(&what, 0, "%s at step %" PRIu64 ": loss %.4f", report->set, report->step,
             report->loss);
    add_part(&what, 1, "perplexity %.2f", report->perplexity);
    if (!report->has_all_examples)
        add_part(&what, 2, "(%" PRIu64 " of %" PRIu64 " tokens)", report->tokens,
                 report->data_tokens);
    else
        add_part(&what, 2, "(%" PRIu64 " tokens)", report->tokens);
    print_line(progress, &what);
    sl_terminal_end_line();
    return SL_OK;
}

/* A model can write anything: a terminal must not obey it, and each line of the text is one of
 * ours. U+0080 to U+009F are commands to a terminal, too. */
static void print_sample_text(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        const bool is_second = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (*at == '\n')
            fputs("\n  ", stdout);
        else if ((*at < 0x20 && *at != '\t') || *at == 0x7f)
            printf("\\x%02x", *at);
        else if (is_second)
            printf("\\x%02x", *++at);
        else
            putchar(*at);
    }
}

static sl_status show_sample(void *self, const sl_sample_report *report)
{
    sl_progress *progress = self;
    progress->begun = read_seconds(); /* of the next step */
    if (progress->is_quiet)
        return SL_OK;
    sl_terminal_end_line();
    printf("text at step %" PRIu64 ":\n  ", report->step);
    print_sample_text(report->prompt);
    print_sample_text(report->text);
    putchar('\n');
    fflush(stdout);
    return SL_OK;
}

/* Writing gives signs of life: one of them prints the line of a save that takes long. */
static sl_status show_saving(void *user)
{
    sl_progress *progress = user;
    if (!progress->is_quiet && !progress->is_save_shown &&
        read_seconds() - progress->save_begun >= silent_save_seconds) {
        line what = {.count = 0};
        add_part(&what, 0, "saving step %" PRIu64 " ...", progress->done_step);
        sl_terminal_end_line();
        print_line(progress, &what);
        progress->is_save_shown = true;
    }
    return progress->before_save.listener
               ? progress->before_save.listener(progress->before_save.user)
               : SL_OK;
}

static sl_status begin_save(void *self)
{
    sl_progress *progress = self;
    sl_signals_begin_save();
    progress->save_begun = read_seconds();
    progress->is_save_shown = false;
    progress->before_save = sl_heartbeat_listen((sl_heartbeat){show_saving, progress});
    progress->saves = true;
    return SL_OK;
}

static void stop_listening(sl_progress *progress)
{
    if (progress->saves)
        (void)sl_heartbeat_listen(progress->before_save);
    progress->saves = false;
}

static sl_status end_save(void *self, uint64_t step, const char *directory)
{
    sl_progress *progress = self;
    char saved[PATH_MAX], time[32] = "";
    const double seconds = read_seconds() - progress->save_begun;
    stop_listening(progress);
    sl_signals_end_save();
    if (progress->is_quiet)
        return SL_OK;
    sl_command_quote(directory, saved, sizeof saved);
    sl_terminal_end_line();
    if (progress->is_save_shown)
        snprintf(time, sizeof time, " (%.0f s)", seconds);
    sl_terminal_print(stdout, 2, "saved step %" PRIu64 " in %s%s", step, saved, time);
    fflush(stdout);
    return SL_OK;
}

static sl_status end(void *self, const sl_end_report *report)
{
    (void)report;
    stop_listening(self); /* of a save that failed */
    sl_terminal_end_line();
    return SL_OK;
}

/* ---- listening ---- */

void sl_progress_listen(sl_progress *progress, const sl_config *config, sl_sinks *sinks)
{
    static const sl_sink_ops ops = {.start = start,
                                    .step = show_step,
                                    .evaluating = show_evaluating,
                                    .eval = show_eval,
                                    .sample = show_sample,
                                    .saving = begin_save,
                                    .saved = end_save,
                                    .end = end};
    *progress = (sl_progress){.is_quiet = config->quiet,
                              .is_live = sl_terminal_is_live(stdout),
                              .log_every = config->log_every};
    sl_sinks_add(sinks, &ops, progress);
}

sl_engine_progress sl_progress_within_step(sl_progress *progress)
{
    return (sl_engine_progress){show_within, progress};
}
