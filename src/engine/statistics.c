/* What the lanes did, for how long, and for which lane they waited. Times are taken in the lanes'
 * threads, bytes and peaks where commands are issued. Knows nothing of plans and streams.
 *
 * Each wait is charged to the lane whose work was waited for in the end (chunk/simulate/stall.h).
 * The history of a lane's waits is written by the lane's thread and read by others, under the
 * lane's lock. The device reports a lane's waits before the waits of others for that lane
 * (device.h). The only exception: a wait of a device's stream for which a host lane waits may be
 * reported later; its time then stays charged to the stream.
 *
 * A tag is kind << 62 | phase << 60 | plan << 54 | command << 28 | repetition. The tag of a wait
 * has the plan and the command waited for, and that command's lane instead of the repetition. A
 * device's stream reports calls of one phase together, but never calls of two phases: the time of
 * an op belongs to its phase, whichever lane it ran on.
 */
#include "engine_internal.h"

enum { KIND_SHIFT = 62, PHASE_SHIFT = 60, PLAN_SHIFT = 54, COMMAND_SHIFT = 28, PHASE_MASK = 3 };

_Static_assert(SL_PHASE_COUNT <= PHASE_MASK + 1, "a phase fits its bits of a tag");

uint64_t sl_statistics_tag(sl_tag_kind kind)
{
    return (uint64_t)kind << KIND_SHIFT;
}

uint64_t sl_statistics_tag_body(uint32_t plan_index, const sl_bound_plan *plan, uint32_t command)
{
    const sl_command *what = &plan->plan->body[command];
    bool is_op = what->kind == SL_COMMAND_RUN;
    uint64_t phase = is_op ? plan->program->ops[what->tick].phase : 0;
    return sl_statistics_tag(is_op ? SL_TAG_OP : SL_TAG_COPY) | phase << PHASE_SHIFT |
           (uint64_t)plan_index << PLAN_SHIFT | (uint64_t)command << COMMAND_SHIFT;
}

uint64_t sl_statistics_tag_wait(sl_lane waited_for, uint64_t command_tag)
{
    return (command_tag >> COMMAND_SHIFT << COMMAND_SHIFT) | (uint64_t)waited_for;
}

static uint32_t find_plan(uint64_t tag)
{
    return tag >> PLAN_SHIFT & (SL_TAG_PLANS - 1);
}

static uint32_t find_command(uint64_t tag)
{
    return tag >> COMMAND_SHIFT & (SL_TAG_COMMANDS - 1);
}

bool sl_statistics_find_command(const sl_engine *engine, uint64_t tag,
                                const sl_bound_plan **out_plan, const sl_command **out_command)
{
    const sl_tag_kind kind = (sl_tag_kind)(tag >> KIND_SHIFT);
    if (kind == SL_TAG_UNCOUNTED || kind == SL_TAG_PROLOGUE)
        return false;
    *out_plan = &engine->plans[find_plan(tag)];
    *out_command = &(*out_plan)->plan->body[find_command(tag)];
    return true;
}

/* ---- runs ---- */

static void count_run(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    sl_engine_lane *lane = user;
    sl_tag_kind kind = (sl_tag_kind)(tag >> KIND_SHIFT);
    atomic_fetch_add_explicit(&lane->ended_count, 1, memory_order_relaxed);
    if (kind == SL_TAG_UNCOUNTED)
        return;
    atomic_fetch_add_explicit(&lane->busy_ns, end_ns - start_ns, memory_order_relaxed);
    if (kind == SL_TAG_OP)
        atomic_fetch_add_explicit(&lane->phase_ns[tag >> PHASE_SHIFT & PHASE_MASK],
                                  end_ns - start_ns, memory_order_relaxed);
    if (kind == SL_TAG_PROLOGUE || !lane->observer)
        return;
    sl_engine_event event = {.plan_index = find_plan(tag),
                             .command = find_command(tag),
                             .repetition = tag & (SL_TAG_REPETITIONS - 1),
                             .lane = lane->lane,
                             .start_ns = start_ns,
                             .end_ns = end_ns};
    lane->observer->ran(lane->observer->user, &event);
}

