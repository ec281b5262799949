/* Finds changes that make a run fit: each change is made to the search, and the search is run
 * again.
 *
 * One change of each kind is suggested: a smaller micro-batch in a step of the same rows;
 * recomputation, order or homes; the disk. All of these keep the budgets. If fewer than three are
 * found, a larger budget follows them. A budget beyond the machine is suggested only if nothing
 * else fits.
 *
 * Planning for one kind is bounded by work, not by time, so equal searches have equal results.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/limits.h"
#include "config/units.h"
#include "machine/disk.h"
#include "search.h"

enum { BUDGET_ROUNDS = 12 };

static const uint64_t page_bytes = 4096;

/* The bound of one kind of change (work_left of sl_plan_request): a second or two. */
static const uint64_t work_of_a_kind = 1u << 20;

/* The result of a search with a change. */
typedef struct attempt {
    bool fits;
    double seconds; /* predicted, of the step or, without training, of one batch of rows */
    sl_choice choice;
} attempt;

/* Runs the changed search and predicts the time of the plan that it finds. A change with which the
 * model cannot be emitted (SL_ERROR_USAGE) counts as one that does not fit. */
static sl_status try_change(const sl_search *search, uint64_t *work_left, attempt *out_attempt)
{
    sl_search bounded = *search;
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    sl_simulation simulation;
    *out_attempt = (attempt){.fits = false};
    bounded.task.work_left = work_left;
    sl_status status = sl_search_try(&bounded, &blueprint, &failure);
    if (status == SL_ERROR_FIT || status == SL_ERROR_USAGE)
        return SL_OK;
    SL_TRY(status);
    *out_attempt = (attempt){.fits = true, .choice = blueprint->choice};
    status = sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                              &simulation);
    out_attempt->seconds = simulation.step_seconds;
    sl_blueprint_close(blueprint);
    return status;
}

/* Inserts a suggestion that keeps the budgets; they are sorted by time. */
static void add_suggestion(sl_refusal *refusal, const char *options, double seconds)
{
    uint32_t place = refusal->suggestion_count++;
    for (; place > 0 && refusal->suggestions[place - 1].seconds > seconds; place--)
        refusal->suggestions[place] = refusal->suggestions[place - 1];
    sl_suggestion *suggestion = &refusal->suggestions[place];
    *suggestion = (sl_suggestion){.seconds = seconds};
    snprintf(suggestion->options, sizeof suggestion->options, "%s", options);
}

/* ---- a smaller micro-batch ---- */

/* The largest divisor of `micro_batch` up to `most`; 0: none. */
static uint32_t find_divisor(uint32_t micro_batch, uint64_t most)
{
    uint32_t divisor = most < micro_batch / 2 ? (uint32_t)most : micro_batch / 2;
    while (divisor > 0 && micro_batch % divisor != 0)
        divisor--;
    return divisor;
}

/* An upper bound of the rows that fit: the bytes of one row do not fall when the micro-batch gets
 * smaller. */
static uint64_t guess_rows(const sl_search *search, const sl_fit_failure *failure)
{
    const uint64_t needed = failure->shortage.needed_bytes;
    if (needed == UINT64_MAX || needed <= failure->budget_bytes)
        return search->fixed.micro_batch;
    double rows = (double)search->fixed.micro_batch * (double)failure->budget_bytes;
    rows /= (double)needed;
    return rows < 1 ? 1 : (uint64_t)rows;
}

/* A step keeps its rows by more micro-batches; false: there would be too many of them. The rest of
 * an evaluation's rows, a last smaller micro-batch, is divided anew. */
static bool set_micro_batch(sl_search *search, uint32_t rows)
{
    sl_choice *choice = &search->fixed;
    const uint64_t accumulate = (uint64_t)choice->accumulate * (choice->micro_batch / rows);
    choice->micro_batch = rows;
    search->task.tail_rows %= rows;
    search->task.test_tail_rows %= rows;
    if (search->task.work == SL_WORK_TRAIN)
        choice->accumulate = accumulate <= SL_CONFIG_ACCUMULATE_MAX ? (uint32_t)accumulate : 1;
    return accumulate <= SL_CONFIG_ACCUMULATE_MAX;
}

