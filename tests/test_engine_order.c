/* What could be wrong in how the engine orders lanes: any lost, misplaced or misread wait. Random
 * plans over random cells of memory on four lanes, with exactly the waits that their hazards need
 * (also across the back edge), run many times; every command mixes what it reads into what it
 * writes, so one wrong order changes the cells. The oracle runs the commands one after the other.
 * The waits are derived here, from reads and writes alone. Under TSan a missing order is a race
 * even when the numbers happen to be right. SL_TEST_SEED repeats a run. */
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
    ITERATIONS = 12
};

/* One command: reads `source` and perhaps `target`, writes `target`; cells 0..3 device, 4..7 host.
 */
typedef struct step_spec {
    sl_lane lane;
    uint32_t source, target;
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
    sl_section section;
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
    uint64_t salt = call->attrs->element_count + call->scalars.position;
    if (salt % 4 == 0) {
        struct timespec time = {0, (long)(salt % 97) * 2000};
        nanosleep(&time, NULL);
    }
    mix_cells(call->operand[1], call->operand[0], salt);
    return SL_OK;
}

static sl_status fake_open(int device_index, sl_kernel_library **out_library)
{
    (void)device_index;
    *out_library = NULL;
    return SL_OK;
}

static void fake_close(sl_kernel_library *library)
{
    (void)library;
}

static sl_status fake_prepare(sl_kernel_library *library, sl_op_kind kind, const sl_op_attrs *attrs)
{
    (void)library;
    (void)kind;
    (void)attrs;
    return SL_OK;
}

static const sl_kernel_table kernels = {.run = {[SL_OP_ADD] = fake_add},
                                        .open = fake_open,
                                        .close = fake_close,
                                        .prepare = fake_prepare};

static void expect_iteration(const random_plan *random, uint64_t cells[][CELL_WORDS],
                             uint32_t position)
{
    for (uint32_t i = 0; i < random->count; i++) {
        const step_spec *spec = &random->specs[i];
        if (spec->lane == SL_LANE_H2D || spec->lane == SL_LANE_D2H)
            memcpy(cells[spec->target], cells[spec->source], sizeof cells[0]);
        else
            mix_cells(cells[spec->target], cells[spec->source], spec->salt + position);
    }
}

/* ---- making a plan ---- */

static void draw_specs(random_plan *random)
{
    random->count = 3 + pick(random, COMMANDS_MAX - 2);
    for (uint32_t i = 0; i < random->count; i++) {
        step_spec *spec = &random->specs[i];
        spec->lane = (sl_lane)pick(random, 4); /* COMPUTE, H2D, D2H, HOST */
        bool from_host = spec->lane == SL_LANE_H2D || spec->lane == SL_LANE_HOST;
        bool to_host = spec->lane == SL_LANE_D2H || spec->lane == SL_LANE_HOST;
        spec->source = pick(random, CELLS) + (from_host ? CELLS : 0);
        spec->target = pick(random, CELLS) + (to_host ? CELLS : 0);
        spec->salt = pick(random, 1000);
    }
}

static bool conflict(const step_spec *a, const step_spec *b)
{
    return a->target == b->target || a->target == b->source || a->source == b->target;
}

/* Waits of command `i` for every conflicting command of another lane: the latest issue of each. */
static void derive_waits(random_plan *random, uint32_t i)
{
    random->commands[i].first_wait = random->wait_count;
    for (uint32_t j = 0; j < random->count; j++) {
        if (j == i || random->specs[j].lane == random->specs[i].lane ||
            !conflict(&random->specs[i], &random->specs[j]))
            continue;
        random->waits[random->wait_count++] = (sl_wait){j, 0};
        if (j < i && pick(random, 8) == 0) /* needless, and harmless */
            random->waits[random->wait_count++] = (sl_wait){j, 1};
    }
    random->commands[i].wait_count = random->wait_count - random->commands[i].first_wait;
}

static sl_place place_cell(uint32_t cell)
{
    sl_tier tier = cell < CELLS ? SL_TIER_DEVICE : SL_TIER_HOST;
    return (sl_place){tier, (uint64_t)(cell % CELLS) * CELL_STRIDE, CELL_WORDS * 8};
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

static void make_plan(random_plan *random, uint64_t seed)
{
    memset(random, 0, sizeof *random);
    random->seed = seed;
    draw_specs(random);
    for (uint32_t i = 0; i < random->count; i++) {
        make_command(random, i);
        derive_waits(random, i);
    }
    random->program = (sl_program){.ops = random->ops, .op_count = random->count};
    random->section = (sl_section){.count = random->count, .repeat = 1};
    random->plan = (sl_plan){.body = random->commands,
                             .body_count = random->count,
                             .sections = &random->section,
                             .section_count = 1,
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
        sl_place place = place_cell(cell);
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
