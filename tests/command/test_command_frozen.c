/* What could be wrong with frozen matrices in fewer bytes, as a user has it: a placement, a budget,
 * a number of ranks or a run that goes on has other numbers; the base is quantised again each time
 * it is saved and loaded, or trained; what is planned is not what is measured; a matrix of a small
 * type takes no less memory; an option that cannot be is taken in silence; generate or eval compute
 * with other weights than the training did. Every case runs the built command. */
#define _GNU_SOURCE
#include "command_run.h"

#include "saved_tensors.h"

#define RUN "--data text --seed 5 --device cpu --threads 1 --micro-batch 2 --lr 1e-2 --quiet "
#define MEMORY "--device-memory 64M --host-memory 64M "
/* A rank of two has whole groups of 32 in each row. */
#define MODEL "--layers 2 --width 64 --heads 2 --context 32 "
#define LORA "--init start --lora-rank 3 --lora-alpha 6 --lora-targets c_attn c_proj "

static const char *const adapters = "*.lora_?.weight";
static const char *const types[] = {"int8", "bf16"};

static void assert_planned(const char *log_name)
{
    json_t *log = read_log(log_name);
    assert_peaks_as_planned(log);
    json_decref(log);
}

/* The base of a run is what its own first checkpoint has; the adapters alone are trained. */
static void train_when_placed_anyhow_then_has_the_same_bits(void **state)
{
    (void)state;
    static const char *const ways[] = {
        MEMORY "--policy host --recompute full", MEMORY "--policy device --chunk-size 16384",
        MEMORY "--policy nvme --disk-dir disk --nvme-params 1 --threads 2",
        "--policy static --offload-params 0.5 --device-memory 2M --host-memory 64M "
        "--recompute selective"};
    shell("mkdir -m 700 -p disk");
    for (int t = 0; t < 2; t++) {
        shell("rm -rf one");
        assert_code(sluice("train " RUN MEMORY LORA "--frozen-type %s --steps 3 --save one "
                           "--save-every 1 --keep 0 --log-json one.json",
                           types[t]),
                    0);
        assert_only_differ("model", "one/step-00000003", "one/step-00000001", adapters, keep);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            shell("rm -rf way");
            assert_code(sluice("train " RUN LORA "--frozen-type %s --steps 3 --save way "
                               "--log-json way.json %s",
                               types[t], ways[i]),
                        0);
            assert_same_files("way/step-00000003", "one/step-00000003");
            assert_planned("way.json");
        }
    }
    shell("rmdir disk");
}

/* A checkpoint holds what the codes stand for, and that has the same codes. */
static void resume_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int half = 0; half < 2 - t; half++) {
            const char *precision = half ? "--precision bf16" : "";
            shell("rm -rf all cut again");
            assert_code(sluice("train " RUN MEMORY LORA "--frozen-type %s --steps 4 --save all "
                               "--save-every 2 --keep 0 %s",
                               types[t], precision),
                        0);
            shell("mkdir cut && cp -r all/step-00000002 cut/");
            assert_code(sluice("train --resume --save cut --steps 4 --policy host --quiet"), 0);
            assert_same_files("all/step-00000004", "cut/step-00000004");
            assert_code(sluice("train " RUN MEMORY "--init all --frozen-type %s --steps 0 --save "
                               "again %s",
                               types[t], precision),
                        0);
            assert_only_differ("model", "again/step-00000000", "all/step-00000004", "", keep);
        }
    /* Another type takes the numbers as they are, and says so. */
    assert_code(sluice("train --resume --save cut --steps 5 --frozen-type int8"), 0);
    assert_has(complaint, "--frozen-type bf16 \xe2\x86\x92 int8");
}

static double find_loss(const char *log_name, json_int_t step)
{
    json_t *log = read_log(log_name);
    const double loss = find_step(log, step).loss;
    json_decref(log);
    return loss;
}

