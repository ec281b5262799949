/* What could be wrong here: text is given as bytes to a model that was trained on other ids, or its
 * ids are printed as bytes, and nobody is told; what is known of a model's tokenizer is lost with
 * the checkpoint, or believed of one that never said so; broken JSON lines, or a data set in one
 * JSON document, are taken for text; files of tokens of another vocabulary are trained on; an
 * evaluation reads other rows than it says, or than `eval` does. Every case
 * runs the built command. */
#define _GNU_SOURCE
#include "command_run.h"

#include "sealed_manifest.h"

/* A model of 600 ids, of which bytes use 257. */
#define WIDE TINY "--vocab 600 "

static const char unknown[] = "is not known";
static const char idle[] = "warning: bytes use 257 of the model's 600 ids: 343 ids idle";

/* Ids below 600 without a header, as nanoGPT writes them. */
static void write_ids(const char *name, int count)
{
    FILE *file = fopen(name, "wb");
    unsigned draw = 99;
    assert_non_null(file);
    for (int i = 0; i < count; i++) {
        draw = draw * 1664525u + 1013904223u;
        uint16_t id = (uint16_t)((draw >> 16) % 600);
        fwrite(&id, sizeof id, 1, file);
    }
    fclose(file);
}

static int set_up_models(void **state)
{
    if (set_up(state) != 0)
        return 1;
    write_ids("ids.bin", 4000);
    /* "ids" learnt from files of tokens, "bytes" from text, and "hf" is the first without what only
     * this program knows of it. */
    assert_code(sluice("train " WIDE "--data ids.bin --steps 2 --quiet --save ids"), 0);
    assert_code(sluice("train " WIDE "--data text --steps 2 --quiet --save bytes"), 0);
    return system("mkdir hf && cp ids/step-00000002/config.json "
                  "ids/step-00000002/model.safetensors hf/");
}

static void assert_refused(int code, const char *part)
{
    assert_code(code, 64);
    assert_one_complaint(part);
    assert_string_equal(output, "");
}

/* ---- text and models ---- */

