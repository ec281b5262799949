/* The disk tier: opens the store over the host arena and runs the copies of the lanes read and
 * write. Knows nothing of files.
 *
 * The store is called from the two lanes' threads only, so each of its lanes has one user.
 */
#include "engine_internal.h"

#include <inttypes.h>

#include "base/bits.h"

_Static_assert((int)SL_PIECE_BYTES == (int)SL_STORE_PIECE_BYTES, "homes and store agree");
_Static_assert((int)SL_DIRECT_ALIGNMENT == (int)SL_STORE_ALIGNMENT, "homes and store agree");

static bool is_direct(uint64_t offset, uint64_t bytes)
{
    return offset % SL_DIRECT_ALIGNMENT == 0 && bytes % SL_DIRECT_ALIGNMENT == 0;
}

/* True if a stretch is inside the disk tier and the store can reach it. */
static bool is_on_disk(const sl_engine *engine, uint64_t offset, uint64_t bytes)
{
    uint64_t end;
    return is_direct(offset, bytes) && !__builtin_add_overflow(offset, bytes, &end) &&
           end <= engine->disk.bytes;
}

/* ---- opening and closing ---- */

static sl_status check_homes(const sl_engine *engine, bool *out_has_chunk)
{
    const sl_homes *homes = engine->options.homes;
    *out_has_chunk = false;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            uint64_t bytes = sl_layout_chunk_bytes(engine->options.layout, (sl_group)group);
            if (homes->tier[group][i] != SL_TIER_DISK)
                continue;
            if (!is_on_disk(engine, homes->offset[group][i], bytes))
                SL_FAIL(SL_ERROR_INTERNAL,
                        "chunk %u of %s: %" PRIu64 " bytes at %" PRIu64
                        " are not whole sectors of the disk tier",
                        i, sl_group_name((sl_group)group), bytes, homes->offset[group][i]);
            *out_has_chunk = true;
        }
    }
    return SL_OK;
}

static sl_status open_store(sl_engine *engine, const sl_engine_options *options,
                            const sl_engine_parts *parts)
{
    const sl_arena *host = &engine->arenas[SL_TIER_HOST];
    sl_store_options store = {.directories = options->disk_directories,
                              .directory_count = options->disk_directory_count,
                              .bytes = engine->disk.bytes,
                              .buffer = host->base,
                              .buffer_bytes = host->mapped_bytes,
                              .depth = parts->disk_depth,
                              .limit_ms = parts->disk_limit_ms,
                              .transport = parts->transport};
    sl_status status = sl_store_open(&store, &engine->disk.store);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "the disk tier");
}

sl_status sl_disk_open(sl_engine *engine, const sl_engine_options *options,
                       const sl_engine_parts *parts)
{
    uint64_t need = sl_arena_need(options, SL_TIER_DISK);
    if (need == 0)
        return SL_OK;
    if (options->disk_directory_count == 0 || !options->disk_directories)
        SL_FAIL(SL_ERROR_USAGE,
                "the disk tier takes %" PRIu64 " bytes: say where with --disk-dir DIR", need);
    SL_TRY(sl_bits_add(need, SL_DIRECT_ALIGNMENT - 1, "the disk tier", &engine->disk.bytes));
    engine->disk.bytes -= engine->disk.bytes % SL_DIRECT_ALIGNMENT;
    bool has_chunk;
    SL_TRY(check_homes(engine, &has_chunk));
    if (has_chunk)
        SL_TRY(sl_bounce_open(engine));
    return open_store(engine, options, parts);
}

void sl_disk_close(sl_engine *engine)
{
    sl_store_close(engine->disk.store);
}

const char *sl_engine_disk_description(const sl_engine *engine)
{
    return engine->disk.store ? sl_store_description(engine->disk.store) : "";
}

/* ---- in the lanes' threads ---- */

/* One copy of a lane. */
typedef struct disk_job {
    sl_store *store;
    sl_lane lane; /* READ: to memory */
    void *memory;
    uint64_t offset, bytes;
    const char *value_name; /* NULL: a chunk */
    sl_group group;
    uint32_t chunk_index;
    _Atomic uint32_t *failed_lane;
} disk_job;

_Static_assert(sizeof(disk_job) <= SL_QUEUE_ARGUMENT_BYTES, "a job fits a queue's item");

