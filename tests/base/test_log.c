/* What could be wrong in log lines: one that goes to another receiver than that of the thread, from
 * the thread itself or from a thread that was started for it; a receiver that stays behind its
 * block; a line that is cut wrongly or obeyed by a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/queue.h"
#include "base/workers.h"

enum { TILES = 64, WORKERS = 3, LINE_BYTES = 1024 };

/* The lock of the log guards it. */
typedef struct heard {
    uint32_t count;
    sl_log_level level;
    char line[LINE_BYTES];
} heard;

static void hear(void *user, sl_log_level level, const char *line)
{
    heard *self = user;
    self->count++;
    self->level = level;
    strncpy(self->line, line, sizeof self->line - 1);
}

static sl_status write_in_queue(void *arguments)
{
    (void)arguments;
    sl_log_write(SL_LOG_NOTE, "of a queue");
    return SL_OK;
}

static void write_in_tile(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)worker;
    sl_log_write(SL_LOG_NOTE, "of tile %u", (unsigned)tile);
}

/* Opens both while `receiver` is entered, and uses them when it is not. */
static void write_everywhere(const sl_log_receiver *receiver)
{
    sl_queue *queue = NULL;
    sl_workers *workers = NULL;
    {
        SL_LOG_ENTER(receiver);
        sl_log_write(SL_LOG_NOTE, "of the thread");
        assert_int_equal(sl_queue_open("log", 4, NULL, &queue), SL_OK);
        assert_int_equal(sl_workers_open(WORKERS, &workers), SL_OK);
    }
    assert_int_equal(sl_queue_call(queue, 0, write_in_queue, NULL, 0), SL_OK);
    assert_int_equal(sl_queue_finish(queue), SL_OK);
    {
        SL_LOG_ENTER(receiver); /* of the calling thread, which takes tiles, too */
        sl_workers_run(workers, TILES, write_in_tile, NULL);
    }
    sl_workers_close(workers);
    sl_queue_close(queue);
}

static void lines_when_a_receiver_is_entered_go_to_it_from_all_threads(void **state)
{
    (void)state;
    static heard own, of_process;
    const sl_log_receiver receiver = {hear, &own}, none = {NULL, NULL};
    sl_log_set_callback(hear, &of_process);
    write_everywhere(&receiver);
    assert_int_equal(own.count, 2 + TILES);
    assert_int_equal(of_process.count, 0);
    assert_null(sl_log_entered());
    write_everywhere(&none);
    assert_int_equal(of_process.count, 2 + TILES);
    sl_log_write(SL_LOG_WARNING, "of nobody");
    assert_int_equal(own.count, 2 + TILES);
    assert_int_equal(of_process.level, SL_LOG_WARNING);
    assert_string_equal(of_process.line, "of nobody");
    sl_log_set_callback(NULL, NULL);
    sl_log_write(SL_LOG_WARNING, "dropped");
    assert_int_equal(of_process.count, 3 + TILES);
}

static void lines_when_long_or_with_control_bytes_are_cut_and_escaped(void **state)
{
    (void)state;
    static heard own;
    static char text[2 * LINE_BYTES];
    const sl_log_receiver receiver = {hear, &own};
    SL_LOG_ENTER(&receiver);
    memset(text, 'x', sizeof text - 1);
    sl_log_write(SL_LOG_NOTE, "%s", text);
    const size_t length = strlen(own.line); /* its end leaves room for an escaped byte */
    assert_true(length < LINE_BYTES && length >= LINE_BYTES - 8);
    assert_int_equal(strspn(own.line, "x"), length);
    memset(own.line, 0, sizeof own.line);
    sl_log_write(SL_LOG_NOTE, "a\x1b[2Jb");
    assert_string_equal(own.line, "a\\x1b[2Jb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_when_a_receiver_is_entered_go_to_it_from_all_threads),
        cmocka_unit_test(lines_when_long_or_with_control_bytes_are_cut_and_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
