/* One warp: which of its lanes run, and one op after another for them.
 *
 * A group is the lanes that run now, all at one instruction. Together, it is those farthest behind,
 * and it runs until it gets to the next ones, or splits, or waits: lanes that a branch has parted
 * meet again where their ways meet, because nvcc lays that point behind both. Apart, it is some
 * lanes drawn by seed, which stay by themselves until they have to wait. Lanes that wait for others
 * are parked; once nobody else can run, those that have all arrived go on, and if there are none
 * the program never would. */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct lane_group {
    uint32_t lanes, pc;
    uint32_t limit; /* runs while pc is below */
} lane_group;

static uint32_t bit_count(uint32_t lanes)
{
    return (uint32_t)__builtin_popcount(lanes);
}

bool ptx_stop(ptx_run *run, const ptx_warp *warp, uint32_t pc, uint32_t lanes, const char *format,
              ...)
{
    char reason[PTX_FAULT_BYTES];
    const ptx_op *op = &run->kernel->ops[pc];
    const uint32_t *block = warp->block->coordinates;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return ptx_fail(run->fault, "%s, block (%u, %u, %u), warp %u, lanes 0x%08x, line %u: `%s`: %s",
                    run->kernel->name, block[0], block[1], block[2], warp->place.warp, lanes,
                    op->line, op->text, reason);
}

PTX_EACH_SET void ptx_blend(void *to, const void *from, char letter, uint32_t lanes)
{
    if (letter == 'p') {
        uint32_t *bits = to;
        *bits = (*bits & ~lanes) | (*(const uint32_t *)from & lanes);
    } else if (letter == 'd')
        for (int i = 0; i < PTX_LANES; i++)
            ((uint64_t *)to)[i] =
                lanes >> i & 1 ? ((const uint64_t *)from)[i] : ((uint64_t *)to)[i];
    else
        for (int i = 0; i < PTX_LANES; i++)
            ((uint32_t *)to)[i] =
                lanes >> i & 1 ? ((const uint32_t *)from)[i] : ((uint32_t *)to)[i];
}

/* ---- ops without memory ---- */

typedef uint64_t lane_buffer[PTX_LANES] __attribute__((aligned(64)));

static bool compute(ptx_run *run, ptx_warp *warp, uint32_t pc, uint32_t lanes)
{
    const ptx_op *op = &run->kernel->ops[pc];
    const bool is_direct = op->is_direct && lanes == UINT32_MAX;
    lane_buffer buffers[PTX_RESULTS_MAX];
    ptx_arithmetic_call call; /* what the op has not is not read */
    call.lanes = lanes;
    call.mode = &run->mode;
    for (int i = 0; i < op->to_count; i++)
        call.to[i] = is_direct ? ptx_at(warp, op->to[i]) : buffers[i];
    for (int i = 0; i < op->from_count; i++)
        call.from[i] = ptx_at(warp, op->from[i]);
    const uint32_t undefined = op->run(&call) & lanes;
    if (undefined)
        return ptx_stop(run, warp, pc, undefined, "its result is not defined");
    for (int i = 0; i < op->to_count && !is_direct; i++)
        ptx_blend(ptx_at(warp, op->to[i]), buffers[i], op->to_letters[i], lanes);
    return true;
}

static uint64_t lane_of(const void *lanes, char letter, int lane)
{
    return letter == 'd' ? ((const uint64_t *)lanes)[lane] : ((const uint32_t *)lanes)[lane];
}

static void set_lane(void *lanes, char letter, int lane, uint64_t value)
{
    if (letter == 'd')
        ((uint64_t *)lanes)[lane] = value;
    else
        ((uint32_t *)lanes)[lane] = (uint32_t)value;
}

PTX_EACH_SET static void pack(ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    lane_buffer whole;
    const char letter = op->to_letters[0];
    const uint32_t bits = 8u * op->element_bytes / op->elements;
    for (int lane = 0; lane < PTX_LANES; lane++) {
        uint64_t value = 0;
        for (int i = 0; i < op->elements; i++)
            value |= lane_of(ptx_at(warp, op->from[i]), op->from_letters[i], lane)
                     << (bits * (uint32_t)i);
        set_lane(whole, letter, lane, value);
    }
    ptx_blend(ptx_at(warp, op->to[0]), whole, letter, lanes);
}

