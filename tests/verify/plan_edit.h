/* Edits of plans, for tests: copies of a plan that can be changed, what its commands touch, and
 * which command happens before which. Written without the verifier, as its opponent. */
#ifndef SL_TESTS_PLAN_EDIT_H
#define SL_TESTS_PLAN_EDIT_H

#include <stdlib.h>
#include <string.h>

#include "chunk/plan.h"

enum { EDIT_ROOM = 4, TOUCH_MAX = SL_OPERAND_MAX + 1 };

/* ---- copies ---- */

static inline void *edit_duplicate(const void *array, size_t count, size_t bytes)
{
    void *copy = calloc(count + EDIT_ROOM, bytes);
    if (!copy)
        abort();
    if (count > 0)
        memcpy(copy, array, count * bytes);
    return copy;
}

/* A copy with room for EDIT_ROOM more of everything; close with edit_close. */
static inline sl_plan edit_copy(const sl_plan *plan)
{
    sl_plan copy = *plan;
    copy.prologue = edit_duplicate(plan->prologue, plan->prologue_count, sizeof *plan->prologue);
    copy.body = edit_duplicate(plan->body, plan->body_count, sizeof *plan->body);
    copy.sections = edit_duplicate(plan->sections, plan->section_count, sizeof *plan->sections);
    copy.places = edit_duplicate(plan->places, plan->place_count, sizeof *plan->places);
    copy.waits = edit_duplicate(plan->waits, plan->wait_count, sizeof *plan->waits);
    copy.allocations =
        edit_duplicate(plan->allocations, plan->allocation_count, sizeof *plan->allocations);
    return copy;
}

static inline void edit_close(sl_plan *plan)
{
    free(plan->prologue);
    free(plan->body);
    free(plan->sections);
    free(plan->places);
    free(plan->waits);
    free(plan->allocations);
    *plan = (sl_plan){0};
}

/* ---- what commands touch ---- */

typedef struct touch {
    sl_place place;
    uint32_t object; /* a value, or value_count + group * chunk_count + chunk; SL_NONE: workspace */
    bool reads, writes;
} touch;

static inline uint32_t touch_chunk(const sl_plan_request *request, sl_group group, uint32_t chunk)
{
    return request->program->value_count + (uint32_t)group * request->layout->chunk_count + chunk;
}

static inline uint32_t touch_object(const sl_plan_request *request, uint32_t value)
{
    const sl_value *it = &request->program->values[value];
    if (it->kind == SL_VALUE_CHUNK)
        return touch_chunk(request, it->group, it->index);
    if (it->kind == SL_VALUE_TENSOR)
        return touch_chunk(request, it->group, request->layout->chunk_of_tensor[it->index]);
    return value;
}

static inline uint32_t touch_copied(const sl_plan_request *request, const sl_command *command)
{
    return command->chunk_index == SL_NONE
               ? command->value
               : touch_chunk(request, command->group, command->chunk_index);
}

static inline uint32_t touch_list(const sl_plan_request *request, const sl_plan *plan,
                                  const sl_command *command, touch out_touches[TOUCH_MAX])
{
    uint32_t count = 0;
    if (command->kind == SL_COMMAND_COPY) {
        uint32_t object = touch_copied(request, command);
        out_touches[0] = (touch){command->from, object, true, false};
        out_touches[1] = (touch){command->to, object, false, true};
        return 2;
    }
    const sl_op *op = &request->program->ops[command->tick];
    for (uint32_t i = 0; i + 1 < command->place_count; i++)
        if (op->operand[i] != SL_NONE)
            out_touches[count++] = (touch){plan->places[command->first_place + i],
                                           touch_object(request, op->operand[i]),
                                           sl_op_reads(op, i), sl_op_writes(op, i)};
    sl_place workspace = plan->places[command->first_place + command->place_count - 1];
    if (workspace.bytes > 0)
        out_touches[count++] = (touch){workspace, SL_NONE, false, true};
    return count;
}

/* By all their bytes, whatever the repetition. */
static inline bool places_overlap(const sl_place *a, const sl_place *b)
{
    return a->tier == b->tier && a->offset < b->offset + sl_place_extent(b) &&
           b->offset < a->offset + sl_place_extent(a);
}

/* Do two commands touch the same bytes, and at least one of them writes? */
static inline bool touch_conflict(const sl_plan_request *request, const sl_plan *plan, uint32_t a,
                                  uint32_t b)
{
    touch left[TOUCH_MAX], right[TOUCH_MAX];
    uint32_t left_count = touch_list(request, plan, &plan->body[a], left);
    uint32_t right_count = touch_list(request, plan, &plan->body[b], right);
    for (uint32_t i = 0; i < left_count; i++)
        for (uint32_t j = 0; j < right_count; j++)
            if ((left[i].writes || right[j].writes) &&
                places_overlap(&left[i].place, &right[j].place))
                return true;
    return false;
}

