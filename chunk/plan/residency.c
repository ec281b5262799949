/* Belady's rule over the body of a loop, extended to dirty objects and to loops inside the body.
 * See residency.h for the words.
 *
 * The states of an object, and the function that makes each transition:
 *
 *   HOME   not here; its home has the content, or it is written whole before the next read
 *   CLEAN  here, and its home has the same content
 *   DIRTY  here, and its home does not have the newest content
 *
 *   +------+  begin_visit, fetched   +-------+  use_away, writes  +-------+
 *   |      |------------------------>|       |------------------->|       |
 *   | HOME |  end_visit              | CLEAN |  write_back        | DIRTY |
 *   |      |<------------------------|       |<-------------------|       |
 *   +------+                         +-------+                    +-------+
 *    |    ^  begin_visit, not fetched: the first use writes it whole ^   |
 *    +----|----------------------------------------------------------+   |
 *         +--------------------------------------------------------------+
 *            end_visit, if the content is not read again (is_content_live)
 *
 * use_at_home ends the visit before the use. end_visit writes dirty content back if it is still
 * read. enter_loop may write content back in front of a loop and keep the object here. A visit that
 * is carried over the end of the body is clean there: begin_body begins it clean, join_carried ends
 * it clean. An object may be dirty at the seam of a loop.
 *
 * The body is walked from a guessed set of carried objects until a walk ends with at least that set
 * in place. One to three walks before find the first guess; then the set only shrinks, so this
 * ends. All three numbers of walks and three weightings of distance and cost (victims.h) are tried;
 * the result that moves the fewest bytes is kept.
 *
 * A loop inside the body is walked the same way, but from the state at its entry. Belady's rule may
 * leave other objects after each repetition, so the set at the seam is imposed: a guess that only
 * shrinks, to objects in place at the entry and at the end (at most 20 walks of a loop were
 * counted: 192 layers, on disk). In the loop the next use is cyclic; objects without a use in it
 * are needed later than all others. An object that is dirty at its end is dirty at its entry.
 *
 * Invariant of content: for an object that is not here, the home has the current content, or the
 * object is written whole before the next read. At the end of a loop this must hold for both
 * futures: the next repetition, and the ticks behind the loop.
 */
#include "residency.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "uses.h"
#include "victims.h"
#include "visit_list.h"

enum { MOST_LAPS = 3 };

/* The state of an object at the seam of the loop that is walked. */
enum {
    SEAM_HAS = 1,         /* the guess: the object is here at the seam */
    SEAM_DIRTY = 2,       /* dirty at the end of a repetition, so dirty at the entry too */
    SEAM_CLEANED = 4,     /* written back in front of the loop, so clean at the entry */
    SEAM_OLD_WRITTEN = 8, /* the last walk wrote back content from before the repetition */
};

typedef struct object_state {
    sl_use_cursor cursor;
    bool is_dirty;
    bool is_used;             /* in the open visit */
    bool is_written;          /* in the open visit and the present repetition */
    bool left_unused;         /* carried in, and left before it was used */
    uint32_t visit;           /* the open visit; SL_NO_VISIT: not here */
    uint32_t last_write_tick; /* of the open visit */
    uint32_t last_use_tick;   /* of the open visit */
    uint32_t last_visit;      /* the visit that was closed last, or SL_NO_VISIT */
    uint32_t free_tick;       /* first tick after last_visit */
    uint32_t resident_index;  /* in residents */
    uint32_t carried_visit;   /* the visit that was open at the start of the body */
    uint32_t entry_visit;     /* the visit that was open at the entry of the loop that is walked */
} object_state;

/* The state at the entry of a loop. */
typedef struct entry_state {
    object_state *objects; /* [member_count] */
    uint32_t *residents;
    uint32_t resident_count;
    uint64_t resident_bytes;
    uint64_t tick_bytes;
    sl_visit_mark visits;
} entry_state;