PTX_EACH_SET static void unpack(ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    lane_buffer whole, part;
    const uint32_t bits = 8u * op->element_bytes / op->elements;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    memcpy(whole, ptx_at(warp, op->from[0]), ptx_letter_bytes(op->from_letters[0]));
    for (int i = 0; i < op->elements; i++) {
        for (int lane = 0; lane < PTX_LANES; lane++)
            set_lane(part, op->to_letters[i], lane,
                     lane_of(whole, op->from_letters[0], lane) >> (bits * (uint32_t)i) & mask);
        ptx_blend(ptx_at(warp, op->to[i]), part, op->to_letters[i], lanes);
    }
}

static void move(ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    void *to = ptx_at(warp, op->to[0]);
    const void *from = ptx_at(warp, op->from[0]);
    if (lanes == UINT32_MAX && to != from)
        memcpy(to, from, ptx_letter_bytes(op->to_letters[0]));
    else
        ptx_blend(to, from, op->to_letters[0], lanes);
}

static void convert_address(ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    lane_buffer sums;
    const uint64_t *from = ptx_at(warp, op->from[0]);
    for (int i = 0; i < PTX_LANES; i++)
        sums[i] = from[i] + (uint64_t)op->displacement[0];
    ptx_blend(ptx_at(warp, op->to[0]), sums, 'd', lanes);
}

static void tell_active(ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    lane_buffer masks;
    for (int i = 0; i < PTX_LANES; i++)
        ((uint32_t *)masks)[i] = lanes;
    ptx_blend(ptx_at(warp, op->to[0]), masks, 'w', lanes);
}

/* Everything but what ends, branches or waits at a block's barrier. */
static bool execute(ptx_run *run, ptx_warp *warp, uint32_t pc, uint32_t lanes)
{
    const ptx_op *op = &run->kernel->ops[pc];
    switch ((ptx_op_kind)op->kind) {
    case PTX_OP_ARITHMETIC:
        return compute(run, warp, pc, lanes);
    case PTX_OP_LOAD:
    case PTX_OP_STORE:
    case PTX_OP_ATOMIC:
    case PTX_OP_LOAD_MATRICES:
    case PTX_OP_COPY:
        return ptx_memory_run(run, warp, pc, lanes);
    case PTX_OP_COPY_WAIT:
        ptx_memory_land(run, warp, lanes, true);
        return true;
    case PTX_OP_MOVE:
        move(warp, op, lanes);
        return true;
    case PTX_OP_PACK:
        pack(warp, op, lanes);
        return true;
    case PTX_OP_UNPACK:
        unpack(warp, op, lanes);
        return true;
    case PTX_OP_CONVERT_ADDRESS:
        convert_address(warp, op, lanes);
        return true;
    case PTX_OP_ACTIVE_MASK:
        tell_active(warp, op, lanes);
        return true;
    case PTX_OP_WARP_BARRIER:
        if (run->watch->warp_join)
            run->watch->warp_join(run->watch_run, &warp->place, lanes);
        return true;
    case PTX_OP_TRAP:
        return ptx_stop(run, warp, pc, lanes, "the program traps");
    default:
        return ptx_stop(run, warp, pc, lanes, "it is not handled");
    }
}

/* ---- lanes ---- */

static PTX_INSIDE void set_pc(ptx_warp *warp, uint32_t lanes, uint32_t pc)
{
    for (int i = 0; i < PTX_LANES; i++)
        warp->pc[i] = lanes >> i & 1 ? pc : warp->pc[i];
}

static PTX_INSIDE uint32_t lanes_at(const ptx_warp *warp, uint32_t lanes, uint32_t pc)
{
    uint32_t found = 0;
    for (int i = 0; i < PTX_LANES; i++)
        found |= (uint32_t)(warp->pc[i] == pc) << i;
    return found & lanes;
}

