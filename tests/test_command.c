/* What could be wrong here: a command leaves with the wrong exit code or more than one line of
 * complaint; the log lacks a key or a placement changes a number in it; a resumed run is not the
 * run that went on; a signal loses work or hangs; a refusal suggests what does not fit. Every case
 * runs the built command in a directory of its own and looks at what a user would see. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

enum { PATH_BYTES = 512, TEXT_BYTES = 1 << 16, COMMAND_BYTES = 4096 };

static char directory[] = "/tmp/sluice-command-XXXXXX";
static char binary[PATH_BYTES];
static char output[TEXT_BYTES], complaint[TEXT_BYTES]; /* of the last command */

/* A model of 2 layers that takes milliseconds a step. */
#define TINY "--layers 2 --width 32 --heads 2 --context 32 --micro-batch 2 "

static void read_text(const char *name, char *text)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, TEXT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
}

/* Runs `sluice ARGUMENTS`; returns its exit code. */
static int __attribute__((format(printf, 1, 2))) sluice(const char *format, ...)
{
    char arguments[COMMAND_BYTES], command[COMMAND_BYTES + PATH_BYTES + 64];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "'%s' %s >out 2>err </dev/null", binary, arguments);
    int status = system(command);
    read_text("out", output);
    read_text("err", complaint);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* One line on standard error, with the name in front. */
static void assert_one_complaint(const char *part)
{
    char *end = strchr(complaint, '\n');
    if (strncmp(complaint, "sluice: ", 8) != 0 || !end || end[1] != '\0')
        fail_msg("not one line: \"%s\"", complaint);
    assert_has(complaint, part);
}

static void assert_code(int code, int expected)
{
    if (code != expected)
        fail_msg("exit code %d, not %d: %s", code, expected, complaint);
}

/* Event `index` of a kind in a log; borrowed from *out_lines, which the caller releases. */
static json_t *read_log(const char *name)
{
    json_t *events = json_array();
    char line[1 << 14];
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!event)
            fail_msg("%s: not JSON: %s", name, line);
        json_array_append_new(events, event);
    }
    fclose(file);
    return events;
}

static const char *kind_of(const json_t *event)
{
    return json_string_value(json_object_get(event, "event"));
}

/* The values that no placement may change, of step `step`. */
typedef struct numbers {
    double loss, grad_norm, lr;
} numbers;

static numbers find_step(const json_t *events, json_int_t step)
{
    size_t index;
    json_t *event;
    json_array_foreach((json_t *)events, index, event)
    {
        if (strcmp(kind_of(event), "step") == 0 &&
            json_integer_value(json_object_get(event, "step")) == step)
            return (numbers){json_number_value(json_object_get(event, "loss")),
                             json_number_value(json_object_get(event, "grad_norm")),
                             json_number_value(json_object_get(event, "lr"))};
    }
    fail_msg("no step %lld", (long long)step);
    return (numbers){0};
}

static void assert_same_steps(const char *name, const char *other, json_int_t first,
                              json_int_t last)
{
    json_t *a = read_log(name), *b = read_log(other);
    for (json_int_t step = first; step <= last; step++) {
        numbers left = find_step(a, step), right = find_step(b, step);
        if (memcmp(&left, &right, sizeof left) != 0)
            fail_msg("%s and %s differ at step %lld: loss %.17g and %.17g", name, other,
                     (long long)step, left.loss, right.loss);
    }
    json_decref(a);
    json_decref(b);
}

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

/* ---- usage ---- */

