/* One call, and a second one after damage; see loading.h. */
#include "loading.h"

#include "base/log.h"
#include "config/config_copy.h"

sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user)
{
    sl_config first;
    SL_TRY(sl_config_copy(config, &first));
    sl_status status = work(config, user);
    if (status != SL_ERROR_DAMAGED) {
        sl_config_clear(&first);
        return status;
    }
    sl_log_write(SL_LOG_WARNING,
                 "%s; starting over: checkpoints are read in full before one is taken",
                 sl_status_message());
    sl_config_clear(config);
    *config = first;
    config->checks_checkpoints = true;
    return work(config, user);
}
