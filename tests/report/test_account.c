/* What could be wrong with the account of a plan: bytes that no kind has or that two have, a peak
 * that is not the plan's, an object left out, a chunk where it is not, time that no op and no wait
 * explains, a loop whose passed-over repetitions are not counted, an account that grows with their
 * number. Accounts of random plans, tight ones on three tiers with loops, are compared with sums
 * over the plan's own lists, tick by tick.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/status.h"
#include "chunk/plan_cases.h"
#include "report/account.h"
#include "sanitizer_share.h"

enum { SEEDS = 30, SEEDS_FULL = 2000 };

static uint64_t seed_count(uint64_t quick, uint64_t full)
{
    return getenv("SL_TEST_FULL") ? full : sanitizer_share(quick);
}

typedef struct fixture {
    plan_case c;
    sl_plan *plan;
    sl_account *account;
} fixture;

static void open_account(fixture *self)
{
    const plan_case *c = &self->c;
    sl_account_request request = {.program = c->program,
                                  .layout = c->layout,
                                  .homes = c->homes,
                                  .plan = self->plan,
                                  .machine = &c->machine};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        request.budget_bytes[tier] = c->request.budget_bytes[tier];
    if (sl_account_open(&request, &self->account) != SL_OK)
        fail_msg("%s", sl_status_message());
}

/* False where a case has no plan: a random chunk size may be too small. */
static bool open_case(fixture *self, uint64_t seed, uint32_t micro_batches)
{
    *self = (fixture){.c = tiered_case_choose(seed)};
    if (micro_batches > 0)
        self->c.step.micro_batch_count = micro_batches;
    if (micro_batches > 1 && self->c.step.accumulation == SL_ACCUMULATE_MICRO)
        self->c.emit.grad_type = SL_TYPE_FP32;
    bool is_open = plan_case_build(&self->c) == SL_OK &&
                   plan_case_plan_tightly(&self->c, seed, &self->plan) == SL_OK;
    if (is_open)
        open_account(self);
    return is_open;
}

static void close_case(fixture *self)
{
    sl_account_close(self->account);
    sl_plan_close(self->plan);
    plan_case_close(&self->c);
}

static bool is_alive(const sl_allocation *a, uint32_t tick)
{
    if (a->is_permanent)
        return true;
    if (a->first_tick > a->last_tick)
        return tick >= a->first_tick || tick <= a->last_tick;
    return tick >= a->first_tick && tick <= a->last_tick;
}

static uint64_t sum_kinds(const uint64_t kind_bytes[SL_MEMORY_KIND_COUNT])
{
    uint64_t sum = 0;
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        sum += kind_bytes[kind];
    return sum;
}

/* ---- memory ---- */

static void check_ticks(const fixture *self, sl_tier tier)
{
    uint32_t op_count = self->c.program->op_count;
    uint64_t *live = calloc((uint64_t)op_count * SL_MEMORY_KIND_COUNT, sizeof *live);
    assert_non_null(live);
    sl_plan_live_bytes(self->plan, tier, op_count, live);
    for (uint32_t tick = 0; tick < op_count; tick++) {
        uint64_t expected[SL_MEMORY_KIND_COUNT] = {0};
        for (uint32_t a = 0; a < self->plan->allocation_count; a++) {
            const sl_allocation *allocation = &self->plan->allocations[a];
            if (allocation->place.tier == tier && is_alive(allocation, tick))
                expected[allocation->kind] += sl_place_extent(&allocation->place);
        }
        assert_memory_equal(live + (uint64_t)tick * SL_MEMORY_KIND_COUNT, expected,
                            sizeof expected);
    }
    free(live);
}

