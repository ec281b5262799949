/* What could be wrong when the engine's disk tier goes wrong: a failure does not say what failed,
 * is forgotten, or hangs; a killed process leaves a file; a plan that the store cannot serve is not
 * refused; refusing leaks.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_disk_place.h"

/* ---- failures ---- */

static void expect_failure(sl_engine *engine, const char *what, const char *reason)
{
    uint64_t word;
    static const sl_step_scalars scalars = {.learning_rate = 0.5f};
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < 3 && status == SL_OK; i++)
        status = sl_engine_step(engine, TRAIN_PLAN, &scalars);
    for (int again = 0; again < 3; again++) {
        assert_int_equal(status, SL_ERROR_IO);
        if (!strstr(sl_status_message(), what) || !strstr(sl_status_message(), reason))
            fail_msg("\"%s\" does not say \"%s\" and \"%s\"", sl_status_message(), what, reason);
        status = again == 0   ? sl_engine_drain(engine)
                 : again == 1 ? sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 0, 8, &word)
                              : sl_engine_step(engine, EVAL_PLAN, &scalars);
    }
}

/* The third write of a first step is the activation's or the gradient's, for they wait for more. */
static void lane_when_it_fails_names_what_and_why_for_good(void **state)
{
    (void)state;
    static const struct {
        int lanes;
        uint64_t first;
        const char *what;
    } rows[] = {
        {DOUBLE_READS, 1, "reading chunk 0 of group param on the read lane"},
        {DOUBLE_READS, 2, "reading activation h.0.spill on the read lane"},
        {DOUBLE_READS, 3, "reading chunk 0 of group moment1 on the read lane"},
        {DOUBLE_WRITES, 1, "writing activation h.0.spill on the write lane"},
        {DOUBLE_WRITES, 2, "writing chunk 0 of group grad on the write lane"},
        {DOUBLE_WRITES, 5, "writing chunk 0 of group moment2 on the write lane"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        disk_world d;
        world_numbers numbers;
        store_double_arm((store_double_plan){.seed = i});
        disk_world_init(&d, directory.text, &store_double_ops);
        sl_engine *engine = open_world(&d.w);
        start_numbers(engine, &numbers);
        write_numbers(engine, SL_GROUP_STATE1, 0, 0); /* what was never written is not read */
        assert_int_equal(sl_engine_drain(engine), SL_OK);
        store_double_arm((store_double_plan){.seed = i,
                                             .kind = DOUBLE_ERRNO,
                                             .error = EIO,
                                             .lanes = rows[i].lanes,
                                             .first = rows[i].first,
                                             .all_after = 1});
        expect_failure(engine, rows[i].what, "Input/output error");
        sl_engine_close(engine);
    }
}

/* Takes both bounce pieces for other chunks. */
static sl_status write_elsewhere(sl_engine *engine)
{
    uint64_t word = 2;
    SL_TRY(sl_engine_write_chunk(engine, SL_GROUP_STATE1, 0, 8, 8, &word));
    return sl_engine_write_chunk(engine, SL_GROUP_GRAD, 0, 8, 8, &word);
}

static void fail_boundary(int needs_it)
{
    static const sl_step_scalars scalars = {.learning_rate = 0.5f};
    disk_world d;
    uint64_t word = 1;
    disk_world_init(&d, directory.text, &store_double_ops);
    sl_engine *engine = open_world(&d.w);
    write_numbers(engine, SL_GROUP_STATE2, 0, 5);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    store_double_arm((store_double_plan){
        .seed = 1, .kind = DOUBLE_ERRNO, .error = ENOSPC, .lanes = DOUBLE_WRITES, .first = 1});
    /* The write is put off until somebody needs it done. */
    assert_int_equal(sl_engine_write_chunk(engine, SL_GROUP_STATE2, 0, 8, 8, &word), SL_OK);
    if (needs_it == 0)
        assert_int_equal(sl_engine_drain(engine), SL_ERROR_IO);
    else if (needs_it == 1)
        assert_int_equal(sl_engine_step(engine, TRAIN_PLAN, &scalars), SL_ERROR_IO);
    else
        assert_int_equal(write_elsewhere(engine), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), "writing chunk 0 of group moment2"));
    expect_failure(engine, "writing chunk 0 of group moment2", "No space left");
    sl_engine_close(engine);
}

static void boundary_when_the_disk_fails_returns_it_for_good(void **state)
{
    (void)state;
    for (int needs_it = 0; needs_it < 3; needs_it++)
        fail_boundary(needs_it);
}

