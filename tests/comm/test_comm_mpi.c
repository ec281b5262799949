/* What could be wrong when ranks of several machines go by MPI: a message is lost, doubled, mixed
 * up with one of another communicator or read before it came; sums have other bits than on one
 * machine; a rank that dies, stops, gives up or differs leaves ranks of other machines waiting, or
 * nobody says which it was; the starter is killed and ranks stay; a job that is suspended is taken
 * for dead. Here all ranks are on one machine, and SLUICE_MACHINE makes them believe that they are
 * on two, for each MPI that is installed; this program is its own rank then. */
#define _GNU_SOURCE
#include "comm_calls.h"
#include "command/command_run.h"
#include "skip.h"

static char tool[2 * PATH_BYTES], self[PATH_BYTES];

/* Stands before what each half of the ranks run. */
typedef struct mpi {
    const char *name, *starter, *plugin;
    bool waits; /* does not kill all others at once when one dies */
} mpi;

static const mpi mpis[] = {
    {"Open MPI", "mpirun.openmpi --oversubscribe --bind-to none", "sluice-openmpi.so", true},
    {"MPICH", "mpirun.mpich", "sluice-mpich.so", false}};

enum { MPI_COUNT = sizeof mpis / sizeof mpis[0] };

static bool is_there(const mpi *it)
{
    char command[4 * PATH_BYTES];
    snprintf(command, sizeof command, "command -v %.*s >/dev/null && test -r '%.*s/%s'",
             (int)strcspn(it->starter, " "), it->starter, (int)(strlen(binary) - strlen("/sluice")),
             binary, it->plugin);
    return system(command) == 0;
}

/* For each MPI that is there; skips if none is. */
static void for_each_mpi(void (*body)(const mpi *it))
{
    bool has_one = false;
    for (int i = 0; i < MPI_COUNT; i++) {
        if (!is_there(&mpis[i]))
            continue;
        print_message("%s\n", mpis[i].name);
        body(&mpis[i]);
        has_one = true;
    }
    if (!has_one)
        skip_because("no MPI with its plug-in is installed");
}

/* Runs a script in which $two starts two ranks of each of two machines; what they run is $run.
 * MPICH's mpirun may still write to helpers of ranks that left at once: that is no end of its own.
 */
static int run_script(const mpi *it, const char *run, const char *script)
{
    char command[3 * COMMAND_BYTES];
    snprintf(command, sizeof command,
             "two() { exec timeout %u %s -n 2 env SLUICE_MACHINE=a-$$ %.900s : -n 2 env "
             "SLUICE_MACHINE=b-$$ %.900s; }\ntrap '' PIPE\n(%s) >out 2>err </dev/null",
             limit_s, it->starter, run, run, script);
    int status = system(command);
    read_text("out", output);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- calls ---- */

static void complain_and_leave(const answer *found)
{
    if (!found->is_wrong)
        return;
    fprintf(stderr, "%s\n", found->text);
    _exit(1);
}

/* What each rank does: random calls over the world, and over groups across machines and within. */
static int run_as_rank(void)
{
    static const sl_comm_layout layouts[] = {{2, 2, 1}, {1, 2, 2}};
    bool is_full = getenv("SL_TEST_FULL");
    answer found = {0};
    sl_comm *world;
    if (sl_comm_open(100, &world) != SL_OK)
        complain(&found, "%s", sl_status_message());
    complain_and_leave(&found);
    const sequence plan = {base_seed, is_full ? 400 : 30, is_full ? 3000000 : 100000};
    run_sequence(world, &plan, &found);
    for (size_t i = 0; i < 2 && !found.is_wrong; i++) {
        const group_plan groups = {layouts[i], {base_seed + i, is_full ? 200 : 20, 6000}};
        run_groups(world, &groups, &found);
    }
    complain_and_leave(&found);
    printf("right\n");
    fflush(stdout);
    sl_comm_close(world);
    return 0;
}

static void expect_right_calls(const mpi *it)
{
    int code = run_script(it, "$self", "export SL_TEST_CALLS=1; two");
    if (code != 0)
        fail_msg("%s leaves with %d: %s", it->name, code, complaint);
    size_t count = 0;
    for (const char *at = output; (at = strstr(at, "right")) != NULL; at++)
        count++;
    assert_int_equal(count, 4);
}

static void random_calls_when_messages_carry_them_then_bits_are_those_of_a_plain_loop(void **state)
{
    (void)state;
    for_each_mpi(expect_right_calls);
}

/* ---- a run ---- */

#define MODEL                                                                                      \
    "train --layers 1 --width 32 --heads 2 --context 16 --micro-batch 2 --data text --device cpu " \
    "--threads 1 --device-memory 64M --host-memory 64M --tp 2 --zero 1 --steps 4 --quiet "

static void expect_same_run(const mpi *it)
{
    char run[COMMAND_BYTES];
    snprintf(run, sizeof run, "$sluice " MODEL "--log-json two");
    assert_code(run_script(it, run, "$sluice launch -n 4 -- " MODEL "--log-json one && two"), 0);
    assert_same_steps("one", "two", 1, 4);
}

static void training_when_ranks_are_on_two_machines_has_the_bits_of_one(void **state)
{
    (void)state;
    for_each_mpi(expect_same_run);
}

/* ---- ranks that are lost ---- */

static size_t count_ranks(void)
{
    char command[3 * PATH_BYTES];
    snprintf(command, sizeof command, "pgrep -cxf '%s .*' > count", tool);
    if (system(command) < 0)
        return SIZE_MAX;
    read_text("count", output);
    return strtoul(output, NULL, 10);
}

static void expect_nothing_left(void)
{
    for (int i = 0; i < 3000 && count_ranks() > 0; i++)
        sleep_ms(20);
    assert_int_equal(count_ranks(), 0);
}

static const struct loss {
    const char *fate, *says;
    bool needs_time; /* ranks have to live on to say it */
} losses[] = {
    {"kill 2 5", "a rank has died: rank 2 (process", true},
    {"leave 1 5", "a rank has died: rank 1 (process", true},
    {"abort 3 5", "gave up: the disk is full", true},
    {"stop 1 5", "did not come to all_reduce of world within 1 s", false},
};

static void expect_named(const mpi *it)
{
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        char run[256];
        if (losses[i].needs_time && !it->waits)
            continue;
        snprintf(run, sizeof run, "$tool 100000 1 %s", losses[i].fate);
        double start = now_s();
        int code = run_script(it, run, "export RANK_STEPS_TIMEOUT=1; two");
        if (code == 0 || code == 124 || !strstr(complaint, losses[i].says))
            fail_msg("%s leaves with %d: %s", losses[i].fate, code, complaint);
        if (now_s() - start > 60)
            fail_msg("%s: ended after %.0f s", losses[i].fate, now_s() - start);
        expect_nothing_left();
    }
}

