/* Budgets are raised or lowered one at a time, and the search does the rest. */
#include "variants.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint64_t GIB = UINT64_C(1) << 30;
static const uint64_t least_bytes = 256 << 10; /* of a tier that is worth a question */

typedef struct trial {
    const sl_blueprint *now;
    const sl_machine *machine;
    sl_search search; /* with the budgets that the plan of now was made for */
    double now_seconds;
} trial;

/* ---- what is another ---- */

static const char *policy_of(const sl_choice *choice)
{
    return sl_search_policy_name(choice->placement.policy);
}

/* Shares of the choice in per cent, where they differ. */
static size_t describe_shares(const char *tier, const double *was, const double *is, char *text,
                              size_t capacity)
{
    static const struct {
        sl_group group;
        const char *name;
    } rows[] = {
        {SL_GROUP_PARAM, "params"}, {SL_GROUP_GRAD, "grads"}, {SL_GROUP_STATE1, "optimizer"}};
    size_t length = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && length < capacity; i++) {
        double before = was[rows[i].group], after = is[rows[i].group];
        if (fabs(before - after) > 0.005)
            length += (size_t)snprintf(text + length, capacity - length,
                                       "%s on the %s %.0f%% -> %.0f%%, ", rows[i].name, tier,
                                       100 * before, 100 * after);
    }
    return length < capacity ? length : capacity - 1;
}

static void describe_change(const sl_choice *was, const sl_choice *is, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    if (was->placement.policy != is->placement.policy)
        length +=
            (size_t)snprintf(text, capacity, "policy %s -> %s, ", policy_of(was), policy_of(is));
    if (was->recompute != is->recompute)
        length += (size_t)snprintf(text + length, capacity - length, "recompute %s -> %s, ",
                                   sl_search_recompute_name(was->recompute),
                                   sl_search_recompute_name(is->recompute));
    if (was->accumulation != is->accumulation)
        length += (size_t)snprintf(text + length, capacity - length, "accumulation %s -> %s, ",
                                   sl_search_accumulation_name(was->accumulation),
                                   sl_search_accumulation_name(is->accumulation));
    length += describe_shares("host", was->placement.host_fraction, is->placement.host_fraction,
                              text + length, capacity - length);
    length += describe_shares("disk", was->placement.disk_fraction, is->placement.disk_fraction,
                              text + length, capacity - length);
    if (length >= 2)
        text[length - 2] = '\0';
}

/* The bytes moved tell of plans that differ in when things move. */
static bool moves_alike(const sl_plan *a, const sl_plan *b)
{
    return memcmp(a->moved_bytes, b->moved_bytes, sizeof a->moved_bytes) == 0;
}

static void describe_moves(const sl_plan *was, const sl_plan *is, char *text, size_t capacity)
{
    static const char head[] = "moves a step: ";
    size_t length = (size_t)snprintf(text, capacity, "%s", head);
    for (int lane = 0; lane < SL_LANE_COUNT && length < capacity; lane++) {
        double mib = ((double)is->moved_bytes[lane] - (double)was->moved_bytes[lane]) / (1 << 20);
        if (fabs(mib) >= 0.05)
            length += (size_t)snprintf(text + length, capacity - length, "%s %+.1f MiB, ",
                                       sl_lane_name((sl_lane)lane), mib);
    }
    if (length < sizeof head)
        text[0] = '\0';
    else if (length < capacity)
        text[length - 2] = '\0';
}

/* ---- one variant ---- */

static sl_status predict(const sl_blueprint *blueprint, const sl_machine *machine,
                         double *out_seconds)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], machine, &simulation));
    *out_seconds = simulation.step_seconds;
    return SL_OK;
}

static sl_status compare(const trial *self, const sl_blueprint *other, sl_variant *variant)
{
    SL_TRY(predict(other, self->machine, &variant->step_seconds));
    describe_change(&self->now->choice, &other->choice, variant->change, sizeof variant->change);
    bool is_alike = !*variant->change && moves_alike(self->now->plans[0], other->plans[0]) &&
                    fabs(variant->step_seconds / self->now_seconds - 1) < 0.001;
    variant->outcome = is_alike ? SL_VARIANT_SAME : SL_VARIANT_OTHER;
    if (!*variant->change && !moves_alike(self->now->plans[0], other->plans[0]))
        describe_moves(self->now->plans[0], other->plans[0], variant->change,
                       sizeof variant->change);
    return SL_OK;
}

static sl_status try_variant(const trial *self, sl_variant *variant)
{
    sl_search search = self->search;
    sl_blueprint *other = NULL;
    sl_fit_failure failure = {0};
    *sl_search_budget(&search.fixed, variant->tier) = variant->budget_bytes;
    sl_status status = sl_search_probe(&search, &other, &failure);
    if (status == SL_OK)
        status = compare(self, other, variant);
    sl_blueprint_close(other);
    if (status != SL_ERROR_FIT)
        return status;
    variant->outcome = SL_VARIANT_DOES_NOT_FIT;
    variant->step_seconds = NAN;
    variant->missing_bytes = failure.shortage.missing_bytes;
    return SL_OK;
}

/* ---- all of them ---- */

static uint64_t find_change(uint64_t held_bytes)
{
    return held_bytes < 2 * GIB ? held_bytes / 4 : GIB;
}

static sl_status add_tier(const trial *self, const sl_search *search, sl_tier tier,
                          sl_variant *variants, uint32_t *count)
{
    sl_choice fixed = search->fixed;
    uint64_t held = sl_blueprint_peak_bytes(self->now, tier);
    bool is_set = *sl_search_budget(&fixed, tier) != UINT64_MAX;
    for (int is_more = 0; is_more <= is_set; is_more++) {
        sl_variant *variant = &variants[*count];
        uint64_t change = is_more ? GIB : find_change(held);
        uint64_t more = self->now->budget_bytes[tier] + change;
        *variant = (sl_variant){.tier = tier,
                                .is_more = is_more,
                                .change_bytes = change,
                                .budget_bytes = is_more ? more : held - change};
        SL_TRY(try_variant(self, variant));
        (*count)++;
    }
    return SL_OK;
}

sl_status sl_variants_find(const sl_search *search, const sl_blueprint *blueprint,
                           const sl_machine *machine, sl_variant out_variants[SL_VARIANTS_COUNT],
                           uint32_t *out_count)
{
    trial self = {.now = blueprint, .machine = machine, .search = *search};
    uint32_t count = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        *sl_search_budget(&self.search.fixed, (sl_tier)tier) = blueprint->budget_bytes[tier];
    SL_TRY(predict(blueprint, machine, &self.now_seconds));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (sl_blueprint_peak_bytes(blueprint, (sl_tier)tier) >= least_bytes)
            SL_TRY(add_tier(&self, search, (sl_tier)tier, out_variants, &count));
    *out_count = count;
    return SL_OK;
}
