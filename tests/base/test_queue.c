/* What could be wrong in queues and marks: a call is lost, repeated or reordered, its arguments are
 * shared or overwritten, a full queue drops work, a wait lets go too early, waits for a later
 * record than it should, or for ever; a failure is lost, replaced, or loses its message on the way
 * between threads. Random graphs of calls, records and waits over several queues are checked
 * against vector clocks that the issuer keeps; calls also read plain data that only the order makes
 * safe, so TSan sees a missing order even when the times happen to fit. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "asleep.h"
#include "base/queue.h"
#include "base/rng.h"

static uint32_t rounds(uint32_t quick)
{
    return getenv("SL_TEST_FULL") ? quick * 20 : quick;
}

static void sleep_us(uint64_t us)
{
    struct timespec time = {0, (long)(us * 1000)};
    nanosleep(&time, NULL);
}

static sl_queue *open_queue(uint32_t capacity, const sl_queue_observer *observer)
{
    sl_queue *queue;
    assert_int_equal(sl_queue_open("test", capacity, observer, &queue), SL_OK);
    return queue;
}

/* ---- one queue ---- */

typedef struct call_sequence {
    uint32_t next;
    uint32_t wrong;
} call_sequence;

typedef struct sequence_args {
    call_sequence *sequence;
    uint32_t expected;
    uint32_t sleep_us;
} sequence_args;

static sl_status check_sequence(void *arguments)
{
    const sequence_args *args = arguments;
    if (args->sleep_us)
        sleep_us(args->sleep_us);
    if (args->sequence->next != args->expected)
        args->sequence->wrong++;
    args->sequence->next++;
    return SL_OK;
}

static void calls_when_issued_run_once_in_order(void **state)
{
    (void)state;
    const uint32_t capacities[] = {1, 2, 3, 64};
    for (size_t c = 0; c < 4; c++) {
        call_sequence sequence = {0, 0};
        sl_queue *queue = open_queue(capacities[c], NULL);
        for (uint32_t i = 0; i < 500; i++) {
            /* Bursts and pauses: the queue runs full, and empty, in turn. */
            sequence_args args = {&sequence, i, i % 100 < 4 ? 300 : 0};
            sl_queue_call(queue, i, check_sequence, &args, sizeof args);
            memset(&args, 0xEE, sizeof args);
            if (i % 100 == 50)
                sleep_us(500);
        }
        assert_int_equal(sl_queue_finish(queue), SL_OK);
        assert_int_equal(sequence.next, 500);
        assert_int_equal(sequence.wrong, 0);
        sl_queue_close(queue);
    }
}

static void close_when_work_is_queued_runs_it_first(void **state)
{
    (void)state;
    call_sequence sequence = {0, 0};
    sl_queue *queue = open_queue(64, NULL);
    for (uint32_t i = 0; i < 20; i++) {
        sequence_args args = {&sequence, i, 100};
        sl_queue_call(queue, i, check_sequence, &args, sizeof args);
    }
    sl_queue_close(queue);
    assert_int_equal(sequence.next, 20);
    sl_queue_close(NULL);
    sl_mark_close(NULL);
}

typedef struct full_args {
    uint32_t *wrong;
    unsigned char bytes[SL_QUEUE_ARGUMENT_BYTES - sizeof(uint32_t *)];
} full_args;

static sl_status check_full_block(void *arguments)
{
    full_args *args = arguments;
    if ((uintptr_t)arguments % 16 != 0)
        ++*args->wrong;
    for (size_t i = 0; i < sizeof args->bytes; i++) {
        if (args->bytes[i] != (unsigned char)(i * 7 + 1))
            ++*args->wrong;
    }
    memset(args->bytes, 0, sizeof args->bytes); /* it is the queue's own copy */
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGINT))
        ++*args->wrong;
    return SL_OK;
}

static void arguments_when_the_largest_arrive_whole_and_aligned(void **state)
{
    (void)state;
    uint32_t wrong = 0;
    full_args args = {.wrong = &wrong};
    assert_int_equal(sizeof args, SL_QUEUE_ARGUMENT_BYTES);
    for (size_t i = 0; i < sizeof args.bytes; i++)
        args.bytes[i] = (unsigned char)(i * 7 + 1);
    sl_queue *queue = open_queue(3, NULL);
    for (int i = 0; i < 10; i++)
        sl_queue_call(queue, 0, check_full_block, &args, sizeof args);
    assert_int_equal(sl_queue_finish(queue), SL_OK);
    assert_int_equal(wrong, 0);
    sl_queue_close(queue);
}

