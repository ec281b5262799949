/* The fastest choice, as far as a simulation can tell.
 *
 * A plan costs time to build, so few are: a choice whose arithmetic alone takes longer than the
 * best plan so far is passed over, and of the candidates only both ends and a few between are
 * tried. A later choice must be faster by more than simulations are exact. Nothing here looks at a
 * clock: equal searches end equally. */
#include <math.h>
#include <string.h>

#include "candidates.h"

/* Where budgets are unset, beside a disk, each is planned several times to settle them; of many
 * micro-batches that takes seconds. */
enum { BUILDS_MAX = 48, BUILDS_MAX_SETTLED = 18, BUILDS_MAX_LONG = 6 };

static const double gain = 0.98; /* of the best time, below which a change is worth while */

typedef struct improvement {
    const sl_search *search;
    sl_task task;
    sl_blueprint *best;
    double best_seconds;
    uint32_t build_count, builds_most;
} improvement;

static sl_status simulate(const sl_blueprint *blueprint, sl_simulation *out_simulation)
{
    return sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            out_simulation);
}

static bool is_known(const sl_search_candidates *known, const sl_blueprint *blueprint,
                     double seconds)
{
    for (uint32_t i = 0; i < known->count; i++) {
        const sl_search_candidate *other = &known->best[i];
        bool is_same = other->seconds == seconds;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            is_same = is_same &&
                      other->peak_bytes[tier] == sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
        if (is_same)
            return true;
    }
    return false;
}

/* Puts a plan into its place among the fastest, if it has one. */
static void note_candidate(const improvement *self, const sl_blueprint *blueprint,
                           const sl_simulation *simulation)
{
    sl_search_candidates *known = self->search->candidates;
    if (!known)
        return;
    const uint64_t *moved = blueprint->plans[0]->moved_bytes;
    const double seconds = simulation->step_seconds;
    known->planned_count++;
    uint32_t place = known->count;
    while (place > 0 && known->best[place - 1].seconds > seconds)
        place--;
    if (place == SL_SEARCH_CANDIDATES || is_known(known, blueprint, seconds))
        return;
    if (known->count < SL_SEARCH_CANDIDATES)
        known->count++;
    for (uint32_t i = known->count - 1; i > place; i--)
        known->best[i] = known->best[i - 1];
    known->best[place] =
        (sl_search_candidate){.choice = blueprint->choice,
                              .seconds = seconds,
                              .link_bytes = moved[SL_LANE_H2D] + moved[SL_LANE_D2H],
                              .disk_bytes = moved[SL_LANE_READ] + moved[SL_LANE_WRITE],
                              .host_bytes = simulation->host_bytes};
    memcpy(known->best[place].lane_seconds, simulation->busy_seconds,
           sizeof simulation->busy_seconds);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        known->best[place].peak_bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
}

/* Plans a choice; it becomes the best one if it is. INFINITY and the short tier if it does not fit.
 */
