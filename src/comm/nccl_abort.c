/* The end of a communicator that failed: by a thread of its own, for an abort may hang. */
#include "nccl.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { ABORT_S = 5 };

typedef struct abort_job {
    const sl_nccl_calls *calls;
    void *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over, is_left; /* aborted; nobody waits any more */
} abort_job;

static void free_job(abort_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

static void *run_abort(void *argument)
{
    abort_job *job = argument;
    (void)job->calls->abort(job->comm);
    pthread_mutex_lock(&job->lock);
    job->is_over = true;
    bool is_left = job->is_left;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
    if (is_left)
        free_job(job);
    return NULL;
}

static void wait_for_abort(abort_job *job)
{
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ABORT_S;
    pthread_mutex_lock(&job->lock);
    while (!job->is_over && error == 0)
        error = pthread_cond_timedwait(&job->changed, &job->lock, &end);
    bool is_over = job->is_over;
    job->is_left = !is_over;
    pthread_mutex_unlock(&job->lock);
    if (is_over)
        free_job(job);
}

bool sl_nccl_abort(const sl_nccl_calls *calls, void *comm)
{
    pthread_t thread;
    abort_job *job = calloc(1, sizeof *job);
    if (!job)
        return false;
    *job = (abort_job){.calls = calls, .comm = comm};
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    if (pthread_create(&thread, NULL, run_abort, job) != 0) {
        free_job(job);
        return true;
    }
    pthread_detach(thread);
    wait_for_abort(job);
    return true;
}
