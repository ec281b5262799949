/* Parts of chunks that live on disk, set and read between iterations, through the bounce pieces on
 * the host. Knows nothing of files and lanes' commands.
 *
 * A chunk's home is moved by the lanes as one stretch, which the store cuts at the borders of its
 * pieces, and it reads only what it wrote together. So whoever wants a few bytes moves a whole cut.
 *
 * There are two pieces so that a sequence streams: while the caller fills or empties one, the disk
 * writes the cut before or reads the one behind. A cut that was written up to its end is on its way
 * at once; one that was not stays here, for the next call likely goes on with it, until its piece
 * is needed, the engine drains or an iteration begins. What is written whole is not read before.
 *
 * Invariants: a piece with bytes > 0 holds one cut, as it is or will be on disk; is_dirty: the disk
 * does not have it yet and nobody has told it to; is_moving: lane `lane` may still use the memory.
 * Between iterations a cut is current in its piece if it has one, else on disk; during iterations
 * no piece holds any.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <string.h>

/* What lies in one piece of the store of a chunk's home, and what is wanted of it. */
typedef struct cut {
    uint64_t offset, bytes; /* in the store; all that is written together */
    uint64_t first, count;  /* in the cut */
} cut;

/* The cut that holds byte `done` of what is wanted. */
static cut find_cut(const sl_chunk_part *part, uint64_t done)
{
    const sl_place *home = &part->home;
    uint64_t at = home->offset + part->first_byte + done;
    uint64_t start = at - at % SL_PIECE_BYTES, end = start + SL_PIECE_BYTES;
    start = start < home->offset ? home->offset : start;
    end = end > home->offset + home->bytes ? home->offset + home->bytes : end;
    uint64_t left = part->bytes - done;
    uint64_t count = left < end - at ? left : end - at;
    return (cut){start, end - start, at - start, count};
}

static bool reaches_end(const cut *it)
{
    return it->first + it->count == it->bytes;
}

sl_status sl_bounce_open(sl_engine *engine)
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
        engine->bounce.pieces[i].memory = (unsigned char *)address + i * (uint64_t)SL_PIECE_BYTES;
    return SL_OK;
}

/* ---- one piece ---- */

static sl_status start_move(sl_engine *engine, sl_lane lane, sl_bounce_piece *piece)
{
    piece->lane = lane;
    piece->is_moving = true;
    sl_status status = sl_disk_move(engine, piece);
    if (status != SL_OK)
        piece->bytes = 0;
    return status;
}

static sl_status finish_move(sl_engine *engine, sl_bounce_piece *piece)
{
    if (!piece->is_moving)
        return SL_OK;
    piece->is_moving = false;
    sl_status status = engine->ops->stream_finish(engine->lanes[piece->lane].stream);
    if (status != SL_OK)
        piece->bytes = 0;
    return status;
}

static sl_status write_back(sl_engine *engine, sl_bounce_piece *piece)
{
    if (!piece->is_dirty)
        return SL_OK;
    piece->is_dirty = false;
    return start_move(engine, SL_LANE_WRITE, piece);
}

/* Makes room for another cut of `part`'s chunk, whose content is not here yet. */
static sl_status take_piece(sl_engine *engine, const sl_chunk_part *part, const cut *wanted,
                            sl_bounce_piece *piece)
{
    SL_TRY(write_back(engine, piece));
    SL_TRY(finish_move(engine, piece));
    piece->offset = wanted->offset;
    piece->bytes = wanted->bytes;
    piece->group = part->group;
    piece->chunk_index = part->chunk_index;
    return SL_OK;
}

/* ---- both ---- */

static sl_bounce_piece *find_held(sl_engine *engine, const cut *wanted)
{
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++) {
        sl_bounce_piece *piece = &engine->bounce.pieces[i];
        if (piece->bytes > 0 && piece->offset == wanted->offset)
            return piece;
    }
    return NULL;
}

