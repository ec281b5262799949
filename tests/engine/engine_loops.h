/* A small world whose plan has loops, for tests of the engine: kernels compute with whole numbers,
 * inputs come from a source, and one stale or misplaced cell changes what comes out.
 *
 *   section 0, once     sum = 0
 *   section 1, M times  a source fills a ring of two slots on the host; a ring of two on the device
 *                       gets a copy; member m of a family = mix(token, micro-batch); and the host
 *                       lane: host sum = mix(host sum, token)
 *   section 2, M times  sum = mix(sum, member m)
 *   section 3, once     control = sum, and out
 *
 * With a disk the family lives there: it is written by way of rings of two on device and host in
 * section 1, and read back by way of two others in section 2. Rings are kept by waits of age 1. An
 * output is out when all else is done, so nothing of one step is under way in the next.
 */
#ifndef TESTS_ENGINE_LOOPS_H
#define TESTS_ENGINE_LOOPS_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "engine/engine_internal.h"

enum {
    LOOP_CELL =
        4096, /* bytes from cell to cell, and of a member: a sector, so that disks take it */
    LOOP_WORDS = LOOP_CELL / 8,
    LOOP_FIRST_MICRO_BATCH = 3,
    LOOP_NEVER = -1
};

/* The commands. */
typedef enum loop_role {
    LOOP_CLEAR,
    LOOP_INPUT,
    LOOP_TOKEN_IN,
    LOOP_MAP,
    LOOP_HOST_SUM,
    LOOP_SPILL_OUT, /* this one and the next three: with a disk */
    LOOP_SPILL_WRITE,
    LOOP_SPILL_READ,
    LOOP_SPILL_IN,
    LOOP_SUM,
    LOOP_FINISH,
    LOOP_CONTROL_OUT,
    LOOP_ROLES
} loop_role;

enum { LOOP_SECTIONS = 4, LOOP_OPS = 6, LOOP_PLACES = 24, LOOP_WAITS = 32 };
enum { LOOP_VALUE_TOKEN, LOOP_VALUE_CONTROL, LOOP_VALUE_MEMBER, LOOP_VALUES };

/* Cells. */
enum {
    LOOP_DEVICE_SUM,
    LOOP_DEVICE_CONTROL,
    LOOP_DEVICE_TOKENS,
    LOOP_DEVICE_BACK = LOOP_DEVICE_TOKENS + 2,
    LOOP_DEVICE_MEMBERS = LOOP_DEVICE_BACK + 2,
    LOOP_HOST_TOKENS = 0,
    LOOP_HOST_SPILL = 2,
    LOOP_HOST_BACK = 4,
    LOOP_HOST_SUM_CELL = 6,
    LOOP_HOST_CONTROL = 7,
    LOOP_HOST_CELLS = 8
};

typedef struct loop_fakes {
    _Atomic uint32_t wrong; /* checks that failed */
    _Atomic uint32_t runs[SL_OP_COUNT];
    _Atomic uint32_t fills;
    _Atomic uint32_t step;          /* of the source */
    uint32_t sleep_us[SL_OP_COUNT]; /* every third time */
    /* The op kind that fails, and when: repetition of step; LOOP_NEVER. */
    sl_op_kind fail_kind;
    int64_t fail_repetition, fail_step;
    _Atomic uint32_t has_failed, runs_after; /* kernels that began after that */
    _Atomic uint32_t *copies_in;             /* MAP waits until the next token is there, too */
    uint32_t repeat;
} loop_fakes;

static loop_fakes loop;

static inline uint64_t loop_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xFF51AFD7ED558CCDu;
    return x ^ x >> 29;
}

static inline void loop_check(int is_right)
{
    if (!is_right)
        atomic_fetch_add(&loop.wrong, 1);
}

static inline void loop_sleep(uint32_t us)
{
    struct timespec time = {0, (long)us * 1000};
    if (us)
        nanosleep(&time, NULL);
}

/* ---- the source and the kernels ---- */

/* What every op does first; `micro_batch` of the step. */
static inline sl_status loop_enter(sl_op_kind kind, uint32_t micro_batch)
{
    uint32_t run = atomic_fetch_add(&loop.runs[kind], 1);
    if (loop.has_failed)
        atomic_fetch_add(&loop.runs_after, 1);
    if (run % 3 == 1)
        loop_sleep(loop.sleep_us[kind]);
    if (loop.fail_kind == kind && loop.fail_step == loop.step &&
        loop.fail_repetition + LOOP_FIRST_MICRO_BATCH == micro_batch) {
        loop.has_failed = 1;
        SL_FAIL(SL_ERROR_NONFINITE, "op kind %d fails in %u", (int)kind, micro_batch);
    }
    return SL_OK;
}

