/* The worker pool: helper threads run tiles beside the caller.
 *
 * One word, `state`, says which job is open and how many helpers are inside it: the job's number in
 * the upper half, "open" in bit 31, the helpers inside in the lower bits. A helper enters a job by
 * compare-and-swap on the whole word, so it can never enter a job that has closed: a helper that
 * wakes late finds the job closed, and the caller never waits for a sleeping helper. The job's
 * other fields are written only while no helper is inside.
 *
 * Sleeping follows one rule on both sides: the sleeper announces itself and then checks the word
 * again; the waker changes the word and then checks for sleepers. Both use sequentially consistent
 * operations, so one of the two always sees the other.
 */
#define _GNU_SOURCE /* sched_getaffinity */

#include "workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "log.h"
#include "thread.h"

/* A ticket lock: callers run their jobs in the order in which they came. With a plain mutex a lane
 * that calls again at once overtakes sleeping callers, and another lane could starve. */
typedef struct ticket_lock {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    uint64_t next_ticket, current_ticket;
} ticket_lock;

enum {
    SPIN_PAUSES = 1000, /* 20 to 50 us: a sleeping thread takes about as long to wake */
    LINE_BYTES = 64,
    CPU_BITS_MAX = 1 << 20
};

static const uint64_t OPEN = UINT64_C(1) << 31;
static const uint64_t INSIDE = (UINT64_C(1) << 31) - 1;

typedef struct worker {
    sl_workers *pool;
    pthread_t thread;
    uint32_t index;
} worker;

struct sl_workers {
    _Alignas(LINE_BYTES) _Atomic uint64_t state;
    _Alignas(LINE_BYTES) _Atomic uint64_t next_tile;
    _Alignas(LINE_BYTES) uint64_t tile_count; /* of the open job, like the next two */
    sl_tile_function tile;
    void *job;
    _Atomic bool stop;
    _Atomic uint32_t sleeper_count;
    _Atomic bool caller_sleeps;
    ticket_lock callers; /* the holder runs a job */
    pthread_mutex_t sleep_lock;
    pthread_cond_t job_opened;
    pthread_cond_t job_left;
    uint32_t worker_count;
    uint32_t thread_count; /* threads started: worker_count - 1 once open */
    worker *helpers;
    const sl_log_receiver *log; /* of the thread that opened it */
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void acquire_ticket(ticket_lock *callers)
{
    pthread_mutex_lock(&callers->lock);
    uint64_t ticket = callers->next_ticket++;
    while (callers->current_ticket != ticket)
        pthread_cond_wait(&callers->moved, &callers->lock);
    pthread_mutex_unlock(&callers->lock);
}

static void release_ticket(ticket_lock *callers)
{
    pthread_mutex_lock(&callers->lock);
    callers->current_ticket++;
    if (callers->current_ticket != callers->next_ticket)
        pthread_cond_broadcast(&callers->moved);
    pthread_mutex_unlock(&callers->lock);
}

static uint64_t job_number(uint64_t state)
{
    return state >> 32;
}

static void run_tiles(sl_workers *pool, uint32_t worker_index)
{
    for (;;) {
        uint64_t tile_index = atomic_fetch_add_explicit(&pool->next_tile, 1, memory_order_relaxed);
        if (tile_index >= pool->tile_count)
            return;
        pool->tile(pool->job, tile_index, worker_index);
    }
}

/* Enters the job of `*state`; false if the job has closed, with the newer word in *state. */
static bool enter_job(sl_workers *pool, uint64_t *state)
{
    while (*state & OPEN) {
        if (atomic_compare_exchange_weak(&pool->state, state, *state + 1))
            return true;
    }
    return false;
}

static void leave_job(sl_workers *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->state, 1);
    bool last_of_closed = (before & INSIDE) == 1 && !(before & OPEN);
    if (!last_of_closed || !atomic_load(&pool->caller_sleeps))
        return;
    pthread_mutex_lock(&pool->sleep_lock);
    pthread_cond_signal(&pool->job_left);
    pthread_mutex_unlock(&pool->sleep_lock);
}