static void print_micro_batch(const sl_search *search, char *out_options)
{
    const sl_choice *choice = &search->fixed;
    const char *name = search->task.work == SL_WORK_GENERATE ? "samples" : "micro-batch";
    int length =
        snprintf(out_options, SL_SEARCH_SUGGESTION_BYTES, "--%s %u", name, choice->micro_batch);
    if (search->task.work == SL_WORK_TRAIN)
        snprintf(out_options + length, SL_SEARCH_SUGGESTION_BYTES - (size_t)length,
                 " --accumulate %u", choice->accumulate);
}

/* Halves the micro-batch until it fits, and further as long as the step gets faster: fewer rows may
 * need no recomputation. Only one row is also tried with activations away from the device. */
static sl_status suggest_micro_batch(const sl_search *search, sl_refusal *refusal)
{
    const uint32_t rows = search->fixed.micro_batch;
    uint64_t work = work_of_a_kind;
    double best = INFINITY;
    char options[SL_SEARCH_SUGGESTION_BYTES];
    for (uint32_t fewer = find_divisor(rows, guess_rows(search, &refusal->failure)); fewer > 0;
         fewer = find_divisor(rows, fewer / 2)) {
        sl_search smaller = *search;
        attempt tried;
        if (!set_micro_batch(&smaller, fewer))
            break;
        smaller.auto_activations = search->auto_activations && fewer == 1;
        SL_TRY(try_change(&smaller, &work, &tried));
        if (search->task.work != SL_WORK_TRAIN)
            tried.seconds *= (double)rows / fewer;
        if (isfinite(best) && (!tried.fits || tried.seconds >= best))
            break;
        if (!tried.fits)
            continue;
        best = tried.seconds;
        print_micro_batch(&smaller, options);
        if (tried.choice.recompute == SL_RECOMPUTE_NONE)
            break;
    }
    if (isfinite(best))
        add_suggestion(refusal, options, best);
    return SL_OK;
}

/* ---- less kept, and other homes ---- */

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

static sl_status try_changes(const sl_search *search, unsigned changes, uint64_t *work_left,
                             attempt *out_attempt)
{
    sl_search changed = *search;
    apply_changes(&changed, changes);
    return try_change(&changed, work_left, out_attempt);
}

/* The first of some sets that fits. Two tries tell whether any does: all of its changes at once,
 * and all but the order layer by layer, which saves moves and costs activations. */
static sl_status find_one_of(const sl_search *search, const unsigned *order, size_t count,
                             char *out_options, attempt *out_attempt)
{
    unsigned open = find_open_changes(search), most = order[count - 1] & open;
    uint64_t work = work_of_a_kind;
    *out_attempt = (attempt){.fits = false};
    if (most != 0)
        SL_TRY(try_changes(search, most, &work, out_attempt));
    if (!out_attempt->fits && most & CHANGE_LAYER)
        SL_TRY(try_changes(search, most & ~(unsigned)CHANGE_LAYER, &work, out_attempt));
    const bool fits = out_attempt->fits;
    out_attempt->fits = false;
    for (size_t i = 0; fits && i < count && !out_attempt->fits; i++) {
        if ((order[i] & open) != order[i])
            continue;
        SL_TRY(try_changes(search, order[i], &work, out_attempt));
        print_changes(search, order[i], out_options);
    }
    return SL_OK;
}

enum {
    R = CHANGE_RECOMPUTE,
    L = CHANGE_LAYER,
    H = CHANGE_HOST,
    D = CHANGE_DISK,
    A = CHANGE_ALL_DISK
};