static inline uint64_t loop_token(uint32_t step, uint32_t micro_batch)
{
    return loop_mix(step, micro_batch);
}

static inline sl_status loop_fill(void *user, const sl_engine_fill *what, void *memory)
{
    atomic_fetch_add(&loop.fills, 1);
    loop_check(user == &loop && what->plan_index == 0 && what->slot == SL_INPUT_TOKENS &&
               what->bytes == 8);
    SL_TRY(loop_enter(SL_OP_INPUT, what->micro_batch));
    *(uint64_t *)memory = loop_token(loop.step, what->micro_batch);
    return SL_OK;
}

/* sum */
static inline sl_status loop_clear(const sl_kernel_call *call)
{
    SL_TRY(loop_enter(SL_OP_CLEAR, call->micro_batch));
    *(uint64_t *)call->operand[0] = 0;
    return SL_OK;
}

/* Until this token and the next are on the device. */
static inline void loop_await_copies(const sl_kernel_call *call)
{
    uint32_t wanted = call->micro_batch - LOOP_FIRST_MICRO_BATCH + 2;
    wanted = wanted > loop.repeat ? loop.repeat : wanted;
    for (int i = 0; i < 60000 && !loop.wrong && *loop.copies_in < wanted; i++)
        loop_sleep(1000);
    loop_check(*loop.copies_in >= wanted);
}

/* token, member */
static inline sl_status loop_map(const sl_kernel_call *call)
{
    SL_TRY(loop_enter(SL_OP_LINEAR, call->micro_batch));
    if (loop.copies_in)
        loop_await_copies(call);
    uint64_t number = loop_mix(*(const uint64_t *)call->operand[0], call->micro_batch);
    for (uint32_t i = 0; i < LOOP_WORDS; i++)
        ((uint64_t *)call->operand[1])[i] = number;
    return SL_OK;
}

/* token, host sum */
static inline sl_status loop_host_sum(const sl_kernel_call *call)
{
    SL_TRY(loop_enter(SL_OP_ROUND, call->micro_batch));
    uint64_t *sum = call->operand[1];
    *sum = loop_mix(*sum, *(const uint64_t *)call->operand[0]);
    return SL_OK;
}

/* member, sum */
static inline sl_status loop_sum(const sl_kernel_call *call)
{
    SL_TRY(loop_enter(SL_OP_ADD, call->micro_batch));
    const uint64_t *member = call->operand[0];
    uint64_t *sum = call->operand[1];
    for (uint32_t i = 1; i < LOOP_WORDS; i++)
        loop_check(member[i] == member[0]);
    *sum = loop_mix(*sum, member[0]);
    return SL_OK;
}

/* sum, control */
static inline sl_status loop_finish(const sl_kernel_call *call)
{
    SL_TRY(loop_enter(SL_OP_NORM_FINISH, call->micro_batch));
    *(uint64_t *)call->operand[1] = *(const uint64_t *)call->operand[0];
    return SL_OK;
}

static inline sl_status loop_open_kernels(int device_index, const sl_cuda_options *options,
                                          sl_kernel_library **out_library)
{
    (void)device_index;
    (void)options;
    *out_library = NULL;
    return SL_OK;
}

static inline void loop_close_kernels(sl_kernel_library *library)
{
    (void)library;
}

static inline sl_status loop_prepare(sl_kernel_library *library, sl_op_kind kind,
                                     const sl_kernel_call *call)
{
    (void)library;
    loop_check(call->attrs != NULL && kind != SL_OP_INPUT);
    return SL_OK;
}

static const sl_kernel_table loop_kernels = {.row = {[SL_OP_CLEAR] = {loop_clear},
                                                     [SL_OP_LINEAR] = {loop_map},
                                                     [SL_OP_ROUND] = {loop_host_sum},
                                                     [SL_OP_ADD] = {loop_sum},
                                                     [SL_OP_NORM_FINISH] = {loop_finish}},
                                             .open = loop_open_kernels,
                                             .close = loop_close_kernels,
                                             .prepare = loop_prepare};

