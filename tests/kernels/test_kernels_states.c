/* What could be wrong with states in bf16 and in codes of 8 bits: a code that is not the nearest
 * one; numbers that change when they are decoded and encoded again, so that a run that goes on from
 * a checkpoint has others; a group that is all zero, tiny or not finite; rounding that is biased,
 * or that draws by something else than step, key and place; an update that computes with other
 * numbers than are stored, or stores others than it computed, on some instruction set. */
#include "kernel_case.h"

#include "base/bits.h"
#include "base/dynamic_codes.h"
#include "base/stochastic.h"

enum { SHAPES = 6, BLOCK = SL_BLOCK_ELEMENTS, GROUP = SL_CODES_GROUP };

/* ---- codes ---- */

/* The shares of a code as the paper describes them, in no order; returns their number. */
static int list_described(bool is_signed, double *out_shares)
{
    int count = 0;
    for (int decade = 0; decade < 7; decade++) {
        const double end = pow(10, decade - 6);
        const int intervals = (is_signed ? 1 : 2) << decade;
        for (int i = 0; i < intervals; i++) {
            const double share = end * (0.1 + 0.9 * (i + 0.5) / intervals);
            out_shares[count++] = share;
            if (is_signed)
                out_shares[count++] = -share;
        }
    }
    out_shares[count++] = 0;
    out_shares[count++] = 1;
    return count;
}

static double find_nearest(const double *shares, double value)
{
    double nearest = shares[0];
    for (int i = 1; i < 256; i++)
        if (fabs(shares[i] - value) < fabs(nearest - value))
            nearest = shares[i];
    return nearest;
}

static void codes_are_those_of_the_description(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double shares[256];
        assert_int_equal(list_described(is_signed, shares), 256);
        bool seen[256] = {0};
        for (uint32_t code = 0; code < 256; code++) {
            const double share = (double)sl_codes_decode(code, is_signed);
            int at = 0;
            for (int i = 1; i < 256; i++)
                at = fabs(shares[i] - share) < fabs(shares[at] - share) ? i : at;
            assert_true(fabs(shares[at] - share) <= 5 * UNIT * fabs(share));
            assert_false(seen[at]);
            seen[at] = true;
        }
    }
}

/* Of two shares that are as near as an interval's 2^-15, either may be taken. */
static void codes_when_encoded_are_the_nearest(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double shares[256];
        list_described(is_signed, shares);
        for (int round = 0; round < 20000; round++) {
            const double size = pow(10, -8.0 * (double)draw_below(1 << 20) / (1 << 20));
            const float value = (float)(is_signed && draw_below(2) ? -size : size);
            const uint32_t code =
                is_signed ? sl_codes_encode_signed(value) : sl_codes_encode_unsigned(value);
            const double got = (double)sl_codes_decode(code, is_signed);
            const double best = find_nearest(shares, (double)value);
            if (fabs(got - (double)value) >
                fabs(best - (double)value) + 0x1p-15 * fabs(best - got) + 5 * UNIT * fabs(got))
                fail_msg("%a became %a, not %a", (double)value, got, best);
        }
    }
}

/* A scale of any size that is kept; some as large and as small as there are. */
static float draw_scale(bool is_signed)
{
    const uint32_t least = 0x0b800000u, most = 0x7f7fffffu;
    uint32_t bits = least + (uint32_t)draw_below(most - least + 1);
    if (draw_below(8) == 0)
        bits = draw_below(2) ? most - (uint32_t)draw_below(3) : least + (uint32_t)draw_below(3);
    return sl_bits_to_float(is_signed && draw_below(2) ? bits | 1u << 31 : bits);
}

static void codes_when_decoded_and_encoded_again_are_the_same(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        float shares[256], values[GROUP];
        uint8_t codes[GROUP], again[GROUP];
        sl_codes_list_shares(is_signed, shares);
        for (int i = 0; i < GROUP; i++)
            codes[i] = (uint8_t)i; /* each code once, that of the scale among them */
        for (int round = 0; round < 3000; round++) {
            const float scale = draw_scale(is_signed);
            sl_codes_decode_group(codes, scale, shares, values);
            const float found = sl_codes_encode_group(values, is_signed, again);
            assert_int_equal(sl_bits_of_float(found), sl_bits_of_float(scale));
            assert_memory_equal(again, codes, sizeof codes);
        }
    }
}

static void codes_when_the_largest_is_negative_keep_it(void **state)
{
    (void)state;
    float shares[256], values[GROUP] = {[3] = 0.75f, [9] = -1.5f, [200] = 1.4f};
    uint8_t codes[GROUP];
    sl_codes_list_shares(true, shares);
    assert_true(sl_codes_encode_group(values, true, codes) == -1.5f);
    sl_codes_decode_group(codes, -1.5f, shares, values);
    assert_true(values[9] == -1.5f && values[0] == 0 && fabsf(values[3] - 0.75f) < 0.01f);
    values[200] = 1.5f; /* of two, the positive one */
    assert_true(sl_codes_encode_group(values, true, codes) == 1.5f);
}

