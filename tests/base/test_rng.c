/* What could be wrong here: the words are not Philox's; a fill for one instruction set gives other
 * bits than another, or than a single normal, for some counter or cut; a normal is not what its
 * words say, above all where a logarithm, a root or a cosine ends; normals are not normal, or hang
 * together with their neighbours.
 *
 * Words are compared with the known answers of the authors' Random123. Philox maps counters to
 * words one to one, so it is run backwards to find the counter of any words: extreme ones then go
 * through every fill at every place of a register. Normals are compared with the C library's
 * functions of long double. The distribution's bounds are five standard errors, derived below; the
 * draws are fixed by the seed, so the test answers the same on every run.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

static uint64_t test_seed = 1;

static uint64_t join(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

static void words_when_drawn_then_are_the_known_answers(void **state)
{
    (void)state;
    static const struct answer {
        uint64_t seed, stream, index;
        uint32_t word[4];
    } answers[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const struct answer *it = &answers[i];
        sl_rng_word4 words = sl_rng_draw(it->seed, it->stream, it->index);
        assert_memory_equal(words.word, it->word, sizeof it->word);
    }
}

/* ---- fills against single normals ---- */

enum { FILL_MAX = 700 }; /* two batches and a rest */

static void check_fill(sl_rng_fill *fill, uint64_t stream, uint64_t first, uint64_t count)
{
    float values[FILL_MAX + 2];
    for (int i = 0; i < FILL_MAX + 2; i++)
        values[i] = -99.0f;
    fill(test_seed, stream, first, count, values + 1);
    for (uint64_t i = 0; i < FILL_MAX + 2; i++) {
        bool is_inside = i >= 1 && i <= count;
        float expected = is_inside ? sl_rng_normal(test_seed, stream, first + i - 1) : -99.0f;
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("%" PRIu64 " normals from %" PRIu64 " of stream %" PRIu64 ": %a at %" PRId64
                     ", not %a",
                     count, first, stream, values[i], (int64_t)i - 1, expected);
    }
}

static void fills_when_cut_anywhere_then_are_the_single_normals(void **state)
{
    (void)state;
    static const uint64_t firsts[] = {0, UINT32_MAX - 200, UINT64_MAX - 300};
    for (uint32_t isa = 0; sl_rng_usable_fill(isa); isa++)
        for (uint64_t i = 0; i < 300; i++) {
            uint64_t first = i < 3 ? firsts[i] : sl_rng_below(test_seed, 2, i, UINT64_MAX);
            uint64_t count = i < 3 ? FILL_MAX : sl_rng_below(test_seed, 3, i, FILL_MAX + 1);
            check_fill(sl_rng_usable_fill(isa), i, first, count);
        }
    assert_ptr_equal(sl_rng_usable_fill(100), NULL);
}

/* ---- any words, through every fill ---- */

/* The number whose product with an odd `factor` is 1 modulo 2^32: Newton, doubling the bits. */
static uint32_t invert(uint32_t factor)
{
    uint32_t inverse = factor; /* right in the three lowest bits */
    for (int i = 0; i < 4; i++)
        inverse *= 2 - factor * inverse;
    return inverse;
}

/* Philox backwards: the (index, stream) that sl_rng_draw makes `words` of. */
static void find_counter(const uint32_t words[4], uint64_t *out_index, uint64_t *out_stream)
{
    uint32_t c[4] = {words[0], words[1], words[2], words[3]};
    for (uint32_t round = 10; round-- > 0;) {
        uint32_t key0 = (uint32_t)test_seed + round * 0x9E3779B9u;
        uint32_t key1 = (uint32_t)(test_seed >> 32) + round * 0xBB67AE85u;
        uint32_t before0 = c[3] * invert(0xD2511F53u), before2 = c[1] * invert(0xCD9E8D57u);
        uint32_t high0 = (uint32_t)(0xD2511F53ull * before0 >> 32);
        uint32_t high1 = (uint32_t)(0xCD9E8D57ull * before2 >> 32);
        uint32_t before1 = c[0] ^ high1 ^ key0, before3 = c[2] ^ high0 ^ key1;
        c[0] = before0, c[1] = before1, c[2] = before2, c[3] = before3;
    }
    *out_index = join(c[0], c[1]);
    *out_stream = join(c[2], c[3]);
}

static long double expect_normal(uint32_t radius_word, uint32_t angle_word)
{
    const long double two_pi = 6.283185307179586476925286766559L;
    long double radius = sqrtl(-2 * logl(((long double)radius_word + 1) * 0x1p-32L));
    long double quarter_minus = 0x1p30L - fabsl((long double)(int32_t)angle_word);
    return radius * sinl(two_pi * 0x1p-32L * quarter_minus); /* sin(pi / 2 - x) is cos(x) */
}

/* Some ten roundings to double, each of 2^-53, and one to float: the result is the rounding of a
 * number within a part in 2^48 of the true one. */
