/* What could be wrong with LoRA as a user has it: the base changes, or an adapter does not; a
 * placement, a number of ranks or a run that goes on has other numbers; the checkpoint of such a
 * run is taken for another model; what is written for PEFT, read again or merged, is another
 * function than the one that was trained; a directory of PEFT's that asks for more is taken in
 * silence; an option that cannot be is. Every case runs the built command and reads the files that
 * it made. */
#define _GNU_SOURCE
#include "command_run.h"

#include "saved_tensors.h"

#define RUN                                                                                        \
    "--data text --seed 5 --device cpu --threads 1 --device-memory 64M --host-memory 64M "         \
    "--micro-batch 2 --lr 1e-2 --quiet "
#define LORA "--lora-rank 3 --lora-alpha 6 --lora-targets c_attn c_proj "

static const char *const adapters = "*.lora_?.weight";
enum { LAYER_TENSORS = 6, LAYERS = 2, ADAPTERS = LAYERS * LAYER_TENSORS };

static double eval_loss(const char *arguments)
{
    double loss = NAN;
    assert_code(
        sluice("eval %s --data text --device cpu --threads 1 --micro-batch 2 --eval-iters 4 "
               "--json",
               arguments),
        0);
    json_t *root = json_loads(output, 0, NULL);
    assert_non_null(root);
    json_unpack(root, "{s:F}", "loss", &loss);
    json_decref(root);
    return loss;
}

/* Tensors of `left` that are in `right` and no adapters have the same bits. */
static void assert_base_stays(const char *left, const char *right)
{
    sl_safetensors *a = open_file(left, "model"), *b = open_file(right, "model");
    assert_int_equal(a->tensor_count, b->tensor_count + ADAPTERS);
    for (uint32_t t = 0; t < b->tensor_count; t++)
        if (!is_same(b, a, &b->tensors[t], keep))
            fail_msg("%s of %s is another one in %s", b->tensors[t].name, right, left);
    sl_safetensors_close(a);
    sl_safetensors_close(b);
}

static void train_when_placed_anyhow_then_adapters_alone_change_and_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy host --recompute full", "--policy nvme --disk-dir disk --nvme-params 1 ",
        "--recompute selective --micro-batch 1 --accumulate 2 --accumulation layer --threads 2"};
    shell("mkdir -m 700 -p disk");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf way one");
        const char *batch = i == 2 ? "--micro-batch 1 --accumulate 2" : "";
        assert_code(sluice("train " RUN LORA "--lora-dropout 0.2 --init start --steps 3 --save one "
                           "%s",
                           batch),
                    0);
        assert_code(sluice("train " RUN LORA "--lora-dropout 0.2 --init start --steps 3 --save way "
                           "%s",
                           ways[i]),
                    0);
        assert_same_files("way/step-00000003", "one/step-00000003");
        assert_base_stays("way/step-00000003", "start/step-00000002");
        assert_holds_only("way/step-00000003", "moment1", adapters, ADAPTERS);
    }
    assert_code(sluice("train " RUN LORA "--init start --steps 0 --save zero"), 0);
    assert_only_differ("model", "whole/step-00000006", "zero/step-00000000", adapters, keep);
}

/* The base is rounded to the type when it is read, and stays so. A loss is a mean over rows whose
 * activations are rounded to the type, in ops that follow each other: a few roundings of its value,
 * of which five are allowed. */
static void train_when_in_half_precision_then_is_placed_anyhow_and_near_fp32(void **state)
{
    (void)state;
    static const struct {
        const char *precision;
        double tolerance;
    } types[] = {{"bf16", 5 * 0x1p-9}, {"fp16 --loss-scale 256", 5 * 0x1p-12}};
    static const char *const ways[] = {"--policy host --recompute full --state-type int8",
                                       "--policy nvme --disk-dir half --nvme-params 1 "
                                       "--state-type int8"};
    shell("mkdir -m 700 -p half");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        shell("rm -rf one zero");
        assert_code(sluice("train " RUN LORA "--init start --steps 0 --save zero --precision %s",
                           types[i].precision),
                    0);
        assert_code(sluice("train " RUN LORA "--init start --steps 6 --save one --precision %s "
                           "--state-type int8 --policy device --log-json half.json",
                           types[i].precision),
                    0);
        assert_only_differ("model", "one/step-00000006", "zero/step-00000000", adapters, keep);
        assert_holds_only("one/step-00000006", "moment1", adapters, ADAPTERS);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            shell("rm -rf way");
            assert_code(sluice("train " RUN LORA "--init start --steps 6 --save way "
                               "--precision %s %s",
                               types[i].precision, ways[k]),
                        0);
            assert_same_files("way/step-00000006", "one/step-00000006");
        }
        json_t *of_half = read_log("half.json"), *of_fp32 = read_log("whole.json");
        for (long long step = 1; step <= 6; step++) {
            const double off =
                fabs(find_step(of_half, step).loss / find_step(of_fp32, step).loss - 1);
            if (!(off <= types[i].tolerance))
                fail_msg("%s: step %lld is off by %g", types[i].precision, step, off);
        }
        json_decref(of_half);
        json_decref(of_fp32);
    }
    shell("rmdir half");
}

