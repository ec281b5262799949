#include "plan_candidates.h"

#include <stdio.h>

#include "command.h"
#include "report/account.h"
#include "terminal.h"

enum { CHOICE_COLUMN = 16 };

static bool has_candidates(const sl_search *search)
{
    return search->auto_policy && search->candidates && search->candidates->count > 0;
}

static const char *find_bound(const sl_search_candidate *candidate, const sl_machine *machine)
{
    double seconds[SL_RESOURCE_COUNT];
    return sl_account_resource_name(sl_account_find_bound(machine, candidate->lane_seconds,
                                                          (double)candidate->disk_bytes, seconds));
}

void sl_plan_candidates_print(const sl_search *search, const sl_blueprint *blueprint)
{
    const sl_search_candidates *candidates = search->candidates;
    char text[512];
    if (!has_candidates(search))
        return;
    sl_terminal_print(
        stdout, 2, "auto compared %u plan%s; the best, by %s%s:", candidates->planned_count,
        candidates->planned_count == 1 ? "" : "s", sl_machine_basis(&blueprint->machine),
        !sl_machine_is_guess(&blueprint->machine)
            ? ""
            : " (this machine was not measured: sluice bench)");
    for (uint32_t i = 0; i < candidates->count; i++) {
        const sl_search_candidate *it = &candidates->best[i];
        sl_command_describe_choice(&it->choice, text, sizeof text);
        sl_terminal_print(
            stdout, CHOICE_COLUMN, "  %10.2f ms, bound by %s%s%s; device %s, host %s, disk %s: %s",
            1e3 * it->seconds, sl_terminal_begin(stdout, SL_TERMINAL_BOUND),
            find_bound(it, &blueprint->machine), sl_terminal_begin(stdout, SL_TERMINAL_PLAIN),
            sl_command_format_size(it->peak_bytes[SL_TIER_DEVICE]).text,
            sl_command_format_size(it->peak_bytes[SL_TIER_HOST]).text,
            sl_command_format_size(it->peak_bytes[SL_TIER_DISK]).text, text);
    }
}

/* A number, or "auto". */
static json_t *make_setting(uint64_t value, uint64_t automatic)
{
    return value == automatic ? json_string("auto") : json_integer((json_int_t)value);
}

/* NULL: no memory. */
static json_t *make_candidate(const sl_search_candidate *it, const sl_machine *machine)
{
    const double *host = it->choice.placement.host_fraction,
                 *disk = it->choice.placement.disk_fraction;
    const uint64_t *peak = it->peak_bytes;
    return json_pack(
        "{s:f, s:s, s:{s:I, s:I, s:I}, s:I, s:I, s:s, s:s, s:s, s:{s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f}, s:o, s:o}",
        "predicted_step_ms", 1e3 * it->seconds, "bound_by", find_bound(it, machine), "peak_bytes",
        "device", (json_int_t)peak[SL_TIER_DEVICE], "host", (json_int_t)peak[SL_TIER_HOST], "disk",
        (json_int_t)peak[SL_TIER_DISK], "link_bytes_per_step", (json_int_t)it->link_bytes,
        "disk_bytes_per_step", (json_int_t)it->disk_bytes, "policy",
        sl_search_policy_name(it->choice.placement.policy), "recompute",
        sl_search_recompute_name(it->choice.recompute), "accumulation",
        sl_search_accumulation_name(it->choice.accumulation), "shares", "offload_params",
        host[SL_GROUP_PARAM], "offload_grads", host[SL_GROUP_GRAD], "offload_optimizer",
        host[SL_GROUP_STATE1], "offload_activations", it->choice.host_activations, "nvme_params",
        disk[SL_GROUP_PARAM], "nvme_grads", disk[SL_GROUP_GRAD], "nvme_optimizer",
        disk[SL_GROUP_STATE1], "nvme_activations", it->choice.disk_activations, "chunk_size",
        make_setting(it->choice.chunk_elements, 0), "prefetch",
        make_setting(it->choice.prefetch, SL_PREFETCH_AUTO));
}

sl_status sl_plan_candidates_add_json(const sl_search *search, const sl_blueprint *blueprint,
                                      json_t *object)
{
    if (!has_candidates(search))
        return SL_OK;
    const sl_search_candidates *candidates = search->candidates;
    json_t *list = json_array();
    bool has_failed = !list;
    for (uint32_t i = 0; i < candidates->count; i++)
        has_failed |= json_array_append_new(
                          list, make_candidate(&candidates->best[i], &blueprint->machine)) != 0;
    json_t *compared =
        json_pack("{s:i, s:b, s:o}", "planned_count", (int)candidates->planned_count,
                  "machine_is_measured", (int)blueprint->machine.is_measured, "candidates", list);
    has_failed |= !compared || json_object_set_new(object, "auto", compared) != 0;
    if (has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what was compared");
    return SL_OK;
}
