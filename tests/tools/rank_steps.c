/* A rank that does nothing but steps of communication, and can be told to fail in one of them:
 *
 *   rank_steps STEPS MILLISECONDS [FATE RANK STEP]
 *
 * FATE: leave (with 74), abort (tells the others why, and leaves with 74), kill, stop, exit (with
 * 0). SIGUSR1 ends all ranks together, after a step, with 0. Rank 0 prints what was done, and makes
 * the file that RANK_STEPS_SIGN names when all have done a step.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

static volatile sig_atomic_t must_stop;

static void take_signal(int number)
{
    (void)number;
    must_stop = 1;
}

typedef struct plan {
    uint32_t steps, ms;
    const char *fate;
    uint32_t rank, step;
} plan;

static int complain(sl_comm *world, sl_status status)
{
    fprintf(stderr, "sluice: rank %u: %s\n", world ? sl_comm_rank(world) : 0, sl_status_message());
    return sl_status_exit_code(status);
}

static void meet_fate(sl_comm *world, const plan *it)
{
    if (strcmp(it->fate, "abort") == 0)
        sl_comm_abort(world, "the disk is full");
    if (strcmp(it->fate, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(it->fate, "stop") == 0)
        raise(SIGSTOP);
    _exit(strcmp(it->fate, "exit") == 0 ? 0 : 74);
}

static void merge_flags(void *sum, const void *other)
{
    *(uint32_t *)sum |= *(const uint32_t *)other;
}

/* One step: a sum that says whether all were there, and whether anybody wants to stop. */
static sl_status run_step(sl_comm *world, uint32_t step, uint32_t *out_stops)
{
    float ones[1000];
    for (int i = 0; i < 1000; i++)
        ones[i] = 1;
    sl_comm_post(world, step, "sum of ones");
    SL_TRY(sl_comm_all_reduce(world, SL_COMM_FP32, 1000, ones));
    if (ones[999] != (float)sl_comm_size(world))
        SL_FAIL(SL_ERROR_INTERNAL, "%u ranks add up to %g", sl_comm_size(world), (double)ones[999]);
    *out_stops = must_stop != 0;
    return sl_comm_merge(world, sizeof *out_stops, out_stops, merge_flags);
}

static void give_sign(const char *name)
{
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file)
        fclose(file);
}

static int run_steps(sl_comm *world, const plan *it)
{
    const struct timespec pause = {it->ms / 1000, (long)(it->ms % 1000) * 1000000};
    uint32_t stops = 0, step = 0;
    while (step < it->steps && !stops) {
        step++;
        if (it->fate && sl_comm_rank(world) == it->rank && step == it->step)
            meet_fate(world, it);
        nanosleep(&pause, NULL);
        sl_status status = run_step(world, step, &stops);
        if (status != SL_OK)
            return complain(world, status);
        if (step == 1 && sl_comm_rank(world) == 0)
            give_sign(getenv("RANK_STEPS_SIGN"));
    }
    if (sl_comm_rank(world) == 0)
        printf("%s after %u steps of %u ranks\n", stops ? "stopped" : "done", step,
               sl_comm_size(world));
    return 0;
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    const char *timeout = getenv("RANK_STEPS_TIMEOUT");
    sl_comm *world = NULL;
    plan it = {.steps = argc > 1 ? number(argv[1]) : 1, .ms = argc > 2 ? number(argv[2]) : 0};
    if (argc > 5)
        it = (plan){it.steps, it.ms, argv[3], number(argv[4]), number(argv[5])};
    signal(SIGUSR1, take_signal);
    sl_status status = sl_comm_open(0, &world);
    if (status != SL_OK)
        return complain(NULL, status);
    if (timeout) /* of steps: how long a busy machine takes to start ranks is not looked at */
        sl_comm_set_timeout(world, number(timeout));
    int code = run_steps(world, &it);
    sl_comm_close(world);
    return code;
}
