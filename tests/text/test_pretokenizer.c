/* Tokenizers of tokenizer.json. What could be wrong: a pattern read otherwise than the tokenizers
 * library reads it (a case, a class, an empty match, a newer letter), an added token found where it
 * is none or passed over, a text normalized too far or in part, words that depend on bytes that are
 * no UTF-8 or on where a text is cut, a pattern that never ends, a vocabulary that comes back from
 * its own files as another one. Ids are compared with those that the tokenizers library wrote
 * (reference/make_patterns.py), words and normalized texts with ones written by hand. */
#define _GNU_SOURCE
#include "text_case.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <utf8proc.h>

#include "text/nfc.h"
#include "text/stand_ins.h"
#include "text/words.h"

#define FIXTURES SL_TEST_SOURCE_DIRECTORY "/reference/patterns/"

static const char *const names[] = {"llama3", "qwen2"};
enum { NAME_COUNT = sizeof names / sizeof names[0], LLAMA = 0, QWEN = 1 };

static sl_vocabulary *fixtures[NAME_COUNT];

static int open_fixtures(void **state)
{
    (void)state;
    for (int i = 0; i < NAME_COUNT; i++)
        fixtures[i] = text_open(scratch_join(FIXTURES, names[i]).text);
    return 0;
}

static int close_fixtures(void **state)
{
    (void)state;
    for (int i = 0; i < NAME_COUNT; i++)
        sl_vocabulary_close(fixtures[i]);
    return 0;
}

/* ---- ids ---- */

static bool is_same(const uint32_t *a, const uint32_t *b, uint64_t count)
{
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

static void compare_with_reference(const char *name, const sl_vocabulary *vocabulary)
{
    size_t text_bytes, id_bytes, count = 0;
    char *texts = scratch_read(FIXTURES "texts.bin", &text_bytes);
    char *expected =
        scratch_read(scratch_join(scratch_join(FIXTURES, name).text, "ids.bin").text, &id_bytes);
    const uint32_t *at = (const uint32_t *)expected;
    for (const char *text = texts; text < texts + text_bytes; text += strlen(text) + 1, count++) {
        sl_ids ids = text_encode(vocabulary, text, strlen(text), 64);
        if (ids.count != *at || !is_same(ids.items, at + 1, *at))
            fail_msg("%s: text %zu has other ids: \"%s\"", name, count, text);
        at += 1 + *at;
        sl_ids_free(&ids);
    }
    assert_ptr_equal(at, expected + id_bytes);
    assert_true(count > 35);
    free(texts);
    free(expected);
}

static void ids_when_compared_with_the_reference_then_equal(void **state)
{
    (void)state;
    for (int i = 0; i < NAME_COUNT; i++)
        compare_with_reference(names[i], fixtures[i]);
}

static void ids_when_any_bytes_then_decode(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("bytes", 3);
    for (uint64_t run = 0; run < scratch_count(300, 20000); run++) {
        static const char *const parts[] = {"<|im_end|>", "<|im", "'LL",      "12",
                                            "\n",         " ",    "e\xcc\x81"};
        char text[200];
        uint64_t bytes = 0;
        while (bytes < 150) {
            const char *part = parts[scratch_below(&seed, sizeof parts / sizeof parts[0])];
            bytes += (uint64_t)snprintf(text + bytes, sizeof text - bytes, "%s", part);
            text[bytes++] = (char)scratch_draw(&seed);
        }
        sl_ids ids = text_encode(fixtures[LLAMA], text, bytes, 16);
        text_assert_decodes(fixtures[LLAMA], &ids, text, bytes);
        sl_ids_free(&ids);
    }
}

/* The ids of a text are those of its two parts. */
static void assert_cut_is_right(const sl_vocabulary *vocabulary, const char *text, uint64_t bytes,
                                uint64_t cut)
{
    sl_ids whole = text_encode(vocabulary, text, bytes, 16);
    sl_ids front = text_encode(vocabulary, text, cut, 16);
    sl_ids back = text_encode(vocabulary, text + cut, bytes - cut, 16);
    if (front.count + back.count != whole.count ||
        !is_same(whole.items, front.items, front.count) ||
        !is_same(whole.items + front.count, back.items, back.count))
        fail_msg("a cut at %llu of \"%s\" makes other ids", (unsigned long long)cut, text);
    sl_ids_free(&whole);
    sl_ids_free(&front);
    sl_ids_free(&back);
}

#define TO_MARKS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define BLANKS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const patterns_with_cuts[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    TO_MARKS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS,
    TO_MARKS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS,
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" TO_MARKS "?|"
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" TO_MARKS "?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BLANKS,
};
enum { PATTERNS_WITH_CUTS = sizeof patterns_with_cuts / sizeof patterns_with_cuts[0] };

