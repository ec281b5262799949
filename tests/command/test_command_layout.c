/* What could be wrong between a plan and its run: the file of --write-config leaves out what the
 * plan chose, so that the run is another one or is refused; it replaces a file that somebody else
 * wrote; it promises a run that lacks a disk or ranks. The number of GPUs is none that the rule
 * gives. Where --tp, --pp and --zero are auto: ranks choose differently, a choice does not fit
 * where another one does, it is not in the log, or a run that goes on with as many ranks has
 * another one, and other bits. */
#define _GNU_SOURCE
#include "command_run.h"
#include "sanitizer_share.h"

#define CLUSTERS SL_TEST_SOURCE_DIRECTORY "/../examples/clusters/"
#define SMALL "--layers 4 --width 64 --heads 8 --context 64 --vocab 257 "
#define LLAMA "--arch llama --kv-heads 4 --ffn 128 "

static json_int_t read_count(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("\"%s\" is no number", key);
    return json_integer_value(value);
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up_data(void **state)
{
    if (set_up(state) != 0)
        return -1;
    FILE *file = fopen("data", "w");
    for (int i = 0; file && i < 3000; i++)
        fprintf(file, "line %d of a text that has some words, %d of them new\n", i, i * i % 97);
    return file && fclose(file) == 0 ? 0 : -1;
}

/* The start of the last run in a log; the caller releases *out_log. */
static const json_t *read_start(const char *name, json_t **out_log)
{
    *out_log = read_log(name);
    return find_last_event(*out_log, "start");
}

/* A configuration is JSON with comments. */
static json_t *read_configuration(const char *name)
{
    char text[TEXT_BYTES], *comment;
    read_text(name, text);
    while ((comment = strstr(text, "\n  //")) != NULL)
        memset(comment + 1, ' ', strcspn(comment + 1, "\n"));
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!object)
        fail_msg("%s is no JSON: %s", name, text);
    return object;
}

/* ---- a file for train ---- */

/* The layout that plan printed; dp is that of 8 ranks. */
static void read_planned(json_int_t out_numbers[5])
{
    long long tp, dp, pp, zero, accumulate, micro_batch;
    const char *line = strstr(output, "\n--tp ");
    assert_non_null(line);
    assert_int_equal(sscanf(line,
                            "\n--tp %lld x --dp %lld x --pp %lld, --zero %lld, %lld micro-batch"
                            "%*[es of]%lld row",
                            &tp, &dp, &pp, &zero, &accumulate, &micro_batch),
                     6);
    const json_int_t found[5] = {tp, dp, pp, zero, micro_batch};
    memcpy(out_numbers, found, sizeof found);
}

static void assert_is_planned(const json_int_t planned[5], const char *log)
{
    static const char *const keys[] = {"tp", "dp", "pp", "zero", "micro_batch"};
    json_t *events;
    const json_t *config = json_object_get(read_start(log, &events), "config");
    for (int i = 0; i < 5; i++)
        assert_int_equal(read_count(config, keys[i]), planned[i]);
    json_decref(events);
}

/* What was chosen is what runs, and its bytes are those that were planned for it. */
static void assert_runs_as_written(const char *file, const char *log)
{
    static const char *const keys[] = {
        "tp",          "pp",           "zero",           "micro_batch",      "policy",
        "recompute",   "accumulation", "schedule",       "precision",        "nvme_grads",
        "nvme_params", "global_batch", "nvme_optimizer", "offload_optimizer"};
    json_t *events, *written = read_configuration(file);
    const json_t *config = json_object_get(read_start(log, &events), "config");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(written, keys[i]);
        if (value && !json_equal(value, json_object_get(config, keys[i])))
            fail_msg("\"%s\" of the run is not that of %s", keys[i], file);
    }
    assert_peaks_as_planned(events);
    json_decref(written);
    json_decref(events);
}

