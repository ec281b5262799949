/* What could be wrong with the table of other programs' words: a row names an option, value, model
 * or shape that does not exist, or no longer does; a new option has the name of a row, so that the
 * row says that there is no such option; two rows contradict each other; a word is explained by one
 * that only looks like it; a key of a foreign file, or an object of them, is refused without what
 * it means. Every row is held to the rows of options, so that whoever adds an option or renames one
 * is told here. */
#include <ctype.h>
#include <unistd.h>

#include "base/nearest.h"
#include "config/config_case.h"
#include "foreign/deepspeed/config_file.h"
#include "foreign/words.h"

/* ---- the rows ---- */

static bool is_name(const sl_word *word)
{
    return word->kind == SL_WORD_OPTION || word->kind == SL_WORD_KEY;
}

/* A place for a value, such as N or PATH...; all else is a value itself. */
static bool is_placeholder(const char *text)
{
    return isupper((unsigned char)text[0]) && (isupper((unsigned char)text[1]) || !text[1]);
}

/* Options of train, or of the command behind "sluice"; false: of launch, which has its own. */
static bool find_command(const char *name, sl_config_command *out_command)
{
    static const struct {
        const char *name;
        sl_config_command command;
    } commands[] = {{"train", SL_CONFIG_TRAIN},       {"plan", SL_CONFIG_PLAN},
                    {"profile", SL_CONFIG_PROFILE},   {"generate", SL_CONFIG_GENERATE},
                    {"eval", SL_CONFIG_EVAL},         {"doctor", SL_CONFIG_DOCTOR},
                    {"tokenize", SL_CONFIG_TOKENIZE}, {"convert", SL_CONFIG_CONVERT},
                    {"report", SL_CONFIG_REPORT}};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) {
            *out_command = commands[i].command;
            return true;
        }
    assert_string_equal(name, "launch");
    return false;
}

/* The option of that name, with the value behind it, if the option takes one, which it must take.
 */
static char *check_option(fixture *self, sl_config_command command, const char *name, char *value)
{
    uint32_t row;
    if (strcmp(name, "config") == 0) /* of every command, and no row */
        return NULL;
    if (sl_config_find(command, name, &row) != SL_OK)
        fail_msg("--%s: %s", name, sl_status_message());
    const bool is_switch = sl_config_rows()[row].kind == SL_CONFIG_SWITCH;
    const bool has_value = value && strncmp(value, "--", 2) != 0;
    if (is_switch == has_value)
        fail_msg("--%s %s a value", name, is_switch ? "takes no" : "needs");
    if (!has_value)
        return value;
    if (row == SL_CONFIG_ROW_model && !is_placeholder(value)) {
        sl_model_shape shape;
        assert_int_equal(sl_architecture_named(value, &shape), SL_OK);
    }
    if (!is_placeholder(value) && sl_config_set(&self->config, row, value) != SL_OK)
        fail_msg("--%s %s: %s", name, value, sl_status_message());
    return NULL;
}

/* "sluice COMMAND" or nothing, then options with values. */
static void check_target(fixture *self, const sl_word *word)
{
    char text[256], *rest = NULL;
    sl_config_command command = SL_CONFIG_ANY;
    snprintf(text, sizeof text, "%s", word->here);
    char *at = strtok_r(text, " ", &rest);
    if (strcmp(at, "sluice") == 0) {
        if (!find_command(strtok_r(NULL, " ", &rest), &command))
            return;
        at = strtok_r(NULL, " ", &rest);
    }
    while (at) {
        if (strncmp(at, "--", 2) != 0)
            fail_msg("%s: \"%s\" is no option in \"%s\"", word->name, at, word->here);
        char *next = check_option(self, command, at + 2, strtok_r(NULL, " ", &rest));
        at = next ? next : strtok_r(NULL, " ", &rest);
    }
}

static void targets_when_named_then_are_options_and_values_that_exist(void **state)
{
    const sl_word *word;
    for (size_t i = 0; (word = sl_words_at(i)); i++) {
        if (!word->here && !(word->note && *word->note))
            fail_msg("%s: neither what it is here nor why there is no equal", word->name);
        if (word->here)
            check_target(*state, word);
    }
}

