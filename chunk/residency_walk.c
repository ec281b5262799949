/* Belady's rule over a loop body, extended to dirty objects. See residency.h for the words. */
#include "residency_walk.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX
#define NO_VISIT UINT32_MAX

struct sl_object_state {
    uint32_t first_use_index; /* into order */
    uint32_t use_count;
    uint32_t cursor; /* uses before it are past */
    bool is_transient;
    bool is_dirty;
    uint32_t visit;           /* open visit, NO_VISIT when not here */
    uint32_t last_write_tick; /* of the open visit */
    uint32_t last_use_tick;   /* of the open visit */
    bool is_used;             /* in the open visit */
    uint32_t resident_slot;   /* in residents */
};

static const sl_residency_use *use_of(const sl_residency_walk *w, const sl_object_state *object,
                                      uint32_t number)
{
    return &w->request->uses[w->order[object->first_use_index + number]];
}

/* ---- preparing ---- */

static void group_uses(sl_residency_walk *w)
{
    const sl_residency_request *request = w->request;
    for (uint32_t u = 0; u < request->use_count; u++)
        w->objects[request->uses[u].object].use_count++;
    uint32_t next = 0;
    for (uint32_t o = 0; o < request->object_count; o++) {
        w->objects[o].first_use_index = next;
        next += w->objects[o].use_count;
        w->objects[o].use_count = 0;
    }
    for (uint32_t u = 0; u < request->use_count; u++) {
        sl_object_state *object = &w->objects[request->uses[u].object];
        w->order[object->first_use_index + object->use_count++] = u;
    }
    for (uint32_t o = 0; o < request->object_count; o++) {
        sl_object_state *object = &w->objects[o];
        const sl_residency_use *first = object->use_count ? use_of(w, object, 0) : NULL;
        bool outlives = request->outlives && request->outlives[o];
        object->is_transient = first && first->writes && !first->reads && !outlives;
    }
}

void sl_residency_walk_close(sl_residency_walk *w)
{
    free(w->objects);
    free(w->order);
    free(w->residents);
    free(w->is_carried_in);
    free(w->is_needed);
}

sl_status sl_residency_walk_open(const sl_residency_request *request, sl_residency_walk *out_walk)
{
    uint64_t object_count = (uint64_t)request->object_count + 1;
    *out_walk = (sl_residency_walk){.request = request};
    out_walk->objects = calloc(object_count, sizeof *out_walk->objects);
    out_walk->order = calloc((uint64_t)request->use_count + 1, sizeof *out_walk->order);
    out_walk->residents = calloc(object_count, sizeof *out_walk->residents);
    out_walk->is_carried_in = calloc(object_count, sizeof *out_walk->is_carried_in);
    out_walk->is_needed = calloc(object_count, sizeof *out_walk->is_needed);
    if (!out_walk->objects || !out_walk->order || !out_walk->residents ||
        !out_walk->is_carried_in || !out_walk->is_needed) {
        sl_residency_walk_close(out_walk);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u chunks", request->object_count);
    }
    group_uses(out_walk);
    return SL_OK;
}

/* ---- what an object will be needed for ---- */

/* The number of the use after `cursor` in the endless loop, as a tick that keeps counting over the
 * end of the body; NEVER when the content here will not be needed again. */
static uint64_t next_need(const sl_residency_walk *w, const sl_object_state *object)
{
    uint64_t base = 0;
    uint32_t number = object->cursor;
    if (number == object->use_count) {
        if (object->is_transient || !object->use_count)
            return NEVER;
        number = 0;
        base = w->request->tick_count;
    }
    const sl_residency_use *use = use_of(w, object, number);
    return use->is_away && use->reads ? base + use->tick : NEVER;
}

/* Whether dirty content has to reach the home although it is evicted only now: a home use or the
 * end of the body comes before the next write here. */
static bool must_reach_home(const sl_residency_walk *w, const sl_object_state *object)
{
    for (uint32_t number = object->cursor; number < object->use_count; number++) {
        const sl_residency_use *use = use_of(w, object, number);
        if (!use->is_away)
            return use->reads;
        if (use->writes)
            return false;
    }
    return !object->is_transient;
}

/* Moves (in units of the object's bytes) that evicting it now adds. */
static uint32_t eviction_cost(const sl_residency_walk *w, const sl_object_state *object)
{
    if (next_need(w, object) == NEVER)
        return 0;
    return object->is_dirty && !must_reach_home(w, object) ? 2 : 1;
}

/* Whether dirty content is read by anyone before it is overwritten whole. */
static bool is_content_live(const sl_residency_walk *w, const sl_object_state *object)
{
    if (object->cursor < object->use_count)
        return use_of(w, object, object->cursor)->reads;
    return !object->is_transient;
}

/* ---- coming and going ---- */

