/* What could be wrong here: a run whose budgets are beyond the machine starts, and is killed in the
 * middle of a step; two runs that fit alone take what there is together, and one is killed; a
 * system that gives no more memory ends a run in some other way than by saying so; a disk directory
 * that is memory counts as a disk. Every case runs the built command; a machine with little memory
 * is a cgroup, where this process may make one. */
#define _GNU_SOURCE
#include "command_run.h"
#include "memory_group.h"
#include "sanitizer_share.h"
#include "skip.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

/* A step of a few TiB. */
#define HUGE                                                                                       \
    "--layers 48 --width 1600 --heads 25 --data text --micro-batch 1024 --recompute none "         \
    "--policy device "

static void budgets_when_beyond_the_machine_then_69_before_anything_is_taken(void **state)
{
    (void)state;
    assert_code(sluice("train " HUGE "--steps 1 --quiet --device-memory 100T --host-memory 100T"),
                69);
    assert_one_complaint("it does not fit");
    assert_has(complaint, "--device-memory");
    assert_code(sluice("plan " HUGE "--device-memory 100T --host-memory 100T"), 0);
    assert_has(complaint, "train refuses that");
}

/* ---- a machine with little memory ---- */

/* Plans some 210 MiB, in milliseconds a step. */
#define LARGE                                                                                      \
    "--layers 4 --width 512 --heads 8 --context 16 --micro-batch 1 --data text --threads 1 "       \
    "--policy device --device-memory 300M --host-memory 40M --quiet "

/* Steps of two runs beside each other: with sanitizers they take a second each. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS_TOGETHER "--steps 4"
#else
#define STEPS_TOGETHER "--steps 20"
#endif

enum { TWO_ROUNDS = 3, MIB = 1 << 20, GROUP_MIB = 408 };

/* Starts `BEFORE sluice train ARGUMENTS`, its words in files of this number. */
static pid_t start(const char *before, int number, const char *arguments)
{
    char command[2 * COMMAND_BYTES];
    snprintf(command, sizeof command, "%s exec '%s' train %s >out%d 2>err%d </dev/null", before,
             binary, arguments, number, number);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* The exit code, or 1000 + the signal that ended it. */
static int wait_for(pid_t child, int number)
{
    int status;
    char name[16];
    assert_int_equal(waitpid(child, &status, 0), child);
    snprintf(name, sizeof name, "err%d", number);
    read_complaint(name);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void assert_refused(int code)
{
    if (code != 69 && code != 71)
        fail_msg("code %d: %s", code, complaint);
    assert_one_complaint("");
    assert_true(strlen(complaint) > 40);
}

/* Until a log tells of a step: then all memory is taken. */
static void wait_for_step(const char *log)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    char command[64];
    snprintf(command, sizeof command, "grep -qs '\"event\":\"step\"' %s", log);
    for (int polls = 0; polls < 10000; polls++) {
        if (system(command) == 0)
            return;
        nanosleep(&pause, NULL);
    }
    fail_msg("the run does not get to its first step");
}

/* Whether the command can be loaded at all. */
static bool is_loaded(const char *before)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "(%s exec '%s' --version) >loaded 2>&1", before, binary);
    return system(command) == 0;
}

/* Each fits alone; the second one comes when the first has its memory. */
static void runs_when_together_beyond_the_machine_then_the_second_is_refused(void **state)
{
    (void)state;
    memory_group group;
    if (!memory_group_open(&group, (uint64_t)GROUP_MIB * MIB)) {
        skip_because("no cgroup with a limit of memory can be made here");
    }
    assert_code(wait_for(start(group.enter, 0, LARGE "--steps 2"), 0), 0);
    assert_code(wait_for(start(group.enter, 1, LARGE "--steps 2"), 1), 0);
    pid_t first = start(group.enter, 0, LARGE "--steps 1000000 --log-json first.log");
    wait_for_step("first.log");
    int second_code = wait_for(start(group.enter, 1, LARGE "--steps 2"), 1);
    assert_code(second_code, 69);
    assert_one_complaint("the cgroup leaves");
    kill(first, SIGTERM);
    assert_code(wait_for(first, 0), 0);
    memory_group_close(&group);
}

/* Started in the same moment: one of them gets what it planned, the other one too or says that it
 * does not; the system kills none. */
static void runs_when_started_together_then_none_is_killed(void **state)
{
    (void)state;
    memory_group group;
    if (!memory_group_open(&group, (uint64_t)GROUP_MIB * MIB)) {
        skip_because("no cgroup with a limit of memory can be made here");
    }
    for (int round = 0; round < TWO_ROUNDS; round++) {
        int done = 0;
        pid_t children[2];
        for (int i = 0; i < 2; i++)
            children[i] = start(group.enter, i, LARGE STEPS_TOGETHER);
        for (int i = 0; i < 2; i++) {
            int code = wait_for(children[i], i);
            if (code != 0)
                assert_code(code, 69);
            done += code == 0;
        }
        assert_true(done >= 1);
    }
    memory_group_close(&group);
}

