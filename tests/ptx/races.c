#include "races.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARPS_MOST = 32, REFUSAL_BYTES = 160 };

static const char NO_MEMORY[] = "no memory for the order of a launch";

#define TIME_LAST                                                                                  \
    (PTX_EPOCH_IN_FLIGHT - PTX_EPOCH_TIME) /* the last time that an epoch can hold                 \
                                            */

/* A copy in flight: what it reads and writes, of the lanes that have not waited for it. */
typedef struct copy {
    uint64_t ticket, from[PTX_LANES], to[PTX_LANES];
    uint32_t warp, lanes, from_lanes, from_bytes, to_bytes;
} copy;

/* A block under way. Its time goes on from one block to the next in its place, so that what the
 * one before left in shared memory's cells counts as ordered. */
typedef struct slot {
    uint32_t block; /* 1 + its index */
    uint32_t time, base, warp_base[WARPS_MOST];
    uint32_t ended[WARPS_MOST]; /* lanes that came to no join any more */
    ptx_cells shared;
    char refusal[REFUSAL_BYTES]; /* of a call that could not refuse */
    copy *copies;                /* tickets grow; those without lanes are done */
    uint64_t copy_count, copy_room, flying;
    uint64_t source_start, source_end; /* all that copies in flight read lies inside */
} slot;

struct ptx_races {
    ptx_launch_shape shape;
    ptx_pages *pages;
    uint32_t slot_count;
    slot slots[];
};

/* ---- begin and end ---- */

ptx_races *ptx_races_open(const ptx_launch_shape *shape, ptx_page_pool *pool, ptx_fault *out_fault)
{
    const uint32_t slot_count = shape->slot_count ? shape->slot_count : 1;
    const uint64_t cell_count = (shape->shared_bytes + UINT64_C(1)) / 2;
    ptx_races *races = calloc(1, sizeof *races + slot_count * sizeof(slot));
    if (!races)
        return (void)ptx_fail(out_fault, "%s", NO_MEMORY), NULL;
    races->shape = *shape;
    races->slot_count = slot_count;
    races->pages = ptx_pages_open(pool);
    bool has_memory = races->pages != NULL;
    for (uint32_t i = 0; i < slot_count; i++) {
        uint32_t *cells = calloc(2 * cell_count + 1, sizeof *cells);
        races->slots[i].shared = (ptx_cells){cells, cells + cell_count, NULL, NULL};
        races->slots[i].time = PTX_EPOCH_TIME;
        has_memory = has_memory && cells;
    }
    if (!has_memory) {
        ptx_races_close(races);
        return (void)ptx_fail(out_fault, "%s", NO_MEMORY), NULL;
    }
    return races;
}

void ptx_races_close(ptx_races *races)
{
    if (!races)
        return;
    for (uint32_t i = 0; i < races->slot_count; i++) {
        free(races->slots[i].shared.write);
        free(races->slots[i].copies);
    }
    ptx_pages_close(races->pages);
    free(races);
}

bool ptx_races_tell_touched(ptx_races *races, ptx_shadow_touch touch, void *context)
{
    return ptx_pages_tell(races->pages, touch, context);
}

/* ---- time ---- */

static uint32_t lanes_of_warp(const ptx_launch_shape *shape, uint32_t warp)
{
    const uint32_t threads = shape->threads_per_block - PTX_LANES * warp;
    return threads >= PTX_LANES ? UINT32_MAX : (1u << threads) - 1;
}

/* Time ran out: with nothing in flight, all is forgotten that a barrier has ordered. */
static void restart_time(ptx_races *races, slot *s)
{
    memset(s->shared.write, 0, 2 * sizeof(uint32_t) * ((races->shape.shared_bytes + 1) / 2));
    ptx_pages_age(races->pages, s->block);
    memset(s->warp_base, 0, sizeof s->warp_base);
    s->time = PTX_EPOCH_TIME;
}

static void refuse(slot *s, const char *text)
{
    if (!s->refusal[0])
        strncpy(s->refusal, text, REFUSAL_BYTES - 1);
}

