/* Homes of activations: what could be wrong is one that leaves the device although an op on the
 * host, or nobody in the backward pass, wants it; one that holds something before it is written;
 * a share that is not the first ones made, or more than was asked for. Programs are random GPT-2
 * steps; what is eligible is found again here, value by value instead of op by op.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "chunk/policy/activation_homes.h"
#include "plan_cases.h"

enum { CASES = 40 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 3300;
}

/* The tick of the first op that uses value v; op_count: none does. */
static uint32_t first_use(const sl_program *program, uint32_t v)
{
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            if (program->ops[tick].operand[i] == v)
                return tick;
    return program->op_count;
}

static bool should_be_eligible(const sl_program *program, uint32_t v)
{
    const sl_value *value = &program->values[v];
    uint32_t first = first_use(program, v);
    bool is_kept = false;
    if (value->kind != SL_VALUE_ACTIVATION || value->bytes < 16384 || value->bytes % 4096 != 0 ||
        first == program->op_count || program->ops[first].phase != SL_PHASE_FORWARD)
        return false;
    for (uint32_t tick = first; tick < program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const sl_op *op = &program->ops[tick];
            if (op->operand[i] != v)
                continue;
            if (op->kind == SL_OP_ADAMW || (tick == first && sl_op_reads(op, i)))
                return false;
            is_kept |= op->phase != SL_PHASE_FORWARD && sl_op_reads(op, i);
        }
    return is_kept;
}

/* Before any value that stays, those that leave come first, in order of first use; and each share
 * ends with the value that reaches it. */
static void assert_shares(const sl_program *program, uint32_t micro_batch, double disk, double host,
                          const uint8_t *tier)
{
    uint64_t bytes[SL_TIER_COUNT] = {0}, total = 0, largest = 0;
    uint32_t last[SL_TIER_COUNT] = {0}, first[SL_TIER_COUNT];
    for (int t = 0; t < SL_TIER_COUNT; t++)
        first[t] = program->op_count;
    for (uint32_t v = 0; v < program->value_count; v++) {
        const sl_value *value = &program->values[v];
        if (value->micro_batch != micro_batch || !should_be_eligible(program, v))
            continue;
        uint32_t tick = first_use(program, v);
        last[tier[v]] = tick > last[tier[v]] ? tick : last[tier[v]];
        first[tier[v]] = tick < first[tier[v]] ? tick : first[tier[v]];
        bytes[tier[v]] += value->bytes;
        total += value->bytes;
        largest = value->bytes > largest ? value->bytes : largest;
    }
    double on_disk = (double)bytes[SL_TIER_DISK];
    double away = on_disk + (double)bytes[SL_TIER_HOST], whole = (double)total;
    assert_true(on_disk >= disk * whole - 1 && on_disk <= disk * whole + (double)largest);
    assert_true(away >= (disk + host) * whole - 1);
    assert_true(away <= (disk + host) * whole + (double)largest);
    assert_true(!bytes[SL_TIER_DISK] || last[SL_TIER_DISK] <= first[SL_TIER_HOST]);
    assert_true(!bytes[SL_TIER_DISK] || last[SL_TIER_DISK] <= first[SL_TIER_DEVICE]);
    assert_true(!bytes[SL_TIER_HOST] || last[SL_TIER_HOST] <= first[SL_TIER_DEVICE]);
}

static void activation_homes_when_shares_vary_then_the_first_made_leave(void **state)
{
    (void)state;
    uint64_t eligible = 0;
    printf("seed %llu\n", (unsigned long long)base_seed());
    for (uint64_t seed = base_seed(); seed < base_seed() + CASES; seed++) {
        plan_case c;
        assert_int_equal(tiered_case_open(seed, &c), SL_OK);
        uint8_t *tier = calloc(c.program->value_count + 1, 1);
        double disk = c.request.disk_activations, host = c.request.host_activations;
        assert_int_equal(sl_activation_homes_choose(c.program, disk, host, tier), SL_OK);
        for (uint32_t v = 0; v < c.program->value_count; v++) {
            bool is_eligible = should_be_eligible(c.program, v);
            eligible += is_eligible;
            if (!is_eligible)
                assert_int_equal(tier[v], SL_TIER_DEVICE);
        }
        for (uint32_t m = 0; m < c.program->micro_batch_count; m++)
            assert_shares(c.program, m, disk, host, tier);
        free(tier);
        plan_case_close(&c);
    }
    printf("%llu eligible values\n", (unsigned long long)eligible);
    assert_true(eligible > 0);
}

static void activation_homes_when_shares_are_wrong_then_refused(void **state)
{
    (void)state;
    static const double wrong[][2] = {{-0.1, 0}, {0, -0.1}, {1.1, 0}, {0.6, 0.6}, {0, 0.0 / 0.0}};
    plan_case c;
    assert_int_equal(tiered_case_open(base_seed(), &c), SL_OK);
    uint8_t *tier = calloc(c.program->value_count + 1, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(sl_activation_homes_choose(c.program, wrong[i][0], wrong[i][1], tier),
                         SL_ERROR_USAGE);
    free(tier);
    plan_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_homes_when_shares_vary_then_the_first_made_leave),
        cmocka_unit_test(activation_homes_when_shares_are_wrong_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
