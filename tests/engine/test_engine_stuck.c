/* What could be wrong when a request of the disk tier never comes back below a running engine: a
 * step, a drain or the closing hangs; the failure does not say what was on its way, where and for
 * how long, or is forgotten; the file stays open, and its space taken, after the engine is gone;
 * an answer that comes later touches what is gone. Every request of a short run is lost in turn
 * (under sanitizers one of four), over real files and threads; the limit is 0.8 s where the default
 * is two minutes, and no less: on a busy machine a thread may wait some tenths of a second to be
 * scheduled. What is gone above all: memory that the system may still write to must stay where it
 * is.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine_disk_place.h"
#include "lost_answer.h"
#include "sanitizer_share.h"

enum { LIMIT_MS = 800, SLOW_MS = 60000, HANG_SECONDS = 600 };
/* Below that of a request, whose message names the file. */
static const double LANES_LIMIT_S = 0.6;

/* Numbers are set, and with two steps of training and one of evaluation all kinds of moves run. */
static sl_status run_steps(sl_engine *engine)
{
    uint64_t word = 3, output;
    SL_TRY(sl_engine_write_chunk(engine, SL_GROUP_PARAM, 0, 0, sizeof word, &word));
    SL_TRY(sl_engine_write_chunk(engine, SL_GROUP_STATE1, 0, 0, sizeof word, &word));
    for (uint32_t i = 0; i < 2; i++)
        SL_TRY(step(engine, TRAIN_PLAN, i, i, &output));
    SL_TRY(step(engine, EVAL_PLAN, 0, 0, &output));
    SL_TRY(sl_engine_drain(engine));
    return sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 0, sizeof word, &word);
}

static void check_message(void)
{
    static const char *const parts[] = {"of the disk tier's file", " bytes at offset ",
                                        "the system has not finished it for ",
                                        "stays taken until this process ends"};
    const char *message = sl_status_message();
    bool has_lane = (strstr(message, "reading ") && strstr(message, " on the read lane: ")) ||
                    (strstr(message, "writing ") && strstr(message, " on the write lane: "));
    bool has_what = strstr(message, " chunk 0 of group ") || strstr(message, " activation h.0.");
    if (!has_lane || !has_what || !strstr(message, directory.text))
        fail_msg("\"%s\" does not say what was on its way", message);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(message, parts[i]))
            fail_msg("\"%s\" is not in \"%s\"", parts[i], message);
}

static void check_dead(sl_engine *engine)
{
    uint64_t output;
    assert_int_equal(sl_engine_drain(engine), SL_ERROR_IO);
    check_message();
    assert_int_equal(step(engine, TRAIN_PLAN, 1, 0, &output), SL_ERROR_IO);
    check_message();
}

/* Descriptors of nameless files count too: their links begin with the directory's name. */
static void check_files_are_closed(void)
{
    DIR *own = opendir("/proc/self/fd");
    assert_non_null(own);
    for (struct dirent *entry = readdir(own); entry; entry = readdir(own)) {
        char link[SCRATCH_PATH_BYTES] = "";
        if (readlinkat(dirfd(own), entry->d_name, link, sizeof link - 1) > 0 &&
            strncmp(link, directory.text, strlen(directory.text)) == 0)
            fail_msg("%s is still open", link);
    }
    closedir(own);
}

/* The answer comes when nobody is left to take it. */
static void let_answer_come(void)
{
    assert_int_equal(sem_post(&lost.answer), 0);
    while (lost.returned < lost.held)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool is_mapped(const void *memory)
{
    unsigned char is_resident;
    return mincore((void *)(uintptr_t)memory, 1, &is_resident) == 0;
}

/* The system may still write there when the engine is gone. */
static void close_and_check_memory(sl_engine *engine, bool is_lost)
{
    const void *host = sl_engine_arena(engine, SL_TIER_HOST);
    sl_engine_close(engine);
    assert_int_equal(is_mapped(host), is_lost);
}

static void run_losing(uint64_t request)
{
    disk_world d;
    disk_world_init(&d, directory.text, &sl_transport_threads);
    d.w.parts.disk_limit_ms = request == 0 ? SLOW_MS : LIMIT_MS;
    d.w.options.timeout_s = request == 0 ? 0 : LANES_LIMIT_S;
    sl_engine *engine = open_world(&d.w);
    lost_answer_arm(request);
    uint64_t start_ns = sl_clock_now_ns();
    sl_status status = run_steps(engine);
    assert_int_equal(status, request == 0 ? SL_OK : SL_ERROR_IO);
    if (request != 0) {
        check_message();
        check_dead(engine);
    }
    close_and_check_memory(engine, request != 0);
    assert_true(sl_clock_now_ns() - start_ns < SLOW_MS * UINT64_C(1000000));
    check_files_are_closed();
    if (lost.held)
        let_answer_come();
}

static void request_when_it_never_comes_back_ends_the_run(void **state)
{
    (void)state;
    alarm(HANG_SECONDS);
    assert_int_equal(sem_init(&lost.answer, 0, 0), 0);
    run_losing(0);
    uint64_t count = lost.counts;
    assert_true(count > 20);
    for (uint64_t request = 1; request <= count; request += SANITIZER_SHARE)
        run_losing(request);
    alarm(0);
    print_message("%d requests, one of %d lost in turn\n", (int)count, (int)SANITIZER_SHARE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(request_when_it_never_comes_back_ends_the_run, open_scratch,
                                        close_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
