/* What could be wrong when mpirun starts the ranks of several machines: a name of the file becomes
 * an option; ranks go elsewhere than the file says, or there are fewer of them; they compute what
 * ranks of one machine do not; a warning comes once a rank, or is lost; a signal to the launcher
 * kills them unsaved; the exit code is lost; something stays behind. Machines are names of this
 * one: nothing here goes over a network. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <linux/magic.h>

#include "command_run.h"
#include "skip.h"

enum { PATIENCE_S = 120 };

#define MODEL                                                                                      \
    "--layers 1 --width 16 --heads 2 --context 16 --micro-batch 1 --data text --device cpu "       \
    "--threads 1 --device-memory 64M --host-memory 64M --quiet "

static char inherited_path[COMMAND_BYTES];

static void __attribute__((format(printf, 1, 2))) run_shell(const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    assert_int_equal(system(command), 0);
}

/* mpirun is, first of all, what `bin` holds. */
static void take_path(void)
{
    char path[2 * COMMAND_BYTES], here[PATH_BYTES];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(path, sizeof path, "%s/bin:%s", here, inherited_path);
    setenv("PATH", path, 1);
}

/* An mpirun that is of an MPI, and says what it was given. */
static void write_stub(const char *version)
{
    run_shell("mkdir -p bin && rm -f bin/mpirun && printf '%%s\\n' '#!/bin/sh' "
              "'[ \"$1\" = --version ] && { echo \"%s\"; exit; }' "
              "'echo \"$@\"; exit 9' >bin/mpirun && chmod +x bin/mpirun",
              version);
    take_path();
}

static bool find_mpi(const char *name)
{
    char command[PATH_BYTES];
    snprintf(command, sizeof command,
             "mkdir -p bin && rm -f bin/mpirun && p=$(command -v %s) && "
             "printf '#!/bin/sh\\nexec %%s \"$@\"\\n' \"$p\" >bin/mpirun && chmod +x bin/mpirun",
             name);
    bool is_there = system(command) == 0;
    take_path();
    return is_there;
}

/* ---- what mpirun is given ---- */

static void ranks_when_shared_out_are_where_the_file_says(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        int ranks;
        const char *list;
    } cases[] = {
        {"a\\nb\\nc\\n", 7, "a:3,b:2,c:2 "},
        {"a\\nb\\nc\\n", 2, "a:1,b:1 "},
        {"# ours\\n\\n  a.example.org slots=4 # the first\\nb-1:2\\n", 5, "a.example.org:4,b-1:1 "},
        {"10.0.0.1:2\\r\\n10.0.0.2 slots=2\\r\\n", 2, "10.0.0.1:2 "},
        {"a slots=1\\nb slots=65535", 256, "a:1,b:255 "},
    };
    setenv("SLUICE_SAID", "x", 1);
    for (int is_mpich = 0; is_mpich < 2; is_mpich++) {
        write_stub(is_mpich ? "HYDRA build details:" : "mpirun (Open MPI) 4.1.4");
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char wanted[PATH_BYTES];
            run_shell("printf -- '%s' >hosts", cases[i].lines);
            assert_code(sluice("launch -n %d --hosts hosts -- train --tp 2", cases[i].ranks), 9);
            snprintf(wanted, sizeof wanted, "%s %s", is_mpich ? "-hosts" : "--host", cases[i].list);
            assert_has(output, wanted);
            assert_has(complaint, wanted); /* and says so */
            assert_has(output, "/sluice train --tp 2\n");
            assert_true(is_mpich || strstr(output, " -x SLUICE_SAID "));
        }
    }
    unsetenv("SLUICE_SAID");
}

static void files_when_wrong_are_refused_before_anything_runs(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        int code;
        const char *says;
    } cases[] = {
        {"", 65, "no machine is named"},
        {"# a\\n\\n", 65, "no machine is named"},
        {"-x\\n", 65, "line 1 is none of"},
        {"a\\n--host\\n", 65, "line 2 is none of"},
        {"a,b\\n", 65, "line 1 is none of"},
        {"a b\\n", 65, "line 1 is none of"},
        {"a slots=0\\n", 65, "line 1 is none of"},
        {"a slots=2x\\n", 65, "line 1 is none of"},
        {"a slots=99999999999999999999\\n", 65, "line 1 is none of"},
        {"a:2 slots=2\\n", 65, "line 1 is none of"},
        {"a slots=2 slots=2\\n", 65, "line 1 is none of"},
        {"a;b\\n", 65, "line 1 is none of"},
        {"$(b)\\n", 65, "line 1 is none of"},
        {"\\033[2J\\n", 65, "line 1 is none of"},
        {"a slots=2\\nb\\n", 65, "for all machines, or for none"},
        {"a slots=2\\nb:1\\n", 64, "slots for 3 ranks, and -n asks for 4"},
    };
    write_stub("mpirun (Open MPI) 4.1.4");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_shell("printf -- '%s' >hosts", cases[i].lines);
        assert_code(sluice("launch -n 4 --hosts hosts -- train"), cases[i].code);
        assert_one_complaint(cases[i].says);
    }
    run_shell("for i in $(seq 5000); do echo a$i; done >hosts");
    assert_code(sluice("launch -n 4 --hosts hosts -- train"), 65);
    assert_one_complaint("line 4097");
    assert_code(sluice("launch -n 4 --hosts nothing -- train"), 66);
    assert_one_complaint("nothing: cannot be opened");
}

