/* What could be wrong here: a signal that users and machines send ends a run unsaved (a terminal
 * that closes, a reader that goes away, a log that cannot grow), or one that was ignored on purpose
 * ends it at all; nothing is said until a long step is over, or before the first one; a save is cut
 * that would have been whole. Every case runs the built command. What is
 * timed is timed by what the run shows: its log, its checkpoints, its words. */
#define _GNU_SOURCE
#include "command_run.h"
#include "skip.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

enum { POLL_NS = 1000000, POLLS_MAX = 60000, TRIES = 8 };

#define SMALL "--layers 2 --width 128 --heads 2 --context 128 --micro-batch 4 --data text "
#define ENDLESS "--steps 1000000 --log-json log "

/* A step of half a second, and a save of as long: sanitizers make small ones of them last. */
#ifdef __SANITIZE_ADDRESS__
#define SLOW_STEP SMALL
#define LONG_SAVE "--layers 4 --width 256 --heads 4 --context 16 --micro-batch 1 --data text "
#else
#define SLOW_STEP "--layers 6 --width 384 --heads 6 --context 512 --micro-batch 16 --data text "
#define LONG_SAVE "--layers 8 --width 512 --heads 8 --context 16 --micro-batch 1 --data text "
#endif

/* ---- a run beside the test ---- */

/* Starts `BEFORE sluice train ARGUMENTS` with its words in the files out and err. */
static pid_t start(const char *before, const char *arguments)
{
    char command[2 * COMMAND_BYTES];
    snprintf(command, sizeof command, "%s exec '%s' train %s >out 2>err </dev/null", before, binary,
             arguments);
    unlink("log");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no endless run */
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void pause_briefly(void)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    nanosleep(&pause, NULL);
}

static int count_steps(void)
{
    static char text[TEXT_BYTES];
    int count = 0;
    FILE *file = fopen("log", "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    for (char *at = text; (at = strstr(at, "\"event\":\"step\"")); at++)
        count++;
    return count;
}

static void wait_for_steps(int count)
{
    for (int polls = 0; polls < POLLS_MAX; polls++) {
        if (count_steps() >= count)
            return;
        pause_briefly();
    }
    fail_msg("the run does not get to step %d", count);
}

static bool has_said(const char *name, const char *words)
{
    static char text[TEXT_BYTES];
    read_text(name, text);
    return strstr(text, words) != NULL;
}

/* The exit code, or 1000 + the signal that ended it. */
static int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    read_text("out", output);
    read_complaint("err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Checkpoints of a directory; with `is_unfinished` those that are not published yet. */
static int count_checkpoints(const char *path, bool is_unfinished)
{
    int count = 0;
    DIR *directory = opendir(path);
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry;
         entry = readdir(directory))
        count +=
            strncmp(entry->d_name, "step-", 5) == 0 &&
            strncmp(entry->d_name, "step-00000000", 13) != 0 && /* tried before the first step */
            (strstr(entry->d_name, ".tmp") != NULL) == is_unfinished;
    if (directory)
        closedir(directory);
    return count;
}

/* ---- hanging up ---- */

static void hangup_when_training_then_saves_and_leaves_with_0(void **state)
{
    (void)state;
    pid_t child = start("", SMALL ENDLESS "--save hung");
    wait_for_steps(1);
    kill(child, SIGHUP);
    for (int polls = 0; polls < POLLS_MAX && !has_said("err", "stopping"); polls++)
        pause_briefly();
    kill(child, SIGHUP); /* a terminal that closes says it twice */
    assert_code(wait_for(child), 0);
    assert_has(output, "saved in hung");
    assert_int_equal(count_checkpoints("hung", false), 1);
}

static void hangup_when_ignored_at_the_start_then_goes_on(void **state)
{
    (void)state;
    pid_t child = start("trap '' HUP;", SMALL ENDLESS "--save nohup");
    wait_for_steps(1);
    int before = count_steps();
    kill(child, SIGHUP);
    wait_for_steps(before + 3);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    assert_false(has_said("err", "stopping"));
    kill(child, SIGTERM);
    assert_code(wait_for(child), 0);
    assert_has(complaint, "stopping");
}

static void stop_when_ignored_at_the_start_then_goes_on(void **state)
{
    (void)state;
    pid_t child = start("trap '' INT TERM;", SMALL ENDLESS "--save ignored");
    wait_for_steps(1);
    int before = count_steps();
    kill(child, SIGINT);
    kill(child, SIGTERM);
    wait_for_steps(before + 3);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    assert_false(has_said("err", "stopping"));
    kill(child, SIGHUP);
    assert_code(wait_for(child), 0);
    assert_has(output, "saved in ignored");
}

