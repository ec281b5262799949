/* Accesses to memory by a group of lanes. Addresses become pointers after alignment, bounds and the
 * watcher were asked; lanes that take no part get the pointer of one that does, so that a load can
 * read for all 32. */
#include "machine.h"

#include <string.h>

/* The lanes of one space among those of an instruction. */
typedef struct lane_access {
    ptx_run *run;
    ptx_warp *warp;
    const ptx_op *op;
    uint32_t pc, lanes, bytes;
    ptx_space space;
    uint64_t address[PTX_LANES]; /* in its space */
    uint8_t *pointer[PTX_LANES];
} lane_access;

/* ---- from addresses to pointers ---- */

PTX_EACH_SET static void find_addresses(lane_access *access, uint32_t which)
{
    const ptx_op *op = access->op;
    const void *from = ptx_at(access->warp, op->from[which]);
    const int64_t displacement = op->displacement[which];
    if (op->from_letters[which] == 'd')
        for (int i = 0; i < PTX_LANES; i++)
            access->address[i] = ((const uint64_t *)from)[i] + (uint64_t)displacement;
    else
        for (int i = 0; i < PTX_LANES; i++)
            access->address[i] = (uint32_t)(((const uint32_t *)from)[i] + (uint32_t)displacement);
}

static bool is_in_window(uint64_t address, ptx_space space)
{
    return address >> 60 == ptx_space_base(space) >> 60;
}

/* Narrows a generic access to the lanes whose space is that of the first. */
static void narrow_generic(lane_access *access)
{
    const uint64_t first = access->address[ptx_first_lane(access->lanes)];
    const ptx_space space = is_in_window(first, PTX_SHARED)  ? PTX_SHARED
                            : is_in_window(first, PTX_LOCAL) ? PTX_LOCAL
                                                             : PTX_GLOBAL;
    for (uint32_t left = access->lanes; left; left &= left - 1) {
        const uint32_t lane = ptx_first_lane(left);
        if (access->address[lane] >> 60 != first >> 60)
            access->lanes &= ~(UINT32_C(1) << lane);
    }
    for (int i = 0; i < PTX_LANES; i++)
        access->address[i] -= ptx_space_base(space);
    access->space = space;
}

static uint64_t space_bytes(const lane_access *access)
{
    const ptx_run *run = access->run;
    return access->space == PTX_SHARED  ? run->shared_bytes
           : access->space == PTX_LOCAL ? run->kernel->facts.local_bytes
           : access->space == PTX_PARAM ? run->kernel->facts.param_bytes
                                        : UINT64_C(1) << 60;
}

static const char *space_name(ptx_space space)
{
    static const char *const names[] = {"generic", "global", "shared", "local", "const", "param"};
    return names[space];
}

static bool refuse_address(const lane_access *access, uint32_t lane)
{
    const uint64_t address = access->address[lane];
    if (address % access->bytes)
        return ptx_stop(access->run, access->warp, access->pc, UINT32_C(1) << lane,
                        "%s address 0x%llx is not aligned to its %u bytes",
                        space_name(access->space), (unsigned long long)address, access->bytes);
    return ptx_stop(access->run, access->warp, access->pc, UINT32_C(1) << lane,
                    "%s address 0x%llx, %u bytes, is outside of %llu bytes",
                    space_name(access->space), (unsigned long long)address, access->bytes,
                    (unsigned long long)space_bytes(access));
}

/* Gives lanes that take no part the address of the first that does. */
static void fill_idle(lane_access *access)
{
    const uint64_t first = access->address[ptx_first_lane(access->lanes)];
    if (access->lanes != UINT32_MAX)
        for (int i = 0; i < PTX_LANES; i++)
            access->address[i] = access->lanes >> i & 1 ? access->address[i] : first;
}