static sl_status explain_failure(const disk_job *job, sl_status status)
{
    const char *verb = job->lane == SL_LANE_READ ? "reading" : "writing";
    const char *lane = sl_lane_name(job->lane);
    sl_walk_note_failure(job->failed_lane, job->lane);
    if (job->value_name)
        return sl_status_prefix(status, "%s activation %s on the %s lane", verb, job->value_name,
                                lane);
    return sl_status_prefix(status, "%s chunk %u of group %s on the %s lane", verb,
                            job->chunk_index, sl_group_name(job->group), lane);
}

static sl_status run_job(void *arguments)
{
    const disk_job *job = arguments;
    if (atomic_load(job->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration is lost */
    sl_status status = job->lane == SL_LANE_READ
                           ? sl_store_read(job->store, job->offset, job->memory, job->bytes)
                           : sl_store_write(job->store, job->offset, job->memory, job->bytes);
    return status == SL_OK ? SL_OK : explain_failure(job, status);
}

/* ---- commands ---- */

/* Writes the address on the host and the offset on disk of a copy's two ends. */
static sl_status bind_ends(const sl_engine *engine, sl_bound_command *bound, void **out_memory)
{
    const sl_command *command = bound->command;
    bool is_read = command->lane == SL_LANE_READ;
    const sl_place *disk = is_read ? &command->from : &command->to;
    const sl_place *host = is_read ? &command->to : &command->from;
    SL_TRY(sl_sections_check_slots(disk, SL_DIRECT_ALIGNMENT));
    SL_TRY(sl_sections_check_slots(host, SL_DIRECT_ALIGNMENT));
    if (disk->tier != SL_TIER_DISK || host->tier != SL_TIER_HOST || disk->bytes != host->bytes ||
        disk->bytes == 0 || !is_on_disk(engine, disk->offset, sl_place_extent(disk)) ||
        !is_direct(host->offset, host->bytes))
        SL_FAIL(SL_ERROR_INTERNAL,
                "the %s lane cannot copy %" PRIu64 " bytes at %" PRIu64 " of tier %d to %" PRIu64
                " bytes at %" PRIu64 " of tier %d",
                sl_lane_name(command->lane), command->from.bytes, command->from.offset,
                (int)command->from.tier, command->to.bytes, command->to.offset,
                (int)command->to.tier);
    SL_TRY(sl_arena_at(engine, host, out_memory));
    bound->ends.disk_offset = disk->offset;
    bound->bytes = disk->bytes;
    bound->touched_end[SL_TIER_DISK] = disk->offset + sl_place_extent(disk);
    bound->touched_end[SL_TIER_HOST] = host->offset + sl_place_extent(host);
    return SL_OK;
}

sl_status sl_disk_bind(const sl_engine *engine, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    void *memory = NULL;
    if (!bound->value_name && (unsigned)command->group >= SL_GROUP_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "a copy of chunk %u of group %d", command->chunk_index,
                (int)command->group);
    SL_TRY(bind_ends(engine, bound, &memory));
    if (command->lane == SL_LANE_READ)
        bound->ends.to = memory;
    else
        bound->ends.from = memory;
    return SL_OK;
}

sl_status sl_disk_issue(sl_engine *engine, const sl_bound_command *bound, uint64_t tag,
                        const sl_bound_ends *ends)
{
    const sl_command *command = bound->command;
    bool is_read = command->lane == SL_LANE_READ;
    disk_job job = {.store = engine->disk.store,
                    .lane = command->lane,
                    .memory = is_read ? ends->to : (void *)ends->from,
                    .offset = ends->disk_offset,
                    .bytes = bound->bytes,
                    .value_name = bound->value_name,
                    .group = command->group,
                    .chunk_index = command->chunk_index,
                    .failed_lane = &engine->failed_lane};
    return engine->ops->launch(engine->lanes[command->lane].stream, tag, run_job, &job, sizeof job);
}

/* ---- parts of chunks ---- */

sl_status sl_disk_move(sl_engine *engine, const sl_bounce_piece *piece)
{
    disk_job job = {.store = engine->disk.store,
                    .lane = piece->lane,
                    .memory = piece->memory,
                    .offset = piece->offset,
                    .bytes = piece->bytes,
                    .group = piece->group,
                    .chunk_index = piece->chunk_index,
                    .failed_lane = &engine->failed_lane};
    uint64_t tag = sl_measure_tag(SL_TAG_UNCOUNTED);
    return engine->ops->launch(engine->lanes[piece->lane].stream, tag, run_job, &job, sizeof job);
}
