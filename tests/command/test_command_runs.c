/* What could be wrong with the curves of runs, on the page of `train --report` and on that of
 * `sluice report`: a page that is not renewed while the run trains, or that a reader sees half
 * written; a run that goes on and loses its past; values that are not those of the log; a log with
 * damaged lines, or with steps twice, that is refused or drawn wrongly; memory or a page that grows
 * with the log; a spike that is averaged away. Runs the built command and reads the pages. */
#define _GNU_SOURCE
#include "command_run.h"
#include "report_page.h"

#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/rng.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

static json_int_t count_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const json_t *run_at(const json_t *page, size_t index)
{
    const json_t *run = json_array_get(json_object_get(page, "runs"), index);
    assert_non_null(run);
    return run;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

static const json_t *rows_of(const json_t *run, const char *group, const char *name)
{
    return json_object_get(json_object_get(run, group), name);
}

/* ---- pages of a run that trains ---- */

/* The last record of a step, borrowed. */
static const json_t *find_last(const json_t *events, json_int_t step)
{
    for (size_t i = json_array_size(events); i-- > 0;) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(kind_of(event), "step") == 0 && count_of(event, "step") == step)
            return event;
    }
    fail_msg("no step %lld", (long long)step);
    return NULL;
}

/* Every row of a page is one step of the log, with the very value of the step's last record. */
static void compare_with_log(const json_t *run, const char *log, json_int_t first, json_int_t last)
{
    static const char *const curves[] = {"loss", "lr", "grad_norm"};
    json_t *events = read_log(log);
    assert_int_equal(count_of(run, "first_step"), first);
    assert_int_equal(count_of(run, "last_step"), last);
    assert_int_equal(count_of(run, "steps"), last - first + 1);
    for (int i = 0; i < 3; i++) {
        const json_t *rows = rows_of(run, "curves", curves[i]);
        assert_int_equal(json_array_size(rows), last - first + 1);
        for (json_int_t step = first; step <= last; step++) {
            const json_t *row = json_array_get(rows, (size_t)(step - first));
            const json_t *wanted = json_object_get(find_last(events, step), curves[i]);
            assert_int_equal(json_integer_value(json_array_get(row, 0)), step);
            const double found = json_number_value(json_array_get(row, 1));
            const double in_log = json_number_value(wanted); /* of a float, all but the loss */
            if (i == 0 ? found != in_log : (float)found != (float)in_log)
                fail_msg("%s of step %lld is not the log's", curves[i], (long long)step);
        }
    }
    json_decref(events);
}

/* Starts `sluice WORD...` and returns at once. */
static pid_t start_sluice(char *const words[])
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "r", stdin) || !freopen("child.out", "w", stdout) ||
        !freopen("child.err", "w", stderr))
        _exit(1);
    execv(binary, words);
    _exit(1);
}

/* Waits for a page that shows a later step than `after`, and returns that step. A page that is
 * there is whole at any moment. */
static json_int_t await_page(pid_t child, const char *name, json_int_t after)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (;;) {
        if (access(name, F_OK) == 0) {
            json_t *page = read_page(name);
            const json_int_t step = count_of(run_at(page, 0), "last_step");
            assert_string_equal(text_of(run_at(page, 0), "reason"), "");
            json_decref(page);
            if (step > after)
                return step;
        }
        int status;
        if (waitpid(child, &status, WNOHANG) != 0)
            fail_msg("the run ended before its page was renewed");
        nanosleep(&pause, NULL);
    }
}

