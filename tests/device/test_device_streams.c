/* What could be wrong in a device's streams and events, the same for every device: a wait that lets
 * go too early, keeps to another record than the last one issued before it, or never lets go; for
 * each pair of stream kinds, since each is ordered by other means. A copy of the wrong bytes,
 * memory that is not as promised, a failure that is lost or turns into a hang, an observer that
 * hears of what was not, or is not asked whether to wait on, so that a stream which never ends
 * hangs the control thread.
 *
 * One body runs over the cpu, over a GPU where one opens, and, linked with tests/cuda, over the
 * stand-in; over the last two with and without cuStreamWaitValue32. Random orders of copies and
 * host calls are checked against the same work done one after the other; the same orders without
 * their waits must go wrong there (only the stand-in delays enough to promise that). SL_TEST_SEED
 * repeats a run. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device_case.h"
#include "device_order.h"
#include "skip.h"

/* ---- the table and its memory ---- */

static void table_when_looked_up_is_whole(void **state)
{
    (void)state;
    assert_int_equal(ops->kind, tested->kind);
    const char *entries = (const char *)ops;
    for (size_t at = offsetof(sl_device_ops, open); at < sizeof *ops; at += sizeof(void *)) {
        void *entry;
        memcpy(&entry, entries + at, sizeof entry);
        assert_non_null(entry);
    }
}

static void close_when_null_is_fine(void **state)
{
    (void)state;
    ops->stream_close(NULL);
    ops->event_close(NULL);
    ops->unmap(device, NULL, 4096, SL_MAP_PLAIN);
    ops->unmap_host(device, NULL, 4096, SL_MAP_PLAIN);
}

static void check_bytes(const unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(memory[i], value);
}

static void check_map(sl_device_stream *stream, unsigned char *host, uint64_t bytes, int flags)
{
    void *memory;
    assert_int_equal(ops->map(device, bytes, flags, &memory), SL_OK);
    assert_int_equal((uintptr_t)memory % (flags & SL_MAP_GUARDS ? 64 : 4096), 0);
    memset(host, 0x11, bytes);
    assert_int_equal(ops->copy(stream, 0, host, memory, bytes), SL_OK);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    check_bytes(host, bytes, flags & SL_MAP_PATTERN ? 0xA5 : 0);
    ops->unmap(device, memory, bytes, flags);
}

static void map_when_asked_is_aligned_and_filled(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 511, 4096, 4097, 100000, (2 << 20) + 1};
    const int flags[] = {SL_MAP_PLAIN, SL_MAP_PATTERN, SL_MAP_GUARDS,
                         SL_MAP_GUARDS | SL_MAP_PATTERN};
    sl_device_stream *stream = open_stream(SL_STREAM_DEVICE, "copy", NULL);
    for (int f = 0; f < 4; f++) {
        for (int i = 0; i < 6; i++) {
            void *host;
            assert_int_equal(ops->map_host(device, sizes[i], flags[f], &host), SL_OK);
            check_bytes(host, sizes[i], flags[f] & SL_MAP_PATTERN ? 0xA5 : 0);
            check_map(stream, host, sizes[i], flags[f]);
            ops->unmap_host(device, host, sizes[i], flags[f]);
        }
    }
    ops->stream_close(stream);
}

static void map_when_impossible_fails_with_a_message(void **state)
{
    (void)state;
    void *memory = NULL;
    const uint64_t wrong[] = {0, UINT64_C(1) << 50, UINT64_C(1) << 60, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        /* Not as much is there, or no address has as many bits. */
        sl_status status = ops->map(device, wrong[i], SL_MAP_PLAIN, &memory);
        assert_true(status == SL_ERROR_SYSTEM ||
                    (ops->kind != SL_DEVICE_CPU && status == SL_ERROR_FIT));
        assert_non_null(strstr(sl_status_message(), "memory"));
        assert_int_equal(ops->map_host(device, wrong[i], SL_MAP_GUARDS, &memory), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "memory"));
    }
    assert_null(memory);
}

