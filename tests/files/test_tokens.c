/* Token files. What could be wrong: a kind recognised wrongly, tokens shifted at the border of two
 * files or of two pieces, an end-of-text token lost, an id above the vocabulary let through, rows
 * that run out of the data or repeat in the wrong order, a huge file read on opening, a FIFO that
 * blocks. The oracle is an array of ids that the test made before it wrote the files from it. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "files/hostile_files.h"
#include "files/tokens.h"
#include "scratch_case.h"
#include "skip.h"
#include "sluice/log.h"
#include "text/token_writer.h"

static sl_tokens *must_open(const char *path, uint32_t vocab)
{
    sl_tokens *tokens = NULL;
    sl_status status = sl_tokens_open(&path, 1, vocab, &tokens);
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
    return tokens;
}

static void must_refuse(const char *path, sl_status expected, const char *fragment)
{
    sl_tokens *tokens = NULL;
    sl_status status = sl_tokens_open(&path, 1, 0, &tokens);
    must_fail(path, status, expected, fragment);
    assert_null(tokens);
}

/* ---- kinds ---- */

static void text_when_read_then_bytes_and_end(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.txt");
    static const unsigned char text[] = {'h', 'i', 0xff, '\n'};
    static const int32_t expected[] = {'h', 'i', 0xff, '\n', 256};
    int32_t ids[5];
    scratch_write(path.text, text, sizeof text);
    sl_tokens *tokens = must_open(path.text, 257);
    assert_int_equal(sl_tokens_count(tokens), 5);
    assert_true(sl_tokens_is_text(tokens));
    assert_int_equal(sl_tokens_vocab_needed(tokens), 257);
    assert_int_equal(sl_tokens_read(tokens, 0, 5, ids), SL_OK);
    assert_memory_equal(ids, expected, sizeof expected);
    assert_string_equal(remarks, "");
    sl_tokens_close(tokens);
}

static void text_with_nul_when_opened_then_remark(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "tokens.dat");
    scratch_write(path.text, "a\0b\0", 4);
    sl_tokens_close(must_open(path.text, 0));
    assert_non_null(strstr(remarks, "NUL bytes"));
}

static void text_when_vocabulary_is_small_then_usage_error(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.txt");
    const char *paths[] = {path.text};
    sl_tokens *tokens = NULL;
    scratch_write(path.text, "abc", 3);
    assert_int_equal(sl_tokens_open(paths, 1, 256, &tokens), SL_ERROR_USAGE);
    assert_null(tokens);
    tokens = must_open(path.text, 0);
    assert_int_equal(sl_tokens_limit_vocab(tokens, 128), SL_ERROR_USAGE);
    assert_int_equal(sl_tokens_limit_vocab(tokens, 257), SL_OK);
    sl_tokens_close(tokens);
}

static void write_llmc(const char *path, int wide, const uint32_t *ids, uint32_t count)
{
    int32_t header[256] = {wide ? 20240801 : 20240520, wide ? 7 : 1, (int32_t)count};
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    fwrite(header, sizeof header, 1, file);
    for (uint32_t i = 0; i < count; i++)
        fwrite(&ids[i], wide ? 4 : 2, 1, file); /* little endian: the low half comes first */
    fclose(file);
}

static void llmc_files_when_read_then_ids(void **state)
{
    const scratch_path *directory = *state;
    static const uint32_t ids16[] = {50256, 0, 65535, 7}, ids32[] = {128000, 65536, 1, 0};
    for (int wide = 0; wide < 2; wide++) {
        /* The content tells the kind: the name may be anything. */
        scratch_path path = scratch_join(directory->text, wide ? "a.bin" : "no_name");
        int32_t ids[4];
        write_llmc(path.text, wide, wide ? ids32 : ids16, 4);
        sl_tokens *tokens = must_open(path.text, 0);
        assert_int_equal(sl_tokens_count(tokens), 4);
        assert_false(sl_tokens_is_text(tokens));
        assert_int_equal(sl_tokens_vocab_needed(tokens), 0);
        assert_int_equal(sl_tokens_read(tokens, 0, 4, ids), SL_OK);
        assert_memory_equal(ids, wide ? ids32 : ids16, sizeof ids);
        sl_tokens_close(tokens);
    }
}