/* ---- marks ---- */

static sl_status wait_for_flag(void *arguments)
{
    _Atomic uint32_t *flag = *(_Atomic uint32_t **)arguments;
    while (!atomic_load(flag))
        sleep_us(50);
    return SL_OK;
}

static void call_with_flag(sl_queue *queue, sl_queue_function function, _Atomic uint32_t *flag)
{
    sl_queue_call(queue, 0, function, &flag, sizeof flag);
}

static sl_status set_flag(void *arguments)
{
    atomic_store(*(_Atomic uint32_t **)arguments, 1);
    return SL_OK;
}

static void wait_when_never_recorded_is_no_wait(void **state)
{
    (void)state;
    sl_queue *queue = open_queue(4, NULL);
    sl_mark *mark;
    assert_int_equal(sl_mark_open(&mark), SL_OK);
    sl_queue_wait(queue, 0, mark);
    assert_int_equal(sl_queue_finish(queue), SL_OK);
    sl_mark_finish(mark);
    sl_queue_close(queue);
    sl_mark_close(mark);
}

/* a: [record] … [call that blocks][record]; a wait issued before the second record passes. */
static void wait_when_recorded_again_later_takes_the_earlier_record(void **state)
{
    (void)state;
    sl_queue *a = open_queue(8, NULL), *b = open_queue(8, NULL);
    sl_mark *mark;
    _Atomic uint32_t gate = 0, passed = 0;
    assert_int_equal(sl_mark_open(&mark), SL_OK);
    sl_queue_record(a, mark);
    sl_queue_wait(b, 0, mark);
    call_with_flag(b, set_flag, &passed);
    call_with_flag(a, wait_for_flag, &gate);
    sl_queue_record(a, mark);
    assert_int_equal(sl_queue_finish(b), SL_OK); /* would hang if it took the later one */
    assert_int_equal(passed, 1);
    atomic_store(&passed, 0);
    sl_queue_wait(b, 0, mark);
    call_with_flag(b, set_flag, &passed);
    sleep_us(2000);
    assert_int_equal(passed, 0);
    atomic_store(&gate, 1);
    sl_mark_finish(mark);
    assert_int_equal(sl_queue_finish(b), SL_OK);
    assert_int_equal(passed, 1);
    sl_queue_close(a);
    sl_queue_close(b);
    sl_mark_close(mark);
}

/* ---- random graphs ---- */

enum { QUEUES = 4, MARKS = 6, CALLS = 300 };

typedef struct graph_call {
    uint32_t queue;
    uint32_t needs[QUEUES]; /* calls of each queue that must have run */
    uint32_t sleep_us;
} graph_call;

typedef struct call_graph {
    graph_call calls[CALLS];
    uint32_t index_of[QUEUES][CALLS]; /* call number n of a queue */
    uint64_t value[CALLS];            /* plain: written by its call */
    _Atomic uint32_t done[QUEUES];
    _Atomic uint32_t wrong;
} call_graph;

typedef struct graph_args {
    call_graph *graph;
    uint32_t index;
} graph_args;

static sl_status run_graph_call(void *arguments)
{
    const graph_args *args = arguments;
    call_graph *graph = args->graph;
    const graph_call *call = &graph->calls[args->index];
    if (call->sleep_us)
        sleep_us(call->sleep_us);
    uint64_t sum = args->index + 1;
    for (uint32_t q = 0; q < QUEUES; q++) {
        if (atomic_load_explicit(&graph->done[q], memory_order_relaxed) < call->needs[q]) {
            atomic_fetch_add(&graph->wrong, 1);
            continue;
        }
        if (call->needs[q] > 0)
            sum += graph->value[graph->index_of[q][call->needs[q] - 1]];
    }
    graph->value[args->index] = sum;
    atomic_fetch_add_explicit(&graph->done[call->queue], 1, memory_order_relaxed);
    return SL_OK;
}

/* The same sums, one call after the other. */
static uint64_t add_up_value(const call_graph *graph, const uint64_t *value, uint32_t index)
{
    const graph_call *call = &graph->calls[index];
    uint64_t sum = index + 1;
    for (uint32_t q = 0; q < QUEUES; q++) {
        if (call->needs[q] > 0)
            sum += value[graph->index_of[q][call->needs[q] - 1]];
    }
    return sum;
}

