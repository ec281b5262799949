/* sluice eval, token by token: windows that overlap, losses per byte, last words. What could be
 * wrong here: a token is counted twice, or never, or with another context than the windows say; the
 * last, shorter window counts what is not there; a word's first token is left out; bytes are
 * counted of an end of text. What a token costs is worked out a second way: as the difference of
 * two runs of the plain evaluation, over files of tokens that end with it and before it.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>

#include "command_run.h"

enum { TOKENS = 21, WORDS_MAX = 64 };

static int set_up_model(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " TINY "--data text --steps 80 --lr 3e-3 --quiet --save model"), 0);
    return 0;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_ids(const char *name, const unsigned char *ids, size_t count)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        uint16_t id = ids[i];
        fwrite(&id, sizeof id, 1, file);
    }
    fclose(file);
}

static double read_number(const char *key)
{
    json_t *object = json_loads(output, 0, NULL);
    assert_non_null(object);
    json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\" in %s", key, output);
    double number = json_number_value(value);
    json_decref(object);
    return number;
}

/* The loss of all of these tokens but the first, each with those before it as context. */
static double sum_losses(const unsigned char *ids, size_t count)
{
    if (count < 2)
        return 0;
    write_ids("piece.bin", ids, count);
    assert_code(sluice("eval model --data piece.bin --seq %zu --json", count - 1), 0);
    assert_int_equal((int)read_number("tokens"), (int)count - 1);
    return read_number("loss") * (double)(count - 1);
}

/* Sums of fp32 products of other heights: 1e-5 of the loss. */
static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-5 * fabs(expected)))
        fail_msg("%.9g, not %.9g", found, expected);
}

/* ---- windows ---- */

static void windows_when_they_overlap_then_each_token_counts_once_with_its_context(void **state)
{
    (void)state;
    static const struct {
        size_t seq, overlap;
    } rows[] = {{8, 3}, {8, 7}, {8, 1}, {20, 5}, {21, 20}, {30, 9}, {2, 1}};
    const unsigned char *ids = (const unsigned char *)"the lock of gate and the";
    write_ids("all.bin", ids, TOKENS);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const size_t seq = rows[r].seq, overlap = rows[r].overlap;
        double expected = 0;
        for (size_t first = 0, done = 1; done < TOKENS; first += seq - overlap) {
            size_t end = first + seq < TOKENS ? first + seq : TOKENS;
            expected +=
                sum_losses(ids + first, end - first) - sum_losses(ids + first, done - first);
            done = end;
        }
        assert_code(sluice("eval model --data all.bin --seq %zu --overlap %zu --micro-batch 3 "
                           "--json",
                           seq, overlap),
                    0);
        assert_int_equal((int)read_number("tokens"), TOKENS - 1);
        assert_near(read_number("loss") * (TOKENS - 1), expected);
        assert_near(read_number("perplexity"), exp(read_number("loss")));
    }
}

static void windows_when_placed_differently_then_the_same_bits(void **state)
{
    (void)state;
    static char expected[TEXT_BYTES];
    const char *base = "eval model --data short --seq 6 --overlap 2 --micro-batch 1 --json";
    assert_code(sluice("%s", base), 0);
    snprintf(expected, sizeof expected, "%s", output);
    assert_code(sluice("%s --policy host --threads 1", base), 0);
    assert_string_equal(output, expected);
    assert_code(sluice("%s --policy nvme --nvme-params 1 --disk-dir .", base), 0);
    assert_string_equal(output, expected);
}

static void windows_when_options_are_wrong_then_refused(void **state)
{
    (void)state;
    assert_code(sluice("eval model --data text --overlap 32"), 64);
    assert_one_complaint("at most 31");
    assert_code(sluice("eval model --data text --overlap 4 --last-word"), 64);
    assert_one_complaint("give one of them");
    write_ids("one.bin", (const unsigned char *)"a", 1);
    assert_code(sluice("eval model --data one.bin --overlap 4"), 65);
}

/* ---- shares ---- */

