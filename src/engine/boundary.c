/* Chunks and persistent slots between iterations: finds, reads and writes them.
 *
 * Everything here runs in the boundary state, in which chunks are current at their homes. Memory is
 * reached through arena.c, the disk through disk.c.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/heartbeat.h"

enum { COPY_BYTES = 1 << 16 };

/* ---- opening ---- */

static sl_status find_home(const sl_engine *engine, sl_group group, uint32_t chunk_index,
                           sl_place *out_place)
{
    const sl_homes *homes = engine->options.homes;
    if ((unsigned)group >= SL_GROUP_COUNT || !homes->tier[group] ||
        chunk_index >= homes->chunk_count)
        SL_FAIL(SL_ERROR_INTERNAL, "there is no chunk %u of group %d", chunk_index, (int)group);
    out_place->tier = (sl_tier)homes->tier[group][chunk_index];
    out_place->offset = homes->offset[group][chunk_index];
    out_place->bytes = sl_layout_chunk_bytes(engine->options.layout, group, chunk_index);
    return SL_OK;
}

/* Clears homes: only tensors are ever written into chunks, and the padding between them has to be
 * zero. */
static sl_status clear_homes(sl_engine *engine)
{
    const sl_homes *homes = engine->options.homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            sl_place place = {0};
            SL_TRY(find_home(engine, (sl_group)group, i, &place));
            if (place.tier != SL_TIER_DISK)
                SL_TRY(sl_arena_clear(engine, &place));
            SL_TRY(sl_heartbeat_give());
        }
    }
    return SL_OK;
}

/* The constant that a persistent slot holds; NULL: the slot is a cache. Plans of one engine share
 * the slots, so SL_ERROR_INTERNAL: two plans have different constants for this one. */
static sl_status find_constant(const sl_engine *engine, uint32_t slot,
                               const sl_constant **out_constant)
{
    *out_constant = NULL;
    for (uint32_t p = 0; p < engine->plan_count; p++) {
        const sl_program *program = engine->plans[p].program;
        for (uint32_t c = 0; c < program->constant_count; c++) {
            const sl_constant *it = &program->constants[c];
            if (it->slot != slot)
                continue;
            if (*out_constant != NULL && !sl_constant_is_same(*out_constant, it))
                SL_FAIL(SL_ERROR_INTERNAL, "two plans have different constants in slot %u", slot);
            if (*out_constant == NULL)
                *out_constant = it;
        }
    }
    return SL_OK;
}

static sl_status clear_persistent(sl_engine *engine)
{
    const sl_homes *homes = engine->options.homes;
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        const sl_constant *constant;
        SL_TRY(find_constant(engine, i, &constant));
        if (constant != NULL)
            continue;
        sl_place place = {SL_TIER_DEVICE, homes->persistent_offset[i], homes->persistent_bytes[i]};
        SL_TRY(sl_arena_clear(engine, &place));
    }
    return SL_OK;
}