static void train_report_when_evaluated_then_renewed_and_always_whole(void **state)
{
    (void)state;
    char *words[] = {"sluice",
                     "train",
                     "--layers",
                     "2",
                     "--width",
                     "32",
                     "--heads",
                     "2",
                     "--context",
                     "32",
                     "--micro-batch",
                     "2",
                     "--data",
                     "text",
                     "--quiet",
                     "--steps",
                     "20000",
                     "--eval-data",
                     "text",
                     "--eval-every",
                     "3",
                     "--eval-iters",
                     "1",
                     "--report",
                     "live.html",
                     "--log-json",
                     "live.log",
                     NULL};
    const pid_t child = start_sluice(words);
    json_int_t seen = 0;
    for (int i = 0; i < 20; i++) {
        const json_int_t step = await_page(child, "live.html", seen);
        assert_int_equal(step % 3, 0);
        seen = step;
    }
    int status;
    assert_int_equal(kill(child, SIGINT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    json_t *page = read_page("live.html");
    const json_t *run = run_at(page, 0), *evals = rows_of(run, "evals", "eval");
    assert_string_equal(text_of(run, "reason"), "signal");
    assert_true(count_of(run, "last_step") >= seen);
    const json_int_t due = count_of(run, "last_step") / 3; /* a signal may have ended the last */
    assert_in_range(json_array_size(evals), due - 1, due);
    assert_int_equal(count_of(json_object_get(page, "measured"), "steps"),
                     count_of(run, "last_step"));
    json_decref(page);
}

/* `logs`: the options that keep the past beside the page. */
static void check_resumed(const char *logs, const char *page_name)
{
    assert_int_equal(system("rm -rf save copy *.html log"), 0);
    const char *run = "train " TINY "--data text --quiet --save save --save-every 2";
    assert_code(sluice("%s --steps 6 --report page.html --log-csv kept %s", run, logs), 0);
    assert_int_equal(system("rm -rf save/step-00000006 && cp -r save copy"), 0);
    assert_code(sluice("%s --resume --steps 9 %s", run, page_name), 0); /* from step 4 */
    if (*logs && *page_name) /* the log alone is enough */
        assert_int_equal(unlink("page.html"), 0);
    assert_code(sluice("%s --resume --steps 11 %s", run, page_name), 0);
    json_t *page = read_page("page.html");
    if (*logs)
        compare_with_log(run_at(page, 0), "log", 1, 11);
    assert_int_equal(json_array_size(rows_of(run_at(page, 0), "curves", "loss")), 11);
    assert_int_equal(count_of(run_at(page, 0), "steps"), 11);
    json_decref(page);
}

static void train_report_when_resumed_then_has_the_whole_run(void **state)
{
    (void)state;
    check_resumed("--log-json log", "--report page.html");
    check_resumed("--log-json log", "");
    check_resumed("", "--report page.html"); /* the page is what is left of the past */
    check_resumed("", "");
}

/* A copy goes on beside the original, which it leaves alone. */
static void train_report_when_a_copy_goes_on_then_has_a_page_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(system("rm -rf save copy *.html"), 0);
    assert_code(
        sluice("train " TINY "--data text --quiet --save save --steps 4 --report page.html"), 0);
    assert_int_equal(system("cp -r save copy && md5sum page.html >before"), 0);
    assert_code(sluice("train --save copy --resume --steps 6 --quiet"), 0);
    assert_has(complaint, "--report goes on in copy/page.html");
    assert_int_equal(system("md5sum -c --quiet before"), 0);
    json_t *page = read_page("copy/page.html");
    assert_int_equal(count_of(run_at(page, 0), "last_step"), 6);
    json_decref(page);
}

/* Another run's page is replaced, and nothing of it is taken over. */
static void train_report_when_the_page_is_of_another_run_then_begins_anew(void **state)
{
    (void)state;
    assert_int_equal(system("rm -rf save *.html"), 0);
    const char *run = "train " TINY "--data text --quiet --save save";
    assert_code(sluice("%s --steps 3", run), 0);
    assert_code(sluice("train " TINY "--data text --quiet --steps 2 --report page.html"), 0);
    assert_code(sluice("%s --resume --steps 5 --report page.html", run), 0);
    json_t *page = read_page("page.html");
    assert_int_equal(count_of(run_at(page, 0), "first_step"), 4);
    assert_int_equal(json_array_size(rows_of(run_at(page, 0), "curves", "loss")), 2);
    json_decref(page);
}

/* The page of a run that failed says so: its curve may say why. */
static void train_report_when_the_run_fails_then_shows_it_to_its_end(void **state)
{
    (void)state;
    assert_int_equal(system("rm -f page.html"), 0);
    assert_code(sluice("train " TINY "--data text --quiet --steps 50 --lr 1e30 --warmup 0 --clip 0 "
                       "--report page.html --log-json failed.log"),
                76);
    json_t *page = read_page("page.html");
    assert_string_equal(text_of(run_at(page, 0), "reason"), "error");
    assert_int_equal(count_of(run_at(page, 0), "nonfinite"), 1);
    json_decref(page);
}

/* ---- logs that are made for a test ---- */

static FILE *open_log(const char *name)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs("{\"event\":\"start\",\"run\":\"r\",\"config\":{\"lr\":0.5},\"plan\":{}}\n", file);
    return file;
}

