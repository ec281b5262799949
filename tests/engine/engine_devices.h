/* A plan with two loops for tests of the engine over the devices, with their own kernels: the cpu,
 * or, with SL_TEST_STANDIN, the stand-in of tests/cuda with and without cuStreamWaitValue32.
 *
 * A source fills a ring on the host, which goes to a ring on the device and is added to members of
 * a family; those are summed up in a second loop. All numbers are small and whole, so every sum is
 * exact. Include after cmocka.h. */
#ifndef TESTS_ENGINE_DEVICES_H
#define TESTS_ENGINE_DEVICES_H

#include <string.h>

#include "engine/engine_internal.h"

#ifdef SL_TEST_STANDIN
#include "standin.h"
enum { WAYS = 2 };
static const sl_device_kind device_kind = SL_DEVICE_CUDA;
#else
enum { WAYS = 1 };
static const sl_device_kind device_kind = SL_DEVICE_CPU;
#endif

enum { ELEMENTS = 1024, CELL = ELEMENTS * 4, COMMANDS = 8, NEVER = -1 };
enum { SUM, TOKENS, MEMBERS = TOKENS + 2, HOST_TOKENS = 0, HOST_SUM = 2, OUT = 3, HOST_CELLS = 4 };
enum { CLEAR_SUM, INPUT, TOKEN_IN, CLEAR_MEMBER, ADD_TOKEN, ADD_ON_HOST, ADD_MEMBER, SUM_OUT };

typedef struct made_source {
    uint32_t step;
    int64_t fail_micro_batch;
    uint32_t done; /* progress */
} made_source;

typedef struct made_plan {
    sl_value values[2];
    sl_op ops[6];
    sl_command commands[COMMANDS];
    sl_place places[24];
    sl_wait waits[16];
    sl_section sections[4];
    sl_program program;
    sl_plan plan;
    sl_engine_plan plans[1];
    sl_layout layout;
    sl_homes homes;
    made_source made;
    sl_engine_source source;
    sl_engine_progress progress;
    sl_engine_options options;
    sl_engine_parts parts;
} made_plan;

static float token(uint32_t step, uint32_t micro_batch, uint32_t element)
{
    return (float)(step % 8 + 3 * micro_batch % 32 + element % 5);
}

static sl_status fill(void *user, const sl_engine_fill *what, void *memory)
{
    const made_source *made = user;
    if (made->fail_micro_batch == what->micro_batch)
        SL_FAIL(SL_ERROR_IO, "nothing is left");
    for (uint32_t i = 0; i < what->bytes / sizeof(float); i++)
        ((float *)memory)[i] = token(made->step, what->micro_batch, i);
    return SL_OK;
}

static void note_progress(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    (void)plan_index, (void)count;
    ((made_source *)user)->done = done;
}

/* ---- the plan ---- */

static sl_place cells(sl_tier tier, uint32_t cell, uint32_t slots)
{
    return (sl_place){tier, (uint64_t)cell * CELL, CELL, CELL, slots};
}

static void add_waits(made_plan *p, uint32_t command, uint32_t count, const sl_wait *waits)
{
    p->commands[command].first_wait = p->plan.wait_count;
    p->commands[command].wait_count = count;
    for (uint32_t i = 0; i < count; i++)
        p->waits[p->plan.wait_count++] = waits[i];
}

static void add_run(made_plan *p, uint32_t command, sl_lane lane, uint32_t tick, uint32_t count,
                    const sl_place *operands)
{
    p->commands[command] = (sl_command){.kind = SL_COMMAND_RUN,
                                        .lane = lane,
                                        .tick = tick,
                                        .first_place = p->plan.place_count,
                                        .place_count = count + 1,
                                        .value = SL_NONE,
                                        .chunk_index = SL_NONE};
    for (uint32_t i = 0; i < count; i++)
        p->places[p->plan.place_count++] = operands[i];
    p->plan.place_count++; /* no workspace */
}

static void add_copy(made_plan *p, uint32_t command, sl_lane lane, uint32_t value, sl_place from,
                     sl_place to)
{
    p->commands[command] = (sl_command){.kind = SL_COMMAND_COPY,
                                        .lane = lane,
                                        .value = value,
                                        .chunk_index = SL_NONE,
                                        .from = from,
                                        .to = to};
}

