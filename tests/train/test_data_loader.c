/* Rows of a training. What could be wrong: an order of an epoch leaves rows out or takes some
 * twice; the next epoch has the same order; files get other shares of the rows than their weights
 * say, or rows of a file are left out when another one's come between; a row depends on those asked
 * for before it, so that a run that goes on, or another rank, reads other rows; shares of documents
 * overlap, leave some out or cut one; a blend of one file is not the file. Counts are exact but
 * where a bound is derived. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "scratch_case.h"
#include "train/data/data_loader.h"

/* ---- permutations ---- */

static void permutation_when_any_count_then_each_place_once(void **state)
{
    (void)state;
    enum { LARGEST = 70001 };
    static unsigned char seen[LARGEST];
    static const uint64_t counts[] = {1023, 1024, 1025, 4099, 65535, 65536, 65537, LARGEST};
    uint64_t small = scratch_count(130, 1000);
    for (uint64_t i = 0; i < small + sizeof counts / sizeof *counts; i++) {
        uint64_t count = i < small ? i + 1 : counts[i - small];
        memset(seen, 0, count);
        for (uint64_t j = 0; j < count; j++) {
            uint64_t place = sl_rng_permute(3, i, j, count);
            assert_true(place < count);
            assert_int_equal(seen[place]++, 0);
        }
    }
}

/* Values that runs that were saved go on with: they may not change. And of a count near 2^63 some
 * places, whose walks must end. */
static void permutation_when_computed_again_then_the_same(void **state)
{
    (void)state;
    uint64_t hash = 14695981039346656037u;
    for (uint64_t i = 0; i < 1000; i++) {
        hash = (hash ^ sl_rng_permute(1, 2, i, 1000)) * 1099511628211u;
        hash = (hash ^ sl_rng_permute(5, 6, i << 50, UINT64_C(1) << 63)) * 1099511628211u;
    }
    if (hash != UINT64_C(0x3b1bbae30469c670))
        fail_msg("0x%llx", (unsigned long long)hash);
}

/* Of 5 rows in 20,000 epochs each is first 4,000 times, +- 57 (one sigma); 6 sigma = 340. Of pairs
 * of the first two rows there are 20, each 1,000 +- 31; 6 sigma = 185. */
static void permutation_when_streams_differ_then_orders_are_even(void **state)
{
    (void)state;
    uint32_t first[5] = {0}, pairs[5][5] = {{0}};
    for (uint64_t stream = 0; stream < 20000; stream++) {
        sl_rng_word4 words = sl_rng_draw(9, 1, stream);
        uint64_t of = (uint64_t)words.word[0] << 32 | words.word[1];
        uint64_t a = sl_rng_permute(9, of, 0, 5), b = sl_rng_permute(9, of, 1, 5);
        first[a]++;
        pairs[a][b]++;
    }
    for (int i = 0; i < 5; i++) {
        assert_in_range(first[i], 4000 - 340, 4000 + 340);
        for (int j = 0; j < 5; j++)
            assert_in_range(pairs[i][j], i == j ? 0 : 1000 - 185, i == j ? 0 : 1000 + 185);
    }
}

/* ---- epochs ---- */

static uint64_t start_of(sl_data_order order, uint64_t row, uint64_t seq, uint64_t tokens)
{
    uint64_t start;
    must(sl_tokens_row_start(order, 11, row, seq, tokens, &start));
    return start;
}

static void shuffled_rows_when_an_epoch_ends_then_each_was_seen_once(void **state)
{
    (void)state;
    static const uint64_t row_counts[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097};
    enum { MOST = 4097, SEQ = 3, EPOCHS = 3 };
    static uint32_t seen[MOST], orders[EPOCHS][MOST];
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
        uint64_t rows = row_counts[i], tokens = rows * SEQ + 1 + i % SEQ;
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t j = 0; j < rows; j++) {
                uint64_t start = start_of(SL_DATA_SHUFFLE, epoch * rows + j, SEQ, tokens);
                assert_int_equal(start % SEQ, 0);
                assert_true(start + SEQ < tokens);
                orders[epoch][j] = (uint32_t)(start / SEQ);
                assert_int_equal(seen[start / SEQ]++, 0);
            }
        }
        if (rows >= 16) {
            assert_memory_not_equal(orders[0], orders[1], rows * sizeof orders[0][0]);
            assert_memory_not_equal(orders[1], orders[2], rows * sizeof orders[0][0]);
        }
    }
}