static uint32_t open_visit(sl_residency_walk *w, uint32_t o, uint32_t tick, bool is_fetched)
{
    sl_residency *result = &w->result;
    if (result->visit_count == w->visit_capacity) {
        uint32_t capacity = w->visit_capacity ? 2 * w->visit_capacity : 256;
        sl_visit *visits = realloc(result->visits, (uint64_t)capacity * sizeof *visits);
        if (!visits) {
            w->status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to plan %u visits", capacity);
            return NO_VISIT;
        }
        result->visits = visits;
        w->visit_capacity = capacity;
    }
    result->visits[result->visit_count] = (sl_visit){.object = o,
                                                     .first_tick = tick,
                                                     .last_tick = tick,
                                                     .first_use = tick,
                                                     .is_fetched = is_fetched};
    return result->visit_count++;
}

static void enter(sl_residency_walk *w, uint32_t o, uint32_t tick, bool is_fetched)
{
    sl_object_state *object = &w->objects[o];
    object->visit = open_visit(w, o, tick, is_fetched);
    object->is_dirty = false;
    object->last_use_tick = tick;
    object->is_used = false;
    object->resident_slot = w->resident_count;
    w->residents[w->resident_count++] = o;
    w->resident_bytes += w->request->object_bytes[o];
    if (is_fetched)
        w->result.moved_bytes += w->request->object_bytes[o];
}

static void write_back(sl_residency_walk *w, uint32_t o)
{
    sl_object_state *object = &w->objects[o];
    sl_residency *result = &w->result;
    if (result->write_back_count == w->write_back_capacity) {
        uint32_t capacity = w->write_back_capacity ? 2 * w->write_back_capacity : 256;
        sl_write_back *list = realloc(result->write_backs, (uint64_t)capacity * sizeof *list);
        if (!list) {
            w->status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to plan %u moves", capacity);
            return;
        }
        result->write_backs = list;
        w->write_back_capacity = capacity;
    }
    result->write_backs[result->write_back_count++] =
        (sl_write_back){.visit = object->visit, .after_tick = object->last_write_tick};
    result->moved_bytes += w->request->object_bytes[o];
    object->is_dirty = false;
}

static void leave(sl_residency_walk *w, uint32_t o)
{
    sl_object_state *object = &w->objects[o];
    if (object->is_dirty && is_content_live(w, object))
        write_back(w, o);
    if (object->visit != NO_VISIT)
        w->result.visits[object->visit].last_tick = object->last_use_tick;
    if (w->is_carried_in[o] && !object->is_used) {
        w->is_carried_in[o] = false;
        w->is_guess_wrong = true;
    }
    uint32_t last = w->residents[--w->resident_count];
    w->residents[object->resident_slot] = last;
    w->objects[last].resident_slot = object->resident_slot;
    w->resident_bytes -= w->request->object_bytes[o];
    object->visit = NO_VISIT;
}

static bool is_here(const sl_residency_walk *w, uint32_t o)
{
    return w->objects[o].visit != NO_VISIT;
}

/* ---- choosing a victim ---- */

/* How gladly an object is given up: larger goes first. */
static double reluctance_inverse(const sl_residency_walk *w, uint32_t o, uint32_t tick)
{
    const sl_object_state *object = &w->objects[o];
    uint32_t cost = eviction_cost(w, object);
    if (cost == 0)
        return 1e30;
    double distance = (double)(next_need(w, object) - tick);
    switch (w->weighting) {
    case SL_WEIGH_RATIO:
        return distance / cost;
    case SL_WEIGH_COST:
        return distance + (cost == 1 ? 1e12 : 0.0);
    default:
        return distance;
    }
}

/* The resident to evict at `tick`, or NO_VISIT when all are needed now. */
static uint32_t choose_victim(const sl_residency_walk *w, uint32_t tick)
{
    uint32_t victim = NO_VISIT;
    double best = -1.0;
    for (uint32_t r = 0; r < w->resident_count; r++) {
        uint32_t o = w->residents[r];
        if (w->is_needed[o])
            continue;
        double score = reluctance_inverse(w, o, tick);
        if (score > best || (score == best && o < victim)) {
            best = score;
            victim = o;
        }
    }
    return victim;
}

/* Evicts until `incoming` more bytes fit at `tick`; false when they cannot. */
static bool make_room(sl_residency_walk *w, uint32_t tick, uint64_t incoming)
{
    uint64_t room = w->request->room_bytes[tick];
    while (w->resident_bytes + incoming > room) {
        uint32_t victim = choose_victim(w, tick);
        if (victim == NO_VISIT)
            return false;
        leave(w, victim);
    }
    return true;
}

/* ---- one walk over the body ---- */

static void touch(sl_residency_walk *w, const sl_residency_use *use)
{
    sl_object_state *object = &w->objects[use->object];
    object->cursor++;
    object->is_used = true;
    object->last_use_tick = use->tick;
    if (use->writes) {
        object->is_dirty = true;
        object->last_write_tick = use->tick;
    }
    if (next_need(w, object) == NEVER)
        leave(w, use->object);
}

static void use_at_home(sl_residency_walk *w, const sl_residency_use *use)
{
    if (is_here(w, use->object))
        leave(w, use->object);
    w->objects[use->object].cursor++;
}