static sl_status try_faster(improvement *self, const sl_choice *choice, double *out_seconds,
                            sl_tier *out_short_tier)
{
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    sl_simulation simulation = {.step_seconds = INFINITY};
    sl_status status = sl_search_build(self->search, &self->task, choice, &blueprint, &failure);
    self->build_count += status != SL_ERROR_FIT || failure.op_count > 0;
    if (status == SL_ERROR_FIT)
        *out_short_tier = failure.shortage.tier;
    else if (status == SL_OK)
        status = simulate(blueprint, &simulation);
    if (status == SL_OK)
        note_candidate(self, blueprint, &simulation);
    const double seconds = *out_seconds = simulation.step_seconds;
    bool is_better = seconds < gain * self->best_seconds;
    sl_blueprint *slower = is_better ? self->best : blueprint;
    if (is_better) {
        self->best = blueprint;
        self->best_seconds = seconds;
    }
    sl_blueprint_close(slower);
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* The first candidate that the device holds, found by bisection; each that fits on the way may win.
 */
static sl_status improve_in_memory(improvement *self, sl_choice *choice)
{
    uint32_t low = 0, high = SL_CANDIDATES_LEAST_ON_DEVICE; /* that one was tried */
    while (low < high && self->build_count < self->builds_most) {
        uint32_t middle = (low + high) / 2;
        sl_tier short_tier =
            SL_TIER_HOST; /* where it fits, look below as where the host is short */
        double seconds;
        sl_candidates_set(middle, choice);
        SL_TRY(try_faster(self, choice, &seconds, &short_tier));
        if (short_tier == SL_TIER_DEVICE)
            low = middle + 1;
        else
            high = middle;
    }
    return SL_OK;
}

/* The device does not hold the activations of this recomputation: those that it has no room for
 * live on the host, or on disk where the host is short. Homes are refined later. */
static sl_status improve_activations(improvement *self, sl_choice choice)
{
    double seconds;
    sl_tier short_tier = SL_TIER_DEVICE;
    if (!self->search->auto_activations)
        return SL_OK;
    choice.host_activations = 1;
    SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    if (isfinite(seconds) || short_tier != SL_TIER_HOST ||
        self->search->task.disk_directory_count == 0)
        return SL_OK;
    choice.host_activations = 0;
    choice.disk_activations = 1;
    return try_faster(self, &choice, &seconds, &short_tier);
}

/* Homes on disk, from least to most. Where not even the most is enough, activations take the rest.
 */
static sl_status improve_on_disk(improvement *self, sl_choice *choice)
{
    const uint32_t candidate_count = sl_candidates_count(self->search);
    double seconds = INFINITY;
    sl_tier short_tier = SL_TIER_HOST; /* what the disk can mend */
    if (candidate_count == SL_CANDIDATES_FIRST_ON_DISK)
        return SL_OK;
    for (uint32_t index = SL_CANDIDATES_FIRST_ON_DISK;
         index < candidate_count && self->build_count < self->builds_most &&
         short_tier == SL_TIER_HOST;
         index++) {
        short_tier = SL_TIER_DISK;
        sl_candidates_set(index, choice);
        SL_TRY(try_faster(self, choice, &seconds, &short_tier));
    }
    return isfinite(seconds) || short_tier == SL_TIER_DISK ? SL_OK
                                                           : improve_activations(self, *choice);
}

/* The two ends of the candidates: least on the device, and as much there as fits. Where not
 * even the first fits, nothing does, unless the host is short and there is a disk. */
static sl_status improve_homes_of(improvement *self, sl_choice choice)
{
    double seconds;
    sl_tier short_tier = SL_TIER_HOST;
    if (!self->search->auto_policy)
        return try_faster(self, &choice, &seconds, &short_tier);
    sl_candidates_set(SL_CANDIDATES_LEAST_ON_DEVICE, &choice);
    SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    if (short_tier == SL_TIER_DEVICE)
        return improve_activations(self, choice);
    bool is_host_short = !isfinite(seconds);
    SL_TRY(improve_in_memory(self, &choice));
    return is_host_short ? improve_on_disk(self, &choice) : SL_OK;
}

/* A host that is slow beside its link had better send its states to the device and back. */
static sl_status improve_homes(improvement *self, sl_choice choice)
{
    SL_TRY(improve_homes_of(self, choice));
    if (!self->search->auto_update || self->best->choice.placement.policy == SL_POLICY_DEVICE)
        return SL_OK;
    choice.placement.update = SL_UPDATE_DEVICE;
    return improve_homes_of(self, choice);
}

/* One recomputation and one order of accumulation, with the homes that are open. */
static sl_status improve_order(improvement *self, const sl_choice *choice)
{
    double bound;
    if (self->build_count >= self->builds_most)
        return SL_OK;
    SL_TRY(sl_blueprint_bound_seconds(&self->task, choice, &bound));
    return bound < gain * self->best_seconds ? improve_homes(self, *choice) : SL_OK;
}

static sl_status improve_accumulations(improvement *self, sl_choice choice)
{
    if (!self->search->auto_accumulation || choice.accumulate == 1)
        return improve_order(self, &choice);
    choice.accumulation = SL_ACCUMULATE_MICRO;
    SL_TRY(improve_order(self, &choice));
    choice.accumulation = SL_ACCUMULATE_LAYER;
    return improve_order(self, &choice);
}

static sl_status improve_recomputes(improvement *self)
{
    sl_choice choice = self->search->fixed;
    if (!self->search->auto_recompute || self->task.work != SL_WORK_TRAIN)
        return improve_accumulations(self, choice);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice.recompute = (sl_recompute)recompute;
        SL_TRY(improve_accumulations(self, choice));
    }
    return SL_OK;
}

