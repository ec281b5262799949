/* What could be wrong in the cpu device: memory that is not zero, not aligned or not freed whole;
 * guards that do not fault exactly at the end; streams that hold each other up; copies of the wrong
 * bytes; a failure without its message. Guards are tried in a child process that must die at the
 * first byte outside. Limits are in test_limits.c, taking memory within them in test_host_memory.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"

#include "base/rng.h"
#include "device/cpu.h"
#include "device/device.h"
#include "sluice/log.h"

static const sl_device_ops *ops;
static sl_device *device;

static int open_cpu(void **state)
{
    (void)state;
    ops = sl_device_ops_of(SL_DEVICE_CPU);
    return ops->open(0, NULL, &device) == SL_OK ? 0 : -1;
}

static int close_cpu(void **state)
{
    (void)state;
    ops->close(device);
    return 0;
}

/* ---- the table ---- */

static void table_when_looked_up_is_whole(void **state)
{
    (void)state;
    assert_string_equal(ops->name, "cpu");
    assert_int_equal(ops->kind, SL_DEVICE_CPU);
    const char *entries = (const char *)ops;
    for (size_t at = offsetof(sl_device_ops, open); at < sizeof *ops; at += sizeof(void *)) {
        void *entry;
        memcpy(&entry, entries + at, sizeof entry);
        assert_non_null(entry);
    }
}

static void open_when_the_index_is_not_0_fails(void **state)
{
    (void)state;
    sl_device *other = NULL;
    assert_int_equal(ops->open(1, NULL, &other), SL_ERROR_USAGE);
    assert_null(other);
}

/* ---- memory ---- */

static const uint64_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 100000, (2 << 20) + 1, 5 << 20};
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

static bool holds_only(const unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (memory[i] != value)
            return false;
    }
    return true;
}

/* Whether the page of `address` is mapped in this process. */
static bool is_mapped(const void *address)
{
    unsigned char seen;
    uintptr_t page = (uintptr_t)address & ~(uintptr_t)4095;
    return mincore((void *)page, 4096, &seen) == 0;
}

static void check_map(bool is_host, int flags, uint64_t bytes)
{
    unsigned char *memory;
    void *mapped;
    assert_int_equal((is_host ? ops->map_host : ops->map)(device, bytes, flags, &mapped), SL_OK);
    memory = mapped;
    assert_int_equal((uintptr_t)memory % (flags & SL_MAP_GUARDS ? 64 : 4096), 0);
    if (!(flags & SL_MAP_GUARDS) && bytes >= 2 << 20)
        assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    assert_true(holds_only(memory, bytes, flags & SL_MAP_PATTERN ? 0xA5 : 0));
    memset(memory, 0x11, bytes);
    assert_true(holds_only(memory, bytes, 0x11));
    assert_true(is_mapped(memory) && is_mapped(memory + bytes - 1));
    (is_host ? ops->unmap_host : ops->unmap)(device, memory, bytes, flags);
    assert_false(is_mapped(memory));
    assert_false(is_mapped(memory + bytes - 1));
    if (flags & SL_MAP_GUARDS) {
        assert_false(is_mapped(memory + bytes + 63)); /* the guards went, too */
        assert_false(is_mapped((unsigned char *)((uintptr_t)memory & ~(uintptr_t)4095) - 1));
    }
}

static void map_when_asked_gives_aligned_writable_memory(void **state)
{
    (void)state;
    const int flags[] = {SL_MAP_PLAIN, SL_MAP_PATTERN, SL_MAP_GUARDS,
                         SL_MAP_GUARDS | SL_MAP_PATTERN};
    for (int f = 0; f < 4; f++) {
        for (int i = 0; i < SIZE_COUNT; i++) {
            check_map(false, flags[f], sizes[i]);
            check_map(true, flags[f], sizes[i]);
        }
    }
}

