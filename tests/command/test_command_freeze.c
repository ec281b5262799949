/* What could be wrong with `train --freeze` as a user has it: a frozen tensor is another one in the
 * saved checkpoint, or a trained one the same; states of frozen tensors take room in the files, or
 * those of trained ones are missing and nobody is told; a run that is stopped and goes on has other
 * numbers, or forgets what was frozen; one that goes on with other patterns keeps old moments for
 * what begins to be trained; a policy, a precision or a number of ranks freezes other tensors; an
 * option that cannot be is taken in silence. Every case runs the built command and reads the files
 * that it saved. */
#define _GNU_SOURCE
#include "command_run.h"

#include "base/half.h"
#include "saved_tensors.h"
#include "sealed_manifest.h"

#define RUN                                                                                        \
    TINY "--data text --seed 5 --device cpu --threads 1 --device-memory 64M --host-memory 64M "    \
         "--quiet "

/* The second block alone is trained: 12 tensors; 16 are not. */
#define FROZEN "--freeze 'wte.*' 'wpe.*' 'h.0.*' 'ln_f.*' "
static const char *const trained = "h.1.*";
enum { BLOCK_TENSORS = 12, TENSORS = 28, BLOCK_PARAMETERS = 12 * 32 * 32 + 13 * 32 };

static const char *const state_files[] = {"moment1", "moment2"};

static float halve(float value)
{
    return value / 2;
}

static float round_to_bf16(float value)
{
    return sl_half_from_bf16(sl_half_to_bf16(value));
}

static json_int_t count_frozen(const char *directory)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    const json_int_t count = json_integer_value(json_object_get(root, "stateless_tensors"));
    json_decref(root);
    return count;
}

/* ---- one run ---- */

static void train_when_tensors_are_frozen_then_only_the_others_change(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy device", "--policy host --accumulate 2 --micro-batch 1 --recompute full",
        "--policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1", "--lr 0.1 --clip 0"};
    shell("mkdir -m 700 -p disk");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf way");
        assert_code(sluice("train " RUN FROZEN "--init start --steps 3 --save way %s", ways[i]), 0);
        assert_only_differ("model", "way/step-00000003", "start/step-00000002", trained, keep);
        for (int k = 0; k < 2; k++)
            assert_holds_only("way/step-00000003", state_files[k], trained, BLOCK_TENSORS);
        assert_int_equal(count_frozen("way/step-00000003"), TENSORS - BLOCK_TENSORS);
    }
    shell("rmdir disk"); /* nothing was left in it */
}

/* In half precision the frozen values are those that the step reads: rounded once. */
static void train_when_in_bf16_then_stateless_tensors_are_rounded_once(void **state)
{
    (void)state;
    const char *end = "bf/step-00000006";
    shell("rm -rf bf bf-cut");
    assert_code(sluice("train " RUN FROZEN "--precision bf16 --init start --steps 6 --save bf "
                       "--save-every 3 --keep 0"),
                0);
    assert_only_differ("model", end, "start/step-00000002", trained, round_to_bf16);
    assert_only_differ("model", end, "bf/step-00000003", trained, keep);
    shell("mkdir bf-cut && cp -r bf/step-00000003 bf-cut/");
    assert_code(sluice("train --resume --save bf-cut --steps 6 --quiet"), 0);
    assert_same_files(end, "bf-cut/step-00000006");
}

static void describe_when_tensors_are_frozen_then_says_how_many_are_trained(void **state)
{
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "34720 parameters, %d of them trained", BLOCK_PARAMETERS);
    assert_code(sluice("train " TINY "--data text --device cpu --steps 1 " FROZEN), 0);
    assert_has(output, text);
    assert_code(sluice("plan " TINY "--vocab 257 --device cpu " FROZEN), 0);
    assert_has(output, text);
    assert_code(sluice("profile " TINY "--data text --device cpu --steps 1 " FROZEN), 0);
    assert_has(output, text);
    assert_code(sluice("plan " TINY "--vocab 257 --device cpu"), 0);
    assert_null(strstr(output, "of them trained"));
}

static json_int_t plan_trained(const char *arguments)
{
    json_int_t count = -1;
    assert_code(sluice("plan " TINY "--vocab 257 --device cpu --json %s", arguments), 0);
    json_t *root = json_loads(output, 0, NULL);
    assert_non_null(root);
    json_unpack(root, "{s:I}", "trained_parameters", &count);
    json_decref(root);
    return count;
}

