/* What could be wrong here: a run that is killed leaves no valid checkpoint, or one that is not
 * what it says, or the run that goes on from it is not the run that was never killed. A run is
 * killed at moments that are uniform over its duration, in training and in saving, goes on in the
 * next of the three placements, is killed again, until it ends; its files and logged numbers are
 * then compared with those of the run in one piece.
 *
 * Moments depend on the machine: a seed repeats the draw, not the place in the program. */
#define _GNU_SOURCE
#include "command_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "scratch_dir.h"

static const char *const ways[] = {
    "--policy device",
    "--policy host",
    "--policy static --offload-params 0.5 --offload-optimizer 0.5",
};

enum { WAY_COUNT = sizeof ways / sizeof ways[0], STEPS = 40, SAVE_EVERY = 2 };

typedef struct tally {
    uint64_t kills, before_first_save, inside_save, resumes, ends;
} tally;

/* ---- running ---- */

static double read_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static pid_t start(const char *way, const char *directory_name)
{
    char command[COMMAND_BYTES + PATH_BYTES];
    snprintf(command, sizeof command,
             "exec '%s' train " TINY "--data text --steps %d --save %s --save-every %d --keep 2 "
             "--resume --quiet --log-json %s.log %s >out 2>err </dev/null",
             binary, STEPS, directory_name, SAVE_EVERY, directory_name, way);
    FILE *fresh = fopen("err", "w"); /* a run that is killed before it speaks has said nothing */
    assert_non_null(fresh);
    fclose(fresh);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Waits for a run that was left alone or killed; true if it ended by itself. */
static bool wait_for_end(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    read_text("err", complaint);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("left with %d: %s", WEXITSTATUS(status), complaint);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        fail_msg("died of signal %d: %s", WTERMSIG(status), complaint);
    return WIFEXITED(status);
}

static double measure(const char *way, const char *directory_name)
{
    double started = read_seconds();
    assert_true(wait_for_end(start(way, directory_name)));
    return read_seconds() - started;
}

static bool run_until(const char *way, double seconds)
{
    pid_t child = start(way, "killed");
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    nanosleep(&pause, NULL);
    kill(child, SIGKILL); /* one that has ended waits to be asked how */
    return wait_for_end(child);
}

/* ---- looking ---- */

typedef struct remains {
    long long newest; /* step of the newest name that a reader may take; 0: none */
    bool has_unfinished;
} remains;

static remains look(void)
{
    remains found = {0};
    DIR *stream = opendir("killed");
    struct dirent *entry;
    while (stream && (entry = readdir(stream)) != NULL) {
        long long step = 0;
        int length = 0;
        if (strstr(entry->d_name, "tmp") || strstr(entry->d_name, "trash"))
            found.has_unfinished = true;
        else if (sscanf(entry->d_name, "step-%8lld%n", &step, &length) == 1 &&
                 entry->d_name[length] == '\0' && step > found.newest)
            found.newest = step;
    }
    if (stream)
        closedir(stream);
    return found;
}

/* LATEST is never ahead of the checkpoint it names. */
static void assert_latest_is_there(void)
{
    char name[64] = "", path[PATH_BYTES];
    FILE *file = fopen("killed/LATEST", "r");
    if (!file)
        return;
    bool is_whole = fscanf(file, "%63s", name) == 1 && fgetc(file) == '\n';
    fclose(file);
    snprintf(path, sizeof path, "killed/%s/manifest.json", name);
    if (!is_whole || access(path, F_OK) != 0)
        fail_msg("LATEST names \"%s\", which is not there", name);
}

/* Compares every logged step with that of the run in one piece, and returns the last one. The
 * kernel may cut a line that is being written; only the last one of the log may be cut. */
static long long check_log(const json_t *whole)
{
    long long last = 0;
    char line[1 << 14];
    FILE *file = fopen("killed.log", "r");
    while (file && fgets(line, sizeof line, file)) {
        json_t *event = strchr(line, '\n') ? json_loads(line, 0, NULL) : NULL;
        if (!event && !feof(file) && strchr(line, '\n'))
            fail_msg("not a line of JSON: %s", line);
        if (event && strcmp(kind_of(event), "step") == 0) {
            last = json_integer_value(json_object_get(event, "step"));
            numbers expected = find_step(whole, last);
            if (json_number_value(json_object_get(event, "loss")) != expected.loss ||
                json_number_value(json_object_get(event, "grad_norm")) != expected.grad_norm)
                fail_msg("step %lld is not that of the run in one piece", last);
        }
        json_decref(event);
    }
    if (file)
        fclose(file);
    return last;
}

/* A step is logged after the save before it: that one has to be found. */
static remains judge_remains(const json_t *whole, tally *count)
{
    remains found = look();
    long long logged = check_log(whole);
    long long saved = logged > 0 ? (logged - 1) / SAVE_EVERY * SAVE_EVERY : 0;
    assert_latest_is_there();
    if (found.newest < saved)
        fail_msg("step %lld was logged, but the newest checkpoint is of %lld", logged,
                 found.newest);
    count->kills++;
    count->before_first_save += found.newest == 0;
    count->inside_save += found.has_unfinished;
    return found;
}

/* The run that went on did so from the newest checkpoint, and had none to pass over. */
static void assert_went_on(const remains *from)
{
    if (strstr(complaint, "passed over") || strstr(complaint, "stays"))
        fail_msg("a killed run left what does not hold: %s", complaint);
    if (from->newest == 0)
        return;
    if (strstr(complaint, "starting anew"))
        fail_msg("step %lld was saved, but the run started anew", from->newest);
}

static void assert_same_end(const char *other)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    char command[COMMAND_BYTES];
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "cmp whole-0/step-%08d/%s.safetensors %s/step-%08d/%s.safetensors >&2", STEPS,
                 names[i], other, STEPS, names[i]);
        if (system(command) != 0)
            fail_msg("%s of the run in one piece and of %s differ", names[i], other);
    }
}

