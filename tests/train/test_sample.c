/* What could be wrong here: a token is drawn with another probability than its logit says, a limit
 * keeps one id too many or too few, a logit that is not a number is drawn. Probabilities are worked
 * out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
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

/* 0.4, 0.25 and 0.2 are 0.85 together: 0.65 of it reach three quarters, of all ids they would not.
 */
static void draw_when_top_k_and_top_p_then_p_is_of_what_k_leaves(void **state)
{
    (void)state;
    assert_int_equal(draw(1, 3, 0.75, 0.615), 0);
    assert_int_equal(draw(1, 3, 0.75, 0.999), 4);
    assert_int_equal(draw(1, 3, 0.77, 0.999), 2);
    assert_int_equal(draw(1, 1, 0.001, 0.999), 0);
}

/* The share of `uniform` at which the sorted ids, added one by one, pass it. */
static uint32_t draw_sorted(const double *weight, const uint32_t *sorted, uint32_t count,
                            double uniform)
{
    double total = 0, passed = 0;
    for (uint32_t i = 0; i < count; i++)
        total += weight[sorted[i]];
    for (uint32_t i = 0; i < count; i++) {
        passed += weight[sorted[i]];
        if (passed > uniform * total)
            return sorted[i];
    }
    return sorted[count - 1];
}

/* Every k of ids that are sorted by hand, with equal weights among them. */
static void draw_when_ids_are_many_then_they_are_ordered(void **state)
{
    (void)state;
    enum { MANY = 300, PLACES = 7 };
    float logits[MANY];
    double weight[MANY];
    uint32_t sorted[MANY];
    double largest = -INFINITY;
    for (uint32_t id = 0; id < MANY; id++) {
        logits[id] = (float)(sl_rng_below(7, 0, id, 100)) / 16 /* many are equal */;
        largest = logits[id] > largest ? logits[id] : largest;
    }
    for (uint32_t id = 0; id < MANY; id++) {
        uint32_t at = id;
        weight[id] = exp(logits[id] - largest);
        for (; at > 0 && weight[sorted[at - 1]] < weight[id]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = id;
    }
    for (uint32_t k = 1; k <= MANY; k++) {
        sl_sampler sampler, options = {MANY, 1, k, 1, NULL, NULL};
        assert_int_equal(sl_sampler_open(&options, &sampler), SL_OK);
        for (int place = 0; place < PLACES; place++) {
            uint32_t id = MANY;
            const double uniform = (place + 0.5) / PLACES;
            assert_int_equal(sl_sampler_draw(&sampler, logits, uniform, &id), SL_OK);
            assert_int_equal(id, draw_sorted(weight, sorted, k, uniform));
        }
        sl_sampler_close(&sampler);
    }
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
        cmocka_unit_test(draw_when_top_k_and_top_p_then_p_is_of_what_k_leaves),
        cmocka_unit_test(draw_when_ids_are_many_then_they_are_ordered),
        cmocka_unit_test(draw_when_cold_then_sharpens),
        cmocka_unit_test(draw_when_logits_are_not_finite_then_never_picks_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