/* Eight ranks on the cpu device, with a small model in the place of the planned one. */
static void configuration_when_written_for_a_described_cluster_runs_as_written(void **state)
{
    (void)state;
    static const struct {
        const char *cluster, *planned, *small;
    } cases[] = {
        {"dgx-a100-80gb.json", "--model gpt2-10b", ""},
        {"dgx-h100.json", "--model llama-3.1-8b --seq 2048 --tp 2", "--kv-heads 4 --head-size 8 "},
        {"v100-32gb.json", "--model qwen3-8b --seq 1024 --pp 2 --tp 2",
         "--kv-heads 4 --head-size 8 "},
        {"v100-16gb.json", "--model gpt2-10b --policy nvme --disk-dir . --precision fp16", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i += SANITIZER_SHARE) {
        const bool is_llama = *cases[i].small != '\0';
        json_int_t planned[5];
        assert_code(sluice("plan --cluster '" CLUSTERS "%s' %s --ranks 8 --global-batch 16 "
                           "--data data --write-config run.json",
                           cases[i].cluster, cases[i].planned),
                    0);
        read_planned(planned);
        assert_has(output, "sluice launch -n 8 -- train --config run.json\n");
        assert_has(output, "srun -N 1 -n 8 --ntasks-per-node=8 --mpi=pmix sluice train --config");
        assert_code(sluice("launch -n 8 -- train --config run.json " SMALL "%s %s --seq 64 "
                           "--vocab 320 --steps 1 --threads 1 --device cpu --log-json log",
                           cases[i].small, is_llama ? "--ffn 128" : ""),
                    0);
        assert_is_planned(planned, "log");
        assert_runs_as_written("run.json", "log");
        remove("log");
    }
}

/* What plan chose for this machine is found again from its file. */
static void configuration_when_written_for_this_machine_has_the_same_plan(void **state)
{
    (void)state;
    json_t *plans[2];
    assert_code(sluice("plan " SMALL
                       "--device-memory 2M --host-memory 64M --lr 1e-3 --optimizer lion --ranks 2 "
                       "--zero 2 --global-batch 8 --device cpu --threads 1 --json --write-config "
                       "here.json"),
                0);
    plans[0] = json_loads(output, 0, NULL);
    assert_code(sluice("plan --config here.json --ranks 2 --json"), 0);
    plans[1] = json_loads(output, 0, NULL);
    assert_true(json_equal(json_object_get(plans[0], "tiers"), json_object_get(plans[1], "tiers")));
    assert_true(json_equal(json_object_get(plans[0], "predicted_step_ms"),
                           json_object_get(plans[1], "predicted_step_ms")));
    json_t *written = read_configuration("here.json");
    assert_string_equal(json_string_value(json_object_get(written, "optimizer")), "lion");
    assert_true(json_real_value(json_object_get(written, "lr")) == 1e-3);
    assert_null(json_object_get(written, "json"));
    json_decref(written);
    json_decref(plans[0]);
    json_decref(plans[1]);
}

#define PLAN "plan --cluster '" CLUSTERS "v100-16gb.json' " SMALL

static void configurations_when_they_could_not_be_run_are_not_written(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
        int code;
    } cases[] = {
        {PLAN "--ranks 8 --global-batch 8 --policy nvme --write-config new.json",
         "the plan keeps states on drives: add --disk-dir DIR", 64},
        {PLAN "--ranks 2048 --global-batch 4096 --write-config new.json",
         "train takes at most 1024 ranks", 64},
        {PLAN "--ranks 8 --global-batch 8 --write-config data", "data", 64},
        {"plan " SMALL "--write-config data", "data", 64},
        {"plan " SMALL "--write-config new.json --compare host", "--write-config out", 64},
        {"plan " SMALL "--write-config new.json --report new.json", "another output", 64},
        {"convert --from data --to x --tp auto", "--tp auto: pieces", 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("%s", cases[i].words), cases[i].code);
        assert_has(complaint, cases[i].says);
        assert_int_equal(access("new.json", F_OK), -1);
    }
    char text[TEXT_BYTES];
    read_text("data", text);
    assert_has(text, "line 0 of a text");
    assert_code(sluice(PLAN "--ranks 2 --global-batch 8 --write-config own.json"), 0);
    assert_code(sluice(PLAN "--ranks 4 --global-batch 8 --write-config own.json"), 0);
    write_text("theirs.json", "{\n  \"tp\": 1\n}\n");
    assert_code(sluice(PLAN "--ranks 4 --global-batch 8 --write-config theirs.json"), 64);
}

