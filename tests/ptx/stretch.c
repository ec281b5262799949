#include "stretch.h"

/* All 32 lanes one after another, which most instructions are: a loop that becomes vectors. */
static bool is_one_piece(const uint64_t *address, uint64_t step)
{
    uint64_t differs = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        differs |= address[lane] ^ (address[0] + lane * step);
    return differs == 0;
}

/* Lanes that read the same bytes read them together; not in local memory, where each has its own.
 */
static bool is_shared_read(const ptx_access *access)
{
    return access->space != PTX_LOCAL &&
           (access->kind == PTX_READ || access->kind == PTX_READ_CONSTANT);
}

/* The lane prolongs the last stretch. */
static bool joins(ptx_stretch *last, const ptx_access *access, uint32_t lane, uint32_t lane_before)
{
    const uint64_t address = access->address[lane];
    if (is_shared_read(access) && address == last->address && last->bytes == access->bytes) {
        last->is_by_many = true;
        return true;
    }
    if (lane != lane_before + 1 || address != last->address + last->bytes || last->is_by_many)
        return false;
    last->bytes += access->bytes;
    return true;
}

/* As below, of all 32 lanes: bit i says that lane i has the address of the lane before, or the next
 * one, and a stretch is as many of one kind as follow each other. */
static uint32_t cut_whole_warp(const ptx_access *access, ptx_stretch *out)
{
    const uint64_t *address = access->address, step = access->bytes;
    uint32_t same = 0, next = 0, count = 0;
    for (uint32_t lane = 1; lane < PTX_LANES; lane++) {
        same |= (uint32_t)(address[lane] == address[lane - 1]) << lane;
        next |= (uint32_t)(address[lane] == address[lane - 1] + step) << lane;
    }
    same = is_shared_read(access) ? same : 0;
    for (uint32_t lane = 0, more; lane < PTX_LANES; lane += more) {
        const uint64_t same_after = (uint64_t)same >> lane >> 1;
        const uint64_t next_after = (uint64_t)next >> lane >> 1;
        const uint32_t equals = (uint32_t)__builtin_ctzll(~same_after);
        const uint32_t others = (uint32_t)__builtin_ctzll(~next_after);
        more = 1 + (equals > 0 ? equals : others);
        out[count++] = (ptx_stretch){
            address[lane], equals > 0 ? access->bytes : more * access->bytes, lane, equals > 0};
    }
    return count;
}

uint32_t ptx_stretch_cut(const ptx_access *access, ptx_stretch *out)
{
    const bool by_all = access->kind == PTX_READ_MATRIX;
    uint32_t lane = (uint32_t)__builtin_ctz(access->lanes), count = 1;
    out[0] = (ptx_stretch){access->address[lane], access->bytes, lane, by_all};
    if (access->lanes == UINT32_MAX && !by_all && is_one_piece(access->address, access->bytes)) {
        out[0].bytes *= PTX_LANES;
        return 1;
    }
    if (access->lanes == UINT32_MAX && !by_all)
        return cut_whole_warp(access, out);
    for (uint32_t rest = access->lanes & (access->lanes - 1); rest != 0; rest &= rest - 1) {
        const uint32_t before = lane;
        lane = (uint32_t)__builtin_ctz(rest);
        if (by_all || !joins(&out[count - 1], access, lane, before))
            out[count++] = (ptx_stretch){access->address[lane], access->bytes, lane, by_all};
    }
    return count;
}