static void text_when_the_model_is_new_then_bytes_and_what_idles_is_told(void **state)
{
    (void)state;
    assert_code(sluice("train " WIDE "--data text --steps 1 --quiet"), 0);
    assert_one_complaint(idle);
    assert_has(complaint, "10976 of its 45696 parameters (24%)");
    assert_code(sluice("train " WIDE "--data ids.bin --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
}

static void text_when_the_model_is_foreign_then_refused(void **state)
{
    (void)state;
    static const char *const models[] = {"hf", "ids"};
    for (int i = 0; i < 2; i++) {
        const char *model = models[i];
        assert_refused(sluice("train --init %s --data text --steps 1 --quiet", model), unknown);
        assert_refused(
            sluice("train --init %s --data ids.bin --eval-data text --steps 1 --quiet", model),
            unknown);
        assert_refused(sluice("generate %s --prompt a --tokens 3", model), unknown);
        assert_refused(sluice("generate %s --tokens 3", model), unknown);
        assert_refused(sluice("eval %s --data text", model), unknown);
        assert_has(complaint, "--tokenizer byte");
        assert_code(sluice("eval %s --data ids.bin", model), 0);
        assert_string_equal(complaint, "");
        assert_code(sluice("train --init %s --data ids.bin --steps 1 --quiet", model), 0);
        assert_string_equal(complaint, "");
    }
}

static void text_when_bytes_are_said_by_hand_then_believed_with_a_warning(void **state)
{
    (void)state;
    assert_code(sluice("generate hf --tokenizer byte --prompt a --tokens 3 --seed 1"), 0);
    assert_one_complaint(idle);
    assert_int_equal(output[0], 'a');
    assert_code(sluice("eval hf --tokenizer byte --data text"), 0);
    assert_one_complaint(idle);
    assert_code(sluice("train --init hf --tokenizer byte --data text --micro-batch 2 --steps 1 "
                       "--quiet --save believed"),
                0);
    assert_one_complaint(idle);
    assert_code(sluice("generate believed --prompt a --tokens 3"), 0); /* it is known from now on */
    assert_string_equal(complaint, "");
}

static void text_when_the_checkpoint_knows_bytes_then_taken_from_it(void **state)
{
    (void)state;
    assert_code(sluice("generate bytes --prompt a --tokens 3"), 0);
    assert_string_equal(complaint, "");
    assert_code(sluice("eval bytes --data text"), 0);
    assert_string_equal(complaint, "");
    assert_code(sluice("train --init bytes --data text --micro-batch 2 --steps 1 --quiet "
                       "--save onward"),
                0);
    assert_code(sluice("generate onward --prompt a --tokens 3"), 0);
    assert_code(sluice("train --init bytes --data ids.bin --micro-batch 2 --steps 1 --quiet"), 0);
    assert_one_complaint("files of tokens do not say theirs");
}

/* An older version wrote "byte" into every configuration, whatever the data were. */
static void text_when_the_manifest_is_older_then_bytes_are_believed_at_257_ids(void **state)
{
    (void)state;
    assert_int_equal(system("cp -r bytes old && cp -r '" SL_TEST_SOURCE_DIRECTORY
                            "/golden/fp32' small && chmod -R u+w small"),
                     0);
    sealed_edit("old/step-00000002/manifest.json", "\"tokenizer\": \"byte\",\n  \"gemm\"",
                "\"tokenizet\": \"byte\",\n  \"gemm\"");
    assert_refused(sluice("generate old --prompt a --tokens 3"), unknown);
    assert_refused(sluice("train --data text --steps 3 --save old --resume"), unknown);
    assert_code(sluice("generate small --prompt a --tokens 3"), 0);
    assert_string_equal(complaint, "");
}

/* As a later version may record it. */
static void text_when_the_tokenizer_is_another_one_then_refused(void **state)
{
    (void)state;
    assert_int_equal(system("cp -r bytes later"), 0);
    sealed_edit("later/step-00000002/manifest.json", "\"tokenizer\": \"byte\",\n  \"gemm\"",
                "\"tokenizer\": \"bpe2\",\n  \"gemm\"");
    const char *resume = "train --save later --resume --steps 3";
    assert_refused(sluice("%s", resume), "\"bpe2\", comes with a later version");
    assert_refused(sluice("%s --tokenizer byte", resume), "not that of the checkpoint, \"bpe2\"");
    assert_refused(sluice("train --init later --data text --tokenizer byte --steps 1"), "\"bpe2\"");
    assert_refused(sluice("generate later --prompt a --tokens 3"), "\"bpe2\"");
    assert_refused(sluice("generate later --prompt a --tokens 3 --tokenizer byte"), "\"bpe2\"");
    assert_refused(sluice("eval later --data text"), "\"bpe2\"");
    assert_code(sluice("eval later --data ids.bin"), 0);
}

static void data_when_text_and_ids_are_mixed_then_refused_unless_said(void **state)
{
    (void)state;
    assert_refused(sluice("train " WIDE "--data text ids.bin --steps 1 --quiet"),
                   "text and files of tokens");
    assert_refused(sluice("train " WIDE "--data ids.bin --eval-data text --steps 1 --quiet"),
                   "text and files of tokens");
    assert_code(sluice("train " WIDE "--data text ids.bin --tokenizer byte --steps 1 --quiet"), 0);
    assert_one_complaint(idle);
}

/* ---- documents in JSON ---- */

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void json_lines_when_broken_then_65(void **state)
{
    (void)state;
    write_file("named.jsonl", "plain words, called so all the same, and long enough for a row\n");
    write_file("no-key", "{\"body\": \"some words for a row of thirty-two ids or more\"}\n");
    static const char *const files[] = {"named.jsonl", "no-key"};
    for (int i = 0; i < 2; i++) {
        assert_code(sluice("train " TINY "--data text %s --steps 1", files[i]), 65);
        assert_one_complaint(files[i]);
        assert_has(complaint, "line 1: ");
        assert_code(sluice("train " TINY "--data text --eval-data %s --steps 1", files[i]), 65);
        assert_code(sluice("eval bytes --data %s", files[i]), 65);
    }
    assert_code(sluice("eval bytes --data no-key --json-key body"), 0);
}

static void braces_when_not_lines_of_json_then_are_text(void **state)
{
    (void)state;
    write_file("code",
               "{ \"a\": b, c }\nint main(void) { return 0; } /* long enough for a row */\n");
    write_file("pretty",
               "{\n  \"a document\": \"that is laid out over lines, as text may be\"\n}\n");
    assert_code(sluice("train " TINY "--data code --steps 1 --quiet"), 0);
    assert_code(sluice("train " TINY "--data pretty --steps 1 --quiet"), 0);
}

/* ---- what an evaluation covers ---- */

/* A weight that is no number makes the loss none, which JSON has no word for. */
static void loss_when_it_is_no_number_then_eval_prints_null(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(
        system("cp -r hf broken && printf '\\000\\000\\300\\177' | dd bs=1 conv=notrunc "
               "of=broken/model.safetensors status=none "
               "seek=$(($(stat -c %s broken/model.safetensors) - 4))"),
        0);
    assert_code(sluice("eval broken --data ids.bin --json"), 0);
    json_t *report = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    if (!report)
        fail_msg("%s: %s", error.text, output);
    assert_true(json_is_null(json_object_get(report, "loss")));
    assert_true(json_is_null(json_object_get(report, "perplexity")));
    assert_true(json_is_integer(json_object_get(report, "tokens")));
    json_decref(report);
    assert_code(sluice("eval hf --data ids.bin --json"), 0);
    report = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    assert_true(json_is_real(json_object_get(report, "loss")));
    json_decref(report);
}

static json_t *find_eval(const json_t *events)
{
    size_t index;
    json_t *event;
    json_array_foreach((json_t *)events, index, event)
    {
        if (strcmp(kind_of(event), "eval") == 0)
            return event;
    }
    fail_msg("nothing was evaluated");
    return NULL;
}

static void assert_tokens(const json_t *report, json_int_t tokens, json_int_t data_tokens)
{
    assert_int_equal(json_integer_value(json_object_get(report, "tokens")), tokens);
    assert_int_equal(json_integer_value(json_object_get(report, "data_tokens")), data_tokens);
}

/* 300 micro-batches and a row that is left, or one row that fills no micro-batch. */
static void evaluation_when_all_is_covered_then_is_the_number_of_eval(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bytes, tokens;
    } cases[] = {{"held-out", 601 * 32 + 7, 601 * 32}, {"one-row", 40, 32}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(system("rm -rf judged; cat text text text >more"), 0);
        char command[128];
        snprintf(command, sizeof command, "head -c %d more >%s", cases[i].bytes, cases[i].name);
        assert_int_equal(system(command), 0);
        assert_code(sluice("train " TINY "--data text --steps 3 --eval-data %s --save judged "
                           "--log-json log",
                           cases[i].name),
                    0);
        char covered[64];
        snprintf(covered, sizeof covered, "(%d of %d tokens)", cases[i].tokens, cases[i].bytes);
        assert_has(output, covered);
        json_t *events = read_log("log"), *during = find_eval(events);
        assert_code(sluice("eval judged --data %s --micro-batch 2 --json", cases[i].name), 0);
        json_t *after = json_loads(output, 0, NULL);
        assert_tokens(during, cases[i].tokens, cases[i].bytes);
        assert_tokens(after, cases[i].tokens, cases[i].bytes);
        assert_true(json_number_value(json_object_get(during, "loss")) ==
                    json_number_value(json_object_get(after, "loss")));
        json_decref(after);
        json_decref(events);
    }
    assert_code(sluice("eval judged --data one-row"), 0);
    assert_has(output, "(32 of 40 tokens");
}

static void evaluation_when_limited_then_covers_so_many_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(system("head -c 1000 text >piece && head -c 193 text >piece-of-it"), 0);
    const char *common = TINY "--data text --steps 2 --quiet --log-json log";
    assert_code(sluice("train %s --eval-data piece --eval-iters 3", common), 0);
    json_t *events = read_log("log");
    assert_tokens(find_eval(events), 3 * 2 * 32, 1000);
    double loss = json_number_value(json_object_get(find_eval(events), "loss"));
    json_decref(events);
    /* A file of no more than those rows, but for its end: the same micro-batches. */
    assert_code(sluice("train %s --eval-data piece-of-it", common), 0);
    events = read_log("log");
    assert_tokens(find_eval(events), 3 * 2 * 32, 193);
    assert_true(loss == json_number_value(json_object_get(find_eval(events), "loss")));
    json_decref(events);
    assert_refused(sluice("train %s --eval-iters 3", common), "--eval-data");
}

