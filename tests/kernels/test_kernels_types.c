/* What could be wrong in half precision: a rounding that is not to nearest, even, or not of
 * subnormals; a NaN that becomes a number; a sum that is rounded on the way; an operand of the
 * wrong type or at the wrong byte; bits that depend on the instruction set or on how a gradient was
 * stored.
 *
 * Conversions are compared with base/half.h for every half and around every boundary between two of
 * them. Every op must give, bit for bit, what it gives in fp32 for the same numbers, rounded once:
 * so the bounds that the other test programs derive for fp32 hold for half precision, and half a
 * unit of its type on top. Which operands are of the type comes from the op table, not from the
 * kernels. Products have sums of their own order and are not among these ops. */
#include "kernel_case.h"

#include "base/half.h"
#include "program/build.h"

enum { SHAPES = 30, BLOCK = SL_BLOCK_ELEMENTS };

static const sl_type HALVES[2] = {SL_TYPE_BF16, SL_TYPE_FP16};

static void expect_rounded(const float *x, sl_type type, uint64_t count)
{
    static uint16_t y[1 << 16];
    sl_simd_current()->round(x, y, type, count);
    for (uint64_t i = 0; i < count; i++)
        if (y[i] != to_half(type, x[i]))
            fail_msg("%s: %a becomes %04x, not %04x of type %d", sl_simd_current()->isa,
                     (double)x[i], y[i], to_half(type, x[i]), (int)type);
}

static void halves_when_widened_keep_their_value(void **state)
{
    (void)state;
    static uint16_t x[1 << 16];
    static float y[1 << 16];
    for (uint32_t i = 0; i < 1 << 16; i++)
        x[i] = (uint16_t)i;
    for (int t = 0; t < 2; t++) {
        sl_simd_current()->widen(x, HALVES[t], y, 1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++)
            if (sl_bits_of_float(y[i]) != sl_bits_of_float(from_half(HALVES[t], x[i])) ||
                (!isnan(y[i]) && to_half(HALVES[t], y[i]) != x[i]))
                fail_msg("%s: %04x of type %d becomes %a", sl_simd_current()->isa, x[i],
                         (int)HALVES[t], (double)y[i]);
    }
}

/* Around every half: itself, the middle to the next one, and the floats next to both. */
static void floats_when_at_a_boundary_round_to_nearest_even(void **state)
{
    (void)state;
    static float x[1 << 16];
    for (int t = 0; t < 2; t++)
        for (int side = 0; side < 6; side++) {
            for (uint32_t i = 0; i < 1 << 16; i++) {
                const uint32_t next = (i & 0x7fff) < 0x7fff ? i + 1 : i;
                const float here = from_half(HALVES[t], (uint16_t)i);
                const float there = from_half(HALVES[t], (uint16_t)next);
                /* past the largest half, the next one would be as far as the last step */
                const float step =
                    isinf(there) ? here - from_half(HALVES[t], (uint16_t)(i - 1)) : 0;
                const float middle = step != 0 ? here + step / 2 : here / 2 + there / 2;
                const uint32_t bits = sl_bits_of_float(side < 3 ? here : middle);
                x[i] = sl_bits_to_float(bits + (uint32_t)(side % 3) - 1);
            }
            expect_rounded(x, HALVES[t], 1 << 16);
        }
}

static void floats_when_random_round_to_nearest_even(void **state)
{
    (void)state;
    static float x[1 << 16];
    for (int round = 0; round < rounds(12); round++) {
        const uint64_t stream = 4000 + draw_count++;
        for (uint64_t i = 0; i < 1 << 16; i++) {
            uint32_t bits = (uint32_t)sl_rng_below(test_seed, stream, i, UINT64_C(1) << 32);
            if (round % 3 == 2) /* where fp16 has its range, subnormals included */
                bits = (bits & 0x807fffff) | (100 + bits % 48) << 23;
            x[i] = sl_bits_to_float(bits);
        }
        expect_rounded(x, HALVES[round % 2], 1 << 16);
    }
}