static sl_status suggest_changes(const sl_search *search, sl_refusal *refusal)
{
    static const unsigned order[] = {R, L, H, R | L, R | H, L | H, R | L | H};
    char options[SL_SEARCH_SUGGESTION_BYTES];
    attempt found;
    SL_TRY(find_one_of(search, order, sizeof order / sizeof order[0], options, &found));
    if (found.fits)
        add_suggestion(refusal, options, found.seconds);
    return SL_OK;
}

/* ---- the disk ---- */

/* Gives a search without a disk tier the working directory, unless that lies in memory. */
static bool add_directory(sl_search *search)
{
    static const char *const here[] = {"."};
    uint64_t free_bytes;
    if (search->task.disk_directory_count > 0 || sl_limits_is_in_memory(here[0]) ||
        sl_disk_free_bytes(here, 1, &free_bytes) != SL_OK)
        return false;
    search->task.disk_directories = here;
    search->task.disk_directory_count = 1;
    search->disk_free_bytes = free_bytes / 10 * 9;
    if (search->fixed.disk_space == 0)
        search->fixed.disk_space = search->disk_free_bytes;
    return true;
}

/* Adds a disk tier if there is none. With --policy auto the search finds the homes by itself. */
static sl_status suggest_disk(const sl_search *search, sl_refusal *refusal)
{
    static const unsigned order[] = {D, D | R, D | L, D | R | L, A, A | R, A | L, A | R | L};
    char options[SL_SEARCH_SUGGESTION_BYTES] = "";
    sl_search with_disk = *search;
    const bool is_new = add_directory(&with_disk);
    uint64_t work = work_of_a_kind;
    attempt found = {.fits = false};
    if (is_new && search->auto_policy)
        SL_TRY(try_change(&with_disk, &work, &found));
    else if (with_disk.task.disk_directory_count > 0 && !search->auto_policy)
        SL_TRY(find_one_of(&with_disk, order, sizeof order / sizeof order[0], options, &found));
    const size_t length = strlen(options);
    if (is_new)
        snprintf(options + length, sizeof options - length, "%s--disk-dir .", length ? " " : "");
    if (found.fits)
        add_suggestion(refusal, options, found.seconds);
    return SL_OK;
}

/* ---- budgets ---- */

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
    if (needed <= failure->budget_bytes || needed == UINT64_MAX)
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

/* Suggests a larger budget behind the suggestions that keep it; one beyond the machine only if
 * `beyond` is set. */
static sl_status suggest_budgets(const sl_search *search, bool beyond, sl_refusal *refusal)
{
    sl_search raised = *search;
    sl_fit_failure latest = refusal->failure;
    uint64_t work = work_of_a_kind;
    raised.task.work_left = &work;
    for (int round = 0; round < BUDGET_ROUNDS; round++) {
        sl_blueprint *blueprint = NULL;
        if (!raise_budget(&raised, &latest) || (!beyond && is_beyond_machine(&raised)))
            return SL_OK;
        sl_status status = sl_search_run(&raised, &blueprint, &latest);
        sl_blueprint_close(blueprint);
        if (status == SL_ERROR_FIT)
            continue;
        SL_TRY(status);
        sl_suggestion *suggestion = &refusal->suggestions[refusal->suggestion_count++];
        *suggestion = (sl_suggestion){.seconds = INFINITY, .is_beyond_machine = beyond};
        print_budgets(search, &raised, suggestion->options);
        return SL_OK;
    }
    return SL_OK;
}

sl_status sl_search_suggest(const sl_search *search, sl_refusal *refusal)
{
    refusal->suggestion_count = 0;
    SL_TRY(suggest_micro_batch(search, refusal));
    SL_TRY(suggest_changes(search, refusal));
    SL_TRY(suggest_disk(search, refusal));
    if (refusal->suggestion_count < SL_SEARCH_SUGGESTIONS)
        SL_TRY(suggest_budgets(search, false, refusal));
    return refusal->suggestion_count > 0 ? SL_OK : suggest_budgets(search, true, refusal);
}
