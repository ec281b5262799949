/* Megatron's pairs as data. What could be wrong: an index that does not fit its ids is believed, so
 * that halves of ids, or another file's, are trained on; documents begin at wrong places, at the
 * border of two files or of two blocks; an index is taken that no reader of Megatron's would write;
 * files that llm.c's format goes on in are lost or out of order. Pairs are written here, from the
 * layout alone, and by the writer; the oracle is the arrays that they were made from. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "command/megatron_pair.h"
#include "files/token_documents.h"
#include "scratch_case.h"
#include "text/token_writer.h"

static sl_tokens *must_open(const char *const *paths, uint32_t count)
{
    sl_tokens *tokens = NULL;
    must(sl_tokens_open(paths, count, 0, &tokens));
    return tokens;
}

/* ---- what is read ---- */

static void fill_pair(megatron_pair *pair, uint64_t *random)
{
    memset(pair, 0, sizeof *pair);
    pair->is_wide = scratch_below(random, 2) == 1;
    uint32_t sequences = 1 + (uint32_t)scratch_below(random, scratch_below(random, 2) ? 5 : 2000);
    uint32_t longest = 1 + (uint32_t)scratch_below(random, 20);
    pair->bound_count = 1;
    for (uint32_t i = 0; i < sequences; i++) {
        uint32_t length = (uint32_t)scratch_below(random, longest + 1) + (i == 0);
        pair->lengths[pair->sequence_count++] = (int32_t)length;
        for (uint32_t j = 0; j < length; j++)
            pair->ids[pair->id_count++] =
                (int32_t)scratch_below(random, pair->is_wide ? 1 << 30 : 1 << 16);
        if (i + 1 == sequences || scratch_below(random, 3) == 0)
            pair->bounds[pair->bound_count++] = pair->sequence_count;
    }
}

static void assert_ids(const sl_tokens *tokens, uint64_t first, const megatron_pair *pair)
{
    static int32_t ids[MEGATRON_IDS_MAX];
    must(sl_tokens_read(tokens, first, pair->id_count, ids));
    assert_memory_equal(ids, pair->ids, pair->id_count * sizeof *ids);
}

/* The documents of `document_first` on, of ids from `first` on. */
static void assert_documents(const sl_token_documents *documents, uint64_t document_first,
                             uint64_t first, const megatron_pair *pair)
{
    uint32_t sequence = 0;
    uint64_t place = first;
    for (uint32_t i = 0; i + 1 < pair->bound_count; i++) {
        uint64_t start;
        for (; sequence < pair->bounds[i]; sequence++)
            place += (uint64_t)pair->lengths[sequence];
        must(sl_token_documents_start(documents, document_first + i, &start));
        assert_int_equal(start, place);
    }
}

static void pairs_when_read_then_their_ids_and_documents(void **state)
{
    const scratch_path *directory = *state;
    static megatron_pair pairs[2];
    uint64_t random = scratch_seed("pairs", 20260801), rounds = scratch_count(20, 500);
    for (uint64_t round = 0; round < rounds; round++) {
        sl_token_documents *documents = NULL;
        scratch_path paths[2] = {scratch_join(directory->text, "a.bin"),
                                 scratch_join(directory->text, "b.bin")};
        const char *names[2] = {paths[0].text, paths[1].text};
        for (int i = 0; i < 2; i++) {
            fill_pair(&pairs[i], &random);
            megatron_write(&pairs[i], directory->text, i ? "b" : "a");
        }
        sl_tokens *tokens = must_open(names, 2);
        assert_int_equal(sl_tokens_count(tokens), pairs[0].id_count + pairs[1].id_count);
        assert_false(sl_tokens_is_text(tokens));
        assert_ids(tokens, 0, &pairs[0]);
        assert_ids(tokens, pairs[0].id_count, &pairs[1]);
        must(sl_token_documents_open(tokens, 0, 2, -1, &documents));
        assert_int_equal(sl_token_documents_count(documents),
                         pairs[0].bound_count + pairs[1].bound_count - 2);
        assert_documents(documents, 0, 0, &pairs[0]);
        assert_documents(documents, pairs[0].bound_count - 1, pairs[0].id_count, &pairs[1]);
        sl_token_documents_close(documents);
        sl_tokens_close(tokens);
    }
}