/* A step of time; false: there is none left. */
static bool step(slot *s)
{
    if (s->time >= TIME_LAST) {
        refuse(s, "too many joins of warps between two barriers: not handled");
        return false;
    }
    s->time += PTX_EPOCH_TIME;
    return true;
}

bool ptx_races_begin_block(ptx_races *races, const ptx_place *place, ptx_fault *out_fault)
{
    slot *s = &races->slots[place->slot];
    if (place->block >= PTX_BLOCKS_SEVERAL - 1)
        return ptx_fail(out_fault, "a grid of more than 2^32 - 2 blocks is not handled");
    if (races->shape.threads_per_block > PTX_LANES * WARPS_MOST)
        return ptx_fail(out_fault, "a block of more than 1024 threads is not handled");
    s->block = (uint32_t)place->block + 1;
    if (s->time >= TIME_LAST)
        restart_time(races, s);
    s->time += PTX_EPOCH_TIME;
    s->base = s->time;
    memset(s->warp_base, 0, sizeof s->warp_base);
    memset(s->ended, 0, sizeof s->ended);
    s->refusal[0] = 0;
    s->copy_count = s->flying = 0;
    return true;
}

bool ptx_races_end_block(ptx_races *races, const ptx_place *place, ptx_fault *out_fault)
{
    const slot *s = &races->slots[place->slot];
    if (s->refusal[0])
        return ptx_fail(out_fault, "%s", s->refusal);
    if (s->flying != 0)
        return ptx_fail(out_fault,
                        "the block ends while %" PRIu64 " asynchronous copies are in flight",
                        s->flying);
    return true;
}

/* Those of a warp that did not come must have ended. */
static void note_ended(ptx_races *races, slot *s, uint32_t warp, uint32_t lanes)
{
    if (lanes & s->ended[warp])
        refuse(s, "a join of some lanes without the others is not handled");
    s->ended[warp] |= lanes_of_warp(&races->shape, warp) & ~lanes;
}

void ptx_races_join_warp(ptx_races *races, const ptx_place *place, uint32_t lanes)
{
    slot *s = &races->slots[place->slot];
    note_ended(races, s, place->warp, lanes);
    if (step(s))
        s->warp_base[place->warp] = s->time;
}

void ptx_races_join_block(ptx_races *races, const ptx_place *place, const uint32_t *lanes)
{
    slot *s = &races->slots[place->slot];
    for (uint32_t warp = 0; warp < races->shape.warps_per_block; warp++)
        note_ended(races, s, warp, lanes[warp]);
    if (s->time >= TIME_LAST / 2 && s->flying == 0)
        restart_time(races, s);
    if (step(s))
        s->base = s->time;
}

/* ---- refusals ---- */

/* Says what the first cell that is not ordered met. */
static bool refuse_conflict(const ptx_access *access, const char *does, const ptx_piece *piece,
                            ptx_conflict found, ptx_fault *out_fault)
{
    const ptx_cells at = ptx_cells_from(piece->cells, found.cell);
    const uint32_t epoch = found.is_write ? *at.write : *at.read;
    const uint32_t *block = found.is_write ? at.write_block : at.read_block;
    char who[96];
    if (block && *block == PTX_BLOCKS_SEVERAL)
        snprintf(who, sizeof who, "several blocks, or by a load that needs constant bytes");
    else if (block && *block != access->place.block + 1)
        snprintf(who, sizeof who, "block %" PRIu32, *block - 1);
    else if (epoch >= PTX_EPOCH_IN_FLIGHT)
        snprintf(who, sizeof who, "a copy in flight of thread %" PRIu32, epoch & PTX_EPOCH_THREAD);
    else
        snprintf(who, sizeof who, "%sthread %" PRIu32 "%s",
                 epoch & PTX_EPOCH_SEVERAL ? "several threads, one of them " : "",
                 epoch & PTX_EPOCH_THREAD, epoch & PTX_EPOCH_ATOMIC ? ", an atomic operation" : "");
    return ptx_fail(out_fault, "not ordered: %s %s 0x%" PRIx64 ", which was %s by %s", does,
                    access->space == PTX_SHARED ? "shared memory at offset" : "global memory at",
                    piece->address + 2 * found.cell, found.is_write ? "written" : "read", who);
}

