/* A step: one iteration of a plan, issued command by command to the lanes. Knows which event orders
 * which commands, and nothing of what is computed.
 *
 *     sl_engine_open
 *          |
 *          v
 *      BOUNDARY   current_plan is SL_NONE: no lane has work; every chunk is current at its home,
 *          |      or in a bounce piece on the way there
 *          |
 *          |  sl_engine_step: bounce pieces are emptied, the prologue is issued and waited for
 *          v
 *      ISSUING    section by section, each as often as it is repeated; lanes work meanwhile
 *          |
 *          |  all is issued, inputs have been read, outputs are on the host: the step returns
 *          v
 *      RUNNING    current_plan is the plan of this iteration; its updates may still run
 *          |
 *          +---> ISSUING    sl_engine_step of the same plan: no prologue
 *          +---> BOUNDARY   a drain: sl_engine_drain, a chunk read or written, an input asked
 *                           for, or a step of another plan
 *
 *      any ----> FAILED     a lane failed, or made no progress for too long (deadline.c), or the
 *                           control thread failed in an iteration: lanes compute nothing more, and
 *                           every later call returns the first failure
 *
 * Lanes wait for each other by events. The control thread waits at the end of a step, and before
 * each repetition until the compute lane is at most sl_plan_repetitions_ahead repetitions behind.
 * So a failed lane is noticed soon, and the reported progress is close to the real one.
 *
 * Issue counts are never reset, neither by iterations nor by boundaries. A wait for a command that
 * was issued before a boundary returns at once, because the command has finished. With counts that
 * start anew the engine would have to find out which of a command's two events was recorded last.
 */
#include "engine_internal.h"

#include "base/clock.h"

static sl_status run_iteration(sl_engine *engine, sl_bound_plan *plan,
                               const sl_step_scalars *scalars);
static sl_status end_failed_iteration(sl_engine *engine, sl_status status);
static sl_status issue_prologue(sl_engine *engine, sl_bound_plan *plan);
static sl_status issue_body(sl_engine *engine, sl_bound_plan *plan, const sl_step_scalars *scalars);
static sl_status issue_repetition(const sl_repetition *repetition, const sl_section *section);
static sl_status issue_command(const sl_repetition *repetition, sl_bound_command *bound);
static sl_status issue_waits(const sl_repetition *repetition, const sl_bound_command *bound);
static sl_status queue_command(const sl_repetition *repetition, const sl_bound_command *bound);
static sl_status queue_unnamed(const sl_repetition *repetition, const sl_bound_command *bound);
static sl_status wait_for_compute(sl_engine *engine, const sl_bound_plan *plan);
static sl_status wait_for_inputs_and_outputs(sl_engine *engine, const sl_bound_plan *plan);

/* ---- a step ---- */

sl_status sl_engine_step(sl_engine *engine, uint32_t plan_index, const sl_step_scalars *scalars)
{
    uint64_t start_ns = sl_clock_now_ns();
    if (plan_index >= engine->plan_count)
        SL_FAIL(SL_ERROR_INTERNAL, "there is no plan %u", plan_index);
    if (engine->failure.status != SL_OK || atomic_load(&engine->failed_lane) != SL_NONE)
        return sl_step_drain(engine);
    if (engine->watcher)
        engine->watcher->begin(engine->watcher->user, "step");
    sl_status status = run_iteration(engine, &engine->plans[plan_index], scalars);
    if (engine->watcher)
        engine->watcher->end(engine->watcher->user);
    engine->step_ns = sl_clock_now_ns() - start_ns;
    return status == SL_OK ? SL_OK : end_failed_iteration(engine, status);
}

static sl_status run_iteration(sl_engine *engine, sl_bound_plan *plan,
                               const sl_step_scalars *scalars)
{
    uint32_t plan_index = (uint32_t)(plan - engine->plans);
    bool is_first = engine->current_plan != plan_index;
    SL_TRY(sl_disk_release_pieces(engine));
    if (is_first)
        SL_TRY(issue_prologue(engine, plan));
    engine->current_plan = plan_index;
    SL_TRY(issue_body(engine, plan, scalars));
    return wait_for_inputs_and_outputs(engine, plan);
}

/* Half an iteration cannot be undone, so its failure is final. A lane's own error explains more
 * than that of the control thread. */