static bool is_normal_of(float value, uint32_t radius_word, uint32_t angle_word)
{
    long double expected = expect_normal(radius_word, angle_word);
    float nearer = (float)(expected * (1 - 0x1p-48L)), farther = (float)(expected * (1 + 0x1p-48L));
    return value >= fminf(nearer, farther) && value <= fmaxf(nearer, farther);
}

static void check_words(uint32_t radius_word, uint32_t angle_word, uint32_t other)
{
    float values[48];
    uint64_t index, stream, before = other % 48; /* any place of a register, and of the rest */
    find_counter((const uint32_t[4]){radius_word, angle_word, other, ~other}, &index, &stream);
    sl_rng_word4 words = sl_rng_draw(test_seed, stream, index);
    assert_true(words.word[0] == radius_word && words.word[1] == angle_word);
    for (uint32_t isa = 0; sl_rng_usable_fill(isa); isa++) {
        sl_rng_usable_fill(isa)(test_seed, stream, index - before, 48, values);
        if (!is_normal_of(values[before], radius_word, angle_word))
            fail_msg("words %08" PRIx32 " %08" PRIx32 ": %a, not %La", radius_word, angle_word,
                     values[before], expect_normal(radius_word, angle_word));
        assert_true(fabsf(values[before]) < 6.67f); /* sqrt(64 log 2) = 6.6604 */
    }
}

static void normals_when_words_are_extreme_then_are_box_mullers(void **state)
{
    (void)state;
    /* The least and the largest, powers of two, where the mantissa's range ends (sqrt(1/2) 2^32),
     * the ends and quarters of the circle; and their neighbours. */
    static const uint32_t middles[] = {0,          1,          0x100,      0x10000,
                                       0x1000000,  0x40000000, 0x80000000, 0xb504f333,
                                       0x5a827999, 0xc0000000, 0xffffffff};
    enum { COUNT = 3 * sizeof middles / sizeof *middles };
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t k = 0; k < COUNT; k++)
            check_words(middles[i / 3] + i % 3 - 1, middles[k / 3] + k % 3 - 1, 37 * i + k);
}

static void normals_when_words_are_any_then_are_box_mullers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10000; i++) {
        sl_rng_word4 it = sl_rng_draw(test_seed, 4, i);
        /* One in two near an end of the radius's range, on a logarithmic scale. */
        uint32_t radius_word = it.word[0] >> (i % 4 == 0 ? it.word[3] % 32 : 0);
        check_words(i % 4 == 1 ? ~(radius_word >> it.word[3] % 32) : radius_word, it.word[1],
                    it.word[2]);
    }
}

/* Doubles that are at most one unit from the border of two floats: a coefficient, an order or a
 * rounding that is another anywhere, a fused multiply-add above all, takes some to the other side.
 * The values were worked out from the definition by an interpreter without any. */
static void normals_when_on_a_border_then_round_the_same_way_everywhere(void **state)
{
    (void)state;
    static const struct border {
        uint32_t radius_word, angle_word;
        float value;
    } borders[] = {
        {0xf4f010a0, 0x85ebeb54, -0x1.2d2806p-2f}, {0xffcf2819, 0x0d177d88, 0x1.2c255p-5f},
        {0xfff9435b, 0xeb752ee5, 0x1.9b646cp-7f},  {0xffffd475, 0x97a812a6, -0x1.f359a4p-10f},
        {0xfffff7f4, 0x14ec803d, 0x1.bf26d2p-11f}, {0xffffff76, 0xa64223fc, -0x1.38d596p-13f},
        {0x06eaeaf2, 0x1a5f53e8, 0x1.12691p+1f},   {0x00147df8, 0x23cc85c1, 0x1.48310ep+1f},
        {0x00006a4a, 0x6401e72e, -0x1.e42f12p+1f}, {0x20d565f3, 0x350b150e, 0x1.13b1f4p-1f},
        {0x264558af, 0x8bb6b9e2, -0x1.de9d68p+0f}, {0xab639e38, 0xafb23b2f, -0x1.655978p-2f},
        {0x8b3972b8, 0xdab15452, 0x1.584c3cp-1f},  {0x841b923e, 0x9877c84a, -0x1.e5e4fp-1f},
        {0xde8acef2, 0x9e0f675d, -0x1.910882p-2f}, {0xd4601410, 0x74b21ca2, -0x1.2cffcp-1f},
        {0x2b944880, 0x2481448a, 0x1.2cf9bcp+0f},  {0x73132924, 0x66d51671, -0x1.07e96cp+0f},
    };
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        float values[16];
        uint64_t index, stream;
        const struct border *it = &borders[i];
        find_counter((const uint32_t[4]){it->radius_word, it->angle_word, 1, 2}, &index, &stream);
        assert_true(sl_rng_normal(test_seed, stream, index) == it->value);
        for (uint32_t isa = 0; sl_rng_usable_fill(isa); isa++) {
            sl_rng_usable_fill(isa)(test_seed, stream, index, 16, values);
            assert_true(values[0] == it->value);
        }
    }
}