static void usage_when_wrong_then_one_line_and_64(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *part;
        int code;
    } cases[] = {
        {"", "no command", 64},
        {"trian", "did you mean train?", 64},
        {"profile --model gpt2", "later version", 64},
        {"bench", "later version", 64},
        {"convert a b", "later version", 64},
        {"tokenize a", "later version", 64},
        {"train --model gpt2", "--data", 64},
        {"train " TINY "--data text --stpes 3", "did you mean --steps?", 64},
        {"train " TINY "--data text --steps", "needs a value", 64},
        {"train " TINY "--data text --steps x", "--steps", 64},
        {"train " TINY "--data text --quiet=1", "takes no value", 64},
        {"train " TINY "--data text -q", "-q", 64},
        {"train " TINY "--steps 3 text", "\"text\"", 64},
        {"train --model gpt3 --data text", "gpt2", 64},
        {"train " TINY "--data text --precision bf16", "later version", 64},
        {"train " TINY "--data text --seq 33", "context of 32", 64},
        {"train " TINY "--data missing", "missing", 66},
        {"train " TINY "--data short", "needs 33", 65},
        {"train " TINY "--data text --vocab 100", "", 64},
        {"train " TINY "--data text --config missing.json", "missing.json", 66},
        {"train " TINY "--data text --config bad.json", "bad.json", 65},
        {"train " TINY "--data text --init missing", "missing", 66},
        {"train " TINY "--data text --log-json no/such/log", "no/such/log", 74},
        {"generate --prompt a", "--checkpoint", 64},
        {"generate nowhere --prompt a", "nowhere", 66},
        {"eval nowhere --data text", "nowhere", 66},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = sluice("%s", cases[i].arguments);
        if (code != cases[i].code)
            fail_msg("\"%s\" left with %d: %s", cases[i].arguments, code, complaint);
        assert_one_complaint(cases[i].part);
        assert_string_equal(output, "");
    }
}

static void help_and_version_when_asked_then_are_printed(void **state)
{
    (void)state;
    assert_code(sluice("--help"), 0);
    assert_has(output, "doctor");
    assert_code(sluice("train -h"), 0);
    assert_has(output, "--device-memory=SIZE");
    assert_has(output, "gpt2-xl");
    assert_code(sluice("plan --help"), 0);
    assert_has(output, "--json");
    assert_code(sluice("--version"), 0);
    assert_has(output, "sluice ");
    assert_has(output, "git ");
    assert_code(sluice("train --version"), 0);
    assert_has(output, "sluice ");
    assert_code(sluice("doctor"), 0);
    assert_has(output, "cores");
}

/* ---- training ---- */

static void assert_tiers_as_planned(const json_t *end)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    json_t *all = json_object_get(end, "tiers");
    for (int i = 0; i < 3; i++) {
        json_t *tier = json_object_get(all, tiers[i]);
        json_int_t planned = json_integer_value(json_object_get(tier, "planned_peak_bytes"));
        json_int_t measured = json_integer_value(json_object_get(tier, "measured_peak_bytes"));
        if (planned != measured)
            fail_msg("%s: planned %lld, measured %lld", tiers[i], (long long)planned,
                     (long long)measured);
    }
}

static void train_when_plain_then_learns_and_logs_by_the_contract(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 60 --lr 3e-3 --eval-data text "
                       "--eval-every 30 --log-json log"),
                0);
    assert_has(output, "step 60/60");
    json_t *events = read_log("log");
    size_t count = json_array_size(events);
    assert_int_equal(count, 1 + 60 + 2 + 1);
    json_t *start = json_array_get(events, 0), *end = json_array_get(events, count - 1);
    assert_string_equal(kind_of(start), "start");
    json_t *config = json_object_get(start, "config");
    assert_int_equal(json_integer_value(json_object_get(config, "vocab")), 257);
    assert_string_equal(json_string_value(json_object_get(config, "policy")), "device");
    assert_true(json_is_true(json_object_get(json_object_get(start, "plan"), "fits")));
    assert_string_equal(kind_of(end), "end");
    assert_string_equal(json_string_value(json_object_get(end, "reason")), "done");
    assert_tiers_as_planned(end);
    /* A fresh model is nearly indifferent among 257 ids: ln 257 = 5.549; text has far less. */
    double first = find_step(events, 1).loss, last = find_step(events, 60).loss;
    assert_true(fabs(first - 5.549) < 0.3);
    assert_true(last < first - 1.5);
    json_t *step = json_array_get(events, 1);
    assert_int_equal(json_integer_value(json_object_get(step, "tokens")), 64);
    double n = (257.0 + 32) * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 64;
    double flops = 64 * (6 * n + 6.0 * 2 * 32 * 32);
    assert_true(json_number_value(json_object_get(step, "flops")) == flops);
    json_decref(events);
}

static void train_when_placed_in_any_way_then_numbers_are_the_same(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy host",
        "--policy host --recompute full --threads 1",
        "--policy host --recompute selective --prefetch 0 --threads 3",
        "--policy static --offload-params 0.5 --offload-grads 0.3 --offload-optimizer 0.7",
        "--policy static --offload-optimizer 1 --adam device --chunk-size 50000",
        "--accumulation layer --policy host",
        "--accumulation micro --policy host --chunk-size 20000",
    };
    const char *common = TINY "--accumulate 2 --data text --steps 6 --quiet";
    assert_code(sluice("train %s --policy device --accumulation micro --log-json base", common), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_code(sluice("train %s %s --log-json way", common, ways[i]), 0);
        assert_same_steps("base", "way", 1, 6);
        json_t *events = read_log("way");
        assert_tiers_as_planned(json_array_get(events, json_array_size(events) - 1));
        json_decref(events);
    }
}

