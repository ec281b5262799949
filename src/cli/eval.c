/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "command.h"
#include "train/evaluate.h"

/* JSON knows no other numbers. */
static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf("\"%s\": %.17g, ", name, value);
    else
        printf("\"%s\": null, ", name);
}

static void print_json(const sl_eval_report *report)
{
    putchar('{');
    print_number("loss", report->loss);
    print_number("perplexity", report->perplexity);
    printf("\"tokens\": %" PRIu64 ", \"data_tokens\": %" PRIu64 ", \"step\": %" PRIu64 "}\n",
           report->tokens, report->data_tokens, report->step);
}

static void print_report(const sl_config *config, const sl_eval_report *report)
{
    if (config->json)
        print_json(report);
    else
        printf("loss %.6f  perplexity %.4f  (%" PRIu64 " of %" PRIu64
               " tokens, checkpoint of step %" PRIu64 ")\n",
               report->loss, report->perplexity, report->tokens, report->data_tokens, report->step);
}

static int eval(sl_config *config)
{
    sl_eval_report report;
    sl_refusal refusal;
    sl_status status = sl_evaluate_run(config, &report, &refusal);
    if (status == SL_OK)
        print_report(config, &report);
    return sl_command_end(status);
}

const sl_command_entry sl_command_eval = {
    .options = SL_CONFIG_EVAL,
    .name = "eval",
    .summary = "loss and perplexity on token files",
    .arguments = "[DIR]",
    .doc =
        "Prints the mean loss and the perplexity of a checkpoint over every whole row of --data.",
    .run = eval};
