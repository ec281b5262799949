/* The verifier against plans that the planner makes of GPT-2 training steps: random shapes,
 * policies, budgets and orders. Every plan must be accepted. Then each fault of plan_faults.h is
 * planted in it, wherever it has a place, and must be rejected for its own reason.
 *
 * The rows of a gradient that the head makes range by range: programs with ranges that leave rows
 * out are planned like any other, and the verifier refuses the plan.
 *
 * A fault that found no place in any plan would test nothing, so each must have been planted. The
 * seed is printed; SL_TEST_SEED repeats one plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "chunk/plan_cases.h"
#include "plan_faults.h"
#include "plan_listing.h"
#include "sanitizer_share.h"

enum { QUICK_PLANS = 120, FULL_PLANS = 3000 };

static uint32_t planted[PLAN_FAULT_COUNT], listing_planted; /* over all tests */

/* Of two plans in three, budgets are near the least; what lives on disk comes back from there only
 * if the host has no room to keep it. */
static sl_status build_plan(uint64_t seed, plan_case *it, sl_plan **out_plan)
{
    sl_shortage shortage = {0};
    uint64_t counter = 1000;
    SL_TRY(sl_plan_build(&it->request, out_plan, &shortage));
    bool is_tiered = it->homes->fixed_bytes[SL_TIER_DISK] > 0;
    if (plan_case_draw(seed, &counter, 3) > 0)
        SL_TRY(plan_case_squeeze(it, seed, SL_TIER_DEVICE, out_plan));
    if (is_tiered && plan_case_draw(seed, &counter, 4) > 0)
        SL_TRY(plan_case_squeeze(it, seed, SL_TIER_HOST, out_plan));
    return SL_OK;
}

/* Plants each fault that has a place; counts those. */
static void plant_faults(uint64_t seed, const sl_plan_request *request, const sl_plan *plan)
{
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        sl_plan copy = edit_copy(plan);
        bool is_planted = plan_faults[i].plant(request, &copy);
        sl_status status = is_planted ? sl_plan_verify(request, &copy) : SL_OK;
        edit_close(&copy);
        planted[i] += is_planted;
        if (is_planted && status != SL_ERROR_INTERNAL)
            fail_msg("seed %llu: %s was accepted", (unsigned long long)seed, plan_faults[i].name);
        if (is_planted && !strstr(sl_status_message(), plan_faults[i].message))
            fail_msg("seed %llu: %s was rejected for another reason: %s", (unsigned long long)seed,
                     plan_faults[i].name, sl_status_message());
    }
}