/* Evaluations may take long, and fail: what was trained is saved before. */
static void evaluation_when_it_fails_then_the_last_step_is_saved(void **state)
{
    (void)state;
    /* An id beyond the vocabulary where nobody looks before: between the first pieces of many. */
    write_ids("bad.bin", 4200000);
    assert_int_equal(system("printf '\\377\\377' | dd of=bad.bin bs=2 seek=16390 conv=notrunc "
                            "status=none"),
                     0);
    assert_code(sluice("train " WIDE "--data ids.bin --eval-data bad.bin --steps 2 --quiet "
                       "--save kept"),
                65);
    assert_has(complaint, "token 16390");
    assert_int_equal(access("kept/step-00000002", F_OK), 0);
}

/* Hours of planning and training may lie before the first row with such an id. */
static void ids_when_beyond_the_vocabulary_then_told_before_planning(void **state)
{
    (void)state;
    write_ids("late.bin", 3000);
    assert_int_equal(system("printf '\\377\\377' >>late.bin"), 0);
    static const char *const options[] = {"--data late.bin", "--data ids.bin --eval-data late.bin"};
    for (int i = 0; i < 2; i++) {
        assert_code(sluice("train " WIDE "%s --steps 2 --save late", options[i]), 65);
        assert_one_complaint("late.bin: token 3000 of the file is 65535, not below the vocabulary "
                             "600: give --vocab of at least 65536");
        assert_string_equal(output, "");
        assert_int_equal(system("ls late | grep step"), 256); /* grep finds none */
    }
    assert_code(sluice("eval ids --data late.bin"), 65);
    assert_one_complaint("late.bin: token 3000");
}