typedef struct walk {
    const sl_residency_request *request;
    sl_weighting weighting;
    bool has_victim; /* at least one walk so far evicted a victim */
    int laps;
    object_state *objects;
    sl_uses uses;
    uint32_t *residents; /* objects here now */
    uint32_t resident_count;
    uint64_t resident_bytes;
    uint64_t tick_bytes;  /* of the objects that were here during the last tick that was walked */
    sl_victims victims;   /* residents that are not needed at the present tick */
    bool is_ranking_old;  /* the members' classes and next uses in `victims` are out of date */
    bool *is_carried_in;  /* [object_count]: the guess */
    bool *is_needed;      /* [object_count]: has an away use at the present tick */
    uint32_t behind_tick; /* end_tick of the last loop that was walked */
    uint8_t *seam;        /* [object_count]: SEAM_ flags of the members */
    bool is_seam_wrong;   /* the guess failed: an object of the seam left before it was used */
    uint32_t *members;    /* objects that are used in the loop, or that left within it */
    uint32_t member_count;
    entry_state entry;
    sl_visit_list list;
} walk;

/* ---- preparing ---- */

static void close_walk(walk *w)
{
    sl_uses_close(&w->uses);
    sl_victims_close(&w->victims);
    free(w->objects);
    free(w->residents);
    free(w->is_carried_in);
    free(w->is_needed);
    free(w->seam);
    free(w->members);
    free(w->entry.objects);
    free(w->entry.residents);
}

static sl_status open_walk(const sl_residency_request *request, walk *out_walk)
{
    uint64_t objects = (uint64_t)request->object_count + 1;
    *out_walk = (walk){.request = request};
    SL_TRY(sl_uses_open(request, &out_walk->uses));
    out_walk->list.uses = &out_walk->uses;
    sl_status status = sl_victims_open(request->object_count, &out_walk->victims);
    if (status != SL_OK) {
        close_walk(out_walk);
        return status;
    }
    out_walk->objects = calloc(objects, sizeof *out_walk->objects);
    out_walk->residents = calloc(objects, sizeof *out_walk->residents);
    out_walk->is_carried_in = calloc(objects, sizeof *out_walk->is_carried_in);
    out_walk->is_needed = calloc(objects, sizeof *out_walk->is_needed);
    out_walk->seam = calloc(objects, sizeof *out_walk->seam);
    out_walk->members = calloc(objects, sizeof *out_walk->members);
    out_walk->entry.objects = calloc(objects, sizeof *out_walk->entry.objects);
    out_walk->entry.residents = calloc(objects, sizeof *out_walk->entry.residents);
    if (!out_walk->objects || !out_walk->residents || !out_walk->is_carried_in ||
        !out_walk->is_needed || !out_walk->seam || !out_walk->members || !out_walk->entry.objects ||
        !out_walk->entry.residents) {
        close_walk(out_walk);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u chunks", request->object_count);
    }
    return SL_OK;
}

/* ---- the next uses of an object ---- */

static uint64_t find_need(const walk *w, uint32_t o)
{
    return sl_uses_find_need(&w->uses, o, &w->objects[o].cursor);
}

static bool is_content_live(const walk *w, uint32_t o)
{
    return sl_uses_is_live(&w->uses, o, &w->objects[o].cursor);
}

static bool is_here(const walk *w, uint32_t o)
{
    return w->objects[o].visit != SL_NO_VISIT;
}

#ifndef NDEBUG
/* Residents are the objects that are here, each at its resident_index; no other object is dirty. */
static bool is_walk_valid(const walk *w)
{
    uint64_t bytes = 0, count = 0;
    for (uint32_t o = 0; o < w->request->object_count; o++) {
        const object_state *object = &w->objects[o];
        if (is_here(w, o) ? w->residents[object->resident_index] != o : object->is_dirty)
            return false;
        bytes += is_here(w, o) ? w->request->object_bytes[o] : 0;
        count += is_here(w, o);
    }
    return count == w->resident_count && bytes == w->resident_bytes;
}
#endif

/* ---- beginning and ending visits ---- */

static void add_resident(walk *w, uint32_t o, uint32_t visit)
{
    object_state *object = &w->objects[o];
    assert(!is_here(w, o)); /* HOME -> CLEAN */
    object->visit = visit;
    object->is_dirty = false;
    object->is_written = false;
    object->resident_index = w->resident_count;
    w->residents[w->resident_count++] = o;
    w->resident_bytes += w->request->object_bytes[o];
}