static void add_commands(made_plan *p, uint32_t repeat)
{
    sl_place sum = cells(SL_TIER_DEVICE, SUM, 1), tokens = cells(SL_TIER_DEVICE, TOKENS, 2);
    sl_place member = cells(SL_TIER_DEVICE, MEMBERS, repeat);
    sl_place host_tokens = cells(SL_TIER_HOST, HOST_TOKENS, 2);
    sl_place host_sum = cells(SL_TIER_HOST, HOST_SUM, 1);
    add_run(p, CLEAR_SUM, SL_LANE_COMPUTE, 0, 1, &sum);
    add_run(p, INPUT, SL_LANE_INPUT, 1, 1, &host_tokens);
    add_copy(p, TOKEN_IN, SL_LANE_H2D, 0, host_tokens, tokens);
    add_run(p, CLEAR_MEMBER, SL_LANE_COMPUTE, 2, 1, &member);
    add_run(p, ADD_TOKEN, SL_LANE_COMPUTE, 3, 2, (sl_place[]){tokens, member});
    add_run(p, ADD_ON_HOST, SL_LANE_HOST, 4, 2, (sl_place[]){host_tokens, host_sum});
    add_run(p, ADD_MEMBER, SL_LANE_COMPUTE, 5, 2, (sl_place[]){member, sum});
    add_copy(p, SUM_OUT, SL_LANE_D2H, 1, sum, cells(SL_TIER_HOST, OUT, 1));
    add_waits(p, INPUT, 2, (sl_wait[]){{TOKEN_IN, 1}, {ADD_ON_HOST, 1}});
    add_waits(p, TOKEN_IN, 2, (sl_wait[]){{INPUT, 0}, {ADD_TOKEN, 1}});
    add_waits(p, ADD_TOKEN, 1, (sl_wait[]){{TOKEN_IN, 0}});
    add_waits(p, ADD_ON_HOST, 1, (sl_wait[]){{INPUT, 0}});
    add_waits(p, SUM_OUT, 2, (sl_wait[]){{ADD_MEMBER, 0}, {ADD_ON_HOST, 0}});
}

static void fill_program(made_plan *p)
{
    static const sl_op_kind kinds[6] = {SL_OP_CLEAR, SL_OP_INPUT, SL_OP_CLEAR,
                                        SL_OP_ADD,   SL_OP_ADD,   SL_OP_ADD};
    for (int i = 0; i < 6; i++)
        p->ops[i] = (sl_op){.kind = kinds[i], .attrs = {.element_count = ELEMENTS}};
    p->values[0] = (sl_value){.kind = SL_VALUE_INPUT, .bytes = CELL};
    p->values[1] = (sl_value){.kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_CONTROL, .bytes = CELL};
    p->program = (sl_program){.values = p->values, .value_count = 2, .ops = p->ops, .op_count = 6};
}

static void make_plan(made_plan *p, uint32_t repeat)
{
    memset(p, 0, sizeof *p);
    fill_program(p);
    add_commands(p, repeat);
    p->sections[0] = (sl_section){CLEAR_SUM, 1, 0, 1};
    p->sections[1] = (sl_section){INPUT, 5, 0, repeat};
    p->sections[2] = (sl_section){ADD_MEMBER, 1, 0, repeat};
    p->sections[3] = (sl_section){SUM_OUT, 1, 0, 1};
    p->plan.body = p->commands;
    p->plan.body_count = COMMANDS;
    p->plan.sections = p->sections;
    p->plan.section_count = 4;
    p->plan.places = p->places;
    p->plan.waits = p->waits;
    p->plan.peak_bytes[SL_TIER_DEVICE] = (uint64_t)(MEMBERS + repeat) * CELL;
    p->plan.peak_bytes[SL_TIER_HOST] = (uint64_t)HOST_CELLS * CELL;
    p->plans[0] = (sl_engine_plan){&p->program, &p->plan};
    p->layout = (sl_layout){.chunk_elements = SL_BLOCK_ELEMENTS};
    p->made.fail_micro_batch = NEVER;
    p->source = (sl_engine_source){fill, &p->made};
    p->progress = (sl_engine_progress){note_progress, &p->made};
    p->options = (sl_engine_options){.target = {.device = device_kind, .worker_count = 1},
                                     .layout = &p->layout,
                                     .homes = &p->homes,
                                     .plans = p->plans,
                                     .plan_count = 1,
                                     .source = &p->source,
                                     .progress = &p->progress};
    p->parts = (sl_engine_parts){.repetitions_ahead = 2};
}

static sl_engine *open_engine(const made_plan *p)
{
    sl_engine *engine = NULL;
    if (sl_engine_open_with(&p->options, &p->parts, &engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    return engine;
}

#endif