static sl_status end_failed_iteration(sl_engine *engine, sl_status status)
{
    if (atomic_load(&engine->failed_lane) == SL_NONE)
        sl_first_failure_keep(&engine->failure, status);
    return sl_step_drain(engine);
}

/* ---- issuing ---- */

/* The copies of a prologue have no waits, so the copies of one lane finish before those of the next
 * begin. */
static sl_status issue_prologue(sl_engine *engine, sl_bound_plan *plan)
{
    const sl_repetition once = {.engine = engine, .plan = plan};
    sl_lane lane = SL_LANE_COUNT;
    for (uint32_t i = 0; i < plan->plan->prologue_count; i++) {
        const sl_bound_command *bound = &plan->prologue[i];
        if (bound->command->lane != lane)
            SL_TRY(sl_step_drain(engine));
        lane = bound->command->lane;
        SL_TRY(queue_command(&once, bound));
    }
    return sl_step_drain(engine);
}

static sl_status issue_body(sl_engine *engine, sl_bound_plan *plan, const sl_step_scalars *scalars)
{
    const sl_engine_progress *progress = &engine->progress;
    uint32_t plan_index = (uint32_t)(plan - engine->plans), done = 0;
    sl_repetition repetition = {.engine = engine, .plan = plan, .scalars = scalars};
    for (uint32_t s = 0; s < plan->plan->section_count; s++) {
        const sl_section *section = &plan->plan->sections[s];
        for (repetition.index = 0; repetition.index < section->repeat; repetition.index++) {
            repetition.micro_batches = sl_section_micro_batches(section, repetition.index);
            SL_TRY(issue_repetition(&repetition, section));
            done++;
            if (progress->passed)
                progress->passed(progress->user, plan_index, done, plan->repetition_count);
        }
    }
    return SL_OK;
}

static sl_status issue_repetition(const sl_repetition *repetition, const sl_section *section)
{
    sl_engine *engine = repetition->engine;
    SL_TRY(wait_for_compute(engine, repetition->plan));
    for (uint32_t i = 0; i < section->count; i++)
        SL_TRY(issue_command(repetition, &repetition->plan->body[section->first + i]));
    uint64_t number = engine->repetitions_issued;
    SL_TRY(engine->ops->event_record(engine->repetition_ends[number % SL_AHEAD_MOST],
                                     engine->lanes[SL_LANE_COMPUTE].stream));
    engine->repetitions_issued++;
    return SL_OK;
}

/* The event of a command's latest issue or, with age 1, of the issue before. If there was none the
 * event was never recorded, and a wait for it returns at once. */
static sl_device_event *find_event(const sl_bound_command *bound, uint32_t age)
{
    return bound->events[1] ? bound->events[(bound->issued + 1 + age) % 2] : bound->events[0];
}

static sl_status issue_command(const sl_repetition *repetition, sl_bound_command *bound)
{
    sl_engine *engine = repetition->engine;
    SL_TRY(issue_waits(repetition, bound));
    SL_TRY(queue_command(repetition, bound));
    bound->issued++;
    if (!bound->events[0])
        return SL_OK;
    return engine->ops->event_record(find_event(bound, 0),
                                     engine->lanes[bound->command->lane].stream);
}

static sl_status issue_waits(const sl_repetition *repetition, const sl_bound_command *bound)
{
    sl_engine *engine = repetition->engine;
    sl_device_stream *stream = engine->lanes[bound->command->lane].stream;
    for (uint32_t i = 0; i < bound->wait_count; i++) {
        const sl_bound_wait *wait = &repetition->plan->waits[bound->first_wait + i];
        sl_device_event *event = find_event(&repetition->plan->body[wait->command], wait->age);
        SL_TRY(engine->ops->event_wait(event, stream, wait->tag));
    }
    return SL_OK;
}

static sl_status queue_command(const sl_repetition *repetition, const sl_bound_command *bound)
{
    const sl_engine *engine = repetition->engine;
    sl_device_stream *stream = engine->lanes[bound->command->lane].stream;
    if (!engine->watcher || !engine->ops->stream_native(stream))
        return queue_unnamed(repetition, bound);
    char name[SL_COMMAND_NAME_BYTES];
    sl_command_describe(repetition->plan->program, bound->command, name);
    engine->watcher->begin(engine->watcher->user, name);
    sl_status status = queue_unnamed(repetition, bound);
    engine->watcher->end(engine->watcher->user);
    return status;
}

