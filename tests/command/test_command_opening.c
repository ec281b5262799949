/* What could be wrong when a program stops the opening of a session: a long part of it that does
 * not look whether it is to stop, a stop that leaves memory, locks or files behind, or a later
 * opening that cannot go on with what is left. The signs of life of the opening thread are counted,
 * and the options are stopped at each of them in turn; of a model of real size they must come
 * often.
 */
#define _GNU_SOURCE
#include "command_run.h"

#include <pthread.h>
#include <time.h>

#include "base/heartbeat.h"
#include "sanitizer_share.h"
#include "skip.h"
#include "sluice/session.h"

/* ---- signs of life ---- */

enum { BEATS_MAX = 100000 };

static _Thread_local bool is_opening;
static _Atomic uint64_t beat_count;
static uint64_t stop_beat;                   /* 0: never */
static double begun, last_beat, longest_gap; /* seconds; the gap is for people */
static sl_options *opened;
static double *beat_seconds; /* [BEATS_MAX] since the start, of each sign; NULL: not kept */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void end_gap(void)
{
    const double time = now();
    if (time - last_beat > longest_gap)
        longest_gap = time - last_beat;
    last_beat = time;
}

sl_status __real_sl_heartbeat_give(void);
sl_status __wrap_sl_heartbeat_give(void);

sl_status __wrap_sl_heartbeat_give(void)
{
    if (is_opening) {
        end_gap();
        const uint64_t beat = ++beat_count;
        if (beat_seconds && beat < BEATS_MAX)
            beat_seconds[beat] = last_beat - begun;
        if (beat == stop_beat)
            sl_options_stop(opened);
    }
    return __real_sl_heartbeat_give();
}

static sl_status open_counted(sl_options *options, uint64_t stop_at, sl_session **out_session)
{
    opened = options;
    stop_beat = stop_at;
    beat_count = 0;
    longest_gap = 0;
    begun = last_beat = now();
    is_opening = true;
    const sl_status status = sl_session_open(options, out_session);
    is_opening = false;
    end_gap();
    return status;
}

static void must(sl_status status)
{
    if (status != SL_OK)
        fail_msg("status %d: %s", (int)status, sl_status_message());
}

static void assert_stopped(sl_status status)
{
    assert_int_equal(status, SL_ERROR_STOPPED);
    assert_has(sl_status_message(), "nothing is lost");
}

/* ---- at each sign ---- */

/* Text that becomes ids, weights that are loaded, a search, a disk tier; `start` is "init" or
 * "resume". */
static sl_options *options_of_all_parts(const char *start, uint64_t cache)
{
    static const char *const settings[] = {
        "layers",        "2",     "width",       "32",   "heads",     "2",
        "context",       "32",    "micro-batch", "2",    "threads",   "2",
        "steps",         "4",     "policy",      "auto", "recompute", "auto",
        "disk-dir",      ".",     "disk-space",  "64M",  "data",      "text",
        "device-memory", "8M",    "host-memory", "8M",   "eval-data", "text",
        "tokenizer",     "words", NULL};
    sl_options *options = NULL;
    char directory[64];
    snprintf(directory, sizeof directory, "cache-%s-%d", start ? start : "new", (int)cache);
    must(sl_options_open(&options));
    must(sl_options_set_all(options, settings));
    must(sl_options_set(options, "cache-dir", directory));
    if (start && strcmp(start, "init") == 0)
        must(sl_options_set(options, "init", "saved"));
    else
        must(sl_options_set(options, "save", "saved"));
    if (start && strcmp(start, "resume") == 0)
        must(sl_options_set(options, "resume", "true"));
    return options;
}

static double first_loss(sl_session *session)
{
    sl_step_result step = {.size = sizeof step};
    must(sl_session_step(session, &step));
    must(sl_session_close(session));
    return step.loss;
}

/* Returns the loss of the first step, of an opening that was not stopped. */
static double stop_everywhere(const char *start, uint64_t least_stops)
{
    sl_session *session = NULL;
    sl_status status = SL_ERROR_STOPPED;
    uint64_t stops = 0;
    double loss = 0;
    for (uint64_t beat = 1; status != SL_OK; beat += 1 + beat / 8) {
        sl_options *options = options_of_all_parts(start, beat);
        status = open_counted(options, beat, &session);
        if (status == SL_OK) {
            loss = first_loss(session);
        } else {
            assert_stopped(status);
            assert_true(beat_count <= beat + 2); /* it ended there; cleaning up gives signs, too */
            assert_stopped(sl_session_open(options, &session));
            stops++;
        }
        sl_options_close(options);
    }
    assert_true(stops >= least_stops);
    sl_options *options = options_of_all_parts(start, 1); /* with what the first stop left */
    must(open_counted(options, 0, &session));
    sl_options_close(options);
    assert_true(first_loss(session) == loss);
    return loss;
}

static void opening_when_stopped_at_any_sign_of_life_ends_and_leaves_nothing_behind(void **state)
{
    (void)state;
    sl_session *session = NULL;
    assert_code(sluice("tokenize --learn 300 --data text --tokenizer words --output ids.bin"), 0);
    sl_options *options = options_of_all_parts(NULL, 0);
    must(sl_session_open(options, &session));
    must(sl_session_step(session, NULL));
    must(sl_session_save(session));
    must(sl_session_close(session));
    sl_options_close(options);
    stop_everywhere("init", 15);
    stop_everywhere("resume", 15);
}