static double first_loss(const char *options)
{
    assert_code(sluice("train " RUN "--init whole --steps 1 --log-json first.json %s", options), 0);
    json_t *log = read_log("first.json");
    const double loss = find_step(log, 1).loss;
    json_decref(log);
    return loss;
}

/* Of a layer that is split by columns ranks drop the same elements as one. */
static void dropout_when_given_then_drops_in_training_the_same_on_ranks(void **state)
{
    (void)state;
    const char *options = "--lora-rank 3 --lora-targets c_attn --lora-dropout 0.5 --init start "
                          "--steps 4 --log-json";
    assert_true(fabs(first_loss("--lora-dropout 0.5") / first_loss("") - 1) > 1e-6);
    assert_code(sluice("train " RUN "%s one.json", options), 0);
    assert_code(sluice("launch -n 2 -- train " RUN "--tp 2 %s two.json", options), 0);
    assert_near("one.json", "two.json", 4);
}

static void resume_then_goes_on_bit_for_bit(void **state)
{
    (void)state;
    shell("rm -rf cut && mkdir cut && cp -r whole/step-00000003 cut/");
    assert_code(sluice("train --resume --save cut --steps 6 --quiet --log-json rest.json"), 0);
    assert_same_steps("whole.json", "rest.json", 4, 6);
    assert_same_files("whole/step-00000006", "cut/step-00000006");
    assert_code(sluice("train --resume --save cut --steps 7 --lora-rank 4 --quiet"), 64);
    assert_one_complaint("the weights have adapters of rank 3, alpha 6, for c_attn,c_proj, and the "
                         "options say rank 4: leave ");
}

/* The same programs, so the same bits; a merged weight is rounded once more. */
static void convert_then_another_reader_has_the_same_function(void **state)
{
    (void)state;
    shell("rm -rf peft merged again hf");
    const double own = eval_loss("whole"), base = eval_loss("start");
    assert_code(sluice("convert --from whole --to peft --format peft"), 0);
    assert_has(output, "/start\nsample  sluice generate /");
    assert_has(output, "/start --adapter peft --prompt TEXT\n");
    assert_code(sluice("convert --from whole --to merged --merge --quiet"), 0);
    assert_code(sluice("convert --from start --adapter peft --to again --merge --quiet"), 0);
    assert_true(eval_loss("start --adapter peft") == own);
    assert_true(fabs(own / base - 1) > 1e-4);
    assert_true(fabs(eval_loss("merged") / own - 1) < 1e-6);
    shell("cmp merged/model.safetensors again/model.safetensors >&2");
    assert_code(sluice("generate start --adapter peft --prompt the --tokens 4 --device cpu "
                       "--temperature 0"),
                0);
    char text[sizeof output];
    snprintf(text, sizeof text, "%s", output);
    assert_code(sluice("generate whole --prompt the --tokens 4 --device cpu --temperature 0"), 0);
    assert_string_equal(text, output);
    assert_code(sluice("train " RUN "--init start --adapter peft --steps 0 --save back"), 0);
    assert_only_differ("model", "back/step-00000000", "whole/step-00000006", "", keep);
}

/* Modules of PEFT that are trained whole: of rules with two states, with one and without. */
static void peft_when_norms_and_tables_were_trained_too_then_has_them(void **state)
{
    (void)state;
    shell("rm -rf normed normed-peft normed-again normed-merged normed-other");
    assert_code(sluice("train " RUN LORA
                       "--rule 'h.1.ln_1*=adamw' 'ln_f.weight=lion' wte.weight=sgd "
                       "--init start --steps 2 --save normed"),
                0);
    assert_code(sluice("convert --from normed --to normed-peft --format peft"), 0);
    assert_string_equal(complaint, "");
    shell("grep -A5 modules_to_save normed-peft/adapter_config.json | tr -d ' \\n' | grep -qF "
          "'[\"transformer.wte\",\"lm_head\",\"transformer.h.1.ln_1\",\"transformer.ln_f\"]'");
    const double own = eval_loss("normed");
    assert_true(eval_loss("start --adapter normed-peft") == own);
    assert_true(fabs(eval_loss("start --adapter peft") / own - 1) > 1e-4);
    assert_code(sluice("convert --from normed --to normed-merged --merge --quiet"), 0);
    assert_code(sluice("convert --from start --adapter normed-peft --to normed-other --merge "
                       "--quiet"),
                0);
    shell("cmp normed-merged/model.safetensors normed-other/model.safetensors >&2");
    assert_code(
        sluice("convert --from start --adapter normed-peft --to normed-again --format peft"), 0);
    shell("cmp normed-peft/adapter_model.safetensors normed-again/adapter_model.safetensors >&2");
    shell("n=$(od -An -tu8 -N8 normed-again/adapter_model.safetensors) && printf x | "
          "dd of=normed-again/adapter_model.safetensors bs=1 seek=$((n + 8)) conv=notrunc "
          "status=none"); /* of the head, the first in order */
    assert_code(sluice("eval start --adapter normed-again --data text"), 65);
    assert_has(complaint, "the head of this model reads its table of ids, and here they differ");
}