static sl_status queue_unnamed(const sl_repetition *repetition, const sl_bound_command *bound)
{
    uint64_t tag = bound->tag + repetition->index;
    sl_statistics_count_issue(repetition->engine, bound);
    return bound->command->kind == SL_COMMAND_COPY ? sl_copies_issue(repetition, bound, tag)
                                                   : sl_op_kernels_issue(repetition, bound, tag);
}

/* ---- waiting ---- */

/* Waits until the compute lane is not too many repetitions behind; ends early if a lane failed. */
static sl_status wait_for_compute(sl_engine *engine, const sl_bound_plan *plan)
{
    uint64_t behind = engine->repetitions_issued + SL_AHEAD_MOST - plan->repetitions_ahead;
    sl_status status = engine->ops->event_finish(engine->repetition_ends[behind % SL_AHEAD_MOST]);
    if (status != SL_OK)
        return sl_status_prefix(status, "an op before the end of a repetition on the %s lane",
                                sl_lane_name(SL_LANE_COMPUTE));
    return atomic_load(&engine->failed_lane) == SL_NONE ? SL_OK : sl_step_drain(engine);
}

/* Waits for inputs and outputs, as sl_engine_step promises; updates go on running. */
static sl_status wait_for_inputs_and_outputs(sl_engine *engine, const sl_bound_plan *plan)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        uint32_t last = plan->last_awaited[lane];
        if (last == SL_NONE)
            continue;
        sl_status status = engine->ops->event_finish(find_event(&plan->body[last], 0));
        if (status != SL_OK)
            return sl_status_prefix(status, "an op or copy before op %u on the %s lane",
                                    plan->body[last].command->tick, sl_lane_name((sl_lane)lane));
    }
    SL_TRY(sl_collectives_poll(engine));
    return atomic_load(&engine->failed_lane) == SL_NONE ? SL_OK : sl_step_drain(engine);
}

/* Keeps the first failure, because a stream of the device may report it only once. */
static sl_status finish_lanes(sl_engine *engine)
{
    sl_first_failure any = {0};
    engine->current_plan = SL_NONE;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        sl_device_stream *stream = engine->lanes[lane].stream;
        sl_status status = stream ? engine->ops->stream_finish(stream) : SL_OK;
        if (status != SL_OK)
            sl_first_failure_keep(&any, status);
    }
    const sl_status of_ranks = sl_collectives_poll(engine);
    if (of_ranks != SL_OK)
        sl_first_failure_keep(&any, of_ranks);
    uint32_t first = atomic_load(&engine->failed_lane);
    if (first != SL_NONE && engine->lanes[first].stream)
        SL_TRY(engine->ops->stream_finish(engine->lanes[first].stream));
    return sl_first_failure_return(&any);
}

sl_status sl_step_drain(sl_engine *engine)
{
    sl_status status = finish_lanes(engine);
    if (status == SL_OK) /* after a deadline the lanes may have ended, but they skipped items */
        status = sl_first_failure_return(&engine->deadline.failure);
    if (status != SL_OK)
        sl_first_failure_keep(&engine->failure, status);
    return sl_first_failure_return(&engine->failure);
}

sl_status sl_step_drain_if_running(sl_engine *engine)
{
    bool has_failed =
        engine->failure.status != SL_OK || atomic_load(&engine->failed_lane) != SL_NONE;
    return !has_failed && engine->current_plan == SL_NONE ? SL_OK : sl_step_drain(engine);
}

void sl_engine_stop(sl_engine *engine)
{
    sl_step_mark_failed_lane(&engine->failed_lane, SL_LANE_COMM);
}

sl_status sl_engine_drain(sl_engine *engine)
{
    SL_TRY(sl_step_drain(engine));
    return sl_disk_flush_pieces(engine);
}

/* ---- in the lanes' threads ---- */

void sl_step_mark_failed_lane(_Atomic uint32_t *failed_lane, sl_lane lane)
{
    uint32_t nobody = SL_NONE;
    atomic_compare_exchange_strong(failed_lane, &nobody, (uint32_t)lane);
}
