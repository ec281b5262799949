/* What could be wrong here: a token is drawn with another probability than its logit says, a limit
 * keeps one id too many or too few, a logit that is not a number is drawn. Probabilities are worked
 * out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/generate/sampler.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draw_when_unlimited_then_cuts_where_probabilities_sum),
        cmocka_unit_test(draw_when_top_k_then_only_the_likeliest_stay),
        cmocka_unit_test(draw_when_top_p_then_the_fewest_that_reach_it_stay),
        cmocka_unit_test(draw_when_cold_then_sharpens),
        cmocka_unit_test(draw_when_logits_are_not_finite_then_never_picks_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