static void codes_when_all_are_tiny_are_zeros(void **state)
{
    (void)state;
    float shares[256], values[GROUP] = {0};
    uint8_t codes[GROUP];
    sl_codes_list_shares(true, shares);
    for (int round = 0; round < 3; round++) {
        values[7] = round == 0 ? 0.0f : round == 1 ? -0x1.fffffep-105f : 0x1p-149f;
        const float scale = sl_codes_encode_group(values, true, codes);
        assert_true(scale == 0);
        sl_codes_decode_group(codes, scale, shares, values);
        for (int i = 0; i < GROUP; i++)
            assert_true(values[i] == 0);
    }
}

static void codes_when_one_is_not_finite_stay_so(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        float shares[256], values[GROUP] = {[1] = 2, [5] = bad[b], [6] = -3};
        uint8_t codes[GROUP];
        sl_codes_list_shares(true, shares);
        const float scale = sl_codes_encode_group(values, true, codes);
        sl_codes_decode_group(codes, scale, shares, values);
        assert_false(isfinite(values[5]));
    }
}

/* ---- stochastic rounding ---- */

static float round_once(float value, uint64_t key, uint64_t step, uint32_t element, uint32_t state)
{
    uint32_t words[SL_STOCHASTIC_WORDS];
    sl_stochastic_draw(key, step, element / SL_STOCHASTIC_WORDS, words);
    return sl_half_from_bf16((uint16_t)sl_stochastic_round(
        sl_bits_of_float(value), words[element % SL_STOCHASTIC_WORDS], state));
}

/* The mean of n roundings: each is at most a unit u away, and of variance at most u^2 / 4. Six
 * deviations of the mean are 3 u / sqrt(n). */
static void rounding_when_repeated_keeps_the_mean(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static const float values[] = {1.001f, -0.3331f, 1.0f + 0x1p-16f, 0x1.8p-130f, -5.0f};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (uint32_t moment = 0; moment < 2; moment++) {
            const float unit =
                sl_bits_to_float((sl_bits_of_float(fabsf(values[v])) & 0xffff0000u) + 0x10000u) -
                sl_bits_to_float(sl_bits_of_float(fabsf(values[v])) & 0xffff0000u);
            double sum = 0;
            for (uint32_t n = 0; n < N; n++) {
                const float got = round_once(values[v], 77 + n / BLOCK, n % 7, n % BLOCK, moment);
                assert_true(fabsf(got - values[v]) < unit);
                sum += (double)got - (double)values[v];
            }
            assert_true(fabs(sum / N) <= 3 * (double)unit / sqrt(N));
        }
    assert_true(isnan(round_once(NAN, 1, 2, 3, 0)));
    assert_true(round_once(-INFINITY, 1, 2, 3, 1) == -INFINITY);
}

/* ---- updates ---- */

static const struct {
    sl_op_kind kind;
    int states;
} rules[] = {{SL_OP_ADAMW, 2}, {SL_OP_SGD, 1}, {SL_OP_LION, 1}};

typedef struct update_case {
    kernel_case c;
    uint64_t blocks, keys[12];
    uint8_t flags[12];
    int states;
} update_case;

static void draw_update(int rule, int round, update_case *u)
{
    u->blocks = draw_between(1, 6);
    u->states = rules[rule].states;
    const uint64_t count = u->blocks * BLOCK;
    u->c = (kernel_case){.kind = rules[rule].kind,
                         .attrs = {.element_count = count, .first_block = draw_below(5)},
                         .scalars = {.learning_rate = 3e-3f,
                                     .weight_decay = 0.1f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .epsilon = 1e-8f,
                                     .bias1 = 0.271f,
                                     .bias2_root = 0.3776f,
                                     .lion_beta1 = 0.9f,
                                     .lion_beta2 = 0.99f,
                                     .momentum = 0.85f,
                                     .is_nesterov = (uint32_t)round % 2,
                                     .step = draw_below(100)}};
    for (int i = 0; i < 12; i++) {
        u->flags[i] = (uint8_t)draw_below(2);
        u->keys[i] = sl_rng_below(test_seed, 2, draw_count++, UINT64_MAX);
    }
    u->c.block_flags = u->flags;
    u->c.block_keys = u->keys;
    sl_step_control *control = case_operand(&u->c, 0, sizeof *control);
    *control = (sl_step_control){.clip_scale = 0.7f};
    float *gradient = case_random(&u->c, 1, count, 1e-2f);
    memset(gradient + GROUP, 0, GROUP * sizeof *gradient);
    case_random(&u->c, 2 + u->states, count, 1);
}

