/* Does the verifier say of a plan with repeated sections what it says of the same plan unrolled?
 *
 * It replays a few repetitions and lets them stand for all. If that were wrong, it would accept a
 * plan of which some repetition computes something else, or reject a right one. Here random plans
 * (looped_plans.h) and damaged ones (looped_damage.h) are judged twice: as they are, and unrolled
 * (unroll.h), where every repetition is there and none stands for another. The verdicts must be the
 * same. Repetitions are 1 to 3, 5 (all of them replayed), and 6, 7, 8 (of which four or five are).
 *
 * Two rules have no counterpart in an unrolled plan, and a plan that is rejected by them alone is
 * counted apart: that a place has as many slots as its section has repetitions, or two, and that
 * the bytes of a whole family are given on as a whole. Both reject; nothing is accepted that is
 * rejected unrolled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/status.h"
#include "looped_damage.h"
#include "sanitizer_share.h"
#include "unroll.h"

enum { QUICK_PLANS = 1000, FULL_PLANS = 30000, DAMAGES = 12, MESSAGE_BYTES = 600 };

static const uint32_t micro_batches[] = {3, 4, 5, 7, 8, 9, 10};

enum { SIZES = sizeof micro_batches / sizeof *micro_batches };

typedef struct verdicts {
    uint32_t accepted, rejected;
    uint32_t by_slots, by_whole_families; /* rejected as looped alone */
} verdicts;

static looped_case looped;

static bool judge(const sl_plan_request *request, const sl_plan *plan, char out[MESSAGE_BYTES])
{
    sl_status status = sl_plan_verify(request, plan);
    snprintf(out, MESSAGE_BYTES, "%s", status == SL_OK ? "accepted" : sl_status_message());
    assert_true(status == SL_OK || status == SL_ERROR_INTERNAL);
    return status == SL_OK;
}

/* The two rules that an unrolled plan does not know. */
static bool is_own_rule(const char *message, verdicts *counts)
{
    bool is_slots = strstr(message, " slots for ") != NULL;
    bool is_whole = strstr(message, "without waiting for") != NULL &&
                    micro_batches[looped.seed % SIZES] - 2 > 5;
    counts->by_slots += is_slots;
    counts->by_whole_families += is_whole;
    return is_slots || is_whole;
}

static void compare(const sl_plan *plan, const char *what, verdicts *counts)
{
    unrolled flat;
    char as_looped[MESSAGE_BYTES], as_flat[MESSAGE_BYTES];
    unroll_open(&looped.request, plan, &flat);
    bool is_looped = judge(&looped.request, plan, as_looped);
    bool is_flat = judge(&flat.request, &flat.plan, as_flat);
    unroll_close(&flat);
    bool is_same = is_looped == is_flat;
    if (!is_same && (is_looped || !is_own_rule(as_looped, counts)))
        fail_msg("seed %llu, %u micro-batches, %s: looped %s; unrolled %s",
                 (unsigned long long)looped.seed, looped.micro_batches, what, as_looped, as_flat);
    counts->accepted += is_same && is_looped;
    counts->rejected += is_same && !is_looped;
}

static void compare_damaged(uint32_t index, verdicts counts[DAMAGE_KIND_COUNT])
{
    sl_plan copy = edit_copy(&looped.plan);
    looped_damage it = {.of = &looped, .plan = &copy, .seed = looped.seed * DAMAGES + index};
    uint32_t kind = damage_draw(&it, DAMAGE_KIND_COUNT);
    if (damage_kinds[kind].apply(&it)) {
        damage_resum(&it);
        compare(&copy, damage_kinds[kind].name, &counts[kind]);
    }
    edit_close(&copy);
}

static void report(const verdicts counts[DAMAGE_KIND_COUNT], verdicts *sum)
{
    for (uint32_t i = 0; i < DAMAGE_KIND_COUNT; i++) {
        const verdicts *it = &counts[i];
        sum->accepted += it->accepted;
        sum->rejected += it->rejected;
        sum->by_slots += it->by_slots;
        sum->by_whole_families += it->by_whole_families;
        print_message("%s: %u accepted, %u rejected\n", damage_kinds[i].name, it->accepted,
                      it->rejected);
    }
    print_message("all: %u accepted, %u rejected; looped alone, %u by slots and %u for a whole "
                  "family\n",
                  sum->accepted, sum->rejected, sum->by_slots, sum->by_whole_families);
}

static void looped_plan_when_unrolled_then_judged_the_same(void **state)
{
    (void)state;
    verdicts counts[DAMAGE_KIND_COUNT] = {{0}}, right = {0}, sum = {0};
    const char *only = getenv("SL_TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t count = only ? 1 : getenv("SL_TEST_FULL") ? FULL_PLANS : sanitizer_share(QUICK_PLANS);
    for (uint64_t seed = first; seed < first + count; seed++) {
        looped_open(&looped, seed, micro_batches[seed % SIZES]);
        compare(&looped.plan, "undamaged", &right);
        for (uint32_t i = 0; i < DAMAGES; i++)
            compare_damaged(i, counts);
        looped_close(&looped);
    }
    assert_int_equal(right.accepted, count);
    report(counts, &sum);
    if (only)
        return;
    assert_true(sum.accepted >= count);
    assert_true(sum.rejected >= count);
    assert_true(100 * (sum.by_slots + sum.by_whole_families) <= 2 * sum.rejected);
    for (uint32_t i = 0; i < DAMAGE_KIND_COUNT; i++)
        assert_true(counts[i].rejected > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looped_plan_when_unrolled_then_judged_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
