/* What could be wrong here: a resumed run is not the run that went on, or quietly is a new one; a
 * disk that is too small for the checkpoints is found out in the middle of a run; a signal loses
 * work, saves half of it or hangs; a run whose numbers broke saves them; text or loss of a
 * checkpoint depends on where it was placed. Every case runs the built command. */
#define _GNU_SOURCE
#include "command_run.h"

#include <signal.h>
#include <time.h>

/* ---- stopping and going on ---- */

static void assert_same_files(const char *left, const char *right)
{
    char command[COMMAND_BYTES];
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "cmp %s/%s.safetensors %s/%s.safetensors >&2", left,
                 names[i], right, names[i]);
        if (system(command) != 0)
            fail_msg("%s of %s and %s differ", names[i], left, right);
    }
}

static void resume_when_a_run_was_cut_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    static const char *const ways[] = {"", "--policy host", "--policy static --offload-params 0.5"};
    const char *common = TINY "--data text --steps 12 --quiet";
    assert_code(sluice("train %s --save whole --log-json whole.json", common), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_int_equal(system("rm -rf cut"), 0);
        assert_code(sluice("train %s --save cut --resume --save-every 5 --keep 2", common), 0);
        assert_int_equal(access("cut/step-00000005", F_OK), -1);
        assert_int_equal(system("rm -rf cut/step-00000012"), 0);
        assert_code(sluice("train %s --save cut --resume %s --log-json cut.json", common, ways[i]),
                    0);
        assert_same_steps("whole.json", "cut.json", 11, 12);
        assert_same_files("whole/step-00000012", "cut/step-00000012");
    }
}

static void resume_when_a_line_of_the_log_was_cut_then_lines_stay_whole(void **state)
{
    (void)state;
    const char *common =
        "train " TINY "--data text --quiet --save lines --resume --log-json lines.log";
    assert_code(sluice("%s --steps 3", common), 0);
    json_t *events = read_log("lines.log");
    size_t count = json_array_size(events);
    json_decref(events);
    assert_int_equal(system("truncate -s -10 lines.log"), 0); /* in the "end" line */
    assert_code(sluice("%s --steps 5", common), 0);
    events = read_log("lines.log");
    assert_int_equal(json_array_size(events), count - 1 + 4); /* start, 4, 5, end */
    find_step(events, 3);
    find_step(events, 5);
    json_decref(events);
}

/* No disk holds what these would keep. */
static void space_when_checkpoints_do_not_fit_then_69_before_training(void **state)
{
    (void)state;
    const char *many = TINY "--data text --quiet --steps 1000000000000 --save-every 1";
    assert_int_equal(sluice("train %s --save many/new --log-json many.json", many), 69);
    assert_one_complaint("many/new: 1000000000000 more checkpoints of ");
    assert_has(complaint, " are free there");
    assert_has(complaint, "--keep 1");
    assert_int_equal(system("test -z \"$(ls many/new)\""), 0);
    assert_int_equal(access("many.json", F_OK), -1);
    assert_code(sluice("train " TINY "--data text --quiet --steps 3 --save-every 1 --save few"), 0);
    assert_int_equal(sluice("train %s --save few --resume", many), 69);
    assert_has(complaint, "few: 999999999997 more checkpoints of ");
}

/* Where not even one has room, keeping fewer is no way out. */
static void space_when_there_is_none_then_nobody_is_told_to_keep_fewer(void **state)
{
    (void)state;
    int code = sluice("train " TINY "--data text --quiet --steps 2 --save-every 1 --save /proc/x");
    assert_int_not_equal(code, 0);
    assert_one_complaint("/proc/x: ");
    assert_null(strstr(complaint, "--keep"));
}

/* Not found out when the first save comes. */
static void resume_when_the_directory_cannot_be_listed_then_is_not_a_new_run(void **state)
{
    (void)state;
    assert_int_equal(sluice("train " TINY "--data text --quiet --steps 1 --save short --resume "
                            "--log-json none.json"),
                     65);
    assert_one_complaint("short: is not a directory");
    assert_int_equal(access("none.json", F_OK), -1);
}