static void put_step(FILE *file, uint64_t step, double loss)
{
    fprintf(file, "{\"event\":\"step\",\"step\":%llu,\"loss\":%.17g}\n", (unsigned long long)step,
            loss);
}

static void close_log(FILE *file)
{
    assert_false(ferror(file));
    assert_int_equal(fclose(file), 0);
}

static json_t *report_on(const char *logs)
{
    assert_code(sluice("report %s --output made.html", logs), 0);
    return read_page("made.html");
}

static void report_when_three_logs_are_named_then_overlaid(void **state)
{
    (void)state;
    static const char *const names[] = {"one.log", "sub/two.log", "<three>.log"};
    assert_int_equal(system("mkdir -p sub"), 0);
    for (int i = 0; i < 3; i++)
        assert_code(sluice("train " TINY "--data text --quiet --steps %d --eval-data text "
                           "--eval-every 2 --eval-iters 1 --seed %d --log-json '%s'",
                           4 + i, i, names[i]),
                    0);
    json_t *page = report_on("one.log sub/two.log '<three>.log'");
    assert_has(output, "made.html: 3 runs, 15 steps");
    assert_string_equal(complaint, "");
    assert_int_equal(json_array_size(json_object_get(page, "runs")), 3);
    for (int i = 0; i < 3; i++) {
        const json_t *run = run_at(page, (size_t)i);
        assert_string_equal(text_of(run, "name"), names[i]);
        assert_string_equal(text_of(run, "reason"), "done");
        assert_int_equal(count_of(json_object_get(run, "config"), "seed"), i);
        compare_with_log(run, names[i], 1, 4 + i);
        assert_int_equal(json_array_size(rows_of(run, "evals", "eval")), i == 1 ? 3 : 2 + i / 2);
    }
    json_decref(page);
}

static void report_when_a_run_went_back_then_later_records_count(void **state)
{
    (void)state;
    FILE *file = open_log("back.log");
    for (uint64_t step = 1; step <= 10; step++)
        put_step(file, step, (double)step);
    fputs("{\"event\":\"eval\",\"step\":10,\"set\":\"eval\",\"loss\":7}\n", file);
    fputs("{\"event\":\"eval\",\"step\":10,\"set\":\"test\",\"loss\":7}\n", file);
    fputs("{\"event\":\"end\",\"reason\":\"signal\"}\n", file);
    fputs("{\"event\":\"start\",\"run\":\"r\",\"config\":{\"lr\":0.25},\"plan\":{}}\n", file);
    for (uint64_t step = 6; step <= 8; step++)
        put_step(file, step, 100 + (double)step);
    fputs("{\"event\":\"eval\",\"step\":8,\"set\":\"eval\",\"loss\":9}\n", file);
    close_log(file);
    json_t *page = report_on("back.log");
    const json_t *run = run_at(page, 0), *rows = rows_of(run, "curves", "loss");
    assert_int_equal(json_array_size(rows), 8);
    for (size_t i = 0; i < 8; i++) {
        const double wanted = i < 5 ? (double)i + 1 : 101 + (double)i;
        assert_true(json_number_value(json_array_get(json_array_get(rows, i), 1)) == wanted);
    }
    assert_int_equal(json_array_size(rows_of(run, "evals", "eval")), 1);
    assert_null(rows_of(run, "evals", "test"));      /* of a step that came again, or will */
    assert_string_equal(text_of(run, "reason"), ""); /* it goes on */
    assert_true(json_number_value(json_object_get(json_object_get(run, "config"), "lr")) == 0.25);
    assert_int_equal(count_of(run, "repeated"), 7);
    json_decref(page);
}

