/* See free_memory.h. */
#define _GNU_SOURCE /* pthread_mutex_clocklock */
#include "free_memory.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/heartbeat.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { PAUSE_NS = 50000000, SECOND_NS = 1000000000 };

static int wait_briefly(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PAUSE_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    return pthread_mutex_clocklock(&lock, CLOCK_MONOTONIC, &until);
}

sl_status sl_free_memory_begin(const sl_config *config, bool *out_holds)
{
    *out_holds = false;
    if (config->device_memory != SL_CONFIG_UNSET && config->host_memory != SL_CONFIG_UNSET)
        return SL_OK;
    int result;
    while ((result = wait_briefly()) == ETIMEDOUT)
        SL_TRY(sl_heartbeat_give());
    if (result != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "waiting for the plans of other sessions: error %d", result);
    *out_holds = true;
    return SL_OK;
}

void sl_free_memory_end(void)
{
    pthread_mutex_unlock(&lock);
}
