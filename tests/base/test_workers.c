/* What could be wrong in a worker pool: a tile runs twice or never, a run returns early, a late
 * thread works on a job that has ended, a sleeper is never woken, two callers mix their jobs, one
 * caller passes another that waits, two threads share a worker index. Counters per tile, jobs that
 * die right after their run, pauses that let the helpers fall asleep, and several callers at once
 * find these; TSan finds the rest. Tiles that wait for others could wait forever or begin too
 * early. */
#define _GNU_SOURCE /* gettid */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/workers.h"

enum { TILES_MAX = 257, WORKERS_MAX = 8 };

typedef struct counting_job {
    _Atomic uint32_t runs[TILES_MAX];
    _Atomic uint32_t inside[WORKERS_MAX]; /* threads that use this worker index now */
    _Atomic uint32_t shared_index;
    uint32_t magic;
    uint32_t worker_count;
} counting_job;

static void count_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    counting_job *job = argument;
    assert_true(job->magic == 0x51u);
    assert_true(worker_index < job->worker_count);
    if (atomic_fetch_add(&job->inside[worker_index], 1) != 0)
        atomic_fetch_add(&job->shared_index, 1);
    atomic_fetch_add(&job->runs[tile_index], 1);
    atomic_fetch_sub(&job->inside[worker_index], 1);
}

static void run_and_check(sl_workers *pool, uint64_t tile_count)
{
    counting_job job;
    memset(&job, 0, sizeof job);
    job.magic = 0x51u;
    job.worker_count = sl_workers_count(pool);
    sl_workers_run(pool, tile_count, count_tile, &job);
    job.magic = 0; /* whoever still works on it now fails */
    for (uint64_t i = 0; i < TILES_MAX; i++)
        assert_int_equal(job.runs[i], i < tile_count ? 1 : 0);
    assert_int_equal(job.shared_index, 0);
}

static uint32_t rounds(uint32_t quick)
{
    return getenv("SL_TEST_FULL") ? quick * 20 : quick;
}

static void every_tile_when_run_runs_once(void **state)
{
    (void)state;
    for (uint32_t worker_count = 1; worker_count <= WORKERS_MAX; worker_count++) {
        sl_workers *pool;
        assert_int_equal(sl_workers_open(worker_count, &pool), SL_OK);
        assert_int_equal(sl_workers_count(pool), worker_count);
        for (uint32_t i = 0; i < rounds(300); i++)
            run_and_check(pool, i % (TILES_MAX + 1));
        sl_workers_close(pool);
    }
}

static void helpers_when_asleep_are_woken(void **state)
{
    (void)state;
    sl_workers *pool;
    assert_int_equal(sl_workers_open(3, &pool), SL_OK);
    for (uint32_t i = 0; i < rounds(200); i++) {
        struct timespec pause = {.tv_nsec = (long)(i % 10) * 50000};
        nanosleep(&pause, NULL);
        run_and_check(pool, 5);
    }
    sl_workers_close(pool);
}

/* Two tiles that wait for each other need two threads at once. */
typedef struct meeting_job {
    _Atomic uint32_t arrived;
} meeting_job;

static void meet(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index;
    (void)worker_index;
    meeting_job *job = argument;
    atomic_fetch_add(&job->arrived, 1);
    while (atomic_load(&job->arrived) < 2) {
        struct timespec pause = {.tv_nsec = 1000};
        nanosleep(&pause, NULL);
    }
}

static void tiles_when_slow_run_beside_each_other(void **state)
{
    (void)state;
    sl_workers *pool;
    assert_int_equal(sl_workers_open(2, &pool), SL_OK);
    for (uint32_t i = 0; i < rounds(50); i++) {
        meeting_job job = {0};
        sl_workers_run(pool, 2, meet, &job);
        assert_int_equal(job.arrived, 2);
    }
    sl_workers_close(pool);
}

enum { COUNTED_TILES = 64, WAITING_TILES = 32 };

typedef struct gated_job {
    sl_workers_gate gate;
    uint32_t written[COUNTED_TILES];
    _Atomic uint32_t missing;
} gated_job;

/* The first tiles write, the others read what all of them wrote. */
static void write_or_read(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    gated_job *job = argument;
    const struct timespec one_ms = {.tv_nsec = 1000000};
    if (tile_index < COUNTED_TILES) {
        if (tile_index == COUNTED_TILES - 1)
            nanosleep(&one_ms, NULL); /* the other workers reach the gate */
        job->written[tile_index] = 1;
        sl_workers_gate_count(&job->gate);
        return;
    }
    sl_workers_gate_wait(&job->gate, COUNTED_TILES);
    for (uint32_t i = 0; i < COUNTED_TILES; i++)
        job->missing += job->written[i] == 0;
}

