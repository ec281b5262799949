/* What would make a run fit: each change is made to the search and the search is run again. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "search.h"
#include "session/config/units.h"

enum { BUDGET_ROUNDS = 12 };

static const uint64_t page_bytes = 4096;

/* True if the changed search finds a blueprint. *out_failure is the last shortage otherwise. */
static sl_status try_change(const sl_search *search, bool *out_fits, sl_fit_failure *out_failure)
{
    sl_blueprint *blueprint = NULL;
    sl_status status = sl_search_run(search, &blueprint, out_failure);
    sl_blueprint_close(blueprint);
    *out_fits = status == SL_OK;
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* The changes that cost no memory, from cheap to dear; each may stand alone or with the others. */
typedef enum change {
    CHANGE_RECOMPUTE = 1,
    CHANGE_LAYER = 2,
    CHANGE_HOST = 4,
    CHANGE_DISK = 8, /* states; these two instead of the host */
    CHANGE_ALL_DISK = 16
} change;

/* Fractions that were given go to 1: another policy would refuse them. */
static void place_on_host(sl_policy_options *placement)
{
    bool is_static = placement->policy == SL_POLICY_STATIC;
    if (!is_static)
        placement->policy = SL_POLICY_HOST;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        placement->host_fraction[group] = is_static ? 1.0 : 0.0;
        placement->disk_fraction[group] = 0;
    }
}

/* States, or with `is_all` everything; what leaves the host's share leaves it for the disk. */
static void place_on_disk(sl_policy_options *placement, bool is_all)
{
    if (placement->policy != SL_POLICY_STATIC)
        placement->policy = SL_POLICY_NVME;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        bool is_state = group != SL_GROUP_PARAM && group != SL_GROUP_GRAD;
        if (!is_state && !is_all)
            continue;
        placement->host_fraction[group] = 0;
        placement->disk_fraction[group] = 1;
    }
}

static bool has_room_on_disk(const sl_policy_options *placement, bool is_all)
{
    sl_policy_options moved = *placement;
    bool is_other;
    place_on_disk(&moved, is_all);
    is_other = moved.policy != placement->policy;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        is_other = is_other || moved.host_fraction[group] != placement->host_fraction[group] ||
                   moved.disk_fraction[group] != placement->disk_fraction[group];
    return is_other;
}

static unsigned find_open_changes(const sl_search *search)
{
    unsigned changes = 0;
    if (search->task.work == SL_WORK_TRAIN && !search->auto_recompute &&
        search->fixed.recompute != SL_RECOMPUTE_FULL)
        changes |= CHANGE_RECOMPUTE;
    if (search->fixed.accumulate > 1 && !search->auto_accumulation &&
        search->task.stage_count <= 1 && search->fixed.accumulation != SL_ACCUMULATE_LAYER)
        changes |= CHANGE_LAYER;
    const sl_policy_options *placement = &search->fixed.placement;
    if (!search->auto_policy && placement->policy != SL_POLICY_HOST &&
        placement->policy != SL_POLICY_NVME)
        changes |= CHANGE_HOST;
    if (search->auto_policy || search->task.disk_directory_count == 0)
        return changes;
    if (has_room_on_disk(placement, false))
        changes |= CHANGE_DISK;
    if (has_room_on_disk(placement, true))
        changes |= CHANGE_ALL_DISK;
    return changes;
}

static const char *print_host(const sl_search *search)
{
    if (search->fixed.placement.policy != SL_POLICY_STATIC)
        return "--policy host ";
    if (search->task.disk_directory_count == 0)
        return "--offload-params 1 --offload-grads 1 --offload-optimizer 1 ";
    return "--offload-params 1 --offload-grads 1 --offload-optimizer 1 "
           "--nvme-params 0 --nvme-grads 0 --nvme-optimizer 0 ";
}

static const char *print_disk(const sl_search *search, bool is_all)
{
    bool is_static = search->fixed.placement.policy == SL_POLICY_STATIC;
    if (!is_static)
        return is_all ? "--policy nvme --nvme-params 1 --nvme-grads 1 --nvme-optimizer 1 "
                      : "--policy nvme --nvme-optimizer 1 ";
    return is_all ? "--offload-params 0 --offload-grads 0 --offload-optimizer 0 "
                    "--nvme-params 1 --nvme-grads 1 --nvme-optimizer 1 "
                  : "--offload-optimizer 0 --nvme-optimizer 1 ";
}

