/* One listener a thread; see heartbeat.h. */
#include "heartbeat.h"

static _Thread_local sl_heartbeat current;

sl_heartbeat sl_heartbeat_listen(sl_heartbeat heard)
{
    const sl_heartbeat before = current;
    current = heard;
    return before;
}

sl_status sl_heartbeat_give(void)
{
    return current.listener ? current.listener(current.user) : SL_OK;
}
