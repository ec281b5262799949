/* Opens and closes an engine. Opening allocates everything; later calls allocate nothing. */
#include "engine_internal.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/limits.h"

static const double TIMEOUT_S = 600.0; /* the default */

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

/* On Linux a mutex with default attributes cannot fail. */
static void init_lanes(sl_engine *engine)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        engine->lanes[lane].lane = (sl_lane)lane;
        engine->lanes[lane].lanes = engine->lanes;
        engine->lanes[lane].engine = engine;
        engine->lanes[lane].observer = engine->options.observer;
        pthread_mutex_init(&engine->lanes[lane].lock, NULL);
    }
}

/* Opens each lane: a stream of the device, or a thread of the host. */
static sl_status open_lanes(sl_engine *engine, bool has_inputs, bool has_collectives)
{
    static const struct {
        sl_lane lane;
        sl_stream_kind kind;
    } rows[] = {
        {SL_LANE_COMPUTE, SL_STREAM_DEVICE}, {SL_LANE_H2D, SL_STREAM_DEVICE},
        {SL_LANE_D2H, SL_STREAM_DEVICE},     {SL_LANE_HOST, SL_STREAM_HOST},
        {SL_LANE_READ, SL_STREAM_HOST},      {SL_LANE_WRITE, SL_STREAM_HOST},
        {SL_LANE_INPUT, SL_STREAM_HOST},     {SL_LANE_COMM, SL_STREAM_DEVICE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_engine_lane *lane = &engine->lanes[rows[i].lane];
        bool is_disk = rows[i].lane == SL_LANE_READ || rows[i].lane == SL_LANE_WRITE;
        bool is_missing = (is_disk && !engine->disk.store) ||
                          (rows[i].lane == SL_LANE_INPUT && !has_inputs) ||
                          (rows[i].lane == SL_LANE_COMM && !has_collectives);
        if (is_missing)
            continue;
        sl_queue_observer observer = sl_statistics_observer(lane);
        SL_TRY(engine->ops->stream_open(engine->device, rows[i].kind, sl_lane_name(rows[i].lane),
                                        &observer, &lane->stream));
    }
    return SL_OK;
}

/* Opens the events that limit how far the control thread runs ahead. */
static sl_status open_repetition_ends(sl_engine *engine)
{
    for (int i = 0; i < SL_AHEAD_MOST; i++)
        SL_TRY(engine->ops->event_open(engine->device, &engine->repetition_ends[i]));
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
        sl_status status = sl_bound_plan_open(engine, &options->plans[i], &engine->plans[i]);
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
    engine->ops = parts->device ? parts->device : sl_device_ops_of(target->device);
    engine->kernels = parts->kernels ? parts->kernels : sl_kernels_of(target->device);
    engine->host_kernels = parts->kernels ? parts->kernels : sl_kernels_cpu();
    if (!engine->ops || !engine->kernels)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no such device");
    SL_TRY(engine->ops->open(target->device_index, &target->cuda, &engine->device));
    engine->watcher = engine->ops->watcher(engine->device);
    return engine->kernels->open(target->device_index, &target->cuda, &engine->library);
}

/* Bytes of host memory that the plans take. */
static sl_host_need find_need(const sl_engine *engine, const sl_engine_options *options)
{
    sl_host_need need = {.host_bytes = sl_arena_need(options, SL_TIER_HOST)};
    uint32_t in_memory = 0;
    for (uint32_t i = 0; i < options->disk_directory_count; i++)
        in_memory += sl_limits_is_in_memory(options->disk_directories[i]);
    if (engine->ops->kind == SL_DEVICE_CPU)
        need.device_bytes = sl_arena_need(options, SL_TIER_DEVICE);
    if (in_memory > 0) /* an equal share for each directory */
        need.disk_bytes =
            sl_bits_divide_up(sl_arena_need(options, SL_TIER_DISK), options->disk_directory_count) *
            in_memory;
    return need;
}

/* Allocates everything large. */
static sl_status take_memory(sl_engine *engine, const sl_engine_options *options,
                             const sl_engine_parts *parts)
{
    const sl_host_need need = find_need(engine, options);
    sl_host_claim claim;
    SL_TRY(sl_host_claim_open(&need, &claim));
    sl_status status = sl_arena_open(engine, options);
    if (status == SL_OK)
        status = sl_disk_open(engine, options, parts);
    sl_host_claim_close(&claim);
    return status;
}

static sl_status open_parts(sl_engine *engine, const sl_engine_options *options,
                            const sl_engine_parts *parts)
{
    bool has_inputs, has_collectives;
    SL_TRY(sl_inputs_open(engine, options, &has_inputs));
    SL_TRY(sl_collectives_open(engine, options, &has_collectives));
    SL_TRY(open_device(engine, &options->target, parts));
    SL_TRY(take_memory(engine, options, parts));
    SL_TRY(sl_workers_open(options->target.worker_count, &engine->workers));
    SL_TRY(open_lanes(engine, has_inputs, has_collectives));
    SL_TRY(open_repetition_ends(engine));
    SL_TRY(bind_plans(engine, options, parts));
    SL_TRY(sl_op_kernels_prepare(engine)); /* may write into the arena, which is still empty */
    return sl_boundary_fill(engine);
}

sl_status sl_engine_open_with(const sl_engine_options *options, const sl_engine_parts *parts,
                              sl_engine **out_engine)
{
    SL_TRY(check_options(options));
    sl_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an engine");
    engine->options = *options;
    engine->options.plans = NULL; /* the caller's array may end now, and so may the next three */
    engine->options.source = NULL;
    engine->options.ranks = NULL;
    engine->options.data_ranks = NULL;
    engine->options.progress = NULL;
    if (options->progress)
        engine->progress = *options->progress;
    engine->current_plan = SL_NONE;
    engine->deadline.limit_ns =
        (uint64_t)(1e9 * (options->timeout_s > 0 ? options->timeout_s : TIMEOUT_S));
    init_lanes(engine);
    atomic_init(&engine->failed_lane, SL_NONE);
    sl_status status = open_parts(engine, options, parts);
    if (status != SL_OK) {
        (void)sl_engine_close(engine);
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

bool sl_engine_close(sl_engine *engine)
{
    /* All lanes must end before one is closed: one may be waiting for another. */
    if (!engine)
        return true;
    if (!sl_deadline_end_lanes(engine))
        return false;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (engine->lanes[lane].stream)
            engine->ops->stream_close(engine->lanes[lane].stream);
    }
    for (uint32_t i = 0; i < engine->plan_count; i++)
        sl_bound_plan_close(engine, &engine->plans[i]);
    free(engine->plans);
    for (int i = 0; i < SL_AHEAD_MOST; i++) {
        if (engine->repetition_ends[i])
            engine->ops->event_close(engine->repetition_ends[i]);
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
    return true;
}

/* ---- inputs and outputs ---- */

/* Another plan may use the memory of this plan's slots, so its iteration has to end first. A
 * failure found here is returned by the next step. */
void *sl_engine_input(sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    if (plan_index >= engine->plan_count || slot >= engine->plans[plan_index].input_count)
        return NULL;
    if (engine->current_plan != SL_NONE && engine->current_plan != plan_index)
        (void)sl_step_drain(engine);
    return engine->plans[plan_index].inputs[slot];
}

const void *sl_engine_output(const sl_engine *engine, uint32_t plan_index, uint32_t slot)
{
    if (plan_index >= engine->plan_count || slot >= engine->plans[plan_index].output_count)
        return NULL;
    return engine->plans[plan_index].outputs[slot];
}

sl_status sl_engine_describe_device(sl_engine *engine, sl_device_info *out_info)
{
    return engine->ops->describe(engine->device, out_info);
}
