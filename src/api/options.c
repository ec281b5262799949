/* Options by name, over the configuration of the command. */
#include "options.h"

#include <stdlib.h>

#include "base/stop.h"
#include "config/config_copy.h"
#include "foreign/deepspeed/config_file.h"
#include "session.h"

sl_status sl_options_open(sl_options **out_options)
{
    sl_options *options = calloc(1, sizeof *options);
    if (!options)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for options");
    sl_status status = sl_config_init(&options->config);
    if (status != SL_OK) {
        free(options);
        return status;
    }
    *out_options = options;
    return SL_OK;
}

void sl_options_close(sl_options *options)
{
    if (!options)
        return;
    sl_config_clear(&options->config);
    free(options);
}

sl_status sl_options_check(const sl_options *options)
{
    if (!options)
        SL_FAIL(SL_ERROR_USAGE, "the options are NULL: sl_options_open makes them");
    return SL_OK;
}

sl_status sl_options_copy(const sl_options *options, sl_config *out_config,
                          sl_trainer_inputs *out_inputs)
{
    SL_TRY(sl_config_copy(&options->config, out_config));
    if (out_config->report)
        SL_FAIL(SL_ERROR_USAGE, "report is of the command: a session writes no page; log-json and "
                                "sluice report make one. Where a file of options has report, unset "
                                "it (sl_options_unset, report=None in Python)");
    out_config->has_own_rows = options->inputs.rows.call != NULL;
    out_config->has_own_eval_rows = options->inputs.eval_rows.call != NULL;
    *out_inputs = options->inputs;
    return SL_OK;
}

sl_status sl_options_set(sl_options *options, const char *name, const char *value)
{
    uint32_t row;
    SL_TRY(sl_options_check(options));
    if (!name || !value)
        SL_FAIL(SL_ERROR_USAGE, "an option needs a name and a value");
    SL_TRY(sl_config_find(SL_CONFIG_TRAIN, name, &row));
    return sl_config_set(&options->config, row, value);
}

sl_status sl_options_set_all(sl_options *options, const char *const *settings)
{
    for (; settings[0]; settings += 2)
        SL_TRY(sl_options_set(options, settings[0], settings[1]));
    return SL_OK;
}

sl_status sl_options_unset(sl_options *options, const char *name)
{
    uint32_t row;
    if (!name)
        SL_FAIL(SL_ERROR_USAGE, "an option needs a name");
    SL_TRY(sl_config_find(SL_CONFIG_TRAIN, name, &row));
    return sl_config_unset(&options->config, row);
}

int sl_options_at(uint32_t index, sl_option_info *out_info)
{
    const sl_config_row *rows = sl_config_rows();
    if (sl_sized_check("sl_option_info", out_info) != SL_OK)
        return 0;
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (!(rows[row].commands & SL_CONFIG_TRAIN) || index-- > 0)
            continue;
        const sl_option_info info = {.name = rows[row].name,
                                     .initial = rows[row].initial,
                                     .values = rows[row].hint,
                                     .help = rows[row].help,
                                     .is_list = rows[row].kind == SL_CONFIG_LIST_OF};
        sl_sized_fill(&info, sizeof info, out_info);
        return 1;
    }
    return 0;
}

sl_status sl_options_add(sl_options *options, const char *name, const char *item)
{
    uint32_t row;
    SL_TRY(sl_config_find(SL_CONFIG_TRAIN, name, &row));
    if (sl_config_rows()[row].kind != SL_CONFIG_LIST_OF)
        SL_FAIL(SL_ERROR_USAGE, "%.64s is no list: set it", name);
    return sl_config_append(&options->config, row, item);
}

sl_status sl_options_read(sl_options *options, const char *path)
{
    return sl_config_file_load(&options->config, SL_CONFIG_TRAIN, path);
}

void sl_options_set_model(sl_options *options, sl_build build, const void *user)
{
    options->inputs.build = build;
    options->inputs.model = user;
}

void sl_options_set_events(sl_options *options, sl_event_callback callback, void *user)
{
    options->event = callback;
    options->event_user = user;
}

void sl_options_set_log(sl_options *options, sl_log_callback callback, void *user)
{
    options->log = (sl_log_receiver){callback, user};
}

void sl_options_stop(sl_options *options)
{
    sl_stop_set(&options->stop);
}

void sl_options_set_rows(sl_options *options, sl_rows rows, void *user)
{
    options->inputs.rows = (sl_own_rows){rows, user, UINT64_MAX};
}

void sl_options_set_eval_rows(sl_options *options, sl_rows rows, void *user, uint64_t row_count)
{
    options->inputs.eval_rows = (sl_own_rows){rows, user, row_count};
}