/* Row by row through a buffer of at least one row. */
static sl_status write_constant(sl_engine *engine, const sl_constant *constant, uint32_t slot,
                                float *buffer)
{
    const sl_homes *homes = engine->options.homes;
    const uint64_t row_bytes = constant->width * sizeof(float);
    const uint64_t rows = sl_bits_max(COPY_BYTES / row_bytes, 1);
    if (sl_constant_bytes(constant) > homes->persistent_bytes[slot])
        SL_FAIL(SL_ERROR_INTERNAL, "slot %u of %" PRIu64 " bytes is too small for its constant",
                slot, homes->persistent_bytes[slot]);
    for (uint64_t row = 0; row < constant->positions; row += rows) {
        const uint64_t count = sl_bits_min(constant->positions - row, rows);
        const sl_place place = {SL_TIER_DEVICE, homes->persistent_offset[slot] + row * row_bytes,
                                count * row_bytes};
        sl_constant_fill(constant, row, count, buffer);
        SL_TRY(sl_arena_write(engine, &place, buffer));
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

static sl_status write_constants(sl_engine *engine)
{
    for (uint32_t slot = 0; slot < engine->options.homes->persistent_count; slot++) {
        const sl_constant *constant;
        SL_TRY(find_constant(engine, slot, &constant));
        if (constant == NULL)
            continue;
        float *buffer = malloc(sl_bits_max(COPY_BYTES, constant->width * sizeof(float)));
        if (buffer == NULL)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a row of constant %u", slot);
        const sl_status status = write_constant(engine, constant, slot, buffer);
        free(buffer);
        SL_TRY(status);
    }
    return SL_OK;
}

/* Writes a flag of all blocks, and with their rates their keys, to its place; `table` is scratch of
 * sl_layout_table_bytes. */
static sl_status write_block_flag(sl_engine *engine, sl_block_flag flag, const sl_place *place,
                                  uint8_t *table)
{
    const sl_layout *layout = engine->options.layout;
    const uint64_t keys = sl_layout_keys_offset(layout);
    if (place->bytes == 0)
        return SL_OK;
    if (place->bytes > sl_layout_table_bytes(layout))
        SL_FAIL(SL_ERROR_INTERNAL, "%" PRIu64 " bytes of block flags for %" PRIu64 " blocks",
                place->bytes, layout->block_count);
    sl_layout_write_flags(layout, flag, table);
    if (flag == SL_BLOCK_RATE && layout->draws != NULL) {
        memset(table + layout->block_count, 0, keys - layout->block_count);
        sl_layout_write_keys(layout, (uint64_t *)(void *)(table + keys));
    }
    return sl_arena_write(engine, place, table);
}

static sl_status write_all_flags(sl_engine *engine, uint8_t *flags)
{
    const sl_homes *homes = engine->options.homes;
    for (int tier = 0; tier < SL_ARENA_COUNT; tier++) {
        sl_place place = {(sl_tier)tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
        SL_TRY(write_block_flag(engine, SL_BLOCK_RATE, &place, flags));
    }
    sl_place counted = {SL_TIER_DEVICE, homes->counted_offset, homes->counted_bytes};
    return write_block_flag(engine, SL_BLOCK_COUNTS, &counted, flags);
}

static sl_status write_flags(sl_engine *engine)
{
    const uint64_t block_count = engine->options.layout->block_count;
    uint8_t *flags = malloc(sl_layout_table_bytes(engine->options.layout) + 1);
    if (flags == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the flags of %" PRIu64 " blocks", block_count);
    const sl_status status = write_all_flags(engine, flags);
    free(flags);
    return status;
}

/* Fresh memory is zero unless a pattern was written, and a fresh disk is zero. */
sl_status sl_boundary_fill(sl_engine *engine)
{
    if (engine->options.paint_arenas)
        SL_TRY(sl_paint_arenas(engine));
    if (engine->options.guard_arenas || engine->options.paint_arenas) {
        SL_TRY(clear_homes(engine));
        SL_TRY(clear_persistent(engine));
    }
    SL_TRY(write_constants(engine));
    return write_flags(engine);
}

/* ---- ranges of chunks ---- */

static sl_status find_range(const sl_engine *engine, sl_chunk_range *range)
{
    uint64_t end;
    SL_TRY(find_home(engine, range->group, range->chunk_index, &range->home));
    if (__builtin_add_overflow(range->first_byte, range->bytes, &end) || end > range->home.bytes)
        SL_FAIL(SL_ERROR_INTERNAL,
                "%" PRIu64 " bytes at %" PRIu64 " are not in a chunk of %" PRIu64 " bytes",
                range->bytes, range->first_byte, range->home.bytes);
    return SL_OK;
}

static sl_place place_of(const sl_chunk_range *range)
{
    return (sl_place){range->home.tier, range->home.offset + range->first_byte, range->bytes};
}

sl_status sl_engine_read_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                               uint64_t first_byte, uint64_t bytes, void *data)
{
    sl_chunk_range range = {
        .group = group, .chunk_index = chunk_index, .first_byte = first_byte, .bytes = bytes};
    SL_TRY(find_range(engine, &range));
    SL_TRY(sl_step_drain_if_running(engine));
    if (range.home.tier == SL_TIER_DISK)
        return sl_disk_read_range(engine, &range, data);
    sl_place place = place_of(&range);
    return sl_arena_read(engine, &place, data);
}

sl_status sl_engine_map_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                              uint64_t first_byte, uint64_t bytes, const void **out_address)
{
    sl_chunk_range range = {
        .group = group, .chunk_index = chunk_index, .first_byte = first_byte, .bytes = bytes};
    void *address = NULL;
    SL_TRY(find_range(engine, &range));
    if (range.home.tier == SL_TIER_DISK)
        SL_FAIL(SL_ERROR_USAGE, "is on disk");
    if (range.home.tier == SL_TIER_DEVICE && engine->options.target.device != SL_DEVICE_CPU)
        SL_FAIL(SL_ERROR_USAGE, "is in the memory of the device, which the processor cannot read");
    SL_TRY(sl_step_drain_if_running(engine));
    const sl_place place = place_of(&range);
    SL_TRY(sl_arena_at(engine, &place, &address));
    *out_address = address;
    return SL_OK;
}

sl_status sl_engine_write_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                                uint64_t first_byte, uint64_t bytes, const void *data)
{
    sl_chunk_range range = {
        .group = group, .chunk_index = chunk_index, .first_byte = first_byte, .bytes = bytes};
    SL_TRY(find_range(engine, &range));
    SL_TRY(sl_step_drain_if_running(engine));
    if (range.home.tier == SL_TIER_DISK)
        return sl_disk_write_range(engine, &range, data);
    sl_place place = place_of(&range);
    return sl_arena_write(engine, &place, data);
}

sl_status sl_engine_clear_persistent(sl_engine *engine)
{
    SL_TRY(sl_step_drain_if_running(engine));
    return clear_persistent(engine);
}

static sl_status find_persistent(const sl_engine *engine, uint32_t slot, uint64_t first,
                                 uint64_t bytes, sl_place *out_place)
{
    const sl_homes *homes = engine->options.homes;
    uint64_t end;
    if (slot >= homes->persistent_count || __builtin_add_overflow(first, bytes, &end) ||
        end > homes->persistent_bytes[slot])
        SL_FAIL(SL_ERROR_INTERNAL, "%" PRIu64 " bytes at %" PRIu64 " are not in slot %u", bytes,
                first, slot);
    *out_place = (sl_place){SL_TIER_DEVICE, homes->persistent_offset[slot] + first, bytes};
    return SL_OK;
}

/* Through host memory, because the device table has no copies within the device. */
sl_status sl_engine_copy_persistent(sl_engine *engine, const sl_engine_slot_copy *copy)
{
    unsigned char buffer[COPY_BYTES];
    SL_TRY(sl_step_drain_if_running(engine));
    for (uint64_t done = 0; done < copy->bytes; done += sizeof buffer) {
        const uint64_t left = copy->bytes - done;
        const uint64_t bytes = left < sizeof buffer ? left : sizeof buffer;
        sl_place from = {0}, to = {0};
        SL_TRY(find_persistent(engine, copy->slot, copy->from + done, bytes, &from));
        SL_TRY(find_persistent(engine, copy->slot, copy->to + done, bytes, &to));
        SL_TRY(sl_arena_read(engine, &from, buffer));
        SL_TRY(sl_arena_write(engine, &to, buffer));
    }
    return SL_OK;
}