/* ---- blends ---- */

/* Files of `counts` ids, nanoGPT's, each with ids of its own: 1000 i and more. */
enum { FILES = 3, SEQ = 4 };

typedef struct blend {
    scratch_path paths[FILES];
    char items[FILES][SCRATCH_PATH_BYTES];
    char *texts[FILES];
    sl_config_list list;
    sl_data_files given;
    sl_tokens *tokens;
} blend;

static void open_blend(blend *self, const scratch_path *directory, const uint32_t *counts,
                       const char *const *weights)
{
    static uint16_t ids[4096];
    const char *paths[FILES];
    for (uint32_t i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u.bin", i);
        self->paths[i] = scratch_join(directory->text, name);
        paths[i] = self->paths[i].text;
        for (uint32_t j = 0; j < counts[i]; j++)
            ids[j] = (uint16_t)(10000 * i + j);
        scratch_write(paths[i], ids, counts[i] * sizeof *ids);
        snprintf(self->items[i], sizeof self->items[i], "%s%s%.900s", weights ? weights[i] : "",
                 weights ? ":" : "", paths[i]);
        self->texts[i] = self->items[i];
    }
    self->list = (sl_config_list){self->texts, FILES};
    must(sl_data_files_open(&self->list, NULL, &self->given, &self->tokens));
}

static void close_blend(blend *self)
{
    sl_tokens_close(self->tokens);
    sl_data_files_close(&self->given);
}

static sl_data_loader open_loader(const blend *self, sl_data_order order, uint64_t seed, bool joins)
{
    sl_data_loader loader;
    const sl_data_cut cut = {
        .tokens = self->tokens, .files = &self->given, .shares = {1}, .end_of_text = -1};
    sl_data_parts parts[SL_CONFIG_SHARES];
    must(sl_data_files_cut(&cut, parts));
    const sl_data_loader_args args = {.tokens = self->tokens,
                                      .parts = parts[0],
                                      .joins = joins,
                                      .order = order,
                                      .seed = seed,
                                      .seq = SEQ};
    must(sl_data_loader_open(&args, &loader));
    return loader;
}

static void read_row(const sl_data_loader *loader, uint64_t row, int32_t *out_ids)
{
    must(sl_data_loader_read(loader, (sl_row_range){row, 1}, SL_INPUT_TOKENS, out_ids));
}

/* Of g rows part i has its share to within i + 1 rows: floors of i + 1 parts, each below 1. */
static void blend_when_counted_then_weights_hold_at_every_row(void **state)
{
    static const uint32_t counts[FILES] = {401, 401, 401};
    static const char *const weights[][FILES] = {
        {"0.7", "0.2", "0.1"}, {"1", "1", "1"}, {"1e-3", "5", "0.5"}, {"3", "1000", "2.5"}};
    for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
        blend files;
        double sum = 0, share[FILES];
        open_blend(&files, *state, counts, weights[w]);
        for (int i = 0; i < FILES; i++)
            sum += share[i] = strtod(weights[w][i], NULL);
        for (uint64_t seed = 1; seed < 4; seed++) {
            sl_data_loader loader = open_loader(&files, SL_DATA_SEQUENTIAL, seed, false);
            uint64_t taken[FILES] = {0}, row;
            for (uint64_t g = 0; g < 5000; g++) {
                uint32_t part = sl_data_loader_find_part(&loader, g, &row);
                assert_int_equal(row, taken[part]++); /* no row of it left out, none twice */
                for (int i = 0; i < FILES; i++)
                    assert_true(fabs((double)taken[i] - (double)(g + 1) * share[i] / sum) <
                                i + 1.001);
            }
            sl_data_loader_close(&loader);
        }
        close_blend(&files);
    }
}

