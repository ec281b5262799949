/* Plans over three tiers, of random GPT-2 steps.
 *
 * What could be wrong: a chunk that skips the host on its way to or from disk, content that never
 * reaches its home, a copy that direct I/O cannot do, an arena above its budget, memory shared by
 * two lives, a sum that is not the sum of its parts, a budget that fails although a smaller one
 * works. A machine of symbols (plan_machine.h) runs every plan in random orders and compares it
 * with the plain order; the shape of each plan is checked here, without the verifier's help, and
 * by the verifier as well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "sanitizer_share.h"
#include "verify/plan_machine.h"

enum { ORDERS = 2 };

static struct {
    uint64_t plans, hops, reads, writes, refusals, disk_activations, host_activations;
} seen;

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 7100;
}

static uint64_t case_count(void)
{
    return getenv("SL_TEST_FULL") ? 1000 : sanitizer_share(25);
}

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* ---- the shape of a plan ---- */

static void assert_copy_is_a_hop(const sl_command *copy)
{
    sl_tier from = copy->from.tier, to = copy->to.tier;
    bool is_disk = from == SL_TIER_DISK || to == SL_TIER_DISK;
    assert_true(from == SL_TIER_HOST || to == SL_TIER_HOST);
    assert_true(from != to);
    assert_int_equal(copy->from.bytes, copy->to.bytes);
    sl_lane lane = to == SL_TIER_DEVICE ? SL_LANE_H2D : SL_LANE_D2H;
    if (is_disk)
        lane = from == SL_TIER_DISK ? SL_LANE_READ : SL_LANE_WRITE;
    assert_int_equal(copy->lane, lane);
    if (!is_disk)
        return;
    const sl_place *disk = from == SL_TIER_DISK ? &copy->from : &copy->to;
    const sl_place *host = from == SL_TIER_DISK ? &copy->to : &copy->from;
    assert_int_equal(disk->offset % SL_DISK_ALIGNMENT, 0);
    assert_int_equal(host->offset % SL_DIRECT_ALIGNMENT, 0);
    assert_int_equal(copy->to.bytes % SL_DIRECT_ALIGNMENT, 0);
}

static void assert_copies_are_hops(const sl_plan *plan)
{
    uint64_t moved[SL_LANE_COUNT] = {0};
    for (uint32_t i = 0; i < plan->prologue_count; i++) {
        assert_copy_is_a_hop(&plan->prologue[i]);
        seen.hops += plan->prologue[i].from.tier == SL_TIER_DISK && i + 1 < plan->prologue_count &&
                     plan->prologue[i + 1].to.tier == SL_TIER_DEVICE;
    }
    for (uint32_t s = 0, i = 0; s < plan->section_count; s++)
        for (; i < plan->sections[s].first + plan->sections[s].count; i++) {
            if (plan->body[i].kind != SL_COMMAND_COPY)
                continue;
            assert_copy_is_a_hop(&plan->body[i]);
            moved[plan->body[i].lane] += plan->body[i].to.bytes * plan->sections[s].repeat;
        }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        assert_int_equal(moved[lane], plan->moved_bytes[lane]);
    seen.reads += moved[SL_LANE_READ] > 0;
    seen.writes += moved[SL_LANE_WRITE] > 0;
}

static bool lives_at(const sl_allocation *it, uint32_t tick)
{
    if (it->is_permanent)
        return true;
    return it->first_tick > it->last_tick ? tick >= it->first_tick || tick <= it->last_tick
                                          : tick >= it->first_tick && tick <= it->last_tick;
}

static bool lives_meet(const sl_allocation *a, const sl_allocation *b)
{
    return lives_at(a, b->first_tick) || lives_at(b, a->first_tick);
}

static void assert_allocations_hold(const sl_plan_request *request, const sl_plan *plan)
{
    uint64_t end[SL_TIER_COUNT] = {0};
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *a = &plan->allocations[i];
        uint64_t a_end = a->place.offset + sl_place_extent(&a->place);
        end[a->place.tier] = a_end > end[a->place.tier] ? a_end : end[a->place.tier];
        assert_true(a->is_permanent ||
                    a->place.offset >= request->homes->fixed_bytes[a->place.tier]);
        for (uint32_t j = 0; j < i; j++) {
            const sl_allocation *b = &plan->allocations[j];
            bool overlap = a->place.tier == b->place.tier &&
                           a->place.offset < b->place.offset + sl_place_extent(&b->place) &&
                           b->place.offset < a_end;
            assert_false(overlap && lives_meet(a, b));
        }
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint64_t kinds = 0;
        for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
            kinds += plan->kind_bytes[tier][kind];
        assert_int_equal(kinds, plan->live_peak_bytes[tier]);
        assert_true(plan->live_peak_bytes[tier] <= plan->peak_bytes[tier]);
        assert_true(plan->peak_bytes[tier] <= request->budget_bytes[tier]);
        assert_true(plan->peak_bytes[tier] >= end[tier]);
        assert_true(plan->peak_bytes[tier] >= request->homes->fixed_bytes[tier]);
        assert_true(end[tier] > request->homes->fixed_bytes[tier]
                        ? plan->peak_bytes[tier] == end[tier]
                        : plan->peak_bytes[tier] - request->homes->fixed_bytes[tier] < 4096);
    }
}