static void tiles_when_they_wait_see_what_earlier_ones_wrote(void **state)
{
    (void)state;
    for (uint32_t worker_count = 1; worker_count <= WORKERS_MAX; worker_count += 3) {
        sl_workers *pool = NULL;
        assert_int_equal(sl_workers_open(worker_count, &pool), SL_OK);
        for (int round = 0; round < 50; round++) {
            gated_job job = {.missing = 0};
            sl_workers_gate_close(&job.gate);
            sl_workers_run(pool, COUNTED_TILES + WAITING_TILES, write_or_read, &job);
            assert_int_equal(job.missing, 0);
            assert_int_equal(job.gate.done_count, COUNTED_TILES);
        }
        sl_workers_close(pool);
    }
}

static void *call_many_times(void *argument)
{
    for (uint32_t i = 0; i < rounds(300); i++)
        run_and_check(argument, 1 + i % 40);
    return NULL;
}

static void callers_when_several_do_not_mix(void **state)
{
    (void)state;
    for (uint32_t worker_count = 1; worker_count <= 4; worker_count += 3) {
        sl_workers *pool;
        pthread_t callers[3];
        assert_int_equal(sl_workers_open(worker_count, &pool), SL_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&callers[i], NULL, call_many_times, pool), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(callers[i], NULL);
        sl_workers_close(pool);
    }
}

/* One caller after the other asks for the pool while it is taken. */
typedef struct waiting_caller {
    sl_workers *pool;
    _Atomic int thread; /* its id, once it is about to ask; 0: not yet */
    _Atomic uint32_t *order;
    uint32_t place; /* in which its job ran */
} waiting_caller;

static void take_place(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index, (void)worker_index;
    waiting_caller *self = argument;
    self->place = atomic_fetch_add(self->order, 1);
}

static void *ask_for_pool(void *argument)
{
    waiting_caller *self = argument;
    self->thread = gettid();
    sl_workers_run(self->pool, 1, take_place, self);
    return NULL;
}

/* True once the kernel says that the thread sleeps. After it has told its id, it does so in
 * the queue for the pool alone. */
static int is_asleep(int thread)
{
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(name, "r");
    size_t bytes = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    line[bytes] = '\0';
    const char *state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

enum { CALLERS = 3 };

typedef struct holding_job {
    waiting_caller *callers; /* [CALLERS] */
    pthread_t threads[CALLERS];
} holding_job;

/* Keeps the pool until all callers wait for it, one behind the other. */
static void start_callers(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index, (void)worker_index;
    holding_job *job = argument;
    for (int i = 0; i < CALLERS; i++) {
        waiting_caller *caller = &job->callers[i];
        assert_int_equal(pthread_create(&job->threads[i], NULL, ask_for_pool, caller), 0);
        while (caller->thread == 0 || !is_asleep(caller->thread))
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

/* The holder asks again at once, when the others must still be woken. */
static void callers_when_others_wait_come_after_them(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < rounds(20); round++) {
        sl_workers *pool;
        assert_int_equal(sl_workers_open(1, &pool), SL_OK);
        _Atomic uint32_t order = 0;
        waiting_caller callers[CALLERS], again = {.order = &order};
        for (int i = 0; i < CALLERS; i++)
            callers[i] = (waiting_caller){.pool = pool, .order = &order};
        holding_job job = {.callers = callers};
        sl_workers_run(pool, 1, start_callers, &job);
        sl_workers_run(pool, 1, take_place, &again);
        for (int i = 0; i < CALLERS; i++)
            pthread_join(job.threads[i], NULL);
        for (uint32_t i = 0; i < CALLERS; i++)
            assert_int_equal(callers[i].place, i);
        assert_int_equal(again.place, CALLERS);
        sl_workers_close(pool);
    }
}

static void open_when_no_worker_is_asked_for_fails(void **state)
{
    (void)state;
    sl_workers *pool;
    assert_int_equal(sl_workers_open(0, &pool), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "worker"));
    sl_workers_close(NULL);
}

static void usable_cpus_when_counted_are_at_least_one(void **state)
{
    (void)state;
    assert_in_range(sl_workers_usable_cpu_count(), 1, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_when_run_runs_once),
        cmocka_unit_test(helpers_when_asleep_are_woken),
        cmocka_unit_test(tiles_when_slow_run_beside_each_other),
        cmocka_unit_test(tiles_when_they_wait_see_what_earlier_ones_wrote),
        cmocka_unit_test(callers_when_several_do_not_mix),
        cmocka_unit_test(callers_when_others_wait_come_after_them),
        cmocka_unit_test(open_when_no_worker_is_asked_for_fails),
        cmocka_unit_test(usable_cpus_when_counted_are_at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
