/* From text to ids. What could be wrong: words cut otherwise than GPT-2 does (contractions, spaces
 * of other scripts, code points of newer Unicode), merges in another order, a cache that gives the
 * ids of another word, bytes that are no UTF-8 lost, a long word that takes for ever, a place said
 * to be safe for cutting that is none, a learnt merge that is not the most frequent. The ids are
 * compared with those that the tokenizers library wrote (reference/make_tokens.py), with a plain
 * merger that looks through the whole word each time, and learning with a plain counter. */
#define _GNU_SOURCE
#include "text_case.h"

#include "text/learn.h"
#include "text/words.h"

enum { PLAIN_MAX = 4096 };

static sl_vocabulary *fixture;

static int open_fixture(void **state)
{
    (void)state;
    fixture = text_open(TEXT_FIXTURES);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    sl_vocabulary_close(fixture);
    return 0;
}

/* ---- words ---- */

/* The words of a text with bars between, as people write them down. */
static void assert_words(const char *text, const char *expected)
{
    char shown[256] = "";
    uint64_t bytes = strlen(text);
    for (uint64_t at = 0, end; at < bytes; at = end) {
        end = sl_words_end(text, bytes, at);
        assert_true(end > at && end <= bytes);
        snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%s%.*s", at ? "|" : "",
                 (int)(end - at), text + at);
    }
    assert_string_equal(shown, expected);
}

static void words_when_cut_then_as_the_pattern_says(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"we're it's I'd he'll", "we|'re| it|'s| I|'d| he|'ll"},
        {"'S 'tis '", "'|S| '|tis| '"},
        {"a  b", "a| | b"},
        {"a   b", "a|  | b"},
        {"a\n\nb ", "a|\n|\n|b| "},
        {"a \n b", "a| \n| b"},
        {"x12 345-6", "x|12| 345|-|6"},
        {"!!'s", "!!'|s"},
        {"a \xe3\x80\x80 b", "a| \xe3\x80\x80| b"}, /* U+3000 is a space */
        {"a\xe1\xa0\x8e"
         "b",
         "a|\xe1\xa0\x8e|b"},                             /* U+180E is none */
        {"\xe2\x85\xa7\xc2\xb2", "\xe2\x85\xa7\xc2\xb2"}, /* numbers: VIII, a superscript */
        {"\xe1\xb2\x89z", "\xe1\xb2\x89z"},               /* U+1C89, of Unicode 16, a letter */
        {"a\xff\xfe"
         "b",
         "a|\xff\xfe|b"},            /* not UTF-8 */
        {"a\xe3\x80", "a|\xe3\x80"}, /* cut */
        {"a\xc0\xaf"
         "b\xed\xa0\x80"
         "c",
         "a|\xc0\xaf|b|\xed\xa0\x80|c"}, /* too long; a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_words(cases[i][0], cases[i][1]);
}

/* Bytes that meet often where words do. */
static void draw_text(uint64_t *seed, char *text, uint64_t bytes)
{
    static const char *const parts[] = {" ",        "  ",   "\n",   "'s",       "'",
                                        "ab",       "7",    "-",    "\xc2\xa0", "\xe3\x80\x80",
                                        "\xc3\xa9", "\xff", "\xe3", "the ",     "\xc2\x85"};
    for (uint64_t at = 0; at < bytes;) {
        const char *part = parts[scratch_below(seed, sizeof parts / sizeof parts[0])];
        for (; *part && at < bytes; part++)
            text[at++] = *part;
    }
}

static void cuts_when_taken_then_words_are_those_of_the_whole(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("cuts", 5), found = 0;
    for (uint64_t run = 0; run < scratch_count(3000, 300000); run++) {
        char text[48];
        uint64_t bytes = 1 + scratch_below(&seed, sizeof text - 1), ends = 0, cut_ends = 0;
        draw_text(&seed, text, bytes);
        uint64_t cut = sl_words_last_cut(text, bytes, 0, SL_WORDS_CUTS_GPT2);
        found += cut > 0;
        for (uint64_t at = 0; at < bytes; ends |= 1ull << at)
            at = sl_words_end(text, bytes, at);
        for (uint64_t at = 0; at < cut; cut_ends |= 1ull << at)
            at = sl_words_end(text, cut, at);
        for (uint64_t at = cut; at < bytes; cut_ends |= 1ull << at)
            at = sl_words_end(text, bytes, at);
        if (ends != cut_ends)
            fail_msg("a cut at %llu of \"%.*s\" makes other words", (unsigned long long)cut,
                     (int)bytes, text);
    }
    assert_true(found > 500);
}

/* ---- ids ---- */

