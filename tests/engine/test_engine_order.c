/* What could be wrong in how the engine orders lanes: any lost, misplaced or misread wait, also
 * over the seams of loops. Random plans over random cells of memory on four lanes, in sections that
 * are repeated at random, with places that move from repetition to repetition; with exactly the
 * waits that their hazards need, run many times. Every command mixes what it reads into what it
 * writes, so one wrong order or place changes the cells. The oracle runs the commands one after the
 * other. The waits are derived here, from reads and writes alone: of each two commands the plan is
 * unrolled to see how many issues back the latest is that touches the same cell. Under TSan a
 * missing order is a race even when the numbers happen to be right. SL_TEST_SEED repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/engine_internal.h"

enum {
    CELLS = 4, /* of each tier */
    CELL_STRIDE = 256,
    CELL_WORDS = 8,
    COMMANDS_MAX = 24,
    WAITS_MAX = COMMANDS_MAX * COMMANDS_MAX * 2,
    SECTIONS_MAX = 4,
    REPEAT_MAX = 5,
    UNROLLED = 3, /* iterations; the third begins as any later one */
    ITERATIONS = 12
};

/* Where an operand is: cells 0..3 device, 4..7 host; `slots` of them in turn. */
typedef struct operand_spec {
    uint32_t cell, slots;
} operand_spec;

/* One command: reads `source` and perhaps `target`, writes `target`. */
typedef struct step_spec {
    sl_lane lane;
    operand_spec source, target;
    uint64_t salt; /* RUN */
} step_spec;

typedef struct random_plan {
    uint64_t seed, draw;
    uint32_t count;
    step_spec specs[COMMANDS_MAX];
    sl_op ops[COMMANDS_MAX];
    sl_command commands[COMMANDS_MAX];
    sl_place places[COMMANDS_MAX * 3];
    sl_wait waits[WAITS_MAX];
    uint32_t wait_count;
    sl_section sections[SECTIONS_MAX];
    uint32_t section_count;
    sl_program program;
    sl_plan plan;
} random_plan;

static uint32_t pick(random_plan *random, uint32_t bound)
{
    return (uint32_t)sl_rng_below(random->seed, 0, random->draw++, bound);
}

/* ---- what a command computes ---- */

static void mix_cells(uint64_t *target, const uint64_t *source, uint64_t salt)
{
    for (int i = 0; i < CELL_WORDS; i++) {
        uint64_t x = target[i] * 0x9E3779B97F4A7C15u + source[i] * 0xC2B2AE3D27D4EB4Fu + salt + 1;
        target[i] = x ^ x >> 31;
    }
}

/* source R, target U */
static sl_status fake_add(const sl_kernel_call *call)
{
    uint64_t salt = call->attrs->element_count + call->scalars.position + call->micro_batch;
    if (salt % 4 == 0) {
        struct timespec time = {0, (long)(salt % 97) * 2000};
        nanosleep(&time, NULL);
    }
    mix_cells(call->operand[1], call->operand[0], salt);
    return SL_OK;
}

static sl_status fake_open(int device_index, const sl_cuda_options *options,
                           sl_kernel_library **out_library)
{
    (void)device_index;
    (void)options;
    *out_library = NULL;
    return SL_OK;
}

static void fake_close(sl_kernel_library *library)
{
    (void)library;
}

static sl_status fake_prepare(sl_kernel_library *library, sl_op_kind kind,
                              const sl_kernel_call *call)
{
    (void)library;
    (void)kind;
    (void)call;
    return SL_OK;
}

static const sl_kernel_table kernels = {.row = {[SL_OP_ADD] = {fake_add}},
                                        .open = fake_open,
                                        .close = fake_close,
                                        .prepare = fake_prepare};

/* A command in one of its repetitions. */
typedef struct issue {
    uint32_t command, source, target; /* cells */
    uint64_t salt;
} issue;

static uint32_t cell_in(const operand_spec *operand, uint32_t repetition)
{
    return operand->cell + repetition % operand->slots;
}

/* Lists an iteration in the order in which it is issued; returns how many. */
static uint32_t unroll(const random_plan *random, issue *out_issues)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < random->section_count; s++) {
        const sl_section *section = &random->sections[s];
        for (uint32_t r = 0; r < section->repeat; r++) {
            for (uint32_t i = section->first; i < section->first + section->count; i++) {
                const step_spec *spec = &random->specs[i];
                out_issues[count++] =
                    (issue){i, cell_in(&spec->source, r), cell_in(&spec->target, r),
                            spec->salt + section->first_micro_batch + r};
            }
        }
    }
    return count;
}