/* As timeout(1) does: to the command, and then to its own group, which is the command's too. On a
 * busy machine too much time may pass between the two: then once more. */
static void stop_when_said_twice_at_once_then_is_one_signal(void **state)
{
    (void)state;
    for (int tries = 0; tries < TRIES; tries++) {
        pid_t child = start("", SMALL ENDLESS "--save timed --overwrite");
        wait_for_steps(1);
        kill(child, SIGTERM);
        pause_briefly();
        kill(child, SIGTERM);
        int code = wait_for(child);
        if (code == 130)
            continue;
        assert_code(code, 0);
        assert_has(output, "saved in timed");
        return;
    }
    fail_msg("two signals at once were never taken for one");
}

/* ---- before the first step ---- */

/* A file of /proc/PID; "" where it cannot be read. */
static void read_process(pid_t child, const char *name, char *out_text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)child, name);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(out_text, 1, TEXT_BYTES - 1, file) : 0;
    out_text[length] = '\0';
    if (file)
        fclose(file);
}

/* The command itself, and no longer the shell that becomes it. */
static bool catches(pid_t child, int number)
{
    static char text[TEXT_BYTES];
    char path[64], program[PATH_BYTES] = "";
    snprintf(path, sizeof path, "/proc/%d/exe", (int)child);
    if (readlink(path, program, sizeof program - 1) < 0 || strcmp(program, binary) != 0)
        return false;
    read_process(child, "status", text);
    const char *caught = strstr(text, "SigCgt:");
    return caught && (strtoull(caught + 7, NULL, 16) >> (number - 1) & 1);
}

/* The run opens its log last of all, and this one is a pipe that nobody reads: it waits there for
 * as long as it is wanted. What was to be replaced is still there, and nothing new. */
static void stop_when_training_has_not_begun_then_says_so_and_nothing_is_lost(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    assert_code(sluice("train " TINY "--data text --steps 2 --save early --quiet"), 0);
    for (int i = 0; i < 3; i++) {
        unlink("gate");
        assert_int_equal(mkfifo("gate", 0600), 0);
        pid_t child =
            start("", TINY "--data text --steps 9 --save early --overwrite --log-json gate");
        for (int polls = 0; polls < POLLS_MAX && !catches(child, signals[i]); polls++)
            pause_briefly();
        kill(child, signals[i]);
        assert_code(wait_for(child), 0);
        assert_one_complaint("the training had not begun, and nothing is lost");
        assert_int_equal(count_checkpoints("early", false), 1);
        assert_int_equal(count_checkpoints("early", true), 0);
        assert_int_equal(access("early/step-00000002/manifest.json", F_OK), 0);
    }
}

/* ---- what is said, and when ---- */

/* Two signals in one step: whether both came before it ended. The step can end between looking and
 * sending; then the second one came in the save that follows. */
static bool stop_within_a_step(const char *directory)
{
    char arguments[COMMAND_BYTES];
    snprintf(arguments, sizeof arguments, SLOW_STEP ENDLESS "--save %s", directory);
    pid_t child = start("", arguments);
    wait_for_steps(1);
    int before = count_steps();
    kill(child, SIGINT);
    while (count_steps() == before && !has_said("err", "finished and saved in slow"))
        pause_briefly();
    bool is_said = has_said("err", "finished and saved in slow");
    bool is_within = is_said && count_steps() == before;
    kill(child, SIGTERM);
    int code = wait_for(child);
    if (!is_within || !strstr(complaint, "leaving at once"))
        return false;
    assert_code(code, 130);
    return true;
}

static void stop_when_a_step_is_long_then_is_announced_within_it(void **state)
{
    (void)state;
    bool is_announced = false;
    for (int tries = 0; tries < TRIES && !is_announced; tries++) {
        char directory[32];
        snprintf(directory, sizeof directory, "slow-%d", tries);
        is_announced = stop_within_a_step(directory);
    }
    assert_true(is_announced);
}

static void stop_when_nothing_is_saved_then_says_so(void **state)
{
    (void)state;
    pid_t child = start("", SMALL ENDLESS);
    wait_for_steps(1);
    kill(child, SIGINT);
    assert_code(wait_for(child), 0);
    assert_has(complaint, "nothing is saved (no --save)");
}

/* ---- in a save ---- */

