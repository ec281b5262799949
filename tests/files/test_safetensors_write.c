/* Writing safetensors files. What could be wrong: the header's form or padding, the order, an
 * offset, a name that JSON must escape, a checksum of something else than the file. Oracles: one
 * file byte by byte; for random ones jansson and the definition of the format, and the reader. */
#define _GNU_SOURCE
#include "safetensors_case.h"

#include <jansson.h>

static void writer_when_small_then_these_bytes(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    static const sl_safetensors_plan plans[] = {{"b", 1, {1}}, {"a", 2, {1, 2}}};
    static const float data[3] = {1.0f, -2.0f, 0.5f};
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}";
    char expected[512] = {0};
    size_t length = (sizeof header - 1 + 7) / 8 * 8;
    expected[0] = (char)length; /* little endian, below 256 */
    memset(expected + 8, ' ', length);
    memcpy(expected + 8, header, sizeof header - 1);
    memcpy(expected + 8 + length, data, sizeof data);
    assert_true(length < 256 && length % 8 == 0);

    sl_safetensors_writer *writer = NULL;
    uint64_t bytes = 0;
    sl_hash_value hash;
    assert_int_equal(sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, plans, 2, &writer),
                     SL_OK);
    assert_int_equal(sl_safetensors_writer_order(writer, 0), 1);
    assert_int_equal(sl_safetensors_writer_order(writer, 1), 0);
    assert_int_equal(sl_safetensors_writer_append(writer, data, 2), SL_OK);
    assert_int_equal(sl_safetensors_writer_finish(writer, &bytes, &hash), SL_ERROR_INTERNAL);
    assert_int_equal(sl_safetensors_writer_append(writer, data, 2), SL_ERROR_INTERNAL);
    assert_int_equal(sl_safetensors_writer_append(writer, data + 2, 1), SL_OK);
    assert_int_equal(sl_safetensors_writer_finish(writer, &bytes, &hash), SL_OK);
    sl_safetensors_writer_close(writer);

    size_t found_bytes;
    char *found = scratch_read(path.text, &found_bytes);
    assert_int_equal(found_bytes, 8 + length + sizeof data);
    assert_int_equal(bytes, found_bytes);
    assert_memory_equal(found, expected, found_bytes);
    sl_hash_stream *stream;
    assert_int_equal(sl_hash_open(&stream), SL_OK);
    sl_hash_update(stream, found, found_bytes);
    sl_hash_value whole = sl_hash_digest(stream);
    assert_true(whole.high == hash.high && whole.low == hash.low);
    sl_hash_close(stream);
    free(found);
}

static void writer_when_misused_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    static const sl_safetensors_plan twice[] = {{"a", 1, {1}}, {"a", 1, {1}}};
    static const sl_safetensors_plan large[] = {{"a", 2, {1ull << 32, 1ull << 31}}};
    static const sl_safetensors_plan sum[] = {{"a", 1, {1ull << 60}}, {"b", 1, {1ull << 60}}};
    sl_safetensors_writer *writer = NULL;
    must_fail("twice", sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, twice, 2, &writer),
              SL_ERROR_USAGE, "two tensors");
    unlink(path.text);
    must_fail("large", sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, large, 1, &writer),
              SL_ERROR_USAGE, "overflows");
    unlink(path.text);
    must_fail("sum", sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, sum, 2, &writer),
              SL_ERROR_USAGE, "overflows");
    /* The file is there now: another writer must not take it over. */
    must_fail("exists", sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, twice, 1, &writer),
              SL_ERROR_IO, "cannot be made");
    sl_safetensors_writer_close(NULL);
}

enum { RANDOM_TENSORS_MAX = 20 };

typedef struct random_file {
    sl_safetensors_plan plans[RANDOM_TENSORS_MAX];
    char names[RANDOM_TENSORS_MAX][32];
    float *data[RANDOM_TENSORS_MAX];
    uint64_t counts[RANDOM_TENSORS_MAX];
    uint32_t count;
} random_file;