/* ---- finer shares ---- */

enum { HALVINGS = 4 };

/* A step towards the device: a share of one kind of state that leaves one tier for a faster one. */
typedef struct approach {
    sl_tier from, to;
    sl_group group; /* STATE1: all states of the optimizer */
} approach;

/* What moves most often comes first. */
static const approach approaches[] = {
    {SL_TIER_HOST, SL_TIER_DEVICE, SL_GROUP_PARAM},  {SL_TIER_HOST, SL_TIER_DEVICE, SL_GROUP_GRAD},
    {SL_TIER_DISK, SL_TIER_HOST, SL_GROUP_PARAM},    {SL_TIER_DISK, SL_TIER_HOST, SL_GROUP_GRAD},
    {SL_TIER_DISK, SL_TIER_DEVICE, SL_GROUP_STATE1}, {SL_TIER_DISK, SL_TIER_HOST, SL_GROUP_STATE1},
    {SL_TIER_HOST, SL_TIER_DEVICE, SL_GROUP_STATE1},
};

/* The same homes as shares: what others leave is on the device with static, on the host else. */
static sl_policy_options state_shares(const sl_policy_options *placement)
{
    sl_policy_options shares = *placement;
    shares.policy = SL_POLICY_STATIC;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        if (placement->policy != SL_POLICY_STATIC && placement->policy != SL_POLICY_NVME)
            shares.disk_fraction[group] = 0;
        if (placement->policy == SL_POLICY_DEVICE)
            shares.host_fraction[group] = 0;
        else if (placement->policy != SL_POLICY_STATIC)
            shares.host_fraction[group] = 1 - shares.disk_fraction[group];
    }
    return shares;
}

static double read_share(const sl_policy_options *shares, const approach *of)
{
    return of->from == SL_TIER_DISK ? shares->disk_fraction[of->group]
                                    : shares->host_fraction[of->group];
}

static void move_share(sl_policy_options *shares, const approach *of, double share)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        bool is_state = group != SL_GROUP_PARAM && group != SL_GROUP_GRAD;
        if (group != (int)of->group && !(is_state && of->group == SL_GROUP_STATE1))
            continue;
        if (of->from == SL_TIER_DISK)
            shares->disk_fraction[group] -= share;
        else
            shares->host_fraction[group] -= share;
        if (of->to == SL_TIER_HOST)
            shares->host_fraction[group] += share;
    }
}

/* Moves as much as fits and makes nothing slower, to an eighth of what there is. It stays even
 * where it gains less than a change is worth: several such may be worth it together. */
static sl_status approach_device(improvement *self, const approach *step, sl_choice *choice,
                                 double *best_seconds)
{
    const double all = read_share(&choice->placement, step);
    double taken = 0, part = all;
    for (int round = 0; all > 0 && round < HALVINGS && self->build_count < self->builds_most;
         round++) {
        sl_choice moved = *choice;
        double seconds;
        sl_tier short_tier;
        move_share(&moved.placement, step, taken + part);
        SL_TRY(try_faster(self, &moved, &seconds, &short_tier));
        const bool is_taken = seconds <= *best_seconds; /* INFINITY: it does not fit */
        if (is_taken) {
            taken += part;
            *best_seconds = seconds;
        }
        if (is_taken && round == 0)
            break;
        part /= 2;
    }
    move_share(&choice->placement, step, taken);
    return SL_OK;
}