/* ---- damaged logs ---- */

/* Lines 2 and 4 are whole; line 3 is damaged. */
static void check_damaged(const char *what, const char *line, size_t bytes)
{
    FILE *file = open_log("damaged.log");
    put_step(file, 1, 2);
    assert_int_equal(fwrite(line, 1, bytes, file), bytes);
    fputc('\n', file);
    put_step(file, 2, 3);
    close_log(file);
    json_t *page = report_on("damaged.log");
    const json_t *run = run_at(page, 0);
    if (count_of(run, "damaged") != 1 || count_of(run, "damaged_line") != 3)
        fail_msg("%s: %lld damaged, first line %lld", what, (long long)count_of(run, "damaged"),
                 (long long)count_of(run, "damaged_line"));
    assert_int_equal(count_of(run, "steps"), 2);
    assert_one_complaint("damaged.log: left out what is no record: 1 line, first line 3");
    json_decref(page);
}

static void report_when_a_line_is_damaged_then_left_out_and_said(void **state)
{
    (void)state;
    static const char *const lines[] = {"{\"event\":\"step\",\"step\":2,\"lo",
                                        "{\"event\":\"step\",\"step\":2,\"loss\":1}x",
                                        "{\"event\":\"step\",\"step\":-2}",
                                        "{\"event\":\"step\",\"step\":1e3}",
                                        "{\"event\":\"step\",\"loss\":1}",
                                        "{\"event\":\"step\",\"step\":9223372036854775807}",
                                        "{\"event\":\"eval\",\"step\":null}",
                                        "{\"event\":\"start\"}",
                                        "{\"event\":7}",
                                        "[]",
                                        "\xff\xfe",
                                        "{\"event\":\"step\",\"step\":2,\"step\":2}",
                                        "{\"a\":1e999}",
                                        "0"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        check_damaged(lines[i], lines[i], strlen(lines[i]));
    check_damaged("a NUL byte", "{\"event\":\"step\",\"step\":2\0}", 26);
    const size_t long_bytes = 9 << 20; /* longer than any record is */
    char *line = malloc(long_bytes);
    assert_non_null(line);
    memset(line, ' ', long_bytes);
    memcpy(line, "{\"event\":\"step\",\"step\":9}", 25); /* its start alone would be a record */
    line[long_bytes - 1] = 'x';
    check_damaged("a long line", line, long_bytes);
    free(line);
}

/* At every byte: what is whole before the cut counts, whatever the length of the buffers. */
static void report_when_a_log_is_cut_then_the_steps_before_count(void **state)
{
    (void)state;
    FILE *file = open_log("whole.log");
    for (uint64_t step = 1; step <= 3; step++)
        put_step(file, step, (double)step);
    close_log(file);
    static char text[TEXT_BYTES];
    read_text("whole.log", text);
    const size_t bytes = strlen(text);
    for (size_t cut = bytes - 45; cut <= bytes; cut++) {
        size_t lines = 0;
        for (size_t i = 0; i < cut; i++)
            lines += text[i] == '\n';
        const bool is_whole = text[cut] == '\n' || text[cut - 1] == '\n';
        assert_int_equal(truncate("whole.log", (off_t)cut), 0);
        json_t *page = report_on("whole.log");
        assert_int_equal(count_of(run_at(page, 0), "steps"), lines - 1 + (text[cut] == '\n'));
        assert_int_equal(count_of(run_at(page, 0), "damaged"), !is_whole);
        json_decref(page);
        file = fopen("whole.log", "w");
        assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
    }
}

/* A line ends exactly at the border of what is read at once, and beside it. */
static void report_when_a_line_ends_at_a_border_then_read_as_one(void **state)
{
    (void)state;
    for (int more = -2; more <= 2; more++) {
        FILE *file = open_log("border.log");
        put_step(file, 1, 1);
        put_step(file, 2, 2);
        const long tail = (1 << 16) + more - 50;
        fprintf(file, "{\"event\":\"other\",\"text\":\"%*s\"}\n", (int)tail, "");
        for (int i = 0; i < 2; i++)
            put_step(file, 3 + (uint64_t)i, 3);
        close_log(file);
        json_t *page = report_on("border.log");
        assert_int_equal(count_of(run_at(page, 0), "steps"), 4);
        assert_int_equal(count_of(run_at(page, 0), "damaged"), 0);
        json_decref(page);
    }
}

static void report_when_it_is_asked_wrongly_then_says_how(void **state)
{
    (void)state;
    FILE *file = open_log("good.log");
    put_step(file, 1, 1);
    close_log(file);
    assert_code(sluice("report --output x.html"), 64);
    assert_one_complaint("sluice report run.jsonl --output run.html");
    assert_code(sluice("report good.log"), 64);
    assert_one_complaint("--output");
    assert_code(sluice("report absent.log --output x.html"), 66);
    assert_one_complaint("absent.log");
    assert_code(sluice("report text --output x.html"), 65);
    assert_one_complaint("text: is no log of a run");
    assert_code(sluice("report . --output x.html"), 65);
    assert_code(sluice("report /dev/null --output x.html"), 65);
    assert_code(sluice("report good.log --output text"), 64);
    assert_code(sluice("report good.log --output good.log"), 64);
    assert_code(sluice("report good.log --output absent/x.html"), 74);
    assert_code(sluice("report $(for i in $(seq 33); do echo good.log; done) --output x.html"), 64);
    assert_one_complaint("at most 32");
    assert_int_not_equal(access("x.html", F_OK), 0);
    assert_code(sluice("report $(for i in $(seq 32); do echo good.log; done) --output x.html"), 0);
    file = open_log("begun.log"); /* no step yet */
    close_log(file);
    assert_code(sluice("report --runs begun.log good.log --output x.html"), 0);
    assert_has(output, "x.html: 2 runs, 1 step\n");
}

/* ---- long logs ---- */

typedef struct total {
    double count, sum, low, high;
    json_int_t low_step, high_step;
} total;

static void add_value(total *to, json_int_t step, double value)
{
    if (to->count == 0 || value < to->low) {
        to->low = value;
        to->low_step = step;
    }
    if (to->count == 0 || value > to->high) {
        to->high = value;
        to->high_step = step;
    }
    to->count++;
    to->sum += value;
}

/* What the rows of a page add up to. */
static total add_rows(const json_t *rows)
{
    total all = {0};
    json_int_t before = 0;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row)
    {
        const bool is_one = json_array_size(row) == 2;
        const json_int_t last = json_integer_value(json_array_get(row, 0));
        assert_true(last > before);
        before = last;
        const int low = is_one ? 0 : 3, high = is_one ? 0 : 5;
        const double count = is_one ? 1 : json_number_value(json_array_get(row, 1));
        const double mean = json_number_value(json_array_get(row, is_one ? 1 : 2));
        total extremes = all;
        add_value(&extremes, json_integer_value(json_array_get(row, (size_t)low)),
                  json_number_value(json_array_get(row, (size_t)low + 1)));
        add_value(&extremes, json_integer_value(json_array_get(row, (size_t)high)),
                  json_number_value(json_array_get(row, (size_t)high + 1)));
        extremes.count = all.count + count;
        extremes.sum = all.sum + count * mean;
        all = extremes;
    }
    return all;
}

