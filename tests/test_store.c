/* What could be wrong in the disk store when the disks are well: a part goes to a wrong piece, file
 * or offset; parts of one range are mixed up when they come back in another order; one is
 * moved twice; the end of the space, a piece or a registered buffer is off by one; a checksum
 * belongs to another part; what was never written is not zero; a range read otherwise than written
 * passes unchecked. One body over all ways to the disks: random items are written, overwritten and
 * read whole, against a shadow, over depths and numbers of directories. */
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

/* Item A has blocks 2 to 9; what touches it without being it, or what is left of it once B went
 * over its end, cannot be checked and must not pass. */
static void range_when_read_otherwise_than_written_is_refused(void **state)
{
    enum { UNIT = SL_STORE_ALIGNMENT };
    static const struct {
        uint32_t first, count;
        bool over_b;
        sl_status status;
    } reads[] = {{2, 8, false, SL_OK},
                 {0, 2, false, SL_OK},
                 {10, 3, false, SL_OK},
                 {2, 7, false, SL_ERROR_INTERNAL},
                 {3, 7, false, SL_ERROR_INTERNAL},
                 {1, 9, false, SL_ERROR_INTERNAL},
                 {0, 3, false, SL_ERROR_INTERNAL},
                 {9, 3, false, SL_ERROR_INTERNAL},
                 {8, 4, true, SL_OK},
                 {2, 8, true, SL_ERROR_INTERNAL},
                 {2, 6, true, SL_ERROR_INTERNAL},
                 {12, 2, true, SL_OK}};
    static _Alignas(UNIT) char memory[16 * UNIT];
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        sl_store *store = open_way(*state, &store_double_ops,
                                   (sl_store_options){.directory_count = 1, .bytes = MIB});
        need_ok(sl_store_write(store, 2 * UNIT, memory, 8 * UNIT));
        if (reads[i].over_b)
            need_ok(sl_store_write(store, 8 * UNIT, memory, 4 * UNIT));
        sl_status status = sl_store_read(store, (uint64_t)reads[i].first * UNIT, memory,
                                         (uint64_t)reads[i].count * UNIT);
        if (status != reads[i].status)
            fail_msg("read %zu: status %d", i, status);
        sl_store_close(store);
    }
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
    need_ok(sl_store_write(store, 4 * UNIT, memory, 0));
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
        TEST(range_when_read_otherwise_than_written_is_refused),
        TEST(range_when_not_allowed_is_refused_and_the_lane_lives),
        TEST(store_when_closed_unopened_or_unused_is_fine),
        TEST(lanes_when_both_at_work_do_not_disturb_each_other),
    };
    alarm(HANG_SECONDS * (unsigned)scratch_count(1, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