static uint64_t count_missing_pages(const unsigned char *memory, uint64_t pages)
{
    unsigned char *seen = malloc(pages);
    uint64_t missing = 0;
    assert_non_null(seen);
    assert_int_equal(mincore((void *)memory, pages * 4096, seen), 0);
    for (uint64_t i = 0; i < pages; i++)
        missing += !(seen[i] & 1);
    free(seen);
    return missing;
}

/* By several threads and by one; what memory holds stays. */
static void pages_when_populated_exist(void **state)
{
    (void)state;
    static const uint64_t pages[] = {1, 300, 8192, 3 * 8192 + 5}; /* 8192: a tile */
    for (int i = 0; i < 4; i++) {
        const uint64_t bytes = pages[i] * 4096;
        void *mapped;
        assert_int_equal(sl_cpu_memory_map(bytes, SL_MAP_PLAIN, &mapped), SL_OK);
        unsigned char *memory = mapped;
        assert_true(count_missing_pages(memory, pages[i]) > 0);
        assert_int_equal(sl_cpu_memory_populate(memory + 64, bytes - 64), SL_OK);
        assert_int_equal(count_missing_pages(memory, pages[i]), 0);
        assert_true(holds_only(memory, bytes, 0));
        memset(memory, 0x11, bytes);
        assert_int_equal(sl_cpu_memory_populate(memory, bytes), SL_OK);
        assert_true(holds_only(memory, bytes, 0x11));
        sl_cpu_memory_unmap(memory, bytes, SL_MAP_PLAIN);
    }
}

static void map_when_impossible_fails_with_a_message(void **state)
{
    (void)state;
    void *memory = NULL;
    const uint64_t wrong[] = {0, UINT64_C(1) << 50, UINT64_C(1) << 60, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ops->map(device, wrong[i], SL_MAP_PLAIN, &memory), SL_ERROR_SYSTEM);
        assert_int_equal(ops->map_host(device, wrong[i], SL_MAP_GUARDS, &memory), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "memory"));
    }
    assert_null(memory);
}

static void leave_at_fault(int signal_number)
{
    (void)signal_number;
    _exit(42);
}

/* In a child: writes one byte at `at` bytes from the start of guarded memory; 42: it faulted. */
static int write_in_child(uint64_t bytes, int64_t at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        void *memory;
        signal(SIGSEGV, leave_at_fault);
        if (ops->map(device, bytes, SL_MAP_GUARDS, &memory) != SL_OK)
            _exit(1);
        *(volatile unsigned char *)((unsigned char *)memory + at) = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void guards_when_touched_fault(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; i++) {
        uint64_t used = (sizes[i] + 63) / 64 * 64;
        uint64_t slack = (4096 - used % 4096) % 4096;
        assert_int_equal(write_in_child(sizes[i], (int64_t)used - 1), 0);
        assert_int_equal(write_in_child(sizes[i], (int64_t)used), 42);
        assert_int_equal(write_in_child(sizes[i], (int64_t)used + 4095), 42);
        assert_int_equal(write_in_child(sizes[i], -(int64_t)slack - 1), 42);
    }
}

static void count_warning(void *user, sl_log_level level, const char *line)
{
    if (level == SL_LOG_WARNING && strstr(line, "memlock"))
        ++*(int *)user;
}

/* Runs in a child that may lock nothing. 10 + the number of warnings. */
static int map_without_right_to_lock(void)
{
    struct rlimit none = {0, 0};
    int warnings = 0;
    void *memory;
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return 1;
    if (ops->map_host(device, 4096, SL_MAP_PLAIN, &memory) != SL_OK)
        return 2;
    if (mlock(memory, 4096) == 0)
        return 77; /* sanitizers replace mlock by one that always succeeds */
    ops->unmap_host(device, memory, 4096, SL_MAP_PLAIN);
    sl_device *fresh;
    sl_log_set_callback(count_warning, &warnings);
    if (ops->open(0, NULL, &fresh) != SL_OK)
        return 3;
    for (int i = 0; i < 3; i++) {
        if (ops->map_host(fresh, 100000, SL_MAP_PLAIN, &memory) != SL_OK)
            return 4;
        memset(memory, 1, 100000);
    }
    return 10 + warnings;
}

