/* What could be wrong in the disk store when the disks are well: a part goes to a wrong piece, file
 * or offset; parts of one range are mixed up when they come back in another order; one is
 * moved twice; the end of the space, a piece or a registered buffer is off by one; a checksum
 * belongs to another record; what was never written is not zero; a range that is cut otherwise than
 * it was written is not read, or unchecked. One body over all ways to the disks: random items are
 * written, overwritten and read whole, against a shadow, over depths and numbers of directories. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>

#include "offload/transport.h"
#include "store_case.h"
#include "store_double.h"

enum { DIRECTORIES_MAX = 3, MIB = 1 << 20, HANG_SECONDS = 120 };

typedef struct world {
    scratch_path parent;
    scratch_path directories[DIRECTORIES_MAX];
    const char *names[DIRECTORIES_MAX];
} world;

static int open_world(void **state)
{
    static world all;
    all.parent = scratch_open();
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        all.directories[i] = scratch_join(all.parent.text, (const char *[]){"a", "b", "c"}[i]);
        all.names[i] = all.directories[i].text;
        scratch_need(mkdir(all.names[i], 0700) == 0, all.names[i]);
    }
    store_double_arm((store_double_plan){.seed = 1, .reorders = 1});
    *state = &all;
    return 0;
}

static int close_world(void **state)
{
    const world *all = *state;
    scratch_close(&all->parent);
    return 0;
}

static const sl_transport_ops *const ways[] = {&sl_transport_uring, &sl_transport_threads,
                                               &store_double_ops};

enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

/* NULL where this way is not open here. */
static sl_store *open_way(const world *all, const sl_transport_ops *ops, sl_store_options options)
{
    sl_store *store = NULL;
    options.directories = all->names;
    options.transport = ops;
    sl_status status = sl_store_open(&options, &store);
    if (status == SL_ERROR_SYSTEM && ops == &sl_transport_uring) {
        printf("without io_uring: %s\n", sl_status_message());
        return NULL;
    }
    if (status != SL_OK)
        fail_msg("%s: %s", ops->name, sl_status_message());
    return store;
}

static void need_ok(sl_status status)
{
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
}

static void check_read(store_case *test, sl_store *store, uint32_t index)
{
    need_ok(store_case_read(test, store, index));
    if (!store_case_holds(test, index))
        fail_msg("item %u of version %llu holds something else", index,
                 (unsigned long long)test->items[index].version);
}

/* Writes and reads at random, then reads all. */
static void exercise(store_case *test, sl_store *store, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t index = (uint32_t)scratch_below(&test->random, test->item_count);
        if (scratch_below(&test->random, 2) == 0)
            need_ok(store_case_write(test, store, index));
        else
            check_read(test, store, index);
    }
    for (uint32_t index = 0; index < test->item_count; index++)
        check_read(test, store, index);
}

static void contents_when_written_and_read_at_random_are_the_same(void **state)
{
    static const uint32_t depths[] = {1, 2, 7, 32};
    uint64_t seed = scratch_seed(__func__, 1);
    uint64_t rounds = scratch_count(1, 20);
    for (uint64_t round = 0; round < rounds * WAY_COUNT * 4 * DIRECTORIES_MAX; round++) {
        const sl_transport_ops *ops = ways[round % WAY_COUNT];
        store_case test;
        uint64_t bytes = 8 * MIB - SL_STORE_ALIGNMENT * (round % 5);
        store_case_init(&test, bytes, 3 * MIB, seed + round);
        sl_store_options options = {.directory_count = 1 + (uint32_t)(round / 12) % DIRECTORIES_MAX,
                                    .bytes = bytes,
                                    .depth = depths[round / WAY_COUNT % 4],
                                    .buffer = round % 2 ? test.memory : NULL,
                                    .buffer_bytes = round % 4 == 1 ? bytes / 2 : bytes};
        sl_store *store = open_way(*state, ops, options);
        if (store != NULL)
            exercise(&test, store, 12);
        sl_store_close(store);
        store_case_close(&test);
    }
}

static void range_when_never_written_reads_as_zeros_without_a_request(void **state)
{
    for (int way = 0; way < WAY_COUNT; way++) {
        store_case test;
        store_case_init(&test, 3 * MIB, 3 * MIB, 5);
        sl_store *store =
            open_way(*state, ways[way], (sl_store_options){.directory_count = 2, .bytes = 3 * MIB});
        if (store != NULL) {
            need_ok(store_case_read(&test, store, 0));
            assert_true(store_case_holds(&test, 0));
            assert_int_equal(sl_store_count(store).requests, 0);
        }
        sl_store_close(store);
        store_case_close(&test);
    }
}