/* The fixture with another pattern. */
static sl_vocabulary *open_with_pattern(const char *name, const char *pattern)
{
    sl_vocabulary *vocabulary = NULL;
    json_t *root = json_load_file(
        scratch_join(scratch_join(FIXTURES, name).text, "tokenizer.json").text, 0, NULL);
    const json_t *steps = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    assert_int_equal(json_object_set_new(json_object_get(json_array_get(steps, 0), "pattern"),
                                         "Regex", json_string(pattern)),
                     0);
    char *text = json_dumps(root, 0);
    must(sl_vocabulary_parse_json(&(sl_vocabulary_text){name, text, strlen(text)}, NULL,
                                  &vocabulary));
    free(text);
    json_decref(root);
    return vocabulary;
}

/* A part before the cut and one behind it have the ids of the whole. */
static void cuts_when_taken_then_ids_are_those_of_the_whole(void **state)
{
    (void)state;
    static const char *const parts[] = {" ",    "  ",           "\n",
                                        "'s",   "ab",           "7",
                                        "!",    "\xc2\xa0",     "\xe0\xa5\x98",
                                        "\t",   "\xcc\x81",     "\xe3\x80\x82",
                                        "\xff", "\r\n",         "/",
                                        "the ", "\xe6\x97\xa5", "<|im_end|>",
                                        "Ab"};
    sl_vocabulary *vocabularies[PATTERNS_WITH_CUTS * NAME_COUNT];
    for (uint32_t i = 0; i < PATTERNS_WITH_CUTS * NAME_COUNT; i++) {
        vocabularies[i] =
            open_with_pattern(names[i % NAME_COUNT], patterns_with_cuts[i / NAME_COUNT]);
        assert_int_equal(sl_vocabulary_cuts(vocabularies[i]), SL_WORDS_CUTS_KNOWN);
    }
    uint64_t seed = scratch_seed("cuts", 7), found = 0;
    for (uint64_t run = 0; run < scratch_count(4000, 200000); run++) {
        char text[80] = "";
        for (size_t at = 0; at < 60; at = strlen(text))
            snprintf(text + at, sizeof text - at, "%s",
                     parts[scratch_below(&seed, sizeof parts / sizeof parts[0])]);
        const uint64_t bytes = strlen(text);
        const uint64_t cut = sl_words_last_cut(text, bytes, 0, SL_WORDS_CUTS_KNOWN);
        assert_cut_is_right(vocabularies[run % (PATTERNS_WITH_CUTS * NAME_COUNT)], text, bytes,
                            cut);
        found += cut > 0;
    }
    assert_true(found > 2000);
    for (uint32_t i = 0; i < PATTERNS_WITH_CUTS * NAME_COUNT; i++)
        sl_vocabulary_close(vocabularies[i]);
}

/* Lines that end in a mark are cut for GPT-2's pattern alone. */
static void cuts_when_lines_end_in_marks_then_by_the_pattern(void **state)
{
    (void)state;
    static const char text[] = "a\"\n\"b\"";
    const uint64_t bytes = sizeof text - 1;
    assert_int_equal(sl_words_last_cut(text, bytes, 0, SL_WORDS_CUTS_GPT2), 2);
    assert_int_equal(sl_words_last_cut(text, bytes, 0, SL_WORDS_CUTS_KNOWN), 0);
    assert_int_equal(sl_words_last_cut("a b", 3, 0, SL_WORDS_CUTS_KNOWN), 1);
    assert_int_equal(sl_words_last_cut("a b", 3, 0, SL_WORDS_CUTS_NONE), 0);
}

/* ---- machine code ---- */

static bool has_no_machine_code;

int __real_pcre2_match_8(const pcre2_code_8 *, PCRE2_SPTR8, PCRE2_SIZE, PCRE2_SIZE, uint32_t,
                         pcre2_match_data_8 *, pcre2_match_context_8 *);
int __wrap_pcre2_match_8(const pcre2_code_8 *code, PCRE2_SPTR8 text, PCRE2_SIZE bytes,
                         PCRE2_SIZE start, uint32_t options, pcre2_match_data_8 *data,
                         pcre2_match_context_8 *context);