static void copies_when_any_size_copy_exactly_that(void **state)
{
    (void)state;
    enum { BYTES = 1 << 18 };
    unsigned char *from = map_host(BYTES), *to = map_host(BYTES), *on_device = map_device(BYTES);
    unsigned char *expected = calloc(BYTES, 1);
    assert_non_null(expected);
    for (uint64_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 31 + (i >> 8));
    sl_device_stream *stream = open_stream(SL_STREAM_DEVICE, "copy", NULL);
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t bytes = 1 + sl_rng_below(1, 0, 4 * i, i % 2 ? 300 : BYTES / 4);
        uint64_t a = sl_rng_below(1, 0, 4 * i + 1, BYTES - bytes);
        uint64_t b = sl_rng_below(1, 0, 4 * i + 2, BYTES - bytes);
        uint64_t c = sl_rng_below(1, 0, 4 * i + 3, BYTES - bytes);
        assert_int_equal(ops->copy(stream, i, on_device + b, from + a, bytes), SL_OK);
        assert_int_equal(ops->copy(stream, i, to + c, on_device + b, bytes), SL_OK);
        memcpy(expected + c, from + a, bytes);
    }
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_memory_equal(to, expected, BYTES);
    ops->stream_close(stream);
    ops->unmap(device, on_device, BYTES, SL_MAP_PLAIN);
    ops->unmap_host(device, from, BYTES, SL_MAP_PLAIN);
    ops->unmap_host(device, to, BYTES, SL_MAP_PLAIN);
    free(expected);
}

/* ---- events between two streams ---- */

typedef struct slow_args {
    uint64_t *cell;
    uint64_t value, us;
} slow_args;

static sl_status write_slowly(void *arguments)
{
    const slow_args *args = arguments;
    sleep_us(args->us);
    *args->cell = args->value;
    return SL_OK;
}

typedef struct move_args {
    uint64_t *to;
    const uint64_t *from;
} move_args;

static sl_status move_cell(void *arguments)
{
    const move_args *args = arguments;
    *args->to = *args->from;
    return SL_OK;
}

enum { CELL_BYTES = 4096 }; /* of a test's cells, and of device memory behind them */

/* to = from in a stream of either kind; in one of the device by way of `behind`. */
static void issue_move(sl_device_stream *stream, sl_stream_kind kind, uint64_t tag, uint64_t *to,
                       const uint64_t *from, uint64_t *behind)
{
    move_args args = {to, from};
    if (kind == SL_STREAM_HOST) {
        assert_int_equal(ops->launch(stream, tag, move_cell, &args, sizeof args), SL_OK);
        return;
    }
    assert_int_equal(ops->copy(stream, tag, behind, from, sizeof *to), SL_OK);
    assert_int_equal(ops->copy(stream, tag, to, behind, sizeof *to), SL_OK);
}

