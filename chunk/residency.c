/* Belady's rule over a loop body, extended to dirty objects. See residency.h for the words.
 *
 * The body is walked from a guessed set of carried objects until a walk ends with at least that set
 * in place; the guess starts as what a cold walk leaves behind and only shrinks, so this ends.
 * Three ways to weigh distance against cost are tried and the one that moves least is kept: none of
 * them is best for every mixture of clean and dirty objects.
 */
#include "residency.h"

#include <stdlib.h>
#include <string.h>

#include "residency_walk.h"

enum { MOST_LAPS = 3 };

/* Walks until the carried set stands; leaves the visits in w->result. The first guess is what
 * `laps` walks, each starting where the one before ended, leave behind. */
static sl_status plan_weighting(sl_residency_walk *w, sl_weighting choice, int laps)
{
    w->weighting = choice;
    memset(w->is_carried_in, 0, w->request->object_count * sizeof *w->is_carried_in);
    for (int lap = 0; lap < laps && w->status == SL_OK; lap++) {
        sl_residency_walk_body(w);
        sl_residency_walk_take_guess(w);
    }
    do {
        sl_residency_walk_body(w);
    } while (w->status == SL_OK && !sl_residency_walk_shrink_guess(w));
    if (w->status != SL_OK)
        return w->status;
    return sl_residency_walk_close_body(w);
}

static sl_status check_room(const sl_residency_walk *w, uint32_t *out_tick, uint64_t *out_missing)
{
    const sl_residency_request *request = w->request;
    uint64_t worst = 0;
    for (uint32_t u = 0; u < request->use_count;) {
        uint32_t tick = request->uses[u].tick;
        uint64_t needed = 0;
        for (; u < request->use_count && request->uses[u].tick == tick; u++)
            if (request->uses[u].is_away)
                needed += request->object_bytes[request->uses[u].object];
        if (needed > request->room_bytes[tick] && needed - request->room_bytes[tick] > worst) {
            worst = needed - request->room_bytes[tick];
            *out_tick = tick;
            *out_missing = worst;
        }
    }
    if (worst)
        SL_FAIL(SL_ERROR_FIT, "the chunks of tick %u lack %llu bytes", *out_tick,
                (unsigned long long)worst);
    return SL_OK;
}

sl_status sl_residency_plan(const sl_residency_request *request, sl_residency *out_residency,
                            uint32_t *out_tick, uint64_t *out_missing_bytes)
{
    sl_residency_walk w;
    SL_TRY(sl_residency_walk_open(request, &w));
    sl_residency best = {0};
    sl_status status = check_room(&w, out_tick, out_missing_bytes);
    for (int choice = 0; status == SL_OK && choice < MOST_LAPS * SL_WEIGHTING_COUNT; choice++) {
        status = plan_weighting(&w, (sl_weighting)(choice / MOST_LAPS), choice % MOST_LAPS + 1);
        bool is_better = choice == 0 || w.result.moved_bytes < best.moved_bytes;
        if (status == SL_OK && is_better) {
            sl_residency_clear(&best);
            best = w.result;
            w.result = (sl_residency){0};
        }
    }
    sl_residency_clear(&w.result);
    sl_residency_walk_close(&w);
    if (status == SL_OK)
        *out_residency = best;
    else
        sl_residency_clear(&best);
    return status;
}

void sl_residency_clear(sl_residency *residency)
{
    free(residency->visits);
    free(residency->write_backs);
    *residency = (sl_residency){0};
}
