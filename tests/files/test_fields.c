/* What could be wrong here: a member that is written and read back as another, a kind or range that
 * is not checked, a message that does not say where, an entry of a map that is lost or taken though
 * nobody knows it. One struct has a member of every kind; it goes there and back, and its JSON is
 * damaged one key at a time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "files/fields.h"
#include "files/json_file.h"
#include "sanitizer_share.h"
#include "skip.h"

typedef struct part {
    bool is_there;
    uint32_t size;
} part;

typedef struct sample {
    uint32_t small;
    uint64_t large, all_bits;
    float single;
    double real, unknown;
    bool is_on;
    char *text, *object;
    char chars[4];
    sl_hash_value hash;
    uint32_t choice;
    part inside, parts[2];
    double lanes[3];
} sample;

static const sl_field part_fields[] = {
    SL_FIELD("size", part, size, .low = 1, .high = 9),
    {0},
};

static const sl_field listed_part = {
    .kind = SL_FIELD_OBJECT, .fields = part_fields, .flags = SL_FIELD_OPTIONAL | SL_FIELD_LISTED};

static const sl_field milliseconds = {.kind = SL_FIELD_F64, .digits = 3};

#define NUMBERS                                                                                    \
    SL_FIELD("large", sample, large), SL_FIELD("single", sample, single, .low = -1),               \
        SL_FIELD("real", sample, real, .low = -1, .high = 100),                                    \
        SL_FIELD("unknown", sample, unknown, .flags = SL_FIELD_OPTIONAL | SL_FIELD_NULLABLE),      \
        SL_FIELD("is_on", sample, is_on),                                                          \
        SL_FIELD_AS(MAP, "lanes", sample, lanes, .names = "h2d|d2h|host",                          \
                    .stride = sizeof(double), .fields = &milliseconds)

static const sl_field fields[] = {
    SL_FIELD("small", sample, small, .low = 2),
    NUMBERS,
    SL_FIELD_AS(U64_TEXT, "all_bits", sample, all_bits),
    SL_FIELD("text", sample, text),
    SL_FIELD_AS(JSON_TEXT, "object", sample, object),
    SL_FIELD_AS(CHARS, "chars", sample, chars),
    SL_FIELD_AS(HEX128, "hash", sample, hash),
    SL_FIELD_AS(CHOICE, "choice", sample, choice, .names = "red|green|blue"),
    SL_FIELD_AS(OBJECT, "inside", sample, inside, .fields = part_fields),
    SL_FIELD_AS(MAP, "parts", sample, parts, .names = "first|second", .fields = &listed_part,
                .stride = sizeof(part), .flags = SL_FIELD_CLOSED),
    {0},
};

static const sl_field printed_fields[] = {NUMBERS, {0}};

static const sample good = {
    .small = UINT32_MAX,
    .large = INT64_MAX,
    .all_bits = UINT64_MAX,
    .single = 0.1f,
    .real = 0.1,
    .unknown = NAN,
    .is_on = true,
    .text = "a \"b\"",
    .object = "{\"lr\":0.10000000000000001}",
    .chars = "abc",
    .hash = {0x0123456789abcdef, 0xfedcba9876543210},
    .choice = 2,
    .inside = {.size = 1},
    .parts = {{0}, {true, 9}},
    .lanes = {1.23456, 0, 1e5},
};

static const char good_text[] =
    "{\"small\":4294967295,\"large\":9223372036854775807,\"single\":0.10000000149011612,"
    "\"real\":0.10000000000000001,\"unknown\":null,\"is_on\":true,"
    "\"lanes\":{\"h2d\":1.2345600000000001,\"d2h\":0.0,\"host\":100000.0},"
    "\"all_bits\":\"18446744073709551615\",\"text\":\"a \\\"b\\\"\","
    "\"object\":{\"lr\":0.10000000000000001},\"chars\":\"abc\","
    "\"hash\":\"0123456789abcdeffedcba9876543210\",\"choice\":\"blue\",\"inside\":{\"size\":1},"
    "\"parts\":{\"second\":{\"size\":9}}}";

static void struct_when_written_then_every_key_stands_in_order(void **state)
{
    (void)state;
    json_t *object = json_object();
    assert_int_equal(sl_fields_write(fields, &good, object), SL_OK);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    assert_string_equal(text, good_text);
    free(text);
    json_decref(object);
}

static sl_status read_text(const char *text, sample *out_sample)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    sl_status status = sl_fields_read("x.json", object, fields, out_sample);
    json_decref(object);
    return status;
}

static void struct_when_read_then_every_member_comes_back(void **state)
{
    (void)state;
    sample read = {.unknown = 7};
    assert_int_equal(read_text(good_text, &read), SL_OK);
    assert_true(read.small == good.small && read.large == good.large);
    assert_true(read.all_bits == good.all_bits && read.choice == 2);
    assert_true(read.single == good.single && read.real == good.real && read.unknown == 7);
    assert_true(read.is_on && !read.parts[0].is_there && read.parts[1].is_there);
    assert_true(read.inside.size == 1 && read.parts[1].size == 9);
    assert_memory_equal(&read.hash, &good.hash, sizeof good.hash);
    assert_memory_equal(read.lanes, good.lanes, sizeof good.lanes);
    assert_string_equal(read.text, good.text);
    assert_string_equal(read.object, good.object);
    assert_string_equal(read.chars, "abc");
    free(read.text);
    free(read.object);
}

/* A key's value, and what is put there instead; NULL: the key goes. */
typedef struct damage {
    const char *key, *value, *said;
} damage;