static void raise_to(uint32_t *clock, const uint32_t *other)
{
    for (uint32_t q = 0; q < QUEUES; q++)
        clock[q] = other[q] > clock[q] ? other[q] : clock[q];
}

typedef struct graph_issuer {
    sl_queue *queues[QUEUES];
    sl_mark *marks[MARKS];
    uint32_t clock[QUEUES][QUEUES];
    uint32_t mark_clock[MARKS][QUEUES];
    uint64_t seed, draw;
} graph_issuer;

static uint32_t pick(graph_issuer *issuer, uint32_t bound)
{
    return (uint32_t)sl_rng_below(issuer->seed, 0, issuer->draw++, bound);
}

static void issue_call(graph_issuer *issuer, call_graph *graph, uint32_t q, uint32_t index)
{
    graph_call *call = &graph->calls[index];
    call->queue = q;
    memcpy(call->needs, issuer->clock[q], sizeof call->needs);
    call->sleep_us = pick(issuer, 8) == 0 ? pick(issuer, 200) : 0;
    graph->index_of[q][issuer->clock[q][q]] = index;
    issuer->clock[q][q]++;
    graph_args args = {graph, index};
    sl_queue_call(issuer->queues[q], index, run_graph_call, &args, sizeof args);
}

static void issue_graph(graph_issuer *issuer, call_graph *graph)
{
    for (uint32_t index = 0; index < CALLS;) {
        uint32_t q = pick(issuer, QUEUES), m = pick(issuer, MARKS), what = pick(issuer, 4);
        if (what == 0) {
            sl_queue_record(issuer->queues[q], issuer->marks[m]);
            memcpy(issuer->mark_clock[m], issuer->clock[q], sizeof issuer->mark_clock[m]);
        } else if (what == 1) {
            sl_queue_wait(issuer->queues[q], 0, issuer->marks[m]);
            raise_to(issuer->clock[q], issuer->mark_clock[m]);
        } else {
            issue_call(issuer, graph, q, index++);
        }
    }
}

static void run_graph(uint64_t seed)
{
    call_graph *graph = calloc(1, sizeof *graph);
    graph_issuer issuer = {.seed = seed};
    uint64_t expected[CALLS];
    assert_non_null(graph);
    for (uint32_t q = 0; q < QUEUES; q++)
        issuer.queues[q] = open_queue(1 + pick(&issuer, 20), NULL);
    for (uint32_t m = 0; m < MARKS; m++)
        assert_int_equal(sl_mark_open(&issuer.marks[m]), SL_OK);
    issue_graph(&issuer, graph);
    for (uint32_t q = 0; q < QUEUES; q++)
        assert_int_equal(sl_queue_finish(issuer.queues[q]), SL_OK);
    assert_int_equal(graph->wrong, 0);
    for (uint32_t i = 0; i < CALLS; i++) {
        expected[i] = add_up_value(graph, expected, i);
        assert_int_equal(graph->value[i], expected[i]);
    }
    for (uint32_t q = 0; q < QUEUES; q++)
        sl_queue_close(issuer.queues[q]);
    for (uint32_t m = 0; m < MARKS; m++)
        sl_mark_close(issuer.marks[m]);
    free(graph);
}