static void train_when_data_are_sequential_then_rows_follow_the_formula(void **state)
{
    (void)state;
    /* One step of 4 rows as 1 x 4 or as 2 x 2 reads the same tokens: the loss before any update is
     * the same sum in another order. 128 tokens of about 5.5 in double: 1e-9 leaves room for the
     * fp32 arithmetic of equal rows, which is the same. */
    const char *common = "--layers 1 --width 32 --heads 2 --context 32 --data text --steps 1 "
                         "--data-order sequential --quiet";
    assert_code(sluice("train %s --micro-batch 4 --log-json a", common), 0);
    assert_code(sluice("train %s --micro-batch 2 --accumulate 2 --log-json b", common), 0);
    json_t *a = read_log("a"), *b = read_log("b");
    assert_true(fabs(find_step(a, 1).loss - find_step(b, 1).loss) < 1e-6);
    json_decref(a);
    json_decref(b);
}

static void train_when_configured_by_file_then_options_beside_it_win(void **state)
{
    (void)state;
    FILE *file = fopen("run.json", "w");
    fputs("{\"layers\": 2, \"width\": 32, \"heads\": 2, \"context\": 32, \"micro_batch\": 2,"
          " \"data\": [\"missing\"], \"steps\": 50, \"quiet\": true}",
          file);
    fclose(file);
    assert_code(sluice("train --steps 2 --config run.json --data text text --set lr=0.5 "
                       "--log-json log"),
                0);
    json_t *events = read_log("log");
    json_t *config = json_object_get(json_array_get(events, 0), "config");
    assert_int_equal(json_integer_value(json_object_get(config, "steps")), 2);
    assert_int_equal(json_array_size(json_object_get(config, "data")), 2);
    assert_true(json_number_value(json_object_get(config, "lr")) == 0.5);
    assert_int_equal(json_integer_value(json_object_get(config, "width")), 32);
    json_decref(events);
}

/* ---- stopping and going on ---- */

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
    for (int tries = 0; tries < 2000; tries++) {
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
    read_text("err", complaint);
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
    assert_int_equal(access("bad", F_OK), -1);
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

/* ---- what does not fit ---- */

static void fit_when_refused_then_the_suggestion_fits(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "--device-memory 60K",
        "--device-memory 500K --policy device",
        "--device-memory 200K --policy host --recompute none",
        "--device-memory 1G --host-memory 1K --policy host",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("train " TINY "--data text --steps 1 --quiet %s", cases[i]), 69);
        assert_one_complaint("misses");
        assert_code(sluice("plan " TINY "--data text --json %s", cases[i]), 69);
        json_t *plan = json_loads(output, 0, NULL);
        assert_non_null(plan);
        assert_true(json_is_false(json_object_get(plan, "fits")));
        assert_true(json_integer_value(json_object_get(plan, "missing_bytes")) > 0);
        assert_true(json_is_integer(json_object_get(plan, "tick")));
        const char *options = json_string_value(json_object_get(plan, "suggestion"));
        assert_code(sluice("train " TINY "--data text --steps 1 --quiet %s %s", cases[i], options),
                    0);
        json_decref(plan);
    }
}

