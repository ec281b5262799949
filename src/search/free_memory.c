/* See free_memory.h. */
#include "free_memory.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool sl_free_memory_begin(const sl_config *config)
{
    if (config->device_memory != SL_CONFIG_UNSET && config->host_memory != SL_CONFIG_UNSET)
        return false;
    pthread_mutex_lock(&lock);
    return true;
}

void sl_free_memory_end(void)
{
    pthread_mutex_unlock(&lock);
}