static PTX_INSIDE uint32_t lowest_pc(const ptx_warp *warp, uint32_t lanes)
{
    uint32_t lowest = UINT32_MAX;
    for (int i = 0; i < PTX_LANES; i++) {
        const uint32_t pc = lanes >> i & 1 ? warp->pc[i] : UINT32_MAX;
        lowest = pc < lowest ? pc : lowest;
    }
    return lowest;
}

/* The lanes that have to be at an op of that kind together; 0: a fault. */
static PTX_INSIDE uint32_t find_needed(ptx_run *run, const ptx_warp *warp, uint32_t pc,
                                       uint32_t lanes)
{
    const ptx_op *op = &run->kernel->ops[pc];
    if (op->waits == PTX_WAITS_FOR_LIVE)
        return warp->live;
    if (op->waits == PTX_WAITS_FOR_WARP) {
        if (warp->live != UINT32_MAX)
            ptx_stop(run, warp, pc, lanes, "lanes 0x%08x are missing: they ended", ~warp->live);
        return warp->live == UINT32_MAX ? UINT32_MAX : 0;
    }
    const uint32_t *members = ptx_at(warp, op->members);
    const uint32_t named = members[ptx_first_lane(lanes)];
    for (uint32_t left = lanes; left; left &= left - 1)
        if (members[ptx_first_lane(left)] != named) {
            ptx_stop(run, warp, pc, lanes, "lanes name different members; not handled");
            return 0;
        }
    if (lanes & ~named)
        ptx_stop(run, warp, pc, lanes & ~named, "the lanes are not among the members 0x%08x",
                 named);
    return lanes & ~named ? 0 : named & warp->live;
}

static PTX_INSIDE void park(ptx_warp *warp, const lane_group *group)
{
    set_pc(warp, group->lanes, group->pc);
    warp->parked |= group->lanes;
}

/* The next lanes to run; false: all that live are parked. */
static PTX_INSIDE bool pick(ptx_run *run, const ptx_warp *warp, lane_group *out)
{
    const uint32_t ready = warp->live & ~warp->parked;
    if (!ready)
        return false;
    if (run->args->schedule.lanes == PTX_APART) {
        uint32_t left = ready;
        for (uint64_t skip = ptx_draw(run) % bit_count(ready); skip > 0; skip--)
            left &= left - 1;
        const uint32_t lane = ptx_first_lane(left);
        const uint32_t beside = lanes_at(warp, ready, warp->pc[lane]) & (uint32_t)ptx_draw(run);
        *out = (lane_group){beside | UINT32_C(1) << lane, warp->pc[lane], UINT32_MAX};
        return true;
    }
    out->pc = lowest_pc(warp, ready);
    out->lanes = lanes_at(warp, ready, out->pc);
    out->limit = lowest_pc(warp, ready & ~out->lanes);
    return true;
}

/* ---- groups ---- */

typedef enum step_result { STEP_ON, STEP_LEFT, STEP_FAULT } step_result;

static uint32_t guarded(const ptx_warp *warp, const ptx_op *op, uint32_t lanes)
{
    if (!op->is_guarded)
        return lanes;
    const uint32_t bits = *(const uint32_t *)ptx_at(warp, op->guard);
    return lanes & (op->guard_is_negated ? ~bits : bits);
}

/* May the group pass an op at which lanes wait for others? If not, it is parked there. */
static PTX_INSIDE step_result wait_for_others(ptx_run *run, ptx_warp *warp, lane_group *group)
{
    const ptx_op *op = &run->kernel->ops[group->pc];
    const uint32_t going = guarded(warp, op, group->lanes);
    if (going != group->lanes && going) { /* those that pass by go on alone */
        set_pc(warp, group->lanes, group->pc);
        set_pc(warp, group->lanes & ~going, group->pc + 1);
        return STEP_LEFT;
    }
    if (!going)
        return STEP_ON;
    const uint32_t needed = find_needed(run, warp, group->pc, group->lanes);
    if (needed == group->lanes && op->kind != PTX_OP_BARRIER)
        return STEP_ON;
    park(warp, group);
    warp->is_at_barrier = op->kind == PTX_OP_BARRIER && needed == group->lanes;
    return needed ? STEP_LEFT : STEP_FAULT;
}