/* Words, commas, files and --set say the same. */
static void options_when_given_in_any_form_then_freeze_the_same(void **state)
{
    (void)state;
    shell("echo '{\"freeze\": [\"wte.*\", \"wpe.*\", \"h.0.*\", \"ln_f.*\"]}' >list.json");
    shell("echo '{\"freeze\": \"*,!h.1.*\"}' >text.json");
    static const char *const forms[] = {FROZEN,
                                        "--freeze 'wte.*,wpe.*,h.0.*,ln_f.*'",
                                        "--freeze 'wte.*' --freeze 'wpe.*' 'h.0.*,ln_f.*'",
                                        "--freeze '*' '!h.1.*'",
                                        "--set 'freeze=*,!h.1.*'",
                                        "--config list.json",
                                        "--config text.json",
                                        "--config text.json --freeze '*' '!h.1.*'"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (plan_trained(forms[i]) != BLOCK_PARAMETERS)
            fail_msg("%s: %s", forms[i], output);
    assert_int_equal(plan_trained(""), 34720);
    assert_int_equal(plan_trained("--freeze '!*'"), 34720);
    assert_int_equal(plan_trained("--config list.json --freeze '!*'"), 34720);
}

static void options_when_they_cannot_be_then_are_refused(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN "--steps 1 --freeze 'h.[0-1].*' 'h.2.*'"), 64);
    assert_one_complaint("--freeze: \"h.2.*\" matches no tensor");
    assert_code(sluice("plan " TINY "--vocab 257 --device cpu --freeze wte"), 64);
    assert_one_complaint("--freeze: \"wte\" matches no tensor");
    assert_code(sluice("train " RUN "--steps 1 --freeze '*'"), 64);
    assert_one_complaint("all tensors are frozen");
    assert_code(sluice("launch -n 2 -- train " RUN "--tp 2 --steps 1 --freeze '*'"), 64);
    assert_has(complaint, "all tensors are frozen");
    assert_code(sluice("plan --cluster '" SL_TEST_SOURCE_DIRECTORY
                       "/../examples/clusters/dgx-a100-80gb.json' --ranks 8 --global-batch 8 "
                       "--model gpt2 --freeze 'h.0.*'"),
                64);
    assert_has(complaint, "one block stands for all");
    assert_code(sluice("eval start --data text --freeze 'wte.*'"), 64);
}

/* ---- runs that go on ---- */

static void resume_when_tensors_are_frozen_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    shell("rm -rf cut");
    assert_code(sluice("train " RUN FROZEN "--init start --steps 3 --lr-decay-steps 6 --save cut"),
                0);
    assert_code(sluice("train --resume --save cut --steps 6 --quiet --log-json rest.json"), 0);
    assert_null(strstr(complaint, "--freeze"));
    assert_same_steps("whole.json", "rest.json", 4, 6);
    assert_same_files("whole/step-00000006", "cut/step-00000006");
}

/* Goes on for one step from step 3 with other options, in a directory of this name. */
static void go_on(const char *directory, const char *options)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s && cp -r whole/step-00000003 %s/",
             directory, directory, directory);
    shell(command);
    assert_code(
        sluice("train --resume --save %s --steps 4 --clip 0 --quiet %s", directory, options), 0);
}

/* With beta1 and beta2 of 1/2 a moment that was zero is half of what it is with 0, to the bit; one
 * that was not zero is not. Steps 1 to 3 trained the second block, and here all is. */
static void resume_when_more_is_trained_then_its_moments_begin_at_zero(void **state)
{
    (void)state;
    go_on("halves", "--freeze '!*' --beta1 0.5 --beta2 0.5");
    assert_has(complaint, "--freeze wte.* wpe.* h.0.* ln_f.* → !*");
    go_on("alone", "--freeze '!*' --beta1 0 --beta2 0");
    for (int k = 0; k < 2; k++) {
        assert_holds_only("halves/step-00000004", state_files[k], "*", TENSORS);
        assert_only_differ(state_files[k], "halves/step-00000004", "alone/step-00000004", trained,
                           halve);
    }
    assert_only_differ("model", "halves/step-00000004", "whole/step-00000003", "*", keep);
    assert_int_equal(count_frozen("halves/step-00000004"), 0);
}

static void resume_when_other_tensors_are_frozen_then_those_stay(void **state)
{
    (void)state;
    const char *end = "other/step-00000004";
    go_on("other", "--freeze 'w?e.*' 'h.1.*' 'ln_f.*'");
    assert_has(complaint, "--freeze wte.* wpe.* h.0.* ln_f.* → w?e.* h.1.* ln_f.*");
    assert_only_differ("model", end, "whole/step-00000003", "h.0.*", keep);
    for (int k = 0; k < 2; k++)
        assert_holds_only(end, state_files[k], "h.0.*", BLOCK_TENSORS);
    assert_code(sluice("train --resume --save other --steps 5 --freeze '' --quiet"), 0);
    assert_has(complaint, "--freeze w?e.* h.1.* ln_f.* → ''");
    assert_only_differ("model", "other/step-00000005", end, "*", keep);
}

/* The files hold states of 12 tensors; the manifest says that 15 were frozen, not 16. */
static void resume_when_a_state_of_a_trained_tensor_is_missing_then_is_refused(void **state)
{
    (void)state;
    shell("rm -rf less && mkdir less && cp -r whole/step-00000003 less/");
    sealed_edit("less/step-00000003/manifest.json", "\"stateless_tensors\": 16",
                "\"stateless_tensors\": 15");
    assert_code(sluice("train --resume --save less --steps 4 --quiet"), 65);
    assert_has(complaint, "moment1.safetensors: tensor \"");
    assert_has(complaint, "is missing");
    assert_int_not_equal(access("less/step-00000004", F_OK), 0);
}