static void expect_iteration(const random_plan *random, uint64_t cells[][CELL_WORDS],
                             uint32_t position)
{
    static issue issues[COMMANDS_MAX * REPEAT_MAX];
    uint32_t count = unroll(random, issues);
    for (uint32_t i = 0; i < count; i++) {
        sl_lane lane = random->specs[issues[i].command].lane;
        uint64_t *target = cells[issues[i].target], *source = cells[issues[i].source];
        if (lane == SL_LANE_H2D || lane == SL_LANE_D2H)
            memcpy(target, source, sizeof cells[0]);
        else
            mix_cells(target, source, issues[i].salt + position);
    }
}

/* ---- making a plan ---- */

static operand_spec draw_operand(random_plan *random, bool is_on_host)
{
    uint32_t slots = pick(random, 2) ? 1 : 1 + pick(random, 3);
    return (operand_spec){pick(random, CELLS + 1 - slots) + (is_on_host ? CELLS : 0), slots};
}

static void draw_specs(random_plan *random)
{
    random->count = 3 + pick(random, COMMANDS_MAX - 2);
    for (uint32_t i = 0; i < random->count; i++) {
        step_spec *spec = &random->specs[i];
        spec->lane = (sl_lane)pick(random, 4); /* COMPUTE, H2D, D2H, HOST */
        bool from_host = spec->lane == SL_LANE_H2D || spec->lane == SL_LANE_HOST;
        bool to_host = spec->lane == SL_LANE_D2H || spec->lane == SL_LANE_HOST;
        spec->source = draw_operand(random, from_host);
        spec->target = draw_operand(random, to_host);
        spec->salt = pick(random, 1000);
    }
}

/* Cuts the commands into sections, some of them empty. */
static void draw_sections(random_plan *random)
{
    uint32_t next = 0;
    random->section_count = 1 + pick(random, SECTIONS_MAX);
    for (uint32_t s = 0; s < random->section_count; s++) {
        sl_section *section = &random->sections[s];
        uint32_t left = random->count - next;
        bool is_last = s + 1 == random->section_count;
        section->first = next;
        section->count = is_last ? left : pick(random, left + 1);
        section->first_micro_batch = pick(random, 3);
        section->repeat = pick(random, 3) ? 1 + pick(random, REPEAT_MAX) : 1;
        next += section->count;
    }
}

static bool conflict(const issue *a, const issue *b)
{
    return a->target == b->target || a->target == b->source || a->source == b->target;
}

/* How many issues of `command` lie between issue `at` and the latest of them before it that it must
 * not overtake; SL_NONE: there is none. */
static uint32_t find_age(const issue *issues, uint32_t at, uint32_t command)
{
    uint32_t age = 0;
    for (uint32_t i = at; i-- > 0;) {
        if (issues[i].command != command)
            continue;
        if (conflict(&issues[i], &issues[at]))
            return age;
        age++;
    }
    return SL_NONE;
}

/* Waits of command `i` for every command of another lane, as old as they may be in all its issues.
 */
static void derive_waits(random_plan *random, uint32_t i, const issue *issues, uint32_t count)
{
    random->commands[i].first_wait = random->wait_count;
    for (uint32_t j = 0; j < random->count; j++) {
        uint32_t age = SL_NONE;
        if (random->specs[j].lane == random->specs[i].lane)
            continue;
        for (uint32_t at = 0; at < count; at++) {
            uint32_t own = issues[at].command == i ? find_age(issues, at, j) : SL_NONE;
            age = own < age ? own : age;
        }
        if (age != SL_NONE)
            random->waits[random->wait_count++] = (sl_wait){j, age > 0};
        if (age == 0 && pick(random, 8) == 0) /* needless, and harmless */
            random->waits[random->wait_count++] = (sl_wait){j, 1};
    }
    random->commands[i].wait_count = random->wait_count - random->commands[i].first_wait;
}

static void derive_all_waits(random_plan *random)
{
    static issue issues[UNROLLED * COMMANDS_MAX * REPEAT_MAX];
    uint32_t count = 0;
    for (uint32_t n = 0; n < UNROLLED; n++)
        count += unroll(random, issues + count);
    for (uint32_t i = 0; i < random->count; i++)
        derive_waits(random, i, issues, count);
}