/* ---- how many GPUs ---- */

static void number_of_gpus_when_open_is_the_most_that_cost_little_more(void **state)
{
    (void)state;
    size_t index;
    json_t *it;
    double least = INFINITY;
    json_int_t most = 0, before = 0;
    assert_code(sluice("plan --cluster '" CLUSTERS "dgx-a100-80gb.json' --layers 4 --width 512 "
                       "--heads 8 --context 256 --vocab 1024 --global-batch 32 --json"),
                0);
    json_t *object = json_loads(output, 0, NULL);
    const json_t *counts = json_object_get(object, "counts");
    assert_true(json_array_size(counts) >= 5);
    json_array_foreach((json_t *)counts, index, it)
    {
        const json_int_t ranks = read_count(it, "ranks");
        assert_true(ranks > before && ranks <= 1024);
        before = ranks;
        least = fmin(least,
                     (double)ranks * json_number_value(json_object_get(it, "predicted_step_ms")));
    }
    json_array_foreach((json_t *)counts, index, it)
    {
        const json_int_t ranks = read_count(it, "ranks");
        if ((double)ranks * json_number_value(json_object_get(it, "predicted_step_ms")) <=
            1.05 * least)
            most = ranks;
    }
    assert_int_equal(read_count(object, "ranks"), most);
    json_decref(object);
    assert_code(sluice("plan --cluster '" SL_TEST_SOURCE_DIRECTORY
                       "/../examples/machines/rtx-4060-8gb.json' --model gpt2-10b --policy device "
                       "--global-batch 8 --ranks auto"),
                69);
    assert_one_complaint("no way to share it fits");
}

/* ---- chosen by the ranks ---- */

#define AUTO "--tp auto --pp auto --zero auto --global-batch 16 "
#define RUN "train " SMALL "--data data --threads 1 --device cpu "

/* Holds the log's numbers to the configuration and to the ranks; returns where they are from. */
static const char *check_layout(const json_t *start, json_int_t ranks)
{
    size_t index;
    json_t *it;
    double before = 0;
    const json_t *config = json_object_get(start, "config");
    const json_t *layout = json_object_get(json_object_get(start, "plan"), "layout");
    static const char *const keys[] = {"tp", "pp", "zero", "micro_batch"};
    assert_non_null(layout);
    for (int i = 0; i < 4; i++)
        assert_int_equal(read_count(layout, keys[i]), read_count(config, keys[i]));
    assert_int_equal(read_count(config, "tp") * read_count(config, "pp") * read_count(config, "dp"),
                     ranks);
    assert_int_equal(read_count(layout, "ranks"), ranks);
    assert_int_equal(read_count(config, "micro_batch") * read_count(config, "accumulate") *
                         read_count(config, "dp"),
                     16);
    json_array_foreach(json_object_get(layout, "compared"), index, it)
    {
        const double ms = json_number_value(json_object_get(it, "predicted_step_ms"));
        assert_true(ms > 0 && ms >= before);
        before = ms;
    }
    return json_string_value(json_object_get(layout, "from"));
}

static void layout_when_chosen_is_kept_by_a_run_that_goes_on(void **state)
{
    (void)state;
    json_t *log;
    assert_code(sluice("launch -n 4 -- " RUN AUTO "--steps 4 --log-json whole"), 0);
    assert_has(complaint, "auto takes --tp ");
    assert_has(complaint, "slower: --tp ");
    assert_code(sluice("launch -n 4 -- " RUN AUTO "--steps 2 --lr-decay-steps 4 --save kept "
                       "--log-json parts"),
                0);
    assert_string_equal(check_layout(read_start("parts", &log), 4), "search");
    json_decref(log);
    assert_code(sluice("launch -n 4 -- train --resume --save kept --steps 4"), 0);
    assert_has(complaint, "auto keeps the checkpoint's layout: --tp ");
    assert_string_equal(check_layout(read_start("parts", &log), 4), "checkpoint");
    json_decref(log);
    assert_same_steps("whole", "parts", 1, 4);
    assert_code(sluice("launch -n 2 -- train --resume --save kept --steps 5"), 0);
    assert_string_equal(check_layout(read_start("parts", &log), 2), "search");
    json_decref(log);
    assert_code(sluice("train --resume --save kept --steps 6"), 0);
    assert_string_equal(check_layout(read_start("parts", &log), 1), "one rank");
    json_decref(log);
}

