/* Rows of examples. What could be wrong: an example is torn over two rows, comes twice or is lost;
 * a row is longer than it may be; an example that is cut keeps no response and still has a row; a
 * target of padding, of a prompt or of the first token of an example counts; a position does not
 * begin anew with each example; an epoch leaves a row out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "scratch_case.h"
#include "text/token_cache.h"
#include "train/data/data_loader.h"

enum { SEQ = 9, EXAMPLES = 7 };

/* Letters of the prompts and responses. With the end of text they have 5, 4, 2, 20, 20, 10 and 4
 * tokens; of the longer ones one has its response behind the end of a row. */
static const struct {
    int prompt, response;
} sizes[EXAMPLES] = {{2, 2}, {1, 2}, {1, 0}, {3, 16}, {15, 4}, {4, 5}, {2, 1}};

/* The examples as tokens; the letters of each are its own. */
static sl_tokens *open_examples(const scratch_path *directory)
{
    char text[2048];
    char *made = NULL;
    size_t used = 0;
    const scratch_path path = scratch_join(directory->text, "examples.jsonl");
    const char *paths[] = {path.text};
    sl_vocabulary *bytes = NULL;
    sl_tokens *tokens = NULL;
    static const sl_example_form form = {
        .prompt_key = "p", .response_key = "r", .template_text = "{prompt}{response}"};
    for (int i = 0; i < EXAMPLES; i++) {
        static const char letters[] = "aaaaaaaaaaaaaaaaaaaa";
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"p\": \"%.*s\", \"r\": \"%.*s\"}\n", sizes[i].prompt, letters,
                                 sizes[i].response, letters);
    }
    scratch_write(path.text, text, used);
    must(sl_vocabulary_of_bytes(&bytes));
    const sl_tokenize_args tokenize = {
        .documents = {.paths = paths, .path_count = 1, .json_key = "text", .form = &form},
        .worker_count = 1,
        .end_of_text = -1};
    const sl_token_cache_args cache = {
        .tokenize = &tokenize, .vocabulary = bytes, .directory = directory->text};
    must(sl_token_cache_find(&cache, &made));
    sl_vocabulary_close(bytes);
    must(sl_tokens_open((const char *const[]){made}, 1, 0, &tokens));
    sl_tokens_take_marks(tokens);
    free(made);
    return tokens;
}

static sl_data_loader open_loader(const sl_tokens *tokens, bool packs, sl_data_order order)
{
    sl_data_loader loader;
    sl_data_part *part = calloc(1, sizeof *part);
    assert_non_null(part);
    part->token_count = sl_tokens_count(tokens);
    const sl_data_loader_args args = {.tokens = tokens,
                                      .parts = {part, 1},
                                      .order = order,
                                      .seed = 3,
                                      .seq = SEQ,
                                      .by_document = packs,
                                      .end_of_text = SL_TOKENS_END_OF_TEXT,
                                      .has_examples = true,
                                      .packs = packs};
    must(sl_data_loader_open(&args, &loader));
    return loader;
}

/* A row as text: "|" is an end of text, "-" a target that does not count. */
static void expect_row(const sl_data_loader *loader, uint64_t row, uint32_t slot,
                       const char *expected)
{
    int32_t ids[SEQ];
    char got[SEQ + 1] = {0};
    must(sl_data_loader_read(loader, (sl_row_range){row, 1}, slot, ids));
    for (int t = 0; t < SEQ; t++) {
        if (slot == SL_INPUT_POSITIONS)
            got[t] = (char)('0' + ids[t]);
        else
            got[t] = ids[t] < 0 ? '-' : ids[t] == SL_TOKENS_END_OF_TEXT ? '|' : (char)ids[t];
    }
    assert_string_equal(got, expected);
}

static void rows_when_packed_then_hold_whole_examples(void **state)
{
    sl_tokens *tokens = open_examples(*state);
    sl_data_loader loader = open_loader(tokens, true, SL_DATA_SEQUENTIAL);
    const sl_example_rows *rows = &loader.examples[0];
    assert_int_equal(rows->row_count, 5);
    assert_int_equal(rows->example_count, EXAMPLES - 1);
    assert_int_equal(rows->cut_count, 2);
    assert_int_equal(rows->dropped_count, 1);
    expect_row(&loader, 0, SL_INPUT_TOKENS, "aaaa|aaa|");
    expect_row(&loader, 0, SL_INPUT_TARGETS, "-aa|-aa|-");
    expect_row(&loader, 0, SL_INPUT_POSITIONS, "012340123");
    expect_row(&loader, 1, SL_INPUT_TOKENS, "a||||||||");
    expect_row(&loader, 1, SL_INPUT_TARGETS, "|--------");
    expect_row(&loader, 1, SL_INPUT_POSITIONS, "010123456");
    expect_row(&loader, 2, SL_INPUT_TARGETS, "--aaaaaaa"); /* cut */
    expect_row(&loader, 3, SL_INPUT_TARGETS, "---aaaaa|"); /* as long as a row and its target */
    expect_row(&loader, 4, SL_INPUT_TOKENS, "aaa||||||");
    assert_int_equal(sl_data_loader_row_count(&loader), 5);
    sl_data_loader_close(&loader);
    sl_tokens_close(tokens);
}