int __wrap_pcre2_match_8(const pcre2_code_8 *code, PCRE2_SPTR8 text, PCRE2_SIZE bytes,
                         PCRE2_SIZE start, uint32_t options, pcre2_match_data_8 *data,
                         pcre2_match_context_8 *context)
{
    options |= has_no_machine_code ? PCRE2_NO_JIT : 0;
    return __real_pcre2_match_8(code, text, bytes, start, options, data, context);
}

/* As on a machine that allows none. */
static void ids_when_there_is_no_machine_code_then_the_same(void **state)
{
    (void)state;
    has_no_machine_code = true;
    for (int i = 0; i < NAME_COUNT; i++)
        compare_with_reference(names[i], fixtures[i]);
    has_no_machine_code = false;
}

/* ---- added tokens ---- */

/* 60,000 tokens that begin alike, and others that begin or end one of them, in a text where each
 * byte may start one: one look at each token for each byte would take minutes. */
static void tokens_when_many_begin_alike_then_the_longest_is_found(void **state)
{
    (void)state;
    enum { COUNT = 60000, ROOM = 16, OTHERS = 3 };
    static char texts[COUNT][ROOM], text[COUNT * ROOM];
    static sl_added_token tokens[COUNT + OTHERS] = {
        {"<|", COUNT}, {"<|1", COUNT + 1}, {"<|1|>+", COUNT + 2}};
    sl_added_tokens *set = NULL;
    sl_added_part part;
    size_t used = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(texts[i], ROOM, "<|%u|>", i);
        tokens[OTHERS + i] = (sl_added_token){texts[i], i};
        used += (size_t)snprintf(text + used, sizeof text - used, "<%s", texts[i]);
    }
    must(sl_added_tokens_open(tokens, COUNT + OTHERS, &set));
    sl_added_walk walk = {.text = text, .bytes = used};
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(sl_added_tokens_next(set, &walk, &part) && part.text && part.bytes == 1);
        assert_true(sl_added_tokens_next(set, &walk, &part) && !part.text && part.id == i);
    }
    assert_false(sl_added_tokens_next(set, &walk, &part));
    static const char nested[] = "<|1|>+<|12<|";
    static const uint32_t expected[] = {COUNT + 2, COUNT + 1, UINT32_MAX, COUNT};
    walk = (sl_added_walk){.text = nested, .bytes = sizeof nested - 1};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(sl_added_tokens_next(set, &walk, &part));
        assert_int_equal(part.text ? UINT32_MAX : part.id, expected[i]);
    }
    sl_added_tokens_close(set);
}

/* ---- words ---- */

/* The pieces of a text with bars between; a token is its id. */
static void assert_pieces(const sl_pretokenizer *of, const char *text, const char *expected)
{
    char shown[512] = "";
    sl_pieces *pieces = NULL;
    sl_text_piece piece;
    bool is_there = true;
    must(sl_pieces_open(of, &pieces));
    sl_pieces_start(pieces, text, strlen(text));
    for (;;) {
        must(sl_pieces_next(pieces, &piece, &is_there));
        if (!is_there)
            break;
        size_t used = strlen(shown);
        if (piece.text)
            snprintf(shown + used, sizeof shown - used, "%s%.*s", used ? "|" : "", (int)piece.bytes,
                     piece.text);
        else
            snprintf(shown + used, sizeof shown - used, "%s#%u", used ? "|" : "", piece.id);
    }
    sl_pieces_close(pieces);
    assert_string_equal(shown, expected);
}

static void words_when_cut_then_as_the_pattern_of_the_tokenizer_says(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"WE'RE it'S 1234567", "WE|'RE| it|'S| |123|456|7"},
        {"a!\n\n b", "a|!\n\n| b"},
        {"x  \n  y", "x|  \n| | y"},
        {"a<|im_end|>b", "a|#1002|b"},
        {"a<|im_end |>", "a|<||im|_end| |>"},
        {"a\xe1\xa0\x8e"
         "b",
         "a|\xe1\xa0\x8e"
         "b"}, /* U+180E is no space: it goes with the letters behind it */
        {"a\xff\xfe"
         "b",
         "a|\xff\xfe|b"},                   /* as control characters would */
        {"\xe1\xb2\x89z", "\xe1\xb2\x89z"}, /* U+1C89, of Unicode 16, a letter */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_pieces(sl_vocabulary_pretokenizer(fixtures[LLAMA]), cases[i][0], cases[i][1]);
}