/* Backwards, and from any row on: as a run that was stopped, or one rank of several. */
static void rows_when_asked_in_any_order_then_the_same(void **state)
{
    static const uint32_t counts[FILES] = {37, 401, 90};
    static const char *const weights[FILES] = {"2", "1", "1"};
    enum { ROWS = 600 };
    static int32_t forwards[ROWS][SEQ], ids[SEQ];
    blend files;
    open_blend(&files, *state, counts, weights);
    for (int order = SL_DATA_RANDOM; order <= SL_DATA_SHUFFLE; order++) {
        sl_data_loader loader = open_loader(&files, (sl_data_order)order, 5, false);
        must(sl_data_loader_read(&loader, (sl_row_range){0, ROWS}, SL_INPUT_TOKENS, forwards[0]));
        sl_data_loader_close(&loader);
        loader = open_loader(&files, (sl_data_order)order, 5, false);
        for (int i = ROWS - 1; i >= 0; i--) {
            uint64_t row;
            read_row(&loader, (uint64_t)i, ids);
            assert_memory_equal(ids, forwards[i], sizeof ids);
            assert_int_equal(ids[0] / 10000, sl_data_loader_find_part(&loader, (uint64_t)i, &row));
        }
        sl_data_loader_close(&loader);
    }
    close_blend(&files);
}

/* Each file's rows once in each of its epochs, though another one's stand between them. */
static void blend_when_shuffled_then_each_file_has_its_own_epochs(void **state)
{
    static const uint32_t counts[FILES] = {41, 161, 81}; /* 10, 40 and 20 rows */
    static const char *const weights[FILES] = {"3", "2", "1"};
    enum { ROWS = 600 };
    blend files;
    uint32_t seen[FILES][40] = {{0}}, taken[FILES] = {0};
    open_blend(&files, *state, counts, weights);
    sl_data_loader loader = open_loader(&files, SL_DATA_SHUFFLE, 8, false);
    for (uint64_t g = 0; g < ROWS; g++) {
        int32_t ids[SEQ];
        read_row(&loader, g, ids);
        uint32_t file = (uint32_t)ids[0] / 10000, row = (uint32_t)ids[0] % 10000 / SEQ;
        uint32_t epoch = taken[file]++ / ((counts[file] - 1) / SEQ);
        assert_int_equal(seen[file][row]++, epoch);
    }
    /* Half of 600 rows are of the first file, which has 10. */
    assert_true(fabs(sl_data_loader_epoch(&loader, ROWS) - 30) <= 0.1);
    sl_data_loader_close(&loader);
    loader = open_loader(&files, SL_DATA_RANDOM, 8, false);
    assert_true(isnan(sl_data_loader_epoch(&loader, ROWS)));
    sl_data_loader_close(&loader);
    close_blend(&files);
}

static void files_when_unweighted_then_are_one_run(void **state)
{
    static const uint32_t counts[FILES] = {37, 401, 90};
    blend files;
    int32_t ids[SEQ];
    open_blend(&files, *state, counts, NULL);
    sl_data_loader loader = open_loader(&files, SL_DATA_SEQUENTIAL, 1, false);
    assert_int_equal(sl_data_loader_row_count(&loader), (37 + 401 + 90 - 1) / SEQ);
    assert_int_equal(sl_data_loader_token_count(&loader), 37 + 401 + 90 - 1);
    read_row(&loader, 9, ids); /* tokens 36 .. 39: the last of the first file, then the second */
    assert_true(ids[0] == 36 && ids[1] == 10000 && ids[2] == 10001);
    sl_data_loader_close(&loader);
    close_blend(&files);
}

static void parts_when_joined_then_all_rows_of_each_in_order(void **state)
{
    static const uint32_t counts[FILES] = {37, 4, 90}; /* 9 rows, none, 22 */
    static const char *const weights[FILES] = {"1", "1", "1"};
    blend files;
    open_blend(&files, *state, counts, weights);
    sl_data_loader loader = open_loader(&files, SL_DATA_SEQUENTIAL, 0, true);
    assert_int_equal(sl_data_loader_row_count(&loader), 31);
    for (uint64_t g = 0; g < 31; g++) {
        int32_t ids[SEQ];
        read_row(&loader, g, ids);
        assert_int_equal(ids[0], g < 9 ? SEQ * g : 20000 + SEQ * (g - 9));
    }
    sl_data_loader_close(&loader);
    const sl_data_cut cut = {.tokens = files.tokens, .files = &files.given, .shares = {1}};
    sl_data_parts parts_of[SL_CONFIG_SHARES];
    must(sl_data_files_cut(&cut, parts_of));
    const sl_data_loader_args args = {
        .tokens = files.tokens, .parts = parts_of[0], .seq = SEQ}; /* a blend: a row of each */
    assert_int_equal(sl_data_loader_open(&args, &loader), SL_ERROR_DATA);
    close_blend(&files);
}

