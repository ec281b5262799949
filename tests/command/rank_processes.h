/* Processes of a run of this test, as its starter left them: finding the ranks, waiting for the
 * end, and seeing that nothing stays. For test programs of the command; each defines _GNU_SOURCE
 * first, and includes command_run.h before this. */
#ifndef SL_TESTS_RANK_PROCESSES_H
#define SL_TESTS_RANK_PROCESSES_H

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "command_run.h"

enum { RANKS = 2, RANKS_SEEN = 8 };

static uint64_t draw;

/* In [0, below). */
static inline uint64_t draw_number(uint64_t below)
{
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    return (draw >> 33) % below;
}

static inline void sleep_ms(uint64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    nanosleep(&time, NULL);
}

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct started {
    pid_t starter;
    pid_t ranks[RANKS_SEEN];
    uint32_t count;
} started;

/* The rank that a process of this test is, by its environment; -1: none. */
static inline int find_rank(const char *process, const char *variable)
{
    char path[128], text[1 << 14], name[64];
    snprintf(path, sizeof path, "%s/environ", process);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    int rank = -1;
    bool is_ours = false;
    if (file)
        fclose(file);
    text[length] = '\0';
    snprintf(name, sizeof name, "%s=", variable);
    for (const char *word = text; word < text + length; word += strlen(word) + 1) {
        if (strncmp(word, name, strlen(name)) == 0)
            rank = (int)strtol(word + strlen(name), NULL, 10);
        is_ours |= strstr(word, work_directory) != NULL; /* XDG_CACHE_HOME */
    }
    return is_ours ? rank : -1;
}

static inline void find_ranks(const char *variable, started *run)
{
    glob_t found;
    run->count = 0;
    memset(run->ranks, 0, sizeof run->ranks);
    if (glob("/proc/[0-9]*", GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int rank = find_rank(found.gl_pathv[i], variable);
        if (rank < 0 || rank >= RANKS_SEEN)
            continue;
        run->ranks[rank] = (pid_t)strtol(found.gl_pathv[i] + strlen("/proc/"), NULL, 10);
        run->count++;
    }
    globfree(&found);
}

static inline void await_ranks(const char *variable, started *run)
{
    for (int i = 0; i < 6000 && run->count < RANKS; i++) { /* a busy machine starts them late */
        sleep_ms(10);
        find_ranks(variable, run);
    }
    if (run->count < RANKS)
        fail_msg("%u ranks have started", run->count);
}

/* The exit code; the run has `seconds` for it. */
static inline int await_end(const started *run, double seconds)
{
    int state;
    double start = now_s();
    while (waitpid(run->starter, &state, WNOHANG) == 0) {
        if (now_s() - start > seconds) {
            kill(run->starter, SIGKILL);
            waitpid(run->starter, &state, 0);
            read_complaint("err");
            fail_msg("still runs after %.0f s: %s", seconds, complaint);
        }
        sleep_ms(10);
    }
    read_complaint("err");
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static inline void expect_nothing_left(const char *variable)
{
    started left = {.count = 1};
    for (int i = 0; i < 3000 && left.count > 0; i++) { /* a busy machine ends them late */
        find_ranks(variable, &left);
        sleep_ms(left.count > 0 ? 10 : 0);
    }
    assert_int_equal(left.count, 0);
}

#endif