PTX_EACH_SET static bool check(lane_access *access)
{
    const uint64_t end = space_bytes(access);
    uint64_t low_bits = 0, most = 0;
    fill_idle(access);
    for (int i = 0; i < PTX_LANES; i++) {
        low_bits |= access->address[i];
        most = access->address[i] > most ? access->address[i] : most;
    }
    if (!(low_bits & (access->bytes - 1)) && most < end && end - most >= access->bytes)
        return true;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        const uint64_t address = access->address[lane];
        if (address % access->bytes || address >= end || end - address < access->bytes)
            return refuse_address(access, lane);
    }
    return true;
}

PTX_EACH_SET static void find_pointers(lane_access *access)
{
    const ptx_run *run = access->run;
    const ptx_block *block = access->warp->block;
    uint8_t *base = access->space == PTX_SHARED  ? block->shared
                    : access->space == PTX_PARAM ? run->params
                                                 : NULL;
    if (access->space == PTX_LOCAL) {
        const uint32_t stride = run->kernel->facts.local_bytes;
        const uint32_t thread = access->warp->place.warp * PTX_LANES;
        for (uint32_t i = 0; i < PTX_LANES; i++) {
            const uint32_t owner = access->lanes >> i & 1 ? i : ptx_first_lane(access->lanes);
            access->pointer[i] =
                block->local + (uint64_t)(thread + owner) * stride + access->address[i];
        }
    } else
        for (int i = 0; i < PTX_LANES; i++)
            access->pointer[i] = (uint8_t *)((uintptr_t)base + access->address[i]);
}

static ptx_access tell(const lane_access *access, ptx_access_kind kind)
{
    return (ptx_access){.place = access->warp->place,
                        .kernel = access->run->kernel,
                        .instruction = access->pc,
                        .space = access->space,
                        .kind = kind,
                        .lanes = access->lanes,
                        .bytes = access->bytes,
                        .address = access->address};
}

static bool stop_watched(lane_access *access, const ptx_fault *reason)
{
    return ptx_stop(access->run, access->warp, access->pc, access->lanes, "%s", reason->text);
}

/* Asks everyone, then finds the pointers. */
static bool open_access(lane_access *access, ptx_access_kind kind)
{
    const ptx_run *run = access->run;
    ptx_fault reason;
    if (!check(access))
        return false;
    if (run->watch->access && access->space != PTX_PARAM) {
        const ptx_access told = tell(access, kind);
        if (!run->watch->access(run->watch_run, &told, &reason))
            return stop_watched(access, &reason);
    }
    find_pointers(access);
    return true;
}

/* ---- loads and stores ---- */

typedef void (*load_function)(void *to, const uint8_t *const *pointer, uint32_t offset);

#define LOAD(name, memory_type, lane_type)                                                         \
    static void name(void *to, const uint8_t *const *pointer, uint32_t offset)                     \
    {                                                                                              \
        for (int i = 0; i < PTX_LANES; i++)                                                        \
            ((lane_type *)to)[i] = (lane_type) * (const memory_type *)(pointer[i] + offset);       \
    }

LOAD(load_u8, uint8_t, uint32_t)
LOAD(load_u16, uint16_t, uint32_t)
LOAD(load_u32, uint32_t, uint32_t)
LOAD(load_s8, int8_t, int32_t)
LOAD(load_s16, int16_t, int32_t)
LOAD(load_u8_wide, uint8_t, uint64_t)
LOAD(load_u16_wide, uint16_t, uint64_t)
LOAD(load_u32_wide, uint32_t, uint64_t)
LOAD(load_s8_wide, int8_t, int64_t)
LOAD(load_s16_wide, int16_t, int64_t)
LOAD(load_s32_wide, int32_t, int64_t)
LOAD(load_u64_wide, uint64_t, uint64_t)

