/* What could be wrong when ranks are started again: a death is not noticed as one, or what is no
 * death is; what goes on is another run, from nothing or with another batch; with fewer ranks the
 * model or a step does not divide; there is no end to it; a launcher that is told to end begins
 * anew; a run that can never go on is not refused. Moments are drawn at random over start, steps
 * and saves; they depend on the machine: a seed (SL_TEST_SEED) repeats the draw, not the place. */
#define _GNU_SOURCE
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "command_run.h"
#include "scratch_dir.h"

enum { PATIENCE_S = 120, CHILDREN_MAX = 16 }; /* of a busy machine */

#define MODEL                                                                                      \
    "--layers 1 --width 16 --heads 2 --context 16 --micro-batch 1 --data text --device cpu "       \
    "--threads 1 --device-memory 64M --host-memory 64M --lr-schedule constant --warmup 0 --quiet "

static uint64_t draw;

/* In [0, below). */
static uint64_t draw_number(uint64_t below)
{
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    return (draw >> 33) % below;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
    nanosleep(&time, NULL);
}

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* ---- a launcher and its ranks ---- */

static pid_t launcher;
static bool is_over;
static int end_state;

static void __attribute__((format(printf, 1, 2))) start(const char *format, ...)
{
    char words[COMMAND_BYTES], command[COMMAND_BYTES + PATH_BYTES + 64];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    snprintf(command, sizeof command, "exec '%s' launch %s >out 2>err </dev/null", binary, words);
    (void)unlink("log"); /* nobody reads an earlier run's */
    (void)unlink("err");
    is_over = false;
    launcher = fork();
    assert_true(launcher >= 0);
    if (launcher == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

/* Reads what the launcher said; whether it ended, with end_state. */
static bool has_ended(void)
{
    is_over = is_over || waitpid(launcher, &end_state, WNOHANG) == launcher;
    if (access("err", R_OK) == 0)
        read_complaint("err");
    return is_over;
}

static void give_up(const char *what)
{
    kill(launcher, SIGKILL);
    fail_msg("%s: %s", what, complaint);
}

static int await_end(void)
{
    for (time_t start_s = now_s(); !has_ended(); sleep_ms(10))
        if (now_s() - start_s > PATIENCE_S)
            give_up("still runs");
    return WIFEXITED(end_state) ? WEXITSTATUS(end_state) : 128 + WTERMSIG(end_state);
}

static void await_words(const char *words)
{
    complaint[0] = '\0';
    for (time_t start_s = now_s(); !strstr(complaint, words); sleep_ms(5)) {
        if (has_ended() && !strstr(complaint, words))
            fail_msg("ended (%d) without \"%s\": %s", end_state, words, complaint);
        if (now_s() - start_s > PATIENCE_S)
            give_up(words);
    }
}

/* The launcher's children that run. */
static uint32_t find_children(pid_t *children)
{
    glob_t found;
    uint32_t count = 0;
    if (glob("/proc/[0-9]*/stat", GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc && count < CHILDREN_MAX; i++) {
        char text[512] = "", state = 'Z';
        long parent = 0;
        FILE *file = fopen(found.gl_pathv[i], "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[length] = '\0';
        if (file)
            fclose(file);
        const char *behind = strrchr(text, ')');
        if (behind && sscanf(behind + 1, " %c %ld", &state, &parent) == 2 && parent == launcher &&
            state != 'Z')
            children[count++] = (pid_t)strtol(text, NULL, 10);
    }
    globfree(&found);
    return count;
}

static void await_children(pid_t *children, uint32_t count)
{
    for (time_t start_s = now_s(); find_children(children) != count; sleep_ms(2))
        if (now_s() - start_s > PATIENCE_S)
            give_up("the ranks did not start");
}

static void await_log(off_t bytes)
{
    struct stat info;
    for (time_t start_s = now_s(); stat("log", &info) != 0 || info.st_size <= bytes; sleep_ms(5))
        if (now_s() - start_s > PATIENCE_S)
            give_up("there are no steps");
}

static off_t log_bytes(void)
{
    struct stat info;
    return stat("log", &info) == 0 ? info.st_size : 0;
}

/* Kills one of `count` ranks, a third of the times anywhere, else behind a step of theirs, and
 * waits for what is said then. */
static void lose_one(uint32_t count, const char *words)
{
    pid_t children[CHILDREN_MAX];
    off_t before = log_bytes();
    bool is_anywhere = draw_number(3) == 0;
    await_children(children, count);
    if (!is_anywhere)
        await_log(before + 4096); /* a start record, and some steps */
    sleep_ms(draw_number(is_anywhere ? 300 : 100));
    kill(children[draw_number(count)], SIGKILL);
    await_words(words);
}

/* Until some steps were made since `before`; then the run is told to end, in good order. */
static void finish(off_t before)
{
    await_log(before + 8192);
    kill(launcher, SIGTERM);
    assert_code(await_end(), 0);
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

static void assert_same_checkpoint(const char *a, const char *b, json_int_t step)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "cmp %s/step-%08lld/%s.safetensors %s/step-%08lld/%s.safetensors", a,
                 (long long)step, names[i], b, (long long)step, names[i]);
        assert_int_equal(system(command), 0);
    }
}

/* ---- the tests ---- */

static void run_when_ranks_are_killed_goes_on_to_the_same_bits(void **state)
{
    (void)state;
    const uint32_t kills = getenv("SL_TEST_FULL") ? 50 : 2;
    start("-n 2 --restarts %u -- train " MODEL "--tp 2 --save kept --save-every 20 --keep 2 "
          "--log-json log --steps 1000000",
          kills);
    for (uint32_t i = 1; i <= kills; i++) {
        char words[64];
        snprintf(words, sizeof words, "with 2 ranks, in 1 s: restart %u of %u", i, kills);
        lose_one(2, words);
    }
    finish(log_bytes());
    json_int_t reached = last_step("log");
    assert_code(sluice("launch -n 2 -- train " MODEL "--tp 2 --save whole --log-json other "
                       "--steps %lld",
                       (long long)reached),
                0);
    assert_same_steps("log", "other", 1, reached);
    assert_same_checkpoint("kept", "whole", reached);
    printf("%u kills over %lld steps\n", kills, (long long)reached);
}

static void assert_near_steps(const char *name, const char *other, json_int_t last)
{
    json_t *a = read_log(name), *b = read_log(other);
    for (json_int_t step = 1; step <= last; step++) {
        double left = find_step(a, step).loss, right = find_step(b, step).loss;
        if (!(fabs(left - right) <= 2e-6 * fabs(right)))
            fail_msg("step %lld: loss %.9g and %.9g", (long long)step, left, right);
    }
    json_decref(a);
    json_decref(b);
}

/* 8 rows divide among 4, 2 and 1 ranks, not among 3. The steps that were compared. */
static json_int_t lose_three_ranks(void)
{
    enum { COMPARED = 40 };
    start("-n 4 --restarts 3 --fewer-ranks -- train " MODEL "--global-batch 8 --save fewer "
          "--save-every 10 --log-json log --steps 1000000");
    lose_one(4, "with 2 ranks, in 1 s: restart 1 of 3");
    lose_one(2, "with 1 rank, in 1 s: restart 2 of 3");
    lose_one(1, "with 1 rank, in 1 s: restart 3 of 3");
    finish(log_bytes());
    json_int_t reached = last_step("log"), compared = reached < COMPARED ? reached : COMPARED;
    assert_code(sluice("launch -n 4 -- train " MODEL "--global-batch 8 --log-json other "
                       "--steps %lld",
                       (long long)compared),
                0);
    assert_near_steps("log", "other", compared);
    assert_int_equal(system("rm -r fewer"), 0);
    return compared;
}

static void run_when_it_goes_on_with_fewer_ranks_has_the_same_batch(void **state)
{
    (void)state;
    const uint32_t rounds = getenv("SL_TEST_FULL") ? 17 : 2;
    json_int_t compared = 0;
    for (uint32_t i = 0; i < rounds; i++)
        compared += lose_three_ranks();
    printf("%u kills, %lld steps compared\n", 3 * rounds, (long long)compared);
}

static void ranks_when_a_model_needs_them_are_not_fewer(void **state)
{
    (void)state;
    start("-n 4 --restarts 2 --fewer-ranks -- train " MODEL "--tp 2 --global-batch 4 --save pairs "
          "--log-json log --steps 1000000");
    lose_one(4, "beginning anew, as pairs holds no checkpoint yet, with 2 ranks");
    lose_one(2,
             "beginning anew, as pairs holds no checkpoint yet, with 2 ranks, in 1 s: restart 2");
    lose_one(2, "died of signal 9: no restart is left of 2");
    assert_code(await_end(), 75);
}

/* Within the pause between two starts, too. */
static void launcher_when_told_to_end_does_not_begin_anew(void **state)
{
    (void)state;
    start("-n 2 --restarts 5 -- train " MODEL "--save told --log-json log --steps 1000000");
    lose_one(2, "restart 1 of 5");
    kill(launcher, SIGTERM);
    int code = await_end();
    assert_true(code == 75 || code == 0); /* 0: a machine that took a second for that */
    assert_null(strstr(complaint, "restart 2 of 5"));
    start("-n 2 --restarts 5 -- train " MODEL "--save told.too --log-json log --steps 1000000");
    await_log(4096);
    kill(launcher, SIGTERM);
    assert_code(await_end(), 0);
    assert_null(strstr(complaint, "restart"));
}

/* A device that has proven itself needs not do so again, whatever the words of train say. */
static void self_test_when_ranks_are_started_again_is_off(void **state)
{
    (void)state;
    json_t *event;
    size_t index;
    const char *modes[2] = {"", ""};
    start("-n 2 --restarts 1 -- train " MODEL "--self-test force --save tested --save-every 20 "
          "--keep 2 --log-json log --steps 1000000");
    await_log(4096);
    lose_one(2, "restart 1 of 1");
    finish(log_bytes());
    json_t *events = read_log("log");
    json_array_foreach(events, index, event)
    {
        const json_t *config = json_object_get(event, "config");
        if (config)
            modes[modes[0][0] != '\0'] = json_string_value(json_object_get(config, "self_test"));
    }
    assert_string_equal(modes[0], "force");
    assert_string_equal(modes[1], "off");
    json_decref(events);
}

static void failures_of_a_run_when_they_would_come_again_end_it(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 2 --restarts 3 -- train " MODEL "--data none --save a --steps 9"),
                66);
    assert_null(strstr(complaint, "restart"));
    assert_code(sluice("launch -n 2 --restarts 3 -- train " MODEL "--tp 3 --save a --steps 9"), 64);
    assert_null(strstr(complaint, "restart"));
    assert_code(sluice("launch -n 2 --restarts 3 -- train " MODEL "--save=ends --steps 3"), 0);
    assert_null(strstr(complaint, "restart"));
}

static void command_lines_when_nothing_could_go_on_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"--restarts 2 -- train " MODEL "--steps 3", "--restarts needs --save DIR"},
        {"--restarts 2 -- true", "--restarts is for the command train"},
        {"--restarts 2 -- doctor", "--restarts is for the command train"},
        {"--restarts 2x -- train --save a", "a number from 0 to 10000"},
        {"--restarts 10001 -- train --save a", "a number from 0 to 10000"},
        {"--restarts 2 -- train --save a --overwrite", "--overwrite is there to remove it"},
        {"--fewer-ranks -- train --save a", "give --restarts R, too"},
        {"--restarts 2 --fewer-ranks -- train --save a", "--fewer-ranks needs --global-batch N"},
        {"--restarts 2 --fewer-ranks -- train --save a --global-batch 8 --dp 2",
         "--fewer-ranks changes --dp"},
        {"--restarts 2 --fewer-ranks -- train --save a --global-batch 8 --accumulate 4",
         "--fewer-ranks changes --accumulate"},
        {"--restarts 2 --fewer-ranks -- train --save a --config total.json",
         "--fewer-ranks needs --micro-batch N"},
        {"--restarts 2 -- train --save a --no-such-word", "no-such-word"},
    };
    static const char total[] = "{\"train_batch_size\": 8}";
    scratch_write("total.json", total, sizeof total - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("launch -n 2 %s", cases[i].words), 64);
        assert_has(complaint, cases[i].says);
    }
}

int main(void)
{
    const char *seed = getenv("SL_TEST_SEED");
    draw = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu (SL_TEST_SEED)\n", (unsigned long long)draw);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines_when_nothing_could_go_on_are_refused),
        cmocka_unit_test(failures_of_a_run_when_they_would_come_again_end_it),
        cmocka_unit_test(run_when_ranks_are_killed_goes_on_to_the_same_bits),
        cmocka_unit_test(run_when_it_goes_on_with_fewer_ranks_has_the_same_batch),
        cmocka_unit_test(ranks_when_a_model_needs_them_are_not_fewer),
        cmocka_unit_test(self_test_when_ranks_are_started_again_is_off),
        cmocka_unit_test(launcher_when_told_to_end_does_not_begin_anew),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
