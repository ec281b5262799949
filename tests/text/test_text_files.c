/* Data as a user points at it. What could be wrong here: a directory with pictures, programs and
 * empty files among its text stops the run, or they are read as text without a word; files of
 * tokens are passed over, or bytes taken for tokens; more files than a process may open at once
 * cannot be read, are read at the wrong place, or are another file by then; hours of comparing text
 * with what is kept say nothing. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sys/resource.h>

#include "files/tokens.h"
#include "scratch_case.h"
#include "sluice/log.h"
#include "text/text_files.h"
#include "text/token_cache.h"

enum { MANY_FILES = 300, DESCRIPTORS = 64 };

static void put(const scratch_path *directory, const char *name, const void *data, size_t bytes)
{
    scratch_write(scratch_join(directory->text, name).text, data, bytes);
}

static void put_text(const scratch_path *directory, const char *name, const char *text)
{
    put(directory, name, text, strlen(text));
}

/* ---- what a directory stands for ---- */

/* The names, without the directory, with a space behind each. */
static void assert_names(const scratch_path *directory, bool takes_tokens, const char *expected)
{
    char names[512] = "";
    sl_file_list list = {0};
    must(sl_text_files_add(&list, directory->text, takes_tokens));
    for (uint32_t i = 0; i < list.count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s ",
                 list.items[i] + strlen(directory->text) + 1);
    }
    sl_file_list_clear(&list);
    assert_string_equal(names, expected);
}

static void directory_when_not_all_is_text_then_the_rest_is_counted(void **state)
{
    static char late[9000];
    const scratch_path *directory = *state;
    const int32_t llmc[256] = {20240520, 1, 0};
    memset(late, 'x', sizeof late);
    late[8500] = '\0';
    put_text(directory, "a.txt", "text");
    put_text(directory, "b", "");
    put(directory, "c.png", "\211PNG\0\0", 6);
    put(directory, "d", late, sizeof late); /* a NUL byte where no one looks */
    put_text(directory, "e.bin", "a name alone");
    assert_names(directory, false, "a.txt d ");
    assert_non_null(strstr(remarks, ": 2 of 5 files are passed over"));
    assert_non_null(strstr(remarks, "/c.png"));
    assert_names(directory, true, "a.txt d ");
    put(directory, "f.bin", llmc, sizeof llmc);
    put(directory, "g.bin", "\1\0\2\0", 4);
    put_text(directory, "g.idx", "MMIDIDX");
    assert_names(directory, true, "a.txt d f.bin g.bin ");
}

static void directory_when_there_is_no_text_then_names_tell_tokens(void **state)
{
    const scratch_path *directory = *state;
    sl_file_list list = {0};
    put(directory, "a.bin", "\1\0\2\0", 4);
    put_text(directory, "b", "");
    put(directory, "meta.pkl", "\0", 1);
    assert_names(directory, true, "a.bin ");
    assert_non_null(strstr(remarks, ": 1 of 3 files is passed over"));
    assert_int_equal(sl_text_files_add(&list, directory->text, false), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "of its 3 files none is text"));
    assert_int_equal(list.count, 0);
    sl_file_list_clear(&list);
}

/* Whoever names a file means it. */
static void file_when_named_then_taken(void **state)
{
    const scratch_path *directory = *state;
    sl_file_list list = {0};
    put(directory, "c.png", "\211PNG\0\0", 6);
    must(sl_text_files_add(&list, scratch_join(directory->text, "c.png").text, false));
    must(sl_text_files_add(&list, scratch_join(directory->text, "missing").text, false));
    assert_int_equal(list.count, 2);
    assert_string_equal(remarks, "");
    sl_file_list_clear(&list);
}

/* ---- more files than descriptors ---- */

typedef struct many {
    scratch_path names[MANY_FILES];
    const char *paths[MANY_FILES];
    struct rlimit before;
} many;

