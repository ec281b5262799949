/* What could be wrong here: a token is drawn with another probability than its logit says, a limit
 * keeps one id too many or too few, a logit that is not a number is drawn; a number of the log
 * reads back as another one. Probabilities are worked out by hand; numbers go through a JSON
 * parser. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/rng.h"
#include "train/log_json.h"
#include "train/sampler.h"

enum { VOCAB = 5 };

/* Probabilities 0.4, 0.1, 0.2, 0.05 and 0.25. */
static void fill_logits(float logits[VOCAB])
{
    const double probability[VOCAB] = {0.4, 0.1, 0.2, 0.05, 0.25};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(log(probability[i]) + 3.0); /* a shift changes nothing */
}

static uint32_t draw(double temperature, uint32_t top_k, double top_p, double uniform)
{
    float logits[VOCAB];
    sl_sampler sampler, options = {VOCAB, temperature, top_k, top_p, NULL, NULL};
    uint32_t id = 99;
    fill_logits(logits);
    assert_int_equal(sl_sampler_open(&options, &sampler), SL_OK);
    assert_int_equal(sl_sampler_draw(&sampler, logits, uniform, &id), SL_OK);
    sl_sampler_close(&sampler);
    return id;
}

static void draw_when_unlimited_then_cuts_where_probabilities_sum(void **state)
{
    (void)state;
    /* In id order: 0 below 0.4, 1 below 0.5, 2 below 0.7, 3 below 0.75, 4 below 1. */
    assert_int_equal(draw(1, 0, 1, 0.0), 0);
    assert_int_equal(draw(1, 0, 1, 0.399), 0);
    assert_int_equal(draw(1, 0, 1, 0.401), 1);
    assert_int_equal(draw(1, 0, 1, 0.499), 1);
    assert_int_equal(draw(1, 0, 1, 0.699), 2);
    assert_int_equal(draw(1, 0, 1, 0.701), 3);
    assert_int_equal(draw(1, 0, 1, 0.751), 4);
    assert_int_equal(draw(1, 0, 1, 0.9999999999999999), 4);
}

static void draw_when_top_k_then_only_the_likeliest_stay(void **state)
{
    (void)state;
    /* Likeliest first: 0 (0.4), 4 (0.25), 2 (0.2): shares 0.4706, 0.7647, 1. */
    assert_int_equal(draw(1, 3, 1, 0.470), 0);
    assert_int_equal(draw(1, 3, 1, 0.471), 4);
    assert_int_equal(draw(1, 3, 1, 0.764), 4);
    assert_int_equal(draw(1, 3, 1, 0.766), 2);
    assert_int_equal(draw(1, 3, 1, 0.999), 2);
    assert_int_equal(draw(1, 1, 1, 0.999), 0);
    assert_int_equal(draw(1, 99, 1, 0.99), 3); /* all, likeliest first: the least likely is last */
}

static void draw_when_top_p_then_the_fewest_that_reach_it_stay(void **state)
{
    (void)state;
    /* 0.4 + 0.25 reaches 0.6: ids 0 and 4, shares 0.6154 and 1. */
    assert_int_equal(draw(1, 0, 0.6, 0.615), 0);
    assert_int_equal(draw(1, 0, 0.6, 0.616), 4);
    assert_int_equal(draw(1, 0, 0.6, 0.999), 4);
    assert_int_equal(draw(1, 0, 1e-9, 0.999), 0); /* at least one stays */
    assert_int_equal(draw(1, 0, 0.66, 0.999), 2);
}

static void draw_when_cold_then_sharpens(void **state)
{
    (void)state;
    assert_int_equal(draw(0, 0, 1, 0.999), 0);
    /* At temperature 0.5 weights are squares: 0.16 of 0.275 in all: 0.5818. */
    assert_int_equal(draw(0.5, 0, 1, 0.581), 0);
    assert_int_equal(draw(0.5, 0, 1, 0.583), 1);
}

static void draw_when_logits_are_not_finite_then_never_picks_them(void **state)
{
    (void)state;
    sl_sampler sampler, options = {4, 1, 0, 1, NULL, NULL};
    assert_int_equal(sl_sampler_open(&options, &sampler), SL_OK);
    float logits[4] = {NAN, 1.0f, -INFINITY, NAN};
    for (int i = 0; i < 100; i++) {
        uint32_t id = 99;
        assert_int_equal(sl_sampler_draw(&sampler, logits, i / 100.0, &id), SL_OK);
        assert_int_equal(id, 1);
    }
    logits[1] = NAN;
    uint32_t id = 99;
    assert_int_equal(sl_sampler_draw(&sampler, logits, 0.5, &id), SL_ERROR_NONFINITE);
    assert_int_equal(id, 99);
    sl_sampler_close(&sampler);
}

/* ---- log ---- */

static json_t *log_step(const sl_step_report *report)
{
    char path[] = "/tmp/sluice-log-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    sl_log_json *log;
    assert_int_equal(sl_log_json_open(path, false, &log), SL_OK);
    assert_int_equal(sl_log_json_step(log, report), SL_OK);
    sl_log_json_close(log);
    json_error_t error;
    json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        fail_msg("line is not JSON: %s", error.text);
    unlink(path);
    return object;
}