static void random_graphs_when_run_respect_every_wait(void **state)
{
    (void)state;
    const char *text = getenv("SL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < rounds(60); i++)
        run_graph(seed + i);
}

/* ---- failures ---- */

static sl_status fail_with_number(void *arguments)
{
    SL_FAIL(SL_ERROR_IO, "call %u broke", *(const uint32_t *)arguments);
}

static void first_failure_when_others_follow_keeps_its_status_and_message(void **state)
{
    (void)state;
    sl_first_failure first = {0};
    assert_int_equal(sl_first_failure_return(&first), SL_OK);
    sl_first_failure_keep(&first, sl_status_fail(SL_ERROR_IO, "the %s", "first"));
    sl_first_failure_keep(&first, sl_status_fail(SL_ERROR_DATA, "the second"));
    assert_int_equal(sl_first_failure_return(&first), SL_ERROR_IO);
    assert_string_equal(sl_status_message(), "the first");
}

static void failure_when_it_happens_sticks_with_its_message(void **state)
{
    (void)state;
    sl_queue *a = open_queue(8, NULL), *b = open_queue(8, NULL);
    sl_mark *mark;
    _Atomic uint32_t skipped = 0, reached = 0;
    uint32_t first = 7, second = 8;
    assert_int_equal(sl_mark_open(&mark), SL_OK);
    sl_queue_call(a, 0, fail_with_number, &first, sizeof first);
    sl_queue_call(a, 0, fail_with_number, &second, sizeof second);
    call_with_flag(a, set_flag, &skipped);
    sl_queue_record(a, mark);
    sl_queue_wait(b, 0, mark);
    call_with_flag(b, set_flag, &reached);
    for (int i = 0; i < 2; i++) {
        (void)sl_status_fail(SL_ERROR_INTERNAL, "another message");
        assert_int_equal(sl_queue_finish(a), SL_ERROR_IO);
        assert_string_equal(sl_status_message(), "call 7 broke");
    }
    assert_int_equal(sl_queue_finish(b), SL_OK);
    assert_int_equal(skipped, 0);
    assert_int_equal(reached, 1);
    sl_queue_close(a);
    sl_queue_close(b);
    sl_mark_close(mark);
}

/* ---- observers ---- */

typedef struct observation {
    uint32_t ran_count, waited_count;
    uint64_t ran_tags, waited_tag, busy_ns, waited_ns, last_end_ns;
    uint32_t wrong;
} observation;

static void note_ran(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    observation *seen = user;
    seen->wrong += end_ns < start_ns || start_ns < seen->last_end_ns;
    seen->last_end_ns = end_ns;
    seen->ran_count++;
    seen->ran_tags += tag;
    seen->busy_ns += end_ns - start_ns;
}

static void note_waited(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    observation *seen = user;
    seen->wrong += end_ns < start_ns || start_ns < seen->last_end_ns;
    seen->last_end_ns = end_ns;
    seen->waited_count++;
    seen->waited_tag = tag;
    seen->waited_ns += end_ns - start_ns;
}

static sl_status tell_thread(void *arguments)
{
    _Atomic uint32_t *thread = *(_Atomic uint32_t **)arguments;
    atomic_store(thread, (uint32_t)gettid());
    return SL_OK;
}

/* Until the queue's thread, which has told who it is, waits. */
static void await_wait(_Atomic uint32_t *thread)
{
    while (atomic_load(thread) == 0)
        sleep_us(50);
    assert_true(await_sleep((pid_t)atomic_load(thread)));
}

static void observer_when_set_sees_calls_and_blocking_waits_alone(void **state)
{
    (void)state;
    observation seen = {0};
    sl_queue_observer observer = {note_ran, note_waited, &seen};
    sl_queue *a = open_queue(8, NULL), *b = open_queue(8, &observer);
    sl_mark *blocking, *reached;
    call_sequence sequence = {0, 0};
    _Atomic uint32_t gate = 0, thread = 0;
    sequence_args own = {&sequence, 0, 2000};
    assert_int_equal(sl_mark_open(&blocking), SL_OK);
    assert_int_equal(sl_mark_open(&reached), SL_OK);
    sl_queue_record(a, reached);
    sl_mark_finish(reached);
    sl_queue_wait(b, 5, reached);
    call_with_flag(a, wait_for_flag, &gate);
    sl_queue_record(a, blocking);
    call_with_flag(b, tell_thread, &thread);
    sl_queue_wait(b, 6, blocking);
    sl_queue_call(b, 40, check_sequence, &own, sizeof own);
    await_wait(&thread);
    sleep_us(2000);
    atomic_store(&gate, 1);
    assert_int_equal(sl_queue_finish(b), SL_OK);
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(seen.ran_count, 2);
    assert_int_equal(seen.ran_tags, 40); /* the other's is 0 */
    assert_true(seen.busy_ns >= 2000000);
    assert_int_equal(seen.waited_count, 1);
    assert_int_equal(seen.waited_tag, 6);
    assert_true(seen.waited_ns >= 2000000);
    sl_queue_close(a);
    sl_queue_close(b);
    sl_mark_close(blocking);
    sl_mark_close(reached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_when_issued_run_once_in_order),
        cmocka_unit_test(close_when_work_is_queued_runs_it_first),
        cmocka_unit_test(arguments_when_the_largest_arrive_whole_and_aligned),
        cmocka_unit_test(wait_when_never_recorded_is_no_wait),
        cmocka_unit_test(wait_when_recorded_again_later_takes_the_earlier_record),
        cmocka_unit_test(random_graphs_when_run_respect_every_wait),
        cmocka_unit_test(first_failure_when_others_follow_keeps_its_status_and_message),
        cmocka_unit_test(failure_when_it_happens_sticks_with_its_message),
        cmocka_unit_test(observer_when_set_sees_calls_and_blocking_waits_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