static void words_when_other_patterns_then_as_tokenizers_cuts(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"(?=[A-Z])", "ABcDe", "A|Bc|De"},
        {"x*", "aaxxbx", "a|a|xx|b|x"},
        {"(?<=a)b", "abab", "a|b|a|b"},
        {"^a", "aa\naab", "a|a\n|a|ab"},
        {"\\p{Han}+|\\d",
         "a\xe6\x97\xa5\xe6\x9c\xac"
         "12",
         "a|\xe6\x97\xa5\xe6\x9c\xac|1|2"},
        {"a++b?|\\u0063{2}", "aabcccd", "aab|cc|cd"},
        {"nothing", "all of it", "all of it"},
        {"{ 2}|[{-}]", "a{ 2}{b", "a|{ 2}|{|b"},
        {"[\\u4e00-\\u9fff]|\\\xc3\xa9",
         "a\xe6\x97\xa5\xc3\xa9"
         "b",
         "a|\xe6\x97\xa5|\xc3\xa9|b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_pretokenizer *of = calloc(1, sizeof *of);
        must(sl_pattern_open(cases[i][0], &of->patterns[0]));
        of->pattern_count = 1;
        assert_pieces(of, cases[i][1], cases[i][2]);
        sl_pretokenizer_close(of);
    }
}

static void words_when_two_patterns_then_the_second_cuts_those_of_the_first(void **state)
{
    (void)state;
    sl_pretokenizer *of = calloc(1, sizeof *of);
    must(sl_pattern_open("\\p{N}+", &of->patterns[0]));
    must(sl_pattern_open("a$|^2|b", &of->patterns[1]));
    of->pattern_count = 2;
    assert_pieces(of, "aaa12abc2", "aa|a|12|a|b|c|2");
    sl_pretokenizer_close(of);
}

static void pattern_when_it_needs_too_many_steps_then_an_error(void **state)
{
    (void)state;
    enum { LENGTH = 3000 };
    static char text[LENGTH];
    sl_pretokenizer *of = calloc(1, sizeof *of);
    sl_pieces *pieces = NULL;
    sl_text_piece piece;
    bool is_there;
    memset(text, 'a', LENGTH);
    must(sl_pattern_open("(?:a|aa|aaa)*[bc]", &of->patterns[0]));
    of->pattern_count = 1;
    must(sl_pieces_open(of, &pieces));
    sl_pieces_start(pieces, text, LENGTH);
    assert_int_equal(sl_pieces_next(pieces, &piece, &is_there), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "needs too much for this text"));
    sl_pieces_close(pieces);
    sl_pretokenizer_close(of);
}

/* Texts hold stand-ins where patterns match, and Oniguruma folds some pairs into one character. */
static void patterns_when_they_name_what_readers_see_differently_then_refused(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"[\\u3040-\\u309f]", "names characters that not every Unicode has"}, /* U+3040 is none */
        {"[a-\\u0380]", "names characters that not every Unicode has"},
        {"\\x{10ffff}", "names characters that not every Unicode has"},  /* stands for others */
        {"\xe0\xa2\x97", "names characters that not every Unicode has"}, /* U+0897, Unicode 16 */
        {"(?i:\xc3\xa9)", "inside of (?i:"},
        {"(?i:[\\u00df])", "inside of (?i:"},
        {"(?i:aSs)", "inside of (?i:"},
        {"(?i:off|st)", "inside of (?i:"},
        {"(?i:(?:s)T)", "inside of (?i:"},
        {"(?i:f\\x{49})", "inside of (?i:"},
        {"a\xff", "is not UTF-8"},
    };
    static const char *const taken[] = {
        "[\xe4\xb8\x80-\xe9\xbe\xa5]",
        "[\\u4e00-\\u9fff]",
        "[\\uac00-\\ud7a3\\-a-z-]",
        "\xe2\x80\x99s|\\\xc3\xa9",
        "(?i:s|t|s't)s",
        "(?i:[st])st",
        "{a}[{}-~]",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        sl_pattern *pattern = NULL;
        must_fail(refused[i][0], sl_pattern_open(refused[i][0], &pattern), SL_ERROR_DATA,
                  refused[i][1]);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        sl_pattern *pattern = NULL;
        must(sl_pattern_open(taken[i], &pattern));
        sl_pattern_close(pattern);
    }
}

/* Blanks without a word behind them are looked through by several alternatives, which is allowed.
 */