static void check_peak(const fixture *self, sl_tier index)
{
    const sl_account_tier *tier = &self->account->tier[index];
    const sl_plan *plan = self->plan;
    uint64_t objects = 0, classes = 0, holes = 0, most = 0;
    assert_memory_equal(tier->kind_bytes, plan->kind_bytes[index], sizeof tier->kind_bytes);
    assert_true(sum_kinds(tier->kind_bytes) == plan->live_peak_bytes[index]);
    assert_true(sum_kinds(tier->kind_bytes) + tier->hole_bytes == plan->peak_bytes[index]);
    for (uint32_t i = 0; i < tier->object_count; i++)
        objects += tier->objects[i].bytes;
    for (uint32_t i = 0; i < tier->class_count; i++)
        classes += tier->classes[i].bytes;
    for (uint32_t i = 0; i < tier->hole_count; i++)
        holes += tier->holes[i].bytes;
    for (uint32_t c = 0; c < self->account->column_count; c++) {
        uint64_t bytes = sum_kinds(tier->columns[c].kind_bytes);
        most = bytes > most ? bytes : most;
    }
    assert_true(most == plan->live_peak_bytes[index]);
    assert_true(tier->object_count < tier->all_objects || objects == tier->live_peak_bytes);
    assert_true(tier->class_count < tier->all_classes || classes == tier->live_peak_bytes);
    assert_true(tier->hole_count < tier->all_holes || holes == tier->hole_bytes);
    assert_true(objects <= tier->live_peak_bytes && holes <= tier->hole_bytes);
    assert_true(tier->overflow_bytes == 0);
}

/* All regions together are all allocations, in bytes and in number. */
static void check_regions(const fixture *self, sl_tier index)
{
    const sl_account_tier *tier = &self->account->tier[index];
    uint64_t bytes = 0, expected_bytes = 0, count = 0, expected_count = 0;
    for (uint32_t i = 0; i < tier->region_count; i++) {
        bytes += tier->regions[i].object.bytes;
        count += tier->regions[i].count;
    }
    for (uint32_t a = 0; a < self->plan->allocation_count; a++) {
        if (self->plan->allocations[a].place.tier != index)
            continue;
        expected_bytes += sl_place_extent(&self->plan->allocations[a].place);
        expected_count++;
    }
    assert_true(tier->region_count == tier->all_regions);
    assert_true(bytes == expected_bytes && count == expected_count);
}

/* A chunk is at its home in every column, and in no tier without an allocation of it there. */
static void check_residency(const fixture *self)
{
    const sl_homes *homes = self->c.homes;
    const uint32_t columns = self->account->column_count;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        const sl_account_residency *rows = &self->account->residency[group];
        assert_true((rows->row_count > 0) == (homes->tier[group] != NULL));
        for (uint32_t row = 0; row < rows->row_count; row++) {
            unsigned anywhere = 0, expected = 0, home = 0;
            for (uint32_t c = 0; c < columns; c++)
                anywhere |= rows->cells[(uint64_t)row * columns + c];
            for (uint32_t a = 0; a < self->plan->allocation_count; a++) {
                const sl_allocation *it = &self->plan->allocations[a];
                if (it->chunk_index != SL_NONE && (int)it->group == group &&
                    it->chunk_index / rows->chunks_a_row == row)
                    expected |= 1u << it->place.tier;
            }
            home = 1u << homes->tier[group][row * rows->chunks_a_row];
            for (uint32_t c = 0; c < columns; c++)
                assert_true(rows->cells[(uint64_t)row * columns + c] & home);
            assert_int_equal(anywhere, expected);
        }
    }
}

static void bytes_when_added_up_then_are_the_plan_s(void **state)
{
    (void)state;
    uint64_t count = seed_count(SEEDS, SEEDS_FULL), planned = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        fixture self;
        if (open_case(&self, seed, 0)) {
            planned++;
            for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
                check_ticks(&self, (sl_tier)tier);
                check_peak(&self, (sl_tier)tier);
                check_regions(&self, (sl_tier)tier);
            }
            check_residency(&self);
        }
        close_case(&self);
    }
    assert_true(planned > count / 2);
}

