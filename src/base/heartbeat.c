/* One listener a thread; see heartbeat.h. */
#include "heartbeat.h"

#include <stddef.h>

static _Thread_local sl_heartbeat_listener heard_by;
static _Thread_local void *heard_user;

void sl_heartbeat_listen(sl_heartbeat_listener listener, void *user)
{
    heard_by = listener;
    heard_user = user;
}

sl_status sl_heartbeat_give(void)
{
    return heard_by ? heard_by(heard_user) : SL_OK;
}