/* cell[0] is written late by a host stream; `a` moves it to cell[1], `b` that to cell[2]. */
static void check_chain(sl_stream_kind kind_a, sl_stream_kind kind_b)
{
    uint64_t *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    sl_device_stream *slow = open_stream(SL_STREAM_HOST, "slow", NULL),
                     *a = open_stream(kind_a, "a", NULL), *b = open_stream(kind_b, "b", NULL);
    sl_device_event *written = open_event(), *moved = open_event();
    for (uint64_t round = 1; round <= 6; round++) {
        slow_args args = {&cell[0], round, 4000};
        assert_int_equal(ops->launch(slow, 0, write_slowly, &args, sizeof args), SL_OK);
        assert_int_equal(ops->event_record(written, slow), SL_OK);
        assert_int_equal(ops->event_wait(written, a, 0), SL_OK);
        issue_move(a, kind_a, 0, &cell[1], &cell[0], &behind[1]);
        assert_int_equal(ops->event_record(moved, a), SL_OK);
        assert_int_equal(ops->event_wait(moved, b, 0), SL_OK);
        issue_move(b, kind_b, 0, &cell[2], &cell[1], &behind[2]);
        if (round % 2 == 0) {
            assert_int_equal(ops->event_record(written, b), SL_OK);
            assert_int_equal(ops->event_finish(written), SL_OK);
        } else {
            assert_int_equal(ops->stream_finish(b), SL_OK);
        }
        assert_int_equal(cell[2], round);
    }
    ops->stream_close(slow);
    ops->stream_close(a);
    ops->stream_close(b);
    ops->event_close(written);
    ops->event_close(moved);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

static void wait_when_across_any_kinds_of_streams_keeps_order(void **state)
{
    (void)state;
    for (int a = SL_STREAM_DEVICE; a <= SL_STREAM_HOST; a++) {
        for (int b = SL_STREAM_DEVICE; b <= SL_STREAM_HOST; b++)
            check_chain((sl_stream_kind)a, (sl_stream_kind)b);
    }
}

static sl_status wait_for_flag(void *arguments)
{
    _Atomic uint32_t *flag = *(_Atomic uint32_t **)arguments;
    while (!atomic_load(flag))
        sleep_us(50);
    return SL_OK;
}

/* `a` records, `b` waits for that; then `a` is held up and records again: `b` must not care. */
static void check_earlier_record(sl_stream_kind kind_a, sl_stream_kind kind_b)
{
    sl_device_stream *holder = open_stream(SL_STREAM_HOST, "holder", NULL),
                     *a = open_stream(kind_a, "a", NULL), *b = open_stream(kind_b, "b", NULL);
    sl_device_event *event = open_event(), *held = open_event();
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t *flag = &gate;
    uint64_t *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    cell[0] = 5;
    assert_int_equal(ops->event_wait(event, b, 0), SL_OK); /* never recorded: no wait */
    assert_int_equal(ops->event_record(event, a), SL_OK);
    assert_int_equal(ops->event_wait(event, b, 0), SL_OK);
    issue_move(b, kind_b, 0, &cell[1], &cell[0], &behind[1]);
    assert_int_equal(ops->launch(holder, 0, wait_for_flag, &flag, sizeof flag), SL_OK);
    assert_int_equal(ops->event_record(held, holder), SL_OK);
    assert_int_equal(ops->event_wait(held, a, 0), SL_OK);
    assert_int_equal(ops->event_record(event, a), SL_OK);
    assert_int_equal(ops->stream_finish(b), SL_OK); /* would hang if it took the later one */
    assert_int_equal(cell[1], 5);
    atomic_store(&gate, 1);
    assert_int_equal(ops->event_finish(event), SL_OK);
    ops->stream_close(holder);
    ops->stream_close(a);
    ops->stream_close(b);
    ops->event_close(event);
    ops->event_close(held);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

static void wait_when_recorded_again_later_takes_the_earlier_record(void **state)
{
    (void)state;
    for (int a = SL_STREAM_DEVICE; a <= SL_STREAM_HOST; a++) {
        for (int b = SL_STREAM_DEVICE; b <= SL_STREAM_HOST; b++) {
            if (!tested->may_block || a == SL_STREAM_HOST)
                check_earlier_record((sl_stream_kind)a, (sl_stream_kind)b);
        }
    }
}

static sl_status be_late(void *arguments)
{
    (void)arguments;
    sleep_us(50000);
    return SL_OK;
}

/* More than a stream of a GPU takes before it blocks whoever issues, while what it waits for is a
 * host stream that has yet to ask the GPU. */
static void issuing_when_a_stream_waits_for_the_host_lets_the_host_go_on(void **state)
{
    (void)state;
    enum { COPIES = 3000 };
    sl_device_stream *host = open_stream(SL_STREAM_HOST, "host", NULL),
                     *stream = open_stream(SL_STREAM_DEVICE, "filled", NULL);
    sl_device_event *reached = open_event(), *let_go = open_event();
    uint64_t *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    cell[0] = 7;
    assert_int_equal(ops->copy(stream, 0, behind, cell, sizeof *cell), SL_OK);
    assert_int_equal(ops->event_record(reached, stream), SL_OK);
    assert_int_equal(ops->launch(host, 0, be_late, NULL, 0), SL_OK);
    assert_int_equal(ops->event_wait(reached, host, 0), SL_OK);
    assert_int_equal(ops->event_record(let_go, host), SL_OK);
    assert_int_equal(ops->event_wait(let_go, stream, 0), SL_OK);
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(ops->copy(stream, 0, &cell[1], behind, sizeof *cell), SL_OK);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_int_equal(cell[1], 7);
    ops->stream_close(host);
    ops->stream_close(stream);
    ops->event_close(reached);
    ops->event_close(let_go);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

/* ---- random orders ---- */

static void random_orders_when_run_are_as_one_after_the_other(void **state)
{
    (void)state;
    const char *text = getenv("SL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    uint32_t rounds = getenv("SL_TEST_FULL") ? 400 : 20;
    for (uint32_t i = 0; i < rounds; i++) {
        if (run_order(seed + i, true) > 0)
            fail_msg("SL_TEST_SEED=%llu", (unsigned long long)(seed + i));
    }
}

static void random_orders_when_waits_are_missing_go_wrong(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip_because("the thread sanitizer would report what is planted");
#endif
    if (!tested->is_delayed)
        skip_because("%s has no delays to plant", tested->name);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 5; i++)
        wrong += run_order(i, false) > 0;
    assert_int_equal(wrong, 5);
#ifdef SL_TEST_STANDIN
    assert_true(standin_order_faults(NULL) > 0);
    standin_forget_order_faults();
#endif
}

/* ---- failures ---- */

static sl_status break_off(void *arguments)
{
    SL_FAIL(SL_ERROR_INTERNAL, "broke at %u", *(const uint32_t *)arguments);
}

static void check_failure(sl_stream_kind kind)
{
    sl_device_stream *stream = open_stream(kind, "fails", NULL),
                     *other = open_stream(SL_STREAM_HOST, "other", NULL);
    sl_device_event *event = open_event();
    uint32_t first = 31, second = 32;
    unsigned char large[SL_QUEUE_ARGUMENT_BYTES + 1] = {0};
    assert_int_equal(ops->launch(stream, 0, break_off, large, sizeof large), SL_ERROR_INTERNAL);
    assert_int_equal(ops->stream_finish(stream), SL_OK); /* a refused launch queued nothing */
    bool is_native = ops->stream_native(stream) != NULL;
    sl_status at_once = is_native ? SL_ERROR_INTERNAL : SL_OK;
    assert_int_equal(ops->launch(stream, 0, break_off, &first, sizeof first), at_once);
    assert_int_equal(ops->launch(stream, 0, break_off, &second, sizeof second), at_once);
    assert_int_equal(ops->event_record(event, stream), SL_OK);
    assert_int_equal(ops->event_wait(event, other, 0), SL_OK);
    assert_int_equal(ops->stream_finish(other), SL_OK); /* it is not stuck */
    for (int i = 0; i < 2; i++) {
        (void)sl_status_fail(SL_ERROR_USAGE, "something else");
        assert_int_equal(ops->stream_finish(stream), SL_ERROR_INTERNAL);
        assert_string_equal(sl_status_message(), "broke at 31");
    }
    ops->stream_close(stream);
    ops->stream_close(other);
    ops->event_close(event);
}

static void launch_when_it_fails_comes_back_from_finish(void **state)
{
    (void)state;
    check_failure(SL_STREAM_DEVICE);
    check_failure(SL_STREAM_HOST);
}

/* A host stream fails; what waits for it still runs. */
static void record_when_the_host_stream_failed_still_lets_go(void **state)
{
    (void)state;
    sl_device_stream *fails = open_stream(SL_STREAM_HOST, "fails", NULL),
                     *waits = open_stream(SL_STREAM_DEVICE, "waits", NULL);
    sl_device_event *event = open_event();
    uint64_t *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    uint32_t number = 7;
    cell[0] = 9;
    slow_args slow = {&cell[2], 1, 5000};
    assert_int_equal(ops->launch(fails, 0, write_slowly, &slow, sizeof slow), SL_OK);
    assert_int_equal(ops->launch(fails, 0, break_off, &number, sizeof number), SL_OK);
    assert_int_equal(ops->event_record(event, fails), SL_OK);
    assert_int_equal(ops->event_wait(event, waits, 0), SL_OK);
    issue_move(waits, SL_STREAM_DEVICE, 0, &cell[1], &cell[0], behind);
    assert_int_equal(ops->stream_finish(waits), SL_OK);
    assert_int_equal(cell[1], 9);
    assert_int_equal(ops->stream_finish(fails), SL_ERROR_INTERNAL);
    ops->stream_close(fails);
    ops->stream_close(waits);
    ops->event_close(event);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

/* ---- observers ---- */

typedef struct observation {
    uint32_t ran_count, waited_count, wrong;
    uint64_t ran_tags, waited_tags, waited_ns, last_end_ns;
} observation;

static void note_ran(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    observation *seen = user;
    seen->wrong += end_ns < start_ns || start_ns < seen->last_end_ns;
    seen->last_end_ns = end_ns;
    seen->ran_count++;
    seen->ran_tags += tag;
}

static void note_waited(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    observation *seen = user;
    seen->wrong += end_ns < start_ns || start_ns < seen->last_end_ns;
    seen->last_end_ns = end_ns;
    seen->waited_count++;
    seen->waited_tags += tag;
    seen->waited_ns += end_ns - start_ns;
}

/* A device stream copies, waits for a slow host stream, and copies again. */
static void observer_when_set_hears_of_copies_and_blocked_waits(void **state)
{
    (void)state;
    observation seen = {0};
    sl_queue_observer observer = {note_ran, note_waited, &seen, false};
    sl_device_stream *slow = open_stream(SL_STREAM_HOST, "slow", NULL),
                     *copies = open_stream(SL_STREAM_DEVICE, "copies", &observer);
    sl_device_event *written = open_event(), *end = open_event();
    uint64_t *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    for (uint64_t round = 1; round <= 3; round++) {
        slow_args args = {&cell[0], round, 20000};
        assert_int_equal(ops->launch(slow, 0, write_slowly, &args, sizeof args), SL_OK);
        assert_int_equal(ops->event_record(written, slow), SL_OK);
        issue_move(copies, SL_STREAM_DEVICE, 1, &cell[3], &cell[2], behind);
        assert_int_equal(ops->event_wait(written, copies, 100), SL_OK);
        issue_move(copies, SL_STREAM_DEVICE, 10, &cell[1], &cell[0], behind);
        assert_int_equal(ops->event_record(end, copies), SL_OK);
        assert_int_equal(ops->event_finish(end), SL_OK);
        assert_int_equal(seen.ran_count, 4 * round); /* heard of at the latest now */
        assert_int_equal(seen.ran_tags, 22 * round);
        assert_int_equal(seen.waited_count, round);
        assert_int_equal(seen.waited_tags, 100 * round);
    }
    assert_int_equal(ops->stream_finish(copies), SL_OK);
    assert_int_equal(seen.ran_count, 12);
    assert_int_equal(seen.wrong, 0);
    assert_in_range(seen.waited_ns / 1000, 3 * 10000, 60 * 1000000);
    ops->stream_close(slow);
    ops->stream_close(copies);
    ops->event_close(written);
    ops->event_close(end);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

/* ---- waits without an end ---- */

typedef struct held_stream {
    _Atomic bool may_go_on;
    uint32_t questions; /* of the control thread */
} held_stream;

/* Ends each wait at its second question, until the stream may go on. */
static sl_status end_wait(void *user)
{
    held_stream *held = user;
    held->questions++;
    if (!held->may_go_on && held->questions % 2 == 0)
        SL_FAIL(SL_ERROR_RANK, "waited for long enough");
    return SL_OK;
}

static sl_status stay(void *arguments)
{
    held_stream *held = *(held_stream **)arguments;
    while (!held->may_go_on)
        sleep_us(100);
    return SL_OK;
}

static sl_status do_nothing(void *arguments)
{
    (void)arguments;
    return SL_OK;
}

/* Issues into a stream that does not get on, until it takes no more. */
static void fill_stream(sl_device_stream *stream, uint64_t *to, const uint64_t *from)
{
    enum { MANY = 10000 };
    sl_status status = SL_OK;
    for (int i = 0; i < MANY && status == SL_OK; i++)
        status = to ? ops->copy(stream, 2, to, from, sizeof *to)
                    : ops->launch(stream, 2, do_nothing, NULL, 0);
    assert_int_equal(status, SL_ERROR_RANK);
    assert_string_equal(sl_status_message(), "waited for long enough");
}

static void wait_until_idle(sl_device_stream *stream)
{
    uint64_t tag;
    while (ops->stream_look(stream, &tag) != SL_QUEUE_IDLE)
        sleep_us(100);
}

/* The stream of the host is held, and the other waits for it; where the control thread does so in
 * its place, there is nothing to fill. */
static void waits_when_the_observer_ends_them_come_back(void **state)
{
    (void)state;
    held_stream held = {false, 0}, *held_address = &held;
    const sl_queue_observer observer = {.user = &held, .blocked = end_wait};
    uint64_t tag = 0, *cell = map_host(CELL_BYTES), *behind = map_device(CELL_BYTES);
    sl_device_stream *host = open_stream(SL_STREAM_HOST, "host", &observer),
                     *waits = open_stream(SL_STREAM_DEVICE, "waits", &observer);
    sl_device_event *first = open_event(), *then = open_event();
    assert_int_equal(ops->stream_look(waits, &tag), SL_QUEUE_IDLE);
    assert_int_equal(ops->launch(host, 7, stay, &held_address, sizeof held_address), SL_OK);
    assert_int_equal(ops->event_record(first, host), SL_OK);
    assert_int_equal(ops->event_wait(first, waits, 5), tested->may_block ? SL_ERROR_RANK : SL_OK);
    assert_int_equal(ops->event_finish(first), SL_ERROR_RANK);
    assert_int_equal(ops->stream_look(host, &tag), SL_QUEUE_CALLS);
    assert_int_equal(tag, 7);
    if (!tested->may_block) {
        assert_int_equal(ops->event_record(then, waits), SL_OK);
        assert_int_equal(ops->event_finish(then), SL_ERROR_RANK);
        fill_stream(waits, behind, cell);
        assert_int_equal(ops->stream_finish(waits), SL_ERROR_RANK);
        assert_int_equal(ops->stream_look(waits, &tag), SL_QUEUE_WAITS);
    }
    fill_stream(host, NULL, NULL);
    assert_int_equal(ops->stream_finish(host), SL_ERROR_RANK);
    held.may_go_on = true;
    assert_int_equal(ops->stream_finish(host), SL_OK);
    wait_until_idle(waits);
    ops->stream_close(host);
    ops->stream_close(waits);
    ops->event_close(first);
    ops->event_close(then);
    ops->unmap_host(device, cell, CELL_BYTES, SL_MAP_PLAIN);
    ops->unmap(device, behind, CELL_BYTES, SL_MAP_PLAIN);
}

static int run_tested(const backend *chosen)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_when_looked_up_is_whole),
        cmocka_unit_test(close_when_null_is_fine),
        cmocka_unit_test(map_when_asked_is_aligned_and_filled),
        cmocka_unit_test(map_when_impossible_fails_with_a_message),
        cmocka_unit_test(copies_when_any_size_copy_exactly_that),
        cmocka_unit_test(wait_when_across_any_kinds_of_streams_keeps_order),
        cmocka_unit_test(wait_when_recorded_again_later_takes_the_earlier_record),
        cmocka_unit_test(issuing_when_a_stream_waits_for_the_host_lets_the_host_go_on),
        cmocka_unit_test(random_orders_when_run_are_as_one_after_the_other),
        cmocka_unit_test(random_orders_when_waits_are_missing_go_wrong),
        cmocka_unit_test(launch_when_it_fails_comes_back_from_finish),
        cmocka_unit_test(record_when_the_host_stream_failed_still_lets_go),
        cmocka_unit_test(observer_when_set_hears_of_copies_and_blocked_waits),
        cmocka_unit_test(waits_when_the_observer_ends_them_come_back),
    };
    tested = chosen;
    print_message("on %s\n", tested->name);
    return cmocka_run_group_tests(tests, open_tested, close_tested);
}

/* With an argument: GPUs alone, and 77 where none opens. */
int main(int argc, char **argv)
{
    int failed = 0, run_count = 0;
    (void)argv;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (argc > 1 && backends[i].kind == SL_DEVICE_CPU)
            continue;
#ifndef SL_TEST_STANDIN
        sl_device_info info;
        if (sl_device_query(backends[i].kind, 0, &info) != SL_OK) {
            print_message("skipped: %s: %s\n", backends[i].name, sl_status_message());
            continue;
        }
#endif
        failed += run_tested(&backends[i]);
        run_count++;
    }
    return run_count == 0 ? 77 : failed;
}
