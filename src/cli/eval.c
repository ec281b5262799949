/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <stdio.h>

#include "command.h"
#include "train/evaluate.h"

static void print_report(const sl_config *config, const sl_eval_report *report)
{
    if (config->json)
        printf("{\"loss\": %.17g, \"perplexity\": %.17g, \"tokens\": %" PRIu64
               ", \"data_tokens\": %" PRIu64 ", \"step\": %" PRIu64 "}\n",
               report->loss, report->perplexity, report->tokens, report->data_tokens, report->step);
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
