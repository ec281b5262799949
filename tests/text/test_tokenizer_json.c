/* A tokenizer.json that says something unusual. What could be wrong: a token is found by one text
 * and decoded to another, two ids have one text, words become a token that only texts hold, a
 * pattern with possessive repeats cuts otherwise than the same without, a failed save removes a
 * file of others, a long text that must come whole is refused packed. Each is the tokenizer of
 * reference/patterns with a part exchanged. */
#define _GNU_SOURCE
#include "text_case.h"

#include <sys/stat.h>

#include "text/documents.h"

#define FIXTURES SL_TEST_SOURCE_DIRECTORY "/reference/patterns/"

/* Parses the fixture with the first place of `from` exchanged. */
static sl_status parse_changed(const char *from, const char *to, sl_vocabulary **out_vocabulary)
{
    size_t bytes;
    char *json = scratch_read(FIXTURES "llama3/tokenizer.json", &bytes);
    const char *place = memmem(json, bytes, from, strlen(from));
    assert_non_null(place);
    const size_t front = (size_t)(place - json), back = bytes - front - strlen(from);
    char *changed = malloc(bytes + strlen(to) + 1);
    assert_non_null(changed);
    memcpy(changed, json, front);
    memcpy(changed + front, to, strlen(to));
    memcpy(changed + front + strlen(to), place + strlen(from), back);
    const sl_vocabulary_text text = {"changed", changed, front + strlen(to) + back};
    sl_status status = sl_vocabulary_parse_json(&text, NULL, out_vocabulary);
    free(changed);
    free(json);
    return status;
}

#define LAST_ADDED "{\"id\":1002,\"content\":\"<|im_end|>\","

static void added_tokens_when_they_contradict_then_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"id\":1002,\"content\":\"<|endoftext|>\",", "the same"},
        {"{\"id\":220,\"content\":\"\u0120\",", "stands for other bytes in the vocabulary"},
        {"{\"id\":5,\"content\":\"!\",", "has two ids"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_vocabulary *vocabulary = NULL;
        must_fail(cases[i][0], parse_changed(LAST_ADDED, cases[i][0], &vocabulary), SL_ERROR_DATA,
                  cases[i][1]);
    }
}

static void tokens_when_added_then_found_in_texts_and_no_words(void **state)
{
    (void)state;
    sl_vocabulary *vocabulary = NULL;
    must(parse_changed(LAST_ADDED, "{\"id\":1002,\"content\":\"qzx\",", &vocabulary));
    assert_int_equal(sl_vocabulary_find(vocabulary, "qzx", 3), 1002);
    assert_int_equal(sl_vocabulary_find_word(vocabulary, "qzx", 3), SL_VOCABULARY_NONE);
    assert_int_equal(sl_vocabulary_token(vocabulary, 1002).kind, SL_TOKEN_SPECIAL);
    assert_int_equal(sl_vocabulary_token(vocabulary, 5).kind, SL_TOKEN_WORD);
    sl_vocabulary_close(vocabulary);
}

static void merges_when_they_make_an_added_token_then_refused(void **state)
{
    (void)state;
    sl_vocabulary *vocabulary = NULL;
    static const char text[] =
        "{\"added_tokens\":[{\"id\":256,\"content\":\"ab\"}],\"pre_tokenizer\":{\"type\":"
        "\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\"],\"vocab\":{";
    char *json = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&json, &bytes);
    assert_non_null(stream);
    fputs(text, stream);
    for (uint32_t id = 0; id < 256; id++) {
        const char byte = (char)sl_vocabulary_nth_byte(id);
        fputs(id ? ",\"" : "\"", stream);
        if (byte == '"' || byte == '\\')
            putc('\\', stream);
        sl_vocabulary_write_token((sl_token_bytes){.text = &byte, .bytes = 1}, stream);
        fprintf(stream, "\":%u", id);
    }
    fputs("}}}", stream);
    fclose(stream);
    must_fail("a merge",
              sl_vocabulary_parse_json(&(sl_vocabulary_text){"tokenizer.json", json, bytes}, NULL,
                                       &vocabulary),
              SL_ERROR_DATA, "makes a token that the vocabulary has not");
    free(json);
}

