/* Examples and the length of a run; see fine_tuning.h. */
#include "fine_tuning.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "optimizer.h"

bool sl_config_has_examples(const sl_config *config)
{
    return config->prompt_key || config->response_key || config->messages_key;
}

/* ---- examples ---- */

/* Options that have a meaning for examples alone. A printed configuration gives every option, most
 * of them as they are by default. */
static sl_status refuse_without_keys(const sl_config *config)
{
    const struct {
        uint32_t row;
        bool is_used;
    } of_examples[] = {{SL_CONFIG_ROW_template_file, config->template_file != NULL},
                       {SL_CONFIG_ROW_loss, config->loss == SL_CONFIG_LOSS_ALL},
                       {SL_CONFIG_ROW_pack, config->pack == SL_CONFIG_OFF}};
    const sl_config_row *rows = sl_config_rows();
    for (size_t i = 0; i < sizeof of_examples / sizeof of_examples[0]; i++)
        if (config->given[of_examples[i].row] && of_examples[i].is_used)
            SL_FAIL(SL_ERROR_USAGE,
                    "--%s is for examples to fine-tune on: name what they hold by --prompt-key and "
                    "--response-key, or by --messages-key",
                    rows[of_examples[i].row].name);
    return SL_OK;
}

static sl_status check_keys(const sl_config *config)
{
    if (config->messages_key && (config->prompt_key || config->response_key))
        SL_FAIL(SL_ERROR_USAGE,
                "--messages-key and --%s are two forms of examples: give one of "
                "them",
                config->prompt_key ? "prompt-key" : "response-key");
    if (!config->messages_key && !(config->prompt_key && config->response_key))
        SL_FAIL(SL_ERROR_USAGE, "--%s needs --%s: an example is a prompt and the response to it",
                config->prompt_key ? "prompt-key" : "response-key",
                config->prompt_key ? "response-key" : "prompt-key");
    if (config->given[SL_CONFIG_ROW_json_key] && strcmp(config->json_key, "text") != 0)
        SL_FAIL(SL_ERROR_USAGE, "--json-key is for text in JSON lines: leave it out");
    if (config->has_own_rows || config->has_own_eval_rows)
        SL_FAIL(SL_ERROR_USAGE, "the program gives the rows: leave the keys of examples out");
    if (config->pack == SL_CONFIG_OFF && config->given[SL_CONFIG_ROW_documents] &&
        config->documents == SL_CONFIG_RESET)
        SL_FAIL(SL_ERROR_USAGE, "--pack off gives each example a row of its own, where nothing is "
                                "to be kept apart: leave --documents out");
    return SL_OK;
}

sl_status sl_fine_tuning_check(sl_config *config)
{
    if (!sl_config_has_examples(config))
        return refuse_without_keys(config);
    SL_TRY(check_keys(config));
    if (!config->given[SL_CONFIG_ROW_documents])
        config->documents = config->pack == SL_CONFIG_OFF ? SL_CONFIG_JOIN : SL_CONFIG_RESET;
    if (!config->given[SL_CONFIG_ROW_data_order] && !config->is_restored)
        config->data_order = SL_CONFIG_SHUFFLE;
    return SL_OK;
}

/* ---- the length ---- */

bool sl_run_length_is_open(const sl_config *config)
{
    return config->epochs != SL_CONFIG_UNSET || config->train_tokens != SL_CONFIG_UNSET;
}

sl_status sl_run_length_check(sl_config *config)
{
    const bool has_epochs = config->epochs != SL_CONFIG_UNSET;
    const bool has_tokens = config->train_tokens != SL_CONFIG_UNSET;
    if (has_epochs + has_tokens + (config->given[SL_CONFIG_ROW_steps] ? 1 : 0) > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--steps, --epochs and --tokens each say how long the run is: give one of them");
    if (!has_epochs)
        return SL_OK;
    if (config->has_own_rows)
        SL_FAIL(SL_ERROR_USAGE, "the program gives the rows, which have no epochs: give --steps");
    if (!config->given[SL_CONFIG_ROW_data_order] && !config->is_restored)
        config->data_order = SL_CONFIG_SHUFFLE;
    if (config->data_order == SL_CONFIG_RANDOM && config->is_restored)
        SL_FAIL(SL_ERROR_USAGE, "the run under --save reads rows in the order random, which has no "
                                "epochs: give --steps in place of --epochs, or --data-order "
                                "shuffle, which reads rows again that were read");
    if (config->data_order == SL_CONFIG_RANDOM)
        SL_FAIL(SL_ERROR_USAGE, "--data-order random has no epochs: leave it out with --epochs, or "
                                "use shuffle or sequential");
    return SL_OK;
}

sl_status sl_run_length_settle(sl_config *config, const sl_run_rows *rows)
{
    uint64_t all = 0;
    if (!sl_run_length_is_open(config))
        return SL_OK;
    if (config->epochs != SL_CONFIG_UNSET)
        SL_TRY(sl_bits_multiply(config->epochs, rows->of_epoch, "the rows of --epochs", &all));
    else
        all = sl_bits_divide_up(config->train_tokens, config->seq);
    const uint64_t left = all > rows->done_rows ? all - rows->done_rows : 0;
    if (all > 0)
        config->steps = rows->done_steps + sl_bits_divide_up(left, rows->of_step);
    if (!config->given[SL_CONFIG_ROW_lr_decay_steps])
        config->lr_decay_steps = SL_CONFIG_UNSET; /* the recorded one is of other steps */
    return sl_optimizer_check_schedule(config);
}
