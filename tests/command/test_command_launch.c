/* What could be wrong when several ranks are started: one is missing or doubled, or has not its
 * share of the cores; a signal kills the run in the place of stopping it; a rank that fails, dies
 * or is stopped leaves the others running or waiting, the exit code is another rank's, or nobody
 * says which rank, op and step it was; the launcher is killed and leaves ranks behind; a command
 * that knows nothing of ranks is started several times over. */
#define _GNU_SOURCE
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "command_run.h"
#include "scratch_dir.h"

static char tool[2 * PATH_BYTES];

static int find_tool(void **state)
{
    if (set_up(state) != 0)
        return -1;
    snprintf(tool, sizeof tool, "%.*s/tests/rank_steps", (int)(strlen(binary) - strlen("/sluice")),
             binary);
    return 0;
}

/* Runs a script of the shell: $sluice, $tool. */
static int run_script(const char *script)
{
    char command[COMMAND_BYTES + 4 * PATH_BYTES];
    snprintf(command, sizeof command, "sluice='%s' tool='%s'; (%s) >out 2>err", binary, tool,
             script);
    int status = system(command);
    read_text("out", output);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* How many processes have the tool's name, which is one of this test's directory. */
static size_t count_ranks(void)
{
    glob_t found;
    size_t count = 0;
    if (glob("/proc/[0-9]*/cmdline", GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char line[PATH_BYTES] = "";
        FILE *file = fopen(found.gl_pathv[i], "r");
        if (file && fread(line, 1, sizeof line - 1, file) > 0 && strcmp(line, tool) == 0)
            count++;
        if (file)
            fclose(file);
    }
    globfree(&found);
    return count;
}

static void assert_nothing_runs(void)
{
    for (int i = 0; i < 3000 && count_ranks() > 0; i++)
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_int_equal(count_ranks(), 0);
}

/* A name of the tool by which its processes are found. */
static int link_tool(void **state)
{
    if (find_tool(state) != 0)
        return -1;
    char here[PATH_BYTES];
    if (symlink(tool, "rank_steps") != 0 || !getcwd(here, sizeof here))
        return -1;
    snprintf(tool, sizeof tool, "%s/rank_steps", here);
    return 0;
}

static void ranks_when_started_do_their_steps_together(void **state)
{
    (void)state;
    assert_code(run_script("$sluice launch -n 3 -- $tool 20 0"), 0);
    assert_string_equal(output, "done after 20 steps of 3 ranks\n");
    assert_has(complaint, "starts 3 ranks of");
    assert_code(run_script("$sluice launch -n 1 $tool 2 0"), 0);
    assert_string_equal(output, "done after 2 steps of 1 ranks\n");
    assert_nothing_runs();
}

static void cores_when_there_are_enough_are_shared_out(void **state)
{
    (void)state;
    assert_code(run_script("$sluice launch -n 2 -- sh -c 'grep Cpus_allowed_list /proc/self/status "
                           "> cores.$SLUICE_RANK'; cat cores.0 cores.1"),
                0);
    cpu_set_t mine;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    const char *second = strstr(output + 1, "Cpus_allowed_list");
    assert_non_null(second);
    if (CPU_COUNT(&mine) > 1 && strncmp(output, second, strlen(second)) == 0)
        fail_msg("both ranks have the same cores: %s", output);
}

/* Starts ranks, and waits until all of them have done a step; $! is the launcher. */
#define START(ranks, ms)                                                                           \
    "export RANK_STEPS_SIGN=sign; rm -f sign; env --default-signal=INT $sluice launch -n " ranks   \
    " -- $tool 100000 " ms " & until [ -e sign ] || ! kill -0 $!; do sleep 0.02; done; "

static void signals_when_they_come_stop_all_ranks_in_good_order(void **state)
{
    (void)state;
    static const char *const names[] = {"INT", "TERM", "HUP", "USR1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char script[512];
        snprintf(script, sizeof script, "trap - INT; " START("2", "5") "kill -%s $!; wait $!",
                 names[i]);
        assert_code(run_script(script), 0);
        assert_has(output, "stopped after ");
    }
    assert_nothing_runs();
}

static const struct loss {
    const char *fate;
    int code;
    const char *says;
} losses[] = {
    {"leave 1 5", 74, "rank 1"},
    {"abort 1 5", 74, "gave up: the disk is full"},
    {"kill 2 5", 75, "rank 2 was ended by signal 9"},
    {"exit 0 5", 75, "rank 0 (process"},
    {"stop 1 5", 75,
     "stopped by a signal), last in step 4 at sum of ones did not come to all_reduce"},
};

static void ranks_when_one_is_lost_end_with_its_code_and_name(void **state)
{
    (void)state;
    setenv("RANK_STEPS_TIMEOUT", "1", 1);
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        char script[256];
        snprintf(script, sizeof script, "$sluice launch -n 3 -- $tool 100000 1 %s", losses[i].fate);
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        int code = run_script(script);
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_code(code, losses[i].code);
        assert_has(complaint, losses[i].says);
        if (end.tv_sec - start.tv_sec > 60)
            fail_msg("%s: ended after %ld s", losses[i].fate, (long)(end.tv_sec - start.tv_sec));
        assert_nothing_runs();
    }
    unsetenv("RANK_STEPS_TIMEOUT");
}

/* Soon, for the others do not wait until their patience ends. */
static void ranks_when_one_never_comes_end_at_once(void **state)
{
    (void)state;
    static const struct {
        const char *script, *says;
        int code;
    } cases[] = {{"exit 3", "ended with code 3", 3},
                 {"exit 0", "ended with code 0", 75},
                 {"kill -9 $$", "was ended by signal 9", 75}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char script[256], says[128];
        snprintf(
            script, sizeof script,
            "export tool; timeout 60 $sluice launch -n 3 -- sh -c '[ $SLUICE_RANK != 1 ] || %s; "
            "exec $tool 10 0'",
            cases[i].script);
        snprintf(says, sizeof says, "rank 1 of this machine %s before all ranks had come",
                 cases[i].says);
        assert_code(run_script(script), cases[i].code);
        assert_has(complaint, says);
        assert_nothing_runs();
    }
}

static void launcher_when_killed_leaves_nothing(void **state)
{
    (void)state;
    (void)run_script(START("3", "5") "kill -KILL $!; wait $!");
    assert_int_equal(access("sign", F_OK), 0);
    assert_nothing_runs();
}

static void command_lines_when_wrong_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int code;
        const char *says;
    } cases[] = {
        {"$sluice launch -- $tool 1 0", 64, "how many ranks?"},
        {"$sluice launch -n 2", 64, "what is to be run?"},
        {"$sluice launch -n 0 -- $tool", 64, "from 1 to 256"},
        {"$sluice launch -n 2x -- $tool", 64, "from 1 to 256"},
        {"$sluice launch -n 2 --hosts none -- $tool", 66, "none: cannot be opened"},
        {"$sluice launch -n 2 --hosts a --restarts 2 -- train --save b", 64,
         "ranks of this machine"},
        {"$sluice launch -n 2 -- ./nothing", 66, "cannot start ./nothing"},
        {"$sluice launch -n 2 -- doctor", 64, "doctor runs as one process"},
        {"$sluice lunch", 64, "launch"},
        {"SLUICE_RANK=5 SLUICE_RANKS=2 $sluice doctor", 64, "SLUICE_RANK is \"5\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(run_script(cases[i].script), cases[i].code);
        assert_has(complaint, cases[i].says);
    }
    assert_code(run_script("$sluice launch --help"), 0);
    assert_has(output, "sluice launch -n 2");
}