/* Whether the value would be taken, so that no row of the table were ever asked. */
static bool is_own_value(fixture *self, const sl_word *word)
{
    uint32_t row;
    sl_device_kind kind;
    int index;
    assert_int_equal(sl_config_find(SL_CONFIG_ANY, word->option, &row), SL_OK);
    if (row == SL_CONFIG_ROW_device)
        return sl_config_parse_device(word->name, &kind, &index) == SL_OK;
    return sl_config_set(&self->config, row, word->name) == SL_OK;
}

/* A new option with the name of a row: the row has to go. */
static void words_when_in_the_table_then_are_none_of_ours(void **state)
{
    const sl_word *word;
    for (size_t i = 0; (word = sl_words_at(i)); i++) {
        sl_model_shape shape;
        for (uint32_t row = 0; is_name(word) && row < SL_CONFIG_ROW_COUNT; row++)
            if (sl_words_match(sl_config_rows()[row].name, word->name))
                fail_msg("--%s is an option: take its row out of words.c", word->name);
        if (word->kind == SL_WORD_VALUE && is_own_value(*state, word))
            fail_msg("--%s takes %s: take its row out of words.c", word->option, word->name);
        if (word->kind == SL_WORD_MODEL && sl_architecture_named(word->name, &shape) == SL_OK)
            fail_msg("--model takes %s: take its row out of words.c", word->name);
    }
}

static bool are_one_spelling(const sl_word *a, const sl_word *b)
{
    const bool are_of_a_kind = is_name(a) ? is_name(b) : a->kind == b->kind;
    return are_of_a_kind && (!a->option || strcmp(a->option, b->option) == 0) &&
           sl_words_match(a->name, b->name);
}

static bool mean_the_same(const sl_word *a, const sl_word *b)
{
    return strcmp(a->here ? a->here : "", b->here ? b->here : "") == 0 &&
           strcmp(a->note ? a->note : "", b->note ? b->note : "") == 0;
}

static void spellings_when_they_stand_twice_then_mean_something_else_elsewhere(void **state)
{
    const sl_word *a, *b;
    (void)state;
    for (size_t i = 0; (a = sl_words_at(i)); i++)
        for (size_t j = 0; j < i; j++) {
            b = sl_words_at(j);
            if (!are_one_spelling(a, b))
                continue;
            if (a->tools & b->tools)
                fail_msg("%s: two rows of one program", a->name);
            if (mean_the_same(a, b))
                fail_msg("%s: two rows that mean the same", a->name);
        }
}

static void programs_when_listed_then_each_has_words(void **state)
{
    const sl_word *word;
    size_t tool = 0, count = 0;
    unsigned seen = 0;
    (void)state;
    for (; (word = sl_words_at(count)); count++) {
        assert_true(word->tools != 0);
        assert_true((word->kind == SL_WORD_VALUE) == (word->option != NULL));
        assert_true(word->name[0] != '-' || word->name[1] != '-');
        seen |= word->tools;
    }
    for (; sl_words_tool(tool); tool++)
        assert_true(seen & 1u << tool);
    assert_int_equal(seen, (1u << tool) - 1);
    assert_true(count >= 120);
}

/* ---- what is said ---- */