/* ---- the plan ---- */

typedef struct loop_world {
    sl_value values[LOOP_VALUES];
    sl_op ops[LOOP_OPS];
    sl_command commands[LOOP_ROLES];
    sl_place places[LOOP_PLACES];
    sl_wait waits[LOOP_WAITS];
    sl_section sections[LOOP_SECTIONS];
    uint32_t index[LOOP_ROLES]; /* of a role's command */
    uint32_t repeat;
    bool has_disk;
    sl_program program;
    sl_plan plan;
    sl_layout layout;
    sl_homes homes;
    sl_engine_plan plans[1];
    sl_engine_source source;
    const char *directories[1];
    sl_engine_options options;
    sl_engine_parts parts;
} loop_world;

static inline sl_place loop_place(sl_tier tier, uint32_t cell, uint64_t bytes, uint32_t slots)
{
    uint64_t stride = tier == SL_TIER_DISK ? SL_DISK_ALIGNMENT : LOOP_CELL;
    return (sl_place){tier, cell * stride, bytes, slots > 1 ? stride : 0, slots};
}

static inline sl_command *loop_command(loop_world *w, loop_role role, sl_lane lane)
{
    sl_command *command = &w->commands[w->index[role]];
    *command = (sl_command){.lane = lane, .value = SL_NONE, .chunk_index = SL_NONE};
    return command;
}

/* Without a second operand `b` has no bytes; no op has a workspace. */
static inline void loop_run(loop_world *w, loop_role role, sl_lane lane, uint32_t tick, sl_place a,
                            sl_place b)
{
    sl_command *command = loop_command(w, role, lane);
    command->kind = SL_COMMAND_RUN;
    command->tick = tick;
    command->first_place = w->plan.place_count;
    command->place_count = b.bytes ? 3 : 2;
    w->places[w->plan.place_count++] = a;
    if (b.bytes)
        w->places[w->plan.place_count++] = b;
    w->places[w->plan.place_count++] = (sl_place){0};
}

static inline void loop_copy(loop_world *w, loop_role role, sl_lane lane, uint32_t value,
                             sl_place from, sl_place to)
{
    sl_command *command = loop_command(w, role, lane);
    command->kind = SL_COMMAND_COPY;
    command->value = value;
    command->from = from;
    command->to = to;
}

typedef struct loop_wait {
    loop_role waiter, target;
    uint32_t age;
} loop_wait;

/* In the order of the waiters. */
static inline void loop_add_waits(loop_world *w)
{
    static const loop_wait waits[] = {
        {LOOP_INPUT, LOOP_TOKEN_IN, 1},         {LOOP_INPUT, LOOP_HOST_SUM, 1},
        {LOOP_TOKEN_IN, LOOP_INPUT, 0},         {LOOP_TOKEN_IN, LOOP_MAP, 1},
        {LOOP_MAP, LOOP_TOKEN_IN, 0},           {LOOP_MAP, LOOP_SPILL_OUT, 1},
        {LOOP_HOST_SUM, LOOP_INPUT, 0},         {LOOP_SPILL_OUT, LOOP_MAP, 0},
        {LOOP_SPILL_OUT, LOOP_SPILL_WRITE, 1},  {LOOP_SPILL_WRITE, LOOP_SPILL_OUT, 0},
        {LOOP_SPILL_READ, LOOP_SPILL_WRITE, 0}, {LOOP_SPILL_READ, LOOP_SPILL_IN, 1},
        {LOOP_SPILL_IN, LOOP_SPILL_READ, 0},    {LOOP_SPILL_IN, LOOP_SUM, 1},
        {LOOP_SUM, LOOP_SPILL_IN, 0},           {LOOP_FINISH, LOOP_HOST_SUM, 0},
        {LOOP_CONTROL_OUT, LOOP_FINISH, 0},
    };
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        const loop_wait *wait = &waits[i];
        if (w->index[wait->waiter] == SL_NONE || w->index[wait->target] == SL_NONE)
            continue;
        sl_command *waiter = &w->commands[w->index[wait->waiter]];
        if (waiter->wait_count++ == 0)
            waiter->first_wait = w->plan.wait_count;
        w->waits[w->plan.wait_count++] = (sl_wait){w->index[wait->target], wait->age};
    }
}