static PTX_INSIDE step_result branch(ptx_run *run, ptx_warp *warp, lane_group *group,
                                     uint32_t taken)
{
    const ptx_op *op = &run->kernel->ops[group->pc];
    const uint32_t passing = group->lanes & ~taken;
    if (taken && passing) {
        if (op->is_uniform) {
            ptx_stop(run, warp, group->pc, taken, "the lanes part at bra.uni");
            return STEP_FAULT;
        }
        run->counts.divergences++;
        set_pc(warp, taken, op->target);
        set_pc(warp, passing, group->pc + 1);
        return STEP_LEFT;
    }
    group->pc = taken ? op->target : group->pc + 1;
    return STEP_ON;
}

static step_result end(ptx_run *run, ptx_warp *warp, lane_group *group, uint32_t ending)
{
    warp->live &= ~ending;
    ptx_memory_land(run, warp, ending, false);
    group->lanes &= ~ending;
    group->pc++;
    return group->lanes ? STEP_ON : STEP_LEFT;
}

static PTX_INSIDE step_result step(ptx_run *run, ptx_warp *warp, lane_group *group)
{
    const uint32_t pc = group->pc;
    const ptx_op *op = &run->kernel->ops[pc];
    if (op->waits) {
        const step_result waited = wait_for_others(run, warp, group);
        if (waited != STEP_ON)
            return waited;
    }
    run->groups[pc]++;
    run->lanes[pc] += bit_count(group->lanes);
    const uint32_t lanes = guarded(warp, op, group->lanes);
    if (op->kind == PTX_OP_BRANCH)
        return branch(run, warp, group, lanes);
    if (op->kind == PTX_OP_END)
        return end(run, warp, group, lanes);
    if (lanes && !execute(run, warp, pc, lanes))
        return STEP_FAULT;
    group->pc++;
    return STEP_ON;
}

PTX_EACH_SET static bool run_group(ptx_run *run, ptx_warp *warp, lane_group *group)
{
    while (group->pc < group->limit && run->stretch_left > 0) {
        const step_result result = step(run, warp, group);
        if (result != STEP_ON)
            return result == STEP_LEFT;
        run->stretch_left--;
    }
    set_pc(warp, group->lanes, group->pc);
    return true;
}

/* Lets parked lanes go whose others have all arrived or ended; nobody else can run. */
static bool release(ptx_run *run, ptx_warp *warp)
{
    uint32_t left = warp->parked & warp->live;
    while (left) {
        lane_group group = {.pc = warp->pc[ptx_first_lane(left)]};
        group.limit = group.pc + 1;
        group.lanes = lanes_at(warp, left, group.pc);
        const uint32_t needed = find_needed(run, warp, group.pc, group.lanes);
        if (!needed)
            return false;
        if (needed == group.lanes) {
            warp->parked &= ~group.lanes;
            return run_group(run, warp, &group);
        }
        left &= ~group.lanes;
    }
    const uint32_t pc = lowest_pc(warp, warp->live), lanes = lanes_at(warp, warp->live, pc);
    const uint32_t others = warp->live & ~lanes;
    return ptx_stop(run, warp, pc, lanes, "waits for ever: lanes 0x%08x wait elsewhere (line %u)",
                    others, others ? run->kernel->ops[warp->pc[ptx_first_lane(others)]].line : 0);
}

PTX_EACH_SET bool ptx_warp_run(ptx_run *run, ptx_warp *warp)
{
    lane_group group;
    while (warp->live && !warp->is_at_barrier && run->stretch_left > 0)
        if (!(pick(run, warp, &group) ? run_group(run, warp, &group) : release(run, warp)))
            return false;
    return true;
}
