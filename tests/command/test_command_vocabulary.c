/* What could be wrong here: a model forgets its vocabulary, or takes another one's; text gives a
 * run other ids than a file of tokens made from it; a run that goes on needs the directory that its
 * vocabulary once came from; a vocabulary in a checkpoint is damaged, exchanged or larger than the
 * model, and text is made of it all the same; a Hugging Face directory with a vocabulary is taken
 * for one without; one whose tokens are more than the model's ids can no longer be trained on files
 * of tokens; ids of text are left by a run that fails, take a descriptor for each file, or are made
 * for a plan that does not read them; packed text is trained on as bytes. Every case runs the built
 * command. */
#define _GNU_SOURCE
#include "command_run.h"

#include "sealed_manifest.h"
#include "skip.h"

#define GOOD SL_TEST_SOURCE_DIRECTORY "/reference/bpe"
#define OTHER SL_TEST_SOURCE_DIRECTORY "/reference/patterns/qwen2"
#define STEPS "--data-order sequential --steps 3 --quiet "

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void assert_refused(int code, int expected, const char *part)
{
    assert_code(code, expected);
    assert_one_complaint(part);
    assert_string_equal(output, "");
}

/* "model" of the 700 tokens of the fixture, trained from a file of tokens. */
static int set_up_model(void **state)
{
    if (set_up(state) != 0)
        return 1;
    run_shell("cp '" GOOD "/corpus.txt' corpus && mkdir gone && cp '" GOOD "/vocab.json' '" GOOD
              "/merges.txt' gone");
    assert_code(sluice("tokenize --tokenizer gone --data corpus --output ids.bin --quiet"), 0);
    assert_code(sluice("train " TINY "--tokenizer gone --data ids.bin " STEPS
                       "--save model --log-json ids.log"),
                0);
    return 0;
}

static void model_when_its_tokenizer_was_given_then_keeps_and_uses_it(void **state)
{
    (void)state;
    run_shell("cmp model/step-00000003/merges.txt '" GOOD "/merges.txt'");
    run_shell("grep -q '\"format_version\": 2,' model/step-00000003/manifest.json");
    assert_code(sluice("generate model --prompt 'the of' --tokens 8 --temperature 0"), 0);
    assert_string_equal(complaint, "");
    assert_has(output, "the of");
    assert_code(sluice("generate model --tokens 4"), 0);
    assert_code(sluice("eval model --data corpus --json"), 0);
    assert_string_equal(complaint, "");
    json_t *of_text = json_loads(output, 0, NULL);
    assert_code(sluice("eval model --data ids.bin --json"), 0);
    json_t *of_ids = json_loads(output, 0, NULL);
    assert_true(json_equal(json_object_get(of_text, "loss"), json_object_get(of_ids, "loss")));
    assert_true(json_equal(json_object_get(of_text, "tokens"), json_object_get(of_ids, "tokens")));
    json_decref(of_text);
    json_decref(of_ids);
}

static void model_when_its_tokenizer_is_not_gpt2s_then_keeps_its_files_as_they_are(void **state)
{
    (void)state;
    run_shell("cp -r '" OTHER "' theirs");
    assert_code(sluice("train " TINY "--tokenizer theirs --data corpus " STEPS "--save other"), 0);
    run_shell("rm -r theirs && cmp other/step-00000003/tokenizer.json '" OTHER "/tokenizer.json'");
    run_shell("cmp other/step-00000003/tokenizer_config.json '" OTHER "/tokenizer_config.json'");
    run_shell("test ! -e other/step-00000003/vocab.json");
    run_shell("grep -q '\"format_version\": 3,' other/step-00000003/manifest.json");
    assert_code(sluice("train --save other --resume --steps 4 --quiet"), 0);
    assert_code(sluice("generate other --prompt '<|im_start|>the of' --tokens 8 --temperature 0"),
                0);
    assert_has(output, "<|im_start|>the of");
    assert_refused(sluice("generate other --tokenizer gone --prompt a"), 64, "not that of");
    assert_code(sluice("convert --from other --to hf-other --quiet"), 0);
    run_shell("cmp hf-other/tokenizer.json '" OTHER "/tokenizer.json'");
    run_shell("grep -q '\"content\": \"<|im_end|>\"' hf-other/tokenizer_config.json");
    run_shell("grep -q 'PreTrainedTokenizerFast' hf-other/tokenizer_config.json");
    assert_code(sluice("tokenize --tokenizer '" OTHER "' --data corpus --output o.bin --quiet"), 0);
    assert_code(sluice("tokenize --tokenizer hf-other --decode --data o.bin --output back"), 0);
    assert_code(sluice("train --init hf-other --data o.bin --micro-batch 2 --steps 1 --quiet"), 0);
}