static inline void loop_fill_sections(loop_world *w)
{
    static const uint8_t section_of[LOOP_ROLES] = {0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3};
    for (int s = 0; s < LOOP_SECTIONS; s++) {
        bool is_loop = s == 1 || s == 2;
        w->sections[s].first_micro_batch = is_loop ? LOOP_FIRST_MICRO_BATCH : 0;
        w->sections[s].repeat = is_loop ? w->repeat : 1;
    }
    for (int role = 0; role < LOOP_ROLES; role++) {
        bool is_left_out = !w->has_disk && role >= LOOP_SPILL_OUT && role <= LOOP_SPILL_IN;
        w->index[role] = is_left_out ? SL_NONE : w->plan.body_count;
        if (is_left_out)
            continue;
        sl_section *section = &w->sections[section_of[role]];
        if (section->count++ == 0)
            section->first = w->plan.body_count;
        w->plan.body_count++;
    }
}

static inline void loop_fill_program(loop_world *w)
{
    const sl_value values[LOOP_VALUES] = {
        {.kind = SL_VALUE_INPUT, .index = SL_INPUT_TOKENS, .instances = 1, .bytes = 8},
        {.kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_CONTROL, .instances = 1, .bytes = 8},
        {.kind = SL_VALUE_ACTIVATION, .instances = w->repeat, .bytes = LOOP_CELL, .name = "member"},
    };
    const uint32_t first = LOOP_FIRST_MICRO_BATCH;
    const sl_op ops[LOOP_OPS] = {
        {.kind = SL_OP_CLEAR},
        {.kind = SL_OP_INPUT, .operand = {LOOP_VALUE_TOKEN}, .micro_batch = first},
        {.kind = SL_OP_LINEAR, .micro_batch = first},
        {.kind = SL_OP_ROUND, .micro_batch = first},
        {.kind = SL_OP_ADD, .micro_batch = first},
        {.kind = SL_OP_NORM_FINISH},
    };
    memcpy(w->values, values, sizeof values);
    memcpy(w->ops, ops, sizeof ops);
    w->program = (sl_program){
        .values = w->values, .value_count = LOOP_VALUES, .ops = w->ops, .op_count = LOOP_OPS};
}

static inline void loop_fill_spill(loop_world *w, sl_place device)
{
    sl_place disk = loop_place(SL_TIER_DISK, 0, LOOP_CELL, w->repeat);
    sl_place spill = loop_place(SL_TIER_HOST, LOOP_HOST_SPILL, LOOP_CELL, 2);
    sl_place host_back = loop_place(SL_TIER_HOST, LOOP_HOST_BACK, LOOP_CELL, 2);
    sl_place back = loop_place(SL_TIER_DEVICE, LOOP_DEVICE_BACK, LOOP_CELL, 2);
    loop_copy(w, LOOP_SPILL_OUT, SL_LANE_D2H, LOOP_VALUE_MEMBER, device, spill);
    loop_copy(w, LOOP_SPILL_WRITE, SL_LANE_WRITE, LOOP_VALUE_MEMBER, spill, disk);
    loop_copy(w, LOOP_SPILL_READ, SL_LANE_READ, LOOP_VALUE_MEMBER, disk, host_back);
    loop_copy(w, LOOP_SPILL_IN, SL_LANE_H2D, LOOP_VALUE_MEMBER, host_back, back);
}

static inline void loop_fill_commands(loop_world *w)
{
    const sl_place none = {0};
    sl_place sum = loop_place(SL_TIER_DEVICE, LOOP_DEVICE_SUM, 8, 1);
    sl_place control = loop_place(SL_TIER_DEVICE, LOOP_DEVICE_CONTROL, 8, 1);
    sl_place tokens = loop_place(SL_TIER_DEVICE, LOOP_DEVICE_TOKENS, 8, 2);
    sl_place back = loop_place(SL_TIER_DEVICE, LOOP_DEVICE_BACK, LOOP_CELL, 2);
    sl_place member =
        loop_place(SL_TIER_DEVICE, LOOP_DEVICE_MEMBERS, LOOP_CELL, w->has_disk ? 2 : w->repeat);
    sl_place host_tokens = loop_place(SL_TIER_HOST, LOOP_HOST_TOKENS, 8, 2);
    sl_place host_sum = loop_place(SL_TIER_HOST, LOOP_HOST_SUM_CELL, 8, 1);
    sl_place out = loop_place(SL_TIER_HOST, LOOP_HOST_CONTROL, 8, 1);
    loop_run(w, LOOP_CLEAR, SL_LANE_COMPUTE, 0, sum, none);
    loop_run(w, LOOP_INPUT, SL_LANE_INPUT, 1, host_tokens, none);
    loop_copy(w, LOOP_TOKEN_IN, SL_LANE_H2D, LOOP_VALUE_TOKEN, host_tokens, tokens);
    loop_run(w, LOOP_MAP, SL_LANE_COMPUTE, 2, tokens, member);
    loop_run(w, LOOP_HOST_SUM, SL_LANE_HOST, 3, host_tokens, host_sum);
    loop_run(w, LOOP_SUM, SL_LANE_COMPUTE, 4, w->has_disk ? back : member, sum);
    loop_run(w, LOOP_FINISH, SL_LANE_COMPUTE, 5, sum, control);
    loop_copy(w, LOOP_CONTROL_OUT, SL_LANE_D2H, LOOP_VALUE_CONTROL, control, out);
    if (w->has_disk)
        loop_fill_spill(w, member);
}

