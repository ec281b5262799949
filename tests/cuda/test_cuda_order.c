/* What could be wrong in the checker of the order between pieces of work on streams and threads:
 * that it lets a pair pass which nothing orders, because its delays happened to keep the two apart
 * or because it takes luck for order; that it complains of a pair which is ordered; that it names
 * the wrong side; that its cost grows faster than what runs.
 *
 * Each kind of missing order is planted in a small program of CUDA calls, queues or ops, beside the
 * same program without the fault. Random programs are compared with sets of predecessors, pair by
 * pair. SL_TEST_SEED repeats them. Whole runs are in test_cuda_order_runs.c. */
#define _GNU_SOURCE
#include "order_kinds.h"
#include "scratch_case.h"

/* ---- each kind, with and without ---- */

enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

/* Runs one; returns what was found, and forgets it. */
static uint64_t run_kind(int kind, bool is_planted, const char **out_text)
{
    standin_machine machine = plain_machine();
    machine.late_answers = 1;
    standin_reset(&machine);
    open_parts();
    kinds[kind].run(is_planted);
    finish();
    const uint64_t count = standin_order_faults(out_text);
    standin_forget_order_faults();
    close_parts();
    if (standin_faults(NULL) > 0)
        fail_msg("%s: another fault: %s", kinds[kind].name, *out_text);
    return count;
}

static void order_when_it_is_missing_then_both_sides_are_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        const char *text;
        if (run_kind(kind, false, &text) > 0)
            fail_msg("%s, without it: %s", kinds[kind].name, text);
        if (run_kind(kind, true, &text) == 0)
            fail_msg("%s: not found", kinds[kind].name);
        for (int i = 0; i < 2; i++)
            if (!strstr(text, kinds[kind].names[i]))
                fail_msg("%s: \"%s\" is not in \"%s\"", kinds[kind].name, kinds[kind].names[i],
                         text);
    }
    print_message("%d kinds of missing order, all found\n", KIND_COUNT);
}

/* ---- an address that another thread's memory gets ---- */

typedef struct locker {
    void *pages;
    bool locks;
} locker;

static void *write_pages(void *argument)
{
    const locker *self = argument;
    const standin_range all = {self->pages, 4096, true, "pages"};
    if (self->locks)
        need(cudaHostRegister(self->pages, 4096, 0));
    standin_touch_on_host("writing", &all, 1);
    if (self->locks)
        need(cudaHostUnregister(self->pages));
    return NULL;
}

static uint64_t write_twice(bool locks_again)
{
    locker of[2] = {{aligned_alloc(4096, 4096), true}, {NULL, locks_again}};
    of[1].pages = of[0].pages;
    open_parts();
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_pages, &of[i]), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    const char *text;
    const uint64_t count = standin_order_faults(&text);
    standin_forget_order_faults();
    close_parts();
    free(of[0].pages);
    return count;
}

static void memory_when_locked_anew_by_another_thread_then_is_other_memory(void **state)
{
    (void)state;
    assert_int_equal(write_twice(true), 0);
    assert_int_not_equal(write_twice(false), 0);
}

/* ---- what work says of itself ---- */

static void touch_from_within(void *argument)
{
    standin_touched(argument, 1);
}

static void launch_that_touches(const standin_range *declared, standin_range touched)
{
    if (declared)
        standin_declare("made_up", declared, 1);
    need(standin_queue(a, "kernel", touch_from_within, &touched));
    standin_declare(NULL, NULL, 0);
    need(cudaStreamSynchronize(a));
}

