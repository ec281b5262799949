/* See free_memory.h. */
#include "free_memory.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/heartbeat.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

sl_status sl_free_memory_begin(const sl_config *config, bool *out_holds)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int result;
    *out_holds = false;
    if (config->device_memory != SL_CONFIG_UNSET && config->host_memory != SL_CONFIG_UNSET)
        return SL_OK;
    while ((result = pthread_mutex_trylock(&lock)) == EBUSY) {
        SL_TRY(sl_heartbeat_give());
        nanosleep(&pause, NULL);
    }
    if (result != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "waiting for the plans of other sessions: error %d", result);
    *out_holds = true;
    return SL_OK;
}

void sl_free_memory_end(void)
{
    pthread_mutex_unlock(&lock);
}
