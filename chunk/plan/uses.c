/* The uses of a tier's objects, listed from the program. Questions about an object's future are
 * answered from the next uses in that list, and from the uses in the loop that is walked.
 *
 * The uses on the device are the operands of ops. The uses on the host are the operands of ops that
 * run there and, for objects that live on disk, the moves of the device: a fetch reads the host's
 * copy before the op of its tick, a write-back writes the copy whole after the op. So the device
 * must be planned before the host.
 */
#include "uses.h"

#include <stdlib.h>

#include "planner.h"

/* ---- listing the uses of a tier ---- */

static void add_use(sl_tier_state *state, sl_residency_use use)
{
    state->uses[state->use_count++] = use;
}

/* Adds a use for operand i of op `tick`, if it is an object that `tier` holds only in visits. */
static void add_operand(sl_planner *planner, sl_tier tier, uint32_t tick, uint32_t i)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[i];
    sl_object object = v == SL_NONE ? SL_NO_OBJECT : sl_planner_object_of(planner, v);
    if (object.index == SL_NONE || sl_planner_home_of(planner, object) == tier ||
        planner->program->values[v].instances > 1) /* families pass through rings */
        return;
    bool is_away = sl_planner_tier_of_op(planner, tick) == tier;
    bool passes = tier == SL_TIER_HOST && sl_planner_home_of(planner, object) == SL_TIER_DISK;
    if (passes && !is_away)
        return; /* the device's moves are listed in place of its ops */
    const sl_value_kind kind = planner->program->values[v].kind;
    bool is_part = kind == SL_VALUE_TENSOR || kind == SL_VALUE_PART;
    add_use(&planner->tier[tier], (sl_residency_use){.tick = tick,
                                                     .object = object.index,
                                                     .is_away = is_away,
                                                     .reads = is_part || sl_op_reads(op, i),
                                                     .writes = sl_op_writes(op, i)});
}

static void add_device_moves(sl_planner *planner)
{
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    sl_tier_state *host = &planner->tier[SL_TIER_HOST];
    for (uint32_t v = 0; v < device->visit_count; v++) {
        const sl_visit *visit = &device->visits[v];
        sl_object object = sl_planner_object_of_visit(visit);
        if (visit->is_fetched && sl_planner_home_of(planner, object) == SL_TIER_DISK)
            add_use(host, (sl_residency_use){.tick = visit->first_tick,
                                             .object = object.index,
                                             .is_away = true,
                                             .reads = true});
    }
    for (uint32_t b = 0; b < device->write_back_count; b++) {
        const sl_visit *visit = &device->visits[device->write_backs[b].visit];
        sl_object object = sl_planner_object_of_visit(visit);
        if (sl_planner_home_of(planner, object) == SL_TIER_DISK)
            add_use(host, (sl_residency_use){.tick = device->write_backs[b].after_tick,
                                             .object = object.index,
                                             .is_away = true,
                                             .writes = true});
    }
}

static int compare_uses(const void *left, const void *right)
{
    const sl_residency_use *a = left, *b = right;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    return (a->object > b->object) - (a->object < b->object);
}

/* Leaves one use for each object and tick. If an object is fetched and written back at one tick,
 * the use reads first and then writes. */
static void merge_uses(sl_tier_state *state)
{
    uint32_t kept = 0;
    qsort(state->uses, state->use_count, sizeof *state->uses, compare_uses);
    for (uint32_t u = 0; u < state->use_count; u++) {
        const sl_residency_use *use = &state->uses[u];
        sl_residency_use *last = kept ? &state->uses[kept - 1] : NULL;
        if (last && last->tick == use->tick && last->object == use->object) {
            last->reads |= use->reads;
            last->writes |= use->writes;
        } else {
            state->uses[kept++] = *use;
        }
    }
    state->use_count = kept;
}

sl_status sl_uses_find(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    uint64_t capacity = (uint64_t)planner->program->op_count * SL_OPERAND_MAX + 1;
    if (tier == SL_TIER_HOST)
        capacity += (uint64_t)device->visit_count + device->write_back_count;
    free(state->uses);
    state->use_count = 0;
    state->uses = calloc(capacity, sizeof *state->uses);
    if (!state->uses)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ops", planner->program->op_count);
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            add_operand(planner, tier, tick, i);
    if (tier == SL_TIER_HOST)
        add_device_moves(planner);
    merge_uses(state);
    return SL_OK;
}

/* ---- uses by object ---- */

const sl_residency_use *sl_uses_get(const sl_uses *index, uint32_t object, uint32_t number)
{
    return &index->request->uses[index->order[index->first_use[object] + number]];
}

uint32_t sl_uses_count(const sl_uses *index, uint32_t object)
{
    return index->first_use[object + 1] - index->first_use[object];
}

static void sort_by_object(sl_uses *index)
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

