/* Runs one body on every rank of a world, as threads of this process or as processes that it forks,
 * and tells which rank said what. A body must not use cmocka's asserts: it returns NULL, or what is
 * wrong, which the caller keeps. */
#ifndef SL_TESTS_COMM_WORLD_H
#define SL_TESTS_COMM_WORLD_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/board.h"
#include "comm/comm.h"
#include "comm/environment.h"
#include "comm/remote.h"
#include "comm_post.h"

enum { RANKS_MAX = 8, ANSWER_BYTES = 1400 };

typedef struct answer {
    bool is_wrong;
    char text[ANSWER_BYTES];
} answer;

/* Writes what is wrong. */
static void __attribute__((format(printf, 2, 3))) complain(answer *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    out->is_wrong = true;
    vsnprintf(out->text, sizeof out->text, format, arguments);
    va_end(arguments);
}

/* What each rank runs, with its end of the world open; `out` is its own. */
typedef void (*rank_body)(sl_comm *world, const void *argument, answer *out);

typedef struct rank_run {
    sl_comm *world;
    rank_body body;
    const void *argument;
    answer *out;
} rank_run;

static void *run_rank(void *argument)
{
    const rank_run *run = argument;
    run->body(run->world, run->argument, run->out);
    sl_comm_close(run->world);
    return NULL;
}

static void run_threads(uint32_t size, rank_body body, const void *argument, answer *answers)
{
    sl_comm *ends[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    rank_run runs[RANKS_MAX];
    assert_int_equal(sl_comm_threads_open(size, ends), SL_OK);
    for (uint32_t i = 0; i < size; i++) {
        runs[i] = (rank_run){ends[i], body, argument, &answers[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &runs[i]), 0);
    }
    for (uint32_t i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
}

/* ---- ranks of several machines, as threads: messages go by the post of comm_post.h ---- */

/* Of these machines the first has half of the ranks, and the others have every second one of the
 * rest. */
static char machine_of(uint32_t rank, uint32_t size)
{
    return (char)(rank < (size + 1) / 2 ? 'a' : 'b' + rank % 2);
}

typedef struct posted_run {
    post_box box;
    rank_run run;
    uint32_t size;
    char machine[32];
} posted_run;

static void *run_posted(void *argument)
{
    posted_run *it = argument;
    if (sl_remote_open(&post_ops, &it->box, it->size, it->machine, 60, &it->run.world) != SL_OK) {
        complain(it->run.out, "cannot open: %s", sl_status_message());
        return NULL;
    }
    return run_rank(&it->run);
}

static void run_machines(uint32_t size, rank_body body, const void *argument, answer *answers)
{
    static uint32_t world_count;
    pthread_t threads[RANKS_MAX];
    posted_run runs[RANKS_MAX];
    post_office office = {.size = size};
    pthread_mutex_init(&office.lock, NULL);
    world_count++;
    for (uint32_t i = 0; i < size; i++) {
        runs[i] = (posted_run){.box = {.office = &office, .rank = i, .delays = world_count % 2},
                               .run = {NULL, body, argument, &answers[i]},
                               .size = size};
        office.boxes[i] = &runs[i].box;
        snprintf(runs[i].machine, sizeof runs[i].machine, "%c-%d-%u", machine_of(i, size),
                 (int)getpid(), world_count);
    }
    for (uint32_t i = 0; i < size; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_posted, &runs[i]), 0);
    for (uint32_t i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < size; i++)
        post_empty(&runs[i].box);
    pthread_mutex_destroy(&office.lock);
}

/* ---- processes ---- */

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    setenv(name, text, 1);
}

/* In the child. Without a file it is a rank as Open MPI's mpirun starts it. */
static void run_process(uint32_t rank, uint32_t size, int file, const rank_run *run)
{
    sl_comm *world;
    set_number(file < 0 ? "OMPI_COMM_WORLD_RANK" : SL_ENVIRONMENT_RANK, rank);
    set_number(file < 0 ? "OMPI_COMM_WORLD_SIZE" : SL_ENVIRONMENT_SIZE, size);
    if (file >= 0)
        set_number(SL_ENVIRONMENT_FILE, (uint32_t)file);
    if (sl_comm_open(0, &world) != SL_OK) {
        complain(run->out, "cannot open: %s", sl_status_message());
        _exit(1);
    }
    run->body(world, run->argument, run->out);
    sl_comm_close(world);
    _exit(0);
}

/* Starts `size` processes with the board in `file`, which this closes, or none. Answers live in
 * memory that they share. */
static void start_ranks(uint32_t size, int file, const rank_run *run, answer *answers,
                        pid_t *out_ids)
{
    fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        rank_run mine = *run;
        mine.out = &answers[i];
        out_ids[i] = fork();
        assert_true(out_ids[i] >= 0);
        if (out_ids[i] == 0)
            run_process(i, size, file, &mine);
    }
    if (file >= 0)
        close(file);
}

static void start_processes(uint32_t size, const rank_run *run, answer *answers, pid_t *out_ids)
{
    int file;
    assert_int_equal(sl_board_create(size, size, &file), SL_OK);
    start_ranks(size, file, run, answers, out_ids);
}

static answer *share_answers(void)
{
    answer *answers = mmap(NULL, RANKS_MAX * sizeof *answers, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(answers != MAP_FAILED);
    return answers;
}

static void wait_for_processes(uint32_t size, const pid_t *ids, answer *answers)
{
    for (uint32_t i = 0; i < size; i++) {
        int state;
        assert_int_equal(waitpid(ids[i], &state, 0), ids[i]);
        if (!WIFEXITED(state) && !answers[i].is_wrong)
            complain(&answers[i], "ended by signal %d", WTERMSIG(state));
    }
}

static void run_processes(uint32_t size, rank_body body, const void *argument, answer *answers)
{
    pid_t ids[RANKS_MAX];
    const rank_run run = {.body = body, .argument = argument};
    start_processes(size, &run, answers, ids);
    wait_for_processes(size, ids, answers);
}

static void run_met(uint32_t size, rank_body body, const void *argument, answer *answers)
{
    pid_t ids[RANKS_MAX];
    const rank_run run = {.body = body, .argument = argument};
    start_ranks(size, -1, &run, answers, ids);
    wait_for_processes(size, ids, answers);
}

typedef struct carrier {
    const char *name;
    void (*run)(uint32_t size, rank_body body, const void *argument, answer *answers);
} carrier;

static const carrier carriers[] = {{"threads", run_threads},
                                   {"local", run_processes},
                                   {"mpi", run_met},
                                   {"machines", run_machines}};

enum { CARRIER_COUNT = 4 };

/* Fails the test with what the first rank said that found something wrong. */
static inline void expect_right(const carrier *on, uint32_t size, const answer *answers)
{
    for (uint32_t i = 0; i < size; i++)
        if (answers[i].is_wrong)
            fail_msg("%s, rank %u of %u: %s", on->name, i, size, answers[i].text);
}

static inline void run_right(const carrier *on, uint32_t size, rank_body body, const void *argument)
{
    answer *answers = share_answers();
    on->run(size, body, argument, answers);
    expect_right(on, size, answers);
    munmap(answers, RANKS_MAX * sizeof *answers);
}

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void sleep_ms(uint64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    nanosleep(&time, NULL);
}

#endif