/* ---- the distribution ---- */

enum { SAMPLE = 1 << 22, BINS = 64 };

static float *draw_sample(void)
{
    float *values = malloc(SAMPLE * sizeof *values);
    assert_non_null(values);
    sl_rng_fill_normal(test_seed, 5, 0, SAMPLE, values);
    return values;
}

/* The mean of SAMPLE numbers of this variance is within five standard errors of `expected`. */
static void check_mean(const char *what, double sum, double expected, double variance)
{
    double error = (sum / SAMPLE - expected) / sqrt(variance / SAMPLE);
    if (!(fabs(error) < 5))
        fail_msg("%s: %.3g standard errors from what it should be", what, error);
}

/* x^k of a standard normal has the mean 0, 1, 0, 3 and the variance 1, 2, 15, 96 (k = 1 .. 4: the
 * even moments are 1, 3, 15, 105). */
static void sample_when_drawn_then_has_the_moments_of_a_normal(void **state)
{
    (void)state;
    double sums[4] = {0};
    float *x = draw_sample();
    for (int i = 0; i < SAMPLE; i++) {
        double power = 1;
        for (int k = 0; k < 4; k++)
            sums[k] += power *= x[i];
    }
    check_mean("mean", sums[0], 0, 1);
    check_mean("variance", sums[1], 1, 2);
    check_mean("skewness", sums[2], 0, 15);
    check_mean("fourth moment", sums[3], 3, 96);
    free(x);
}

/* In bins of equal probability the sum of (count - expected)^2 / expected is chi-square of BINS - 1
 * degrees: mean 63, deviation sqrt(2 * 63) = 11.2. Too little would be as wrong as too much. Beyond
 * a limit the count is of Poisson, whose deviation is the root of its mean. */
static void sample_when_counted_then_fills_bins_and_tails_evenly(void **state)
{
    (void)state;
    uint32_t bins[BINS] = {0}, beyond[6] = {0};
    float *x = draw_sample();
    for (int i = 0; i < SAMPLE; i++) {
        bins[(int)(BINS * 0.5 * erfc(-x[i] / sqrt(2.0)))]++;
        for (int limit = 3; limit <= 5; limit++)
            beyond[limit] += fabsf(x[i]) > (float)limit;
    }
    double expected = (double)SAMPLE / BINS, chi_square = 0;
    for (int i = 0; i < BINS; i++)
        chi_square += (bins[i] - expected) * (bins[i] - expected) / expected;
    print_message("chi-square %.1f of %d\n", chi_square, BINS - 1);
    assert_true(fabs(chi_square - (BINS - 1)) < 5 * sqrt(2.0 * (BINS - 1)));
    for (int limit = 3; limit <= 5; limit++) {
        double mean = SAMPLE * erfc(limit / sqrt(2.0));
        print_message("beyond %d: %u, expected %.1f\n", limit, beyond[limit], mean);
        assert_true(fabs(beyond[limit] - mean) < 5 * sqrt(mean));
    }
    free(x);
}

/* Products of independent normals have mean 0 and variance 1; of their squares less 1, variance
 * 2 * 2. Neighbours of one stream and of one row or another, and the same place of two streams. */
static void sample_when_compared_with_neighbours_then_does_not_hang_together(void **state)
{
    (void)state;
    static const int lags[] = {1, 2, 3, 4, 8, 16, 256, 768, 1024};
    float *x = draw_sample(), *y = malloc(SAMPLE * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i <= sizeof lags / sizeof *lags; i++) {
        bool is_stream = i == sizeof lags / sizeof *lags;
        sl_rng_fill_normal(test_seed, is_stream ? 6 : 5, is_stream ? 0 : (uint64_t)lags[i], SAMPLE,
                           y);
        double products = 0, squares = 0;
        for (int k = 0; k < SAMPLE; k++) {
            products += (double)x[k] * y[k];
            squares += ((double)x[k] * x[k] - 1) * ((double)y[k] * y[k] - 1);
        }
        check_mean("product of neighbours", products, 0, 1);
        check_mean("product of neighbours' squares", squares, 0, 4);
    }
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_when_drawn_then_are_the_known_answers),
        cmocka_unit_test(fills_when_cut_anywhere_then_are_the_single_normals),
        cmocka_unit_test(normals_when_words_are_extreme_then_are_box_mullers),
        cmocka_unit_test(normals_when_words_are_any_then_are_box_mullers),
        cmocka_unit_test(normals_when_on_a_border_then_round_the_same_way_everywhere),
        cmocka_unit_test(sample_when_drawn_then_has_the_moments_of_a_normal),
        cmocka_unit_test(sample_when_counted_then_fills_bins_and_tails_evenly),
        cmocka_unit_test(sample_when_compared_with_neighbours_then_does_not_hang_together),
    };
    const char *given = getenv("SL_TEST_SEED");
    test_seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %" PRIu64 "\n", test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