static const damage damages[] = {
    {"small", NULL, "x.json: key \"small\" is missing"},
    {"small", "1", "key \"small\" is not an integer from 2 to 4294967295"},
    {"small", "4294967296", "is not an integer from 2"},
    {"large", "-1", "key \"large\" is not an integer from 0 to 9223372036854775807"},
    {"large", "1.0", "is not an integer"},
    {"all_bits", "\"18446744073709551616\"", "key \"all_bits\" is not a number of 64 bits"},
    {"all_bits", "\"-1\"", "is not a number of 64 bits"},
    {"all_bits", "\"\"", "is not a number of 64 bits"},
    {"all_bits", "1", "key \"all_bits\" is not a string"},
    {"single", "\"1\"", "key \"single\" is not a number"},
    {"single", "null", "key \"single\" is not a number"},
    {"single", "1e39", "key \"single\" is too large a number"},
    {"single", "-2", "key \"single\" is not a number from -1 up"},
    {"real", "100.5", "key \"real\" is not a number from -1 to 100"},
    {"real", "-2", "key \"real\" is not a number from -1 to 100"},
    {"unknown", "true", "key \"unknown\" is not a number"},
    {"is_on", "1", "key \"is_on\" is not true or false"},
    {"lanes", "[1, 2, 3]", "key \"lanes\" is not an object"},
    {"lanes", "{\"h2d\": 1, \"d2h\": 2}", "x.json: lanes: key \"host\" is missing"},
    {"text", "7", "key \"text\" is not a string"},
    {"object", "\"{}\"", "key \"object\" is not an object"},
    {"chars", "null", "key \"chars\" is not a string"},
    {"hash", "\"0123\"", "key \"hash\" is not 32 hexadecimal digits"},
    {"hash", "\"0123456789ABCDEFfedcba9876543210\"", "is not 32 hexadecimal digits"},
    {"choice", "\"gren\"", "is \"gren\", none of red|green|blue: did you mean green?"},
    {"choice", "2", "key \"choice\" is not a string"},
    {"inside", "{\"size\": 10}", "x.json: inside: key \"size\" is not an integer from 1 to 9"},
    {"inside", "{}", "inside: key \"size\" is missing"},
    {"parts", "{\"second\": {\"size\": 0}}", "parts: second: key \"size\" is not an integer"},
    {"parts", "{\"secnd\": {}}", "parts: key \"secnd\" is unknown to this version: did you mean"},
    {"parts", "{\"\\u001b[2J\": {}}", "key \"\\x1b[2J\" is unknown"},
};