static void begin_visit(walk *w, uint32_t o, uint32_t tick, bool is_fetched)
{
    add_resident(w, o, sl_visit_list_add(&w->list, o, tick, is_fetched));
    w->objects[o].last_use_tick = tick;
    w->objects[o].is_used = false;
}

/* The tick after which an object that leaves before `now` is written back. In a loop, content from
 * before the repetition is written back in each repetition. Content that was written in a loop goes
 * behind that loop, so once; an object that leaves before that, in the loop. */
static uint32_t find_write_back_tick(const walk *w, const object_state *object, uint32_t now)
{
    const sl_residency_loop *loops = w->request->loops;
    uint32_t tick = object->last_write_tick;
    if (w->uses.loop)
        return object->is_written ? tick : w->uses.loop->first_tick;
    while (w->uses.loop_of_tick[tick] != SL_NO_LOOP) {
        tick = loops[w->uses.loop_of_tick[tick]].end_tick;
        if (tick >= now)
            return object->last_write_tick;
    }
    return tick;
}

static void write_back(walk *w, uint32_t o, uint32_t now)
{
    object_state *object = &w->objects[o];
    assert(object->is_dirty && (is_here(w, o) || w->list.status != SL_OK)); /* DIRTY -> CLEAN */
    const uint32_t tick = find_write_back_tick(w, object, now);
    sl_visit_list_add_write_back(&w->list, object->visit, tick);
    if (w->uses.loop && !object->is_written)
        w->seam[o] |= SEAM_OLD_WRITTEN;
    object->is_dirty = false;
    object->last_use_tick = tick > object->last_use_tick ? tick : object->last_use_tick;
}

static object_state *add_member(walk *w, const sl_residency_loop *loop, uint32_t o)
{
    object_state *object = &w->objects[o];
    if (object->cursor.loop != loop) {
        object->cursor.loop = loop;
        object->cursor.loop_first = object->cursor.number;
        object->cursor.loop_use_count = 0;
        object->entry_visit = object->visit;
        w->seam[o] = 0;
        w->members[w->member_count++] = o;
    }
    return object;
}

/* The object is not here from `now` on; its visit ends with its last use. An object without a use
 * in the loop that is walked becomes a member of the loop when it leaves. */
static void end_visit(walk *w, uint32_t o, uint32_t now)
{
    object_state *object = &w->objects[o];
    if (w->uses.loop && object->cursor.loop != w->uses.loop) {
        add_member(w, w->uses.loop, o);
        w->entry.objects[w->member_count - 1] = *object;
        w->is_seam_wrong = true;
    }
    if (object->is_dirty && is_content_live(w, o))
        write_back(w, o, now);
    if (object->visit != SL_NO_VISIT) {
        sl_visit *visit = &w->list.residency.visits[object->visit];
        visit->last_tick = object->last_use_tick;
        object->left_unused = object->left_unused || (visit->is_carried && !object->is_used);
    }
    bool is_of_seam = w->uses.loop && w->seam[o] & SEAM_HAS && object->visit == object->entry_visit;
    if (is_of_seam && object->cursor.number == object->cursor.loop_first) {
        w->seam[o] = 0;
        w->is_seam_wrong = true;
    }
    sl_victims_remove(&w->victims, o);
    uint32_t last = w->residents[--w->resident_count];
    w->residents[object->resident_index] = last;
    w->objects[last].resident_index = object->resident_index;
    w->resident_bytes -= w->request->object_bytes[o];
    object->last_visit = object->visit;
    object->free_tick = object->last_use_tick + 1;
    object->visit = SL_NO_VISIT;
    object->is_dirty = false; /* HOME: written back, or written whole before the next read */
}

/* ---- choosing a victim ---- */

/* Whether the object, if it left now, would have to be written back inside the loop that has just
 * ended, so in each repetition. */
static bool is_stranded(const walk *w, uint32_t o)
{
    const object_state *object = &w->objects[o];
    return object->is_dirty && is_content_live(w, o) &&
           w->uses.loop_of_tick[find_write_back_tick(w, object, w->behind_tick)] != SL_NO_LOOP;
}