/* Does body command `index` read, or write, a byte of `place`? */
static inline bool touch_place(const sl_plan_request *request, const sl_plan *plan, uint32_t index,
                               const sl_place *place, bool is_write)
{
    touch touches[TOUCH_MAX];
    uint32_t count = touch_list(request, plan, &plan->body[index], touches);
    for (uint32_t i = 0; i < count; i++)
        if ((is_write ? touches[i].writes : touches[i].reads) &&
            places_overlap(&touches[i].place, place))
            return true;
    return false;
}

/* Does a RUN write `object`, wherever? */
static inline bool touch_updates(const sl_plan_request *request, const sl_plan *plan,
                                 uint32_t index, uint32_t object)
{
    touch touches[TOUCH_MAX];
    uint32_t count = touch_list(request, plan, &plan->body[index], touches);
    if (plan->body[index].kind != SL_COMMAND_RUN)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (touches[i].writes && touches[i].object == object)
            return true;
    return false;
}

/* The first command after `index`, round the loop, that reads what `index` copied; SL_NONE if it is
 * overwritten first. *out_wraps: it is of the next iteration. */
static inline uint32_t touch_consumer(const sl_plan_request *request, const sl_plan *plan,
                                      uint32_t index, bool *out_wraps)
{
    const sl_place *place = &plan->body[index].to;
    *out_wraps = false;
    for (uint32_t step = 1; step < plan->body_count; step++) {
        uint32_t next = (index + step) % plan->body_count;
        *out_wraps = next < index;
        if (touch_place(request, plan, next, place, false))
            return next;
        if (touch_place(request, plan, next, place, true))
            return SL_NONE;
    }
    return SL_NONE;
}

/* Would `reader`, the consumer of copy `index`, find something else without it in a later
 * iteration? A place that was partly overwritten may still hold what this reader wants. */
static inline bool touch_is_needed(const sl_plan_request *request, const sl_plan *plan,
                                   uint32_t index, uint32_t reader)
{
    touch touches[TOUCH_MAX];
    const sl_command *copy = &plan->body[index];
    uint32_t object = touch_copied(request, copy);
    uint32_t count = touch_list(request, plan, &plan->body[reader], touches), wanted = 0;
    while (wanted < count &&
           !(touches[wanted].reads && places_overlap(&touches[wanted].place, &copy->to)))
        wanted++;
    for (uint32_t step = 1; wanted < count && step < plan->body_count; step++) {
        uint32_t before = (index + plan->body_count - step) % plan->body_count;
        if (touch_updates(request, plan, before, object))
            return !touch_place(request, plan, before, &copy->to, true);
        if (!touch_place(request, plan, before, &touches[wanted].place, true))
            continue;
        const sl_command *other = &plan->body[before];
        return other->kind == SL_COMMAND_RUN || touch_copied(request, other) != object;
    }
    return false;
}

/* Does a RUN have two operands in the same bytes, one of them written? */
static inline bool touch_is_mixed(const sl_plan_request *request, const sl_plan *plan,
                                  uint32_t index)
{
    touch touches[TOUCH_MAX];
    uint32_t count = touch_list(request, plan, &plan->body[index], touches);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            if ((touches[i].writes || touches[j].writes) &&
                places_overlap(&touches[i].place, &touches[j].place))
                return true;
    return false;
}

/* ---- which command happens before which ---- */

static inline uint32_t lane_before(const sl_plan *plan, sl_lane lane, uint32_t index)
{
    for (uint32_t i = index; i > 0; i--)
        if (plan->body[i - 1].lane == lane)
            return i - 1;
    return SL_NONE;
}

/* How many iterations back a wait of the body's command `waiter` goes, in a plan of one section. */
static inline uint32_t wait_back(const sl_wait *wait, uint32_t waiter)
{
    return wait->age + (wait->command >= waiter);
}

/* The nodes of a walk back through two iterations; node = iteration * body_count + index. */
typedef struct order_walk {
    const sl_plan *plan;
    uint32_t *before; /* [body_count] the command before on the same lane, SL_NONE for the first */
    uint32_t last[SL_LANE_COUNT];
    uint32_t *stack, depth;
    uint8_t *is_seen; /* [2 * body_count] */
} order_walk;

static inline void order_visit(order_walk *walk, uint32_t iteration, uint32_t command,
                               uint32_t back)
{
    if (back > iteration)
        return;
    uint32_t node = (iteration - back) * walk->plan->body_count + command;
    if (!walk->is_seen[node])
        walk->stack[walk->depth++] = node;
    walk->is_seen[node] = 1;
}

