/* A thread that sleeps; see rank_watch.h. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "rank_watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sl_rank_watch {
    sl_comm *world;
    sl_engine *engine;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool is_over; /* under the lock */
};

/* True if it is over; the lock is held. */
static bool sleep_a_second(sl_rank_watch *watch)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    while (!watch->is_over && error == 0)
        error = pthread_cond_timedwait(&watch->bell, &watch->lock, &until);
    return watch->is_over;
}

static void *look_on(void *argument)
{
    sl_rank_watch *watch = argument;
    pthread_setname_np(pthread_self(), "sl-ranks");
    pthread_mutex_lock(&watch->lock);
    while (!sleep_a_second(watch))
        if (sl_comm_look(watch->world) != SL_OK) {
            sl_engine_stop(watch->engine);
            break;
        }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* Signals are the control thread's business. */
static int start_thread(sl_rank_watch *watch)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&watch->thread, NULL, look_on, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void free_watch(sl_rank_watch *watch)
{
    pthread_cond_destroy(&watch->bell);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

sl_status sl_rank_watch_open(sl_comm *world, sl_engine *engine, sl_rank_watch **out_watch)
{
    pthread_condattr_t monotonic;
    sl_rank_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to watch ranks");
    watch->world = world;
    watch->engine = engine;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->bell, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = start_thread(watch);
    if (error != 0) {
        free_watch(watch);
        SL_FAIL(SL_ERROR_SYSTEM, "no thread to watch ranks: %s", strerror(error));
    }
    *out_watch = watch;
    return SL_OK;
}

void sl_rank_watch_close(sl_rank_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->is_over = true;
    pthread_cond_signal(&watch->bell);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    free_watch(watch);
}