/* Stores a block as attrs.state_type says, by the definitions, one number at a time. */
static void store_block(const update_case *u, uint64_t block, int moment, const float *values,
                        char *stored)
{
    const uint64_t key = u->keys[u->c.attrs.first_block + block];
    uint16_t *halves = (uint16_t *)(void *)stored;
    for (uint32_t i = 0; u->c.attrs.state_type == SL_STATES_BF16 && i < BLOCK; i++)
        halves[i] =
            sl_half_to_bf16(round_once(values[i], key, u->c.scalars.step, i, (uint32_t)moment));
    for (uint32_t g = 0; u->c.attrs.state_type == SL_STATES_INT8 && g < BLOCK / GROUP; g++) {
        const float scale = sl_codes_encode_group(values + (size_t)g * GROUP, moment == 0,
                                                  (uint8_t *)stored + (size_t)g * GROUP);
        memcpy(stored + BLOCK + 4 * (size_t)g, &scale, sizeof scale);
    }
}

static void load_block(const update_case *u, int moment, const char *stored, float *values)
{
    const uint16_t *halves = (const uint16_t *)(const void *)stored;
    float shares[256], scales[BLOCK / GROUP];
    for (uint32_t i = 0; u->c.attrs.state_type == SL_STATES_BF16 && i < BLOCK; i++)
        values[i] = sl_half_from_bf16(halves[i]);
    if (u->c.attrs.state_type != SL_STATES_INT8)
        return;
    sl_codes_list_shares(moment == 0, shares);
    memcpy(scales, stored + BLOCK, sizeof scales);
    for (size_t g = 0; g < BLOCK / GROUP; g++)
        sl_codes_decode_group((const uint8_t *)stored + g * GROUP, scales[g], shares,
                              values + g * GROUP);
}

/* The update with what is stored, widened to fp32, which then is stored by the definitions. */
static void compare_with_fp32(int rule, sl_states states, int round)
{
    update_case u, wide;
    const uint64_t block_bytes = sl_states_block_bytes(states);
    draw_update(rule, round, &u);
    wide = u;
    memset(wide.c.input, 0, sizeof wide.c.input);
    memset(wide.c.result, 0, sizeof wide.c.result);
    u.c.attrs.state_type = states;
    wide.c.bytes[2] = wide.c.bytes[3] = 0;
    for (int i = 0; i < 3 + u.states; i++)
        if (i < 2 || i == 2 + u.states)
            copy_operand(&wide.c, i, u.c.input[i], u.c.bytes[i]);
    for (int m = 0; m < u.states; m++) {
        char *stored = case_operand(&u.c, 2 + m, sl_chunk_bytes(u.blocks, block_bytes));
        float *values = case_random(&wide.c, 2 + m, u.blocks * BLOCK, 1e-3f);
        for (uint64_t b = 0; b < u.blocks; b++) {
            for (int i = 0; m == 1 && i < BLOCK; i++)
                values[b * BLOCK + i] = fabsf(values[b * BLOCK + i]);
            store_block(&u, b, m, values + b * BLOCK, stored + b * block_bytes);
            load_block(&u, m, stored + b * block_bytes, values + b * BLOCK);
        }
    }
    case_run(&u.c);
    case_run(&wide.c);
    case_compare_bits(&u.c, 2 + u.states, wide.c.result[2 + u.states]);
    char *expected = allocate(block_bytes);
    for (int m = 0; m < u.states; m++)
        for (uint64_t b = 0; b < u.blocks; b++) {
            store_block(&u, b, m, (float *)wide.c.result[2 + m] + b * BLOCK, expected);
            assert_memory_equal((char *)u.c.result[2 + m] + b * block_bytes, expected, block_bytes);
        }
    free(expected);
    ((sl_step_control *)u.c.input[0])->skip = 1;
    case_run(&u.c);
    case_expect_unchanged(&u.c, 0, 2 + u.states);
    case_close(&u.c);
    case_close(&wide.c);
}

static void updates_when_states_are_small_compute_with_what_is_stored(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++)
        for (int rule = 0; rule < 3; rule++) {
            compare_with_fp32(rule, SL_STATES_BF16, round);
            compare_with_fp32(rule, SL_STATES_INT8, round);
        }
}

static void updates_when_keys_or_type_are_missing_say_so(void **state)
{
    (void)state;
    const sl_kernel_table *table = sl_kernels_cpu();
    sl_op_attrs attrs = {.element_count = BLOCK, .state_type = SL_STATES_BF16};
    const sl_kernel_call call = {.attrs = &attrs};
    assert_int_equal(table->row[SL_OP_LION].run(&call), SL_ERROR_INTERNAL);
    attrs.state_type = SL_STATES_COUNT;
    assert_int_equal(table->row[SL_OP_ADAMW].run(&call), SL_ERROR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_the_description),
        cmocka_unit_test(codes_when_encoded_are_the_nearest),
        cmocka_unit_test(codes_when_decoded_and_encoded_again_are_the_same),
        cmocka_unit_test(codes_when_the_largest_is_negative_keep_it),
        cmocka_unit_test(codes_when_all_are_tiny_are_zeros),
        cmocka_unit_test(codes_when_one_is_not_finite_stay_so),
        cmocka_unit_test(rounding_when_repeated_keeps_the_mean),
        cmocka_unit_test(updates_when_states_are_small_compute_with_what_is_stored),
        cmocka_unit_test(updates_when_keys_or_type_are_missing_say_so),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