/* Fills everything and sets the fakes back; the world must not move afterwards. `directory` NULL:
 * without a disk. */
static inline void loop_world_init(loop_world *w, uint32_t repeat, const char *directory)
{
    memset(w, 0, sizeof *w);
    memset(&loop, 0, sizeof loop);
    loop.fail_step = LOOP_NEVER;
    loop.repeat = w->repeat = repeat;
    w->has_disk = directory != NULL;
    loop_fill_program(w);
    loop_fill_sections(w);
    loop_fill_commands(w);
    loop_add_waits(w);
    w->plan.body = w->commands;
    w->plan.sections = w->sections;
    w->plan.section_count = LOOP_SECTIONS;
    w->plan.places = w->places;
    w->plan.waits = w->waits;
    uint64_t members = w->has_disk ? 2 : repeat;
    w->plan.peak_bytes[SL_TIER_DEVICE] = (LOOP_DEVICE_MEMBERS + members) * LOOP_CELL;
    w->plan.peak_bytes[SL_TIER_HOST] = (uint64_t)LOOP_HOST_CELLS * LOOP_CELL;
    w->plan.peak_bytes[SL_TIER_DISK] = w->has_disk ? (uint64_t)repeat * SL_DISK_ALIGNMENT : 0;
    w->layout = (sl_layout){.chunk_elements = SL_BLOCK_ELEMENTS};
    w->plans[0] = (sl_engine_plan){&w->program, &w->plan};
    w->source = (sl_engine_source){loop_fill, &loop};
    w->directories[0] = directory;
    w->options = (sl_engine_options){.layout = &w->layout,
                                     .homes = &w->homes,
                                     .plans = w->plans,
                                     .plan_count = 1,
                                     .target = {.worker_count = 1},
                                     .source = &w->source,
                                     .disk_directories = w->directories,
                                     .disk_directory_count = directory != NULL};
    w->parts = (sl_engine_parts){.kernels = &loop_kernels, .repetitions_ahead = 2};
}

/* ---- running, and what has to come out ---- */

static inline sl_engine *loop_open(loop_world *w)
{
    sl_engine *engine = NULL;
    if (sl_engine_open_with(&w->options, &w->parts, &engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    return engine;
}

static inline sl_status loop_step(sl_engine *engine, uint32_t step, uint64_t *out_control)
{
    const sl_step_scalars scalars = {.position = step};
    loop.step = step;
    SL_TRY(sl_engine_step(engine, 0, &scalars));
    *out_control = *(const uint64_t *)sl_engine_output(engine, 0, SL_OUTPUT_CONTROL);
    return SL_OK;
}

static inline uint64_t loop_expect(uint32_t step, uint32_t repeat, uint64_t *host_sum)
{
    uint64_t sum = 0;
    for (uint32_t m = LOOP_FIRST_MICRO_BATCH; m < LOOP_FIRST_MICRO_BATCH + repeat; m++) {
        *host_sum = loop_mix(*host_sum, loop_token(step, m));
        sum = loop_mix(sum, loop_mix(loop_token(step, m), m));
    }
    return sum;
}

static inline uint64_t loop_read_host_sum(const sl_engine *engine)
{
    const char *host = sl_engine_arena(engine, SL_TIER_HOST);
    return *(const uint64_t *)(host + (size_t)LOOP_HOST_SUM_CELL * LOOP_CELL);
}

#endif
