/* See settings.h. */
#include "settings.h"

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
