/* What could be wrong with memory that is taken: a step that allocates; an open that crashes,
 * hangs, leaks or says nothing when an allocation is refused. This program puts counting functions
 * before the C library's allocator: it counts the calls of every thread during steps, and refuses
 * each allocation of an open in turn. Not under sanitizers, which have allocators of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_steps.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_ALLOCATOR 1
#endif
#endif

#ifdef HAS_OWN_ALLOCATOR
int main(void)
{
    puts("skipped: the sanitizer has an allocator of its own");
    return 77;
}
#else

static _Atomic int64_t live_count;
static _Atomic uint64_t call_count;
static _Atomic int64_t refused_at = -1; /* calls until the one that is refused; -1: none */

/* The C library's own allocator, by the names that it exports. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static int is_refused(void)
{
    atomic_fetch_add(&call_count, 1);
    if (atomic_load(&refused_at) < 0)
        return 0;
    return atomic_fetch_sub(&refused_at, 1) == 0;
}

static void *count_live(void *memory)
{
    if (memory)
        atomic_fetch_add(&live_count, 1);
    return memory;
}

void *malloc(size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_calloc(count, bytes));
}

void *realloc(void *memory, size_t bytes)
{
    if (is_refused())
        return NULL;
    return memory ? __libc_realloc(memory, bytes) : count_live(__libc_realloc(NULL, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_memalign(alignment, bytes));
}

void free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live_count, 1);
    __libc_free(memory);
}

static void step_when_running_allocates_nothing(void **state)
{
    (void)state;
    world w;
    uint64_t output;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    uint64_t before = call_count;
    for (uint32_t i = 0; i < 200; i++) /* the first ones too, and both prologues */
        assert_int_equal(step(engine, i % 7 == 6 ? EVAL_PLAN : TRAIN_PLAN, i, i, &output), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    assert_int_equal(call_count, before);
    sl_engine_close(engine);
    assert_int_equal(fakes.wrong, 0);
}

/* Opens with the n-th allocation refused; returns whether that made the open fail. */
static int open_refused(int64_t n)
{
    world w;
    sl_engine *engine = NULL;
    world_init(&w);
    (void)sl_status_fail(SL_ERROR_USAGE, "%s", "");
    atomic_store(&refused_at, n);
    sl_status status = sl_engine_open_with(&w.options, &w.parts, &engine);
    int was_reached = atomic_load(&refused_at) < 0;
    atomic_store(&refused_at, -1);
    if (status == SL_OK) {
        sl_engine_close(engine);
        return !was_reached ? 0 : 1; /* qsort, for one, does without */
    }
    assert_int_equal(status, SL_ERROR_SYSTEM);
    assert_null(engine);
    assert_true(was_reached && sl_status_message()[0] != '\0');
    return 1;
}

static void open_when_an_allocation_is_refused_fails_and_frees(void **state)
{
    (void)state;
    enum { REPEATS = 10 };
    int64_t n = 0;
    for (int64_t before = live_count; open_refused(n); n++, before = live_count) {
        for (int i = 1; i < REPEATS; i++)
            (void)open_refused(n);
        /* The C library keeps some threads' stacks; a leak would show in each repeat. */
        if (live_count - before >= REPEATS)
            fail_msg("refusing allocation %d leaks", (int)n);
    }
    print_message("%d allocations refused in turn\n", (int)n);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_running_allocates_nothing),
        cmocka_unit_test(open_when_an_allocation_is_refused_fails_and_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
