/* See settings.h. */
#include "settings.h"

#include "files/json_file.h"

sl_status sl_settings_read(const char *const *settings, sl_config_command command,
                           sl_config *config)
{
    for (; settings && settings[0]; settings += 2) {
        uint32_t row;
        if (!settings[1])
            SL_FAIL(SL_ERROR_USAGE, "%.64s has no value", settings[0]);
        SL_TRY(sl_config_find(command, settings[0], &row));
        const bool is_list = sl_config_rows()[row].kind == SL_CONFIG_LIST_OF;
        SL_TRY(is_list ? sl_config_append(config, row, settings[1])
                       : sl_config_set(config, row, settings[1]));
    }
    return SL_OK;
}

sl_status sl_api_format(json_t *object, char **out_text)
{
    enum { DIGITS = 17 };
    const sl_status status = sl_json_file_format(object, DIGITS, out_text);
    json_decref(object);
    return status;
}