static void options_when_of_another_program_then_are_named_by_what_they_mean(void **state)
{
    fixture *self = *state;
    static const char *const cases[][2] = {
        {"checkpoint-activations", "--recompute full"},
        {"placement-policy", "--policy NAME"},
        {"deepspeed", "--config FILE"},
        {"fp16", "--precision fp16"},
        {"bf16", "--precision bf16"},
        {"load", "--save DIR --resume"},
        {"nproc_per_node", "sluice launch -n N -- train"},
        {"batch-size", "--micro-batch N"},
        {"block-size", "--context N"},
        {"hidden-size", "--width N"},
        {"out-dir", "--save DIR"},
        {"gpus", "sluice launch -n N -- train"},
        {"num_epochs", "--epochs N"},
        {"dtype", "--precision NAME"},
        {"train-iters", "--steps N"},
        {"n-embd", "--width N"},
        {"learning-rate", "--lr X"},
        {"gradient-accumulation-steps", "--accumulate N"},
        {"seq-length", "--seq N"},
        {"tensor-model-parallel-size", "--tp N"},
        {"global-batch-size", "--global-batch N"},
        {"lr_warmup_fraction", "--warmup F"},
        {"per_device_train_batch_size", "--micro-batch N"},
        {"offload_optim_frac", "--policy static --offload-optimizer F"},
        {"rotary-percent", "without an equal here: positions of GPT-2 are learned; others"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char setting[64], unknown[64];
        snprintf(setting, sizeof setting, "%s=1", cases[i][0]);
        snprintf(unknown, sizeof unknown, "unknown option \"%s\": a word of ", cases[i][0]);
        assert_int_equal(assign(self, setting), SL_ERROR_USAGE);
        assert_message_has(unknown);
        assert_message_has(cases[i][1]);
    }
}

static void words_when_several_programs_have_them_then_each_meaning_is_told(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "block_size=1"), SL_ERROR_USAGE);
    assert_message_has("a word of nanoGPT for --context N (");
    assert_message_has("; of Hugging Face for --seq N");
    assert_int_equal(assign(self, "vocab_size=1"), SL_ERROR_USAGE);
    assert_message_has("a word of Megatron-LM, Hugging Face, nanoGPT and LiBai for --vocab N");
}

static void values_when_of_another_program_then_are_named_by_what_they_mean(void **state)
{
    fixture *self = *state;
    static const char *const cases[][2] = {
        {"precision=float16", "--precision: \"float16\" is a word of "},
        {"precision=BFloat16", ": write --precision bf16"},
        {"recompute=uniform", ": write --recompute full"},
        {"policy=gemini_auto", ": write --policy auto"},
        {"zero=FULL_SHARD", ": write --zero 3"},
        {"lr-schedule=WSD", "without an equal here: cosine, linear, constant are known"},
        {"precision=bf61", "did you mean bf16?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(assign(self, cases[i][0]), SL_ERROR_USAGE);
        assert_message_has(cases[i][1]);
    }
    assert_int_equal(assign(self, "device=gpu"), SL_OK); /* a text until it is looked at */
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_PLAN), SL_ERROR_USAGE);
    assert_message_has(
        "--device: \"gpu\" is a word of nanoGPT and PyTorch Lightning: write --device cuda");
}

/* Off in one program, the likeliest token alone in another: neither is taken for granted. */
static void top_p_when_0_then_both_meanings_are_told(void **state)
{
    fixture *self = *state;
    assert_int_equal(sl_config_assign(&self->config, SL_CONFIG_GENERATE, "top-p=0"),
                     SL_ERROR_USAGE);
    assert_message_has("of Megatron-LM: write --top-p 1 (off)");
    assert_message_has("of Hugging Face: write --temperature 0");
}

static void models_when_of_another_program_then_are_named_by_ours(void **state)
{
    fixture *self = *state;
    sl_model_shape shape = {.layers = 99};
    static const char *const cases[][2] = {
        {"gpt2_345m", "for --model gpt2-medium (24 layers, 1024 wide, 16 heads)"},
        {"gpt2-345m", "for --model gpt2-medium"},
        {"GPT2-345M", "for --model gpt2-medium"},
        {"d24", "for --model gpt2-medium"},
        {"openai-community/gpt2-xl", "for --model gpt2-xl"},
        {"distilgpt2", "for --layers 6 --width 768 --heads 12"},
        {"gpt2_10b", "did you mean gpt2-10b?"},
        {"llama-7b", "gpt2-medium"}, /* the list: nothing is near */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char setting[64];
        snprintf(setting, sizeof setting, "model=%s", cases[i][0]);
        assert_int_equal(assign(self, setting), SL_OK);
        assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
        assert_message_has(cases[i][1]);
        assert_int_equal(shape.layers, 99);
    }
}