static void text_when_trained_on_then_the_ids_of_its_token_file(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--tokenizer gone --data corpus " STEPS
                       "--save texts --log-json text.log"),
                0);
    assert_string_equal(complaint, "");
    assert_same_steps("ids.log", "text.log", 1, 3);
    run_shell("cmp model/step-00000003/model.safetensors texts/step-00000003/model.safetensors");
}

static void run_when_it_goes_on_then_needs_its_checkpoint_alone(void **state)
{
    (void)state;
    run_shell("cp -r model onward && mv gone away");
    assert_code(sluice("train --save onward --resume --steps 4 --quiet"), 0);
    run_shell("cmp onward/step-00000004/vocab.json model/step-00000003/vocab.json");
    assert_code(sluice("generate onward --prompt a --tokens 2"), 0);
    assert_code(sluice("train --init onward --data corpus --micro-batch 2 --steps 1 --quiet "
                       "--save new"),
                0);
    assert_string_equal(complaint, "");
    assert_code(sluice("generate new --prompt a --tokens 2"), 0);
    run_shell("mv away gone");
    assert_code(sluice("train --save onward --resume --steps 5 --quiet --tokenizer gone"), 0);
}

static void hugging_face_directory_when_it_has_a_vocabulary_then_taken(void **state)
{
    (void)state;
    run_shell("mkdir hf && cd model/step-00000003 && cp config.json model.safetensors ../../hf");
    assert_refused(sluice("generate hf --prompt a --tokens 2"), 64, "is not known");
    run_shell("cp '" GOOD "/tokenizer.json' hf");
    assert_code(sluice("generate model --prompt 'the of' --tokens 8 --temperature 0"), 0);
    static char of_model[TEXT_BYTES];
    memcpy(of_model, output, sizeof of_model);
    assert_code(sluice("generate hf --prompt 'the of' --tokens 8 --temperature 0"), 0);
    assert_string_equal(output, of_model);
    assert_code(sluice("train --init hf --data corpus --micro-batch 2 --steps 1 --quiet "
                       "--save tuned"),
                0);
    assert_string_equal(complaint, "");
    run_shell("cmp tuned/step-00000001/merges.txt '" GOOD "/merges.txt'");
    run_shell("echo '{' >hf/tokenizer.json");
    assert_refused(sluice("generate hf --prompt a --tokens 2"), 65, "not strict JSON");
    assert_code(sluice("train --init hf --data ids.bin --micro-batch 2 --steps 1 --quiet"), 0);
    assert_one_complaint("the model's tokenizer is passed over");
}

