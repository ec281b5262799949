/* The disk tier: opens its store, and reads and writes ranges of chunks on disk between iterations,
 * through the bounce pieces on the host. Knows nothing of files and of the lanes' commands.
 *
 * The store moves whole pages from aligned offsets. So a range is copied window by window: a window
 * is the bytes of a chunk's home that lie in one piece of the store, and is one request.
 *
 * There are two bounce pieces so that sequential access overlaps with the disk: while the caller
 * fills or empties one, the disk writes the window before or reads the one after. A window that was
 * written to its end is sent to the disk at once. A window that was not stays in its piece, because
 * the next call probably continues it, until the piece is needed, the engine drains or an iteration
 * begins. A window that is written whole is not read first.
 *
 * Invariants: a piece with bytes > 0 holds one window, as it is or will be on disk; is_dirty: the
 * disk does not have the window yet and its write is not queued; is_moving: lane `copy.lane` may
 * still use the memory. Between iterations a window is current in the piece that holds it, else on
 * disk; during iterations no piece holds a window.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"

_Static_assert((int)SL_PIECE_BYTES == (int)SL_STORE_PIECE_BYTES, "homes and store agree");
_Static_assert((int)SL_DIRECT_ALIGNMENT == (int)SL_STORE_ALIGNMENT, "homes and store agree");
_Static_assert((int)SL_DISK_ALIGNMENT == (int)SL_STORE_RECORD_BYTES, "homes and store agree");

bool sl_disk_is_aligned(uint64_t offset, uint64_t bytes)
{
    return offset % SL_DIRECT_ALIGNMENT == 0 && bytes % SL_DIRECT_ALIGNMENT == 0;
}

bool sl_disk_holds(const sl_engine *engine, uint64_t offset, uint64_t bytes)
{
    uint64_t end;
    return offset % SL_DISK_ALIGNMENT == 0 && bytes % SL_DIRECT_ALIGNMENT == 0 &&
           !__builtin_add_overflow(offset, bytes, &end) && end <= engine->disk.bytes;
}

/* ---- opening and closing ---- */

/* Finds the bounce pieces in the host arena. Called if a chunk lives on disk. */
static sl_status find_pieces(sl_engine *engine)
{
    const sl_homes *homes = engine->options.homes;
    sl_place place = {SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes};
    void *address = NULL;
    if (place.bytes < SL_BOUNCE_BYTES || place.offset % SL_DIRECT_ALIGNMENT != 0)
        SL_FAIL(SL_ERROR_INTERNAL,
                "%" PRIu64 " bytes at %" PRIu64 " on the host for bounce pieces, not %d",
                place.bytes, place.offset, SL_BOUNCE_BYTES);
    SL_TRY(sl_arena_at(engine, &place, &address));
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        engine->disk.pieces[i].copy.memory =
            (unsigned char *)address + i * (uint64_t)SL_PIECE_BYTES;
    return SL_OK;
}

static sl_status check_homes(const sl_engine *engine, bool *out_has_chunk)
{
    const sl_homes *homes = engine->options.homes;
    *out_has_chunk = false;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            uint64_t bytes = sl_layout_chunk_bytes(engine->options.layout, (sl_group)group, i);
            if (homes->tier[group][i] != SL_TIER_DISK)
                continue;
            if (!sl_disk_holds(engine, homes->offset[group][i], bytes))
                SL_FAIL(SL_ERROR_INTERNAL,
                        "chunk %u of %s: %" PRIu64 " bytes at %" PRIu64
                        " are no home on the disk tier",
                        i, sl_group_name((sl_group)group), bytes, homes->offset[group][i]);
            *out_has_chunk = true;
        }
    }
    return SL_OK;
}

/* A range of the host arena; empty: end 0. */
typedef struct host_range {
    uint64_t start, end;
} host_range;

static void add_to_range(host_range *range, uint64_t offset, uint64_t bytes)
{
    bool is_empty = range->end == 0;
    range->start = is_empty || offset < range->start ? offset : range->start;
    range->end = offset + bytes > range->end ? offset + bytes : range->end;
}

static void add_commands_to_range(host_range *range, const sl_command *commands, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const sl_command *command = &commands[i];
        if (command->lane == SL_LANE_READ)
            add_to_range(range, command->to.offset, sl_place_extent(&command->to));
        if (command->lane == SL_LANE_WRITE)
            add_to_range(range, command->from.offset, sl_place_extent(&command->from));
    }
}

/* The range of the host arena that disk transfers use. Only this is registered, because registered
 * memory counts against the limit of locked memory. Plans are not checked yet, so the range is cut
 * to the arena. */