/* ---- the test ---- */

/* One run from nothing to its end, killed on the way. */
static void run_to_its_end(const double *durations, const json_t *whole, uint64_t *random,
                           tally *count)
{
    remains from = {0};
    assert_int_equal(system("rm -rf killed killed.log"), 0);
    for (;;) {
        uint64_t way = (count->kills + count->ends) % WAY_COUNT;
        double share = (double)scratch_below(random, 1000000) / 1e6;
        bool has_ended = run_until(ways[way], share * durations[way]);
        assert_went_on(&from);
        count->resumes += from.newest > 0;
        if (has_ended)
            break;
        from = judge_remains(whole, count);
    }
    count->ends++;
    if (check_log(whole) != STEPS)
        fail_msg("the run ended before step %d", STEPS);
    assert_same_end("killed");
}

static void run_when_killed_anywhere_then_ends_as_the_run_in_one_piece(void **state)
{
    (void)state;
    tally count = {0};
    double durations[WAY_COUNT];
    uint64_t random = scratch_seed("kills", 1) * 2685821657736338717ull + 1;
    uint64_t goal = scratch_count(10, 100);
    for (int way = 0; way < WAY_COUNT; way++) {
        char name[32];
        snprintf(name, sizeof name, "whole-%d", way);
        durations[way] = measure(ways[way], name);
        print_message("in one piece, %s: %.2f s\n", ways[way], durations[way]);
        assert_same_end(name);
    }
    json_t *whole = read_log("whole-0.log");
    while (count.kills < goal)
        run_to_its_end(durations, whole, &random, &count);
    json_decref(whole);
    print_message("%llu kills (%llu before the first save, %llu inside a save), %llu resumed, "
                  "%llu runs to the end\n",
                  (unsigned long long)count.kills, (unsigned long long)count.before_first_save,
                  (unsigned long long)count.inside_save, (unsigned long long)count.resumes,
                  (unsigned long long)count.ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_when_killed_anywhere_then_ends_as_the_run_in_one_piece),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
