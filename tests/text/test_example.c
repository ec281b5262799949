/* Examples to fine-tune on, from JSON to ids. What could be wrong: a token of a prompt counts in
 * the loss, or one of a response does not; the end of text behind a response is missing, or one
 * stands where none belongs; a template loses its text; JSON lines and arrays of the same objects
 * give other ids; an array is cut where a string holds a bracket; an object that is no example is
 * taken for one, or refused without a word where it stands. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "files/tokens.h"
#include "scratch_case.h"
#include "text/token_cache.h"

enum { IDS_MAX = 512 };

static const sl_example_form pairs = {.prompt_key = "p", .response_key = "r"};
static const sl_example_form messages = {.messages_key = "m"};

static sl_status make_ids_of(const scratch_path *directory, const char *name, const char *text,
                             const sl_example_form *form, const sl_vocabulary *vocabulary,
                             char **out_path)
{
    const scratch_path path = scratch_join(directory->text, name);
    const char *paths[] = {path.text};
    scratch_write(path.text, text, strlen(text));
    const sl_tokenize_args tokenize = {
        .documents = {.paths = paths, .path_count = 1, .json_key = "text", .form = form},
        .worker_count = 2,
        .end_of_text = -1};
    const sl_token_cache_args cache = {
        .tokenize = &tokenize, .vocabulary = vocabulary, .directory = directory->text};
    return sl_token_cache_find(&cache, out_path);
}

/* Tokenizes a file by bytes. */
static sl_status make_ids(const scratch_path *directory, const char *name, const char *text,
                          const sl_example_form *form, char **out_path)
{
    sl_vocabulary *bytes = NULL;
    must(sl_vocabulary_of_bytes(&bytes));
    const sl_status status = make_ids_of(directory, name, text, form, bytes, out_path);
    sl_vocabulary_close(bytes);
    return status;
}

/* The ids as bytes, an end of text as "|", and those that count in [ ]. */
static void expect(const scratch_path *directory, const char *name, const char *text,
                   const sl_example_form *form, const char *expected)
{
    char *path = NULL, got[2 * IDS_MAX];
    int32_t ids[IDS_MAX];
    sl_tokens *tokens = NULL;
    size_t used = 0;
    bool is_open = false;
    must(make_ids(directory, name, text, form, &path));
    must(sl_tokens_open((const char *const[]){path}, 1, 0, &tokens));
    sl_tokens_take_marks(tokens);
    must(sl_tokens_limit_vocab(tokens, SL_TOKENS_BYTE_VOCAB));
    const uint64_t count = sl_tokens_count(tokens);
    must(sl_tokens_read(tokens, 0, count, ids));
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t id = sl_tokens_unmark((uint32_t)ids[i]);
        const bool counts = !sl_tokens_is_marked((uint32_t)ids[i]);
        if (counts != is_open)
            got[used++] = counts ? '[' : ']';
        is_open = counts;
        got[used++] = id == SL_TOKENS_END_OF_TEXT ? '|' : (char)id;
    }
    if (is_open)
        got[used++] = ']';
    got[used] = '\0';
    assert_string_equal(got, expected);
    sl_tokens_close(tokens);
    free(path);
}

static void refuse(const scratch_path *directory, const char *text, const sl_example_form *form,
                   const char *part)
{
    char *path = NULL;
    const sl_status status = make_ids(directory, "bad.json", text, form, &path);
    if (status != SL_ERROR_DATA || !strstr(sl_status_message(), part))
        fail_msg("%s: status %d, %s", text, (int)status, sl_status_message());
}

static void pairs_when_read_then_responses_count(void **state)
{
    const scratch_path *directory = *state;
    static const char lines[] = "{\"p\": \"Hi\", \"r\": \"yo\", \"x\": 1}\n"
                                "\n{\"r\": \"\", \"p\": \"end\"}\n{\"p\": \"\", \"r\": \"a\"}";
    static const char array[] =
        " [ {\"p\": \"Hi\", \"r\": \"yo\", \"x\": [{}, \"]}\\\"\"]} ,\n"
        "{\"r\": \"\", \"p\": \"end\"},\n {\"p\": \"\", \"r\": \"a\"}\n] \n";
    static const char expected[] = "Hi\n[yo|]end\n[|]\n[a|]";
    expect(directory, "a.jsonl", lines, &pairs, expected);
    expect(directory, "a", lines, &pairs, expected);
    expect(directory, "a.json", array, &pairs, expected);
}

