/* What could be wrong when ranks of a run are lost: one that is killed or stopped at any moment
 * leaves the others waiting or running, or nobody says which it was; a checkpoint is damaged, or
 * what goes on from it is another run; the starter is killed and leaves ranks behind; a job that is
 * suspended as a whole is taken for a dead one. Moments are drawn at random over start, steps and
 * saves; they depend on the machine: a seed (SL_TEST_SEED) repeats the draw, not the place. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "command_run.h"
#include "rank_processes.h"

#define MODEL                                                                                      \
    "--layers 1 --width 16 --heads 2 --context 16 --micro-batch 1 --data text --device cpu "       \
    "--threads 1 --device-memory 64M --host-memory 64M --tp 2 --lr-schedule constant --warmup 0 "

/* ---- a run and its ranks ---- */

static started start(const char *starter, const char *options)
{
    char command[COMMAND_BYTES + PATH_BYTES];
    snprintf(command, sizeof command,
             "exec %s train " MODEL "--save kept --save-every 20 --keep 2 --resume --quiet "
             "--log-json log %s >out 2>err </dev/null",
             starter, options);
    started run = {.starter = fork()};
    assert_true(run.starter >= 0);
    if (run.starter == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return run;
}

static started launch(const char *options)
{
    char starter[PATH_BYTES + 32];
    snprintf(starter, sizeof starter, "'%s' launch -n %d --", binary, RANKS);
    return start(starter, options);
}

/* ---- killed and stopped ---- */

static void say(char *text, size_t capacity, const char *format, uint64_t rank)
{
    snprintf(text, capacity, format, (unsigned)rank);
}

/* Ranks that are lost, one run after the other. */
typedef struct job {
    const char *model; /* options beside MODEL's */
    const char *save, *log;
    int kills, stops; /* stops divide kills, but for a rest */
} job;

static off_t log_bytes(const char *name)
{
    struct stat info;
    return stat(name, &info) == 0 ? info.st_size : 0;
}

/* A third of the moments are anywhere from the start of the ranks, the others behind a step. */
static void await_moment(const char *log, off_t before)
{
    bool is_anywhere = draw_number(3) == 0;
    for (int i = 0; !is_anywhere && i < 12000 && log_bytes(log) <= before + 4096; i++)
        sleep_ms(5); /* a start record, and some steps */
    sleep_ms(draw_number(is_anywhere ? 500 : 150));
}

static started launch_job(const job *it, json_int_t steps, const char *more)
{
    char options[256];
    snprintf(options, sizeof options, "%s --save %s --log-json %s --steps %lld %s", it->model,
             it->save, it->log, (long long)steps, more);
    return launch(options);
}

static void lose_one(const job *it, int number)
{
    char died[64], waited[64], missed[64], ended[64];
    off_t before = log_bytes(it->log);
    started run = launch_job(it, 1000000, "--rank-timeout 2");
    await_ranks("SLUICE_RANK", &run);
    await_moment(it->log, before);
    uint64_t rank = draw_number(RANKS);
    kill(run.ranks[rank], number);
    int code = await_end(&run, 60);
    assert_code(code, 75);
    expect_nothing_left("SLUICE_RANK");
    say(died, sizeof died, number == SIGKILL ? "a rank has died: rank %u (" : "rank %u (", rank);
    say(waited, sizeof waited, "rank %u of this machine", rank);
    say(missed, sizeof missed, "rank %u is stopped", rank);
    say(ended, sizeof ended, "rank %u was ended by signal 9", rank); /* the launcher saw it first */
    if (!strstr(complaint, died) && !strstr(complaint, waited) && !strstr(complaint, missed) &&
        !strstr(complaint, ended))
        fail_msg("rank %u is not named: %s", (unsigned)rank, complaint);
}

static json_int_t last_step(const char *name)
{
    json_t *events = read_log(name), *event;
    json_int_t last = 0;
    size_t index;
    json_array_foreach(events, index, event) if (strcmp(kind_of(event), "step") == 0) last =
        json_integer_value(json_object_get(event, "step"));
    json_decref(events);
    return last;
}

/* Each run goes on from the checkpoint of the one that was lost before it; the last one is that
 * which would have come without all this. */
static void lose_many(const job *it)
{
    for (int i = 0; i < it->kills + it->stops; i++) {
        const bool is_stop = i % (it->kills / it->stops + 1) == it->kills / it->stops;
        lose_one(it, is_stop ? SIGSTOP : SIGKILL);
    }
    json_int_t reached = last_step(it->log) + 5;
    started run = launch_job(it, reached, "");
    assert_code(await_end(&run, 60), 0);
    assert_code(sluice("launch -n 2 -- train " MODEL "%s --steps %lld --quiet --log-json whole",
                       it->model, (long long)reached),
                0);
    assert_same_steps(it->log, "whole", reached - 2, reached);
    assert_int_equal(unlink("whole"), 0);
    printf("%d kills, %d stops, over %lld steps\n", it->kills, it->stops, (long long)reached);
}

static void ranks_when_lost_at_random_moments_end_and_go_on(void **state)
{
    (void)state;
    bool is_full = getenv("SL_TEST_FULL") != NULL;
    lose_many(&(job){"", "kept", "log", is_full ? 200 : 10, is_full ? 30 : 3});
}

/* A stage waits for its neighbours alone, and they for it. */
static void stages_when_lost_at_random_moments_end_and_go_on(void **state)
{
    (void)state;
    bool is_full = getenv("SL_TEST_FULL") != NULL;
    lose_many(&(job){"--layers 2 --tp 1 --pp 2 --accumulate 3", "kept-by-stages", "of-stages",
                     is_full ? 50 : 10, is_full ? 10 : 3});
}

/* ---- suspended ---- */

/* A step takes minutes, and its ranks exchange nothing before its end. */
static void rank_when_lost_in_a_long_step_is_missed_before_the_next_exchange(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    started run = {.starter = 0};
    snprintf(command, sizeof command,
             "exec '%s' launch -n 2 -- train --layers 1 --width 16 --heads 2 --context 16 "
             "--micro-batch 1 --accumulate 100000 --dp 2 --data text --device cpu --threads 1 "
             "--device-memory 64M --host-memory 64M --steps 2 --quiet >out 2>err </dev/null",
             binary);
    run.starter = fork();
    assert_true(run.starter >= 0);
    if (run.starter == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    await_ranks("SLUICE_RANK", &run);
    sleep_ms(1500);
    kill(run.ranks[1], SIGKILL);
    assert_code(await_end(&run, 120), 75);
    read_text("err", complaint);
    assert_has(complaint, "a rank has died: rank 1");
    if (strstr(complaint, "after another rank failed: killed"))
        fail_msg("the other rank had to be killed: %s", complaint);
}

static void signal_all(const started *run, int number)
{
    kill(run->starter, number);
    for (uint32_t i = 0; i < RANKS; i++)
        kill(run->ranks[i], number);
}

static void job_when_suspended_for_two_deadlines_goes_on(void **state)
{
    (void)state;
    started run = launch("--steps 1000000 --rank-timeout 2 --save other");
    await_ranks("SLUICE_RANK", &run);
    sleep_ms(300);
    signal_all(&run, SIGSTOP);
    sleep_ms(4200);
    signal_all(&run, SIGCONT);
    sleep_ms(1500);
    kill(run.starter, SIGTERM);
    assert_code(await_end(&run, 60), 0);
    assert_null(strstr(complaint, "did not come"));
    expect_nothing_left("SLUICE_RANK");
}

/* ---- the starter killed ---- */

/* `late`: the starter is killed before the ranks begin, which then have another parent. */
static void check_starter(const char *program, const char *options, const char *variable, bool late)
{
    const char *before = late ? "sh -c 'sleep 2; exec \"$0\" \"$@\"'" : "";
    char starter[PATH_BYTES + 128];
    snprintf(starter, sizeof starter, "command -v %s >/dev/null", program);
    if (system(starter) != 0) {
        print_message("skipped: there is no %s\n", program);
        return;
    }
    snprintf(starter, sizeof starter, "%s %s -n %d %s '%s'", program, options, RANKS, before,
             binary);
    started run = start(starter, "--steps 1000000 --save third");
    await_ranks(variable, &run);
    sleep_ms(draw_number(500));
    kill(run.starter, SIGKILL);
    assert_int_equal(await_end(&run, 60), 128 + SIGKILL);
    expect_nothing_left(variable);
}

static void starter_when_killed_leaves_nothing(void **state)
{
    (void)state;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (int late = 0; late < 2; late++) {
        check_starter("mpirun.openmpi", "--oversubscribe", "OMPI_COMM_WORLD_RANK", late);
        check_starter("mpirun.mpich", "", "PMI_RANK", late);
    }
    assert_code(sluice("launch -n 2 -- train " MODEL "--resume --save third --steps 1 --quiet"), 0);
}

int main(void)
{
    const char *seed = getenv("SL_TEST_SEED");
    draw = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu (SL_TEST_SEED)\n", (unsigned long long)draw);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_when_lost_at_random_moments_end_and_go_on),
        cmocka_unit_test(stages_when_lost_at_random_moments_end_and_go_on),
        cmocka_unit_test(rank_when_lost_in_a_long_step_is_missed_before_the_next_exchange),
        cmocka_unit_test(job_when_suspended_for_two_deadlines_goes_on),
        cmocka_unit_test(starter_when_killed_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