/* ---- shares ---- */

static void shares_when_cut_then_documents_stay_whole_and_none_is_lost(void **state)
{
    const scratch_path *directory = *state;
    static uint16_t ids[5000];
    uint64_t random = scratch_seed("shares", 77), rounds = scratch_count(50, 2000);
    scratch_path path = scratch_join(directory->text, "a.bin");
    char *items[] = {path.text};
    const sl_config_list list = {items, 1};
    for (uint64_t turn = 0; turn < rounds; turn++) {
        uint32_t count = 500 + (uint32_t)scratch_below(&random, 4500), documents = 1;
        double middle = 0.4 + 0.01 * (double)scratch_below(&random, 40);
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = (uint16_t)scratch_below(&random, 9);
            documents += i + 1 < count && ids[i] == 0;
        }
        scratch_write(path.text, ids, count * sizeof *ids);
        sl_tokens *tokens = NULL;
        sl_data_files files;
        must(sl_data_files_open(&list, NULL, &files, &tokens));
        sl_data_parts parts[SL_CONFIG_SHARES];
        double last = 0.5 * (1 - middle);
        const sl_data_cut cut = {
            .tokens = tokens, .files = &files, .shares = {middle, 1 - middle - last, last}};
        must(sl_data_files_cut(&cut, parts));
        uint64_t end = 0, over = 0;
        for (int share = 0; share < SL_CONFIG_SHARES; share++) {
            double to = share == 0 ? middle : share == 1 ? middle + (1 - middle - last) : 1;
            assert_int_equal(parts[share].count, 1);
            assert_int_equal(parts[share].items->first_token, end);
            for (; end < parts[share].items->first_token + parts[share].items->token_count; end++)
                over += ids[end] == 0 || end + 1 == count;
            assert_true(end == count || ids[end - 1] == 0); /* the end of a document */
            assert_int_equal(over, (uint64_t)round(to * documents));
        }
        assert_int_equal(end, count);
        for (int share = 0; share < SL_CONFIG_SHARES; share++)
            free(parts[share].items);
        sl_data_files_close(&files);
        sl_tokens_close(tokens);
    }
}

static void share_when_it_has_no_document_then_named(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.txt");
    char *items[] = {path.text};
    const sl_config_list list = {items, 1};
    sl_tokens *tokens = NULL;
    sl_data_files files;
    sl_data_parts parts[SL_CONFIG_SHARES];
    scratch_write(path.text, "one document", 12);
    must(sl_data_files_open(&list, NULL, &files, &tokens));
    const sl_data_cut cut = {.tokens = tokens, .files = &files, .shares = {0.9, 0.1}};
    assert_int_equal(sl_data_files_cut(&cut, parts), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "a.txt: of 1 document none is in the validation"));
    assert_non_null(strstr(sl_status_message(), "--document-per line"));
    sl_data_files_close(&files);
    sl_tokens_close(tokens);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation_when_any_count_then_each_place_once),
        cmocka_unit_test(permutation_when_computed_again_then_the_same),
        cmocka_unit_test(permutation_when_streams_differ_then_orders_are_even),
        cmocka_unit_test(shuffled_rows_when_an_epoch_ends_then_each_was_seen_once),
        TEST(blend_when_counted_then_weights_hold_at_every_row),
        TEST(rows_when_asked_in_any_order_then_the_same),
        TEST(blend_when_shuffled_then_each_file_has_its_own_epochs),
        TEST(files_when_unweighted_then_are_one_run),
        TEST(parts_when_joined_then_all_rows_of_each_in_order),
        TEST(shares_when_cut_then_documents_stay_whole_and_none_is_lost),
        TEST(share_when_it_has_no_document_then_named),
    };
    return cmocka_run_group_tests_name("data_loader", tests, NULL, NULL);
}