static void find_decisive(sl_uses *index, uint32_t object)
{
    const sl_residency_request *request = index->request;
    uint32_t use_count = sl_uses_count(index, object), decisive = use_count;
    for (uint32_t number = use_count; number-- > 0;) {
        const sl_residency_use *use = sl_uses_get(index, object, number);
        if (!use->is_away || use->writes)
            decisive = number;
        index->decisive[index->first_use[object] + number] = decisive;
    }
    const sl_residency_use *first = use_count ? sl_uses_get(index, object, 0) : NULL;
    bool outlives = request->outlives && request->outlives[object];
    index->is_transient[object] = first && first->writes && !first->reads && !outlives;
}

static void index_ticks(sl_uses *index)
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

void sl_uses_close(sl_uses *index)
{
    free(index->first_use);
    free(index->order);
    free(index->decisive);
    free(index->is_transient);
    free(index->tick_uses);
    free(index->loop_of_tick);
    *index = (sl_uses){0};
}

sl_status sl_uses_open(const sl_residency_request *request, sl_uses *out_index)
{
    if (!are_loops_valid(request))
        SL_FAIL(SL_ERROR_INTERNAL, "the loops of a step are empty or out of order");
    uint64_t objects = (uint64_t)request->object_count + 1;
    uint64_t uses = (uint64_t)request->use_count + 1, ticks = (uint64_t)request->tick_count + 1;
    sl_uses index = {.request = request};
    index.first_use = calloc(objects, sizeof *index.first_use);
    index.order = calloc(uses, sizeof *index.order);
    index.decisive = calloc(uses, sizeof *index.decisive);
    index.is_transient = calloc(objects, sizeof *index.is_transient);
    index.tick_uses = calloc(ticks, sizeof *index.tick_uses);
    index.loop_of_tick = calloc(ticks, sizeof *index.loop_of_tick);
    if (!index.first_use || !index.order || !index.decisive || !index.is_transient ||
        !index.tick_uses || !index.loop_of_tick) {
        sl_uses_close(&index);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u uses", request->use_count);
    }
    sort_by_object(&index);
    for (uint32_t o = 0; o < request->object_count; o++)
        find_decisive(&index, o);
    index_ticks(&index);
    *out_index = index;
    return SL_OK;
}

sl_status sl_uses_check_room(const sl_uses *index, uint32_t *out_tick, uint64_t *out_missing)
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

/* ---- the future of an object ---- */

bool sl_uses_repeats(const sl_uses *index, const sl_use_cursor *cursor)
{
    return index->loop && cursor->loop == index->loop && cursor->loop_use_count;
}

static uint32_t loop_uses_end(const sl_use_cursor *cursor)
{
    return cursor->loop_first + cursor->loop_use_count;
}

/* The next use of the content, in the body or the next iteration, as if there were no loops. */
static uint64_t find_linear_need(const sl_uses *index, uint32_t object, uint32_t number)
{
    uint64_t base = 0;
    if (number == sl_uses_count(index, object)) {
        if (index->is_transient[object] || number == 0)
            return SL_NEVER;
        number = 0;
        base = index->request->tick_count;
    }
    const sl_residency_use *use = sl_uses_get(index, object, number);
    return use->is_away && use->reads ? base + use->tick : SL_NEVER;
}

uint64_t sl_uses_find_distance_behind(const sl_uses *index)
{
    if (!index->loop)
        return 0;
    uint64_t length = index->loop->end_tick - index->loop->first_tick;
    return SL_RESIDENCY_REPETITIONS * length;
}

uint64_t sl_uses_find_need(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor)
{
    uint64_t linear = find_linear_need(index, object, cursor->number);
    if (!sl_uses_repeats(index, cursor) || cursor->number < loop_uses_end(cursor))
        return linear;
    const sl_residency_use *again = sl_uses_get(index, object, cursor->loop_first);
    if (again->is_away && again->reads)
        return (uint64_t)again->tick + index->loop->end_tick - index->loop->first_tick;
    return linear == SL_NEVER ? SL_NEVER : linear + sl_uses_find_distance_behind(index);
}

static uint32_t get_decisive(const sl_uses *index, uint32_t object, uint32_t number)
{
    if (number == sl_uses_count(index, object))
        return number;
    return index->decisive[index->first_use[object] + number];
}

bool sl_uses_must_reach_home(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor)
{
    uint32_t number = get_decisive(index, object, cursor->number);
    if (sl_uses_repeats(index, cursor) && number >= loop_uses_end(cursor)) {
        uint32_t again = get_decisive(index, object, cursor->loop_first);
        number = again < loop_uses_end(cursor) ? again : number;
    }
    if (number == sl_uses_count(index, object))
        return !index->is_transient[object];
    const sl_residency_use *use = sl_uses_get(index, object, number);
    return !use->is_away && use->reads;
}

bool sl_uses_is_live(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor)
{
    bool is_at_end = sl_uses_repeats(index, cursor) && cursor->number == loop_uses_end(cursor);
    if (is_at_end && sl_uses_get(index, object, cursor->loop_first)->reads)
        return true;
    if (cursor->number < sl_uses_count(index, object))
        return sl_uses_get(index, object, cursor->number)->reads;
    return !index->is_transient[object];
}