static void nanogpt_when_id_reaches_vocabulary_then_named(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "train.bin");
    static const uint16_t stored[] = {1, 2, 50256, 50257, 3};
    int32_t ids[5];
    scratch_write(path.text, stored, sizeof stored);
    sl_tokens *tokens = must_open(path.text, 50257);
    assert_int_equal(sl_tokens_read(tokens, 0, 3, ids), SL_OK);
    assert_int_equal(sl_tokens_read(tokens, 1, 4, ids), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "train.bin: token 3 of the file is 50257"));
    assert_int_equal(sl_tokens_limit_vocab(tokens, 50258), SL_OK);
    assert_int_equal(sl_tokens_read(tokens, 1, 4, ids), SL_OK);
    assert_int_equal(ids[2], 50257);
    sl_tokens_close(tokens);
}

static void wide_id_above_int32_when_read_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.bin");
    static const uint32_t stored[] = {0xffffffff};
    int32_t ids[1];
    write_llmc(path.text, 1, stored, 1);
    sl_tokens *tokens = must_open(path.text, 0);
    assert_int_equal(sl_tokens_read(tokens, 0, 1, ids), SL_ERROR_DATA);
    sl_tokens_close(tokens);
}

/* What stands beside tells that they are not nanoGPT's. */
static void bin_when_another_index_is_beside_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path bin = scratch_join(directory->text, "data.bin");
    scratch_path index = scratch_join(directory->text, "data.idx");
    scratch_write(bin.text, "abcd", 4);
    sl_tokens_close(must_open(bin.text, 0));
    scratch_write(index.text, "anything", 8);
    must_refuse(bin.text, SL_ERROR_DATA, "data.idx: stands beside a file of tokens");
}

/* ---- refusals ---- */

static void hostile_when_opened_then_told(void **state)
{
    const scratch_path *directory = *state;
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind != HOSTILE_TOKENS)
            continue;
        hostile_write(row, directory->text);
        must_refuse(scratch_join(directory->text, row->file_name).text, SL_ERROR_DATA,
                    row->fragment);
    }
}

static void no_regular_file_when_opened_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path fifo = scratch_join(directory->text, "fifo");
    scratch_need(mkfifo(fifo.text, 0600) == 0, fifo.text);
    must_refuse(fifo.text, SL_ERROR_DATA, "is a FIFO"); /* and it does not block */
    must_refuse(directory->text, SL_ERROR_DATA, "is a directory");
    must_refuse("/dev/zero", SL_ERROR_DATA, "device");
    must_refuse(scratch_join(directory->text, "none").text, SL_ERROR_MISSING, "cannot be opened");
    must_refuse(scratch_join(directory->text, "no\x1b[31m").text, SL_ERROR_MISSING, "no\\x1b[31m");
    must_refuse("", SL_ERROR_MISSING, "cannot be opened");
}

static void no_file_when_opened_then_usage_error(void **state)
{
    (void)state;
    sl_tokens *tokens = NULL;
    assert_int_equal(sl_tokens_open(NULL, 0, 0, &tokens), SL_ERROR_USAGE);
    sl_tokens_close(NULL);
}

static void file_when_cut_after_opening_then_told(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.txt");
    int32_t ids[8];
    scratch_write(path.text, "abcdefg", 7);
    sl_tokens *tokens = must_open(path.text, 0);
    scratch_need(truncate(path.text, 3) == 0, path.text);
    assert_int_equal(sl_tokens_read(tokens, 0, 3, ids), SL_OK);
    assert_int_equal(sl_tokens_read(tokens, 0, 8, ids), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "ends at byte 3"));
    sl_tokens_close(tokens);
}

