#include "stretch.h"

/* All 32 lanes one after another, which most instructions are: a loop that becomes vectors. */
static bool is_one_piece(const uint64_t *address, uint64_t step)
{
    uint64_t differs = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        differs |= address[lane] ^ (address[0] + lane * step);
    return differs == 0;
}

/* The lane prolongs the last stretch. */
static bool joins(ptx_stretch *last, const ptx_access *access, uint32_t lane, uint32_t lane_before)
{
    const uint64_t address = access->address[lane];
    const bool is_read = access->space != PTX_LOCAL && /* where each lane has its own bytes */
                         (access->kind == PTX_READ || access->kind == PTX_READ_CONSTANT);
    if (is_read && address == last->address && last->bytes == access->bytes) {
        last->is_by_many = true;
        return true;
    }
    if (lane != lane_before + 1 || address != last->address + last->bytes || last->is_by_many)
        return false;
    last->bytes += access->bytes;
    return true;
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
    for (uint32_t rest = access->lanes & (access->lanes - 1); rest != 0; rest &= rest - 1) {
        const uint32_t before = lane;
        lane = (uint32_t)__builtin_ctz(rest);
        if (by_all || !joins(&out[count - 1], access, lane, before))
            out[count++] = (ptx_stretch){access->address[lane], access->bytes, lane, by_all};
    }
    return count;
}
