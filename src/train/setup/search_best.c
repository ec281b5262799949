/* The fastest choice among those that fit, as far as a simulation can tell.
 *
 * A plan costs time to draw, so few are: a choice whose arithmetic alone takes longer than the best
 * plan so far is passed over. Each ladder is walked from its most frugal rung, so that where
 * nothing fits one plan shows it, towards rungs that move less, and left after two in a row that
 * are slower than one before. A later choice must be faster by more than simulations are exact.
 * Nothing here looks at a clock: equal searches end equally.
 */
#include <math.h>

#include "search_ladder.h"

enum { DRAWS_MAX = 40, PATIENCE = 2 };

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
    sl_misfit misfit;
    double seconds = INFINITY;
    self->draw_count++;
    sl_status status = sl_blueprint_draw(&self->task, choice, &blueprint, &misfit);
    if (status == SL_ERROR_FIT)
        *out_short_tier = misfit.shortage.tier;
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

/* A way over some rungs: what was met on it. */
typedef struct way {
    double least_seconds; /* INFINITY: nothing fits yet */
    uint32_t slower_count;
    sl_tier short_tier; /* of the last rung that did not fit */
    bool is_over;
} way;

static sl_status try_rung(contest *self, uint32_t rung, sl_choice *choice, way *so_far)
{
    double seconds;
    sl_search_take_rung(rung, choice);
    SL_TRY(enter(self, choice, &seconds, &so_far->short_tier));
    bool is_slower = isfinite(seconds) && seconds >= so_far->least_seconds;
    so_far->slower_count = is_slower ? so_far->slower_count + 1 : 0;
    bool has_fitted = isfinite(so_far->least_seconds);
    if (!isfinite(seconds))
        so_far->is_over = has_fitted || so_far->short_tier != SL_TIER_HOST;
    else
        so_far->least_seconds = fmin(seconds, so_far->least_seconds);
    if (so_far->slower_count >= PATIENCE || self->draw_count >= DRAWS_MAX)
        so_far->is_over = true;
    return SL_OK;
}

/* From the rung that takes least of the device towards those that move less, until the device is
 * short; on the way there only the host may be. Where nothing fits, on to the disk. */
static sl_status climb(contest *self, sl_choice choice)
{
    double seconds;
    way host = {.least_seconds = INFINITY}, disk = {.least_seconds = INFINITY};
    if (!self->search->auto_policy)
        return enter(self, &choice, &seconds, &host.short_tier);
    for (uint32_t rung = SL_SEARCH_FIRST_ON_DISK; rung-- > 0 && !host.is_over;)
        SL_TRY(try_rung(self, rung, &choice, &host));
    if (isfinite(host.least_seconds))
        return SL_OK;
    disk.is_over = self->draw_count >= DRAWS_MAX;
    uint32_t rung_count = sl_search_rung_count(self->search);
    for (uint32_t rung = SL_SEARCH_FIRST_ON_DISK; rung < rung_count && !disk.is_over; rung++)
        SL_TRY(try_rung(self, rung, &choice, &disk));
    return SL_OK;
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
    return search->auto_policy || (is_training && (search->auto_recompute || has_orders));
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