static void huge_file_when_opened_then_not_read(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "huge.bin");
    const uint64_t bytes = 1ull << 40; /* a sparse terabyte: reading it would end the test */
    int32_t ids[2];
    scratch_write(path.text, "", 0);
    if (truncate(path.text, (off_t)bytes) < 0)
        skip_because("no sparse files here: %s", strerror(errno));
    sl_tokens *tokens = must_open(path.text, 0);
    assert_true(sl_tokens_count(tokens) == bytes / 2);
    assert_int_equal(sl_tokens_read(tokens, bytes / 2 - 2, 2, ids), SL_OK);
    assert_int_equal(sl_tokens_read(tokens, bytes / 2 - 1, 2, ids), SL_ERROR_USAGE);
    assert_int_equal(sl_tokens_read(tokens, UINT64_MAX, 2, ids), SL_ERROR_USAGE);
    sl_tokens_close(tokens);
}

/* ---- several files against an array of ids ---- */

enum { FILES_MAX = 6, FILE_TOKENS_MAX = 40000 }; /* several pieces of any width */

typedef struct token_set {
    scratch_path paths[FILES_MAX];
    const char *names[FILES_MAX];
    uint32_t file_count;
    int32_t *ids;
    uint64_t id_count;
} token_set;

static void add_random_file(token_set *set, const char *directory, uint64_t *random)
{
    char name[32];
    uint32_t kind = (uint32_t)scratch_below(random, 4);
    uint32_t count =
        1 + (uint32_t)scratch_below(random, scratch_below(random, 3) ? 10 : FILE_TOKENS_MAX);
    uint32_t *ids = malloc(count * sizeof *ids);
    unsigned char *narrow = malloc(2 * count);
    snprintf(name, sizeof name, "%u%s", set->file_count, kind == 0 ? ".txt" : ".bin");
    scratch_path *path = &set->paths[set->file_count];
    *path = scratch_join(directory, name);
    for (uint32_t i = 0; i < count; i++) {
        /* A nanoGPT file must not begin with llm.c's magic: ids stay below 50257, as GPT-2's do. */
        ids[i] = (uint32_t)scratch_below(random, kind == 0 ? 256 : kind == 3 ? 1 << 24 : 50257);
        memcpy(narrow + (kind == 0 ? i : 2 * i), &ids[i], kind == 0 ? 1 : 2);
        set->ids[set->id_count++] = (int32_t)ids[i];
    }
    if (kind == 0)
        set->ids[set->id_count++] = 256;
    if (kind < 2)
        scratch_write(path->text, narrow, kind == 0 ? count : 2 * count);
    else
        write_llmc(path->text, kind == 3, ids, count);
    set->names[set->file_count++] = path->text;
    free(ids);
    free(narrow);
}

/* Of 100,000 ids two pieces of 16384 are the first and the last ones; four times as many are all.
 */
static void largest_id_when_looked_for_then_its_place(void **state)
{
    enum { COUNT = 100000, PIECE = 16384 };
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a.bin");
    uint16_t *ids = calloc(COUNT, sizeof *ids);
    assert_non_null(ids);
    ids[COUNT / 2] = 900;
    ids[COUNT - 3] = 700;
    ids[COUNT - 2] = 700;
    scratch_write(path.text, ids, COUNT * sizeof *ids);
    free(ids);
    sl_tokens *tokens = must_open(path.text, 10); /* which is not looked at */
    sl_largest_id largest;
    assert_int_equal(sl_tokens_find_largest(tokens, 0, 2 * PIECE, &largest), SL_OK);
    assert_int_equal(largest.id, 700);
    assert_int_equal(largest.token, COUNT - 3);
    assert_int_equal(largest.looked_at, 2 * PIECE);
    assert_int_equal(sl_tokens_find_largest(tokens, 0, 8 * PIECE, &largest), SL_OK);
    assert_int_equal(largest.id, 900);
    assert_int_equal(largest.token, COUNT / 2);
    assert_int_equal(largest.looked_at, COUNT);
    sl_tokens_close(tokens);
}

