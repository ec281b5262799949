/* What could be wrong with masters of which the low halves stand beside the parameters: a number
 * that does not come back from its halves, a high half that is not the nearest bf16, a NaN that
 * becomes a zero; an update that computes with another number than one beside a master in fp32,
 * writes another one, or writes in a step that is skipped. All on every instruction set, with every
 * rule and every type of states. */
#include "kernel_case.h"

#include "base/bits.h"
#include "base/low_half.h"

enum { BLOCK = SL_BLOCK_ELEMENTS, SHAPES = 6, KEYS = 12 };

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* ---- halves ---- */

/* All high halves, with the low ones at which something changes. */
static void numbers_when_split_come_back(void **state)
{
    (void)state;
    static const uint32_t lows[] = {0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    for (uint32_t high = 0; high < 0x10000; high++)
        for (size_t l = 0; l < sizeof lows / sizeof *lows; l++) {
            const uint32_t bits = high << 16 | lows[l], kept = sl_low_half_keep(bits);
            const uint32_t param = sl_low_half_high(kept);
            assert_true(param < 0x10000);
            assert_int_equal(sl_low_half_join(param, kept & 0xffffu), kept);
            assert_int_equal(kept, is_nan(bits) ? 0x7fc00000u : bits);
            assert_int_equal(is_nan(param << 16), is_nan(bits));
        }
}

/* The nearest one, as sl_half_to_bf16 finds it, but that of two the larger one is taken. */
static void parameters_when_split_are_the_nearest(void **state)
{
    (void)state;
    for (int round = 0; round < 100000; round++) {
        uint32_t bits = (uint32_t)draw_below(UINT64_C(1) << 32);
        if (round % 3 == 0)
            bits = (bits & 0xffff0000u) | 0x8000u;
        if (is_nan(bits))
            continue;
        const uint16_t nearest = sl_half_to_bf16(sl_bits_to_float(bits));
        const bool is_tie = (bits & 0xffffu) == 0x8000u;
        assert_int_equal(sl_low_half_high(bits), is_tie ? (bits >> 16) + 1 : nearest);
    }
    assert_int_equal(sl_low_half_high(0x7f7f8000u), 0x7f80); /* too large for bf16: infinite */
    assert_int_equal(sl_low_half_join(0x7f80, 0x8000), 0x7f7f8000u);
}

/* ---- updates ---- */

static const struct {
    sl_op_kind kind;
    int states;
} rules[] = {{SL_OP_ADAMW, 2}, {SL_OP_SGD, 0}, {SL_OP_SGD, 1}, {SL_OP_LION, 1}, {SL_OP_APPLY, 0}};

enum { RULES = sizeof rules / sizeof *rules };

typedef struct update_case {
    kernel_case c;
    uint64_t count, keys[KEYS];
    uint8_t flags[KEYS];
    int param; /* its operand; the master is the next one */
} update_case;

/* SGD has an operand for its state also where it has none. */
static int find_param(int rule)
{
    return rules[rule].kind == SL_OP_SGD ? 3 : 2 + rules[rule].states;
}

static void draw_scalars(update_case *u, int round)
{
    u->c.scalars = (sl_step_scalars){.learning_rate = 3e-3f,
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
                                     .step = draw_below(100)};
    for (int i = 0; i < KEYS; i++) {
        u->flags[i] = (uint8_t)draw_below(2);
        u->keys[i] = sl_rng_below(test_seed, 2, draw_count++, UINT64_MAX);
    }
    u->c.block_flags = u->flags;
    u->c.block_keys = u->keys;
}

static void draw_states(update_case *u, int rule, sl_states states)
{
    for (int m = 0; m < rules[rule].states; m++) {
        if (states == SL_STATES_FP32) {
            float *values = case_random(&u->c, 2 + m, u->count, 1e-3f);
            for (uint64_t i = 0; m == 1 && i < u->count; i++)
                values[i] = fabsf(values[i]);
        } else { /* zeros in any type, as in a first step */
            const uint64_t bytes = sl_chunk_bytes(u->count / BLOCK, sl_states_block_bytes(states));
            memset(case_operand(&u->c, 2 + m, bytes), 0, bytes);
        }
    }
}

/* Ties, both zeros, subnormals, what rounds to infinity, infinities and NaNs among the masters. */
static void draw_masters(update_case *u)
{
    static const uint32_t special[] = {0x3f808000u, 0xbf818000u, 0x80000000u, 0x00000001u,
                                       0x7f7fffffu, 0xff7f8000u, 0x7f800000u, 0xff800000u,
                                       0x7fffffffu, 0xff800001u, 0xffc00000u};
    uint32_t *bits = (uint32_t *)case_random(&u->c, u->param + 1, u->count, 1);
    for (uint64_t i = 0; i < u->count / 16; i++)
        bits[draw_below(u->count)] = special[draw_below(sizeof special / sizeof *special)];
    for (uint64_t i = 0; i < u->count; i++)
        bits[i] = sl_low_half_keep(bits[i]);
    case_operand(&u->c, u->param, u->count * sizeof(uint16_t)); /* beside fp32 it is only written */
}

static void draw_update(int rule, sl_states states, int round, update_case *u)
{
    u->count = draw_between(1, 6) * BLOCK;
    u->param = find_param(rule);
    u->c = (kernel_case){.kind = rules[rule].kind,
                         .attrs = {.element_count = u->count,
                                   .first_block = draw_below(5),
                                   .type = SL_TYPE_BF16,
                                   .grad_type = round % 3 ? SL_TYPE_FP32 : SL_TYPE_BF16,
                                   .state_type = states}};
    draw_scalars(u, round);
    *(sl_step_control *)case_operand(&u->c, 0, sizeof(sl_step_control)) =
        (sl_step_control){.clip_scale = 0.7f};
    if (round % 3) {
        case_random(&u->c, 1, u->count, 1e-2f);
    } else {
        uint16_t *gradient = case_operand(&u->c, 1, u->count * sizeof *gradient);
        for (uint64_t i = 0; i < u->count; i++)
            gradient[i] = sl_half_to_bf16(0.01f * sl_rng_normal(test_seed, 5, draw_count++));
    }
    draw_states(u, rule, states);
    draw_masters(u);
}

/* The same case with its master in two halves. */
static void split_case(const update_case *whole, update_case *halves)
{
    *halves = *whole;
    kernel_case *c = &halves->c;
    memset(c->input, 0, sizeof c->input);
    memset(c->result, 0, sizeof c->result);
    memset(c->bytes, 0, sizeof c->bytes);
    for (int i = 0; i < whole->param; i++)
        if (whole->c.bytes[i] > 0)
            copy_operand(c, i, whole->c.input[i], whole->c.bytes[i]);
    c->attrs.master_type = SL_MASTER_LOW;
    c->block_flags = halves->flags;
    c->block_keys = halves->keys;
    const uint32_t *bits = whole->c.input[whole->param + 1];
    uint16_t *high = case_operand(c, whole->param, whole->count * sizeof *high);
    uint16_t *low = case_operand(c, whole->param + 1, whole->count * sizeof *low);
    for (uint64_t i = 0; i < whole->count; i++) {
        high[i] = (uint16_t)sl_low_half_high(bits[i]);
        low[i] = (uint16_t)bits[i];
    }
}

static void compare_with_fp32(int rule, sl_states states, int round)
{
    update_case whole, halves;
    draw_update(rule, states, round, &whole);
    split_case(&whole, &halves);
    const int param = whole.param;
    case_run(&whole.c);
    case_run(&halves.c);
    const uint32_t *bits = whole.c.result[param + 1];
    const uint16_t *rounded = whole.c.result[param];
    const uint16_t *high = halves.c.result[param], *low = halves.c.result[param + 1];
    for (uint64_t i = 0; i < whole.count; i++) {
        const bool is_apart = is_nan(bits[i]) || (bits[i] & 0xffffu) == 0x8000u;
        assert_int_equal(sl_low_half_join(high[i], low[i]), sl_low_half_keep(bits[i]));
        assert_true(high[i] == rounded[i] || is_apart);
    }
    for (int i = 0; i < param; i++)
        if (halves.c.bytes[i] > 0)
            assert_memory_equal(halves.c.result[i], whole.c.result[i], halves.c.bytes[i]);
    ((sl_step_control *)halves.c.input[0])->skip = 1;
    case_run(&halves.c);
    for (int i = 0; i <= param + 1; i++)
        if (halves.c.bytes[i] > 0)
            assert_memory_equal(halves.c.result[i], halves.c.input[i], halves.c.bytes[i]);
    case_close(&whole.c);
    case_close(&halves.c);
}

static void updates_when_masters_are_low_halves_have_the_numbers_of_fp32(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++)
        for (int rule = 0; rule < RULES; rule++)
            for (int states = 0; states < SL_STATES_COUNT; states++)
                if (states == SL_STATES_FP32 || rules[rule].states > 0)
                    compare_with_fp32(rule, (sl_states)states, round);
}

static void updates_when_parameters_are_not_bf16_refuse_low_halves(void **state)
{
    (void)state;
    static const sl_op_attrs wrong[] = {
        {.element_count = BLOCK, .type = SL_TYPE_FP32, .master_type = SL_MASTER_LOW},
        {.element_count = BLOCK, .type = SL_TYPE_FP16, .master_type = SL_MASTER_LOW},
        {.element_count = BLOCK, .type = SL_TYPE_BF16, .master_type = SL_MASTER_COUNT}};
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++)
        for (int rule = 0; rule < RULES; rule++) {
            uint16_t master = 0;
            sl_kernel_call call = {.attrs = &wrong[w]};
            call.operand[find_param(rule) + 1] = &master;
            assert_int_equal(sl_kernels_cpu()->row[rules[rule].kind].run(&call), SL_ERROR_INTERNAL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_when_split_come_back),
        cmocka_unit_test(parameters_when_split_are_the_nearest),
        cmocka_unit_test(updates_when_masters_are_low_halves_have_the_numbers_of_fp32),
        cmocka_unit_test(updates_when_parameters_are_not_bf16_refuse_low_halves),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
