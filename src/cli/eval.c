/* sluice eval: loss and perplexity of a checkpoint over files. */
#include <inttypes.h>
#include <stdio.h>

#include "command.h"
#include "options.h"
#include "train/evaluate.h"

static const char doc[] =
    "Prints the mean loss and the perplexity of a checkpoint over every whole row of --data.";

static void print_report(const sl_config *config, const sl_eval_report *report)
{
    if (config->json)
        printf("{\"loss\": %.17g, \"perplexity\": %.17g, \"tokens\": %" PRIu64
               ", \"step\": %" PRIu64 "}\n",
               report->loss, report->perplexity, report->tokens, report->step);
    else
        printf("loss %.6f  perplexity %.4f  (%" PRIu64 " tokens, checkpoint of step %" PRIu64 ")\n",
               report->loss, report->perplexity, report->tokens, report->step);
}

int sl_command_eval(int argc, char **argv)
{
    static const sl_options_command command = {SL_CONFIG_EVAL, "sluice eval", "[DIR]", doc};
    sl_config config;
    sl_eval_report report;
    sl_refusal refusal;
    sl_status status = sl_options_parse(&command, argc, argv, &config);
    if (status == SL_OK)
        status = sl_evaluate_run(&config, &report, &refusal);
    if (status == SL_OK)
        print_report(&config, &report);
    int code = status == SL_OK ? 0 : sl_command_fail(status);
    sl_config_clear(&config);
    return code;
}