static void key_when_damaged_then_file_key_and_fault_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        sample read = {0};
        json_t *object = json_loads(good_text, 0, NULL);
        if (damages[i].value)
            json_object_set_new(object, damages[i].key,
                                json_loads(damages[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(object, damages[i].key);
        assert_int_equal(sl_fields_read("x.json", object, fields, &read), SL_ERROR_DATA);
        if (!strstr(sl_status_message(), damages[i].said))
            fail_msg("\"%s\" does not say %s", sl_status_message(), damages[i].said);
        json_decref(object);
        free(read.text);
        free(read.object);
    }
}

static void key_when_nobody_knows_it_then_is_passed_over(void **state)
{
    (void)state;
    part read = {0};
    json_t *object = json_pack("{s:i, s:i}", "later", 1, "size", 3);
    assert_int_equal(sl_fields_read("x.json", object, part_fields, &read), SL_OK);
    assert_int_equal(read.size, 3);
    json_decref(object);
}

static void number_when_json_has_none_such_then_is_not_written(void **state)
{
    (void)state;
    static const sl_field rows[] = {
        SL_FIELD("large", sample, large),
        SL_FIELD("real", sample, real),
        {0},
    };
    const sample too_large = {.large = 1ull << 63}, infinite = {.real = INFINITY};
    json_t *object = json_object();
    assert_int_equal(sl_fields_write(rows, &too_large, object), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "large is too large"));
    assert_int_equal(sl_fields_write(rows, &infinite, object), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "real is not finite"));
    assert_int_equal(sl_fields_write(rows, &good, NULL), SL_ERROR_SYSTEM);
    json_decref(object);
}

/* What is written is what reading takes: a text that is NULL is null where null may stand. */
static void text_when_null_then_is_written_only_where_it_is_read_back(void **state)
{
    (void)state;
    static const sl_field strict[] = {SL_FIELD("text", sample, text), {0}};
    static const sl_field strict_object[] = {SL_FIELD_AS(JSON_TEXT, "object", sample, object), {0}};
    static const sl_field open[] = {
        SL_FIELD("text", sample, text, .flags = SL_FIELD_NULLABLE),
        SL_FIELD_AS(JSON_TEXT, "object", sample, object, .flags = SL_FIELD_NULLABLE),
        {0},
    };
    const sample none = {0};
    sample read = {0};
    json_t *object = json_object();
    assert_int_equal(sl_fields_write(strict, &none, object), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "text is missing"));
    assert_int_equal(sl_fields_write(strict_object, &none, object), SL_ERROR_USAGE);
    assert_int_equal(json_object_size(object), 0);
    assert_int_equal(sl_fields_write(open, &none, object), SL_OK);
    assert_true(json_is_null(json_object_get(object, "text")));
    assert_true(json_is_null(json_object_get(object, "object")));
    assert_int_equal(sl_fields_read("x.json", object, open, &read), SL_OK);
    assert_null(read.text);
    assert_null(read.object);
    assert_int_equal(sl_fields_read("x.json", object, strict, &read), SL_ERROR_DATA);
    json_decref(object);
}

/* The fewest of 15 to 17 (7 to 9) digits that read back; with `digits` set, just so many. */
static void struct_when_printed_then_numbers_are_short_and_read_back(void **state)
{
    (void)state;
    char text[256];
    size_t length = sl_fields_print(printed_fields, &good, text, sizeof text);
    assert_string_equal(text, "\"large\":9223372036854775807,\"single\":0.100000001,\"real\":0.1,"
                              "\"unknown\":null,\"is_on\":true,"
                              "\"lanes\":{\"h2d\":1.23,\"d2h\":0,\"host\":1e+05}");
    assert_int_equal(length, strlen(text));
    for (size_t capacity = 1; capacity < length; capacity++) { /* what does not fit is cut */
        assert_int_equal(sl_fields_print(printed_fields, &good, text, capacity), capacity - 1);
        assert_int_equal(strlen(text), capacity - 1);
    }
    const sample third = {.single = 1.0f / 3, .real = 1.0 / 3};
    sl_fields_print(printed_fields, &third, text, sizeof text);
    assert_non_null(strstr(text, "\"real\":0.3333333333333333,"));
    assert_true(strtof(strstr(text, "\"single\":") + 9, NULL) == third.single);
}

