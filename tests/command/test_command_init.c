/* What could be wrong with `sluice init` as a user has it: a recipe makes a file that plan or train
 * refuses, or that is lost on the way; an option beside --recipe does not arrive, or takes its
 * comment away; a recipe that needs weights or examples writes a file without them; a configuration
 * that someone changed is replaced; a comment of a file changes what the file says, or the place
 * that a complaint names. Every case runs the built command. */
#define _GNU_SOURCE
#include "command_run.h"

#include "saved_tensors.h"

#define BUDGETS "--threads 2 --device-memory 64G --host-memory 64G "

static const char *const recipes[] = {"tiny",      "gpt2-124m",         "gpt2-345m-megatron",
                                      "gpt2-1.5b", "llama-1b-finetune", "qwen-lora"};

static void list_when_no_recipe_is_given_then_names_each(void **state)
{
    (void)state;
    assert_code(sluice("init"), 0);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        assert_has(output, recipes[i]);
}

/* Weights of a Llama as transformers has them, and examples. */
static void make_inputs(void)
{
    shell("seq 1 20000 >text");
    shell("for i in 1 2 3 4 5 6 7 8; do echo '{\"prompt\": \"a\", \"response\": \"b\"}'; done "
          ">examples.jsonl");
    assert_code(sluice("train --arch llama --layers 2 --width 32 --heads 2 --context 1024 --seq 32 "
                       "--data text --device cpu --threads 1 --steps 1 --quiet --save start"),
                0);
    assert_code(sluice("convert --from start --to weights --quiet"), 0);
}

static void recipe_when_written_then_its_file_plans(void **state)
{
    (void)state;
    make_inputs();
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const bool tunes = strstr(recipes[i], "finetune") || strstr(recipes[i], "lora");
        assert_code(sluice("init --recipe %s --device cpu --data %s " BUDGETS, recipes[i],
                           tunes ? "examples.jsonl --tokenizer byte --init weights" : "text"),
                    0);
        assert_has(output, "a step takes ");
        assert_has(output, tunes ? "how many steps that is" : " tokens take ");
        assert_has(output, "now: sluice train --config ");
        assert_code(sluice("plan --config %s.json", recipes[i]), 0);
        assert_has(output, "predicted step");
    }
}

static void recipe_when_it_tunes_then_asks_for_weights_and_examples(void **state)
{
    (void)state;
    assert_code(sluice("init --recipe qwen-lora --output none.json"), 64);
    assert_has(complaint, "--init DIR");
    assert_code(sluice("init --recipe qwen-lora --init weights --output none.json"), 64);
    assert_has(complaint, "--data FILE");
    shell("test ! -e none.json");
    assert_code(sluice("init --recipe tyni --output none.json"), 64);
    assert_has(complaint, "tiny");
}

/* A step of a minute is for people who wait: a recipe whose step takes longer has fewer rows. */
static void batch_when_a_step_would_take_long_then_has_fewer_rows_and_lower_rates(void **state)
{
    (void)state;
    json_int_t rows = 0;
    double rate = 0;
    shell("sed 's://.*::' gpt2-124m.json >bare.json");
    json_t *root = json_load_file("bare.json", 0, NULL);
    assert_int_equal(json_unpack(root, "{s:I, s:F}", "global-batch", &rows, "lr", &rate), 0);
    assert_in_range(rows, 8, 256);
    assert_true(fabs(rate / (6e-4 * sqrt((double)rows / 512)) - 1) < 0.05);
    json_decref(root);
    assert_code(sluice("init --recipe gpt2-124m --data text --global-batch 512 --device cpu "
                       "--overwrite " BUDGETS),
                0);
    shell(
        "grep -q '\"global-batch\": 512' gpt2-124m.json && grep -q '\"lr\": 6e-4' gpt2-124m.json");
    assert_code(sluice("init --recipe gpt2-124m --data text --global-batch auto --seq auto "
                       "--device cpu --overwrite " BUDGETS),
                0);
    assert_has(output, "1 row of 1024 tokens");
    shell("grep -q '\"lr\": 6e-4' gpt2-124m.json"); /* no rows were taken from what was given */
    assert_code(sluice("init --recipe gpt2-124m --data text --micro-batch 32 --device cpu "
                       "--overwrite " BUDGETS),
                0);
    assert_code(sluice("plan --config gpt2-124m.json"), 0); /* rows of whole micro-batches */
}

static void memory_when_it_is_too_small_on_disk_too_then_says_once_what_would_fit(void **state)
{
    (void)state;
    assert_code(sluice("init --recipe tiny --data text --output small.json --device cpu "
                       "--device-memory 2M --host-memory 2M"),
                69);
    assert_has(complaint, "; this fits: ");
    assert_null(strstr(strstr(complaint, "it does not fit") + 1, "it does not fit"));
    shell("test ! -e small.json");
}

static void options_when_beside_the_recipe_then_stand_in_the_file(void **state)
{
    (void)state;
    assert_code(sluice("init --recipe tiny --data text --lr 0.5 --state-type int8 --layers 1 "
                       "--output own.json --device cpu"),
                0);
    shell("grep -q '^  \"lr\": 0.5,$' own.json && grep -q '^  \"layers\": 1,$' own.json");
    shell("grep -q '^  // Up to the peak' own.json"); /* comments stay */
    assert_code(sluice("train --config own.json --set steps=2 --threads 1 --quiet"), 0);
    shell("grep -q '\"state_type\": \"int8\"' tiny-model/step-00000002/manifest.json || "
          "grep -q 'int8' tiny-model/step-00000002/manifest.json");
    assert_code(sluice("train --config own.json --set steps=3 --threads 1 --quiet"),
                0); /* goes on by itself */
    shell("test -e tiny-model/step-00000003");
}