static void touch_when_outside_of_what_was_declared_is_a_fault(void **state)
{
    (void)state;
    open_parts();
    const standin_range whole = {memory, HALF, true, "y"}, source = {memory, HALF, false, "x"};
    const struct {
        standin_range touched;
        const standin_range *declared;
        bool is_fault;
    } cases[] = {
        {{memory, HALF, true, ""}, &whole, false},
        {{memory + 5, 7, false, ""}, &whole, false},
        {{memory + HALF - 1, 2, false, ""}, &whole, true},
        {{memory + HALF, 1, false, ""}, &whole, true},
        {{memory, HALF, false, ""}, &source, false},
        {{memory, 1, true, ""}, &source, true},
        {{memory, BYTES, true, ""}, NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t before = standin_faults(NULL);
        launch_that_touches(cases[i].declared, cases[i].touched);
        assert_int_equal(standin_faults(NULL) - before, cases[i].is_fault);
    }
    const char *text;
    assert_int_equal(standin_faults(&text), 3);
    assert_non_null(strstr(text, "made_up, kernel: reads from byte 32768 of an allocation"));
    assert_int_equal(standin_count_order().undeclared, 1);
    close_parts();
    reset(NULL);
}

static void word_when_nobody_wrote_its_value_is_a_fault(void **state)
{
    (void)state;
    const char *text;
    open_parts();
    write_word(1);
    atomic_store(word, 2);
    wait_for_word(a, 2);
    finish();
    assert_int_equal(standin_faults(&text), 1);
    assert_non_null(strstr(text, "by a word for 2, which nobody wrote there"));
    close_parts();
    reset(NULL);
}

static _Atomic bool is_open;

static sl_status wait_for_gate(void *arguments)
{
    (void)arguments;
    while (!atomic_load(&is_open))
        usleep(200);
    return SL_OK;
}

/* The second record of a mark is told of before the first one is reached. */
static void word_when_queues_reach_a_mark_out_of_turn_is_no_fault(void **state)
{
    (void)state;
    const char *text = "";
    open_parts();
    sl_queue *one = open_queue("one"), *two = open_queue("two");
    sl_mark *mark = open_mark();
    atomic_store(&is_open, false);
    sl_queue_call(one, 0, wait_for_gate, NULL, 0);
    sl_queue_record(one, mark);
    call_touch(two, true);
    sl_queue_record(two, mark);
    wait_for_word(a, 2);
    wait_for_word(b, 1);
    copy_on(a, memory, host);
    usleep(20000); /* `two` gets as far as it may; where it does not, nothing is shown */
    atomic_store(&is_open, true);
    finish();
    sl_queue_close(one);
    sl_queue_close(two);
    sl_mark_close(mark);
    if (standin_faults(&text) + standin_order_faults(NULL) > 0)
        fail_msg("%s", text);
    close_parts();
}

/* ---- random programs ---- */

enum { STREAMS = 3, EVENTS = 2, CELLS = 12, STEPS = 28 };

/* Sets of touches: those that come before what is next. */
typedef struct oracle {
    uint64_t stream[STREAMS], thread, event[EVENTS];
    uint32_t count; /* of touches */
    uint32_t from[STEPS], to[STEPS];
    bool is_written[STEPS];
    bool has_pair; /* without order */
} oracle;

/* Adds a touch that comes after `before`, and to that set. */
static void add_touch(oracle *known, uint64_t *before, uint32_t from, uint32_t to, bool is_written)
{
    const uint32_t own = known->count++;
    for (uint32_t i = 0; i < own; i++) {
        const bool overlaps = known->from[i] < to && from < known->to[i];
        const bool is_ordered = *before >> i & 1;
        if (overlaps && !is_ordered && (is_written || known->is_written[i]))
            known->has_pair = true;
    }
    known->from[own] = from;
    known->to[own] = to;
    known->is_written[own] = is_written;
    *before |= UINT64_C(1) << own;
}

static uint32_t draw(uint64_t *seed, uint32_t bound)
{
    return (uint32_t)scratch_below(seed, bound);
}

static void touch_at_random(oracle *known, uint64_t *seed, cudaStream_t stream, uint64_t *before)
{
    const uint32_t from = draw(seed, CELLS), to = from + 1 + draw(seed, CELLS - from);
    const bool is_written = draw(seed, 3) == 0;
    const standin_range range = {memory + 100 * from, 100 * (uint64_t)(to - from), is_written, ""};
    if (stream)
        launch(stream, range.first, range.bytes, is_written);
    else
        standin_touch_on_host("made up", &range, 1);
    add_touch(known, before, from, to, is_written);
}

static void issue_at_random(oracle *known, uint64_t *seed)
{
    const cudaStream_t streams[STREAMS] = {a, b, c};
    const cudaEvent_t events[EVENTS] = {first, second};
    const uint32_t s = draw(seed, STREAMS), e = draw(seed, EVENTS), what = draw(seed, 16);
    if (what >= 13) {
        touch_at_random(known, seed, NULL, &known->thread);
        return;
    }
    if (what >= 11) {
        need((int)(what == 11 ? cudaStreamSynchronize(streams[s])
                              : cudaEventSynchronize(events[e])));
        known->thread |= what == 11 ? known->stream[s] : known->event[e];
        return;
    }
    known->stream[s] |= known->thread;
    if (what < 4) {
        touch_at_random(known, seed, streams[s], &known->stream[s]);
    } else if (what < 7) {
        need(cudaEventRecord(events[e], streams[s]));
        known->event[e] = known->stream[s];
    } else {
        wait_for(streams[s], events[e]);
        known->stream[s] |= known->event[e];
    }
}

/* Returns whether there was a pair. */
static bool compare_with_oracle(uint64_t seed)
{
    standin_machine machine = standin_default();
    oracle known = {0};
    const char *text;
    uint64_t state = seed;
    machine.seed = seed;
    machine.delay_us = 20;
    standin_reset(&machine);
    open_parts();
    const uint32_t steps = 4 + draw(&state, STEPS - 4);
    for (uint32_t i = 0; i < steps; i++)
        issue_at_random(&known, &state);
    finish();
    const uint64_t count = standin_order_faults(&text);
    if ((count > 0) != known.has_pair)
        fail_msg("seed %llu: %s", (unsigned long long)seed,
                 count > 0 ? text : "a pair was not found");
    standin_forget_order_faults();
    close_parts();
    return known.has_pair;
}

static void programs_when_random_then_agree_with_sets_of_predecessors(void **state)
{
    (void)state;
    const uint64_t seed = scratch_seed("programs", 1), count = scratch_count(300, 20000);
    uint64_t pairs = 0;
    for (uint64_t i = 0; i < count; i++)
        pairs += compare_with_oracle(seed * 1000003 + i);
    print_message("%llu programs, %llu with pairs that nothing orders\n", (unsigned long long)count,
                  (unsigned long long)pairs);
    assert_in_range(pairs, count / 10, count - count / 10);
}

/* ---- cost ---- */

/* A chunk that is written whole and read tensor by tensor by another stream, `steps` times. */
static standin_order_counts count_steps(uint32_t steps)
{
    enum { TENSORS = 16, PART = BYTES / TENSORS };
    reset(NULL);
    open_parts();
    for (uint32_t i = 0; i < steps; i++) {
        launch(a, memory, BYTES, true);
        need(cudaEventRecord(first, a));
        wait_for(b, first);
        for (uint32_t t = 0; t < TENSORS; t++)
            launch(b, memory + (size_t)t * PART, PART, false);
        need(cudaEventRecord(second, b));
        wait_for(a, second);
    }
    finish();
    const standin_order_counts counts = standin_count_order();
    close_parts();
    return counts;
}

/* Not the time, which other work on the machine changes, but what it is made of. */
static void cost_when_a_run_is_longer_then_grows_as_it_does(void **state)
{
    (void)state;
    const standin_order_counts some = count_steps(20), more = count_steps(200);
    assert_int_equal(more.ranges, 10 * some.ranges);
    assert_true(more.visits <= 11 * some.visits);
    assert_true(more.visits <= 3 * more.ranges);
    assert_int_equal(more.kept_most, some.kept_most);
    assert_true(some.kept_most <= 24);
}

/* ---- set-up ---- */

int main(void)
{
#define AFRESH(test) cmocka_unit_test_setup_teardown(test, reset, check_end)
    const struct CMUnitTest tests[] = {
        AFRESH(order_when_it_is_missing_then_both_sides_are_named),
        AFRESH(memory_when_locked_anew_by_another_thread_then_is_other_memory),
        AFRESH(touch_when_outside_of_what_was_declared_is_a_fault),
        AFRESH(word_when_nobody_wrote_its_value_is_a_fault),
        AFRESH(word_when_queues_reach_a_mark_out_of_turn_is_no_fault),
        AFRESH(programs_when_random_then_agree_with_sets_of_predecessors),
        AFRESH(cost_when_a_run_is_longer_then_grows_as_it_does),
    };
    return cmocka_run_group_tests_name("order", tests, enter_scratch, leave_scratch);
}