/* ---- what ranks say at their end ---- */

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        count++;
    }
    return count;
}

static void errors_when_several_ranks_have_the_same_are_said_once(void **state)
{
    (void)state;
    assert_code(run_script("$sluice launch -n 3 -- train --stepps 3"), 64);
    assert_has(complaint, "sluice: ranks 0-2: unknown option --stepps");
    assert_int_equal(count_of(complaint, "--stepps"), 1);
    assert_code(run_script("$sluice launch -n 3 -- train " TINY "--vocab 300 --data nowhere "
                           "--steps 1 --quiet"),
                66);
    assert_int_equal(count_of(complaint, "nowhere: cannot be opened"), 1);
}

/* ---- what a command is started with ---- */

static void files_when_their_size_is_limited_are_errors_of_every_command(void **state)
{
    (void)state;
    static const struct {
        const char *words, *code, *says;
    } cases[] = {{"launch -n 2 -- train --steps 1", "code 71", "File too large"},
                 {"tokenize --learn 300 --data text --tokenizer limited --output limited.bin",
                  "code 74", "File too large"},
                 {"plan " TINY "--vocab 300 --report limited.html", "code 74", "limited.html: "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char script[512];
        snprintf(script, sizeof script,
                 "{ (ulimit -f 0; exec $sluice %s); echo code $?; } 2>&1 | cat", cases[i].words);
        assert_code(run_script(script), 0);
        assert_has(output, cases[i].code);
        assert_has(output, cases[i].says);
    }
}

static void descriptors_when_closed_get_nothing_of_what_is_printed_in_files(void **state)
{
    (void)state;
    assert_code(run_script("$sluice train " TINY "--vocab 300 --data text --tokenizer byte "
                           "--threads 1 --steps 3 --log-json closed 0<&- 1>&- 2>&-"),
                0);
    json_t *events = read_log("closed"); /* fails where a line is no event */
    assert_true(json_array_size(events) >= 5);
    json_decref(events);
}

/* ---- signals during the start ---- */

static pid_t start_training(void)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "exec '%s' launch -n 2 -- train " TINY "--vocab 300 --data text --tokenizer byte "
             "--threads 1 --steps 1000000 --save begun --overwrite --quiet >out 2>err </dev/null",
             binary);
    const pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher == 0) {
        signal(SIGINT, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return launcher;
}

/* At any moment the run ends with 0, or the launcher itself before it took signals; and what is
 * said of the step is true. */
static void signals_when_they_come_during_the_start_end_the_run_with_0(void **state)
{
    (void)state;
    static const int kinds[] = {SIGTERM, SIGINT, SIGHUP};
    const int rounds = getenv("SL_TEST_FULL") ? 400 : 40;
    uint64_t draw = scratch_seed("moments", 1);
    for (int i = 0; i < rounds; i++) {
        const int number = kinds[i % 3];
        const uint64_t us = scratch_below(&draw, 200000);
        int ended;
        assert_int_equal(system("rm -rf begun; : >err"), 0);
        const pid_t launcher = start_training();
        nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
        kill(launcher, number);
        assert_int_equal(waitpid(launcher, &ended, 0), launcher);
        read_text("err", complaint);
        const bool is_early = WIFSIGNALED(ended) && WTERMSIG(ended) == number && !complaint[0];
        if (!is_early && (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0))
            fail_msg("signal %d after %llu us: state %x: %s", number, (unsigned long long)us,
                     (unsigned)ended, complaint);
        if (strstr(complaint, "is finished and saved") && access("begun/LATEST", F_OK) != 0)
            fail_msg("signal %d after %llu us: nothing is saved: %s", number,
                     (unsigned long long)us, complaint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines_when_wrong_are_refused),
        cmocka_unit_test(ranks_when_started_do_their_steps_together),
        cmocka_unit_test(cores_when_there_are_enough_are_shared_out),
        cmocka_unit_test(signals_when_they_come_stop_all_ranks_in_good_order),
        cmocka_unit_test(ranks_when_one_is_lost_end_with_its_code_and_name),
        cmocka_unit_test(ranks_when_one_never_comes_end_at_once),
        cmocka_unit_test(launcher_when_killed_leaves_nothing),
        cmocka_unit_test(errors_when_several_ranks_have_the_same_are_said_once),
        cmocka_unit_test(files_when_their_size_is_limited_are_errors_of_every_command),
        cmocka_unit_test(descriptors_when_closed_get_nothing_of_what_is_printed_in_files),
        cmocka_unit_test(signals_when_they_come_during_the_start_end_the_run_with_0),
    };
    return cmocka_run_group_tests(tests, link_tool, tear_down);
}
