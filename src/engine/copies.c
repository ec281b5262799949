/* COPY commands: between device and host memory, and between the host and the disk. Knows nothing
 * of files.
 *
 * A copy is bound when the engine opens (sl_copies_bind) and queued on its lane in every repetition
 * (sl_copies_issue). On the lanes h2d and d2h that is a copy of the device; on the lanes read and
 * write it is a call of the store, made in the lane's thread (run_disk_copy). The store is called
 * from the threads of these two lanes only, so each of its lanes has one user.
 */
#include "engine_internal.h"

#include <inttypes.h>

static bool is_disk_lane(sl_lane lane)
{
    return lane == SL_LANE_READ || lane == SL_LANE_WRITE;
}

/* ---- binding ---- */

static sl_status bind_memory_copy(const sl_engine *engine, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if (command->from.bytes != command->to.bytes || command->from.bytes == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a copy of %" PRIu64 " bytes to %" PRIu64, command->from.bytes,
                command->to.bytes);
    void *from;
    SL_TRY(sl_bound_plan_find_address(engine, bound, &command->from, &from));
    SL_TRY(sl_bound_plan_find_address(engine, bound, &command->to, &bound->ends.to));
    bound->ends.from = from;
    bound->bytes = command->from.bytes;
    return SL_OK;
}

static sl_status check_disk_copy(const sl_engine *engine, const sl_bound_command *bound,
                                 const sl_place *disk, const sl_place *host)
{
    const sl_command *command = bound->command;
    if (!bound->value_name && (unsigned)command->group >= SL_GROUP_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "a copy of chunk %u of group %d", command->chunk_index,
                (int)command->group);
    SL_TRY(sl_arena_check_slots(disk, SL_DISK_ALIGNMENT));
    SL_TRY(sl_arena_check_slots(host, SL_DIRECT_ALIGNMENT));
    if (disk->tier != SL_TIER_DISK || host->tier != SL_TIER_HOST || disk->bytes != host->bytes ||
        disk->bytes == 0 || !sl_disk_holds(engine, disk->offset, sl_place_extent(disk)) ||
        !sl_disk_is_aligned(host->offset, host->bytes))
        SL_FAIL(SL_ERROR_INTERNAL,
                "the %s lane cannot copy %" PRIu64 " bytes at %" PRIu64 " of tier %d to %" PRIu64
                " bytes at %" PRIu64 " of tier %d",
                sl_lane_name(command->lane), command->from.bytes, command->from.offset,
                (int)command->from.tier, command->to.bytes, command->to.offset,
                (int)command->to.tier);
    return SL_OK;
}

static sl_status bind_disk_copy(const sl_engine *engine, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    bool is_read = command->lane == SL_LANE_READ;
    const sl_place *disk = is_read ? &command->from : &command->to;
    const sl_place *host = is_read ? &command->to : &command->from;
    void *memory = NULL;
    SL_TRY(check_disk_copy(engine, bound, disk, host));
    SL_TRY(sl_arena_at(engine, host, &memory));
    if (is_read)
        bound->ends.to = memory;
    else
        bound->ends.from = memory;
    bound->ends.disk_offset = disk->offset;
    bound->bytes = disk->bytes;
    bound->touched_end[SL_TIER_DISK] = disk->offset + sl_place_extent(disk);
    bound->touched_end[SL_TIER_HOST] = host->offset + sl_place_extent(host);
    return SL_OK;
}

/* The name of an activation, input or output that is copied, for messages. */
static const char *find_value_name(const sl_program *program, const sl_command *command)
{
    bool is_value = command->chunk_index == SL_NONE && command->value < program->value_count;
    return is_value ? program->values[command->value].name : NULL;
}

sl_status sl_copies_bind(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    bound->value_name = find_value_name(plan->program, command);
    SL_TRY(is_disk_lane(command->lane) ? bind_disk_copy(engine, bound)
                                       : bind_memory_copy(engine, bound));
    SL_TRY(sl_bound_plan_add_stride(plan, bound, SL_BOUND_FROM, &command->from));
    return sl_bound_plan_add_stride(plan, bound, SL_BOUND_TO, &command->to);
}