/* From hardly anything to more than enough. */
static void run_when_the_machine_is_any_size_then_is_never_killed(void **state)
{
    (void)state;
    static const uint64_t limits[] = {64, 96, 128, 180, 220, 240, 260, 280, 320, GROUP_MIB};
    enum { COUNT = sizeof limits / sizeof limits[0] };
    int done = 0, refused = 0;
    if (SANITIZER_SHARE > 1) {
        skip_because("a sanitizer takes memory that no plan knows of");
    }
    for (int i = 0; i < COUNT; i++) {
        memory_group group;
        if (!memory_group_open(&group, limits[i] * MIB)) {
            skip_because("no cgroup with a limit of memory can be made here");
        }
        int code = wait_for(start(group.enter, 0, LARGE "--steps 3"), 0);
        memory_group_close(&group);
        if (code != 0)
            assert_refused(code);
        done += code == 0;
        refused += code != 0;
    }
    print_message("%d ran, %d were refused\n", done, refused);
    assert_true(done > 0 && refused > 0);
}

/* Where addresses run out, calls for memory fail: wherever that is, it is said. Less than what just
 * loads is passed over, for what runs before main (the CUDA runtime among it) does not look, and
 * where addresses begin is drawn. */
static void run_when_addresses_run_out_then_says_so(void **state)
{
    (void)state;
    enum { LOADED_MARGIN = 2 };
    int done = 0, refused = 0, was_loaded = 0;
    if (SANITIZER_SHARE > 1) {
        skip_because("a sanitizer takes more addresses than there are");
    }
    for (int limit = 4; limit <= 1024; limit += limit < 64 ? 4 : 60) {
        char before[64];
        snprintf(before, sizeof before, "ulimit -v %d;", limit * 1024);
        was_loaded += is_loaded(before);
        if (was_loaded <= LOADED_MARGIN)
            continue;
        int code = wait_for(start(before, 0, LARGE "--steps 2"), 0);
        if (code != 0)
            assert_refused(code);
        done += code == 0;
        refused += code != 0;
    }
    print_message("%d ran, %d were refused\n", done, refused);
    assert_true(done > 0 && refused > 0);
}

/* ---- memory as a disk ---- */

static json_int_t read_budget(const json_t *plan, const char *tier)
{
    const json_t *tiers = json_object_get(plan, "tiers");
    return json_integer_value(json_object_get(json_object_get(tiers, tier), "budget_bytes"));
}

/* Prints the budgets of a plan and gives back their sum. */
static uint64_t sum_budgets(const char *directory)
{
    assert_code(sluice("plan " TINY "--data text --json --policy nvme --disk-dir %s", directory),
                0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_non_null(plan);
    uint64_t sum = (uint64_t)(read_budget(plan, "device") + read_budget(plan, "host") +
                              read_budget(plan, "disk"));
    json_decref(plan);
    return sum;
}

static void disk_when_in_memory_then_counts_as_memory_and_warns(void **state)
{
    (void)state;
    char directory[] = "/dev/shm/sluice-command-XXXXXX";
    struct statfs info;
    if (statfs("/dev/shm", &info) != 0 || info.f_type != 0x01021994 || !mkdtemp(directory)) {
        skip_because("/dev/shm is no tmpfs here");
    }
    uint64_t sum = sum_budgets(directory);
    assert_has(complaint, "warning");
    assert_has(complaint, "is memory (tmpfs)");
    assert_code(sluice("train " TINY "--data text --steps 2 --quiet --policy nvme --disk-dir %s",
                       directory),
                0);
    assert_code(sluice("doctor --disk-dir %s", directory), 0);
    assert_has(output, "is tmpfs");
    assert_int_equal(rmdir(directory), 0);
    assert_true(sum < (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void doctor_when_asked_then_shows_the_limits_of_this_process(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu quota", "memory limit", "free to use", "locked memory",
                                        "disk tier"};
    assert_code(sluice("doctor --json"), 0);
    json_t *object = json_loads(output, 0, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!json_object_get(object, names[i]))
            fail_msg("doctor does not say \"%s\"", names[i]);
    json_decref(object);
}

static const char *get_text(json_t *finding, const char *key)
{
    const char *text = json_string_value(json_object_get(finding, key));
    assert_non_null(text);
    return text;
}

/* What is not as it could be costs something, and what costs nothing is. */
static void doctor_when_something_is_missing_then_says_what_it_costs_and_what_mends_it(void **state)
{
    (void)state;
    const char *name;
    json_t *finding;
    assert_code(sluice("doctor --json"), 0);
    json_t *object = json_loads(output, 0, NULL);
    assert_non_null(object);
    json_object_foreach(object, name, finding)
    {
        bool is_ok = strcmp(get_text(finding, "state"), "ok") == 0;
        if (is_ok != (*get_text(finding, "cost") == '\0'))
            fail_msg("%s is %s and costs \"%s\"", name, get_text(finding, "state"),
                     get_text(finding, "cost"));
    }
    finding = json_object_get(object, "disk space");
    assert_string_equal(get_text(finding, "state"), "missing");
    assert_non_null(strstr(get_text(finding, "mend"), "--disk-dir"));
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_when_beyond_the_machine_then_69_before_anything_is_taken),
        cmocka_unit_test(runs_when_together_beyond_the_machine_then_the_second_is_refused),
        cmocka_unit_test(runs_when_started_together_then_none_is_killed),
        cmocka_unit_test(run_when_the_machine_is_any_size_then_is_never_killed),
        cmocka_unit_test(run_when_addresses_run_out_then_says_so),
        cmocka_unit_test(disk_when_in_memory_then_counts_as_memory_and_warns),
        cmocka_unit_test(doctor_when_asked_then_shows_the_limits_of_this_process),
        cmocka_unit_test(
            doctor_when_something_is_missing_then_says_what_it_costs_and_what_mends_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