/* By bytes (1, 2, 4, 8), into 64-bit registers, with the sign. */
static const load_function LOADS[4][2][2] = {
    {{load_u8, load_s8}, {load_u8_wide, load_s8_wide}},
    {{load_u16, load_s16}, {load_u16_wide, load_s16_wide}},
    {{load_u32, load_u32}, {load_u32_wide, load_s32_wide}},
    {{NULL, NULL}, {load_u64_wide, load_u64_wide}},
};

/* Element `element` of all lanes into 32 lanes of a register. */
static void load_lanes(const lane_access *access, uint32_t element, void *to)
{
    const ptx_op *op = access->op;
    const char letter = op->to_letters[element];
    LOADS[__builtin_ctz(op->element_bytes)][letter == 'd'][op->is_signed](
        to, (const uint8_t *const *)access->pointer, element * op->element_bytes);
    if (letter == 'h' && op->is_signed)
        for (int i = 0; i < PTX_LANES; i++)
            ((uint32_t *)to)[i] &= 0xffff;
}

static bool load(lane_access *access)
{
    const ptx_op *op = access->op;
    uint64_t lanes[PTX_LANES] __attribute__((aligned(64)));
    if (!open_access(access, op->is_constant ? PTX_READ_CONSTANT : PTX_READ))
        return false;
    for (uint32_t element = 0; element < op->elements; element++) {
        void *to = ptx_at(access->warp, op->to[element]);
        if (access->lanes == UINT32_MAX)
            load_lanes(access, element, to);
        else {
            load_lanes(access, element, lanes);
            ptx_blend(to, lanes, op->to_letters[element], access->lanes);
        }
    }
    return true;
}

typedef void (*store_function)(const lane_access *access, const void *from, uint32_t offset);

#define STORE(name, memory_type, lane_type)                                                        \
    static void name(const lane_access *access, const void *from, uint32_t offset)                 \
    {                                                                                              \
        for (uint32_t left = access->lanes; left; left &= left - 1) {                              \
            const uint32_t i = ptx_first_lane(left);                                               \
            *(memory_type *)(access->pointer[i] + offset) =                                        \
                (memory_type)((const lane_type *)from)[i];                                         \
        }                                                                                          \
    }

STORE(store_8, uint8_t, uint32_t)
STORE(store_16, uint16_t, uint32_t)
STORE(store_32, uint32_t, uint32_t)
STORE(store_8_wide, uint8_t, uint64_t)
STORE(store_16_wide, uint16_t, uint64_t)
STORE(store_32_wide, uint32_t, uint64_t)
STORE(store_64_wide, uint64_t, uint64_t)

/* By bytes (1, 2, 4, 8), from 64-bit registers. */
static const store_function STORES[4][2] = {{store_8, store_8_wide},
                                            {store_16, store_16_wide},
                                            {store_32, store_32_wide},
                                            {NULL, store_64_wide}};

static bool store(lane_access *access)
{
    const ptx_op *op = access->op;
    if (!open_access(access, PTX_WRITE))
        return false;
    for (uint32_t element = 0; element < op->elements; element++)
        STORES[__builtin_ctz(op->element_bytes)][op->from_letters[1 + element] == 'd'](
            access, ptx_at(access->warp, op->from[1 + element]), element * op->element_bytes);
    return true;
}

/* ---- atomics ---- */

static uint64_t lane_value(const void *lanes, uint32_t lane, uint32_t bytes)
{
    return bytes == 8 ? ((const uint64_t *)lanes)[lane] : ((const uint32_t *)lanes)[lane];
}

static bool is_less(const ptx_op *op, uint64_t left, uint64_t right)
{
    if (!op->is_signed)
        return left < right;
    return op->element_bytes == 8 ? (int64_t)left < (int64_t)right : (int32_t)left < (int32_t)right;
}