/* A share of equal documents is what a file of its own would be. */
static void share_when_of_a_split_then_its_documents_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"training", "validation", "test"};
    static const char *const texts[] = {"the gate and the boat rise a little at the lock",
                                        "water falls and the boat goes out of the gates.",
                                        "a lock is a gate, a boat, and water that rises "};
    for (int i = 0; i < 3; i++)
        write_text(names[i], texts[i]);
    for (int overlap = 0; overlap < 8; overlap += 5)
        for (int i = 0; i < 3; i++) {
            char alone[TEXT_BYTES];
            assert_code(
                sluice("eval model --data %s --seq 8 --overlap %d --json", names[i], overlap), 0);
            memcpy(alone, output, sizeof alone);
            assert_code(sluice("eval model --data training validation test --split 1,1,1 "
                               "--share %s --seq 8 --overlap %d --json",
                               names[i], overlap),
                        0);
            assert_string_equal(output, alone);
        }
    assert_code(sluice("eval model --data training --split 1,1,0"), 64);
    assert_one_complaint("leaves nothing for --share test");
    assert_code(sluice("eval model --data training test --split 1,1 --share training"), 64);
    assert_code(sluice("eval model --data training --split 1,1,1"), 65);
}

/* ---- bytes and characters ---- */

static void text_when_evaluated_then_its_bytes_and_characters_count(void **state)
{
    (void)state;
    write_text("accents", "\xc3\xa9\xe2\x82\xac the lock");
    /* 14 bytes and an end of text; the first byte is predicted by nothing. */
    assert_code(sluice("eval model --data accents --seq 14 --json"), 0);
    assert_int_equal((int)read_number("tokens"), 14);
    assert_int_equal((int)read_number("bytes"), 13);
    assert_int_equal((int)read_number("characters"), 10);
    double sum = read_number("loss") * 14;
    assert_near(read_number("loss_per_byte"), sum / 13);
    assert_near(read_number("loss_per_character"), sum / 10);
    assert_code(sluice("eval model --data accents --seq 5 --overlap 2 --json"), 0);
    assert_int_equal((int)read_number("bytes"), 13);
    assert_code(sluice("eval model --data accents --seq 5"), 0);
    assert_has(output, "loss per byte");
    assert_code(sluice("eval model --data all.bin"), 65); /* too few tokens for a row */
    assert_code(sluice("eval model --data all.bin --seq 9 --json"), 0);
    assert_null(strstr(output, "bytes"));
}

/* ---- last words ---- */

static const char *const contexts[] = {
    "the lock",         "and",   "the boat  of", "gate gate gate water",
    "a gate rises and", "water", "of of of",     "falls and rises"};
static const char *const last_words[] = {"lock", "a", "the", "rises", "zq", "the", "lock", "and"};

enum { DOCUMENTS = sizeof contexts / sizeof contexts[0] };

/* What the model says behind the context, read one byte after the other. */
static bool says_word(const char *context, const char *word)
{
    write_text("context", context);
    assert_code(sluice("generate model --prompt-file context --tokens %zu --temperature 0 --quiet",
                       strlen(word) + 1),
                0);
    return output[0] == ' ' && strncmp(output + 1, word, strlen(word)) == 0;
}

/* Of each document the word that the model would say, and another one. */
static void words_when_asked_then_right_where_the_model_says_them(void **state)
{
    (void)state;
    FILE *file = fopen("words.jsonl", "w");
    int right = 0, count = 0;
    double loss_sum = 0;
    char text[128], said[16];
    for (int i = 0; i < DOCUMENTS; i++) {
        write_text("context", contexts[i]);
        assert_code(
            sluice("generate model --prompt-file context --tokens 9 --temperature 0 --quiet"), 0);
        size_t length = strcspn(output + 1, " .\n\"\\");
        snprintf(said, sizeof said, "%.*s", (int)(length < 8 ? length : 8), output + 1);
        for (int own = 0; own < 2; own++) {
            const char *word = own && *said ? said : last_words[i];
            bool is_right = says_word(contexts[i], word);
            snprintf(text, sizeof text, "%s %s", contexts[i], word);
            fprintf(file, "{\"id\": %d, \"text\": \"%s%s\"}\n", i, text, own ? " \\n" : "");
            loss_sum += sum_losses((const unsigned char *)text, strlen(text)) -
                        sum_losses((const unsigned char *)text, strlen(contexts[i]));
            right += is_right;
            count++;
        }
    }
    fclose(file);
    assert_true(right > 0 && right < count);
    assert_code(sluice("eval model --data words.jsonl --last-word --json --micro-batch 3"), 0);
    assert_int_equal((int)read_number("documents"), count);
    assert_int_equal((int)read_number("right"), right);
    assert_near(read_number("accuracy"), (double)right / count);
    assert_near(read_number("perplexity"), exp(loss_sum / count));
    assert_code(sluice("eval model --data words.jsonl --last-word"), 0);
    assert_has(output, "accuracy");
    assert_string_equal(complaint, "");
}