/* A run that is in the middle of its first save. */
static pid_t start_save(const char *directory)
{
    char arguments[COMMAND_BYTES];
    snprintf(arguments, sizeof arguments, LONG_SAVE ENDLESS "--save-every 2 --keep 2 --save %s",
             directory);
    pid_t child = start("", arguments);
    for (int polls = 0; polls < POLLS_MAX; polls++) {
        if (count_checkpoints(directory, true) > 0)
            return child;
        pause_briefly();
    }
    fail_msg("the run does not save");
    return child;
}

/* Signals that came when the save was over say nothing of saves: then once more. */
static void second_signal_when_saving_then_waits_for_the_checkpoint(void **state)
{
    (void)state;
    for (int tries = 0; tries < TRIES; tries++) {
        char directory[32];
        snprintf(directory, sizeof directory, "twice-%d", tries);
        pid_t child = start_save(directory);
        kill(child, SIGINT);
        for (int polls = 0; polls < POLLS_MAX && !has_said("err", "stopping"); polls++)
            pause_briefly();
        kill(child, SIGTERM);
        int code = wait_for(child);
        if (!strstr(complaint, "leaving when it is whole"))
            continue;
        assert_code(code, 130);
        assert_has(complaint, "stopping when this checkpoint is written");
        assert_int_equal(count_checkpoints(directory, false), 1);
        assert_int_equal(count_checkpoints(directory, true), 0);
        return;
    }
    fail_msg("no signal came in a save");
}

static void third_signal_when_saving_then_leaves_at_once(void **state)
{
    (void)state;
    for (int tries = 0; tries < TRIES; tries++) {
        char directory[32];
        snprintf(directory, sizeof directory, "thrice-%d", tries);
        pid_t child = start_save(directory);
        kill(child, SIGINT);
        for (int polls = 0; polls < POLLS_MAX && !has_said("err", "stopping"); polls++)
            pause_briefly();
        kill(child, SIGTERM);
        for (int polls = 0; polls < 100 && !has_said("err", "leaving when"); polls++)
            pause_briefly();
        kill(child, SIGINT);
        int code = wait_for(child);
        if (!strstr(complaint, "leaving amid a save"))
            continue;
        assert_code(code, 130);
        assert_int_equal(count_checkpoints(directory, true), 1);
        return;
    }
    fail_msg("no signal came in a save");
}

/* Fills a pipe, so that who writes there waits; returns how much it took. */
static size_t fill_pipe(int end)
{
    static const char dots[4096];
    size_t bytes = 0;
    int flags = fcntl(end, F_GETFL);
    assert_int_equal(fcntl(end, F_SETFL, flags | O_NONBLOCK), 0);
    for (ssize_t done; (done = write(end, dots, sizeof dots)) > 0;)
        bytes += (size_t)done;
    assert_int_equal(fcntl(end, F_SETFL, flags), 0);
    return bytes;
}

/* Whether the process waits in a write to standard error. */
static bool waits_in_complaint(pid_t child)
{
    static char text[TEXT_BYTES];
    char expected[32];
    snprintf(expected, sizeof expected, "%d 0x2 ", SYS_write);
    read_process(child, "syscall", text);
    return strncmp(text, expected, strlen(expected)) == 0;
}

/* Reads what lies behind the first bytes of a pipe, up to its end. */
static void read_behind(int end, size_t skipped, char *out_text)
{
    size_t length = 0;
    char byte;
    for (size_t at = 0; read(end, &byte, 1) == 1; at++)
        if (at >= skipped && length + 1 < TEXT_BYTES)
            out_text[length++] = byte;
    out_text[length] = '\0';
}

/* The run waits while it says that the save failed, for nobody reads that; a signal then comes
 * after a save and not in one. */
static void signal_when_a_save_has_failed_then_is_not_one_in_a_save(void **state)
{
    (void)state;
    int status, polls = 0;
    unlink("err");
    assert_int_equal(mkfifo("err", 0600), 0);
    int full = open("err", O_RDWR | O_CLOEXEC), end = open("err", O_RDONLY | O_CLOEXEC);
    assert_true(full >= 0 && end >= 0);
    size_t filled = fill_pipe(full);
    assert_int_equal(mkdir("failing", 0700), 0);
    pid_t child = start("", SMALL ENDLESS "--save-every 2 --keep 2 --save failing/here");
    wait_for_steps(1);
    assert_int_equal(rename("failing", "moved"), 0);
    assert_int_equal(symlink("text", "failing"), 0); /* no directory any more */
    for (; polls < POLLS_MAX && !waits_in_complaint(child); polls++)
        pause_briefly();
    kill(child, polls < POLLS_MAX ? SIGINT : SIGKILL);
    pause_briefly();
    close(full);
    read_behind(end, filled, complaint);
    close(end);
    unlink("err");
    assert_int_equal(waitpid(child, &status, 0), child);
    if (polls == POLLS_MAX) {
        skip_because("/proc does not say what a process waits for");
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 74);
    assert_has(complaint, "failing");
    assert_has(complaint, "stopping: this step is finished");
    assert_null(strstr(complaint, "when this checkpoint is written"));
}