/* File i has i % 5 + 1 bytes, each the low byte of i. */
static void open_many(const scratch_path *directory, many *files)
{
    for (uint32_t i = 0; i < MANY_FILES; i++) {
        char name[16], data[5];
        snprintf(name, sizeof name, "%03u", i);
        memset(data, (int)(i & 0xff), sizeof data);
        files->names[i] = scratch_join(directory->text, name);
        files->paths[i] = files->names[i].text;
        scratch_write(files->paths[i], data, i % 5 + 1);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files->before), 0);
    const struct rlimit limit = {DESCRIPTORS, files->before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void files_when_more_than_descriptors_then_read(void **state)
{
    static many files;
    sl_tokens *tokens = NULL;
    char before[SL_TOKENS_FINGERPRINT], again[SL_TOKENS_FINGERPRINT];
    open_many(*state, &files);
    sl_status status = sl_tokens_open(files.paths, MANY_FILES, 0, &tokens);
    must(status);
    int32_t ids[6 * MANY_FILES];
    uint64_t count = sl_tokens_count(tokens), at = 0;
    assert_true(count <= sizeof ids / sizeof *ids);
    must(sl_tokens_read(tokens, 0, count, ids));
    for (uint32_t i = 0; i < MANY_FILES; i++) {
        for (uint32_t k = 0; k < i % 5 + 1; k++)
            assert_int_equal(ids[at++], i & 0xff);
        assert_int_equal(ids[at++], SL_TOKENS_END_OF_TEXT);
    }
    assert_int_equal(at, count);
    must(sl_tokens_sample(tokens, before));
    must(sl_tokens_sample(tokens, again));
    assert_string_equal(before, again);
    /* One is replaced by another of its size, one is gone. */
    scratch_path other = scratch_join(((scratch_path *)*state)->text, "other");
    scratch_write(other.text, "new", 3);
    assert_int_equal(rename(other.text, files.paths[297]), 0);
    assert_int_equal(sl_tokens_read(tokens, 0, count, ids), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "297: was changed or replaced"));
    assert_int_equal(unlink(files.paths[290]), 0);
    assert_int_equal(sl_tokens_read(tokens, 0, count, ids), SL_ERROR_MISSING);
    sl_tokens_close(tokens);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files.before), 0);
}

/* ---- comparing with what is kept ---- */

typedef struct told {
    uint64_t calls, last, total, total_before;
} told;

static void note(void *user, uint64_t bytes, uint64_t total_bytes)
{
    told *self = user;
    assert_true(bytes <= total_bytes);
    assert_true(bytes > self->last || self->total != total_bytes); /* the text, then the ids */
    self->calls++;
    self->total_before = self->total == total_bytes ? self->total_before : self->total;
    self->last = bytes;
    self->total = total_bytes;
}

static void text_when_compared_with_what_is_kept_then_told(void **state)
{
    enum { BYTES = 3 << 20 };
    const scratch_path *directory = *state;
    scratch_path text = scratch_join(directory->text, "text");
    const char *paths[] = {text.text};
    char *data = malloc(BYTES);
    assert_non_null(data);
    for (uint32_t i = 0; i < BYTES; i++)
        data[i] = i % 7 == 0 ? ' ' : 'a';
    scratch_write(text.text, data, BYTES);
    free(data);
    sl_vocabulary *bytes = NULL;
    must(sl_vocabulary_of_bytes(&bytes));
    const sl_tokenize_args tokenize = {
        .documents = {.paths = paths, .path_count = 1, .json_key = ""},
        .worker_count = 1,
        .end_of_text = -1};
    for (int run = 0; run < 2; run++) { /* the ids are made, and found */
        told heard = {0};
        char *path = NULL;
        const sl_token_cache_args args = {.tokenize = &tokenize,
                                          .vocabulary = bytes,
                                          .directory = directory->text,
                                          .comparing = note,
                                          .user = &heard};
        must(sl_token_cache_find(&args, &path));
        free(path);
        assert_int_equal(heard.calls, 3 + 7 + 1); /* MiB of text, of ids; the index */
        assert_int_equal(heard.total_before, BYTES);
        assert_true(heard.last == heard.total && heard.total > 2 * BYTES);
    }
    sl_vocabulary_close(bytes);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, open_scratch_and_log, close_scratch_and_log)
    const struct CMUnitTest tests[] = {
        CASE(directory_when_not_all_is_text_then_the_rest_is_counted),
        CASE(directory_when_there_is_no_text_then_names_tell_tokens),
        CASE(file_when_named_then_taken),
        CASE(files_when_more_than_descriptors_then_read),
        CASE(text_when_compared_with_what_is_kept_then_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