static void plan_when_it_fits_then_has_every_key_and_the_bytes_of_the_run(void **state)
{
    (void)state;
    static const char *const kinds[] = {"peak_bytes", "live_peak_bytes", "budget_bytes", "param",
                                        "grad",       "master",          "moment1",      "moment2",
                                        "activation", "workspace",       "staging"};
    static const char *const tiers[] = {"device", "host", "disk"};
    const char *options = TINY "--data text --policy host --device-memory 700K --host-memory 2M";
    assert_code(sluice("plan %s --json", options), 0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_non_null(plan);
    assert_true(json_is_true(json_object_get(plan, "fits")));
    for (int tier = 0; tier < 3; tier++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            json_t *bytes = json_object_get(
                json_object_get(json_object_get(plan, "tiers"), tiers[tier]), kinds[i]);
            if (!json_is_integer(bytes))
                fail_msg("no %s of %s", kinds[i], tiers[tier]);
        }
    assert_true(json_number_value(json_object_get(plan, "predicted_step_ms")) > 0);
    assert_true(json_integer_value(json_object_get(plan, "chunk_count")) > 0);
    assert_true(json_integer_value(json_object_get(plan, "chunk_elements")) > 0);
    assert_true(json_is_real(json_object_get(plan, "padding_fraction")));
    assert_true(json_is_object(json_object_get(plan, "moved_bytes_per_step")));
    json_int_t planned = json_integer_value(
        json_object_get(json_object_get(json_object_get(plan, "tiers"), "device"), "peak_bytes"));
    assert_true(planned <= 700 * 1024);
    assert_code(sluice("train %s --steps 2 --quiet --log-json log", options), 0);
    json_t *events = read_log("log");
    json_t *step = json_array_get(events, 2);
    assert_int_equal(json_integer_value(json_object_get(step, "device_bytes")), planned);
    json_t *moved = json_object_get(plan, "moved_bytes_per_step");
    assert_int_equal(json_integer_value(json_object_get(step, "h2d_bytes")),
                     json_integer_value(json_object_get(moved, "h2d")));
    json_decref(events);
    json_decref(plan);
    assert_code(sluice("plan %s", options), 0);
    assert_has(output, "live peak");
    assert_has(output, "predicted step");
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
    assert_code(sluice("generate model --prompt 'the ' --tokens 29"), 64);
    assert_one_complaint("context of 32");

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
    if (strpbrk(first, "'\\")) {
        skip();
    }
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
    assert_code(sluice("train --init hf %s --policy host --log-json b", more), 0);
    assert_same_steps("a", "b", 1, 2);
    assert_code(sluice("train --init hf --width 64 %s", more), 64);
}

/* ---- set-up ---- */

static void write_texts(void)
{
    static const char *const words[] = {"the", "lock",  "gate", "water", "rises",
                                        "and", "falls", "of",   "a",     "boat"};
    FILE *file = fopen("text", "w");
    unsigned draw = 12345;
    for (int i = 0; i < 3000; i++) {
        draw = draw * 1664525u + 1013904223u;
        fprintf(file, "%s%s", words[draw >> 16 & 7], i % 12 == 11 ? ".\n" : " ");
    }
    fclose(file);
    file = fopen("short", "w");
    fputs("too short", file);
    fclose(file);
    file = fopen("bad.json", "w");
    fputs("{\"steps\": 1, \"steps\": 2}", file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", binary, sizeof binary - 1);
    if (length < 0 || !mkdtemp(directory) || chdir(directory) != 0)
        return 1;
    binary[length] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(binary, '/') = '\0';
    strncat(binary, "/sluice", sizeof binary - strlen(binary) - 1);
    if (access(binary, X_OK) != 0) {
        print_message("%s was not built: skipped\n", binary);
        exit(77);
    }
    write_texts();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[PATH_BYTES];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_when_wrong_then_one_line_and_64),
        cmocka_unit_test(help_and_version_when_asked_then_are_printed),
        cmocka_unit_test(train_when_plain_then_learns_and_logs_by_the_contract),
        cmocka_unit_test(train_when_placed_in_any_way_then_numbers_are_the_same),
        cmocka_unit_test(train_when_data_are_sequential_then_rows_follow_the_formula),
        cmocka_unit_test(train_when_configured_by_file_then_options_beside_it_win),
        cmocka_unit_test(resume_when_a_run_was_cut_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_the_model_differs_then_is_refused),
        cmocka_unit_test(signal_when_saving_then_leaves_a_checkpoint_and_0),
        cmocka_unit_test(signal_when_not_saving_then_says_so),
        cmocka_unit_test(signal_when_it_comes_twice_then_leaves_with_130),
        cmocka_unit_test(nonfinite_when_it_stops_then_76_and_nothing_saved),
        cmocka_unit_test(fit_when_refused_then_the_suggestion_fits),
        cmocka_unit_test(plan_when_it_fits_then_has_every_key_and_the_bytes_of_the_run),
        cmocka_unit_test(generate_and_eval_when_placed_differently_then_say_the_same),
        cmocka_unit_test(generate_when_cached_then_follows_what_whole_passes_say),
        cmocka_unit_test(init_when_from_a_hugging_face_directory_then_starts_there),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