static inline void order_open(order_walk *walk, const sl_plan *plan)
{
    size_t count = (size_t)plan->body_count + 1;
    *walk = (order_walk){.plan = plan};
    walk->before = calloc(count, sizeof *walk->before);
    walk->stack = calloc(2 * count, sizeof *walk->stack);
    walk->is_seen = calloc(2 * count, 1);
    if (!walk->before || !walk->stack || !walk->is_seen)
        abort();
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        walk->last[lane] = SL_NONE;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        walk->before[i] = walk->last[plan->body[i].lane];
        walk->last[plan->body[i].lane] = i;
    }
}

/* A wait that looks back within a repeated section means an issue of this iteration, which comes
 * after all that its lane was given before the section. */
static inline void order_visit_front(order_walk *walk, uint32_t iteration, uint32_t waiter,
                                     const sl_wait *wait)
{
    const sl_plan *plan = walk->plan;
    uint32_t s = 0;
    while (s < plan->section_count && waiter >= plan->sections[s].first + plan->sections[s].count)
        s++;
    if (s == plan->section_count)
        return; /* plans made by hand may have none */
    const sl_section *section = &plan->sections[s];
    uint32_t back = wait_back(wait, waiter);
    if (wait->command < section->first || wait->command >= section->first + section->count ||
        back == 0 || back >= section->repeat)
        return;
    for (uint32_t c = section->first; c-- > 0;)
        if (plan->body[c].lane == plan->body[wait->command].lane) {
            order_visit(walk, iteration, c, 0);
            return;
        }
}

static inline void order_expand(order_walk *walk, uint32_t node)
{
    const sl_plan *plan = walk->plan;
    uint32_t iteration = node / plan->body_count, index = node % plan->body_count;
    const sl_command *command = &plan->body[index];
    bool is_first = walk->before[index] == SL_NONE;
    order_visit(walk, iteration, is_first ? walk->last[command->lane] : walk->before[index],
                is_first);
    for (uint32_t i = 0; i < command->wait_count; i++) {
        const sl_wait *wait = &plan->waits[command->first_wait + i];
        order_visit(walk, iteration, wait->command, wait_back(wait, index));
        order_visit_front(walk, iteration, index, wait);
    }
}

/* Is `first` of one iteration ordered before `second` of the same (back 0) or the next one (1)? */
static inline bool is_ordered(const sl_plan *plan, uint32_t first, uint32_t second, uint32_t back)
{
    order_walk walk;
    order_open(&walk, plan);
    order_visit(&walk, back, second, 0);
    while (walk.depth > 0)
        order_expand(&walk, walk.stack[--walk.depth]);
    bool is_found = walk.is_seen[first] != 0;
    free(walk.is_seen);
    free(walk.stack);
    free(walk.before);
    return is_found;
}

/* Is some conflict between `index` and an earlier command, or one of the iteration before, left
 * without order? */
static inline bool has_race_at(const sl_plan_request *request, const sl_plan *plan, uint32_t index)
{
    for (uint32_t step = 1; step <= plan->body_count; step++) {
        uint32_t other = (index + plan->body_count - step) % plan->body_count;
        uint32_t back = other >= index ? 1 : 0;
        if (plan->body[other].lane != plan->body[index].lane &&
            touch_conflict(request, plan, other, index) && !is_ordered(plan, other, index, back))
            return true;
    }
    return false;
}

/* ---- changes ---- */

/* How often a body's command is issued in an iteration. */
static inline uint32_t edit_repeat_of(const sl_plan *plan, uint32_t index)
{
    for (uint32_t s = 0; s < plan->section_count; s++)
        if (index - plan->sections[s].first < plan->sections[s].count)
            return plan->sections[s].repeat;
    return 1;
}

/* Sums that follow from the commands, so that a change of commands is not found by them. */
static inline void edit_recount(sl_plan *plan)
{
    memset(plan->moved_bytes, 0, sizeof plan->moved_bytes);
    for (uint32_t i = 0; i < plan->body_count; i++)
        if (plan->body[i].kind == SL_COMMAND_COPY)
            plan->moved_bytes[plan->body[i].lane] +=
                edit_repeat_of(plan, i) * plan->body[i].from.bytes;
}

/* The section with command `index` has `change` more commands, those behind it start later. */
static inline void edit_resection(sl_plan *plan, uint32_t index, uint32_t change)
{
    for (uint32_t s = 0; s < plan->section_count; s++) {
        sl_section *it = &plan->sections[s];
        if (it->first > index)
            it->first += change;
        else if (index < it->first + it->count)
            it->count += change;
    }
}

/* Copies say which op is next. */
static inline void edit_retick(const sl_plan_request *request, sl_plan *plan)
{
    uint32_t tick = request->program->op_count;
    for (uint32_t i = plan->body_count; i > 0; i--) {
        sl_command *command = &plan->body[i - 1];
        if (command->kind == SL_COMMAND_RUN)
            tick = command->tick;
        else
            command->tick = tick;
    }
}