static void mpirun_when_none_or_another_is_said(void **state)
{
    (void)state;
    run_shell("echo a >hosts");
    write_stub("some other mpirun");
    assert_code(sluice("launch -n 1 --hosts hosts -- train"), 64);
    assert_one_complaint("neither Open MPI's nor MPICH's");
    run_shell("printf '#!/bin/sh\\nexit 1\\n' >bin/mpirun");
    assert_code(sluice("launch -n 1 --hosts hosts -- train"), 66);
    assert_one_complaint("--hosts needs mpirun");
}

/* ---- real ones ---- */

/* Two names of this machine are two machines to MPICH, with a starter each, and one to Open MPI. */
static void write_names_of_this_machine(bool has_two)
{
    if (has_two)
        run_shell("printf 'localhost slots=2\\n%%s slots=2\\n' \"$(hostname)\" >hosts");
    else
        run_shell("echo localhost >hosts");
}

static void for_each_mpi(void (*body)(void))
{
    static const char *const names[] = {"mpirun.openmpi", "mpirun.mpich"};
    bool has_one = false;
    for (int i = 0; i < 2; i++) {
        if (!find_mpi(names[i]))
            continue;
        print_message("%s\n", names[i]);
        write_names_of_this_machine(i == 0);
        body();
        has_one = true;
    }
    if (!has_one)
        skip_because("no MPI is installed");
}

static void train_as_launch_does(void)
{
    assert_code(sluice("launch -n 4 --hosts hosts -- train " MODEL "--tp 2 --steps 4 "
                       "--log-json log"),
                0);
    assert_code(sluice("launch -n 4 -- train " MODEL "--tp 2 --steps 4 --log-json other"), 0);
    assert_same_steps("log", "other", 1, 4);
    const int code = sluice("launch -n 2 --hosts hosts -- train " MODEL "--data none --steps 4");
    /* One rank ends with 66, the other, which is told of that, with 75. MPICH's mpirun hands out
     * the bitwise or of both, which is 75; Open MPI's the code of the rank that it sees end first.
     */
    assert_code(code, code == 75 ? 75 : 66);
    assert_has(complaint, "none: cannot be opened");
}

static void ranks_when_mpirun_starts_them_train_as_those_of_launch(void **state)
{
    (void)state;
    for_each_mpi(train_as_launch_does);
}

/* The ranks of the shell's pattern `second` count as those of another machine. They exchange by the
 * MPI, whose own leaks are left out. */
static int train_on_machines(const char *second)
{
    run_shell("printf '%%s\n' '#!/bin/sh' 'SLUICE_MACHINE=a' "
              "'case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in %s) SLUICE_MACHINE=b ;; esac' "
              "'export SLUICE_MACHINE ASAN_OPTIONS=\"detect_leaks=0:$ASAN_OPTIONS\"' "
              "'exec \"$0.program\" train \"$@\"' >ranks.sh && chmod +x ranks.sh && ln -sf '%s' "
              "ranks.sh.program && rm -f log",
              second, binary);
    return sluice("launch -n 4 --hosts hosts -- $PWD/ranks.sh --layers 2 --width 32 --heads 4 "
                  "--context 16 --data text --device cpu --threads 1 --device-memory 64M "
                  "--host-memory 64M --tp auto --pp auto --zero auto --global-batch 8 --steps 2 "
                  "--log-json log");
}

static void choose_over_machines(void)
{
    assert_code(train_on_machines("2|3"), 0);
    assert_has(complaint, "auto measured what joins the 2 machines: ");
    assert_has(complaint, "on 4 ranks of 2 machines, ");
    json_t *log = read_log("log");
    const json_t *plan = json_object_get(find_last_event(log, "start"), "plan");
    const json_t *layout = json_object_get(plan, "layout");
    const json_t *rate = json_object_get(json_object_get(layout, "network"), "byte_rate");
    assert_int_equal(json_integer_value(json_object_get(layout, "machines")), 2);
    assert_true(json_number_value(rate) > 0);
    json_decref(log);
    const char *const others[] = {"3", "1|3"}; /* three and one; not in order */
    for (int i = 0; i < 2; i++) {
        assert_true(train_on_machines(others[i]) != 0);
        assert_has(complaint, "--tp auto needs as many ranks on each of the 2 machines");
    }
}

