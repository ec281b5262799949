/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "command.h"
#include "meter.h"
#include "terminal.h"
#include "train/evaluate/evaluate.h"
#include "train/evaluate/last_word.h"
#include "train/loading.h"

/* JSON knows no other numbers. */
static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf("\"%s\": %.17g, ", name, value);
    else
        printf("\"%s\": null, ", name);
}

static void print_count(const char *name, uint64_t value, const char *end)
{
    printf("\"%s\": %" PRIu64 "%s", name, value, end);
}

static void print_partial(bool is_partial)
{
    printf("\"partial\": %s, ", is_partial ? "true" : "false");
}

static const char partial_note[] = "partial (stopped by a signal): ";

/* ---- progress ---- */

typedef struct progress {
    const sl_config *config;
    sl_meter meter;
    bool is_any_done;
} progress;

/* Nothing is there before the first micro-batch. */
static const sl_signal_texts leaving = {.stops = "leaving: nothing was evaluated yet",
                                        .leaves = true};

static const sl_signal_texts stopping = {
    .stops = "stopping after this micro-batch, with the figures of what was evaluated till then; "
             "another signal leaves at once",
    .stops_in_save = "",
    .leaves_now = "leaving at once: no figures are printed"};

static void show_progress(void *user, const sl_eval_progress *passed)
{
    progress *self = user;
    char left[SL_METER_TIME_BYTES];
    if (passed->done == 0) { /* loading is over: rates are those of the work */
        self->meter = sl_meter_start(self->config, "evaluating", &stopping);
        return;
    }
    const double seconds = sl_meter_seconds(&self->meter), done = (double)passed->done;
    const double rate = seconds > 0 ? done / seconds : 0;
    self->is_any_done = true;
    sl_meter_format_time(rate > 0 ? (double)(passed->total - passed->done) / rate : 0, left);
    sl_meter_say(&self->meter,
                 "evaluating  %.0f %%  %s %.4f  left %s  %.*f %s/s  (%" PRIu64 " of %" PRIu64 ")",
                 100 * done / (double)passed->total, passed->figure, passed->value, left,
                 rate < 100, rate, passed->unit, passed->done, passed->total);
}

/* ---- figures ---- */

/* Losses of a token spread over what it stands for; 0 where that is not known. */
static double spread(const sl_eval_report *report, uint64_t count)
{
    return count ? report->loss * (double)report->tokens / (double)count : 0;
}

static void print_json(const sl_eval_report *report, const sl_text_count *text)
{
    putchar('{');
    print_number("loss", report->loss);
    print_number("perplexity", report->perplexity);
    if (text->bytes > 0) {
        print_number("loss_per_byte", spread(report, text->bytes));
        print_number("loss_per_character", spread(report, text->characters));
        print_count("bytes", text->bytes, ", ");
        print_count("characters", text->characters, ", ");
    }
    print_count("tokens", report->tokens, ", ");
    print_count("data_tokens", report->data_tokens, ", ");
    print_partial(report->is_partial);
    print_count("step", report->step, "}\n");
}

static void print_report(const sl_eval_report *report, const sl_text_count *text)
{
    sl_terminal_print(stdout, 2,
                      "%sloss %.6f  perplexity %.4f  (%" PRIu64 " of %" PRIu64
                      " tokens, checkpoint of step %" PRIu64 ")",
                      report->is_partial ? partial_note : "", report->loss, report->perplexity,
                      report->tokens, report->data_tokens, report->step);
    if (text->bytes > 0)
        sl_terminal_print(stdout, 2,
                          "%sloss per byte %.6f, per character %.6f  (%" PRIu64 " bytes, %" PRIu64
                          " characters)",
                          report->is_partial ? partial_note : "", spread(report, text->bytes),
                          spread(report, text->characters), text->bytes, text->characters);
}

static void print_words(const sl_config *config, const sl_word_report *report)
{
    if (!config->json) {
        sl_terminal_print(stdout, 2,
                          "%saccuracy %.4f  perplexity %.4f  (last words: %" PRIu64 " of %" PRIu64
                          " right, %" PRIu64 " tokens, checkpoint of step %" PRIu64 ")",
                          report->is_partial ? partial_note : "", report->accuracy,
                          report->perplexity, report->right_count, report->document_count,
                          report->tokens, report->step);
        return;
    }
    putchar('{');
    print_number("accuracy", report->accuracy);
    print_number("perplexity", report->perplexity);
    print_count("right", report->right_count, ", ");
    print_count("documents", report->document_count, ", ");
    print_count("tokens", report->tokens, ", ");
    print_partial(report->is_partial);
    print_count("step", report->step, "}\n");
}

static sl_eval_watch watch_with(progress *self)
{
    return (sl_eval_watch){
        .stop = sl_signals_watch(&leaving), .passed = show_progress, .user = self};
}

static sl_status eval_words(sl_config *config, void *user)
{
    const sl_eval_watch watch = watch_with(user);
    sl_word_report report;
    sl_refusal refusal;
    sl_status status = sl_last_word_run(config, &watch, &report, &refusal);
    sl_terminal_end_line();
    SL_TRY(status);
    if (((const progress *)user)->is_any_done)
        print_words(config, &report);
    return SL_OK;
}

static sl_status eval_rows(sl_config *config, void *user)
{
    sl_eval_report report;
    sl_text_count text;
    sl_refusal refusal;
    const sl_eval_watch watch = watch_with(user);
    sl_status status = sl_evaluate_run(config, &watch, &report, &text, &refusal);
    sl_terminal_end_line();
    SL_TRY(status);
    if (!((const progress *)user)->is_any_done)
        return SL_OK;
    if (config->json)
        print_json(&report, &text);
    else
        print_report(&report, &text);
    return SL_OK;
}

static int eval(sl_config *config)
{
    progress self = {.config = config};
    return sl_command_end(
        sl_loading_run(config, config->last_word ? eval_words : eval_rows, &self));
}

const sl_command_entry sl_command_eval = {
    .options = SL_CONFIG_EVAL,
    .task = SL_COMMAND_MODEL,
    .name = "eval",
    .summary = "loss and perplexity on text or token files",
    .arguments = "[DIR]",
    .doc =
        "Prints the mean loss and the perplexity of a checkpoint over every whole row of --data, "
        "of text also the loss per byte and per character, which compare models of different "
        "vocabularies. --overlap gives every token context; --last-word asks for last words. A "
        "signal ends it after a micro-batch, with the figures of the part that was evaluated "
        "(marked as partial, in JSON by \"partial\": true), and exit code 0.",
    .page = "docs/text.md",
    .run = eval};