static void rows_when_not_packed_then_one_example_each(void **state)
{
    sl_tokens *tokens = open_examples(*state);
    sl_data_loader loader = open_loader(tokens, false, SL_DATA_SEQUENTIAL);
    assert_int_equal(loader.examples[0].row_count, EXAMPLES - 1);
    expect_row(&loader, 0, SL_INPUT_TOKENS, "aaaa|||||");
    expect_row(&loader, 0, SL_INPUT_TARGETS, "-aa|-----");
    expect_row(&loader, 1, SL_INPUT_TARGETS, "aa|------");
    expect_row(&loader, 2, SL_INPUT_TARGETS, "|--------");
    sl_data_loader_close(&loader);
    sl_tokens_close(tokens);
}

/* Rows differ in their targets but for none: each is there once an epoch. */
static void rows_when_shuffled_then_each_once_an_epoch(void **state)
{
    enum { ROWS = 5, EPOCHS = 4 };
    sl_tokens *tokens = open_examples(*state);
    sl_data_loader plain = open_loader(tokens, true, SL_DATA_SEQUENTIAL);
    sl_data_loader mixed = open_loader(tokens, true, SL_DATA_SHUFFLE);
    int32_t ids[SEQ], all[ROWS][SEQ];
    for (uint64_t row = 0; row < ROWS; row++)
        must(sl_data_loader_read(&plain, (sl_row_range){row, 1}, SL_INPUT_TARGETS, all[row]));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        uint32_t seen[ROWS] = {0};
        for (uint64_t row = 0; row < ROWS; row++) {
            const sl_row_range one = {(uint64_t)epoch * ROWS + row, 1};
            must(sl_data_loader_read(&mixed, one, SL_INPUT_TARGETS, ids));
            for (int i = 0; i < ROWS; i++)
                seen[i] += memcmp(ids, all[i], sizeof ids) == 0;
        }
        for (int i = 0; i < ROWS; i++)
            assert_int_equal(seen[i], 1);
    }
    assert_true(sl_data_loader_epoch(&mixed, 2 * ROWS) == 2.0);
    sl_data_loader_close(&plain);
    sl_data_loader_close(&mixed);
    sl_tokens_close(tokens);
}

/* Joined rows, which are evaluated, may come from one part of two; trained on, each part is read.
 */
static void rows_when_a_part_is_empty_then_others_are_read_where_joined(void **state)
{
    sl_tokens *tokens = open_examples(*state);
    sl_data_loader loader;
    for (int joins = 0; joins < 2; joins++) {
        sl_data_part *parts = calloc(2, sizeof *parts);
        assert_non_null(parts);
        parts[1].token_count = sl_tokens_count(tokens);
        const sl_data_loader_args args = {.tokens = tokens,
                                          .parts = {parts, 2},
                                          .joins = joins,
                                          .order = SL_DATA_SEQUENTIAL,
                                          .seq = SEQ,
                                          .end_of_text = SL_TOKENS_END_OF_TEXT,
                                          .has_examples = true,
                                          .packs = true};
        const sl_status status = sl_data_loader_open(&args, &loader);
        assert_int_equal(status, joins ? SL_OK : SL_ERROR_DATA);
        if (status != SL_OK)
            continue;
        assert_int_equal(sl_data_loader_row_count(&loader), 5);
        expect_row(&loader, 0, SL_INPUT_TARGETS, "-aa|-aa|-");
        sl_data_loader_close(&loader);
    }
    sl_tokens_close(tokens);
}

/* Id -1 would be padding that counts. */
static void rows_when_the_end_of_text_is_unknown_then_refused(void **state)
{
    sl_tokens *tokens = open_examples(*state);
    sl_data_loader loader;
    sl_data_part *part = calloc(1, sizeof *part);
    assert_non_null(part);
    part->token_count = sl_tokens_count(tokens);
    const sl_data_loader_args args = {
        .tokens = tokens, .parts = {part, 1}, .seq = SEQ, .end_of_text = -1, .has_examples = true};
    assert_int_equal(sl_data_loader_open(&args, &loader), SL_ERROR_USAGE);
    sl_tokens_close(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_when_packed_then_hold_whole_examples),
        cmocka_unit_test(rows_when_not_packed_then_one_example_each),
        cmocka_unit_test(rows_when_shuffled_then_each_once_an_epoch),
        cmocka_unit_test(rows_when_a_part_is_empty_then_others_are_read_where_joined),
        cmocka_unit_test(rows_when_the_end_of_text_is_unknown_then_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