/* ---- what a run that goes on holds open ---- */

/* What it went on from is removed by --keep: its space must be free then, not when the run ends. */
static void resumed_run_when_its_checkpoint_goes_then_holds_none_of_it(void **state)
{
    (void)state;
    assert_code(wait_for(start("", SMALL "--steps 2 --save held")), 0);
    pid_t child = start("", SMALL ENDLESS "--save held --resume --save-every 1 --keep 1");
    wait_for_steps(4);
    bool holds = holds_deleted(child, ".safetensors");
    kill(child, SIGTERM);
    assert_code(wait_for(child), 0);
    assert_int_equal(count_checkpoints("held", false), 1);
    assert_false(holds);
}

/* ---- output that cannot be written ---- */

static void pipe_when_its_reader_goes_then_training_goes_on(void **state)
{
    (void)state;
    assert_int_equal(system("mkfifo words"), 0);
    char command[COMMAND_BYTES + PATH_BYTES];
    snprintf(command, sizeof command,
             "(head -n 1 words >first) & '%s' train " TINY
             "--data text --steps 30 --save piped >words 2>err </dev/null",
             binary);
    assert_int_equal(system(command), 0);
    assert_int_equal(count_checkpoints("piped", false), 1);
}

/* Of other commands a pipe without a reader is the end, as of any filter. */
static void pipe_when_its_reader_goes_then_plan_ends(void **state)
{
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    close(ends[0]); /* before there is anyone to write */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[1]);
        execl(binary, binary, "--help", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

/* A log that takes two lines and then none; the timeline is whole. */
static void log_when_it_takes_no_more_then_the_run_is_saved_and_74(void **state)
{
    (void)state;
    assert_int_equal(system("mkfifo pipe"), 0);
    assert_int_equal(system("(head -n 2 pipe >lines) &"), 0);
    assert_code(sluice("train " TINY "--data text --steps 60 --save unlogged --log-json pipe "
                       "--timeline drawn"),
                74);
    assert_has(complaint, "sluice: warning: pipe: ");
    assert_has(complaint, "the run goes on");
    assert_has(complaint, "\nsluice: pipe: ");
    assert_int_equal(access("unlogged/step-00000060", F_OK), 0);
    assert_int_equal(system("tail -n 1 drawn | grep -qx ']'"), 0);
    assert_has(output, "planned peak");
}

static void timeline_when_its_disk_is_full_then_the_run_is_saved_and_74(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        skip_because("no /dev/full here");
    }
    assert_code(sluice("train " TINY "--data text --steps 60 --save undrawn --timeline /dev/full"),
                74);
    assert_has(complaint, "the run goes on");
    assert_int_equal(access("undrawn/step-00000060", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hangup_when_training_then_saves_and_leaves_with_0),
        cmocka_unit_test(hangup_when_ignored_at_the_start_then_goes_on),
        cmocka_unit_test(stop_when_said_twice_at_once_then_is_one_signal),
        cmocka_unit_test(stop_when_ignored_at_the_start_then_goes_on),
        cmocka_unit_test(stop_when_training_has_not_begun_then_says_so_and_nothing_is_lost),
        cmocka_unit_test(stop_when_a_step_is_long_then_is_announced_within_it),
        cmocka_unit_test(stop_when_nothing_is_saved_then_says_so),
        cmocka_unit_test(second_signal_when_saving_then_waits_for_the_checkpoint),
        cmocka_unit_test(third_signal_when_saving_then_leaves_at_once),
        cmocka_unit_test(signal_when_a_save_has_failed_then_is_not_one_in_a_save),
        cmocka_unit_test(resumed_run_when_its_checkpoint_goes_then_holds_none_of_it),
        cmocka_unit_test(pipe_when_its_reader_goes_then_training_goes_on),
        cmocka_unit_test(pipe_when_its_reader_goes_then_plan_ends),
        cmocka_unit_test(log_when_it_takes_no_more_then_the_run_is_saved_and_74),
        cmocka_unit_test(timeline_when_its_disk_is_full_then_the_run_is_saved_and_74),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