static void pairs_when_a_template_is_given_then_only_its_response_counts(void **state)
{
    sl_example_form form = pairs;
    form.template_text = "Q: {prompt}{x}\nA: {response}.";
    must(sl_example_check_form(&form));
    expect(*state, "t.jsonl", "{\"p\": \"1\", \"r\": \"2\"}", &form, "Q: 1{x}\nA: [2].[|]");
    form.counts_all = true;
    expect(*state, "t.jsonl", "{\"p\": \"1\", \"r\": \"2\"}", &form, "Q[: 1{x}\nA: 2.|]");
}

static void messages_when_read_then_the_assistant_counts(void **state)
{
    static const char lines[] =
        "{\"m\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
        "\"content\": \"d\"}]}\n"
        "{\"m\": [{\"role\": \"assistant\", \"content\": \"x\"}, {\"role\": \"user\", "
        "\"content\": \"y\"}]}";
    sl_example_form form = messages;
    expect(*state, "m.jsonl", lines, &form,
           "user: a\nassistant: [b|]\nuser: c\nassistant: [d|]assistant: [x|]\nuser: y\n|");
    form.template_text = SL_EXAMPLE_MESSAGE_TEMPLATE; /* given: the same */
    expect(*state, "m.jsonl", lines, &form,
           "user: a\nassistant: [b|]\nuser: c\nassistant: [d|]assistant: [x|]\nuser: y\n|");
    form.template_text = "<{role}>{content}</>";
    expect(*state, "m.jsonl", lines, &form,
           "<user>a</><assistant>[b|]<user>c</><assistant>[d|]<assistant>[x|]<user>y</>|");
    form.template_text = "<{role}>{content}</>\n";
    expect(*state, "m.jsonl", lines, &form,
           "<user>a</>\n<assistant>[b|]\n<user>c</>\n<assistant>[d|]"
           "<assistant>[x|]\n<user>y</>\n|");
}

static void messages_when_sharegpt_wrote_them_then_are_the_same(void **state)
{
    static const char line[] = "{\"c\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": "
                               "\"human\", \"value\": \"a\"}, "
                               "{\"from\": \"gpt\", \"value\": \"b\"}]}";
    const sl_example_form form = {.messages_key = "c"};
    expect(*state, "s.jsonl", line, &form, "system: s\nuser: a\nassistant: [b|]");
    refuse(*state, "{\"c\": [{\"from\": \"gpt\"}]}", &form,
           "line 1: message 1 of \"c\": has no key \"value\" (--messages-key names the list of");
}

/* Alpaca's third key. */
static void pairs_when_they_have_an_input_then_its_mark_takes_it(void **state)
{
    static const char lines[] = "{\"p\": \"1\", \"input\": \"i\", \"r\": \"2\"}\n"
                                "{\"p\": \"3\", \"input\": \"\", \"r\": \"4\"}\n"
                                "{\"p\": \"5\", \"r\": \"6\"}";
    sl_example_form form = pairs;
    remarks[0] = '\0';
    expect(*state, "i.jsonl", lines, &form, "1\n[2|]3\n[4|]5\n[6|]");
    assert_memory_equal(remarks, "1 example has a text under \"input\"", 34);
    remarks[0] = '\0';
    form.template_text = "{prompt}/{input}>{response}";
    expect(*state, "i.jsonl", lines, &form, "1/i>[2|]3/>[4|]5/>[6|]");
    refuse(*state, "{\"p\": \"1\", \"input\": 7, \"r\": \"2\"}", &form,
           "under the key \"input\" stands no text");
    form = (sl_example_form){.prompt_key = "input", .response_key = "r"};
    expect(*state, "i.jsonl", "{\"input\": \"i\", \"r\": \"2\"}", &form, "i\n[2|]");
    assert_string_equal(remarks, "");
}

static void expect_prompt(const char *template_text, const char *system, const char *expected)
{
    sl_example example;
    const sl_example_prompt prompt = {template_text, system, "hi", 2};
    must(sl_example_make_prompt(&prompt, &example));
    assert_int_equal(example.bytes, strlen(expected));
    assert_memory_equal(example.text, expected, example.bytes);
    sl_example_free(&example);
}

