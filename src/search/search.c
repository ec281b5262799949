/* Finds a choice, or says why there is none. In this order: the first of the placements in
 * candidates.c that fits, with as little recomputation as fits (first.c); from there changes of one
 * thing at a time, each planned and simulated, of which one is taken if it is clearly faster
 * (fastest.c); the plan is verified. If nothing fits: what would (suggest.c). */
#include "search.h"

#include <stdio.h>

#include "base/log.h"
#include "config/units.h"

/* The search for suggestions of a program with more ops is announced: it may take seconds. */
enum { CONFIRM_ROUNDS = 16, QUICK_OPS = 10000 };

static const char *const policy_names[] = {"device", "host", "static", "nvme"};
static const char *const recompute_names[] = {"none", "selective", "full"};
static const char *const accumulation_names[] = {"micro", "layer"};

const char *sl_search_policy_name(sl_policy policy)
{
    return policy_names[policy];
}

const char *sl_search_recompute_name(sl_recompute recompute)
{
    return recompute_names[recompute];
}

const char *sl_search_accumulation_name(sl_accumulation accumulation)
{
    return accumulation_names[accumulation];
}

uint64_t *sl_search_budget(sl_choice *choice, sl_tier tier)
{
    if (tier == SL_TIER_DISK)
        return &choice->disk_space;
    return tier == SL_TIER_HOST ? &choice->host_memory : &choice->device_memory;
}

/* Plans with the budget that a failure asks for until it is enough, and corrects its bytes to those
 * that were tried: then budget + missing bytes is known to fit. Leaves it alone where the other
 * tier becomes short on the way. */
static sl_status confirm_shortage(const sl_search *search, sl_fit_failure *failure)
{
    sl_choice raised = failure->choice;
    sl_fit_failure latest = *failure;
    uint64_t *budget = sl_search_budget(&raised, failure->shortage.tier);
    for (int round = 0; round < CONFIRM_ROUNDS; round++) {
        sl_blueprint *blueprint = NULL;
        uint64_t tried = latest.shortage.needed_bytes;
        if (tried <= failure->budget_bytes || tried == UINT64_MAX)
            return SL_OK;
        *budget = tried;
        sl_status status = sl_blueprint_build(&search->task, &raised, &blueprint, &latest);
        sl_blueprint_close(blueprint);
        if (status == SL_OK) {
            failure->shortage.needed_bytes = tried;
            failure->shortage.missing_bytes = tried - failure->budget_bytes;
        }
        if (status != SL_ERROR_FIT)
            return status;
        if (latest.shortage.tier != failure->shortage.tier)
            return SL_OK;
    }
    return SL_OK;
}

sl_status sl_search_overflow(const sl_search *search, const sl_fit_failure *failure,
                             sl_blueprint **out_blueprint, uint64_t out_budgets[SL_TIER_COUNT])
{
    sl_choice raised = failure->choice;
    sl_fit_failure latest = *failure;
    bool is_raised[SL_TIER_COUNT] = {false};
    uint64_t asked[SL_TIER_COUNT] = {0};
    for (int round = 0; round < CONFIRM_ROUNDS; round++) {
        const sl_tier tier = latest.shortage.tier;
        if (latest.shortage.needed_bytes == UINT64_MAX)
            break;
        if (!is_raised[tier])
            asked[tier] = latest.budget_bytes;
        is_raised[tier] = true;
        *sl_search_budget(&raised, tier) = latest.shortage.needed_bytes;
        sl_status status = sl_blueprint_build(&search->task, &raised, out_blueprint, &latest);
        for (int t = 0; status == SL_OK && t < SL_TIER_COUNT; t++)
            out_budgets[t] = is_raised[t] ? asked[t] : (*out_blueprint)->budget_bytes[t];
        if (status != SL_ERROR_FIT)
            return status;
    }
    SL_FAIL(SL_ERROR_FIT, "no budget was found that holds this choice");
}