/* Of every length, from unaligned memory of exactly that length; what lies around stays. */
static void conversions_when_short_touch_nothing_else(void **state)
{
    (void)state;
    enum { MOST = 70 };
    for (uint64_t count = 0; count < MOST; count++)
        for (int t = 0; t < 2; t++) {
            float *x = malloc(count * 4 + 1), y[MOST + 2];
            uint16_t *half = malloc(count * 2 + 1), z[MOST + 2];
            for (uint64_t i = 0; i < count; i++) {
                x[i] = sl_rng_normal(test_seed, 5, i + 100 * count);
                half[i] = to_half(HALVES[t], x[i]);
            }
            memset(y, 0x5a, sizeof y);
            memset(z, 0x5a, sizeof z);
            sl_simd_current()->widen(half, HALVES[t], y + 1, count);
            sl_simd_current()->round(x, z + 1, HALVES[t], count);
            assert_true(sl_bits_of_float(y[0]) == 0x5a5a5a5a && z[0] == 0x5a5a);
            assert_true(sl_bits_of_float(y[count + 1]) == 0x5a5a5a5a && z[count + 1] == 0x5a5a);
            for (uint64_t i = 0; i < count; i++)
                assert_true(z[i + 1] == half[i] && y[i + 1] == from_half(HALVES[t], half[i]));
            free(x);
            free(half);
        }
}

/* Small and odd sizes; round 0 is longer than a tile of anything. */
static sl_op_attrs draw_attrs(int round, sl_type type)
{
    const uint64_t heads = draw_between(1, 3), ids = draw_between(8, 90);
    sl_op_attrs attrs = {.batch = draw_between(1, 3),
                         .seq = round == 0 ? 150 : draw_between(1, 40),
                         .in = heads * draw_between(1, round % 4 ? 20 : 50),
                         .heads = heads,
                         .first_id = draw_below(5),
                         .id_count = ids,
                         .valid_id_count = draw_between(1, ids + 5),
                         .scale = 0.25f,
                         .adds_output = (uint32_t)draw_below(2),
                         .type = (uint16_t)type,
                         .grad_type = (uint16_t)(draw_below(2) ? type : SL_TYPE_FP32),
                         .dropout = draw_below(2) ? 0.25f : 0.0f};
    attrs.adds_gradient = attrs.grad_type == SL_TYPE_FP32 && draw_below(2);
    attrs.out = attrs.in; /* features of keys */
    attrs.row_count = attrs.batch * attrs.seq;
    attrs.element_count = round == 0 ? 70000 : draw_between(1, 3000);
    attrs.cache_rows = attrs.seq + draw_between(3, 9);
    return attrs;
}

static void fill_floats(float *values, uint64_t count, const char *name)
{
    const bool is_positive = !strcmp(name, "stats") || !strcmp(name, "moment2");
    const uint64_t stream = 6000 + draw_count++;
    for (uint64_t i = 0; i < count; i++) {
        values[i] = sl_rng_normal(test_seed, stream, i);
        if (is_positive)
            values[i] = fabsf(values[i]) + 0.5f;
        if (!strcmp(name, "lse")) /* no probability far above 1 */
            values[i] = fabsf(values[i]) + 5.0f;
    }
}

static void fill_control(sl_step_control *control)
{
    *control = (sl_step_control){.grad_norm = 1.0f, .clip_scale = 0.37f};
}

/* Fills operand `index` of both cases with the same numbers: those of `half` widened in `full`. */
static void fill_operand(kernel_case *half, kernel_case *full, int index)
{
    const char *name = sl_op_info_of(half->kind)->operand[index].name;
    const sl_type type = (sl_type)half->attrs.type;
    const uint64_t bytes = sl_op_least_bytes(half->kind, &half->attrs, (uint32_t)index);
    const uint64_t full_bytes = sl_op_least_bytes(full->kind, &full->attrs, (uint32_t)index);
    void *to = case_operand(half, index, bytes);
    float *wide = case_operand(full, index, full_bytes);
    if (!strcmp(name, "tokens") || !strcmp(name, "targets")) {
        for (uint64_t i = 0; i < bytes / 4; i++)
            ((int32_t *)to)[i] = (int32_t)draw_below(half->attrs.id_count + 8);
    } else if (!strcmp(name, "positions")) {
        for (uint64_t i = 0; i < bytes / 4; i++)
            ((int32_t *)to)[i] = (int32_t)(i % half->attrs.seq % 5);
    } else if (!strcmp(name, "control")) {
        fill_control(to);
    } else if (!strcmp(name, "norm")) {
        memset(to, 0, bytes);
    } else {
        fill_floats(wide, full_bytes / 4, name);
        if (bytes < full_bytes)
            sl_simd_usable(sl_simd_usable_count() - 1)->round(wide, to, type, full_bytes / 4);
        else
            memcpy(to, wide, bytes);
    }
    if (bytes == full_bytes)
        memcpy(wide, to, bytes);
    else
        for (uint64_t i = 0; i < full_bytes / 4; i++)
            wide[i] = from_half(type, ((uint16_t *)to)[i]);
}