/* What an earlier run or an earlier part of the run trained, or --adapter brought, is frozen now.
 */
static void peft_when_modules_were_trained_earlier_then_has_them(void **state)
{
    (void)state;
    static const char *const runs[] = {"train " RUN
                                       "--init start --adapter normed-peft --steps 1 --save later",
                                       "train " RUN "--init normed --steps 1 --save later",
                                       "train --resume --save later --steps 3 --quiet "
                                       "--rule 'h.1.ln_1*=none' ln_f.weight=none wte.weight=none"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        shell("rm -rf later later-peft");
        if (i == 2)
            shell("cp -r normed later");
        assert_code(sluice("%s", runs[i]), 0);
        assert_code(sluice("convert --from later --to later-peft --format peft"), 0);
        assert_string_equal(complaint, "");
        assert_has(output, "/start --adapter later-peft --prompt TEXT\n");
        assert_true(eval_loss("start --adapter later-peft") == eval_loss("later"));
    }
    static const char *const coded[] = {"--adapter normed-peft", "--lora-rank 2"};
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++) {
        shell("rm -rf coded coded-peft");
        assert_code(sluice("train " RUN "--init start --frozen-type int8 --steps 1 --save coded %s",
                           coded[i]),
                    0);
        assert_code(sluice("convert --from coded --to coded-peft --format peft"), 0);
        shell(i == 0 ? "grep -q transformer.wte coded-peft/adapter_config.json"
                     : "! grep -q modules_to_save coded-peft/adapter_config.json");
    }
    shell("mv start away && rm -rf later-peft");
    assert_code(sluice("convert --from later --to later-peft --format peft"), 0);
    assert_one_complaint("No such file or directory: what only earlier runs trained beside");
    shell("mv away start");
}

static void peft_when_modules_are_not_whole_then_they_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const edits[][3] = {
        {"s/transformer.h.1.ln_1/transformer.h.7.ln_1/g", "adapter_model.safetensors",
         "h.7.ln_1.bias\" is neither an adapter"},
        {"s/transformer.h.1.ln_1.bias/transformer.h.0.ln_1.bias/", "adapter_model.safetensors",
         "transformer.h.0.ln_1.weight\" is missing"},
        {"s/transformer.ln_f.bias\":/ln_f.bias\":            /", "adapter_model.safetensors",
         "\"base_model.model.ln_f.bias\" is neither an adapter"},
        {"s/transformer.ln_f/transformer.ln_e/", "adapter_config.json",
         "has no tensor of \"transformer.ln_e\", which modules_to_save"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char command[COMMAND_BYTES];
        shell("rm -rf edited && cp -r normed-peft edited");
        snprintf(command, sizeof command, "LC_ALL=C sed -i '%s' edited/%s", edits[i][0],
                 edits[i][1]);
        shell(command);
        assert_code(sluice("eval start --adapter edited --data text --device cpu"), 65);
        assert_one_complaint(edits[i][2]);
    }
}

/* A linear layer of a block is what PEFT wraps: it cannot be saved whole beside its adapters. */
static void peft_when_linears_were_trained_too_then_a_warning_says_what_is_left_out(void **state)
{
    (void)state;
    static const char left_out[] = "weights or biases of linear layers were trained beside";
    shell("rm -rf peft linears linears-peft");
    assert_code(sluice("convert --from whole --to peft --format peft"), 0);
    assert_null(strstr(complaint, left_out));
    assert_code(sluice("train " RUN LORA "--rule '*c_fc.weight=lion' --init start --steps 1 --save "
                       "linears"),
                0);
    assert_code(sluice("convert --from linears --to linears-peft --format peft"), 0);
    assert_has(complaint, left_out);
}