static bool is_new_job(sl_workers *pool, uint64_t seen, uint64_t *out_state)
{
    *out_state = atomic_load(&pool->state);
    return job_number(*out_state) != seen || atomic_load(&pool->stop);
}

/* Returns the first word with a job number other than `seen`, or any word when the pool stops. */
static uint64_t wait_for_job(sl_workers *pool, uint64_t seen)
{
    uint64_t state;
    for (int pauses = 0; pauses < SPIN_PAUSES; pauses++) {
        if (is_new_job(pool, seen, &state))
            return state;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_fetch_add(&pool->sleeper_count, 1);
    while (!is_new_job(pool, seen, &state))
        pthread_cond_wait(&pool->job_opened, &pool->sleep_lock);
    atomic_fetch_sub(&pool->sleeper_count, 1);
    pthread_mutex_unlock(&pool->sleep_lock);
    return state;
}

static void *run_helper(void *argument)
{
    worker *self = argument;
    sl_workers *pool = self->pool;
    uint64_t seen = 0;
    (void)sl_log_enter(pool->log);
    for (;;) {
        uint64_t state = wait_for_job(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        if (enter_job(pool, &state)) {
            run_tiles(pool, self->index);
            leave_job(pool);
        }
        seen = job_number(state);
    }
}

static void open_job(sl_workers *pool)
{
    uint64_t number = job_number(atomic_load(&pool->state)) + 1;
    atomic_store(&pool->state, number << 32 | OPEN);
    if (atomic_load(&pool->sleeper_count) == 0)
        return;
    pthread_mutex_lock(&pool->sleep_lock);
    pthread_cond_broadcast(&pool->job_opened);
    pthread_mutex_unlock(&pool->sleep_lock);
}

/* Closes the job and waits until the last helper has left it. */
static void close_job(sl_workers *pool)
{
    atomic_fetch_and(&pool->state, ~OPEN);
    for (int pauses = 0; pauses < SPIN_PAUSES; pauses++) {
        if ((atomic_load(&pool->state) & INSIDE) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_store(&pool->caller_sleeps, true);
    while ((atomic_load(&pool->state) & INSIDE) != 0)
        pthread_cond_wait(&pool->job_left, &pool->sleep_lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->sleep_lock);
}

void sl_workers_run(sl_workers *workers, uint64_t tile_count, sl_tile_function tile, void *job)
{
    acquire_ticket(&workers->callers);
    workers->tile_count = tile_count;
    workers->tile = tile;
    workers->job = job;
    atomic_store_explicit(&workers->next_tile, 0, memory_order_relaxed);
    bool alone = workers->worker_count == 1 || tile_count <= 1;
    if (!alone)
        open_job(workers);
    run_tiles(workers, 0);
    if (!alone)
        close_job(workers);
    release_ticket(&workers->callers);
}

void sl_workers_gate_close(sl_workers_gate *gate)
{
    __atomic_store_n(&gate->done_count, 0, __ATOMIC_RELAXED);
}

void sl_workers_gate_count(sl_workers_gate *gate)
{
    __atomic_fetch_add(&gate->done_count, 1, __ATOMIC_RELEASE);
}

/* Tiles that others wait for are short. A wait that is longer than a tile means that the system has
 * taken its worker's processor: this one is offered. */
void sl_workers_gate_wait(sl_workers_gate *gate, uint64_t count)
{
    int pauses = 0;
    while (__atomic_load_n(&gate->done_count, __ATOMIC_ACQUIRE) < count) {
        if (pauses < SPIN_PAUSES) {
            pauses++;
            pause_briefly();
        } else {
            sched_yield();
        }
    }
}

uint32_t sl_workers_count(const sl_workers *workers)
{
    return workers->worker_count;
}

static sl_status start_helper(sl_workers *pool, uint32_t index)
{
    worker *self = &pool->helpers[pool->thread_count];
    self->pool = pool;
    self->index = index;
    char name[16];
    snprintf(name, sizeof name, "sl-worker-%u", index % 10000);
    const int error = sl_thread_start(&self->thread, name, run_helper, self);
    if (error != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot start compute worker %u of %u: %s", index + 1,
                pool->worker_count, strerror(error));
    pool->thread_count++;
    return SL_OK;
}

static void stop_helpers(sl_workers *pool)
{
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->job_opened);
    pthread_mutex_unlock(&pool->sleep_lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->helpers[i].thread, NULL);
}

static sl_status init_locks(sl_workers *pool)
{
    if (pthread_mutex_init(&pool->callers.lock, NULL) != 0)
        goto fail;
    if (pthread_cond_init(&pool->callers.moved, NULL) != 0)
        goto destroy_ticket_lock;
    if (pthread_mutex_init(&pool->sleep_lock, NULL) != 0)
        goto destroy_moved;
    if (pthread_cond_init(&pool->job_opened, NULL) != 0)
        goto destroy_sleep_lock;
    if (pthread_cond_init(&pool->job_left, NULL) != 0)
        goto destroy_job_opened;
    return SL_OK;

destroy_job_opened:
    pthread_cond_destroy(&pool->job_opened);
destroy_sleep_lock:
    pthread_mutex_destroy(&pool->sleep_lock);
destroy_moved:
    pthread_cond_destroy(&pool->callers.moved);
destroy_ticket_lock:
    pthread_mutex_destroy(&pool->callers.lock);
fail:
    SL_FAIL(SL_ERROR_SYSTEM, "cannot create the locks of the worker pool");
}

static sl_status allocate_pool(uint32_t worker_count, sl_workers **out_pool)
{
    sl_workers *pool = aligned_alloc(LINE_BYTES, sizeof *pool);
    worker *helpers = calloc(worker_count, sizeof *helpers);
    if (pool == NULL || helpers == NULL) {
        free(helpers);
        free(pool);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pool of %u compute workers", worker_count);
    }
    memset(pool, 0, sizeof *pool);
    pool->worker_count = worker_count;
    pool->helpers = helpers;
    pool->log = sl_log_entered();
    *out_pool = pool;
    return SL_OK;
}

sl_status sl_workers_open(uint32_t worker_count, sl_workers **out_workers)
{
    if (worker_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a worker pool needs at least one worker");
    sl_workers *pool = NULL;
    SL_TRY(allocate_pool(worker_count, &pool));
    sl_status status = init_locks(pool);
    if (status != SL_OK) {
        free(pool->helpers);
        free(pool);
        return status;
    }
    for (uint32_t index = 1; index < worker_count && status == SL_OK; index++)
        status = start_helper(pool, index);
    if (status != SL_OK) {
        sl_workers_close(pool);
        return status;
    }
    *out_workers = pool;
    return SL_OK;
}

void sl_workers_close(sl_workers *workers)
{
    if (workers == NULL)
        return;
    stop_helpers(workers);
    pthread_cond_destroy(&workers->job_left);
    pthread_cond_destroy(&workers->job_opened);
    pthread_mutex_destroy(&workers->sleep_lock);
    pthread_cond_destroy(&workers->callers.moved);
    pthread_mutex_destroy(&workers->callers.lock);
    free(workers->helpers);
    free(workers);
}

/* The kernel refuses a mask smaller than its own with EINVAL, so the size is doubled until it
 * fits. */
uint32_t sl_workers_allowed_cpu_count(void)
{
    for (size_t bits = CPU_SETSIZE; bits <= CPU_BITS_MAX; bits *= 2) {
        cpu_set_t *mask = CPU_ALLOC(bits);
        if (mask == NULL)
            return 1;
        size_t mask_bytes = CPU_ALLOC_SIZE(bits);
        int result = sched_getaffinity(0, mask_bytes, mask);
        int error = errno;
        int count = result == 0 ? CPU_COUNT_S(mask_bytes, mask) : 0;
        CPU_FREE(mask);
        if (result == 0)
            return count > 0 ? (uint32_t)count : 1;
        if (error != EINVAL)
            return 1;
    }
    return 1;
}

uint32_t sl_workers_usable_cpu_count(void)
{
    return sl_limits_cpu_count("", sl_workers_allowed_cpu_count());
}
