/* What could be wrong with memory that is taken: a step that allocates; an open that crashes,
 * hangs, leaks or says nothing when an allocation is refused. This program puts counting functions
 * before the C library's allocator: it counts the calls of every thread during steps, and refuses
 * each allocation of an open in turn. Not under sanitizers, which have allocators of their own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>

#include "engine_disk_world.h"
#include "engine_loops.h"
#include "refused_allocations.h"
#include "scratch_dir.h"

#if !SL_ALLOCATIONS_ARE_REFUSED
int main(void)
{
    puts("skipped: the sanitizer has an allocator of its own");
    return 77;
}
#else

static _Atomic uint64_t call_count;
static _Atomic int64_t refused_at = -1; /* calls until the one that is refused; -1: none */

static bool is_refused(void)
{
    atomic_fetch_add(&call_count, 1);
    if (atomic_load(&refused_at) < 0)
        return false;
    return atomic_fetch_sub(&refused_at, 1) == 0;
}

/* A world, with its chunk 0 on the host or, in a directory of its own, on disk. */
typedef struct test_world {
    disk_world d;
    scratch_path directory; /* "" without a disk */
} test_world;

static world *set_up(test_world *t, bool has_disk)
{
    t->directory.text[0] = '\0';
    if (!has_disk) {
        world_init(&t->d.w);
        return &t->d.w;
    }
    t->directory = scratch_open();
    disk_world_init(&t->d, t->directory.text, NULL);
    return &t->d.w;
}

static void tear_down(const test_world *t)
{
    if (t->directory.text[0])
        assert_int_equal(rmdir(t->directory.text), 0); /* nothing was left in it */
}

static void run_and_count(bool has_disk)
{
    test_world t;
    uint64_t output;
    sl_engine *engine = open_world(set_up(&t, has_disk));
    print_message("disk: \"%s\"\n", sl_engine_disk_description(engine));
    uint64_t before = call_count;
    for (uint32_t i = 0; i < 200; i++) /* the first ones too, and both prologues */
        assert_int_equal(step(engine, i % 7 == 6 ? EVAL_PLAN : TRAIN_PLAN, i, i, &output), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    assert_int_equal(call_count, before);
    sl_engine_close(engine);
    assert_int_equal(fakes.wrong, 0);
    tear_down(&t);
}

static void step_when_running_allocates_nothing(void **state)
{
    (void)state;
    run_and_count(false);
}

static void step_when_chunks_live_on_disk_allocates_nothing(void **state)
{
    (void)state;
    run_and_count(true);
}

static void step_when_it_has_loops_allocates_nothing(void **state)
{
    (void)state;
    enum { REPEAT = 300 };
    loop_world w;
    uint64_t control, host_sum = 0;
    scratch_path directory = scratch_open();
    for (int with_disk = 0; with_disk < 2; with_disk++) {
        loop_world_init(&w, REPEAT, with_disk ? directory.text : NULL);
        sl_engine *engine = loop_open(&w);
        uint64_t before = call_count;
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(loop_step(engine, i, &control), SL_OK);
            assert_int_equal(control, loop_expect(i, REPEAT, &host_sum));
        }
        assert_int_equal(sl_engine_drain(engine), SL_OK);
        assert_int_equal(call_count, before);
        sl_engine_close(engine);
    }
    assert_int_equal(rmdir(directory.text), 0);
}

/* Opens with the n-th allocation refused; returns whether that made the open fail. */
static int open_refused(const sl_engine_options *options, const sl_engine_parts *parts, int64_t n)
{
    sl_engine *engine = NULL;
    (void)sl_status_fail(SL_ERROR_USAGE, "%s", "");
    atomic_store(&refused_at, n);
    sl_status status = sl_engine_open_with(options, parts, &engine);
    int was_reached = atomic_load(&refused_at) < 0;
    atomic_store(&refused_at, -1);
    if (status == SL_OK) {
        sl_engine_close(engine);
        return !was_reached ? 0 : 1; /* qsort, for one, does without */
    }
    if (status != SL_ERROR_SYSTEM && !strstr(sl_status_message(), "Cannot allocate memory"))
        fail_msg("refusing allocation %d: %s", (int)n, sl_status_message());
    assert_null(engine);
    assert_true(was_reached && sl_status_message()[0] != '\0');
    return 1;
}

/* Files that are open; the listing's own counts every time. */
static int count_files(void)
{
    int count = 0;
    DIR *stream = opendir("/proc/self/fd");
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

static void refuse_each_of(const sl_engine_options *options, const sl_engine_parts *parts)
{
    enum { REPEATS = 10 };
    int64_t n = 0;
    int files = count_files();
    for (int64_t before = live_count; open_refused(options, parts, n); n++, before = live_count) {
        for (int i = 1; i < REPEATS; i++)
            (void)open_refused(options, parts, n);
        /* The C library keeps some threads' stacks; a leak would show in each repeat. */
        if (live_count - before >= REPEATS)
            fail_msg("refusing allocation %d leaks", (int)n);
        assert_int_equal(count_files(), files);
    }
    print_message("%d allocations refused in turn\n", (int)n);
    assert_true(n > 20);
}

static void refuse_each(bool has_disk)
{
    static test_world t;
    const world *w = set_up(&t, has_disk);
    refuse_each_of(&w->options, &w->parts);
    tear_down(&t);
}

static void open_when_an_allocation_is_refused_fails_and_frees(void **state)
{
    (void)state;
    refuse_each(false);
}

static void open_when_an_allocation_is_refused_and_chunks_live_on_disk_frees(void **state)
{
    (void)state;
    refuse_each(true);
}

static void open_when_an_allocation_is_refused_and_plans_have_loops_frees(void **state)
{
    (void)state;
    loop_world w;
    loop_world_init(&w, 3, NULL);
    refuse_each_of(&w.options, &w.parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_running_allocates_nothing),
        cmocka_unit_test(step_when_chunks_live_on_disk_allocates_nothing),
        cmocka_unit_test(step_when_it_has_loops_allocates_nothing),
        cmocka_unit_test(open_when_an_allocation_is_refused_fails_and_frees),
        cmocka_unit_test(open_when_an_allocation_is_refused_and_plans_have_loops_frees),
        cmocka_unit_test(open_when_an_allocation_is_refused_and_chunks_live_on_disk_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