/* ---- pieces ---- */

/* False: no memory. */
static bool find_cells(ptx_races *races, const ptx_access *access, uint64_t address, ptx_cells *out)
{
    if (access->space != PTX_SHARED)
        return ptx_pages_find(races->pages, address, out);
    const ptx_cells *shared = &races->slots[access->place.slot].shared;
    out->write = shared->write + address / 2;
    out->read = shared->read + address / 2;
    out->write_block = out->read_block = NULL;
    return true;
}

/* Of an access whose stretches have become pieces. */
typedef struct cut {
    ptx_piece piece[2 * PTX_LANES];
    uint32_t count;
} cut;

/* Adds a stretch at a time, cut where a page of cells ends. False: no memory. */
static bool add_stretch(ptx_races *races, const ptx_access *access, const ptx_stretch *stretch,
                        uint32_t time, cut *out)
{
    const uint64_t end = stretch->address + stretch->bytes;
    const bool is_by_lanes = !stretch->is_by_many && stretch->bytes != access->bytes;
    uint32_t epoch = time + PTX_LANES * access->place.warp + stretch->lane +
                     (stretch->is_by_many ? PTX_EPOCH_LANES : 0);
    for (uint64_t at = stretch->address, next; at < end; at = next) {
        const uint64_t page_end = (at / PTX_PAGE_BYTES + 1) * PTX_PAGE_BYTES;
        next = access->space == PTX_SHARED || end < page_end ? end : page_end;
        ptx_piece *p = &out->piece[out->count++];
        if (!find_cells(races, access, at, &p->cells))
            return false;
        p->address = at;
        p->count = (uint32_t)(next - at) / 2;
        p->lane_shift = is_by_lanes ? (uint32_t)__builtin_ctz(access->bytes / 2) : 31;
        p->epoch = epoch;
        epoch += p->count >> p->lane_shift;
    }
    return true;
}

static bool handle_pieces(ptx_races *races, const ptx_access *access, const cut *c,
                          ptx_fault *out_fault)
{
    static const char *const does[] = {[PTX_READ] = "reads",
                                       [PTX_READ_MATRIX] = "reads",
                                       [PTX_READ_CONSTANT] = "reads as constant",
                                       [PTX_WRITE] = "writes",
                                       [PTX_ATOMIC] = "changes"};
    const slot *s = &races->slots[access->place.slot];
    const ptx_agent agent = {s->base, s->warp_base[access->place.warp], s->block};
    ptx_conflict found;
    bool is_fine = false;
    switch (access->kind) {
    case PTX_READ:
    case PTX_READ_MATRIX:
        is_fine = ptx_cells_read(c->piece, c->count, &agent, &found);
        break;
    case PTX_READ_CONSTANT:
        is_fine = ptx_cells_read_constant(c->piece, c->count, &found);
        break;
    case PTX_WRITE:
        is_fine = ptx_cells_write(c->piece, c->count, &agent, &found);
        break;
    case PTX_ATOMIC:
        is_fine = ptx_cells_change(c->piece, c->count, &agent, &found);
        break;
    }
    return is_fine ||
           refuse_conflict(access, does[access->kind], &c->piece[found.piece], found, out_fault);
}

/* Bytes are smaller than cells: reads cover the whole cell, which is exact where nobody writes
 * single bytes. */
static bool read_bytes(ptx_races *races, const ptx_access *access, ptx_fault *out_fault)
{
    if (access->space != PTX_GLOBAL ||
        (access->kind != PTX_READ && access->kind != PTX_READ_CONSTANT))
        return ptx_fail(out_fault, "order is kept of two bytes: an access of one is not handled "
                                   "but for reads of global memory");
    ptx_access wide = *access;
    wide.bytes = 2;
    cut c = {.count = 0};
    for (uint32_t rest = access->lanes; rest != 0; rest &= rest - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(rest);
        const ptx_stretch one = {access->address[lane] & ~UINT64_C(1), 2, lane, false};
        if (!add_stretch(races, &wide, &one, races->slots[access->place.slot].time, &c))
            return ptx_fail(out_fault, "%s", NO_MEMORY);
    }
    return handle_pieces(races, &wide, &c, out_fault);
}