/* That of cl100k, as OpenAI writes it: the ids are those of the pattern without. */
static void ids_when_repeats_are_possessive_then_the_same(void **state)
{
    (void)state;
    size_t text_bytes, id_bytes;
    char *texts = scratch_read(FIXTURES "texts.bin", &text_bytes);
    char *expected = scratch_read(FIXTURES "llama3/ids.bin", &id_bytes);
    const uint32_t *at = (const uint32_t *)expected;
    sl_vocabulary *vocabulary = NULL;
    must(parse_changed("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
                       "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*",
                       "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?+\\\\p{L}+|\\\\p{N}{1,3}| "
                       "?[^\\\\s\\\\p{L}\\\\p{N}]++[\\\\r\\\\n]*",
                       &vocabulary));
    assert_int_equal(sl_vocabulary_cuts(vocabulary), SL_WORDS_CUTS_NONE);
    for (const char *text = texts; text < texts + text_bytes; text += strlen(text) + 1) {
        sl_ids ids = text_encode(vocabulary, text, strlen(text), 64);
        if (ids.count != *at || (*at > 0 && memcmp(ids.items, at + 1, *at * sizeof *at) != 0))
            fail_msg("other ids: \"%s\"", text);
        at += 1 + *at;
        sl_ids_free(&ids);
    }
    sl_vocabulary_close(vocabulary);
    free(texts);
    free(expected);
}

static void save_when_it_fails_then_files_of_others_stay(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const scratch_path config = scratch_join(directory.text, "tokenizer_config.json");
    const scratch_path obstacle = scratch_join(directory.text, "vocabulary.tmp");
    sl_vocabulary *vocabulary = text_open(FIXTURES "llama3");
    scratch_write(config.text, "{}", 2);
    assert_int_equal(mkdir(obstacle.text, 0700), 0);
    assert_int_not_equal(sl_vocabulary_save(vocabulary, directory.text), SL_OK);
    assert_true(scratch_exists(config.text));
    assert_false(scratch_exists(scratch_join(directory.text, "tokenizer.json").text));
    sl_vocabulary_close(vocabulary);
    scratch_close(&directory);
}

/* Twelve megabytes of words in a file of fewer than four: a piece of twice the file's size would
 * not hold them. */
static void packed_text_when_it_comes_whole_then_one_piece(void **state)
{
    (void)state;
    enum { BYTES = 12 << 20, WORD = 8 };
    scratch_path directory = scratch_open();
    const scratch_path path = scratch_join(directory.text, "text.gz");
    char command[1100];
    snprintf(command, sizeof command, "gzip -1 >'%s'", path.text);
    FILE *file = popen(command, "w");
    assert_non_null(file);
    uint64_t seed = 5;
    for (uint64_t at = 0; at < BYTES; at += WORD) {
        char word[WORD] = "same   ";
        word[WORD - 1] = at % 64 == 0 ? (char)('a' + scratch_below(&seed, 16)) : ' ';
        word[4] = at % 32 == 0 ? (char)('a' + scratch_below(&seed, 16)) : ' ';
        assert_int_equal(fwrite(word, 1, WORD, file), WORD);
    }
    assert_int_equal(pclose(file), 0);
    const char *paths[] = {path.text};
    const sl_documents_args args = {
        .paths = paths, .path_count = 1, .json_key = "text", .cuts = SL_WORDS_CUTS_NONE};
    sl_documents *documents = NULL;
    sl_piece piece;
    bool is_there;
    must(sl_documents_open(&args, &documents));
    assert_true(sl_documents_file_bytes(documents) < BYTES / 3);
    must(sl_documents_next(documents, &piece, &is_there));
    assert_true(is_there && piece.ends_document);
    assert_int_equal(piece.bytes, BYTES);
    sl_documents_close(documents);
    scratch_close(&directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_tokens_when_they_contradict_then_refused),
        cmocka_unit_test(tokens_when_added_then_found_in_texts_and_no_words),
        cmocka_unit_test(merges_when_they_make_an_added_token_then_refused),
        cmocka_unit_test(ids_when_repeats_are_possessive_then_the_same),
        cmocka_unit_test(save_when_it_fails_then_files_of_others_stay),
        cmocka_unit_test(packed_text_when_it_comes_whole_then_one_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