/* From the best so far, for as long as what it computes leaves something to gain. */
static sl_status refine_shares(improvement *self)
{
    sl_choice choice = self->best->choice;
    double bound, seconds = self->best_seconds;
    if (!self->search->auto_policy || choice.placement.policy == SL_POLICY_DEVICE)
        return SL_OK;
    SL_TRY(sl_blueprint_bound_seconds(&self->task, &choice, &bound));
    choice.placement = state_shares(&choice.placement);
    for (size_t i = 0; i < sizeof approaches / sizeof approaches[0]; i++)
        if (bound < gain * self->best_seconds)
            SL_TRY(approach_device(self, &approaches[i], &choice, &seconds));
    return SL_OK;
}

/* ---- updates on both sides ---- */

/* True if some states live off the device, so that either side may update their chunks. */
static bool has_shared_updates(const sl_blueprint *blueprint)
{
    const sl_homes *homes = blueprint->homes;
    bool is_away = false;
    for (int group = SL_GROUP_MASTER; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; homes->tier[group] && c < homes->chunk_count; c++)
            is_away = is_away || homes->tier[group][c] != SL_TIER_DEVICE;
    return is_away;
}

/* The host's share of the updates, by bisection: from the middle in steps of halves, towards the
 * side that is faster. At the best share host and device finish together. */
static sl_status refine_updates(improvement *self)
{
    enum { STEPS = 4 };
    sl_choice choice = self->best->choice;
    double bound, best_seconds = INFINITY, best_share = 0.5;
    if (!self->search->auto_update || !has_shared_updates(self->best))
        return SL_OK;
    SL_TRY(sl_blueprint_bound_seconds(&self->task, &choice, &bound));
    choice.placement.update = SL_UPDATE_SHARED;
    double step = 0.5;
    for (int round = 0; round < STEPS && bound < gain * self->best_seconds; round++) {
        const double middle = best_share;
        for (int side = -1; side <= 1; side++) {
            double seconds;
            sl_tier short_tier;
            const bool is_tried = (side == 0) == (round == 0);
            if (!is_tried || self->build_count >= self->builds_most)
                continue;
            choice.placement.host_updates = middle + side * step;
            SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
            if (seconds >= best_seconds)
                continue;
            best_seconds = seconds;
            best_share = choice.placement.host_updates;
        }
        step /= 2;
    }
    return SL_OK;
}

/* ---- the pace of chunks ---- */

/* Fewer fetched ahead leave room to keep more, and collide less with what is written back. */
static sl_status refine_prefetch(improvement *self)
{
    static const uint32_t prefetches[] = {8, 4, 2};
    const sl_choice best = self->best->choice;
    for (size_t i = 0;
         best.prefetch == SL_PREFETCH_AUTO && i < sizeof prefetches / sizeof prefetches[0] &&
         self->build_count < self->builds_most;
         i++) {
        sl_choice choice = best;
        double seconds;
        sl_tier short_tier;
        choice.prefetch = prefetches[i];
        SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    }
    return SL_OK;
}

/* Larger chunks are fewer and longer copies: of a small model the fixed cost of each counts. */
static sl_status refine_chunks(improvement *self)
{
    enum { DOUBLINGS = 4 };
    sl_choice choice = self->best->choice;
    const bool is_open = choice.chunk_elements == 0;
    double seconds = 0, before = self->best_seconds;
    choice.chunk_elements = self->best->layout->chunk_elements;
    for (int i = 0;
         is_open && i < DOUBLINGS && seconds < before && self->build_count < self->builds_most;
         i++) {
        sl_tier short_tier;
        before = i > 0 ? seconds : before;
        choice.chunk_elements *= 2;
        SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    }
    return SL_OK;
}

/* Where all stays on a device, larger chunks mean fewer ops: each is cleared, measured and updated
 * by its own. Tried only if that time is worth it. */
static sl_status refine_resident_chunks(improvement *self)
{
    enum { OPS_OF_A_CHUNK = 3, LARGEST = 16 };
    sl_choice choice = self->best->choice;
    const uint64_t elements = self->best->layout->chunk_elements;
    const double ops = OPS_OF_A_CHUNK * (double)self->best->layout->chunk_count;
    double seconds = INFINITY;
    if (self->task.target.device != SL_DEVICE_CUDA || choice.chunk_elements > 0 ||
        ops * self->best->machine.op_seconds < (1 - gain) * self->best_seconds)
        return SL_OK;
    for (uint64_t times = LARGEST; times > 1 && isinf(seconds); times /= 2) {
        sl_tier short_tier;
        choice.chunk_elements = times * elements;
        SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    }
    return SL_OK;
}