/* ---- copies in flight ---- */

static bool is_read_by(const copy *c, uint64_t start, uint64_t end)
{
    for (uint32_t rest = c->lanes & c->from_lanes; rest != 0; rest &= rest - 1) {
        const uint64_t from = c->from[__builtin_ctz(rest)];
        if (from < end && start < from + c->from_bytes)
            return true;
    }
    return false;
}

/* Nobody in the block writes what a copy in flight reads. Other blocks may not anyway. */
static bool check_sources(const slot *s, const ptx_stretch *stretch, ptx_fault *out_fault)
{
    const uint64_t start = stretch->address, end = start + stretch->bytes;
    if (s->flying == 0 || end <= s->source_start || start >= s->source_end)
        return true;
    for (uint64_t i = 0; i < s->copy_count; i++)
        if (is_read_by(&s->copies[i], start, end))
            return ptx_fail(out_fault,
                            "not ordered: writes global memory at 0x%" PRIx64
                            ", which a copy in flight of warp %" PRIu32 " reads",
                            start, s->copies[i].warp);
    return true;
}

/* Room for one more at the end; those that are done make room first. */
static copy *add_copy(slot *s)
{
    if (s->flying == 0) {
        s->copy_count = 0;
        s->source_start = UINT64_MAX;
        s->source_end = 0;
    }
    if (s->copy_count == s->copy_room && 2 * s->flying < s->copy_room) {
        uint64_t kept = 0;
        for (uint64_t i = 0; i < s->copy_count; i++)
            if (s->copies[i].lanes != 0)
                s->copies[kept++] = s->copies[i];
        s->copy_count = kept;
    }
    if (s->copy_count == s->copy_room) {
        const uint64_t room = s->copy_room ? 2 * s->copy_room : 64;
        copy *grown = realloc(s->copies, room * sizeof *grown);
        if (!grown)
            return NULL;
        s->copies = grown;
        s->copy_room = room;
    }
    s->flying++;
    return &s->copies[s->copy_count++];
}

static void note_source(slot *s, copy *c, const ptx_access *from)
{
    c->from_lanes = from->lanes;
    c->from_bytes = from->bytes;
    for (uint32_t rest = from->lanes; rest != 0; rest &= rest - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(rest);
        const uint64_t start = from->address[lane], end = start + from->bytes;
        c->from[lane] = start;
        s->source_start = start < s->source_start ? start : s->source_start;
        s->source_end = end > s->source_end ? end : s->source_end;
    }
}

/* Cuts one end of a copy whose pages are there. */
static void cut_end(ptx_races *races, const ptx_access *end, uint32_t time, cut *out)
{
    ptx_stretch stretch[PTX_LANES];
    const uint32_t count = ptx_stretch_cut(end, stretch);
    out->count = 0;
    for (uint32_t i = 0; i < count; i++)
        (void)add_stretch(races, end, &stretch[i], time, out);
}

/* Marks the targets of lanes: in flight, or written now. */
static void mark_targets(ptx_races *races, const ptx_access *to, uint32_t time)
{
    cut c;
    cut_end(races, to, time, &c);
    for (uint32_t i = 0; i < c.count; i++)
        ptx_cells_note_writes(&c.piece[i]);
}

/* The sources of lanes are read now. */
static void mark_sources(ptx_races *races, const ptx_access *from)
{
    const slot *s = &races->slots[from->place.slot];
    const ptx_agent agent = {s->base, s->warp_base[from->place.warp], s->block};
    cut c;
    cut_end(races, from, s->time, &c);
    for (uint32_t i = 0; i < c.count; i++)
        ptx_cells_note_reads(&c.piece[i], &agent);
}