static void found_tokenizer_when_larger_than_the_model_then_passed_over_for_token_files(
    void **state)
{
    static const char passed[] = "the model's tokenizer is passed over: it has 701 tokens, but the "
                                 "model 700 ids";
    static const char added[] =
        "sed 's/\"added_tokens\":\\[/&{\"id\":700,\"content\":\"[PAD]\",\"special\":true},/' "
        "'" GOOD "/tokenizer.json' >padded/tokenizer.json";
    (void)state;
    run_shell("mkdir padded && cd model/step-00000003 && cp config.json model.safetensors "
              "../../padded");
    run_shell(added);
    assert_code(sluice("train --init padded --data ids.bin --micro-batch 2 --steps 1 --quiet "
                       "--save of-padded"),
                0);
    assert_one_complaint(passed);
    run_shell("test ! -e of-padded/step-00000001/merges.txt");
    assert_code(sluice("plan --init padded --data ids.bin --micro-batch 2"), 0);
    assert_has(complaint, passed);
    assert_code(sluice("eval padded --data ids.bin --json"), 0);
    assert_one_complaint(passed);
    assert_refused(sluice("eval padded --data corpus"), 64, "the tokenizer has 701 tokens");
    assert_refused(sluice("train --init padded --data ids.bin --eval-data corpus --steps 1"), 64,
                   "the tokenizer has 701 tokens");
    assert_refused(sluice("generate padded --prompt a --tokens 2"), 64, "has 701 tokens");
}

/* A write beyond 4 KiB of a file fails as on a full disk. */
static void text_when_the_disk_of_its_ids_is_full_then_74_and_nothing_is_left(void **state)
{
    char command[COMMAND_BYTES];
    (void)state;
    snprintf(command, sizeof command,
             "ulimit -f 8; '%s' train " TINY
             "--tokenizer gone --data corpus --cache-dir full " STEPS
             "2>err; test $? -eq 74 && test -z \"$(ls -A full)\"",
             binary);
    run_shell(command);
    read_complaint("err");
    assert_one_complaint("kept in full: give a directory with room by --cache-dir");
}

static void plan_when_its_data_are_text_then_makes_no_ids_of_them(void **state)
{
    (void)state;
    const char *nowhere = "--cache-dir /dev/null/a";
    assert_code(sluice("plan " TINY "--tokenizer gone --data corpus %s", nowhere), 0);
    assert_refused(
        sluice("plan " TINY "--tokenizer gone --data ids.bin --eval-data corpus %s", nowhere), 74,
        "by --cache-dir");
    assert_refused(sluice("train " TINY "--tokenizer gone --data corpus " STEPS "%s", nowhere), 74,
                   "by --cache-dir");
    assert_code(sluice("plan " TINY "--tokenizer gone --data short"), 0);
}

/* 20 files of text and one of tokens between them, for a process of few descriptors. */
static void text_when_in_many_files_then_the_ids_of_all_in_order(void **state)
{
    char command[COMMAND_BYTES];
    (void)state;
    setenv("SLUICE", binary, 1);
    run_shell("mkdir many && split -n l/20 -d corpus many/ && cp ids.bin many/095.bin");
    run_shell(
        "for i in many/??; do \"$SLUICE\" tokenize --tokenizer gone --data $i --output $i.bin "
        "--quiet || exit; done");
    assert_code(sluice("train " TINY "--vocab 700 " STEPS
                       "--log-json single.log --data many/0?.bin "
                       "many/095.bin many/1?.bin"),
                0);
    snprintf(command, sizeof command,
             "ulimit -n 40; '%s' train " TINY "--tokenizer gone " STEPS "--log-json many.log "
             "--data many/0? many/095.bin many/1?",
             binary);
    run_shell(command);
    assert_same_steps("single.log", "many.log", 1, 3);
}

/* Of one empty file among others nothing is missed; where all are, they are named. */
static void packed_text_when_there_is_none_in_it_then_named_if_it_is_all(void **state)
{
    (void)state;
    run_shell("printf '\\037\\213\\010\\000\\000\\000\\000\\000\\000\\003\\003\\000\\000\\000\\000"
              "\\000\\000\\000\\000\\000' >none.gz");
    int code = sluice("train " TINY "--tokenizer gone " STEPS "--data none.gz");
    if (strstr(complaint, "which this build does not read"))
        skip_because("this build unpacks no gzip");
    assert_refused(code, 65, "none.gz: no document is left");
    assert_code(sluice("train " TINY "--tokenizer gone " STEPS "--data none.gz corpus none.gz "
                       "--log-json none.log"),
                0);
    assert_string_equal(complaint, "");
    assert_same_steps("ids.log", "none.log", 1, 3);
}