/* UTF-8 stays; each byte that is none stands as \\xNN: truncated, overlong, surrogates, too large.
 */
static void text_when_it_is_no_utf8_then_its_bytes_are_told(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\xff"
         "b",
         "a\\xffb"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xc0\xaf", "\\xc0\\xaf"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
        {"\x80", "\\x80"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        json_t *string = sl_json_file_text(pairs[i][0]);
        assert_non_null(string);
        assert_string_equal(json_string_value(string), pairs[i][1]);
        json_decref(string);
    }
}

static uint64_t host_allocations;

static void *allocate_for_host(size_t bytes)
{
    host_allocations++;
    return malloc(bytes);
}

/* jansson's allocator is the process's: a program that has set one finds it as it was, and used. */
static void allocator_when_json_is_parsed_and_written_stays_the_programs(void **state)
{
    (void)state;
    json_malloc_t allocate;
    json_free_t release;
    json_t *root = NULL;
    static const char text[] = "{\"a\": [1, 2.5, \"three\"]}";
    json_set_alloc_funcs(allocate_for_host, free);
    assert_int_equal(sl_json_file_parse("a file", text, strlen(text), &root), SL_OK);
    char *written = sl_json_file_dump(root, JSON_COMPACT);
    json_decref(root);
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(malloc, free);
    assert_string_equal(written, "{\"a\":[1,2.5,\"three\"]}");
    free(written);
    assert_true(allocate == allocate_for_host && release == free);
    assert_true(host_allocations > 0);
}

/* Address space for the text and little more: a parse may need ten times as much. */
static int parse_in_little_memory(void)
{
    enum { TEXT_BYTES = 1 << 20, MORE_BYTES = 4 << 20, PAGE_BYTES = 4096 };
    unsigned long pages = 0;
    json_t *root = NULL;
    char *text = malloc(TEXT_BYTES);
    FILE *file = fopen("/proc/self/statm", "r");
    if (!text || !file || fscanf(file, "%lu", &pages) != 1)
        return 1;
    fclose(file);
    memset(text, ' ', TEXT_BYTES);
    text[0] = '{';
    text[TEXT_BYTES - 1] = '}';
    if (sl_json_file_parse("a file", text, TEXT_BYTES, &root) != SL_OK)
        return 2;
    json_decref(root);
    rlim_t bytes = (rlim_t)pages * PAGE_BYTES + MORE_BYTES;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) != 0)
        return 3;
    return sl_json_file_parse("a file", text, TEXT_BYTES, &root) == SL_ERROR_SYSTEM ? 0 : 4;
}

static void parse_when_the_most_it_can_need_is_not_there_is_refused(void **state)
{
    (void)state;
    int result;
    if (SANITIZER_SHARE > 1) {
        skip_because("sanitizers take all address space");
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(parse_in_little_memory());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocator_when_json_is_parsed_and_written_stays_the_programs),
        cmocka_unit_test(parse_when_the_most_it_can_need_is_not_there_is_refused),
        cmocka_unit_test(text_when_it_is_no_utf8_then_its_bytes_are_told),
        cmocka_unit_test(struct_when_written_then_every_key_stands_in_order),
        cmocka_unit_test(struct_when_read_then_every_member_comes_back),
        cmocka_unit_test(key_when_damaged_then_file_key_and_fault_are_named),
        cmocka_unit_test(key_when_nobody_knows_it_then_is_passed_over),
        cmocka_unit_test(number_when_json_has_none_such_then_is_not_written),
        cmocka_unit_test(text_when_null_then_is_written_only_where_it_is_read_back),
        cmocka_unit_test(struct_when_printed_then_numbers_are_short_and_read_back),
    };
    return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
