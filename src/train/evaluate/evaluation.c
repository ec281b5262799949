/* See evaluation.h. */
#define _GNU_SOURCE /* open_memstream */
#include "evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/loading/loading.h"

typedef struct evaluating {
    const sl_eval_watch *watch;
    sl_evaluation *out;
} evaluating;

static sl_status evaluate(sl_config *config, void *user)
{
    const evaluating *self = user;
    sl_model_directory source;
    sl_evaluation *out = self->out;
    SL_TRY(sl_model_directory_open(config->checkpoint, config->checks_checkpoints, &source));
    *out = (sl_evaluation){.of_words = config->last_word};
    if (source.checkpoint)
        out->rows.step = out->words.step = sl_checkpoint_describe(source.checkpoint)->state.step;
    const sl_status status =
        out->of_words ? sl_last_word_run(config, &source, self->watch, &out->words)
                      : sl_evaluate_run(config, &source, self->watch, &out->rows, &out->text);
    sl_model_directory_close(&source);
    return status;
}

sl_status sl_evaluation_run(sl_config *config, const sl_eval_watch *watch,
                            sl_evaluation *out_evaluation)
{
    evaluating self = {watch, out_evaluation};
    return sl_loading_run(config, evaluate, &self);
}

/* ---- as JSON ---- */

double sl_evaluation_spread(const sl_eval_report *report, uint64_t count)
{
    return count ? report->loss * (double)report->tokens / (double)count : 0;
}

/* JSON has no number that is not finite. */
static void put_number(FILE *to, const char *name, double value)
{
    if (isfinite(value))
        fprintf(to, "\"%s\": %.17g, ", name, value);
    else
        fprintf(to, "\"%s\": null, ", name);
}

static void put_count(FILE *to, const char *name, uint64_t value)
{
    fprintf(to, "\"%s\": %" PRIu64 ", ", name, value);
}

static void put_end(FILE *to, bool is_partial, uint64_t step)
{
    fprintf(to, "\"partial\": %s, \"step\": %" PRIu64 "}", is_partial ? "true" : "false", step);
}

static void put_rows(FILE *to, const sl_eval_report *report, const sl_text_count *text)
{
    put_number(to, "loss", report->loss);
    put_number(to, "perplexity", report->perplexity);
    if (text->bytes > 0) {
        put_number(to, "loss_per_byte", sl_evaluation_spread(report, text->bytes));
        put_number(to, "loss_per_character", sl_evaluation_spread(report, text->characters));
        put_count(to, "bytes", text->bytes);
        put_count(to, "characters", text->characters);
    }
    put_count(to, "tokens", report->tokens);
    put_count(to, "data_tokens", report->data_tokens);
    put_end(to, report->is_partial, report->step);
}

static void put_words(FILE *to, const sl_word_report *report)
{
    put_number(to, "accuracy", report->accuracy);
    put_number(to, "perplexity", report->perplexity);
    put_count(to, "right", report->right_count);
    put_count(to, "documents", report->document_count);
    put_count(to, "tokens", report->tokens);
    put_end(to, report->is_partial, report->step);
}

sl_status sl_evaluation_format(const sl_evaluation *evaluation, char **out_text)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the figures of an evaluation");
    fputc('{', to);
    if (evaluation->of_words)
        put_words(to, &evaluation->words);
    else
        put_rows(to, &evaluation->rows, &evaluation->text);
    const bool is_written = !ferror(to);
    if (fclose(to) != 0 || !is_written) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the figures of an evaluation");
    }
    *out_text = text;
    return SL_OK;
}