/* The uses [first, last) of one tick. */
static void walk_tick(sl_residency_walk *w, uint32_t tick, uint32_t first, uint32_t last)
{
    const sl_residency_use *uses = w->request->uses;
    uint64_t incoming = 0;
    for (uint32_t u = first; u < last; u++) {
        if (!uses[u].is_away)
            use_at_home(w, &uses[u]);
        else if (!is_here(w, uses[u].object))
            incoming += w->request->object_bytes[uses[u].object];
        w->is_needed[uses[u].object] = uses[u].is_away;
    }
    make_room(w, tick, incoming);
    for (uint32_t u = first; u < last; u++)
        if (uses[u].is_away && !is_here(w, uses[u].object))
            enter(w, uses[u].object, tick, uses[u].reads);
    for (uint32_t u = first; u < last; u++) {
        if (uses[u].is_away && w->status == SL_OK)
            touch(w, &uses[u]);
        w->is_needed[uses[u].object] = false;
    }
}

static void begin_walk(sl_residency_walk *w)
{
    sl_residency_clear(&w->result);
    w->visit_capacity = w->write_back_capacity = 0;
    w->resident_count = 0;
    w->resident_bytes = 0;
    w->is_guess_wrong = false;
    for (uint32_t o = 0; o < w->request->object_count; o++) {
        w->objects[o].cursor = 0;
        w->objects[o].visit = NO_VISIT;
    }
    for (uint32_t o = 0; o < w->request->object_count && w->status == SL_OK; o++) {
        if (!w->is_carried_in[o])
            continue;
        enter(w, o, 0, false);
        if (w->status == SL_OK)
            w->result.visits[w->objects[o].visit].is_carried = true;
    }
}

void sl_residency_walk_body(sl_residency_walk *w)
{
    begin_walk(w);
    const sl_residency_request *request = w->request;
    uint32_t u = 0;
    for (uint32_t tick = 0; tick < request->tick_count && w->status == SL_OK; tick++) {
        uint32_t first = u;
        while (u < request->use_count && request->uses[u].tick == tick)
            u++;
        walk_tick(w, tick, first, u);
    }
}

/* ---- the end of the body ---- */

bool sl_residency_walk_shrink_guess(sl_residency_walk *w)
{
    bool held = !w->is_guess_wrong;
    for (uint32_t o = 0; o < w->request->object_count; o++) {
        if (w->is_carried_in[o] && !is_here(w, o)) {
            w->is_carried_in[o] = false;
            held = false;
        }
    }
    return held;
}

void sl_residency_walk_take_guess(sl_residency_walk *w)
{
    uint64_t room = w->request->tick_count ? w->request->room_bytes[0] : 0;
    uint64_t bytes = 0;
    memset(w->is_carried_in, 0, w->request->object_count * sizeof *w->is_carried_in);
    for (uint32_t r = 0; r < w->resident_count; r++) {
        uint32_t o = w->residents[r];
        if (bytes + w->request->object_bytes[o] > room)
            continue;
        bytes += w->request->object_bytes[o];
        w->is_carried_in[o] = true;
    }
}

/* Joins the visit that is open at the end with the one that is carried in, and closes the others.
 */
static void join_carried(sl_residency_walk *w)
{
    uint32_t last_tick = w->request->tick_count - 1;
    while (w->resident_count) {
        uint32_t o = w->residents[w->resident_count - 1];
        sl_object_state *object = &w->objects[o];
        uint32_t visit = object->visit;
        bool is_carried = w->is_carried_in[o];
        leave(w, o);
        if (!is_carried)
            continue;
        sl_visit *tail = &w->result.visits[visit];
        tail->last_tick = last_tick;
        if (tail->is_carried)
            continue; /* here all the time */
        for (uint32_t v = 0; v < visit; v++) {
            sl_visit *head = &w->result.visits[v];
            if (head->object == o && head->is_carried) {
                tail->is_carried = true;
                tail->last_tick = head->last_tick;
                head->object = NO_VISIT; /* one with the tail now */
                for (uint32_t b = 0; b < w->result.write_back_count; b++)
                    if (w->result.write_backs[b].visit == v)
                        w->result.write_backs[b].visit = visit;
            }
        }
    }
}

/* Removes the visits that close_body joined to others. */
static sl_status compact_visits(sl_residency *result)
{
    uint32_t *moved_to = calloc((uint64_t)result->visit_count + 1, sizeof *moved_to);
    if (!moved_to)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u visits", result->visit_count);
    uint32_t kept = 0;
    for (uint32_t v = 0; v < result->visit_count; v++) {
        moved_to[v] = kept;
        if (result->visits[v].object != NO_VISIT)
            result->visits[kept++] = result->visits[v];
    }
    for (uint32_t b = 0; b < result->write_back_count; b++)
        result->write_backs[b].visit = moved_to[result->write_backs[b].visit];
    result->visit_count = kept;
    free(moved_to);
    return SL_OK;
}

sl_status sl_residency_walk_close_body(sl_residency_walk *w)
{
    join_carried(w);
    if (w->status != SL_OK)
        return w->status;
    return compact_visits(&w->result);
}
