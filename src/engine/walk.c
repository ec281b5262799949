/* Issues bound commands to the lanes. Knows which event orders what, and nothing of what is
 * computed.
 *
 * An iteration is issued in the order of the plan, section by section, each as often as it is
 * repeated; lanes start on it while the rest is being issued. They wait for each other by events.
 * The control thread waits at the end, and before each repetition until the compute lane is not too
 * many behind (sl_plan_repetitions_ahead): so a failed lane is soon seen, and what is told of
 * progress is not far from the truth.
 *
 * Issues are counted for ever, over iterations and boundaries: whatever was issued before a
 * boundary has finished, so to wait for it is not to wait, and a count that starts anew would only
 * have to find out which of two events was recorded last.
 */
#include "engine_internal.h"

#include <stdio.h>

static const char *const op_names[SL_OP_COUNT] = {
#define X(NAME, name, ...) #name,
    SL_OP_LIST(X)
#undef X
};

const char *sl_walk_op_name(sl_op_kind kind)
{
    return op_names[kind];
}

/* ---- in the lanes' threads ---- */

typedef struct run_args {
    sl_kernel_call call; /* first, as the device table wants it */
    const sl_bound_command *bound;
    _Atomic uint32_t *failed_lane;
} run_args;

_Static_assert(sizeof(run_args) <= SL_QUEUE_ARGUMENT_BYTES, "a kernel call fits a queue's item");

void sl_walk_note_failure(_Atomic uint32_t *failed_lane, sl_lane lane)
{
    uint32_t nobody = SL_NONE;
    atomic_compare_exchange_strong(failed_lane, &nobody, (uint32_t)lane);
}

/* A device that is only told to compute tells of an earlier op's failure at a later one's launch,
 * and tells the control thread itself. */
static sl_status note_failure(sl_status status, const run_args *args)
{
    const sl_command *command = args->bound->command;
    bool is_native = args->call.stream != NULL;
    if (!is_native)
        sl_walk_note_failure(args->failed_lane, command->lane);
    return sl_status_prefix(status, "op %u (%s)%s on the %s lane", command->tick,
                            op_names[args->bound->op_kind], is_native ? ", or one before it," : "",
                            sl_lane_name(command->lane));
}

static sl_status run_kernel(void *arguments)
{
    const run_args *args = arguments;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration is lost, its operands may be anything */
    sl_status status = args->bound->kernel(&args->call);
    return status == SL_OK ? SL_OK : note_failure(status, args);
}

/* ---- issuing ---- */

/* Which repetition of which section of which iteration is being issued. */
typedef struct position {
    sl_engine *engine;
    sl_bound_plan *plan;
    uint32_t repetition;
    const sl_step_scalars *scalars; /* NULL in a prologue, which runs no ops */
} position;

static sl_status issue_copy(const position *at, const sl_bound_command *bound, uint64_t tag)
{
    sl_engine *engine = at->engine;
    sl_lane lane = bound->command->lane;
    sl_bound_ends ends = bound->ends;
    sl_sections_move_ends(at->plan, bound, at->repetition, &ends);
    if (lane == SL_LANE_READ || lane == SL_LANE_WRITE)
        return sl_disk_issue(engine, bound, tag, &ends);
    sl_status status =
        engine->ops->copy(engine->lanes[lane].stream, tag, ends.to, ends.from, bound->bytes);
    if (status == SL_OK)
        return SL_OK;
    return sl_status_prefix(status, "a copy before op %u on the %s lane", bound->command->tick,
                            sl_lane_name((sl_lane)lane));
}

static sl_status issue_run(const position *at, const sl_bound_command *bound, uint64_t tag)
{
    sl_engine *engine = at->engine;
    run_args args = {bound->call, bound, &engine->failed_lane};
    sl_sections_move_call(at->plan, bound, at->repetition, &args.call);
    if (bound->command->lane == SL_LANE_INPUT)
        return sl_inputs_issue(engine, (uint32_t)(at->plan - engine->plans), bound, tag,
                               &args.call);
    args.call.scalars = *at->scalars;
    return engine->ops->launch(engine->lanes[bound->command->lane].stream, tag, run_kernel, &args,
                               sizeof args);
}

static sl_status issue(const position *at, const sl_bound_command *bound)
{
    uint64_t tag = bound->tag + at->repetition;
    sl_measure_issue(at->engine, bound);
    return bound->command->kind == SL_COMMAND_COPY ? issue_copy(at, bound, tag)
                                                   : issue_run(at, bound, tag);
}

/* The event of a command's latest issue, or, with age 1, of the one before: never recorded if there
 * was none, so that a wait for it is none. */
static sl_device_event *event_of_issue(const sl_bound_command *bound, uint32_t age)
{
    return bound->events[1] ? bound->events[(bound->issued + 1 + age) % 2] : bound->events[0];
}

static sl_status issue_waits(const position *at, const sl_bound_command *bound)
{
    sl_device_stream *stream = at->engine->lanes[bound->command->lane].stream;
    for (uint32_t i = 0; i < bound->wait_count; i++) {
        const sl_bound_wait *wait = &at->plan->waits[bound->first_wait + i];
        sl_device_event *event = event_of_issue(&at->plan->body[wait->command], wait->age);
        SL_TRY(at->engine->ops->event_wait(event, stream, wait->tag));
    }
    return SL_OK;
}

