/* Which bytes of an arena were written: the arena is painted (filled with one byte value, COLOUR)
 * when the engine opens, and a byte with another value was written. A page of 4 KiB that is written
 * with COLOUR in every byte is missed; no numbers of a training fill a page so.
 *
 * SL_PAINT_BEYOND_BYTES behind the arena are painted too: a change there is a write beyond the
 * plan. Knows nothing of commands.
 */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

enum { COLOUR = 0xC7, PAGE_BYTES = 4096, PIECE_BYTES = 1 << 20 };

/* Bytes [first, first + bytes) of a tier's arena, and host memory of as many bytes. */
typedef struct paint_piece {
    sl_tier tier;
    uint64_t first, bytes;
    unsigned char *memory;
} paint_piece;

static paint_piece next_piece(sl_tier tier, uint64_t first, uint64_t end, unsigned char *memory)
{
    uint64_t left = end - first;
    return (paint_piece){tier, first, left < PIECE_BYTES ? left : PIECE_BYTES, memory};
}

/* Does not check the arena's bounds, because a piece may lie beyond them. */
static sl_status move_piece(sl_engine *engine, const paint_piece *piece, bool to_arena)
{
    unsigned char *at = engine->arenas[piece->tier].base + piece->first;
    return to_arena
               ? sl_arena_move(engine, piece->tier, SL_LANE_H2D, at, piece->memory, piece->bytes)
               : sl_arena_move(engine, piece->tier, SL_LANE_D2H, piece->memory, at, piece->bytes);
}

/* ---- painting ---- */

static sl_status paint_arena(sl_engine *engine, sl_tier tier, unsigned char *memory)
{
    uint64_t end = engine->arenas[tier].mapped_bytes;
    for (uint64_t first = 0; first < end; first += PIECE_BYTES) {
        const paint_piece piece = next_piece(tier, first, end, memory);
        SL_TRY(move_piece(engine, &piece, true));
    }
    return SL_OK;
}

static sl_status take_memory(unsigned char **out_memory)
{
    *out_memory = malloc(PIECE_BYTES);
    if (!*out_memory)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to look at an arena");
    return SL_OK;
}

sl_status sl_paint_arenas(sl_engine *engine)
{
    unsigned char *memory = NULL;
    sl_status status = take_memory(&memory);
    if (status == SL_OK)
        memset(memory, COLOUR, PIECE_BYTES);
    for (int tier = 0; tier < SL_ARENA_COUNT && status == SL_OK; tier++)
        if (engine->arenas[tier].base)
            status = paint_arena(engine, (sl_tier)tier, memory);
    free(memory);
    return status;
}

/* ---- looking ---- */

/* Bytes of a page up to the last changed one; 0: none changed. */
static uint64_t find_changed_end(const unsigned char *page, uint64_t bytes)
{
    while (bytes > 0 && page[bytes - 1] == COLOUR)
        bytes--;
    return bytes;
}

static void look_at_page(const unsigned char *page, uint64_t first, uint64_t bytes,
                         sl_engine_paint *paint)
{
    uint64_t end = find_changed_end(page, bytes);
    if (end == 0)
        return;
    paint->peak_bytes = first + end;
    if (first < paint->arena_bytes)
        paint->changed_bytes +=
            paint->arena_bytes - first < bytes ? paint->arena_bytes - first : bytes;
}

static sl_status look_at_arena(sl_engine *engine, sl_tier tier, unsigned char *memory,
                               sl_engine_paint *paint)
{
    for (uint64_t first = 0; first < paint->painted_bytes; first += PIECE_BYTES) {
        const paint_piece piece = next_piece(tier, first, paint->painted_bytes, memory);
        SL_TRY(move_piece(engine, &piece, false));
        for (uint64_t at = 0; at < piece.bytes; at += PAGE_BYTES) {
            uint64_t bytes = piece.bytes - at < PAGE_BYTES ? piece.bytes - at : PAGE_BYTES;
            look_at_page(memory + at, first + at, bytes, paint);
        }
    }
    return SL_OK;
}

sl_status sl_engine_measure_arena(sl_engine *engine, sl_tier tier, sl_engine_paint *out_paint)
{
    unsigned char *memory = NULL;
    if ((unsigned)tier >= SL_ARENA_COUNT || !engine->options.paint_arenas)
        SL_FAIL(SL_ERROR_INTERNAL, "the arena of tier %d was not painted", (int)tier);
    const sl_arena *arena = &engine->arenas[tier];
    sl_engine_paint paint = {.arena_bytes = arena->bytes, .painted_bytes = arena->mapped_bytes};
    SL_TRY(sl_engine_drain(engine));
    if (arena->base) {
        SL_TRY(take_memory(&memory));
        sl_status status = look_at_arena(engine, tier, memory, &paint);
        free(memory);
        SL_TRY(status);
    }
    *out_paint = paint;
    return SL_OK;
}