static uint64_t act(const ptx_op *op, uint64_t old, uint64_t value, uint64_t other)
{
    switch ((ptx_action)op->action) {
    case PTX_ADDS:
        return old + value;
    case PTX_EXCHANGES:
        return value;
    case PTX_COMPARES:
        return old == value ? other : old;
    case PTX_ANDS:
        return old & value;
    case PTX_ORS:
        return old | value;
    case PTX_XORS:
        return old ^ value;
    case PTX_LEAST:
        return is_less(op, old, value) ? old : value;
    case PTX_MOST:
        return is_less(op, old, value) ? value : old;
    default:
        return old;
    }
}

/* Lanes follow each other; which is first is nobody's to know, so it is drawn. */
static bool act_in_turn(lane_access *access)
{
    const ptx_op *op = access->op;
    const void *values = ptx_at(access->warp, op->from[1]);
    const void *others = op->from_count > 2 ? ptx_at(access->warp, op->from[2]) : values;
    uint64_t olds[PTX_LANES] __attribute__((aligned(64))) = {0};
    const uint32_t turn = (uint32_t)ptx_draw(access->run) % PTX_LANES;
    if (!open_access(access, PTX_ATOMIC))
        return false;
    for (uint32_t i = 0; i < PTX_LANES; i++) {
        const uint32_t lane = (i + turn) % PTX_LANES;
        if (!(access->lanes >> lane & 1))
            continue;
        uint64_t old = 0;
        memcpy(&old, access->pointer[lane], op->element_bytes);
        const uint64_t changed = act(op, old, lane_value(values, lane, op->element_bytes),
                                     lane_value(others, lane, op->element_bytes));
        memcpy(access->pointer[lane], &changed, op->element_bytes);
        if (op->element_bytes == 8)
            olds[lane] = old;
        else
            ((uint32_t *)olds)[lane] = (uint32_t)old;
    }
    if (op->to_count)
        ptx_blend(ptx_at(access->warp, op->to[0]), olds, op->to_letters[0], access->lanes);
    return true;
}

/* ---- matrices ---- */

static bool load_matrices(lane_access *access)
{
    const ptx_op *op = access->op;
    uint8_t rows[PTX_LANES][16] __attribute__((aligned(64)));
    uint32_t *to[PTX_RESULTS_MAX] = {0};
    const uint32_t row_count = 8u * op->elements;
    access->lanes = row_count == PTX_LANES ? UINT32_MAX : (UINT32_C(1) << row_count) - 1;
    if (!open_access(access, PTX_READ_MATRIX))
        return false;
    for (uint32_t i = 0; i < row_count; i++)
        memcpy(rows[i], access->pointer[i], 16);
    for (uint32_t i = 0; i < op->elements; i++)
        to[i] = ptx_at(access->warp, op->to[i]);
    ptx_arithmetic_load_matrices(to, (const uint8_t(*)[16])rows, op->elements, op->is_transposed);
    return true;
}

/* ---- asynchronous copies ---- */

static void land_lane(const ptx_copy *copy, uint32_t lane)
{
    if (copy->reads >> lane & 1)
        memcpy(copy->to[lane], copy->from[lane], copy->bytes);
    else
        memset(copy->to[lane], 0, copy->bytes);
}

/* Lands a new copy at once, or hides its target. */
static void begin_copy(ptx_run *run, const ptx_copy *copy)
{
    const int noise = (int)(ptx_draw(run) & 0xff);
    for (uint32_t left = copy->lanes; left; left &= left - 1) {
        const uint32_t lane = ptx_first_lane(left);
        if (run->args->schedule.copies == PTX_LANDS_AT_ISSUE)
            land_lane(copy, lane);
        else
            memset(copy->to[lane], noise, copy->bytes);
    }
}

/* Which lanes read at all: all bytes or none. */
static bool find_readers(const lane_access *access, uint32_t *out_lanes)
{
    const uint32_t *sizes = ptx_at(access->warp, access->op->from[2]);
    *out_lanes = 0;
    for (uint32_t left = access->lanes; left; left &= left - 1) {
        const uint32_t lane = ptx_first_lane(left);
        if (sizes[lane] != 0 && sizes[lane] != access->bytes)
            return ptx_stop(access->run, access->warp, access->pc, UINT32_C(1) << lane,
                            "a copy that reads %u of %u bytes is not handled", sizes[lane],
                            access->bytes);
        *out_lanes |= (uint32_t)(sizes[lane] != 0) << lane;
    }
    return true;
}

