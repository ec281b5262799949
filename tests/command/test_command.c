/* What could be wrong here: a command leaves with the wrong exit code or more than one line of
 * complaint; the log lacks a key or a placement changes a number in it; the plan is not what the
 * run takes; a refusal suggests what does not fit. Every case runs the built command. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "command_run.h"
#include "skip.h"

/* ---- usage ---- */

typedef struct wrong_case {
    const char *arguments, *part; /* `part` of the one line of complaint */
    int code;
} wrong_case;

static void assert_cases(const wrong_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int code = sluice("%s", cases[i].arguments);
        if (code != cases[i].code)
            fail_msg("\"%s\" left with %d: %s", cases[i].arguments, code, complaint);
        assert_one_complaint(cases[i].part);
        assert_string_equal(output, "");
    }
}

static void usage_when_wrong_then_one_line_and_64(void **state)
{
    (void)state;
    static const wrong_case cases[] = {
        {"", "no command", 64},
        {"trian", "did you mean train?", 64},
        {"bench --threads none", "--threads", 64},
        {"bench --only gemm,disc", "did you mean disk?", 64},
        {"bench --only disk", "--disk-dir", 64},
        {"bench --only gemm --match bf16", "give --only product,attention", 64},
        {"bench --only product --match gpt3", "leaves no row", 64},
        {"bench --only memory --against /nowhere", "/nowhere", 66},
        {"convert a b", "neither an option", 64},
        {"convert --to a", "--from is missing", 64},
        {"convert --from a", "--to is missing: name the directory", 64},
        {"convert --from a --to b --format gguff", "did you mean gguf?", 64},
        {"convert --from a --to b --type q8_0", "is for --format gguf", 64},
        {"convert --from missing --to b", "missing", 66},
        {"tokenize --data text --output a", "--tokenizer is missing", 64},
        {"train --model gpt2", "--data", 64},
        {"train " TINY "--data text --stpes 3", "did you mean --steps?", 64},
        {"train " TINY "--data text --steps", "needs a value", 64},
        {"train " TINY "--data text --steps x", "--steps", 64},
        {"train " TINY "--data text --quiet=1", "takes no value", 64},
        {"train " TINY "--data text -q", "-q", 64},
        {"train --help --bogus", "unknown option --bogus", 64},
        {"train --batch-size=4", "a word of Megatron-LM, nanoGPT and ColossalAI for --micro-batch",
         64},
        {"train --checkpoint-activations", "a word of Megatron-LM for --recompute full", 64},
        {"train -b 4", "unknown option -b: a word of llm.c for --micro-batch N", 64},
        {"train --micro_batch 4", "did you mean --micro-batch?", 64},
        {"plan --model gpt2_345m", "for --model gpt2-medium", 64},
        {"launch --nproc_per_node 2 train", "for sluice launch -n N -- train", 64},
        {"launch --restart 2 -n 2 train", "--restarts", 64},
        {"launch --rnaks 2 train", "did you mean --ranks?", 64},
        {"launch -n", "-n", 64},
        {"launch -n 2", "what is to be run?", 64},
        {"torchrun --standalone", "for sluice launch -n N -- train", 64},
        {"help nothing", "unknown command", 64},
        {"bench --threds 2 -h", "did you mean --threads?", 64},
        {"train " TINY "--steps 3 text", "\"text\"", 64},
        {"train --model gpt3 --data text", "gpt2", 64},
        {"train " TINY "--data text --dropout 1", "--dropout", 64},
        {"train " TINY "--data text --machine nowhere.json", "nowhere.json", 66},
        {"train " TINY "--data text --policy nvme", "--disk-dir DIR", 64},
        {"train " TINY "--data text --policy nvme --disk-dir nowhere", "nowhere", 66},
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
    assert_cases(cases, sizeof cases / sizeof cases[0]);
}

static void number_when_out_of_range_then_the_limit_is_said(void **state)
{
    (void)state;
    static const wrong_case cases[] = {
        {"train " TINY "--data text --steps -1", "--steps: \"-1\" is below 0", 64},
        {"train " TINY "--data text --seed 99999999999999999999", "is too large", 64},
        {"train " TINY "--data text --lr 1e400", "--lr: \"1e400\" is too large", 64},
        {"train " TINY "--data text --beta1 1", "1 is not in the range 0 to 0.9999999", 64},
    };
    assert_cases(cases, sizeof cases / sizeof cases[0]);
}

/* Before anything is measured; and what is there stays. */
static void path_when_it_cannot_serve_then_said_at_once(void **state)
{
    (void)state;
    static const wrong_case cases[] = {
        {"train " TINY "--data circle", "one of a circle", 65},
        {"bench --output text", "text is there and is no machine profile: --output does not", 64},
        {"bench --output pipe", "pipe is no plain file: --output does not", 64},
        {"bench --output .", ". is no plain file: --output does not", 64},
        {"bench --report text", "text is there and is no report: --report does not", 64},
        {"report log --output text", "text is there and is no report: --output does not", 64},
        {"report log --output no/such/page", "no/such/page: cannot be made", 74},
    };
    assert_int_equal(system("ln -s circle circle && mkfifo pipe && cp text before"), 0);
    assert_cases(cases, sizeof cases / sizeof cases[0]);
    assert_int_equal(system("cmp text before && test -p pipe && rm circle pipe before"), 0);
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
    assert_has(output, "disk tier");
    assert_has(output, "machine profile");
    assert_code(sluice("doctor --disk-dir %s", work_directory), 0);
    assert_has(output, "free in 1 of --disk-dir");
    assert_has(output, "GB/s written");
    assert_code(sluice("doctor --disk-dir /nowhere/at/all"), 0);
    assert_has(output, "no disk tier there");
}

/* --version finds what doctor finds. */
static void libraries_when_installed_then_version_has_them(void **state)
{
    (void)state;
    char folder[PATH_BYTES];
    assert_int_equal(system("mkdir -p lib && touch lib/libnccl.so.2 lib/libmpi.so.40"), 0);
    snprintf(folder, sizeof folder, "%s/lib", work_directory);
    setenv("LD_LIBRARY_PATH", folder, 1);
    assert_code(sluice("--version"), 0);
    assert_has(output, "nccl: yes\nmpi: Open MPI");
    assert_code(sluice("doctor"), 0);
    assert_has(output, "NCCL, Open MPI");
    unsetenv("LD_LIBRARY_PATH");
}

/* ---- bench ---- */

static void bench_when_quick_then_rows_have_rates_and_the_profile_is_found_again(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("products of GPT-2's sizes take a minute with sanitizers; test_bench and "
                 "test_command_faults have small ones");
#endif
    setenv("XDG_CONFIG_HOME", work_directory, 1);
    assert_code(sluice("doctor"), 0);
    assert_has(output, "was not measured");
    assert_code(sluice("bench --quick --json --threads 2 --disk-dir %s", work_directory), 0);
    assert_has(complaint, "round");
    json_t *object = json_load_file("out", 0, NULL), *row;
    size_t index, disk_count = 0;
    assert_non_null(object);
    json_array_foreach(json_object_get(object, "rows"), index, row)
    {
        assert_true(json_number_value(json_object_get(row, "median")) > 0);
        const json_t *percent = json_object_get(row, "percent_of_roof");
        assert_true(!percent || json_number_value(percent) > 0);
        disk_count += strcmp(json_string_value(json_object_get(row, "group")), "disk") == 0;
    }
    assert_true(index > 20 && disk_count > 4);
    json_decref(object);
    assert_code(sluice("bench --quick --quiet --threads 1 --output one.json"), 0);
    assert_string_equal(complaint, "");
    assert_has(output, "roof");
    assert_int_equal(access("one.json", R_OK), 0);
    assert_int_equal(access("sluice/machine.json", R_OK), 0);
    assert_code(sluice("doctor"), 0); /* uses all cores: another number may not be 2 */
    assert_has(output, "quick bench");
    assert_code(sluice("plan " TINY "--data text --policy device --threads 1"), 0);
    assert_has(output, "scaled from 2, quick bench");
    assert_code(sluice("plan " TINY "--data text --policy device --tp 2"), 0);
    assert_has(output, "in each of 2 ranks, quick bench");
    assert_int_equal(unlink("sluice/machine.json"), 0);
}

/* Copies the profile of a quick run to where that of a full one lies. */
static void pretend_full(const char *from)
{
    json_t *profile = json_load_file(from, 0, NULL);
    assert_int_equal(json_object_set_new(profile, "quick", json_false()), 0);
    assert_int_equal(json_dump_file(profile, "sluice/machine.json", 0), 0);
    json_decref(profile);
}

static void bench_when_quick_and_a_full_one_exists_then_that_stays(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("a whole bench is too long with sanitizers");
#endif
    setenv("XDG_CONFIG_HOME", work_directory, 1);
    assert_code(sluice("bench --quick --quiet"), 0);
    assert_has(output, "a quick bench");
    pretend_full("sluice/machine.json");
    assert_code(sluice("bench --quick --only memory"), 0);
    assert_has(complaint, "a full one of this machine exists and stays");
    json_t *kept = json_load_file("sluice/machine.json", 0, NULL);
    assert_true(json_is_false(json_object_get(kept, "quick")));
    json_decref(kept);
    assert_int_equal(unlink("sluice/machine.json"), 0);
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
    assert_has(output, " for the 60 steps to come");
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
        "--policy host --adam shared --offload-updates 0.5 --chunk-size 20000",
        "--policy host --adam shared --offload-updates 0.25 --chunk-size 20000 --device-memory 1M",
        "--policy host --adam device",
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

/* ---- the order of rows ---- */

enum { ROW = 32, ROWS = 3 }; /* of file "rows"; row g is alone in file "row<g>" */

static void write_rows(void)
{
    char text[ROWS * ROW + 8], name[16];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(' ' + (i * i + 3 * i) % 90);
    for (int g = -1; g < ROWS; g++) {
        snprintf(name, sizeof name, g < 0 ? "rows" : "row%d", g);
        FILE *file = fopen(name, "w");
        assert_non_null(file);
        fwrite(g < 0 ? text : text + g * ROW, 1, g < 0 ? sizeof text : ROW + 1, file);
        assert_int_equal(fclose(file), 0);
    }
}

/* The losses of steps from 1 on, under parameters that never change. */
static void train_unchanged(const char *options, int step_count, double *out_losses)
{
    assert_code(sluice("train --layers 1 --width 32 --heads 2 --context 32 --lr 0 --quiet "
                       "--log-json log %s --steps %d",
                       options, step_count),
                0);
    json_t *events = read_log("log");
    for (int i = 0; i < step_count; i++)
        out_losses[i] = find_step(events, i + 1).loss;
    json_decref(events);
}

static void train_when_data_are_sequential_then_rows_follow_the_formula(void **state)
{
    (void)state;
    double row[ROWS], step[2 * ROWS], mixed;
    char options[64];
    write_rows();
    for (int g = 0; g < ROWS; g++) {
        snprintf(options, sizeof options, "--data row%d --micro-batch 1", g);
        train_unchanged(options, 1, &row[g]);
    }
    for (int g = 0; g < ROWS; g++) /* else any order would pass */
        assert_true(fabs(row[g] - row[(g + 1) % ROWS]) > 1e-4);
    train_unchanged("--data rows --micro-batch 1 --data-order sequential", 2 * ROWS, step);
    for (int i = 0; i < 2 * ROWS; i++)
        if (step[i] != row[i % ROWS])
            fail_msg("step %d has loss %.17g, row %d has %.17g", i + 1, step[i], i % ROWS,
                     row[i % ROWS]);
    /* Rows 0, 1, 2, 0, whichever way: their mean, in the rounding of fp32 beside a loss of 5. */
    const double mean = (2 * row[0] + row[1] + row[2]) / 4;
    train_unchanged("--data rows --micro-batch 4 --data-order sequential", 1, &mixed);
    assert_true(fabs(mixed - mean) < 1e-6);
    train_unchanged("--data rows --micro-batch 2 --accumulate 2 --data-order sequential", 1,
                    &mixed);
    assert_true(fabs(mixed - mean) < 1e-6);
}

static void train_when_data_order_is_left_out_then_rows_start_anywhere(void **state)
{
    (void)state;
    double first[2 * ROWS], random[2 * ROWS], other[2 * ROWS];
    write_rows();
    train_unchanged("--data rows --micro-batch 1 --data-order sequential", 2 * ROWS, first);
    train_unchanged("--data rows --micro-batch 1 --seed 1", 2 * ROWS, random);
    train_unchanged("--data rows --micro-batch 1 --seed 1 --data-order random", 2 * ROWS, other);
    assert_memory_equal(random, other, sizeof random);
    assert_memory_not_equal(random, first, sizeof random);
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

/* The file of a run, with options of each command, as it is. */
static void file_when_given_to_every_command_then_serves_each(void **state)
{
    (void)state;
    FILE *file = fopen("all.json", "w");
    fputs("{\"layers\": 2, \"width\": 32, \"heads\": 2, \"context\": 32, \"micro_batch\": 2,"
          " \"data\": [\"text\"], \"steps\": 2, \"lr\": 1e-3, \"save\": \"served\","
          " \"prompt\": \"the \", \"tokens\": 4, \"checkpoint\": \"served\", \"quick\": true,"
          " \"bench\": {\"output\": \"rates.json\"}, \"eval\": {\"json\": true}}",
          file);
    fclose(file);
    assert_code(sluice("plan --config all.json"), 0);
    assert_code(sluice("train --config all.json"), 0);
    assert_code(sluice("eval --config all.json"), 0);
    assert_has(output, "\"perplexity\"");
    assert_code(sluice("generate --config all.json"), 0);
    assert_has(output, "the ");
    assert_code(sluice("doctor --config all.json"), 0);
    assert_code(sluice("bench --config all.json --threads none"), 64);
    assert_one_complaint("--threads"); /* and not the file */
}

/* ---- options that must be heard ---- */

static numbers train_four_steps(const char *option)
{
    assert_code(
        sluice("train " TINY "--data text --steps 4 --lr 1e-2 --quiet --log-json log %s", option),
        0);
    json_t *events = read_log("log");
    const numbers last = find_step(events, 4);
    json_decref(events);
    return last;
}

static void train_when_an_option_is_given_then_the_numbers_are_others(void **state)
{
    (void)state;
    static const char *const options[] = {"--lr 2e-2",
                                          "--min-lr 5e-3",
                                          "--warmup 3",
                                          "--lr-schedule linear",
                                          "--weight-decay 0.9",
                                          "--beta1 0.5",
                                          "--beta2 0.5",
                                          "--eps 1e-2",
                                          "--clip 0.01",
                                          "--seed 2",
                                          "--seq 16",
                                          "--micro-batch 3",
                                          "--accumulate 2",
                                          "--precision bf16",
                                          "--vocab 300",
                                          "--heads 4",
                                          "--data-order sequential"};
    const numbers base = train_four_steps(""), again = train_four_steps("");
    assert_memory_equal(&base, &again, sizeof base);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const numbers other = train_four_steps(options[i]);
        if (memcmp(&base, &other, sizeof base) == 0)
            fail_msg("%s changes nothing", options[i]);
    }
}

/* A drawn byte may be a NUL, so all of the text is kept and compared. */
static void draw_text(const char *options, char text[TEXT_BYTES])
{
    memset(output, 0, sizeof output);
    assert_code(sluice("generate drawn --prompt 'the ' --tokens 24 --seed 1 %s", options), 0);
    memcpy(text, output, TEXT_BYTES);
}

static void generate_when_an_option_is_given_then_draws_otherwise(void **state)
{
    (void)state;
    static const char *const greedy[] = {"--top-p 1e-9", "--top-k 1", "--temperature 1e-4"};
    static const char *const others[] = {"--seed 2", "--temperature 3", "--tokens 12"};
    static char likeliest[TEXT_BYTES], drawn[TEXT_BYTES], text[TEXT_BYTES];
    assert_code(sluice("train " TINY "--data text --steps 20 --lr 3e-3 --quiet --save drawn"), 0);
    draw_text("--temperature 0", likeliest);
    draw_text("--temperature 1", drawn);
    assert_memory_not_equal(drawn, likeliest, TEXT_BYTES);
    for (size_t i = 0; i < sizeof greedy / sizeof greedy[0]; i++) {
        draw_text(greedy[i], text);
        if (memcmp(text, likeliest, TEXT_BYTES) != 0)
            fail_msg("%s is not the likeliest text", greedy[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        draw_text(others[i], text);
        if (memcmp(text, drawn, TEXT_BYTES) == 0)
            fail_msg("%s changes nothing", others[i]);
    }
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

static void plan_when_auto_then_shows_the_best_three_and_that_times_are_a_guess(void **state)
{
    (void)state;
    const char *options = TINY "--data text --device-memory 700K --host-memory 2M";
    assert_code(sluice("plan %s --json --policy host", options), 0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_null(json_object_get(plan, "auto"));
    json_decref(plan);
    assert_code(sluice("plan %s --json", options), 0);
    plan = json_loads(output, 0, NULL);
    const json_t *compared = json_object_get(plan, "auto");
    const json_t *candidates = json_object_get(compared, "candidates");
    assert_true(json_is_false(json_object_get(compared, "machine_is_measured")));
    assert_int_equal(json_array_size(candidates), 3);
    assert_true(json_integer_value(json_object_get(compared, "planned_count")) >= 3);
    double before = 0;
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_array_get(candidates, i);
        double step = json_number_value(json_object_get(one, "predicted_step_ms"));
        assert_true(step >= before && step > 0);
        assert_non_null(json_string_value(json_object_get(one, "bound_by")));
        assert_true(json_integer_value(json_object_get(json_object_get(one, "peak_bytes"),
                                                       "device")) <= 700 * 1024);
        before = step;
    }
    json_decref(plan);
    assert_code(sluice("plan %s", options), 0);
    assert_non_null(strstr(output, "by a guess (this machine was not measured: sluice bench)"));
    assert_non_null(strstr(output, "bound by "));
    assert_code(sluice("train %s --steps 2", options), 0);
    assert_has(output, "a guess: auto chose by them; sluice bench");
    assert_has(output, "the predicted ");
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

/* A result that is not whole is no result; what a run prints is none. */
static void results_when_output_is_full_then_74_but_of_a_run(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int code;
    } cases[] = {{"plan " TINY "--vocab 257", 74},
                 {"doctor", 74},
                 {"train " TINY "--data text --steps 1", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char command[COMMAND_BYTES];
        snprintf(command, sizeof command, "timeout %u '%s' %s >/dev/full 2>err </dev/null", limit_s,
                 binary, cases[i].arguments);
        int status = system(command);
        read_complaint("err");
        assert_true(WIFEXITED(status));
        assert_code(WEXITSTATUS(status), cases[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_when_wrong_then_one_line_and_64),
        cmocka_unit_test(number_when_out_of_range_then_the_limit_is_said),
        cmocka_unit_test(path_when_it_cannot_serve_then_said_at_once),
        cmocka_unit_test(help_and_version_when_asked_then_are_printed),
        cmocka_unit_test(libraries_when_installed_then_version_has_them),
        cmocka_unit_test(bench_when_quick_then_rows_have_rates_and_the_profile_is_found_again),
        cmocka_unit_test(bench_when_quick_and_a_full_one_exists_then_that_stays),
        cmocka_unit_test(train_when_plain_then_learns_and_logs_by_the_contract),
        cmocka_unit_test(train_when_placed_in_any_way_then_numbers_are_the_same),
        cmocka_unit_test(train_when_data_are_sequential_then_rows_follow_the_formula),
        cmocka_unit_test(train_when_data_order_is_left_out_then_rows_start_anywhere),
        cmocka_unit_test(train_when_configured_by_file_then_options_beside_it_win),
        cmocka_unit_test(train_when_an_option_is_given_then_the_numbers_are_others),
        cmocka_unit_test(generate_when_an_option_is_given_then_draws_otherwise),
        cmocka_unit_test(file_when_given_to_every_command_then_serves_each),
        cmocka_unit_test(results_when_output_is_full_then_74_but_of_a_run),
        cmocka_unit_test(fit_when_refused_then_the_suggestion_fits),
        cmocka_unit_test(plan_when_auto_then_shows_the_best_three_and_that_times_are_a_guess),
        cmocka_unit_test(plan_when_it_fits_then_has_every_key_and_the_bytes_of_the_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
