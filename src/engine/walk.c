/* Issues bound commands to the lanes. Knows which event orders what, and nothing of what is
 * computed.
 *
 * An iteration is issued whole, in the order of the plan; lanes start on it while the rest is being
 * issued. All synchronisation is by events on the lanes; the control thread waits only at the end.
 */
#include "engine_internal.h"

#include <stdio.h>

static const char *const lane_names[SL_LANE_COUNT] = {
    [SL_LANE_COMPUTE] = "compute", [SL_LANE_H2D] = "h2d",     [SL_LANE_D2H] = "d2h",
    [SL_LANE_HOST] = "host",       [SL_LANE_READ] = "read",   [SL_LANE_WRITE] = "write",
    [SL_LANE_COMM] = "comm",       [SL_LANE_INPUT] = "input",
};

const char *sl_walk_lane_name(sl_lane lane)
{
    return lane_names[lane];
}

static const char *const op_names[SL_OP_COUNT] = {
#define X(NAME, name) #name,
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
                            lane_names[command->lane]);
}

static sl_status run_kernel(void *arguments)
{
    const run_args *args = arguments;
    sl_status status = args->bound->kernel(&args->call);
    return status == SL_OK ? SL_OK : note_failure(status, args);
}

/* ---- issuing ---- */

static sl_status issue_copy(sl_engine *engine, const sl_bound_command *bound,
                            sl_device_stream *stream)
{
    sl_status status = engine->ops->copy(stream, bound->tag, bound->to, bound->from, bound->bytes);
    if (status == SL_OK)
        return SL_OK;
    return sl_status_prefix(status, "a copy before op %u on the %s lane", bound->command->tick,
                            lane_names[bound->command->lane]);
}

static sl_status issue(sl_engine *engine, const sl_bound_command *bound,
                       const sl_step_scalars *scalars)
{
    sl_device_stream *stream = engine->lanes[bound->command->lane].stream;
    sl_measure_issue(engine, bound);
    if (bound->command->lane == SL_LANE_READ || bound->command->lane == SL_LANE_WRITE)
        return sl_disk_issue(engine, bound);
    if (bound->command->kind == SL_COMMAND_COPY)
        return issue_copy(engine, bound, stream);
    run_args args = {bound->call, bound, &engine->failed_lane};
    args.call.scalars = *scalars;
    return engine->ops->launch(stream, bound->tag, run_kernel, &args, sizeof args);
}

static sl_status issue_waits(sl_engine *engine, const sl_bound_plan *plan,
                             const sl_bound_command *bound)
{
    sl_device_stream *stream = engine->lanes[bound->command->lane].stream;
    for (uint32_t i = 0; i < bound->wait_count; i++) {
        const sl_bound_wait *wait = &plan->waits[bound->first_wait + i];
        SL_TRY(engine->ops->event_wait(wait->event, stream, wait->tag));
    }
    return SL_OK;
}

sl_status sl_walk_body(sl_engine *engine, const sl_bound_plan *plan, const sl_step_scalars *scalars)
{
    for (uint32_t i = 0; i < plan->plan->body_count; i++) {
        const sl_bound_command *bound = &plan->body[i];
        sl_device_stream *stream = engine->lanes[bound->command->lane].stream;
        SL_TRY(issue_waits(engine, plan, bound));
        SL_TRY(issue(engine, bound, scalars));
        if (bound->event)
            SL_TRY(engine->ops->event_record(bound->event, stream));
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
        sl_status status = engine->ops->event_finish(plan->body[last].event);
        if (status != SL_OK)
            return sl_status_prefix(status, "an op or copy before op %u on the %s lane",
                                    plan->body[last].command->tick, lane_names[lane]);
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

sl_status sl_walk_prologue(sl_engine *engine, const sl_bound_plan *plan)
{
    sl_lane lane = SL_LANE_COUNT;
    for (uint32_t i = 0; i < plan->plan->prologue_count; i++) {
        const sl_bound_command *bound = &plan->prologue[i];
        if (bound->command->lane != lane)
            SL_TRY(sl_walk_drain(engine));
        lane = bound->command->lane;
        SL_TRY(issue(engine, bound, NULL));
    }
    return sl_walk_drain(engine);
}