static void apply_changes(sl_search *search, unsigned changes)
{
    if (changes & CHANGE_RECOMPUTE)
        search->fixed.recompute = SL_RECOMPUTE_FULL;
    if (changes & CHANGE_LAYER)
        search->fixed.accumulation = SL_ACCUMULATE_LAYER;
    if (changes & CHANGE_HOST)
        place_on_host(&search->fixed.placement);
    if (changes & (CHANGE_DISK | CHANGE_ALL_DISK))
        place_on_disk(&search->fixed.placement, changes & CHANGE_ALL_DISK);
}

static void print_changes(const sl_search *search, unsigned changes, char *out_options)
{
    const char *homes = changes & CHANGE_HOST ? print_host(search) : "";
    if (changes & (CHANGE_DISK | CHANGE_ALL_DISK))
        homes = print_disk(search, changes & CHANGE_ALL_DISK);
    snprintf(out_options, SL_SEARCH_SUGGESTION_BYTES, "%s%s%s",
             changes & CHANGE_RECOMPUTE ? "--recompute full " : "",
             changes & CHANGE_LAYER ? "--accumulation layer " : "", homes);
    size_t length = strlen(out_options);
    if (length)
        out_options[length - 1] = '\0';
}

/* True if a set of changes makes it fit. */
static sl_status try_changes(const sl_search *search, unsigned changes, bool *out_fits)
{
    sl_search changed = *search;
    sl_fit_failure failure;
    apply_changes(&changed, changes);
    return try_change(&changed, out_fits, &failure);
}

/* The first of some sets that fits. Two tries tell whether any does: all of its changes at once,
 * and all but the order layer by layer, which saves moves and costs activations. */
static sl_status suggest_one_of(const sl_search *search, const unsigned *order, size_t count,
                                char *out_options)
{
    unsigned open = find_open_changes(search), most = order[count - 1] & open;
    bool fits;
    SL_TRY(try_changes(search, most, &fits));
    if (!fits && most & CHANGE_LAYER)
        SL_TRY(try_changes(search, most & ~(unsigned)CHANGE_LAYER, &fits));
    if (!fits || most == 0)
        return SL_OK;
    for (size_t i = 0; i < count; i++) {
        if ((order[i] & open) != order[i])
            continue;
        SL_TRY(try_changes(search, order[i], &fits));
        if (!fits)
            continue;
        print_changes(search, order[i], out_options);
        return SL_OK;
    }
    return SL_OK;
}

static sl_status suggest_changes(const sl_search *search, char *out_options)
{
    enum {
        R = CHANGE_RECOMPUTE,
        L = CHANGE_LAYER,
        H = CHANGE_HOST,
        D = CHANGE_DISK,
        A = CHANGE_ALL_DISK
    };
    static const unsigned order[] = {R, L, H, R | L, R | H, L | H, R | L | H};
    static const unsigned order_on_disk[] = {D, D | R, D | L, D | R | L,
                                             A, A | R, A | L, A | R | L};
    SL_TRY(suggest_one_of(search, order, 7, out_options));
    if (*out_options || !(find_open_changes(search) & (CHANGE_DISK | CHANGE_ALL_DISK)))
        return SL_OK;
    return suggest_one_of(search, order_on_disk, 8, out_options);
}

/* Up to a size that is easy to read: at most 1/64 more, whole pages. */
static uint64_t round_budget(uint64_t bytes)
{
    uint64_t unit = page_bytes;
    while (unit <= bytes / 128)
        unit *= 2;
    return bytes > UINT64_MAX - unit ? bytes : sl_bits_round_up(bytes, unit);
}

/* Raises the budget of the tier that is short; false when that does not get anywhere. */
static bool raise_budget(sl_search *search, const sl_fit_failure *failure)
{
    uint64_t *budget = sl_search_budget(&search->fixed, failure->shortage.tier);
    uint64_t needed = failure->shortage.needed_bytes;
    if (needed <= failure->budget_bytes)
        needed = failure->budget_bytes + failure->shortage.missing_bytes + page_bytes;
    needed = round_budget(needed);
    if (*budget != UINT64_MAX && needed <= *budget)
        return false;
    *budget = needed;
    return true;
}