static void layout_when_chosen_over_machines_knows_what_joins_them(void **state)
{
    (void)state;
    for_each_mpi(choose_over_machines);
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t found = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        found++;
    return found;
}

/* The disk tier of these ranks, a pattern of the shell, lies in memory, which is warned of. */
static void run_with_disk_in_memory(const char *ranks)
{
    run_shell("printf '%%s\n' '#!/bin/sh' "
              "'case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in %s) d=/dev/shm ;; *) d=. ;; esac' "
              "'exec \"$0.program\" train \"$@\" --disk-dir $d' >ranks.sh && chmod +x ranks.sh && "
              "ln -sf '%s' ranks.sh.program",
              ranks, binary);
    assert_code(sluice("launch -n 3 --hosts hosts -- $PWD/ranks.sh " MODEL
                       "--dp 3 --policy nvme --steps 1"),
                0);
}

static void warn_once(void)
{
    run_with_disk_in_memory("*");
    assert_int_equal(count_of(complaint, "is memory (tmpfs)"), 1);
    assert_has(complaint, "sluice: warning: --disk-dir /dev/shm");
    run_with_disk_in_memory("1|2");
    assert_int_equal(count_of(complaint, "is memory (tmpfs)"), 1);
    assert_has(complaint, "sluice: warning: rank 1: --disk-dir /dev/shm");
}

static void warnings_when_several_ranks_have_them_are_printed_once(void **state)
{
    (void)state;
    struct statfs info;
    if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC)
        skip_because("/dev/shm is no tmpfs");
    for_each_mpi(warn_once);
}

static void await_steps(pid_t launcher)
{
    struct stat info;
    struct timespec now, start;
    const struct timespec pause = {.tv_nsec = 10000000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (stat("log", &info) != 0 || info.st_size < 8192) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > PATIENCE_S) {
            kill(launcher, SIGKILL);
            read_complaint("err");
            fail_msg("no steps: %s", complaint);
        }
        nanosleep(&pause, NULL);
    }
}

static void stop_in_good_order(void)
{
    char command[COMMAND_BYTES];
    int ended;
    run_shell("rm -rf log kept");
    snprintf(command, sizeof command,
             "exec '%s' launch -n 4 --hosts hosts -- train " MODEL
             "--tp 2 --steps 10000000 --save kept --log-json log >out 2>err </dev/null",
             binary);
    pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    await_steps(launcher);
    kill(launcher, SIGTERM);
    assert_int_equal(waitpid(launcher, &ended, 0), launcher);
    read_complaint("err");
    assert_true(WIFEXITED(ended));
    assert_code(WEXITSTATUS(ended), 0);
    run_shell("ls kept/step-*/model.safetensors >/dev/null");
}

/* Ends although the file does not. */
static void file_when_it_has_no_end_is_refused(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 2 --hosts /dev/zero -- train"), 65);
    assert_has(complaint, "/dev/zero: line 1 is none of");
    run_shell("mkfifo endless; (yes '# no machine' >endless 2>/dev/null || true) &");
    assert_code(sluice("launch -n 2 --hosts endless -- train"), 65);
    assert_has(complaint, "endless: line 65537 is none of");
}

static void launcher_when_told_to_end_stops_them_saved(void **state)
{
    (void)state;
    for_each_mpi(stop_in_good_order);
}

static int set_up_hosts(void **state)
{
    snprintf(inherited_path, sizeof inherited_path, "%s", getenv("PATH"));
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return set_up(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_when_shared_out_are_where_the_file_says),
        cmocka_unit_test(files_when_wrong_are_refused_before_anything_runs),
        cmocka_unit_test(file_when_it_has_no_end_is_refused),
        cmocka_unit_test(mpirun_when_none_or_another_is_said),
        cmocka_unit_test(ranks_when_mpirun_starts_them_train_as_those_of_launch),
        cmocka_unit_test(layout_when_chosen_over_machines_knows_what_joins_them),
        cmocka_unit_test(warnings_when_several_ranks_have_them_are_printed_once),
        cmocka_unit_test(launcher_when_told_to_end_stops_them_saved),
    };
    return cmocka_run_group_tests(tests, set_up_hosts, tear_down);
}