/* Steps that begin late, have gaps, or are few and far apart. */
static void report_when_steps_are_anywhere_then_no_value_is_lost(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, count, gap;
    } cases[] = {{1, 1024, 1},
                 {1, 1025, 1},
                 {1023, 2049, 1},
                 {900001, 5000, 1},
                 {1, 3000, 37},
                 {5, 700, 1000003},
                 {UINT64_C(1) << 52, 40, UINT64_C(1) << 46},
                 {7, 1, 1},
                 {1, 2, UINT64_C(1) << 53}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *file = open_log("any.log");
        total wanted = {0};
        uint64_t step = cases[i].first;
        for (uint64_t n = 0; n < cases[i].count && step <= UINT64_C(1) << 53; n++) {
            const double loss = (double)(sl_rng_permute(1, 2, n, 100000)) / 7;
            put_step(file, step, loss);
            add_value(&wanted, (json_int_t)step, loss);
            step += 1 + sl_rng_permute(3, 4, n % cases[i].gap, cases[i].gap);
        }
        close_log(file);
        json_t *page = report_on("any.log");
        const json_t *rows = rows_of(run_at(page, 0), "curves", "loss");
        const total found = add_rows(rows);
        assert_in_range(json_array_size(rows), 1, 1024);
        if (wanted.count >= 1024 && cases[i].gap == 1)
            assert_in_range(json_array_size(rows), 512, 1024);
        assert_true(found.count == wanted.count);
        assert_true(found.low == wanted.low && found.low_step == wanted.low_step);
        assert_true(found.high == wanted.high && found.high_step == wanted.high_step);
        assert_true(fabs(found.sum - wanted.sum) <= 1e-9 * wanted.sum);
        json_decref(page);
    }
}