static void file_when_written_in_place_then_named(void **state)
{
    const scratch_path *directory = *state;
    scratch_path a = scratch_join(directory->text, "a.txt"), b = scratch_join(directory->text, "b");
    const char *paths[] = {a.text, b.text};
    sl_tokens *tokens = NULL;
    scratch_write(a.text, "as it was", 9);
    scratch_write(b.text, "beside it", 9);
    assert_int_equal(sl_tokens_open(paths, 2, 0, &tokens), SL_OK);
    assert_null(sl_tokens_find_written(tokens));
    FILE *file = fopen(b.text, "r+"); /* the same size, the same inode */
    assert_non_null(file);
    assert_int_equal(fwrite("as it is!", 1, 9, file), 9);
    assert_int_equal(fclose(file), 0);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}}; /* whatever the clock's tick */
    assert_int_equal(utimensat(AT_FDCWD, b.text, times, 0), 0);
    assert_string_equal(sl_tokens_find_written(tokens), b.text);
    sl_tokens_close(tokens);
}

static void random_files_when_read_anywhere_then_same_ids(void **state)
{
    const scratch_path *directory = *state;
    uint64_t random = scratch_seed("random_files", 20240601);
    uint64_t rounds = scratch_count(30, 1000);
    for (uint64_t round = 0; round < rounds; round++) {
        token_set set = {0};
        set.ids = malloc(sizeof(int32_t) * FILES_MAX * (FILE_TOKENS_MAX + 1));
        uint64_t file_count = 1 + scratch_below(&random, FILES_MAX);
        while (set.file_count < file_count)
            add_random_file(&set, directory->text, &random);
        sl_tokens *tokens = NULL;
        if (sl_tokens_open(set.names, set.file_count, 0, &tokens) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_int_equal(sl_tokens_count(tokens), set.id_count);
        int32_t *ids = malloc(sizeof(int32_t) * (set.id_count + 1));
        for (int i = 0; i < 20; i++) {
            uint64_t first = i == 0 ? 0 : scratch_below(&random, set.id_count + 1);
            uint64_t count =
                i == 0 ? set.id_count : scratch_below(&random, set.id_count - first + 1);
            ids[count] = -77;
            assert_int_equal(sl_tokens_read(tokens, first, count, ids), SL_OK);
            assert_memory_equal(ids, set.ids + first, count * sizeof *ids);
            assert_int_equal(ids[count], -77);
        }
        sl_tokens_close(tokens);
        free(ids);
        free(set.ids);
    }
}

/* ---- identity ---- */

static void fingerprint_when_name_size_or_order_changes_then_differs(void **state)
{
    const scratch_path *directory = *state;
    char prints[5][SL_TOKENS_FINGERPRINT];
    scratch_path a = scratch_join(directory->text, "a.txt"), b = scratch_join(directory->text, "b");
    scratch_path folder = scratch_join(directory->text, "folder");
    scratch_need(mkdir(folder.text, 0700) == 0, folder.text);
    scratch_path moved = scratch_join(folder.text, "a.txt");
    scratch_write(a.text, "abc", 3);
    scratch_write(b.text, "abc", 3);
    scratch_write(moved.text, "abc", 3);
    const char *sets[5][2] = {{a.text, b.text},
                              {moved.text, b.text},
                              {b.text, a.text},
                              {a.text, a.text},
                              {a.text, b.text}};
    for (int i = 0; i < 5; i++) {
        sl_tokens *tokens = NULL;
        if (i == 4)
            scratch_write(b.text, "abcd", 4);
        assert_int_equal(sl_tokens_open(sets[i], 2, 0, &tokens), SL_OK);
        assert_int_equal(sl_tokens_fingerprint(tokens, prints[i]), SL_OK);
        assert_int_equal(strlen(prints[i]), 32);
        sl_tokens_close(tokens);
    }
    assert_string_equal(prints[0], prints[1]); /* another directory */
    assert_string_not_equal(prints[0], prints[2]);
    assert_string_not_equal(prints[0], prints[3]);
    assert_string_not_equal(prints[0], prints[4]);
}

static void sample_file(const char *path, const char *data, size_t bytes, char *out_text)
{
    scratch_write(path, data, bytes);
    sl_tokens *tokens = must_open(path, 0);
    assert_int_equal(sl_tokens_sample(tokens, out_text), SL_OK);
    sl_tokens_close(tokens);
}

/* Of a file that is read whole, any byte counts; of a longer one, the ends and each piece. */
static void sample_when_a_byte_of_a_piece_changes_then_differs(void **state)
{
    const scratch_path *directory = *state;
    enum { PIECE = 4096, WHOLE = 64 * PIECE, LONG = 8 * WHOLE + 1234 };
    static const size_t sizes[] = {1, PIECE + 1, WHOLE, WHOLE + 1, LONG};
    scratch_path path = scratch_join(directory->text, "a.txt");
    char *data = malloc(LONG), before[SL_TOKENS_FINGERPRINT], after[SL_TOKENS_FINGERPRINT];
    assert_non_null(data);
    memset(data, 'a', LONG);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t last = sizes[i] - 1, piece = sizes[i] > PIECE ? sizes[i] - PIECE : 0;
        const size_t places[] = {0, last, last / 2 < PIECE ? last / 2 : PIECE - 1, piece,
                                 piece / 63 * 31 + piece % 63 * 31 / 63};
        sample_file(path.text, data, sizes[i], before);
        for (size_t place = 0; place < sizeof places / sizeof places[0]; place++) {
            data[places[place]] = 'b';
            sample_file(path.text, data, sizes[i], after);
            if (strcmp(before, after) == 0)
                fail_msg("byte %zu of %zu is not in the sample", places[place], sizes[i]);
            data[places[place]] = 'a';
        }
    }
    free(data);
}