static void map_host_when_locking_is_refused_warns_once(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(map_without_right_to_lock());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip_because("a sanitizer lets every mlock succeed");
    assert_int_equal(WEXITSTATUS(status), 11);
}

/* ---- streams ---- */

static void sleep_us(uint64_t us)
{
    struct timespec time = {0, (long)(us * 1000)};
    nanosleep(&time, NULL);
}

static sl_device_stream *open_stream(const char *name)
{
    sl_device_stream *stream;
    assert_int_equal(ops->stream_open(device, SL_STREAM_DEVICE, name, NULL, &stream), SL_OK);
    return stream;
}

static sl_device_event *open_event(void)
{
    sl_device_event *event;
    assert_int_equal(ops->event_open(device, &event), SL_OK);
    return event;
}

static sl_status wait_for_flag(void *arguments)
{
    _Atomic uint32_t *flag = *(_Atomic uint32_t **)arguments;
    while (!atomic_load(flag))
        sleep_us(50);
    return SL_OK;
}

/* Three streams: one holds, one waits for it, the third copies back and forth meanwhile. */
static void streams_when_one_is_held_up_go_on(void **state)
{
    (void)state;
    sl_device_stream *holder = open_stream("holder"), *h2d = open_stream("h2d"),
                     *d2h = open_stream("d2h");
    sl_device_event *held = open_event(), *copied = open_event();
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t *flag = &gate;
    unsigned char host[256], on_device[256], back[256];
    memset(host, 7, sizeof host);
    memset(on_device, 0, sizeof on_device);
    memset(back, 0, sizeof back);
    assert_int_equal(ops->launch(holder, 0, wait_for_flag, &flag, sizeof flag), SL_OK);
    assert_int_equal(ops->event_record(held, holder), SL_OK);
    assert_int_equal(ops->event_wait(held, h2d, 0), SL_OK);
    assert_int_equal(ops->copy(h2d, 0, on_device, host, sizeof host), SL_OK);
    assert_int_equal(ops->event_record(copied, h2d), SL_OK);
    assert_int_equal(ops->copy(d2h, 0, back, on_device, sizeof back), SL_OK);
    assert_int_equal(ops->stream_finish(d2h), SL_OK);
    assert_true(holds_only(back, sizeof back, 0)); /* h2d still waits */
    atomic_store(&gate, 1);
    assert_int_equal(ops->event_wait(copied, d2h, 0), SL_OK);
    assert_int_equal(ops->copy(d2h, 0, back, on_device, sizeof back), SL_OK);
    assert_int_equal(ops->event_record(held, d2h), SL_OK);
    assert_int_equal(ops->event_finish(held), SL_OK);
    assert_true(holds_only(back, sizeof back, 7));
    ops->stream_close(holder);
    ops->stream_close(h2d);
    ops->stream_close(d2h);
    ops->event_close(held);
    ops->event_close(copied);
    ops->stream_close(NULL);
    ops->event_close(NULL);
}

static void copies_when_any_size_copy_exactly_that(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20, LARGE = 5 << 19 }; /* large ones are not copied by memcpy */
    unsigned char *from = malloc(BYTES), *to = malloc(BYTES), *expected = calloc(BYTES, 1);
    assert_true(from && to && expected);
    for (uint64_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 31 + (i >> 8));
    memset(to, 0, BYTES);
    sl_device_stream *stream = open_stream("copy");
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t bytes = sl_rng_below(1, 0, 3 * i, i % 2 ? 300 : i % 10 ? 200000 : LARGE);
        uint64_t a = sl_rng_below(1, 0, 3 * i + 1, BYTES - bytes);
        uint64_t b = sl_rng_below(1, 0, 3 * i + 2, BYTES - bytes);
        assert_int_equal(ops->copy(stream, i, to + b, from + a, bytes), SL_OK);
        memcpy(expected + b, from + a, bytes);
        if (i % 10 != 0)
            continue;
        assert_int_equal(ops->stream_finish(stream), SL_OK);
        assert_memory_equal(to, expected, BYTES);
    }
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_memory_equal(to, expected, BYTES);
    ops->stream_close(stream);
    free(from);
    free(to);
    free(expected);
}

