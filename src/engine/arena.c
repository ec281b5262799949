/* The arenas: one range of memory a tier, as large as the largest peak of the engine's plans.
 * Addresses are made here and nowhere else. Knows nothing of commands. */
#include "engine_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"

enum { PLACE_ALIGNMENT = 256, CLEAR_BYTES = 1 << 16 };

static int map_flags(const sl_engine *engine)
{
    return engine->options.guard_arenas ? SL_MAP_GUARDS | SL_MAP_PATTERN : SL_MAP_PLAIN;
}

uint64_t sl_arena_need(const sl_engine_options *options, sl_tier tier)
{
    uint64_t need = options->homes->fixed_bytes[tier];
    for (uint32_t i = 0; i < options->plan_count; i++) {
        uint64_t peak = options->plans[i].plan->peak_bytes[tier];
        need = peak > need ? peak : need;
    }
    return need;
}

/* Rounds up to whole pages, so that the base of guarded memory is page aligned too. */
static sl_status map_arena(sl_engine *engine, sl_tier tier, uint64_t bytes, uint64_t alignment)
{
    sl_arena *arena = &engine->arenas[tier];
    uint64_t padded;
    uint64_t more_bytes = engine->options.paint_arenas ? SL_PAINT_BEYOND_BYTES : 0;
    SL_TRY(sl_bits_add(bytes, alignment - 1 + more_bytes, "the arena", &padded));
    uint64_t mapped_bytes = padded / alignment * alignment;
    void *base;
    sl_status status =
        tier == SL_TIER_DEVICE
            ? engine->ops->map(engine->device, mapped_bytes, map_flags(engine), &base)
            : engine->ops->map_host(engine->device, mapped_bytes, map_flags(engine), &base);
    if (status != SL_OK)
        return sl_status_prefix(status, "the %s arena", sl_tier_name(tier));
    arena->base = base;
    arena->bytes = bytes;
    arena->mapped_bytes = mapped_bytes;
    return SL_OK;
}

sl_status sl_arena_open(sl_engine *engine, const sl_engine_options *options)
{
    bool has_disk = sl_arena_need(options, SL_TIER_DISK) > 0;
    for (int tier = 0; tier < SL_ARENA_COUNT; tier++) {
        uint64_t need = sl_arena_need(options, (sl_tier)tier);
        bool is_direct = has_disk && tier == SL_TIER_HOST;
        if (need > 0)
            SL_TRY(map_arena(engine, (sl_tier)tier, need,
                             is_direct ? SL_DIRECT_ALIGNMENT : PLACE_ALIGNMENT));
    }
    return SL_OK;
}

void sl_arena_close(sl_engine *engine)
{
    sl_arena *device = &engine->arenas[SL_TIER_DEVICE];
    sl_arena *host = &engine->arenas[SL_TIER_HOST];
    if (device->base)
        engine->ops->unmap(engine->device, device->base, device->mapped_bytes, map_flags(engine));
    if (host->base && engine->disk.abandoned_count == 0)
        engine->ops->unmap_host(engine->device, host->base, host->mapped_bytes, map_flags(engine));
}

sl_status sl_arena_check_slots(const sl_place *place, uint64_t alignment)
{
    uint64_t extent;
    if (place->slots <= 1 || place->bytes == 0)
        return SL_OK;
    bool overflows = __builtin_mul_overflow(place->slots - 1, place->stride, &extent) ||
                     __builtin_add_overflow(extent, place->bytes, &extent);
    if (overflows || place->stride < place->bytes || place->stride % alignment != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "%u slots of %" PRIu64 " bytes, %" PRIu64 " bytes apart",
                place->slots, place->bytes, place->stride);
    return SL_OK;
}

sl_status sl_arena_at(const sl_engine *engine, const sl_place *place, void **out_address)
{
    if ((unsigned)place->tier >= SL_ARENA_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "a place in tier %d, which has no arena", (int)place->tier);
    const sl_arena *arena = &engine->arenas[place->tier];
    uint64_t end;
    SL_TRY(sl_arena_check_slots(place, PLACE_ALIGNMENT));
    uint64_t bytes = sl_place_extent(place);
    if (__builtin_add_overflow(place->offset, bytes, &end) || end > arena->bytes)
        SL_FAIL(SL_ERROR_INTERNAL,
                "a place of %" PRIu64 " bytes at %" PRIu64 " is outside the %s arena of %" PRIu64
                " bytes",
                bytes, place->offset, sl_tier_name(place->tier), arena->bytes);
    *out_address = arena->base + place->offset;
    return SL_OK;
}

/* Queues one copy that no counter sees; its host side may be any memory. */
static sl_status queue_copy(sl_engine *engine, sl_lane lane, void *to, const void *from,
                            uint64_t bytes)
{
    uint64_t tag = sl_statistics_tag(SL_TAG_UNCOUNTED);
    return engine->ops->copy(engine->lanes[lane].stream, tag, to, from, bytes);
}

sl_status sl_arena_move(sl_engine *engine, sl_tier tier, sl_lane lane, void *to, const void *from,
                        uint64_t bytes)
{
    if (tier == SL_TIER_HOST) {
        memcpy(to, from, bytes);
        return SL_OK;
    }
    SL_TRY(queue_copy(engine, lane, to, from, bytes));
    return engine->ops->stream_finish(engine->lanes[lane].stream);
}

sl_status sl_arena_write(sl_engine *engine, const sl_place *place, const void *data)
{
    void *address = NULL;
    SL_TRY(sl_arena_at(engine, place, &address));
    return sl_arena_move(engine, place->tier, SL_LANE_H2D, address, data, place->bytes);
}

sl_status sl_arena_read(sl_engine *engine, const sl_place *place, void *data)
{
    void *address = NULL;
    SL_TRY(sl_arena_at(engine, place, &address));
    return sl_arena_move(engine, place->tier, SL_LANE_D2H, data, address, place->bytes);
}

sl_status sl_arena_clear(sl_engine *engine, const sl_place *place)
{
    static const unsigned char zeros[CLEAR_BYTES];
    void *address = NULL;
    SL_TRY(sl_arena_at(engine, place, &address));
    if (place->tier == SL_TIER_HOST) {
        memset(address, 0, place->bytes);
        return SL_OK;
    }
    unsigned char *to = address;
    for (uint64_t done = 0; done < place->bytes; done += CLEAR_BYTES) {
        uint64_t left = place->bytes - done;
        uint64_t bytes = left < CLEAR_BYTES ? left : CLEAR_BYTES;
        SL_TRY(queue_copy(engine, SL_LANE_H2D, to + done, zeros, bytes));
    }
    return engine->ops->stream_finish(engine->lanes[SL_LANE_H2D].stream);
}

const void *sl_engine_arena(const sl_engine *engine, sl_tier tier)
{
    return (unsigned)tier < SL_ARENA_COUNT ? engine->arenas[tier].base : NULL;
}