/* Puts a resident into the victims, or updates its class and next use there. */
static void rank_resident(walk *w, uint32_t o)
{
    const object_state *object = &w->objects[o];
    uint64_t need = find_need(w, o);
    uint32_t victim_class = SL_VICTIM_FREE;
    if (need != SL_NEVER) {
        bool is_dearer = object->is_dirty && !sl_uses_must_reach_home(&w->uses, o, &object->cursor);
        bool repeats = sl_uses_repeats(&w->uses, &object->cursor);
        victim_class = repeats ? (is_dearer ? SL_VICTIM_LOOP_DIRTY : SL_VICTIM_LOOP_CLEAN)
                               : (is_dearer ? SL_VICTIM_DIRTY : SL_VICTIM_CLEAN);
    }
    sl_victims_put(&w->victims, o, victim_class, need);
}

/* Updates the members' classes: they change at a loop's edges and behind the tick after it. */
static void rank_members(walk *w, bool is_behind)
{
    for (uint32_t m = 0; m < w->member_count; m++) {
        uint32_t o = w->members[m];
        if (!is_here(w, o) || w->is_needed[o])
            sl_victims_remove(&w->victims, o);
        else if (is_behind && is_stranded(w, o))
            sl_victims_put(&w->victims, o, SL_VICTIM_STRANDED, 0);
        else
            rank_resident(w, o);
    }
    w->is_ranking_old = false;
}

/* The resident to evict at `tick`; SL_NO_VISIT if all are needed at that tick. */
static uint32_t choose_victim(walk *w, uint32_t tick)
{
    if (w->is_ranking_old)
        rank_members(w, !w->uses.loop && tick == w->behind_tick);
    return sl_victims_choose(&w->victims, w->weighting, tick,
                             sl_uses_find_distance_behind(&w->uses));
}

/* Evicts objects until at most `room` bytes are here at `tick`, or all objects here are needed. */
static void make_room(walk *w, uint32_t tick, uint64_t room)
{
    while (w->resident_bytes > room) {
        uint32_t victim = choose_victim(w, tick);
        if (victim == SL_NO_VISIT)
            return;
        w->has_victim = true;
        end_visit(w, victim, tick);
    }
}

/* ---- walking ticks ---- */

static void use_away(walk *w, const sl_residency_use *use)
{
    object_state *object = &w->objects[use->object];
    assert(is_here(w, use->object)); /* CLEAN or DIRTY; after a write DIRTY */
    object->cursor.number++;
    object->is_used = true;
    object->last_use_tick = use->tick;
    if (use->writes) {
        object->is_dirty = true;
        object->is_written = true;
        object->last_write_tick = use->tick;
    }
    if (find_need(w, use->object) == SL_NEVER)
        end_visit(w, use->object, use->tick + 1);
    else
        rank_resident(w, use->object);
}

static void use_at_home(walk *w, const sl_residency_use *use)
{
    if (is_here(w, use->object))
        end_visit(w, use->object, use->tick);
    w->objects[use->object].cursor.number++;
}

static void walk_tick(walk *w, uint32_t tick)
{
    const sl_residency_use *uses = w->request->uses;
    uint32_t first = w->uses.tick_uses[tick], last = w->uses.tick_uses[tick + 1];
    uint64_t incoming = 0, room = w->request->room_bytes[tick];
    for (uint32_t u = first; u < last; u++) {
        if (!uses[u].is_away)
            use_at_home(w, &uses[u]);
        else if (!is_here(w, uses[u].object))
            incoming += w->request->object_bytes[uses[u].object];
        w->is_needed[uses[u].object] = uses[u].is_away;
        sl_victims_remove(&w->victims, uses[u].object);
    }
    make_room(w, tick, room > incoming ? room - incoming : 0);
    for (uint32_t u = first; u < last; u++)
        if (uses[u].is_away && !is_here(w, uses[u].object))
            begin_visit(w, uses[u].object, tick, uses[u].reads);
    assert(w->resident_bytes <= room || w->list.status != SL_OK);
    w->tick_bytes = w->resident_bytes;
    for (uint32_t u = first; u < last; u++) {
        if (uses[u].is_away && w->list.status == SL_OK)
            use_away(w, &uses[u]);
        w->is_needed[uses[u].object] = false;
    }
}