/* Options that need others of the recipe, and rows of an evaluation for other micro-batches. */
static void options_when_they_count_evaluations_then_the_file_runs(void **state)
{
    (void)state;
    json_int_t iters = 0, micro_batch = 0;
    shell("rm -rf tiny-model && mkdir -p texts && for i in 1 2 3 4 5 6 7 8; do cp text texts/$i; "
          "done");
    assert_code(sluice("init --recipe tiny --data texts --split 80,20,0 --keep-best --patience 3 "
                       "--save-minutes 5 --sample-every 2 --sample-tokens 2 --layers 1 --width 32 "
                       "--output decides.json --device cpu --device-memory 4M --host-memory 4M "
                       "--disk-dir ."),
                0);
    assert_has(output, "an evaluation, of at most 64 rows after every 250 steps, takes ");
    shell("sed 's://.*::' decides.json >bare.json");
    json_t *root = json_load_file("bare.json", 0, NULL);
    assert_int_equal(
        json_unpack(root, "{s:I, s:I}", "eval-iters", &iters, "micro-batch", &micro_batch), 0);
    json_decref(root);
    assert_in_range(iters * micro_batch, 64, 64 + micro_batch - 1); /* the recipe's: 8 of 8 */
    assert_code(sluice("train --config decides.json --set steps=2 --set eval-every=1 --threads 1"),
                0);
    assert_has(output, "validation at step 1: ");
    assert_has(output, "text at step 2:");
    shell("test -e tiny-model/best");
}

/* A configuration is worth little if train refuses its shares. */
static void documents_when_too_few_for_the_shares_then_all_are_trained_on(void **state)
{
    (void)state;
    static const char *const data[] = {"text", "few", "few --eval-data text", "tiny-files"};
    shell("mkdir few tiny-files && for i in 1 2 3 4 5; do cp text few/$i; done && for i in $(seq "
          "200); "
          "do echo $i >tiny-files/$i; done && seq 1 5000 >tiny-files/0");
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++) {
        const bool is_eval = strstr(data[i], "--eval-data") != NULL;
        assert_code(
            sluice("init --recipe tiny --data %s --layers 1 --width 32 --output shares.json "
                   "--overwrite --device cpu",
                   data[i]),
            0);
        assert_true(is_eval || strstr(complaint, "no validation: "));
        shell("rm -rf tiny-model && grep -q '\"split\": \"100,0,0\"' shares.json");
        assert_code(sluice("train --config shares.json --set steps=1 --threads 1"), 0);
        assert_int_equal(strstr(output, " at step 1: loss ") != NULL, is_eval);
    }
}

/* A recipe is for a model of a longer context. */
static void rows_when_the_model_reads_fewer_tokens_then_have_its_context(void **state)
{
    (void)state;
    static const char options[] = "init --recipe qwen-lora --init small-context --data pairs.jsonl "
                                  "--output lora.json --overwrite --device cpu";
    shell("printf '{\"prompt\": \"a\", \"response\": \"b\"}\n' >pairs.jsonl");
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save small-context"), 0);
    assert_code(sluice("%s", options), 0);
    assert_has(complaint, "the model's context, in place of the 1024 of recipe qwen-lora");
    shell("! grep -q '\"seq\": 1024' lora.json");
    assert_code(sluice("plan --config lora.json"), 0);
    assert_code(sluice("%s --seq 1000", options), 64);
    assert_has(complaint, "--seq 1000 is beyond the model's context");
}

static void file_when_it_is_there_then_stays(void **state)
{
    (void)state;
    shell("cp own.json before.json && echo >>own.json && cp own.json changed.json");
    assert_code(sluice("init --recipe tiny --data text --output own.json"), 64);
    assert_has(complaint, "--overwrite");
    shell("cmp own.json changed.json");
    assert_code(sluice("init --recipe tiny --data text --output own.json --overwrite --lr 0.5 "
                       "--state-type int8 --layers 1 --device cpu"),
                0);
    shell("cmp own.json before.json");
}

static void comments_when_in_a_file_then_mean_nothing(void **state)
{
    (void)state;
    shell("printf '{ // \"lr\": 1 }\\n\"save\": \"a//b\\\\\"//\", // \\\\\" \"\\n\"lr\": 0.25}' "
          ">comments.json");
    assert_code(sluice("plan --config comments.json " TINY "--vocab 257 --device cpu --json"), 0);
    shell("printf '{ // one\\n // two\\n  \"lr\" 1}' >wrong.json");
    assert_code(sluice("plan --config wrong.json"), 65);
    assert_has(complaint, "wrong.json:3:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_when_no_recipe_is_given_then_names_each),
        cmocka_unit_test(recipe_when_written_then_its_file_plans),
        cmocka_unit_test(recipe_when_it_tunes_then_asks_for_weights_and_examples),
        cmocka_unit_test(batch_when_a_step_would_take_long_then_has_fewer_rows_and_lower_rates),
        cmocka_unit_test(memory_when_it_is_too_small_on_disk_too_then_says_once_what_would_fit),
        cmocka_unit_test(options_when_beside_the_recipe_then_stand_in_the_file),
        cmocka_unit_test(options_when_they_count_evaluations_then_the_file_runs),
        cmocka_unit_test(documents_when_too_few_for_the_shares_then_all_are_trained_on),
        cmocka_unit_test(rows_when_the_model_reads_fewer_tokens_then_have_its_context),
        cmocka_unit_test(file_when_it_is_there_then_stays),
        cmocka_unit_test(comments_when_in_a_file_then_mean_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