/* Two ranks compute the rows of one, in other sums; bounds as in test_command_tensor.c. */
static void train_when_on_two_ranks_then_is_as_on_one(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--tp 2", "--tp 2 --sequence-parallel", "--pp 2 --micro-batch 1 --accumulate 2",
        "--dp 2 --micro-batch 1 --zero 1", "--dp 2 --micro-batch 1 --zero 3"};
    assert_code(sluice("train " RUN LORA "--frozen-type int8 --steps 4 --log-json one.json"), 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf ranks");
        assert_code(sluice("launch -n 2 -- train " RUN LORA "--frozen-type int8 --steps 4 "
                           "--log-json ranks.json %s",
                           ways[i]),
                    0);
        assert_near("one.json", "ranks.json", 4);
    }
    /* The numbers are not those of the exact base: codes are used at all. */
    assert_code(sluice("train " RUN LORA "--steps 4 --log-json exact.json"), 0);
    const double exact = find_loss("exact.json", 1), coded = find_loss("one.json", 1);
    assert_true(exact != coded && fabs(coded / exact - 1) < 1e-2);
}

static json_int_t planned_params(const char *options)
{
    assert_code(sluice("plan --model gpt2 --device cpu --micro-batch 1 --seq 64 --lora-rank 4 "
                       "--policy host --json %s",
                       options),
                0);
    json_t *plan = json_loads(output, 0, NULL);
    json_t *host = json_object_get(json_object_get(plan, "tiers"), "host");
    const json_int_t bytes = json_integer_value(json_object_get(host, "param"));
    json_decref(plan);
    assert_true(bytes > 0);
    return bytes;
}

/* GPT-2 124M: homes of 4, 2 and 1.0625 bytes an element. */
static void plan_when_types_are_small_then_homes_are(void **state)
{
    (void)state;
    const double elements = 124.5e6;
    const double own = (double)planned_params("--precision fp32");
    const double halves = (double)planned_params("--precision fp32 --frozen-type bf16");
    const double codes = (double)planned_params("--precision fp32 --frozen-type int8");
    assert_true(fabs((own - halves) / elements - 2) < 0.03);
    assert_true(fabs((own - codes) / elements - (4 - 1.0625)) < 0.03);
}

static void generate_and_eval_when_weights_are_small_then_are_as_the_run(void **state)
{
    (void)state;
    char text[2][sizeof output];
    double losses[2];
    shell("rm -rf coded");
    assert_code(sluice("train " RUN LORA "--frozen-type int8 --steps 0 --save coded"), 0);
    for (int i = 0; i < 2; i++) {
        const char *options = i ? "start --weights int8 --policy host" : "coded";
        assert_code(sluice("eval %s --data text --device cpu --threads 1 --micro-batch 2 "
                           "--eval-iters 4 --json",
                           options),
                    0);
        json_t *root = json_loads(output, 0, NULL);
        losses[i] = json_real_value(json_object_get(root, "loss"));
        json_decref(root);
        assert_code(
            sluice("generate %s --prompt the --tokens 8 --device cpu --temperature 0", options), 0);
        snprintf(text[i], sizeof text[i], "%s", output);
    }
    assert_true(losses[0] == losses[1] && losses[0] > 0);
    assert_string_equal(text[0], text[1]);
}

static void options_when_they_cannot_be_then_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        const char *complaint;
    } rows[] = {
        {"train " RUN MODEL "--steps 1 --frozen-type int8", "none is frozen: give --lora-rank"},
        {"train " RUN MODEL "--steps 1 --freeze '*.bias' --frozen-type int8", "none is frozen"},
        {"train " RUN LORA "--steps 1 --precision fp16 --frozen-type bf16",
         "--frozen-type bf16: elements of --precision fp16 have 2 bytes"},
        {"eval start --data text --device cpu --precision fp16 --weights bf16",
         "--weights bf16: elements of --precision fp16 have 2 bytes"},
        {"train " RUN LORA "--steps 1 --frozen-type q4", "own"},
        {"plan --cluster '" SL_TEST_SOURCE_DIRECTORY
         "/../examples/clusters/dgx-a100-80gb.json' --ranks 8 --global-batch 8 --frozen-type int8",
         "--frozen-type is not known to --cluster"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_code(sluice("%s", rows[i].arguments), 64);
        assert_has(complaint, rows[i].complaint);
    }
}

static int set_up_runs(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " MODEL RUN MEMORY "--steps 2 --save start"), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_placed_anyhow_then_has_the_same_bits),
        cmocka_unit_test(resume_then_goes_on_bit_for_bit),
        cmocka_unit_test(train_when_on_two_ranks_then_is_as_on_one),
        cmocka_unit_test(plan_when_types_are_small_then_homes_are),
        cmocka_unit_test(generate_and_eval_when_weights_are_small_then_are_as_the_run),
        cmocka_unit_test(options_when_they_cannot_be_then_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up_runs, tear_down);
}
