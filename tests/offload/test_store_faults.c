/* The disk store when the disks misbehave. What could be wrong: a result that nobody looks at, a
 * short transfer taken for a whole one or continued at a wrong place, a retry without end, a
 * failure that leaves requests behind in memory the caller uses again, an error without a place, a
 * lane that goes on after it failed; and above all wrong bytes called right. A workload of writes,
 * overwrites and reads runs once for every request and every kind of fault, once and from then on.
 * The oracle: what is read is right to the byte, or the call fails and names what, where and why;
 * where one fault must be survived, no call fails; and it ends. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>

#include "sanitizer_share.h"
#include "store_case.h"
#include "store_double.h"

enum { KIB = 1 << 10, CASE_BYTES = 2400 * KIB, ITEM_BYTES = 96 * KIB };

enum { HANG_SECONDS = SANITIZER_SHARE > 1 ? 600 : 120, ROUNDS = SANITIZER_SHARE > 1 ? 1 : 2 };

/* The threads of a lane are the same whichever request fails: for the thread sanitizer every fourth
 * one does. */
enum { REQUEST_STEP = SANITIZES_THREADS ? 4 : 1 };

static const char *const directories[] = {"/the/first", "/the/second"};

typedef struct fault_kind {
    const char *name;
    double_fault kind;
    int error;
    uint32_t keep_bytes;
    bool is_survived;  /* once: no call fails */
    const char *words; /* in the message of a call that fails */
} fault_kind;

static const fault_kind kinds[] = {
    {"EIO", DOUBLE_ERRNO, EIO, 0, false, "Input/output error"},
    {"ENOSPC", DOUBLE_ERRNO, ENOSPC, 0, false, "No space left on device"},
    {"EINTR", DOUBLE_ERRNO, EINTR, 0, true, "Interrupted system call"},
    {"EAGAIN", DOUBLE_ERRNO, EAGAIN, 0, true, "Resource temporarily unavailable"},
    {"EINVAL", DOUBLE_ERRNO, EINVAL, 0, false, "memory at 0x"},
    {"short 0", DOUBLE_SHORT, 0, 0, false, "after 0 of them"},
    {"short 100", DOUBLE_SHORT, 0, 100, true, "stuck at 0 of them"},
    {"short 512", DOUBLE_SHORT, 0, 512, true, ""},
    {"short 4608", DOUBLE_SHORT, 0, 4608, true, ""},
    {"short half", DOUBLE_HALF, 0, 0, true, "stuck at "},
    {"bit flip", DOUBLE_FLIP, 0, 0, false, "expected, "},
    {"dropped", DOUBLE_DROP, 0, 0, false, "expected, "},
    {"stale", DOUBLE_STALE, 0, 0, false, "expected, "},
    {"swapped", DOUBLE_SWAP, 0, 0, false, "expected, "},
    {"refused", DOUBLE_REFUSE, 0, 0, false, "submission refused"},
    {"lost", DOUBLE_LOST, 0, 0, false, "requests lost"},
};

enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

typedef struct fault_case {
    const fault_kind *fault;
    uint64_t request, seed;
    bool all_after, stops;
    uint32_t depth;
} fault_case;

static void fail_case(const fault_case *which, const char *text)
{
    fail_msg("%s, request %llu%s, depth %u, seed %llu: %s (\"%s\")", which->fault->name,
             (unsigned long long)which->request, which->all_after ? " on" : "", which->depth,
             (unsigned long long)which->seed, text, sl_status_message());
}

static sl_store *open_double(const store_case *test, uint32_t depth)
{
    sl_store *store = NULL;
    sl_store_options options = {.directories = directories,
                                .directory_count = 2,
                                .bytes = test->bytes,
                                .depth = depth,
                                .transport = &store_double_ops};
    scratch_need(sl_store_open(&options, &store) == SL_OK, sl_status_message());
    return store;
}

/* A failure says what was done, where and why. */
static void check_failure(fault_case *which, sl_status status, const char *verb)
{
    const char *message = sl_status_message();
    bool has_place = strstr(message, "/the/") && strstr(message, "of the disk tier's file") &&
                     strstr(message, verb);
    if (status != SL_ERROR_IO)
        fail_case(which, "another status");
    if (!has_place && which->fault->kind != DOUBLE_LOST)
        fail_case(which, "the message does not say where");
    if (!strstr(message, which->fault->words))
        fail_case(which, "the message does not say why");
    which->stops = true;
}

static void write_one(fault_case *which, store_case *test, sl_store *store, uint32_t index)
{
    sl_status status = store_case_write(test, store, index);
    if (status != SL_OK)
        check_failure(which, status, "writing");
}

static void read_one(fault_case *which, store_case *test, sl_store *store, uint32_t index)
{
    sl_status status = store_case_read(test, store, index);
    if (status != SL_OK)
        check_failure(which, status, "reading");
    else if (!store_case_holds(test, index))
        fail_case(which, "wrong bytes were called right");
}