/* Activations have a home off the device in the shares that were asked for: the disk's and the
 * host's arenas hold each in its life, and nothing else of them stays. */
static void count_activation_homes(const sl_plan *plan)
{
    seen.disk_activations += plan->kind_bytes[SL_TIER_DISK][SL_MEMORY_ACTIVATION] > 0;
    seen.host_activations += plan->kind_bytes[SL_TIER_HOST][SL_MEMORY_ACTIVATION] > 4096;
}

/* ---- one plan ---- */

/* Plans, and checks the plan; false where it does not fit. */
static bool plan_and_check(const plan_case *c, uint64_t seed, sl_shortage *out_shortage,
                           uint64_t *out_peaks)
{
    sl_plan *plan = NULL;
    sl_status status = sl_plan_build(&c->request, &plan, out_shortage);
    if (status == SL_ERROR_FIT) {
        seen.refusals++;
        return false;
    }
    assert_ok(status, seed);
    assert_copies_are_hops(plan);
    assert_allocations_hold(&c->request, plan);
    count_activation_homes(plan);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    for (uint64_t order = 0; order < ORDERS; order++)
        if (!machine_is_right(&c->request, plan, seed * 1000 + order))
            fail_msg("seed %llu: the plan computes something else", (unsigned long long)seed);
    memcpy(out_peaks, plan->peak_bytes, sizeof plan->peak_bytes);
    seen.plans++;
    sl_plan_close(plan);
    return true;
}

/* Shrinks the budget of `tier` to the least that planning itself names, which must work. */
static void squeeze(plan_case *c, uint64_t seed, sl_tier tier, uint64_t *out_peaks)
{
    sl_shortage shortage = {SL_TIER_COUNT, 0, 0, 0};
    c->request.budget_bytes[tier] = 0;
    if (plan_and_check(c, seed, &shortage, out_peaks))
        return;
    assert_int_equal(shortage.tier, tier);
    assert_true(shortage.missing_bytes > 0);
    assert_true(shortage.needed_bytes > 0 && shortage.needed_bytes < UINT64_MAX);
    assert_true(shortage.tick < c->program->op_count);
    c->request.budget_bytes[tier] = shortage.needed_bytes;
    if (!plan_and_check(c, seed, &shortage, out_peaks))
        fail_msg("seed %llu: tier %d does not work with what it was said to need: %s",
                 (unsigned long long)seed, (int)tier, sl_status_message());
}

static void check_case(uint64_t seed)
{
    plan_case c;
    sl_shortage shortage = {0};
    uint64_t peaks[SL_TIER_COUNT], least[SL_TIER_COUNT];
    assert_ok(tiered_case_open(seed, &c), seed);
    assert_true(plan_and_check(&c, seed, &shortage, peaks));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        squeeze(&c, seed, (sl_tier)tier, least);
    for (int tier = 0; tier < 2; tier++) { /* more of one, the least of the others */
        uint64_t kept = c.request.budget_bytes[tier];
        c.request.budget_bytes[tier] = tier ? kept + kept / 3 : UINT64_MAX;
        if (!plan_and_check(&c, seed, &shortage, peaks))
            fail_msg("seed %llu: a larger budget of tier %d fails: %s", (unsigned long long)seed,
                     tier, sl_status_message());
        c.request.budget_bytes[tier] = kept;
    }
    plan_case_close(&c);
}

static void tiered_plan_when_budgets_shrink_then_stays_right_until_it_is_refused(void **state)
{
    (void)state;
    printf("seed %llu, %llu cases\n", (unsigned long long)base_seed(),
           (unsigned long long)case_count());
    for (uint64_t n = 0; n < case_count(); n++)
        check_case(base_seed() + n);
    printf("%llu plans, %llu refusals; with reads %llu, writes %llu, activations on disk %llu, on "
           "the host %llu; %llu hops\n",
           (unsigned long long)seen.plans, (unsigned long long)seen.refusals,
           (unsigned long long)seen.reads, (unsigned long long)seen.writes,
           (unsigned long long)seen.disk_activations, (unsigned long long)seen.host_activations,
           (unsigned long long)seen.hops);
    if (getenv("SL_TEST_SEED"))
        return;
    assert_true(seen.hops && seen.reads && seen.writes && seen.refusals);
    assert_true(seen.disk_activations && seen.host_activations);
}