static void words_when_a_run_of_blanks_is_long_then_found(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memset(text, ' ', LENGTH);
    text[LENGTH - 1] = 'x';
    sl_ids ids = text_encode(fixtures[LLAMA], text, LENGTH, 1);
    text_assert_decodes(fixtures[LLAMA], &ids, text, LENGTH);
    sl_ids_free(&ids);
    free(text);
}

/* ---- normalization ---- */

static void texts_when_normalized_then_composed_and_other_bytes_stay(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"caf\xc3\xa9 \xe2\x80\x94", "caf\xc3\xa9 \xe2\x80\x94"},
        {"cafe\xcc\x81, e\xcc\x81", "caf\xc3\xa9, \xc3\xa9"},
        {"s\xcc\x87\xcc\xa3", "\xe1\xb9\xa9"},                    /* s, dots above and below */
        {"\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"}, /* Hangul of three letters */
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},             /* excluded from composition */
        {"e\xff\xcc\x81 e\xcc\x81\xcc", "e\xff\xcc\x81 \xc3\xa9\xcc"}, /* not UTF-8 */
        {"\xcd\x99\xe0\xb4\xbc", "\xcd\x99\xe0\xb4\xbc"},              /* U+0D3C, of Unicode 10 */
    };
    sl_nfc nfc = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text;
        uint64_t bytes;
        must(sl_nfc_apply(&nfc, cases[i][0], strlen(cases[i][0]), &text, &bytes));
        assert_int_equal(bytes, strlen(cases[i][1]));
        assert_memory_equal(text, cases[i][1], bytes);
    }
    sl_nfc_free(&nfc);
}

/* Marks of two classes that stand the wrong way round: exchanging neighbours would take minutes. */
static void texts_when_a_run_of_marks_is_long_then_sorted_by_class(void **state)
{
    (void)state;
    enum { HALF = 100000, BYTES = 1 + 4 * HALF };
    static char text[BYTES + 1];
    sl_nfc nfc = {0};
    const char *form;
    uint64_t bytes;
    text[0] = 'q';
    for (int i = 0; i < HALF; i++) {
        memcpy(text + 1 + 2 * i, "\xcc\x81", 2);
        memcpy(text + 1 + 2 * (HALF + i), "\xcc\xa3", 2);
    }
    must(sl_nfc_apply(&nfc, text, BYTES, &form, &bytes));
    assert_int_equal(bytes, BYTES);
    assert_int_equal(form[0], 'q');
    assert_memory_equal(form + 1, text + 1 + 2 * HALF, 2 * HALF);
    assert_memory_equal(form + 1 + 2 * HALF, text + 1, 2 * HALF);
    sl_nfc_free(&nfc);
}

/* utf8proc_map normalizes alike where runs are short. */
static void texts_when_normalized_then_as_utf8proc_does(void **state)
{
    (void)state;
    static const uint32_t starts[] = {0xc0,   0x300,  0x323,  0x344,  0x390,  0x591,
                                      0x915,  0x93c,  0xf71,  0x1100, 0x1161, 0x11a8,
                                      0x1e00, 0x1f80, 0x3099, 0xac00};
    uint64_t seed = scratch_seed("marks", 11);
    sl_nfc nfc = {0};
    for (uint64_t run = 0; run < scratch_count(3000, 100000); run++) {
        utf8proc_uint8_t text[64] = "x", *expected = NULL;
        utf8proc_ssize_t used = 1;
        for (int i = 0; i < 12; i++) {
            utf8proc_int32_t code =
                (utf8proc_int32_t)(starts[scratch_below(&seed, sizeof starts / sizeof starts[0])] +
                                   scratch_below(&seed, 8));
            if (!sl_stand_ins_is_fixed((uint32_t)code))
                used += utf8proc_encode_char(code, text + used);
        }
        const char *form;
        uint64_t bytes;
        utf8proc_ssize_t count = utf8proc_map(
            text, used, &expected, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        must(sl_nfc_apply(&nfc, (const char *)text, (uint64_t)used, &form, &bytes));
        assert_int_equal(bytes, count);
        assert_memory_equal(form, expected, bytes);
        free(expected);
    }
    sl_nfc_free(&nfc);
}

/* ---- files ---- */

static void end_of_text_when_the_configuration_names_it_then_that_token(void **state)
{
    (void)state;
    assert_int_equal(sl_vocabulary_end_of_text(fixtures[LLAMA]), 1000);
    assert_int_equal(sl_vocabulary_end_of_text(fixtures[QWEN]), 1002);
}

static void vocabulary_when_written_and_read_again_then_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    for (int i = 0; i < NAME_COUNT; i++) {
        char name[SL_VOCABULARY_NAME_BYTES], again_name[SL_VOCABULARY_NAME_BYTES];
        scratch_path path = scratch_join(directory.text, names[i]);
        must(sl_vocabulary_save(fixtures[i], path.text));
        sl_vocabulary *again = text_open(path.text);
        must(sl_vocabulary_name(fixtures[i], name));
        must(sl_vocabulary_name(again, again_name));
        assert_string_equal(name, again_name);
        compare_with_reference(names[i], again);
        sl_vocabulary_close(again);
    }
    scratch_close(&directory);
}