static void steps_when_logged_then_read_back_to_the_same_bits(void **state)
{
    (void)state;
    const char *given = getenv("SL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t words = sl_rng_below(seed, 1, i, UINT64_MAX);
        double loss;
        memcpy(&loss, &words, sizeof loss);
        float norm = sl_bits_to_float((uint32_t)sl_rng_below(seed, 2, i, 1ull << 32));
        if (!isfinite(loss) || !isfinite(norm))
            continue;
        sl_step_report report = {.step = i, .loss = loss, .grad_norm = norm, .tokens = UINT32_MAX};
        json_t *object = log_step(&report);
        double read_loss = json_number_value(json_object_get(object, "loss"));
        float read_norm = (float)json_number_value(json_object_get(object, "grad_norm"));
        assert_memory_equal(&read_loss, &loss, sizeof loss);
        assert_memory_equal(&read_norm, &norm, sizeof norm);
        assert_int_equal(json_integer_value(json_object_get(object, "tokens")), UINT32_MAX);
        json_decref(object);
    }
}

static void steps_when_logged_then_have_every_key_of_the_contract(void **state)
{
    (void)state;
    static const char *const keys[] = {"event",
                                       "step",
                                       "loss",
                                       "grad_norm",
                                       "lr",
                                       "tokens",
                                       "tokens_total",
                                       "step_ms",
                                       "tokens_per_s",
                                       "flops",
                                       "device_bytes",
                                       "host_bytes",
                                       "disk_bytes",
                                       "h2d_bytes",
                                       "d2h_bytes",
                                       "stall_ms",
                                       "skipped",
                                       "disk_read_bytes",
                                       "disk_written_bytes"};
    static const char *const stalls[] = {"h2d", "d2h", "host", "read", "write", "comm"};
    sl_step_report report = {.step = 1, .loss = NAN, .grad_norm = INFINITY, .skipped = true};
    report.moved_bytes[SL_LANE_D2H] = 12345678901234;
    report.stall_ms[SL_LANE_HOST] = 1.5;
    json_t *object = log_step(&report);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_object_get(object, keys[i]))
            fail_msg("no key %s", keys[i]);
    json_t *stall = json_object_get(object, "stall_ms");
    for (size_t i = 0; i < sizeof stalls / sizeof stalls[0]; i++)
        assert_true(json_is_number(json_object_get(stall, stalls[i])));
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(json_is_null(json_object_get(object, "grad_norm")));
    assert_true(json_is_true(json_object_get(object, "skipped")));
    assert_int_equal(json_integer_value(json_object_get(object, "d2h_bytes")), 12345678901234);
    assert_true(json_number_value(json_object_get(stall, "host")) == 1.5);
    json_decref(object);
}

static void log_when_it_cannot_be_written_then_fails(void **state)
{
    (void)state;
    sl_log_json *log;
    assert_int_equal(sl_log_json_open("/nonexistent/log", false, &log), SL_ERROR_IO);
    if (access("/dev/full", W_OK) != 0)
        return;
    sl_step_report report = {.step = 1};
    assert_int_equal(sl_log_json_open("/dev/full", false, &log), SL_OK);
    assert_int_equal(sl_log_json_step(log, &report), SL_ERROR_IO);
    sl_log_json_close(log);
}

/* Of a file that may not grow any more, as on a full disk, half a line is cut off again; when there
 * is room once more, lines go on. */
static void log_when_its_disk_is_full_then_lines_stay_whole(void **state)
{
    (void)state;
    char path[] = "/tmp/sluice-log-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    sl_log_json *log;
    sl_step_report report = {.step = 1};
    struct stat info;
    struct rlimit old;
    assert_int_equal(sl_log_json_open(path, false, &log), SL_OK);
    assert_int_equal(sl_log_json_step(log, &report), SL_OK);
    assert_int_equal(stat(path, &info), 0);
    const off_t line_bytes = info.st_size;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit limit = {(rlim_t)(2 * line_bytes + line_bytes / 2), old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sl_status statuses[4];
    for (int i = 0; i < 4; i++) {
        if (i == 3)
            setrlimit(RLIMIT_FSIZE, &old);
        statuses[i] = sl_log_json_step(log, &report);
    }
    signal(SIGXFSZ, handler);
    assert_int_equal(statuses[0], SL_OK);
    assert_int_equal(statuses[1], SL_ERROR_IO);
    assert_int_equal(statuses[2], SL_ERROR_IO);
    assert_int_equal(statuses[3], SL_OK);
    sl_log_json_close(log);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3 * line_bytes);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draw_when_unlimited_then_cuts_where_probabilities_sum),
        cmocka_unit_test(draw_when_top_k_then_only_the_likeliest_stay),
        cmocka_unit_test(draw_when_top_p_then_the_fewest_that_reach_it_stay),
        cmocka_unit_test(draw_when_cold_then_sharpens),
        cmocka_unit_test(draw_when_logits_are_not_finite_then_never_picks_them),
        cmocka_unit_test(steps_when_logged_then_read_back_to_the_same_bits),
        cmocka_unit_test(steps_when_logged_then_have_every_key_of_the_contract),
        cmocka_unit_test(log_when_it_cannot_be_written_then_fails),
        cmocka_unit_test(log_when_its_disk_is_full_then_lines_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