static bool tell_copy(lane_access *to, lane_access *from, uint64_t ticket)
{
    const ptx_run *run = to->run;
    ptx_fault reason;
    if (!run->watch->copy_begin)
        return true;
    const ptx_access write = tell(to, PTX_WRITE), read = tell(from, PTX_READ);
    return run->watch->copy_begin(run->watch_run, ticket, from->lanes ? &read : NULL, &write,
                                  &reason) ||
           stop_watched(to, &reason);
}

static bool copy(lane_access *to)
{
    ptx_run *run = to->run;
    lane_access from = *to;
    from.space = PTX_GLOBAL;
    to->space = PTX_SHARED;
    find_addresses(&from, 1);
    if (!find_readers(to, &from.lanes) || !check(to) || (from.lanes && !check(&from)))
        return false;
    const uint64_t ticket = run->ticket++;
    if (!tell_copy(to, &from, ticket))
        return false;
    find_pointers(to);
    ptx_copy *copy = PTX_ADD(&to->warp->copies);
    copy->ticket = ticket;
    copy->lanes = to->lanes;
    copy->reads = from.lanes;
    copy->bytes = to->bytes;
    memcpy(copy->to, to->pointer, sizeof copy->to);
    for (int i = 0; i < PTX_LANES; i++)
        copy->from[i] = (const uint8_t *)(uintptr_t)from.address[i];
    begin_copy(run, copy);
    return true;
}

void ptx_memory_land(ptx_run *run, ptx_warp *warp, uint32_t lanes, bool waits)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < warp->copies.count; i++) {
        ptx_copy *copy = &warp->copies.items[i];
        const uint32_t landing = copy->lanes & lanes;
        if (landing && run->args->schedule.copies == PTX_LANDS_AT_WAIT)
            for (uint32_t left = landing; left; left &= left - 1)
                land_lane(copy, ptx_first_lane(left));
        if (landing && waits && run->watch->copy_end)
            run->watch->copy_end(run->watch_run, &warp->place, copy->ticket, landing);
        copy->lanes &= ~lanes;
        if (copy->lanes)
            warp->copies.items[kept++] = *copy;
    }
    warp->copies.count = kept;
}

/* ---- all of them ---- */

static bool run_one_space(lane_access *access)
{
    switch (access->op->kind) {
    case PTX_OP_LOAD:
        return load(access);
    case PTX_OP_STORE:
        return store(access);
    case PTX_OP_ATOMIC:
        return act_in_turn(access);
    case PTX_OP_LOAD_MATRICES:
        return load_matrices(access);
    default:
        return copy(access);
    }
}

bool ptx_memory_run(ptx_run *run, ptx_warp *warp, uint32_t pc, uint32_t lanes)
{
    const ptx_op *op = &run->kernel->ops[pc];
    lane_access access; /* its addresses come later, and are many */
    access.run = run;
    access.warp = warp;
    access.op = op;
    access.pc = pc;
    access.bytes =
        (uint32_t)op->element_bytes * (op->kind == PTX_OP_LOAD_MATRICES ? 1u : op->elements);
    const bool is_generic = op->space == PTX_GENERIC && op->kind != PTX_OP_COPY;
    while (lanes) { /* an access by generic addresses may be to several spaces */
        access.lanes = lanes;
        access.space = (ptx_space)op->space;
        find_addresses(&access, 0);
        if (is_generic)
            narrow_generic(&access);
        const uint32_t taken = access.lanes;
        if (!run_one_space(&access))
            return false;
        lanes &= ~taken;
    }
    return true;
}