/* ---- what files of tokens say of themselves ---- */

#define BPE SL_TEST_SOURCE_DIRECTORY "/reference/bpe"

static void assert_number(const char *file, const char *key, json_int_t expected)
{
    json_t *object = json_load_file(file, 0, NULL);
    assert_non_null(object);
    assert_int_equal(json_integer_value(json_object_get(object, key)), expected);
    json_decref(object);
}

static void tokens_when_made_here_then_say_their_vocabulary(void **state)
{
    (void)state;
    assert_code(sluice("tokenize --tokenizer " BPE " --data text --output said.bin"), 0);
    assert_number("said.bin.json", "vocab", 700);
    assert_number("said.bin.json", "end_of_text", 699);
    assert_number("said.bin.json", "documents", 1);
    /* The model has as many ids; its checkpoint has no vocabulary unless that is named. */
    assert_code(sluice("train " TINY "--data said.bin --steps 1 --save said"), 0);
    assert_one_complaint("which the checkpoints will not hold: give it by --tokenizer DIR");
    assert_has(output, "vocab 700\n");
    assert_refused(sluice("generate said --prompt a --tokens 3"), "by --tokenizer DIR");
    assert_code(sluice("generate said --prompt a --tokens 3 --tokenizer " BPE), 0);
    assert_code(sluice("train " TINY "--data said.bin --tokenizer " BPE " --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
    /* Bytes need no directory: the checkpoint knows them then. */
    assert_code(sluice("tokenize --tokenizer byte --data text --output ours.bin"), 0);
    assert_code(sluice("train " TINY "--data ours.bin --steps 1 --quiet --save ours"), 0);
    assert_code(sluice("generate ours --prompt a --tokens 3"), 0);
    assert_code(sluice("train " TINY "--data ours.bin text --steps 1 --quiet"), 0);
}

static void tokens_when_of_another_tokenizer_then_refused(void **state)
{
    (void)state;
    assert_refused(sluice("train " TINY "--data said.bin --tokenizer byte --steps 1"),
                   "said.bin was made with the tokenizer \"bpe-");
    assert_refused(sluice("eval bytes --data said.bin"), "but the model's is \"byte\"");
    assert_refused(sluice("train " TINY "--data said.bin ours.bin --steps 1"),
                   "ours.bin with \"byte\"");
    assert_refused(sluice("train " TINY "--data said.bin text --steps 1"),
                   "name it by --tokenizer DIR");
    assert_refused(sluice("tokenize --decode --tokenizer byte --data said.bin"),
                   "said.bin was made with the tokenizer \"bpe-");
    /* Two bytes more: what stands beside it is of another file. */
    assert_int_equal(system("cp said.bin.json torn.bin.json; (cat ids.bin) >torn.bin"), 0);
    assert_code(sluice("train " TINY "--data torn.bin --steps 1"), 65);
    assert_one_complaint("torn.bin.json: describes a file of ");
    assert_code(sluice("train " TINY "--data said.bin.json --steps 1"), 65);
    assert_one_complaint("give that file instead");
    assert_code(sluice("tokenize --tokenizer byte --data said.bin.json --output x.bin"), 65);
    /* What is there and something else is not replaced. */
    assert_int_equal(system("printf '{\"mine\": 1}' >taken.bin.json"), 0);
    assert_refused(sluice("tokenize --tokenizer byte --data text --output taken.bin"),
                   "the description of taken.bin would replace it");
    assert_int_equal(access("taken.bin", F_OK), -1);
}

static void tokens_when_they_say_nothing_then_an_idle_vocabulary_is_told(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data ids.bin --steps 1 --quiet"), 0);
    assert_one_complaint("the vocabulary of 50257 ids is larger than the ids seen: ids.bin does "
                         "not say its own, and of 4000 tokens that were looked at the largest is "
                         "599");
    assert_code(sluice("train " TINY "--vocab 600 --data ids.bin --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
}

static void directory_when_tokens_are_described_then_they_are_its_data(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir shards"), 0);
    for (int i = 0; i < 2; i++)
        assert_code(sluice("tokenize --tokenizer " BPE " --data text --format nanogpt "
                           "--output shards/%d.bin",
                           i),
                    0);
    assert_code(sluice("train " TINY "--data shards --tokenizer " BPE " --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
}

/* ---- data sets in JSON ---- */

static void records_when_not_in_lines_then_refused_with_the_way_out(void **state)
{
    (void)state;
    static const char *const documents[][2] = {
        {"sft.json", "[\n  {\n    \"instruction\": \"Add.\",\n    \"output\": \"4\"\n  }\n]\n"},
        {"short.json", "[{\"text\":\"some words for a row of thirty-two ids or more\"}]"},
        {"squad.json", "{\n \"version\": [1, {\"a\": \"]\"}],\n \"data\": [{\"title\": \"t\"}]}"},
        {"book.ipynb", "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\"\n  }\n ]\n}\n"},
    };
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        write_file(documents[i][0], documents[i][1]);
        assert_code(sluice("train " TINY "--data text %s --steps 1", documents[i][0]), 65);
        assert_one_complaint("is a JSON document of records");
        assert_has(complaint, documents[i][0]);
        assert_has(complaint, "jq -c '.[]'");
        assert_code(sluice("tokenize --tokenizer byte --data %s --output x.bin", documents[i][0]),
                    65);
        assert_one_complaint("--json-key");
    }
    assert_int_equal(system("gzip -k sft.json"), 0);
    assert_code(sluice("train " TINY "--data sft.json.gz --steps 1"), 65);
    assert_has(complaint, "sft.json.gz: is a JSON document of records");
    /* One line may be settings. */
    write_file("line.json",
               "{\"data\": [{\"title\": \"some words for a row of thirty-two ids\"}]}");
    assert_code(sluice("train " TINY "--data line.json --steps 1 --quiet"), 0);
    assert_one_complaint("line.json: is one JSON object that holds records, and is read as text");
    /* A directory of anything is data all the same. */
    assert_int_equal(system("mkdir mixed && cp text sft.json book.ipynb mixed && "
                            "printf '{\n  \"name\": \"x\"\n}\n' >mixed/package.json"),
                     0);
    assert_code(sluice("train " TINY "--data mixed --steps 1 --quiet"), 0);
    assert_one_complaint("mixed: 2 of 4 files are passed over");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_when_the_model_is_new_then_bytes_and_what_idles_is_told),
        cmocka_unit_test(text_when_the_model_is_foreign_then_refused),
        cmocka_unit_test(text_when_bytes_are_said_by_hand_then_believed_with_a_warning),
        cmocka_unit_test(text_when_the_checkpoint_knows_bytes_then_taken_from_it),
        cmocka_unit_test(text_when_the_manifest_is_older_then_bytes_are_believed_at_257_ids),
        cmocka_unit_test(text_when_the_tokenizer_is_another_one_then_refused),
        cmocka_unit_test(data_when_text_and_ids_are_mixed_then_refused_unless_said),
        cmocka_unit_test(json_lines_when_broken_then_65),
        cmocka_unit_test(braces_when_not_lines_of_json_then_are_text),
        cmocka_unit_test(ids_when_beyond_the_vocabulary_then_told_before_planning),
        cmocka_unit_test(tokens_when_made_here_then_say_their_vocabulary),
        cmocka_unit_test(tokens_when_of_another_tokenizer_then_refused),
        cmocka_unit_test(tokens_when_they_say_nothing_then_an_idle_vocabulary_is_told),
        cmocka_unit_test(directory_when_tokens_are_described_then_they_are_its_data),
        cmocka_unit_test(records_when_not_in_lines_then_refused_with_the_way_out),
        cmocka_unit_test(loss_when_it_is_no_number_then_eval_prints_null),
        cmocka_unit_test(evaluation_when_all_is_covered_then_is_the_number_of_eval),
        cmocka_unit_test(evaluation_when_it_fails_then_the_last_step_is_saved),
        cmocka_unit_test(evaluation_when_limited_then_covers_so_many_micro_batches),
    };
    return cmocka_run_group_tests(tests, set_up_models, tear_down);
}
