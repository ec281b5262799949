/* Threads of the library. */
#ifndef SL_BASE_THREAD_H
#define SL_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that blocks all signals: the control thread handles them. `name`, of 15 letters
 * at most, is what the system shows. Returns 0, or an errno value. */
int sl_thread_start(pthread_t *out_thread, const char *name, void *(*run)(void *argument),
                    void *argument);

#endif