/* `result` of the half-precision case is `want`, of fp32, rounded where it is of the type. */
static void expect_operand(const kernel_case *half, const kernel_case *full, int index)
{
    const char *name = sl_op_info_of(half->kind)->name;
    const float *want = full->result[index];
    const uint16_t *got = half->result[index];
    if (half->bytes[index] == full->bytes[index]) {
        if (memcmp(got, want, half->bytes[index]) != 0)
            fail_msg("%s: %s of type %u, operand %d: other bits than in fp32",
                     sl_simd_current()->isa, name, half->attrs.type, index);
        return;
    }
    for (uint64_t i = 0; i < half->bytes[index] / 2; i++)
        if (got[i] != to_half((sl_type)half->attrs.type, want[i]))
            fail_msg("%s: %s of type %u, operand %d, element %llu: %04x is not %a rounded",
                     sl_simd_current()->isa, name, half->attrs.type, index, (unsigned long long)i,
                     got[i], (double)want[i]);
}

/* What the op reads of attributes that mean something else to other ops. */
static sl_op_attrs attrs_of(sl_op_kind kind, sl_op_attrs attrs)
{
    if (kind == SL_OP_ATTENTION || kind == SL_OP_ATTENTION_BACKWARD ||
        kind == SL_OP_ATTENTION_CACHED) {
        attrs.is_separate = (uint32_t)draw_below(2);
        attrs.out = draw_below(2) ? attrs.in : attrs.in / attrs.heads; /* or one key head for all */
    }
    if (kind == SL_OP_ROTARY) {
        attrs.negates = (uint32_t)draw_below(2);
        attrs.out = 2 * draw_between(1, 25);
        attrs.in = attrs.heads * attrs.out;
        attrs.cache_rows = attrs.seq;
    }
    if (kind == SL_OP_SWIGLU || kind == SL_OP_SWIGLU_BACKWARD)
        attrs.is_gelu = (uint32_t)draw_below(2);
    if (kind == SL_OP_RMSNORM || kind == SL_OP_RMSNORM_BACKWARD)
        attrs.gamma_offset = (float)draw_below(2);
    return attrs;
}

static void compare_with_fp32(sl_op_kind kind, const sl_op_attrs *attrs)
{
    kernel_case half = {.kind = kind, .attrs = *attrs, .scalars = {.loss_scale = 8.0f}};
    kernel_case full = half;
    full.attrs.type = full.attrs.grad_type = SL_TYPE_FP32;
    half.scalars.position = full.scalars.position = kind == SL_OP_ATTENTION_CACHED ? 3 : 0;
    const sl_op_info *info = sl_op_info_of(kind);
    for (uint32_t i = 0; i < info->operand_count; i++)
        fill_operand(&half, &full, (int)i);
    case_run(&half);
    case_run_once(&full, pools[1]);
    for (uint32_t i = 0; i < info->operand_count; i++)
        expect_operand(&half, &full, (int)i);
    if (kind == SL_OP_LAYERNORM_BACKWARD)
        case_check_norm_without(&half);
    case_close(&half);
    case_close(&full);
}

/* Attention by pairs of bf16 rounds weights too: test_kernels_attention.c. */
static bool rounds_weights(sl_op_kind kind, sl_type type)
{
    const bool is_attention = kind == SL_OP_ATTENTION || kind == SL_OP_ATTENTION_BACKWARD ||
                              kind == SL_OP_ATTENTION_CACHED;
    return is_attention && sl_simd_current()->micro_kernel[type]->terms_per_step > 1;
}