/* ---- ranges cut at will ---- */

enum { SPACE_BYTES = 5 * MIB / 2 + 3 * SL_STORE_ALIGNMENT };

/* Starts with a record and ends with a page, often near. */
static void draw_range(uint64_t *random, uint64_t *out_offset, uint64_t *out_bytes)
{
    uint64_t records = (SPACE_BYTES + SL_STORE_RECORD_BYTES - 1) / SL_STORE_RECORD_BYTES;
    *out_offset = scratch_below(random, records) * SL_STORE_RECORD_BYTES;
    uint64_t pages = (SPACE_BYTES - *out_offset) / SL_STORE_ALIGNMENT;
    uint64_t most = scratch_below(random, 2) && pages > 40 ? 40 : pages;
    *out_bytes = (1 + scratch_below(random, most)) * SL_STORE_ALIGNMENT;
}

/* A write leaves the rest of its last record zeros. */
static void write_range(sl_store *store, uint64_t *random, char *memory, char *shadow)
{
    uint64_t offset, bytes;
    draw_range(random, &offset, &bytes);
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)(void *)memory)[i] = scratch_draw(random);
    need_ok(sl_store_write(store, offset, memory, bytes));
    uint64_t end = (offset + bytes + SL_STORE_RECORD_BYTES - 1) / SL_STORE_RECORD_BYTES *
                   SL_STORE_RECORD_BYTES;
    end = end < SPACE_BYTES ? end : SPACE_BYTES;
    memcpy(shadow + offset, memory, bytes);
    memset(shadow + offset + bytes, 0, end - offset - bytes);
}

static void read_range(sl_store *store, uint64_t *random, char *memory, const char *shadow)
{
    uint64_t offset, bytes;
    draw_range(random, &offset, &bytes);
    memset(memory, 0x5A, bytes);
    need_ok(sl_store_read(store, offset, memory, bytes));
    if (memcmp(memory, shadow + offset, bytes) != 0)
        fail_msg("%llu bytes at %llu are not what was written there", (unsigned long long)bytes,
                 (unsigned long long)offset);
}

/* Nothing has to be read as it was written. */
static void ranges_when_cut_at_will_are_what_was_written_last(void **state)
{
    uint64_t seed = scratch_seed(__func__, 1), rounds = scratch_count(2, 40);
    char *memory = aligned_alloc(SL_STORE_ALIGNMENT, SPACE_BYTES);
    for (uint64_t round = 0; round < rounds * WAY_COUNT; round++) {
        uint64_t random = 2 * (seed + round) + 1;
        char *shadow = calloc(1, SPACE_BYTES);
        sl_store *store =
            open_way(*state, ways[round % WAY_COUNT],
                     (sl_store_options){.directory_count = 1 + round % 2,
                                        .bytes = SPACE_BYTES,
                                        .depth = 1 + round % 5,
                                        .buffer = memory,
                                        .buffer_bytes = SPACE_BYTES / 2 / 4096 * 4096});
        for (int step = 0; step < 200 && store != NULL; step++)
            if (scratch_below(&random, 3) == 0)
                write_range(store, &random, memory, shadow);
            else
                read_range(store, &random, memory, shadow);
        sl_store_close(store);
        free(shadow);
    }
    free(memory);
}

/* The bit that is wrong may lie behind what is read. */
static void record_when_a_bit_is_wrong_is_refused_whatever_is_read_of_it(void **state)
{
    static _Alignas(SL_STORE_ALIGNMENT) char memory[2 * SL_STORE_RECORD_BYTES];
    static const uint32_t reads[] = {SL_STORE_ALIGNMENT, SL_STORE_RECORD_BYTES / 2,
                                     SL_STORE_RECORD_BYTES,
                                     SL_STORE_RECORD_BYTES + SL_STORE_ALIGNMENT};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        sl_store *store = open_way(*state, &store_double_ops,
                                   (sl_store_options){.directory_count = 1, .bytes = MIB});
        store_double_arm((store_double_plan){.seed = seed, .kind = DOUBLE_FLIP, .first = 1});
        need_ok(sl_store_write(store, 0, memory, SL_STORE_RECORD_BYTES));
        need_ok(sl_store_write(store, SL_STORE_RECORD_BYTES, memory, SL_STORE_RECORD_BYTES));
        assert_int_equal(sl_store_read(store, 0, memory, reads[seed % 4]), SL_ERROR_IO);
        assert_non_null(strstr(sl_status_message(), "found twice, of the 65536 bytes at offset 0"));
        sl_store_close(store);
    }
    store_double_arm((store_double_plan){.seed = 1, .reorders = 1});
}

