/* What could be wrong with DeepSpeed's files on the command line: one as its documentation has it
 * does not run, or in another place than it says; --disk-dir does not win; the table is not
 * printed, or where a program reads; a run that goes on forgets what the file said; a bad file
 * leaves with another exit code or more than a line. */
#define _GNU_SOURCE
#include "command_run.h"

enum { EXIT_WRONG_USE = 64, EXIT_BAD_DATA = 65 };

#define ZERO3 "--config " SL_TEST_SOURCE_DIRECTORY "/deepspeed/zero3_nvme.json "
#define ZERO2 "--config " SL_TEST_SOURCE_DIRECTORY "/deepspeed/zero2_offload.json "

static void make_directory(const char *name)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "rm -rf %s && mkdir -m 700 %s", name, name);
    assert_int_equal(system(command), 0);
}

/* An option of the resolved configuration that a log starts with. */
static void assert_option(const char *log, const char *key, const char *expected)
{
    json_t *events = read_log(log);
    json_t *config = json_object_get(json_array_get(events, 0), "config");
    char *text = json_dumps(json_object_get(config, key), JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (!text || strcmp(text, expected) != 0)
        fail_msg("%s: %s is %s, not %s", log, key, text ? text : "not there", expected);
    free(text);
    json_decref(events);
}

/* ZeRO-3 with parameters and states on a drive, everything else left to Hugging Face's "auto". */
static void zero3_when_as_documented_then_trains_from_disk(void **state)
{
    (void)state;
    make_directory("local_nvme");
    assert_code(sluice("train " ZERO3 TINY "--data text --steps 4 --log-json log"), 0);
    assert_has(output, "a configuration of DeepSpeed, means here:\n");
    assert_has(output, "--policy nvme --nvme-params 1\n");
    assert_has(output, "--disk-dir local_nvme, unless that is given\n");
    assert_has(output, "--lr-schedule WarmupLR\n");
    assert_has(output, "decided here, by --weight-decay");
    assert_has(output, "no meaning: --device-memory is the budget\n");
    assert_string_equal(complaint, "");
    assert_option("log", "policy", "\"nvme\"");
    assert_option("log", "nvme_params", "1.0");
    assert_option("log", "warmup_type", "\"log\"");
    assert_option("log", "log_every", "50");
    json_t *events = read_log("log");
    const json_t *step = json_array_get(events, 4);
    assert_true(json_integer_value(json_object_get(step, "disk_written_bytes")) > 0);
    assert_true(isfinite(find_step(events, 4).loss));
    json_decref(events);
}

/* The numbers are those of the same options by hand, wherever the bytes lie. */
static void zero3_when_disk_dir_is_given_then_it_wins(void **state)
{
    (void)state;
    make_directory("elsewhere");
    assert_int_equal(system("rm -rf local_nvme"), 0);
    assert_code(sluice("train " ZERO3 TINY "--data text --steps 4 --log-json log --quiet "
                       "--disk-dir elsewhere"),
                0);
    assert_string_equal(output, ""); /* --quiet: no table */
    assert_code(sluice("train " TINY "--data text --steps 4 --log-json hand --quiet "
                       "--lr-schedule WarmupLR --warmup-type log --policy device"),
                0);
    assert_same_steps("log", "hand", 1, 4);
    assert_code(sluice("train " ZERO3 TINY "--data text --steps 4 --disk-dir nowhere --quiet"), 66);
    assert_one_complaint("nowhere");
}

static void zero2_when_it_goes_on_without_the_file_then_goes_on_the_same(void **state)
{
    (void)state;
    assert_int_equal(system("rm -rf saved"), 0);
    assert_code(sluice("train " ZERO2 TINY "--micro-batch 2 --data text --steps 12 --log-json log "
                       "--quiet"),
                0);
    assert_option("log", "accumulate", "4");
    assert_option("log", "precision", "\"bf16\"");
    assert_option("log", "weight_decay", "0.02");
    assert_option("log", "clip", "0.5");
    assert_option("log", "beta2", "0.98");
    assert_option("log", "lr_decay_steps", "12");
    assert_option("log", "nonfinite", "\"skip\"");
    assert_option("log", "policy", "\"static\"");
    assert_option("log", "offload_optimizer", "1.0");
    assert_code(sluice("train " ZERO2 TINY "--data text --steps 5 --save saved --quiet"), 0);
    assert_code(sluice("train --steps 12 --save saved --resume --log-json again --quiet"), 0);
    assert_same_steps("log", "again", 6, 12);
}

/* What a file leaves out is DeepSpeed's default for a new run; one that goes on keeps what it had,
 * and says so, for the table of the file shows the default. */
static void key_when_it_is_deleted_before_a_run_goes_on_then_its_value_stays_and_is_told(
    void **state)
{
    (void)state;
    assert_int_equal(system("rm -rf kept && sed '/gradient_clipping/d' '" SL_TEST_SOURCE_DIRECTORY
                            "/deepspeed/zero2_offload.json' >edited.json"),
                     0);
    assert_code(sluice("train " ZERO2 TINY "--data text --steps 2 --save kept --quiet"), 0);
    assert_code(sluice("train --config edited.json --steps 3 --save kept --resume --log-json log"),
                0);
    assert_has(complaint, "--clip 0.5 stays: --config leaves it out");
    assert_option("log", "clip", "0.5");
}

static void plan_when_a_program_reads_then_prints_no_table(void **state)
{
    (void)state;
    assert_code(sluice("plan " ZERO2 TINY "--data text"), 0);
    assert_has(output, "optimizer.params.lr");
    assert_has(output, "scheduler.params.warmup_max_lr is the peak");
    assert_has(output, "predicted step");
    assert_code(sluice("plan " ZERO2 TINY "--data text --json"), 0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_true(json_is_true(json_object_get(plan, "fits")));
    json_decref(plan);
}

/* What the file says falls to what is given beside it. */
static void options_when_given_beside_then_win(void **state)
{
    (void)state;
    assert_code(sluice("train " ZERO2 TINY "--data text --steps 2 --lr 1e-4 --precision fp32 "
                       "--log-json log --quiet"),
                0);
    assert_option("log", "lr", "0.0001");
    assert_option("log", "precision", "\"fp32\"");
    assert_option("log", "weight_decay", "0.02");
}

static void files_when_bad_then_one_line_and_64_or_65(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *fragment;
    } cases[] = {
        {"{\"fp16\": {\"enabled\": true", EXIT_BAD_DATA, "bad.json:1:"},
        {"{\"fp16\": {}, \"fp16\": {}}", EXIT_BAD_DATA, "duplicate"},
        {"{\"fp16\": {\"enabled\": 1}}", EXIT_WRONG_USE, "\"fp16.enabled\" is not true or false"},
        {"{\"optimizer\": {\"type\": \"Lamb\"}}", EXIT_WRONG_USE, "\"optimizer.type\" is Lamb"},
        {"{\"zero_optimization\": {\"stge\": 3}}", EXIT_WRONG_USE, "did you mean stage?"},
        {"{\"train_batch_size\": 7, \"train_micro_batch_size_per_gpu\": 2}", EXIT_WRONG_USE,
         "\"train_batch_size\" is 7"},
    };
    limit_s = 5;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *file = fopen("bad.json", "w");
        assert_non_null(file);
        fputs(cases[i].text, file);
        fclose(file);
        assert_code(sluice("train --config bad.json " TINY "--data text --steps 1"), cases[i].code);
        assert_one_complaint(cases[i].fragment);
        assert_string_equal(output, "");
    }
    limit_s = 250;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero3_when_as_documented_then_trains_from_disk),
        cmocka_unit_test(zero3_when_disk_dir_is_given_then_it_wins),
        cmocka_unit_test(zero2_when_it_goes_on_without_the_file_then_goes_on_the_same),
        cmocka_unit_test(
            key_when_it_is_deleted_before_a_run_goes_on_then_its_value_stays_and_is_told),
        cmocka_unit_test(plan_when_a_program_reads_then_prints_no_table),
        cmocka_unit_test(options_when_given_beside_then_win),
        cmocka_unit_test(files_when_bad_then_one_line_and_64_or_65),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