/* Of one that is longer than the context, the last 33 bytes: 32 to read, and the last to predict.
 */
static void words_when_a_document_is_long_then_its_end_counts(void **state)
{
    (void)state;
    static char expected[TEXT_BYTES];
    write_text("end.jsonl", "{\"text\": \"nd a gate and a lock and the gate\"}\n");
    write_text("long.jsonl", "{\"text\": \"the boat and a gate and a lock and the gate\"}\n");
    assert_code(sluice("eval model --data end.jsonl --last-word --json"), 0);
    snprintf(expected, sizeof expected, "%s", output);
    assert_code(sluice("eval model --data long.jsonl --last-word --json"), 0);
    assert_string_equal(output, expected);
    assert_code(sluice("eval model --data long.jsonl --last-word --seq 4"), 64);
    assert_one_complaint("a last word has 5 tokens");
}

static void words_when_documents_are_wrong_then_65_and_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{\"text\": \"one two\"}\n{\"text\": \"alone\"}\n", "line 2: has no word in front"},
        {"{\"text\": \"one two\"}\n{\"text\": \"  alone \"}\n", "line 2: has no word in front"},
        {"{\"text\": \"\"}\n", "line 1: has no word"},
        {"{\"text\": \"   \"}\n", "line 1: has no word"},
        {"{\"text\": 5}\n", "line 1"},
        {"{\"test\": \"one two\"}\n", "line 1"},
        {"{\"text\": \"one two\"}\n[1]\n", "line 2"},
        {"{\"text\": \"one two\"}\n{\"text\": \"one", "line 2"},
        {"{\"text\": \"one two\"}\n{\"text\": null}\n", "line 2"},
        {"{\"text\": \"one two\"} x\n", "line 1"},
        {"{\"text\": \"one two\"}\nplain\n", "line 2"},
        {"{\"text\": \"one \\ud800 two\"}\n", "line 1"},
        {"{\"text\": \"one \xff two\"}\n", "line 1"},
        {"{\"text\": \"a bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}\n", "does not fit"},
        {"", "holds no document"},
        {"\n\n", "holds no document"},
        {"null\n", "line 1"},
        {"{}\n", "line 1"},
        {"{\"text\": [\"one two\"]}\n", "line 1"},
        {"{\"text\": {\"text\": \"one two\"}}\n", "line 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text("bad.jsonl", rows[i].text);
        assert_code(sluice("eval model --data bad.jsonl --last-word"), 65);
        assert_one_complaint(rows[i].part);
        assert_string_equal(output, "");
    }
    print_message("%zu bad files\n", sizeof rows / sizeof rows[0]);
    assert_code(sluice("eval model --data text --last-word"), 65);
    assert_one_complaint("JSON lines");
    assert_code(sluice("eval model --data none --last-word"), 66);
    assert_code(sluice("eval model --data all.bin --last-word"), 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_when_they_overlap_then_each_token_counts_once_with_its_context),
        cmocka_unit_test(windows_when_placed_differently_then_the_same_bits),
        cmocka_unit_test(windows_when_options_are_wrong_then_refused),
        cmocka_unit_test(share_when_of_a_split_then_its_documents_alone),
        cmocka_unit_test(text_when_evaluated_then_its_bytes_and_characters_count),
        cmocka_unit_test(words_when_asked_then_right_where_the_model_says_them),
        cmocka_unit_test(words_when_a_document_is_long_then_its_end_counts),
        cmocka_unit_test(words_when_documents_are_wrong_then_65_and_the_line),
    };
    return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