/* Ranks make the same chunks and gather them in one order: of several, each of which goes by the
 * rates of its own machine, none chooses. */
static sl_status refine_pace(improvement *self)
{
    const sl_task *task = &self->task;
    const bool is_alone = task->tp_size <= 1 && task->dp_size <= 1 && task->stage_count <= 1;
    double bound;
    if (!self->search->auto_policy || !is_alone)
        return SL_OK;
    if (self->best->choice.placement.policy == SL_POLICY_DEVICE)
        return refine_resident_chunks(self);
    SL_TRY(sl_blueprint_bound_seconds(task, &self->best->choice, &bound));
    if (bound < gain * self->best_seconds)
        SL_TRY(refine_chunks(self));
    return bound < gain * self->best_seconds ? refine_prefetch(self) : SL_OK;
}

/* ---- what to show beside the best ---- */

/* A caller that asks for the best three gets three, also where the bound made other plans needless:
 * neighbours of the best, which differ from it in one choice, are planned for show. They cannot
 * replace the best, because a run that shows nothing must take the same plan. */
static sl_status show_others(const improvement *self)
{
    static const uint32_t homes[] = {SL_CANDIDATES_LEAST_ON_DEVICE, 4, 11, 10, 12};
    const sl_choice *best = &self->best->choice;
    const sl_search_candidates *known = self->search->candidates;
    const uint32_t count = sl_candidates_count(self->search);
    for (uint32_t i = 0; known && self->search->auto_policy && i < 5; i++) {
        improvement other = *self;
        sl_choice choice = *best;
        double seconds;
        sl_tier short_tier;
        if (i >= 2 && self->search->auto_recompute)
            choice.recompute = (sl_recompute)(i - 2);
        else if (homes[i] < count)
            sl_candidates_set(homes[i], &choice);
        if (known->count == SL_SEARCH_CANDIDATES)
            break;
        other.best = NULL;
        other.best_seconds = 0;
        SL_TRY(try_faster(&other, &choice, &seconds, &short_tier));
    }
    return SL_OK;
}

static uint32_t count_builds(const sl_search *search, const sl_choice *first)
{
    bool is_settled = search->task.target.device == SL_DEVICE_CPU &&
                      search->fixed.device_memory == UINT64_MAX &&
                      search->fixed.host_memory == UINT64_MAX;
    if (!is_settled || first->placement.policy != SL_POLICY_NVME)
        return BUILDS_MAX;
    return first->accumulate == 1 ? BUILDS_MAX_SETTLED : BUILDS_MAX_LONG;
}

static bool is_open(const sl_search *search)
{
    bool is_training = search->task.work == SL_WORK_TRAIN;
    bool has_orders = search->auto_accumulation && search->fixed.accumulate > 1;
    return search->auto_policy || search->auto_update ||
           (is_training && (search->auto_recompute || has_orders));
}

sl_status sl_search_improve(const sl_search *search, sl_blueprint **blueprint)
{
    improvement self = {.search = search, .task = search->task, .best = *blueprint};
    if (!is_open(search))
        return SL_OK;
    self.task.is_probe = true;
    self.builds_most = count_builds(search, &(*blueprint)->choice);
    sl_simulation simulation;
    SL_TRY(simulate(self.best, &simulation));
    self.best_seconds = simulation.step_seconds;
    note_candidate(&self, self.best, &simulation);
    sl_status status = improve_recomputes(&self);
    if (status == SL_OK)
        status = refine_shares(&self);
    if (status == SL_OK)
        status = refine_updates(&self);
    if (status == SL_OK)
        status = refine_pace(&self);
    if (status == SL_OK)
        status = show_others(&self);
    *blueprint = self.best;
    return status;
}