static void open_when_there_is_no_directory_says_what_to_do(void **state)
{
    (void)state;
    disk_world d;
    sl_engine *engine = NULL;
    disk_world_init(&d, directory.text, NULL);
    d.w.options.disk_directory_count = 0;
    assert_int_equal(sl_engine_open_with(&d.w.options, &d.w.parts, &engine), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--disk-dir"));
    d.w.options.disk_directory_count = 1;
    d.directories[0] = "/nowhere/at/all";
    assert_int_equal(sl_engine_open_with(&d.w.options, &d.w.parts, &engine), SL_ERROR_MISSING);
    assert_non_null(strstr(sl_status_message(), "/nowhere/at/all"));
    assert_null(engine);
}

/* Without anything on disk the directories are not asked for, nor looked at. */
static void open_when_nothing_is_on_disk_needs_no_directory(void **state)
{
    (void)state;
    static const char *const nowhere[] = {"/nowhere/at/all"};
    world w;
    world_init(&w);
    w.options.disk_directories = nowhere;
    w.options.disk_directory_count = 1;
    sl_engine *engine = open_world(&w);
    assert_string_equal(sl_engine_disk_description(engine), "");
    sl_engine_close(engine);
}

/* ---- killed ---- */

/* Steps for ever; tells the parent by `pipe` when the first are done. */
static void step_until_killed(int pipe)
{
    static disk_world d;
    sl_engine *engine = NULL;
    uint64_t output;
    disk_world_init(&d, directory.text, NULL);
    if (sl_engine_open_with(&d.w.options, &d.w.parts, &engine) != SL_OK)
        _exit(1);
    for (uint32_t i = 0; step(engine, TRAIN_PLAN, i, i, &output) == SL_OK; i++)
        if (i == 3 && write(pipe, "x", 1) != 1)
            _exit(2);
    _exit(3);
}

/* That the directory is empty afterwards is checked for every test, when it ends. */
static void process_when_killed_leaves_nothing_behind(void **state)
{
    (void)state;
    int ends[2], status;
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        step_until_killed(ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);
}

/* ---- plans that must be refused ---- */

static void break_home_alignment(disk_world *d)
{
    d->w.offset[SL_GROUP_STATE1][0] += SL_DIRECT_ALIGNMENT;
}
static void break_home_range(disk_world *d)
{
    d->w.offset[SL_GROUP_STATE1][0] = DISK_SPILL + SL_DISK_ALIGNMENT;
}
static void break_bounce(disk_world *d)
{
    d->w.homes.bounce_bytes = SL_BOUNCE_BYTES - 4096;
}
static void break_bounce_range(disk_world *d)
{
    d->w.homes.bounce_offset += 4096;
}
static void break_disk_alignment(disk_world *d)
{
    d->body[1].from.offset += SL_DIRECT_ALIGNMENT;
}
static void break_host_alignment(disk_world *d)
{
    d->body[1].to.offset += 256;
}
static void break_disk_range(disk_world *d)
{
    d->body[5].to.offset = DISK_SPILL + SL_DISK_ALIGNMENT;
}
static void break_host_range(disk_world *d)
{
    d->body[5].from.offset = DISK_HOST_PEAK;
}
static void break_lengths(disk_world *d)
{
    d->body[5].to.bytes = d->body[5].from.bytes * 2;
}
static void break_direction(disk_world *d)
{
    d->body[1].lane = SL_LANE_WRITE;
}
static void break_lane(disk_world *d)
{
    d->body[1].lane = SL_LANE_H2D;
}
static void break_device_end(disk_world *d)
{
    d->body[1].to.tier = SL_TIER_DEVICE;
}
static void break_kind(disk_world *d)
{
    d->body[3].lane = SL_LANE_READ;
}
static void break_group(disk_world *d)
{
    d->body[1].group = (sl_group)7;
}
static void break_operand(disk_world *d)
{
    d->w.places[4] = disk_place(SL_TIER_DISK, 0, 4096);
}
static void break_peak(disk_world *d)
{
    d->w.homes.fixed_bytes[SL_TIER_DISK] = UINT64_MAX - 5;
}

static void open_when_a_plan_is_broken_fails_and_frees(void **state)
{
    (void)state;
    void (*const breaks[])(disk_world *) = {
        break_home_alignment, break_home_range, break_bounce,     break_bounce_range,
        break_disk_alignment, break_host_range, break_disk_range, break_host_alignment,
        break_lengths,        break_direction,  break_lane,       break_device_end,
        break_kind,           break_group,      break_operand,    break_peak,
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        disk_world d;
        sl_engine *engine = NULL;
        disk_world_init(&d, directory.text, &store_double_ops);
        breaks[i](&d);
        (void)sl_status_fail(SL_ERROR_USAGE, "%s", "");
        sl_status status = sl_engine_open_with(&d.w.options, &d.w.parts, &engine);
        if (status == SL_OK || engine || sl_status_message()[0] == '\0')
            fail_msg("break %zu was accepted", i);
        assert_int_equal(double_disk.user_count, 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lane_when_it_fails_names_what_and_why_for_good),
        TEST(boundary_when_the_disk_fails_returns_it_for_good),
        TEST(open_when_there_is_no_directory_says_what_to_do),
        TEST(open_when_nothing_is_on_disk_needs_no_directory),
        TEST(process_when_killed_leaves_nothing_behind),
        TEST(open_when_a_plan_is_broken_fails_and_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