static void peft_when_a_directory_asks_for_more_then_is_refused(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"s/\"bias\": \"none\"/\"use_dora\": true/", "adapter_config.json: use_dora is set"},
        {"s/\"bias\": \"none\"/\"rank_pattern\": {\"c_fc\": 2}/",
         "adapter_config.json: rank_pattern is set"},
        {"s/\"LORA\"/\"IA3\"/", "peft_type is \"IA3\", but only LORA is read"},
        {"s/\"init_lora_weights\": true/\"init_lora_weights\": \"pissa\"/",
         "init_lora_weights is \"pissa\""},
        {"s/\"r\": 3/\"r\": 2/", "has 2 dimensions and shape [3, "}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char command[COMMAND_BYTES];
        shell("rm -rf edited && cp -r peft edited");
        snprintf(command, sizeof command, "sed -i '%s' edited/adapter_config.json", edits[i][0]);
        shell(command);
        assert_code(sluice("eval start --adapter edited --data text --device cpu"), 65);
        assert_one_complaint(edits[i][1]);
    }
}

static void options_when_they_cannot_be_then_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int code;
        const char *complaint;
    } rows[] = {
        {"train " RUN "--init start --steps 1 --lora-rank 2 --lora-targets c_attn q_proj", 64,
         "--lora-targets: \"q_proj\" names no linear layer; they are called like h.1.mlp.c_proj"},
        {"train " RUN "--init start --steps 1 --lora-alpha 4", 64,
         "--lora-alpha needs --lora-rank"},
        {"train " RUN TINY "--steps 1 --adapter peft", 64, "--adapter needs --init"},
        {"train " RUN "--init whole --steps 1 --adapter peft", 64, "has adapters already"},
        {"convert --from whole --to no", 64, "has adapters of LoRA: --merge adds them"},
        {"convert --from start --to no --merge", 64, "has no adapters of LoRA"},
        {"convert --from start --to no --format peft", 64, "has no adapters of LoRA"},
        {"convert --from whole --to no --format peft --merge", 64, "leave --merge out"},
        {"plan --cluster '" SL_TEST_SOURCE_DIRECTORY
         "/../examples/clusters/dgx-a100-80gb.json' --ranks 8 --global-batch 8 --adapter peft",
         64, "--adapter is not known to --cluster"},
        {"eval start --adapter none --data text --device cpu", 66, "none"},
        {"eval start --adapter whole --data text --device cpu", 64,
         "--adapter whole is a checkpoint"},
        {"generate peft --prompt the --device cpu", 66, "peft has adapters of LoRA alone"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_code(sluice("%s", rows[i].arguments), rows[i].code);
        assert_has(complaint, rows[i].complaint);
    }
}

/* Two ranks compute the rows of one, in other sums; bounds as in test_command_tensor.c. */
static void train_when_on_two_ranks_then_is_as_on_one(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--tp 2", "--tp 2 --sequence-parallel", "--tp 2 --split-layout colossal",
        "--pp 2 --micro-batch 1 --accumulate 2", "--dp 2 --micro-batch 1 --zero 3"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        shell("rm -rf ranks");
        assert_code(sluice("launch -n 2 -- train " RUN LORA "--init start --steps 6 --save ranks "
                           "--log-json ranks.json %s",
                           ways[i]),
                    0);
        assert_near("whole.json", "ranks.json", 6);
        assert_base_stays("ranks/step-00000006", "start/step-00000002");
    }
}

static int set_up_runs(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " TINY RUN "--steps 2 --save start"), 0);
    assert_code(sluice("train " RUN LORA "--init start --steps 6 --save whole --save-every 3 "
                       "--keep 0 --log-json whole.json"),
                0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            train_when_placed_anyhow_then_adapters_alone_change_and_have_the_same_bits),
        cmocka_unit_test(train_when_in_half_precision_then_is_placed_anyhow_and_near_fp32),
        cmocka_unit_test(dropout_when_given_then_drops_in_training_the_same_on_ranks),
        cmocka_unit_test(resume_then_goes_on_bit_for_bit),
        cmocka_unit_test(convert_then_another_reader_has_the_same_function),
        cmocka_unit_test(peft_when_norms_and_tables_were_trained_too_then_has_them),
        cmocka_unit_test(peft_when_modules_were_trained_earlier_then_has_them),
        cmocka_unit_test(peft_when_modules_are_not_whole_then_they_are_refused_by_name),
        cmocka_unit_test(peft_when_linears_were_trained_too_then_a_warning_says_what_is_left_out),
        cmocka_unit_test(peft_when_a_directory_asks_for_more_then_is_refused),
        cmocka_unit_test(options_when_they_cannot_be_then_are_refused),
        cmocka_unit_test(train_when_on_two_ranks_then_is_as_on_one),
    };
    return cmocka_run_group_tests(tests, set_up_runs, tear_down);
}