static void ids_when_compared_with_the_reference_then_equal(void **state)
{
    (void)state;
    size_t text_bytes, id_bytes;
    char *text = scratch_read(TEXT_FIXTURES "text.txt", &text_bytes);
    char *expected = scratch_read(TEXT_FIXTURES "ids.bin", &id_bytes);
    static const uint32_t caches[] = {1, 64, SL_BPE_CACHE_SLOTS};
    for (int i = 0; i < 3; i++) {
        sl_ids ids = text_encode(fixture, text, text_bytes, caches[i]);
        assert_int_equal(ids.count, id_bytes / 2);
        for (uint64_t k = 0; k < ids.count; k++)
            assert_int_equal(ids.items[k], ((uint16_t *)expected)[k]);
        text_assert_decodes(fixture, &ids, text, text_bytes);
        sl_ids_free(&ids);
    }
    free(text);
    free(expected);
}

/* Merges one word by looking for the earliest merge in all of it. */
static uint32_t merge_plainly(const char *text, uint64_t bytes, uint32_t *ids)
{
    uint32_t count = (uint32_t)bytes;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = sl_vocabulary_byte(fixture, (unsigned char)text[i]);
    for (;;) {
        uint32_t best = UINT32_MAX, place = 0, made = 0, rank, id;
        for (uint32_t i = 0; i + 1 < count; i++)
            if (sl_vocabulary_find_merge(fixture, ids[i], ids[i + 1], &rank, &id) && rank < best)
                best = rank, place = i, made = id;
        if (best == UINT32_MAX)
            return count;
        ids[place] = made;
        memmove(ids + place + 1, ids + place + 2, (count - place - 2) * sizeof *ids);
        count--;
    }
}

static void ids_when_any_bytes_then_plain_merging_gives_them_and_they_decode(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("bytes", 9);
    size_t corpus_bytes;
    char *corpus = scratch_read(TEXT_FIXTURES "corpus.txt", &corpus_bytes);
    for (uint64_t run = 0; run < scratch_count(300, 20000); run++) {
        char text[600];
        static uint32_t plain[PLAIN_MAX];
        uint64_t bytes = 1 + scratch_below(&seed, sizeof text - 1), count = 0;
        memcpy(text, corpus + scratch_below(&seed, corpus_bytes - bytes), bytes);
        for (uint64_t i = 0; i < run % 9; i++)
            text[scratch_below(&seed, bytes)] = (char)scratch_draw(&seed);
        for (uint64_t at = 0, end; at < bytes; at = end) {
            end = sl_words_end(text, bytes, at);
            count += merge_plainly(text + at, end - at, plain + count);
        }
        sl_ids ids = text_encode(fixture, text, bytes, 16);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.items, plain, count * sizeof *plain);
        text_assert_decodes(fixture, &ids, text, bytes);
        sl_ids_free(&ids);
    }
    free(corpus);
}

static void ids_when_all_bytes_or_empty_then_decode(void **state)
{
    (void)state;
    char text[256];
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    sl_ids ids = text_encode(fixture, text, sizeof text, 1), none = {0};
    text_assert_decodes(fixture, &ids, text, sizeof text);
    sl_ids_free(&ids);
    none = text_encode(fixture, text, 0, 1);
    assert_int_equal(none.count, 0);
    sl_ids_free(&none);
}

/* Quadratic time would be some hours here; the program's time-out is minutes. */
static void ids_when_a_word_is_long_then_done_soon(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH);
    assert_non_null(text);
    for (int i = 0; i < LENGTH; i++)
        text[i] = (char)("thenaring"[i % 9]);
    sl_ids ids = text_encode(fixture, text, LENGTH, 1);
    text_assert_decodes(fixture, &ids, text, LENGTH);
    assert_true(ids.count < LENGTH);
    sl_ids_free(&ids);
    free(text);
}

static void end_of_text_when_in_a_text_then_text(void **state)
{
    (void)state;
    static const char text[] = "a<|endoftext|>b";
    sl_ids ids = text_encode(fixture, text, sizeof text - 1, 1);
    for (uint64_t i = 0; i < ids.count; i++)
        assert_int_not_equal(ids.items[i], sl_vocabulary_end_of_text(fixture));
    text_assert_decodes(fixture, &ids, text, sizeof text - 1);
    sl_ids_free(&ids);
}

/* ---- learning ---- */

static sl_status stop_at_260(void *user, uint32_t tokens, uint32_t token_limit)
{
    *(uint32_t *)user = tokens;
    assert_int_equal(token_limit, 499);
    return tokens < 260 ? SL_OK : sl_status_fail(SL_ERROR_SYSTEM, "stopped");
}