static void prompts_when_put_into_a_template_then_end_where_the_answer_begins(void **state)
{
    (void)state;
    sl_example example;
    const sl_example_prompt without_roles = {"{prompt}{response}", "s", "hi", 2};
    expect_prompt("Q: {prompt}{input}\nA: {response}.", NULL, "Q: hi\nA: ");
    expect_prompt("<{role}>{content}</>\n", NULL, "<user>hi</>\n<assistant>");
    expect_prompt("<{role}>{content}</>\n", "s", "<system>s</>\n<user>hi</>\n<assistant>");
    assert_int_equal(sl_example_make_prompt(&without_roles, &example), SL_ERROR_USAGE);
    sl_example_free(&example);
}

/* The first token of an example has nothing before it, and never counts. */
static void examples_when_the_response_comes_first_then_its_first_token_does_not_count(void **state)
{
    sl_example_form form = pairs;
    form.template_text = "{response}{prompt}";
    expect(*state, "f.jsonl", "{\"p\": \"1\", \"r\": \"22\"}\n{\"p\": \"\", \"r\": \"\"}", &form,
           "2[2]1[|]|");
}

static void examples_when_wrong_then_are_refused_where_they_stand(void **state)
{
    refuse(*state, "{\"p\": \"1\", \"r\": \"2\"}\n{\"p\": \"1\"}", &pairs,
           "line 2: has no key \"r\"");
    refuse(*state, "{\"p\": 1, \"r\": \"2\"}", &pairs,
           "line 1: under the key \"p\" stands no text");
    refuse(*state, "[{\"p\": \"1\", \"r\": \"2\"}, {\"p\": \"1\", \"r\": null}]", &pairs,
           "element 2: under the key \"r\" stands no text");
    refuse(*state, "[{\"p\": \"1\", \"r\": \"2\"}, 7]", &pairs, "element 2 of the array is not");
    refuse(*state, "[{\"p\": \"1\", \"r\": \"2\"}, {\"p\": \"1\"", &pairs, "is cut");
    refuse(*state, "[{\"p\": \"1\", \"r\": \"2\"}", &pairs, "is cut");
    refuse(*state, "[{\"p\": \"1\", \"r\": \"2\"}] x", &pairs, "behind the end");
    refuse(*state, "[{\"p\": \"1\", \"r\" \"2\"}]", &pairs, "element 1:");
    refuse(*state, "{\"p\": \"1\", \"r\": \"2\"", &pairs, "line 1:");
    refuse(*state, "a text", &pairs, "neither JSON lines nor a JSON array");
    refuse(*state, "{\"m\": []}", &messages, "line 1: has no list of messages");
    refuse(*state, "{\"m\": [\"a\"]}", &messages, "line 1: message 1 of \"m\": is no object");
    refuse(*state, "{\"m\": [{\"role\": \"user\", \"content\": \"a\"}]}", &messages,
           "no message of the role");
    refuse(*state, "{\"m\": [{\"role\": \"assistant\"}]}", &messages, "no key \"content\"");
    refuse(*state, "[{\"p\": \"1\"}]", NULL, "--prompt-key");
    refuse(*state, "\n \n{\"p\": \"1\", \"r\": \"2\"}\n{\"p\": \"1\"}", &pairs,
           "line 4: has no key \"r\"");
    refuse(*state, "{\"p\": \"1\", \"r\": \"2\", \"r\": \"3\"}", &pairs, "line 1: ");
}

/* Between elements stands one comma, and none elsewhere. */
static void arrays_when_commas_are_wrong_then_refused(void **state)
{
    static const char element[] = "{\"p\": \"1\", \"r\": \"2\"}";
    static const struct {
        const char *before, *between, *behind, *part;
    } rows[] = {{"[", " ", "]", "element 2 of the array has no comma"},
                {"[, ", ", ", "]", "element 1 of the array is not"},
                {"[", ",,", "]", "element 2 of the array is not"},
                {"[", ", ", ",]", "element 3 of the array is not"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s%s%s%s%s", rows[i].before, element, rows[i].between, element,
                 rows[i].behind);
        refuse(*state, text, &pairs, rows[i].part);
    }
}