static void draw_file(random_file *file, uint64_t *random)
{
    file->count = (uint32_t)scratch_below(random, RANDOM_TENSORS_MAX + 1);
    for (uint32_t i = 0; i < file->count; i++) {
        sl_safetensors_plan *plan = &file->plans[i];
        /* Names that need escapes in JSON and that sort differently from their order here. */
        snprintf(file->names[i], sizeof file->names[i], "%llx\"\\\n\xc3\xa9%u",
                 (unsigned long long)scratch_below(random, 256), i);
        plan->name = file->names[i];
        plan->dim_count = (uint32_t)scratch_below(random, 3);
        file->counts[i] = 1;
        for (uint32_t d = 0; d < plan->dim_count; d++)
            file->counts[i] *= plan->shape[d] = scratch_below(random, 60);
        file->data[i] = malloc(file->counts[i] * 4 + 4);
        for (uint64_t j = 0; j < file->counts[i]; j++) {
            uint32_t bits = (uint32_t)(scratch_draw(random) >> 32);
            memcpy(&file->data[i][j], &bits, 4);
        }
    }
}

static void write_file(const random_file *file, const char *path, uint64_t *random)
{
    sl_safetensors_writer *writer = NULL;
    uint64_t bytes;
    sl_hash_value hash;
    assert_int_equal(
        sl_safetensors_writer_open(AT_FDCWD, NULL, path, file->plans, file->count, &writer), SL_OK);
    for (uint32_t i = 0; i < file->count; i++) {
        uint32_t which = sl_safetensors_writer_order(writer, i);
        for (uint64_t done = 0; done < file->counts[which];) {
            uint64_t piece = 1 + scratch_below(random, file->counts[which] - done);
            assert_int_equal(sl_safetensors_writer_append(writer, file->data[which] + done, piece),
                             SL_OK);
            done += piece;
        }
    }
    assert_int_equal(sl_safetensors_writer_finish(writer, &bytes, &hash), SL_OK);
    sl_safetensors_writer_close(writer);
}

/* Looks the tensors up with nothing but jansson and the definition of the format. */
static void check_by_definition(const random_file *file, const char *path)
{
    size_t bytes;
    uint64_t length;
    char *text = scratch_read(path, &bytes);
    memcpy(&length, text, 8);
    assert_int_equal((8 + length) % 8, 0);
    json_t *header = json_loadb(text + 8, length, 0, NULL);
    assert_non_null(header);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(header, "__metadata__"), "format")),
        "pt");
    assert_int_equal(json_object_size(header), file->count + 1);
    for (uint32_t i = 0; i < file->count; i++) {
        json_t *entry = json_object_get(header, file->names[i]);
        json_int_t first, end;
        assert_int_equal(json_unpack(entry, "{s:[I,I]}", "data_offsets", &first, &end), 0);
        assert_int_equal(end - first, file->counts[i] * 4);
        assert_int_equal(json_array_size(json_object_get(entry, "shape")),
                         file->plans[i].dim_count);
        assert_memory_equal(text + 8 + length + first, file->data[i], file->counts[i] * 4);
    }
    json_decref(header);
    free(text);
}

static void check_by_reader(const random_file *file, const char *path, uint64_t *random)
{
    sl_safetensors *opened = must_open(path);
    assert_int_equal(opened->tensor_count, file->count);
    for (uint32_t i = 0; i < file->count; i++) {
        const sl_safetensors_tensor *tensor = sl_safetensors_find(opened, file->names[i]);
        assert_non_null(tensor);
        assert_int_equal(tensor->dim_count, file->plans[i].dim_count);
        for (uint32_t d = 0; d < tensor->dim_count; d++)
            assert_int_equal(tensor->shape[d], file->plans[i].shape[d]);
        uint64_t first = scratch_below(random, file->counts[i] + 1);
        uint64_t count = scratch_below(random, file->counts[i] - first + 1);
        float *values = malloc(count * 4 + 4);
        assert_int_equal(sl_safetensors_read(opened, tensor, first, count, values), SL_OK);
        assert_memory_equal(values, file->data[i] + first, count * 4);
        free(values);
    }
    sl_safetensors_close(opened);
}

static void random_files_when_written_then_read_back(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    uint64_t random = scratch_seed("random_files", 7);
    uint64_t rounds = scratch_count(100, 3000);
    for (uint64_t round = 0; round < rounds; round++) {
        random_file file = {0};
        draw_file(&file, &random);
        unlink(path.text);
        write_file(&file, path.text, &random);
        check_by_definition(&file, path.text);
        check_by_reader(&file, path.text, &random);
        for (uint32_t i = 0; i < file.count; i++)
            free(file.data[i]);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(writer_when_small_then_these_bytes),
        TEST(writer_when_misused_then_refused),
        TEST(random_files_when_written_then_read_back),
    };
    return cmocka_run_group_tests_name("safetensors_write", tests, NULL, NULL);
}