void sl_search_format_suggestions(const sl_refusal *refusal,
                                  char out_text[SL_SEARCH_SUGGESTIONS_BYTES])
{
    const size_t capacity = SL_SEARCH_SUGGESTIONS_BYTES;
    size_t length = 0;
    snprintf(out_text, capacity, "; no change was found that fits");
    for (uint32_t i = 0; i < refusal->suggestion_count && length < capacity; i++) {
        const sl_suggestion *suggestion = &refusal->suggestions[i];
        length += (size_t)snprintf(
            out_text + length, capacity - length, "%s%s%s", i == 0 ? "; this fits: " : "; or ",
            suggestion->options,
            suggestion->is_beyond_machine ? " (more than this machine has free)" : "");
    }
}

static sl_status fail_refused(const sl_refusal *refusal)
{
    const sl_fit_failure *failure = &refusal->failure;
    char missing[SL_UNITS_TEXT_BYTES], budget[SL_UNITS_TEXT_BYTES];
    char suggestions[SL_SEARCH_SUGGESTIONS_BYTES];
    sl_units_format_size(failure->shortage.missing_bytes, missing);
    sl_units_format_size(failure->budget_bytes, budget);
    sl_search_format_suggestions(refusal, suggestions);
    SL_FAIL(SL_ERROR_FIT,
            "it does not fit: the %s tier (budget %s) misses %s (%llu bytes) in op %u of the "
            "step%s%s%s%s",
            sl_tier_name(failure->shortage.tier), budget, missing,
            (unsigned long long)failure->shortage.missing_bytes, failure->shortage.tick,
            *failure->op_name ? " (" : "", failure->op_name, *failure->op_name ? ")" : "",
            suggestions);
}

/* Choices are compared as they were planned; what runs is verified. */
static sl_status improve_and_verify(const sl_search *search, sl_blueprint **blueprint)
{
    sl_status status = sl_search_improve(search, blueprint);
    if (status == SL_OK)
        status = sl_blueprint_verify(*blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(*blueprint);
        *blueprint = NULL;
    }
    return status;
}

/* *out_fits: false only if the first search found no choice that fits. */
static sl_status find(sl_search *remembering, sl_blueprint **out_blueprint,
                      sl_fit_failure *out_failure, bool *out_fits)
{
    sl_status status = sl_search_run(remembering, out_blueprint, out_failure);
    *out_fits = status != SL_ERROR_FIT;
    return status == SL_OK ? improve_and_verify(remembering, out_blueprint) : status;
}

sl_status sl_search_find(const sl_search *search, sl_blueprint **out_blueprint,
                         sl_refusal *out_refusal)
{
    sl_refusal refusal = {0};
    sl_search_refused refused = {.count = 0};
    sl_search remembering = *search;
    bool fits = true;
    remembering.refused = &refused;
    SL_TRY(sl_address_cache_open(&remembering.task.addresses));
    sl_status status = find(&remembering, out_blueprint, &refusal.failure, &fits);
    sl_address_cache_close(remembering.task.addresses);
    if (fits)
        return status;
    if (refusal.failure.op_count > QUICK_OPS)
        sl_log_write(SL_LOG_NOTE, "it does not fit; looking for options that fit (%u ops to plan)",
                     refusal.failure.op_count);
    SL_TRY(confirm_shortage(search, &refusal.failure));
    SL_TRY(sl_search_suggest(search, &refusal));
    *out_refusal = refusal;
    return fail_refused(&refusal);
}

static sl_status find_probe(const sl_search *probe, sl_blueprint **out_blueprint,
                            sl_fit_failure *out_failure)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(sl_search_run(probe, &blueprint, out_failure));
    sl_status status = sl_search_improve(probe, &blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    *out_blueprint = blueprint;
    return SL_OK;
}

sl_status sl_search_probe(const sl_search *search, sl_blueprint **out_blueprint,
                          sl_fit_failure *out_failure)
{
    sl_search probe = *search;
    sl_search_refused refused = {.count = 0};
    probe.refused = &refused;
    probe.task.is_probe = true;
    SL_TRY(sl_address_cache_open(&probe.task.addresses));
    sl_status status = find_probe(&probe, out_blueprint, out_failure);
    sl_address_cache_close(probe.task.addresses);
    return status;
}