/* A number of 100 bits, and a key that is there twice, as transformers reads them too. */
static void configuration_when_its_length_is_huge_then_read(void **state)
{
    (void)state;
    static const char text[] = "{\"model_max_length\": 1000000000000000019884624838656, \"a\": 1, "
                               "\"a\": 2, \"eos_token\": \"<|im_end|>\"}";
    size_t bytes;
    sl_vocabulary *vocabulary = NULL;
    char *json = scratch_read(FIXTURES "llama3/tokenizer.json", &bytes);
    must(sl_vocabulary_parse_json(&(sl_vocabulary_text){"tokenizer.json", json, bytes},
                                  &(sl_vocabulary_text){"config", text, sizeof text - 1},
                                  &vocabulary));
    assert_int_equal(sl_vocabulary_end_of_text(vocabulary), 1002);
    sl_vocabulary_close(vocabulary);
    free(json);
}

/* Another pattern, another name. */
static void name_when_the_pattern_differs_then_another(void **state)
{
    (void)state;
    size_t bytes;
    char name[SL_VOCABULARY_NAME_BYTES], changed_name[SL_VOCABULARY_NAME_BYTES];
    sl_vocabulary *changed = NULL;
    char *json = scratch_read(FIXTURES "llama3/tokenizer.json", &bytes);
    char *place = memmem(json, bytes, "{1,3}", 5);
    assert_non_null(place);
    place[3] = '4';
    must(sl_vocabulary_parse_json(&(sl_vocabulary_text){"changed", json, bytes}, NULL, &changed));
    must(sl_vocabulary_name(fixtures[LLAMA], name));
    must(sl_vocabulary_name(changed, changed_name));
    assert_string_not_equal(name, changed_name);
    assert_int_equal(sl_vocabulary_cuts(fixtures[LLAMA]), SL_WORDS_CUTS_KNOWN);
    assert_int_equal(sl_vocabulary_cuts(changed), SL_WORDS_CUTS_NONE);
    sl_vocabulary_close(changed);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_when_compared_with_the_reference_then_equal),
        cmocka_unit_test(ids_when_any_bytes_then_decode),
        cmocka_unit_test(cuts_when_taken_then_ids_are_those_of_the_whole),
        cmocka_unit_test(cuts_when_lines_end_in_marks_then_by_the_pattern),
        cmocka_unit_test(ids_when_there_is_no_machine_code_then_the_same),
        cmocka_unit_test(tokens_when_many_begin_alike_then_the_longest_is_found),
        cmocka_unit_test(words_when_cut_then_as_the_pattern_of_the_tokenizer_says),
        cmocka_unit_test(words_when_other_patterns_then_as_tokenizers_cuts),
        cmocka_unit_test(words_when_two_patterns_then_the_second_cuts_those_of_the_first),
        cmocka_unit_test(pattern_when_it_needs_too_many_steps_then_an_error),
        cmocka_unit_test(patterns_when_they_name_what_readers_see_differently_then_refused),
        cmocka_unit_test(words_when_a_run_of_blanks_is_long_then_found),
        cmocka_unit_test(texts_when_normalized_then_composed_and_other_bytes_stay),
        cmocka_unit_test(texts_when_a_run_of_marks_is_long_then_sorted_by_class),
        cmocka_unit_test(texts_when_normalized_then_as_utf8proc_does),
        cmocka_unit_test(end_of_text_when_the_configuration_names_it_then_that_token),
        cmocka_unit_test(configuration_when_its_length_is_huge_then_read),
        cmocka_unit_test(vocabulary_when_written_and_read_again_then_the_same),
        cmocka_unit_test(name_when_the_pattern_differs_then_another),
    };
    return cmocka_run_group_tests(tests, open_fixtures, close_fixtures);
}