/* ---- rows ---- */

static uint64_t must_start(sl_data_order order, uint64_t seed, uint64_t row, uint64_t seq,
                           uint64_t count)
{
    uint64_t start = UINT64_MAX;
    assert_int_equal(sl_tokens_row_start(order, seed, row, seq, count, &start), SL_OK);
    return start;
}

static void sequential_rows_when_asked_then_wrap_at_last_whole_row(void **state)
{
    (void)state;
    /* n = 10, T = 3: floor(9 / 3) = 3 rows, at 0, 3 and 6; the last reads token 9, its target. */
    static const uint64_t expected[] = {0, 3, 6, 0, 3, 6, 0};
    for (uint64_t row = 0; row < 7; row++)
        assert_int_equal(must_start(SL_DATA_SEQUENTIAL, 9, row, 3, 10), expected[row]);
    assert_int_equal(must_start(SL_DATA_SEQUENTIAL, 9, 3, 3, 9), 3); /* floor(8 / 3) = 2 rows */
    assert_int_equal(must_start(SL_DATA_SEQUENTIAL, 0, UINT64_MAX, 3, 4), 0);
}

static void random_rows_when_drawn_then_uniform_and_from_seed_and_row(void **state)
{
    (void)state;
    /* n = 20, T = 4: 16 starts. 64,000 draws give 4,000 +- 61 (one sigma) each; 6 sigma = 368. */
    uint32_t counts[16] = {0};
    for (uint64_t row = 0; row < 64000; row++) {
        uint64_t start = must_start(SL_DATA_RANDOM, 5, row, 4, 20);
        assert_true(start < 16);
        counts[start]++;
    }
    for (int i = 0; i < 16; i++)
        assert_in_range(counts[i], 4000 - 368, 4000 + 368);
    int same = 0;
    for (uint64_t row = 0; row < 1000; row++) {
        uint64_t start = must_start(SL_DATA_RANDOM, 5, row, 100, 1 << 30);
        assert_true(start == must_start(SL_DATA_RANDOM, 5, row, 100, 1 << 30));
        same += start == must_start(SL_DATA_RANDOM, 6, row, 100, 1 << 30);
    }
    assert_true(same < 3);
    assert_int_equal(must_start(SL_DATA_RANDOM, 5, 123, 4, 5), 0); /* one start only */
}