static void tiered_plan_when_built_twice_then_equal(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 10; n++) {
        plan_case c;
        sl_shortage shortage;
        sl_plan *first = NULL, *second = NULL;
        assert_ok(tiered_case_open(base_seed() + n, &c), n);
        assert_ok(sl_plan_build(&c.request, &first, &shortage), n);
        assert_ok(sl_plan_build(&c.request, &second, &shortage), n);
        assert_int_equal(first->body_count, second->body_count);
        assert_int_equal(first->wait_count, second->wait_count);
        assert_memory_equal(first->waits, second->waits, first->wait_count * sizeof(sl_wait));
        for (uint32_t i = 0; i < first->body_count; i++) {
            assert_int_equal(first->body[i].from.offset, second->body[i].from.offset);
            assert_int_equal(first->body[i].to.offset, second->body[i].to.offset);
        }
        for (uint32_t i = 0; i < first->place_count; i++)
            assert_int_equal(first->places[i].offset, second->places[i].offset);
        sl_plan_close(first);
        sl_plan_close(second);
        plan_case_close(&c);
    }
}

/* ---- families that leave the device for want of room ---- */

/* The first and the last micro-batch are apart: families are of those between. */
enum { FAMILY_MICRO_BATCHES = 8, FAMILY_SLOTS = FAMILY_MICRO_BATCHES - 2 };

static void open_families(plan_case *c)
{
    *c = (plan_case){
        .shape = {.layers = 4, .heads = 2, .width = 128, .context = 64, .vocab = 60},
        .emit = {.batch = 2, .seq = 64, .tp_size = 1, .mode = SL_MODEL_LOSS},
        .step = {.micro_batch_count = FAMILY_MICRO_BATCHES, .accumulation = SL_ACCUMULATE_LAYER},
        .policy = {.policy = SL_POLICY_DEVICE},
        .request = {.prefetch = SL_PREFETCH_AUTO}};
    assert_ok(plan_case_build(c), 0);
}

/* Families on a tier; *out_last and *out_first are the ticks at
 * which the last and the first of them are made. */
static uint32_t count_families(const sl_plan *plan, sl_tier tier, uint32_t *out_first,
                               uint32_t *out_last)
{
    uint32_t count = 0;
    *out_first = UINT32_MAX;
    *out_last = 0;
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (it->place.tier != tier || it->place.slots != FAMILY_SLOTS)
            continue;
        count++;
        *out_first = it->first_tick < *out_first ? it->first_tick : *out_first;
        *out_last = it->first_tick > *out_last ? it->first_tick : *out_last;
    }
    return count;
}

static uint32_t count_away(const plan_case *c, const sl_plan *plan)
{
    uint32_t first_away, last_away, first_here, last_here;
    uint32_t away = count_families(plan, SL_TIER_HOST, &first_away, &last_away);
    uint32_t here = count_families(plan, SL_TIER_DEVICE, &first_here, &last_here);
    assert_ok(sl_plan_verify(&c->request, plan), 0);
    assert_true(!away || !here || last_away <= first_here);
    return away;
}

/* Without them a budget of a third of what all take would be refused; with them each budget down to
 * it works, and no more of them leave for a larger one than for a smaller one. */
static void families_when_the_device_is_full_then_the_first_made_go_to_the_host(void **state)
{
    (void)state;
    plan_case c;
    open_families(&c);
    sl_plan *plan = NULL;
    sl_shortage shortage;
    assert_ok(sl_plan_build(&c.request, &plan, &shortage), 0);
    const uint64_t all = plan->peak_bytes[SL_TIER_DEVICE] - c.homes->fixed_bytes[SL_TIER_DEVICE];
    uint32_t before = count_away(&c, plan);
    assert_int_equal(before, 0);
    sl_plan_close(plan);
    for (uint64_t sixths = 5; sixths >= 2; sixths--) {
        c.request.budget_bytes[SL_TIER_DEVICE] =
            c.homes->fixed_bytes[SL_TIER_DEVICE] + all / 6 * sixths;
        assert_ok(sl_plan_build(&c.request, &plan, &shortage), sixths);
        uint32_t away = count_away(&c, plan);
        assert_true(away > before);
        before = away;
        sl_plan_close(plan);
    }
    c.request.budget_bytes[SL_TIER_HOST] = c.homes->fixed_bytes[SL_TIER_HOST];
    assert_int_equal(sl_plan_build(&c.request, &plan, &shortage), SL_ERROR_FIT);
    plan_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiered_plan_when_budgets_shrink_then_stays_right_until_it_is_refused),
        cmocka_unit_test(tiered_plan_when_built_twice_then_equal),
        cmocka_unit_test(families_when_the_device_is_full_then_the_first_made_go_to_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
