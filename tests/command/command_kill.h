/* A series of killed runs, for the test programs that kill: each defines _GNU_SOURCE first and
 * includes this once. A run is killed at moments that are uniform over its duration, and at least
 * a third of the time inside a save; it goes on in the next of the series' placements, is killed
 * again, until it ends; its files and logged numbers are then compared with those of a run in one
 * piece.
 *
 * Moments depend on the machine: a seed repeats the draw, not the place in the program. */
#ifndef SL_TESTS_COMMAND_KILL_H
#define SL_TESTS_COMMAND_KILL_H

#include "command_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "checkpoint/checkpoint.h"
#include "sanitizer_share.h"
#include "scratch_dir.h"

enum { KILL_WAYS_MAX = 4, STEPS = 40, SAVE_EVERY = 2 };

typedef struct kill_series {
    const char *model;       /* options of every run */
    const char *base;        /* options of the run in one piece */
    const char *const *ways; /* placements, [way_count]; they take turns */
    uint64_t way_count;      /* KILL_WAYS_MAX at most */
    uint64_t quick, full;    /* kills */
    void (*look)(void);      /* after each kill and each end, or NULL */
} kill_series;

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

static pid_t start(const kill_series *series, const char *way, const char *directory_name)
{
    char command[COMMAND_BYTES + PATH_BYTES];
    snprintf(command, sizeof command,
             "exec '%s' train %s --data text --steps %d --save %s --save-every %d --keep 2 "
             "--resume --quiet --log-json %s.log %s >out 2>err </dev/null",
             binary, series->model, STEPS, directory_name, SAVE_EVERY, directory_name, way);
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
    read_complaint("err");
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        fail_msg("left with %d: %s", WEXITSTATUS(status), complaint);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        fail_msg("died of signal %d: %s", WTERMSIG(status), complaint);
    return WIFEXITED(status);
}

static double measure(const kill_series *series, const char *way, const char *directory_name)
{
    double started = read_seconds();
    assert_true(wait_for_end(start(series, way, directory_name)));
    return read_seconds() - started;
}

static bool has_ended(pid_t child)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == child;
}

static bool is_saving(void)
{
    bool found = false;
    DIR *stream = opendir("killed");
    struct dirent *entry;
    while (stream && !found && (entry = readdir(stream)) != NULL)
        found = strstr(entry->d_name, ".tmp-") != NULL;
    if (stream)
        closedir(stream);
    return found;
}

/* When a run is killed. */
typedef struct moment {
    double seconds; /* after its start */
    bool is_inside; /* and in the next save from there on, */
    double into_it; /* so many seconds after it was seen */
} moment;

/* Kills a run, unless it has ended before; writes how long it was there. */
static bool run_until(const kill_series *series, const char *way, const moment *when,
                      double *out_seconds)
{
    const struct timespec pause = {.tv_nsec = 500000}, glance = {.tv_nsec = 50000};
    double started = read_seconds();
    pid_t child = start(series, way, "killed");
    while (read_seconds() - started < when->seconds && !has_ended(child))
        nanosleep(&pause, NULL);
    while (when->is_inside && !is_saving() && !has_ended(child))
        nanosleep(&glance, NULL);
    double seen = read_seconds();
    while (when->is_inside && read_seconds() - seen < when->into_it && !has_ended(child))
        nanosleep(&glance, NULL);
    kill(child, SIGKILL); /* one that has ended waits to be asked how */
    *out_seconds = read_seconds() - started;
    return wait_for_end(child);
}

/* ---- looking ---- */

typedef struct remains {
    long long newest; /* step of the newest name that a reader may take; 0: none */
    bool has_unfinished;
} remains;

/* Whatever has the name of a checkpoint is one, to its last byte. */
static void assert_holds(const char *name)
{
    scratch_path path = scratch_join("killed", name);
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_open(path.text, &checkpoint) != SL_OK)
        fail_msg("a killed run left what does not hold: %s", sl_status_message());
    sl_checkpoint_close(checkpoint);
}

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
                 entry->d_name[length] == '\0') {
            assert_holds(entry->d_name);
            found.newest = step > found.newest ? step : found.newest;
        }
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
    if (strstr(complaint, "begins at step 0"))
        fail_msg("step %lld was saved, but the run started anew", from->newest);
}

static void assert_same_end(const char *other)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    char command[COMMAND_BYTES];
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "cmp whole/step-%08d/%s.safetensors %s/step-%08d/%s.safetensors >&2", STEPS,
                 names[i], other, STEPS, names[i]);
        if (system(command) != 0)
            fail_msg("%s of the run in one piece and of %s differ", names[i], other);
    }
}

/* ---- the series ---- */

/* A third of the kills is to be inside a save: where they are fewer, the next one waits for it. */
static moment draw_moment(double duration, const tally *count, uint64_t *random)
{
    double share = (double)scratch_below(random, 1000000) / 1e6;
    double into_it = (double)scratch_below(random, 1000000) / 1e6;
    return (moment){.seconds = share * duration,
                    .is_inside = 3 * count->inside_save <= count->kills,
                    .into_it = 8e-3 * into_it * into_it};
}

/* One run from nothing to its end, killed on the way. */
static void run_to_its_end(const kill_series *series, double *durations, const json_t *whole,
                           uint64_t *random, tally *count)
{
    remains from = {0};
    double seconds;
    assert_int_equal(system("rm -rf killed killed.log"), 0);
    for (;;) {
        uint64_t way = (count->kills + count->ends) % series->way_count;
        moment when = draw_moment(durations[way], count, random);
        bool ended = run_until(series, series->ways[way], &when, &seconds);
        if (series->look)
            series->look();
        assert_went_on(&from);
        count->resumes += from.newest > 0;
        if (ended && from.newest == 0) /* a disk that others use is not always as fast */
            durations[way] = seconds;
        if (ended)
            break;
        from = judge_remains(whole, count);
    }
    count->ends++;
    if (check_log(whole) != STEPS)
        fail_msg("the run ended before step %d", STEPS);
    assert_same_end("killed");
}

static void measure_ways(const kill_series *series, double *out_durations)
{
    (void)measure(series, series->base, "whole");
    for (uint64_t way = 0; way < series->way_count; way++) {
        char name[32];
        snprintf(name, sizeof name, "whole-%d", (int)way);
        out_durations[way] = measure(series, series->ways[way], name);
        print_message("in one piece, %s: %.2f s\n", series->ways[way], out_durations[way]);
        assert_same_end(name);
    }
}

static inline void run_kill_series(const kill_series *series)
{
    tally count = {0};
    double durations[KILL_WAYS_MAX];
    uint64_t random = scratch_seed("kills", 1) * 2685821657736338717ull + 1;
    uint64_t goal = scratch_count(sanitizer_share(series->quick), series->full);
    assert_true(series->way_count <= KILL_WAYS_MAX);
    measure_ways(series, durations);
    json_t *whole = read_log("whole.log");
    while (count.kills < goal || (3 * count.inside_save < goal && count.kills < 3 * goal))
        run_to_its_end(series, durations, whole, &random, &count);
    json_decref(whole);
    print_message("%llu kills (%llu before the first save, %llu inside a save), %llu resumed, "
                  "%llu runs to the end\n",
                  (unsigned long long)count.kills, (unsigned long long)count.before_first_save,
                  (unsigned long long)count.inside_save, (unsigned long long)count.resumes,
                  (unsigned long long)count.ends);
    if (3 * count.inside_save < goal)
        fail_msg("of %llu kills only %llu were inside a save", (unsigned long long)count.kills,
                 (unsigned long long)count.inside_save);
}

#endif