static void rows_when_data_is_short_then_refused(void **state)
{
    (void)state;
    uint64_t start = 77;
    for (int order = SL_DATA_RANDOM; order <= SL_DATA_SHUFFLE; order++) {
        assert_int_equal(sl_tokens_row_start((sl_data_order)order, 1, 0, 8, 8, &start),
                         SL_ERROR_DATA);
        assert_non_null(strstr(sl_status_message(), "has 8 tokens, but a row of 8 needs 9"));
        assert_int_equal(sl_tokens_row_start((sl_data_order)order, 1, 0, 0, 8, &start),
                         SL_ERROR_USAGE);
    }
    assert_int_equal(start, 77);
}

/* ---- writing ---- */

static sl_status write_pair(const char *path, const char *in_the_way)
{
    static const uint32_t ids[] = {1, 2, 3};
    const sl_token_writer_args args = {
        .path = path, .format = SL_TOKEN_FORMAT_MEGATRON, .vocab = 257};
    sl_token_writer *writer = NULL;
    assert_int_equal(sl_token_writer_open(&args, &writer), SL_OK);
    assert_int_equal(sl_token_writer_add(writer, ids, 3), SL_OK);
    assert_int_equal(sl_token_writer_end(writer), SL_OK);
    if (in_the_way)
        scratch_need(mkdir(in_the_way, 0700) == 0, in_the_way);
    sl_status status = sl_token_writer_finish(writer);
    sl_token_writer_close(writer);
    return status;
}

/* An index of before beside ids of now, or of now beside those of before, would be read. */
static void pair_when_its_ids_cannot_be_named_then_no_index_is_there(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "m");
    scratch_path ids = scratch_join(directory->text, "m.bin");
    scratch_path index = scratch_join(directory->text, "m.idx");
    assert_int_equal(write_pair(path.text, NULL), SL_OK);
    assert_true(scratch_exists(ids.text) && scratch_exists(index.text));
    assert_int_equal(write_pair(path.text, NULL), SL_OK);
    assert_true(scratch_exists(ids.text) && scratch_exists(index.text));
    scratch_need(unlink(ids.text) == 0, ids.text);
    assert_int_equal(write_pair(path.text, ids.text), SL_ERROR_IO);
    assert_false(scratch_exists(index.text));
    scratch_need(rmdir(ids.text) == 0, ids.text);
    scratch_need(rmdir(directory->text) == 0, "a temporary is left");
    scratch_need(mkdir(directory->text, 0700) == 0, directory->text);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, open_scratch_and_log, close_scratch_and_log)
    const struct CMUnitTest tests[] = {
        TEST(pair_when_its_ids_cannot_be_named_then_no_index_is_there),
        TEST(text_when_read_then_bytes_and_end),
        TEST(text_with_nul_when_opened_then_remark),
        TEST(text_when_vocabulary_is_small_then_usage_error),
        TEST(llmc_files_when_read_then_ids),
        TEST(nanogpt_when_id_reaches_vocabulary_then_named),
        TEST(wide_id_above_int32_when_read_then_refused),
        TEST(bin_when_another_index_is_beside_then_refused),
        TEST(hostile_when_opened_then_told),
        TEST(no_regular_file_when_opened_then_refused),
        TEST(no_file_when_opened_then_usage_error),
        TEST(file_when_cut_after_opening_then_told),
        TEST(largest_id_when_looked_for_then_its_place),
        TEST(file_when_written_in_place_then_named),
        TEST(huge_file_when_opened_then_not_read),
        TEST(random_files_when_read_anywhere_then_same_ids),
        TEST(fingerprint_when_name_size_or_order_changes_then_differs),
        TEST(sample_when_a_byte_of_a_piece_changes_then_differs),
        TEST(sequential_rows_when_asked_then_wrap_at_last_whole_row),
        TEST(random_rows_when_drawn_then_uniform_and_from_seed_and_row),
        TEST(rows_when_data_is_short_then_refused),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