static bool access_stretches(ptx_races *races, const ptx_access *access, ptx_fault *out_fault)
{
    ptx_stretch stretch[PTX_LANES];
    return ptx_races_access(races, access, stretch, ptx_stretch_cut(access, stretch), out_fault);
}

bool ptx_races_begin_copy(ptx_races *races, uint64_t ticket, const ptx_access *from,
                          const ptx_access *to, ptx_fault *out_fault)
{
    slot *s = &races->slots[to->place.slot];
    if ((from && !access_stretches(races, from, out_fault)) ||
        !access_stretches(races, to, out_fault))
        return false;
    if (to->space != PTX_SHARED || (from && from->space != PTX_GLOBAL))
        return ptx_fail(out_fault,
                        "a copy that is not from global to shared memory is not handled");
    if (s->flying != 0 && ticket <= s->copies[s->copy_count - 1].ticket)
        return ptx_fail(out_fault, "the tickets of copies do not grow");
    copy *c = add_copy(s);
    if (!c)
        return ptx_fail(out_fault, "%s", NO_MEMORY);
    c->ticket = ticket;
    c->warp = to->place.warp;
    c->lanes = to->lanes;
    c->from_lanes = 0;
    c->to_bytes = to->bytes;
    memcpy(c->to, to->address, sizeof c->to);
    if (from)
        note_source(s, c, from);
    mark_targets(races, to, PTX_EPOCH_IN_FLIGHT);
    return true;
}

static copy *find_copy(const slot *s, uint64_t ticket)
{
    uint64_t first = 0, end = s->copy_count;
    while (first < end) {
        const uint64_t middle = first + (end - first) / 2;
        if (s->copies[middle].ticket < ticket)
            first = middle + 1;
        else
            end = middle;
    }
    return first < s->copy_count && s->copies[first].ticket == ticket ? &s->copies[first] : NULL;
}

/* The source was read until now, and the target is written now, by the lanes that waited. */
static void land(ptx_races *races, const slot *s, const ptx_place *place, const copy *c,
                 uint32_t lanes)
{
    const ptx_access from = {.place = *place,
                             .space = PTX_GLOBAL,
                             .kind = PTX_READ,
                             .lanes = lanes & c->from_lanes,
                             .bytes = c->from_bytes,
                             .address = c->from};
    if (from.lanes)
        mark_sources(races, &from);
    const ptx_access to = {.place = *place,
                           .space = PTX_SHARED,
                           .kind = PTX_WRITE,
                           .lanes = lanes,
                           .bytes = c->to_bytes,
                           .address = c->to};
    mark_targets(races, &to, s->time);
}

void ptx_races_end_copy(ptx_races *races, const ptx_place *place, uint64_t ticket, uint32_t lanes)
{
    slot *s = &races->slots[place->slot];
    copy *c = find_copy(s, ticket);
    if (!c || lanes & ~c->lanes || c->warp != place->warp) {
        refuse(s, "a copy ends that was not in flight");
        return;
    }
    land(races, s, place, c, lanes);
    c->lanes &= ~lanes;
    s->flying -= c->lanes == 0;
}

/* ---- accesses ---- */

bool ptx_races_access(ptx_races *races, const ptx_access *access, const ptx_stretch *stretch,
                      uint32_t stretch_count, ptx_fault *out_fault)
{
    slot *s = &races->slots[access->place.slot];
    if (access->lanes & s->ended[access->place.warp])
        refuse(s, "a barrier or join of some threads without the others is not handled");
    if (s->refusal[0])
        return ptx_fail(out_fault, "%s", s->refusal);
    if (access->bytes == 1)
        return read_bytes(races, access, out_fault);
    const bool is_change = access->kind == PTX_WRITE || access->kind == PTX_ATOMIC;
    cut c;
    c.count = 0;
    for (uint32_t i = 0; i < stretch_count; i++) {
        if (access->space == PTX_GLOBAL && is_change && !check_sources(s, &stretch[i], out_fault))
            return false;
        if (!add_stretch(races, access, &stretch[i], s->time, &c))
            return ptx_fail(out_fault, "%s", NO_MEMORY);
    }
    return handle_pieces(races, access, &c, out_fault);
}