static void resume_when_the_model_differs_then_is_refused(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save other"), 0);
    assert_code(sluice("train " TINY "--width 64 --data text --steps 2 --save other --resume"), 64);
    assert_one_complaint("checkpoint");
    assert_code(sluice("train " TINY "--seed 9 --data text --steps 2 --save other --resume"), 64);
    assert_one_complaint("--seed");
    assert_code(sluice("train --data text --micro-batch 2 --steps 2 --save other --resume --quiet"),
                0);
}

/* Starts a run that would take for ever, and returns when it has begun to log steps. */
static pid_t start_endless(const char *save)
{
    char command[COMMAND_BYTES + PATH_BYTES];
    snprintf(command, sizeof command,
             "exec '%s' train --layers 2 --width 128 --heads 2 --context 128 --micro-batch 4 "
             "--data text --steps 1000000 --log-json endless %s >out 2>err",
             binary, save);
    unlink("endless");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    for (int tries = 0; tries < 10000; tries++) {
        const struct timespec pause = {.tv_nsec = 10000000};
        FILE *file = fopen("endless", "r");
        char text[1 << 13] = "";
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[length] = '\0';
        if (file)
            fclose(file);
        if (strstr(text, "\"event\":\"step\""))
            return child;
        nanosleep(&pause, NULL);
    }
    fail_msg("the run does not start");
    return child;
}

static int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    read_text("out", output);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void signal_when_saving_then_leaves_a_checkpoint_and_0(void **state)
{
    (void)state;
    pid_t child = start_endless("--save stopped");
    kill(child, SIGTERM);
    assert_code(wait_for(child), 0);
    assert_has(output, "stopped by a signal");
    json_t *events = read_log("endless");
    json_t *end = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(end, "reason")), "signal");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "stopped/step-%08lld",
             (long long)json_integer_value(json_object_get(end, "step")));
    assert_int_equal(access(path, F_OK), 0);
    json_decref(events);
}

static void signal_when_not_saving_then_says_so(void **state)
{
    (void)state;
    pid_t child = start_endless("");
    kill(child, SIGINT);
    assert_code(wait_for(child), 0);
    assert_has(output, "nothing was saved");
}

static void signal_when_it_comes_twice_then_leaves_with_130(void **state)
{
    (void)state;
    pid_t child = start_endless("--save twice");
    kill(child, SIGINT);
    kill(child, SIGTERM);
    assert_code(wait_for(child), 130);
}

static void nonfinite_when_it_stops_then_76_and_nothing_saved(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 9 --lr 1e30 --quiet --save bad "
                       "--log-json log"),
                76);
    assert_one_complaint("not finite");
    assert_int_equal(system("test -z \"$(ls bad)\""), 0);
    json_t *events = read_log("log");
    json_t *end = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(end, "reason")), "error");
    json_decref(events);
    assert_code(sluice("train " TINY "--data text --steps 9 --lr 1e30 --quiet --clip 0"), 76);
    assert_code(sluice("train " TINY "--data text --steps 9 --lr 1e30 --quiet --nonfinite skip "
                       "--log-json log"),
                0);
    events = read_log("log");
    json_t *last = json_array_get(events, 9);
    assert_true(json_is_true(json_object_get(last, "skipped")));
    json_decref(events);
}

/* ---- reading ---- */