static void walk_ticks(walk *w, const sl_residency_loop *ticks)
{
    for (uint32_t tick = ticks->first_tick; tick < ticks->end_tick && w->list.status == SL_OK;
         tick++)
        walk_tick(w, tick);
}

/* ---- the entry of a loop ---- */

/* Finds the members of the loop and saves the state at its entry. */
static void open_loop(walk *w, const sl_residency_loop *loop)
{
    const sl_residency_request *request = w->request;
    if (w->is_ranking_old)
        rank_members(w, false);
    w->member_count = 0;
    for (uint32_t u = w->uses.tick_uses[loop->first_tick]; u < w->uses.tick_uses[loop->end_tick];
         u++)
        add_member(w, loop, request->uses[u].object)->cursor.loop_use_count++;
    entry_state *entry = &w->entry;
    for (uint32_t m = 0; m < w->member_count; m++)
        entry->objects[m] = w->objects[w->members[m]];
    memcpy(entry->residents, w->residents, w->resident_count * sizeof *w->residents);
    entry->resident_count = w->resident_count;
    entry->resident_bytes = w->resident_bytes;
    entry->tick_bytes = w->tick_bytes;
    entry->visits = sl_visit_list_mark(&w->list);
}

/* Restores the state at the entry. Visits that were open there get a new last_tick when closed. */
static void reopen_loop(walk *w)
{
    const entry_state *entry = &w->entry;
    for (uint32_t m = 0; m < w->member_count; m++) {
        const object_state *object = &entry->objects[m];
        w->objects[w->members[m]] = *object;
        if (object->visit == SL_NO_VISIT && object->last_visit != SL_NO_VISIT)
            w->list.residency.visits[object->last_visit].last_tick = object->free_tick - 1;
    }
    uint64_t list_bytes = entry->resident_count * sizeof *w->residents;
    if (w->resident_count != entry->resident_count ||
        memcmp(w->residents, entry->residents, list_bytes) != 0) {
        memcpy(w->residents, entry->residents, list_bytes);
        w->resident_count = entry->resident_count;
        for (uint32_t r = 0; r < w->resident_count; r++)
            w->objects[w->residents[r]].resident_index = r;
    }
    w->resident_bytes = entry->resident_bytes;
    w->tick_bytes = entry->tick_bytes;
    sl_visit_list_rewind(&w->list, &entry->visits);
    w->uses.loop = NULL;
    w->is_ranking_old = true;
}

/* Bytes that may be here at the seam: they must fit the loop's first tick and its last one. */
static uint64_t find_seam_room(const walk *w, const sl_residency_loop *loop)
{
    uint64_t first = w->request->room_bytes[loop->first_tick];
    uint64_t last = w->request->room_bytes[loop->end_tick - 1];
    return first < last ? first : last;
}

/* The first guess: the members that are here at the entry, or after `laps` repetitions. */
static void guess_seam(walk *w, const sl_residency_loop *loop, int laps)
{
    w->uses.loop = loop;
    w->is_ranking_old = true;
    for (int lap = 0; lap < laps && w->list.status == SL_OK; lap++) {
        for (uint32_t m = 0; m < w->member_count; m++)
            w->objects[w->members[m]].cursor.number = w->objects[w->members[m]].cursor.loop_first;
        w->is_ranking_old = true;
        walk_ticks(w, loop);
    }
    uint64_t room = find_seam_room(w, loop);
    for (uint32_t r = w->resident_count; r-- > 0 && w->resident_bytes > room;)
        if (w->request->object_bytes[w->residents[r]] > room)
            end_visit(w, w->residents[r], loop->first_tick);
    make_room(w, loop->first_tick, room);
    for (uint32_t m = 0; m < w->member_count; m++)
        w->seam[w->members[m]] = is_here(w, w->members[m]) ? SEAM_HAS : 0;
    reopen_loop(w);
}

/* Ends the visits of members that are not in the seam. Subtracts from `held_bytes` the bytes of
 * those whose visit ends before the tick in front of `tick`. */
