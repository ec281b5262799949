/* Requests that the system never returns. What could be wrong: the store waits for ever, fails
 * without saying what it waited for, fails while all is merely slow, asks a dead lane for more,
 * hangs when it is closed, or touches what a late answer finds gone, or what has come in its place.
 * With limits of milliseconds where the default is two minutes: every request of a workload in turn
 * over a disk in memory, and each real transport with a file that never answers. */
#define _GNU_SOURCE
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sanitizer_share.h"
#include "store_case.h"
#include "store_double.h"

enum { KIB = 1 << 10, HANG_SECONDS = 60, CASE_BYTES = 3000 * KIB };

/* Longer than a busy machine takes for a request that comes back. */
enum { LIMIT_MS = SANITIZER_SHARE > 1 ? 500 : 20 };

/* ---- the store ---- */

static sl_store *open_double(const store_case *test)
{
    static const char *const directories[] = {"/the/first", "/the/second"};
    sl_store *store = NULL;
    sl_store_options options = {.directories = directories,
                                .directory_count = 2,
                                .bytes = test->bytes,
                                .depth = 4,
                                .limit_ms = LIMIT_MS,
                                .transport = &store_double_ops};
    scratch_need(sl_store_open(&options, &store) == SL_OK, sl_status_message());
    return store;
}

static sl_status write_and_read(store_case *test, sl_store *store)
{
    for (uint32_t index = 0; index < test->item_count; index++)
        SL_TRY(store_case_write(test, store, index));
    for (uint32_t index = 0; index < test->item_count; index++)
        SL_TRY(store_case_read(test, store, index));
    return SL_OK;
}

static void check_message(const char *verb)
{
    static const char *const parts[] = {"/the/", "bytes at offset", "of the disk tier's file",
                                        "has not finished it for "};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(sl_status_message(), parts[i]) || !strstr(sl_status_message(), verb))
            fail_msg("\"%s\" is not in \"%s\"", parts[i], sl_status_message());
}

/* False when the workload has fewer requests than that. */
static bool lose_request(uint64_t request)
{
    store_case test;
    store_case_init(&test, CASE_BYTES, 1400 * KIB, request);
    sl_store *store = open_double(&test);
    store_double_arm((store_double_plan){
        .seed = request, .reorders = 1, .kind = DOUBLE_STUCK, .first = request});
    uint64_t start_ns = sl_clock_now_ns();
    sl_status status = write_and_read(&test, store);
    uint64_t ms = (sl_clock_now_ns() - start_ns) / 1000000;
    bool was_hit = store_double_hits > 0;
    assert_int_equal(status, was_hit ? SL_ERROR_IO : SL_OK);
    if (was_hit) {
        assert_true(ms >= LIMIT_MS);
        bool was_write = strstr(sl_status_message(), "writing") != NULL;
        check_message(was_write ? "writing" : "reading");
        uint64_t asked = store_double_requests;
        status = was_write ? store_case_write(&test, store, 0) : store_case_read(&test, store, 0);
        assert_int_equal(status, SL_ERROR_IO);
        check_message(was_write ? "writing" : "reading");
        assert_int_equal(store_double_requests, asked);
    }
    assert_int_equal(sl_store_close(store), was_hit ? 1 : 0);
    store_case_close(&test);
    return was_hit;
}

static void request_when_it_never_comes_back_fails_its_lane(void **state)
{
    (void)state;
    uint64_t request = 1;
    alarm(HANG_SECONDS);
    while (lose_request(request))
        request++;
    alarm(0);
    print_message("%llu requests lost in turn\n", (unsigned long long)(request - 1));
    assert_true(request > 6);
}

/* Each takes up to a quarter of the limit, all of them together much longer. */
static void requests_when_only_slow_are_waited_for(void **state)
{
    (void)state;
    store_case test;
    store_case_init(&test, CASE_BYTES, 1400 * KIB, 1);
    sl_store *store = open_double(&test);
    store_double_arm((store_double_plan){.seed = 1, .delay_us = LIMIT_MS * 1000 / 4});
    for (int i = 0; i < 6; i++)
        assert_int_equal(write_and_read(&test, store), SL_OK);
    sl_store_close(store);
    store_case_close(&test);
}

