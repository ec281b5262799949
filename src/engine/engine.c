/* The engine's public calls. Opening takes everything; nothing here allocates afterwards.
 *
 * States: boundary (current_plan is SL_NONE: lanes have no commands, chunks current at their homes
 * or in the bounce pieces on the way there) or running
 * (current_plan is the plan of the last iteration, whose lanes may still work).
 * sl_engine_step leaves the boundary, every call that drains returns to it. A failure of a lane is
 * final: every later call returns it.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"

/* ---- opening and closing ---- */

static sl_status check_options(const sl_engine_options *options)
{
    if (options->plan_count == 0 || !options->plans)
        SL_FAIL(SL_ERROR_INTERNAL, "an engine needs a plan");
    if (options->plan_count > SL_TAG_PLANS)
        SL_FAIL(SL_ERROR_INTERNAL, "%u plans, %d at most", options->plan_count, SL_TAG_PLANS);
    if (options->target.worker_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "an engine needs at least one worker");
    return SL_OK;
}

/* With default attributes no lock of a lane can fail on Linux. */
static void init_lanes(sl_engine *engine)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        engine->lanes[lane].lane = (sl_lane)lane;
        engine->lanes[lane].lanes = engine->lanes;
        engine->lanes[lane].observer = engine->options.observer;
        pthread_mutex_init(&engine->lanes[lane].lock, NULL);
    }
}

/* Which lanes are streams of the device, and which are threads of the host. */
static sl_status open_lanes(sl_engine *engine, bool has_inputs)
{
    static const struct {
        sl_lane lane;
        sl_stream_kind kind;
    } rows[] = {
        {SL_LANE_COMPUTE, SL_STREAM_DEVICE}, {SL_LANE_H2D, SL_STREAM_DEVICE},
        {SL_LANE_D2H, SL_STREAM_DEVICE},     {SL_LANE_HOST, SL_STREAM_HOST},
        {SL_LANE_READ, SL_STREAM_HOST},      {SL_LANE_WRITE, SL_STREAM_HOST},
        {SL_LANE_INPUT, SL_STREAM_HOST},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_engine_lane *lane = &engine->lanes[rows[i].lane];
        bool is_disk = rows[i].lane == SL_LANE_READ || rows[i].lane == SL_LANE_WRITE;
        bool is_missing =
            (is_disk && !engine->disk.store) || (rows[i].lane == SL_LANE_INPUT && !has_inputs);
        if (is_missing)
            continue;
        sl_queue_observer observer = sl_measure_observer(lane);
        SL_TRY(engine->ops->stream_open(engine->device, rows[i].kind, sl_lane_name(rows[i].lane),
                                        &observer, &lane->stream));
    }
    return SL_OK;
}

/* The events that keep the control thread from running ahead. */
static sl_status open_ends(sl_engine *engine)
{
    for (int i = 0; i < SL_AHEAD_MOST; i++)
        SL_TRY(engine->ops->event_open(engine->device, &engine->ends[i]));
    return SL_OK;
}