static void drop_outsiders(walk *w, uint32_t tick, uint64_t *held_bytes)
{
    for (uint32_t m = 0; m < w->member_count; m++) {
        uint32_t o = w->members[m], visit = w->objects[o].visit;
        if (w->seam[o] & SEAM_HAS || visit == SL_NO_VISIT)
            continue;
        end_visit(w, o, tick);
        if ((uint64_t)w->list.residency.visits[visit].last_tick + 1 < tick)
            *held_bytes -= w->request->object_bytes[o];
    }
}

/* Begins a visit of an object of the seam at the tick before the loop; false if it cannot. If the
 * last visit ends at that tick and the loop writes the object whole first, that visit goes on. */
static bool bring_before(walk *w, const sl_residency_loop *loop, uint32_t o, uint64_t *held_bytes)
{
    object_state *object = &w->objects[o];
    uint64_t bytes = w->request->object_bytes[o];
    uint32_t tick = loop->first_tick - 1, number = object->cursor.number;
    const sl_residency_use *use = sl_uses_get(&w->uses, o, number);
    if (loop->first_tick == 0 || w->uses.loop_of_tick[tick] != SL_NO_LOOP || !use->is_away ||
        w->resident_bytes + bytes > find_seam_room(w, loop))
        return false;
    if (!use->reads && object->last_visit != SL_NO_VISIT && object->free_tick == loop->first_tick) {
        add_resident(w, o, object->last_visit);
        return true;
    }
    bool was_used = number > 0 && sl_uses_get(&w->uses, o, number - 1)->tick >= tick;
    if (was_used || object->free_tick > tick)
        return false;
    if (*held_bytes + bytes > w->request->room_bytes[tick])
        return false;
    begin_visit(w, o, tick, use->reads);
    if (w->list.status == SL_OK)
        w->list.residency.visits[w->objects[o].visit].first_use = use->tick;
    *held_bytes += bytes;
    return true;
}

/* Makes the state at the entry that of the guess: members outside the guess leave, missing members
 * are brought, and members are as dirty as after a repetition. */
static void enter_loop(walk *w, const sl_residency_loop *loop)
{
    uint64_t held_bytes = w->tick_bytes;
    drop_outsiders(w, loop->first_tick, &held_bytes);
    for (uint32_t m = 0; m < w->member_count && w->list.status == SL_OK; m++) {
        uint32_t o = w->members[m];
        object_state *object = &w->objects[o];
        if (w->seam[o] & SEAM_HAS && !is_here(w, o) && !bring_before(w, loop, o, &held_bytes))
            w->seam[o] = 0;
        if (w->seam[o] & SEAM_CLEANED && object->is_dirty)
            write_back(w, o, loop->first_tick);
        if (w->seam[o] & SEAM_DIRTY)
            object->is_dirty = true;
        object->is_written = false;
        object->entry_visit = object->visit;
    }
    w->uses.loop = loop;
    w->is_ranking_old = true;
    w->is_seam_wrong = false;
}

/* ---- the end of a loop ---- */

/* The new seam flags of a member that is here after a repetition. If it is dirty only from before
 * the loop, one write-back in front of the loop is better than one in each repetition. */
static uint8_t correct_dirt(const walk *w, uint32_t m)
{
    uint32_t o = w->members[m];
    uint8_t seam = w->seam[o];
    const object_state *before = &w->entry.objects[m];
    bool was_dirty = before->visit != SL_NO_VISIT && before->is_dirty;
    bool came_dirty = seam & SEAM_DIRTY || (was_dirty && !(seam & SEAM_CLEANED));
    bool is_dirty = w->objects[o].is_dirty;
    if (is_dirty && !came_dirty)
        return SEAM_HAS | SEAM_DIRTY;
    if (!is_dirty && came_dirty && !(seam & SEAM_DIRTY) && seam & SEAM_OLD_WRITTEN)
        return SEAM_HAS | SEAM_CLEANED;
    return seam & (uint8_t)~SEAM_OLD_WRITTEN;
}

