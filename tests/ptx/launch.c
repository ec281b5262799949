/* A launch: blocks in the schedule's order, their warps in turn, and barriers between these. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 1024, STRETCH_MAX = 200 };

static const uint64_t INSTRUCTIONS_MAX = UINT64_C(1) << 40;

uint64_t ptx_draw(ptx_run *run)
{
    uint64_t bits = run->random += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64, Steele et al. */
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* ---- a block's warps ---- */

static void set_special(const ptx_run *run, ptx_warp *warp, ptx_special special, uint32_t lane,
                        uint32_t value)
{
    const uint32_t at = run->kernel->special_at[special];
    if (at)
        ((uint32_t *)(warp->base[0] + at))[lane] = value;
}

static void set_specials(const ptx_run *run, ptx_warp *warp)
{
    const ptx_launch_args *args = run->args;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        const uint32_t thread = warp->place.warp * PTX_LANES + lane;
        const uint32_t plane = args->block[0] * args->block[1];
        const uint32_t tid[3] = {thread % args->block[0], thread / args->block[0] % args->block[1],
                                 thread / plane};
        for (uint32_t axis = 0; axis < 3; axis++) {
            set_special(run, warp, (ptx_special)(PTX_TID_X + axis), lane, tid[axis]);
            set_special(run, warp, (ptx_special)(PTX_NTID_X + axis), lane, args->block[axis]);
            set_special(run, warp, (ptx_special)(PTX_CTAID_X + axis), lane,
                        warp->block->coordinates[axis]);
            set_special(run, warp, (ptx_special)(PTX_NCTAID_X + axis), lane, args->grid[axis]);
        }
        set_special(run, warp, PTX_LANE, lane, lane);
        set_special(run, warp, PTX_WARP, lane, warp->place.warp);
    }
}

/* Registers that nobody set have noise. */
static void begin_warp(ptx_run *run, ptx_block *block, uint32_t index, int noise)
{
    ptx_warp *warp = &block->warps[index];
    const uint32_t left = run->thread_count - index * PTX_LANES;
    memset(warp->base[0], noise, run->kernel->file_bytes);
    memset(warp->pc, 0, sizeof warp->pc);
    warp->place = (ptx_place){block->index, (uint32_t)(block - run->blocks), index};
    warp->live = left >= PTX_LANES ? UINT32_MAX : (UINT32_C(1) << left) - 1;
    warp->parked = 0;
    warp->is_at_barrier = false;
    warp->copies.count = 0;
    set_specials(run, warp);
}

static bool stop_block(ptx_run *run, const ptx_block *block, const ptx_fault *reason)
{
    return ptx_fail(run->fault, "%s, block (%u, %u, %u): %s", run->kernel->name,
                    block->coordinates[0], block->coordinates[1], block->coordinates[2],
                    reason->text);
}

static bool begin_block(ptx_run *run, ptx_block *block)
{
    const uint32_t *grid = run->args->grid;
    const int noise = (int)(ptx_draw(run) & 0xff);
    ptx_fault reason;
    block->is_running = true;
    block->index =
        (uint64_t)((unsigned __int128)run->blocks_begun++ * run->block_step % run->block_count);
    block->coordinates[0] = (uint32_t)(block->index % grid[0]);
    block->coordinates[1] = (uint32_t)(block->index / grid[0] % grid[1]);
    block->coordinates[2] = (uint32_t)(block->index / grid[0] / grid[1]);
    memset(block->shared, noise, run->shared_bytes);
    memset(block->local, noise,
           (size_t)run->warp_count * PTX_LANES * run->kernel->facts.local_bytes);
    for (uint32_t i = 0; i < run->warp_count; i++)
        begin_warp(run, block, i, noise);
    return !run->watch->block_begin ||
           run->watch->block_begin(run->watch_run, &block->warps[0].place, &reason) ||
           stop_block(run, block, &reason);
}

static bool end_block(ptx_run *run, ptx_block *block)
{
    ptx_fault reason;
    block->is_running = false;
    return !run->watch->block_end ||
           run->watch->block_end(run->watch_run, &block->warps[0].place, &reason) ||
           stop_block(run, block, &reason);
}