/* Writes all, overwrites half, reads all; ends at the first failure. */
static void run_workload(fault_case *which, store_case *test, sl_store *store)
{
    for (uint32_t index = 0; index < test->item_count && !which->stops; index++)
        write_one(which, test, store, index);
    for (uint32_t index = 0; index < test->item_count && !which->stops; index += 2)
        write_one(which, test, store, index);
    for (uint32_t index = 0; index < test->item_count && !which->stops; index++)
        read_one(which, test, store, test->item_count - 1 - index);
}

/* After a failure: the other lane works or says why not; its lane says the same again. */
static void check_after(fault_case *which, store_case *test, sl_store *store)
{
    char message[512];
    snprintf(message, sizeof message, "%s", sl_status_message());
    bool was_write = strstr(message, "writing") != NULL;
    if (which->fault->kind == DOUBLE_LOST)
        return;
    if (double_disk.out_count != 0)
        fail_case(which, "requests are still on their way");
    store_double_arm((store_double_plan){.seed = which->seed});
    sl_status status =
        was_write ? store_case_write(test, store, 0) : store_case_read(test, store, 0);
    if (status != SL_ERROR_IO || strcmp(message, sl_status_message()) != 0)
        fail_case(which, "the lane forgot that it failed");
    if (store_double_requests != 0)
        fail_case(which, "a dead lane asks for more");
    if (was_write && store_case_read(test, store, 1) == SL_OK && !store_case_holds(test, 1))
        fail_case(which, "wrong bytes were called right afterwards");
}

/* False when the workload has fewer requests than that. */
static bool run_case(fault_case *which)
{
    const fault_kind *fault = which->fault;
    store_case test;
    store_case_init(&test, CASE_BYTES, ITEM_BYTES, which->seed);
    sl_store *store = open_double(&test, which->depth);
    store_double_arm((store_double_plan){.seed = which->seed,
                                         .reorders = 1,
                                         .kind = fault->kind,
                                         .first = which->request,
                                         .all_after = which->all_after,
                                         .error = fault->error,
                                         .keep_bytes = fault->keep_bytes});
    run_workload(which, &test, store);
    bool was_hit = store_double_hits > 0;
    if (which->stops && !was_hit)
        fail_case(which, "failed without a reason");
    if (which->stops && fault->is_survived && !which->all_after)
        fail_case(which, "one such fault is to be survived");
    if (which->stops)
        check_after(which, &test, store);
    sl_store_close(store);
    store_case_close(&test);
    return was_hit;
}

/* EAGAIN from then on waits an eighth of a second in each case, so few of them do. */
static bool is_slow(const fault_case *which)
{
    return which->fault->error == EAGAIN && which->all_after && which->request % 16 != 1;
}

static void every_request_when_hit_by_every_fault_is_right_or_an_error(void **state)
{
    (void)state;
    static const uint32_t depths[] = {8, 1, 3};
    uint64_t seed = scratch_seed(__func__, 1), injected = 0, stopped = 0;
    const uint64_t rounds = scratch_count(ROUNDS, 60),
                   request_step = scratch_count(REQUEST_STEP, 1);
    for (uint64_t round = 0; round < rounds; round++)
        for (int k = 0; k < KIND_COUNT * 2; k++) {
            fault_case which = {.fault = &kinds[k / 2], .seed = seed + round, .request = 1};
            which.all_after = k % 2 == 1;
            which.depth = depths[round % 3];
            for (;; which.request += request_step) {
                which.stops = false;
                if (is_slow(&which))
                    continue;
                if (!run_case(&which))
                    break;
                injected++;
                stopped += which.stops;
            }
        }
    printf("%llu faults injected, %llu stopped a lane\n", (unsigned long long)injected,
           (unsigned long long)stopped);
    assert_true(injected >= 1000 / request_step * rounds && stopped > injected / 4 &&
                stopped < injected);
}

/* Of each kind: what is done once must not be left undone, nor be done for ever. */
static void read_when_failing_once_is_repeated_and_when_failing_on_stops(void **state)
{
    (void)state;
    static const struct {
        double_fault kind;
        int error;
    } faults[] = {{DOUBLE_ERRNO, EIO}, {DOUBLE_FLIP, 0}, {DOUBLE_STALE, 0}};
    for (int f = 0; f < 3; f++)
        for (int all_after = 0; all_after < 2; all_after++) {
            store_case test;
            store_case_init(&test, CASE_BYTES, ITEM_BYTES, 3);
            sl_store *store = open_double(&test, 4);
            store_double_arm((store_double_plan){.seed = 3});
            for (int i = 0; i < 2; i++) /* the second one makes the first one stale */
                assert_int_equal(store_case_write(&test, store, 0), SL_OK);
            store_double_arm((store_double_plan){.seed = 3,
                                                 .kind = faults[f].kind,
                                                 .error = faults[f].error,
                                                 .first = 1,
                                                 .all_after = all_after});
            uint64_t before = sl_store_count(store).requests;
            sl_status status = store_case_read(&test, store, 0);
            assert_int_equal(status, all_after ? SL_ERROR_IO : SL_OK);
            assert_true(all_after || store_case_holds(&test, 0));
            assert_int_equal(sl_store_count(store).requests - before, 2);
            assert_int_equal(sl_store_count(store).retries, 1);
            sl_store_close(store);
            store_case_close(&test);
        }
}