static sl_status bind_plans(sl_engine *engine, const sl_engine_options *options,
                            const sl_engine_parts *parts)
{
    engine->plans = calloc(options->plan_count, sizeof *engine->plans);
    if (!engine->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u plans", options->plan_count);
    engine->plan_count = options->plan_count;
    for (uint32_t i = 0; i < options->plan_count; i++) {
        engine->plans[i].plan = options->plans[i].plan;
        sl_status status = sl_bind_open(engine, &options->plans[i], &engine->plans[i]);
        if (status != SL_OK)
            return sl_status_prefix(status, "plan %u", i);
        if (parts->repetitions_ahead && parts->repetitions_ahead <= SL_AHEAD_MOST)
            engine->plans[i].repetitions_ahead = parts->repetitions_ahead;
    }
    return SL_OK;
}

static sl_status open_device(sl_engine *engine, const sl_engine_target *target,
                             const sl_engine_parts *parts)
{
    engine->ops = sl_device_ops_of(target->device);
    engine->kernels = parts->kernels ? parts->kernels : sl_kernels_of(target->device);
    engine->host_kernels = parts->kernels ? parts->kernels : sl_kernels_cpu();
    if (!engine->ops || !engine->kernels)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no such device");
    SL_TRY(engine->ops->open(target->device_index, &engine->device));
    return engine->kernels->open(target->device_index, &engine->library);
}

static sl_status open_all(sl_engine *engine, const sl_engine_options *options,
                          const sl_engine_parts *parts)
{
    bool has_inputs;
    SL_TRY(sl_inputs_open(engine, options, &has_inputs));
    SL_TRY(open_device(engine, &options->target, parts));
    SL_TRY(sl_arena_open(engine, options));
    SL_TRY(sl_disk_open(engine, options, parts));
    SL_TRY(sl_workers_open(options->target.worker_count, &engine->workers));
    SL_TRY(open_lanes(engine, has_inputs));
    SL_TRY(open_ends(engine));
    SL_TRY(bind_plans(engine, options, parts));
    SL_TRY(sl_boundary_fill(engine));
    return sl_prepare(engine);
}

sl_status sl_engine_open_with(const sl_engine_options *options, const sl_engine_parts *parts,
                              sl_engine **out_engine)
{
    SL_TRY(check_options(options));
    sl_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an engine");
    engine->options = *options;
    engine->options.plans = NULL; /* the caller's array need not live on, nor the next two */
    engine->options.source = NULL;
    engine->options.progress = NULL;
    if (options->progress)
        engine->progress = *options->progress;
    engine->current_plan = SL_NONE;
    init_lanes(engine);
    atomic_init(&engine->failed_lane, SL_NONE);
    sl_status status = open_all(engine, options, parts);
    if (status != SL_OK) {
        sl_engine_close(engine);
        return status;
    }
    *out_engine = engine;
    return SL_OK;
}

sl_status sl_engine_open(const sl_engine_options *options, sl_engine **out_engine)
{
    const sl_engine_parts parts = {0};
    return sl_engine_open_with(options, &parts, out_engine);
}

void sl_engine_close(sl_engine *engine)
{
    if (!engine)
        return;
    /* All lanes end before any closes: one may be waiting for another. */
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (engine->lanes[lane].stream)
            (void)engine->ops->stream_finish(engine->lanes[lane].stream);
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (engine->lanes[lane].stream)
            engine->ops->stream_close(engine->lanes[lane].stream);
    }
    for (uint32_t i = 0; i < engine->plan_count; i++)
        sl_bind_close(engine, &engine->plans[i]);
    free(engine->plans);
    for (int i = 0; i < SL_AHEAD_MOST; i++) {
        if (engine->ends[i])
            engine->ops->event_close(engine->ends[i]);
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        pthread_mutex_destroy(&engine->lanes[lane].lock);
    sl_workers_close(engine->workers);
    sl_disk_close(engine);
    if (engine->device) {
        sl_arena_close(engine);
        if (engine->kernels)
            engine->kernels->close(engine->library);
        engine->ops->close(engine->device);
    }
    free(engine);
}

/* ---- iterations ---- */

/* Another plan may use the memory of this plan's slots: its iteration has to end first. A failure
 * met here comes back from the next step. */
void *sl_engine_input(sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    if (plan_index >= engine->plan_count || slot >= engine->plans[plan_index].input_count)
        return NULL;
    if (engine->current_plan != SL_NONE && engine->current_plan != plan_index)
        (void)sl_walk_drain(engine);
    return engine->plans[plan_index].inputs[slot];
}

const void *sl_engine_output(const sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    if (plan_index >= engine->plan_count || slot >= engine->plans[plan_index].output_count)
        return NULL;
    return engine->plans[plan_index].outputs[slot];
}

static sl_status run_iteration(sl_engine *engine, uint32_t plan_index,
                               const sl_step_scalars *scalars)
{
    sl_bound_plan *plan = &engine->plans[plan_index];
    bool is_first = engine->current_plan != plan_index;
    SL_TRY(sl_bounce_empty(engine));
    if (is_first)
        SL_TRY(sl_walk_prologue(engine, plan));
    engine->current_plan = plan_index;
    sl_status status = sl_walk_body(engine, plan, scalars);
    return status == SL_OK ? sl_walk_await(engine, plan) : status;
}

/* Half an iteration cannot be taken back: its failure is final, and a lane's own explains more than
 * that of the control thread. */
static sl_status give_up(sl_engine *engine, sl_status status)
{
    if (atomic_load(&engine->failed_lane) == SL_NONE)
        sl_walk_keep_failure(engine, status);
    return sl_walk_drain(engine);
}

sl_status sl_engine_step(sl_engine *engine, uint32_t plan_index, const sl_step_scalars *scalars)
{
    uint64_t start_ns = sl_clock_now_ns();
    if (plan_index >= engine->plan_count)
        SL_FAIL(SL_ERROR_INTERNAL, "there is no plan %u", plan_index);
    if (engine->failure != SL_OK || atomic_load(&engine->failed_lane) != SL_NONE)
        return sl_walk_drain(engine);
    sl_status status = run_iteration(engine, plan_index, scalars);
    engine->step_ns = sl_clock_now_ns() - start_ns;
    return status == SL_OK ? SL_OK : give_up(engine, status);
}

sl_status sl_engine_drain(sl_engine *engine)
{
    SL_TRY(sl_walk_drain(engine));
    return sl_bounce_flush(engine);
}

uint64_t sl_engine_workspace_bytes(const void *target, sl_op_kind kind, const sl_op_attrs *attrs,
                                   sl_tier tier)
{
    const sl_engine_target *who = target;
    if (tier == SL_TIER_DISK)
        return 0;
    const sl_kernel_table *kernels =
        tier == SL_TIER_HOST ? sl_kernels_cpu() : sl_kernels_of(who->device);
    return kernels ? sl_kernels_workspace_bytes(kernels, kind, attrs, who->worker_count) : 0;
}