/* Budgets are as tight as the plan allows: then a larger peak is over them. */
static void check_plan(uint64_t seed)
{
    plan_case it;
    sl_plan *plan = NULL;
    bool is_tiered = seed % 2 == 0;
    if ((is_tiered ? tiered_case_open(seed, &it) : plan_case_open(seed, &it)) != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
    if (build_plan(seed, &it, &plan) != SL_OK)
        fail_msg("seed %llu: no plan: %s", (unsigned long long)seed, sl_status_message());
    memcpy(it.request.budget_bytes, plan->peak_bytes, sizeof plan->peak_bytes);
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("seed %llu: a right plan was rejected: %s", (unsigned long long)seed,
                 sl_status_message());
    if (!listing_is_true(&it.request, plan))
        fail_msg("seed %llu: its allocations are not where its commands are",
                 (unsigned long long)seed);
    if (seed % 8 < 2) /* each look is at all of the list */
        listing_planted += plant_listing_faults(&it.request, plan);
    plant_faults(seed, &it.request, plan);
    sl_plan_close(plan);
    plan_case_close(&it);
}

static void gpt2_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    const char *only = getenv("SL_TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t count = getenv("SL_TEST_FULL") ? FULL_PLANS : sanitizer_share(QUICK_PLANS);
    uint64_t last = only ? first : first + count - 1;
    print_message("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)last);
    for (uint64_t seed = first; seed <= last; seed++)
        check_plan(seed);
}

/* One forward program as it is: decoding, the loss or what it is made of, whole or a half of two
 * ranks. */
static void check_forward(sl_model_mode mode, uint32_t tp_size, sl_policy policy)
{
    plan_case it = {.shape = {3, 64, 4, 32, 300}, .policy = {.policy = policy}};
    sl_shortage shortage;
    sl_plan *plan = NULL;
    bool is_cached = mode == SL_MODEL_CACHED;
    it.emit = (sl_model_options){.batch = is_cached ? 3 : 1,
                                 .seq = is_cached ? 1 : 16,
                                 .tp_size = tp_size,
                                 .mode = mode,
                                 .cache_rows = is_cached ? 20 : 0};
    it.policy.host_fraction[SL_GROUP_PARAM] = 0.5;
    assert_int_equal(sl_model_shape_emit(&it.shape, &it.emit, &it.forward), SL_OK);
    assert_int_equal(sl_layout_build(it.forward, 0, &it.layout), SL_OK);
    assert_int_equal(sl_homes_build(it.forward, it.layout, &it.policy, &it.homes), SL_OK);
    it.machine = sl_machine_default(2);
    it.request = (sl_plan_request){.program = it.forward,
                                   .layout = it.layout,
                                   .homes = it.homes,
                                   .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                   .prefetch = SL_PREFETCH_AUTO,
                                   .workspace = plan_case_workspace,
                                   .machine = &it.machine};
    assert_int_equal(sl_plan_build(&it.request, &plan, &shortage), SL_OK);
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("a right plan was rejected: %s", sl_status_message());
    assert_true(listing_is_true(&it.request, plan));
    plant_faults(0, &it.request, plan);
    sl_plan_close(plan);
    plan_case_close(&it);
}

/* Persistent caches, and collectives. */
static void forward_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    for (int policy = SL_POLICY_DEVICE; policy <= SL_POLICY_STATIC; policy++)
        for (uint32_t tp_size = 1; tp_size <= 2; tp_size++) {
            check_forward(SL_MODEL_CACHED, tp_size, (sl_policy)policy);
            check_forward(SL_MODEL_LOSS, tp_size, (sl_policy)policy);
            check_forward(SL_MODEL_STATS, tp_size, (sl_policy)policy);
        }
}

/* ---- the rows of the head's gradient ---- */

typedef struct order {
    const char *name;
    uint32_t micro_batch_count;
    sl_accumulation accumulation;
    sl_recompute recompute;
    uint32_t stage_count;
    sl_schedule schedule;
} order;

/* 384 rows in three ranges of 128, over three panels of the token table. */
static void open_order(const order *it, plan_case *out)
{
    *out = (plan_case){.shape = {2, 12, 3, 160, 300}};
    out->emit = (sl_model_options){.batch = 3,
                                   .seq = 128,
                                   .tp_size = 1,
                                   .mode = SL_MODEL_LOSS,
                                   .head_logits = 1,
                                   .stage_count = it->stage_count,
                                   .stage_index = it->stage_count - 1};
    out->step = (sl_step_options){.micro_batch_count = it->micro_batch_count,
                                  .accumulation = it->accumulation,
                                  .recompute = it->recompute,
                                  .schedule = it->schedule};
    out->request.prefetch = SL_PREFETCH_AUTO;
    if (plan_case_build(out) != SL_OK)
        fail_msg("%s: %s", it->name, sl_status_message());
}

/* Changes the rows of one op; false: this fault has no place there. */
static bool leave_out_rows(sl_op_attrs *attrs, int fault)
{
    enum { RANGE = 128, ALL = 384 };
    const bool is_last = attrs->first_row + RANGE == ALL;
    switch (fault) {
    case 0: /* behind the first range */
        attrs->row_count -= attrs->first_row == 0;
        return attrs->first_row == 0;
    case 1: /* before the second */
        if (attrs->first_row != RANGE)
            return false;
        attrs->first_row++;
        attrs->row_count--;
        return true;
    case 2: /* the last ones */
        attrs->row_count -= is_last;
        return is_last;
    default: /* added to what is not there */
        if (attrs->first_row == 0 || attrs->adds_output)
            return false;
        attrs->adds_output = 1;
        return true;
    }
}

/* In one section: how many ops were changed. */
static uint32_t leave_out_section_rows(sl_program *program, uint32_t section_index, int fault)
{
    const sl_section section = sl_program_section(program, section_index);
    uint32_t changed = 0;
    for (uint32_t o = section.first; o < section.first + section.count; o++)
        if (program->ops[o].kind == SL_OP_HEAD_INPUT_BACKWARD)
            changed += leave_out_rows(&program->ops[o].attrs, fault);
    return changed;
}

/* Leaves the gradient of a tensor unwritten, or clears other padding; false: it has no place. */
static bool damage_gradient(sl_op *op, int fault)
{
    switch (fault) {
    case 0:
        if (op->kind != SL_OP_LINEAR_WEIGHT_BACKWARD || op->attrs.adds_gradient)
            return false;
        op->attrs.adds_gradient = 1; /* to what nothing has written */
        return true;
    case 1:
        if (op->kind != SL_OP_LAYERNORM_BACKWARD || op->attrs.adds_gradient)
            return false;
        op->operand[6] = op->operand[5]; /* then the bias has no gradient in the norm */
        return true;
    case 2:
        op->attrs.first_block += op->kind == SL_OP_CLEAR_PADDING;
        return op->kind == SL_OP_CLEAR_PADDING;
    default:
        op->attrs.row_count -= op->kind == SL_OP_CLEAR_PADDING;
        return op->kind == SL_OP_CLEAR_PADDING;
    }
}

static void gradients_when_a_tensor_is_not_written_then_rejected(void **state)
{
    (void)state;
    static const order by_layer = {"layer",           6, SL_ACCUMULATE_LAYER,
                                   SL_RECOMPUTE_NONE, 1, SL_SCHEDULE_1F1B};
    static const char *const reasons[] = {"which no op has written", "which no op has written",
                                          "of the padding of chunk", "of the padding of chunk"};
    for (int fault = 0; fault < 4; fault++) {
        sl_shortage shortage;
        sl_plan *plan = NULL;
        plan_case c;
        bool is_damaged = false;
        open_order(&by_layer, &c);
        for (uint32_t o = 0; o < c.program->op_count && !is_damaged; o++)
            is_damaged = damage_gradient(&c.program->ops[o], fault);
        assert_true(is_damaged);
        assert_int_equal(sl_plan_build(&c.request, &plan, &shortage), SL_OK);
        assert_int_equal(sl_plan_verify(&c.request, plan), SL_ERROR_INTERNAL);
        if (!strstr(sl_status_message(), reasons[fault]))
            fail_msg("fault %d: %s", fault, sl_status_message());
        sl_plan_close(plan);
        plan_case_close(&c);
    }
}

static void expect_rows_missed(const plan_case *it, const char *name, int fault)
{
    sl_shortage shortage;
    sl_plan *plan = NULL;
    assert_int_equal(sl_plan_build(&it->request, &plan, &shortage), SL_OK);
    const sl_status status = sl_plan_verify(&it->request, plan);
    if (status != SL_ERROR_INTERNAL || !strstr(sl_status_message(), " rows of value "))
        fail_msg("%s, fault %d: %s", name, fault,
                 status == SL_OK ? "accepted" : sl_status_message());
    sl_plan_close(plan);
}

/* Every fault in every section of its own: the first, the repeated and the last one. */
static void leave_out_all_rows(const order *it)
{
    uint32_t planted_count[4] = {0};
    for (int fault = 0; fault < 4; fault++)
        for (uint32_t section = 0;; section++) {
            plan_case c;
            open_order(it, &c);
            const bool is_over = section == sl_program_section_count(c.program);
            if (!is_over && leave_out_section_rows(c.program, section, fault) > 0) {
                expect_rows_missed(&c, it->name, fault);
                planted_count[fault]++;
            }
            plan_case_close(&c);
            if (is_over)
                break;
        }
    for (int fault = 0; fault < 4; fault++)
        assert_true(planted_count[fault] >= (it->micro_batch_count > 2 ? 3 : 1));
}

static void rows_when_a_range_leaves_some_out_then_rejected_in_every_order(void **state)
{
    (void)state;
    static const order orders[] = {
        {"one", 1, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_NONE, 1, SL_SCHEDULE_1F1B},
        {"micro", 6, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_FULL, 1, SL_SCHEDULE_1F1B},
        {"layer", 6, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_SELECTIVE, 1, SL_SCHEDULE_1F1B},
        {"1f1b", 6, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_NONE, 2, SL_SCHEDULE_1F1B},
        {"gpipe", 6, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_NONE, 2, SL_SCHEDULE_GPIPE},
        {"gpipe by layer", 6, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_NONE, 2, SL_SCHEDULE_GPIPE},
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        sl_shortage shortage;
        sl_plan *plan = NULL;
        plan_case c;
        open_order(&orders[i], &c);
        assert_int_equal(sl_plan_build(&c.request, &plan, &shortage), SL_OK);
        if (sl_plan_verify(&c.request, plan) != SL_OK)
            fail_msg("%s: a right plan was rejected: %s", orders[i].name, sl_status_message());
        sl_plan_close(plan);
        plan_case_close(&c);
        leave_out_all_rows(&orders[i]);
    }
}

/* ---- frozen matrices of a small type ---- */

static void assert_rejected(const plan_case *it, const sl_plan *plan, const char *message)
{
    assert_int_equal(sl_plan_verify(&it->request, plan), SL_ERROR_INTERNAL);
    if (!strstr(sl_status_message(), message))
        fail_msg("rejected for another reason: %s", sl_status_message());
}

/* A value of parameters that is not small (a chunk), or is the tensor of a part. */
static uint32_t find_parameter(const sl_program *program, const sl_layout *layout,
                               const sl_value *part)
{
    for (uint32_t v = 0; v < program->value_count; v++) {
        const sl_value *it = &program->values[v];
        const bool is_chunk = it->kind == SL_VALUE_CHUNK && it->group == SL_GROUP_PARAM &&
                              layout->chunks[it->index].rule != SL_RULE_SMALL;
        const bool is_tensor = part != NULL && it->kind == SL_VALUE_TENSOR &&
                               it->group == SL_GROUP_PARAM && it->index == part->index;
        if (part == NULL ? is_chunk : is_tensor)
            return v;
    }
    fail_msg("no such value");
    return SL_NONE;
}

/* Gives the first op that has one another operand of the kind, and takes it back. */
static void plant_operand(plan_case *it, const sl_plan *plan, sl_value_kind kind,
                          const char *message)
{
    for (uint32_t o = 0; o < it->program->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            sl_op *op = &it->program->ops[o];
            const uint32_t kept = op->operand[i];
            const sl_value *value = kept == SL_NONE ? NULL : &it->program->values[kept];
            const bool is_stored = op->kind == SL_OP_DEQUANTIZE && i == 0;
            if (value == NULL || value->kind != kind || (kind == SL_VALUE_CHUNK && !is_stored))
                continue;
            op->operand[i] = find_parameter(it->program, it->layout, is_stored ? NULL : value);
            assert_rejected(it, plan, message);
            op->operand[i] = kept;
            return;
        }
    fail_msg("no op to plant in");
}

static void small_matrices_when_read_as_they_are_stored_then_rejected(void **state)
{
    (void)state;
    sl_plan *plan = NULL;
    sl_shortage shortage = {0};
    plan_case it = {.shape = {3, 64, 4, 32, 300},
                    .emit = {.batch = 1, .seq = 32, .tp_size = 1},
                    .step = {.micro_batch_count = 2},
                    .policy = {.policy = SL_POLICY_HOST},
                    .frozen = PLAN_CASE_FROZEN_WEIGHTS,
                    .small = SL_FROZEN_INT8};
    assert_int_equal(plan_case_build(&it), SL_OK);
    assert_int_equal(sl_plan_build(&it.request, &plan, &shortage), SL_OK);
    assert_int_equal(sl_plan_verify(&it.request, plan), SL_OK);
    plant_operand(&it, plan, SL_VALUE_PART, "of a small type, as it is");
    plant_operand(&it, plan, SL_VALUE_CHUNK, "of no small type");
    it.layout->frozen = SL_FROZEN_BF16;
    assert_rejected(&it, plan, "stores frozen matrices otherwise");
    sl_plan_close(plan);
    plan_case_close(&it);
}

static void faults_when_all_plans_are_done_then_each_was_planted(void **state)
{
    (void)state;
    uint32_t missing = 0, total = 0;
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        total += planted[i];
        missing += planted[i] == 0;
        if (planted[i] == 0)
            print_message("never planted: %s\n", plan_faults[i].name);
    }
    print_message("%u faults planted\n", total);
    if (getenv("SL_TEST_SEED"))
        return;
    assert_int_equal(missing, 0);
    assert_true(listing_planted >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_plan_when_faulty_then_rejected_for_its_reason),
        cmocka_unit_test(forward_plan_when_faulty_then_rejected_for_its_reason),
        cmocka_unit_test(rows_when_a_range_leaves_some_out_then_rejected_in_every_order),
        cmocka_unit_test(gradients_when_a_tensor_is_not_written_then_rejected),
        cmocka_unit_test(small_matrices_when_read_as_they_are_stored_then_rejected),
        cmocka_unit_test(faults_when_all_plans_are_done_then_each_was_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