static void learning_when_told_to_stop_then_between_merges(void **state)
{
    (void)state;
    static const char text[] = "abcdefgh abcdefgh abcdefgh abcdefgh";
    uint32_t seen = 0;
    const sl_learn_watch watch = {stop_at_260, &seen};
    sl_word_counts *counts = NULL;
    sl_vocabulary *learnt = NULL;
    must(sl_word_counts_open(&counts));
    must(sl_word_counts_add_text(counts, text, sizeof text - 1));
    assert_int_equal(sl_learn_vocabulary(counts, 500, &watch, &learnt), SL_ERROR_SYSTEM);
    assert_int_equal(seen, 260);
    assert_null(learnt);
    sl_word_counts_close(counts);
}

static sl_vocabulary *learn(const char *text, uint64_t bytes, uint32_t token_count)
{
    sl_word_counts *counts = NULL;
    sl_vocabulary *learnt = NULL;
    must(sl_word_counts_open(&counts));
    must(sl_word_counts_add_text(counts, text, bytes));
    must(sl_learn_vocabulary(counts, token_count, NULL, &learnt));
    sl_word_counts_close(counts);
    return learnt;
}

static void learning_when_from_the_reference_text_then_its_vocabulary(void **state)
{
    (void)state;
    size_t bytes;
    char first[SL_VOCABULARY_NAME_BYTES], second[SL_VOCABULARY_NAME_BYTES];
    char *corpus = scratch_read(TEXT_FIXTURES "corpus.txt", &bytes);
    sl_vocabulary *learnt = learn(corpus, bytes, sl_vocabulary_count(fixture));
    must(sl_vocabulary_name(learnt, first));
    must(sl_vocabulary_name(fixture, second));
    assert_string_equal(first, second);
    sl_vocabulary_close(learnt);
    free(corpus);
}

static void learning_when_pairs_tie_then_the_smaller_one(void **state)
{
    (void)state;
    sl_vocabulary *learnt = learn("bc ab", 5, 259); /* bc, ab and " a" once each */
    const sl_merge *merges = sl_vocabulary_merges(learnt);
    assert_int_equal(sl_vocabulary_merge_count(learnt), 2);
    assert_int_equal(merges[0].left, sl_vocabulary_byte(learnt, 'a'));
    assert_int_equal(merges[1].left, sl_vocabulary_byte(learnt, 'b'));
    assert_int_equal(sl_vocabulary_end_of_text(learnt), 258);
    sl_vocabulary_close(learnt);
}

static void learning_when_no_pair_is_left_then_fewer_tokens(void **state)
{
    (void)state;
    sl_vocabulary *learnt = learn("aaaa", 4, 1000);
    assert_int_equal(sl_vocabulary_count(learnt), 256 + 2 + 1);
    sl_vocabulary_close(learnt);
}

static void learning_when_counts_are_added_then_the_order_is_the_same(void **state)
{
    (void)state;
    size_t bytes;
    char *corpus = scratch_read(TEXT_FIXTURES "corpus.txt", &bytes);
    char names[2][SL_VOCABULARY_NAME_BYTES];
    for (int order = 0; order < 2; order++) {
        sl_word_counts *counts[2];
        sl_vocabulary *learnt = NULL;
        uint64_t cut = sl_words_last_cut(corpus, bytes / 2, 0, SL_WORDS_CUTS_GPT2);
        for (int i = 0; i < 2; i++)
            must(sl_word_counts_open(&counts[i]));
        must(sl_word_counts_add_text(counts[order], corpus, cut));
        must(sl_word_counts_add_text(counts[!order], corpus + cut, bytes - cut));
        must(sl_word_counts_add(counts[0], counts[1]));
        must(sl_learn_vocabulary(counts[0], 500, NULL, &learnt));
        must(sl_vocabulary_name(learnt, names[order]));
        sl_vocabulary_close(learnt);
        sl_word_counts_close(counts[0]);
        sl_word_counts_close(counts[1]);
    }
    assert_string_equal(names[0], names[1]);
    free(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_when_told_to_stop_then_between_merges),
        cmocka_unit_test(words_when_cut_then_as_the_pattern_says),
        cmocka_unit_test(cuts_when_taken_then_words_are_those_of_the_whole),
        cmocka_unit_test(ids_when_compared_with_the_reference_then_equal),
        cmocka_unit_test(ids_when_any_bytes_then_plain_merging_gives_them_and_they_decode),
        cmocka_unit_test(ids_when_all_bytes_or_empty_then_decode),
        cmocka_unit_test(ids_when_a_word_is_long_then_done_soon),
        cmocka_unit_test(end_of_text_when_in_a_text_then_text),
        cmocka_unit_test(learning_when_from_the_reference_text_then_its_vocabulary),
        cmocka_unit_test(learning_when_pairs_tie_then_the_smaller_one),
        cmocka_unit_test(learning_when_no_pair_is_left_then_fewer_tokens),
        cmocka_unit_test(learning_when_counts_are_added_then_the_order_is_the_same),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