/* ---- barriers ---- */

static const ptx_op *op_of(const ptx_run *run, const ptx_warp *warp)
{
    return &run->kernel->ops[warp->pc[ptx_first_lane(warp->live)]];
}

static uint32_t barrier_number(const ptx_warp *warp, const ptx_op *op)
{
    return ((const uint32_t *)ptx_at(warp, op->from[0]))[ptx_first_lane(warp->live)];
}

/* The threads whose predicate holds; *out_all: it holds for all. */
static uint32_t count_votes(const ptx_run *run, const ptx_block *block, bool *out_all)
{
    uint32_t count = 0;
    *out_all = true;
    for (uint32_t i = 0; i < run->warp_count; i++) {
        const ptx_warp *warp = &block->warps[i];
        if (!warp->live)
            continue;
        const uint32_t *bits = ptx_at(warp, op_of(run, warp)->from[1]);
        count += (uint32_t)__builtin_popcount(*bits & warp->live);
        *out_all = *out_all && (*bits & warp->live) == warp->live;
    }
    return count;
}

static void set_vote(ptx_warp *warp, const ptx_op *op, uint32_t count, bool is_all)
{
    uint64_t lanes[PTX_LANES] __attribute__((aligned(64)));
    const bool holds = op->action == PTX_ORS ? count > 0 : is_all;
    for (int i = 0; i < PTX_LANES; i++)
        ((uint32_t *)lanes)[i] = op->action == PTX_COUNTS ? count : holds ? UINT32_MAX : 0;
    ptx_blend(ptx_at(warp, op->to[0]), lanes, op->to_letters[0], warp->live);
}

/* The warps that live all wait: at one barrier, and for one purpose? */
static bool check_barrier(ptx_run *run, const ptx_block *block, const ptx_warp *first)
{
    const ptx_op *op = op_of(run, first);
    for (uint32_t i = 0; i < run->warp_count; i++) {
        const ptx_warp *warp = &block->warps[i];
        if (!warp->live)
            continue;
        const ptx_op *other = op_of(run, warp);
        if (barrier_number(warp, other) != barrier_number(first, op) ||
            other->to_count != op->to_count || other->action != op->action)
            return ptx_stop(run, warp, warp->pc[ptx_first_lane(warp->live)], warp->live,
                            "waits for ever: warp %u waits at another barrier (line %u)",
                            first->place.warp, op->line);
    }
    return true;
}

/* All warps that live wait for each other: lets them go. */
static bool pass_barrier(ptx_run *run, ptx_block *block, const ptx_warp *first)
{
    uint32_t lanes[THREADS_MAX / PTX_LANES] = {0};
    bool is_all = true;
    if (!check_barrier(run, block, first))
        return false;
    const bool votes = op_of(run, first)->to_count > 0;
    const uint32_t count = votes ? count_votes(run, block, &is_all) : 0;
    for (uint32_t i = 0; i < run->warp_count; i++) {
        ptx_warp *warp = &block->warps[i];
        lanes[i] = warp->live;
        if (!warp->live)
            continue;
        const uint32_t pc = warp->pc[ptx_first_lane(warp->live)];
        run->groups[pc]++;
        run->lanes[pc] += (uint32_t)__builtin_popcount(warp->live);
        if (votes)
            set_vote(warp, &run->kernel->ops[pc], count, is_all);
        for (int lane = 0; lane < PTX_LANES; lane++)
            warp->pc[lane] = pc + 1;
        warp->parked = 0;
        warp->is_at_barrier = false;
    }
    run->counts.barriers++;
    if (run->watch->block_join)
        run->watch->block_join(run->watch_run, &block->warps[0].place, lanes);
    return true;
}

/* ---- turns ---- */

/* A warp of the block that can run, from `first` on; NULL: there is none. *out_waiting: one that
 * waits at a barrier. */
