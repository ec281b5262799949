/* Reading safetensors files, and bad Hugging Face directories. What could be wrong: a rule of the
 * format not enforced (a table of bad files, each with its message), a good file refused, offsets
 * or widening wrong by an element, an index that leads outside its directory, a block that is
 * loaded without being compared with its checksum. Oracles: files written by hand here, byte by
 * byte; ldexp for half precision. */
#define _GNU_SOURCE
#include <math.h>

#include "allocation_counter.h"
#include "base/hash.h"
#include "files/block_sums.h"
#include "foreign/weights.h"
#include "hostile_files.h"
#include "safetensors_case.h"

/* ---- bad files ---- */

static sl_status open_hostile(const hostile_row *row, const char *directory)
{
    sl_model_shape shape = {0};
    sl_tensor_io io = {0}; /* a refused file never reaches it */
    if (row->kind == HOSTILE_CONFIG)
        return sl_weights_read_config(directory, &shape);
    if (row->kind == HOSTILE_INDEX)
        return sl_weights_import(&shape, directory, NULL, 0, &io);
    sl_safetensors *file = NULL;
    scratch_path path = scratch_join(directory, "model.safetensors");
    return sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_FOLLOW, &file);
}

/* All requests of opening a file together, whatever it claims of itself: a buffer or two, and of
 * each byte of JSON what jansson makes of it. */
enum { MEMORY_BYTES = 1 << 18, MEMORY_PER_BYTE = 256 };

static void hostile_when_opened_then_told(void **state)
{
    const scratch_path *directory = *state;
    int count = 0;
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind == HOSTILE_TOKENS || row->kind == HOSTILE_MANIFEST)
            continue;
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        scratch_path folder = scratch_join(directory->text, name);
        scratch_need(mkdir(folder.text, 0700) == 0, folder.text);
        if (row->kind == HOSTILE_INDEX) /* a trap that would be found if the path were followed */
            hostile_write_shard(scratch_join(directory->text, "outside.safetensors").text, "a");
        hostile_write(row, folder.text);
        sl_status expected =
            strcmp(row->fragment, "cannot be opened") == 0 ? SL_ERROR_MISSING : SL_ERROR_DATA;
        allocation_counter_start();
        sl_status status = open_hostile(row, folder.text);
        allocation_counter_stop();
        must_fail(row->what, status, expected, row->fragment);
        if (allocation_counter_bytes > MEMORY_BYTES + MEMORY_PER_BYTE * row->text_bytes)
            fail_msg("%s: took %llu bytes of memory for %zu of text", row->what,
                     (unsigned long long)allocation_counter_bytes, row->text_bytes);
        count++;
    }
    printf("%d bad files\n", count);
    assert_true(count >= 80);
}

static void short_files_when_opened_then_told(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    sl_safetensors *file = NULL;
    for (size_t bytes = 0; bytes < 8; bytes++) {
        scratch_write(path.text, "\0\0\0\0\0\0\0\0", bytes);
        sl_status status = sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_FOLLOW, &file);
        must_fail("short", status, SL_ERROR_DATA, "too few for a safetensors file");
    }
}

static void no_regular_file_when_opened_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a"), fifo = scratch_join(path.text, "x");
    sl_safetensors *file = NULL;
    write_by_hand(path.text, "{}", "", 0);
    fifo = scratch_join(directory->text, "fifo");
    scratch_path link = scratch_join(directory->text, "link");
    scratch_need(mkfifo(fifo.text, 0600) == 0 && symlink("a", link.text) == 0, "set-up");
    must_fail("fifo", sl_safetensors_open(AT_FDCWD, NULL, fifo.text, SL_LINKS_FOLLOW, &file),
              SL_ERROR_DATA, "is a FIFO");
    must_fail("device", sl_safetensors_open(AT_FDCWD, NULL, "/dev/zero", SL_LINKS_FOLLOW, &file),
              SL_ERROR_DATA, "device");
    must_fail("link", sl_safetensors_open(AT_FDCWD, NULL, link.text, SL_LINKS_REFUSE, &file),
              SL_ERROR_DATA, "symbolic link");
    sl_safetensors_close(must_open(link.text));
    sl_safetensors_close(NULL);
}

/* ---- good files ---- */