/* One that keeps all on each rank does not fit, so another one is chosen, which runs. */
static void layout_when_memory_is_short_is_one_that_fits(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *budget;
    } cases[] = {{"", "3000K"}, {LLAMA, "3000K"}};
    for (int i = 0; i < (SANITIZER_SHARE > 1 ? 1 : 2); i++) {
        char options[256];
        json_t *log;
        snprintf(options, sizeof options,
                 "%s --policy device --recompute full --device-memory %s --steps 1", cases[i].shape,
                 cases[i].budget);
        assert_code(sluice("launch -n 4 -- " RUN "%s --tp 1 --pp 1 --zero 0 --global-batch 16 "
                           "--micro-batch 1",
                           options),
                    69);
        assert_code(sluice("launch -n 4 -- " RUN AUTO "%s --log-json frugal", options), 0);
        const json_t *config = json_object_get(read_start("frugal", &log), "config");
        assert_true(read_count(config, "tp") * read_count(config, "pp") > 1 ||
                    read_count(config, "zero") > 0);
        json_decref(log);
        remove("frugal");
    }
}

static void layout_when_planned_is_that_of_the_run(void **state)
{
    (void)state;
    json_t *log;
    assert_code(sluice("plan " SMALL AUTO "--ranks 4 --threads 1 --device cpu --json"), 0);
    json_t *plan = json_loads(output, 0, NULL);
    const json_t *planned = json_object_get(plan, "layout");
    assert_code(sluice("launch -n 4 -- " RUN AUTO "--steps 1 --log-json planned"), 0);
    const json_t *start = read_start("planned", &log);
    const json_t *run = json_object_get(json_object_get(start, "plan"), "layout");
    static const char *const keys[] = {"tp", "pp", "zero", "micro_batch"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(read_count(planned, keys[i]), read_count(run, keys[i]));
    json_decref(plan);
    json_decref(log);
    assert_code(sluice("plan " SMALL AUTO "--ranks 4 --compare tp=2 pp=4"), 0);
    assert_has(output, "tp=2");
    assert_code(sluice("profile " SMALL "--tp auto --zero auto --profile-steps 1"), 0);
}

static void layouts_when_they_cannot_be_chosen_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"--tp auto", "--tp auto needs --global-batch N"},
        {"--pp auto --accumulate 2 --global-batch 8", "--accumulate beside --pp auto"},
        {"--pp auto --stages cost --global-batch 8", "--stages cost beside --pp auto"},
        {"--tp auto --global-batch 8 --dp 3", "no way to share 2 ranks"},
        {"--zero auto --tp 3", "there are 2 ranks and --tp 3"},
        {"--tp auto --global-batch 8 --freeze 'h.1.*'", "is in another way than in block 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("launch -n 2 -- " RUN "--steps 1 %s", cases[i].words), 64);
        assert_has(complaint, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configuration_when_written_for_a_described_cluster_runs_as_written),
        cmocka_unit_test(configuration_when_written_for_this_machine_has_the_same_plan),
        cmocka_unit_test(configurations_when_they_could_not_be_run_are_not_written),
        cmocka_unit_test(number_of_gpus_when_open_is_the_most_that_cost_little_more),
        cmocka_unit_test(layout_when_chosen_is_kept_by_a_run_that_goes_on),
        cmocka_unit_test(layout_when_memory_is_short_is_one_that_fits),
        cmocka_unit_test(layout_when_planned_is_that_of_the_run),
        cmocka_unit_test(layouts_when_they_cannot_be_chosen_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up_data, tear_down);
}
