/* Uses are grouped by object once; every question about an object is then a look at its neighbours
 * in that order, or at the loop that is walked. */
#include "use_index.h"

#include <stdlib.h>

const sl_residency_use *sl_use_index_get(const sl_use_index *index, uint32_t object,
                                         uint32_t number)
{
    return &index->request->uses[index->order[index->first_use[object] + number]];
}

uint32_t sl_use_index_count(const sl_use_index *index, uint32_t object)
{
    return index->first_use[object + 1] - index->first_use[object];
}

/* ---- preparing ---- */

static void group_uses(sl_use_index *index)
{
    const sl_residency_request *request = index->request;
    uint32_t *first = index->first_use, next = 0;
    for (uint32_t u = 0; u < request->use_count; u++)
        first[request->uses[u].object]++;
    for (uint32_t o = 0; o <= request->object_count; o++) {
        uint32_t count = first[o];
        first[o] = next;
        next += count;
    }
    for (uint32_t u = 0; u < request->use_count; u++)
        index->order[first[request->uses[u].object]++] = u;
    for (uint32_t o = request->object_count; o > 0; o--)
        first[o] = first[o - 1];
    first[0] = 0;
}

static void find_decisive(sl_use_index *index, uint32_t object)
{
    const sl_residency_request *request = index->request;
    uint32_t use_count = sl_use_index_count(index, object), decisive = use_count;
    for (uint32_t number = use_count; number-- > 0;) {
        const sl_residency_use *use = sl_use_index_get(index, object, number);
        if (!use->is_away || use->writes)
            decisive = number;
        index->decisive[index->first_use[object] + number] = decisive;
    }
    const sl_residency_use *first = use_count ? sl_use_index_get(index, object, 0) : NULL;
    bool outlives = request->outlives && request->outlives[object];
    index->is_transient[object] = first && first->writes && !first->reads && !outlives;
}

static void index_ticks(sl_use_index *index)
{
    const sl_residency_request *request = index->request;
    uint32_t u = 0, loop = 0;
    for (uint32_t tick = 0; tick <= request->tick_count; tick++) {
        while (u < request->use_count && request->uses[u].tick < tick)
            u++;
        index->tick_uses[tick] = u;
        while (loop < request->loop_count && request->loops[loop].end_tick <= tick)
            loop++;
        bool is_in = loop < request->loop_count && request->loops[loop].first_tick <= tick;
        index->loop_of_tick[tick] = is_in ? loop : SL_NO_LOOP;
    }
}

static bool are_loops_valid(const sl_residency_request *request)
{
    uint32_t end = 0;
    for (uint32_t l = 0; l < request->loop_count; l++) {
        const sl_residency_loop *loop = &request->loops[l];
        if (loop->first_tick < end || loop->end_tick <= loop->first_tick)
            return false;
        end = loop->end_tick;
    }
    return end <= request->tick_count;
}

void sl_use_index_close(sl_use_index *index)
{
    free(index->first_use);
    free(index->order);
    free(index->decisive);
    free(index->is_transient);
    free(index->tick_uses);
    free(index->loop_of_tick);
    *index = (sl_use_index){0};
}

sl_status sl_use_index_open(const sl_residency_request *request, sl_use_index *out_index)
{
    if (!are_loops_valid(request))
        SL_FAIL(SL_ERROR_INTERNAL, "the loops of a step are empty or out of order");
    uint64_t objects = (uint64_t)request->object_count + 1;
    uint64_t uses = (uint64_t)request->use_count + 1, ticks = (uint64_t)request->tick_count + 1;
    sl_use_index index = {.request = request};
    index.first_use = calloc(objects, sizeof *index.first_use);
    index.order = calloc(uses, sizeof *index.order);
    index.decisive = calloc(uses, sizeof *index.decisive);
    index.is_transient = calloc(objects, sizeof *index.is_transient);
    index.tick_uses = calloc(ticks, sizeof *index.tick_uses);
    index.loop_of_tick = calloc(ticks, sizeof *index.loop_of_tick);
    if (!index.first_use || !index.order || !index.decisive || !index.is_transient ||
        !index.tick_uses || !index.loop_of_tick) {
        sl_use_index_close(&index);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u uses", request->use_count);
    }
    group_uses(&index);
    for (uint32_t o = 0; o < request->object_count; o++)
        find_decisive(&index, o);
    index_ticks(&index);
    *out_index = index;
    return SL_OK;
}

sl_status sl_use_index_check_room(const sl_use_index *index, uint32_t *out_tick,
                                  uint64_t *out_missing)
{
    const sl_residency_request *request = index->request;
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

/* ---- what follows ---- */

bool sl_use_index_repeats(const sl_use_index *index, const sl_use_cursor *cursor)
{
    return index->loop && cursor->loop == index->loop && cursor->loop_use_count;
}

static uint32_t loop_uses_end(const sl_use_cursor *cursor)
{
    return cursor->loop_first + cursor->loop_use_count;
}

/* The next use in the body or in the next iteration. */
static uint64_t find_linear_need(const sl_use_index *index, uint32_t object, uint32_t number)
{
    uint64_t base = 0;
    if (number == sl_use_index_count(index, object)) {
        if (index->is_transient[object] || number == 0)
            return SL_NEVER;
        number = 0;
        base = index->request->tick_count;
    }
    const sl_residency_use *use = sl_use_index_get(index, object, number);
    return use->is_away && use->reads ? base + use->tick : SL_NEVER;
}

uint64_t sl_use_index_find_distance_behind(const sl_use_index *index)
{
    if (!index->loop)
        return 0;
    uint64_t length = index->loop->end_tick - index->loop->first_tick;
    return SL_RESIDENCY_REPETITIONS * length;
}

uint64_t sl_use_index_find_need(const sl_use_index *index, uint32_t object,
                                const sl_use_cursor *cursor)
{
    uint64_t linear = find_linear_need(index, object, cursor->number);
    if (!sl_use_index_repeats(index, cursor) || cursor->number < loop_uses_end(cursor))
        return linear;
    const sl_residency_use *again = sl_use_index_get(index, object, cursor->loop_first);
    if (again->is_away && again->reads)
        return (uint64_t)again->tick + index->loop->end_tick - index->loop->first_tick;
    return linear == SL_NEVER ? SL_NEVER : linear + sl_use_index_find_distance_behind(index);
}

static uint32_t get_decisive(const sl_use_index *index, uint32_t object, uint32_t number)
{
    if (number == sl_use_index_count(index, object))
        return number;
    return index->decisive[index->first_use[object] + number];
}

bool sl_use_index_must_reach_home(const sl_use_index *index, uint32_t object,
                                  const sl_use_cursor *cursor)
{
    uint32_t number = get_decisive(index, object, cursor->number);
    if (sl_use_index_repeats(index, cursor) && number >= loop_uses_end(cursor)) {
        uint32_t again = get_decisive(index, object, cursor->loop_first);
        number = again < loop_uses_end(cursor) ? again : number;
    }
    if (number == sl_use_index_count(index, object))
        return !index->is_transient[object];
    const sl_residency_use *use = sl_use_index_get(index, object, number);
    return !use->is_away && use->reads;
}

bool sl_use_index_is_live(const sl_use_index *index, uint32_t object, const sl_use_cursor *cursor)
{
    bool is_at_end = sl_use_index_repeats(index, cursor) && cursor->number == loop_uses_end(cursor);
    if (is_at_end && sl_use_index_get(index, object, cursor->loop_first)->reads)
        return true;
    if (cursor->number < sl_use_index_count(index, object))
        return sl_use_index_get(index, object, cursor->number)->reads;
    return !index->is_transient[object];
}
