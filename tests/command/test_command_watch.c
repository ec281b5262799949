/* What could be wrong in watching a run: its logs do not agree with each other; a run that goes on
 * loses what was logged before, or mixes it up; times that are no part of the step; too many lines,
 * or none at the end; a live line that wraps and fills the terminal. Every case runs the built
 * command; a terminal is a pseudo-terminal of a width of choice. */
#define _GNU_SOURCE
#include "command_run.h"

#include <signal.h>
#include <time.h>

#include "base/rng.h"
#include "event_decoder.h"
#include "screen.h"

#define LOGS "--log-json log --log-csv table --tensorboard events "

enum { CELL_MAX = 64, ROW_MAX = 64 };

/* ---- logs of the same run ---- */

typedef struct table {
    char text[TEXT_BYTES];
    char *cells[ROW_MAX][CELL_MAX]; /* row 0: names */
    int rows, columns;
} table;

static void read_table(const char *name, table *out)
{
    char *rest_lines = NULL, *rest = NULL;
    memset(out, 0, sizeof *out);
    read_text(name, out->text);
    for (char *line = strtok_r(out->text, "\n", &rest_lines); line;
         line = strtok_r(NULL, "\n", &rest_lines)) {
        int count = 0;
        assert_true(out->rows < ROW_MAX);
        for (char *cell = strtok_r(line, ",", &rest); cell; cell = strtok_r(NULL, ",", &rest)) {
            assert_true(count < CELL_MAX);
            out->cells[out->rows][count++] = cell;
        }
        out->columns = out->rows ? out->columns : count;
        assert_int_equal(count, out->columns);
        out->rows++;
    }
}

static double cell_of(const table *from, int row, const char *name)
{
    for (int i = 0; i < from->columns; i++)
        if (strcmp(from->cells[0][i], name) == 0)
            return strtod(from->cells[row][i], NULL);
    fail_msg("no column %s", name);
    return 0;
}

/* Event number `index` of a kind, from 0; borrowed. */
static const json_t *find_event(const json_t *events, const char *kind, int index)
{
    size_t i;
    json_t *event;
    json_array_foreach((json_t *)events, i, event)
    {
        if (strcmp(kind_of(event), kind) == 0 && index-- == 0)
            return event;
    }
    fail_msg("not as many events %s", kind);
    return NULL;
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

/* One step in the three logs. */
static void check_agreement(const json_t *step, const table *rows, int row,
                            const decoded_event *event)
{
    static const struct {
        const char *name, *tag;
    } pairs[] = {{"loss", "train/loss"},
                 {"grad_norm", "train/grad_norm"},
                 {"lr", "train/lr"},
                 {"loss_scale", "train/loss_scale"},
                 {"tokens_per_s", "speed/tokens_per_s"},
                 {"step_ms", "time/step_ms"},
                 {"forward_ms", "time/forward_ms"},
                 {"backward_ms", "time/backward_ms"},
                 {"update_ms", "time/update_ms"},
                 {"checkpoint_ms", "time/checkpoint_ms"},
                 {"device_bytes", "memory/device_bytes"}};
    assert_int_equal(event->step, json_integer_value(json_object_get(step, "step")));
    assert_true(cell_of(rows, row, "step") == (double)event->step);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        double number = number_of(step, pairs[i].name);
        assert_true(cell_of(rows, row, pairs[i].name) == number);
        /* Times are written with six digits. */
        assert_true(fabs(decode_tag(event, pairs[i].tag) - number) <= 1e-5 * fabs(number));
    }
}

static void logs_when_of_one_run_agree(void **state)
{
    (void)state;
    static table rows;
    assert_code(sluice("train " TINY "--data text --steps 5 --eval-data text --eval-every 3 "
                       "--eval-iters 2 " LOGS),
                0);
    json_t *events = read_log("log");
    read_table("table", &rows);
    decoded_file file = decode_directory("events", 0, 1);
    assert_int_equal(rows.rows, 1 + 5);
    assert_int_equal(file.count, 2 + 5 + 2); /* and the evaluations after steps 3 and 5 */
    assert_int_equal(file.events[1].step, 1);
    for (int i = 0; i < 5; i++)
        check_agreement(find_event(events, "step", i), &rows, 1 + i,
                        &file.events[2 + i + (i >= 3)]);
    for (int i = 0; i < 2; i++) {
        const json_t *eval = find_event(events, "eval", i);
        const decoded_event *event = &file.events[i ? 8 : 5];
        assert_int_equal(event->step, i ? 5 : 3);
        assert_string_equal(json_string_value(json_object_get(eval, "set")), "eval");
        assert_true(decode_tag(event, "eval/loss") == (float)number_of(eval, "loss"));
        assert_true(decode_tag(event, "eval/perplexity") == (float)number_of(eval, "perplexity"));
    }
    decode_close(&file);
    json_decref(events);
    assert_has(output, "eval at step 3: loss ");
}

