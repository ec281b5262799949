/* The fastest choice among those that fit, as far as a simulation can tell.
 *
 * A plan costs time to draw, so few are: a choice whose arithmetic alone takes longer than the best
 * plan so far is passed over, and of a ladder only its ends and a few rungs between are tried. A
 * later choice must be faster by more than simulations are exact. Nothing here looks at a clock:
 * equal searches end equally.
 */
#include <math.h>

#include "search_ladder.h"

enum { DRAWS_MAX = 48 };

static const double gain = 0.98; /* of the best time, below which a change is worth while */

typedef struct contest {
    const sl_search *search;
    sl_task task;
    sl_blueprint *best;
    double best_seconds;
    uint32_t draw_count;
} contest;

static sl_status simulate(const sl_blueprint *blueprint, double *out_seconds)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    *out_seconds = simulation.step_seconds;
    return SL_OK;
}

/* Draws a choice; it becomes the best one if it is. INFINITY and the short tier if it does not fit.
 */
static sl_status enter(contest *self, const sl_choice *choice, double *out_seconds,
                       sl_tier *out_short_tier)
{
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    double seconds = INFINITY;
    self->draw_count++;
    sl_status status = sl_blueprint_build(&self->task, choice, &blueprint, &failure);
    if (status == SL_ERROR_FIT)
        *out_short_tier = failure.shortage.tier;
    else if (status == SL_OK)
        status = simulate(blueprint, &seconds);
    *out_seconds = seconds;
    bool is_better = seconds < gain * self->best_seconds;
    sl_blueprint *loser = is_better ? self->best : blueprint;
    if (is_better) {
        self->best = blueprint;
        self->best_seconds = seconds;
    }
    sl_blueprint_close(loser);
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* The first rung that the device holds, looked for by halves; all that fit on the way are entered.
 */
static sl_status enter_first_fitting(contest *self, sl_choice *choice)
{
    uint32_t low = 0, high = SL_SEARCH_FIRST_ON_DISK - 1; /* the last one was tried */
    while (low < high && self->draw_count < DRAWS_MAX) {
        uint32_t middle = (low + high) / 2;
        sl_tier short_tier =
            SL_TIER_HOST; /* where it fits, look below as where the host is short */
        double seconds;
        sl_search_take_rung(middle, choice);
        SL_TRY(enter(self, choice, &seconds, &short_tier));
        if (short_tier == SL_TIER_DEVICE)
            low = middle + 1;
        else
            high = middle;
    }
    return SL_OK;
}

static sl_status enter_on_disk(contest *self, sl_choice *choice)
{
    uint32_t rung_count = sl_search_rung_count(self->search);
    sl_tier short_tier = SL_TIER_HOST; /* what the disk can mend */
    for (uint32_t rung = SL_SEARCH_FIRST_ON_DISK;
         rung < rung_count && self->draw_count < DRAWS_MAX && short_tier == SL_TIER_HOST; rung++) {
        double seconds;
        short_tier = SL_TIER_DISK;
        sl_search_take_rung(rung, choice);
        SL_TRY(enter(self, choice, &seconds, &short_tier));
    }
    return SL_OK;
}

/* The two ends of what the ladder offers: least on the device, and as much there as fits. Where not
 * even the first fits, nothing does, unless the host is short and there is a disk. */
static sl_status climb_with(contest *self, sl_choice choice)
{
    double seconds;
    sl_tier short_tier = SL_TIER_HOST;
    if (!self->search->auto_policy)
        return enter(self, &choice, &seconds, &short_tier);
    sl_search_take_rung(SL_SEARCH_FIRST_ON_DISK - 1, &choice);
    SL_TRY(enter(self, &choice, &seconds, &short_tier));
    if (short_tier == SL_TIER_DEVICE)
        return SL_OK;
    bool is_host_short = !isfinite(seconds);
    SL_TRY(enter_first_fitting(self, &choice));
    return is_host_short ? enter_on_disk(self, &choice) : SL_OK;
}

/* A host that is slow beside its link had better send its states to the device and back. */
static sl_status climb(contest *self, sl_choice choice)
{
    SL_TRY(climb_with(self, choice));
    if (!self->search->auto_adam || self->best->choice.placement.policy == SL_POLICY_DEVICE)
        return SL_OK;
    choice.placement.adam = SL_ADAM_DEVICE;
    return climb_with(self, choice);
}

/* One recomputation and one order of accumulation, with the homes that are open. */
static sl_status try_order(contest *self, const sl_choice *choice)
{
    double bound;
    if (self->draw_count >= DRAWS_MAX)
        return SL_OK;
    SL_TRY(sl_blueprint_bound_seconds(&self->task, choice, &bound));
    return bound < gain * self->best_seconds ? climb(self, *choice) : SL_OK;
}

static sl_status try_recompute(contest *self, sl_choice choice)
{
    if (!self->search->auto_accumulation || choice.accumulate == 1)
        return try_order(self, &choice);
    choice.accumulation = SL_ACCUMULATE_MICRO;
    SL_TRY(try_order(self, &choice));
    choice.accumulation = SL_ACCUMULATE_LAYER;
    return try_order(self, &choice);
}

static sl_status try_all(contest *self)
{
    sl_choice choice = self->search->fixed;
    if (!self->search->auto_recompute || self->task.work != SL_WORK_TRAIN)
        return try_recompute(self, choice);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice.recompute = (sl_recompute)recompute;
        SL_TRY(try_recompute(self, choice));
    }
    return SL_OK;
}

static bool is_open(const sl_search *search)
{
    bool is_training = search->task.work == SL_WORK_TRAIN;
    bool has_orders = search->auto_accumulation && search->fixed.accumulate > 1;
    return search->auto_policy || search->auto_adam ||
           (is_training && (search->auto_recompute || has_orders));
}

sl_status sl_search_improve(const sl_search *search, sl_blueprint **blueprint)
{
    contest self = {.search = search, .task = search->task, .best = *blueprint};
    if (!is_open(search))
        return SL_OK;
    self.task.is_probe = true;
    SL_TRY(simulate(self.best, &self.best_seconds));
    sl_status status = try_all(&self);
    *blueprint = self.best;
    return status;
}