/* Removes members that are not here after the repetition; true if the guess was right. */
static bool shrink_seam(walk *w)
{
    bool held = !w->is_seam_wrong;
    for (uint32_t m = 0; m < w->member_count; m++) {
        uint32_t o = w->members[m];
        if (!(w->seam[o] & SEAM_HAS))
            continue;
        uint8_t seam = is_here(w, o) ? correct_dirt(w, m) : 0;
        held = held && seam == (w->seam[o] & (uint8_t)~SEAM_OLD_WRITTEN);
        w->seam[o] = seam;
    }
    return held;
}

/* Keeps the objects of the seam that are used in the loop here until its end. A visit without a use
 * in the loop is not extended: when it is closed, it may end before the loop. */
static void close_loop(walk *w, const sl_residency_loop *loop)
{
    uint64_t ignored = w->tick_bytes;
    drop_outsiders(w, loop->end_tick, &ignored);
    for (uint32_t m = 0; m < w->member_count && w->list.status == SL_OK; m++) {
        object_state *object = &w->objects[w->members[m]];
        if (!(w->seam[w->members[m]] & SEAM_HAS) || !object->cursor.loop_use_count)
            continue;
        object->last_use_tick = loop->end_tick - 1;
        if (object->visit != object->entry_visit)
            sl_visit_list_add_pair(&w->list, object->entry_visit, object->visit);
    }
    w->uses.loop = NULL;
    w->is_ranking_old = true;
    w->behind_tick = loop->end_tick;
    assert(w->list.status != SL_OK || is_walk_valid(w));
}

/* Walks a loop until the guess of its seam is right. The visits are those of one repetition. */
static void walk_loop(walk *w, uint32_t index)
{
    const sl_residency_loop *loop = &w->request->loops[index];
    open_loop(w, loop);
    guess_seam(w, loop, w->laps - 1);
    while (w->list.status == SL_OK) {
        enter_loop(w, loop);
        walk_ticks(w, loop);
        if (w->list.status != SL_OK || shrink_seam(w))
            break;
        reopen_loop(w);
    }
    if (w->list.status == SL_OK)
        close_loop(w, loop);
}

/* ---- one walk over the body ---- */

static void begin_body(walk *w)
{
    sl_visit_list_clear(&w->list);
    w->resident_count = 0;
    w->resident_bytes = 0;
    w->uses.loop = NULL;
    w->is_ranking_old = true;
    w->behind_tick = UINT32_MAX;
    w->member_count = 0;
    sl_victims_clear(&w->victims);
    for (uint32_t o = 0; o < w->request->object_count; o++) {
        object_state *object = &w->objects[o];
        object->cursor.number = 0;
        object->visit = SL_NO_VISIT;
        object->is_dirty = false;
        object->left_unused = false;
        object->last_visit = SL_NO_VISIT;
        object->free_tick = 0;
        object->cursor.loop = NULL;
    }
    for (uint32_t o = 0; o < w->request->object_count && w->list.status == SL_OK; o++) {
        if (!w->is_carried_in[o])
            continue;
        begin_visit(w, o, 0, false);
        w->objects[o].carried_visit = w->objects[o].visit;
        if (w->list.status == SL_OK)
            w->list.residency.visits[w->objects[o].visit].is_carried = true;
        rank_resident(w, o);
    }
}

/* Ends the visits of objects that are needed in a loop's repetitions but not behind it. This is
 * done one tick behind the loop, so that they can be written back there. */
static void drop_idle(walk *w, uint32_t now)
{
    rank_members(w, false);
    for (uint32_t o; (o = sl_victims_top(&w->victims, SL_VICTIM_FREE)) != UINT32_MAX;)
        end_visit(w, o, now);
}

/* Walks the body once from the guess; leaves visits and write-backs in w->list.residency. */
static void walk_body(walk *w)
{
    begin_body(w);
    for (uint32_t tick = 0; tick < w->request->tick_count && w->list.status == SL_OK;) {
        uint32_t loop = w->uses.loop_of_tick[tick];
        if (loop != SL_NO_LOOP) {
            walk_loop(w, loop);
            tick = w->request->loops[loop].end_tick;
            continue;
        }
        walk_tick(w, tick);
        if (tick == w->behind_tick)
            drop_idle(w, tick + 1);
        tick++;
    }
    if (w->list.status == SL_OK && w->behind_tick == w->request->tick_count)
        drop_idle(w, w->request->tick_count);
    assert(w->list.status != SL_OK || is_walk_valid(w));
}

