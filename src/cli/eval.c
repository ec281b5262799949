/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "busy_line.h"
#include "command.h"
#include "held_warnings.h"
#include "meter.h"
#include "rank.h"
#include "terminal.h"
#include "train/evaluate/evaluation.h"
#include "train/loading/loading.h"

static const char partial_note[] = "partial (stopped by a signal): ";

/* ---- progress ---- */

typedef struct progress {
    const sl_config *config;
    sl_busy_line opening;
    sl_meter meter;
    bool is_any_done;
} progress;

/* Nothing is there before the first micro-batch. */
static const sl_signal_texts leaving = {.stops = "leaving: nothing was evaluated yet",
                                        .leaves = true};

/* Ranks leave together (sl_ranks_begin). */
static const sl_signal_texts leaving_together = {
    .stops = "stopping before the first micro-batch, or after it if it has begun; another signal "
             "leaves at once",
    .stops_in_save = "",
    .leaves_now = "leaving at once: no figures are printed"};

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
        sl_busy_line_end(&self->opening);
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

typedef struct step_text {
    char text[48];
} step_text;

/* Weights of other programs have no step. */
static step_text show_step(uint64_t step)
{
    step_text shown = {""};
    if (step > 0)
        snprintf(shown.text, sizeof shown.text, ", checkpoint of step %" PRIu64, step);
    return shown;
}

static void print_report(const sl_eval_report *report, const sl_text_count *text)
{
    sl_terminal_print(stdout, 2,
                      "%sloss %.6f  perplexity %.4f  (%" PRIu64 " of %" PRIu64 " tokens%s)",
                      report->is_partial ? partial_note : "", report->loss, report->perplexity,
                      report->tokens, report->data_tokens, show_step(report->step).text);
    if (text->bytes > 0)
        sl_terminal_print(
            stdout, 2,
            "%sloss per byte %.6f, per character %.6f  (%" PRIu64 " bytes, %" PRIu64 " characters)",
            report->is_partial ? partial_note : "", sl_evaluation_spread(report, text->bytes),
            sl_evaluation_spread(report, text->characters), text->bytes, text->characters);
}

static void print_words(const sl_word_report *report)
{
    sl_terminal_print(stdout, 2,
                      "%saccuracy %.4f  perplexity %.4f  (last words: %" PRIu64 " of %" PRIu64
                      " right, %" PRIu64 " tokens%s)",
                      report->is_partial ? partial_note : "", report->accuracy, report->perplexity,
                      report->right_count, report->document_count, report->tokens,
                      show_step(report->step).text);
}

static sl_status print_json(const sl_evaluation *evaluation)
{
    char *text = NULL;
    SL_TRY(sl_evaluation_format(evaluation, &text));
    puts(text);
    free(text);
    return SL_OK;
}

static sl_status run(sl_config *config, const volatile sig_atomic_t *stop, sl_ranks *ranks)
{
    progress self = {.config = config};
    sl_evaluation evaluation;
    const sl_eval_watch watch = {.stop = stop, .passed = show_progress, .user = &self};
    SL_TRY(sl_loading_meet_ranks(config, SL_CONFIG_EVAL, stop, ranks));
    sl_busy_line_begin_opening(&self.opening, config, NULL);
    const sl_status status = sl_evaluation_run(config, ranks, &watch, &evaluation);
    sl_busy_line_end(&self.opening);
    sl_terminal_end_line();
    SL_TRY(status);
    SL_TRY(sl_held_warnings_compare(ranks->world));
    if (!self.is_any_done || !sl_ranks_is_first(ranks))
        return SL_OK;
    if (config->json)
        return print_json(&evaluation);
    if (evaluation.of_words)
        print_words(&evaluation.words);
    else
        print_report(&evaluation.rows, &evaluation.text);
    return SL_OK;
}

static int eval(sl_config *config)
{
    sl_ranks ranks = {0};
    sl_environment environment;
    sl_status status = sl_command_begin_rank(config, &environment);
    const volatile sig_atomic_t *stop =
        sl_signals_watch(environment.size > 1 ? &leaving_together : &leaving);
    if (status == SL_OK)
        status = run(config, stop, &ranks);
    const int code = sl_command_end_rank(status);
    sl_ranks_leave(&ranks, status);
    sl_ranks_close(&ranks);
    return code;
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
        "vocabularies. --overlap gives every token context; --last-word asks for last words; of "
        "examples (--prompt-key, --messages-key) the responses count, as in training. A "
        "signal ends it after a micro-batch, with the figures of the part that was evaluated "
        "(marked as partial, in JSON by \"partial\": true), and exit code 0.",
    .page = "docs/text.md",
    .checks_options = true,
    .takes_ranks = true,
    .run = eval};