static ptx_warp *find_ready(const ptx_run *run, const ptx_block *block, uint32_t first,
                            ptx_warp **out_waiting)
{
    *out_waiting = NULL;
    for (uint32_t i = 0; i < run->warp_count; i++) {
        ptx_warp *warp = &block->warps[(first + i) % run->warp_count];
        if (warp->live && !warp->is_at_barrier)
            return warp;
        if (warp->live)
            *out_waiting = warp;
    }
    return NULL;
}

static bool run_stretch(ptx_run *run, ptx_warp *warp, uint64_t stretch)
{
    run->stretch_left = stretch < run->instructions_left ? stretch : run->instructions_left;
    const uint64_t given = run->stretch_left;
    if (!ptx_warp_run(run, warp))
        return false;
    run->instructions_left -= given - run->stretch_left;
    if (run->instructions_left == 0 && warp->live)
        return ptx_stop(run, warp, op_of(run, warp) - run->kernel->ops, warp->live,
                        "the launch runs more instructions than it may: a loop without end?");
    return true;
}

/* One turn of a block: a stretch of one of its warps, or a barrier passed, or its end. */
static bool take_turn(ptx_run *run, ptx_block *block)
{
    const bool is_drawn = run->slot_count > 1;
    const uint32_t first = is_drawn ? (uint32_t)(ptx_draw(run) % run->warp_count) : 0;
    ptx_warp *waiting;
    ptx_warp *warp = find_ready(run, block, first, &waiting);
    if (warp)
        return run_stretch(run, warp, is_drawn ? 1 + ptx_draw(run) % STRETCH_MAX : UINT64_MAX);
    return waiting ? pass_barrier(run, block, waiting) : end_block(run, block);
}

static bool run_blocks(ptx_run *run)
{
    for (;;) {
        uint32_t running = 0;
        for (uint32_t i = 0; i < run->slot_count; i++) {
            ptx_block *block = &run->blocks[i];
            if (!block->is_running && run->blocks_begun < run->block_count &&
                !begin_block(run, block))
                return false;
            running += block->is_running;
        }
        if (!running)
            return true;
        ptx_block *block = &run->blocks[ptx_draw(run) % run->slot_count];
        if (block->is_running && !take_turn(run, block))
            return false;
    }
}

/* ---- opening and closing ---- */

static void *take_aligned(uint64_t bytes)
{
    void *memory = aligned_alloc(64, ptx_round_up(bytes + 64, 64));
    if (!memory)
        abort(); /* as ptx_take */
    return memory;
}

static void open_blocks(ptx_run *run)
{
    const ptx_kernel *kernel = run->kernel;
    run->blocks = ptx_take(run->slot_count, sizeof *run->blocks);
    for (uint32_t i = 0; i < run->slot_count; i++) {
        ptx_block *block = &run->blocks[i];
        block->shared = take_aligned(run->shared_bytes);
        block->local =
            take_aligned((uint64_t)run->warp_count * PTX_LANES * kernel->facts.local_bytes);
        block->warps = ptx_take(run->warp_count, sizeof *block->warps);
        for (uint32_t k = 0; k < run->warp_count; k++) {
            block->warps[k].block = block;
            block->warps[k].base[0] = take_aligned(kernel->file_bytes);
            block->warps[k].base[1] = kernel->constants;
        }
    }
}

static void close_blocks(ptx_run *run)
{
    for (uint32_t i = 0; i < run->slot_count; i++) {
        ptx_block *block = &run->blocks[i];
        for (uint32_t k = 0; k < run->warp_count; k++) {
            free(block->warps[k].base[0]);
            free(block->warps[k].copies.items);
        }
        free(block->warps);
        free(block->local);
        free(block->shared);
    }
    free(run->blocks);
}

static bool check_args(const ptx_launch_args *args, ptx_fault *fault)
{
    const ptx_kernel_facts *facts = &args->kernel->facts;
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        blocks *= args->grid[i];
        threads = threads <= THREADS_MAX ? threads * args->block[i] : threads;
    }
    if (threads == 0 || blocks == 0)
        return ptx_fail(fault, "%s: a launch of no thread", facts->name);
    if (threads > THREADS_MAX || (facts->threads_max && threads > facts->threads_max))
        return ptx_fail(fault, "%s: %llu threads a block, more than its %u", facts->name,
                        (unsigned long long)threads,
                        facts->threads_max ? facts->threads_max : THREADS_MAX);
    return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Blocks in order, or in steps that meet each of them once. */