static void plan_and_profile_when_stopped_end(void **state)
{
    (void)state;
    char *text = NULL;
    sl_options *options = options_of_all_parts("init", 0);
    sl_options_stop(options);
    assert_stopped(sl_session_plan(options, &text));
    assert_stopped(sl_profile(options, 1, &text));
    sl_options_close(options);
}

/* ---- at real size ---- */

/* Text of some 20 MB. A part that looks often ends within a few signs, however slow the machine. */
enum { WORDS = 4000000, STOPS = 2, TEXT_BEAT = 50, SIGNS_LEAST = 100, SIGNS_TO_END = 8 };

static void write_large_text(void)
{
    FILE *file = fopen("large", "w");
    unsigned draw = 1;
    assert_non_null(file);
    for (int i = 0; i < WORDS; i++) {
        draw = draw * 1664525u + 1013904223u;
        fprintf(file, "%x%c", draw >> 16, i % 16 == 15 ? '\n' : ' ');
    }
    assert_int_equal(fclose(file), 0);
}

/* Saves under the name of the cache. `init` NULL: random numbers. */
static sl_options *options_of_gpt2(const char *cache, const char *init)
{
    static const char *const settings[] = {
        "model",       "gpt2",        "data",   "large",   "tokenizer", "words",         "seq",
        "64",          "micro-batch", "1",      "threads", "2",         "device-memory", "1G",
        "host-memory", "3G",          "policy", "auto",    NULL};
    sl_options *options = NULL;
    must(sl_options_open(&options));
    must(sl_options_set_all(options, settings));
    must(sl_options_set(options, "cache-dir", cache));
    must(sl_options_set(options, "save", cache));
    if (init)
        must(sl_options_set(options, "init", init));
    return options;
}

typedef struct stopper {
    sl_options *options;
    uint64_t beat;          /* at which the opening is stopped */
    uint64_t last_beat;     /* signs until it was */
    _Atomic bool has_ended; /* the opening */
} stopper;

static void *stop_at_beat(void *argument)
{
    stopper *self = argument;
    const struct timespec pause = {.tv_nsec = 200000};
    while (beat_count < self->beat && !self->has_ended)
        nanosleep(&pause, NULL);
    sl_options_stop(self->options);
    self->last_beat = beat_count;
    return NULL;
}

/* The sign that comes when such a share of the seconds has passed. */
static uint64_t find_beat(uint64_t count, double seconds)
{
    uint64_t beat = 1;
    while (beat < count && beat_seconds[beat] < seconds)
        beat++;
    return beat;
}

static void stop_by_thread(const char *init, uint64_t beat)
{
    sl_session *session = NULL;
    char cache[64];
    snprintf(cache, sizeof cache, "gpt2-%s-%d", init ? init : "new", (int)beat);
    sl_options *options = options_of_gpt2(cache, init);
    stopper self = {.options = options, .beat = beat};
    pthread_t thread;
    beat_count = 0;
    assert_int_equal(pthread_create(&thread, NULL, stop_at_beat, &self), 0);
    const sl_status status = open_counted(options, 0, &session);
    const uint64_t beats = beat_count;
    self.has_ended = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_stopped(status);
    print_message("stopped at sign %d of %d\n", (int)self.last_beat, (int)beats);
    assert_true(beats <= self.last_beat + SIGNS_TO_END);
    sl_options_close(options);
}

/* Opens and saves, then stops as many openings at equal distances in time, and one amid the text.
 */
static void stop_openings(const char *cache, const char *init)
{
    sl_session *session = NULL;
    uint64_t beats[STOPS + 1] = {TEXT_BEAT};
    beat_seconds = calloc(BEATS_MAX, sizeof *beat_seconds);
    assert_non_null(beat_seconds);
    sl_options *options = options_of_gpt2(cache, init);
    must(open_counted(options, 0, &session));
    const double whole = last_beat - begun;
    const uint64_t count = beat_count;
    sl_options_close(options);
    must(sl_session_save(session));
    must(sl_session_close(session));
    print_message("%.1f s, %d signs, the longest pause %.2f s\n", whole, (int)count, longest_gap);
    assert_true(count >= SIGNS_LEAST && count < BEATS_MAX);
    for (int i = 1; i <= STOPS; i++)
        beats[i] = find_beat(count, whole * (i - 0.5) / STOPS);
    free(beat_seconds);
    beat_seconds = NULL;
    for (int i = 0; i <= (int)sanitizer_share(STOPS); i++)
        stop_by_thread(init, beats[i]);
}

static void opening_of_gpt2_when_another_thread_stops_it_ends_soon(void **state)
{
    (void)state;
    write_large_text();
    stop_openings("first", NULL);
    if (SANITIZER_SHARE == 1) /* it saw a smaller model read: above */
        stop_openings("second", "first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_when_stopped_at_any_sign_of_life_ends_and_leaves_nothing_behind),
        cmocka_unit_test(plan_and_profile_when_stopped_end),
        cmocka_unit_test(opening_of_gpt2_when_another_thread_stops_it_ends_soon),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