static void names_when_farther_than_two_letters_then_nothing_is_guessed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *candidate;
        bool is_near;
    } cases[] = {
        {"stpes", "steps", true},         {"micro-bacth", "micro-batch", true},
        {"hots", "host", true},           {"lr", "tp", false},
        {"eps", "gpus", false},           {"hidden-size", "chunk-size", false},
        {"tokeniser", "tokenizer", true}, {"recomptuing", "recompute", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hint[96];
        sl_nearest nearest = sl_nearest_start(cases[i].name);
        sl_nearest_offer(&nearest, cases[i].candidate);
        sl_nearest_format(&nearest, "", hint, sizeof hint);
        if ((*hint != '\0') != cases[i].is_near)
            fail_msg("%s for %s: \"%s\"", cases[i].candidate, cases[i].name, hint);
    }
}

/* ---- files ---- */

static sl_status load(fixture *self, const char *text)
{
    char path[] = "/tmp/sluice-words-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    sl_status status = sl_config_file_load(&self->config, SL_CONFIG_TRAIN, path);
    unlink(path);
    return status;
}

static void files_when_keys_are_foreign_then_what_they_mean_is_said(void **state)
{
    fixture *self = *state;
    static const char *const cases[][2] = {
        {"{\"num_train_epochs\": 3}", "a word of Hugging Face for --epochs N"},
        {"{\"n_layer\": 12}", "for --layers N"},
        {"{\"train\": {\"train_micro_batch_size\": 4}}", "a word of LiBai for --micro-batch N"},
        {"{\"train_batch_size\": 8, \"learning_rate\": 1}",
         "unknown key \"learning_rate\" of DeepSpeed's configuration: a word of Hugging Face"},
        {"{\"fp16\": true}",
         "is not an object: a word of Megatron-LM and Hugging Face for --precision fp16"},
        {"{\"precision\": \"half\"}", "\"half\" is a word of Hugging Face and nanoGPT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(self, cases[i][0]), SL_ERROR_USAGE);
        assert_message_has(cases[i][1]);
    }
}

#define DIST                                                                                       \
    "\"dist\": {\"data_parallel_size\": 2, \"tensor_parallel_size\": 2, "                          \
    "\"pipeline_parallel_size\": 1}"

static void objects_when_of_no_command_then_what_their_keys_mean_is_said(void **state)
{
    fixture *self = *state;
    static const char *const cases[][3] = {
        {"{" DIST "}", "key \"dist\" is an object: only an object named after a command",
         "\"data_parallel_size\": a word of LiBai for --dp N; \"tensor_parallel_size\": a word of "
         "LiBai for --tp N; \"pipeline_parallel_size\": a word of LiBai for --pp N"},
        {"{\"train\": {" DIST "}}", "key \"dist\" of \"train\": key \"dist\" is an object",
         "\"pipeline_parallel_size\": a word of LiBai for --pp N"},
        {"{\"checkpointer\": {\"period\": 5}}",
         "key \"checkpointer\" is an object: a word of LiBai for --save-every N",
         "\"period\": a word of LiBai for --save-every N"},
        {"{\"optim\": {\"lr\": 1e-3, \"momentums\": 9}}", "key \"optim\" is an object",
         "put its keys beside the others; \"lr\" is --lr"},
        {"{\"foo\": {\"bar\": 1}}", "key \"foo\" is an object: only an object named after",
         "put its keys beside the others"},
        {"{\"genrate\": {\"top-k\": 1}}", "unknown command \"genrate\"", "did you mean generate?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load(self, cases[i][0]), SL_ERROR_USAGE);
        assert_message_has(cases[i][1]);
        assert_message_has(cases[i][2]);
    }
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(targets_when_named_then_are_options_and_values_that_exist),
        CASE(words_when_in_the_table_then_are_none_of_ours),
        CASE(spellings_when_they_stand_twice_then_mean_something_else_elsewhere),
        CASE(programs_when_listed_then_each_has_words),
        CASE(options_when_of_another_program_then_are_named_by_what_they_mean),
        CASE(words_when_several_programs_have_them_then_each_meaning_is_told),
        CASE(values_when_of_another_program_then_are_named_by_what_they_mean),
        CASE(top_p_when_0_then_both_meanings_are_told),
        CASE(models_when_of_another_program_then_are_named_by_ours),
        CASE(names_when_farther_than_two_letters_then_nothing_is_guessed),
        CASE(files_when_keys_are_foreign_then_what_they_mean_is_said),
        CASE(objects_when_of_no_command_then_what_their_keys_mean_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