static inline void edit_drop_wait(sl_plan *plan, uint32_t index, uint32_t wait)
{
    sl_command *command = &plan->body[index];
    sl_wait *waits = plan->waits + command->first_wait;
    command->wait_count--;
    memmove(waits + wait, waits + wait + 1, (command->wait_count - wait) * sizeof *waits);
}

/* A wait that can no longer name its command names the one before on the same lane, or goes. */
static inline void edit_repair_wait(sl_plan *plan, uint32_t index, uint32_t wait, sl_lane lane,
                                    uint32_t back)
{
    sl_wait *it = &plan->waits[plan->body[index].first_wait + wait];
    uint32_t limit = back == 0 && index < it->command ? index : it->command;
    it->command = lane_before(plan, lane, limit);
    if (it->command == SL_NONE)
        edit_drop_wait(plan, index, wait);
    else
        it->age = back - (it->command >= index);
}

/* Makes wait `wait` of command `index`, which meant an issue `back` iterations back, mean it again.
 */
static inline void edit_renew_wait(sl_plan *plan, uint32_t index, uint32_t wait, uint32_t back)
{
    sl_wait *it = &plan->waits[plan->body[index].first_wait + wait];
    if (back == 0 && it->command >= index)
        edit_repair_wait(plan, index, wait, plan->body[it->command].lane, back);
    else
        it->age = back - (it->command >= index);
}

/* [wait_count] how many iterations back each wait goes; the caller frees it. */
static inline uint32_t *edit_list_backs(const sl_plan *plan)
{
    uint32_t *backs = edit_duplicate(NULL, 0, (plan->wait_count + 1) * sizeof *backs);
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            uint32_t at = plan->body[i].first_wait + w;
            backs[at] = wait_back(&plan->waits[at], i);
        }
    return backs;
}

static inline bool edit_has_loops(const sl_plan *plan)
{
    for (uint32_t s = 0; s < plan->section_count; s++)
        if (plan->sections[s].repeat > 1)
            return true;
    return false;
}

static inline bool edit_is_one_section(const sl_plan *plan, uint32_t a, uint32_t b)
{
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *it = &plan->sections[s];
        if (a - it->first < it->count)
            return b - it->first < it->count;
    }
    return plan->section_count == 0;
}

/* Moves the command at `from` to index `to`; the ones between close up. */
static inline void edit_move(const sl_plan_request *request, sl_plan *plan, uint32_t from,
                             uint32_t to)
{
    sl_command moved = plan->body[from];
    uint32_t *backs = edit_list_backs(plan);
    if (from < to)
        memmove(plan->body + from, plan->body + from + 1, (to - from) * sizeof moved);
    else
        memmove(plan->body + to + 1, plan->body + to, (from - to) * sizeof moved);
    plan->body[to] = moved;
    for (uint32_t i = 0; i < plan->wait_count; i++) {
        uint32_t *command = &plan->waits[i].command;
        if (*command == from)
            *command = to;
        else if (from < *command && *command <= to)
            *command -= 1;
        else if (to <= *command && *command < from)
            *command += 1;
    }
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = plan->body[i].wait_count; w > 0; w--)
            edit_renew_wait(plan, i, w - 1, backs[plan->body[i].first_wait + w - 1]);
    free(backs);
    edit_retick(request, plan);
}

static inline void edit_remove(sl_plan *plan, uint32_t index)
{
    sl_lane lane = plan->body[index].lane;
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = plan->body[i].wait_count; w > 0; w--)
            if (plan->waits[plan->body[i].first_wait + w - 1].command == index)
                edit_repair_wait(plan, i, w - 1, lane,
                                 wait_back(&plan->waits[plan->body[i].first_wait + w - 1], i));
    edit_resection(plan, index, UINT32_MAX);
    plan->body_count--;
    memmove(plan->body + index, plan->body + index + 1,
            (plan->body_count - index) * sizeof *plan->body);
    for (uint32_t i = 0; i < plan->wait_count; i++)
        if (plan->waits[i].command > index)
            plan->waits[i].command--;
    edit_recount(plan);
}

/* Puts a second copy of the command right behind it. */
static inline void edit_repeat(sl_plan *plan, uint32_t index)
{
    edit_resection(plan, index, 1);
    memmove(plan->body + index + 1, plan->body + index,
            (plan->body_count - index) * sizeof *plan->body);
    plan->body_count++;
    for (uint32_t i = 0; i < plan->wait_count; i++)
        if (plan->waits[i].command > index)
            plan->waits[i].command++;
    edit_recount(plan);
}

static inline void edit_remove_allocation(sl_plan *plan, uint32_t index)
{
    plan->allocation_count--;
    memmove(plan->allocations + index, plan->allocations + index + 1,
            (plan->allocation_count - index) * sizeof *plan->allocations);
}

#endif
