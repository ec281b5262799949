/* See thread.h. */
#define _GNU_SOURCE
#include "thread.h"

#include <signal.h>

int sl_thread_start(pthread_t *out_thread, const char *name, void *(*run)(void *argument),
                    void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(out_thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        (void)pthread_setname_np(*out_thread, name);
    return error;
}