static void pair_when_its_vocabulary_is_wide_then_negative_ids_are_refused(void **state)
{
    const scratch_path *directory = *state;
    static megatron_pair pair;
    int32_t ids[6];
    pair = megatron_small;
    pair.is_wide = 1;
    pair.ids[5] = -3;
    megatron_write(&pair, directory->text, "a");
    scratch_path path = scratch_join(directory->text, "a.bin");
    sl_tokens *tokens = must_open((const char *const[]){path.text}, 1);
    assert_int_equal(sl_tokens_read(tokens, 0, 5, ids), SL_OK);
    assert_int_equal(sl_tokens_read(tokens, 0, 6, ids), SL_ERROR_DATA);
    sl_tokens_close(tokens);
}

static void pairs_when_hostile_then_refused_by_name(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "bad.bin");
    const char *paths[] = {path.text};
    assert_true(HOSTILE_PAIR_COUNT >= 20);
    for (int i = 0; i < HOSTILE_PAIR_COUNT; i++) {
        const hostile_pair *row = &hostile_pairs[i];
        sl_tokens *tokens = NULL;
        hostile_pair_write(row, directory->text);
        sl_status status = sl_tokens_open(paths, 1, 0, &tokens);
        must_fail(row->what, status, SL_ERROR_DATA, row->fragment);
        must_fail(row->what, status, SL_ERROR_DATA, "bad.idx");
        assert_null(tokens);
    }
}

/* Each bound is one of the sequences, and the last the end: only together they are wrong. */
static void index_when_documents_go_back_then_refused(void **state)
{
    const scratch_path *directory = *state;
    static megatron_pair pair;
    scratch_path path = scratch_join(directory->text, "a.bin");
    sl_tokens *tokens = NULL;
    pair = megatron_small;
    pair.bound_count = 4;
    memcpy(pair.bounds, (const int64_t[]){0, 2, 1, 3}, 4 * sizeof *pair.bounds);
    megatron_write(&pair, directory->text, "a");
    assert_int_equal(sl_tokens_open((const char *const[]){path.text}, 1, 0, &tokens),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "bound 2 of its documents is sequence 1 of 3"));
}

static void index_when_given_as_data_then_the_bin_is_asked_for(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.idx");
    sl_tokens *tokens = NULL;
    megatron_write(&megatron_small, directory->text, "a");
    assert_int_equal(sl_tokens_open((const char *const[]){path.text}, 1, 0, &tokens),
                     SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "give the .bin beside it"));
}

/* ---- documents of other files ---- */

static void documents_when_files_have_no_index_then_end_at_their_id(void **state)
{
    const scratch_path *directory = *state;
    static uint16_t ids[20000];
    uint64_t random = scratch_seed("documents", 7), rounds = scratch_count(20, 500);
    scratch_path path = scratch_join(directory->text, "a.bin");
    scratch_path text = scratch_join(directory->text, "a.txt");
    const char *paths[] = {text.text, path.text};
    scratch_write(text.text, "abc", 3); /* 4 tokens, one document */
    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t count = 1 + (uint32_t)scratch_below(&random, round % 2 ? 20000 : 12);
        uint64_t expected[20002] = {0, 4}, found = 1;
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = (uint16_t)scratch_below(&random, 50);
            if (i + 1 < count && ids[i] == 7)
                expected[++found] = 4 + i + 1;
        }
        scratch_write(path.text, ids, count * sizeof *ids);
        sl_token_documents *documents = NULL;
        sl_tokens *tokens = must_open(paths, 2);
        must(sl_token_documents_open(tokens, 0, 2, 7, &documents));
        expected[found + 1] = 4 + count;
        assert_int_equal(sl_token_documents_count(documents), found + 1);
        for (uint64_t i = 0; i <= found + 1; i++) {
            uint64_t start;
            must(sl_token_documents_start(documents, i, &start));
            assert_int_equal(start, expected[i]);
        }
        sl_token_documents_close(documents);
        assert_int_equal(sl_token_documents_open(tokens, 0, 2, -1, &documents), SL_ERROR_USAGE);
        assert_non_null(strstr(sl_status_message(), "--end-of-text"));
        sl_tokens_close(tokens);
    }
}

