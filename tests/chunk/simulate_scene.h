/* Plans made by hand for tests of the simulator: a command takes a whole number of seconds. */
#ifndef SL_TESTS_SIMULATE_SCENE_H
#define SL_TESTS_SIMULATE_SCENE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chunk/plan.h"
#include "spec_programs.h"

enum {
    COMMANDS_MAX = 64,
    WAITS_MAX = 256,
    SECTIONS_MAX = 64,
    VALUE_CHUNK = 0,
    VALUE_OUTPUT = 1,
    UNIT = 1000
};

/* A plan made by hand: op i takes seconds[i] on its lane. */
typedef struct scene {
    sl_op ops[COMMANDS_MAX];
    sl_command body[COMMANDS_MAX];
    sl_wait waits[WAITS_MAX];
    sl_section sections[SECTIONS_MAX];
    sl_value values[2];
    sl_program program;
    sl_plan plan;
    sl_machine machine;
} scene;

/* Rates at which CLEAR of UNIT elements, or a copy of UNIT bytes, takes one second. */
static inline void open_scene(scene *s)
{
    memset(s, 0, sizeof *s);
    sl_op_attrs one_second = {.element_count = UNIT};
    double bytes = (double)sl_op_traffic_bytes(SL_OP_CLEAR, &one_second);
    s->machine = (sl_machine){.name = "test"};
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            s->machine.op[kind][type].byte_rate = bytes;
        s->machine.host_update[type].byte_rate = bytes;
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        s->machine.copy_rate[lane] = UNIT;
    s->values[VALUE_CHUNK].kind = SL_VALUE_CHUNK;
    s->values[VALUE_OUTPUT].kind = SL_VALUE_OUTPUT;
    s->program.ops = s->ops;
    s->program.values = s->values;
    s->program.value_count = 2;
    s->plan.body = s->body;
    s->plan.waits = s->waits;
    s->plan.sections = s->sections;
}

static inline sl_command *add_command(scene *s, sl_lane lane)
{
    sl_command *command = &s->body[s->plan.body_count++];
    command->lane = lane;
    command->first_wait = s->plan.wait_count;
    command->chunk_index = SL_NONE;
    command->value = SL_NONE;
    return command;
}

static inline uint32_t add_run(scene *s, sl_lane lane, uint64_t seconds)
{
    sl_command *command = add_command(s, lane);
    command->kind = SL_COMMAND_RUN;
    command->tick = s->program.op_count;
    s->ops[s->program.op_count++] =
        (sl_op){.kind = SL_OP_CLEAR, .attrs.element_count = seconds * UNIT};
    return s->plan.body_count - 1;
}

static inline uint32_t add_copy(scene *s, sl_lane lane, uint32_t value, uint64_t seconds)
{
    sl_command *command = add_command(s, lane);
    command->kind = SL_COMMAND_COPY;
    command->value = value;
    command->from.bytes = command->to.bytes = seconds * UNIT;
    return s->plan.body_count - 1;
}

/* The command added last waits for `command`. */
static inline void add_wait(scene *s, uint32_t command, uint32_t age)
{
    s->waits[s->plan.wait_count++] = (sl_wait){command, age};
    s->body[s->plan.body_count - 1].wait_count++;
}

static inline sl_simulation play(scene *s)
{
    if (s->plan.section_count <= 1) {
        s->plan.section_count = 1;
        s->sections[0] = (sl_section){0, s->plan.body_count, 0, 1};
    }
    sl_simulation simulation;
    assert_int_equal(sl_plan_simulate(&s->program, &s->plan, &s->machine, &simulation), SL_OK);
    return simulation;
}

/* Times here are sums of some hundred doubles below 2^12: errors stay under 1e-9 s. */
static inline void assert_seconds(double found, double expected)
{
    if (!(fabs(found - expected) < 1e-9))
        fail_msg("%.12f s instead of %.12f s", found, expected);
}

/* Up to 63 commands on six lanes, each with up to three waits. */
static inline void fill_at_random(scene *s, uint64_t *random)
{
    static const sl_lane lanes[] = {SL_LANE_COMPUTE, SL_LANE_COMPUTE, SL_LANE_HOST, SL_LANE_H2D,
                                    SL_LANE_D2H,     SL_LANE_READ,    SL_LANE_WRITE};
    uint32_t count = 1 + (uint32_t)spec_random(random, COMMANDS_MAX - 1);
    for (uint32_t i = 0; i < count; i++) {
        sl_lane lane = lanes[spec_random(random, 7)];
        uint64_t seconds = spec_random(random, 9);
        if (lane == SL_LANE_COMPUTE || lane == SL_LANE_HOST)
            add_run(s, lane, seconds);
        else
            add_copy(s, lane, spec_random(random, 4) == 0 ? VALUE_OUTPUT : VALUE_CHUNK, seconds);
        for (uint64_t w = spec_random(random, 4); w > 0; w--) {
            add_wait(s, (uint32_t)spec_random(random, count), (uint32_t)spec_random(random, 2));
        }
    }
}

#endif