static sl_status break_off(void *arguments)
{
    SL_FAIL(SL_ERROR_INTERNAL, "broke at %u", *(const uint32_t *)arguments);
}

static void launch_when_it_fails_comes_back_from_finish(void **state)
{
    (void)state;
    sl_device_stream *stream = open_stream("fails");
    uint32_t number = 31;
    unsigned char large[SL_QUEUE_ARGUMENT_BYTES + 1] = {0};
    assert_int_equal(ops->launch(stream, 0, break_off, large, sizeof large), SL_ERROR_INTERNAL);
    assert_int_equal(ops->stream_finish(stream), SL_OK); /* a refused launch queued nothing */
    assert_int_equal(ops->launch(stream, 0, break_off, &number, sizeof number), SL_OK);
    for (int i = 0; i < 2; i++) {
        (void)sl_status_fail(SL_ERROR_USAGE, "something else");
        assert_int_equal(ops->stream_finish(stream), SL_ERROR_INTERNAL);
        assert_string_equal(sl_status_message(), "broke at 31");
    }
    ops->stream_close(stream);
}

/* ---- free memory ---- */

static void free_bytes_when_on_this_machine_is_plausible(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    sl_device_info info = {0};
    assert_int_equal(sl_device_host_free_bytes(&bytes), SL_OK);
    assert_int_equal(ops->describe(device, &info), SL_OK);
    uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(bytes, 1 << 20, physical);
    assert_in_range(info.free_bytes, 1 << 20, physical);
    assert_true(info.total_bytes == physical && info.overhead_bytes == 0);
}

/* What a program of another version of the header passes. */
static void query_when_the_struct_has_another_size_then_only_that_is_written(void **state)
{
    (void)state;
    enum { OLD = offsetof(sl_device_info, total_bytes) };
    struct later_info {
        sl_device_info known;
        uint64_t added, behind;
    } later;
    memset(&later, 0x5a, sizeof later);
    const struct later_info before = later;
    assert_int_equal(sl_device_query_sized(SL_DEVICE_CPU, 0, &later.known, OLD), SL_OK);
    assert_int_not_equal(later.known.free_bytes, before.known.free_bytes);
    assert_memory_equal((char *)&later + OLD, (const char *)&before + OLD, sizeof later - OLD);
    const size_t bytes = offsetof(struct later_info, behind);
    assert_int_equal(sl_device_query_sized(SL_DEVICE_CPU, 0, &later.known, bytes), SL_OK);
    assert_int_equal(later.known.numa_node, -1);
    assert_int_equal(later.added, 0);
    assert_int_equal(later.behind, before.behind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_when_touched_fault), /* forks: before there are threads */
        cmocka_unit_test(map_host_when_locking_is_refused_warns_once),
        cmocka_unit_test(table_when_looked_up_is_whole),
        cmocka_unit_test(open_when_the_index_is_not_0_fails),
        cmocka_unit_test(map_when_asked_gives_aligned_writable_memory),
        cmocka_unit_test(pages_when_populated_exist),
        cmocka_unit_test(map_when_impossible_fails_with_a_message),
        cmocka_unit_test(streams_when_one_is_held_up_go_on),
        cmocka_unit_test(copies_when_any_size_copy_exactly_that),
        cmocka_unit_test(launch_when_it_fails_comes_back_from_finish),
        cmocka_unit_test(free_bytes_when_on_this_machine_is_plausible),
        cmocka_unit_test(query_when_the_struct_has_another_size_then_only_that_is_written),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