/* The piece that was not used last. */
static sl_bounce_piece *other_piece(sl_engine *engine)
{
    return &engine->bounce.pieces[(engine->bounce.last + 1) % SL_BOUNCE_PIECES];
}

/* The one whose content costs nothing to give up; of two such, the one that was not used last. */
static sl_bounce_piece *choose_piece(sl_engine *engine)
{
    sl_bounce_piece *last = &engine->bounce.pieces[engine->bounce.last];
    sl_bounce_piece *other = other_piece(engine);
    return other->is_dirty && !last->is_dirty ? last : other;
}

/* Finds a piece for a cut, with the cut in it if `is_read`. */
static sl_status hold(sl_engine *engine, const sl_chunk_part *part, const cut *wanted, bool is_read,
                      sl_bounce_piece **out_piece)
{
    sl_bounce_piece *piece = find_held(engine, wanted);
    if (!piece) {
        piece = choose_piece(engine);
        SL_TRY(take_piece(engine, part, wanted, piece));
        if (is_read)
            SL_TRY(start_move(engine, SL_LANE_READ, piece));
    }
    if (piece->lane == SL_LANE_READ) /* what is only being written may be read */
        SL_TRY(finish_move(engine, piece));
    engine->bounce.last = (uint32_t)(piece - engine->bounce.pieces);
    *out_piece = piece;
    return SL_OK;
}

/* Starts reading the cut behind the one in use, into the other piece, if that is free. */
static sl_status read_ahead(sl_engine *engine, const sl_chunk_part *part, const cut *current)
{
    sl_bounce_piece *piece = other_piece(engine);
    uint64_t next = current->offset + current->bytes - part->home.offset;
    if (next >= part->home.bytes || piece->is_dirty)
        return SL_OK;
    sl_chunk_part rest = *part;
    rest.first_byte = next;
    rest.bytes = 1;
    cut behind = find_cut(&rest, 0);
    if (find_held(engine, &behind))
        return SL_OK;
    SL_TRY(take_piece(engine, &rest, &behind, piece));
    return start_move(engine, SL_LANE_READ, piece);
}

sl_status sl_bounce_read(sl_engine *engine, const sl_chunk_part *part, void *data)
{
    for (uint64_t done = 0; done < part->bytes;) {
        cut current = find_cut(part, done);
        sl_bounce_piece *piece = NULL;
        SL_TRY(hold(engine, part, &current, true, &piece));
        if (reaches_end(&current))
            SL_TRY(read_ahead(engine, part, &current));
        memcpy((char *)data + done, piece->memory + current.first, current.count);
        done += current.count;
    }
    return SL_OK;
}

/* Waits for the other piece first: the next cut goes there, and must not wait for this one too. */
static sl_status send_off(sl_engine *engine, sl_bounce_piece *piece)
{
    SL_TRY(finish_move(engine, other_piece(engine)));
    return write_back(engine, piece);
}

sl_status sl_bounce_write(sl_engine *engine, const sl_chunk_part *part, const void *data)
{
    for (uint64_t done = 0; done < part->bytes;) {
        cut current = find_cut(part, done);
        sl_bounce_piece *piece = NULL;
        SL_TRY(hold(engine, part, &current, current.count < current.bytes, &piece));
        SL_TRY(finish_move(engine, piece));
        memcpy(piece->memory + current.first, (const char *)data + done, current.count);
        piece->is_dirty = true;
        if (reaches_end(&current))
            SL_TRY(send_off(engine, piece));
        done += current.count;
    }
    return SL_OK;
}

sl_status sl_bounce_flush(sl_engine *engine)
{
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        SL_TRY(write_back(engine, &engine->bounce.pieces[i]));
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        SL_TRY(finish_move(engine, &engine->bounce.pieces[i]));
    return SL_OK;
}

sl_status sl_bounce_empty(sl_engine *engine)
{
    SL_TRY(sl_bounce_flush(engine));
    for (uint32_t i = 0; i < SL_BOUNCE_PIECES; i++)
        engine->bounce.pieces[i].bytes = 0;
    return SL_OK;
}