/* The most memory that `sluice report LOG` takes. */
static long measure_report(const char *log)
{
    char *words[] = {"sluice", "report", (char *)log, "--output", "made.html", NULL};
    struct rusage usage;
    int status;
    const pid_t child = start_sluice(words);
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return usage.ru_maxrss;
}

static void report_when_a_log_has_a_million_steps_then_memory_and_page_are_bounded(void **state)
{
    (void)state;
    enum { FEW = 2000, MANY = 1000000, SPIKE = 777777, ROOM_KIB = 8 << 10 };
    size_t few_bytes, many_bytes;
    FILE *file = open_log("few.log");
    for (uint64_t step = 1; step <= FEW; step++)
        put_step(file, step, 1 + 1 / (double)step);
    close_log(file);
    file = open_log("many.log");
    for (uint64_t step = 1; step <= MANY; step++)
        put_step(file, step, step == SPIKE ? 99 : 1 + 1 / (double)step);
    close_log(file);
    const long few = measure_report("few.log");
    free(load_page("made.html", &few_bytes));
    const long many = measure_report("many.log");
    free(load_page("made.html", &many_bytes));
    json_t *page = read_page("made.html");
    const total found = add_rows(rows_of(run_at(page, 0), "curves", "loss"));
    assert_true(found.count == MANY && found.high == 99 && found.high_step == SPIKE);
    if (!IS_SANITIZED && many > few + ROOM_KIB) /* freed memory stays with a sanitizer */
        fail_msg("%ld KiB for a million steps, %ld for %d", many, few, FEW);
    if (many_bytes > 2 * few_bytes)
        fail_msg("%zu bytes with a million steps, %zu with %d", many_bytes, few_bytes, FEW);
    json_decref(page);
    assert_int_equal(unlink("many.log"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_report_when_evaluated_then_renewed_and_always_whole),
        cmocka_unit_test(train_report_when_resumed_then_has_the_whole_run),
        cmocka_unit_test(train_report_when_a_copy_goes_on_then_has_a_page_of_its_own),
        cmocka_unit_test(train_report_when_the_page_is_of_another_run_then_begins_anew),
        cmocka_unit_test(train_report_when_the_run_fails_then_shows_it_to_its_end),
        cmocka_unit_test(report_when_three_logs_are_named_then_overlaid),
        cmocka_unit_test(report_when_a_run_went_back_then_later_records_count),
        cmocka_unit_test(report_when_a_line_is_damaged_then_left_out_and_said),
        cmocka_unit_test(report_when_a_log_is_cut_then_the_steps_before_count),
        cmocka_unit_test(report_when_a_line_ends_at_a_border_then_read_as_one),
        cmocka_unit_test(report_when_it_is_asked_wrongly_then_says_how),
        cmocka_unit_test(report_when_steps_are_anywhere_then_no_value_is_lost),
        cmocka_unit_test(report_when_a_log_has_a_million_steps_then_memory_and_page_are_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