static void good_headers_when_opened_then_accepted(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    static const struct {
        const char *header;
        size_t data_bytes;
        uint32_t tensor_count;
    } rows[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"}}", 0, 0},
        {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
         "\"s\":{\"data_offsets\":[0,4],\"shape\":[1,1,1,1,1,1,1,1],\"dtype\":\"F32\"}}",
         4, 2},
        {"{\"-0\\\"-0\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, 1},
        {"{\"n\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_by_hand(path.text, rows[i].header, "\0\0\0\0", rows[i].data_bytes);
        sl_safetensors *file = must_open(path.text);
        assert_int_equal(file->tensor_count, rows[i].tensor_count);
        sl_safetensors_close(file);
    }
}

static void every_dtype_when_opened_then_known(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    /* The list of the format, and the bytes of eight elements. */
    static const struct {
        const char *name;
        size_t bytes;
    } rows[] = {{"BOOL", 8},        {"F4", 4},         {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                {"I8", 8},          {"F8_E5M2", 8},    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
                {"U16", 16},        {"F16", 16},       {"BF16", 16},   {"I32", 32},    {"U32", 32},
                {"F32", 32},        {"C64", 64},       {"F64", 64},    {"I64", 64},    {"U64", 64},
                {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
    assert_int_equal(sizeof rows / sizeof rows[0], SL_DTYPE_COUNT);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char header[128], data[64] = {0};
        float values[8];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%zu]}}", rows[i].name,
                 rows[i].bytes);
        write_by_hand(path.text, header, data, rows[i].bytes);
        sl_safetensors *file = must_open(path.text);
        const sl_safetensors_tensor *tensor = sl_safetensors_find(file, "a");
        int readable = strcmp(rows[i].name, "F32") == 0 || strcmp(rows[i].name, "F16") == 0 ||
                       strcmp(rows[i].name, "BF16") == 0;
        sl_status status = sl_safetensors_read(file, tensor, 0, 8, values);
        if (readable)
            assert_int_equal(status, SL_OK);
        else
            must_fail(rows[i].name, status, SL_ERROR_DATA, rows[i].name);
        sl_safetensors_close(file);
    }
}

static void read_when_range_is_outside_then_usage_error(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    static const float data[3] = {1, 2, 3};
    float values[4] = {0};
    write_by_hand(path.text, "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
                  data, sizeof data);
    sl_safetensors *file = must_open(path.text);
    const sl_safetensors_tensor *tensor = sl_safetensors_find(file, "a");
    assert_null(sl_safetensors_find(file, "b"));
    assert_int_equal(sl_safetensors_read(file, tensor, 1, 2, values), SL_OK);
    assert_true(values[0] == 2 && values[1] == 3 && values[2] == 0);
    assert_int_equal(sl_safetensors_read(file, tensor, 3, 0, values), SL_OK);
    assert_int_equal(sl_safetensors_read(file, tensor, 2, 2, values), SL_ERROR_USAGE);
    assert_int_equal(sl_safetensors_read(file, tensor, UINT64_MAX, 2, values), SL_ERROR_USAGE);
    scratch_need(truncate(path.text, (off_t)file->file.bytes - 1) == 0, path.text);
    must_fail("cut", sl_safetensors_read(file, tensor, 0, 3, values), SL_ERROR_DATA, "ends at");
    sl_safetensors_close(file);
}

/* The value of a half-precision number, from its definition. */
static double half_value(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static void half_types_when_read_then_every_value_is_exact(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    uint16_t *data = malloc(65536 * 2);
    float *values = malloc(65536 * 4);
    for (uint32_t i = 0; i < 65536; i++)
        data[i] = (uint16_t)i;
    for (int is_brain = 0; is_brain < 2; is_brain++) {
        write_by_hand(
            path.text,
            is_brain ? "{\"a\":{\"dtype\":\"BF16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}"
                     : "{\"a\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}",
            data, 131072);
        sl_safetensors *file = must_open(path.text);
        assert_int_equal(sl_safetensors_read(file, &file->tensors[0], 0, 65536, values), SL_OK);
        for (uint32_t i = 0; i < 65536; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], 4);
            if (is_brain) {
                assert_true(bits == i << 16);
            } else if ((i >> 10 & 31) == 31) {
                assert_true((i & 1023) ? isnan(values[i]) : isinf(values[i]));
                assert_true(!!signbit(values[i]) == i >> 15);
            } else {
                assert_true((double)values[i] == half_value(i));
                assert_true(!!signbit(values[i]) == i >> 15);
            }
        }
        sl_safetensors_close(file);
    }
    free(data);
    free(values);
}

/* Bytes of a good file changed, cut or added at random: whatever is still accepted must lie wholly
 * in the file, without holes, and be readable; nothing may crash (this runs under ASan and UBSan).
 */