/* With nothing but --resume: what was asked for is asked for again. A checkpoint that is older than
 * the last step logged takes the run back there. */
static void logs_when_a_run_goes_on_go_on_too(void **state)
{
    (void)state;
    static table rows;
    assert_code(sluice("train " TINY "--data text --steps 6 --save saved --save-every 2 --log-csv "
                       "long --tensorboard board --log-json lines --log-every 2 --lr-schedule "
                       "constant"),
                0);
    assert_int_equal(system("rm -r saved/step-00000006"), 0);
    assert_code(sluice("train --resume --save saved --steps 7"), 0);
    assert_has(output, "step 5/7");
    assert_has(output, "step 6/7");
    read_table("long", &rows);
    static const int steps[] = {1, 2, 3, 4, 5, 6, 5, 6, 7};
    assert_int_equal(rows.rows, 1 + 9);
    for (int i = 0; i < 9; i++)
        assert_true(cell_of(&rows, 1 + i, "step") == steps[i]);
    decoded_file first = decode_directory("board", 0, 2), second = decode_directory("board", 1, 2);
    assert_int_equal(first.count, 2 + 6);
    assert_int_equal(second.count, 2 + 3);
    assert_true(first.events[1].is_start && first.events[1].step == 1);
    assert_true(second.events[1].is_start && second.events[1].step == 5); /* 5 and 6 do not count */
    assert_int_equal(second.events[2].step, 5);
    for (int i = 0; i < 2; i++)
        assert_true(decode_tag(&second.events[2 + i], "train/loss") ==
                    decode_tag(&first.events[6 + i], "train/loss"));
    decode_close(&first);
    decode_close(&second);
    /* A table of other columns is not gone on with, and nothing was trained. */
    assert_int_equal(system("echo step,loss >other"), 0);
    assert_code(sluice("train --resume --save saved --steps 9 --log-csv other"), 64);
    assert_one_complaint("other columns");
    assert_int_not_equal(access("saved/step-00000009", F_OK), 0);
}