static void range_when_not_allowed_is_refused_and_the_lane_lives(void **state)
{
    enum { UNIT = SL_STORE_ALIGNMENT };
    static _Alignas(UNIT) char memory[4 * UNIT];
    sl_store *store = open_way(*state, &store_double_ops,
                               (sl_store_options){.directory_count = 1, .bytes = 4 * UNIT});
    assert_int_equal(sl_store_write(store, 1, memory, UNIT), SL_ERROR_INTERNAL);
    assert_int_equal(sl_store_write(store, 0, memory + 8, UNIT), SL_ERROR_INTERNAL);
    assert_int_equal(sl_store_write(store, 0, memory, UNIT + 512), SL_ERROR_INTERNAL);
    assert_int_equal(sl_store_write(store, UNIT, memory, 4 * UNIT), SL_ERROR_INTERNAL);
    assert_int_equal(sl_store_read(store, 4 * UNIT, memory, UNIT), SL_ERROR_INTERNAL);
    assert_int_equal(sl_store_read(store, UINT64_MAX - UNIT + 1, memory, UNIT), SL_ERROR_INTERNAL);
    need_ok(sl_store_write(store, 0, memory, 4 * UNIT));
    assert_int_equal(sl_store_write(store, UNIT, memory, UNIT), SL_ERROR_INTERNAL);
    need_ok(sl_store_write(store, 0, memory, 0));
    assert_int_equal(sl_store_count(store).written_bytes, 4 * UNIT);
    sl_store_close(store);
}

static void store_when_closed_unopened_or_unused_is_fine(void **state)
{
    sl_store_close(NULL);
    for (int way = 0; way < WAY_COUNT; way++)
        sl_store_close(
            open_way(*state, ways[way], (sl_store_options){.directory_count = 3, .bytes = 4096}));
}

/* ---- two lanes at once ---- */

typedef struct writer {
    sl_store *store;
    store_case *test;
    uint32_t steps;
    sl_status status;
} writer;

/* Writes the odd items, whose pieces the even ones share. */
static void *write_odd(void *argument)
{
    writer *self = argument;
    for (uint32_t step = 0; step < self->steps && self->status == SL_OK; step++)
        self->status = store_case_write(self->test, self->store,
                                        (2 * step + 1) % (self->test->item_count / 2 * 2));
    return NULL;
}

static void lanes_when_both_at_work_do_not_disturb_each_other(void **state)
{
    uint32_t steps = (uint32_t)scratch_count(40, 1000);
    for (int way = 0; way < WAY_COUNT; way++) {
        store_case test;
        store_case_init(&test, 8 * MIB, MIB / 2, 77);
        sl_store *store = open_way(*state, ways[way],
                                   (sl_store_options){.directory_count = 2,
                                                      .bytes = 8 * MIB,
                                                      .depth = 4,
                                                      .buffer = test.memory,
                                                      .buffer_bytes = 8 * MIB});
        if (store == NULL)
            continue;
        for (uint32_t index = 0; index < test.item_count; index += 2)
            need_ok(store_case_write(&test, store, index));
        writer other = {.store = store, .test = &test, .steps = steps};
        pthread_t thread;
        scratch_need(pthread_create(&thread, NULL, write_odd, &other) == 0, "thread");
        for (uint32_t step = 0; step < steps; step++)
            check_read(&test, store, 2 * step % ((test.item_count + 1) / 2 * 2));
        pthread_join(thread, NULL);
        assert_int_equal(other.status, SL_OK);
        for (uint32_t index = 0; index < test.item_count; index++)
            check_read(&test, store, index);
        sl_store_close(store);
        store_case_close(&test);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        TEST(contents_when_written_and_read_at_random_are_the_same),
        TEST(range_when_never_written_reads_as_zeros_without_a_request),
        TEST(ranges_when_cut_at_will_are_what_was_written_last),
        TEST(record_when_a_bit_is_wrong_is_refused_whatever_is_read_of_it),
        TEST(range_when_not_allowed_is_refused_and_the_lane_lives),
        TEST(store_when_closed_unopened_or_unused_is_fine),
        TEST(lanes_when_both_at_work_do_not_disturb_each_other),
    };
    alarm(HANG_SECONDS * (unsigned)scratch_count(1, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