static void templates_when_marks_are_wrong_then_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{prompt}", "{response}", "{prompt}{response}{response}",
                                        "{prompt}{response}{role}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sl_example_form form = pairs;
        form.template_text = wrong[i];
        assert_int_equal(sl_example_check_form(&form), SL_ERROR_USAGE);
    }
    sl_example_form form = messages;
    form.template_text = "{role}{content}";
    must(sl_example_check_form(&form));
    form.template_text = "{prompt}{content}{role}";
    assert_int_equal(sl_example_check_form(&form), SL_ERROR_USAGE);
}

/* Longer than what is read at once, so that an element crosses the border of buffers. */
static void arrays_when_elements_are_long_then_come_whole(void **state)
{
    enum { COUNT = 3, LETTERS = 900000 };
    const scratch_path *directory = *state;
    char *text = malloc(COUNT * (LETTERS + 64)), *path = NULL;
    size_t used = 0;
    sl_tokens *tokens = NULL;
    for (int i = 0; i < COUNT; i++) {
        used += (size_t)snprintf(text + used, 16, "%s{\"p\": \"", i ? "," : "[");
        memset(text + used, 'a' + i, LETTERS);
        used += LETTERS;
        used += (size_t)snprintf(text + used, 32, "\", \"r\": \"}\"}");
    }
    text[used++] = ']';
    text[used] = '\0';
    must(make_ids(directory, "long.json", text, &pairs, &path));
    must(sl_tokens_open((const char *const[]){path}, 1, 0, &tokens));
    assert_int_equal(sl_tokens_count(tokens), COUNT * (LETTERS + 3));
    sl_tokens_close(tokens);
    free(path);
    free(text);
}

/* Added tokens are found in the template, in a prompt and in a response. */
static void texts_when_they_name_added_tokens_then_become_their_ids(void **state)
{
    enum { IM_START = 1001, IM_END = 1002, COUNT = 4 };
    static const uint32_t expected[COUNT] = {IM_START, IM_END, IM_START, IM_END};
    int32_t ids[COUNT];
    char *path = NULL;
    sl_vocabulary *vocabulary = NULL;
    sl_tokens *tokens = NULL;
    sl_example_form form = pairs;
    form.template_text = "<|im_start|>{prompt}<|im_start|>{response}";
    must(sl_vocabulary_read(SL_TEST_SOURCE_DIRECTORY "/reference/patterns/qwen2", &vocabulary));
    must(make_ids_of(*state, "added.jsonl", "{\"p\": \"<|im_end|>\", \"r\": \"<|im_end|>\"}", &form,
                     vocabulary, &path));
    must(sl_tokens_open((const char *const[]){path}, 1, 0, &tokens));
    sl_tokens_take_marks(tokens);
    assert_int_equal(sl_tokens_count(tokens), COUNT + 1); /* the end of text */
    must(sl_tokens_read(tokens, 0, COUNT, ids));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(sl_tokens_unmark((uint32_t)ids[i]), expected[i]);
        assert_int_equal(sl_tokens_is_marked((uint32_t)ids[i]), i + 1 < COUNT);
    }
    sl_tokens_close(tokens);
    sl_vocabulary_close(vocabulary);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_when_read_then_responses_count),
        cmocka_unit_test(pairs_when_a_template_is_given_then_only_its_response_counts),
        cmocka_unit_test(messages_when_read_then_the_assistant_counts),
        cmocka_unit_test(messages_when_sharegpt_wrote_them_then_are_the_same),
        cmocka_unit_test(pairs_when_they_have_an_input_then_its_mark_takes_it),
        cmocka_unit_test(prompts_when_put_into_a_template_then_end_where_the_answer_begins),
        cmocka_unit_test(
            examples_when_the_response_comes_first_then_its_first_token_does_not_count),
        cmocka_unit_test(examples_when_wrong_then_are_refused_where_they_stand),
        cmocka_unit_test(arrays_when_commas_are_wrong_then_refused),
        cmocka_unit_test(templates_when_marks_are_wrong_then_refused),
        cmocka_unit_test(texts_when_they_name_added_tokens_then_become_their_ids),
        cmocka_unit_test(arrays_when_elements_are_long_then_come_whole),
    };
    return cmocka_run_group_tests(tests, open_scratch_and_log, close_scratch_and_log);
}