static void write_when_failing_once_is_not_repeated(void **state)
{
    (void)state;
    store_case test;
    store_case_init(&test, CASE_BYTES, ITEM_BYTES, 3);
    sl_store *store = open_double(&test, 1);
    store_double_arm((store_double_plan){.kind = DOUBLE_ERRNO, .error = EIO, .first = 1});
    assert_int_equal(store_case_write(&test, store, 0), SL_ERROR_IO);
    assert_int_equal(sl_store_count(store).requests, 1);
    sl_store_close(store);
    store_case_close(&test);
}

/* The caller may use the memory of a failed range again at once. */
static void range_when_failing_with_many_parts_out_waits_for_all(void **state)
{
    (void)state;
    enum { PARTS = 8, BYTES = PARTS * SL_STORE_PIECE_BYTES };
    char *data = aligned_alloc(SL_STORE_ALIGNMENT, BYTES);
    scratch_need(data != NULL, "memory");
    memset(data, 1, BYTES);
    for (uint64_t first = 1; first <= 2 * PARTS; first++) {
        store_case test = {.bytes = BYTES};
        sl_store *store = open_double(&test, PARTS);
        int lane = first <= PARTS ? DOUBLE_WRITES : DOUBLE_READS;
        store_double_arm((store_double_plan){.seed = first,
                                             .reorders = 1,
                                             .kind = DOUBLE_ERRNO,
                                             .error = ENXIO,
                                             .lanes = lane,
                                             .first = (first - 1) % PARTS + 1});
        sl_status written = sl_store_write(store, 0, data, BYTES);
        assert_int_equal(written, lane == DOUBLE_WRITES ? SL_ERROR_IO : SL_OK);
        if (written == SL_OK)
            assert_int_equal(sl_store_read(store, 0, data, BYTES), SL_ERROR_IO);
        assert_int_equal(double_disk.out_count, 0);
        sl_store_close(store);
    }
    free(data);
}

/* Every length at which one transfer of 64 KiB can end, on both lanes. */
static void transfer_when_cut_at_any_length_is_continued(void **state)
{
    (void)state;
    enum { BYTES = 64 * KIB };
    static _Alignas(SL_STORE_ALIGNMENT) char out[BYTES], in[BYTES];
    uint64_t random = 9;
    for (uint32_t i = 0; i < BYTES; i++)
        out[i] = (char)scratch_draw(&random);
    store_case test = {.bytes = BYTES};
    sl_store *store = open_double(&test, 2);
    for (uint32_t keep = 1; keep < BYTES; keep += keep % 512 == 1 ? 511 : 1) {
        for (int lane = DOUBLE_READS; lane <= DOUBLE_WRITES; lane++) {
            store_double_arm((store_double_plan){
                .seed = keep, .kind = DOUBLE_SHORT, .lanes = lane, .first = 1, .keep_bytes = keep});
            out[keep % BYTES] ^= 1; /* nothing is right because it was there before */
            assert_int_equal(sl_store_write(store, 0, out, BYTES), SL_OK);
            assert_int_equal(sl_store_read(store, 0, in, BYTES), SL_OK);
            assert_memory_equal(in, out, BYTES);
            assert_int_equal(store_double_hits, 1);
        }
    }
    assert_true(sl_store_count(store).short_transfers >= 2 * (BYTES / 512));
    sl_store_close(store);
}

/* A write that failed half-way: what it covered is neither old nor new nor zero. */
static void part_when_its_write_failed_is_never_read_as_good(void **state)
{
    (void)state;
    enum { BYTES = 64 * KIB };
    static _Alignas(SL_STORE_ALIGNMENT) char data[BYTES];
    for (int was_written = 0; was_written < 2; was_written++) {
        store_case test = {.bytes = BYTES};
        sl_store *store = open_double(&test, 2);
        store_double_arm((store_double_plan){.seed = 1});
        memset(data, 1, BYTES);
        if (was_written)
            assert_int_equal(sl_store_write(store, 0, data, BYTES), SL_OK);
        store_double_arm((store_double_plan){
            .seed = 1, .kind = DOUBLE_ERRNO, .error = ENOSPC, .lanes = DOUBLE_WRITES, .first = 1});
        memset(data, 2, BYTES);
        assert_int_equal(sl_store_write(store, 0, data, BYTES), SL_ERROR_IO);
        assert_int_equal(sl_store_read(store, 0, data, BYTES), SL_ERROR_IO);
        sl_store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_when_hit_by_every_fault_is_right_or_an_error),
        cmocka_unit_test(read_when_failing_once_is_repeated_and_when_failing_on_stops),
        cmocka_unit_test(write_when_failing_once_is_not_repeated),
        cmocka_unit_test(range_when_failing_with_many_parts_out_waits_for_all),
        cmocka_unit_test(transfer_when_cut_at_any_length_is_continued),
        cmocka_unit_test(part_when_its_write_failed_is_never_read_as_good),
    };
    alarm(HANG_SECONDS * (unsigned)scratch_count(1, 20));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