static void ranks_when_lost_are_named_on_other_machines(void **state)
{
    (void)state;
    for_each_mpi(expect_named);
}

static void expect_starter_missed(const mpi *it)
{
    (void)run_script(it, "$tool 100000 5",
                     "two & sleep 1.5; pkill -KILL -P $! ; kill -KILL $!; wait $!; true");
    expect_nothing_left();
}

static void starter_when_killed_leaves_nothing(void **state)
{
    (void)state;
    for_each_mpi(expect_starter_missed);
}

static void expect_patience(const mpi *it)
{
    assert_code(run_script(it, "$tool 300 5",
                           "export RANK_STEPS_TIMEOUT=1; two & sleep 1.2;"
                           "pkill -STOP -xf \"$tool .*\"; sleep 2.5;"
                           "pkill -CONT -xf \"$tool .*\"; wait $!"),
                0);
    assert_has(output, "done after 300 steps of 4 ranks");
}

static void job_when_suspended_for_two_deadlines_goes_on(void **state)
{
    (void)state;
    for_each_mpi(expect_patience);
}

/* ---- what is missing ---- */

/* MPICH's mpirun fails itself, now and then, where ranks leave while it still starts others: then
 * it is tried again. */
static void expect_refusal(const mpi *it)
{
    enum { TRIES = 20 };
    int code = 0;
    for (int i = 0; i < TRIES && code != 71; i++) {
        code = run_script(it, "$tool 1 0", "export SLUICE_MPI_PLUGIN=/nothing.so; two");
        if (it->waits || !strstr(complaint, "HYDU_sock_write"))
            break;
    }
    assert_code(code, 71);
    assert_has(complaint, "cannot load the plug-in for MPI");
}

static void plugin_when_it_is_missing_is_named(void **state)
{
    (void)state;
    for_each_mpi(expect_refusal);
}

/* What the MPI libraries keep until a process ends is theirs: nobody is asked to free it. What
 * sluice leaks without them other tests find. */
static void allow_leaks(void)
{
    const char *given = getenv("ASAN_OPTIONS");
    char options[PATH_BYTES];
    snprintf(options, sizeof options, "%s:detect_leaks=0", given ? given : "");
    setenv("ASAN_OPTIONS", options, 1);
}

static int prepare(void **state)
{
    char here[PATH_BYTES], path[2 * PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || set_up(state) != 0 || !getcwd(here, sizeof here))
        return -1;
    snprintf(path, sizeof path, "%.*s/tests/rank_steps", (int)(strlen(binary) - strlen("/sluice")),
             binary);
    snprintf(tool, sizeof tool, "%s/rank_steps", here);
    allow_leaks();
    setenv("sluice", binary, 1);
    setenv("tool", tool, 1);
    setenv("self", self, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return symlink(path, tool); /* a name by which its processes are found */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_when_messages_carry_them_then_bits_are_those_of_a_plain_loop),
        cmocka_unit_test(training_when_ranks_are_on_two_machines_has_the_bits_of_one),
        cmocka_unit_test(ranks_when_lost_are_named_on_other_machines),
        cmocka_unit_test(starter_when_killed_leaves_nothing),
        cmocka_unit_test(job_when_suspended_for_two_deadlines_goes_on),
        cmocka_unit_test(plugin_when_it_is_missing_is_named),
    };
    if (getenv("SL_TEST_CALLS"))
        return run_as_rank();
    return cmocka_run_group_tests(tests, prepare, tear_down);
}