static void choose_order(ptx_run *run)
{
    run->block_step = 1;
    if (run->slot_count < 2)
        return;
    do
        run->block_step = ptx_draw(run) % run->block_count + 1;
    while (common_divisor(run->block_step, run->block_count) != 1);
}

static void fill_params(const ptx_run *run)
{
    const ptx_kernel_facts *facts = &run->kernel->facts;
    for (uint32_t i = 0; i < facts->param_count; i++)
        memcpy(run->params + facts->argument_offset[i], run->args->arguments[i],
               facts->argument_bytes[i]);
}

static void open_run(ptx_run *run)
{
    const ptx_launch_args *args = run->args;
    const ptx_kernel_facts *facts = &run->kernel->facts;
    run->mode = (ptx_arithmetic_mode){args->arithmetic_seed, args->truncates_mma};
    run->thread_count = args->block[0] * args->block[1] * args->block[2];
    run->warp_count = (run->thread_count + PTX_LANES - 1) / PTX_LANES;
    run->shared_bytes = facts->static_shared_bytes + args->dynamic_shared_bytes;
    run->block_count = (uint64_t)args->grid[0] * args->grid[1] * args->grid[2];
    run->slot_count = args->schedule.blocks_at_once ? args->schedule.blocks_at_once : 1;
    if (run->slot_count > run->block_count)
        run->slot_count = (uint32_t)run->block_count;
    run->random = args->schedule.seed;
    run->instructions_left = args->group_instructions ? args->group_instructions : INSTRUCTIONS_MAX;
    run->params = take_aligned(facts->param_bytes);
    run->groups = ptx_take(facts->instruction_count, sizeof *run->groups);
    run->lanes = ptx_take(facts->instruction_count, sizeof *run->lanes);
    fill_params(run);
    choose_order(run);
    open_blocks(run);
}

/* Adds the counts of the launch to the kernel's, and sums them. */
static void close_run(ptx_run *run)
{
    ptx_kernel *kernel = run->kernel;
    pthread_mutex_lock(&kernel->lock);
    for (uint32_t i = 0; i < kernel->facts.instruction_count; i++) {
        kernel->groups[i] += run->groups[i];
        kernel->lanes[i] += run->lanes[i];
        run->counts.groups += run->groups[i];
        run->counts.lanes += run->lanes[i];
    }
    pthread_mutex_unlock(&kernel->lock);
    close_blocks(run);
    free(run->groups);
    free(run->lanes);
    free(run->params);
}

static bool run_watched(ptx_run *run)
{
    const ptx_watch *watch = run->watch;
    const ptx_launch_shape shape = {.kernel = run->kernel,
                                    .block_count = run->block_count,
                                    .slot_count = run->slot_count,
                                    .warps_per_block = run->warp_count,
                                    .threads_per_block = run->thread_count,
                                    .shared_bytes = run->shared_bytes,
                                    .local_bytes = run->kernel->facts.local_bytes};
    ptx_fault reason;
    if (watch->launch_begin &&
        !watch->launch_begin(watch->watcher, &shape, &run->watch_run, &reason))
        return ptx_fail(run->fault, "%s: %s", run->kernel->name, reason.text);
    const bool is_good = run_blocks(run);
    if (!watch->launch_end || watch->launch_end(run->watch_run, &reason) || !is_good)
        return is_good;
    return ptx_fail(run->fault, "%s: %s", run->kernel->name, reason.text);
}

bool ptx_launch(const ptx_launch_args *args, ptx_launch_counts *out_counts, ptx_fault *out_fault)
{
    static const ptx_watch nobody;
    ptx_run run = {.args = args,
                   .kernel = args->kernel,
                   .watch = args->watch ? args->watch : &nobody,
                   .fault = out_fault};
    if (!check_args(args, out_fault))
        return false;
    open_run(&run);
    const bool is_good = run_watched(&run);
    close_run(&run);
    if (out_counts)
        *out_counts = run.counts;
    return is_good;
}