/* ---- issuing ---- */

typedef struct disk_copy_args {
    sl_disk_copy copy;
    sl_store *store;
    _Atomic uint32_t *failed_lane;
} disk_copy_args;

_Static_assert(sizeof(disk_copy_args) <= SL_QUEUE_ARGUMENT_BYTES, "a copy fits a queue's item");

static sl_status run_disk_copy(void *arguments);

/* Moves both ends from repetition 0 to `repetition`. An end without memory is on disk. */
static void move_ends(const sl_bound_plan *plan, const sl_bound_command *bound, uint32_t repetition,
                      sl_copy_ends *ends)
{
    for (uint32_t i = 0; i < bound->stride_count; i++) {
        const sl_bound_stride *stride = &plan->strides[bound->first_stride + i];
        uint64_t bytes = sl_bound_stride_bytes(stride, repetition);
        if (stride->place == SL_BOUND_TO && ends->to)
            ends->to = (unsigned char *)ends->to + bytes;
        else if (stride->place == SL_BOUND_FROM && ends->from)
            ends->from = (const unsigned char *)ends->from + bytes;
        else
            ends->disk_offset += bytes;
    }
}

sl_status sl_copies_queue_disk_copy(sl_engine *engine, uint64_t tag, const sl_disk_copy *copy)
{
    disk_copy_args args = {*copy, engine->disk.store, &engine->failed_lane};
    return engine->ops->launch(engine->lanes[copy->lane].stream, tag, run_disk_copy, &args,
                               sizeof args);
}

static sl_status queue_memory_copy(sl_engine *engine, uint64_t tag, const sl_bound_command *bound,
                                   const sl_copy_ends *ends)
{
    sl_lane lane = bound->command->lane;
    sl_status status =
        engine->ops->copy(engine->lanes[lane].stream, tag, ends->to, ends->from, bound->bytes);
    if (status == SL_OK)
        return SL_OK;
    return sl_status_prefix(status, "a copy before op %u on the %s lane", bound->command->tick,
                            sl_lane_name(lane));
}

sl_status sl_copies_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                          uint64_t tag)
{
    const sl_command *command = bound->command;
    sl_copy_ends ends = bound->ends;
    move_ends(repetition->plan, bound, repetition->index, &ends);
    if (!is_disk_lane(command->lane))
        return queue_memory_copy(repetition->engine, tag, bound, &ends);
    sl_disk_copy copy = {.lane = command->lane,
                         .memory = ends.to ? ends.to : (void *)(uintptr_t)ends.from,
                         .offset = ends.disk_offset,
                         .bytes = bound->bytes,
                         .value_name = bound->value_name,
                         .group = command->group,
                         .chunk_index = command->chunk_index};
    return sl_copies_queue_disk_copy(repetition->engine, tag, &copy);
}

/* ---- in the threads of the lanes read and write ---- */

static sl_status explain_disk_failure(const disk_copy_args *args, sl_status status)
{
    const sl_disk_copy *copy = &args->copy;
    const char *verb = copy->lane == SL_LANE_READ ? "reading" : "writing";
    const char *lane = sl_lane_name(copy->lane);
    sl_step_mark_failed_lane(args->failed_lane, copy->lane);
    if (copy->value_name)
        return sl_status_prefix(status, "%s activation %s on the %s lane", verb, copy->value_name,
                                lane);
    return sl_status_prefix(status, "%s chunk %u of group %s on the %s lane", verb,
                            copy->chunk_index, sl_group_name(copy->group), lane);
}

static sl_status run_disk_copy(void *arguments)
{
    const disk_copy_args *args = arguments;
    const sl_disk_copy *copy = &args->copy;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration is lost */
    sl_status status = copy->lane == SL_LANE_READ
                           ? sl_store_read(args->store, copy->offset, copy->memory, copy->bytes)
                           : sl_store_write(args->store, copy->offset, copy->memory, copy->bytes);
    return status == SL_OK ? SL_OK : explain_disk_failure(args, status);
}
