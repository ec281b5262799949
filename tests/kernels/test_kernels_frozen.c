/* What could be wrong with frozen matrices in fewer bytes: a code that is not the nearest one, or a
 * tie that goes the other way; numbers that change when they are decoded and encoded again, so that
 * a checkpoint has others; a group that is zero, tiny or not finite; a kernel that decodes
 * otherwise than base/q8.h, or rounds twice, on some instruction set. */
#include "kernel_case.h"

#include "base/q8.h"

enum { BLOCK = SL_BLOCK_ELEMENTS, GROUP = SL_Q8_GROUP, BLOCKS = 37, CODED_BYTES = 2176 };

/* ---- the form ---- */

static void q8_when_encoded_is_as_the_formula_says(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        float values[GROUP];
        int8_t codes[GROUP];
        double largest = 0;
        const double size = pow(2, (double)draw_below(40) - 26);
        for (int i = 0; i < GROUP; i++) {
            values[i] = (float)(size * ((double)draw_below(1 << 24) / (1 << 23) - 1));
            largest = fmax(largest, fabs((double)values[i]));
        }
        const uint16_t scale = sl_q8_encode_group(values, codes);
        const float d = (float)(largest / 127); /* one division, rounded once */
        assert_int_equal(scale, sl_half_to_fp16(d));
        if (scale == 0)
            continue;
        for (int i = 0; i < GROUP; i++) {
            const double quotient = (double)(values[i] / d);
            assert_true(fabs(quotient - codes[i]) <= 0.5);
            if (fabs(quotient - codes[i]) == 0.5) /* to even */
                assert_int_equal(codes[i] % 2, 0);
        }
    }
}

static void q8_when_halfway_goes_to_even(void **state)
{
    (void)state;
    float values[GROUP] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -126.5f};
    static const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -2, -126};
    int8_t codes[GROUP];
    assert_int_equal(sl_q8_encode_group(values, codes), sl_half_to_fp16(1.0f));
    assert_memory_equal(codes, expected, sizeof expected);
}

/* Where fp16 has few bits for the scale, too. */
static void q8_when_encoded_twice_is_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        float values[GROUP];
        int8_t codes[GROUP], again[GROUP];
        const double size = pow(2, (double)draw_below(20) - 22);
        for (int i = 0; i < GROUP; i++)
            values[i] = (float)(size * ((double)draw_below(1 << 24) / (1 << 23) - 1));
        const uint16_t scale = sl_q8_encode_group(values, codes);
        sl_q8_decode_group(codes, scale, values);
        assert_int_equal(sl_q8_encode_group(values, again), scale);
        assert_memory_equal(again, codes, sizeof codes);
    }
}

/* Any scale of fp16, subnormal ones too: so a checkpoint, which holds the numbers, loses nothing.
 */
static void q8_when_decoded_and_encoded_again_is_the_same(void **state)
{
    (void)state;
    for (uint32_t scale = 1; scale < 0x7c00; scale++) {
        float values[GROUP];
        int8_t codes[GROUP], again[GROUP];
        for (int i = 0; i < GROUP; i++)
            codes[i] = (int8_t)((int)draw_below(255) - 127);
        codes[scale % GROUP] = draw_below(2) ? 127 : -127;
        sl_q8_decode_group(codes, (uint16_t)scale, values);
        assert_int_equal(sl_q8_encode_group(values, again), scale);
        assert_memory_equal(again, codes, sizeof codes);
    }
}

static void q8_when_zero_tiny_or_not_finite_says_so(void **state)
{
    (void)state;
    float values[GROUP] = {0};
    int8_t codes[GROUP];
    assert_int_equal(sl_q8_encode_group(values, codes), 0);
    values[3] = 127 * 0x1p-26f; /* its scale is below half of the least fp16 */
    assert_int_equal(sl_q8_encode_group(values, codes), 0);
    assert_int_equal(codes[3], 0);
    static const float bad[] = {INFINITY, -INFINITY, NAN, 127 * 65520.0f};
    for (int i = 0; i < 4; i++) {
        values[3] = bad[i];
        const uint16_t scale = sl_q8_encode_group(values, codes);
        assert_int_equal(scale, SL_Q8_NOT_A_NUMBER);
        sl_q8_decode_group(codes, scale, values);
        assert_true(isnan(values[0]) && isnan(values[3]));
        memset(values, 0, sizeof values);
    }
    values[3] = 127 * 65519.0f;
    assert_int_equal(sl_q8_encode_group(values, codes), 0x7bff);
}