/* ---- what the writer writes ---- */

static void write_documents(const sl_token_writer_args *args, uint32_t document_count)
{
    sl_token_writer *writer = NULL;
    must(sl_token_writer_open(args, &writer));
    for (uint32_t i = 0; i < document_count; i++) {
        uint32_t ids[3] = {i, i + 1, 7};
        must(sl_token_writer_add(writer, ids, 3));
        must(sl_token_writer_end(writer));
    }
    must(sl_token_writer_finish(writer));
    sl_token_writer_close(writer);
}

static void pair_when_written_here_then_read_back(void **state)
{
    const scratch_path *directory = *state;
    for (int wide = 0; wide < 2; wide++) {
        scratch_path path = scratch_join(directory->text, "w");
        scratch_path bin = scratch_join(directory->text, "w.bin");
        const sl_token_writer_args args = {
            .path = path.text, .format = SL_TOKEN_FORMAT_MEGATRON, .vocab = wide ? 1 << 20 : 50257};
        sl_token_documents *documents = NULL;
        uint64_t start;
        int32_t ids[3];
        write_documents(&args, 1000);
        sl_tokens *tokens = must_open((const char *const[]){bin.text}, 1);
        assert_int_equal(sl_tokens_count(tokens), 3000);
        must(sl_tokens_read(tokens, 2997, 3, ids));
        assert_int_equal(ids[0], 999);
        must(sl_token_documents_open(tokens, 0, 1, -1, &documents));
        assert_int_equal(sl_token_documents_count(documents), 1000);
        must(sl_token_documents_start(documents, 500, &start));
        assert_int_equal(start, 1500);
        sl_token_documents_close(documents);
        sl_tokens_close(tokens);
    }
}

/* Beyond 2^31 - 1 ids files of llm.c go on; here beyond 7. */
static void llmc_when_a_file_is_full_then_goes_on_in_the_next(void **state)
{
    const scratch_path *directory = *state;
    static const char *const names[] = {"l.bin", "l_000001.bin", "l_000002.bin"};
    scratch_path paths[3];
    const char *given[3];
    for (int i = 0; i < 3; i++) {
        paths[i] = scratch_join(directory->text, names[i]);
        given[i] = paths[i].text;
    }
    const sl_token_writer_args args = {
        .path = paths[0].text, .format = SL_TOKEN_FORMAT_LLMC, .vocab = 257, .ids_per_file = 7};
    write_documents(&args, 6);
    sl_tokens *tokens = must_open(given, 3);
    assert_int_equal(sl_tokens_count(tokens), 18);
    for (uint32_t i = 0; i < 6; i++) {
        int32_t ids[3];
        must(sl_tokens_read(tokens, 3ull * i, 3, ids));
        assert_true(ids[0] == (int32_t)i && ids[1] == (int32_t)i + 1 && ids[2] == 7);
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t first, count;
        sl_tokens_file_range(tokens, i, &first, &count);
        assert_int_equal(first, 7 * i);
        assert_int_equal(count, i < 2 ? 7 : 4);
    }
    sl_tokens_close(tokens);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(pairs_when_read_then_their_ids_and_documents),
        TEST(pair_when_its_vocabulary_is_wide_then_negative_ids_are_refused),
        TEST(pairs_when_hostile_then_refused_by_name),
        TEST(index_when_documents_go_back_then_refused),
        TEST(index_when_given_as_data_then_the_bin_is_asked_for),
        TEST(documents_when_files_have_no_index_then_end_at_their_id),
        TEST(pair_when_written_here_then_read_back),
        TEST(llmc_when_a_file_is_full_then_goes_on_in_the_next),
    };
    return cmocka_run_group_tests_name("megatron", tests, NULL, NULL);
}
