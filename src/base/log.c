/* Formats a note or warning and passes it to the callback. No allocation; lines are cut at 1
 * KiB. */
#include "log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "status.h"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static sl_log_callback log_callback;
static void *log_user;
static _Thread_local const sl_log_receiver *entered;

void sl_log_set_callback(sl_log_callback callback, void *user)
{
    pthread_mutex_lock(&log_lock);
    log_callback = callback;
    log_user = user;
    pthread_mutex_unlock(&log_lock);
}

const sl_log_receiver *sl_log_entered(void)
{
    return entered;
}

const sl_log_receiver *sl_log_enter(const sl_log_receiver *receiver)
{
    const sl_log_receiver *before = entered;
    entered = receiver;
    return before;
}

void sl_log_write(sl_log_level level, const char *format, ...)
{
    char raw[1024], line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    sl_status_escape(raw, line, sizeof line);
    pthread_mutex_lock(&log_lock);
    if (entered && entered->callback)
        entered->callback(entered->user, level, line);
    else if (log_callback)
        log_callback(log_user, level, line);
    pthread_mutex_unlock(&log_lock);
}