/* ---- the kernel ---- */

static void expect_element(const kernel_case *c, uint64_t index, float value)
{
    const sl_type type = (sl_type)c->attrs.type;
    if (type == SL_TYPE_FP32) {
        const float got = ((const float *)c->result[1])[index];
        if (memcmp(&got, &value, sizeof got) != 0)
            fail_msg("element %llu is %a, not %a", (unsigned long long)index, (double)got,
                     (double)value);
        return;
    }
    assert_int_equal(((const uint16_t *)c->result[1])[index],
                     type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value));
}

static void check_codes(sl_type type)
{
    kernel_case c = {.kind = SL_OP_DEQUANTIZE,
                     .attrs = {.element_count = BLOCKS * BLOCK,
                               .type = (uint16_t)type,
                               .frozen_type = SL_FROZEN_INT8}};
    uint8_t *stored = case_operand(&c, 0, sl_chunk_bytes(BLOCKS, CODED_BYTES));
    case_operand(&c, 1, BLOCKS * BLOCK * sl_type_bytes(type));
    for (uint64_t b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < BLOCK; i++)
            stored[b * CODED_BYTES + (uint64_t)i] = (uint8_t)draw_below(256);
        for (int g = 0; g < BLOCK / GROUP; g++) {
            const uint16_t scale = (uint16_t)draw_below(0x6000);
            memcpy(stored + b * CODED_BYTES + BLOCK + 2 * g, &scale, sizeof scale);
        }
    }
    case_run(&c);
    for (uint64_t i = 0; i < BLOCKS * BLOCK; i++) {
        const uint8_t *block = stored + i / BLOCK * CODED_BYTES;
        uint16_t scale;
        memcpy(&scale, block + BLOCK + i % BLOCK / GROUP * 2, sizeof scale);
        expect_element(&c, i, (float)(int8_t)block[i % BLOCK] * sl_half_from_fp16(scale));
    }
    case_close(&c);
}

static void check_bf16(sl_type type)
{
    kernel_case c = {.kind = SL_OP_DEQUANTIZE,
                     .attrs = {.element_count = BLOCKS * BLOCK,
                               .type = (uint16_t)type,
                               .frozen_type = SL_FROZEN_BF16}};
    uint16_t *stored = case_operand(&c, 0, BLOCKS * BLOCK * 2);
    case_operand(&c, 1, BLOCKS * BLOCK * sl_type_bytes(type));
    for (uint64_t i = 0; i < BLOCKS * BLOCK; i++)
        stored[i] = (uint16_t)(draw_below(2) << 15 | draw_below(0x7f80));
    case_run(&c);
    for (uint64_t i = 0; i < BLOCKS * BLOCK; i++)
        expect_element(&c, i, sl_half_from_bf16(stored[i]));
    case_close(&c);
}

static void dequantize_when_run_gives_each_number_rounded_once(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        check_codes((sl_type)type);
        check_bf16((sl_type)type);
    }
}

static void dequantize_when_of_no_type_or_part_of_a_block_is_refused(void **state)
{
    (void)state;
    const sl_op_attrs wrong[] = {{.element_count = BLOCK},
                                 {.element_count = BLOCK, .frozen_type = SL_FROZEN_COUNT},
                                 {.element_count = 100, .frozen_type = SL_FROZEN_INT8}};
    for (int i = 0; i < 3; i++) {
        const sl_kernel_call call = {.attrs = &wrong[i]};
        assert_int_equal(sl_kernels_cpu()->row[SL_OP_DEQUANTIZE].run(&call), SL_ERROR_INTERNAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_when_encoded_is_as_the_formula_says),
        cmocka_unit_test(q8_when_halfway_goes_to_even),
        cmocka_unit_test(q8_when_encoded_twice_is_the_same),
        cmocka_unit_test(q8_when_decoded_and_encoded_again_is_the_same),
        cmocka_unit_test(q8_when_zero_tiny_or_not_finite_says_so),
        cmocka_unit_test(dequantize_when_run_gives_each_number_rounded_once),
        cmocka_unit_test(dequantize_when_of_no_type_or_part_of_a_block_is_refused),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