static void packed_text_when_broken_then_65_with_bytes_too(void **state)
{
    (void)state;
    run_shell("printf '\\037\\213\\010 and so on, for long enough to fill a row of ids' >packed");
    int code = sluice("train " TINY "--data packed " STEPS);
    if (strstr(complaint, "which this build does not read"))
        skip_because("this build unpacks no gzip");
    assert_refused(code, 65, "packed: cannot be unpacked");
    assert_code(sluice("plan " TINY "--data packed"), 0); /* does not read it */
    assert_refused(sluice("train " TINY "--tokenizer byte --data text --eval-data packed " STEPS),
                   65, "packed: cannot be unpacked");
}

static void tokenizer_when_another_one_is_given_then_refused(void **state)
{
    (void)state;
    assert_code(sluice("tokenize --learn 300 --tokenizer other --data corpus --quiet"), 0);
    assert_refused(sluice("generate model --prompt a --tokens 2 --tokenizer other"), 64,
                   "--tokenizer other is not that of the checkpoint, \"bpe-");
    assert_refused(sluice("eval model --data corpus --tokenizer byte"), 64,
                   "--tokenizer byte is not that of the checkpoint");
    assert_refused(sluice("train " TINY "--vocab 400 --tokenizer gone --data ids.bin " STEPS), 64,
                   "the tokenizer has 700 tokens, but the model 400 ids");
    assert_refused(sluice("train " TINY "--tokenizer nowhere --data corpus " STEPS), 66,
                   "holds no vocabulary");
}

static void checkpoint_when_its_vocabulary_is_damaged_then_65(void **state)
{
    (void)state;
    run_shell("rm -rf bad && cp -r model bad && printf x >>bad/step-00000003/vocab.json");
    assert_refused(sluice("generate bad/step-00000003 --prompt a --tokens 2"), 65,
                   "but the manifest says");
    run_shell("rm -rf bad && cp -r model bad && sed -i s/th/ht/ bad/step-00000003/vocab.json");
    assert_refused(sluice("generate bad/step-00000003 --prompt a --tokens 2"), 65, "checksum is");
    run_shell("rm -rf bad && cp -r model bad && rm bad/step-00000003/merges.txt");
    assert_refused(sluice("generate bad/step-00000003 --prompt a --tokens 2"), 66, "merges.txt");
    run_shell("rm -rf bad && cp -r model bad");
    sealed_edit("bad/step-00000003/manifest.json", "\"tokenizer\": \"bpe-",
                "\"tokenizer\": \"bpf-");
    assert_refused(sluice("generate bad/step-00000003 --prompt a --tokens 2"), 64,
                   "comes with a later version");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_when_its_tokenizer_was_given_then_keeps_and_uses_it),
        cmocka_unit_test(model_when_its_tokenizer_is_not_gpt2s_then_keeps_its_files_as_they_are),
        cmocka_unit_test(text_when_trained_on_then_the_ids_of_its_token_file),
        cmocka_unit_test(run_when_it_goes_on_then_needs_its_checkpoint_alone),
        cmocka_unit_test(hugging_face_directory_when_it_has_a_vocabulary_then_taken),
        cmocka_unit_test(
            found_tokenizer_when_larger_than_the_model_then_passed_over_for_token_files),
        cmocka_unit_test(text_when_the_disk_of_its_ids_is_full_then_74_and_nothing_is_left),
        cmocka_unit_test(plan_when_its_data_are_text_then_makes_no_ids_of_them),
        cmocka_unit_test(text_when_in_many_files_then_the_ids_of_all_in_order),
        cmocka_unit_test(packed_text_when_there_is_none_in_it_then_named_if_it_is_all),
        cmocka_unit_test(packed_text_when_broken_then_65_with_bytes_too),
        cmocka_unit_test(tokenizer_when_another_one_is_given_then_refused),
        cmocka_unit_test(checkpoint_when_its_vocabulary_is_damaged_then_65),
    };
    return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