static void ops_when_in_half_precision_are_fp32_rounded_once(void **state)
{
    (void)state;
    static const sl_op_kind kinds[] = {SL_OP_EMBED_POSITION,
                                       SL_OP_EMBED_TOKENS,
                                       SL_OP_LAYERNORM,
                                       SL_OP_ATTENTION,
                                       SL_OP_RMSNORM,
                                       SL_OP_ROTARY,
                                       SL_OP_SWIGLU,
                                       SL_OP_SWIGLU_BACKWARD,
                                       SL_OP_RMSNORM_BACKWARD,
                                       SL_OP_GELU,
                                       SL_OP_SCALE,
                                       SL_OP_DROPOUT,
                                       SL_OP_HEAD_STATS,
                                       SL_OP_GELU_BACKWARD,
                                       SL_OP_HEAD_LOGITS_BACKWARD,
                                       SL_OP_ATTENTION_BACKWARD,
                                       SL_OP_LAYERNORM_BACKWARD,
                                       SL_OP_EMBED_TOKENS_BACKWARD,
                                       SL_OP_EMBED_POSITION_BACKWARD,
                                       SL_OP_ADD,
                                       SL_OP_CLEAR,
                                       SL_OP_ROUND,
                                       SL_OP_ATTENTION_CACHED};
    for (int round = 0; round < rounds(SHAPES); round++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int t = 0; t < 2; t++) {
                const sl_op_attrs attrs = attrs_of(kinds[k], draw_attrs(round, HALVES[t]));
                if (!rounds_weights(kinds[k], HALVES[t]))
                    compare_with_fp32(kinds[k], &attrs);
            }
}

/* One chunk and its update: by `full` in fp32 with the rounded gradient, by the others in half
 * precision, with the gradient stored rounded and as it came. */
typedef struct update_cases {
    kernel_case full, stored_half, stored_fp32;
    uint8_t *flags;
    uint64_t count;
    sl_type type;
} update_cases;

static kernel_case open_update(sl_type type, sl_type grad_type, uint64_t count)
{
    return (kernel_case){
        .kind = SL_OP_ADAMW,
        .attrs = {.element_count = count, .type = (uint16_t)type, .grad_type = (uint16_t)grad_type},
        .scalars = {.learning_rate = 3e-4f,
                    .weight_decay = 0.1f,
                    .beta1 = 0.9f,
                    .beta2 = 0.95f,
                    .epsilon = 1e-8f,
                    .bias1 = 0.271f,
                    .bias2_root = 0.3776f}};
}

static void fill_update(kernel_case *c, const float *gradient, const float *state, uint32_t skip)
{
    const uint64_t count = c->attrs.element_count;
    sl_step_control *control = case_operand(c, 0, sizeof *control);
    *control = (sl_step_control){.grad_norm = 1.0f, .clip_scale = 0.37f, .skip = skip};
    const sl_type stored = (sl_type)c->attrs.grad_type, type = (sl_type)c->attrs.type;
    void *to = case_operand(c, 1, count * sl_type_bytes(stored));
    for (uint64_t i = 0; i < count; i++)
        if (stored == SL_TYPE_FP32)
            ((float *)to)[i] = gradient[i];
        else
            ((uint16_t *)to)[i] = to_half(stored, gradient[i]);
    memcpy(case_operand(c, 2, count * 4), state, count * 4);
    memcpy(case_operand(c, 3, count * 4), state + count, count * 4);
    if (type != SL_TYPE_FP32)
        case_operand(c, 4, count * 2); /* NaN: must not be read */
    memcpy(case_operand(c, type == SL_TYPE_FP32 ? 4 : 5, count * 4), state + 2 * count, count * 4);
}

static update_cases draw_update(int round, uint32_t skip)
{
    update_cases u = {.type = HALVES[round % 2]};
    const uint64_t blocks = round < 2 ? 70 : draw_between(1, 3);
    u.count = blocks * BLOCK;
    u.full = open_update(SL_TYPE_FP32, SL_TYPE_FP32, u.count);
    u.stored_half = open_update(u.type, u.type, u.count);
    u.stored_fp32 = open_update(u.type, SL_TYPE_FP32, u.count);
    u.flags = allocate(blocks);
    for (uint64_t i = 0; i < blocks; i++)
        u.flags[i] = (uint8_t)draw_below(2);
    u.full.block_flags = u.stored_half.block_flags = u.stored_fp32.block_flags = u.flags;
    float *gradient = allocate(u.count * 4), *state = allocate(3 * u.count * 4);
    fill_floats(gradient, u.count, "gradient");
    fill_floats(state, u.count, "moment1");
    fill_floats(state + u.count, u.count, "moment2");
    fill_floats(state + 2 * u.count, u.count, "param");
    gradient[0] = -0x1.8p-25f; /* subnormal in fp16 */
    gradient[1] = 0x1.8p-133f; /* subnormal in bf16 */
    fill_update(&u.stored_half, gradient, state, skip);
    fill_update(&u.stored_fp32, gradient, state, skip);
    for (uint64_t i = 0; i < u.count; i++)
        gradient[i] = from_half(u.type, to_half(u.type, gradient[i]));
    fill_update(&u.full, gradient, state, skip);
    free(gradient);
    free(state);
    return u;
}