static host_range find_transfer_range(const sl_engine *engine, const sl_engine_options *options)
{
    const sl_homes *homes = engine->options.homes;
    const uint64_t bytes = engine->arenas[SL_TIER_HOST].mapped_bytes;
    host_range range = {0};
    if (homes->bounce_bytes > 0)
        add_to_range(&range, homes->bounce_offset, homes->bounce_bytes);
    for (uint32_t i = 0; i < options->plan_count; i++) {
        const sl_plan *plan = options->plans[i].plan;
        add_commands_to_range(&range, plan->prologue, plan->prologue_count);
        add_commands_to_range(&range, plan->body, plan->body_count);
    }
    range.end = sl_bits_round_up(range.end, SL_DIRECT_ALIGNMENT);
    range.end = range.end < bytes ? range.end : bytes;
    range.start = range.start - range.start % SL_DIRECT_ALIGNMENT;
    range.start = range.start < range.end ? range.start : range.end;
    return range;
}

static sl_status open_store(sl_engine *engine, const sl_engine_options *options,
                            const sl_engine_parts *parts)
{
    const host_range range = find_transfer_range(engine, options);
    const bool has_range = range.end > range.start;
    sl_store_options store = {.directories = options->disk_directories,
                              .directory_count = options->disk_directory_count,
                              .bytes = engine->disk.bytes,
                              .buffer = has_range ? engine->arenas[SL_TIER_HOST].base + range.start
                                                  : NULL,
                              .buffer_bytes = range.end - range.start,
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
        SL_TRY(find_pieces(engine));
    return open_store(engine, options, parts);
}

void sl_disk_close(sl_engine *engine)
{
    engine->disk.abandoned_count = sl_store_close(engine->disk.store);
}

const char *sl_engine_disk_description(const sl_engine *engine)
{
    return engine->disk.store ? sl_store_description(engine->disk.store) : "";
}

/* ---- ranges of chunks: windows ---- */

/* The bytes of a chunk's home in one piece of the store, and the wanted bytes among them. */
typedef struct window {
    uint64_t offset, bytes; /* in the store */
    uint64_t first, count;  /* wanted bytes, in the window */
} window;

/* The window that holds byte `done` of the range. */
static window find_window(const sl_chunk_range *range, uint64_t done)
{
    const sl_place *home = &range->home;
    uint64_t at = home->offset + range->first_byte + done;
    uint64_t start = at - at % SL_PIECE_BYTES, end = start + SL_PIECE_BYTES;
    start = start < home->offset ? home->offset : start;
    end = end > home->offset + home->bytes ? home->offset + home->bytes : end;
    uint64_t left = range->bytes - done;
    uint64_t count = left < end - at ? left : end - at;
    return (window){start, end - start, at - start, count};
}

static bool reaches_end(const window *of)
{
    return of->first + of->count == of->bytes;
}

/* ---- ranges of chunks: one bounce piece ---- */

static sl_status start_piece_copy(sl_engine *engine, sl_lane lane, sl_bounce_piece *piece)
{
    piece->copy.lane = lane;
    piece->is_moving = true;
    uint64_t tag = sl_statistics_tag(SL_TAG_UNCOUNTED);
    sl_status status = sl_copies_queue_disk_copy(engine, tag, &piece->copy);
    if (status != SL_OK)
        piece->copy.bytes = 0;
    return status;
}

static sl_status finish_piece_copy(sl_engine *engine, sl_bounce_piece *piece)
{
    if (!piece->is_moving)
        return SL_OK;
    piece->is_moving = false;
    sl_status status = engine->ops->stream_finish(engine->lanes[piece->copy.lane].stream);
    if (status != SL_OK)
        piece->copy.bytes = 0;
    return status;
}

static sl_status write_piece(sl_engine *engine, sl_bounce_piece *piece)
{
    if (!piece->is_dirty)
        return SL_OK;
    piece->is_dirty = false;
    return start_piece_copy(engine, SL_LANE_WRITE, piece);
}

/* Assigns the piece to another window of `range`'s chunk; the content is not read yet. */
static sl_status assign_piece(sl_engine *engine, const sl_chunk_range *range, const window *wanted,
                              sl_bounce_piece *piece)
{
    SL_TRY(write_piece(engine, piece));
    SL_TRY(finish_piece_copy(engine, piece));
    piece->copy.offset = wanted->offset;
    piece->copy.bytes = wanted->bytes;
    piece->copy.group = range->group;
    piece->copy.chunk_index = range->chunk_index;
    return SL_OK;
}

/* ---- ranges of chunks: both pieces ---- */

static sl_bounce_piece *find_piece(sl_engine *engine, const window *wanted)
{
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++) {
        sl_bounce_piece *piece = &engine->disk.pieces[i];
        if (piece->copy.bytes > 0 && piece->copy.offset == wanted->offset)
            return piece;
    }
    return NULL;
}