static void checkpoint_when_tensors_were_frozen_then_is_evaluated_and_generates(void **state)
{
    (void)state;
    assert_code(sluice("eval whole --data text --device cpu --json"), 0);
    assert_has(output, "\"loss\"");
    assert_code(sluice("generate whole --prompt the --tokens 4 --device cpu"), 0);
    assert_true(strlen(output) > 0);
    shell("rm -rf hf");
    assert_code(sluice("convert --from whole --to hf --quiet"), 0);
    assert_only_differ("model", "hf", "whole/step-00000006", "", keep);
}

/* ---- ranks ---- */

/* Two ranks compute the rows of one, in other sums; bounds as in test_command_tensor.c. */
static void train_when_on_two_ranks_then_is_as_on_one(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        const char *same_as; /* a log before it with the same bits; NULL: none */
    } ways[] = {{"--tp 2", NULL},
                {"--tp 2 --sequence-parallel", NULL},
                {"--tp 2 --split-layout colossal", NULL},
                {"--pp 2 --micro-batch 1 --accumulate 2", NULL},
                {"--dp 2 --micro-batch 1 --zero 0", NULL},
                {"--dp 2 --micro-batch 1 --zero 1", "log4"},
                {"--dp 2 --micro-batch 1 --zero 2", "log4"},
                {"--dp 2 --micro-batch 1 --zero 3", "log4"}};
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        char log[16];
        snprintf(log, sizeof log, "log%d", i);
        shell("rm -rf ranks");
        assert_code(sluice("launch -n 2 -- train " RUN FROZEN "--init start --steps 6 --save ranks "
                           "--save-every 3 --keep 0 --log-json %s %s",
                           log, ways[i].options),
                    0);
        assert_near("whole.json", log, 6);
        if (ways[i].same_as)
            assert_same_steps(log, ways[i].same_as, 1, 6);
        assert_only_differ("model", "ranks/step-00000006", "start/step-00000002", trained, keep);
        for (int k = 0; k < 2; k++)
            assert_holds_only("ranks/step-00000006", state_files[k], trained, BLOCK_TENSORS);
    }
}

/* The stage behind is frozen, or the one before, or a tensor of each and not the tied one, or the
 * tied one alone is trained: gradients cross the stages where something before needs them. */
static void train_when_on_two_stages_then_is_as_on_one(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"'*' '!h.0.*'", "h.0.*"},
                                          {"'*' '!wpe.*'", "wpe.*"},
                                          {"'*' '!*.ln_2.bias'", "*.ln_2.bias"},
                                          {"'*' '!wte.*'", "wte.*"},
                                          {"'*' '!ln_f.*'", "ln_f.*"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf stages");
        assert_code(sluice("train " RUN "--init start --steps 4 --freeze %s --log-json one.json",
                           ways[i][0]),
                    0);
        assert_code(sluice("launch -n 2 -- train " RUN "--init start --steps 4 --freeze %s --pp 2 "
                           "--micro-batch 1 --accumulate 2 --save stages --log-json two.json",
                           ways[i][0]),
                    0);
        assert_near("one.json", "two.json", 4);
        assert_only_differ("model", "stages/step-00000004", "start/step-00000002", ways[i][1],
                           keep);
    }
}

/* A start, and six steps from it that other cases are compared with. */
static int set_up_runs(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " RUN "--steps 2 --save start"), 0);
    assert_code(sluice("train " RUN FROZEN "--init start --steps 6 --save whole --save-every 3 "
                       "--keep 0 --log-json whole.json"),
                0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_tensors_are_frozen_then_only_the_others_change),
        cmocka_unit_test(train_when_in_bf16_then_stateless_tensors_are_rounded_once),
        cmocka_unit_test(describe_when_tensors_are_frozen_then_says_how_many_are_trained),
        cmocka_unit_test(options_when_given_in_any_form_then_freeze_the_same),
        cmocka_unit_test(options_when_they_cannot_be_then_are_refused),
        cmocka_unit_test(resume_when_tensors_are_frozen_then_goes_on_bit_for_bit),
        cmocka_unit_test(resume_when_more_is_trained_then_its_moments_begin_at_zero),
        cmocka_unit_test(resume_when_other_tensors_are_frozen_then_those_stay),
        cmocka_unit_test(resume_when_a_state_of_a_trained_tensor_is_missing_then_is_refused),
        cmocka_unit_test(checkpoint_when_tensors_were_frozen_then_is_evaluated_and_generates),
        cmocka_unit_test(train_when_on_two_ranks_then_is_as_on_one),
        cmocka_unit_test(train_when_on_two_stages_then_is_as_on_one),
    };
    return cmocka_run_group_tests(tests, set_up_runs, tear_down);
}