static void mutated_files_when_opened_then_refused_or_sound(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "a");
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"h.0.w\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
        "\"wte\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[12,28]}}   ";
    static const char alphabet[] = "{}[]\",:0123456789.-eFBUI \\\x00\xff";
    uint64_t random = scratch_seed("mutated_files", 11);
    uint64_t rounds = scratch_count(20000, 1000000);
    unsigned char data[400];
    uint64_t accepted = 0, length = sizeof header - 1;
    for (uint64_t round = 0; round < rounds; round++) {
        size_t bytes = 8 + length + 28;
        memcpy(data, &length, 8);
        memcpy(data + 8, header, length);
        memset(data + 8 + length, 0x3c, 28);
        for (uint64_t i = 0, n = 1 + scratch_below(&random, 3); i < n; i++)
            data[scratch_below(&random, 8 + length)] =
                scratch_below(&random, 4)
                    ? (unsigned char)alphabet[scratch_below(&random, sizeof alphabet - 1)]
                    : (unsigned char)scratch_draw(&random);
        if (scratch_below(&random, 8) == 0)
            bytes = scratch_below(&random, sizeof data);
        scratch_write(path.text, data, bytes);
        sl_safetensors *file = NULL;
        sl_status status = sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_FOLLOW, &file);
        if (status != SL_OK) {
            assert_int_equal(status, SL_ERROR_DATA);
            continue;
        }
        uint64_t end = UINT64_MAX, sum = 0;
        for (uint32_t i = 0; i < file->tensor_count; i++) {
            const sl_safetensors_tensor *tensor = &file->tensors[i];
            assert_true(i == 0 || tensor->first_byte == end);
            end = tensor->first_byte + tensor->byte_count;
            sum += tensor->byte_count;
            float values[64];
            if (tensor->element_count <= 64)
                sl_safetensors_read(file, tensor, 0, tensor->element_count, values);
        }
        assert_true(file->tensor_count == 0 || end == bytes);
        assert_true(sum < bytes);
        accepted++;
        sl_safetensors_close(file);
    }
    printf("mutated_files: %llu of %llu accepted\n", (unsigned long long)accepted,
           (unsigned long long)rounds);
    assert_true(accepted > 0 && accepted < rounds);
}

/* ---- checksums of blocks ---- */

enum { BLOCK_BYTES = SL_BLOCK_SUMS_BYTES_MIN, SUMMED_BYTES = 9 * BLOCK_BYTES + 100 };

static sl_block_reader *open_blocks(const unsigned char *data)
{
    char text[(SUMMED_BYTES / BLOCK_BYTES + 1) * SL_BLOCK_SUMS_DIGITS + 1] = "";
    sl_block_sums sums;
    sl_block_reader *reader = NULL;
    for (uint64_t at = 0; at < SUMMED_BYTES; at += BLOCK_BYTES) {
        const uint64_t left = SUMMED_BYTES - at, bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        const size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%016llx",
                 (unsigned long long)sl_hash_64(data + at, bytes));
    }
    assert_int_equal(sl_block_sums_parse(SUMMED_BYTES, BLOCK_BYTES, text, &sums), SL_OK);
    assert_int_equal(sl_block_reader_open(&sums, &reader), SL_OK);
    return reader;
}

/* Blocks are compared where the reader keeps one, and in the caller's memory where all of a block
 * is asked for: ranges within blocks, across their borders and of many blocks. */
static void blocks_when_a_bit_differs_then_reads_of_it_fail_and_others_are_right(void **state)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "blocks");
    static unsigned char data[SUMMED_BYTES], found[SUMMED_BYTES];
    uint64_t random = scratch_seed("blocks", 5), refused = 0;
    for (uint64_t i = 0; i < SUMMED_BYTES; i++)
        data[i] = (unsigned char)scratch_below(&random, 256);
    for (int round = 0; round < 200; round++) {
        const uint64_t bad = scratch_below(&random, SUMMED_BYTES);
        const uint64_t from = scratch_below(&random, SUMMED_BYTES);
        const uint64_t offset = round % 2 ? from : from / BLOCK_BYTES * BLOCK_BYTES;
        const uint64_t bytes = 1 + scratch_below(&random, SUMMED_BYTES - offset);
        const uint64_t first = offset / BLOCK_BYTES, last = (offset + bytes - 1) / BLOCK_BYTES;
        sl_block_reader *reader = open_blocks(data);
        sl_file file;
        data[bad] ^= 4;
        scratch_write(path.text, data, sizeof data);
        data[bad] ^= 4;
        assert_int_equal(sl_files_open(AT_FDCWD, NULL, path.text, SL_LINKS_FOLLOW, &file), SL_OK);
        const bool is_bad = bad / BLOCK_BYTES >= first && bad / BLOCK_BYTES <= last;
        const sl_status status = sl_block_reader_read(reader, &file, offset, bytes, found);
        if (status != (is_bad ? SL_ERROR_DAMAGED : SL_OK))
            fail_msg("byte %llu differs, %llu bytes at %llu are read: status %d",
                     (unsigned long long)bad, (unsigned long long)bytes, (unsigned long long)offset,
                     (int)status);
        if (!is_bad)
            assert_memory_equal(found, data + offset, bytes);
        refused += is_bad;
        sl_files_close(&file);
        sl_block_reader_close(reader);
    }
    assert_true(refused > 20 && refused < 180);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(hostile_when_opened_then_told),
        TEST(short_files_when_opened_then_told),
        TEST(no_regular_file_when_opened_then_refused),
        TEST(good_headers_when_opened_then_accepted),
        TEST(every_dtype_when_opened_then_known),
        TEST(read_when_range_is_outside_then_usage_error),
        TEST(half_types_when_read_then_every_value_is_exact),
        TEST(mutated_files_when_opened_then_refused_or_sound),
        TEST(blocks_when_a_bit_differs_then_reads_of_it_fail_and_others_are_right),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