/* The piece that was not used last. */
static sl_bounce_piece *other_piece(sl_engine *engine)
{
    return &engine->disk.pieces[(engine->disk.last_piece + 1) % SL_BOUNCE_PIECES];
}

/* A piece whose content need not be written, else or of two such the one that was not used last. */
static sl_bounce_piece *choose_piece(sl_engine *engine)
{
    sl_bounce_piece *last = &engine->disk.pieces[engine->disk.last_piece];
    sl_bounce_piece *other = other_piece(engine);
    return other->is_dirty && !last->is_dirty ? last : other;
}

/* Finds a piece for a window, and reads the window into it if `is_read`. */
static sl_status hold_window(sl_engine *engine, const sl_chunk_range *range, const window *wanted,
                             bool is_read, sl_bounce_piece **out_piece)
{
    sl_bounce_piece *piece = find_piece(engine, wanted);
    if (!piece) {
        piece = choose_piece(engine);
        SL_TRY(assign_piece(engine, range, wanted, piece));
        if (is_read)
            SL_TRY(start_piece_copy(engine, SL_LANE_READ, piece));
    }
    if (piece->copy.lane == SL_LANE_READ) /* memory that is being written to disk may be read */
        SL_TRY(finish_piece_copy(engine, piece));
    engine->disk.last_piece = (uint32_t)(piece - engine->disk.pieces);
    *out_piece = piece;
    return SL_OK;
}

/* Starts reading the next window into the other piece, if that piece is free. */
static sl_status read_next_window(sl_engine *engine, const sl_chunk_range *range,
                                  const window *current)
{
    sl_bounce_piece *piece = other_piece(engine);
    uint64_t next = current->offset + current->bytes - range->home.offset;
    if (next >= range->home.bytes || piece->is_dirty)
        return SL_OK;
    sl_chunk_range rest = *range;
    rest.first_byte = next;
    rest.bytes = 1;
    window behind = find_window(&rest, 0);
    if (find_piece(engine, &behind))
        return SL_OK;
    SL_TRY(assign_piece(engine, &rest, &behind, piece));
    return start_piece_copy(engine, SL_LANE_READ, piece);
}

sl_status sl_disk_read_range(sl_engine *engine, const sl_chunk_range *range, void *data)
{
    for (uint64_t done = 0; done < range->bytes;) {
        window current = find_window(range, done);
        sl_bounce_piece *piece = NULL;
        SL_TRY(hold_window(engine, range, &current, true, &piece));
        if (reaches_end(&current))
            SL_TRY(read_next_window(engine, range, &current));
        memcpy((char *)data + done, (char *)piece->copy.memory + current.first, current.count);
        done += current.count;
    }
    return SL_OK;
}

/* Waits for the other piece first: the next window goes there, and should not also wait for this
 * write.
 */
static sl_status write_full_piece(sl_engine *engine, sl_bounce_piece *piece)
{
    SL_TRY(finish_piece_copy(engine, other_piece(engine)));
    return write_piece(engine, piece);
}

sl_status sl_disk_write_range(sl_engine *engine, const sl_chunk_range *range, const void *data)
{
    for (uint64_t done = 0; done < range->bytes;) {
        window current = find_window(range, done);
        sl_bounce_piece *piece = NULL;
        SL_TRY(hold_window(engine, range, &current, current.count < current.bytes, &piece));
        SL_TRY(finish_piece_copy(engine, piece));
        memcpy((char *)piece->copy.memory + current.first, (const char *)data + done,
               current.count);
        piece->is_dirty = true;
        if (reaches_end(&current))
            SL_TRY(write_full_piece(engine, piece));
        done += current.count;
    }
    return SL_OK;
}

sl_status sl_disk_flush_pieces(sl_engine *engine)
{
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        SL_TRY(write_piece(engine, &engine->disk.pieces[i]));
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        SL_TRY(finish_piece_copy(engine, &engine->disk.pieces[i]));
    return SL_OK;
}

sl_status sl_disk_release_pieces(sl_engine *engine)
{
    SL_TRY(sl_disk_flush_pieces(engine));
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        engine->disk.pieces[i].copy.bytes = 0;
    return SL_OK;
}