static void close_update(update_cases *u)
{
    case_close(&u->full);
    case_close(&u->stored_half);
    case_close(&u->stored_fp32);
    free(u->flags);
}

/* Moments and master are those of `full`; the parameters are the master, rounded. */
static void expect_update(const update_cases *u, const kernel_case *c)
{
    case_compare_bits(c, 2, u->full.result[2]);
    case_compare_bits(c, 3, u->full.result[3]);
    case_compare_bits(c, 5, u->full.result[4]);
    case_expect_unchanged(c, 0, 2);
    const uint16_t *param = c->result[4];
    const float *master = c->result[5];
    for (uint64_t i = 0; i < u->count; i++)
        if (param[i] != to_half(u->type, master[i]))
            fail_msg("parameter %llu is %04x, its master %a", (unsigned long long)i, param[i],
                     (double)master[i]);
}

/* test_kernels_exact compares fp32 with its definition in every instruction set, so these agree
 * over instruction sets too. */
static void adamw_when_in_half_precision_updates_the_master(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        update_cases u = draw_update(round, round % 7 == 6);
        case_run_once(&u.full, pools[1]);
        case_run(&u.stored_half);
        case_run(&u.stored_fp32);
        expect_update(&u, &u.stored_half);
        expect_update(&u, &u.stored_fp32);
        if (round % 7 == 6)
            case_expect_unchanged(&u.full, 0, 5);
        close_update(&u);
    }
}

static void expect_refused(sl_op_kind kind, const kernel_case *c)
{
    sl_kernel_call call = {.attrs = &c->attrs, .workers = pools[0]};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] = c->result[i];
    assert_int_equal(sl_kernels_cpu()->row[kind].run(&call), SL_ERROR_INTERNAL);
}

static void updates_when_their_types_do_not_fit_fail(void **state)
{
    (void)state;
    update_cases u = draw_update(1, 0);
    free(u.stored_half.result[5]);
    u.stored_half.result[5] = NULL; /* no master */
    expect_refused(SL_OP_ADAMW, &u.stored_half);
    u.stored_fp32.attrs.grad_type = SL_TYPE_BF16; /* of fp16 */
    expect_refused(SL_OP_ADAMW, &u.stored_fp32);
    expect_refused(SL_OP_BLOCK_NORM, &u.stored_fp32);
    close_update(&u);
}

static sl_norm_sum find_norm(const kernel_case *update)
{
    kernel_case c = {.kind = SL_OP_BLOCK_NORM, .attrs = update->attrs};
    memcpy(case_operand(&c, 0, update->bytes[1]), update->input[1], update->bytes[1]);
    case_operand(&c, 1, sizeof(sl_norm_sum));
    case_run(&c);
    const sl_norm_sum norm = *(sl_norm_sum *)c.result[1];
    case_close(&c);
    return norm;
}

static void block_norm_when_in_half_precision_rounds_as_it_reads(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        update_cases u = draw_update(round, 0);
        const sl_norm_sum want = find_norm(&u.full), stored_half = find_norm(&u.stored_half);
        sl_norm_sum stored_fp32 = find_norm(&u.stored_fp32);
        assert_memory_equal(&want, &stored_half, sizeof want);
        assert_memory_equal(&want, &stored_fp32, sizeof want);
        ((float *)u.stored_fp32.input[1])[draw_below(u.count)] = 65520.0f; /* infinite in fp16 */
        stored_fp32 = find_norm(&u.stored_fp32);
        assert_int_equal(stored_fp32.nonfinite, u.type == SL_TYPE_FP16);
        close_update(&u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_when_widened_keep_their_value),
        cmocka_unit_test(floats_when_at_a_boundary_round_to_nearest_even),
        cmocka_unit_test(floats_when_random_round_to_nearest_even),
        cmocka_unit_test(conversions_when_short_touch_nothing_else),
        cmocka_unit_test(ops_when_in_half_precision_are_fp32_rounded_once),
        cmocka_unit_test(adamw_when_in_half_precision_updates_the_master),
        cmocka_unit_test(updates_when_their_types_do_not_fit_fail),
        cmocka_unit_test(block_norm_when_in_half_precision_rounds_as_it_reads),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