/* ---- the end of the body ---- */

/* Removes objects that are not here after the last walk or left unused; true if none was. */
static bool shrink_guess(walk *w)
{
    bool held = true;
    for (uint32_t o = 0; o < w->request->object_count; o++) {
        if (w->is_carried_in[o] && (!is_here(w, o) || w->objects[o].left_unused)) {
            w->is_carried_in[o] = false;
            held = false;
        }
    }
    return held;
}

/* Makes the objects that are here after the last walk the next guess, as far as they fit. */
static void take_guess(walk *w)
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

/* Joins each carried object's visit at the start of the body to its visit at the end, whose index
 * it writes to moved_to. Closes the other visits. */
static void join_carried(walk *w, uint32_t *moved_to)
{
    uint32_t tick_count = w->request->tick_count;
    while (w->resident_count) {
        uint32_t o = w->residents[w->resident_count - 1];
        uint32_t visit = w->objects[o].visit, carried = w->objects[o].carried_visit;
        end_visit(w, o, tick_count);
        if (!w->is_carried_in[o])
            continue;
        sl_visit *tail = &w->list.residency.visits[visit];
        tail->last_tick = tick_count - 1;
        if (tail->is_carried)
            continue; /* one visit of the whole body */
        sl_visit *head = &w->list.residency.visits[carried];
        tail->is_carried = true;
        tail->last_tick = head->last_tick;
        head->object = SL_NO_VISIT; /* now part of the tail */
        moved_to[carried] = visit;
    }
}

static sl_status close_body(walk *w)
{
    uint32_t *moved_to = calloc((uint64_t)w->list.residency.visit_count + 1, sizeof *moved_to);
    if (!moved_to)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u visits", w->list.residency.visit_count);
    join_carried(w, moved_to);
    if (w->list.status == SL_OK)
        sl_visit_list_compact(&w->list, moved_to);
    free(moved_to);
    return w->list.status;
}

/* ---- choosing among walks ---- */

/* Walks until the guess of the carried objects is right; leaves the visits in w->list.residency.
 * `laps` walks find the first guess, each starting from the set that the one before left. */
static sl_status walk_until_carried_stands(walk *w, sl_weighting choice, int laps)
{
    w->weighting = choice;
    w->laps = laps;
    memset(w->is_carried_in, 0, w->request->object_count * sizeof *w->is_carried_in);
    for (int lap = 0; lap < laps && w->list.status == SL_OK; lap++) {
        walk_body(w);
        take_guess(w);
    }
    do {
        walk_body(w);
    } while (w->list.status == SL_OK && !shrink_guess(w));
    if (w->list.status != SL_OK)
        return w->list.status;
    return close_body(w);
}

sl_status sl_residency_plan(const sl_residency_request *request, sl_residency *out_residency,
                            uint32_t *out_tick, uint64_t *out_missing_bytes)
{
    walk w;
    SL_TRY(open_walk(request, &w));
    sl_residency best = {0};
    sl_status status = sl_uses_check_room(&w.uses, out_tick, out_missing_bytes);
    for (int choice = 0; status == SL_OK && choice < MOST_LAPS * SL_WEIGHTING_COUNT; choice++) {
        if (choice == MOST_LAPS && !w.has_victim)
            break; /* no walk evicts, so other weightings would repeat the same walks */
        status = walk_until_carried_stands(&w, (sl_weighting)(choice / MOST_LAPS),
                                           choice % MOST_LAPS + 1);
        bool is_better = choice == 0 || w.list.residency.weighed_bytes < best.weighed_bytes;
        if (status == SL_OK && is_better) {
            sl_residency_clear(&best);
            best = w.list.residency;
            w.list.residency = (sl_residency){0};
        }
    }
    sl_residency_clear(&w.list.residency);
    close_walk(&w);
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
    free(residency->pairs);
    *residency = (sl_residency){0};
}