/* A path that was mistaken costs nothing: the data stay, and nothing was trained. */
static void logs_when_the_file_is_something_else_then_refused(void **state)
{
    (void)state;
    static const char *const options[] = {"--overwrite --log-csv", "--overwrite --log-json",
                                          "--resume --log-json"};
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save mistaken"), 0);
    assert_int_equal(system("cp text precious"), 0);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        assert_code(
            sluice("train " TINY "--data text --steps 2 --save mistaken %s precious", options[i]),
            64);
        assert_one_complaint("precious: is there and is no such log");
        assert_int_equal(system("cmp -s text precious"), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_code(sluice("train " TINY "--data text --steps 2 --log-csv again --log-json more"),
                    0);
}

/* ---- times ---- */

/* The compute lane does one thing at a time, and forward and backward are over when a step returns.
 */
static void check_times(const char *options, bool is_update_on_compute_lane)
{
    struct timespec before, after;
    double in_ops = 0;
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_code(sluice("train " TINY "--data text --steps 8 --accumulate 2 --save times "
                       "--save-every 3 --overwrite --quiet --log-json log %s",
                       options),
                0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    json_t *events = read_log("log");
    double update = 0, saves = 0;
    for (int i = 0; i < 8; i++) {
        const json_t *step = find_event(events, "step", i);
        double forward = number_of(step, "forward_ms"), backward = number_of(step, "backward_ms");
        assert_true(forward > 0 && backward > 0);
        assert_true(forward + backward <= number_of(step, "step_ms"));
        bool has_save = i == 3 || i == 6; /* the steps after those that were saved */
        assert_true((number_of(step, "checkpoint_ms") > 0) == has_save);
        in_ops += forward + backward;
        update += number_of(step, "update_ms");
        saves += number_of(step, "checkpoint_ms");
    }
    double wall_ms = 1e3 * (double)(after.tv_sec - before.tv_sec) +
                     1e-6 * (double)(after.tv_nsec - before.tv_nsec);
    assert_true(update > 0);
    assert_true(in_ops + (is_update_on_compute_lane ? update : 0) + saves <= wall_ms);
    assert_true(update <= 2 * wall_ms); /* of two lanes */
    assert_true(number_of(find_event(events, "end", 0), "checkpoint_ms") > saves); /* the last */
    json_decref(events);
}

static void times_when_logged_are_parts_of_the_run(void **state)
{
    (void)state;
    check_times("--policy device", true);
    check_times("--policy host", false);
    check_times("--policy host --recompute full --accumulation layer", false);
}

/* ---- lines ---- */

static int count_in(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static void lines_when_there_is_no_terminal_come_as_often_as_asked(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 11 --log-every 4"), 0);
    assert_int_equal(count_in(output, "tok/s"), 4);
    assert_has(output, "\nstep 1/11  loss ");
    assert_has(output, "\nstep 4/11  loss ");
    assert_has(output, "\nstep 8/11  loss ");
    assert_has(output, "\nstep 11/11  loss ");
    assert_null(strchr(output, '\r'));
    assert_null(strchr(output, '\033'));
    /* By default one in ten seconds: of a run of moments the first and the last. */
    assert_code(sluice("train " TINY "--data text --steps 11 --log-every auto --quiet"), 0);
    assert_int_equal(count_in(output, "tok/s"), 0);
    assert_code(sluice("train " TINY "--data text --steps 1"), 0);
    assert_int_equal(count_in(output, "tok/s"), 1);
    assert_code(sluice("train " TINY "--data text --steps 11 --log-every 0"), 64);
}

/* Every name that the page of the options promises stands in a wide line. */
static void lines_when_wide_have_all_parts(void **state)
{
    (void)state;
    static const char *const parts[] = {"step 2/2", "loss ", "norm ", "lr ",    "scale 1024",
                                        " ms",      "tok/s", "left ", "device", "host"};
    assert_code(sluice("train " TINY "--data text --steps 2 --loss-scale 1024"), 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_has(output, parts[i]);
}

/* A log that takes two lines and then none, as a disk that is full: the other logs go on. */
static void table_when_it_takes_no_more_then_the_run_is_saved_and_74(void **state)
{
    (void)state;
    assert_int_equal(system("mkfifo pipe"), 0);
    assert_int_equal(system("(head -n 2 pipe >lines) &"), 0);
    assert_code(sluice("train " TINY "--data text --steps 60 --save unlogged --log-csv pipe "
                       "--log-json log --tensorboard whole"),
                74);
    assert_has(complaint, "sluice: warning: pipe: ");
    assert_has(complaint, "\nsluice: pipe: ");
    assert_int_equal(access("unlogged/step-00000060", F_OK), 0);
    json_t *events = read_log("log");
    assert_int_equal(json_integer_value(json_object_get(find_event(events, "end", 0), "step")), 60);
    json_decref(events);
    decoded_file file = decode_directory("whole", 0, 1);
    assert_int_equal(file.count, 2 + 60);
    decode_close(&file);
}

/* ---- on a terminal ---- */

/* Letters that no two words share, so that each costs its merges. */
static void write_noise(const char *name, uint64_t bytes)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    for (uint64_t i = 0; i < bytes; i++)
        putc(i % 12 == 11 ? ' ' : 'a' + (int)sl_rng_below(1, 0, i, 26), file);
    assert_int_equal(fclose(file), 0);
}

#define DRAWN "\r\033[K"

/* The longest live line of a text, from `from` on; the last one may not be whole yet. */
static size_t find_longest(const char *from, bool is_over)
{
    size_t longest = 0;
    for (const char *at = from; (at = strstr(at, DRAWN));) {
        at += strlen(DRAWN);
        size_t length = strcspn(at, "\r\n");
        if (at[length] == '\0' && !is_over)
            break;
        longest = length > longest ? length : longest;
    }
    return longest;
}

static void live_line_when_the_terminal_is_narrow_does_not_wrap(void **state)
{
    (void)state;
    static const unsigned short widths[] = {8, 20, 40, 60, 80, 100, 132, 300};
    static screen self;
    size_t longest = 0;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        start_on_terminal(&self, widths[i], "xterm", "train " TINY "--data text --steps 3");
        assert_int_equal(end_screen(&self), 0);
        longest = find_longest(self.text, true);
        if (longest >= widths[i])
            fail_msg("%zu of %d columns: %s", longest, widths[i], self.text);
        assert_has(self.text, "step 3");
        if (widths[i] >= 40)
            assert_has(self.text, DRAWN "step 3/3  loss ");
    }
    assert_true(longest > 80); /* all parts */
    assert_has(self.text, "tok/s");
    assert_has(self.text, "left 0:00");
}

/* The line of a command that works through bytes; it stands on standard error. */
static void live_line_when_of_tokenize_does_not_wrap_either(void **state)
{
    (void)state;
    static screen self;
    write_noise("noise", 24 << 20); /* some tenths of a second: a line is drawn after two */
    start_on_terminal(&self, 24, "xterm",
                      "tokenize --tokenizer '" SL_TEST_SOURCE_DIRECTORY "/reference/bpe' "
                      "--threads 1 --data noise --output noise.bin 2>&1 </dev/null #");
    assert_int_equal(end_screen(&self), 0);
    assert_has(self.text, DRAWN "tokenizing  ");
    const size_t longest = find_longest(self.text, true);
    if (longest >= 24)
        fail_msg("%zu of 24 columns: %s", longest, self.text);
    unlink("noise");
}

/* From the first line that fits the new width on, all do. */
static void live_line_when_the_terminal_gets_narrow_follows(void **state)
{
    (void)state;
    static screen self;
    start_on_terminal(&self, 200, "xterm", "train " TINY "--data text --steps 1000000");
    while (find_longest(self.text, false) < 80)
        assert_true(read_screen(&self));
    set_width(self.master, 40);
    self.used = 0;
    self.text[0] = '\0';
    size_t at = 0;
    for (int lines = 0; lines < 3;) {
        assert_true(read_screen(&self));
        const char *next = strstr(self.text + at, DRAWN);
        for (; next && strpbrk(next + strlen(DRAWN), "\r\n"); next = strstr(next + 1, DRAWN)) {
            size_t length = strcspn(next + strlen(DRAWN), "\r\n");
            at = (size_t)(next + 1 - self.text);
            assert_true(lines == 0 || length < 40);
            lines += length < 40;
        }
    }
    kill(self.child, SIGINT);
    assert_int_equal(end_screen(&self), 0);
}

static void terminal_when_it_is_dumb_gets_plain_lines(void **state)
{
    (void)state;
    static screen self;
    start_on_terminal(&self, 80, "dumb", "train " TINY "--data text --steps 2");
    assert_int_equal(end_screen(&self), 0);
    assert_null(strchr(self.text, '\033'));
    assert_has(self.text, "step 2/2  loss ");
}

/* ESC [ is U+009B too: both would be obeyed. */
static void terminal_when_text_has_commands_is_shown_them(void **state)
{
    (void)state;
    static screen self;
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save talking"), 0);
    start_on_terminal(
        &self, 80, "xterm",
        "generate talking --tokens 1 --prompt \"$(printf 'a\\302\\233\\033\\302\\251z')\"");
    assert_int_equal(end_screen(&self), 0);
    assert_has(self.text, "a\\xc2\\x9b\\x1b\302\251z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_when_of_one_run_agree),
        cmocka_unit_test(logs_when_a_run_goes_on_go_on_too),
        cmocka_unit_test(logs_when_the_file_is_something_else_then_refused),
        cmocka_unit_test(times_when_logged_are_parts_of_the_run),
        cmocka_unit_test(lines_when_there_is_no_terminal_come_as_often_as_asked),
        cmocka_unit_test(lines_when_wide_have_all_parts),
        cmocka_unit_test(table_when_it_takes_no_more_then_the_run_is_saved_and_74),
        cmocka_unit_test(live_line_when_the_terminal_is_narrow_does_not_wrap),
        cmocka_unit_test(live_line_when_of_tokenize_does_not_wrap_either),
        cmocka_unit_test(live_line_when_the_terminal_gets_narrow_follows),
        cmocka_unit_test(terminal_when_it_is_dumb_gets_plain_lines),
        cmocka_unit_test(terminal_when_text_has_commands_is_shown_them),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