static void print_budgets(const sl_search *old, const sl_search *raised, char *out_options)
{
    static const char *const names[SL_TIER_COUNT] = {"device-memory", "host-memory", "disk-space"};
    sl_choice before = old->fixed, after = raised->fixed;
    size_t length = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        char size[SL_UNITS_TEXT_BYTES];
        uint64_t bytes = *sl_search_budget(&after, (sl_tier)tier);
        if (bytes == *sl_search_budget(&before, (sl_tier)tier))
            continue;
        sl_units_format_exact_size(bytes, size);
        length += (size_t)snprintf(out_options + length, SL_SEARCH_SUGGESTION_BYTES - length,
                                   "%s--%s %s", length ? " " : "", names[tier], size);
    }
}

/* The bytes that the budgets of a search take from the machine; unset ones take what is left. */
static uint64_t sum_budgets(const sl_search *search)
{
    uint64_t device = search->fixed.device_memory, host = search->fixed.host_memory;
    uint64_t sum = 0;
    if (device != UINT64_MAX)
        sum = device;
    if (host != UINT64_MAX && __builtin_add_overflow(sum, host, &sum))
        return UINT64_MAX;
    return sum;
}

static bool is_beyond_memory(const sl_search *search)
{
    uint64_t device = search->fixed.device_memory, host = search->fixed.host_memory;
    const sl_task *task = &search->task;
    if (task->target.device == SL_DEVICE_CPU)
        return sum_budgets(search) > task->shared_bytes;
    return (device != UINT64_MAX && device > task->device_bytes) ||
           (host != UINT64_MAX && host > task->shared_bytes);
}

static bool is_beyond_machine(const sl_search *search)
{
    return is_beyond_memory(search) || search->fixed.disk_space > search->disk_free_bytes;
}

/* Larger budgets; beyond the machine only if `beyond` is set. */
static sl_status suggest_budgets(const sl_search *search, const sl_fit_failure *failure,
                                 bool beyond, char *out_options)
{
    sl_search raised = *search;
    sl_fit_failure latest = *failure;
    for (int round = 0; round < BUDGET_ROUNDS; round++) {
        if (!raise_budget(&raised, &latest))
            return SL_OK;
        if (!beyond && is_beyond_machine(&raised))
            return SL_OK;
        bool fits;
        SL_TRY(try_change(&raised, &fits, &latest));
        if (!fits)
            continue;
        print_budgets(search, &raised, out_options);
        return SL_OK;
    }
    return SL_OK;
}

/* Halves the micro-batch; the step keeps its rows by more micro-batches. */
static sl_status suggest_micro_batch(const sl_search *search, char *out_options)
{
    sl_search smaller = *search;
    while (smaller.fixed.micro_batch > 1 && smaller.fixed.micro_batch % 2 == 0) {
        smaller.fixed.micro_batch /= 2;
        if (search->task.work == SL_WORK_TRAIN)
            smaller.fixed.accumulate *= 2;
        bool fits;
        sl_fit_failure failure;
        SL_TRY(try_change(&smaller, &fits, &failure));
        if (!fits)
            continue;
        if (search->task.work == SL_WORK_GENERATE)
            snprintf(out_options, SL_SEARCH_SUGGESTION_BYTES, "--samples %u",
                     smaller.fixed.micro_batch);
        else if (search->task.work == SL_WORK_TRAIN)
            snprintf(out_options, SL_SEARCH_SUGGESTION_BYTES, "--micro-batch %u --accumulate %u",
                     smaller.fixed.micro_batch, smaller.fixed.accumulate);
        else
            snprintf(out_options, SL_SEARCH_SUGGESTION_BYTES, "--micro-batch %u",
                     smaller.fixed.micro_batch);
        return SL_OK;
    }
    return SL_OK;
}

sl_status sl_search_suggest(const sl_search *search, sl_refusal *refusal)
{
    char *options = refusal->suggestion;
    SL_TRY(suggest_changes(search, options));
    if (!*options)
        SL_TRY(suggest_budgets(search, &refusal->failure, false, options));
    if (!*options)
        SL_TRY(suggest_micro_batch(search, options));
    if (*options)
        return SL_OK;
    SL_TRY(suggest_budgets(search, &refusal->failure, true, options));
    refusal->is_beyond_machine = *options != '\0';
    return SL_OK;
}
