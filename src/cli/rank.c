/* See rank.h. */
#include "rank.h"

#include "command.h"
#include "held_warnings.h"
#include "signals.h"

sl_status sl_command_begin_rank(sl_config *config, sl_environment *out_environment)
{
    *out_environment = (sl_environment){.size = 1};
    const sl_status status = sl_environment_read(out_environment);
    sl_held_warnings_start(out_environment);
    if (out_environment->rank > 0) {
        sl_command_keep_notes();
        sl_signals_mute();
        config->quiet = true;
    }
    return status;
}

int sl_command_end_rank(sl_status status)
{
    sl_held_warnings_say();
    return sl_command_end(status);
}