static void overflow_when_the_budget_is_less_then_is_the_difference(void **state)
{
    (void)state;
    fixture self;
    assert_true(open_case(&self, 3, 2));
    sl_account_request request = self.account->request;
    request.budget_bytes[SL_TIER_HOST] = self.plan->peak_bytes[SL_TIER_HOST] - 1000;
    sl_account_close(self.account);
    assert_int_equal(sl_account_open(&request, &self.account), SL_OK);
    assert_true(self.account->tier[SL_TIER_HOST].overflow_bytes == 1000);
    assert_true(self.account->tier[SL_TIER_DEVICE].overflow_bytes == 0);
    close_case(&self);
}

/* ---- time ---- */

static void assert_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-6 * (fabs(expected) + 1e-9)))
        fail_msg("%.12g is not %.12g", found, expected);
}

static void check_time(const fixture *self)
{
    const sl_account *account = self->account;
    double ops = 0, stalls = account->other_stall_seconds, waits = 0;
    double busy = account->lane[SL_LANE_COMPUTE].busy_seconds +
                  account->lane[SL_LANE_HOST].busy_seconds +
                  account->lane[SL_LANE_INPUT].busy_seconds;
    for (uint32_t i = 0; i < account->op_kind_count; i++)
        ops += account->ops[i].seconds;
    for (uint32_t i = 0; i < account->stall_count; i++)
        stalls += account->stalls[i].seconds;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        assert_close(account->lane[SL_LANE_COMPUTE].wait_seconds[cause],
                     account->simulation.stall_seconds[cause]);
        waits += account->simulation.stall_seconds[cause];
    }
    assert_close(ops, busy);
    assert_close(stalls, waits);
    for (int resource = 0; resource < SL_RESOURCE_COUNT; resource++)
        assert_true(account->resource_seconds[resource] <=
                    account->resource_seconds[account->bound_by]);
    assert_true(account->simulation.step_seconds >=
                (1 - 1e-6) * account->resource_seconds[account->bound_by]);
}

/* Spans of a lane stand in order and beside each other. Each repetition of a loop that is to be
 * kept is there once, but for those that the simulation passed over on a lane that was behind. */
static void check_spans(const fixture *self)
{
    double end[SL_LANE_COUNT];
    const sl_account *account = self->account;
    uint32_t expected = 0;
    for (uint32_t s = 0; s < self->plan->section_count; s++) {
        const sl_section *section = &self->plan->sections[s];
        expected += section->count * (section->repeat < 4 ? section->repeat : 4);
    }
    assert_in_range(account->span_count, expected - expected / 4, expected);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        end[lane] = -INFINITY;
    for (uint32_t i = 0; i < account->span_count; i++) {
        const sl_account_span *span = &account->spans[i];
        sl_lane lane = self->plan->body[span->command].lane;
        assert_true(span->start >= end[lane] - 1e-9 && span->end >= span->start);
        end[lane] = span->end;
    }
}

static void time_when_added_up_then_is_the_simulation_s(void **state)
{
    (void)state;
    const uint32_t micro_batches[] = {1, 2, 7, 600};
    for (uint64_t seed = 1; seed <= seed_count(20, 20); seed++) {
        fixture self;
        if (open_case(&self, seed, micro_batches[seed % 4])) {
            check_time(&self);
            check_spans(&self);
        }
        close_case(&self);
    }
}

static void account_when_there_are_more_micro_batches_then_is_no_larger(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seed_count(6, 6); seed++) {
        fixture few, many;
        if (open_case(&few, seed, 12) && open_case(&many, seed, 4096)) {
            assert_in_range(many.account->span_count, 1, 2 * few.account->span_count);
            assert_int_equal(few.account->column_count, many.account->column_count);
            for (int tier = 0; tier < SL_TIER_COUNT; tier++)
                assert_true(many.account->tier[tier].region_count <= SL_ACCOUNT_REGIONS);
            close_case(&many);
        }
        close_case(&few);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_when_added_up_then_are_the_plan_s),
        cmocka_unit_test(overflow_when_the_budget_is_less_then_is_the_difference),
        cmocka_unit_test(time_when_added_up_then_is_the_simulation_s),
        cmocka_unit_test(account_when_there_are_more_micro_batches_then_is_no_larger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
