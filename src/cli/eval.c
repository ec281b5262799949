/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "command.h"
#include "loading.h"
#include "train/evaluate/evaluate.h"
#include "train/evaluate/last_word.h"

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
    print_count("step", report->step, "}\n");
}

static void print_report(const sl_eval_report *report, const sl_text_count *text)
{
    printf("loss %.6f  perplexity %.4f  (%" PRIu64 " of %" PRIu64
           " tokens, checkpoint of step %" PRIu64 ")\n",
           report->loss, report->perplexity, report->tokens, report->data_tokens, report->step);
    if (text->bytes > 0)
        printf("loss per byte %.6f, per character %.6f  (%" PRIu64 " bytes, %" PRIu64
               " characters)\n",
               spread(report, text->bytes), spread(report, text->characters), text->bytes,
               text->characters);
}

static void print_words(const sl_config *config, const sl_word_report *report)
{
    if (!config->json) {
        printf("accuracy %.4f  perplexity %.4f  (last words: %" PRIu64 " of %" PRIu64
               " right, %" PRIu64 " tokens, checkpoint of step %" PRIu64 ")\n",
               report->accuracy, report->perplexity, report->right_count, report->document_count,
               report->tokens, report->step);
        return;
    }
    putchar('{');
    print_number("accuracy", report->accuracy);
    print_number("perplexity", report->perplexity);
    print_count("right", report->right_count, ", ");
    print_count("documents", report->document_count, ", ");
    print_count("tokens", report->tokens, ", ");
    print_count("step", report->step, "}\n");
}

static sl_status eval_words(sl_config *config, void *user)
{
    sl_word_report report;
    sl_refusal refusal;
    (void)user;
    SL_TRY(sl_last_word_run(config, &report, &refusal));
    print_words(config, &report);
    return SL_OK;
}

static sl_status eval_rows(sl_config *config, void *user)
{
    sl_eval_report report;
    sl_text_count text;
    sl_refusal refusal;
    (void)user;
    SL_TRY(sl_evaluate_run(config, &report, &text, &refusal));
    if (config->json)
        print_json(&report, &text);
    else
        print_report(&report, &text);
    return SL_OK;
}

static int eval(sl_config *config)
{
    return sl_command_end(sl_loading_run(config, config->last_word ? eval_words : eval_rows, NULL));
}

const sl_command_entry sl_command_eval = {
    .options = SL_CONFIG_EVAL,
    .name = "eval",
    .summary = "loss and perplexity on text or token files",
    .arguments = "[DIR]",
    .doc =
        "Prints the mean loss and the perplexity of a checkpoint over every whole row of --data, "
        "of text also the loss per byte and per character, which compare models of different "
        "vocabularies. --overlap gives every token context; --last-word asks for last words.",
    .run = eval};