/* ---- waits ---- */

static uint32_t divide_wait(sl_engine_lane *of, sl_lane waiter, const sl_stall_span *wait,
                            sl_stall_span *out_parts)
{
    pthread_mutex_lock(&of->lock);
    uint32_t count = sl_stall_divide(&of->waits, waiter, wait, out_parts);
    pthread_mutex_unlock(&of->lock);
    return count;
}

/* Charges a finished wait to the lane waited for; time in which that lane itself waited goes to the
 * lane that it waited for. */
static void count_stall(sl_engine_lane *lane, sl_engine_wait *wait)
{
    sl_stall_span span = {(double)wait->start_ns, (double)wait->end_ns, wait->waited_for};
    sl_stall_span parts[SL_STALL_PART_MAX];
    uint32_t count = divide_wait(&lane->lanes[wait->waited_for], lane->lane, &span, parts);
    pthread_mutex_lock(&lane->lock);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t part_ns = (uint64_t)(parts[i].end - parts[i].start);
        wait->cause_ns[parts[i].cause] += part_ns;
        atomic_fetch_add_explicit(&lane->waited_ns[parts[i].cause], part_ns, memory_order_relaxed);
        sl_stall_remember(&lane->waits, &parts[i]);
    }
    pthread_mutex_unlock(&lane->lock);
}

static void count_wait(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    sl_engine_lane *lane = user;
    sl_engine_wait wait = {.plan_index = find_plan(tag),
                           .command = find_command(tag),
                           .lane = lane->lane,
                           .waited_for = (sl_lane)(tag & (SL_TAG_REPETITIONS - 1)),
                           .start_ns = start_ns,
                           .end_ns = end_ns};
    count_stall(lane, &wait);
    if (lane->observer && lane->observer->waited)
        lane->observer->waited(lane->observer->user, &wait);
}

sl_queue_observer sl_statistics_observer(sl_engine_lane *lane)
{
    return (sl_queue_observer){.ran = count_run,
                               .waited = count_wait,
                               .user = lane,
                               .wants_each = lane->observer != NULL,
                               .apart = (uint64_t)PHASE_MASK << PHASE_SHIFT,
                               .blocked = sl_deadline_ask};
}

void sl_statistics_count_issue(sl_engine *engine, const sl_bound_command *bound)
{
    if (bound->command->kind == SL_COMMAND_COPY)
        engine->moved_bytes[bound->command->lane] += bound->bytes;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (bound->touched_end[tier] > engine->touched_end[tier])
            engine->touched_end[tier] = bound->touched_end[tier];
    }
}

/* ---- reading them ---- */

static uint64_t take_counter(_Atomic uint64_t *counter)
{
    return atomic_exchange_explicit(counter, 0, memory_order_relaxed);
}

void sl_engine_take_statistics(sl_engine *engine, sl_engine_statistics *out_statistics)
{
    sl_engine_statistics statistics = {.step_ns = engine->step_ns};
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        statistics.busy_ns[lane] = take_counter(&engine->lanes[lane].busy_ns);
        statistics.stall_ns[lane] = take_counter(&engine->lanes[SL_LANE_COMPUTE].waited_ns[lane]);
        statistics.moved_bytes[lane] = engine->moved_bytes[lane];
        engine->moved_bytes[lane] = 0;
    }
    for (int phase = 0; phase < SL_PHASE_COUNT; phase++)
        statistics.phase_ns[phase] = take_counter(&engine->lanes[SL_LANE_COMPUTE].phase_ns[phase]) +
                                     take_counter(&engine->lanes[SL_LANE_HOST].phase_ns[phase]);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        statistics.measured_peak_bytes[tier] = engine->touched_end[tier];
        statistics.arena_bytes[tier] =
            tier < SL_ARENA_COUNT ? engine->arenas[tier].bytes : engine->disk.bytes;
    }
    *out_statistics = statistics;
}