/* ---- the transports ---- */

static sem_t answers; /* of pread and pwrite, for the threads */
static sem_t writes_done;
static bool has_writes_held;

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    sem_wait(&answers);
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (has_writes_held)
        sem_wait(&answers);
    ssize_t moved = syscall(SYS_pwrite64, fd, data, bytes, offset);
    sem_post(&writes_done);
    return moved;
}

/* A pipe into which nobody writes. */
static void lose_in(const sl_transport_ops *ops)
{
    static char page[SL_STORE_ALIGNMENT];
    int ends[2];
    uint32_t count = 1;
    sl_transport *transport = NULL;
    sl_transport_request request = {.data = page, .bytes = sizeof page}, *one = &request;
    assert_int_equal(pipe(ends), 0);
    sl_transport_options options = {
        .files = ends, .file_count = 1, .depth = 2, .wait_ms = LIMIT_MS};
    if (ops->open(&options, &transport) != SL_OK) {
        print_message("%s: %s: skipped\n", ops->name, sl_status_message());
    } else {
        uint64_t start_ns = sl_clock_now_ns();
        assert_int_equal(ops->submit(transport, &one, 1), SL_OK);
        assert_int_equal(ops->wait(transport, &one, 1, &count), SL_OK);
        assert_int_equal(count, 0);
        assert_true(sl_clock_now_ns() - start_ns >= LIMIT_MS * UINT64_C(1000000));
        ops->close(transport);
    }
    close(ends[0]);
    close(ends[1]);
}

static void transport_when_nothing_comes_back_gives_up_and_closes(void **state)
{
    (void)state;
    alarm(HANG_SECONDS);
    assert_int_equal(sem_init(&answers, 0, 0), 0);
    lose_in(&sl_transport_uring);
    lose_in(&sl_transport_threads);
    sem_post(&answers); /* the answer comes when all is closed: nobody may take it */
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    alarm(0);
}

static int open_nameless(void)
{
    int fd = memfd_create("store", MFD_CLOEXEC);
    scratch_need(fd >= 0, "memfd_create");
    return fd;
}

/* Closes `file` and opens another one until that has its number. */
static void replace_file(int file)
{
    close(file);
    int other = open_nameless();
    if (other == file)
        return;
    scratch_need(dup2(other, file) == file, "dup2");
    close(other);
}

/* A thread that is about to write when the transport and its file are closed, and another file gets
 * the number of that. */
static void thread_when_given_up_before_its_write_touches_no_other_file(void **state)
{
    (void)state;
    static char page[SL_STORE_ALIGNMENT];
    int file = open_nameless();
    uint32_t count = 1;
    struct stat info;
    sl_transport *transport = NULL;
    sl_transport_request request = {.is_write = true, .data = page, .bytes = sizeof page};
    sl_transport_request *one = &request;
    sl_transport_options options = {
        .files = &file, .file_count = 1, .depth = 2, .wait_ms = LIMIT_MS};
    alarm(HANG_SECONDS);
    assert_int_equal(sem_init(&answers, 0, 0), 0);
    assert_int_equal(sem_init(&writes_done, 0, 0), 0);
    has_writes_held = true;
    assert_int_equal(sl_transport_threads.open(&options, &transport), SL_OK);
    assert_int_equal(sl_transport_threads.submit(transport, &one, 1), SL_OK);
    assert_int_equal(sl_transport_threads.wait(transport, &one, 1, &count), SL_OK);
    assert_int_equal(count, 0);
    sl_transport_threads.close(transport);
    replace_file(file);
    sem_post(&answers);
    sem_wait(&writes_done);
    alarm(0);
    has_writes_held = false;
    assert_int_equal(fstat(file, &info), 0);
    assert_int_equal(info.st_size, 0);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_when_it_never_comes_back_fails_its_lane),
        cmocka_unit_test(requests_when_only_slow_are_waited_for),
        cmocka_unit_test(transport_when_nothing_comes_back_gives_up_and_closes),
        cmocka_unit_test(thread_when_given_up_before_its_write_touches_no_other_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