static sl_status issue_command(const position *at, sl_bound_command *bound)
{
    SL_TRY(issue_waits(at, bound));
    SL_TRY(issue(at, bound));
    bound->issued++;
    if (!bound->events[0])
        return SL_OK;
    return at->engine->ops->event_record(event_of_issue(bound, 0),
                                         at->engine->lanes[bound->command->lane].stream);
}

/* Waits until the compute lane is not too many repetitions behind; stops if a lane failed. */
static sl_status keep_pace(sl_engine *engine, const sl_bound_plan *plan)
{
    uint64_t behind = engine->repetitions_issued + SL_AHEAD_MOST - plan->repetitions_ahead;
    sl_status status = engine->ops->event_finish(engine->ends[behind % SL_AHEAD_MOST]);
    if (status != SL_OK)
        return sl_status_prefix(status, "an op before the end of a repetition on the %s lane",
                                sl_lane_name(SL_LANE_COMPUTE));
    return atomic_load(&engine->failed_lane) == SL_NONE ? SL_OK : sl_walk_drain(engine);
}

static sl_status issue_repetition(const position *at, const sl_section *section)
{
    sl_engine *engine = at->engine;
    SL_TRY(keep_pace(engine, at->plan));
    for (uint32_t i = 0; i < section->count; i++)
        SL_TRY(issue_command(at, &at->plan->body[section->first + i]));
    SL_TRY(engine->ops->event_record(engine->ends[engine->repetitions_issued % SL_AHEAD_MOST],
                                     engine->lanes[SL_LANE_COMPUTE].stream));
    engine->repetitions_issued++;
    return SL_OK;
}

sl_status sl_walk_body(sl_engine *engine, sl_bound_plan *plan, const sl_step_scalars *scalars)
{
    const sl_engine_progress *progress = &engine->progress;
    uint32_t plan_index = (uint32_t)(plan - engine->plans), done = 0;
    position at = {.engine = engine, .plan = plan, .scalars = scalars};
    for (uint32_t s = 0; s < plan->plan->section_count; s++) {
        const sl_section *section = &plan->plan->sections[s];
        for (at.repetition = 0; at.repetition < section->repeat; at.repetition++) {
            SL_TRY(issue_repetition(&at, section));
            done++;
            if (progress->passed)
                progress->passed(progress->user, plan_index, done, plan->repetition_count);
        }
    }
    return SL_OK;
}

/* ---- waiting ---- */

sl_status sl_walk_await(sl_engine *engine, const sl_bound_plan *plan)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        uint32_t last = plan->last_awaited[lane];
        if (last == SL_NONE)
            continue;
        sl_status status = engine->ops->event_finish(event_of_issue(&plan->body[last], 0));
        if (status != SL_OK)
            return sl_status_prefix(status, "an op or copy before op %u on the %s lane",
                                    plan->body[last].command->tick, sl_lane_name((sl_lane)lane));
    }
    if (atomic_load(&engine->failed_lane) != SL_NONE)
        return sl_walk_drain(engine);
    return SL_OK;
}

void sl_walk_keep_failure(sl_engine *engine, sl_status status)
{
    if (engine->failure != SL_OK)
        return;
    engine->failure = status;
    snprintf(engine->failure_message, sizeof engine->failure_message, "%s", sl_status_message());
}

/* A stream of the device may tell of a failure only once. */
static sl_status drain_lanes(sl_engine *engine)
{
    sl_status status = SL_OK;
    char message[sizeof engine->failure_message];
    engine->current_plan = SL_NONE;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        sl_device_stream *stream = engine->lanes[lane].stream;
        sl_status finished = stream ? engine->ops->stream_finish(stream) : SL_OK;
        if (finished != SL_OK && status == SL_OK) {
            status = finished;
            snprintf(message, sizeof message, "%s", sl_status_message());
        }
    }
    uint32_t first = atomic_load(&engine->failed_lane);
    if (first != SL_NONE)
        SL_TRY(engine->ops->stream_finish(engine->lanes[first].stream));
    if (status != SL_OK)
        SL_FAIL(status, "%s", message);
    return SL_OK;
}

sl_status sl_walk_drain(sl_engine *engine)
{
    sl_status status = drain_lanes(engine);
    if (status != SL_OK)
        sl_walk_keep_failure(engine, status);
    if (engine->failure != SL_OK)
        SL_FAIL(engine->failure, "%s", engine->failure_message);
    return SL_OK;
}

sl_status sl_walk_rest(sl_engine *engine)
{
    bool is_sound = engine->failure == SL_OK && atomic_load(&engine->failed_lane) == SL_NONE;
    return is_sound && engine->current_plan == SL_NONE ? SL_OK : sl_walk_drain(engine);
}

sl_status sl_walk_prologue(sl_engine *engine, sl_bound_plan *plan)
{
    const position at = {.engine = engine, .plan = plan};
    sl_lane lane = SL_LANE_COUNT;
    for (uint32_t i = 0; i < plan->plan->prologue_count; i++) {
        const sl_bound_command *bound = &plan->prologue[i];
        if (bound->command->lane != lane)
            SL_TRY(sl_walk_drain(engine));
        lane = bound->command->lane;
        SL_TRY(issue(&at, bound));
    }
    return sl_walk_drain(engine);
}