static sl_place place_cell(operand_spec operand)
{
    sl_tier tier = operand.cell < CELLS ? SL_TIER_DEVICE : SL_TIER_HOST;
    return (sl_place){tier, (uint64_t)(operand.cell % CELLS) * CELL_STRIDE, CELL_WORDS * 8,
                      operand.slots > 1 ? CELL_STRIDE : 0, operand.slots};
}

static void make_command(random_plan *random, uint32_t i)
{
    const step_spec *spec = &random->specs[i];
    sl_command *command = &random->commands[i];
    *command =
        (sl_command){.lane = spec->lane, .tick = i, .value = SL_NONE, .chunk_index = SL_NONE};
    random->ops[i] = (sl_op){.kind = SL_OP_ADD, .attrs = {.element_count = spec->salt}};
    random->places[3 * i] = place_cell(spec->source);
    random->places[3 * i + 1] = place_cell(spec->target);
    if (spec->lane == SL_LANE_H2D || spec->lane == SL_LANE_D2H) {
        command->kind = SL_COMMAND_COPY;
        command->from = place_cell(spec->source);
        command->to = place_cell(spec->target);
    } else {
        command->kind = SL_COMMAND_RUN;
        command->first_place = 3 * i;
        command->place_count = 3;
    }
}

static void make_commands(random_plan *random)
{
    for (uint32_t i = 0; i < random->count; i++)
        make_command(random, i);
    for (uint32_t s = 0; s < random->section_count; s++) {
        const sl_section *section = &random->sections[s];
        for (uint32_t i = section->first; i < section->first + section->count; i++)
            random->ops[i].micro_batch = section->first_micro_batch;
    }
}

static void make_plan(random_plan *random, uint64_t seed)
{
    memset(random, 0, sizeof *random);
    random->seed = seed;
    draw_specs(random);
    draw_sections(random);
    make_commands(random);
    derive_all_waits(random);
    random->program = (sl_program){.ops = random->ops, .op_count = random->count};
    random->plan = (sl_plan){.body = random->commands,
                             .body_count = random->count,
                             .sections = random->sections,
                             .section_count = random->section_count,
                             .places = random->places,
                             .place_count = 3 * random->count,
                             .waits = random->waits,
                             .wait_count = random->wait_count,
                             .peak_bytes = {CELLS * CELL_STRIDE, CELLS * CELL_STRIDE}};
}

/* ---- running ---- */

static void check_cells(const sl_engine *engine, uint64_t cells[][CELL_WORDS], uint64_t seed)
{
    for (uint32_t cell = 0; cell < 2 * CELLS; cell++) {
        sl_place place = place_cell((operand_spec){cell, 1});
        const char *arena = sl_engine_arena(engine, place.tier);
        if (memcmp(arena + place.offset, cells[cell], sizeof cells[0]) != 0)
            fail_msg("cell %u differs, seed %llu", cell, (unsigned long long)seed);
    }
}

static void run_plans(uint64_t seed)
{
    static random_plan plans[2];
    uint64_t cells[2 * CELLS][CELL_WORDS] = {0};
    sl_engine *engine = NULL;
    sl_layout layout = {.chunk_elements = SL_BLOCK_ELEMENTS};
    sl_homes homes = {0};
    make_plan(&plans[0], seed);
    make_plan(&plans[1], seed ^ UINT64_C(1) << 40);
    sl_engine_plan sources[2] = {{&plans[0].program, &plans[0].plan},
                                 {&plans[1].program, &plans[1].plan}};
    sl_engine_options options = {.layout = &layout,
                                 .homes = &homes,
                                 .plans = sources,
                                 .plan_count = 2,
                                 .target = {.worker_count = 1}};
    const sl_engine_parts parts = {.kernels = &kernels};
    if (sl_engine_open_with(&options, &parts, &engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        uint32_t plan = i % 5 == 3;
        sl_step_scalars scalars = {.position = i};
        assert_int_equal(sl_engine_step(engine, plan, &scalars), SL_OK);
        expect_iteration(&plans[plan], cells, i);
        if (i % 6 == 5) {
            assert_int_equal(sl_engine_drain(engine), SL_OK);
            check_cells(engine, cells, seed);
        }
    }
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    check_cells(engine, cells, seed);
    sl_engine_close(engine);
}

static void random_plans_when_run_equal_the_plain_order(void **state)
{
    (void)state;
    const char *text = getenv("SL_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 100000;
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)seed);
    uint32_t count = getenv("SL_TEST_FULL") ? 3000 : 150;
    for (uint32_t i = 0; i < count; i++)
        run_plans(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_when_run_equal_the_plain_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
