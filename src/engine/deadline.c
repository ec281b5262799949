/* How long the control thread waits for lanes that make no progress: a kernel, a copy or a source
 * that never ends must not hang the process. Knows nothing of what the lanes compute.
 *
 * While the control thread waits for a lane, the device asks here every SL_QUEUE_ASK_MS whether to
 * wait on (`blocked` in base/queue.h). Only time in which no lane finished an item counts: slow
 * work that makes progress is waited for without limit. Two kinds of time do not count: while the
 * process was stopped, and while a lane works that has a deadline of its own (the error of an
 * exchange names the missing rank, that of the disk the file).
 *
 * After the deadline every wait ends at its next question. Lanes begin no further item, but the
 * current item of a lane, and items queued behind it on a device's stream, may go on at any later
 * time. So an engine whose lanes do not end is not closed: its memory, threads, streams and events
 * stay.
 */
#include "engine_internal.h"

#include <stdio.h>

#include "base/clock.h"

/* A longer time between two questions means that the process was stopped. */
static const uint64_t ASK_NS_MOST = UINT64_C(10000000) * SL_QUEUE_ASK_MS;

static sl_queue_state look_at(const sl_engine *engine, int lane, uint64_t *out_tag)
{
    sl_device_stream *stream = engine->lanes[lane].stream;
    return stream ? engine->ops->stream_look(stream, out_tag) : SL_QUEUE_IDLE;
}

/* The first lane in `state`, with its tag; SL_LANE_COUNT: there is none. */
static int find_lane(const sl_engine *engine, sl_queue_state state, uint64_t *out_tag)
{
    int lane = 0;
    while (lane < SL_LANE_COUNT && look_at(engine, lane, out_tag) != state)
        lane++;
    return lane;
}

/* Writes "op 5 (linear h.0.mlp)" or "the copy of param 3". Of the ops that a device's stream runs
 * between two waits only the last is known. */
static void describe_work(const sl_engine *engine, int lane, uint64_t tag, char *out_text,
                          size_t capacity)
{
    const sl_bound_plan *plan = NULL;
    const sl_command *command = NULL;
    char name[SL_COMMAND_NAME_BYTES];
    if (!sl_statistics_find_command(engine, tag, &plan, &command)) {
        snprintf(out_text, capacity, "a copy");
        return;
    }
    sl_command_describe(plan->program, command, name);
    if (command->kind == SL_COMMAND_COPY)
        snprintf(out_text, capacity, "the copy of %s", name);
    else
        snprintf(out_text, capacity, "op %u (%s)%s", command->tick, name,
                 engine->ops->stream_native(engine->lanes[lane].stream) ? ", or one before it,"
                                                                        : "");
}

/* Names the lane that is at work, since it holds up those that wait. */
static sl_status fail_late(sl_engine *engine)
{
    uint64_t tag = 0;
    char work[SL_COMMAND_NAME_BYTES + 64] = "what is waited for";
    int lane = find_lane(engine, SL_QUEUE_CALLS, &tag);
    if (lane < SL_LANE_COUNT)
        describe_work(engine, lane, tag, work, sizeof work);
    else
        lane = find_lane(engine, SL_QUEUE_WAITS, &tag);
    const sl_lane named = lane < SL_LANE_COUNT ? (sl_lane)lane : SL_LANE_COMPUTE;
    sl_step_mark_failed_lane(&engine->failed_lane, named);
    SL_FAIL(SL_ERROR_RANK,
            "%s on the %s lane has not ended, and no lane has got on, for %.1f s; its memory, "
            "which it may still use, stays taken until this process ends: go on from the last "
            "checkpoint, with a longer --rank-timeout if this machine is only slow",
            work, sl_lane_name(named), (double)engine->deadline.waited_ns / 1e9);
}

static uint64_t count_ended(const sl_engine *engine)
{
    uint64_t count = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        count += atomic_load_explicit(&engine->lanes[lane].ended_count, memory_order_relaxed);
    return count;
}

static bool has_own_deadline(int lane)
{
    return lane == SL_LANE_COMM || lane == SL_LANE_READ || lane == SL_LANE_WRITE;
}

/* True if a lane made progress since the last question, or another deadline applies. */
static bool get_on(const sl_engine *engine)
{
    uint64_t tag;
    if (count_ended(engine) != engine->deadline.ended_count)
        return true;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (has_own_deadline(lane) && look_at(engine, lane, &tag) == SL_QUEUE_CALLS)
            return true;
    return false;
}

sl_status sl_deadline_ask(void *user)
{
    sl_engine *engine = ((const sl_engine_lane *)user)->engine;
    sl_deadline *deadline = &engine->deadline;
    const uint64_t now_ns = sl_clock_now_ns(), passed_ns = now_ns - deadline->asked_ns;
    if (deadline->failure.status != SL_OK)
        return sl_first_failure_return(&deadline->failure);
    deadline->waited_ns += passed_ns < ASK_NS_MOST ? passed_ns : ASK_NS_MOST;
    if (get_on(engine))
        deadline->waited_ns = 0;
    deadline->ended_count = count_ended(engine);
    deadline->asked_ns = now_ns;
    if (deadline->waited_ns < deadline->limit_ns)
        return SL_OK;
    sl_first_failure_keep(&deadline->failure, fail_late(engine));
    return sl_first_failure_return(&deadline->failure);
}

bool sl_deadline_end_lanes(sl_engine *engine)
{
    uint64_t tag;
    bool have_ended = true;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (engine->lanes[lane].stream)
            (void)engine->ops->stream_finish(engine->lanes[lane].stream);
    }
    if (engine->deadline.failure.status == SL_OK)
        return true;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        have_ended = look_at(engine, lane, &tag) == SL_QUEUE_IDLE && have_ended;
    for (int lane = 0; lane < SL_LANE_COUNT && !have_ended; lane++) {
        if (engine->lanes[lane].stream)
            engine->ops->stream_abandon(engine->lanes[lane].stream);
    }
    return have_ended;
}