static void generate_and_eval_when_placed_differently_then_say_the_same(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_code(sluice("train " TINY "--data text --steps 40 --lr 3e-3 --quiet --save model"), 0);
    const char *prompt = "model --prompt 'the ' --tokens 20 --seed 3";
    assert_code(sluice("generate %s", prompt), 0);
    snprintf(text, sizeof text, "%s", output);
    assert_int_equal(strncmp(text, "the ", 4), 0);
    assert_code(sluice("generate %s --policy host --threads 1", prompt), 0);
    assert_string_equal(output, text);
    assert_code(sluice("generate model --prompt 'the ' --tokens 20 --temperature 0"), 0);
    snprintf(text, sizeof text, "%s", output);
    assert_code(sluice("generate model --prompt 'the ' --tokens 20 --top-k 1 --seed 77"), 0);
    assert_string_equal(output, text); /* the likeliest only */

    assert_code(sluice("eval model --data text --json --micro-batch 1"), 0);
    json_t *one = json_loads(output, 0, NULL);
    assert_code(sluice("eval --checkpoint model --data text --json --micro-batch 7 --policy host"),
                0);
    json_t *seven = json_loads(output, 0, NULL);
    double loss = json_number_value(json_object_get(one, "loss"));
    /* Equal rows, summed in double in another grouping; products of other heights may be tiled
     * otherwise in fp32: 1e-5 of a loss of a few. */
    assert_true(fabs(loss - json_number_value(json_object_get(seven, "loss"))) < 1e-5 * loss);
    assert_true(fabs(exp(loss) - json_number_value(json_object_get(one, "perplexity"))) < 1e-9);
    assert_int_equal(json_integer_value(json_object_get(one, "tokens")),
                     json_integer_value(json_object_get(seven, "tokens")));
    json_decref(one);
    json_decref(seven);
}

static void generate_when_cached_then_follows_what_whole_passes_say(void **state)
{
    (void)state;
    /* The prompt of the second call is the text of the first: the greedy path must go on the same.
     */
    char first[TEXT_BYTES], longer[TEXT_BYTES];
    assert_code(sluice("train " TINY "--data text --steps 40 --lr 3e-3 --quiet --save greedy"), 0);
    assert_code(sluice("generate greedy --prompt 'the ' --tokens 12 --temperature 0"), 0);
    snprintf(longer, sizeof longer, "%s", output);
    assert_code(sluice("generate greedy --prompt 'the ' --tokens 6 --temperature 0"), 0);
    snprintf(first, sizeof first, "%s", output);
    first[strcspn(first, "\n")] = '\0';
    assert_null(strpbrk(first, "'\\")); /* the shell would not pass it on */
    assert_code(sluice("generate greedy --prompt '%s' --tokens 6 --temperature 0", first), 0);
    assert_string_equal(output, longer);
}

static void init_when_from_a_hugging_face_directory_then_starts_there(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 5 --quiet --save first"), 0);
    assert_int_equal(system("mkdir -p hf && cp first/step-00000005/config.json "
                            "first/step-00000005/model.safetensors hf/"),
                     0);
    const char *more = "--data text --micro-batch 2 --steps 2 --quiet";
    assert_code(sluice("train --init first %s --log-json a", more), 0);
    assert_code(sluice("train --init hf --tokenizer byte %s --policy host --log-json b", more), 0);
    assert_same_steps("a", "b", 1, 2);
    assert_code(sluice("train --init hf --tokenizer byte --width 64 %s", more), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_when_a_run_was_cut_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_a_line_of_the_log_was_cut_then_lines_stay_whole),
        cmocka_unit_test(space_when_checkpoints_do_not_fit_then_69_before_training),
        cmocka_unit_test(space_when_there_is_none_then_nobody_is_told_to_keep_fewer),
        cmocka_unit_test(resume_when_the_directory_cannot_be_listed_then_is_not_a_new_run),
        cmocka_unit_test(resume_when_the_model_differs_then_is_refused),
        cmocka_unit_test(signal_when_saving_then_leaves_a_checkpoint_and_0),
        cmocka_unit_test(signal_when_not_saving_then_says_so),
        cmocka_unit_test(signal_when_it_comes_twice_then_leaves_with_130),
        cmocka_unit_test(nonfinite_when_it_stops_then_76_and_nothing_saved),
        cmocka_unit_test(generate_and_eval_when_placed_differently_then_say_the_same),
        cmocka_unit_test(generate_when_cached_then_follows_what_whole_passes_say),
        cmocka_unit_test(init_when_from_a_hugging_face_directory_then_starts_there),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
